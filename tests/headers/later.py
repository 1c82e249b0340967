#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""later.py COMPILER...: the file that includes all headers is read by a compiler, under the standard that is among its arguments."""
import subprocess
import sys

done = subprocess.run([*sys.argv[1:], "-fsyntax-only"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
print(done.stdout, end="")
print(next(word for word in sys.argv if word.startswith("-std=")))
print("0 passed, 1 failed" if done.returncode else "1 passed, 0 failed")
sys.exit(done.returncode != 0)
