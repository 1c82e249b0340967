#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train.py TRAIN GOLDEN [--sanitized] [--seed S] [--all [WORDS..]]: the trainer cannot tell which layout it is under.

Without --all what a gate runs: the reference's first ten steps, six layouts of each model, five sequences of random switches, each transport,
each damage, a dump that is judged here, and refusals. With --sanitized six steps with two switches over threads or sockets alone. --all runs
all of the words that follow, by default every one: layouts (every legal one on 1 to 8 devices), switches (200 sequences), long (300 steps with
ten switches, both models), reference (110 steps), damage (of the dense model)."""
import argparse
import concurrent.futures
import datetime
import itertools
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
from mixing import M64, fnv, mix  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("train", type=pathlib.Path)
parser.add_argument("golden", type=pathlib.Path)
parser.add_argument("--sanitized", default="none")
parser.add_argument("--seed", default=os.environ.get("RESHARD_SEED", "20261121"), help="a number, or `today`: the date (UTC)")
parser.add_argument("--jobs", type=int, default=1)
parser.add_argument("--all", nargs="*", default=None)
options = parser.parse_args()
options.train = options.train.resolve()
today = os.environ.get("RESHARD_TODAY", f"{datetime.datetime.now(datetime.timezone.utc):%Y%m%d}")
seed = int(today if options.seed == "today" else options.seed)
dice = random.Random(seed)
room = tempfile.TemporaryDirectory()
SMALL, SMALL_MOE = pathlib.Path(room.name) / "qwen3.json", pathlib.Path(room.name) / "qwen3-moe.json"  # models that Python can count
SMALL.write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24, "vocab_size": 256}))
SMALL_MOE.write_text(json.dumps({"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 4,
                                 "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24, "moe_intermediate_size": 12, "num_experts": 4,
                                 "mlp_only_layers": [1], "vocab_size": 256}))
golden = json.loads(options.golden.read_text())
BATCH, GROUPS, EXPERTS, LAYERS = 24, 6, 12, 6
counted = failed = 0


def check(right, words):
    global counted, failed
    counted += 1
    if not right:
        failed += 1
        print("FAULT:", words, flush=True)


class Run:
    """What the tool said: steps, changes, the end; or how it ended."""

    def __init__(self, *words, model="dense", steps=4, layout="", switches=(), **more):
        call = [str(options.train), "--json", "--model", str(model), "--steps", str(steps), "--layout", layout]
        for s in switches:
            call += ["--switch", s]
        for key, value in more.items():
            call += ["--" + key, str(value)]
        self.call = " ".join(call + list(words))
        done = subprocess.run(call + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=1800)
        self.code, self.error = done.returncode, done.stderr
        self.lines = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode in (0, 3) else []
        self.steps = [x for x in self.lines if "step" in x]
        self.changes = [x for x in self.lines if "switch" in x]
        self.end = self.lines[-1] if self.lines and "done" in self.lines[-1] else None

    def curve(self):
        return [(x["loss_hex"], x["norm_hex"]) for x in self.steps]


def whole(run, steps):
    """What every run that ends well owes, by itself."""
    check(run.code == 0 and run.end is not None, f"{run.call}: exit code {run.code}: {run.error[:300]}")
    if run.code != 0 or run.end is None:
        return False
    check(len(run.steps) == steps, f"{run.call}: {len(run.steps)} steps of {steps}")
    used = 0
    for x in run.steps:
        for begin, end in x["samples"]:
            check(begin == used and end > begin, f"{run.call}: step {x['step']} uses [{begin}, {end}), and {used} comes next")
            used = end
        check(used == (x["step"] + 1) * BATCH, f"{run.call}: step {x['step']} ends at sample {used}")
    for c in run.changes:
        check(c["before"] == c["after"], f"{run.call}: the switch before step {c['switch']} changed a digest")
        check(c["moved_bytes"] == c["least_bytes"], f"{run.call}: the switch before step {c['switch']} moved {c['moved_bytes']} of {c['least_bytes']} bytes")
    check(run.end["small"] == {"step": steps, "cursor": steps * BATCH, "seed": 7}, f"{run.call}: small state is {run.end['small']}")
    return True


def same(run, alone, steps):
    if not whole(run, steps):
        return
    check(run.curve() == alone.curve()[:steps], f"{run.call}: losses or norms differ from one device's: "
          f"{[a == b for a, b in zip(run.curve(), alone.curve())]}")
    if len(alone.steps) == steps:
        check(run.end["digest"] == alone.end["digest"], f"{run.call}: the last state differs from one device's")


def layouts(model, most=8):
    """Every layout that the contract calls legal, on at most so many devices, with their number."""
    found = []
    for tp, pp, dp in itertools.product((1, 2, 3, 6), range(1, most + 1), range(1, most + 1)):
        if tp * pp * dp > most:
            continue
        splits = [""] if LAYERS % pp == 0 else [",split=spread"]
        splits += [",split=account"] if pp > 1 and (LAYERS + 2) % pp == 0 else []
        splits += [",first=1"] if pp in (2, 6) else []
        for split, zero in itertools.product(splits, ("", ",zero=1", ",zero=1,bucket=30000")):
            for ep in range(1, tp * dp + 1) if model == "moe" else (1,):
                if EXPERTS % ep == 0 and tp * dp % ep == 0:
                    expert = f",ep={ep},etp=1" if model == "moe" else ""
                    found.append((f"tp={tp},pp={pp},dp={dp}{expert}{zero}{split}", tp * pp * dp))
    return found


def placed(layout, ranks, devices=8):
    return f"{layout}@{','.join(map(str, dice.sample(range(devices), ranks)))}"


def each(function, items):
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(function, items))


def check_layouts(count, steps=3):
    for model in ("dense", "moe"):
        alone = Run(model=model, steps=steps)
        all_of = layouts(model)
        chosen = all_of if count is None else dice.sample(all_of, count)
        each(lambda l: same(Run(model=model, steps=steps, layout=l[0]), alone, steps), chosen)
        print(f"{len(chosen)} of {len(all_of)} layouts, {model}", flush=True)


def check_switches(count, steps):
    alone = {model: Run(model=model, steps=steps) for model in ("dense", "moe")}

    def one(number):
        model = ("dense", "moe")[number % 2]
        at = sorted(rolls[number].sample(range(1, steps), rolls[number].randint(2, min(6, steps - 1))))
        if number > 0 and number % 20 == 0:
            print(f"{number} of {count} sequences", flush=True)
        words = [placed(*rolls[number].choice(layouts(model))) for _ in range(len(at) + 1)]
        same(Run(model=model, steps=steps, layout=words[0], switches=[f"{s}:{w}" for s, w in zip(at, words[1:])]), alone[model], steps)
    rolls = [random.Random(dice.random()) for _ in range(count)]
    each(one, range(count))
    print(f"{count} sequences of switches in {steps} steps", flush=True)


TWO = {"layout": "tp=2,pp=2,dp=2,zero=1", "switches": ["2:dp=3,zero=1@5-7", "4:tp=3,pp=2@5,4,3,2,1,0"]}


def check_transports(which):
    alone = Run(steps=6)
    for transport in which:
        same(Run(steps=6, transport=transport, **TWO), alone, 6)


def check_reference(steps):
    """The contract's bounds: losses and norms of steps 0 to 9; the largest difference of all."""
    for model, bound, of_norm, most, far in (("dense", 2e-5, 1e-4, 0.05, 0), ("moe", 2e-4, 1e-3, 0.3, 1)):
        run = Run(model=model, steps=steps, total=110)
        if not whole(run, steps):
            continue
        off = [abs(x["loss"] - y) for x, y in zip(run.steps, golden[model]["loss"])]
        norms = [abs(float.fromhex(x["norm_hex"]) / y - 1) for x, y in zip(run.steps, golden[model]["norm"])]
        check(max(off[:10]) <= bound and sum(x > 2e-5 for x in off[:10]) <= far, f"{model}: losses are off by {max(off[:10])} from the reference's")
        check(max(norms[:10]) <= of_norm, f"{model}: norms are off by {max(norms[:10])} of the reference's")
        check(max(off) <= most, f"{model}: losses are off by {max(off)} in {steps} steps")
        print(f"reference, {model}: losses within {max(off[:10]):.1e}, norms within {max(norms[:10]):.1e}; in {steps} steps {max(off):.1e}", flush=True)




