#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""elastic_demo.py TOOL [--slow X]: what `tools/elastic demo` says is what its logs say, and nothing survives it.

Its figures are computed here once more from the logs that it keeps, its job is judged by oracle/job_log.py, logs that were doctored are
told as wrong, and it is interrupted, killed and refused. --slow: times that processes are given, for a sanitizer."""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import job_log  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tool", type=pathlib.Path)
parser.add_argument("--slow", type=float, default=1.0)
options = parser.parse_args()
tool = options.tool.resolve()
room = pathlib.Path(tempfile.mkdtemp(prefix="reshard-elastic-demo-"))
own = room / "tmp"  # where the demo makes its folders
own.mkdir()
WORDS = [str(tool), "demo", "--json", "--grace", str(0.3 * options.slow), "--patience", str(3 * options.slow)]
CHANGES = [("join", "n4"), ("leave", "n1"), ("replace", "n2 n5"), ("kill", "n0")]
KEYS = ["what", "who", "epoch", "pause_s", "switch_s", "detection_s", "known_s", "recovery_s"]
counted = failed = 0


def check(right, words):
    global counted, failed
    counted += 1
    if not right:
        failed += 1
        print("FAULT:", words, flush=True)
    return right


def begin(*words):
    return subprocess.Popen([*WORDS, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(own)})


def run(*words):
    process = begin(*words)
    out, err = process.communicate(timeout=120 * options.slow)
    return process.returncode, out, err


def left(folder):
    """Processes that name a folder in their words: all that a demo starts, but for asks, which name its store."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and words[1] in (b"store", b"worker", b"ask") and any(str(folder).encode() in w for w in words):
            found.append((path.parent.name, words[1].decode()))
    return found


def none_left(folder, seconds=3.0):
    until = time.monotonic() + seconds * options.slow
    while left(folder) and time.monotonic() < until:
        time.sleep(0.02)
    return not left(folder)


def lines(folder):
    return [json.loads(line) for path in sorted(folder.glob("n*.log")) for line in path.read_text().splitlines()]


def figures(folder, told):
    """The figures of a change, from the logs and the definitions in docs/reference/elastic.md."""
    said = lines(folder)
    ends = {}  # of steps, by member and epoch
    for x in said:
        if x["ev"] == "step":
            ends.setdefault(x["id"], {}).setdefault(x["epoch"], []).append(x["t"])
    both = [m for m in ends if told["epoch"] in ends[m] and told["epoch"] - 1 in ends[m]]
    first = {m: min(ends[m][told["epoch"]]) for m in ends if told["epoch"] in ends[m]}
    usual = {m: statistics.median(b - a for a, b in zip(ends[m][told["epoch"]], ends[m][told["epoch"]][1:])) for m in both}
    mine = {"pause_s": max(first[m] - max(ends[m][told["epoch"] - 1]) - usual[m] for m in both),
            "switch_s": max(x["switch"] for x in said if x["ev"] == "world" and x["epoch"] == told["epoch"] and x["id"] in both),
            "detection_s": None, "known_s": None, "recovery_s": None}
    if told["what"] == "kill":
        (killed,) = [x["t"] for x in map(json.loads, (folder / "demo.log").read_text().splitlines()) if x["ev"] == "killed"]
        named = {}
        for x in said:
            if x["t"] > killed and (x["ev"] == "gone" and x["who"] == told["who"] or x["ev"] == "broken" and told["who"] in re.split(", | and ", x["why"])):
                named[x["id"]] = min(x["t"], named.get(x["id"], x["t"]))
        mine.update(detection_s=min(named.values()) - killed, known_s=max(named[m] for m in first) - killed, recovery_s=min(first.values()) - killed)
    return mine


