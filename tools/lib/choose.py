#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""choose.py FOLDER COMMAND [DAY [SUITE...]]: the tests of a build folder that a command runs on a day (YYYYMMDD; today, UTC), one a line;
with suites those of them alone.

tests/commands.toml says of each suite whether COMMAND (a column: check, gate, ..) runs it whole, not, or a part each day, so that all is run
within k days. Tests with one k are dealt to k days that cost alike: those that need the same programs stay together, and go, the dearest
first, to the day that is cheapest with them,

    cost(day) = sum of run(t) over its tests + sum of compile(p) over the programs that these need, each once

as tests/costs.toml has it, of a build by g++; what is not in it is taken for cheap."""
import collections
import datetime
import functools
import json
import pathlib
import sys
import tomllib

TESTS = pathlib.Path(__file__).resolve().parent.parent.parent / "tests"
SPECIAL = ["law", "many", "today", "fixed"]  # a test of one of these is counted there, of the first, whatever else it is
CHEAP = 0.5  # CPU seconds


def counted_first(suites):
    """The suites, the one that the table counts a test in first."""
    return sorted(suites, key=lambda suite: SPECIAL.index(suite) if suite in SPECIAL else len(SPECIAL))


@functools.cache
def commands():
    """{suite: {"what": .., column: k}}"""
    return tomllib.loads((TESTS / "commands.toml").read_text())


@functools.cache
def costs():
    """{"compile": {program: CPU seconds}, "run": {test: CPU seconds}}"""
    return tomllib.loads((TESTS / "costs.toml").read_text())


def tests_of(folder):
    """(name, suites, programs that it needs) of each test of a build folder, in its order; of the suites, the first is what the table calls it."""
    for test in json.loads((folder / "meson-info" / "intro-tests.json").read_text()):
        suites = counted_first(suite.partition(":")[2] for suite in test["suite"])
        made = (target.split("@@")[-1].rpartition("@") for target in test["depends"])
        yield test["name"], suites, frozenset(name for name, _, kind in made if kind == "exe")


def dealt(tests, days):
    """{name: day} of (name, needs): the parcels of tests that need the same, dealt to that many days."""
    compile_of, run_of = costs()["compile"], costs()["run"]
    parcels = collections.defaultdict(list)
    for name, needs in tests:
        parcels[needs or name].append(name)
    runs = {of: sum(run_of.get(name, CHEAP) for name in names) for of, names in parcels.items()}

    def built(of, there=frozenset()):
        return sum(compile_of.get(program, CHEAP) for program in of - there) if isinstance(of, frozenset) else 0

    load, has, day_of = [0.0] * days, [frozenset()] * days, {}
    for of in sorted(parcels, key=lambda of: (-runs[of] - built(of), min(parcels[of]))):
        with_it = [load[day] + runs[of] + built(of, has[day]) for day in range(days)]
        day = min(range(days), key=lambda day: (with_it[day], day))
        load[day] = with_it[day]
        has[day] |= of if isinstance(of, frozenset) else frozenset()
        day_of |= dict.fromkeys(parcels[of], day)
    return day_of


def chosen(tests, command, day, asked=()):
    """The names of the tests that a command runs on a day, in the order given; of a suite that the table has not, all. Where suites are asked for,
    theirs alone are dealt: so each day has some."""
    tests = [test for test in tests if not asked or set(asked) & set(test[1])]
    share_of = {name: commands().get(suites[0], {}).get(command, 1) for name, suites, _ in tests}
    days = {share: dealt([(name, needs) for name, _, needs in tests if share_of[name] == share], share) for share in set(share_of.values()) - {0, 1}}
    for name, _, _ in tests:
        share = share_of[name]
        if share and (share == 1 or days[share][name] == day.toordinal() % share):
            yield name


if __name__ == "__main__":
    today = datetime.datetime.now(datetime.timezone.utc).date()
    day = datetime.datetime.strptime(sys.argv[3], "%Y%m%d").date() if len(sys.argv) > 3 and sys.argv[3] else today
    for name in chosen(list(tests_of(pathlib.Path(sys.argv[1]))), sys.argv[2], day, sys.argv[4:]):
        print(name)
