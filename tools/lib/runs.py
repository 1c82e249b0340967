#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""runs.py PROGRAM ARG...: what is no test by itself, an example or a benchmark, ends with 0 and says something. Last line `N passed, N failed`."""
import subprocess
import sys

done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
faults = [f"ended with {done.returncode}"] * (done.returncode != 0) + ["said nothing"] * (not done.stdout.strip())
print(done.stdout)
for fault in faults:
    print(f"{sys.argv[1]} {fault}")
print(f"{int(not faults)} passed, {len(faults)} failed")
sys.exit(bool(faults))
