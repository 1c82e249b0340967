#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""needed.py FOLDER SUITE: what a build folder makes for the tests of a suite, as ninja names it, one a line."""
import json
import os
import subprocess
import sys

folder, suite = os.path.abspath(sys.argv[1]), sys.argv[2]


def told(what):
    return json.loads(subprocess.run(["meson", "introspect", folder, what], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout)


files = {target["id"]: target["filename"] for target in told("--targets")}
ids = {one for test in told("--tests") if any(of.split(":")[-1] == suite for of in test["suite"]) for one in test["depends"]}
print("\n".join(sorted(os.path.relpath(name, folder) for one in ids for name in files[one])))
