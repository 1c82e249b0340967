#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""consume.py pkg-config|cmake|subproject SOURCE -- COMPILER...: consumer.cpp builds and runs the way somebody else would build it:
against an installed copy, by pkg-config or CMake, or with reshard as a Meson subproject."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

way, source = sys.argv[1], pathlib.Path(sys.argv[2])
compiler = sys.argv[sys.argv.index("--") + 1:]
here = pathlib.Path(__file__).resolve().parent
meson = os.environ.get("MESONINTROSPECT", "meson introspect").removesuffix(" introspect").split()
env = {k: v for k, v in os.environ.items() if k not in ("MESON_BUILD_ROOT", "MESON_SOURCE_ROOT", "DESTDIR")}
env["CXX"] = " ".join(compiler)


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**env, **more})
    if done.returncode:
        print(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
        sys.exit(1)
    return done.stdout


def install(room):
    """An installed copy of the headers under room/prefix, from a build without tests or tools."""
    run(*meson, "setup", room / "build", source, f"--prefix={room / 'prefix'}", "--auto-features=disabled")
    run(*meson, "install", "-C", room / "build")
    return room / "prefix"


tool = {"pkg-config": "pkg-config", "cmake": "cmake", "subproject": "ninja"}[way]
if not shutil.which(tool):
    print(f"skipped: no {tool} on this machine")
    sys.exit(77)

with tempfile.TemporaryDirectory() as name:
    room = pathlib.Path(name)
    consumer = room / "consumer"
    if way == "pkg-config":
        consumer.mkdir()
        found = {"PKG_CONFIG_PATH": str(install(room) / "share" / "pkgconfig")}
        for package in ("reshard", "reshard-threads"):
            flags = run("pkg-config", "--cflags", "--libs", package, **found).split()
            run(*compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", here / "consumer.cpp", *flags, "-o", consumer / package)
            print(run(consumer / package), end="")
    elif way == "cmake":
        shutil.copytree(here / "cmake", consumer)
        shutil.copy(here / "consumer.cpp", consumer)
        prefix = install(room)
        project = json.loads(run(*meson, "introspect", "--projectinfo", room / "build"))
        run("cmake", "-G", "Ninja", "-S", consumer, "-B", consumer / "build", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DRESHARD_VERSION={project['version']}")
        run("cmake", "--build", consumer / "build")
        print(run(consumer / "build" / "consumer"), end="")
    else:
        shutil.copytree(here / "meson", consumer)
        shutil.copy(here / "consumer.cpp", consumer)
        (consumer / "subprojects").mkdir()
        (consumer / "subprojects" / "reshard").symlink_to(source)
        run(*meson, "setup", consumer / "build", consumer, "--force-fallback-for=reshard")
        run("ninja", "-C", consumer / "build")
        print(run(consumer / "build" / "consumer"), end="")
        run(*meson, "install", "-C", consumer / "build", "--destdir", room / "installed")
        if list((room / "installed").rglob("*.hpp")):
            print("reshard as a subproject installs its headers into its host")
            sys.exit(1)
print("1 passed, 0 failed")