def shown():
    """A whole run: its shape, its figures, its job."""
    kept = room / "kept"
    code, out, err = run("--keep", kept)
    check(none_left(kept, 0), f"left after the demo: {left(kept)}")
    if not check(code == 0 and err == "" and len(out.splitlines()) == 1, f"exit code {code}: {out}{err}"):
        return None
    told = json.loads(out)
    check(list(told) == ["members", "steps", "samples", "replicas", "changes", "right", "wrong"], f"keys {list(told)}")
    check(told["right"] is True and told["wrong"] == [] and told["members"] == 4 and told["replicas"] == 3, out)
    check(told["samples"] == 24 * told["steps"] and told["steps"] >= 200, out)
    check([(c["what"], c["who"]) for c in told["changes"]] == CHANGES, f"changes {told['changes']}")
    check([c["epoch"] for c in told["changes"]] == [2, 3, 4, 5], f"epochs {told['changes']}; more where a machine stood still")
    for c in told["changes"]:
        check(list(c) == KEYS, f"keys {list(c)}")
        for key, mine in figures(kept, c).items():
            check((c[key] is None) == (mine is None) and (mine is None or abs(c[key] - mine) < 1e-6), f"{c['what']}: {key} is {c[key]}, the logs say {mine}")
        check(-0.05 < c["pause_s"] < 5 * options.slow and 0 < c["switch_s"] < 5 * options.slow, f"{c}")
        if c["what"] == "kill":
            check(0 < c["detection_s"] <= c["known_s"] < c["recovery_s"] < 5 * options.slow, f"{c}")
            check(c["recovery_s"] >= 0.3 * options.slow, f"a recovery within the grace: {c}")
    deeds = [json.loads(line) for line in (kept / "demo.log").read_text().splitlines()]
    names = [f"n{i}" for i in range(6)]
    logs, faults = job_log.read_logs({n: kept / f"{n}.log" for n in names})
    job = {"steps": 1000000, "batch": 24, "snapshot": 0, "codes": {d["who"]: d["code"] for d in deeds if d["ev"] == "exit"}, "finish": True, "struck": {"n0"},
           "asks": [(d["what"], tuple(w for w in (d["what"], d["who"], d.get("by")) if w), d["text"]) for d in deeds if d["ev"] == "asked"]}
    faults += job_log.Judge(job_log.Model(tool.parent / "reshard", kept / "model.json"), logs, None, job).faults
    check(not faults, f"the judge says: {faults[:4]}")
    code, again, _ = run("--read", kept)
    check(code == 0 and again == out, f"read again it says {again}, not {out}")
    text = subprocess.run([str(tool), "demo", "--read", str(kept)], capture_output=True, text=True)
    check(text.returncode == 0 and all(f"  {what} {who} " in text.stdout for what, who in CHANGES) and "\nright: " in text.stdout, text.stdout)
    check(all(len(line) <= 80 for line in text.stdout.splitlines() if line.startswith("  ")), text.stdout)
    return kept


def doctored(kept):
    def doctor(name, words, change, *logs):
        folder = room / "doctored"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)
        for log in logs or ("n3",):
            said = [json.loads(line) for line in (folder / f"{log}.log").read_text().splitlines()]
            change(said)
            (folder / f"{log}.log").write_text("".join(json.dumps(x) + "\n" for x in said))
        code, out, err = run("--read", folder)
        told = json.loads(out) if out else {"right": None, "wrong": [err]}
        if check(code != 0 and told["right"] is not True and any(words in w for w in told["wrong"]), f"{name} is not told as '{words}': {code}, {told['wrong'][:3]} {err}"):
            print(f"{name}: {next(w for w in told['wrong'] if words in w).strip()}"[:160], flush=True)

    def find(said, ev, n=0, **fields):
        return [x for x in said if x["ev"] == ev and all(x[k] == v for k, v in fields.items())][n]

    digest = "output_layer.weight"
    doctor("a wrong digest", "is not what its samples demand", lambda s: s[-1]["digests"].update({f"param {digest}": s[-1]["digests"][f"param {digest}"] ^ 1}))
    doctor("replicas that differ", "replicas differ", lambda s: s[-1]["digests"].update({f"master {digest}": 1}))
    doctor("a digest missing", "is not what its samples demand", lambda s: s[-1]["digests"].pop(f"exp_avg {digest}"))
    doctor("a digest of nothing", "what it does not hold", lambda s: s[-1]["digests"].update({"param nothing": 1}))
    doctor("a missing sample", "begins with sample", lambda s: find(s, "samples", 30).update(begin=find(s, "samples", 30)["begin"] + 1))
    doctor("a rank's samples missing", "ranks", lambda s: s.remove(find(s, "samples", 30)))
    doctor("a last sample missing", "samples end at", lambda s: find(s, "samples", 3, epoch=2).update(end=find(s, "samples", 3, epoch=2)["end"] - 1), "n4")
    doctor("a wrong sum", "the sum of n3", lambda s: find(s, "step", 30).update(sum=1))
    doctor("another end", "ends as 'expelled'", lambda s: s[-1].update(why="expelled"))
    doctor("no end", "ends as ''", lambda s: s.pop())
    doctor("two ends", "ends twice", lambda s: s.append(s[-1]))
    doctor("two last versions", "done with version", lambda s: s[-1].update(version=s[-1]["version"] - 1))
    doctor("two worlds of an epoch", "is one world to", lambda s: find(s, "world", epoch=3).update(members=["n3"]))
    doctor("a cursor one beyond", "begins at step", lambda s: find(s, "world", epoch=4).update(cursor=find(s, "world", epoch=4)["cursor"] + 1), "n0", "n3", "n4", "n5")
    doctor("an exit code", "ends with 3", lambda s: find(s, "exit", who="n3").update(code=3), "demo")
    doctor("no exit code", "no exit code is told of n3", lambda s: s.remove(find(s, "exit", who="n3")), "demo")
    doctor("a death that was none", "ends with 0, not -9", lambda s: find(s, "exit", who="n0").update(code=0), "demo")
    doctor("an answer", "is answered 'failed: so'", lambda s: find(s, "asked").update(text="failed: so"), "demo")
    doctor("a change that led nowhere", "no world follows", lambda s: find(s, "asked").update(who="n9"), "demo")
    doctor("a death that n3 never named", "never named it", lambda s: [s.remove(x) for x in list(s) if x["ev"] in ("gone", "broken")])
    doctor("no line of the log", "none of it", lambda s: s.append([1]))
    cut = room / "cut"
    shutil.copytree(kept, cut)
    with open(cut / "n3.log", "a") as file:
        file.write('{"t":1.0')
    code, out, err = run("--read", cut)
    check(code != 0 and "ends within a line" in err, f"a log that ends within a line: {code} {out}{err}")


