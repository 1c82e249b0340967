#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rooms.py INCLUDE HEADER... --backend HEADER...: the list is what lies on the disk, and includes obey the order of rooms."""
import pathlib
import re
import sys

ROOMS = "base algebra job model parallelism space plan schedule simulate memory copy exec elastic checkpoint io".split()
UMBRELLA = "reshard/reshard.hpp"
# A room up to the one named here must not include what matches.
PURE = [("schedule", r"iostream|functional|regex|range/v3/.*"), ("simulate", r"thread|mutex|condition_variable|mpi\.h|nccl\.h|cuda.*"),
        ("checkpoint", r"nlohmann/.*|fmt/.*|CLI/.*")]

include = pathlib.Path(sys.argv[1])
split = sys.argv.index("--backend")
backend = sys.argv[split + 1:]
listed = sys.argv[2:split] + backend
faults = []

on_disk = sorted(p.relative_to(include).as_posix() for pattern in ("*.hpp", "*.cuh") for p in include.rglob(pattern))
faults += [f"{h} lies on the disk and not in the list: add it to include/meson.build" for h in on_disk if h not in listed]
faults += [f"{h} is listed in include/meson.build and does not exist" for h in listed if h not in on_disk]
faults += [f"{h} is listed twice in include/meson.build" for h in sorted(set(listed)) if listed.count(h) > 1]


def room(header):
    """The number of a header's room; -1 for a folder that is none."""
    parts = header.split("/")
    return ROOMS.index(parts[1]) if len(parts) > 2 and parts[0] == "reshard" and parts[1] in ROOMS else -1


def includes(header):
    """The names a header includes: (as written between the brackets, or as a path under include/ where it is one of ours)."""
    text = re.sub(r"/\*.*?\*/", "", (include / header).read_text(), flags=re.S)
    for bracket, name in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', text, flags=re.M):
        beside = include / header
        if bracket == '"' and (beside.parent / name).exists():
            name = (beside.parent / name).resolve().relative_to(include.resolve()).as_posix()
        yield name


for header in on_disk:
    here = room(header)
    if here < 0 and header != UMBRELLA:
        faults.append(f"{header} lies in no room: reshard/<room>/ with <room> one of {', '.join(ROOMS)}")
        continue
    for name in includes(header):
        if name.startswith("reshard/"):
            there = room(name)
            if header == UMBRELLA:
                if there < 0 or there > ROOMS.index("exec") or name in backend:
                    faults.append(f"{header} includes {name}: the umbrella holds the rooms from base to exec and no backend")
            elif there < 0:
                faults.append(f"{header} includes {name}, which lies in no room")
            elif there > here:
                faults.append(f"{header} includes {name}: {ROOMS[here]} is above {ROOMS[there]} and must not know it")
        elif header != UMBRELLA:
            faults += [f"{header} includes <{name}>, which stays out of {', '.join(ROOMS[:ROOMS.index(last) + 1])}"
                       for last, pattern in PURE if here <= ROOMS.index(last) and re.fullmatch(pattern, name)]

for fault in faults:
    print(fault)
print(f"{len(on_disk)} headers looked at")
print(f"{int(not faults)} passed, {len(faults)} failed")
sys.exit(bool(faults))
