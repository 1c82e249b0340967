#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compiled_once.py SOURCE -- COMPILER...: a file that declares a switch `extern template` does not compile its steps: custom_trainer.cpp with
examples/switch_compiled_once.hpp, and rollout_weights.cpp with such a line for its prepared switch. At -O1, as what is inline is compiled
there all the same, and at -O0 is not. Without the line each does compile them, so that the test would notice."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1])
compiler = sys.argv[sys.argv.index("--") + 1:]
examples = source / "examples"
PREPARED = """#include <reshard/switch/prepared_switch.hpp>
#include <reshard/transport/thread_group.hpp>
extern template class reshard::prepared_switch<reshard::computed_holding, reshard::computed_holding, reshard::thread_group::endpoint>;
"""
if not shutil.which("nm"):
    print("skipped: no nm on this machine")
    sys.exit(77)


def functions_of_steps(program, level, declared):
    """How many functions of a switch's steps a program's object file defines; its destructor is inline, and no step."""
    with tempfile.TemporaryDirectory() as room:
        unit, header = pathlib.Path(room, "unit.o"), pathlib.Path(room, "declared.hpp")
        header.write_text(declared)
        subprocess.run([*compiler, "-std=c++20", level, "-I", source / "include", "-include", header, "-c", program, "-o", unit], check=True)
        defined = subprocess.run(["nm", "-C", "--defined-only", unit], check=True, stdout=subprocess.PIPE, text=True).stdout
        return sum(f" reshard::detail::{name}<" in line for line in defined.splitlines() if "::~" not in line for name in ("switch_steps", "staged_switch"))


passed, failed = 0, 0
for name, declared in ("custom_trainer.cpp", (examples / "switch_compiled_once.hpp").read_text()), ("rollout_weights.cpp", PREPARED):
    with_line, without = functions_of_steps(examples / name, "-O1", declared), functions_of_steps(examples / name, "-O0", "")
    print(f"{name}: {with_line} functions of a switch's steps where it is declared, {without} where it is not")
    passed, failed = (passed + 1, failed) if with_line == 0 < without else (passed, failed + 1)
print(f"{passed} passed, {failed} failed")
sys.exit(bool(failed))