def ended():
    """Told to end, or killed, at several times: no process, and no folder where it had a word."""
    for how, after in ((signal.SIGINT, 0.02), (signal.SIGINT, 1.0), (signal.SIGTERM, 2.5), (signal.SIGHUP, 0.6), (signal.SIGKILL, 1.5)):
        process = begin()
        time.sleep(after * options.slow)
        there = left(own)
        process.send_signal(how)
        out, _ = process.communicate(timeout=20 * options.slow)
        word = f"{how.name} after {after} s"
        check(process.returncode == (-9 if how == signal.SIGKILL else 128 + how) or process.returncode == -how and after < 0.1, f"{word}: exit code {process.returncode}")
        check(out == "", f"{word}: {out}")
        check(after < 0.5 or there, f"{word}: nothing ran that could be left")
        check(none_left(own), f"{word}: left are {left(own)}")
        if how != signal.SIGKILL:
            check(not list(own.iterdir()), f"{word}: {list(own.iterdir())} is left")


def refused(kept):
    for words, sentence in ((("--keep", kept), "is not empty"), (("--keep", kept / "model.json"), "cannot be made"), (("--read", room / "nowhere"), "has no demo.log"),
                            (("--read", kept, "--keep", room / "x"), "excludes"), (("--grace", "0"), "grace"), (("--patience", "x"), "patience")):
        code, out, err = run(*words)
        check(code not in (0, -9) and out == "" and err.startswith("reshard: ") and sentence in err and len(err.splitlines()) == 1, f"{words}: {code} {out}{err}")
        check(none_left(own), f"{words}: left are {left(own)}")
    process = begin("--keep", room / "failing")  # a store that dies ends the demo
    until = time.monotonic() + 20 * options.slow
    while time.monotonic() < until and not (room / "failing" / "n3.log").exists():
        time.sleep(0.01)
    for pid in [p for p, what in left(room / "failing") if what == "store"]:
        os.kill(int(pid), signal.SIGKILL)
    out, err = process.communicate(timeout=120 * options.slow)
    check(process.returncode not in (0, -9) and err.startswith("reshard: demo: "), f"a store that is killed: {process.returncode} {out}{err}")
    check(none_left(room / "failing"), f"a store that is killed: left are {left(room / 'failing')}")


try:
    folder = shown()
    if folder:
        doctored(folder)
        refused(folder)
    ended()
finally:
    shutil.rmtree(room, ignore_errors=True)
print(f"{counted - failed} passed, {failed} failed")
sys.exit(bool(failed))
