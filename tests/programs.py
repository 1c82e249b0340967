#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""programs.py: the doctest programs that meson builds, ROOM/NAME, a line each.

They are the files tests/ROOM/NAME.cpp of the rooms of include/reshard/, of `law` and of `oracle`, so that who adds one writes it into no list;
without those that want what a machine may lack, which tests/meson.build builds where that is there."""
import pathlib

TESTS = pathlib.Path(__file__).resolve().parent
WITH_MORE = {"elastic/etcd_store", "transport/mpi", "transport/mpi_processes", "transport/nccl", "transport/nccl_communicators", "transport/nccl_group",
             "transport/nccl_wire"}


def programs():
    """The names, in order."""
    rooms = {folder.name for folder in (TESTS.parent / "include" / "reshard").iterdir() if folder.is_dir()} - {"cuda"}
    files = (file for room in rooms | {"law", "oracle"} for file in (TESTS / room).glob("*.cpp"))
    return sorted({f"{file.parent.name}/{file.stem}" for file in files} - WITH_MORE)


if __name__ == "__main__":
    print("\n".join(programs()))
