#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""elastic_cuts.py TOOL BOX [--few] [--only KINDS..] [--layouts L..] [--runs N] [--seconds S]: jobs whose network is cut, and heals.

4 workers of tools/elastic and their store, each in a node of its own of tools/box; packets between what is cut vanish for S seconds. Kinds:
halves (the store with n0 and n1), hub (n0 alone), alone (n2 alone), store (the store alone), pair (n1 and n2 don't reach each other, but all
else). Each at rest, and amid a change that is asked for a moment before, which the dice choose.

Judged from logs and dumps alone by oracle/job_log.py, and: who does not reach the store ends no step from then on, and ends `expelled`; who
does goes on before the network heals, and ends `done`; while the store alone is cut off nobody is lost, and a member makes at least --pace of
the steps that it made in an equal time before. --few: halves and store at rest, of one layout. Exit 77, in the words of tools/box, where this
machine allows no network of one's own."""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import time

import elastic_jobs

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tool", type=pathlib.Path)
parser.add_argument("box", type=pathlib.Path)
parser.add_argument("--few", action="store_true")
parser.add_argument("--only", nargs="*", default=None, help="of halves, hub, alone, store, pair")
parser.add_argument("--layouts", nargs="*", default=None, help="of 4 ranks")
parser.add_argument("--runs", type=int, default=1, help="of each kind, layout and moment")
parser.add_argument("--seconds", type=float, default=4.0, help="how long a cut lasts, at least")
parser.add_argument("--pace", type=float, default=0.75, help="it is 0.9 and more where nothing else runs")
parser.add_argument("--slow", type=float, default=1.0, help="times and patience are so much longer: for a sanitizer")
parser.add_argument("--keep", type=pathlib.Path, default=None, help="where logs of faults lie")
parser.add_argument("--seed", type=int, default=int(os.environ.get("RESHARD_SEED", "20261128")))
options = parser.parse_args()
dice = random.Random(options.seed)
tests = elastic_jobs.Tests(options.tool, options.slow, options.keep)
WORKERS = [f"n{i}" for i in range(4)]
STORE = len(WORKERS)  # the store's node; who asks is there, too
KINDS = {  # what is cut, and who does not reach the store then
    "halves": ("0,1,4-2,3", ["n2", "n3"]), "hub": ("0-1,2,3,4", ["n0"]), "alone": ("2-0,1,3,4", ["n2"]), "store": ("4-0,1,2,3", []), "pair": ("1-2", [])}
LAYOUTS = {"dp=4": "tp=2,dp=2", "tp=2,dp=2": "dp=4"}  # and what is asked for amid a cut
SETTLES = 0.25 * options.slow  # what had passed the wire may still end a step
ENOUGH = 10  # seconds for what has to happen before a cut heals
BOX = [sys.executable, str(options.box.resolve()), "--at", str(tests.room / "box")]
came, answers = {}, {}  # kind: of each run, whether it came to its point; and how what was asked amid it was answered


