#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compiled_once.py SOURCE -- COMPILER...: a file with RESHARD_COMPILED_ONCE compiles no switch, and one with reshard/compile_once.hpp all of them.

Of custom_trainer.cpp, rollout_weights.cpp and sockets.cpp, built with RESHARD_COMPILED_ONCE, no function of a switch's steps is defined, and
what they leave undefined the file that includes the doors defines: each links with it, and without it does not. Built without, each does
compile such functions, so that the test would notice. compile_once.hpp compiles alone; behind a door it is refused. Where they are declared over any_holding, plans are not
compiled either."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1])
compiler = sys.argv[sys.argv.index("--") + 1:]
examples = source / "examples"
ONCE = "#include <reshard/compile_once.hpp>\n#include <reshard/sockets.hpp>\n"
PLANNER = """#include <reshard/reshard.hpp>
reshard::plan plan_of(const reshard::any_switch& change, const reshard::routing& how) { return make_plan(change, 0, how); }
"""
if not shutil.which("nm"):
    print("skipped: no nm on this machine")
    sys.exit(77)
passed, failed = 0, 0


def build(*arguments):
    return subprocess.run([*compiler, "-std=c++20", "-pthread", "-I", source / "include", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def must_build(*arguments):
    done = build(*arguments)
    if done.returncode:
        print(done.stdout)
        sys.exit(1)


def defined(unit, *names):
    """How many functions of these an object file defines; destructors are inline, and no steps."""
    text = subprocess.run(["nm", "-C", "--defined-only", unit], check=True, stdout=subprocess.PIPE, text=True).stdout
    return sum(f"reshard::detail::{name}<" in line.split("(")[0] for line in text.splitlines() if "::~" not in line for name in names)


def check(good, sentence):
    global passed, failed
    print(sentence if good else "FAILED: " + sentence)
    passed, failed = (passed + 1, failed) if good else (passed, failed + 1)


with tempfile.TemporaryDirectory() as name:
    room = pathlib.Path(name)
    steps = "ready_maker", "ready_run"
    (room / "once.cpp").write_text(ONCE)
    (room / "planner.cpp").write_text(PLANNER)
    must_build("-O0", "-DRESHARD_COMPILED_ONCE", "-c", room / "once.cpp", "-o", room / "once.o")
    for program in "custom_trainer", "rollout_weights", "sockets":
        with_line, without = room / f"{program}.o", room / f"{program}_whole.o"
        must_build("-O1", "-DRESHARD_COMPILED_ONCE", "-c", examples / f"{program}.cpp", "-o", with_line)
        must_build("-O0", "-c", examples / f"{program}.cpp", "-o", without)
        found = defined(with_line, *steps), defined(without, *steps)
        check(found[0] == 0 < found[1], f"{program}: {found[0]} functions of a switch's steps where switches are compiled once, else {found[1]}")
        check(build(with_line, room / "once.o", "-o", room / program).returncode == 0, f"{program} links with the file that compiles its switches")
        check(build(with_line, "-o", room / program).returncode != 0, f"{program} does not link without it")
    plans = []
    for options in ["-DRESHARD_COMPILED_ONCE"], []:
        must_build("-O1", *options, "-c", room / "planner.cpp", "-o", room / "planner.o")
        plans.append(defined(room / "planner.o", "router", "relay_router"))
    check(plans[0] == 0 < plans[1], f"a planner over any_holding: {plans[0]} functions of its routing where planning is compiled once, else {plans[1]}")
    (room / "alone.cpp").write_text("#include <reshard/compile_once.hpp>\n#include <reshard/compile_once.hpp>\n")
    must_build("-Wall", "-Wextra", "-Werror", "-c", room / "alone.cpp", "-o", room / "alone.o")
    (room / "late.cpp").write_text("#include <reshard/sockets.hpp>\n#include <reshard/compile_once.hpp>\n")
    done = build("-fsyntax-only", room / "late.cpp")
    check(done.returncode != 0 and "compile_once.hpp is included before the doors" in done.stdout, "compile_once.hpp behind a door is refused")
print(f"{passed} passed, {failed} failed")
sys.exit(bool(failed))
