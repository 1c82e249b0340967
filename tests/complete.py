#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""complete.py SOURCE BUILD FOLDER... --without FILE... --units FILE...: every .cpp under the folders is compiled by the build, every file says
its licence, and nothing else is kept.

Cases of tests/reject and tests/consumers are compiled by their harnesses. The files without are those whose library is missing here;
those of units are compiled as parts of others (unit.py)."""
import json
import pathlib
import subprocess
import sys

source, build = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
split, units = sys.argv.index("--without"), sys.argv.index("--units")
folders, without = sys.argv[3:split], sys.argv[split + 1:units]
seen, faults = 0, []

compiled = {(build / c["directory"] / c["file"]).resolve() for c in json.loads((build / "compile_commands.json").read_text())}
compiled |= {pathlib.Path(f).resolve() for f in sys.argv[units + 1:]}
harnessed = [source / "tests" / "reject", source / "tests" / "consumers"]
for folder in folders:
    for file in sorted((source / folder).rglob("*.cpp")):
        if any(h in file.parents for h in harnessed):
            continue
        seen += 1
        if file.resolve() not in compiled and file.relative_to(source).as_posix() not in without:
            faults.append(f"{file.relative_to(source)} is compiled by no target: configure the build anew, as tools/check does, or add it to {folder}/meson.build")

KNOWN = {"include", "tests", "tools", "bench", "examples", "docs", "cmake", ".ci", "CMakeLists.txt", "LICENSE", "README.md", "meson.build",
         "meson_options.txt", ".clang-format", ".gitignore"}
tracked = subprocess.run(["git", "ls-files", "-z"], cwd=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
for name in sorted({path.split("/")[0] for path in tracked.stdout.split("\0") if path} - KNOWN):
    faults.append(f"{name} is no folder or file of this project: it is here by mistake")

COMMENTED = {".cpp", ".hpp", ".cu", ".cuh", ".py", ".sh", ".toml", ".cmake", ".in", ".build"}
places = [source / p for p in ("include", "tests", "tools", "bench", "examples", "cmake", ".ci", "CMakeLists.txt",
                                "meson.build", "meson_options.txt")]
for place in places:
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if not file.is_file() or "__pycache__" in file.parts:
            continue
        head = file.read_bytes()[:400].decode("utf-8", "replace").splitlines()[:2]
        script = bool(head) and head[0].startswith("#!")
        if file.suffix not in COMMENTED and not script and place.is_dir():
            continue
        seen += 1
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in (head if script else head[:1])):
            faults.append(f"{file.relative_to(source)} does not begin with its SPDX line")

for fault in faults:
    print(fault)
print(f"{seen} files looked at")
print(f"{int(not faults)} passed, {len(faults)} failed")
sys.exit(bool(faults))
