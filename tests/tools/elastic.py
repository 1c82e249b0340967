#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""elastic.py TOOL [--few] [--self-test] [--only WORDS..] [--runs N] [--seed S] [--etcd]: jobs whose processes come, go, are killed and stopped.

Starts a store and workers here, asks, kills (-9) and stops them, and judges every job from its logs and dumps alone by oracle/job_log.py.
Without --few every scenario: founded, asked, struck (each point on each role), stopped, spares, deserted, store, random, times. --few: what a gate runs.
--self-test: logs and dumps are doctored, and the judge notices each. A fault names the folder of its logs, which is kept."""
import argparse
import copy
import datetime
import functools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import sys
import time

import elastic_jobs  # beside this file; it finds oracle/job_log.py
import job_log

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tool", type=pathlib.Path)
parser.add_argument("--few", action="store_true")
parser.add_argument("--self-test", action="store_true")
parser.add_argument("--only", nargs="*", default=None)
parser.add_argument("--runs", type=int, default=20, help="random runs")
parser.add_argument("--times", type=int, default=10, help="deaths that are timed")
parser.add_argument("--points", nargs="*", default=None, help="of the scenario `struck`, POINT/ROLE or POINT")
parser.add_argument("--slow", type=float, default=1.0, help="times and patience are so much longer: for a sanitizer")
parser.add_argument("--etcd", action="store_true", help="each job's store is an etcd")
parser.add_argument("--keep", type=pathlib.Path, default=None, help="where logs of faults lie")
parser.add_argument("--seed", default=os.environ.get("RESHARD_SEED", "20261127"), help="a number, or `today`: the date (UTC)")
options = parser.parse_args()
today = os.environ.get("RESHARD_TODAY", f"{datetime.datetime.now(datetime.timezone.utc):%Y%m%d}")
seed = int(today if options.seed == "today" else options.seed)
tests = elastic_jobs.Tests(options.tool, options.slow, options.keep, options.etcd)
check, LLAMA, MOE, REPLICATED = tests.check, tests.llama, tests.moe, tests.replicated
PATIENCE, GRACE, LEASE = tests.patience, tests.grace, tests.lease
Job = functools.partial(elastic_jobs.Job, tests)


def waited(job):
    return [x["waited"] for x in job.events() if x["ev"] == "boundary"]


# 1. Found, run to the end.
def founded(few):
    for name, layout, model in (("dp", "dp=2", LLAMA), ("tp", "tp=2", LLAMA), ("pp", "pp=2", LLAMA), ("zero", "dp=2,zero=1", LLAMA), ("moe", "dp=2,ep=2", MOE),
                                ("mixed", "tp=2,pp=2,dp=2,zero=1", LLAMA))[:6 if not few else 5]:
        size = len(tests.model(model).regions(layout))
        job = Job(f"founded-{name}", layout, size, model, batch=7, steps=12, step_ms=1).founders()
        job.end()
        check(job.codes == {f"n{i}": 0 for i in range(size)}, f"founded {layout}: exit codes {job.codes}")


# 2. Join, leave, replace, layout, batch, finish; said twice; refused; after the end.
def asked(few):
    job = Job("asked", "tp=2", 2, steps=100000, step_ms=5).founders()
    job.worker("a").worker("b")
    job.until(lambda: job.stepped(5) and job.has("a", "start") and job.has("b", "start"))
    time.sleep(0.2)
    for request, words, expected in (
            ("1", ("join", "a"), "done"), ("1", ("join", "a"), "done"), ("2", ("layout", "dp=3"), "done"), ("3", ("batch", "5"), "done"), ("4", ("layout", "tp=3"), "refused: "),
            ("5", ("batch", "2"), "refused: "), ("6", ("leave", "nobody"), ""), ("7", ("replace", "n1", "b"), "done"), ("8", ("join", "b"), "done"), ("9", ("leave", "n0"), "done"),
            ("10", ("layout", "dp=2,zero=1"), "done"), ("11", ("join", "stranger"), "refused: "), ("12", ("layout", "dp=5"), "refused: "), ("13", ("layout", "pp=2"), "done"),
            ("4", ("layout", "tp=3"), "refused: "), ("9", ("leave", "n0"), "done"), ("14", ("batch", "0"), "refused: "), ("15", ("layout", "nonsense"), "refused: "),
            ("16", ("replace", "b", "nobody"), "refused: "), ("17", ("finish",), "done"), ("18", ("batch", "9"), "refused: "), ("17", ("finish",), "done"), ("2", ("layout", "dp=3"), "done")):
        if few and request in ("11", "16"):
            continue  # who is not there is waited for
        text = job.ask(request, *words)
        job.expect(text is not None and text.startswith(expected), f"{' '.join(words)} is answered {text!r}, expected is {expected!r}")
    waits = waited(job)
    print(f"asked: {len(waits)} waits at planned boundaries beyond the slowest member, {sorted(waits)[len(waits) * 9 // 10] * 1e3:.2f} ms in 9 of 10, at most {max(waits) * 1e3:.2f}")
    job.end()
    check(set(job.codes.values()) == {0}, f"asked: exit codes {job.codes}")
    whys = job.verdict.facts.get("whys", {}) if hasattr(job, "verdict") else {}
    check(whys == {"n0": "left", "n1": "left", "a": "done", "b": "done"}, f"asked: ends {whys}")
    if few:
        return
    job = Job("asked-moe", "dp=2,ep=2", 2, MOE, batch=9, steps=100000, step_ms=5).founders().worker("a").worker("b")
    job.until(lambda: job.stepped(5) and job.has("a", "start") and job.has("b", "start"))
    time.sleep(0.2)
    for request, words in enumerate((("layout", "tp=2"), ("layout", "dp=2,zero=1"), ("join", "a"), ("layout", "dp=3"), ("replace", "n0", "b"), ("layout", "pp=3,split=spread"), ("leave", "n1"),
                                     ("layout", "dp=2,ep=2,zero=1"), ("batch", "2"), ("finish",))):
        text = job.ask(str(request), *words)
        job.expect(text == "done", f"{' '.join(words)} is answered {text!r}")
    job.end()
    check(set(job.codes.values()) == {0}, f"asked-moe: exit codes {job.codes}")
    job = Job("asked-together", "dp=2", 2, steps=100000, step_ms=5).founders()  # all said at once
    job.worker("a").worker("b")
    job.until(lambda: job.stepped(5) and job.has("a", "start") and job.has("b", "start"))
    time.sleep(0.2)
    for request, words in (("1", ("join", "a")), ("2", ("batch", "12")), ("1", ("join", "a")), ("3", ("leave", "n0")), ("4", ("join", "b")), ("3", ("leave", "n0"))):
        job.begin_ask(request, *words)
    texts = [job.end_ask(one) for one in list(job.pending)]
    job.expect(texts == ["done"] * 6, f"answers {texts}")
    job.expect(job.ask("f", "finish") == "done", "finish")
    job.end()
    job = Job("asked-late", "dp=2", 2, steps=20, step_ms=1).founders()  # when all steps are over
    job.until(lambda: all(p.poll() is not None for p in job.workers.values()))
    for words in (("batch", "4"), ("join", "x")):
        job.worker("x") if words[0] == "join" else None
        text = job.ask(words[0], *words, seconds=8)
        job.expect(text is not None and text.startswith(("refused: ", "failed: ")), f"after the end {' '.join(words)} is answered {text!r}")
    job.end()
    check(job.codes["n0"] == 0 and job.codes["n1"] == 0, f"asked-late: exit codes {job.codes}")


# 3. Each point on each role.
STEP_POINTS = ("samples", "gradients", "scalar", "updating", "updated")
POINTS = ("registered", "group_made", "ready", "acked", "boundary", "decided", "stage:0", "stage:1", "entered", *STEP_POINTS, "promised", "accounted", "answered")
EVENTS = ("found", "ask", "ready", "acked", "passed", "entered", "late", "broke", "accounted", "no_plan", "come", "nobody", "finish")
ROLES = ("rank0", "another", "joins", "leaves", "spare", "drives")
reached = {}


def members(job, epoch):
    return next((x["members"] for x in job.events() if x["ev"] == "world" and x["epoch"] == epoch), ["n2"])


def script(name, point, role, stop=False, layout="dp=4"):
    """4 found; j joins, l leaves, one dies or more; the end is asked for. Whoever is struck is so at its point; a swap's point may be anybody's:
    `drives` sets it on two."""
    strike = {"stop" if stop else "kill": point}
    who = {"rank0": ["n0"], "another": ["n1"], "joins": ["j"], "leaves": ["n2"], "spare": ["s"], "drives": ["n0", "n1"]}[role]
    job = Job(name, layout, 4, batch=12, steps=1000000, step_ms=4, policy=REPLICATED)
    job.founders(**{n: strike for n in who if n.startswith("n")})
    job.worker("j", **(strike if "j" in who else {}))
    job.until(lambda: job.has("j", "start"), 5)
    time.sleep(0.05)
    job.worker("s", **(strike if "s" in who else {}))
    hit = lambda: any(job.workers[n].poll() == -9 or job.stopped(n) for n in who)  # noqa: E731
    first_world = job.until(lambda: job.stepped(3) or hit(), 8)
    if not job.stepped(0) and hit():  # a founder died before there was a job: the one that joins takes its place
        first_world = job.until(lambda: job.stepped(3), 8)
    if not job.expect(first_world, f"{point} on {role}: no first steps"):
        return job.end(0.1)
    asks = [job.begin_ask("join", "join", "j")]
    job.until(lambda: asks[0][2].poll() is not None, 6)
    asks.append(job.begin_ask("leave", "leave", "n2"))
    job.until(lambda: asks[1][2].poll() is not None, 6)
    job.until(lambda: any(x["ev"] == "step" and "n2" not in members(job, x["epoch"]) for x in job.events()), 1.5)
    if job.workers["n3"].poll() is None:
        job.kill("n3")
    e = job.epochs()
    job.until(lambda: job.stepped(0, e + 1) or not any(p.poll() is None for p in job.workers.values()), 6)
    if stop:
        frozen = [n for n in who if job.stopped(n)]
        job.struck |= set(frozen)
        if frozen:
            job.until(lambda: False, PATIENCE + GRACE + 1.5)
            for n in frozen:
                job.signal(n, signal.SIGCONT)
            job.until(lambda: False, 0.5)
    reached[point, role] = max(reached.get((point, role), False), bool(hit() or job.struck & set(who)))
    job.begin_ask("finish", "finish")
    job.until(lambda: all(p.poll() is not None for p in job.workers.values()), 8)
    job.end(10)
    told = {n: c for n, c in job.codes.items() if n not in who and n != "n3"}
    check(all(c in (0, 3) for c in told.values()), f"{name}: who lives ends with {told}")
    check(0 in told.values(), f"{name}: nobody is left: {told}")
    for n in (job.struck & set(who)) if stop else ():
        check(job.codes[n] in (0, 3), f"{name}: {n}, stopped and woken, ends with {job.codes[n]}")
    for n, c in told.items():
        if c == 3:
            print(f"note: {name}: {n} was not struck, and is expelled", flush=True)


def struck(few):
    cases = [(p, r) for p in POINTS for r in ROLES[:5]] + [(p + ":2", r) for p in POINTS[1:9] for r in ("rank0", "another", "joins")]  # 2: as one leaves
    cases += [(f"{word}-{event}", r) for event in EVENTS for word in ("swap", "swapped") for r in ("drives", "joins", "spare")]
    if options.points is not None:
        cases = [(p, r) for p, r in cases if p in options.points or f"{p}/{r}" in options.points]
    elif few:
        cases = [("updating", "rank0"), ("stage:0", "joins"), ("decided:2", "another"), ("promised", "another")]
    must = {(p, r) for p in (*STEP_POINTS, "promised") for r in ROLES[:3]} | {("registered", r) for r in ROLES[:5]}
    for point, role in cases:
        nth = ":4" if point in STEP_POINTS and role != "joins" else ""
        script(f"kill-{point.replace(':', '_')}-{role}", point + nth, role)
    print("never reached:", ", ".join(f"{p}/{r}" for (p, r), yes in reached.items() if not yes) or "none", flush=True)
    for (point, role), yes in reached.items():
        if (point.split(":")[0], role) in must:
            check(yes, f"struck: {role} never came to {point}")


def stopped_at_the_end():
    late = Job("late-done", "dp=2", 2, steps=1000000, step_ms=5, batch=9)  # stopped as the end comes, woken when it is over
    late.founders(n0={"stop": "boundary"})
    late.until(lambda: late.stepped(10))
    late.begin_ask("f", "finish")
    late.until(lambda: late.workers["n1"].poll() is not None, 8)
    late.expect(late.stopped("n0"), "n0 never came to the boundary of the end")
    late.signal("n0", signal.SIGCONT)
    late.end()
    check(late.codes == {"n0": 3, "n1": 0}, f"late-done: exit codes {late.codes}; n0 was stopped while the job went on without it and ended")


def stopped(few):
    if not few:
        stopped_at_the_end()
    reached.clear()
    cases = [(p, r) for p in ("acked", "boundary", "decided", "stage:0", "entered", *STEP_POINTS, "promised", "swap-accounted", "swap-acked") for r in ("rank0", "another", "joins")]
    for point, role in cases if not few else [("scalar", "rank0")]:
        nth = ":4" if point in STEP_POINTS and role != "joins" else ""
        script(f"stop-{point.replace(':', '_')}-{role}", point + nth, role, stop=True)
    print("never reached:", ", ".join(f"{p}/{r}" for (p, r), yes in reached.items() if not yes) or "none")


# 4. Deaths with and without a spare, and with one holder.
def spares(few):
    for layout, size in (("dp=3", 3),) if few else (("dp=3", 3), ("tp=2,dp=2", 4), ("pp=2,dp=2", 4)):
        job = Job("spare-takes", layout, size, steps=100000, batch=12).founders().worker("s")
        job.until(lambda: job.stepped(5) and job.has("s", "start"))
        time.sleep(0.2)
        job.kill("n1")
        job.expect(job.until(lambda: job.stepped(0, 2), 8), f"{layout}: no step after a death beside a spare")
        world = next((x for x in job.events() if x["ev"] == "world" and x["epoch"] == 2), {"members": [], "layout": ""})
        job.expect("s" in world["members"] and len(world["members"]) == size and world["layout"] == layout, f"{layout}: the spare did not take the place: {world}")
        job.ask("f", "finish")
        job.end()
        check({n: c for n, c in job.codes.items() if c} == {"n1": -9}, f"spare-takes {layout}: exit codes {job.codes}")
    for layout, size in (("dp=3", 3),) if few else (("dp=3", 3), ("dp=2", 2), ("tp=2,dp=2", 4)):
        job = Job("shrinks", layout, size, steps=100000, batch=12).founders()
        job.until(lambda: job.stepped(5))
        job.kill("n0")
        job.expect(job.until(lambda: job.stepped(0, 2), 8), f"{layout}: no step after a death without a spare")
        job.ask("f", "finish")
        job.end()
        check({n: c for n, c in job.codes.items() if c} == {"n0": -9}, f"shrinks {layout}: exit codes {job.codes}")
    for point in ("stage:0",) if few else ("decided", "stage:0", "entered"):  # whom the world was to leave goes on alone
        job = Job(f"left-alone-{point.replace(':', '_')}", "dp=2", 2, steps=100000, batch=12).founders(n0={"kill": point})
        job.until(lambda: job.stepped(5))
        text = job.ask("leave", "leave", "n1")
        job.expect((text or "").startswith("refused: "), f"n0 is killed at {point} as n1 leaves it; n1's leaving, taken up again, is answered {text!r}")
        job.expect(job.until(lambda: job.stepped(0, 3), 8), f"n0 is killed at {point} as n1 leaves it: no step after it")
        job.ask("f", "finish")
        job.end()
        check(job.codes == {"n0": -9, "n1": 0}, f"left-alone {point}: exit codes {job.codes}")
    if not few:  # a job that waits says for what, and goes on with who comes: from copies of what is held no more
        job = Job("waits", "tp=2", 2, steps=100000, batch=12, snapshot=5, policy=REPLICATED).founders()
        job.until(lambda: job.stepped(25))
        job.kill("n1")
        job.expect(job.until(lambda: '"waiting"' in job.status(), 8), f"one of tp=2 is killed, and no spare is there: {job.status()}")
        told = (job.folder / "n0.out").read_text()
        job.expect("n0: the job waits for somebody to come: " in told and "not snapshot: no layout of 1 down to 1 members is legal" in told, f"a job waits, and n0 says {told!r}")
        job.worker("s")
        job.expect(job.until(lambda: job.stepped(0, 2), 8), "no step after who was waited for had come")
        job.ask("f", "finish")
        job.end()
        check(job.codes == {"n0": 0, "n1": -9, "s": 0}, f"waits: exit codes {job.codes}")
    if not few:  # one that is silent while the job waits is suspected, promises again, and is suspected no more
        policy = tests.room / "three.json"
        policy.write_text(json.dumps({"min": 3}))
        job = Job("waits-and-suspects", "dp=3", 3, steps=100000, batch=12, policy=policy).founders()
        job.until(lambda: job.stepped(5))
        job.kill("n2")
        job.expect(job.until(lambda: '"waiting"' in job.status(), 8), f"no policy fits, and the record says {job.status()}")
        job.signal("n1", signal.SIGSTOP)
        time.sleep(2 * PATIENCE)
        job.signal("n1", signal.SIGCONT)
        time.sleep(2 * PATIENCE)
        attempt = json.loads(job.status())["attempt"]
        time.sleep(3 * PATIENCE)
        later = json.loads(job.status())
        job.expect(later["phase"] == "waiting" and later["attempt"] <= attempt + 1, f"a job that waits was at attempt {attempt}, and is at {later}")
        job.worker("s")
        job.expect(job.until(lambda: job.stepped(0, 2), 8), "no step after who was waited for had come")
        job.ask("f", "finish")
        job.end()
        check(job.codes == {"n0": 0, "n1": 0, "n2": -9, "s": 0}, f"waits-and-suspects: exit codes {job.codes}")
    policy = tests.room / "waits.json"  # somebody is waited for, and then the rung behind holds
    policy.write_text(json.dumps({"rungs": ["replace", "wait", "shrink"], "wait": 2 * tests.patience}))
    job = Job("waits-and-shrinks", "dp=2", 2, steps=100000, batch=12, policy=policy).founders()
    job.until(lambda: job.stepped(5))
    job.kill("n1")
    killed = time.monotonic()
    job.expect(job.until(lambda: job.stepped(0, 2), 15), f"a policy's wait is over, and there is no step: {job.status()}")
    took = time.monotonic() - killed
    told = (job.folder / "n0.out").read_text()
    job.expect(took > 1.9 * tests.patience and told.count("the job waits for somebody to come") == 1, f"n0 went on after {took:.2f} s and says {told!r}")
    job.ask("f", "finish")
    job.end()
    check(job.codes == {"n0": 0, "n1": -9}, f"waits-and-shrinks: exit codes {job.codes}")
    for layout, size in (("dp=2,zero=1", 2),) if few else (("dp=2,zero=1", 2), ("dp=3,zero=1", 3), ("tp=2", 2), ("pp=2", 2)):
        job = Job("one-holder", layout, size, steps=100000, batch=12).founders()
        job.until(lambda: job.stepped(5))
        job.kill("n1")
        job.end(15)
        check(all(c == (-9 if n == "n1" else 5) for n, c in job.codes.items()), f"one-holder {layout}: exit codes {job.codes}, expected is 5 of who lives")


def deserted(few):
    """All members die, and a spare is left: it says that the job is lost, and what was asked is answered. Members that are stopped are none of them gone."""
    for kind, layout, size, more in (("at-once", "dp=2", 2, {}), ("in-a-recovery", "dp=2", 2, {}), ("in-a-recovery", "pp=2", 2, {"snapshot": 5}), ("as-it-joins", "tp=2", 2, {}),
                                     ("before-it-came", "dp=2", 2, {}), ("stopped", "dp=2", 2, {}))[:2 if few else None]:
        job = Job(f"deserted-{kind}", layout, size, steps=100000, batch=12, **more)
        job.founders(**({"n0": {"kill": "promised"}} if kind == "in-a-recovery" else {"n0": {"kill": "group_made:2"}} if kind == "as-it-joins" else {}))
        late = kind == "before-it-came"
        job.worker("s") if not late else None
        job.until(lambda: job.stepped(12) and (late or job.has("s", "start")))
        time.sleep(0.2)
        if kind == "as-it-joins":
            job.begin_ask("join", "join", "s")
            job.until(lambda: job.workers["n0"].poll() is not None, 8)
        told = job.signal("n1", signal.SIGSTOP if kind == "stopped" else signal.SIGKILL)
        job.signal("n0", signal.SIGSTOP) if kind == "stopped" else job.kill("n0") if kind != "in-a-recovery" else None
        job.until(lambda: job.workers["n0"].poll() is not None, 8) if kind == "in-a-recovery" else None
        if late:
            time.sleep(1.2 * LEASE)
            job.worker("s")
        job.begin_ask("b", "batch", "9")
        ended = job.until(lambda: job.workers["s"].poll() is not None, 2 * LEASE + 2 * GRACE + 2)
        took = time.monotonic() - told
        if kind == "stopped":
            job.expect(not ended, f"{layout}: the spare ended, and its members are only stopped")
            job.signal("n0", signal.SIGCONT), job.signal("n1", signal.SIGCONT)
            job.ask("f", "finish")
        job.end(15)
        if kind == "stopped":
            check(set(job.codes.values()) <= {0, 3}, f"deserted, members that were stopped: exit codes {job.codes}")
            continue
        check(job.codes == {"n0": -9, "n1": -9, "s": 5}, f"deserted {kind} {layout}: exit codes {job.codes}, expected is 5 of the spare")
        sentence = next((x.get("sentence", "") for x in job.events("s") if x["ev"] == "end"), "")
        check(sentence in [f"nobody who is left holds any of the state; gone are {names}" for names in ("n0 and n1", "n1 and n0")], f"deserted {kind} {layout}: the spare says {sentence!r}")
        check(all(text and text.startswith(("failed: ", "refused: ")) for _, _, text in job.asks), f"deserted {kind} {layout}: answers {job.asks}")
        print(f"  {kind}, {layout}: the spare says so {took:.2f} s after the deaths; a lease is {LEASE:.1f} s, the grace {GRACE:.1f}", flush=True)


def torn(few):
    """Single holders, and a switch that is torn: who joins and dies in it takes nothing along; what an old member alone held is lost, and said so."""
    cases = [(layout, point, who) for layout in ("dp=3,zero=1", "pp=2", "tp=2") for point in ("group_made", "ready", "decided", "stage:0", "stage:1", "entered") for who in ("j", "n1")]
    for layout, point, who in cases:
        size = len(tests.model(LLAMA).regions(layout))
        job = Job(f"torn-{point.replace(':', '_')}-{who}", layout, size, steps=1000000, batch=12, step_ms=4)
        job.founders(**{who: {"kill": point + (":2" if point == "entered" else "")}} if who != "j" else {})
        job.worker("j", **({"kill": point} if who == "j" else {}))
        job.until(lambda: job.stepped(5) and job.has("j", "start"))
        time.sleep(0.1)
        text = job.ask("join", "join", "j", seconds=8)
        job.until(lambda: False, 0.3)
        job.ask("f", "finish", seconds=10)
        job.until(lambda: all(p.poll() is not None for p in job.workers.values()), 8)
        entered = any(x["ev"] == "world" and "j" in x["members"] for x in job.events())
        lost = any(x["ev"] == "end" and x["why"] == "lost" for x in job.events())
        job.expect(who != "j" or entered or not lost, f"{layout}: lost as j, which joins and held nothing yet, is killed at {point}; join: {text!r}")
        job.end(5)


def budget(few):
    """Switches that give their sources back as they go: who dies in one leaves state between two worlds. Where everything has a second holder all the while nothing is lost; what one
    member alone held, or had just been given, is lost with it, and said so."""
    lost, given_back, torn_by = 0, 0, {}
    changes = {"dp=3": ("join", "j"), "tp=2,dp=2": ("layout", "pp=2,dp=2"), "pp=2,dp=2": ("replace", "n3", "j"), "dp=3,zero=1": ("join", "j"), "pp=2": ("layout", "tp=2"),
               "dp=4": ("leave", "n1")}
    cases = [(layout, point, who, size) for layout in changes for point in ("decided", "stage:0", "stage:1", "stage:5", "entered") for who in ("j", "n1", "n0")
             for size in ("64KiB", "512KiB") if who != "j" or "j" in changes[layout]]
    if few:
        cases = [one for one in cases if one in (("dp=3", "stage:0", "n1", "64KiB"), ("tp=2,dp=2", "stage:1", "n0", "64KiB"), ("dp=3,zero=1", "stage:1", "j", "512KiB"))]
    for layout, point, who, size in cases:
        found = len(tests.model(LLAMA).regions(layout))
        nth = ":2" if point == "entered" and who != "j" else ""
        job = Job(f"budget-{point.replace(':', '_')}-{who}", layout, found, steps=1000000, batch=12, step_ms=4, budget=size, policy=REPLICATED)
        job.founders(**{who: {"kill": point + nth}} if who != "j" else {})
        job.worker("j", **({"kill": point} if who == "j" else {}))
        job.until(lambda: job.stepped(5) and job.has("j", "start"))
        time.sleep(0.1)
        text = job.ask("change", *changes[layout], seconds=14)
        struck = job.until(lambda: job.workers[who].poll() is not None, 3)
        e = job.epochs()
        job.until(lambda: job.stepped(0, e) or not any(p.poll() is None for p in job.workers.values()), 8)
        job.until(lambda: False, 0.2)
        job.ask("f", "finish", seconds=10)
        job.until(lambda: all(p.poll() is not None for p in job.workers.values()), 8)
        stages = {x["where"] for x in job.events() if x["ev"] == "point" and x["where"].startswith("stage:")}
        ends = {n: next((x for x in job.events(n) if x["ev"] == "end"), None) for n in job.workers if n != who}
        was_lost = any(x and x["why"] == "lost" for x in ends.values())
        lost += was_lost
        torn_by[point] = torn_by.get(point, 0) + (struck and len(stages) > 0)
        given = [int(n) for x in ends.values() if x for n in re.findall(r"and ([0-9]+) that a survivor had given back", x.get("sentence", ""))]
        given_back += was_lost and max(given, default=0) > 0
        # With copies alone each has all that it will have, and makes its new copy before the old one goes; and before all have begun nobody gives anything back.
        single, all_have_all = layout in ("dp=3,zero=1", "pp=2"), layout in ("dp=3", "dp=4")
        job.expect(not was_lost or single or not (all_have_all or point == "decided"), f"{layout}, {size}: lost as {who} is killed at {point}, where nobody gave a last copy away; {ends}")
        job.expect(not was_lost or single or max(given, default=0) > 0,
                   f"{layout}, {size}: lost as {who} is killed at {point}, though every element had a second holder, and nobody gave one back; the change: {text!r}; {ends}")
        job.expect(was_lost or all(x and x["why"] in ("done", "left") for x in ends.values()), f"{layout}, {size}: {who} is killed at {point}; the change: {text!r}; ends {ends}")
        job.end(5)
    job = Job("budget-too-small", "dp=2", 2, steps=1000000, batch=12, step_ms=4, budget="4KiB").founders().worker("j")
    job.until(lambda: job.stepped(5) and job.has("j", "start"))
    text = job.ask("change", "join", "j")
    job.expect((text or "").startswith("failed: a budget of 4096 bytes cannot work: "), f"a join under a budget that no number of stages keeps is answered {text!r}")
    e, far = job.epochs(), max(x["step"] for x in job.events() if x["ev"] == "step")
    job.expect(job.until(lambda: job.stepped(far + 20, e), 8), "no steps after a budget that was too small")
    job.expect(job.epochs() <= 3, f"a change that was refused led to epoch {job.epochs()}")
    job.ask("f", "finish")
    job.end(5)
    check(torn_by.get("stage:0", 0) > 0, f"budget: nobody died in a switch that was begun: {torn_by}")
    print(f"budget: {len(cases)} deaths, killed in a switch that was begun: {torn_by}; {lost} jobs lost, {given_back} of them for what was given back", flush=True)


def snapshots(few):
    """What one member alone held comes back from its neighbour's copy; killed while copies are made and sent, and again while a world begins with them."""
    cases = [("dp=3,zero=1", 3, "n1", None, False, None), ("dp=3,zero=1", 3, "n0", "kept:4", True, None), ("pp=2", 2, "n1", "copied:4", True, None)]
    if not few:
        cases = [(*one, None) for one in (("dp=3,zero=1", 3, "n1", None, True), ("dp=2,zero=1,tp=2", 4, "n3", None, True), ("pp=2,tp=2", 4, "n0", "updating:45", False))] + cases
        cases += [(layout, size, who, point, True, None) for layout, size in (("dp=3,zero=1", 3), ("pp=2,tp=2", 4)) for who in ("n0", "n1")
                  for point in ("copied:4", "kept:4", "scalar:43", "samples:41", "updating:49", "updated:40")]
        # who is killed and, in the recovery that follows, a second one: the copy that it alone kept is gone with a neighbour
        cases += [("dp=4,zero=1", 4, "n1", "scalar:45", True, ("n3", at)) for at in ("promised", "group_made:2", "stage:0", "entered:2")]
        cases += [("dp=4,zero=1", 4, "n1", "scalar:45", True, ("n2", "stage:0"))]
    lost = undone = 0
    for layout, size, who, point, spare, second in cases:
        job = Job(f"snapshots-{who}-{(point or 'kill').replace(':', '_')}", layout, size, steps=100000, batch=12, snapshot=10)
        job.founders(**{who: {"kill": point} if point else {}}, **({second[0]: {"kill": second[1]}} if second else {}))
        job.worker("s") if spare else None
        job.until(lambda: job.stepped(45) and (not spare or job.has("s", "start")) or job.workers[who].poll() is not None)
        job.kill(who) if not point else job.until(lambda: job.workers[who].poll() is not None, 8)
        again = job.until(lambda: job.stepped(0, 2) or all(p.poll() is not None for p in job.workers.values()), 10)
        reached = max((x["step"] + 1 for x in job.events() if x["ev"] == "step" and x["epoch"] == 1), default=0)
        first = min((x["first_step"] for x in job.events() if x["ev"] == "world" and x["epoch"] > 1), default=None)
        # a neighbour that held the only copy, gone too: the job is lost and says so
        gone = second is not None and second[0] == f"n{(int(who[1]) + 1) % size}"
        lost += first is None
        undone = max(undone, reached - (first if first is not None else reached))
        job.expect(first is None if gone else again and first is not None and reached - first <= (11 if point is None else 20),
                   f"{layout}, {who} at {point}, then {second}, snapshots every 10 steps, {reached} reached: the next world begins with {first}")
        job.ask("f", "finish")
        job.end(15)
        # whose second death comes once all have begun again, may be undone; who dies in the next world before its first copies are sent takes state along
        dead = {who} | ({second[0]} if second else set())
        check(gone or {n for n, c in job.codes.items() if c} <= dead, f"snapshots {layout} {who} {point} {second}: exit codes {job.codes}")
    if not few:  # the parameters of tp rank 0 had two holders, which both died; of the rest the keepers have copies, and that is not enough
        job = Job("snapshots-both-holders", "tp=2,dp=2,zero=1", 4, steps=100000, batch=12, snapshot=10).founders()
        job.until(lambda: job.stepped(45))
        job.kill("n0"), job.kill("n2")
        job.end(15)
        check({n: c for n, c in job.codes.items()} == {"n0": -9, "n1": 5, "n2": -9, "n3": 5}, f"snapshots, both holders of tp rank 0 killed: exit codes {job.codes}, expected is 5 of who lives")
    print(f"  {len(cases)} deaths, at most {undone} steps undone; {lost} jobs lost, their copies' keeper was killed with whose they were")


