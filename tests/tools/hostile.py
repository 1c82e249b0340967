#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hostile.py TOOL [--cases N] [--seed S] [--memory-gib G] [--json]: whatever the tool is given, it answers or refuses; it never crashes or hangs.

Every call ends within a time limit, either with exit code 0, nothing on stderr and one whole answer, or with exit code 1,
nothing on stdout and one sentence on stderr. What is illegal by construction must be refused, what is legal must be answered;
random layouts are judged by the contract's rule, written here once more; of random damage both are allowed. A legal question that
does not fit the memory given is a fault. Kinds take turns,
so each has its share of N. A fault is printed with the call that shows it, and --seed repeats the same calls."""
import argparse
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tool", type=pathlib.Path)
parser.add_argument("--cases", type=int, default=600)
parser.add_argument("--seed", default=os.environ.get("RESHARD_SEED", "20261121"), help="a number, or `today`: the date (UTC)")
parser.add_argument("--memory-gib", type=int, default=2, help="address space of one call; 0 for a sanitizer, which takes more than there is")
parser.add_argument("--json", action="store_true", help="one object on stdout")
options = parser.parse_args()
today = os.environ.get("RESHARD_TODAY", f"{datetime.datetime.now(datetime.timezone.utc):%Y%m%d}")
seed = int(today if options.seed == "today" else options.seed)
tool, dice = options.tool.resolve(), random.Random(seed)
LIMIT = options.memory_gib << 30 or resource.RLIM_INFINITY
SECONDS = 60  # for one call; a sanitizer on a busy machine takes a few
LEAST = 15    # cases of every kind

LLAMA = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 6, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 8, "intermediate_size": 48, "vocab_size": 96}
MOE = {"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
       "head_dim": 4, "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 4, "vocab_size": 48, "tie_word_embeddings": True,
       "mlp_only_layers": [1]}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24,
            "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4, "n_routed_experts": 4, "moe_intermediate_size": 8,
            "first_k_dense_replace": 1, "n_shared_experts": 1, "topk_method": "noaux_tc", "vocab_size": 48, "num_nextn_predict_layers": 1}
GPT = {"architectures": ["GPT2LMHeadModel"], "n_layer": 4, "n_embd": 16, "n_head": 4, "n_positions": 10, "vocab_size": 50}
MIXTRAL = {"architectures": ["MixtralForCausalLM"], "num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
           "intermediate_size": 8, "num_local_experts": 4, "vocab_size": 48}
SIZES = [key for key, value in MOE.items() if isinstance(value, int) and not isinstance(value, bool)]
PRESETS = ["llama2-7b", "llama2-13b", "llama2-70b", "llama-32b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt3-1.3b"]
EDGES = [p + d for p in (2**31, 2**32, 2**63, 2**64) for d in (-1, 0, 1)]
TOO_LARGE = [2**63, 2**63 + 1, 2**64 - 1, 2**64, 2**64 + 1, 10**19, 10**30, 10**400]  # for 64 bits with a sign
REFUSED, ANSWERED, EITHER = "refused", "answered", "either"

room = tempfile.TemporaryDirectory()
folder = pathlib.Path(room.name)
files = 0


def file(content):
    """The path of a new config.json."""
    global files
    files += 1
    path = folder / f"{files}.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else json.dumps(content).encode())
    return str(path)


llama, moe = file(LLAMA), file(MOE)
deepseek, gpt, mixtral = file(DEEPSEEK), file(GPT), file(MIXTRAL)


def chunks_of(text):
    """(t, m) of each chunk that a layout string stands for; nothing where it is none."""
    text = text.replace(",", "")
    text = re.sub(r"\(([^()]+)\)\*(\d+)", lambda found: found[1] * int(found[2]), text)
    text = re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), text)
    letters = text.replace("|", "")
    if not re.fullmatch(r"Et*m*L", letters) or sum("m" in chunk for chunk in text.split("|")) > 1:
        return None
    return [(chunk.count("t"), chunk.count("m")) for chunk in text.split("|")]


def stages_of(order):
    """The pipeline stage of every rank, ranks counted by an order of (axis, degree)."""
    stages, pitch = None, 1
    for axis, degree in order:
        if axis == "pp":
            stages = (pitch, degree)
        pitch *= degree
    return [rank // stages[0] % stages[1] for rank in range(pitch)] if stages else [0] * pitch


def order_is_legal(order, d, etp, edp):
    tp, cp, pp, dp, ep = (d.get(key, 1) for key in ("tp", "cp", "pp", "dp", "ep"))
    axes = order.split("-")
    if len(set(axes)) != len(axes) or not set(axes) <= {"tp", "cp", "ep", "dp", "pp"}:
        return False
    if any(axis not in axes and degree > 1 for axis, degree in (("tp", max(tp, etp)), ("cp", cp), ("ep", ep), ("dp", max(dp, edp)), ("pp", pp))):
        return False
    if pp == 1 or axes[-1] == "pp":
        return True
    dense = [(axis, {"tp": tp, "cp": cp, "dp": dp, "pp": pp}[axis]) for axis in axes if axis != "ep"]
    expert = [(axis, {"tp": etp, "ep": ep, "dp": edp, "pp": pp}[axis]) for axis in axes if axis != "cp"]
    return edp == dp and stages_of(dense) == stages_of(expert)


def layers_are_legal(model, d):
    pp, vpp, split, layers = d.get("pp", 1), d.get("vpp", 1), d.get("split", "even"), model["num_hidden_layers"]
    first, last = d.get("first", 0), d.get("last", 0)
    if (split != "even") + bool(first or last) + ("string" in d) > 1:
        return False
    if "string" in d:
        chunks = chunks_of(d["string"])
        if chunks is None:
            return False
        vpp = d.get("vpp", max(1, len(chunks) // pp))
        return len(chunks) == pp * vpp and (vpp == 1 or pp > 1) and sum(t for t, _ in chunks) == layers and sum(m for _, m in chunks) == 0
    if vpp > 1 and pp == 1:
        return False
    if first or last:
        between, rest = pp - bool(first) - bool(last), layers - first - last
        if between < 0 or rest < 0 or (rest != 0 if between == 0 else rest == 0 or rest % between):
            return False
        return vpp == 1 or not (between == 0 and first and last) and not (first % vpp or last % vpp or between and rest // between % vpp)
    counted = {"even": 0, "spread": 0, "account": 2, "account_embedding": 1, "account_loss": 1}[split]
    return vpp == 1 if split == "spread" else (layers + counted) % (pp * vpp) == 0


def legal(model, d):
    """The contract's rule, for degrees that are numbers and a world that is no trouble to count."""
    tp, cp, pp, dp, ep = (d.get(key, 1) for key in ("tp", "cp", "pp", "dp", "ep"))
    groups, experts, rows = model["num_key_value_heads"], model.get("num_experts", 0), d.get("shard") == "rows"
    etp = d.get("etp", 1 if ep > 1 else tp)
    if any(value < 1 for key, value in d.items() if isinstance(value, int) and key != "zero") or not 0 <= d.get("zero", 0) <= 2 + rows:
        return False
    hf = rows and d.get("names") == "hf"  # cut by torch's chunk(), which divides nothing
    qkv = (model["num_attention_heads"] + 2 * groups) * model["head_dim"]
    vocabulary = model["vocab_size"] if "pad" not in d else tp
    if not hf and any(size % tp for size in (model["num_attention_heads"], vocabulary, qkv, model["intermediate_size"])):
        return False
    if not hf and groups % tp and tp % groups or d.get("busbw", 1) != 1:
        return False
    if experts and (experts % ep and not (hf and d.get("experts") == "grouped") or tp * cp * dp % (etp * ep) or not hf and model["moe_intermediate_size"] % etp):
        return False
    if not experts and (ep > 1 or "etp" in d):
        return False
    edp = tp * cp * dp // (etp * ep)
    if not layers_are_legal(model, d) or ("order" in d and not order_is_legal(d["order"], d, etp, edp)):
        return False
    if cp * dp % d.get("instances", 1) or edp % d.get("instances", 1):
        return False
    if d.get("experts") == "grouped" and not (rows and experts):
        return False
    return d.get("names") != "hf" or rows


