#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""versions.py FOLDER PAGE INCLUDE HEADER... -- COMPILER...: every header compiles against the oldest CUDA and NCCL and against the newest,
whose headers are in FOLDER/oldest/include and FOLDER/newest/include; and PAGE names both versions of both."""
import pathlib
import re
import subprocess
import sys

split = sys.argv.index("--")
folder, page, include, *headers = sys.argv[1:split]
compiler = sys.argv[split + 1:]
told = re.sub(r"\s+", " ", pathlib.Path(page).read_text(encoding="utf-8"))
passed, faults = 0, []
for age in ("oldest", "newest"):
    there = pathlib.Path(folder) / age / "include"
    if not (there / "nccl.h").is_file():
        print(f"no headers of the {age} CUDA and NCCL in {pathlib.Path(folder).name}/, which .ci/run makes of wheels")
        sys.exit(77)
    cuda = int(re.search(r"#define CUDART_VERSION\s+(\d+)", (there / "cuda_runtime_api.h").read_text(encoding="utf-8"))[1])
    nccl = [re.search(rf"#define NCCL_{part} (\d+)", (there / "nccl.h").read_text(encoding="utf-8"))[1] for part in ("MAJOR", "MINOR")]
    name = f"CUDA {cuda // 1000}.{cuda // 10 % 100} with NCCL {'.'.join(nccl)}"
    if name not in told:
        faults.append(f"{page} does not say that the {age} is {name}")
    for header in headers:
        done = subprocess.run([*compiler, "-x", "c++", "-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only",
                               "-I" + include, "-isystem", str(there), "-"], input=f"#include <{header}>\n", text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            faults.append(f"{header} does not compile with {name}:\n{done.stdout}")
        else:
            passed += 1
    print(f"{age}: {name}, {len(headers)} headers")
for fault in faults:
    print(fault)
print(f"{passed} passed, {len(faults)} failed")
sys.exit(bool(faults))