def slow(few):
    """Who is slow makes place for a spare while it lives; without a spare it stays, and is told; nobody is slow where all are alike."""
    policy = tests.room / "slow.json"
    policy.write_text(json.dumps({"windows": 2, "wait": 1}))
    each = {"n2": {"step-ms": 60}}  # its peers' 10; the collective makes all wait for it, so a step's time alone says nothing
    for who, spare in ((each, True),) if few else ((each, True), ({"n0": {"step-ms": 60}}, True), (each, False), ({}, True)):
        job = Job("slow", "dp=4", 4, steps=100000, batch=12, step_ms=10, policy=policy).founders(**who)
        job.worker("s") if spare else None
        name = next(iter(who), None)
        took = job.until(lambda: any(x["ev"] == "world" and x["epoch"] == 2 for x in job.events()), 20 if name and spare else 8)
        world = next((x for x in job.events() if x["ev"] == "world" and x["epoch"] == 2), None)
        if name and spare:
            wanted = [("s" if n == name else n) for n in ("n0", "n1", "n2", "n3")]
            job.expect(took and world["members"] == wanted and world["layout"] == "dp=4", f"{name} is slow, and s is there; the next world is {world and world['members']}")
            job.until(lambda: job.workers[name].poll() is not None)
            job.expect(any(x["ev"] == "end" and x["why"] == "left" for x in job.events(name)), f"{name}, which was slow, does not end as left")
            job.until(lambda: job.stepped(0, 2))
        else:
            job.expect(not took, f"slow: {name}, spare: {spare}; the next world is {world and world['members']}")
            told = [n for n in job.workers if "ignored: n2 is slow" in (job.folder / f"{n}.out").read_text()]
            job.expect(len(told) == (4 if name else 0), f"slow: {name}; that it is ignored is told by {told}")
        job.ask("f", "finish")
        job.end(15)
        check(not any(job.codes.values()), f"slow {name} {spare}: exit codes {job.codes}")


