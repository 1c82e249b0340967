#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""elastic_curve.py ELASTIC TRAIN [--few] [--slow X] [--keep DIR] [--self-test]: jobs of tools/elastic that train a GPT (`--model dense`, `moe`), whose
members join, are replaced and are killed; every loss and norm that any of them logged, and the state of the last world, are to the last bit
those of tools/train on one device that was never disturbed.

The last line is `N passed, M failed`. --few: of three jobs the one that goes back to copies. --self-test: logs with one bit changed, a step left out and a member's share of the state missing are
told apart."""
import argparse
import copy
import json
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import elastic_jobs  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("elastic", type=pathlib.Path)
parser.add_argument("train", type=pathlib.Path)
parser.add_argument("--slow", type=float, default=1)
parser.add_argument("--keep")
parser.add_argument("--few", action="store_true")
parser.add_argument("--self-test", action="store_true")
options = parser.parse_args()
tests = elastic_jobs.Tests(options.elastic, options.slow, options.keep)
BATCH = 24
STATES = ("param", "master", "exp_avg", "exp_avg_sq")


def bits(x):
    return struct.pack("<d", x)


def alone(model, steps):
    """(losses, norms, the four sums of the state) of one device."""
    command = [options.train.resolve(), "--json", "--model", model, "--layout", "tp=1" + (",ep=1,etp=1" if model == "moe" else ""), "--steps", str(steps), "--batch", str(BATCH)]
    told = [json.loads(line) for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()]
    made = [x for x in told if "loss_hex" in x]
    return ([float.fromhex(x["loss_hex"]) for x in made], [float.fromhex(x["norm_hex"]) for x in made], [int(told[-1]["digest"][s], 16) for s in STATES])


def unlike(events, steps, wanted):
    """Sentences: where a job's logs are not the curve."""
    losses, norms, state = wanted
    made = [x for x in events if x["ev"] == "step"]
    for x in made:
        for name, curve in (("loss", losses), ("norm", norms)):
            if bits(x[name]) != bits(curve[x["step"]]):
                yield f"{x['id']}, step {x['step']}: its {name} is {x[name]!r}, alone {curve[x['step']]!r}"
    if missing := set(range(steps)) - {x["step"] for x in made}:
        yield f"nobody logged the steps {sorted(missing)}"
    done = [x for x in events if x["ev"] == "end" and x["why"] == "done" and "state" in x]
    sums = [sum(x["state"][s] for x in done) % 2**64 for s in range(4)]
    for name, mine, theirs in zip(STATES, sums, state):
        if mine != theirs:
            yield f"the digest of {name} is {mine:016x}, alone {theirs:016x}"


def run(name, model, layout, found, steps, course, **more):
    """A job with that course, judged; its events."""
    job = elastic_jobs.Job(tests, name, model=model, layout=layout, found=found, batch=BATCH, steps=steps, step_ms=2, dump=False, **more)
    job.founders()
    tests.check(job.until(lambda: job.stepped(2), 30), f"{name}: it does not begin; {job.folder}")
    course(job)
    job.end(60, judged=False)
    faults = list(unlike(job.events(), steps, alone(model, steps)))
    tests.check(not faults, f"{name}: {len(faults)} faults; " + "; ".join(faults[:4]) + f"; {job.folder}")
    worlds = {x["epoch"]: (x["layout"], x["why"]) for x in job.events() if x["ev"] == "world"}
    print(f"{name}: {steps} steps in {len(worlds)} worlds: " + ", ".join(f"{layout} ({why})" for layout, why in worlds.values()), flush=True)
    return job, worlds


def comes_and_goes(job):
    """One joins, one is replaced, one is killed."""
    job.worker("j")
    tests.check("done" in (job.ask("r1", "join", "j") or ""), f"{job.name}: join: {job.asks}")
    at = max(x["step"] for x in job.events() if x["ev"] == "step")
    job.worker("r")
    tests.check("done" in (job.ask("r2", "replace", "n1", "r") or ""), f"{job.name}: replace: {job.asks}")
    tests.check(job.until(lambda: job.stepped(at + 4), 30), f"{job.name}: no step after the replacement")
    job.kill("n0")


def dies(job):
    tests.check(job.until(lambda: job.stepped(13), 30), f"{job.name}: it does not reach step 13")
    job.kill("n1")


def dies_early(job):
    tests.check(job.until(lambda: job.stepped(4), 30), f"{job.name}: it does not reach step 4")
    job.kill("n3")


def self_test():
    wanted = ([2.5, 1.25], [3.0, 4.0], [7, 8, 9, 10])
    log = [{"id": i, "ev": "step", "step": s, "loss": wanted[0][s], "norm": wanted[1][s]} for i in "ab" for s in (0, 1)]
    log += [{"id": "a", "ev": "end", "why": "done", "state": [3, 8, 2**63, 10]}, {"id": "b", "ev": "end", "why": "done", "state": [4, 0, 2**63 + 9, 0]},
            {"id": "c", "ev": "end", "why": "left", "state": [1, 1, 1, 1]}]
    tests.check(list(unlike(log, 2, wanted)) == [], "a right log is told as wrong")
    for words, change in [("its loss is", lambda x: x[1].update(loss=1.2500000000000002)), ("its norm is", lambda x: x[2].update(norm=-3.0)),
                          ("nobody logged the steps [1]", lambda x: (x.pop(3), x.pop(1))), ("the digest of param is 0000000000000003", lambda x: x.pop(5)),
                          ("the digest of exp_avg_sq", lambda x: x[4].update(state=[3, 8, 2**63, 11]))]:
        other = copy.deepcopy(log)
        change(other)
        tests.check(any(words in fault for fault in unlike(other, 2, wanted)), f"not told: {words}")


try:
    if options.self_test:
        self_test()
    else:
        if not options.few:
            _, worlds = run("dense-comes-and-goes", "dense", "dp=2", 2, 60, comes_and_goes, policy=tests.replicated)
            tests.check(len(worlds) >= 4, f"a join, a replacement and a death are told as {worlds}")
            _, worlds = run("moe-dies", "moe", "dp=4,ep=2,etp=1", 4, 12, dies_early, policy=tests.file("moe_layouts.json", {"axes": "dp,ep"}))
            tests.check(len(worlds) >= 2, f"a death is told as {worlds}")
        job, worlds = run("dense-zero-snapshots", "dense", "dp=3,zero=1", 3, 24, dies, policy=tests.replicated, snapshot=5)
        tests.check(len(worlds) >= 2, f"a death is told as {worlds}")
        tests.check(any(x["first_step"] <= 15 for x in job.events() if x["ev"] == "world" and x["epoch"] > 1), "nothing went back to copies")
finally:
    tests.close()
sys.exit(tests.tell())
