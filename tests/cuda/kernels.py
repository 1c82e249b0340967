#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kernels.py FILE.cu -- NVCC ARGUMENT...: the kernels of a file compile for every architecture that the arguments name, without a warning,
and ptxas spills nothing: no stack, no spill store or load. It prints what each kernel takes."""
import pathlib
import re
import subprocess
import sys
import tempfile

split = sys.argv.index("--")
source, nvcc = sys.argv[1], sys.argv[split + 1:]
wanted = sorted(set(re.findall(r"code=\[?(sm_\d+)", " ".join(nvcc))))
with tempfile.TemporaryDirectory() as room:
    done = subprocess.run([*nvcc, "-O3", "-Xptxas", "-v", "-c", source, "-o", str(pathlib.Path(room) / "kernels.o")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
faults, kernels = [], 0
if done.returncode or "warning" in done.stdout.lower():
    faults.append(f"nvcc ended with {done.returncode}:\n{done.stdout}")
told = re.findall(r"Compiling entry function '(\w+)' for '(sm_\d+)'.*?"
                  r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", done.stdout, flags=re.S)
for name, architecture, stack, stores, loads, registers in told:
    kernels += 1
    print(f"{architecture} {name}: {registers} registers, {stack} bytes of stack, {stores} stored and {loads} loaded by spilling")
    if (stack, stores, loads) != ("0", "0", "0"):
        faults.append(f"{name} spills on {architecture}")
faults += [f"ptxas says nothing of a kernel for {a}" for a in wanted if a not in {t[1] for t in told}]
if not wanted or kernels != done.stdout.count("Compiling entry function"):
    faults.append(f"not all that ptxas said was understood:\n{done.stdout}")
for fault in faults:
    print(fault)
print(f"{kernels if not faults else 0} passed, {len(faults)} failed")
sys.exit(bool(faults))
