#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""consume.py WAY SOURCE -- COMPILER...: consumer/ builds and runs the way somebody else would build it, warnings on.

NCCL is $RESHARD_CUDA_ROOT, $RESHARD_NCCL_INCLUDE and $RESHARD_NCCL_LIB, where it was found. WAY: pkg-config or cmake, against an installed copy; cmake-subdirectory, cmake-fetch or subproject, with the source in
the user's build; copied, with a folder of headers. With `install`, installing builds what it installs, nothing else."""
import json
import os
import pathlib
import re
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
warnings = "-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror"
packages = ("reshard", "reshard-threads")
cuda, nccl_include, nccl_lib = (os.environ.get(f"RESHARD_{name}", "") for name in ("CUDA_ROOT", "NCCL_INCLUDE", "NCCL_LIB"))
has_nccl = nccl_lib != ""
nccl_root = pathlib.Path(nccl_include).parent
has_mpi, has_curl = (bool(shutil.which("pkg-config")) and not subprocess.run(["pkg-config", "--exists", name], check=False).returncode for name in ("mpi", "libcurl"))


def stop(text):
    print(text)
    sys.exit(1)


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**env, **more})
    if done.returncode:
        stop(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def introspect(what):
    return json.loads(run(*meson, "introspect", what, room / "build"))


def install(prefix, root):
    """A copy of the headers, installed under root for prefix, from a build without the tool."""
    run(*meson, "setup", room / "build", source, f"--prefix={prefix}", "--auto-features=disabled")
    run(*meson, "install", "-C", room / "build", "--destdir", root)


def flags(package, share):
    where = {"cuda_root": cuda, "nccl_include": nccl_include, "nccl_lib": nccl_lib} if package == "reshard-nccl" else {}
    return run("pkg-config", "--cflags", "--libs", *(f"--define-variable={key}={value}" for key, value in where.items()), package, PKG_CONFIG_PATH=str(share / "pkgconfig")).split()


def compile_with(name, *options):
    alone = {"reshard-mpi": "with_mpi.cpp", "reshard-nccl": "with_nccl.cpp", "reshard-compiled-once": "with_once.cpp"}  # programs of one unit
    units = [u for u in consumer.glob("*.cpp") if (u.name == alone[name] if name in alone else u.name not in alone.values())]
    run(*compiler, "-std=c++20", *warnings.split(), *units, *options, "-o", consumer / name)
    run_program(name)


def run_program(name):
    print(run(consumer / name), end="")


more = ("reshard-mpi",) * has_mpi + ("reshard-nccl",) * has_nccl
tool = {"pkg-config": "pkg-config", "copied": compiler[0], "install": "ninja", "subproject": "ninja"}.get(way, "cmake")
if not shutil.which(tool):
    print(f"skipped: no {tool} on this machine")
    sys.exit(77)

with tempfile.TemporaryDirectory() as name:
    room = pathlib.Path(name)
    consumer = room / "consumer"
    shutil.copytree(here / "consumer", consumer)
    # What the README asserts of layouts, as it stands, in a header of two units.
    shown = next(block for block in re.findall(r"^```cpp\n(.*?)^```", (source / "README.md").read_text(), flags=re.S | re.M) if "static_assert" in block)
    start = "#pragma once\n#include <reshard/reshard.hpp>\nusing namespace reshard;\n"
    (consumer / "layouts.hpp").write_text(start + shown)
    if way == "install":
        run(*meson, "setup", room / "build", source)
        steps = run("ninja", "-C", room / "build", "-n", "install")
        linked = re.findall(r"Linking (static )?target (\S+)", steps)
        installed = sorted(t["filename"][0] for t in introspect("--targets") if t["installed"])
        beside = {pathlib.Path(t).parent for t in installed}  # a library beside the tool is a part of it
        built = sorted(t for static, name in linked if (t := str(room / "build" / name)) and not (static and pathlib.Path(t).parent in beside))
        if built != installed:
            stop(f"`meson install` builds {built} and installs {installed}")
    elif way == "pkg-config":
        install("/usr", room / "root")  # g++ finds no <stdlib.h> where /usr/include comes first
        if "-isystem" in flags("reshard", room / "root" / "usr" / "share"):
            stop("pkg-config names /usr/include with -isystem")
        shutil.rmtree(room / "build")
        install(room / "prefix", "/")
        for package in packages + more:
            compile_with(package, *flags(package, room / "prefix" / "share"))
        if has_curl and "-lcurl" not in flags("reshard-etcd", room / "prefix" / "share"):
            stop("pkg-config names no libcurl for reshard-etcd")
        once = run("pkg-config", "--variable=source", "reshard-compiled-once", PKG_CONFIG_PATH=str(room / "prefix" / "share" / "pkgconfig")).strip()
        compile_with("reshard-compiled-once", once, *flags("reshard-compiled-once", room / "prefix" / "share"))
    elif way == "copied":
        compile_with("consumer", "-isystem", source / "include", "-pthread")
    elif way == "subproject":
        (consumer / "subprojects").mkdir()
        (consumer / "subprojects" / "reshard").symlink_to(source)
        run(*meson, "setup", consumer / "build", consumer, "--force-fallback-for=reshard", f"-Dreshard:nccl_root={nccl_root if has_nccl else ''}",
            CXXFLAGS=warnings)
        run("ninja", "-C", consumer / "build")
        for package in packages + ("reshard-compiled-once",) + more:
            run_program("build/with-" + package)
        run(*meson, "install", "-C", consumer / "build", "--destdir", room / "installed")
        if list((room / "installed").rglob("*.hpp")):
            stop("reshard as a subproject installs its headers into its host")
    else:
        install(room / "prefix", "/")
        settings = {"CMAKE_PREFIX_PATH": room / "prefix", "WAY": way, "WITH_NCCL": has_nccl, "CUDAToolkit_ROOT": cuda, "NCCL_ROOT": nccl_root, "RESHARD_SOURCE": source,
                    "RESHARD_VERSION": introspect("--projectinfo")["version"]}
        run("cmake", "-G", "Ninja", "-S", consumer, "-B", consumer / "build",
            *(f"-D{key}={value}" for key, value in settings.items()), CXXFLAGS=warnings)
        run("cmake", "--build", consumer / "build")
        linked = packages if way == "cmake" else ("reshard-threads",)
        for package in linked + ("reshard-compiled-once",) + more:
            run_program("build/with-" + package)
print("1 passed, 0 failed")
