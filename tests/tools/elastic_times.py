#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""elastic_times.py TOOL [--few] [--only WORDS..] [--rounds N] [--mib M]: what changes of a job cost its training, as ratios in one run.

TOOL is tools/elastic of a build that has tools/demo and tools/reshard too. Times are read from logs, whose clock is the machine's:
  boundaries  the wait at a planned boundary beyond the slowest member's step: of each boundary the least `waited` of its members
  pauses      from the last member's last step in a world to the last member's first samples in the next one, over the same switch of tools/demo:
              processes over sockets that do nothing else, with the memory of both sides there before (workers have it there beside the steps).
              Each member holds M MiB; one joins, one leaves, one is replaced, of 8
  prepares    steps a second while who comes starts up (2 s, asleep) and groups are made, over those before
  overlap     1 - pause / (from the beginning of the start-up, or of the groups' making, to the first samples of the next world);
              the start-up, and for one that leaves the groups' making, is a sleep of 5 s: emulated
  restart     all end, one writes its whole state (M MiB, synced), processes of the next layout are started, up to their first samples; over the pause
              of the same change. Neither the program's start-up nor the reading of the file is counted
  idle        of a core, what the threads beside the trainer's take where nothing changes; steps of 100 ms
--few: small states and once each, to see that it works; no figure."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import elastic_jobs

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tool", type=pathlib.Path)
parser.add_argument("--few", action="store_true")
parser.add_argument("--only", nargs="*", default=None)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--mib", type=int, default=256, help="that each member holds, at least")
parser.add_argument("--slow", type=float, default=1.0, help="times and patience are so much longer")
parser.add_argument("--keep", type=pathlib.Path, default=None, help="where logs of faults lie")
options = parser.parse_args()
few = options.few
tests = elastic_jobs.Tests(options.tool, options.slow, options.keep)
tests.limit = 600 * options.slow
ROUNDS = 1 if few else options.rounds


def model_of(mib):
    """A dense model of about that many MiB of parameters and states, 14 bytes a parameter."""
    hidden = 64
    while 14 * (4 * (4 * hidden ** 2 + 3 * hidden * 4 * hidden) + 2 * 2048 * hidden) < mib << 20:
        hidden += 64
    return tests.file(f"mib{mib}.json", {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": hidden, "num_attention_heads": hidden // 64,
                                         "num_key_value_heads": hidden // 64, "head_dim": 64, "intermediate_size": 4 * hidden, "vocab_size": 2048})


def world(job, epoch):
    return next((x for x in job.events() if x["ev"] == "world" and x["epoch"] == epoch), None)


def pause(job, epoch):
    """Of the change to that epoch; and when its first samples began, of the last member."""
    ends, begins = {}, {}
    for x in job.events():
        if x["ev"] == "step" and x["epoch"] < epoch:
            ends[x["id"]] = max(ends.get(x["id"], 0), x["t"])
        if x["ev"] == "samples" and x["epoch"] == epoch:
            begins[x["id"]] = min(begins.get(x["id"], x["t"]), x["t"])
    last = max(t for t in ends.values())
    return max(begins.values()) - last, max(begins.values())


def entered(job, epoch, seconds=120):
    """Waits until all members of a world have begun steps in it."""
    def all_begun():
        w = world(job, epoch)
        return w and {x["id"] for x in job.events() if x["ev"] == "samples" and x["epoch"] == epoch} >= set(w["members"])
    job.expect(job.until(all_begun, seconds), f"nobody is in epoch {epoch} after {seconds} s")


def ended(job):
    job.ask("finish", "finish", seconds=60)
    job.end(60, judged=False)


def switched(model, old, new, devices=None):
    """Seconds of that switch between processes that do nothing else."""
    words = [str(tests.tool.parent / "demo"), "--json", "--warm", "--transport", "sockets", str(model), old, new]
    words += ["--to-devices", devices] if devices else []
    time.sleep(0 if few else 5)  # what the job before freed goes back to a virtual machine's host meanwhile: both find memory cold, or both warm
    return json.loads(subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout)["seconds"]


CROWDED = {"patience": 10, "grace": 2, "lease": 30}  # eight members train on a core or two: a step takes seconds, and not as many on all
CHANGES = {"join": ("dp=7", 7, ("join", "s"), "dp=8", None), "leave": ("dp=8,zero=1", 8, ("leave", "n7"), "dp=7,zero=1", None),
           "replace": ("dp=8", 8, ("replace", "n1", "s"), "dp=8", "0,8,2-7")}


def changed(kind, model, **more):
    """A job of one change; it, ready to be ended."""
    layout, size, words, _, _ = CHANGES[kind]
    job = elastic_jobs.Job(tests, kind, layout, size, model, batch=size + 1, steps=1000000, dump=False, policy=tests.replicated, **CROWDED, **more).founders()
    job.worker("s") if "s" in words else None
    job.expect(job.until(lambda: job.stepped(3) and ("s" not in words or job.has("s", "start")), 120), "no steps")
    time.sleep(0.3)
    job.asked = time.monotonic()
    text = job.ask("change", *words, seconds=120)
    job.expect(text == "done", f"{' '.join(words)} is answered {text!r}")
    entered(job, 2)
    return job


def pauses():
    for kind, (old, _, _, new, devices) in CHANGES.items():
        model = model_of(1 if few else options.mib * 4 if "zero" in old else options.mib)  # of 14 bytes an eighth of 12 is each one's, and 2
        if few and kind != "join":
            continue
        here, there, inner = [], [], []
        for _ in range(ROUNDS):
            job = changed(kind, model, step_ms=20)
            here.append(pause(job, 2)[0])
            inner.append(min(x["switch"] for x in job.events() if x["ev"] == "world" and x["epoch"] == 2))
            ended(job)
            there.append(switched(model, old, new, devices))
        one, other = statistics.median(here), statistics.median(there)
        print(f"pauses: {kind}, {old} to {new}, {'a small state' if few else f'at least {options.mib} MiB a member'}: {one * 1e3:.1f} ms ({', '.join(f'{x * 1e3:.0f}' for x in here)}), the switch in it "
              f"{statistics.median(inner) * 1e3:.1f}; between processes that do nothing else {other * 1e3:.1f} ({', '.join(f'{x * 1e3:.0f}' for x in there)}): ratio {one / other:.2f}", flush=True)


def boundaries():
    waits = []
    for n in range(1 if few else 5):
        job = elastic_jobs.Job(tests, "boundaries", "dp=2", 2, steps=1000000, batch=12, step_ms=10, dump=False).founders().worker("s")
        job.until(lambda: job.stepped(5) and job.has("s", "start"))
        time.sleep(0.2)
        for request, words in enumerate((("join", "s"), ("leave", "s"))[:1] + (("layout", "dp=3,zero=1"), ("layout", "dp=3"), ("batch", "9"), ("leave", "n1"), ("layout", "tp=2"), ("layout", "pp=2"), ("layout", "dp=2"))):
            job.expect(job.ask(str(request), *words) == "done", f"{' '.join(words)} is refused")
            time.sleep(0.15)
        least = {}
        for x in job.events():
            if x["ev"] == "boundary":
                least[x["step"]] = min(least.get(x["step"], x["waited"]), x["waited"])
        waits += least.values()
        ended(job)
    waits.sort()
    print(f"boundaries: {len(waits)} planned ones; the wait beyond the slowest member's step: median {statistics.median(waits) * 1e6:.1f} us, {waits[(9 * len(waits) - 1) // 10] * 1e6:.1f} in 9 of 10, "
          f"at most {waits[-1] * 1e6:.1f}", flush=True)


def rate(job, who, begin, end):
    steps = [x["t"] for x in job.events(who) if x["ev"] == "step" and begin <= x["t"] <= end]
    return (len(steps) - 1) / (steps[-1] - steps[0])


def prepares():
    ratios = []
    for _ in range(ROUNDS):
        job = elastic_jobs.Job(tests, "prepares", "dp=4", 4, steps=1000000, batch=12, step_ms=10, dump=False).founders()
        job.until(lambda: job.stepped(20))
        begun = time.monotonic()
        job.until(lambda: False, 2.5)
        started = time.monotonic()
        job.worker("s", **{"init-s": 2})
        job.expect(job.ask("join", "join", "s", seconds=60) == "done", "join")
        entered(job, 2)
        last = max(x["t"] for x in job.events("n0") if x["ev"] == "step" and x["epoch"] == 1)
        ratios.append(rate(job, "n0", started, last) / rate(job, "n0", begun, started))
        ended(job)
    print(f"prepares: steps a second while one starts up for 2 s and comes, over those before: {statistics.median(ratios):.3f} ({', '.join(f'{x:.3f}' for x in ratios)})", flush=True)


def overlap():
    model, init = model_of(1 if few else options.mib), 0.5 if few else 5
    for kind in ("join", "leave"):
        found = []
        for _ in range(ROUNDS):
            layout, size, words, _, _ = CHANGES[kind]
            job = elastic_jobs.Job(tests, f"overlap-{kind}", layout, size, model, batch=size + 1, steps=1000000, step_ms=20, dump=False, policy=tests.replicated,
                                   **CROWDED, **({"group-s": init} if kind == "leave" else {})).founders()
            job.expect(job.until(lambda: job.stepped(3), 120), "no steps")
            begun = time.monotonic()
            job.worker("s", **{"init-s": init}) if kind == "join" else None
            job.expect(job.ask("change", *words, seconds=120) == "done", kind)
            entered(job, 2)
            took, at = pause(job, 2)
            found.append((1 - took / (at - begun), took, at - begun))
            ended(job)
        ratio, took, whole = sorted(found)[len(found) // 2]
        print(f"overlap: {kind}, start-up of {init} s (emulated): {100 * ratio:.1f} % of {whole:.2f} s, {took * 1e3:.0f} ms are a pause ({', '.join(f'{100 * x[0]:.1f}' for x in found)})", flush=True)


def restart():
    model, ratios, wholes, ours = model_of(1 if few else options.mib), [], [], []
    for _ in range(ROUNDS):
        job = changed("join", model, step_ms=20)
        ours.append(pause(job, 2)[0])
        ended(job)
        old = elastic_jobs.Job(tests, "shutdown", "dp=7", 7, model, batch=8, steps=1000000, step_ms=20, dump=False, **CROWDED)
        old.founders(n0={"dump": old.folder / "dump"})  # one of the replicas writes its whole state
        old.expect(old.until(lambda: old.stepped(3), 120), "no steps")
        old.begin_ask("finish", "finish")
        old.until(lambda: all(p.poll() is not None for p in old.workers.values()), 120)
        for path in (old.folder / "dump").iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        written = sum(path.stat().st_size for path in (old.folder / "dump").iterdir())
        last = max(x["t"] for x in old.events() if x["ev"] == "step")
        new = elastic_jobs.Job(tests, "restarted", "dp=8", 8, model, batch=8, steps=1000000, step_ms=20, dump=False, **CROWDED)
        for i in range(8):
            new.worker(f"n{i}")
        entered(new, 1)
        whole = max(x["t"] for x in new.events() if x["ev"] == "samples" and x["step"] == 0) - last
        old.end(5, judged=False)
        ended(new)
        wholes.append(whole), ratios.append(whole / ours[-1])
    print(f"restart: {written >> 20} MiB written by one and synced, all ended, 8 started: {statistics.median(wholes):.2f} s; the pause of the same change {statistics.median(ours):.2f} s: "
          f"ratio {statistics.median(ratios):.1f} ({', '.join(f'{x:.1f}' for x in ratios)})", flush=True)


def ticks(pid):
    """CPU ticks of each thread of a process."""
    return {task.name: sum(map(int, (task / "stat").read_text().rpartition(")")[2].split()[11:13])) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def idle():
    job = elastic_jobs.Job(tests, "idle", "dp=2", 2, steps=1000000, step_ms=100, dump=False).founders()
    job.until(lambda: job.stepped(3))
    pid, seconds = job.workers["n0"].pid, 2 if few else 20
    before, begun = ticks(pid), time.monotonic()
    time.sleep(seconds)
    after, took = ticks(pid), time.monotonic() - begun
    beside = sum(n - before.get(thread, 0) for thread, n in after.items() if thread != str(pid))
    print(f"idle: {len(after) - 1} threads beside the trainer's take {100 * beside / os.sysconf('SC_CLK_TCK') / took:.2f} % of a core in {took:.0f} s of steps of 100 ms", flush=True)
    ended(job)


SCENARIOS = {"boundaries": boundaries, "pauses": pauses, "prepares": prepares, "overlap": overlap, "restart": restart, "idle": idle}
try:
    for name, scenario in SCENARIOS.items():
        if not options.only or name in options.only:
            scenario()
finally:
    tests.close()
sys.exit(tests.tell())
