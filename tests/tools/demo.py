#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo.py DEMO SANITIZERS: the demo's JSON on switches of a tiny model holds what it promises, and its refusals are one sentence.
SANITIZERS is Meson's b_sanitize: a sanitizer's shadow memory counts in VmHWM, so only a build with none is held to its bound; and
ThreadSanitizer, that sees one process, is not shown what happens between several."""
import json
import pathlib
import subprocess
import sys
import tempfile

demo, sanitizers = sys.argv[1:]
between_processes = "thread" not in sanitizers
CONFIG = {"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 32, "moe_intermediate_size": 64, "num_experts": 8, "vocab_size": 1024,
          "tie_word_embeddings": True}
KEYS = ["switch", "from", "to", "ranks", "transport", "elements", "wrong", "moved_bytes", "least_bytes", "retained_bytes", "stages", "unread_kept_stages", "budget_bytes",
        "peak_excess_bytes", "seconds", "copy_seconds", "ratio", "warm_ratio", "vmhwm_bytes", "vmhwm_bound_bytes"]


def run(*arguments):
    return subprocess.run([demo, "--json", "--rounds", "1", *arguments], capture_output=True, text=True, timeout=100)


def own_words(result, transport):
    """The lines on stderr; over MPI those that are the demo's: an MPI and what it stands on write there, too, of the system."""
    return [line for line in result.stderr.splitlines() if transport != "mpi" or line.startswith("reshard")]


