#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rooms.py INCLUDE HEADER... --backend HEADER...: the list is what lies on the disk, includes obey the order of rooms, and what lies in a
folder below a room is included by that room, by tests and by benchmarks alone; tools and examples include nothing of tests/."""
import pathlib
import re
import sys

# Bottom up. What lies in a folder below a room is that room's own: nobody else's header, tool or example includes it.
ROOMS = ("base algebra model parallelism space plan schedule cost queue memory copy cuda transport switch job elastic checkpoint "
         "io report testing").split()
LARGEST = 22  # headers of a room, folders below it not counted
# Doors lie in no room: each includes what one purpose needs.
DOORS = [f"reshard/{name}.hpp" for name in ("reshard", "switching", "sockets", "mpi", "nccl", "elastic", "testing", "compile_once")]
# The door that needs C++20 alone: what it reaches is of these rooms, and includes what none of them may.
PLANNING, PLAIN = "reshard/reshard.hpp", set(ROOMS[:ROOMS.index("queue") + 1]) | {"job"}
# What the rooms from the first to the second must not include.
PURE = [("base", "schedule", r"iostream|functional|regex|range/v3/.*"), ("base", "queue", r"thread|mutex|condition_variable|mpi\.h|nccl\.h|cuda.*"),
        ("base", "checkpoint", r"nlohmann/.*|fmt/.*|CLI/.*")]

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


def private(header):
    return header.startswith("reshard/") and header.count("/") > 2


for header in on_disk:
    here = room(header)
    if here < 0 and header not in DOORS:
        faults.append(f"{header} lies in no room: reshard/<room>/ with <room> one of {', '.join(ROOMS)}")
        continue
    for name in includes(header):
        if name.startswith("reshard/"):
            there = room(name)
            if name in DOORS:
                faults += [f"{header} includes {name}, a door: name the header that is meant"] if header not in DOORS else []
            elif there < 0:
                faults.append(f"{header} includes {name}, which lies in no room")
            elif header in DOORS:
                faults += [f"{header} includes {name}, which {ROOMS[there]} keeps to itself"] if private(name) else []
                faults += [f"{header} includes {name}, which needs more than this door says"] if name in backend and header not in backend else []
            elif there > here:
                faults.append(f"{header} includes {name}: {ROOMS[here]} comes before {ROOMS[there]} and must not know it")
            elif there != here and private(name):
                faults.append(f"{header} includes {name}, which {ROOMS[there]} keeps to itself")
        elif header not in DOORS:
            faults += [f"{header} includes <{name}>, which stays out of {first} to {last}" for first, last, pattern in PURE
                       if ROOMS.index(first) <= here <= ROOMS.index(last) and re.fullmatch(pattern, name)]

reached, pending = set(), [PLANNING]
while pending:
    for name in set(includes(pending.pop())) - reached:
        reached.add(name)
        if name.startswith("reshard/"):
            pending.append(name)
            faults += [f"{PLANNING} reaches {name}: it needs C++20 alone, and so the rooms {', '.join(r for r in ROOMS if r in PLAIN)}"] if name.split("/")[1] not in PLAIN else []
        else:
            faults += [f"{PLANNING} reaches <{name}>, which planning does without" for _, last, pattern in PURE[:2] if re.fullmatch(pattern, name)]

for folder in sorted({h.rsplit("/", 1)[0] for h in on_disk}):
    count = sum(h.rsplit("/", 1)[0] == folder for h in on_disk)
    if count > LARGEST:
        faults.append(f"{folder}/ has {count} headers; {LARGEST} are allowed")
for name in sorted(p for folder in ("tools", "examples") for p in (include.parent / folder).rglob("*.[ch]pp")):
    for bracket, h in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', name.read_text(), flags=re.M):
        if bracket == "<" and private(h):
            faults.append(f"{name.relative_to(include.parent)} includes {h}, which its room keeps to itself")
        if bracket == '"' and (include.parent / "tests").resolve() in (name.parent / h).resolve().parents:
            faults.append(f"{name.relative_to(include.parent)} includes {h} of tests/: what both want lies in tools/lib/")

for fault in faults:
    print(fault)
print(f"{len(on_disk)} headers looked at, {sum(not private(h) for h in on_disk)} of them for everybody")
print(f"{int(not faults)} passed, {len(faults)} failed")
sys.exit(bool(faults))
