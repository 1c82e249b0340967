// SPDX-License-Identifier: Apache-2.0
//
// Is the oracle right? Against the golden files, which came from Megatron-LM's own functions, against counter-examples,
// and against itself.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "contract.hpp"
#include "plan_check.hpp"
#include "random_layouts.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#ifndef RESHARD_TEST_DATA
#error "RESHARD_TEST_DATA must be the path of tests/data, as a string literal"
#endif

namespace {

using nlohmann::json;
using namespace oracle;

json golden(const std::string& name) {
  std::ifstream file(std::string(RESHARD_TEST_DATA) + "/" + name);
  REQUIRE_MESSAGE(file, "cannot read ", name);
  return json::parse(file);
}

model model_of(const json& config) {
  const auto number = [&](const char* key, long otherwise) {
    return config.contains(key) && !config.at(key).is_null() ? config.at(key).get<long>() : otherwise;
  };
  const std::string architecture = config.at("architectures").at(0);
  model m;
  m.layers = config.at("num_hidden_layers");
  m.hidden = config.at("hidden_size");
  m.heads = config.at("num_attention_heads");
  m.groups = number("num_key_value_heads", m.heads);
  m.head_dim = number("head_dim", m.hidden / m.heads);
  m.ffn = number("intermediate_size", 0);
  m.vocab = config.at("vocab_size");
  m.tied = config.value("tie_word_embeddings", false);
  m.qk_norm = architecture != "LlamaForCausalLM";
  if (architecture != "Qwen3MoeForCausalLM") return m;
  m.experts = config.at("num_experts");
  m.expert_ffn = config.at("moe_intermediate_size");
  const long step = number("decoder_sparse_step", 1);
  for (long l = 0; l < m.layers; ++l) m.moe.push_back((l + 1) % step == 0);
  if (config.contains("mlp_only_layers") && !config.at("mlp_only_layers").is_null())
    for (long l : config.at("mlp_only_layers")) m.moe.at(index(l)) = false;
  return m;
}

model small_llama() {
  return {.layers = 6, .hidden = 16, .heads = 4, .groups = 2, .head_dim = 4, .ffn = 12, .vocab = 24, .moe = {}};
}

model small_moe() {
  model m = small_llama();
  m.qk_norm = true;
  m.experts = 6;
  m.expert_ffn = 8;
  m.moe = {true, true, true, true, true, true};
  return m;
}

// The half-open intervals of a set: begin, end, begin, end, ...
std::vector<long> intervals_of(const flat_set& set) {
  std::vector<long> list;
  for (long i = 0; i < length(set); ++i) {
    const bool before = i > 0 && set[index(i - 1)] != 0, here = set[index(i)] != 0;
    if (here != before) list.push_back(i);
  }
  if (list.size() % 2 == 1) list.push_back(length(set));
  return list;
}

using holdings = std::map<std::pair<std::string, std::string>, std::vector<long>>;  // (state, tensor) -> intervals

holdings holdings_of(const model& m, const layout& l, long rank) {
  holdings all;
  for (state s : all_states)
    for (const auto& [name, set] : held(m, l, rank, s)) all[{name_of(s), name}] = intervals_of(set);
  return all;
}

bool is_legal(const model& m, const std::string& text) {
  try {
    parse(m, text);
    return true;
  } catch (const illegal&) {
    return false;
  }
}

}  // namespace

