#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a test build costs, in CPU seconds, by suite; against a budget where there is one.

  costs.py run FOLDER --since NINJA_LOG --timed FOLDER --cpu SECONDS --unit SECONDS [--budget NAME [--table FILE]]
  costs.py sum FILE...
  costs.py each FILE...

`run` tells of one run in a build folder, and keeps it in FOLDER/meson-logs/costs.json; `sum` adds such files up; `each` says what each
program and each test takes, as tests/costs.toml has it, by which tools/lib/choose.py deals. NINJA_LOG is .ninja_log
as it was before the run, --timed what tools/lib/timed wrote, --cpu what the build and its tests took together.

    run(suite)     = sum over its tests of what the test and the processes that it waited for took
    compile(file)  = wall(file) x (cpu - sum of run) / sum of wall        wall: from ninja's log, of the files made in this run

as ninja keeps the time of a step, not its work. A unit is what compiling tools/lib/budget_unit.cpp took in the same run, so that a
budget means the same on a slow machine. --budget NAME: the table NAME of FILE (tests/budget.toml) says for each suite how many units it may
take; a suite that takes more than 1.25 times that is named, with what is slowest in it, and so is a suite that has no budget. Each
stands in one line of FOLDER/meson-logs/over_budget."""
import argparse
import collections
import json
import pathlib
import re
import sys
import tomllib

import choose

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLACK, SLOWEST = 1.25, 10
PLACES = {"tests/headers/headers_alone": "alone", "tests/headers/": "headers", "tests/transport_nccl": "nccl", "tests/transport_mpi_mpich": "mpich", "tests/transport_mpi_processes_mpich": "mpich", "tests/law_": "law",
          "tests/unit_oracle": "oracle", "tests/static": "static", "tests/cuda/": "cuda", "tests/": "unit", "examples/": "examples", "bench/": "bench",
          "tools/": "tools"}


def suite_of_file(output):
    """The suite that a file is compiled for, by where it lies in the build folder."""
    return next((suite for place, suite in PLACES.items() if output.startswith(place)), "other")


def suite_of_test(name):
    """The suite that a test is counted in, of `project:suite+suite / test`."""
    return choose.counted_first(name.partition(" / ")[0].partition(":")[2].split("+"))[0] or "other"


def ninja_steps(log):
    """(start, end, output), in milliseconds, of every step in ninja's log."""
    rows = (line.split("\t") for line in log.read_text(errors="replace").splitlines() if line[:1] != "#") if log.exists() else []
    return {(int(row[0]), int(row[1]), row[3]) for row in rows if len(row) >= 4}


def work_of_tests(folder):
    """{(seed, command): seconds} of what tools/lib/timed wrote."""
    work = collections.Counter()
    for file in folder.iterdir():
        _, children, seed, *command = file.read_text(errors="replace").split("\n")
        took = sum(60 * float(minutes) + float(seconds) for minutes, seconds in re.findall(r"(\d+)m([\d.]+)s", children))
        work[seed, tuple(command[:-1])] += took
    return work


def of_run(options):
    """{"unit": .., "files": [[name, suite, seconds]], "tests": [[name, suite, seconds]]}"""
    work, tests = work_of_tests(options.timed), []
    log = options.folder / "meson-logs" / "testlog-timed.json"
    for line in log.read_text(errors="replace").splitlines() if log.exists() else []:
        try:
            test = json.loads(line)
        except ValueError:
            continue  # count.py says so
        command = tuple(test["command"])
        if pathlib.Path(command[0]).name == "timed":
            command = command[2:]
        # what had to be ended wrote nothing: it is told by its time
        took = work.get((test["env"].get("RESHARD_SEED", ""), command), test["duration"])
        tests.append([test["name"].partition(" / ")[2], suite_of_test(test["name"]), took])
    steps = collections.Counter()
    for start, end, output in ninja_steps(options.folder / ".ninja_log") - ninja_steps(options.since):
        if output != "build.ninja":
            steps[output] += end - start
    building = max(options.cpu - sum(work.values()), 0)
    share = building / max(sum(steps.values()), 1)
    files = [[output, suite_of_file(output), wall * share] for output, wall in steps.items()]
    return {"unit": options.unit, "files": files, "tests": tests}


