#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reject.py SOURCE [--reaching HEADER] [--first] -- COMPILER...: each case must be refused with its sentence, and its twin (-DACCEPT) must compile.

A case is tests/reject/<name>.cpp; among its first lines stand one or more `// expect: <regex>`, all to be found in what
the compiler says; perhaps `// alone`, where they are to stand in its first five lines, source that is shown not counted, and be its only error; and perhaps
`// flags: <words>`, which the twin does without. Without the twin, a case that fails for a wrong reason (a missing header, a typing error) would pass.
  --reaching HEADER  only the cases that include it, reshard/ROOM/NAME.hpp, themselves or by others
  --first            stops at the first case that is not as it should be
clang compiles the headers of all cases once, before; other compilers see each case alone.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

source = pathlib.Path(sys.argv[1])
split = sys.argv.index("--")
options = sys.argv[2:split]
compiler = sys.argv[split + 1:] + ["-fsyntax-only", "-I", str(source / "include")]


before = []  # what makes clang begin with the headers that it has compiled


def compile_headers(cases, folder):
    """Where the compiler is clang and takes them: all headers of the library that the cases include, in one file."""
    named = re.findall(r"^\s*#\s*include\s*<reshard/[^>]+>", "\n".join(case.read_text() for case in cases), flags=re.M)
    every = folder / "every.hpp"
    every.write_text("".join(line + "\n" for line in sorted(set(named))))
    made = [word for word in compiler if word != "-fsyntax-only"] + ["-fpch-instantiate-templates", "-x", "c++-header", str(every), "-o", str(every) + ".pch"]
    if "clang" in compiler[0] and len(cases) > 8 and subprocess.run(made, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        before.extend(["-include-pch", str(every) + ".pch"])


def compile_case(case, *flags, alone=False):
    done = subprocess.run([*compiler, *([] if alone else before), *flags, str(case)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env={**os.environ, "LC_ALL": "C"})
    return done.returncode, done.stdout


twins, of_twins = {}, threading.Lock()


def compile_twin(case):
    """The twin of a case; those whose texts are one with -DACCEPT, comments aside, are one twin and compiled once."""
    text = re.sub(r"^#ifndef ACCEPT\n.*?^#endif\n", "", case.read_text(), flags=re.M | re.S)
    text = re.sub(r"//.*", "", re.sub(r"^#ifdef ACCEPT\n(.*?)^#else\n.*?^#endif\n", r"\1", text, flags=re.M | re.S))
    if "ACCEPT" in text:  # in another form
        return compile_case(case, "-DACCEPT")
    key = "\n".join(line for line in text.splitlines() if line.strip())
    with of_twins:
        once, result = twins.setdefault(key, (threading.Lock(), []))
    with once:
        if not result:
            result.append(compile_case(case, "-DACCEPT"))
    return result[0]


def faults_of(case):
    head = "\n".join(case.read_text().splitlines()[:20])
    wanted = re.findall(r"^// expect: (.+?)\s*$", head, flags=re.M)
    if not wanted:
        return ["has no line `// expect: <regex>` among its first twenty"]
    faults = []
    flags = re.findall(r"^// flags: (.+)$", head, flags=re.M)
    first_lines = bool(re.search(r"^// alone$", head, flags=re.M))  # which tell by what the header was included
    code, said = compile_case(case, *" ".join(flags).split(), alone=first_lines or bool(flags))
    if code == 0:
        faults.append("compiles, and must not")
    for sentence in wanted if code else []:
        if not re.search(sentence, said):
            faults.append(f"is refused without saying /{sentence}/:\n" + "\n".join(said.splitlines()[:30]))
    errors = len(re.findall(r"\berror: ", said))
    # g++ 14 shows the source below each line that leads to the sentence
    first = "\n".join([line for line in said.splitlines() if not re.match(r"\s*\d* \|", line)][:5])
    if code and first_lines and (errors != 1 or not all(re.search(w, first) for w in wanted)):
        faults.append(f"is refused with {errors} errors, or not in the first five lines:\n" + "\n".join(said.splitlines()[:30]))
    code, said = compile_twin(case)
    if code:
        faults.append("does not compile with -DACCEPT:\n" + "\n".join(said.splitlines()[:30]))
    return faults


def reaches(case, header):
    """The case includes it, by itself or by headers that it includes."""
    seen, todo = set(), [case]
    while todo:
        for name in re.findall(r"^\s*#\s*include\s*[<\"](reshard/[^>\"]+)", todo.pop().read_text(), flags=re.M):
            if name not in seen:
                seen.add(name)
                todo.append(source / "include" / name)
    return header in seen


passed = failed = 0
cases = sorted((source / "tests" / "reject").glob("*.cpp"))
if "--reaching" in options:
    cases = [case for case in cases if reaches(case, options[options.index("--reaching") + 1])]
with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    compile_headers(cases, pathlib.Path(folder))
    for case, faults in zip(cases, pool.map(faults_of, cases)):
        passed, failed = passed + (not faults), failed + bool(faults)
        print(f"{case.stem}: {'; '.join(faults) or 'refused, saying so'}", flush=True)
        if failed and "--first" in options:
            pool.shutdown(cancel_futures=True)
            break
print(f"{passed} passed, {failed} failed")
sys.exit(bool(failed))