TEST_CASE("legality and defaults") {
  const model llama = small_llama(), moe = small_moe();

  const layout standard = parse(llama, "");
  CHECK(standard.world == 1);
  CHECK(standard.etp == 1);
  CHECK(standard.split == "even");
  CHECK(standard.bucket == -1);
  CHECK(parse(moe, "tp=2,dp=2").etp == 2);
  CHECK(parse(moe, "tp=2,dp=2,ep=2").etp == 1);
  CHECK(parse(moe, "dp=2,tp=2,ep=2,cp=3,pp=2").edp == 6);
  CHECK(parse(moe, "dp=2,tp=2,ep=2,cp=3,pp=2").world == 24);

  for (const char* text :
       {"tp=2", "tp=4", "cp=7", "pp=2", "pp=3,vpp=2", "pp=4,split=account", "pp=2,vpp=4,split=account",
        "pp=8,split=account", "pp=4,split=spread", "pp=9,split=spread", "split=account", "split=spread", "split=even",
        "zero=1,bucket=100", "bucket=100", "zero=0", "ep=1", "dp=12,tp=1,zero=1"})
    CHECK_MESSAGE(is_legal(llama, text), text);
  for (const char* text : {"tp",
                           "tp=",
                           "=2",
                           "tp=2,",
                           ",tp=2",
                           "tp=2,,dp=2",
                           "tp=2x",
                           "tp= 2",
                           " tp=2",
                           "tp=-2",
                           "tp=+2",
                           "tp=0",
                           "tp=2,tp=2",
                           "sp=2",
                           "TP=2",
                           "tp=3",
                           "tp=8",
                           "pp=4",
                           "vpp=2",
                           "vpp=2,split=account",
                           "pp=2,vpp=2",
                           "pp=3,split=account",
                           "pp=2,vpp=3,split=spread",
                           "split=uneven",
                           "split=",
                           "zero=2",
                           "zero=-1",
                           "ep=2,dp=2",
                           "etp=1",
                           "etp=2,tp=2",
                           "bucket=-1",
                           "world=2",
                           "edp=1",
                           "dp=99999999999999999999",
                           "cp=4294967296,dp=4294967296"})
    CHECK_MESSAGE(!is_legal(llama, text), text);

  for (const char* text :
       {"ep=2,dp=2", "ep=3,cp=3", "ep=6,dp=6", "tp=2,etp=1", "dp=2,etp=2", "ep=2,etp=2,dp=4", "ep=2,etp=4,tp=4,cp=2"})
    CHECK_MESSAGE(is_legal(moe, text), text);
  for (const char* text :
       {"ep=2", "ep=4,dp=4", "etp=2", "etp=3,dp=3", "ep=2,dp=3", "ep=2,etp=2,dp=2", "ep=2,etp=2,tp=2"})
    CHECK_MESSAGE(!is_legal(moe, text), text);

  // Only the intermediate sizes in use count; tp may exceed the groups or not, but one divides the other.
  model odd = moe;
  odd.ffn = 7;
  CHECK(is_legal(odd, "tp=2"));
  odd.moe[3] = false;
  CHECK(!is_legal(odd, "tp=2"));
  model uneven = llama;
  uneven.heads = 12, uneven.groups = 3, uneven.head_dim = 8;
  CHECK(!is_legal(uneven, "tp=2"));
  CHECK(is_legal(uneven, "tp=3"));
  CHECK(is_legal(uneven, "tp=6") == (uneven.vocab % 6 == 0 && uneven.ffn % 6 == 0));
}

TEST_CASE("names and order") {
  model m = small_moe();
  m.layers = 2, m.experts = 2, m.moe = {false, true};
  std::vector<std::string> names;
  for (const tensor& t : tensors(m, parse(m, ""))) names.push_back(t.name);
  CHECK(names == std::vector<std::string>{"embedding.word_embeddings.weight",
                                          "decoder.layers.0.self_attention.linear_proj.weight",
                                          "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
                                          "decoder.layers.0.self_attention.linear_qkv.weight",
                                          "decoder.layers.0.self_attention.q_layernorm.weight",
                                          "decoder.layers.0.self_attention.k_layernorm.weight",
                                          "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                                          "decoder.layers.0.mlp.linear_fc1.weight",
                                          "decoder.layers.0.mlp.linear_fc2.weight",
                                          "decoder.layers.1.self_attention.linear_proj.weight",
                                          "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight",
                                          "decoder.layers.1.self_attention.linear_qkv.weight",
                                          "decoder.layers.1.self_attention.q_layernorm.weight",
                                          "decoder.layers.1.self_attention.k_layernorm.weight",
                                          "decoder.layers.1.pre_mlp_layernorm.weight",
                                          "decoder.layers.1.mlp.router.weight",
                                          "decoder.layers.1.mlp.experts.linear_fc1.weight0",
                                          "decoder.layers.1.mlp.experts.linear_fc1.weight1",
                                          "decoder.layers.1.mlp.experts.linear_fc2.weight0",
                                          "decoder.layers.1.mlp.experts.linear_fc2.weight1",
                                          "decoder.final_layernorm.weight",
                                          "output_layer.weight"});
  m.tied = true;
  CHECK(tensors(m, parse(m, "")).back().name == "decoder.final_layernorm.weight");
  CHECK(tensors(m, parse(m, "pp=2")).back().name == "output_layer.weight");
}

