#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""choose.py FOLDER COMMAND [DAY [SUITE...]]: the tests of a build folder that a command runs on a day (YYYYMMDD; today, UTC), one a line;
with suites those of them alone.

tests/commands.toml says of each suite whether COMMAND (a column: check, gate, ..) runs it whole, not, or every k-th program: program i of
all, in the order of names, on days whose number + i is divisible by k, so that suites with one k run the same programs on a day. A program
is one that the build made, with all its tests, so that what is not run is not built; any other test stands for itself."""
import datetime
import json
import pathlib
import sys
import tomllib

TABLE = pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "commands.toml"
SPECIAL = ["law", "many", "today", "fixed"]  # a test of one of these is counted there, of the first, whatever else it is


def counted_first(suites):
    """The suites, the one that the table counts a test in first."""
    return sorted(suites, key=lambda suite: SPECIAL.index(suite) if suite in SPECIAL else len(SPECIAL))


def commands():
    """{suite: {"what": .., column: k}}"""
    return tomllib.loads(TABLE.read_text())


def tests_of(folder):
    """(name, suites, program) of each test of a build folder, in its order; of the suites, the first is what the table calls it."""
    for test in json.loads((folder / "meson-info" / "intro-tests.json").read_text()):
        suites = counted_first(suite.partition(":")[2] for suite in test["suite"])
        program = pathlib.Path(test["cmd"][0])
        built = program.is_relative_to(folder.resolve())
        yield test["name"], suites, program.name if built else test["name"]


def chosen(tests, command, day, asked=()):
    """The names of the tests that a command runs on a day, in the order given; of a suite that the table has not, all."""
    table = commands()
    number = {program: i for i, program in enumerate(sorted({program for _, _, program in tests}))}
    for name, suites, program in tests:
        share = table.get(suites[0], {}).get(command, 1)
        if share and (day.toordinal() + number[program]) % share == 0 and (not asked or set(asked) & set(suites)):
            yield name


if __name__ == "__main__":
    today = datetime.datetime.now(datetime.timezone.utc).date()
    day = datetime.datetime.strptime(sys.argv[3], "%Y%m%d").date() if len(sys.argv) > 3 and sys.argv[3] else today
    for name in chosen(list(tests_of(pathlib.Path(sys.argv[1]))), sys.argv[2], day, sys.argv[4:]):
        print(name)
