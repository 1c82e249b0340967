#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reject.py SOURCE -- COMPILER...: each case must be refused with its sentence, and its twin (-DACCEPT) must compile.

A case is tests/reject/<name>.cpp; among its first lines stand one or more `// expect: <regex>`, all to be found in what
the compiler says; perhaps `// alone`, where they are to stand in its first five lines, source that is shown not counted, and be its only error; and perhaps
`// flags: <words>`, which the twin does without. Without the twin, a case that fails for a wrong reason (a missing header, a typing error) would pass."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

source = pathlib.Path(sys.argv[1])
compiler = sys.argv[sys.argv.index("--") + 1:] + ["-fsyntax-only", "-I", str(source / "include")]


def compile_case(case, *flags):
    done = subprocess.run([*compiler, *flags, str(case)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env={**os.environ, "LC_ALL": "C"})
    return done.returncode, done.stdout


def faults_of(case):
    head = "\n".join(case.read_text().splitlines()[:20])
    wanted = re.findall(r"^// expect: (.+?)\s*$", head, flags=re.M)
    if not wanted:
        return ["has no line `// expect: <regex>` among its first twenty"]
    faults = []
    flags = re.findall(r"^// flags: (.+)$", head, flags=re.M)
    code, said = compile_case(case, *" ".join(flags).split())
    if code == 0:
        faults.append("compiles, and must not")
    for sentence in wanted if code else []:
        if not re.search(sentence, said):
            faults.append(f"is refused without saying /{sentence}/:\n" + "\n".join(said.splitlines()[:30]))
    errors = len(re.findall(r"\berror: ", said))
    # g++ 14 shows the source below each line that leads to the sentence
    first = "\n".join([line for line in said.splitlines() if not re.match(r"\s*\d* \|", line)][:5])
    if code and re.search(r"^// alone$", head, flags=re.M) and (errors != 1 or not all(re.search(w, first) for w in wanted)):
        faults.append(f"is refused with {errors} errors, or not in the first five lines:\n" + "\n".join(said.splitlines()[:30]))
    code, said = compile_case(case, "-DACCEPT")
    if code:
        faults.append("does not compile with -DACCEPT:\n" + "\n".join(said.splitlines()[:30]))
    return faults


failed = 0
cases = sorted((source / "tests" / "reject").glob("*.cpp"))
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for case, faults in zip(cases, pool.map(faults_of, cases)):
        failed += bool(faults)
        print(f"{case.stem}: {'; '.join(faults) or 'refused, saying so'}", flush=True)
print(f"{len(cases) - failed} passed, {failed} failed")
sys.exit(bool(failed))
