#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""elastic_cuts.py TOOL BOX [--few] [--only KINDS..] [--layouts L..] [--runs N] [--seconds S]: jobs whose network is cut, and heals.

4 workers of tools/elastic and their store, each in a node of its own of tools/box; packets between what is cut vanish for S seconds. Kinds:
halves (the store with n0 and n1), hub (n0 alone), alone (n2 alone), store (the store alone), pair (n1 and n2 don't reach each other, but all
else). Judged from logs and dumps alone by oracle/job_log.py, and: who is cut off from the store ends no step meanwhile and ends `expelled`;
who is not, goes on and ends `done`; without the store a whole world goes on at its pace, at least --pace of the steps of an equal time before.
--few: halves and store. Exit 77 where no network namespace is allowed, in the words of tools/box."""
import argparse
import pathlib
import subprocess
import sys
import time

import elastic_jobs

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tool", type=pathlib.Path)
parser.add_argument("box", type=pathlib.Path)
parser.add_argument("--few", action="store_true")
parser.add_argument("--only", nargs="*", default=None)
parser.add_argument("--layouts", nargs="*", default=None)
parser.add_argument("--runs", type=int, default=1, help="of each kind and layout; the cut falls elsewhere in a step each time")
parser.add_argument("--seconds", type=float, default=4.0, help="how long a cut lasts")
parser.add_argument("--pace", type=float, default=0.75, help="a machine with other work is not quiet; on a quiet one it is 0.9 and more")
parser.add_argument("--slow", type=float, default=1.0, help="times and patience are so much longer: for a sanitizer")
parser.add_argument("--keep", type=pathlib.Path, default=None, help="where logs of faults lie")
options = parser.parse_args()
tests = elastic_jobs.Tests(options.tool, options.slow, options.keep)
WORKERS = 4
STORE = WORKERS  # the store's node; what asks is there, too
KINDS = {  # what is cut, and who reaches the store no longer; nothing where that decides nothing
    "halves": ("0,1,4-2,3", ("n2", "n3")), "hub": ("0-1,2,3,4", ("n0",)), "alone": ("2-0,1,3,4", ("n2",)), "store": ("4-0,1,2,3", ()), "pair": ("1-2", ())}
LAYOUTS = ("dp=4", "tp=2,dp=2")
SETTLES = 0.25 * options.slow  # what had passed the wire may still end a step
counts = {}


def box(*words, **more):
    return subprocess.run([sys.executable, str(options.box), "--at", str(tests.room / "box"), *words], text=True, capture_output=True, **more)


class BoxedJob(elastic_jobs.Job):
    """Member n2 is in node 2."""

    def home(self, name):
        node = int(name[1:]) if name in [f"n{i}" for i in range(WORKERS)] else STORE
        return [sys.executable, str(options.box), "--at", str(self.tests.room / "box"), "run", str(node)], f"10.0.0.{node + 1}"

    def cut(self, what):
        """Cuts, and says when all of it was."""
        done = box("cut", what)
        self.expect(done.returncode == 0, f"tools/box cut {what}: {done.stderr}")
        return time.monotonic()

    def steps_of(self, begin, end, names=None):
        return [x for x in self.events() if x["ev"] == "step" and begin < x["t"] < end and (names is None or x["id"] in names)]

    def gone(self, begin, end):
        return [x for x in self.events() if x["ev"] == "gone" and begin < x["t"] < end]

    def pause(self, seconds):
        self.until(lambda: False, seconds)


def cut_off(job, out, whole, healed, name):
    """What holds of a side without the store; whether the cut came to its point: the other side went on before it healed."""
    late = job.steps_of(whole + SETTLES, healed, out)
    job.expect(not late, f"{len(late)} steps are ended without the store's side, the first {late[:1]}")
    worlds = [x for x in job.events() if x["ev"] == "world" and whole < x["t"] < healed and not set(x["members"]) & set(out)]
    first = min((x["t"] for x in job.steps_of(whole, healed) if any(w["epoch"] == x["epoch"] for w in worlds)), default=None)
    if job.expect(first is not None, f"no step of the store's side in {healed - whole:.1f} s"):
        print(f"{name}: {first - whole:.2f} s to the first step of who reaches the store, {worlds[0]['layout']}", flush=True)
    return first is not None


def store_away(job, before, whole, healed, name):
    """Without the store a whole world goes on; the cut came to its point if the store was out of reach."""
    asked = subprocess.Popen([*job.home("n0")[0], str(tests.tool), "status", "--store", job.url(), "--job", job.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        asked.wait(0.3 * options.slow)
    except subprocess.TimeoutExpired:
        pass
    return asked


def run(kind, layout, number):
    what, out = KINDS[kind]
    name = f"{kind}-{layout.replace('=', '').replace(',', '-')}" + (f"-{number}" if number else "")
    seconds = options.seconds * options.slow
    job = BoxedJob(tests, name, layout, WORKERS, batch=12, steps=1000000, step_ms=10, policy=tests.replicated, node=None)
    job.more.pop("node")
    for i in range(WORKERS):
        job.founders([f"n{i}"], **{f"n{i}": {"node": f"box{i}"}})
    if not job.expect(job.until(lambda: job.stepped(10)), "no first steps"):
        return job.end(0.1)
    job.pause(seconds / options.slow if kind == "store" else 0.01 * (number % 7))
    begin = time.monotonic()
    whole = job.cut(what)
    asked = store_away(job, begin, whole, None, name) if kind == "store" else None
    job.pause(seconds / options.slow - (time.monotonic() - whole) / options.slow)
    healed = time.monotonic()
    done = box("heal")
    job.expect(done.returncode == 0, f"tools/box heal: {done.stderr}")
    reached = False
    if out:
        job.struck |= set(out)
        reached = cut_off(job, out, whole, healed, name)
    print(name, "epochs", job.epochs(), "codes", {n: p.poll() for n, p in job.workers.items()}, "gone", [(x["id"], x["who"], x["by"], round(x["t"] - whole, 2)) for x in job.gone(whole, healed)])
    if asked:
        reached = asked.poll() is None
        asked.kill() if reached else None
        asked.wait()
        here, then = len(job.steps_of(whole, healed, ["n0"])), len(job.steps_of(begin - (healed - whole), begin, ["n0"]))
        print(f"{name}: {here} steps in {healed - whole:.1f} s without the store, {then} in as long before: {here / max(then, 1):.3f}", flush=True)
        job.expect(then > 0 and here >= options.pace * then, f"{here} steps without the store, {then} in as long before")
    e = job.epochs()
    job.pause(1)
    print(name, "status", job.status()[:300], job.ask("f", "finish"))
    job.end()
    print(name, job.codes, "epochs", job.epochs(), job.verdict.facts)
    counts.setdefault(kind, []).append(reached)


def main():
    up = box("up", str(WORKERS + 1))
    if up.returncode == 77:
        print(up.stderr.strip())
        return 77
    if not tests.check(up.returncode == 0, f"tools/box up: {up.stderr}"):
        return 1
    for kind in options.only or (("halves", "store") if options.few else KINDS):
        for layout in options.layouts or (LAYOUTS[:1] if options.few else LAYOUTS):
            for number in range(options.runs):
                run(kind, layout, number)
    return 0


code = 1
try:
    code = main()
finally:
    tests.close()
    box("down")
sys.exit(tests.tell() if code == 0 else code)
