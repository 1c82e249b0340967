#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""form.py SOURCE: the form of the source.

Every C++ file is as clang-format 14 and .clang-format write it; no line of one is longer than 120 columns; no function
of include/, tools/, examples/ or bench/ has more than 60 lines; include/ calls nothing of the standard library that
some compiler warns of, since a trainer may build with -Werror; a doc comment can be read alone; every public name of include/ stands in
docs/reference/."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

COLUMNS, LINES = 120, 60
LEANING = re.compile(r"\s*/// (The same|As|Of|Those)\b")
# They instantiate std::get_temporary_buffer in libstdc++ 12, which clang 19 says is deprecated.
DEPRECATED = re.compile(r"std::(?:ranges::)?(stable_sort|stable_partition|inplace_merge)\b")
FOLDERS = ("include", "tests", "tools", "bench", "examples")
source = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(source / "docs"))
sys.dont_write_bytecode = True
from names import blanked, public_names  # noqa: E402

faults = []


def functions(text):
    """(line, length, head) of every function of a formatted file, from where its declaration begins to its closing brace."""
    lines, past = blanked(text).split("\n"), 0
    for opens, line in enumerate(lines):
        if opens < past or not line.rstrip().endswith("{"):
            continue
        begins = opens  # what is wrapped is indented further than by two or four
        while begins > past and not re.match(r"(  ){0,2}[\w~\[]", lines[begins]):
            begins -= 1
        head = " ".join(part.strip() for part in lines[begins:opens + 1])
        if "(" not in head or re.match(r"(namespace|class|struct|enum|union|requires|template)\b", head):
            continue
        indent = len(lines[begins]) - len(lines[begins].lstrip())
        past = next((n for n in range(opens + 1, len(lines)) if re.match(" {%d}}" % indent, lines[n])), opens) + 1
        yield begins + 1, past - begins, head


cpp = sorted(p for folder in FOLDERS for pattern in ("*.hpp", "*.cpp", "*.cuh", "*.cu") for p in (source / folder).rglob(pattern))
tool = shutil.which("clang-format-14")
if tool:
    done = subprocess.run([tool, "--dry-run", "--style=file", *map(str, cpp)], cwd=source, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        faults.append(f"clang-format-14 ended with {done.returncode}: {done.stderr[:300]}")
    for name in sorted(set(re.findall(r"^(.+?):\d+:\d+: warning: code should be clang-formatted", done.stderr, re.M))):
        faults.append(f"{os.path.relpath(name, source)} is not as clang-format-14 -i --style=file writes it")

for path in cpp:
    name, text = path.relative_to(source), path.read_text()
    for n, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS:
            faults.append(f"{name}:{n} has {len(line)} columns; {COLUMNS} are allowed")
    for n, line in enumerate(blanked(text).splitlines(), 1) if name.parts[0] == "include" else []:
        for called in DEPRECATED.findall(line):
            faults.append(f"{name}:{n} calls std::{called}, of which clang 19 warns; sort_items of base/sort.hpp is stable")
    lines = text.splitlines() if name.parts[0] == "include" else []
    for n, line in enumerate(lines, 1):
        if LEANING.match(line) and not lines[n - 2].lstrip().startswith("///"):
            faults.append(f"{name}:{n} begins with a word that leans on another comment: {line.strip()[:60]}")
    for n, length, head in functions(text) if name.parts[0] != "tests" else []:
        if length > LINES:
            faults.append(f"{name}:{n} has a function of {length} lines; {LINES} are allowed: {head[:80]}")

reference = " ".join(p.read_text() for p in sorted((source / "docs/reference").glob("*.md")))
told = set(re.findall(r"\w+", reference))
faults += [f"docs/reference/names.md: {name} has no sentence; write one above its declaration"
           for name in re.findall(r"^\| `([\w:]+)` \|  \|$", reference, re.M)]
for path in cpp:
    if path.relative_to(source).parts[0] == "include":
        names = {name for _, name in public_names(path.read_text())}
        faults += [f"{path.relative_to(source)}: {n} is public and not in docs/reference" for n in sorted(names) if n.split("::")[-1] not in told]

for fault in faults:
    print(fault)
print(f"{len(cpp)} C++ files looked at")
if not tool and not faults:
    print("skipped: no clang-format-14 on this machine")
    sys.exit(77)
print(f"{int(not faults)} passed, {len(faults)} failed")
sys.exit(bool(faults))