TEST_CASE("ranks: rank_groups.json") {
  const json cases = golden("rank_groups.json");
  REQUIRE(cases.size() == 7);
  for (const json& c : cases) {
    layout l;
    l.tp = c.at("tp"), l.cp = c.at("cp"), l.dp = c.at("dp"), l.pp = c.at("pp");
    l.etp = c.at("etp"), l.ep = c.at("ep"), l.edp = c.at("edp"), l.world = c.at("world");

    // Ranks that agree in all coordinates of the grid but those along which the group goes, in rank order.
    const auto groups_along = [&](const std::string& axis) {
      std::map<std::vector<long>, std::vector<long>> groups;
      for (long rank = 0; rank < l.world; ++rank) {
        const coordinates at = coordinates_of(l, rank);
        const bool expert = axis == "etp" || axis == "ep" || axis == "edp";
        std::vector<std::pair<std::string, long>> grid;
        if (expert) grid = {{"etp", at.etp}, {"ep", at.ep}, {"edp", at.edp}, {"pp", at.pp}};
        else grid = {{"tp", at.tp}, {"cp", at.cp}, {"dp", at.dp}, {"pp", at.pp}};
        std::vector<long> others;
        for (const auto& [name, coordinate] : grid)
          if (axis != name && !(axis == "dp-cp" && (name == "dp" || name == "cp"))) others.push_back(coordinate);
        groups[others].push_back(rank);
      }
      std::vector<std::vector<long>> list;
      for (const auto& [others, group] : groups) list.push_back(group);
      std::sort(list.begin(), list.end());
      return list;
    };
    for (const auto& item : c.at("groups").items()) {
      const std::string axis = item.key();
      auto groups = item.value().get<std::vector<std::vector<long>>>();
      std::sort(groups.begin(), groups.end());
      CHECK_MESSAGE(groups_along(axis) == groups, axis, " of world ", l.world);
      // The members of a group come in the order of their coordinate along it.
      if (axis != "dp-cp") continue;
      for (const std::vector<long>& group : groups)
        for (long i = 0; i < length(group); ++i) {
          const coordinates at = coordinates_of(l, group[index(i)]);
          CHECK(at.cp + l.cp * at.dp == i);
        }
    }
  }
}

TEST_CASE("pipeline: pipeline.json") {
  const json cases = golden("pipeline.json");
  long checked = 0;
  for (const json& c : cases) {
    // The contract has no key for layers of the first and the last stage.
    if (!c.at("first_stage_layers").is_null() || !c.at("last_stage_layers").is_null()) continue;
    const bool account = c.at("account_for_embedding");
    REQUIRE(account == c.at("account_for_loss").get<bool>());
    model m = small_llama();
    m.layers = c.at("layers");
    const layout l =
        parse(m, "pp=" + std::to_string(c.at("pp").get<long>()) + ",vpp=" + std::to_string(c.at("vpp").get<long>()) +
                     (account ? ",split=account" : ""));
    for (long pp = 0; pp < l.pp; ++pp)
      for (long chunk = 0; chunk < l.vpp; ++chunk)
        CHECK(layers_of_chunk(m.layers, l, pp, chunk) ==
              c.at("stages").at(index(pp)).at(index(chunk)).get<std::pair<long, long>>());
    ++checked;
  }
  CHECK(checked == 8);
}