class BoxedJob(elastic_jobs.Job):
    """Member n2 is in node 2."""

    def home(self, name):
        node = WORKERS.index(name) if name in WORKERS else STORE
        return [*BOX, "run", str(node)], f"10.0.0.{node + 1}"

    def box(self, *words):
        """Returns when it is done."""
        done = subprocess.run([*BOX, *words], capture_output=True, text=True)
        self.expect(done.returncode == 0, f"tools/box {' '.join(words)}: {done.stderr}")
        return time.monotonic()

    def lasts(self, since, true=lambda: True):
        """Until the cut has lasted long enough, and what has to happen has."""
        return self.until(lambda: time.monotonic() - since > options.seconds * options.slow and true(), ENOUGH)

    def logged(self, ev, begin=0.0, end=float("inf"), names=WORKERS, **fields):
        return [x for x in self.events() if x["ev"] == ev and begin < x["t"] < end and x["id"] in names and all(x[k] == v for k, v in fields.items())]

    def reaches_store(self, name):
        """Whether a process beside this member hears the store, within a moment."""
        asks = subprocess.Popen([*self.home(name)[0], str(tests.tool), "status", "--store", self.url(), "--job", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return asks.wait(0.5 * options.slow) == 0
        except subprocess.TimeoutExpired:
            asks.kill()
            asks.wait()
            return False


def part_without_store(job, whole, out):
    """Those who reach the store go on, the others end no step."""
    def goes_on():
        worlds = {x["epoch"]: x for x in job.logged("world", whole) if not set(x["members"]) & set(out)}
        steps = [x for x in job.logged("step", whole) if x["epoch"] in worlds]
        return (min(x["t"] for x in steps) - whole, worlds[steps[0]["epoch"]]["layout"]) if steps else None
    job.lasts(whole, goes_on)
    went_on = goes_on()
    job.expect(went_on, f"no step of who reaches the store, {time.monotonic() - whole:.1f} s after the others were cut off")
    healed = job.box("heal")
    job.until(lambda: all(job.workers[n].poll() is not None for n in out), ENOUGH)
    late = job.logged("step", whole + SETTLES, names=out)
    job.expect(not late, f"{len(late)} steps are ended by who does not reach the store, the first {late[:1]}")
    last = max((x["t"] for x in job.logged("end", names=out)), default=healed + float("nan"))
    return bool(went_on), f"{went_on[0]:.2f} s to the next step, {went_on[1]}; {last - healed:+.2f} s from the healing to the last word of who was out" if went_on else ""


def store_away(job, begin, whole, epochs):
    """A whole world trains on without the store."""
    away = not job.reaches_store("n0")
    job.lasts(whole)
    heals, steps = time.monotonic(), len(job.logged("step", whole, names=["n0"]))
    before = len(job.logged("step", begin - (heals - whole), begin, names=["n0"]))
    job.box("heal")
    job.expect(before > 0 and steps >= options.pace * before, f"{steps} steps of a member without the store, {before} in as long before; at least {options.pace} of that is asked")
    job.expect(not job.logged("gone", whole, heals) and not job.logged("broken", whole, heals), "a world broke as its store was away")
    job.until(lambda: job.reaches_store("n0"), ENOUGH)
    return away, f"{steps} steps without the store, {before} in as long before: {steps / max(before, 1):.2f}"


def pair_apart(job, whole):
    """Either one is out, or both come again, and the job goes on."""
    pair = ["n1", "n2"]
    job.lasts(whole)
    heals = time.monotonic()
    found = [x for x in job.logged("gone", whole, heals, names=pair) if x["who"] in pair]
    steps = [x for x in job.logged("step", found[0]["t"]) if x["t"] < heals] if found else []
    job.expect(not found or steps, "no step while two members do not reach each other")
    job.box("heal")
    return bool(found), f"{len(job.logged('broken', whole, heals, names=['n0']))} worlds broke in {heals - whole:.1f} s, {len({x['step'] for x in steps})} steps in them"


def run(kind, layout, amid, number):
    what, out = KINDS[kind]
    name = "-".join([kind, layout.replace("=", "").replace(",", "-"), *(["amid"] if amid else []), *([str(number)] if number else [])])
    job = BoxedJob(tests, name, layout, len(WORKERS), batch=12, steps=1000000, step_ms=10, policy=tests.replicated)
    job.founders(**{n: {"node": f"box{n[1:]}"} for n in WORKERS})
    if not job.expect(job.until(lambda: job.stepped(10)), "no first steps"):
        return job.end(0.1)
    if kind == "store":
        job.until(lambda: False, options.seconds)
    job.struck |= set(out) | (set(WORKERS) if amid else set())  # what is done amid a cut may be entered by nobody
    if amid:
        job.begin_ask("amid", "layout", LAYOUTS[layout])
        job.until(lambda: False, dice.uniform(0, 0.4))
    begin = time.monotonic()
    whole = job.box("cut", what)
    if kind == "store":
        reached, told = store_away(job, begin, whole, job.epochs())
    elif kind == "pair":
        reached, told = pair_apart(job, whole)
    else:
        reached, told = part_without_store(job, whole, out)
    came.setdefault(kind, []).append(reached)
    for one in list(job.pending):
        text = job.end_ask(one)
        answers[(text or "nothing").split(":")[0]] = answers.get((text or "nothing").split(":")[0], 0) + 1
        told += f"; what was asked is answered {text!r}"
    job.until(lambda: False, 0.5)
    answer = job.ask("f", "finish")
    job.expect(answer == "done", f"finish is answered {answer!r}")
    job.end()
    words = {n: x["why"] for n in WORKERS for x in job.logged("end", names=[n])}
    print(f"{name}: {told}; {job.epochs()} epochs, {words}", flush=True)
    right = {n: ("expelled",) if n in out else ("done", "expelled") if kind == "pair" else ("done",) for n in WORKERS}
    tests.check(all(words.get(n) in right[n] for n in WORKERS), f"{name}: the last words are {words}, expected are {right}")


def main():
    up = subprocess.run([*BOX, "up", str(STORE + 1)], capture_output=True, text=True)
    if up.returncode == 77:
        print(up.stderr.strip())
        return 77
    if not tests.check(up.returncode == 0, f"tools/box up: {up.stderr}"):
        return 1
    print(f"--seed {options.seed}", flush=True)
    for kind in options.only or (("halves", "store") if options.few else KINDS):
        for layout in options.layouts or list(LAYOUTS)[:1 if options.few else 2]:
            for amid in (False,) if options.few else (False, True):
                for number in range(options.runs):
                    run(kind, layout, amid, number)
    print("cuts:", ", ".join(f"{len(runs)} {kind}" for kind, runs in came.items()), *(["; asked amid them:", ", ".join(f"{n} {k}" for k, n in answers.items())] if answers else []))
    print("never reached:", ", ".join(kind for kind, runs in came.items() if not any(runs)) or "none", flush=True)
    return 0


code = 1
try:
    code = main()
finally:
    subprocess.run([*BOX, "down"], check=False)  # its processes end with it
    tests.close()
sys.exit(tests.tell() if code == 0 else code)