def table_of(costs):
    """{suite: [files, seconds to compile, tests, seconds to run]}"""
    table = collections.defaultdict(lambda: [0, 0.0, 0, 0.0])
    for column, rows in ((0, costs["files"]), (2, costs["tests"])):
        for _, suite, took in rows:
            table[suite][column] += 1
            table[suite][column + 1] += took
    return table


def slowest(rows, count=SLOWEST):
    return sorted(rows, key=lambda row: -row[2])[:count]


def told(costs):
    """The table and what is slowest, in lines."""
    table = table_of(costs)
    unit = costs["unit"]
    yield f"{'CPU seconds':<12}{'files':>7}{'compile':>10}{'tests':>7}{'run':>10}{'units':>9}"
    sums = [sum(column) for column in zip(*table.values())] or [0, 0.0, 0, 0.0]
    for suite, (files, compiled, tests, ran) in [*sorted(table.items()), ("all", sums)]:
        units = f"{(compiled + ran) / unit:9.1f}" if unit else ""
        yield f"{suite:<12}{files:>7}{compiled:>10.1f}{tests:>7}{ran:>10.1f}{units}"
    if unit:
        yield f"a unit is {unit:.2f} s: tools/lib/budget_unit.cpp, compiled before the run and after it"
    for what in ("files", "tests"):
        if costs[what]:
            yield f"slowest {what}: " + ", ".join(f"{name} {took:.1f}" for name, _, took in slowest(costs[what]))


def each(costs):
    """tests/costs.toml, in lines: what takes a second and more."""
    compiled, ran = collections.Counter(), collections.Counter()
    for output, _, took in costs["files"]:
        program = re.match(r"\w+/(?:[\w.]+/)*([^/]+)\.p/", output)  # an object, of the program's own folder
        compiled[program[1] if program else pathlib.Path(output).name] += took
    for name, _, took in costs["tests"]:
        ran[name] += took
    for title, of in (("compile", compiled), ("run", ran)):
        yield f"\n[{title}]"
        yield from (f'"{name}" = {seconds:.0f}' for name, seconds in sorted(of.items()) if seconds >= 1)


def over(costs, budget, name):
    """A sentence for each suite that takes more than it may."""
    for suite, (_, compiled, _, ran) in sorted(table_of(costs).items()):
        units = (compiled + ran) / costs["unit"]
        if suite not in budget:
            yield f"tests/budget.toml has no budget for the suite {suite} in [{name}]: it takes {units:.1f} units"
        elif units > SLACK * budget[suite]:
            rows = slowest([row for row in costs["files"] + costs["tests"] if row[1] == suite])
            yield (f"the suite {suite} takes {units:.1f} units, more than {SLACK} times its budget of {budget[suite]} in [{name}] of tests/budget.toml; "
                   "slowest: " + ", ".join(f"{row[0]} {row[2] / costs['unit']:.1f}" for row in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    run = ways.add_parser("run")
    run.add_argument("folder", type=pathlib.Path)
    run.add_argument("--since", type=pathlib.Path, required=True)
    run.add_argument("--timed", type=pathlib.Path, required=True)
    run.add_argument("--cpu", type=float, required=True)
    run.add_argument("--unit", type=float, default=0)
    run.add_argument("--budget")
    run.add_argument("--table", type=pathlib.Path, default=ROOT / "tests/budget.toml")
    for way in ("sum", "each"):
        ways.add_parser(way).add_argument("files", type=pathlib.Path, nargs="*")
    options = parser.parse_args()
    if options.way == "run":
        costs = of_run(options)
        logs = options.folder / "meson-logs"
        (logs / "costs.json").write_text(json.dumps(costs))
        sentences = []
        if options.budget:
            budget = tomllib.loads(options.table.read_text()).get(options.budget, {})
            sentences = list(over(costs, budget, options.budget))
        (logs / "over_budget").write_text("".join(line + "\n" for line in sentences))
    else:
        kept = [json.loads(file.read_text()) for file in options.files if file.exists()]
        costs = {"unit": max((one["unit"] for one in kept), default=0),
                 "files": [row for one in kept for row in one["files"]], "tests": [row for one in kept for row in one["tests"]]}
    for line in each(costs) if options.way == "each" else told(costs):
        print(line)


main()
