#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""commands.py SOURCE BUILD [--write]: every test is run by a command, and the documentation says which.

tests/commands.toml names the suites that a build by g++ has, no other; tools/check --all runs every test, .ci/run within 14 days, and what
a sanitizer is to see it sees within 14 days, also where it runs on the same days of each week; no part of .ci/run has a day without tests; tests that need the same programs come on one day, and days cost alike, by hand; and the table
of docs/howto/test-the-library.md is what the file says (--write puts it there)."""
import datetime
import pathlib
import re
import sys

source, build = map(pathlib.Path, sys.argv[1:3])
sys.path.insert(0, str(source / "tools" / "lib"))
import choose  # noqa: E402

LEAST_OFTEN = 14  # days
SHARES = {0: "–", 1: "whole", 13: "a thirteenth, by day"}
guide = source / "docs" / "howto" / "test-the-library.md"
COLUMNS = {"check": "`tools/check`", "gate": "`.ci/run`, by g++", "address": "with ASan", "thread": "with TSan", "all": "`tools/check --all`"}
HEAD = f"| suite | what it holds | {' | '.join(COLUMNS.values())} |\n|---|---|{'---|' * len(COLUMNS)}\n"

tests = list(choose.tests_of(build))
table = choose.commands()
faults = []

has = {suites[0] for _, suites, _ in tests}
for suite in sorted(has ^ set(table)):
    faults.append(f"the suite {suite} is " + ("in no table of tests/commands.toml" if suite in has else "in tests/commands.toml and has no test"))
for suite, row in table.items():
    for column in COLUMNS:
        if row[column] > 1 and row[column] % 7 == 0:  # else a gate that runs on some days of the week never meets some of the parts
            faults.append(f"the suite {suite} has {row[column]} parts for {column}: a number that 7 does not divide")
names = [name for name, _, _ in tests]
for name in sorted({n for n in names if names.count(n) > 1}):
    faults.append(f"two tests are called {name}: they cannot be chosen by name")

first = datetime.date(2026, 11, 26)
days = [first + datetime.timedelta(days=n) for n in range(LEAST_OFTEN)]
everything, columns = set(names), []
for missing in sorted(everything - set(choose.chosen(tests, "all", first))):
    faults.append(f"tools/check --all does not run {missing}")
# What .ci/run asks of a day, as it says so: the column, and the suites where not all are asked for.
for asked in re.findall(r"^check (.*--gate .*)$", (source / ".ci" / "run").read_text(), re.M):
    column = (re.findall(r"--sanitize (\w+)", asked) or ["gate"])[0]
    suites = re.findall(r"--suite (\w+)", asked)
    by_day = [set(choose.chosen(tests, column, day, suites)) for day in days]
    wanted = {n for n, s, _ in tests if table.get(s[0], {}).get(column) and (not suites or set(suites) & set(s))}
    for missing in sorted((everything if column == "gate" else wanted) - set.union(*by_day)):
        faults.append(f".ci/run does not run {missing} within {LEAST_OFTEN} days ({column})")
    for day, chosen in zip(days, by_day):
        if not chosen:
            faults.append(f"on {day:%Y%m%d} no test is of tools/check {asked}")
    columns.append(column)
if columns != ["gate", "address", "thread"]:
    faults.append(f".ci/run asks for the parts {columns} of a day")

# Three days, by hand: d 14, a 12, b and e 10; then c, whose q is there on d's day, 17, 19 or 17; then f, 22, 17 or 15.
choose.costs = lambda: {"compile": {"p": 8, "q": 4}, "run": {"a": 12, "b": 1, "c": 3, "d": 2, "e": 1, "f": 5}}
needs = {"a": set(), "b": {"p"}, "c": {"q"}, "d": {"p", "q"}, "e": {"p"}, "f": set()}
dealt = choose.dealt([(name, frozenset(of)) for name, of in needs.items()], 3)
if dealt != {"d": 0, "a": 1, "b": 2, "e": 2, "c": 0, "f": 2}:
    faults.append(f"six tests are dealt otherwise than by hand: {dealt}")

rows = HEAD + "".join(f"| `{suite}` | {row['what']} | " + " | ".join(SHARES.get(row[c], str(row[c])) for c in COLUMNS) + " |\n"
                      for suite, row in table.items())
text = guide.read_text()
begin = text.find("| suite |")
end = text.find("\n\n", begin) + 1
if "--write" in sys.argv and begin >= 0:
    guide.write_text(text[:begin] + rows + text[end:])
elif begin < 0 or text[begin:end] != rows:
    faults.append(f"{guide.relative_to(source)} does not show tests/commands.toml: tests/gate/commands.py SOURCE BUILD --write")

for fault in faults:
    print(fault)
print(f"{len(names)} tests of {len(has)} suites looked at")
print(f"{int(not faults)} passed, {len(faults)} failed")
sys.exit(bool(faults))
