# SPDX-License-Identifier: Apache-2.0
"""Jobs of tools/elastic on this machine: a store, workers and asks as processes, whose logs are read as they grow and judged by
oracle/job_log.py. `Tests` counts what was checked, and keeps the logs of faults; elastic.py and elastic_cuts.py bring the scenarios."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import job_log  # noqa: E402

LLAMA = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 4,
         "head_dim": 2, "intermediate_size": 8, "vocab_size": 24}
MOE = {"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2,
       "head_dim": 4, "intermediate_size": 8, "moe_intermediate_size": 4, "num_experts": 4, "vocab_size": 16}


class Tests:
    """What the jobs of one run share. Times and patience are `slow` times as long; logs of faults lie in `keep`."""

    def __init__(self, tool, slow=1.0, keep=None, etcd=False):
        self.tool, self.slow, self.etcd = tool.resolve(), slow, etcd
        self.room = pathlib.Path(tempfile.mkdtemp(prefix="reshard-elastic-", dir=keep))
        self.llama, self.moe = self.file("llama.json", LLAMA), self.file("moe.json", MOE)
        self.replicated = self.file("replicated.json", {"axes": "dp"})  # who joins or leaves changes dp alone, so that each element has more than one holder
        self.models = {}
        self.patience, self.grace, self.lease = 1.0 * slow, 0.4 * slow, 2.0 * slow
        self.limit = 60 * slow  # for one job; a busy machine takes a few seconds
        self.counted = self.failed = 0
        self.jobs, self.keeps = [], False
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with this

    def file(self, name, value):
        path = self.room / name
        path.write_text(json.dumps(value))
        return path

    def model(self, path):
        """What the tool `reshard` beside this one says of a model."""
        if path not in self.models:
            self.models[path] = job_log.Model(self.tool.parent / "reshard", path)
        return self.models[path]

    def check(self, right, words):
        self.counted += 1
        if not right:
            self.failed += 1
            print("FAULT:", words, flush=True)
        return right

    def close(self):
        for one in self.jobs:
            one.close()
        if not self.keeps and not self.failed:
            shutil.rmtree(self.room, ignore_errors=True)

    def tell(self):
        """Its last line, and the exit code."""
        print(f"{self.counted - self.failed} passed, {self.failed} failed")
        return bool(self.failed)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def state_of(pid):
    """R, S, T (stopped), Z, or nothing."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


