#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py SOURCE LIBRARY [--of N | --texts] [NAME...] -- COMPILER...: each mutant of the .toml files beside this must be killed by its test.

A mutant is a copy of include/ with one text changed. The test is compiled against it and run; that it passes unmutated is shown first.
LIBRARY holds doctest's main. With names, only those mutants; with --of N an N-th of them, another every day (UTC), though the texts of
all are looked for; with --texts that alone is done. ROOM.toml holds the faults in include/reshard/ROOM/:
  [[mutant]]
  name = "interval-touching"                  unique
  header = "reshard/algebra/interval.hpp"     what is changed
  original = '''a.begin < b.end'''            occurs exactly once there
  replacement = '''a.begin <= b.end'''
  test = "tests/algebra/interval.cpp"         the program that must fail
and where needed
  expect = "exit"           the program ends with a non-zero code (the default); "hang": it is still running after `timeout`;
                            "static_assert": the program does not compile, because an assertion of its own fails
  timeout = 300             seconds the program may run
  flags = ["-DSOMETHING"]   more arguments for the compiler
  packages = ["mpi"]        what pkg-config says of these too; where it does not know them the mutant is skipped. "emulation" stands for
                            tests/emulation/, with the headers of CUDA and NCCL
  args = ["--test-case=x"]  arguments for the program"""
import atexit
import concurrent.futures
import datetime
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

try:
    import tomllib
except ImportError:
    print("mutants.py needs Python 3.11, for tomllib")
    sys.exit(77)

split = sys.argv.index("--")
source, library, *names = sys.argv[1:split]
share = 1
if names[:1] == ["--of"]:
    share, names = int(names[1]), names[2:]
texts = names[:1] == ["--texts"]
names = names[texts:]
source = pathlib.Path(source)
compiler = sys.argv[split + 1:]
DEFAULTS = {"expect": "exit", "timeout": 300, "flags": [], "args": [], "packages": []}
NEEDED = {"name", "header", "original", "replacement", "test"}


class Fault(Exception):
    """What is wrong with a mutant or its test, in a sentence."""


@functools.cache
def emulation_flags():
    """What the compiler is told of tests/emulation/, which is compiled first; None where the headers of CUDA and NCCL are missing."""
    folders = [pathlib.Path(f) for f in (os.environ.get("CUDA_PATH", "") + "/include", "/usr/local/cuda/include", "/usr/include")]
    headers = next((f for f in folders if (f / "nccl.h").is_file() and (f / "cuda.h").is_file()), None)
    if headers is None:
        return None
    room = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, room)
    flags = [] if headers == pathlib.Path("/usr/include") else ["-isystem", str(headers)]
    sources = sorted(str(f) for f in (source.resolve() / "tests" / "emulation").glob("*.cpp") if not f.name.startswith("selftest"))
    subprocess.run([*compiler, "-O1", *flags, "-I", str(source.resolve() / "include"), "-c", *sources], cwd=room, check=True)
    subprocess.run(["ar", "rcs", "libemulation.a", *sorted(f.name for f in pathlib.Path(room).glob("*.o"))], cwd=room, check=True)
    return [*flags, "-L" + room, "-lemulation"]


def package_flags(packages):
    """What the compiler is told of packages, their headers as system headers; None where one is missing."""
    if not packages:
        return []
    if "emulation" in packages:
        of_others = package_flags([p for p in packages if p != "emulation"])
        return None if of_others is None or emulation_flags() is None else of_others + emulation_flags()
    try:
        done = subprocess.run(["pkg-config", "--cflags", "--libs", *packages], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except FileNotFoundError:
        return None
    return None if done.returncode else re.sub(r"(?<!\S)-I", "-isystem", done.stdout).split()


def build(test, flags, include, program):
    """Compiles and links a test against a copy of include/. Returns the exit code and what the compiler said."""
    libraries = [f for f in flags if f.startswith("-l")]  # a linker wants them last
    done = subprocess.run([*compiler, "-I", str(include), *(f for f in flags if f not in libraries), str(source / test), library, *libraries,
                           "-o", str(program)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env={**os.environ, "LC_ALL": "C"})
    return done.returncode, done.stdout


def run(program, args, timeout):
    """Runs a program under a watchdog. Returns its exit code, or None where it had to be ended, and what it said."""
    with tempfile.TemporaryFile(mode="w+", errors="replace") as out:
        child = subprocess.Popen([str(program), *args], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code = None
        out.seek(0)
        return code, out.read()


def tail(text, lines=15):
    return "\n".join("    " + line for line in text.splitlines()[-lines:])


def test_of(mutant):
    return mutant["test"], tuple(mutant["flags"]) + tuple(package_flags(mutant["packages"])), tuple(mutant["args"])


def check_sound(key):
    """The test that is to kill mutants passes without them; otherwise its failure would say nothing."""
    test, flags, args = key
    with tempfile.TemporaryDirectory() as room:
        program = pathlib.Path(room) / "program"
        # Run to its end, a program repays being optimised; a mutant ends at the first failure and is quicker compiled without.
        code, said = build(test, ("-O1", *flags), source / "include", program)
        if code:
            raise Fault(f"{test} does not compile unmutated:\n{tail(said)}")
        code, said = run(program, args, 900)
        if code != 0:
            raise Fault(f"{test} does not pass unmutated ({'still running after 900 s' if code is None else f'exit {code}'}):\n{tail(said)}")


def mutated(mutant):
    """The header's text with the fault."""
    header = source / "include" / mutant["header"]
    if not header.is_file():
        raise Fault(f"{mutant['header']} does not exist")
    text = header.read_text()
    if text.count(mutant["original"]) != 1:
        raise Fault(f"its original text occurs {text.count(mutant['original'])} times in {mutant['header']}, not once")
    if mutant["original"] == mutant["replacement"]:
        raise Fault("it changes nothing")
    return text.replace(mutant["original"], mutant["replacement"])


