#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""choose.py FOLDER COMMAND [DAY]: the tests of a build folder that a command runs on a day (YYYYMMDD; today, UTC), one a line.

tests/commands.toml says of each suite whether COMMAND (check, gate, all) runs it whole, not, or every k-th of its tests: test i of a suite,
in the order of names, on days whose number + i is divisible by k."""
import collections
import datetime
import json
import pathlib
import sys
import tomllib

TABLE = pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "commands.toml"


def commands():
    """{suite: {"what": .., "check": k, "gate": k, "all": k}}"""
    return tomllib.loads(TABLE.read_text())


def tests_of(folder):
    """(name, suite) of each test of a build folder, in its order. The suite is `today` where it throws the day's dice, else the first."""
    for test in json.loads((folder / "meson-info" / "intro-tests.json").read_text()):
        suites = [suite.partition(":")[2] for suite in test["suite"]]
        yield test["name"], "today" if "today" in suites else suites[0]


def chosen(tests, command, day):
    """The names of the tests that a command runs on a day, in the order given; of a suite that the table has not, all."""
    table, numbered, place = commands(), collections.Counter(), {}
    for name, suite in sorted(tests):
        place[name] = numbered[suite]
        numbered[suite] += 1
    for name, suite in tests:
        share = table.get(suite, {}).get(command, 1)
        if share and (day.toordinal() + place[name]) % share == 0:
            yield name


if __name__ == "__main__":
    today = datetime.datetime.now(datetime.timezone.utc).date()
    day = datetime.datetime.strptime(sys.argv[3], "%Y%m%d").date() if len(sys.argv) > 3 and sys.argv[3] else today
    for name in chosen(list(tests_of(pathlib.Path(sys.argv[1]))), sys.argv[2], day):
        print(name)