def loses(model, d):
    """Whether a legal layout holds less than the whole of its optimizer states: with ep = 1 and etp = tp Megatron's dense buffer has the
    experts too and is cut over ranks of one tp, which have another etp where other ranks come before tp in the experts' reading."""
    if not model.get("num_experts") or d.get("shard") == "rows" or d.get("zero", 0) == 0 or d.get("ep", 1) > 1 or "order" not in d:
        return False
    tp, cp, dp = (d.get(key, 1) for key in ("tp", "cp", "dp"))
    before = d["order"].split("-")
    before = before[:before.index("tp")] if "tp" in before else []
    dense = math.prod({"cp": cp, "dp": dp, "pp": d.get("pp", 1)}.get(axis, 1) for axis in before)
    expert = math.prod({"dp": dp * cp, "pp": d.get("pp", 1)}.get(axis, 1) for axis in before)
    return tp > 1 and d.get("etp", tp) == tp and dense != expert


def written(d):
    items = [f"{key}={value}" for key, value in d.items()]
    dice.shuffle(items)
    return ",".join(items)


def random_degrees():
    d = {}
    for key, values in {"tp": [1, 2, 2, 4, 3, 8], "cp": [1, 2, 3], "pp": [1, 2, 2, 3, 4], "vpp": [1, 2, 3], "dp": [1, 2, 2, 4, 5],
                        "ep": [1, 2, 4, 3], "etp": [1, 2, 4], "zero": [0, 1, 1, 2, 3, 4], "bucket": [1, 64, 500, 10**9, 2**63 - 1]}.items():
        if dice.random() < (0.2 if key in ("vpp", "ep", "etp") else 0.5):
            d[key] = dice.choice(values)
    if dice.random() < 0.4:
        d["split"] = dice.choice(["even", "account", "spread", "account_embedding", "account_loss"])
    if dice.random() < 0.5:
        others = {"first": [1, 2, 3], "last": [1, 2, 3], "order": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-pp-dp", "dp-pp", "cp-tp-dp-ep-pp", "pp-tp-dp", "tp", "ep-dp-cp-pp-tp"],
                  "instances": [1, 2, 3], "busbw": [1, 1, 2], "pad": [1, 3, 64, 10**6], "shard": ["rows", "rows", "buffers"], "experts": ["grouped", "separate"],
                  "names": ["hf", "megatron"], "string": ["Et*6L", "Et*3|t*3L", "E|t*4|tt|L", "Ettt|t|tt|L", "Etttt|L", "Et*4L", "E(tt|)*2L", "Etttm|tL", "tt", "E(t|)*4L"]}
        for key in dice.sample(list(others), dice.choice([1, 1, 2, 3])):
            d[key] = dice.choice(others[key])
    return d


def legal_degrees(model):
    while True:
        d = random_degrees()
        if legal(model, d) and not loses(model, d):
            return d


def damaged(data):
    """Some bytes changed, dropped, doubled, moved; or the end cut off."""
    data = bytearray(data)
    for _ in range(dice.choice([1, 1, 1, 2, 3, 8])):
        at, length = dice.randrange(len(data) + 1), dice.choice([1, 1, 2, 5, 20])
        match dice.randrange(7):
            case 0: data[at:at + 1] = bytes([dice.randrange(1, 256)])
            case 1: del data[at:at + length]
            case 2: data[at:at] = data[at:at + length]
            case 3: data[at:at] = bytes(dice.randrange(1, 256) for _ in range(length))
            case 4: data[at:at] = dice.choice([b",", b"=", b"-", b"0", b"9", b"1e3", b"{", b"[", b"]", b'"', b"\\u", b"null", b"x", b"%s", b"\n"])
            case 5: del data[at:]
            case 6: data[at:at + length] = bytes(reversed(data[at:at + length]))
    return bytes(data)


def asked(model, layout, other=""):
    """One of the subcommands about a layout; of two, either may come first."""
    pair = [layout, other]
    dice.shuffle(pair)
    return dice.choice([["check", model, layout], ["regions", model, layout], ["regions", model, layout, "--state", "optimizer"],
                        ["plan", model, *pair], ["plan", model, *pair, "--transfers"], ["plan", model, *pair, "--rank", "0"]])