TEST_CASE("pipeline: spread, and every split covers every layer once, in order") {
  model m = small_llama();
  m.layers = 7;
  const layout three = parse(m, "pp=3,split=spread");
  CHECK(layers_of_chunk(7, three, 0, 0) == std::pair<long, long>{0, 3});
  CHECK(layers_of_chunk(7, three, 1, 0) == std::pair<long, long>{3, 5});
  CHECK(layers_of_chunk(7, three, 2, 0) == std::pair<long, long>{5, 7});

  for (m.layers = 1; m.layers <= 14; ++m.layers)
    for (const char* split : {"even", "account", "spread"})
      for (long pp = 1; pp <= 16; ++pp)
        for (long vpp = 1; vpp <= 8; ++vpp) {
          const std::string text =
              "pp=" + std::to_string(pp) + ",vpp=" + std::to_string(vpp) + ",split=" + std::string(split);
          if (!is_legal(m, text)) continue;
          const layout l = parse(m, text);
          long next = 0;
          for (long chunk = 0; chunk < vpp; ++chunk)
            for (long p = 0; p < pp; ++p) {
              const auto [first, past] = layers_of_chunk(m.layers, l, p, chunk);
              if (first == past) continue;
              CHECK(first == next);
              next = past;
            }
          CHECK(next == m.layers);
        }
}

TEST_CASE("buffers: zero1_buffers.json") {
  const json cases = golden("zero1_buffers.json");
  long checked = 0;
  for (const json& c : cases) {
    if (c.at("pad_for_high_bus_bandwidth").get<bool>()) continue;  // the contract pads to lcm(n, 128) alone
    std::vector<packed> list;
    for (const json& p : c.at("params")) list.push_back({p.at("name"), p.at("numel"), p.at("shared_embedding")});
    const long n = c.at("dp"), bucket = c.at("bucket_size").is_null() ? -1 : c.at("bucket_size").get<long>();
    const optimizer_buffer buffer = pack(list, n, bucket);

    CHECK(buffer.buckets == c.at("buckets").get<std::vector<std::pair<long, long>>>());
    CHECK(buffer.unpadded == c.at("unpadded").get<std::vector<long>>());
    CHECK(buffer.parameters.size() == c.at("index_map").size());
    for (const buffer_parameter& p : buffer.parameters)
      CHECK(json{p.begin, p.end, p.bucket} == c.at("index_map").at(p.name));

    for (const json& shard : c.at("shards")) {
      const auto [begin, end] = buffer.buckets.at(shard.at("bucket").get<std::size_t>());
      const long part = shard.at("dp_rank"), width = (end - begin) / n;
      const long from = begin + part * width, to = from + width;
      CHECK(json{from, to} == shard.at("range"));
      json params = json::object();
      for (const buffer_parameter& p : buffer.parameters)
        if (std::max(p.begin, from) < std::min(p.end, to))
          params[p.name] = {std::max(p.begin, from) - p.begin, std::min(p.end, to) - p.begin};
      CHECK(params == shard.at("params"));
    }
    ++checked;
  }
  CHECK(checked == length(cases) - 1);
}

TEST_CASE("holdings: regions_tiny_qwen3_moe.json") {
  const model m = model_of(golden("tiny_qwen3_moe.config.json"));
  const json cases = golden("regions_tiny_qwen3_moe.json");
  REQUIRE(cases.size() == 3);
  for (const json& c : cases) {
    const layout l = parse(m, c.at("layout").get<std::string>());
    CHECK(l.world == c.at("world").get<long>());
    for (const json& r : c.at("ranks")) {
      holdings expected;
      for (const json& h : r.at("held"))
        for (const json& interval : h.at("intervals"))
          for (long bound : interval) expected[{h.at("state"), h.at("tensor")}].push_back(bound);
      CHECK_MESSAGE(holdings_of(m, l, r.at("rank")) == expected, c.at("layout").dump(), " rank ", r.at("rank").dump());
    }
  }
}

TEST_CASE("holdings: megatron_models.json") {
  const json cases = golden("megatron_models.json");
  REQUIRE(cases.size() == 7);
  for (const json& c : cases) {
    const model m = model_of(c.at("config"));
    const layout l = parse(m, c.at("layout").get<std::string>());
    REQUIRE(l.world == c.at("world").get<long>());
    REQUIRE(l.world == length(c.at("ranks")));
    for (long rank = 0; rank < l.world; ++rank) {
      holdings expected;
      for (const json& h : c.at("ranks").at(index(rank)))
        expected[{h.at(0), h.at(1)}] = h.at(2).get<std::vector<long>>();
      CHECK_MESSAGE(holdings_of(m, l, rank) == expected, c.at("layout").dump(), " rank ", rank);
    }
  }
}