def long(few):
    """A member's steps take longer than the patience, and so all steps do: they are made, and who comes or stays waits for the boundary."""
    job = Job("long", "dp=2", 2, steps=100000, batch=12, step_ms=5, policy=tests.replicated).founders(n1={"step-ms": 1600 * tests.patience}).worker("s")
    job.expect(job.until(lambda: job.stepped(1) and job.has("s", "start"), 30), "no step is made, or s does not start")
    job.expect(job.ask("join", "join", "s", seconds=40) == "done", "nobody joins steps that are longer than the patience")
    job.expect(job.until(lambda: any(x["ev"] == "step" for x in job.events("s")), 30), "who came makes no step")
    if not few:
        job.kill("s")
        job.expect(job.until(lambda: any(x["ev"] == "step" and x["epoch"] > 2 for x in job.events("n0")), 30), "no step after a death")
    job.ask("f", "finish", seconds=40)
    job.end(20)


# 5. The store: stopped, killed, started again.
def store(few):
    away, lease = (2, 1.2) if few else (3, LEASE)  # seconds; the leases of all who live are gone
    job = Job("store-stopped", "dp=2", 2, steps=1000000, step_ms=5, lease=lease * options.slow).founders().worker("a")
    job.until(lambda: job.stepped(20) and job.has("a", "start"))
    time.sleep(0.2)
    for form in ("stopped", "killed"):
        epochs, begin = job.epochs(), time.monotonic()
        os.killpg(job.store.pid, signal.SIGSTOP if form == "stopped" else signal.SIGKILL)
        for i in range(3):
            job.begin_ask(f"{form}-{i % 2}", *(("join", "a") if form == "stopped" else ("leave", "a")) if i % 2 == 0 else ("batch", "10" if form == "stopped" else "9"))
        job.until(lambda: False, away)
        steps = sorted(x["t"] for x in job.events("n0") if x["ev"] == "step" and begin < x["t"])
        gap = max((b - a for a, b in zip([begin, *steps], [*steps, time.monotonic()])), default=9)
        epochs_then = job.epochs()
        if form == "stopped":
            os.killpg(job.store.pid, signal.SIGCONT)
        else:
            job.store.wait()
            job.start_store()
        job.expect(epochs_then == epochs, f"{form}: epochs {epochs} to {epochs_then} without a store")
        job.expect(gap < 0.7 * options.slow and len(steps) > 20 * away, f"the store is {form} for {away} s: {len(steps)} steps of one member in it, {gap:.3f} s between two at most")
        print(f"store {form}: {len(steps)} steps in {time.monotonic() - begin:.1f} s, {gap * 1e3:.0f} ms between two at most", flush=True)
        texts = [job.end_ask(one) for one in list(job.pending)]
        job.expect(texts == ["done"] * 3, f"the store was {form}: what was asked meanwhile is answered {texts}")
        job.until(lambda: False, 1)
    job.expect(not [x for x in job.events() if x["ev"] == "broken"], "a store that was away broke a world")
    text = job.ask("f", "finish")
    job.expect(text == "done", f"finish is answered {text!r}")
    job.end()
    check(set(job.codes.values()) == {0}, f"store: exit codes {job.codes}")


    if few:
        return
    job = Job("store-and-death", "dp=3", 3, steps=1000000, step_ms=5, batch=12).founders()  # who lost a member waits for the store
    job.until(lambda: job.stepped(20))
    os.killpg(job.store.pid, signal.SIGSTOP)
    time.sleep(0.1)
    died = job.kill("n2")
    job.until(lambda: False, 1.5)
    job.expect(job.epochs() == 1, "a world changed without the store")
    late = [x for x in job.events() if x["ev"] == "step" and x["t"] > died + 0.1 and x["id"] != "n2"]
    job.expect(not late, f"{len(late)} steps are ended without a member that died")
    os.killpg(job.store.pid, signal.SIGCONT)
    job.expect(job.until(lambda: job.stepped(0, 2), 8), "no step after the store came back")
    job.expect(job.ask("f", "finish") == "done", "finish")
    job.end()
    check(job.codes == {"n0": 0, "n1": 0, "n2": -9}, f"store-and-death: exit codes {job.codes}")


