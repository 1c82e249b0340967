// SPDX-License-Identifier: Apache-2.0
// The JSON of regions, read back and turned into flat indices, equals what a brute-force reading of the contract and
// real Megatron-core models say that every rank holds.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/hf_config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/report/regions.hpp>

#include "../support/refused.hpp"
#include "../support/sanitized.hpp"
#include "../support/states.hpp"

using namespace reshard;

using namespace reshard::io;
using nlohmann::json;

namespace {

// begin, end, begin, end, ... ascending, merged
using flat_set = std::vector<index_t>;
using holdings = std::map<std::pair<std::string, std::string>, flat_set>;  // (state, tensor)

json read_data(const std::string& name) {
  std::ifstream file(RESHARD_TEST_DATA "/" + name);
  return json::parse(file);
}

flat_set merged(std::vector<std::pair<index_t, index_t>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  flat_set result;
  for (const auto& [begin, end] : intervals) {
    if (!result.empty()) REQUIRE(begin >= result.back());  // entries are disjoint
    if (!result.empty() && begin == result.back()) result.back() = end;
    else result.insert(result.end(), {begin, end});
  }
  return result;
}

/// Every row of a box, one by one.
void rows_of(const json& dims, const json& box, std::size_t dim, index_t offset,
             std::vector<std::pair<index_t, index_t>>& out) {
  const index_t extent = dims[dim];
  const index_t begin = box[dim][0], end = box[dim][1];
  REQUIRE(0 <= begin);
  REQUIRE(begin < end);
  REQUIRE(end <= extent);
  offset *= extent;
  if (dim + 1 == dims.size()) {
    out.emplace_back(offset + begin, offset + end);
    return;
  }
  for (index_t i = begin; i < end; ++i) rows_of(dims, box, dim + 1, offset + i, out);
}

holdings held_in(const json& rank) {
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<index_t, index_t>>> intervals;
  for (const json& entry : rank.at("regions")) {
    REQUIRE(entry.at("dims").size() == entry.at("box").size());
    rows_of(entry.at("dims"), entry.at("box"), 0, 0, intervals[{entry.at("state"), entry.at("tensor")}]);
  }
  holdings result;
  for (const auto& [what, list] : intervals) result[what] = merged(list);
  return result;
}

json regions_of(const space& where, interval ranks, state_set states = all_states) {
  text_output out;
  write_regions_json(out, computed_holding(where, states), ranks, states);
  return json::parse(out.text()).at("ranks");
}

}  // namespace

TEST_CASE("golden: a small Qwen3-MoE under three layouts") {
  const model m = load_model(RESHARD_TEST_DATA "/tiny_qwen3_moe.config.json");
  for (const json& golden : read_data("regions_tiny_qwen3_moe.json")) {
    const std::string layout = golden.at("layout");
    CAPTURE(layout);
    const space where(m, parse_degrees(layout));
    CHECK(where.ranks() == golden.at("world"));
    for (const json& expected : golden.at("ranks")) {
      const rank_t rank = expected.at("rank");
      CAPTURE(rank);
      holdings held;
      for (const json& entry : expected.at("held")) {
        flat_set flat;
        for (const json& interval : entry.at("intervals")) flat.insert(flat.end(), {interval[0], interval[1]});
        held[{entry.at("state"), entry.at("tensor")}] = flat;
      }
      CHECK(held_in(regions_of(where, {rank, rank + 1})[0]) == held);
    }
  }
}

TEST_CASE("golden: every rank of Megatron-core's own models") {
  for (const json& golden : read_data("megatron_models.json")) {
    const std::string layout = golden.at("layout"), config = golden.at("config").dump();
    CAPTURE(layout);
    const model m = parse_config(config, "golden");
    const space where(m, parse_degrees(layout));
    CHECK(where.ranks() == golden.at("world"));
    const json ranks = regions_of(where, {0, where.ranks()});
    REQUIRE(ranks.size() == golden.at("ranks").size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      CAPTURE(rank);
      CHECK(ranks[rank].at("rank") == rank);
      holdings held;
      for (const json& entry : golden.at("ranks")[rank]) held[{entry[0], entry[1]}] = entry[2].get<flat_set>();
      CHECK(held_in(ranks[rank]) == held);
    }
  }
}

TEST_CASE("coordinates on both meshes; a dense model's experts' mesh is tp, 1, cp x dp") {
  const space moe(load_model(RESHARD_TEST_DATA "/tiny_qwen3_moe.config.json"),
                  parse_degrees("tp=2,cp=2,dp=2,pp=2,ep=4"));
  CHECK(regions_of(moe, {13, 14})[0].at("coordinates") ==
        json::parse(R"({"tp":1,"cp":0,"dp":1,"pp":1,"etp":0,"ep":1,"edp":1})"));
  const space dense(load_model("llama2-7b"), parse_degrees("tp=2,cp=2,dp=2"));
  CHECK(regions_of(dense, {6, 7}, only(0))[0].at("coordinates") ==
        json::parse(R"({"tp":0,"cp":1,"dp":1,"pp":0,"etp":0,"ep":0,"edp":3})"));
}