TEST_CASE("random layouts: every element is held, the optimizer's once per replica that does not share it") {
  generator cases(1);
  for (int i = 0; i < 100; ++i) {
    const layout_case c = cases.next_layout();
    const layout& l = c.parsed;
    INFO(c.describe());
    const model again = model_of(json::parse(c.config));
    CHECK(again.layers == c.m.layers);
    CHECK(
        std::make_tuple(again.hidden, again.heads, again.groups, again.head_dim, again.ffn, again.vocab, again.tied) ==
        std::make_tuple(c.m.hidden, c.m.heads, c.m.groups, c.m.head_dim, c.m.ffn, c.m.vocab, c.m.tied));
    CHECK(std::make_tuple(again.qk_norm, again.experts, again.expert_ffn, again.moe) ==
          std::make_tuple(c.m.qk_norm, c.m.experts, c.m.expert_ffn, c.m.moe));

    std::map<std::string, std::vector<long>> params, masters;  // how many ranks hold each element
    for (const tensor& t : tensors(c.m, l))
      params[t.name] = masters[t.name] = std::vector<long>(index(product(t.shape)), 0);
    for (long rank = 0; rank < l.world; ++rank) {
      for (const auto& [name, set] : held(c.m, l, rank, state::param))
        for (std::size_t k = 0; k < set.size(); ++k) params.at(name)[k] += set[k];
      for (const auto& [name, set] : held(c.m, l, rank, state::master))
        for (std::size_t k = 0; k < set.size(); ++k) masters.at(name)[k] += set[k];
    }
    for (const entry& e : inventory(c.m, l)) {
      const bool expert = e.expert_number >= 0;
      const long shards = expert ? l.edp : l.dp * l.cp;  // ZeRO divides by this
      // and this many hold the same anyway
      const long uncut = e.how == cut::whole ? l.tp : 1;
      const std::vector<long> all(params.at(e.what.name).size(), shards * uncut);
      const std::vector<long> one(params.at(e.what.name).size(), l.zero == 1 ? uncut : shards * uncut);
      CHECK_MESSAGE(params.at(e.what.name) == all, e.what.name);
      CHECK_MESSAGE(masters.at(e.what.name) == one, e.what.name);
    }
  }
}

namespace {

// A plan that is right and nothing else: every missing element from the first device that has it.
std::vector<piece> plain_plan(const switch_case& c) {
  std::vector<piece> plan;
  for (state s : all_states) {
    std::map<std::string, std::map<long, flat_set>> before;  // one name -> device -> elements
    for (long rank = 0; rank < c.from.world; ++rank)
      for (const auto& [name, set] : held(c.m, c.from, rank, s))
        before[one_name(c.m, name)][c.from_devices[index(rank)]] = set;
    for (long rank = 0; rank < c.to.world; ++rank) {
      const long dst = c.to_devices[index(rank)];
      for (const auto& [name, set] : held(c.m, c.to, rank, s)) {
        const auto& holders = before.at(one_name(c.m, name));
        long run_source = -1, run_begin = 0;
        for (long element = 0; element <= length(set); ++element) {
          long source = -1;
          if (element < length(set) && set[index(element)] != 0) {
            for (const auto& [device, elements] : holders)
              if (elements[index(element)] != 0 && (source < 0 || device == dst)) source = device;
          }
          if (source == run_source) continue;
          if (run_source >= 0) plan.push_back({run_source, dst, s, name, {length(set)}, {{run_begin, element}}});
          run_source = source;
          run_begin = element;
        }
      }
    }
  }
  return plan;
}

}  // namespace

