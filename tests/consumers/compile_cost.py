#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_cost.py SOURCE -- COMPILER...: what a file that switches costs its users to compile, as a ratio, is within tests/budget.toml.

    cost(FILE) = CPU seconds of COMPILER -O2 FILE / CPU seconds of COMPILER -O2 of a file that includes five headers of the standard library

which stands for the machine. Both are the least of two tries and more, by turns, as what runs beside only adds. [compile] of
tests/budget.toml names FILE, with or without the switch compiled in another file (RESHARD_COMPILED_ONCE); more than 1.25 times what stands
there is a failure, as of a suite."""
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib

SLACK = 1.25
source = pathlib.Path(sys.argv[1])
compiler = sys.argv[sys.argv.index("--") + 1:]
budget = tomllib.loads((source / "tests/budget.toml").read_text())["compile"]
HEADERS = "functional", "map", "string", "thread", "vector"


def seconds(*arguments):
    """CPU seconds of the compiler and what it starts."""
    process = subprocess.Popen([*compiler, "-std=c++20", "-O2", "-pthread", "-I", source / "include", *arguments, "-o", os.devnull],
                               stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{arguments} do not compile")
    return used.ru_utime + used.ru_stime


with tempfile.TemporaryDirectory() as room:
    plain = pathlib.Path(room) / "plain.cpp"
    plain.write_text("".join(f"#include <{header}>\n" for header in HEADERS))
    beside, of = [], {}
    for _ in range(2):
        for file in budget:
            beside.append(seconds("-c", plain))
            name, _, once = file.partition(", ")
            of[file] = min(of.get(file, float("inf")), seconds(*(["-DRESHARD_COMPILED_ONCE"] if once else []), "-c", source / name))
    unit = min(beside)
failed = 0
for file, took in of.items():
    good = took / unit <= SLACK * budget[file]
    failed += not good
    print(f"{'' if good else 'FAILED: '}{file}: {took / unit:.1f} x of {budget[file]} ({took:.1f} s; {', '.join(f'<{h}>' for h in HEADERS)}: {unit:.2f} s)")
print(f"{len(of) - failed} passed, {failed} failed")
sys.exit(bool(failed))