with tempfile.TemporaryDirectory() as folder:
    model = pathlib.Path(folder) / "tiny.config.json"
    model.write_text(json.dumps(CONFIG))
    smallest = pathlib.Path(folder) / "smallest.config.json"  # a refused budget was replayed in up to 4096 stages
    smallest.write_text(json.dumps({**CONFIG, "num_hidden_layers": 2, "hidden_size": 32, "head_dim": 8, "moe_intermediate_size": 16, "vocab_size": 64}))
    for before, after, options, ranks in [("tp=2,pp=2,dp=2,ep=2,zero=1", "dp=4,ep=4,zero=1", ["--budget", "1MiB"], 8),
                                          ("dp=4,zero=1", "tp=2,pp=2,dp=2", ["--to-devices", "2-9"], 10),
                                          ("tp=2", "tp=2", [], 2)]:
        result = run(str(model), before, after, *options)
        assert result.returncode == 0 and result.stderr == "", result
        (line,) = result.stdout.splitlines()
        told = json.loads(line)
        assert list(told) == KEYS, told
        assert (told["switch"], told["from"], told["to"], told["ranks"], told["transport"]) == ("tiny", before, after, ranks, "threads"), told
        assert told["wrong"] == 0 and told["elements"] > 0, told
        assert told["moved_bytes"] == told["least_bytes"], told
        assert told["peak_excess_bytes"] <= told["budget_bytes"], told
        assert sanitizers != "none" or told["vmhwm_bytes"] <= told["vmhwm_bound_bytes"], told
        assert abs(told["ratio"] - told["copy_seconds"] / told["seconds"]) < 0.01 + 0.01 * told["ratio"], told
        # seconds is rounded to a microsecond

    with_relay = KEYS[:8] + ["relayed_bytes", "phases"] + KEYS[8:]
    for transport in ["threads", "mailboxes"]:
        result = run("--relay", "2", "--transport", transport, str(model), "tp=2,pp=2,zero=1", "dp=4,ep=2,zero=1", "--budget", "2MiB")
        assert result.returncode == 0 and result.stderr == "", result
        told = json.loads(result.stdout)
        assert list(told)[:len(with_relay)] == with_relay, told
        assert told["wrong"] == 0 and told["elements"] > 0 and told["moved_bytes"] == told["least_bytes"], told
        assert told["relayed_bytes"] > 0 and told["phases"] > 1 and told["peak_excess_bytes"] <= told["budget_bytes"], told

    of_messages = ["messages", "wire_bytes", "staging_bytes", "lag"]
    beside = ["copy_seconds", "ratio", "warm_ratio", "vmhwm_bytes", "vmhwm_bound_bytes"]
    for transport, keys in [("mailboxes", KEYS + of_messages), ("sockets", [k for k in KEYS if k not in beside] + of_messages),
                            ("mpi", [k for k in KEYS if k not in beside] + of_messages + ["alltoallw_seconds", "alltoallw_ratio"])]:
        if transport == "mpi" and not (pathlib.Path(demo).parent / "demo-mpi").exists() or transport != "mailboxes" and not between_processes:
            continue
        result = run("--transport", transport, str(model), "tp=2,pp=2,zero=1", "dp=4,ep=2,zero=1", "--budget", "2MiB")
        assert result.returncode == 0 and own_words(result, transport) == [], result
        (line,) = result.stdout.splitlines()
        told = json.loads(line)
        assert list(told) == keys, told
        assert told["transport"] == transport and told["lag"] == 1 and told["stages"] > 1, told
        assert told["wrong"] == 0 and told["elements"] > 0 and told["moved_bytes"] == told["least_bytes"], told
        assert 0 < told["staging_bytes"] <= told["budget_bytes"] and told["peak_excess_bytes"] <= told["budget_bytes"], told
        assert told["messages"] >= told["stages"], told
        assert transport != "mpi" or told["alltoallw_seconds"] > 0 and told["alltoallw_ratio"] > 0, told
        assert told["moved_bytes"] <= told["wire_bytes"] <= 1.2 * told["moved_bytes"] + 512 * told["messages"], told

    faulty = [str(model), "tp=2,pp=2,zero=1", "dp=4,ep=2,zero=1"]
    for fault, options, outcomes in between_processes * [("kill:1@0", ["--budget", "2MiB", "--then", "tp=2"], {"torn"}), ("stop:0@2", ["--budget", "2MiB", "--patience", "1"], {"torn"}),
                                     ("kill:3@0", ["--budget", "64MiB", "--keep", "--then", "dp=3"], {"failed", "unknown"})]:
        result = run(*faulty, "--transport", "sockets", "--fault", fault, *options)
        assert result.returncode == 0 and result.stderr == "", result
        victim = int(fault[5])
        told = [json.loads(line) for line in result.stdout.splitlines()]
        assert [t["device"] for t in told[:3]] == [d for d in range(4) if d != victim], result
        for t in told[:3]:
            assert list(t) == ["device", "outcome", "gone", "stages", "in_place_stages", "seconds_to_report", "holds", "wrong", "sentence"], t
            assert t["outcome"] in outcomes and t["gone"] == [victim] and t["wrong"] == 0 and t["holds"], t
            assert 0 < t["seconds_to_report"] < (2 if fault.startswith("kill") else 3) and f"device {victim}" in t["sentence"], t
            assert (t["outcome"], t["stages"], t["in_place_stages"]) == (told[0]["outcome"], told[0]["stages"], told[0]["in_place_stages"]), t
        assert list(told[3]) == ["lost"] and told[3]["lost"], told[3]
        assert list(told[3]["lost"][0]) == ["state", "tensor", "dims", "box"] == list(told[0]["holds"][0]), told[3]
        assert len(told) == (5 if "--then" in options else 4), result
        if "--then" in options:
            assert list(told[4]) == [k for k in KEYS if k not in beside] + of_messages, told[4]
            assert told[4]["wrong"] == 0 and told[4]["elements"] > 0 and told[4]["moved_bytes"] == told[4]["least_bytes"], told[4]

    if between_processes:
        result = run("--warm", "--transport", "sockets", str(model), "tp=2,pp=2,zero=1", "dp=4,ep=2,zero=1")
        assert result.returncode == 0 and own_words(result, "sockets") == [], result
        told = json.loads(result.stdout)
        assert told["budget_bytes"] is None and told["stages"] == 1 and told["wrong"] == 0 and told["elements"] > 0, told

    for arguments, words in [((str(model), "tp=3", "dp=2"), "legal are tp in"), (("/no/such/config.json", "", ""), "cannot be read"),
                             ((str(smallest), "tp=2,pp=2,dp=2,zero=1", "dp=8,zero=1", "--budget", "1000"), "the least budget that does is"),
                             (("--nothing",), "no option"), ((*faulty, "--fault", "kill:1@900", "--budget", "2MiB"), "none was the 900th"),
                             ((*faulty, "--fault", "kill:9@0"), "there is no device 9"), ((*faulty, "--fault", "burn:1@0"), "it is written kill:DEVICE@STAGE"),
                             ((*faulty, "--fault", "kill:1@0", "--budget", "2MiB", "--keep"), "the least budget that does is"),
                             ((*faulty, "--fault", "kill:1@0", "--then", "dp=4"), "of 4 devices one does not survive"),
                             ((*faulty, "--fault", "kill:1@0", "--patience", "0"), "seconds, 0.1 to 3600"), ((*faulty, "--keep"), "are of --fault"),
                             ((*faulty, "--fault", "kill:1@0", "--transport", "threads"), "give --transport sockets"), ((str(model), "dp=2"), "a MODEL and two layouts are wanted"),
                             (("--rounds", "x"), "--rounds"), ((str(model), "tp=2", "dp=2", "--warm"), "--warm is for whole switches over sockets"), (("--relay", "0"), "the devices of a node are 1 to 1024"),
                             ((*faulty, "--fault", "kill:1@0", "--relay", "2"), "--relay is for whole switches"), (("--transport", "pigeons"), "it is threads, mailboxes, sockets or mpi"),
                             (("--transport", "sockets", str(smallest), "tp=2,pp=2,dp=2,zero=1", "dp=8,zero=1", "--budget", "1000"),
                              "the least budget that does is"),
                             (("--transport", "mpi", str(smallest), "tp=2,pp=2,dp=2,zero=1", "dp=8,zero=1", "--budget", "1000"),
                              "the least budget that does is" if (pathlib.Path(demo).parent / "demo-mpi").exists() else "built without MPI")]:
        if words == "the least budget that does is" and {"--transport", "--fault"} & set(arguments) and not between_processes:
            continue
        result = run(*arguments)
        assert result.returncode == 1 and result.stdout == "", result
        said = own_words(result, "mpi" if "mpi" in arguments else "")
        assert len(said) == 1 and said[0].startswith("reshard: ") and words in said[0], result

print("1 passed, 0 failed")