TEST_CASE("plans: a right one passes, a wrong one does not") {
  generator cases(2);
  long moving = 0, keeping = 0;
  for (int i = 0; i < 60; ++i) {
    const switch_case c = cases.next_switch();
    INFO(c.describe());
    const auto check = [&](const std::vector<piece>& plan, totals& sums) {
      return check_plan(c.m, c.from, c.to, c.from_devices, c.to_devices, plan, sums);
    };
    const std::vector<piece> plan = plain_plan(c);
    totals sums;
    const std::vector<std::string> faults = check(plan, sums);
    CHECK_MESSAGE(faults.empty(), faults.front());
    CHECK(sums.moved_bytes == sums.least_bytes);
    long needed = 0;
    for (long rank = 0; rank < c.to.world; ++rank)
      for (state s : all_states) needed += bytes_held(c.m, c.to, rank, s);
    CHECK(sums.moved_bytes + sums.retained_bytes == needed);
    moving += sums.moved_bytes > 0 ? 1 : 0;
    keeping += sums.retained_bytes > 0 ? 1 : 0;

    // One fault at a time, in a piece anywhere.
    if (i % 5 != 0) continue;
    const std::size_t at = static_cast<std::size_t>(i) * 7919 % plan.size();
    const piece good = plan[at];
    const auto spoilt = [&](piece bad) {
      std::vector<piece> wrong = plan;
      wrong[at] = std::move(bad);
      totals ignored;
      return !check(wrong, ignored).empty();
    };
    totals ignored;
    std::vector<piece> wrong = plan;
    wrong.erase(wrong.begin() + static_cast<std::ptrdiff_t>(at));
    CHECK_MESSAGE(!check(wrong, ignored).empty(), "missing");
    CHECK(ignored.least_bytes == sums.least_bytes);
    wrong = plan;
    wrong.push_back(good);
    CHECK_MESSAGE(!check(wrong, ignored).empty(), "twice");
    piece bad = good;
    bad.src = 1000;
    CHECK_MESSAGE(spoilt(bad), "unknown source");
    bad = good;
    bad.dst = 1000;
    CHECK_MESSAGE(spoilt(bad), "unknown destination");
    bad = good;
    bad.tensor = "no.such.tensor";
    CHECK_MESSAGE(spoilt(bad), "unknown tensor");
    bad = good;
    bad.dims[0] += 1;
    CHECK_MESSAGE(spoilt(bad), "wrong dims");
    bad = good;
    bad.box[0][1] = bad.dims[0] + 1;
    CHECK_MESSAGE(spoilt(bad), "box too large");
    bad = good;
    bad.box[0][1] = bad.box[0][0];
    CHECK_MESSAGE(spoilt(bad), "empty box");
    bad = good;
    bad.box.clear();
    CHECK_MESSAGE(spoilt(bad), "box of another rank");
    bad = good;
    bad.st = good.st == state::param ? state::master : state::param;
    CHECK_MESSAGE(spoilt(bad), "wrong state");
    if (good.src == good.dst && c.from.world > 1) {  // bytes that were there come from elsewhere
      bad = good;
      bad.src = c.from_devices[c.from_devices[0] == good.dst ? 1 : 0];
      CHECK_MESSAGE(spoilt(bad), "arrives though it was there");
    }
  }
  CHECK(moving > 30);
  CHECK(keeping > 30);
}