class Job:
    """A store, workers and asks, each in a process group of its own; all of them end with it."""

    def __init__(self, tests, name, layout="dp=2", found=2, model=None, batch=8, steps=40, step_ms=5, snapshot=0, dump=True, **more):
        self.tests = tests
        self.name, self.layout, self.found, self.model, self.batch, self.steps, self.step_ms = name, layout, found, model or tests.llama, batch, steps, step_ms
        self.snapshot, self.more, self.folder = snapshot, more, tests.room / f"{len(tests.jobs) + 1:03}-{name}"
        (self.folder / "dump").mkdir(parents=True)
        self.dump, self.ended, self.died = dump, time.monotonic() + tests.limit, {}
        self.workers, self.struck, self.asks, self.pending = {}, set(), [], []
        self.finish, self.faulty, self.port, self.store = False, False, 0, None
        self.read_at, self.seen, self.calls = {}, {}, []
        tests.jobs.append(self)
        self.start_store()

    def home(self, name):
        """Where a process lives: the words before its own, and its host."""
        return [], "127.0.0.1"

    def url(self):
        return ("http://" if self.tests.etcd else "") + f"{self.home('store')[1]}:{self.port}"

    def spawn(self, name, *words):
        self.calls.append(" ".join(map(str, words)))
        with open(self.folder / f"{name}.out", "ab") as out:
            return subprocess.Popen([*self.home(name)[0], str(self.tests.tool), *map(str, words)], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

    def start_etcd(self):
        """An etcd of its own, which is there once it answers."""
        peers, self.port = free_port(), self.port or free_port()
        words = ["--data-dir", self.folder / "etcd", "--listen-client-urls", self.url(), "--advertise-client-urls", self.url(), "--listen-peer-urls", f"http://127.0.0.1:{peers}",
                 "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}", "--initial-cluster", f"default=http://127.0.0.1:{peers}"]
        with open(self.folder / "store.out", "ab") as out:
            self.store = subprocess.Popen(["etcd", *map(str, words)], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        until = time.monotonic() + 20 * self.tests.slow
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(self.url() + "/health", timeout=1) as answer:
                    if json.load(answer)["health"] == "true":
                        return
            except (OSError, ValueError):
                time.sleep(0.02)
        self.tests.check(False, f"{self.name}: the etcd does not answer")

    def start_store(self):
        if self.tests.etcd:
            return self.start_etcd()
        self.store = self.spawn("store", "store", "--listen", self.url(), "--journal", self.folder / "journal")
        if self.port == 0:
            until = time.monotonic() + 10
            while time.monotonic() < until and self.port == 0:
                text = (self.folder / "store.out").read_text()
                self.port = int(text.split(":")[-1]) if text.endswith("\n") and "listening" in text else 0
                time.sleep(0.005)
            self.tests.check(self.port, f"{self.name}: the store does not listen")

    def worker(self, name, kill=None, stop=None, **more):
        words = {"store": self.url(), "job": self.name, "id": name, "log": self.folder / f"{name}.log", "listen": f"{self.home(name)[1]}:0", "model": self.model,
                 "layout": self.layout, "found": self.found, "batch": self.batch, "steps": self.steps, "step-ms": self.step_ms, "patience": self.tests.patience, "grace": self.tests.grace,
                 "lease": self.tests.lease, **self.more, **more}
        words.update({"snapshot": self.snapshot} if self.snapshot else {}, **({"dump": self.folder / "dump"} if self.dump else {}))
        words.update({k: v for k, v in (("kill", kill), ("stop", stop)) if v})
        self.workers[name] = self.spawn(name, "worker", *[w for k, v in words.items() for w in ("--" + k, v)])
        return self

    def founders(self, names=None, **each):
        """Started one after the other, so that ranks are in their order."""
        for name in names or [f"n{i}" for i in range(self.found)]:
            self.worker(name, **each.get(name, {}))
            self.until(lambda: self.has(name, "start") or self.workers[name].poll() is not None, 5)
            time.sleep(0.03)
        if len(self.workers) >= self.found:  # before another comes, which on a busy machine might be registered first
            self.until(lambda: any(x["ev"] == "world" for x in self.events()) or any(p.poll() is not None for p in self.workers.values()), 3)
        return self

    def events(self, name=None):
        """What was logged so far."""
        for who in self.workers:
            path = self.folder / f"{who}.log"
            if path.exists():
                with open(path, "rb") as file:
                    file.seek(self.read_at.get(who, 0))
                    whole = file.read().rpartition(b"\n")[0]
                self.read_at[who] = self.read_at.get(who, 0) + len(whole) + bool(whole)
                for line in whole.splitlines():
                    try:
                        self.seen.setdefault(who, []).append(json.loads(line))
                    except ValueError:
                        pass  # the judge tells
        return self.seen.get(name, []) if name else [x for log in self.seen.values() for x in log]

    def has(self, name, ev, **fields):
        return any(x["ev"] == ev and all(x.get(k) == v for k, v in fields.items()) for x in self.events(name))

    def stepped(self, least=0, epoch=1):
        """Has somebody ended this step in this epoch or a later one?"""
        return any(x["ev"] == "step" and x["epoch"] >= epoch and x["step"] >= least for x in self.events())

    def until(self, true, seconds=15):
        until = min(time.monotonic() + seconds * self.tests.slow, self.ended)
        while time.monotonic() < until:
            if true():
                return True
            for name, p in self.workers.items():
                if p.poll() is not None:
                    self.died.setdefault(name, time.monotonic())
            time.sleep(0.004)
        return False

    def begin_ask(self, request, *words):
        self.pending.append((request, words, self.spawn(f"ask-{request}-{len(self.asks) + len(self.pending)}", "ask", "--store", self.url(), "--job", self.name,
                                                        "--id", request, *words), f"ask-{request}-{len(self.asks) + len(self.pending)}"))
        self.finish |= words[0] == "finish"
        return self.pending[-1]

    def end_ask(self, one, seconds=20):
        request, words, process, name = one
        try:
            process.wait(max(0.1, min(seconds * self.tests.slow, self.ended - time.monotonic())))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        text = (self.folder / f"{name}.out").read_text().removesuffix("\n")
        text = text.replace("reshard: ", "refused: ", 1) if text.startswith("reshard: ") and process.returncode == 4 else text  # what is none is not stored
        self.pending.remove(one)
        self.asks.append((request, words, text if process.returncode in (0, 1, 4) and text else None))
        return self.asks[-1][2]

    def ask(self, request, *words, seconds=20):
        return self.end_ask(self.begin_ask(request, *words), seconds)

    def status(self):
        done = subprocess.run([*self.home("status")[0], str(self.tests.tool), "status", "--store", self.url(), "--job", self.name], capture_output=True, text=True, timeout=10)
        return done.stdout.strip()

    def signal(self, name, what):
        if self.workers[name].poll() is None:
            self.struck.add(name)
            os.killpg(self.workers[name].pid, what)
        return time.monotonic()

    def kill(self, name):
        return self.signal(name, signal.SIGKILL)

    def stopped(self, name):
        return state_of(self.workers[name].pid) == "T"

    def end(self, seconds=30, judged=True):
        """Waits for all, judges, and says whether all was right."""
        self.until(lambda: all(p.poll() is not None for p in self.workers.values()), seconds)
        for one in list(self.pending):
            self.end_ask(one, 3)
        hung = [name for name, p in self.workers.items() if p.poll() is None]
        told = self.status() if hung else ""
        self.close()
        self.codes = {name: p.returncode if name not in hung else None for name, p in self.workers.items()}
        self.events()
        (self.folder / "calls.txt").write_text("\n".join(self.calls) + f"\n{self.codes}\n{self.asks}\n")
        before = self.tests.failed
        self.tests.check(not hung, f"{self.name}: C7 {hung} do not end; the record: {told}; {self.folder}")
        if judged:
            self.judge()
        return self.settle(before)

    def judge(self):
        logs, faults = job_log.read_logs({name: self.folder / f"{name}.log" for name in self.workers})
        try:
            self.verdict = job_log.Judge(self.tests.model(self.model), logs, job_log.read_dumps(self.folder / "dump") if self.dump else None, self.told())
            faults += self.verdict.faults
        except Exception as wrong:  # what the judge cannot read is a fault of its own
            faults.append(f"the judge cannot read this: {type(wrong).__name__} {wrong}")
        self.tests.check(not faults, f"{self.name}: {len(faults)} faults; " + "; ".join(faults[:4]) + f"; {self.folder}")

    def told(self):
        return {"steps": self.steps, "batch": self.batch, "snapshot": self.snapshot, "codes": self.codes, "asks": self.asks, "finish": self.finish,
                "budget": self.more.get("budget"), "struck": self.struck | {n for n, c in self.codes.items() if c == -9}}

    def settle(self, before):
        """Keeps the folder of a fault only."""
        if self.tests.failed == before and not self.faulty and not self.name.startswith("self"):
            shutil.rmtree(self.folder)
        self.tests.keeps |= self.tests.failed != before or self.faulty
        return self.tests.failed == before

    def close(self):
        for p in [*self.workers.values(), *[one[2] for one in self.pending], *([self.store] if self.store else [])]:
            if p.poll() is None:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                p.wait()

    def expect(self, right, words):
        """Said before end(), so that the folder of a fault is kept."""
        if not self.tests.check(right, f"{self.name}: {words}; {self.folder}"):
            self.faulty = True
        return right

    def epochs(self):
        return max((x["epoch"] for x in self.events() if x["ev"] == "world"), default=0)