def kill(mutant):
    with tempfile.TemporaryDirectory() as room:
        include = pathlib.Path(room) / "include"
        program = pathlib.Path(room) / "program"
        shutil.copytree(source / "include", include)
        (include / mutant["header"]).write_text(mutated(mutant))
        code, said = build(mutant["test"], test_of(mutant)[1], include, program)
        if mutant["expect"] == "static_assert":
            if code == 0:
                raise Fault(f"survived: {mutant['test']} compiles with it")
            if not re.search(r"static assertion failed|static_assert failed|not an integral constant expression|non-constant condition", said):
                raise Fault(f"stops {mutant['test']} from compiling, but fails no assertion:\n{tail(said)}")
            return
        if code:
            raise Fault(f"does not compile with {mutant['test']}:\n{tail(said)}")
        code, said = run(program, [*mutant["args"], "--abort-after=1"], mutant["timeout"])
        if code is None and mutant["expect"] != "hang":
            raise Fault(f"makes {mutant['test']} run for more than {mutant['timeout']} s; say expect = \"hang\" if that is its death")
        if code is not None and mutant["expect"] == "hang":
            raise Fault(f"was to make {mutant['test']} hang, but it ends with {code}")
        if code == 0:
            raise Fault(f"survived {mutant['test']}")


def timed(work, item):
    start = time.monotonic()
    try:
        work(item)
        return None, time.monotonic() - start
    except Fault as fault:
        return fault, time.monotonic() - start


def main():
    mutants = []
    for file in sorted(pathlib.Path(__file__).parent.glob("*.toml")):
        for m in tomllib.loads(file.read_text()).get("mutant", []):
            mutants.append({**DEFAULTS, **m})
            if not m.get("header", "").startswith(f"reshard/{file.stem}/"):
                sys.exit(f"{file.name}: {m.get('name', m)} is a fault of another room: {m.get('header')}")
    for m in mutants:
        known = NEEDED | set(DEFAULTS)
        if not NEEDED <= set(m) or not set(m) <= known or m["expect"] not in ("exit", "hang", "static_assert"):
            sys.exit(f"mutants: {m.get('name', m)} has fields that are missing, unknown or out of range; the head of mutants.py lists them")
    if len({m["name"] for m in mutants}) != len(mutants):
        sys.exit("mutants: a name is used twice")
    if set(names) - {m["name"] for m in mutants}:
        sys.exit(f"mutants: there is no {' '.join(sorted(set(names) - {m['name'] for m in mutants}))}")
    mutants = [m for m in mutants if not names or m["name"] in names]
    failed = killed = 0
    if texts:
        for m in mutants:
            try:
                mutated(m)
                if not (source / m["test"]).is_file():
                    raise Fault(f"has a test that there is not: {m['test']}")
            except Fault as fault:
                failed += 1
                print(f"mutant {m['name']} {fault}")
        print(f"{len(mutants) - failed} passed, {failed} failed")
        return bool(failed)
    skipped = [m for m in mutants if package_flags(m["packages"]) is None]
    for m in skipped:
        print(f"mutant {m['name']} is skipped: pkg-config knows no {' '.join(m['packages'])}", flush=True)
    mutants = [m for m in mutants if m not in skipped]
    for m in mutants:
        try:
            mutated(m)
        except Fault as fault:
            failed += 1
            print(f"mutant {m['name']} {fault}", flush=True)
    if share > 1:
        day = datetime.datetime.now(datetime.timezone.utc).date().toordinal() % share
        mutants.sort(key=test_of)  # mutants of one test come on one day: that it passes without them is shown once
        print(f"{len(mutants)} mutants; today part {day + 1} of {share}", flush=True)
        mutants = mutants[len(mutants) * day // share:len(mutants) * (day + 1) // share]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        sound = {}
        tests = sorted({test_of(m) for m in mutants})
        for test, (fault, _) in zip(tests, pool.map(lambda t: timed(check_sound, t), tests)):
            sound[test] = fault is None
            if fault:
                print(fault, flush=True)
        failed += sum(not sound[test_of(m)] for m in mutants)
        mutants = [m for m in mutants if sound[test_of(m)]]
        for m, (fault, seconds) in zip(mutants, pool.map(lambda m: timed(kill, m), mutants)):
            failed += fault is not None
            killed += fault is None
            print(f"mutant {m['name']} " + (str(fault) if fault else f"killed by {m['test']} in {seconds:.1f} s"), flush=True)
    print(f"{killed} passed, {failed} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return bool(failed)


sys.exit(main())