TEST_CASE("plans: boxes of several dims, a retained piece that was not there, a tied tensor's two names") {
  model m = small_llama();
  m.layers = 2, m.tied = true;
  const layout whole = parse(m, ""), halves = parse(m, "tp=2"), stages = parse(m, "pp=2");
  const std::string proj = "decoder.layers.0.self_attention.linear_proj.weight";  // [16, 16]
  totals sums;

  // One state of one tensor as a box: from devices 0 and 1 (columns) to device 0.
  std::vector<piece> plan;
  for (const tensor& t : tensors(m, whole)) {
    const long n = product(t.shape);
    const auto h0 = held(m, halves, 0, state::param).at(t.name);
    for (long element = 0; element < n; ++element)
      if (t.name != proj)
        plan.push_back({h0[index(element)] != 0 ? 0 : 1, 0, state::param, t.name, {n}, {{element, element + 1}}});
  }
  plan.push_back({0, 0, state::param, proj, {16, 2, 8}, {{0, 16}, {0, 1}, {0, 8}}});
  plan.push_back({1, 0, state::param, proj, {4, 4, 16}, {{0, 4}, {0, 4}, {8, 16}}});
  CHECK(check_plan(m, halves, whole, {0, 1}, {0}, plan, sums, {state::param}).empty());
  CHECK(!check_plan(m, halves, whole, {0, 1}, {0}, plan, sums).empty());  // the other states are missing
  CHECK(!check_plan(m, halves, whole, {0, 1}, {0, 1}, plan, sums).empty());
  CHECK(!check_plan(m, halves, whole, {1, 1}, {0}, plan, sums).empty());
  plan.back().src = 0;  // "retained", but it was not there
  CHECK(!check_plan(m, halves, whole, {0, 1}, {0}, plan, sums, {state::param}).empty());

  // The output layer of the last stage is the embedding of device 0, under the destination's name.
  const long rows = m.vocab * m.hidden;
  CHECK(held(m, stages, 1, state::param).count("output_layer.weight") == 1);
  std::vector<piece> tied;
  for (long rank = 0; rank < 2; ++rank)
    for (const auto& [name, set] : held(m, stages, rank, state::param))
      tied.push_back({0, rank == 0 ? 3 : 0, state::param, name, {length(set)}, {{0, length(set)}}});
  // device 0 keeps the embedding as output
  CHECK(check_plan(m, whole, stages, {0}, {3, 0}, tied, sums, {state::param}).empty());
  CHECK(sums.moved_bytes == sums.least_bytes);
  CHECK(sums.retained_bytes >= 2 * rows);
}

TEST_CASE("random cases: reproducible, legal, within bounds, and enough of every feature") {
  constexpr int many = 500;
  generator cases(20), twin(20);
  long with_bucket = 0;
  for (int i = 0; i < many; ++i) {
    const layout_case c = cases.next_layout();
    CHECK(twin.next_layout().describe() == c.describe());
    INFO(c.describe());
    CHECK(is_legal(c.m, c.text));
    CHECK(c.parsed.world <= 32);
    CHECK(elements_of(c.m) <= 60000);
    with_bucket += c.features.count(feature::bucket) != 0 ? 1 : 0;
  }
  const census& layouts = cases.layout_census();
  CHECK(layouts.total() == many);
  CHECK(layouts.of("several buckets") * 10 >= with_bucket * 9);

  for (int i = 0; i < many; ++i) {
    const switch_case c = cases.next_switch();
    INFO(c.describe());
    CHECK(c.from.world <= 32);
    CHECK(c.to.world <= 32);
    CHECK(length(c.from_devices) == c.from.world);
    CHECK(length(c.to_devices) == c.to.world);
    CHECK(std::set<long>(c.from_devices.begin(), c.from_devices.end()).size() == c.from_devices.size());
    CHECK(std::set<long>(c.to_devices.begin(), c.to_devices.end()).size() == c.to_devices.size());
  }
  const census& switches = cases.switch_census();
  CHECK(switches.total() == many);

  for (std::size_t i = 0; i < feature_names.size(); ++i) {
    const feature f = static_cast<feature>(i);
    INFO(feature_names[i]);
    CHECK(switches.of(f).alone >= 30);
    CHECK(switches.of(f).with_two >= 30);
    if (f == feature::devices) continue;
    CHECK(layouts.of(f).alone >= 30);
    CHECK(layouts.of(f).with_two >= 30);
  }
  for (const char* trait :
       {"devices: growth", "devices: shrink from the middle", "devices: overlapping", "devices: disjoint",
        "devices: shuffled", "tp exceeds the query groups", "a chunk without layers", "tied without pp",
        "model: dense layers among MoE ones", "model: LLaMA", "model: Qwen3", "model: Qwen3-MoE", "several buckets",
        "FROM and TO differ in zero"})
    CHECK_MESSAGE(switches.of(trait) >= 5, trait);
  MESSAGE("500 layouts\n" << layouts.report() << "\n500 switches\n" << switches.report());
}
