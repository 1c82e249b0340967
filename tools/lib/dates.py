#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dates.py FOLDER N [FROM]: the suite `today` of a build folder as it would be run on N dates, from FROM (YYYYMMDD; today) on.

Each date is judged by count.py, as tools/check is; of a red test the command that repeats it is named. The last line sums all dates:
`N passed, N failed`."""
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
first = datetime.datetime.now(datetime.timezone.utc)
try:
    first = datetime.datetime.strptime(sys.argv[3], "%Y%m%d") if len(sys.argv) > 3 else first
except ValueError:
    print(f"tools/check: --dates: {sys.argv[3]} is no date\n0 passed, 1 failed")
    sys.exit(1)
log = folder / "meson-logs" / "testlog.json"
counter = pathlib.Path(__file__).with_name("count.py")
meson = ["meson", "test", "-C", str(folder), "--no-rebuild", "--suite", "today"]
planned = subprocess.run([*meson, "--list"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout


def repeats(line):
    """The command that throws a red test's numbers again; nothing where the test is green."""
    test = json.loads(line)
    given = {key: value for key, value in test["env"].items() if key.startswith("RESHARD_") and key != "RESHARD_TODAY"}
    given["RESHARD_SEED"] = date
    words = " ".join(f"{key}={shlex.quote(value)}" for key, value in given.items())
    return "" if test["result"] == "OK" else f"  {words} {shlex.join(test['command'])}"


sums, red = [0, 0], []
for n in range(count):
    date = f"{first + datetime.timedelta(days=n):%Y%m%d}"
    log.write_text("")
    code = subprocess.run(meson, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, "RESHARD_TODAY": date}).returncode
    said = subprocess.run([sys.executable, str(counter), str(log), str(code), "today"], input=planned, stdout=subprocess.PIPE, text=True).stdout
    *words, closing = said.splitlines()
    passed, failed = map(int, re.match(r"(\d+) passed, (\d+) failed", closing).groups())
    sums = [sums[0] + passed, sums[1] + failed]
    if failed:
        red.append(date)
        print("\n".join(words + [command for line in log.read_text(errors="replace").splitlines() if (command := repeats(line))]))
    print(f"{date}: {closing}", flush=True)
print(f"dates that are red: {', '.join(red) or 'none'}, of {count}")
print(f"{sums[0]} passed, {sums[1]} failed")
sys.exit(sums[1] > 0)
