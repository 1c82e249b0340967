#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""runs.py [--or-refuses] PROGRAM ARG...: what is no test by itself, an example or a benchmark, ends with 0 and says something; with
--or-refuses it may as well end with 77 and one line, as where there is no device for it. Last line `N passed, N failed`."""
import subprocess
import sys

may_refuse = sys.argv[1] == "--or-refuses"
command = sys.argv[1 + may_refuse:]
done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
refused = may_refuse and done.returncode == 77
faults = [f"ended with {done.returncode}"] * (done.returncode != 0 and not refused) + ["said nothing"] * (not done.stdout.strip())
faults += ["refused in more than one line"] * (refused and len(done.stdout.strip().splitlines()) > 1)
print(done.stdout)
for fault in faults:
    print(f"{command[0]} {fault}")
print(f"{int(not faults)} passed, {len(faults)} failed")
sys.exit(bool(faults))