# 6. Random runs.
def random_runs(few):
    dice = random.Random(seed)
    print(f"--seed {seed}", flush=True)
    counts, phases, ends = {}, {}, {}
    of_models = {LLAMA: {2: ("dp=2", "tp=2", "pp=2", "dp=2,zero=1"), 3: ("dp=3", "dp=3,zero=1"), 4: ("dp=4", "tp=2,dp=2", "pp=2,dp=2", "tp=2,pp=2", "dp=4,zero=1", "tp=4")},
                 MOE: {2: ("dp=2", "tp=2", "pp=2", "dp=2,ep=2", "dp=2,ep=2,zero=1"), 3: ("dp=3", "dp=3,zero=1"), 4: ("dp=4", "dp=4,ep=2", "dp=4,ep=4", "pp=2,dp=2,ep=2", "tp=2,dp=2", "dp=4,zero=1")}}
    for number in range(options.runs if not few else 1):
        found, total = dice.randint(2, 4), dice.randint(4, 8)
        model, snapshot, budget = MOE if dice.random() < 0.2 else LLAMA, dice.choice((0, 0, 0, 5)), dice.choice((None, None, "64KiB", "512KiB"))
        layouts = of_models[model]
        for word, is_so in (("moe", model == MOE), ("snapshot", snapshot), ("budget", budget)):
            counts[f"jobs: {word}"] = counts.get(f"jobs: {word}", 0) + bool(is_so)
        layout = dice.choice((f"dp={found}", *layouts[found]))
        more = {**({"policy": REPLICATED} if dice.random() < 0.7 else {}), **({"budget": budget} if budget else {})}
        job = Job(f"random-{number}", layout, found, model, steps=1000000, batch=dice.randint(8, 24), step_ms=dice.choice((1, 4, 10)), snapshot=snapshot, **more)
        kinds = ["kill", "stop", "ask", "ask", "store", "amid", "amid", "again"]  # amid: as what was asked is done; again: as who is left recovers
        plan = [(dice.random() * 0.8, dice.choice(kinds), dice.random(), dice.random(), dice.choice(("join", "leave", "replace", "layout", "batch"))) for _ in range(dice.randint(4, 9))]
        strikes = {f"n{i}": {dice.choice(("kill", "stop")): f"{dice.choice(POINTS)}:{dice.randint(1, 3)}"} for i in range(1, total) if dice.random() < 0.25}
        job.founders(**{n: s for n, s in strikes.items() if int(n[1:]) < found})
        for i in range(found, total):
            job.worker(f"n{i}", **strikes.get(f"n{i}", {}))
        for strike in strikes.values():
            for kind, point in strike.items():
                counts[f"--{kind}"] = counts.get(f"--{kind}", 0) + 1
        job.until(lambda: job.stepped(3), 6)
        wake = []
        names, frozen = list(job.workers), set()

        def freeze(n, seconds):
            job.struck.add(n)
            frozen.add(n)
            wake.append((time.monotonic() + seconds, lambda: (frozen.discard(n), job.signal(n, signal.SIGCONT))))

        def tick():
            now = time.monotonic()
            for at, what in list(wake):
                if now >= at:
                    what()
                    wake.remove((at, what))
            for n in names:
                if job.stopped(n) and n not in frozen:
                    freeze(n, 2.5)
            return False
        for pause, kind, r, q, ask in plan:
            alive = [n for n in names if job.workers[n].poll() is None]
            if len(alive) <= 1:
                break
            job.until(tick, pause / options.slow)
            n, other = alive[int(r * len(alive))], names[int(q * len(names))]
            away = any(what is not None and getattr(what, "is_store", False) for _, what in wake)
            if kind == "again" and len(alive) > 3:
                job.signal(alive[int(q * len(alive))], signal.SIGKILL)
                counts["kill"] = counts.get("kill", 0) + 1
                job.until(tick, 0.05 + 0.6 * r)
            elif kind == "amid":
                size = dice.choice((2, 3, 4))
                job.begin_ask(f"r{len(job.calls)}", *dice.choice((("layout", layouts[size][int(q * len(layouts[size]))]), ("join", other), ("leave", n))))
                job.until(tick, 0.005 + 0.06 * r)
            kind = {"again": "stop", "amid": "kill" if q < 0.5 else "stop"}.get(kind, kind)
            phase = "away" if away else json.loads(job.status() or '{"phase": "unfounded"}')["phase"]
            if kind == "store" and not away:
                os.killpg(job.store.pid, signal.SIGSTOP)

                def cont(pid=job.store.pid):
                    os.killpg(pid, signal.SIGCONT)
                cont.is_store = True
                wake.append((time.monotonic() + 0.3 + 1.5 * q, cont))
            elif kind in ("kill", "stop"):
                job.signal(n, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
                if kind == "stop":
                    freeze(n, 0.2 + 3 * q)
            elif kind == "ask":
                size = dice.choice((2, 3, 4))
                job.begin_ask(f"r{len(job.calls)}", ask, *{"join": (other,), "leave": (n,), "replace": (n, other), "layout": (layouts[size][int(q * len(layouts[size]))],),
                                                           "batch": (str(4 + int(q * 20)),)}[ask])
                kind = ask
            counts[kind] = counts.get(kind, 0) + 1
            phases[phase] = phases.get(phase, 0) + 1
        while wake:
            job.until(tick, 0.05)
            time.sleep(0.01)
        job.until(tick, 1.5)
        for i in range(3):  # who a job waits for comes
            if '"waiting"' in job.status():
                counts["came to a job that waited"] = counts.get("came to a job that waited", 0) + 1
                job.expect(any("waits for somebody" in path.read_text() for path in job.folder.glob("n*.out")), "a job waits, and nobody says why")
                job.worker(f"x{i}")
                job.until(tick, 2)
        job.begin_ask("finish", "finish")
        while not job.until(lambda: all(p.poll() is not None for p in job.workers.values()), 0.2) and time.monotonic() < job.ended - 5:
            tick()
        job.end(1)
        for word, n in (("jobs", 1), ("lost", job.verdict.facts.get("lost", 0)), ("epochs", job.epochs()), ("expelled", list(job.codes.values()).count(3))) if hasattr(job, "verdict") else ():
            ends[word] = ends.get(word, 0) + n
    print("of them:", ", ".join(f"{n} {k}" for k, n in ends.items()))
    print("random runs:", ", ".join(f"{n} {k}" for k, n in sorted(counts.items())), "; fell in", ", ".join(f"{n} {k or 'nothing'}" for k, n in sorted(phases.items())), flush=True)


# 7. Times.
def times(few):
    measured = {"kill": [], "stop": []}
    for form in ("kill",) if few else ("kill", "stop"):
        for i in range(2 if few else options.times):
            job = Job(f"times-{form}", "dp=4", 4, steps=1000000, step_ms=2, batch=12, dump=False).founders()
            job.until(lambda: job.stepped(10))
            victim = f"n{i % 4}"
            t = job.signal(victim, signal.SIGKILL if form == "kill" else signal.SIGSTOP)
            job.until(lambda: job.stepped(0, 2), 8)
            after = [x["t"] - t for x in job.events() if x["ev"] == "step" and x["epoch"] >= 2]
            job.expect(after and min(after) < 3 * options.slow, f"{form} of rank {i % 4}: {min(after, default=99):.3f} s to the next world's first step, 3 are allowed")
            measured[form] += [min(after)] if after else []
            job.signal(victim, signal.SIGCONT) if form == "stop" else None
            job.ask("f", "finish")
            job.end()
        if measured[form]:
            print(f"{form} to the first step of the next world: median {statistics.median(measured[form]):.3f} s, worst {max(measured[form]):.3f} s of {len(measured[form])}", flush=True)


# The judge itself.
def self_test():
    jobs_of = []
    for name in ("self-asked", "self-killed"):
        job = Job(name, "dp=3", 3, steps=1000000, step_ms=4, batch=9).founders().worker("j")
        job.until(lambda: job.stepped(4) and job.has("j", "start"))
        time.sleep(0.2)
        if name == "self-killed":
            job.kill("n1")
            job.until(lambda: job.stepped(0, 2), 8)
        job.ask("b", "batch", "12")
        job.ask("l", "layout", "tp=2") if name == "never" else None
        if name == "self-asked":
            job.ask("j", "join", "j")
            job.ask("l", "leave", "n0")
        job.until(lambda: False, 0.2)
        job.ask("f", "finish")
        job.end()
        logs, faults = job_log.read_logs({n: job.folder / f"{n}.log" for n in job.workers})
        dumps = job_log.read_dumps(job.folder / "dump")
        verdict = job_log.Judge(tests.model(LLAMA), copy.deepcopy(logs), dumps, job.told())
        check(not faults and not verdict.faults, f"self-test: {name} is not right before it is doctored: {verdict.faults[:3]}")
        jobs_of.append((job, logs, dumps))
    (asked_job, logs, dumps), (killed_job, killed_logs, killed_dumps) = jobs_of
    last = max(x["epoch"] for log in logs.values() for x in log if x["ev"] == "world")
    middle = [x for x in logs["n1"] if x["ev"] == "samples"][5]

    def find(l, who, ev, n=0, **fields):
        return [x for x in l[who] if x["ev"] == ev and all(x[k] == v for k, v in fields.items())][n]

    def worlds(l, epoch, **change):
        for log in l.values():
            for x in log:
                if x["ev"] == "world" and x["epoch"] == epoch:
                    x.update({k: v(x[k]) for k, v in change.items()})

    def doctor(what, word, change, of="asked"):
        job, l, d = (asked_job, logs, dumps) if of == "asked" else (killed_job, killed_logs, killed_dumps)
        l, d, told = copy.deepcopy(l), copy.deepcopy(d), copy.deepcopy(job.told())
        d = {r: [x, bytearray(data)] for r, (x, data) in d.items()}
        change(l, d, told)
        seen = job_log.Judge(tests.model(LLAMA), l, d, told).faults
        check(any(f.startswith(word) for f in seen), f"self-test: {what} is not noticed as {word}: {seen[:3]}")
        print(f"{what}: {next((f for f in seen if f.startswith(word)), seen)}"[:200])

    def renumber(l, d, told):
        for log in l.values():
            for x in log:
                if x.get("epoch", 0) >= 2:
                    x["epoch"] += 1

    def late(l, d, told):
        s = find(l, "n1", "samples", 0, epoch=2)
        at = l["n1"].index(s)
        c = find(l, "n1", "world", 0, epoch=1)
        step, b = s["step"], c["batch"]
        begin = step * b
        r = c["members"].index("n1")
        l["n1"][at:at] = [dict(s, epoch=1, dp=r, of=3, begin=begin + r * b // 3, end=begin + (r + 1) * b // 3),
                          {"t": s["t"], "id": "n1", "ev": "step", "epoch": 1, "step": step, "sum": job_log.Sums()(begin, begin + b)}]

    def torn(l, d, told):
        for log in l.values():
            steps = [x for x in log if x["ev"] == "step" and x["epoch"] == 1]
            if steps and not any(x["ev"] == "world" and x["epoch"] > 1 for x in log):
                log[:] = [x for x in log if x is not steps[-1]]

    def drop(l, who, x):
        l[who].remove(x)

    def flip(d, rank, at):
        d[rank][1][at] ^= 1

    doctor("a sample twice", "C3", lambda l, d, t: find(l, "n1", "samples", 5).update(begin=middle["begin"] - 1))
    doctor("samples missing", "C3", lambda l, d, t: drop(l, "n1", find(l, "n1", "samples", 5)))
    doctor("samples of a step said twice", "C3", lambda l, d, t: l["n1"].insert(8, dict(find(l, "n1", "samples", 5))))
    doctor("the share of another rank", "C3", lambda l, d, t: find(l, "n1", "samples", 5).update({k: find(l, "n2", "samples", 5)[k] for k in ("dp", "begin", "end")}))
    doctor("another number of ranks", "C3", lambda l, d, t: find(l, "n1", "samples", 5).update(of=4))
    doctor("a step without samples", "C3", lambda l, d, t: drop(l, "n0", find(l, "n0", "samples", -1)))
    doctor("samples without the step before", "C3", lambda l, d, t: drop(l, "n1", find(l, "n1", "step", 5)))
    doctor("a wrong sum", "C5", lambda l, d, t: find(l, "n2", "step", 3).update(sum=1 + find(l, "n2", "step", 3)["sum"]))
    doctor("an element flipped", "C6", lambda l, d, t: flip(d, 0, 77))
    doctor("the last element flipped", "C6", lambda l, d, t: flip(d, 1, len(d[1][1]) - 1))
    doctor("elements missing", "C6", lambda l, d, t: d[0].__setitem__(1, d[0][1][:-4]))
    doctor("elements too many", "C6", lambda l, d, t: d[0][1].extend(b"abcd"))
    doctor("a box missing", "C6", lambda l, d, t: d[0][0]["holds"].pop())
    doctor("a dump missing", "C6", lambda l, d, t: d.pop(2))
    doctor("a dump of an earlier version", "C6", lambda l, d, t: d[0][0].update(version=d[0][0]["version"] - 1))
    doctor("a wrong digest of who left", "C6", lambda l, d, t: find(l, "n0", "end")["digests"].update({"param output_layer.weight": 5}))
    doctor("a digest missing", "C6", lambda l, d, t: find(l, "n1", "end")["digests"].popitem())
    doctor("two worlds of one epoch (members)", "C1", lambda l, d, t: find(l, "n1", "world", epoch=2)["members"].reverse())
    doctor("two worlds of one epoch (first step)", "C1", lambda l, d, t: find(l, "n1", "world", epoch=2).update(first_step=1 + find(l, "n1", "world", epoch=2)["first_step"]))
    doctor("a world whose layout is of another size", "C1", lambda l, d, t: worlds(l, last, layout=lambda x: "dp=7"))
    doctor("a world entered twice", "C1", lambda l, d, t: l["n1"].insert(4, find(l, "n1", "world", epoch=1)))
    doctor("an epoch skipped", "C2", renumber)
    doctor("a cursor one beyond", "C2", lambda l, d, t: worlds(l, 2, cursor=lambda x: x + 1))
    doctor("a first step beyond what was reached", "C2", lambda l, d, t: worlds(l, 2, first_step=lambda x: x + 3))
    doctor("a step undone without a snapshot", "C2", lambda l, d, t: worlds(l, 2, first_step=lambda x: x - 1, cursor=lambda x: x - 9))
    doctor("a step after the next epoch began", "C4", late)
    doctor("an answer twice", "C9", lambda l, d, t: l["n2"].insert(9, {"t": 1.0, "id": "n2", "ev": "answer", "request": "b", "text": "done"}))
    doctor("an answer that differs from the log's", "C9", lambda l, d, t: t["asks"].append(("b", ("batch", "12"), "failed: a sentence of words")))
    doctor("no answer", "C9", lambda l, d, t: t["asks"].append(("q", ("batch", "12"), None)))
    doctor("done and not done", "C9", lambda l, d, t: t["asks"].append(("q", ("leave", "n1"), "done")))
    doctor("a missing end word", "C7", lambda l, d, t: drop(l, "n1", find(l, "n1", "end")))
    doctor("an end word twice", "C7", lambda l, d, t: l["n1"].append(find(l, "n1", "end")))
    doctor("a word after the end", "C7", lambda l, d, t: l["n1"].append(find(l, "n1", "start")))
    doctor("another exit code", "C7", lambda l, d, t: t["codes"].update(n1=3))
    doctor("a crash", "C7", lambda l, d, t: (t["codes"].update(n1=-11), drop(l, "n1", find(l, "n1", "end"))))
    doctor("an end before all steps", "C7", lambda l, d, t: t.update(finish=False))
    doctor("two last versions", "C7", lambda l, d, t: find(l, "n1", "end").update(version=3))
    doctor("an expelled member of the last world calls it done", "C7", lambda l, d, t: find(l, "j", "end").update(why="expelled"))
    doctor("one that is out says done", "C7", lambda l, d, t: find(l, "n0", "end").update(why="done"))
    doctor("who left under a budget has all", "C6", lambda l, d, t: t.update(budget="64KiB"))
    doctor("no word of the log", "C0", lambda l, d, t: l["n1"].append({"t": 1.0, "id": "n1", "ev": "rust"}))
    doctor("a field missing", "C0", lambda l, d, t: find(l, "n1", "step").pop("sum"))
    doctor("the samples of who was killed", "C3", lambda l, d, t: drop(l, "n1", find(l, "n1", "samples", 3)), "killed")
    doctor("lost, and all is held", "C7", lambda l, d, t: [(x.update(why="lost", sentence="nobody"), t["codes"].update({n: 5})) for n, log in l.items() for x in log if x["ev"] == "end"], "killed")
    cut = tests.room / "cut.log"
    cut.write_text('{"t":1.0,"id":"a","ev":"start","pid":1,"addr":""}\n{"t":1.0,"id')
    check(len(job_log.read_logs({"a": cut})[1]) == 2, "self-test: a line that was cut is not noticed")
    for job, _, _ in jobs_of:
        shutil.rmtree(job.folder, ignore_errors=True)


SCENARIOS = {"founded": founded, "asked": asked, "struck": struck, "stopped": stopped, "spares": spares, "deserted": deserted, "torn": torn, "budget": budget, "snapshots": snapshots, "slow": slow, "long": long, "store": store, "random": random_runs, "times": times}


def main():
    if options.self_test:
        return self_test()
    for name, scenario in SCENARIOS.items():
        if name not in options.only if options.only else options.few and name == "torn":
            continue
        before, begin = (tests.counted, tests.failed), time.monotonic()
        scenario(options.few)
        print(f"{name}: {tests.counted - before[0]} checks, {tests.failed - before[1]} failed, {time.monotonic() - begin:.1f} s", flush=True)


try:
    main()
finally:
    tests.close()
sys.exit(tests.tell())
