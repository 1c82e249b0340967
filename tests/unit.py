#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unit.py OUTPUT FILE...: writes one translation unit of many test programs, so that what they include is compiled once.

Each file stands in a namespace of its own, after all that any of them includes: its own #include lines then have nothing left to add.
--source-file='*/ROOM/NAME.cpp' runs the cases of one file."""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def unit(files):
    """The text of the unit. An include of a file beside the test is written with its whole path."""
    lines, bodies = {}, []
    for file in files:
        for line in file.read_text().splitlines():
            if found := INCLUDE.match(line):
                beside = file.parent / found[2]
                name = f'"{beside.resolve()}"' if found[1] == '"' and beside.exists() else found[0].split("include", 1)[1].strip()
                lines[f"#include {name}"] = None
        bodies.append(f'namespace {file.parent.name}_{file.stem}_cases {{\n#include "{file}"\n}}\n')
    return "// SPDX-License-Identifier: Apache-2.0\n// Written by tests/unit.py.\n" + "\n".join([*lines, *bodies])


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(unit([pathlib.Path(f).resolve() for f in sys.argv[2:]]))
