#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""count.py TESTLOG.JSON: what `meson test` ran, counted by cases. Names what failed or was skipped; last line `N passed, N failed`.

A program counts as many as its own closing line says (doctest's, or `N passed, N failed` as our scripts end), otherwise one."""
import json
import re
import sys

DOCTEST = re.compile(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed \|\s*(\d+) skipped")
OWN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)

total = [0, 0, 0]
with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
    for line in log:
        test = json.loads(line)
        said = test.get("stdout") or ""
        counts = DOCTEST.findall(said) or OWN.findall(said)
        passed, failed, skipped = (int(n or 0) for n in counts[-1]) if counts else (0, 0, 0)
        fine = test["result"] in ("OK", "EXPECTEDFAIL")
        if test["result"] == "SKIP":
            skipped = max(skipped, 1)
            print(f"skipped: {test['name']}: {(said.strip().splitlines() or ['without a word'])[-1]}")
        elif fine and not counts:
            passed = 1
        elif fine and passed + skipped == 0:
            failed = 1
            print(f"failed: {test['name']} ran no case")
        elif not fine:
            failed = max(failed, 1)
            print(f"failed: {test['name']} ({test['result'].lower()}, {test['duration']:.1f} s)")
        total = [a + b for a, b in zip(total, (passed, failed, skipped))]

if total == [0, 0, 0]:
    print("failed: no test was run")
    total[1] = 1
print(f"{total[0]} passed, {total[1]} failed" + (f", {total[2]} skipped" if total[2] else ""))
sys.exit(total[1] > 0)