def check_dump(layout):
    """The digest of what --dump wrote, by the contract's formula, written here once more; a model of few elements, since Python counts them."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Run(model=SMALL, steps=3)
        run = Run(model=SMALL, steps=3, layout=layout, switches=["1:pp=2,dp=3,zero=1", "2:" + layout], dump=folder)
        same(run, alone, 3)
        data = (pathlib.Path(folder) / "state.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header, body, sums = json.loads(data[8:8 + size]), data[8 + size:], dict.fromkeys(run.end["digest"], 0)
    for name, t in header.items():
        state, tensor = name.split("/", 1)
        begin, end = t["data_offsets"]
        width, form = (2, "H") if t["dtype"] == "BF16" else (4, "I")
        key = fnv(tensor)
        check(math.prod(t["shape"]) * width == end - begin, f"{name}: {t}")
        for i, bits in enumerate(struct.unpack(f"<{(end - begin) // width}{form}", body[begin:end])):
            sums[state] = (sums[state] + mix(bits ^ mix((key + i) & M64))) & M64
    check({s: f"{x:016x}" for s, x in sums.items()} == run.end["digest"], f"{run.call}: the dump has other digests than were printed")
    check(len(header) == 4 * (1 + 2 * 8 + 2), f"{run.call}: the dump has {len(header)} tensors")


def check_files():
    """Models of config.json: norms of heads, layers of two kinds."""
    for model, layout, switches in ((SMALL_MOE, "tp=2,pp=3,etp=1,zero=1", ["1:dp=4,ep=2,zero=1", "3:tp=2,dp=3,ep=2", "4:ep=4,tp=2,dp=4,zero=1"]),
                                    (SMALL, "tp=2,pp=2", ["2:dp=5,zero=1", "4:tp=2,dp=4,zero=1"])):
        same(Run(model=model, steps=6, layout=layout, switches=switches), Run(model=model, steps=6), 6)


def noticed(damage, model):
    """(which digests tell of it, the step at which a loss or norm does)."""
    run = Run(model=model, steps=11, layout="tp=2,pp=2,dp=2,zero=1", switches=("3:pp=2,dp=3,zero=1@2-7", "8:tp=2,dp=4"), damage=damage)
    check(run.code == 0 and len(run.steps) == 11, f"{run.call}: {run.code} {run.error[:200]}")
    by_digest = [c["switch"] for c in run.changes if c["before"] != c["after"]]
    by_loss = [i for i, (a, b) in enumerate(zip(run.curve(), untouched[model].curve())) if a != b]
    return by_digest, (by_loss or [None])[0]


def check_damage(model):
    """Each is noticed: in the loss or norm within 2 steps, or by the digest at its switch."""
    untouched[model] = Run(model=model, steps=11)
    for kind, step in (("swap", 5), ("twice", 5), ("step", 5), ("stale", 8), ("dropout", 5), ("moment", 3)):
        digest, loss = noticed(f"{kind}@{step}", model)
        check(loss is not None and step <= loss <= step + 2, f"damage {kind}@{step}: noticed in the loss of step {loss}, by the digests of {digest}")
        check(kind != "moment" or digest == [step], f"damage {kind}@{step}: the digests of {digest} tell of it")
        print(f"damage {kind}@{step}: loss of step {loss}, digest of the switch before {digest}", flush=True)
    for kind, of_loss in (("bit:param:3", True), ("bit:param:0", True), ("bit:master:30", True), ("bit:master:0", False), ("bit:exp_avg:0", False), ("bit:exp_avg_sq:0", False)):
        digest, loss = noticed(f"{kind}@3", model)
        check(digest == [3], f"damage {kind}@3: the digests of {digest} tell of it")
        check(not of_loss or (loss is not None and loss <= 5), f"damage {kind}@3: noticed in the loss of step {loss}")
        print(f"damage {kind}@3: loss of step {loss}, digest of the switch before {digest}", flush=True)


untouched = {}


def check_refusals():
    for words, code, sentence in (
            (["--layout", "tp=4"], 2, "6 query groups and tp=4"),
            (["--layout", "cp=2"], 2, "the trainer has no cp=2"),
            (["--model", "moe", "--layout", "tp=2"], 2, "name etp=1"),
            (["--layout", "dp=25"], 2, "a batch of 24 samples for dp=25"),
            (["--layout", "dp=2@0"], 2, "1 devices are listed for 2 ranks"),
            (["--steps", "4", "--switch", "4:dp=2"], 2, "its step is to be above 0 and below 4"),
            (["--steps", "4", "--switch", "2:dp=2", "--switch", "2:dp=3"], 2, "its step is to be above 2 and below 4"),
            (["--damage", "bit:param:16@2"], 2, "no bit 16"),
            (["--damage", "stale@2"], 2, "none is before step 2"),
            (["--damage", "rust@2"], 2, "is none of"),
            (["--dropout", "1"], 2, "it is 0 to below 1"),
            (["--transport", "pigeons"], 2, "is none of threads, sockets, mpi"),
            (["--what"], 2, "needs a value"),
            (["--batch", "100000", "--length", "2", "--steps", "1", "--model", str(SMALL)], 3, "beyond what its sum may have"),
            (["--batch", "100000", "--length", "2", "--steps", "1", "--model", str(SMALL), "--layout", "dp=2", "--transport", "sockets"], 3, "beyond what its sum may have")):
        done = subprocess.run([str(options.train), "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        check(done.returncode == code and sentence in done.stderr and done.stderr.count("\n") == 1 and "step" not in done.stdout,
              f"{words}: {done.returncode}, {done.stderr[:300]!r} {done.stdout[:100]!r}")
    done = subprocess.run([str(options.train), "--json", "--help"], stdout=subprocess.PIPE, text=True, timeout=300)
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/reference/train.md").read_text()
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `--"))
    named = {text: sorted(set(re.findall(r"--[a-z]+", text))) for text in (done.stdout, rows)}
    check(done.returncode == 0 and named[done.stdout] == named[rows] != [], f"--help: {done.returncode}, {named}")


def check_free():
    """With free sums the layout shows, so that the comparisons above can fail; and so does another seed."""
    exact, free, cut = Run(steps=3), Run(steps=3, sums="free"), Run(steps=3, sums="free", layout="tp=2,dp=3")
    check(free.curve() != cut.curve(), "free sums do not tell tp=2,dp=3 from one device")
    check(exact.curve()[0] != free.curve()[0], "exact sums are those of free ones")
    check(Run(steps=1, seed=8).curve() != exact.curve()[:1], "the seed does not show")


def check_demonstration(steps):
    """For people: runs beside the undisturbed one, draws, and says whether the bits are the same."""
    with tempfile.TemporaryDirectory() as folder:
        picture = pathlib.Path(folder) / "loss.svg"
        done = subprocess.run([str(options.train), "--model", str(SMALL), "--steps", str(steps), "--layout", "dp=2", "--switch", "2:tp=2", "--svg", str(picture)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        check(done.returncode == 0 and done.stdout.endswith(f"same bits: {steps} losses, {steps} norms, 1 switches, 4 states\n"), done.stdout + done.stderr)
        check(re.search(r"difference of the two, at most 0<", picture.read_text()) is not None, "the picture has no flat line")
        done = subprocess.run([str(options.train), "--model", str(SMALL), "--steps", str(steps), "--layout", "dp=2", "--switch", "2:tp=2", "--damage", "bit:master:30@2"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        check(done.returncode == 1 and "NOT the same bits" in done.stdout, done.stdout + done.stderr)


TEN = {"dense": ("tp=2,pp=2,dp=2,zero=1", ["30:tp=3,pp=2,zero=1@1-6", "60:tp=2,dp=4,zero=1@7,6,5,4,3,2,1,0", "90:dp=7,zero=1@0-6", "120:pp=3,tp=2@2-7",
                 "150:dp=8,zero=1", "180:tp=2,pp=2,dp=2,zero=1@0,2,4,6,1,3,5,7", "210:tp=6@2-7", "240:pp=2,dp=4", "260:dp=7@1-7", "280:tp=2,pp=3,zero=1@5,4,3,2,1,0"]),
       "moe": ("tp=2,pp=2,dp=2,ep=2,zero=1", ["30:tp=3,ep=3,pp=2,zero=1@1-6", "60:tp=2,ep=4,dp=4,zero=1@7,6,5,4,3,2,1,0", "90:dp=7,zero=1@0-6", "120:pp=3,tp=2,etp=1@2-7",
               "150:ep=4,dp=8,zero=1", "180:tp=2,pp=2,dp=2,ep=4,zero=1@0,2,4,6,1,3,5,7", "210:tp=2,ep=3,dp=3@2-7", "240:pp=2,dp=4,ep=2", "260:dp=7@1-7", "280:ep=6,dp=6,zero=1@5,4,3,2,1,0"])}
WORDS = ["".join(chr(97 + mix((mix(1000 + w) + j) & M64) % 16) for j in range(2 + mix(1000 + w) % 5)) + " " for w in range(96)]
NEXT = [[mix(5000 + 4 * w + k) % 96 for k in range(4)] for w in range(96)]


def text_of(n, length):
    """The first bytes of sample n of the language, seed 7, by the contract."""
    key = mix(mix(7 + 1) ^ n)
    word, text, k = key % 96, "", 0
    while len(text) < length:
        text += WORDS[word]
        word = NEXT[word][(0, 0, 0, 0, 1, 1, 2, 3)[mix((key + k) & M64) % 8]]
        k += 1
    return text[:length]


def floor_of(begin, end, length=32):
    """The mean of -ln p(byte | the bytes before it in its sample) under the language, over the targets of these samples. What may stand where in
    which word, given the bytes so far, has a probability each; a byte's is what of them goes on with it."""
    lost = 0.0
    for n in range(begin, end):
        places = {(w, 0): 1 / 96 for w in range(96)}
        for i, byte in enumerate(text_of(n, length + 1)):
            likely, after = 0.0, {}
            for (w, at), p in places.items():
                if WORDS[w][at] != byte:
                    continue
                likely += p
                for v, share in [((w, at + 1), 1)] if at + 1 < len(WORDS[w]) else [((f, 0), c) for f, c in zip(NEXT[w], (1 / 2, 1 / 4, 1 / 8, 1 / 8))]:
                    after[v] = after.get(v, 0.0) + p * share
            lost -= math.log(likely) if i > 0 else 0.0
            places = {v: p / likely for v, p in after.items()}
    return lost / (length * (end - begin))


