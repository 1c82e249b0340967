#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""concurrent.py PROGRAM starts|none: whether a program starts threads, as its symbols say, is what tests/meson.build says of it.

Those that start threads are the suite `concurrent`, which is all that ThreadSanitizer is given."""
import pathlib
import subprocess
import sys

program, said = pathlib.Path(sys.argv[1]), sys.argv[2] == "starts"
symbols = subprocess.run(["nm", "--undefined-only", program], stdout=subprocess.PIPE, text=True, check=True).stdout
has = "_ZNSt6thread15_M_start_thread" in symbols or "pthread_create" in symbols
if has != said:
    print(f"{program.name} {'starts threads: add it to' if has else 'starts no thread: leave it out of'} `concurrent` in tests/meson.build")
print(f"{int(has == said)} passed, {int(has != said)} failed")
sys.exit(has != said)
