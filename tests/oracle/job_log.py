# SPDX-License-Identifier: Apache-2.0
"""Judges an elastic job from its logs and dumps alone, by the contract's C1 to C7 and C9 (times are the caller's).

The exact trainer in closed form: element i of state s of tensor t at version v is x_v = c P_v, P_0 = 1, P_{v+1} = A P_v + S_v, with
c = mix(mix(s) + mix(i) + fnv(t)), in integers mod 2^(8 x its bytes). So one number P_v a version tells every element."""
import array
import json
import math
import pathlib
import subprocess

from mixing import GOLD, M64, fnv, mix

STATES = {"param": 2, "master": 4, "exp_avg": 4, "exp_avg_sq": 4}  # bytes; in the order of the job's list
FIELDS = {"start": ("pid", "addr"), "world": ("epoch", "members", "layout", "first_step", "cursor", "batch", "why", "switch"),
          "samples": ("epoch", "step", "dp", "of", "begin", "end"), "step": ("epoch", "step", "sum"), "boundary": ("step", "waited"),
          "gone": ("who", "by", "after"), "broken": ("epoch", "why", "version"), "answer": ("request", "text"), "point": ("where",),
          "end": ("why", "version", "digests")}
EXIT = {"done": 0, "left": 0, "expelled": 3, "refused": 4, "lost": 5}
WORLD = ("members", "layout", "first_step", "cursor", "batch")


class Sums:
    """Sums of mix(k) over [begin, end), by prefix."""

    def __init__(self):
        self.upto = [0]

    def __call__(self, begin, end):
        while len(self.upto) <= end:
            self.upto.append((self.upto[-1] + mix(len(self.upto) - 1)) & M64)
        return (self.upto[end] - self.upto[begin]) & M64


def runs(dims, box):
    """[(first, count)] of a box in the row-major numbers of a tensor."""
    pitch = [math.prod(dims[d + 1:]) for d in range(len(dims))]
    at = [0]
    for d, (begin, end) in enumerate(box[:-1]):
        at = [a + i * pitch[d] for a in at for i in range(begin, end)]
    return [(a + box[-1][0], box[-1][1] - box[-1][0]) for a in at]


def covered(entries):
    """{(state, tensor): [(begin, end)] in order, joined} of (state, tensor, dims, box); with it whether something is there twice."""
    found, twice = {}, False
    for state, tensor, dims, box in entries:
        found.setdefault((state, tensor), []).extend(runs(dims, box))
    for key, pieces in found.items():
        joined = []
        for first, count in sorted(pieces):
            if joined and first < joined[-1][1]:
                twice = True
            if joined and first <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], first + count)
            else:
                joined.append([first, first + count])
        found[key] = [tuple(x) for x in joined]
    return found, twice


def parted(holding):
    return [(e["state"], e["tensor"], e["dims"], e["box"]) for e in holding]


class Model:
    """What `reshard regions` says of a model, and the numbers of its elements."""

    def __init__(self, reshard, config):
        self.reshard, self.config = reshard, str(config)
        self.layouts, self.numbers, self.mixed = {}, {}, [mix(i) for i in range(4096)]
        self.sizes = {tensor: max(e for _, e in pieces) for (_, tensor), pieces in self.regions("")[0].items()}

    def regions(self, layout):
        """By rank: {(state, tensor): [(begin, end)]}."""
        if layout not in self.layouts:
            done = subprocess.run([self.reshard, "regions", self.config, layout, "--json"], capture_output=True, text=True, timeout=60)
            if done.returncode != 0:
                raise ValueError(f"layout {layout}: {done.stderr}")
            self.layouts[layout] = [covered(parted(r["regions"]))[0] for r in json.loads(done.stdout)["ranks"]]
        return self.layouts[layout]

    def mixes(self, count):
        self.mixed.extend(mix(i) for i in range(len(self.mixed), count))
        return self.mixed

    def c(self, state, tensor):
        key = (state, tensor)
        if key not in self.numbers:
            base = mix(list(STATES).index(state)) + fnv(tensor)
            mixed = self.mixes(self.sizes[tensor])
            self.numbers[key] = [mix((base + mixed[i]) & M64) for i in range(self.sizes[tensor])]
        return self.numbers[key]

    def values(self, state, tensor, power):
        mask = (1 << 8 * STATES[state]) - 1
        return [x * power & mask for x in self.c(state, tensor)]

    def digests(self, held, power):
        told = {}
        for (state, tensor), pieces in held.items():
            x, mixed = self.values(state, tensor, power), self.mixes(self.sizes[tensor])
            told[f"{state} {tensor}"] = sum(mix((x[i] + mixed[i]) & M64) for begin, end in pieces for i in range(begin, end)) & M64
        return told

    def missing(self, layout, ranks):
        """The first (state, tensor) of which these ranks of a layout do not hold every element, or nothing. Parameters are derived where ZeRO cuts
        the states, and are whole on every replica; so all states count."""
        all_of = self.regions(layout)
        together = {}
        for r in ranks:
            for key, pieces in all_of[r].items():
                together.setdefault(key, []).extend(pieces)
        for state in STATES:
            for tensor, size in self.sizes.items():
                at = 0
                for begin, end in sorted(together.get((state, tensor), [])):
                    if begin <= at:
                        at = max(at, end)
                if at < size:
                    return f"{state} {tensor}"
        return None