def check_long():
    floor = floor_of(250 * BATCH, 300 * BATCH)
    for model, (first, others) in TEN.items():
        alone, run = Run(model=model, steps=300), Run(model=model, steps=300, layout=first, switches=others, budget="1MiB")
        same(run, alone, 300)
        check(len(run.changes) == 10 and max(c["peak_excess_bytes"] for c in run.changes) <= 1 << 20, f"{model}: a switch left its budget")
        last = sum(x["loss"] for x in alone.steps[250:]) / 50
        check(floor < last and (last <= floor + 0.25 or model == "moe"), f"{model}: the mean loss of the last 50 steps is {last}, the floor {floor}")
        print(f"{model}: 300 steps, ten switches, loss {last:.4f} at the end, {run.end['cpu_seconds'] / 300:.3f} CPU seconds a step", flush=True)


if options.all is not None:
    every = {"layouts": lambda: check_layouts(None), "switches": lambda: check_switches(200, 40), "long": check_long, "reference": lambda: check_reference(110),
             "damage": lambda: check_damage("dense")}
    for word in options.all or every:
        every[word]()
elif options.sanitized != "none":
    check_transports(["sockets"] if "address" in options.sanitized else ["threads"])
else:
    check_reference(10)
    check_layouts(6, 2)
    check_switches(5, 6)
    check_transports(["sockets"] + (["mpi"] if (options.train.parent / "train-mpi").exists() else []))
    check_dump("tp=2,dp=2,zero=1")
    check_files()
    check_damage(SMALL)
    check_free()
    check_demonstration(4)
    check_refusals()
print(f"{counted - failed} passed, {failed} failed")
sys.exit(bool(failed))
