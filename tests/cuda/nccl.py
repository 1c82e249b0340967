#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl.py PROGRAM...: a program that is linked with NCCL names the version and makes a unique id; then it makes a world, or, without a
device, refuses it in one sentence with CUDA's error and ends with 1. It never hangs."""
import re
import subprocess
import sys

passed, faults = 0, []
for program in sys.argv[1:]:
    try:
        done = subprocess.run([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        faults.append(f"{program} hangs")
        continue
    print(done.stdout + done.stderr, end="")
    first, _, rest = done.stdout.partition("\n")
    if not re.fullmatch(r"NCCL \d+\.\d+\.\d+, a unique id of 128 bytes", first):
        faults.append(f"the first line is {first!r}")
    elif done.returncode == 0 and (rest, done.stderr) == ("a world of one device\n", ""):
        passed += 1
    elif done.returncode == 1 and rest == "" and re.fullmatch(r"reshard: CUDA could not [^\n]+\(cudaError\w+\)\n", done.stderr):
        passed += 1
    else:
        faults.append(f"it ended with {done.returncode}")
for fault in faults:
    print(fault)
print(f"{passed} passed, {len(faults)} failed")
sys.exit(bool(faults))
