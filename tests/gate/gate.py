#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gate.py SOURCE: tools/check and .ci/run are red where something went wrong, and green where nothing did.

The scripts themselves run, linked into folders that hold a project of a few shell commands; Debian's package tools are stand-ins, so
that a system without a compiler can be played. Every case names the exit code and the closing line that it wants."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1]).resolve()

DOCTEST = r"[doctest] test cases: 1 | 1 passed | 0 failed | 0 skipped\n[doctest] assertions: 2 | 2 passed | 0 failed |\n"
SUCCESS = r"[doctest] Status: SUCCESS!\n"
# Suite of one test: what the shell does there, and the arguments of test() beside.
SUITES = {
    "own": ("echo 3 passed, 0 failed", ""),
    "doctest": (f"printf '{DOCTEST}{SUCCESS}'", ""),
    "filtered": (f"printf '{DOCTEST.replace('0 skipped', '9 skipped')}{SUCCESS}'", ""),
    "fails": ("echo 2 passed, 1 failed; exit 1", ""),
    "crash": ("echo 3 passed, 0 failed; kill -SEGV $$", ""),
    "silent": (":", ""),
    "begun": ("echo RESHARD_SEED=1", ""),
    "cut": (f"printf '{DOCTEST}'", ""),
    "goes_on": ("echo 3 passed, 0 failed; echo and more", ""),
    "liar": ("echo 2 passed, 1 failed", ""),
    "empty": ("echo 0 passed, 0 failed", ""),
    "hang": ("sleep 100", ", timeout: 1"),
    "guarded": ("test \"$(ulimit -t)\" -le 600 && echo 1 passed, 0 failed", ""),
    "skips": ("echo 2 passed, 0 failed; exit 77", ""),
    "today": ("test \"$RESHARD_TODAY\" != 20280229 && echo 1 passed, 0 failed", ""),
}
# Stand-ins. FAKE_MISSING: packages that are not installed. FAKE_OFFERED: those that the lists have. FAKE_NETWORK: empty where there is none.
TOOLS = {
    "dpkg-query": 'case " $FAKE_MISSING " in *" ${4:-$3} "*) ;; *) printf installed ;; esac',
    "apt-get": 'test -n "$FAKE_NETWORK" && case "$*" in *install*) false ;; esac',
    "apt-cache": 'case " $FAKE_OFFERED " in *" $2 "*) echo "  Candidate: 1:1" ;; esac',
    "id": 'echo "${FAKE_UID:-0}"',
    "git": 'case $1 in status) echo "$FAKE_STATUS" ;; esac',
    # `meson test` runs; what is left of its log, and how it ends, is FAKE_MESON's.
    "meson": '''case "$FAKE_MESON.$1.$*" in
.* | *--list) exec REAL "$@" ;;
*.test.*) REAL "$@"; log=$3/meson-logs/testlog-timed.json
  case $FAKE_MESON in
    ends2) exit 2 ;;
    killed) kill -KILL $$ ;;
    cuts) grep doctest "$log" >"$log.last"; sed -i /doctest/d "$log"; cat "$log.last" >>"$log"; truncate -s -20 "$log" ;;
    drops) sed -i /doctest/d "$log" ;;
    empties) : >"$log" ;;
    removes) rm "$log" ;;
  esac ;;
*) exec REAL "$@" ;;
esac''',
}
# tools/check as .ci/run calls it: the last configuration does FAKE_CHECK; with FAKE_REAL that of clang++-19 goes through the real one.
CHECK = '''case "$FAKE_REAL.$*" in yes.*clang++-19*) exec tools/real-check "$@" ;; esac
case "$*" in *thread*) eval "$FAKE_CHECK" ;; esac
echo "2 passed, 0 failed"'''

# python3 as pip: it makes FAKE_WHEELS, a toolkit or nothing, in the folder after --target; of headers alone FAKE_HEADERS.
PYTHON = """case "$*" in
  "-m pip install"*-headers/*) while [ "$1" != --target ]; do shift; done; mkdir -p "$2"; eval "$FAKE_HEADERS" ;;
  "-m pip install"*) while [ "$1" != --target ]; do shift; done; mkdir -p "$2"; eval "$FAKE_WHEELS" ;;
  "-m pip"*) ;;
  *) exec REAL "$@" ;;
esac"""
WHEELS = 'mkdir -p "$2"/nvidia/{cu13/bin,cu13/lib,nccl/include}; touch "$2"/nvidia/nccl/include/nccl.h; ln -s /bin/true "$2"/nvidia/cu13/bin/nvcc'
HEADERS = 'mkdir -p "$2"/nvidia/runtime/include/crt; touch "$2"/nvidia/runtime/include/{nccl,cuda}.h'