# Each kind yields (arguments, what is expected).

def illegal_layout():
    d, key = random_degrees(), dice.choice(["tp", "cp", "pp", "vpp", "dp", "ep", "etp"])
    text = {k: str(v) for k, v in d.items()}
    wrong = dice.choice(["0", "-1", "-0", "", "+1", "1.0", "1e2", " 2", "2 ", "0x2", "two", "2\n", "\u0662", f"-{dice.choice(EDGES)}", "tp", "{}", "NaN"])
    text[dice.choice([key, key, "zero", "bucket"])] = wrong if wrong != "0" else "-1"
    if wrong == "0":
        text[key] = "0"
    match dice.randrange(5):
        case 0: return asked(moe, written(text)), REFUSED
        case 1: return asked(llama, written(d | {"dp": 2}) + f",{dice.choice(['dp', 'dp', 'zp', 'TP', 'tp ', ' tp', '', 'split', 'world'])}=2"), REFUSED
        case 2: return asked(llama, dice.choice([",", "tp", "tp=2,", ",tp=2", "tp=2,,pp=2", "=", "=2", "tp==2", "tp=2=2", "tp=2;pp=2", "split=", "split=odd",
                                                 "zero=3", "zero=4,shard=rows", "zero=-1", "bucket=-1", "[tp=2]", "{\"tp\":2}", "%n%n%s", "\x1b[31m", "tp=2" * 9999])), REFUSED
        case 3: return asked(llama, written(dice.choice([{"tp": 3}, {"tp": 16}, {"pp": 5}, {"pp": 12}, {"pp": 2, "vpp": 2}, {"vpp": 2}, {"ep": 2},
                                                         {"etp": 1}, {"pp": 3, "split": "account"}, {"split": "spread", "pp": 2, "vpp": 3}]))), REFUSED
    return asked(moe, written(dice.choice([{"ep": 3, "dp": 3}, {"ep": 8, "dp": 8}, {"ep": 2}, {"etp": 2}, {"etp": 16, "dp": 16}, {"ep": 4, "dp": 6},
                                           {"tp": 2, "ep": 4, "etp": 2}]))), REFUSED


def random_layout():
    name, model = dice.choice([(llama, LLAMA), (moe, MOE)])
    d = random_degrees()
    return asked(name, written(d), written(legal_degrees(model))), EITHER if loses(model, d) else ANSWERED if legal(model, d) else REFUSED


def illegal_key():
    """Keys of trainers' layouts, each wrong in itself."""
    wrong = [f"{key}={value}" for key in ("first", "last", "instances", "busbw", "pad") for value in ("0", "-1", "", "x", "1.0", "+1", "none", *TOO_LARGE[:4])]
    wrong += [f"{key}={value}" for key in ("shard", "experts", "names", "split") for value in ("", "0", "ROWS", "rows ", "flat", "hf,hf", "x" * 9999, "\x1b[2J")]
    wrong += [f"order={value}" for value in ("", "-", "tp-", "-tp", "tp--pp", "tp-tp", "TP-pp", "tp,pp", "tp-xp", "tp-cp-ep-dp-pp-tp", "tp-" * 9999, "tp_pp")]
    wrong += [f"string={value}" for value in ("", "L", "E", "LE", "tE", "Lt", "EL", "EtL", "EEt*6L", "Et*6LL", "Et*6mL", "Em*1t*6L", "Ext*6L", "E(t*6L", "Et*6)L", "E((tt)*2|)*2L",
                                              "Et*L", "Et*6*L", "E()*2t*6L", "Et*6L|", "Et*99999999999999999999L", "E(t|)*9999999L", "E|*99999L", "E" + "t|tt|" * 60 + "L", "(" * 50_000, "E" * 99_999,
                                              "Et*0L", "\u0665", "Et*6L\n", "*6", "E*0L", "E" + "(t|)*9" * 9999 + "L")]
    wrong += ["busbw=2", "experts=grouped", "names=hf", "names=hf,zero=1", "shard=rows,zero=4", "instances=2,dp=3", "first=1", "last=1,pp=4", "first=3,last=4,pp=2", "first=6,pp=2",
              "first=1,last=1,pp=2", "first=2,split=spread,pp=2", "string=Et*6L,first=6", "string=Et*6L,vpp=2", "string=Et*3|t*3L", "order=tp,dp=2", "pad=4611686018427387904,tp=4",
              f"pad={2**62},tp=8", "order=tp-cp-pp-dp,cp=2,pp=2", "experts=grouped,shard=rows", "string=Et*3|t*3L,pp=2,split=account", "tp=8,names=hf"]
    return asked(llama, dice.choice(wrong)), REFUSED


def damaged_key():
    """Long texts of the new keys, damaged: either may be."""
    good = dice.choice(["string=Et*3|(t|)*2tL,pp=4", "string=E(t|)*5tL,pp=3", "order=tp-cp-ep-pp-dp,tp=2,pp=2,dp=2", "first=2,last=2,pp=3,instances=2,dp=2,zero=1", "pad=128,tp=8,zero=2,busbw=1",
                        "shard=rows,names=hf,zero=3,dp=3", "shard=rows,experts=grouped,zero=3,ep=2,dp=4"])
    layout = os.fsdecode(damaged(good.encode()))
    numbers = [int(n) for n in re.findall(r"[0-9]{3,}", layout)]
    name = dice.choice([llama, moe, deepseek, gpt, mixtral])
    return ["check", name, layout] if numbers else asked(name, layout), EITHER


def other_models():
    """The newer architectures under every key: answered, or refused in one sentence."""
    name = dice.choice([deepseek, gpt, mixtral])
    return asked(name, written(random_degrees()), written({"pad": 8, "tp": 2})), EITHER