def degrees(layout):
    told = dict(x.split("=") for x in layout.split(",") if x)
    return {key: int(told.get(key, 1)) for key in ("tp", "cp", "pp", "dp")}


def dp_of(layout, rank):
    d = degrees(layout)
    return rank // (d["tp"] * d["cp"]) % d["dp"]


def read_logs(paths):
    """({id: [event]}, faults) of log files, one process each."""
    logs, faults = {}, []
    for name, path in paths.items():
        logs[name] = []
        text = pathlib.Path(path).read_bytes().decode(errors="replace") if pathlib.Path(path).exists() else ""
        if text and not text.endswith("\n"):
            faults.append(f"C0 the log of {name} ends within a line: {text[-80:]!r}")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                logs[name].append(json.loads(line))
            except ValueError as wrong:
                faults.append(f"C0 line {number} of {name} is no JSON ({wrong}): {line[:120]!r}")
    return logs, faults


def read_dumps(folder):
    """{rank: (description, bytes)}."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        found[int(path.stem)] = (json.loads(path.read_text()), path.with_suffix(".bin").read_bytes())
    return found


class Judge:
    """job: {"steps", "batch", "snapshot": k, "codes": {id: exit code or -signal}, "asks": [(id, words, text)], "struck": ids that were killed or
    stopped by the test, "finish": whether an end before all steps was asked for}. faults: sentences; facts: what was seen."""

    def __init__(self, model, logs, dumps, job):
        self.model, self.logs, self.dumps, self.job = model, logs, dumps, job
        self.faults, self.facts, self.sums = [], {}, Sums()
        if self.forms():
            self.worlds_of_epochs()
            self.chain()
            self.samples()
            self.late_steps()
            self.ends()
            self.elements()
            self.answers()

    def fault(self, text):
        self.faults.append(text)

    def of(self, ev):
        return [(name, x) for name, log in self.logs.items() for x in log if x["ev"] == ev]

    def forms(self):
        for name, log in self.logs.items():
            for x in log:
                if x.get("ev") not in FIELDS:
                    self.fault(f"C0 {name} says {str(x)[:100]}, which is no word of the log")
                elif x.get("id") != name or not isinstance(x.get("t"), float):
                    self.fault(f"C0 {name}: {str(x)[:100]} has no time or another's name")
                elif any(f not in x for f in FIELDS[x["ev"]]):
                    self.fault(f"C0 {name}: {x['ev']} has no {[f for f in FIELDS[x['ev']] if f not in x]}")
                elif x["ev"] == "gone" and x["by"] not in ("eof", "silence", "lease"):
                    self.fault(f"C0 {name}: gone by {x['by']!r}")
        return not self.faults

    def worlds_of_epochs(self):
        self.worlds = {}
        for name, x in self.of("world"):
            told = {f: x[f] for f in WORLD}
            first = self.worlds.setdefault(x["epoch"], dict(told, epoch=x["epoch"], t=x["t"], by=name, entered=set()))
            if any(first[f] != told[f] for f in WORLD):
                self.fault(f"C1 epoch {x['epoch']} is {told} to {name} and {({f: first[f] for f in WORLD})} to {first['by']}")
            if name not in x["members"]:
                self.fault(f"C1 {name} enters epoch {x['epoch']}, whose members are {x['members']}")
            if name in first["entered"]:
                self.fault(f"C1 {name} enters epoch {x['epoch']} twice")
            first["entered"].add(name)
            first["t"] = min(first["t"], x["t"])
        for name, log in self.logs.items():
            mine = [x["epoch"] for x in log if x["ev"] == "world"]
            if mine != sorted(mine):
                self.fault(f"C1 {name} enters epochs {mine}")
        self.epochs = sorted(self.worlds)
        for e in self.epochs:
            w = self.worlds[e]
            try:
                size = len(self.model.regions(w["layout"]))
            except ValueError as wrong:
                self.fault(f"C1 epoch {e}: {wrong}")
                continue
            if size != len(w["members"]) or len(set(w["members"])) != size:
                self.fault(f"C1 epoch {e} has layout {w['layout']} for {size} and members {w['members']}")

    def out_after(self, name, epoch):
        """Is a member in no world after this one?"""
        return all(name not in self.worlds[e]["members"] for e in self.epochs if e > epoch)

    def chain(self):
        self.history, self.cursor = [], [0]  # step s: (epoch, begin, end); cursor of version s
        if not self.epochs:
            return
        broken = {x["epoch"] for _, x in self.of("broken")}
        first = self.worlds[self.epochs[0]]
        if first["first_step"] != 0 or first["cursor"] != 0 or first["batch"] != self.job["batch"]:
            self.fault(f"C2 the first epoch begins with step {first['first_step']}, cursor {first['cursor']}, batch {first['batch']}")
        last = [x["version"] for _, x in self.of("end") if x["why"] == "done"]
        ended = {}
        for name, x in self.of("step"):
            ended.setdefault(x["epoch"], {}).setdefault(x["step"], set()).add(name)
        begun = {}
        for name, x in self.of("samples"):
            begun.setdefault(x["epoch"], {}).setdefault(x["step"], set()).add(name)
        for i, e in enumerate(self.epochs):
            w, then = self.worlds[e], self.worlds[self.epochs[i + 1]] if i + 1 < len(self.epochs) else None
            before = self.epochs[i - 1] if i else 0
            if not self.job["struck"] and any(x not in broken for x in range(before + 1, e)):  # wrong evidence may break one
                self.fault(f"C2 epoch {e} follows {before}, nobody was struck, and none between was broken")
            reached = max([s + 1 for s in ended.get(e, {})], default=w["first_step"])
            whole = begun.get(e, {}).get(reached, set()) >= set(w["members"])  # its last step may have been made by a survivor's roll forward
            until = then["first_step"] if then else max(last, default=reached)
            if until > reached + whole:
                self.fault(f"C2 {'epoch ' + str(self.epochs[i + 1]) + ' begins with' if then else 'the job ends before'} step {until}, epoch {e} reached {reached}")
            if until < w["first_step"] and not self.job["snapshot"]:
                self.fault(f"C2 epoch {e} begins with step {w['first_step']}, the next with {until}, and there are no snapshots")
            if until < reached - 2 * (self.job["snapshot"] or 0):  # two versions are kept
                stays = [n for s in range(until, reached) for n in ended.get(e, {}).get(s, ()) if not self.out_after(n, e)]
                if stays or self.job["snapshot"]:
                    self.fault(f"C2 epoch {e} reached {reached}, the next begins with {until}")
            while len(self.history) < until:
                begin = self.cursor[-1]
                self.history.append((e, begin, begin + w["batch"]))
                self.cursor.append(begin + w["batch"])
            del self.history[until:], self.cursor[until + 1:]
            if then and then["cursor"] != self.cursor[min(until, len(self.history))]:
                self.fault(f"C2 epoch {self.epochs[i + 1]} begins with step {until} at sample {then['cursor']}, the chain is at {self.cursor[until]}")
        self.final = len(self.history)
        self.power = [1]
        for _, begin, end in self.history:
            self.power.append((self.power[-1] * GOLD + self.sums(begin, end)) & M64)

    def samples(self):
        told = {}
        for name, x in self.of("samples"):
            key = (x["epoch"], x["step"], name)
            if key in told:
                self.fault(f"C3 {name} says its samples of step {x['step']}, epoch {x['epoch']}, twice")
            told[key] = x
            w = self.worlds.get(x["epoch"])
            if w is None or name not in w["members"]:
                self.fault(f"C3 {name} takes samples in epoch {x['epoch']}, of which it is none")
                continue
            dp, c = dp_of(w["layout"], w["members"].index(name)), w["cursor"] + w["batch"] * (x["step"] - w["first_step"])
            n, b = degrees(w["layout"])["dp"], w["batch"]
            if (x["dp"], x["of"], x["begin"], x["end"]) != (dp, n, c + dp * b // n, c + (dp + 1) * b // n):
                self.fault(f"C3 {name} takes [{x['begin']}, {x['end']}) as {x['dp']} of {x['of']} in step {x['step']}, epoch {x['epoch']}; its share is "
                           f"[{c + dp * b // n}, {c + (dp + 1) * b // n}) as {dp} of {n}")
        steps = {(x["epoch"], x["step"], name) for name, x in self.of("step")}
        end_of = 0
        for s, (e, begin, end) in enumerate(self.history):
            if begin != end_of:
                self.fault(f"C3 step {s} begins at sample {begin}, {end_of} comes next")
            end_of = end
            shares = set()
            for name in self.worlds[e]["members"]:
                x = told.get((e, s, name))
                if x is None:
                    self.fault(f"C3 step {s} is of the history, and {name} of epoch {e} took no samples")
                else:
                    shares.add((x["begin"], x["end"]))
            at = begin
            for b, n in sorted(shares):
                if b != at:
                    self.fault(f"C3 step {s}: [{b}, {n}) after {at}")
                at = n
            if at != end:
                self.fault(f"C3 step {s} uses samples up to {at} of {end}")
        for e, s, name in told:
            if s > self.worlds.get(e, {"first_step": s})["first_step"] and (e, s - 1, name) not in steps:
                self.fault(f"C3 {name} begins step {s} of epoch {e} and did not end the one before")
        for name, x in self.of("step"):
            if (x["epoch"], x["step"], name) not in told:
                self.fault(f"C3 {name} ends step {x['step']} of epoch {x['epoch']} and took no samples")
                continue
            w = self.worlds[x["epoch"]]
            c = w["cursor"] + w["batch"] * (x["step"] - w["first_step"])
            if x["sum"] != self.sums(c, c + w["batch"]):
                self.fault(f"C5 {name}: the sum of step {x['step']}, epoch {x['epoch']}, is not that of samples [{c}, {c + w['batch']})")

    def late_steps(self):
        for name, x in self.of("step"):
            for e in self.epochs:
                w = self.worlds[e]
                if e > x["epoch"] and w["first_step"] <= x["step"] and (not self.job["snapshot"] or x["t"] > w["t"]) and not self.out_after(name, x["epoch"]):
                    self.fault(f"C4 {name} ends step {x['step']} in epoch {x['epoch']}, {x['t'] - w['t']:+.3f} s after epoch {e} began with step {w['first_step']}")
                    break

    def living(self, e):
        """Ranks of a world whose processes were not struck and did not say that they are out."""
        ends = {name: x["why"] for name, x in self.of("end")}
        return [r for r, name in enumerate(self.worlds[e]["members"]) if name not in self.job["struck"] and ends.get(name) != "expelled"]

    def is_spare(self, name, version):
        """It gave its state away in a recovery that found no place for it, for which it had promised: it holds nothing, and would have come again."""
        last = max(e for e in self.epochs if name in self.worlds[e]["entered"])
        after = next((e for e in self.epochs if e > last), None)
        promised = any(x["ev"] == "broken" and x["epoch"] >= last for x in self.logs[name])
        return version == -1 and promised and after is not None and name not in self.worlds[after]["members"]

    def left_over(self):
        """Who was neither killed nor is out: without them nobody says how the job ends, and nobody answers."""
        out = {name for name, x in self.of("end") if x["why"] in ("expelled", "left")}
        return [name for name, code in self.job["codes"].items() if code != -9 and name not in out]

    def ends(self):
        whys = {}
        for name, log in self.logs.items():
            code, words = self.job["codes"].get(name), [x for x in log if x["ev"] == "end"]
            if code == -9:
                if words and name not in self.job["struck"]:
                    self.fault(f"C7 {name} was killed after its last word")
                continue
            if len(words) != 1 or log[-1]["ev"] != "end":
                self.fault(f"C7 {name} (exit code {code}) says {len(words)} words at its end, the last line is {str(log[-1] if log else None)[:120]}")
                continue
            whys[name] = words[0]["why"]
            if EXIT.get(words[0]["why"]) != code:
                self.fault(f"C7 {name} ends {words[0]['why']!r} with exit code {code}: {words[0].get('sentence', '')}")
        for name, code in self.job["codes"].items():
            if name not in self.logs:
                self.fault(f"C7 {name} ended with {code} and has no log")
        done = {name: x["version"] for name, x in self.of("end") if x["why"] == "done"}
        lost = [name for name, why in whys.items() if why == "lost"]
        self.facts.update(whys=whys, lost=bool(lost))
        if not self.epochs:
            return
        last = self.worlds[self.epochs[-1]]
        members = {name: done[name] for name in last["members"] if name in done}
        if done and lost:
            self.fault(f"C7 the job is done to {sorted(done)} and lost to {lost}")
        if not done and not lost and self.left_over():
            self.fault(f"C7 nobody says that the job is done or lost: {whys}")
        if done and not members:
            self.fault(f"C7 the job is done, and no member of its last world, {last['members']}, says so")
        for name in done:
            if name not in members and any(name in w["entered"] for w in self.worlds.values()) and not self.is_spare(name, done[name]):
                self.fault(f"C7 {name} says done at version {done[name]}, and is out: the last world is of {last['members']}")
        if len(set(members.values())) > 1:
            self.fault(f"C7 members end at versions {members}")
        for version in set(members.values()):
            if version != self.job["steps"] and not self.job["finish"]:
                self.fault(f"C7 the job is done with version {version} of {self.job['steps']}")
        for name in last["members"]:
            if name not in done and not lost and whys.get(name) not in ("left", "expelled") and self.job["codes"].get(name) != -9:
                self.fault(f"C7 {name} is of the last world and ends {whys.get(name)!r}")
        for name in lost:
            x = next(x for _, x in self.of("end") if x["id"] == name)
            if not x.get("sentence"):
                self.fault(f"C7 {name} says lost, and not what is missing")
        # Under a budget a survivor has given back what others had not got yet: then the switch was torn, and its sentence counts what.
        torn = self.job.get("budget") and lost and all("was torn: lost are " in x["sentence"] for _, x in self.of("end") if x["why"] == "lost")
        if lost and not torn and all(self.model.missing(self.worlds[e]["layout"], self.living(e)) is None for e in self.epochs[-2:]):
            self.fault(f"C7 the job is lost, and survivors {[last['members'][r] for r in self.living(self.epochs[-1])]} of {last['layout']} hold every element")

    def elements(self):
        if not self.epochs:
            return
        last = self.worlds[self.epochs[-1]]
        for name, x in self.of("end"):
            mine = [e for e in self.epochs if name in self.worlds[e]["entered"]]
            if x["why"] not in ("done", "left") or not mine or x["why"] == "done" and mine[-1] != self.epochs[-1]:
                continue
            if x["version"] >= len(self.power):
                self.fault(f"C6 {name} ends at version {x['version']}, the history at {self.final}")
                continue
            w = self.worlds[mine[-1]]
            held = self.model.regions(w["layout"])[w["members"].index(name)]
            # It gave all of it away as it went; where its change broke off and nobody entered the next world, it may have all.
            if self.job.get("budget") and x["why"] == "left" and (mine[-1] + 1 in self.epochs or not x["digests"]):
                held = {}
            if x["digests"] != self.model.digests(held, self.power[x["version"]]):
                wrong = {k for k in {*x["digests"], *(" ".join(k) for k in held)} if x["digests"].get(k) != self.model.digests({tuple(k.split(" ")): held[tuple(k.split(" "))]} if
                         tuple(k.split(" ")) in held else {}, self.power[x["version"]]).get(k)}
                self.fault(f"C6 {name} ({x['why']}, version {x['version']}, {w['layout']}): {len(wrong)} digests are wrong, {sorted(wrong)[0]!r} first")
        if self.dumps is None:
            return
        done = {name for name, x in self.of("end") if x["why"] == "done"} & set(last["members"])
        for rank, name in enumerate(last["members"]):
            if name in done and (rank not in self.dumps or self.dumps[rank][0]["id"] != name):
                self.fault(f"C6 rank {rank}, {name}, left no dump")
        for rank, (told, data) in self.dumps.items():
            if told["id"] not in done or last["members"].index(told["id"]) != rank:
                continue  # one that left, or was overwritten
            if told["layout"] != last["layout"] or told["version"] != self.final:
                self.fault(f"C6 rank {rank} dumps {told['layout']} at version {told['version']}; the job ended with {last['layout']} at {self.final}")
                continue
            held, twice = covered(parted(told["holds"]))
            if held != self.model.regions(last["layout"])[rank] or twice:
                self.fault(f"C6 rank {rank} holds other boxes than {last['layout']} says{', some twice' if twice else ''}")
            at = wrong = 0
            shown = ""
            for state, tensor, dims, box in parted(told["holds"]):
                x, form = self.model.values(state, tensor, self.power[self.final]), "H" if STATES[state] == 2 else "I"
                for first, count in runs(dims, box):
                    got = array.array(form, data[at:at + count * STATES[state]][:count * STATES[state]]) if len(data) >= at + count * STATES[state] else None
                    at += count * STATES[state]
                    if got is None or got.tolist() != x[first:first + count]:
                        wrong, shown = wrong + 1, shown or f"{state} {tensor} from {first}"
            if wrong or at != len(data):
                self.fault(f"C6 rank {rank}: {wrong} runs of elements are wrong, {shown or 'none'} first; {len(data)} bytes for {at}")

    def answers(self):
        said, texts = {}, {}
        could = self.left_over()
        for name, x in self.of("answer"):
            said.setdefault(x["request"], []).append(x["text"])
        for request, words, text in self.job["asks"]:
            if text is None:
                if could:
                    self.fault(f"C9 {request}, {' '.join(words)}: no answer")
                continue
            if not (text == "done" or text.startswith(("failed: ", "refused: ")) and "\n" not in text and len(text) > 12):
                self.fault(f"C9 {request}, {' '.join(words)}: {text!r} is no answer")
            if texts.setdefault(request, text) != text:
                self.fault(f"C9 {request} is answered {texts[request]!r} and {text!r}")
            if text == "done" and not self.was_done(words):
                self.fault(f"C9 {request}, {' '.join(words)}, is done, and no world says so")
        for request, lines in said.items():
            if len(lines) > 1:
                self.fault(f"C9 {request} is answered {len(lines)} times: {lines}")
            if request in texts and texts[request] not in lines:
                self.fault(f"C9 {request} is answered {texts[request]!r}, the log says {lines}")

    def was_done(self, words):
        kind, names = words[0], [n for word in words[1:] for n in word.split(",")]
        worlds = [self.worlds[e] for e in self.epochs]
        if kind == "join":  # or it was entered by nobody, since somebody died in it
            return self.job["struck"] or any(set(names) <= set(w["members"]) for w in worlds)
        if kind == "leave":
            return any(not set(names) & set(w["members"]) for w in worlds)  # a spare may be invited back later
        if kind == "replace":
            return self.job["struck"] or any(names[0] not in w["members"] and names[1] in w["members"] for w in worlds)
        if kind == "batch":
            return self.job["struck"] or any(w["batch"] == int(words[1]) for w in worlds)
        if kind == "layout":
            return self.job["struck"] or any(w["layout"] == words[1] for w in worlds)
        return True
