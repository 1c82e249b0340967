#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coverage.py EXPORT.JSON EXPORT.LCOV SOURCE UNCOVERED: lines and branches of include/, from what llvm-cov exports in two formats.

A branch is one way a condition of the source can go. The instantiations of a template count as one, wherever they were compiled; a
template that nothing instantiates is not seen. A condition that is a constant in every instantiation is none. What runs only while
compiling does not count. tests/coverage.txt lists what cannot be covered. UNCOVERED is written: a line for each line and branch."""
import bisect
import collections
import json
import pathlib
import sys

GOALS = {"lines": 99, "branches": 92}
export, lcov, source, listing = sys.argv[1:]
source = pathlib.Path(source).resolve()
include = source / "include"


def header(path):
    """A header's name; that of another file is empty."""
    path = pathlib.Path(path).resolve()
    return path.relative_to(include).as_posix() if include in path.parents else ""


# What cannot be covered: (header, text of the line) -> reason
excused, entry = {}, None
for line in (source / "tests" / "coverage.txt").read_text().splitlines():
    if line.startswith("#") or not line.strip():
        continue
    if line[0].isspace() and entry:
        excused[entry] += line.strip() + " "
    else:
        name, _, text = line.partition(": ")
        entry = (name, text.strip())
        excused[entry] = ""
unused = set(excused)

lines = collections.defaultdict(dict)  # header -> line -> count
for line in pathlib.Path(lcov).read_text().splitlines():
    if line.startswith("SF:"):
        counts = lines[header(line[3:])]
    elif line.startswith("DA:"):
        number, count = map(int, line[3:].split(",")[:2])
        counts[number] = counts.get(number, 0) + count

ways = collections.defaultdict(dict)  # header -> (line, column, line, column) -> [times true, times false]
for file in json.loads(pathlib.Path(export).read_text())["data"][0]["files"]:
    name = header(file["filename"])
    if not name:
        continue
    starts = [(s[0], s[1]) for s in file["segments"]]
    found = collections.defaultdict(lambda: [0, 0])
    for branch in file["branches"]:
        there = found[tuple(branch[:4])]
        there[0] += branch[4]
        there[1] += branch[5]
    for where, counts in found.items():
        # The code around a constant condition runs, and the condition goes neither way.
        segment = file["segments"][max(bisect.bisect_right(starts, where[:2]) - 1, 0)]
        if any(counts) or segment[2] == 0:
            ways[name][where] = counts

rows, out = [], []
total = {"lines": [0, 0], "branches": [0, 0]}
for name in sorted(filter(None, lines)):
    text = (include / name).read_text().splitlines()
    row = {"lines": [0, 0], "branches": [0, 0]}

    def count(kind, number, covered, what):
        """One line or branch: covered, excused or listed."""
        key = (name, text[number - 1].strip())
        if not covered and key in excused:
            unused.discard(key)
            return
        for sums in (row[kind], total[kind]):
            sums[0] += covered
            sums[1] += 1
        if not covered:
            out.append((name, number, what))

    for number, times in sorted(lines[name].items()):
        count("lines", number, times > 0, f"never executed: {text[number - 1].strip()}")
    for (line, column, end, end_column), counts in sorted(ways[name].items()):
        if text[line - 1].endswith("= default;"):
            continue  # a comparison that the compiler wrote
        condition = text[line - 1][column - 1:end_column - 1 if end == line else None]
        for way, times in zip(("true", "false"), counts):
            count("branches", line, times > 0, f"never {way}: {condition}")
    rows.append((name, row))


def percent(sums):
    return 100 * sums[0] / sums[1] if sums[1] else 100.0


for name, row in rows:
    print(f"{name:<48}" + "".join(f"{percent(row[kind]):8.1f} % of {row[kind][1]:>4} {kind}" for kind in GOALS))
pathlib.Path(listing).write_text("".join(f"include/{name}:{number}: {what}\n" for name, number, what in sorted(out)))
for name, text in sorted(unused):
    print(f"tests/coverage.txt excuses what is covered or is not there: {name}: {text}")
reasonless = sorted(key for key, reason in excused.items() if not reason)
for name, text in reasonless:
    print(f"tests/coverage.txt gives no reason for {name}: {text}")
print(f"{len(excused) - len(unused)} lines are excused by tests/coverage.txt; the rest of what is not covered is in {listing}")
for kind, goal in GOALS.items():
    print(f"{kind} of include/: {percent(total[kind]):.2f} % of {total[kind][1]}, goal >= {goal} %, {'met' if percent(total[kind]) >= goal else 'NOT MET'}")
sys.exit(bool(unused or reasonless) or any(percent(total[kind]) < goal for kind, goal in GOALS.items()))
