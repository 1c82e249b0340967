#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dtensor_layouts.py TOOL [--cases N] [--seed S] [--golden FILE]: random layouts with shard=rows against torch itself.

Every rank of a layout is a process with torch's fake process group. It numbers the elements of each tensor, cuts it by distribute_tensor()
over tp, ep and etp and then by fully_shard() over the sharding group, and reads back what numbers it holds; those must be what
`reshard regions --json` says of that rank, in a state that no level shards and in one that level 1, 2 or 3 does. With names=megatron what tp
cuts is Megatron's, and fully_shard() cuts that. What cannot be made is refused by both. --golden writes the cases to a file for
tests that have no torch. Where torch is missing, this is skipped."""
import argparse
import json
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import tempfile

STATES = {"param": 3, "grad": 2, "exp_avg": 1}  # and the least zero that shards each
LARGEST_WORLD = 12
STATES_TEXT = "param:bf16:3,grad:fp32:2,exp_avg:fp32:1"


# ---- what is drawn

def draw_model(dice):
    kind = dice.choice(["Llama", "Mistral", "Qwen2", "Qwen3", "Qwen3Moe", "Qwen3Moe", "Mixtral", "Mixtral"])
    groups = dice.choice([1, 1, 2, 3, 4, 4])
    config = {"architectures": [kind + "ForCausalLM"], "num_hidden_layers": 2 if dice.random() < 0.1 else 1, "hidden_size": dice.choice([5, 8, 10, 12]),
              "num_attention_heads": groups * dice.choice([1, 2, 4]), "num_key_value_heads": groups, "head_dim": dice.choice([2, 3, 4]),
              "intermediate_size": dice.choice([7, 8, 12, 13]), "vocab_size": dice.choice([9, 12, 23, 24, 31]),
              "tie_word_embeddings": dice.random() < 0.2}
    if kind == "Qwen3Moe":
        config |= {"num_experts": dice.choice([3, 4, 5, 6]), "moe_intermediate_size": dice.choice([5, 6, 8])}
    if kind == "Mixtral":
        config["num_local_experts"] = dice.choice([3, 4, 5, 6])
    return config


def experts_of(config):
    return config.get("num_experts", config.get("num_local_experts", 0))


def draw_layout(dice, experts):
    """A layout of at most LARGEST_WORLD ranks, as values and as text."""
    while True:
        d, text = draw_any_layout(dice, experts)
        if d["tp"] * d["cp"] * d["dp"] <= LARGEST_WORLD:
            return d, text


def draw_any_layout(dice, experts):
    d = {"tp": dice.choice([1, 2, 2, 3, 4, 5, 7]), "cp": dice.choice([1, 1, 1, 2]), "dp": dice.choice([1, 2, 2, 3, 4, 6, 8]), "zero": dice.randrange(4),
         "shard": "rows", "names": dice.choice(["hf", "hf", "hf", "megatron"])}
    if d["names"] == "megatron" and dice.random() < 0.8:
        d["tp"] = dice.choice([1, 1, 2])
    if dice.random() < 0.3:
        d["instances"] = dice.choice([i for i in (2, 3) if d["cp"] * d["dp"] % i == 0] * 3 + [2])
    if dice.random() < 0.15:
        d["pad"] = dice.choice([1, 3, 8])
    if experts > 0:
        d["experts"] = dice.choice(["grouped", "grouped", "separate"])
        if dice.random() < 0.7:
            ranks = d["tp"] * d["cp"] * d["dp"]
            d["ep"] = dice.choice([e for e in range(1, 7) if ranks % e == 0] * 6 + [2])
            if dice.random() < 0.4:
                d["etp"] = dice.choice([e for e in range(1, 6) if ranks // d["ep"] % e == 0] or [1])
    items = [f"{key}={value}" for key, value in d.items() if value != "separate"]  # the default
    dice.shuffle(items)
    return d, ",".join(items)


def filled(d):
    """Every degree, those not named by their defaults."""
    full = {"instances": 1, "pad": 0, "experts": "separate", "ep": 1} | d
    full.setdefault("etp", 1 if full["ep"] > 1 else full["tp"])
    full["world"] = full["tp"] * full["cp"] * full["dp"]
    return full


# ---- what cannot be made

def why_not(c, d):
    """Why the job cannot be: no such mesh, no whole modules, or with Megatron's tensors Megatron's divisions. DTensor itself divides nothing."""
    experts, group = experts_of(c), d["cp"] * d["dp"]
    if group % d["instances"] != 0:
        return "no mesh of instances"
    if experts > 0:
        if d["world"] % (d["etp"] * d["ep"]) != 0:
            return "no mesh of experts"
        if d["world"] // (d["etp"] * d["ep"]) % d["instances"] != 0:
            return "no mesh of experts' instances"
        if d["experts"] == "separate" and experts % d["ep"] != 0:
            return "experts that are modules of their own are dealt whole, equally many to each"
    if d["names"] == "hf":
        return None
    heads, groups, size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    divided = [(heads, d["tp"]), ((heads + 2 * groups) * size, d["tp"])]
    if d["pad"] == 0:
        divided.append((c["vocab_size"], d["tp"]))
    if experts == 0:
        divided.append((c["intermediate_size"], d["tp"]))
    else:
        divided += [(experts, d["ep"]), (c.get("moe_intermediate_size", c["intermediate_size"]), d["etp"])]
    for extent, degree in divided:
        if extent % degree != 0:
            return f"Megatron divides {extent} by {degree}"
    if groups % d["tp"] != 0 and d["tp"] % groups != 0:
        return "Megatron's groups"
    return None


# ---- the tensors of a job

def tensors(c, d):
    """[name, shape, cut, expert]: cut is the dimension that tp cuts, None, or "gate and up"; expert a number, None or "all", of one tensor
    [E, ...] whose name has {} for the number."""
    hf, experts = d["names"] == "hf", experts_of(c)
    kind, h, ffn = c["architectures"][0], c["hidden_size"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    rows, unit = c["vocab_size"], d["pad"] * d["tp"]
    if unit > 0:
        rows = -(-rows // unit) * unit
    made = [["model.embed_tokens.weight" if hf else "embedding.word_embeddings.weight", [rows, h], 0, None]]
    for layer in range(c["num_hidden_layers"]):
        a = f"model.layers.{layer}." if hf else f"decoder.layers.{layer}."
        at = a + ("self_attn." if hf else "self_attention.")
        made.append([at + ("o_proj.weight" if hf else "linear_proj.weight"), [h, q], 1, None])
        made.append([a + "input_layernorm.weight" if hf else at + "linear_qkv.layer_norm_weight", [h], None, None])
        for name, extent in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)) if hf else (("linear_qkv", q + 2 * kv),):
            made.append([f"{at}{name}.weight", [extent, h], 0, None])
            if kind.startswith("Qwen2"):
                made.append([f"{at}{name}.bias", [extent], 0, None])
        if kind.startswith("Qwen3"):
            for name in ("q_norm", "k_norm") if hf else ("q_layernorm", "k_layernorm"):
                made.append([f"{at}{name}.weight", [c["head_dim"]], None, None])
        norm = "post_attention_layernorm.weight" if hf else "pre_mlp_layernorm.weight" if experts else "mlp.linear_fc1.layer_norm_weight"
        made.append([a + norm, [h], None, None])
        if experts == 0:
            if hf:
                made += [[a + f"mlp.{name}.weight", [ffn, h], 0, None] for name in ("gate_proj", "up_proj")]
                made.append([a + "mlp.down_proj.weight", [h, ffn], 1, None])
            else:
                made += [[a + "mlp.linear_fc1.weight", [2 * ffn, h], "gate and up", None], [a + "mlp.linear_fc2.weight", [h, ffn], 1, None]]
            continue
        width = c.get("moe_intermediate_size", ffn)
        block = "block_sparse_moe." if kind.startswith("Mixtral") and hf else "mlp."
        made.append([a + ("mlp.router.weight" if not hf else block + "gate.weight"), [experts, h], None, None])
        names = ("w1", "w3", "w2") if block != "mlp." else ("gate_proj", "up_proj", "down_proj")
        for name, shape, cut in [(names[0], [width, h], 0), (names[1], [width, h], 0), (names[2], [h, width], 1)] if hf else \
                [("linear_fc1", [2 * width, h], "gate and up"), ("linear_fc2", [h, width], 1)]:
            pattern = a + (f"{block}experts.{{}}.{name}.weight" if hf else f"mlp.experts.{name}.weight{{}}")
            if d["experts"] == "grouped":
                made.append([pattern, [experts] + shape, cut, "all"])
            else:
                made += [[pattern.format(e), shape, cut, e] for e in range(experts)]
    made.append(["model.norm.weight" if hf else "decoder.final_layernorm.weight", [h], None, None])
    if not c["tie_word_embeddings"]:
        made.append(["lm_head.weight" if hf else "output_layer.weight", [rows, h], 0, None])
    return made


# ---- what a rank holds, by torch

def runs(numbers):
    """[begin, end, begin, end, ...] of ascending numbers."""
    found = []
    for number in numbers:
        if found and found[-1] == number:
            found[-1] = number + 1
        else:
            found += [number, number + 1]
    return found


def megatrons_part(whole, cut, parts, part):
    """What Megatron's tp keeps of a tensor: an equal part of its rows or columns, of gate and of up each."""
    import torch
    cut_rows = whole.dim() - (2 if whole.dim() > 1 else 1)
    if cut == "gate and up":
        return torch.cat([half.tensor_split(parts, cut_rows)[part] for half in whole.tensor_split(2, cut_rows)], cut_rows)
    return whole if cut is None else whole.tensor_split(parts, whole.dim() - 1 if cut == 1 else cut_rows)[part]