def wrong_other_models():
    model = dict(dice.choice([DEEPSEEK, GPT, MIXTRAL]))
    needed = [key for key in model if key not in ("num_key_value_heads", "n_shared_experts", "topk_method", "num_nextn_predict_layers")]
    numbers = [key for key in model if isinstance(model[key], int) and key != "architectures"]
    match dice.randrange(4):
        case 0: del model[dice.choice(needed)]
        case 1: model[dice.choice(numbers)] = dice.choice([-1, "8", [], {}, True, 2**63, 1.5, 10**30])
        case 2: model |= dice.choice([{"attention_bias": True}, {"mlp_bias": True}, {"attention_bias": 1}, {"mlp_bias": "no"}])
        case 3:
            model = dice.choice([DEEPSEEK | {"topk_method": 3}, DEEPSEEK | {"num_nextn_predict_layers": 2}, DEEPSEEK | {"n_routed_experts": 10**9}, DEEPSEEK | {"moe_layer_freq": 0},
                                 DEEPSEEK | {"n_shared_experts": 2**62}, DEEPSEEK | {"kv_lora_rank": 2**62}, DEEPSEEK | {"q_lora_rank": 0}, DEEPSEEK | {"v_head_dim": None}, GPT | {"n_embd": 18},
                                 GPT | {"n_inner": 0}, GPT | {"n_layer": 10**7}, GPT | {"n_positions": None}, GPT | {"add_cross_attention": True}, GPT | {"n_embd": 2**62, "n_head": 1},
                                 MIXTRAL | {"num_local_experts": 0}, MIXTRAL | {"num_local_experts": 10**6}, MIXTRAL | {"num_nextn_predict_layers": -1}])
    return asked(file(model), ""), REFUSED


def huge_degree():
    d = legal_degrees(LLAMA)
    for key in ("order", "pad", "string"):
        d.pop(key, None)
    key = dice.choice(["tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero", "bucket", "first", "last", "instances", "busbw"])
    d[key] = dice.choice(TOO_LARGE if key == "bucket" else EDGES + TOO_LARGE)
    return asked(llama, written(d)), REFUSED


