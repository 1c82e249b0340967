#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""concurrent.py PROGRAM... -- PROGRAM...: programs that start threads, then those that do not, as their symbols say. A program named twice, as
it runs the cases of several files, is looked at once.

The first are the suite `concurrent`, which is all that ThreadSanitizer is given."""
import pathlib
import subprocess
import sys

split = sys.argv.index("--")
starts, does_not = (list(dict.fromkeys(names)) for names in (sys.argv[1:split], sys.argv[split + 1:]))
wrong = 0
for program in starts + does_not:
    symbols = subprocess.run(["nm", "-C", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    has = "std::thread::_M_start_thread" in symbols or "pthread_create" in symbols
    if has != (program in starts):
        wrong += 1
        print(f"{pathlib.Path(program).name} {'starts threads: add it to' if has else 'starts no thread: leave it out of'} `concurrent` in tests/meson.build")
print(f"{len(starts) + len(does_not) - wrong} passed, {wrong} failed")
sys.exit(bool(wrong))
