#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""box.py BOX: tools/box by itself. Nodes reach one another by TCP, not across a cut, and again once it heals; a cut is silent; what is wrong is
refused in a sentence; `down` leaves nothing. Exit 77 where tools/box says that this machine allows no network of one's own."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

box_tool = str(pathlib.Path(sys.argv[1]).resolve())
counted = failed = 0
SERVER = """
import socket, threading
def echo(c):
    while d := c.recv(100): c.sendall(d)
s = socket.create_server(("", 5000))
print("listening", flush=True)
while True: threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
"""
# Reads SECONDS WORD a line, sends the word and says what it hears within so long.
CLIENT = """
import socket, sys
s = None
for line in sys.stdin:
    seconds, word = line.split()
    try:
        if s is None: s = socket.create_connection((sys.argv[1], 5000), float(seconds))
        s.settimeout(float(seconds))
        if word != "nothing": s.sendall(word.encode())
        print(s.recv(100).decode() or "end", flush=True)
    except TimeoutError:
        print("silence", flush=True)
    except OSError as wrong:
        print(type(wrong).__name__, flush=True)
"""


def check(right, words):
    global counted, failed
    counted += 1
    if not right:
        failed += 1
        print("FAULT:", words, flush=True)


class Box:
    def __init__(self, folder):
        self.folder = folder

    def words(self, *words):
        return [sys.executable, box_tool, "--at", str(self.folder), *words]

    def __call__(self, *words):
        done = subprocess.run(self.words(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def well(self, *words):
        code, out, told = self(*words)
        check(code == 0, f"{' '.join(words)}: exit code {code}, {told}")
        return out

    def start(self, node, script, *words):
        return subprocess.Popen(self.words("run", str(node), sys.executable, "-c", script, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def say(client, word, seconds=5.0):
    client.stdin.write(f"{seconds} {word}\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def namespaces(pids):
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in pids for kind in ("net", "user")}


def in_use():
    found = set()
    for one in pathlib.Path("/proc").glob("[0-9]*/ns/*"):
        try:
            found.add(os.readlink(one))
        except OSError:  # it ended, or is another's
            pass
    return found


def reach(box, started):
    def client(node):
        started.append(box.start(node, CLIENT, "10.0.0.2"))
        return started[-1]
    clients = {node: client(node) for node in (0, 2)}
    for node in clients:
        check(say(clients[node], "before") == "before", f"node {node} does not reach node 1")
    box.well("cut", "0-1")
    check(say(clients[0], "lost", 1.5) == "silence", "a connection across a cut is answered, or reset")
    check(say(client(0), "new", 1.5) == "silence", "a call across a cut is answered, or refused")
    check(say(clients[2], "beside") == "beside", "node 2 does not reach node 1 beside a cut of 0 and 1")
    check("LOWER_UP" in box.well("run", "0", "ip", "link", "show", "eth0"), "a link went down by a cut")
    box.well("cut", "2-0,1")
    check(say(clients[2], "both", 1.5) == "silence", "node 2 reaches node 1 across a cut of 2 from 0 and 1")
    box.well("heal")
    check(say(clients[0], "nothing", 10) == "lost", "what was sent across a cut does not come once it heals")
    check(say(clients[2], "nothing", 10) == "both", "what was sent across the second cut does not come once it heals")
    check(say(client(0), "again") == "again", "node 0 does not reach node 1 once a cut heals")


def refused(box, other):
    box_is_up = [(("up", "2"), "is up at"), (("cut", "0"), "'0'"), (("cut", "0-0"), "node 0 on both sides"), (("cut", "0-3"), "'3'"), (("cut", "0,1-1"), "node 1"),
                 (("cut",), "0 words"), (("run", "3", "true"), "'3'"), (("run", "-1", "true"), "'-1'"), (("run", "0"), "1 words"), (("run", "0", "no-such-command"), "no-such-command"),
                 (("heal", "0"), "1 words"), (("sever", "0-1"), "'sever'")]
    none_is = [(("up", "0"), "0 nodes"), (("up", "many"), "'many'"), (("up", "201"), "'201'"), (("cut", "0-1"), "no box"), (("run", "0", "true"), "no box"), (("heal",), "no box")]
    for which, cases in ((box, box_is_up), (other, none_is)):
        for words, part in cases:
            code, out, told = which(*words)
            check(code == 125 and out == "" and part in told and re.fullmatch(r"tools/box: [^\n]{15,}\n", told), f"{' '.join(words)}: exit code {code}, {out + told!r}")


def taken_away(other):
    """Where no namespace is to be had: in one that allows none within."""
    code, out, told = (lambda d: (d.returncode, d.stdout, d.stderr))(subprocess.run(
        ["unshare", "-Urn", "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh", *other.words("up", "2")], capture_output=True, text=True, timeout=60))
    check(code == 77 and "allows no network" in told and told.count("\n") == 1, f"no namespace is allowed: exit code {code}, {out + told!r}")
    check(not (other.folder / "box.json").exists(), "what could not be made is kept")


def main(folder):
    box, other = Box(folder / "box"), Box(folder / "other")
    code, out, told = box("up", "3")
    if code == 77:
        print(told.strip())
        return 77
    held, started = [], []
    try:
        check(code == 0 and out == "0 10.0.0.1\n1 10.0.0.2\n2 10.0.0.3\n", f"up 3: exit code {code}, {out + told!r}")
        server = box.start(1, SERVER)
        check(server.stdout.readline() == "listening\n", "no server in node 1")
        reach(box, started)
        check(box("run", "2", "sh", "-c", "exit 7")[0] == 7, "another exit code than the command's")
        sleeps = box.start(2, "import time; print(1, flush=True); time.sleep(60)")
        sleeps.stdout.readline()
        os.killpg(sleeps.pid, signal.SIGKILL)
        check(sleeps.wait(10) == -signal.SIGKILL, "a signal does not come to the command")
        refused(box, other)
        taken_away(other)
        other.well("up", "2")
        started.append(other.start(0, CLIENT, "10.0.0.2"))
        check(say(started[-1], "there", 5) == "ConnectionRefusedError", "node 1 of another box is that of this one")
        before = in_use()
        for one in (box, other):
            found = [int(n) for n in re.findall(r"\d+", re.sub(r'"user": "[^"]*"', "", (one.folder / "box.json").read_text()))]
            check(namespaces(found) <= before and len(namespaces(found)) == len(found) + 1, f"nodes share a namespace: {namespaces(found)}")
            held += namespaces(found)
    finally:
        box.well("down")
        other.well("down")
    check(server.wait(10) == -signal.SIGKILL, "a process in a node goes on after `down`")
    check(all(one.wait(10) == -signal.SIGKILL for one in started), "a process in a node goes on after `down`")
    until = time.monotonic() + 5
    while (left := set(held) & in_use()) and time.monotonic() < until:
        time.sleep(0.01)
    check(held and not left, f"`down` leaves namespaces {left}")
    check(box("heal")[0] == 125 and box("down")[0] == 0, "`down` once more is an error")
    return 0


with tempfile.TemporaryDirectory(prefix="reshard-box-") as room:
    code = main(pathlib.Path(room))
if code == 0:
    print(f"{counted - failed} passed, {failed} failed")
sys.exit(code or bool(failed))