def world_overflow():
    keys = dice.sample(["cp", "dp", "pp"], dice.choice([2, 3]))
    bits = dice.choice([23, 31, 32, 62, 63, 64, 65, 128])
    parts = [bits // len(keys)] * len(keys)
    parts[0] += bits - sum(parts)
    d = {key: 2**part for key, part in zip(keys, parts)} | {"split": "spread", "zero": dice.randrange(2)}
    return asked(llama, written(d)), REFUSED


def broken_json():
    good = json.dumps(dice.choice([LLAMA, MOE]), indent=dice.choice([None, 1])).encode()
    deep = dice.choice([200, 5000, 100_000])
    content = dice.choice([b"", b" \n\t", b"\0" * 100, good[:dice.randrange(len(good))], good + good, b"[" + good + b"]", good[1:], b"null", b"3", b'"x"',
                           b"[" * deep, b"[" * deep + b"]" * deep, b'{"a":' * deep, b'{"a":' * deep + b"1" + b"}" * deep,
                           good[:-1] + b',"x":' + b"[" * deep + b"]" * deep + b"}", b"\xef\xbb\xbf" + good[:-1], good.decode().encode("utf-16"),
                           good.replace(b"For", b"\xc3\x28"), good.replace(b"For", b"\xed\xa0\x80"), good.replace(b"For", b"\\ud800"), good.replace(b":", b"=", 1),
                           good.replace(b'"', b"'"), good.replace(b",", b",,", 1), good[:-1] + b",}", b"//\n" + good, bytes(dice.randrange(256) for _ in range(200))])
    return asked(file(content), ""), REFUSED


def wrong_values():
    model = dict(dice.choice([LLAMA, MOE]))
    key = dice.choice([k for k in SIZES if k in model])
    wrong = dice.choice(["true", "false", '"8"', '""', "[]", "[8]", "[[[8]]]", "{}", '{"a":8}', "8.0", "8e0", "1e999", "-1e999", "0", "-0", "-1", "NaN", "Infinity",
                         "-Infinity", "08", "0x8", "8,", "null" if key not in ("num_key_value_heads", "head_dim") else "-8", *map(str, TOO_LARGE), f"-{2**63}",
                         f"-{2**63 + 1}", "9" * 5000])
    match dice.randrange(6):
        case 0: del model[dice.choice(["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "architectures", "intermediate_size"])]
        case 1: model["architectures"] = dice.choice([[], None, "LlamaForCausalLM", [1], [["LlamaForCausalLM"]], {}, ["PhiForCausalLM"], [""], ["x" * 100_000],
                                                     ["Llama\nForCausalLM\x1b[2J"], ["llamaforcausallm"]])
        case 2: model["tie_word_embeddings"] = dice.choice([0, 1, "true", None, [], {}])
        case 3: model = MOE | {"mlp_only_layers": dice.choice([1, "1", {}, [-1], ["1"], [1.0], [[1]], [2**64], [None], [True], list(range(70_000))])}
        case 4: return asked(file(json.dumps(model)[:-1] + f',"{key}":{model[key]}}}'), ""), REFUSED  # twice
        case 5: return asked(file(re.sub(rf'("{key}": )\d+', rf"\g<1>{wrong}", json.dumps(model))), ""), REFUSED
    return asked(file(model), ""), REFUSED


def huge_extents():
    """Counts of elements that leave 64 bits; and some that just do not, of which check alone is asked."""
    model = dict(dice.choice([LLAMA, MOE]))
    if dice.random() < 0.5:
        for key in dice.sample(["hidden_size", "intermediate_size", "vocab_size"], 2) + ["hidden_size"]:
            model[key] = dice.choice([2**32, 2**40, 2**62, 2**63 - 1])
        model["intermediate_size"] = max(model["intermediate_size"], 2**32)
        model["hidden_size"] = max(model["hidden_size"], 2**32)
        return asked(file(model), "dp=2,zero=1"), REFUSED
    model |= dice.choice([{"num_hidden_layers": 10**6 + 1}, {"num_hidden_layers": 2**62}, {"num_attention_heads": 2**62, "num_key_value_heads": 2**62},
                          {"num_attention_heads": 2**63 - 1, "num_key_value_heads": 1}, {"head_dim": 2**62}])
    if dice.random() < 0.3:
        model = MOE | dice.choice([{"num_experts": 2**40}, {"num_experts": 2**62}, {"num_experts": 250_001}, {"moe_intermediate_size": 2**62},
                                   {"num_hidden_layers": 2000}])
    return asked(file(model), dice.choice(["", "dp=2,zero=1", "dp=2,zero=1,bucket=1"])), REFUSED


def large_models():
    """Legal, however large; the answer takes no more time or memory than its size."""
    model = dict(LLAMA) | dice.choice([{"num_hidden_layers": 5000}, {"vocab_size": 96 * 2**40}, {"hidden_size": 2**40, "head_dim": 8}, {"intermediate_size": 48 * 10**11},
                                       {"num_attention_heads": 8 * 2**20}, {"num_hidden_layers": 999_996, "vocab_size": 16}])
    layouts = ["tp=2,dp=2,zero=1", "tp=4,pp=2,zero=1,dp=3", "tp=4,dp=7", "cp=3,pp=2,zero=1", "dp=2,zero=1,bucket=1000000000000000", "pp=5,split=spread"]
    before, after = dice.sample(layouts, 2)
    return dice.choice([["check", file(model), before], ["plan", file(model), before, after], ["plan", file(model), before, after, "--rank", "1"]]), ANSWERED


def many_buckets():
    """A list of buckets is kept, so there is a bound on them; below it planning and figures stay near linear."""
    if dice.random() < 0.3:
        return ["check", file(LLAMA | {"num_hidden_layers": 900_000}), "dp=2,zero=1,bucket=1"], REFUSED
    name = file(dice.choice([LLAMA | {"num_hidden_layers": 1500}, MOE | {"num_experts": 1500, "mlp_only_layers": []}]))
    return ["plan", name, "dp=2,zero=1,bucket=1", dice.choice(["dp=3", "dp=3,zero=1,bucket=1", "tp=2,dp=2,zero=1,bucket=2"]), *dice.choice([[], ["--rank", "1"]])], ANSWERED


def bad_models():
    return asked(dice.choice([str(folder), "/", ".", "", str(folder / "absent.json"), "absent", "llama2-7B", "llama2-7b ", "/dev/null", "/dev/zero", "a/b/c", "x" * 5000,
                              "/proc/self/mem", "-", "\x1b[2J", "line\nline", str(folder / ("x" * 300)), "\udcff\udcfe.json", llama + "/x"]),
                 dice.choice(["", "tp=2"])), REFUSED


def bad_devices():
    wrong = dice.choice(["", ",", "-", "0-", "-3", "0-3,", ",0-3", "0--3", "3-0", "0-2", "0-4", "0-2,2", "0,1,2,1", "0-1,1-2", "a-d", "0-3x", "0 - 3", "0;1;2;3",
                         "0-2,4194304", f"0-{2**31}", f"0-{2**63 - 1}", f"0-{2**64}", f"{2**64}-{2**64 + 3}", "0-2,99999999999999999999", "0-3\n", "0.0-3", "1-2-3", "0-" + "9" * 5000,
                         "0," * 3000 + "1", "\u0660-\u0663"])
    return ["plan", llama, "tp=2,dp=2", "tp=4", dice.choice(["--from-devices", "--to-devices"]), wrong], REFUSED


def bad_options():
    budget = ["0", "-1", "", "x", "1e3", "1.5MiB", "64Mib", "MiB", "1 000", f"{2**63}", f"{2**64}TiB", "9223372036854775807KiB", "0x10", "+5", "\u0665"]
    cluster = ["", "x", "4", "4x", "x4", "0x4", "4x0", "-1x4", "1x3", "3x1", "2x2x2", "4X4", f"{2**32}x{2**32}", f"1x{2**22 + 1}", f"{2**63}x1", "1x4 ", "axb", "2048x4096"]
    rank = ["-1", "4", "", "a", "1e0", "0x1", " 1", "1.0", f"{2**31}", f"{2**32}", f"{2**63 - 1}", f"{2**63}", f"{2**64}", f"-{2**63}", "9" * 5000, "+1", "\u0661"]
    state = ["", "grad", "PARAM", "param,master", "exp_avg ", "0", "all\n", "x" * 100_000]
    svg = ["", ".", "/", "/nonexistent/x.svg", "/dev/full", str(folder / ("x" * 300)), llama + "/x"]
    plan = ["plan", llama, "tp=2,dp=2,zero=1", "tp=4"]
    match dice.randrange(5):
        case 0: return [*plan, "--budget", dice.choice(budget)], REFUSED
        case 1: return [*plan, "--cluster", dice.choice(cluster)], REFUSED
        case 2: return [*dice.choice([plan, ["regions", llama, "tp=4"]]), "--rank", dice.choice(rank)], REFUSED
        case 3: return [*dice.choice([plan, ["regions", llama, "tp=4"]]), "--state", dice.choice(state)], REFUSED
    return ["regions", llama, "tp=4", "--svg", dice.choice(svg)], REFUSED


def state_list(good=True):
    """A list of states as it may be written; or with one thing wrong."""
    if good and dice.random() < 0.4:
        return dice.choice(["adam", "lion", "momentum", "sgd"]) + dice.choice(["", "+grad"])
    items = [f"s{i}.{dice.choice('_-/')}:{dice.choice(['bf16', 'fp16', 'fp32', 'fp8'])}:{dice.randint(1, 3)}" for i in range(dice.choice([0, 1, 3, 15]))]
    items.insert(dice.randint(0, len(items)), f"param:{dice.choice(['bf16', 'fp32', 'fp8'])}:3")
    if good:
        return ",".join(items)
    match dice.randrange(8):
        case 0: return ",".join(items + [items[dice.randrange(len(items))]])
        case 1: return ",".join(i for i in items if not i.startswith("param")) or "m:fp32:1"
        case 2: return ",".join(items).replace("param:", dice.choice(["Param:", "param :", "p\nm:", "params:", "\udcff:"]))
        case 3: return ",".join(f"{i}x" if n == 0 else i for n, i in enumerate(items))
        case 4: return ",".join(items) + dice.choice([",", ",,", ",m", ",m:", ",m:fp32", ",m:fp32:", ",m:fp32:0", ",m:fp32:4", ",m:fp64:1", ",m:FP32:1", ",:fp32:1", ",m::1", ",m:fp32:1:1",
                                                      ",m:fp32:01", ",m:fp32:-1", ",m:fp32: 1", ",m:fp32:1 ", ",m:fp32:\u0661", ",m:fp32:" + "1" * 5000, f",{'m' * 32}:fp32:1", f",{'m' * 100_000}:fp32:1"])
        case 5: return ",".join(["param:bf16:3"] + [f"s{i}:fp32:1" for i in range(dice.choice([16, 17, 1000]))])
        case 6: return dice.choice(["", "Adam", "adam+grads", "adam+grad+grad", "+grad", "adam,lion", "adam,m:fp32:1", "adam ", " adam", "all", "optimizer", "x" * 100_000, "\x1b[2J", "%s%n"])
    return ",".join(items).replace(":3", dice.choice([":2", ":1", "::3", ":", ""]))


def bad_states():
    return [*asked(llama, "tp=2,dp=2,zero=1", "tp=4"), "--states", state_list(good=False)], REFUSED


def states_of_ones_own():
    text = state_list()
    asks = [word for word in asked(llama, written(legal_degrees(LLAMA)), written(legal_degrees(LLAMA))) if word not in ("--state", "optimizer")]
    if dice.random() < 0.5:
        return [*asks, "--states", text], ANSWERED
    return [*asks, "--states", os.fsdecode(damaged(text.encode()))], EITHER


def cluster_file():
    """A cluster of random nodes, large enough for any legal world here."""
    speed = lambda: dice.choice([1, 25, 160.5, 1e-9, 1e9, 0.001])
    node = lambda: {key: value for key, value in {"count": dice.choice([1, 2, 50]), "nics": dice.randint(1, 4), "nic_GBps": speed(), "nvlink_GBps": speed(),
                                                  "copy_GBps": speed(), "spine_GBps": dice.choice([None, speed()])}.items() if dice.random() < 0.5}
    whole = {"gpus": dice.choice([4, 8, 72]), "nvlink_GBps": speed(), "nic_GBps": speed(), "copy_GBps": speed()}
    others = {"nics": dice.randint(1, 4), "spine_GBps": dice.choice([None, speed()]), "message_us": dice.choice([0, 10, 1e12]), "stage_us": dice.choice([0, 50, 0.5]),
              "nodes": [node() for _ in range(dice.choice([1, 3]))] + [{"count": 500}]}
    return whole | {key: value for key, value in others.items() if dice.random() < 0.5}


def simulated():
    name, model = dice.choice([(llama, LLAMA), (moe, MOE)])
    words = ["simulate", name, written(legal_degrees(model)), written(legal_degrees(model)), "--cluster"]
    more = dice.choice([[], ["--stages", dice.choice(["1", "3", "16"])], ["--relay", "never"], ["--state", "param"], ["--json"]])
    match dice.randrange(4):
        case 0: return [*words, dice.choice(["a800", "h100", "h200", "gb200"]), *more], ANSWERED
        case 1: return [*words, file(cluster_file()), *more], ANSWERED
        case 2: return [*words, file(damaged(json.dumps(cluster_file()).encode())), *more], EITHER
    wrong = cluster_file()
    key = dice.choice(["gpus", "nvlink_GBps", "nic_GBps", "copy_GBps"])
    match dice.randrange(4):
        case 0: del wrong[key]
        case 1: wrong[key] = dice.choice([0, -1, "8", None, [], {}, True, 10**400, 2**64])
        case 2: wrong[dice.choice(["nodes", "gpu", "NICS", "", "x" * 9999])] = dice.choice([0, {}, [], [[]], [{"gpus": 8}], [{"count": 2**62}], "\x1b[2J"])
        case 3: wrong |= dice.choice([{"nics": 73}, {"nics": 0}, {"message_us": -1}, {"stage_us": None}, {"spine_GBps": -1}, {"gpus": 2**40}])
    return [*words, file(wrong), *more], REFUSED


def compared():
    name, model = dice.choice([(llama, LLAMA), (moe, MOE)])
    words = ["compare", name, written(legal_degrees(model)), "--devices"]
    more = dice.choice([[], ["--cluster", "a800"], ["--memory", dice.choice(["1", "1MiB", "80GiB"])], ["--axes", dice.choice(["tp,dp", "pp", "dp,ep,tp"])],
                        ["--top", dice.choice(["1", "3"])], ["--state", "param"], ["--keep-sources"], ["--json"]])
    match dice.randrange(3):
        case 0: return [*words, dice.choice(["1", "2", "8", "12"]), *more], EITHER  # where no layout is legal, it is refused
        case 1: return [*words, os.fsdecode(damaged(b"8x8")), *more], EITHER
    wrong = dice.choice([["0"], ["-1"], ["1.5"], ["eight"], [""], [str(2**40)], ["9" * 5000], ["8", "--axes", "cp"], ["8", "--axes", ""], ["8", "--axes", "tp,tp"], ["8", "--axes", ","],
                         ["8", "--memory", "0"], ["8", "--memory", "-1GiB"], ["8", "--top", "0"], ["8", "--top", "x"], ["8", "--cluster", "2x4x8"], ["8", "--rank", "0"], []])
    return [*words, *wrong], REFUSED


def cursor_question(tokens):
    steps = [{"ranks": dice.choice([1, 3, 8]), "batch": dice.choice([1, 8, 25]), "count": dice.choice([1, 2, 5])} for _ in range(dice.choice([1, 3]))]
    asked_of = {"tokens": {"lengths": [dice.choice([0, 1, 7, 50]) for _ in range(5)] + [3]}, "length": dice.choice([1, 4])} if tokens else {"set": dice.choice([5, 1000]), "seed": dice.choice([0, 7, 2**64 - 1])}
    return {"start": dice.choice([0, 3]), **asked_of, "steps": steps, "undo": dice.choice([[], [0], [1]])}


def batch_question():
    ranks, to, batch = dice.choice([1, 4, 6]), dice.choice([1, 2, 8, 12]), dice.choice([16, 48, 100])
    return {"ranks": ranks, "to": to, "batch": batch, "optimum": [[batch * k, dice.choice([1, 4, 16])] for k in (1, 2, 4, 8)], "limit": None}


def rate_question():
    at = sorted(dice.sample(range(1000), dice.choice([1, 3])))
    return {"base": 32, "power": dice.choice([1, 0.5, "1/2"]), "changes": [{"at": t, "batch": dice.choice([16, 64, 100]), "ramp": dice.choice([0, 10, 500])} for t in at], "at": [0, 5, 2000]}


def trace():
    jobs = []
    for _ in range(dice.choice([1, 4])):
        least, most = dice.choice([1, 2]), dice.choice([2, 4])
        jobs.append({"submit": dice.choice([0, 10, 999.5]), "requested": most, "min": least, "max": most, "samples": dice.choice([1, 1000, 5e6]),
                     "throughput": [[n, dice.choice([1, 90.5]) * n] for n in range(least, 5)]})
    return {"devices": 4, "jobs": jobs}


def elastic():
    """Questions of a job that changes its size: as they may be, damaged, and with a value that none may have."""
    name, question, needed = dice.choice([("cursor", cursor_question(False), "steps"), ("cursor", cursor_question(True), "length"), ("batch", batch_question(), "batch"),
                                          ("rate", rate_question(), "base"), ("schedule", trace(), "devices")])
    more = dice.choice([[], ["--policy", dice.choice(["fifo", "e-fifo", "backfill", "e-backfill"]), "--pause", "30", "--overhead", "0.1"]]) if name == "schedule" else []
    match dice.randrange(4):
        case 0: return ["elastic", name, file(question), *more], EITHER if name in ("batch", "cursor") else ANSWERED  # a batch below a sample a rank, more undone than was done
        case 1: return ["elastic", name, file(damaged(json.dumps(question).encode())), *more], EITHER
        case 2:
            question[needed] = dice.choice([-1, 0, 2**63, 10**400, "8", {}, True, None, 1.5])
            return ["elastic", name, file(question), *more], REFUSED
    wrong = dice.choice([["order"], ["order", "--size", "0", "--at", "0"], ["order", "--size", "5", "--at", "5"], ["order", "--size", "-1", "--at", "0"], ["order", "--size", str(2**64), "--at", "0"],
                         ["order", "--size", "9", "--at", "1e0"], ["order", "--size", "9", "--seed", str(2**64), "--at", "0"], ["schedule", "absent.json"], ["schedule", file(trace()), "--policy", "lifo"],
                         ["schedule", file(trace()), "--pause", "-1"], ["schedule", file(trace()), "--pause", "NaN"], ["schedule", file(trace()), "--overhead", "1"], ["trace", "--hours", "0"],
                         ["schedule", file(b'{"devices":' + b"[" * 300_000 + b"]" * 300_000 + b',"jobs":[]}')],
                         ["trace", "--devices", "99999"], ["cursor", "absent"], ["batch", "[" * 100_000], ["rate", "{" * 1000], ["status"], []])
    return ["elastic", *wrong], REFUSED


def bad_usage():
    good = ["plan", llama, "tp=2", "tp=4", "--rank", "0", "--state", "param"]
    words = dice.choice([
        [], ["--"], ["-"], [""], ["check"], ["regions", llama], ["plan", llama, "tp=2"], ["Plan", *good[1:]], ["plan", "regions"], ["check", llama, "tp=2", "tp=2"],
        [*good, "extra"], [*good, "--rank", "1"], [*good, "--svg", "x"], [*good, "--relabel=x"], [*good, "--nothing"], [*good, "-x"], [*good, "--rank=1"], [*good, "--state"],
        ["check", llama, "tp=2", "--rank", "0"], ["--jso", *good], ["simulate", llama, "tp=2", "tp=4"], ["relay"], ["x"] * 3000,
        [*good, "--" + "x" * 50_000], ["check", llama, "tp=2", "--\x1b[2J\n"], ["check", llama, "tp=2", "\udcff"], ["@" + llama], ["--config", llama, *good]])
    return words, REFUSED


def damaged_config():
    content = damaged(json.dumps(dice.choice([LLAMA, MOE])).encode())
    numbers = [int(n) for n in re.findall(rb"\d{4,}", content)]
    asks = asked(file(content), "dp=2,zero=1")
    return ["check", *asks[1:3]] if numbers and asks[0] == "regions" else asks, EITHER  # a legal model may be large, and its regions many


def damaged_words():
    d, e = (written(legal_degrees(LLAMA)) for _ in range(2))
    words = ["plan", llama, d, e, "--rank", "0", "--state", "param", "--budget", "64KiB", "--cluster", "8x8", "--from-devices", "0-59"]
    words = words[:dice.choice([4, 6, 8, 10, 12, 14])]
    at = dice.choice([2, 3, *range(4, len(words))])
    words[at] = os.fsdecode(damaged(words[at].encode()))
    if dice.random() < 0.2:
        words.insert(dice.randrange(len(words)), words.pop(dice.randrange(len(words))))
    return words, EITHER


def what_is_legal():
    name, model = dice.choice([(llama, LLAMA), (moe, MOE)])
    return dice.choice([lambda: asked(dice.choice(PRESETS), "tp=4"), lambda: asked(name, written(legal_degrees(model)), written(legal_degrees(model))),
                        lambda: ["plan", llama, "tp=2,dp=2,zero=1", "pp=2,zero=1,dp=3", "--cluster", "2x4", "--budget", "64KiB", "--to-devices", "7,2-6"],
                        lambda: ["check", dice.choice(PRESETS), "dp=4096,zero=1"]])(), ANSWERED


KINDS = [illegal_layout, illegal_key, damaged_key, other_models, wrong_other_models, random_layout, random_layout, huge_degree, world_overflow, broken_json, wrong_values, huge_extents, large_models, many_buckets, bad_models,
         bad_devices, bad_options, bad_states, states_of_ones_own, simulated, compared, elastic, bad_usage, damaged_config, damaged_words, what_is_legal]


def no_constant(name):
    raise ValueError(name + " is no JSON")


def states_of(words):
    """How many states an answer tells of: those of the list that was asked with, by default adam's four."""
    if "--states" not in words:
        return 4
    text = words[words.index("--states") + 1]
    name, plus, _ = text.partition("+")
    return {"adam": 4, "lion": 3, "momentum": 3, "sgd": 2}.get(name, text.count(",") + 1) + (1 if plus else 0)


def whole(words, out):
    """What is wrong with an answer, or nothing."""
    if "--json" not in words:
        return "" if out else "an empty answer"
    if words[:2] == ["elastic", "order"]:
        return "" if re.fullmatch(rb"[0-9]+\n", out) else "no number"
    try:
        told = json.loads(out.decode(), parse_constant=no_constant)
    except ValueError as wrong:
        return f"no whole JSON: {wrong}"
    if words[0] == "elastic":
        ends = [share["end"] for share in told.get("shares", [])]
        ok = all(begin <= end for begin, end in ((share["begin"], share["end"]) for share in told.get("shares", []))) and (not ends or ends[-1] == told["cursor"])
        ok = ok and all(held <= one["devices"] for one in told.get("schedules", [told]) for job in one.get("jobs", []) if "allocations" in job for _, held in job["allocations"])
        ok = ok and told.get("batch", 1) > 0
    elif "layouts" in told:
        keys = [(one["seconds"] or one["moved_bytes"], one["layout"]) for one in told["layouts"]]
        # seconds within 1e-9 of each other are equal
        ordered = all(a[0] <= b[0] * (1 + 1e-9) and (a[0] < b[0] or a[1] < b[1]) for a, b in zip(keys, keys[1:]))
        ok = ordered and len(keys) <= told["legal"] - told["too_large"]
    elif "legal" in told:
        counts = list(told["bytes_per_rank"].values())
        ok = told["legal"] is True and len(counts) == states_of(words) and all(len(c) == told["world"] and min(c) >= 0 for c in counts)
        factors = dict(item.split("=") for item in words[2].split(",") if item) if words[0] == "check" and len(words) > 2 else {}
        ok = ok and (not factors or told["world"] == math.prod(int(factors.get(key, 1)) for key in ("tp", "cp", "pp", "dp")))
    elif "ranks" in told:
        ok = all(0 <= begin < end <= dim for r in told["ranks"] for piece in r["regions"] for dim, (begin, end) in zip(piece["dims"], piece["box"], strict=True))
    elif "floor_seconds" in told:
        ok = 0 <= told["floor_seconds"] <= told["seconds"] and (told["relay"] == "always" or told["seconds"] >= told["direct_seconds"] * 0.999) and told["moved_bytes"] == told["least_bytes"]
        ok = ok and math.isclose(sum(told["parts"].values()), told["seconds"]) and told["busiest"]["seconds"] <= told["parts"]["ports"] * 1.001
    else:
        s = told["summary"]
        ok = s["moved_bytes"] == s["least_bytes"] and all(value >= 0 for key, value in s.items() if key != "relay" and value is not None) and s["peak_bytes"] <= s["peak_floor_bytes"] + s["peak_excess_bytes"]
        ok = ok and all(0 <= begin < end <= dim for t in told.get("transfers", []) for dim, (begin, end) in zip(t["dims"], t["box"], strict=True))
    return "" if ok else "an answer that cannot be right"


def judge(case):
    """(refused, what is wrong with it) of one call."""
    kind, words, expected = case
    try:
        done = subprocess.run([tool, *map(os.fsencode, words)], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, cwd=folder,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)))
    except subprocess.TimeoutExpired:
        return False, f"no end within {SECONDS} s"
    out, err = done.stdout, done.stderr
    if done.returncode == 0:
        fault = f"an answer, and on stderr {err[:500]!r}" if err else whole(words, out)
        return False, fault or ("answered, and must be refused" if expected == REFUSED else "")
    if done.returncode != 1:
        return False, f"exit code {done.returncode}: {err[:2000].decode(errors='replace')}"
    sentence = err.startswith(b"reshard: ") and err.endswith(b"\n") and len(err) < 2200 and not re.search(rb"[\0-\x1f\x7f]", err[:-1])
    if out or not sentence:
        return False, f"refused, but not by one sentence: {err[:2000]!r}, and on stdout {len(out)} bytes"
    return True, f"refused, and is legal: {err!r}" if expected == ANSWERED else ""


def drawn(number):
    kind = KINDS[number % len(KINDS)]
    words, expected = kind()
    as_json = dice.random() < 0.8 and "x" not in words or "--transfers" in words
    return kind.__name__, words + ["--json"] * as_json, expected


def shown(words):
    """A call as a fault names it: long words are cut, files of ours come with what they say."""
    text = " ".join(repr(word if len(word) < 200 else word[:200] + "...") for word in words)
    ours = [pathlib.Path(word) for word in words if word.startswith(str(folder)) and word.endswith(".json") and len(word) < 200]
    return text + "".join(f" of {path.read_bytes()[:500]!r}" for path in ours if path.is_file())


cases = [drawn(number) for number in range(options.cases)]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    verdicts = list(pool.map(judge, cases))

kinds, faults = {kind.__name__: {"cases": 0, "refused": 0, "answered": 0, "faults": 0} for kind in KINDS}, []
for (kind, words, expected), (refused, fault) in zip(cases, verdicts):
    kinds[kind]["cases"] += 1
    kinds[kind]["faults" if fault else "refused" if refused else "answered"] += 1
    if fault:
        faults.append(f"{kind} {shown(words)}: {fault}")
room.cleanup()
scarce = [name for name, count in kinds.items() if count["cases"] < LEAST]
total = {what: sum(count[what] for count in kinds.values()) for what in ("cases", "refused", "answered", "faults")}
if options.json:
    print(json.dumps({"seed": seed, **total, "kinds": kinds}))
else:
    print(f"--seed {seed}", flush=True)
    for name, count in [*kinds.items(), ("all", total)]:
        print(f"{name.replace('_', ' '):<16}" + "".join(f"{count[what]:>6} {what}" for what in total))
for fault in faults:
    print(fault, file=sys.stderr)
for name in scarce:
    print(f"only {kinds[name]['cases']} cases of {name}; wanted are {LEAST}", file=sys.stderr)
if not options.json:
    bad = {name for name, count in kinds.items() if count["faults"]} | set(scarce)
    print(f"{len(kinds) - len(bad)} passed, {len(bad)} failed")  # kinds
sys.exit(bool(faults or scarce))
