#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""count.py [--more FILE] TESTLOG.JSON CODE [SUITE...]: what `meson test` ran, counted by cases. Names what failed or was skipped; last line `N passed, N failed`.

On stdin is what it was to run (`meson test --list`), CODE is what it ended with, SUITE each suite that was asked for. A test
counts as many as its closing line says (doctest's, or `N passed, N failed` as our scripts end); one that passes without a closing line
has failed, and so has one that was to run and is not in the log. Each line of FILE is a failure more, and says of what."""
import collections
import json
import re
import sys

# What doctest calls skipped, filters left out: a program holds the cases of a room. One that a decorator skips fails (doctest_main.cpp).
DOCTEST = re.compile(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed \|\s*\d+ skipped\n"
                     r"\[doctest\] assertions: .*\n\[doctest\] Status: SUCCESS!\s*\Z")
OWN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*\Z", re.M)

total = {"passed": 0, "failed": 0, "skipped": 0}
planned, ran = collections.Counter(filter(None, map(str.strip, sys.stdin))), collections.Counter()


def failed(text, count=1):
    print(f"failed: {text}")
    total["failed"] += count


def cases(said):
    """(passed, failed, skipped) as the closing line says; nothing where there is none."""
    if found := DOCTEST.search(said):
        return (*map(int, found.groups()), 0)
    if found := OWN.search(said):
        return tuple(int(n or 0) for n in found.groups())
    return None


arguments = sys.argv[1:]
if arguments[0] == "--more":
    for line in open(arguments[1], encoding="utf-8"):
        failed(line.strip())
    arguments = arguments[2:]
log, code, suites = arguments[0], int(arguments[1]), arguments[2:]
with open(log, encoding="utf-8", errors="replace") as lines:
    for number, line in enumerate(lines, 1):
        try:
            test = json.loads(line)
            name, result, said = test["name"], test["result"], test.get("stdout") or ""
        except (ValueError, KeyError, TypeError):
            failed(f"line {number} of {log} is cut")
            continue
        ran[name] += 1
        counts = cases(said)
        if result == "SKIP":
            total["skipped"] += 1
            print(f"skipped: {name}: {(said.strip().splitlines() or ['without a word'])[-1]}")
        elif result != "OK":
            failed(f"{name} ({result.lower()}, {test.get('duration', 0):.1f} s)", max(counts[1] if counts else 0, 1))
            total["passed"] += counts[0] if counts else 0
        elif counts is None:
            failed(f"{name} ended with 0 and without its closing line")
        elif counts[1]:
            failed(f"{name} ended with 0, but says that {counts[1]} failed", counts[1])
        elif counts[0] == 0:
            failed(f"{name} ran no case")
        else:
            total["passed"] += counts[0]
            total["skipped"] += counts[2]

for name in planned - ran:
    failed(f"{name} was to run and is not in {log}")
for name in ran - planned:
    failed(f"{name} is in {log} and was not to run")
for suite in suites:
    if not any(suite in re.split(r"[:+]", name.partition(" / ")[0]) for name in planned):
        failed(f"no test is of the suite {suite}")
if not ran:
    failed("no test was run")
if code and not total["failed"]:
    failed(f"no test failed, but meson test ended with {code}")
print(f"{total['passed']} passed, {total['failed']} failed" + (f", {total['skipped']} skipped" if total["skipped"] else ""))
sys.exit(total["failed"] > 0)