passed = failed = 0
env = {k: v for k, v in os.environ.items() if not re.match(r"MESON_|FAKE_|RESHARD_|DESTDIR|.*SAN_OPTIONS", k)}


def script(path, text):
    path.write_text("#!/bin/bash\n" + text + "\n")
    path.chmod(0o755)


def case(name, folder, command, code, closing, *words, **fakes):
    """Runs a script in a folder and compares how it ends; words must be among what it says."""
    global passed, failed
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          env={**env, "FAKE_NETWORK": "yes", "FAKE_OFFERED": "g++", "FAKE_MESON": "", "FAKE_MISSING": "clang-14", "FAKE_HEADERS": HEADERS, **fakes})
    last = (done.stdout.splitlines() or [""])[-1]
    good = (done.returncode, last) == (code, closing) and all(word in done.stdout for word in words)
    passed, failed = passed + good, failed + (not good)
    print(f"{'ok' if good else 'NOT AS WANTED'}: {name}: {last!r}, exit code {done.returncode}", flush=True)
    if not good:
        print(f"  wanted {closing!r}, exit code {code}" + "".join(f", and the words {word!r}" for word in words))
        print("".join(f"  | {line}\n" for line in done.stdout.splitlines()))


def check(name, suites, code, closing, *words, **fakes):
    case(name, room / "small", ["tools/check", *sum((["--suite", suite] for suite in suites.split()), [])], code, closing, *words, **fakes)


def gate(name, code, closing, *words, day="20261126", **fakes):
    case(name, room / "whole", [".ci/run", day], code, closing, *words, **fakes)