TEST_CASE("a tensor has a parts axis where it has several, rows but for a vector, and columns") {
  const space s(
      make_transformer(
          {.name = "m", .layers = 1, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 12, .vocabulary = 16}),
      parse_degrees("tp=2"));
  const json all = regions_of(s, {1, 2}, only(0));
  std::map<std::string, json> dims;
  for (const json& entry : all.at(0).at("regions")) dims[entry.at("tensor")] = entry.at("dims");
  CHECK(dims.at("decoder.layers.0.mlp.linear_fc1.weight") == json{2, 12, 8});
  CHECK(dims.at("decoder.layers.0.self_attention.linear_qkv.weight") == json{2, 12, 8});
  CHECK(dims.at("decoder.final_layernorm.weight") == json::array({8}));
}

TEST_CASE("a rank that holds nothing has an empty list; states are those asked for") {
  const model m = parse_config(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 8,
    "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 8})",
                               "two layers");
  const space where(m, parse_degrees("pp=4,split=spread"));
  CHECK(regions_of(where, {2, 3})[0].at("regions") == json::array());
  const json master = regions_of(where, {0, 1}, only(1))[0].at("regions");
  CHECK(master.size() == 7);
  for (const json& entry : master) CHECK(entry.at("state") == "master");
}

TEST_CASE("bytes of 4194304 ranks at most are listed") {
  const space many(load_model("llama2-7b"), parse_degrees("dp=4194305"));
  CHECK_REFUSED(bytes_of_ranks(computed_holding(many), all_states),
                "the layout has 4194305 ranks; at most 4194304 are listed one by one");
  if (testing::sanitized) return;  // half a minute there
  const space fewer(load_model("llama2-7b"), parse_degrees("dp=4194304"));
  CHECK(bytes_of_ranks(computed_holding(fewer), only(0)).size() == 4194304);
}

TEST_CASE("bytes per rank are the volumes of the boxes") {
  const model m = load_model(RESHARD_TEST_DATA "/tiny_qwen3_moe.config.json");
  for (const char* layout :
       {"", "tp=2,cp=2,pp=2,vpp=2,dp=2,ep=4,zero=1", "tp=4,dp=3,etp=2,zero=1,bucket=1000", "pp=4,dp=2"}) {
    CAPTURE(layout);
    const space where(m, parse_degrees(layout));
    text_output out;
    write_check_json(out, computed_holding(where));
    const json check = json::parse(out.text());
    CHECK(check.at("legal") == true);
    CHECK(check.at("world") == where.ranks());
    std::map<std::string, std::vector<index_t>> bytes;
    for (const state& s : testing::each_state())
      bytes[std::string(s.name)].resize(static_cast<std::size_t>(where.ranks()));
    for (const json& rank : regions_of(where, {0, where.ranks()}))
      for (const auto& [what, flat] : held_in(rank))
        for (std::size_t i = 0; i < flat.size(); i += 2)
          bytes[what.first][rank.at("rank").get<std::size_t>()] +=
              (flat[i + 1] - flat[i]) * (what.first == "param" ? 2 : 4);
    CHECK(check.at("bytes_per_rank") == json(bytes));
  }
}

TEST_CASE("check of another list: its names, each state by its own width and level, statistics with param") {
  transformer sizes{.name = "m",
                    .layers = 2,
                    .hidden = 8,
                    .heads = 2,
                    .groups = 2,
                    .head_dim = 4,
                    .ffn = 8,
                    .vocabulary = 16,
                    .experts = 4,
                    .expert_ffn = 4,
                    .expert_bias = true};
  const space where(make_transformer(sizes), parse_degrees("dp=4,zero=2"));
  const state_list list = parse_state_list("m:bf16:1,grad:fp32:2,param:fp32:3,v:fp32:1,ema:bf16:3,n:bf16:1");
  text_output out;
  const computed_holding h(where, list);
  write_check_json(out, h, list);
  std::map<std::string, std::vector<index_t>> bytes;
  for (rank_t rank = 0; rank < 4; ++rank) {
    index_t whole = 0, part = 0, statistics = 0;  // elements
    each_held(h, rank, role::parameter, [&](int, const family_box& b) { whole += b.volume(); });
    each_held(h, rank, role::optimizer, [&](int, const family_box& b) { part += b.volume(); });
    each_held(h, rank, role::statistic, [&](int, const family_box& b) { statistics += b.volume(); });
    CHECK(statistics == 2 * 4);
    CHECK(part < whole);
    bytes["m"].push_back(2 * part), bytes["n"].push_back(2 * part);
    bytes["grad"].push_back(4 * part), bytes["v"].push_back(4 * part);
    bytes["param"].push_back(4 * whole + 4 * statistics);
    bytes["ema"].push_back(2 * whole);
  }
  CHECK(json::parse(out.text()).at("bytes_per_rank") == json(bytes));
}
