#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compiled_once.py SOURCE -- COMPILER...: a file that includes examples/switch_compiled_once.hpp does not compile the switch
again; one that does not include it does, so that the test would notice."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1])
compiler = sys.argv[sys.argv.index("--") + 1:]
if not shutil.which("nm"):
    print("skipped: no nm on this machine")
    sys.exit(77)

passed = 0
with tempfile.TemporaryDirectory() as room:
    for declared in (True, False):
        unit = pathlib.Path(room, "trainer.o")
        header = ["-include", source / "examples" / "switch_compiled_once.hpp"] if declared else []
        subprocess.run([*compiler, "-std=c++20", "-O0", "-I", source / "include", *header, "-c", source / "examples" / "custom_trainer.cpp", "-o", unit], check=True)
        defined = subprocess.run(["nm", "-C", "--defined-only", unit], check=True, stdout=subprocess.PIPE, text=True).stdout
        steps = sum("switch_steps<" in line for line in defined.splitlines())
        if (steps == 0) != declared:
            print(f"custom_trainer.cpp {'with' if declared else 'without'} the declaration has {steps} functions of the switch's steps")
            sys.exit(1)
        passed += 1
print(f"{passed} passed, 0 failed")