def rank_holds(c, d, rank):
    """{tensor: [numbers held where tp, ep and etp alone cut it, numbers held where fully_shard() cut it too]}"""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=d["world"], store=FakeStore())
    copies, experts = d["instances"], experts_of(c)
    dense = init_device_mesh("cpu", (copies, d["cp"] * d["dp"] // copies, d["tp"]), mesh_dim_names=("replicate", "shard", "tp"))
    meshes = {"dense": dense}
    if experts > 0:
        edp = d["world"] // (d["etp"] * d["ep"])
        meshes["expert"] = init_device_mesh("cpu", (copies, edp // copies, d["ep"], d["etp"]), mesh_dim_names=("replicate", "shard", "ep", "etp"))
    axes = {"dense": {("tp",): dense["tp"]}}
    if experts > 0:
        axes["expert"] = {("etp",): meshes["expert"]["etp"], ("ep", "etp"): meshes["expert"]["ep", "etp"]}
    held, modules = {}, {kind: torch.nn.Module() for kind in meshes}
    parameters = {}
    for name, shape, cut, expert in tensors(c, d):
        whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
        kind = "dense" if expert is None else "expert"
        tp, ep = ("tp", None) if expert is None else ("etp", meshes[kind].get_local_rank("ep"))
        if isinstance(expert, int) and expert // (experts // d["ep"]) != ep:
            continue
        if d["names"] == "megatron":
            local = megatrons_part(whole, cut, d[tp], meshes[kind].get_local_rank(tp))
            if expert == "all":
                local = local.tensor_split(d["ep"])[ep]
            local = local.contiguous()
        else:
            at = Replicate() if cut is None else Shard(cut + len(shape) - 2 if len(shape) > 1 else cut)
            placed = ([Shard(0), at], ("ep", "etp")) if expert == "all" else ([at], (tp,))
            local = distribute_tensor(whole, axes[kind][placed[1]], placed[0], src_data_rank=None)
        parameter = torch.nn.Parameter(local, requires_grad=True)
        modules[kind].register_parameter(f"p{len(parameters)}", parameter)
        parameters[name] = (modules[kind], f"p{len(parameters)}", whole, expert)
        held[name] = [local.to_local() if d["names"] == "hf" else local]
    for kind, module in modules.items():
        if list(module.parameters()):
            fully_shard(module, mesh=meshes[kind]["replicate", "shard"])
    answer = {}
    for name, (module, own, whole, expert) in parameters.items():
        held[name].append(getattr(module, own).to_local())
        flat = [sorted(int(x) for x in part.detach().reshape(-1).tolist()) for part in held[name]]
        if expert != "all":
            answer[name] = [runs(numbers) for numbers in flat]
            continue
        each = whole[0].numel()
        for e in range(experts):
            answer[name.format(e)] = [runs([x - e * each for x in numbers if x // each == e]) for numbers in flat]
    dist.destroy_process_group()
    return answer


def in_child(jobs, rank, pipe):
    try:
        pipe.send([rank_holds(c, d, rank) if rank < d["world"] else None for c, d in jobs])
    except Exception as error:  # told where it is read
        pipe.send(error)


def jobs_hold(jobs):
    """What each rank holds of each job, [job][rank]. A process has one rank in all of them: DTensor's caches do not ask which rank they answer."""
    by_rank = []
    for rank in range(max((d["world"] for _, d in jobs), default=0)):
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(jobs, rank, there))
        child.start()
        by_rank.append(here.recv())
        child.join()
        if isinstance(by_rank[-1], Exception):
            raise by_rank[-1]
    return [[by_rank[rank][i] for rank in range(d["world"])] for i, (_, d) in enumerate(jobs)]


# ---- what a rank holds, by the tool

def tool_holds(tool, config_file, text):
    """(sentence of a refusal, None) or (None, [{(state, tensor): numbers} by rank])"""
    result = subprocess.run([tool, "regions", config_file, text, "--states", STATES_TEXT, "--state", "all", "--json"], capture_output=True, text=True, timeout=100)
    if result.returncode != 0:
        assert result.returncode == 1 and result.stdout == "" and result.stderr.startswith("reshard: "), result
        return result.stderr.strip(), None
    ranks = []
    for answer in json.loads(result.stdout)["ranks"]:
        held = {}
        for region in answer["regions"]:
            starts = [0]
            for extent, (begin, end) in zip(region["dims"], region["box"]):
                starts = [start * extent + i for start in starts for i in range(begin, end)]
            numbers = held.setdefault((region["state"], region["tensor"]), [])
            assert not set(numbers) & set(starts), region
            numbers += starts
        ranks.append({key: runs(sorted(numbers)) for key, numbers in held.items()})
    return None, ranks


def expected(answer, zero):
    """{(state, tensor): numbers} of a rank, what is empty left out."""
    held = {}
    for name, (whole, sharded) in answer.items():
        for state, level in STATES.items():
            if numbers := sharded if zero >= level else whole:
                held[state, name] = numbers
    return held


def is_uneven(c, d):
    """Whether some tensor is cut into unequal parts by tp, ep or etp."""
    if d["names"] == "megatron":
        return False
    for _, shape, cut, expert in tensors(c, d):
        if cut is not None and shape[cut + len(shape) - 2 if len(shape) > 1 else cut] % d["tp" if expert is None else "etp"] != 0:
            return True
    return d["experts"] == "grouped" and experts_of(c) % d["ep"] != 0


def packed(config, text, theirs):
    """A case as tests/data/megatron_holds.json writes them: tables of parameters and of a state that level 1 shards."""
    sets, tables, ranks = [], [], []

    def number_of(value, those):
        if value not in those:
            those.append(value)
        return those.index(value)

    for held in theirs:
        tables_of = []
        for state in ("param", "exp_avg"):
            table = [[name, number_of(numbers, sets)] for (of, name), numbers in held.items() if of == state]
            tables_of.append(number_of(table, tables))
        ranks.append(tables_of)
    return {"config": config, "layout": text, "world": len(theirs), "sets": sets, "tables": tables, "ranks": ranks}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("RESHARD_SEED", "1")))
    parser.add_argument("--golden", type=pathlib.Path)
    options = parser.parse_args()
    try:
        import torch
        import torch._dynamo  # before forking
        import torch._inductor  # noqa: F401
        import torch.distributed.fsdp  # noqa: F401
        import torch.distributed.tensor  # noqa: F401
        import torch.testing._internal.distributed.fake_pg  # noqa: F401
    except ImportError as missing:
        print(f"skipped: no torch here ({missing})")
        sys.exit(77)
    torch.set_num_threads(1)
    dice = random.Random(options.seed)
    counts = {"equal": 0, "refused by both": 0, "of unequal parts": 0, "of experts": 0, "of grouped experts": 0, "of Megatron's tensors": 0, "tensors of ranks": 0}
    golden, wrong, legal = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "model.config.json"
        for _ in range(options.cases):
            config = draw_model(dice)
            named, text = draw_layout(dice, experts_of(config))
            d = filled(named)
            file.write_text(json.dumps(config))
            why = why_not(config, d)
            sentence, ours = tool_holds(options.tool, str(file), text)
            if (why is None) != (sentence is None):
                wrong.append(f"{text} of {json.dumps(config)}: the job {why or 'can be'}; the tool: {sentence}")
            elif why is not None:
                counts["refused by both"] += 1
                golden.append({"config": config, "layout": text, "refused": why})
            else:
                legal.append((config, d, text, ours))
    for (config, d, text, ours), answers in zip(legal, jobs_hold([(config, d) for config, d, _, _ in legal])):
        theirs = [expected(answer, d["zero"]) for answer in answers]
        differing = [rank for rank in range(d["world"]) if ours[rank:rank + 1] != [theirs[rank]]]
        if differing or len(ours) != d["world"]:
            rank = differing[0] if differing else 0
            keys = [key for key in sorted(set(ours[rank]) | set(theirs[rank])) if ours[rank].get(key) != theirs[rank].get(key)] or [None]
            wrong.append(f"{text} of {json.dumps(config)}: ranks {differing}; of rank {rank} {keys[0]}: {ours[rank].get(keys[0])}, by torch {theirs[rank].get(keys[0])}")
            continue
        counts["equal"] += 1
        counts["of unequal parts"] += is_uneven(config, d)
        counts["of experts"] += experts_of(config) > 0
        counts["of grouped experts"] += d["experts"] == "grouped"
        counts["of Megatron's tensors"] += d["names"] == "megatron"
        counts["tensors of ranks"] += sum(len(held) for held in theirs)
        golden.append(packed(config, text, theirs))
    for sentence in wrong:
        print("WRONG:", sentence)
    if options.golden and not wrong:
        options.golden.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in golden) + "\n]\n")
    print(f"torch {torch.__version__}, seed {options.seed}, {options.cases} layouts:", ", ".join(f"{n} {what}" for what, n in counts.items()) + f"; {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


main()