with tempfile.TemporaryDirectory() as name:
    room = pathlib.Path(name)
    tools = room / "bin"
    tools.mkdir()
    for tool, text in TOOLS.items():
        script(tools / tool, text.replace("REAL ", shutil.which("meson") + " "))
    env["PATH"] = f"{tools}:{env['PATH']}"
    script(tools / "python3", PYTHON.replace("REAL", sys.executable))
    for part in ("bin/nvcc", "include/nccl.h"):  # the machine's CUDA toolkit
        (room / "cuda" / part).parent.mkdir(parents=True)
        script(room / "cuda" / part, "")
    env["CUDA_PATH"] = str(room / "cuda")
    for folder, linked in {"small": "tools/check", "unbuilt": "tools/check", "whole": ".ci/run"}.items():
        (room / folder / "tools").mkdir(parents=True)
        (room / folder / ".ci").mkdir()
        for path in (linked, "tools/lib", "meson_options.txt"):
            (room / folder / path).symlink_to(source / path)
    (room / "whole" / "tools" / "real-check").symlink_to(source / "tools" / "check")
    script(room / "whole" / "tools" / "check", CHECK)
    script(room / "whole" / "tools" / "bare", 'eval "$FAKE_BARE"\necho "2 passed, 0 failed"')
    script(room / "whole" / "tools" / "mutate", 'eval "$FAKE_MUTATE"\necho "2 passed, 0 failed"')
    (room / "unbuilt" / "meson.build").write_text(
        "project('unbuilt')\nnone = custom_target(output: 'none', command: 'false', build_by_default: true)\n"
        "test('own', find_program('echo'), args: '1 passed, 0 failed', depends: none, suite: 'own')\n")
    for suite, (text, _) in SUITES.items():
        script(room / "small" / suite, text)
    mutants = source / "tests" / "mutant" / "mutants.py"
    (room / "small" / "tomllib.py").write_text("raise ImportError\n")  # as Python 3.10 has it
    (room / "small" / "meson.build").write_text(
        "project('small')\n"
        + "".join(f"test('{suite}', files('{suite}'){more}, suite: '{suite}')\n" for suite, (_, more) in SUITES.items())
        + f"test('tomllib', find_program('python3'), args: '{mutants}', env: ['PYTHONPATH={room}/small'], suite: 'tomllib')\n")

    # tools/check: what tests do
    check("all is well", "own doctest guarded", 0, "5 passed, 0 failed")
    check("what a filter leaves out is not skipped", "own filtered", 0, "4 passed, 0 failed")
    check("a failed case", "own fails", 1, "5 passed, 1 failed", "failed: small:fails / fails")
    check("a crash after the closing line", "own crash", 1, "6 passed, 1 failed", "failed: small:crash / crash")
    check("a test that prints nothing", "own silent", 1, "3 passed, 1 failed", "without its closing line")
    check("a program that ends before its closing line", "own begun cut", 1, "3 passed, 2 failed", "without its closing line")
    check("a program that goes on after its closing line", "goes_on", 1, "0 passed, 1 failed", "without its closing line")
    check("a closing line that contradicts the exit code", "own liar", 1, "3 passed, 1 failed")
    check("a closing line that counts nothing", "empty", 1, "0 passed, 1 failed", "ran no case")
    check("a hang", "own hang", 1, "3 passed, 1 failed", "failed: small:hang / hang (timeout")
    check("a skipped test is told", "own skips", 0, "3 passed, 0 failed, 1 skipped", "skipped: small:skips / skips")
    check("mutants without tomllib", "tomllib", 0, "0 passed, 0 failed, 1 skipped", "Python 3.11")
    # what becomes of meson test
    check("meson test ends with 2, no test failed", "own doctest", 1, "4 passed, 1 failed", "meson test ended with 2", FAKE_MESON="ends2")
    check("meson test is killed", "own doctest", 1, "4 passed, 1 failed", "meson test ended with 137", FAKE_MESON="killed")
    check("the log is cut", "own doctest", 1, "3 passed, 2 failed", "is cut", "was to run and is not in", FAKE_MESON="cuts")
    check("the log lacks a test", "own doctest", 1, "3 passed, 1 failed", "was to run and is not in", FAKE_MESON="drops")
    check("the log is empty", "own", 1, "0 passed, 2 failed", "no test was run", FAKE_MESON="empties")
    check("the log is gone", "own", 1, "0 passed, 1 failed", "no such test", FAKE_MESON="removes")
    case("the build fails", room / "unbuilt", ["tools/check"], 1, "0 passed, 1 failed", "does not build")
    case("what a test needs does not build", room / "unbuilt", ["tools/check", "--suite", "own"], 1, "0 passed, 1 failed", "does not build")
    check("a suite that there is not", "own nosuch", 1, "3 passed, 1 failed", "no test is of the suite nosuch")
    # what the days to come throw
    for told, dates, code, closing, *words in [("of two one is red", ["2", "20280228"], 1, "1 passed, 1 failed", "dates that are red: 20280229, of 2", "RESHARD_SEED=20280229 "),
                                               ("all are green", ["2", "20280301"], 0, "2 passed, 0 failed", "dates that are red: none, of 2"),
                                               ("a day that there is not", ["2", "20280230"], 1, "0 passed, 1 failed", "20280230 is no date"),
                                               ("no number", ["some"], 1, "0 passed, 1 failed", "--dates wants a number")]:
        case(f"dates: {told}", room / "small", ["tools/check", "--dates", *dates], code, closing, *words)
    # what a run costs, against budgets
    check("what it cost is told", "own", 0, "3 passed, 0 failed", "CPU seconds", "slowest tests: own ")
    for offers, takes in (("g++ clang-14 clang-19", "clang++-14"), ("g++ clang-19", "clang++-19"), ("g++ clang-15", "none")):
        case(f"of {offers} tools/check takes", source, ["bash", "-c", ". tools/lib/packages.sh; quick_clang || echo none"], 0, takes,
             FAKE_OFFERED=offers, FAKE_MISSING="clang-14 clang-15 clang-19")
    case("of an installed clang 19 and no lists tools/check takes", source, ["bash", "-c", ". tools/lib/packages.sh; quick_clang || echo none"], 0, "clang++-19",
         FAKE_OFFERED="", FAKE_NETWORK="")
    case("a suite without a budget", room / "small", ["tools/check", "--budget", "--suite", "own"], 1, "3 passed, 1 failed", "has no budget for the suite own in [check]")
    work = room / "work"
    (work / "meson-logs").mkdir(parents=True)
    (work / "timed").mkdir()
    (work / "meson-logs" / "testlog-timed.json").write_text(
        '{"name": "small:busy / busy", "command": ["timed", "x", "busy"], "env": {}, "duration": 9}\n'
        '{"name": "small:busy+today / busy today", "command": ["timed", "x", "busy"], "env": {"RESHARD_SEED": "today"}, "duration": 9}\n')
    (work / "timed" / "1").write_text("0m0.0s 0m0.0s\n1m4.0s 0m2.0s\n\nbusy\n")
    (work / "timed" / "2").write_text("0m0.0s 0m0.0s\n0m3.0s 0m1.0s\ntoday\nbusy\n")
    (work / "before").write_text("# ninja log v5\n0\t7000\t1\ttests/old.o\tx\n")
    (work / ".ninja_log").write_text("# ninja log v5\n0\t7000\t1\ttests/old.o\tx\n0\t1000\t1\ttests/law_new.o\tx\n0\t3000\t1\ttools/new.o\tx\n")
    costs = [sys.executable, str(source / "tools" / "lib" / "costs.py"), "run", ".", "--since", "before", "--timed", "timed", "--cpu", "90", "--unit", "2", "--budget", "full", "--table"]
    fine = "[full]\nbusy = 33\ntoday = 2\nlaw = 2.5\ntools = 7.5\n"  # 66, 4, 5 and 15 of 90 seconds
    for told, table, busy, words in [("as they are", fine, None, ["busy              0       0.0      1      66.0     33.0", "slowest files: tools/new.o 15.0, tests/law_new.o 5.0\n"]),
                                     ("nearly 1.25 times", fine.replace("33", "26.5"), None, []),
                                     ("twice", fine.replace("33", "16.5"), "the suite busy takes 33.0 units, more than 1.25 times its budget of 16.5 in [full]", [])]:
        (work / "budget").write_text(table)
        case(f"costs: {told}", work, [*costs, "budget"], 0, "slowest tests: busy 66.0, busy today 4.0", *words)
        named = (work / "meson-logs" / "over_budget").read_text()
        if named.startswith(busy or "nothing") != bool(busy) or bool(named) != bool(busy):
            failed += 1
            print(f"NOT AS WANTED: costs: {told}: {named!r}")
    case("costs: each", work, [*costs[:2], "each", "meson-logs/costs.json"], 0, '"busy today" = 4', '[compile]\n"law_new.o" = 5\n"new.o" = 15\n', '[run]\n"busy" = 66\n')
    # compilers
    for told, fakes in {"root, no network": {"FAKE_NETWORK": ""}, "root, the package cannot be installed": {}, "no root": {"FAKE_UID": "1000"}}.items():
        case(f"a compiler is missing: {told}", room / "small", ["tools/check", "--compiler", "clang++-99"], 1, "0 passed, 1 failed", "clang-99", FAKE_MISSING="clang-99", **fakes)

    # examples and benchmarks
    case("every figure where its program is missing", source, ["bash", "-c", "set -o pipefail; tools/figures --dry | sed 's/of [1-9][0-9][0-9] /of many /'"], 0, "0 of many figures met",
         "not measured")
    for told, shell, code, closing in [("speaks", "echo so", 0, "1 passed, 0 failed"), ("says nothing", ":", 1, "0 passed, 1 failed"), ("fails", "echo so; exit 3", 1, "0 passed, 1 failed"),
                                       ("refuses", "echo none here; exit 77", 1, "0 passed, 1 failed")]:
        case(f"a benchmark {told}", room, [sys.executable, str(source / "tools" / "lib" / "runs.py"), "sh", "-c", shell], code, closing)
    for told, shell, code, closing in [("speaks", "echo so", 0, "1 passed, 0 failed"), ("refuses", "echo none here; exit 77", 0, "1 passed, 0 failed"),
                                       ("refuses without a word", "exit 77", 1, "0 passed, 1 failed"), ("says more", "echo so; echo so; exit 77", 1, "0 passed, 1 failed"),
                                       ("fails", "echo so; exit 3", 1, "0 passed, 1 failed")]:
        case(f"what may refuse {told}", room, [sys.executable, str(source / "tools" / "lib" / "runs.py"), "--or-refuses", "sh", "-c", shell], code, closing)

    # .ci/run: a CUDA toolkit, the machine's or of wheels
    none = {"CUDA_PATH": str(room / "none")}
    no_headers = "FAILED: no headers of the oldest and the newest CUDA"
    gate("headers of CUDA that cannot be had", 1, "12 passed, 1 failed", no_headers, FAKE_HEADERS="false")
    gate("headers without NCCL's", 1, "12 passed, 1 failed", no_headers, FAKE_HEADERS=HEADERS.replace("{nccl,cuda}", "cuda"))
    gate("headers of wheels", 0, "12 passed, 0 failed", "to build-cuda-headers/oldest\n", "to build-cuda-headers/newest\n")
    gate("they are taken once", 0, "12 passed, 0 failed", FAKE_HEADERS="false")
    gate("no CUDA toolkit, and wheels make none", 1, "12 passed, 1 failed", "FAILED: no CUDA toolkit", FAKE_WHEELS="false", **none)
    gate("wheels that are no toolkit", 1, "12 passed, 1 failed", "FAILED: no CUDA toolkit", FAKE_WHEELS=":", **none)
    gate("a toolkit of wheels", 0, "12 passed, 0 failed", "making a CUDA toolkit of wheels", FAKE_WHEELS=WHEELS, **none)
    gate("it is made once", 0, "12 passed, 0 failed", FAKE_WHEELS="false", **none)
    # .ci/run: five configurations and the sample of faults, each a closing line
    gate("all is well", 0, "12 passed, 0 failed")
    gate("a configuration fails", 1, "11 passed, 1 failed", "CPU seconds\n  failed: small:x / x\n", FAKE_CHECK="echo failed: small:x / x; echo 1 passed, 1 failed; exit 1")
    gate("too few faults are noticed", 1, "11 passed, 1 failed", FAKE_MUTATE="echo 1 passed, 1 failed; exit 1")
    gate("a configuration ends with 2, and no test failed", 1, "12 passed, 1 failed", "ended with 2", FAKE_CHECK="echo 2 passed, 0 failed; exit 2")
    gate("a configuration is killed", 1, "10 passed, 1 failed", "no closing line", FAKE_CHECK="kill -KILL $$")
    gate("a configuration has no closing line", 1, "10 passed, 1 failed", "no closing line", FAKE_CHECK="echo 2 passed, 0 failed; echo; exit 0")
    gate("a configuration runs nothing", 1, "10 passed, 1 failed", "nothing was run", FAKE_CHECK="echo 0 passed, 0 failed; exit 0")
    gate("a test is skipped", 1, "11 passed, 1 failed", "a test was skipped", FAKE_CHECK="echo 1 passed, 0 failed, 1 skipped; exit 0")
    absent = {"FAKE_MISSING": "clang-19", "FAKE_REAL": "yes"}
    gate("clang-19 is offered and cannot be installed", 1, "10 passed, 1 failed", "could not install", FAKE_OFFERED="g++ clang-19", **absent)
    gate("clang-19 is offered and we are not root", 1, "10 passed, 1 failed", "as root", FAKE_OFFERED="g++ clang-19", FAKE_UID="1000", **absent)
    gate("there is no asking for clang-19", 1, "10 passed, 1 failed", "could not be renewed", FAKE_NETWORK="", **absent)
    gate("there are no lists, and we are not root", 1, "10 passed, 1 failed", "as root", FAKE_OFFERED="", FAKE_UID="1000", **absent)
    gate("clang-19 is not offered", 0, "10 passed, 0 failed, 1 skipped", "does not offer it", **absent)
    # .ci/run: a bare system, one day of four, in place of the first configuration
    turn, stood_in = {"day": "20261129"}, "== tools/bare trixie tools/demo tools/check tools/check --compiler g++ --gate --suite static --suite headers\n2 passed, 0 failed\n\n== tools/check --gate"
    gate("it is a bare system's turn", 0, "12 passed, 0 failed", stood_in, **turn)
    gate("it is its turn, and not all is committed", 0, "12 passed, 0 failed", "== tools/check\n2 passed", FAKE_STATUS=" M meson.build", **turn)
    gate("a bare system fails", 1, "11 passed, 1 failed", FAKE_BARE="echo 1 passed, 1 failed; exit 1", **turn)
    gate("a bare system cannot be made", 0, "12 passed, 0 failed, 1 skipped", "skipped, tools/bare: no root", FAKE_BARE="echo tools/bare: no root; exit 77", **turn)
    gate("it is not its turn", 0, "12 passed, 0 failed", "== tools/check\n2 passed", day="20261128")
    gate("a configuration is no bare system", 1, "10 passed, 1 failed", "ended with 77", FAKE_CHECK="echo none; exit 77")
    gate("a day that there is not", 1, "0 passed, 1 failed", "invalid date", day="20260230")
    gate("a day in another form", 1, "0 passed, 1 failed", "yesterday is no day: YYYYMMDD", day="yesterday")

print(f"{passed} passed, {failed} failed")
sys.exit(bool(failed))
