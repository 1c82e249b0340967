#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dates.py FOLDER N [FROM]: the suite `today` of a build folder as it would be run on N dates, from FROM (YYYYMMDD; today) on.

Names every red test, with the command that repeats it. The last line sums the tests of all dates: `N passed, N failed`."""
import datetime
import json
import os
import pathlib
import shlex
import subprocess
import sys

folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
try:
    first = datetime.datetime.strptime(sys.argv[3], "%Y%m%d") if len(sys.argv) > 3 else datetime.datetime.now(datetime.timezone.utc)
except ValueError:
    sys.exit(f"dates.py: {sys.argv[3]} is no date; they are written YYYYMMDD")
log = folder / "meson-logs" / "testlog.json"
passed = failed = 0
red = []
for n in range(count):
    date = f"{first + datetime.timedelta(days=n):%Y%m%d}"
    log.unlink(missing_ok=True)
    done = subprocess.run(["meson", "test", "-C", str(folder), "--no-rebuild", "--suite", "today"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "RESHARD_TODAY": date})
    tests = [json.loads(line) for line in log.read_text(errors="replace").splitlines()] if log.exists() else []
    bad = [test for test in tests if test["result"] != "OK"]
    passed, failed = passed + len(tests) - len(bad), failed + len(bad)
    if not tests or (done.returncode and not bad):
        failed += 1
        print(f"{date}: meson test ended with {done.returncode}:\n{done.stdout[-2000:]}")
    for test in bad:
        given = {key: value for key, value in test["env"].items() if key.startswith("RESHARD_") and key not in ("RESHARD_SEED", "RESHARD_TODAY")}
        words = " ".join(f"{key}={shlex.quote(value)}" for key, value in {"RESHARD_SEED": date, **given}.items())
        print(f"{date}: {test['name']} ({test['result'].lower()}); repeat it with\n  {words} {shlex.join(test['command'])}", flush=True)
    red += [date] if bad or not tests else []
    print(f"{date}: {len(tests) - len(bad)} of {len(tests)} green", flush=True)
print(f"dates that are red: {', '.join(red) or 'none'}, of {count}")
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
