// SPDX-License-Identifier: Apache-2.0
// The library against what Megatron's own functions and models said (tests/data): rank groups, pipeline chunks,
// optimizer buffers, and what every rank of seven models holds.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/expand.hpp"
#include "../support/states.hpp"

using namespace reshard;
using nlohmann::json;
using testing::held_elements, testing::to_model;

namespace {
json data(const std::string& file) {
  std::ifstream stream(std::string(RESHARD_TEST_DATA) + "/" + file);
  REQUIRE(stream.good());
  return json::parse(stream);
}

oracle::model model_of(const json& c) {
  oracle::model m;
  m.layers = c["num_hidden_layers"];
  m.hidden = c["hidden_size"];
  m.heads = c["num_attention_heads"];
  m.groups = c["num_key_value_heads"];
  m.head_dim = c["head_dim"];
  m.ffn = c["intermediate_size"];
  m.vocab = c["vocab_size"];
  m.tied = c["tie_word_embeddings"];
  m.qk_norm = c["architectures"][0] != "LlamaForCausalLM";
  if (c["architectures"][0] != "Qwen3MoeForCausalLM") return m;
  m.experts = c["num_experts"];
  m.expert_ffn = c["moe_intermediate_size"];
  const std::set<long> dense = c["mlp_only_layers"].get<std::set<long>>();
  const long step = c["decoder_sparse_step"];
  for (long l = 0; l < m.layers; ++l) m.moe.push_back(dense.count(l) == 0 && (l + 1) % step == 0);
  return m;
}

/// state name -> tensor name -> elements held
using holdings = std::map<std::string, std::map<std::string, oracle::flat_set>>;

holdings held_states(const computed_holding& h, rank_t rank) {
  holdings result;
  for (const state& s : testing::each_state())  // a statistic's has the name of a parameter's
    result[std::string(s.name)].merge(held_elements(h, rank, s.placed_as()));
  return result;
}

holdings nothing() {
  holdings result;
  for (const state& s : testing::each_state()) result[std::string(s.name)];
  return result;
}

/// Marks [begin, end) of a tensor; the set is as long as the library's, where the library holds the tensor at all.
void mark(oracle::flat_set& set, index_t begin, index_t end, const oracle::flat_set& like) {
  set.resize(std::max(like.size(), static_cast<std::size_t>(end)), 0);
  for (index_t x = begin; x < end; ++x) set[static_cast<std::size_t>(x)] = 1;
}
}  // namespace

TEST_CASE("rank groups are Megatron's") {
  int checked = 0;
  for (const json& c : data("rank_groups.json")) {
    const degrees d{.tp = c["tp"], .cp = c["cp"], .pp = c["pp"], .dp = c["dp"], .ep = c["ep"], .etp = c["etp"]};
    CHECK(d.world() == c["world"].get<rank_t>());
    CHECK(d.expert_dp() == c["edp"].get<index_t>());
    const struct {
      const char* name;
      mesh_kind kind;
      std::vector<int> axes;
    } groups[] = {{"tp", mesh_kind::dense, {0}},  {"cp", mesh_kind::dense, {1}},       {"dp", mesh_kind::dense, {2}},
                  {"pp", mesh_kind::dense, {3}},  {"dp-cp", mesh_kind::dense, {1, 2}}, {"etp", mesh_kind::expert, {0}},
                  {"ep", mesh_kind::expert, {1}}, {"edp", mesh_kind::expert, {2}}};
    for (const auto& g : groups) {
      const mesh m = mesh_of(d, g.kind);
      rank_t seen = 0;
      for (const json& listed : c["groups"][g.name]) {
        index_t at[mesh_ndim];
        m.coordinates(listed[0], at);
        rank_product group{m, {{at[0]}, {at[1]}, {at[2]}, {at[3]}}};
        for (const int a : g.axes) group.along[a] = {0, m.extent[a]};
        std::vector<rank_t> found;
        for (index_t i = 0; i < group.count(); ++i) found.push_back(group[i]);
        CHECK(found == listed.get<std::vector<rank_t>>());
        seen += group.count();
      }
      CHECK(seen == d.world());
      ++checked;
    }
  }
  CHECK(checked == 7 * 8);
}

TEST_CASE("pipeline chunks are Megatron's") {
  int checked = 0;
  for (const json& c : data("pipeline.json")) {
    REQUIRE(c["account_for_embedding"] == c["account_for_loss"]);
    degrees d;
    d.pp = c["pp"], d.vpp = c["vpp"];
    d.split = c["account_for_loss"] ? pipeline_split::account : pipeline_split::even;
    if (!c["first_stage_layers"].is_null()) d.first = c["first_stage_layers"];
    if (!c["last_stage_layers"].is_null()) d.last = c["last_stage_layers"];
    const pipeline_placement placed(c["layers"], d);
    for (index_t stage = 0; stage < d.pp; ++stage) {
      std::vector<std::vector<index_t>> found;
      placed.intervals(stage, [&](interval i) { found.push_back({i.begin, i.end}); });
      CHECK(found == c["stages"][static_cast<std::size_t>(stage)].get<std::vector<std::vector<index_t>>>());
    }
    ++checked;
  }
  CHECK(checked == 10);
}

TEST_CASE("optimizer buffers are Megatron's: index map, buckets, and what each part of a bucket has") {
  int checked = 0;
  for (const json& c : data("zero1_buffers.json")) {
    const json& parameters = c["params"];
    const index_t group = c["dp"];
    std::vector<buffer_entry> entries;
    std::vector<interval> buckets;
    const index_t bandwidth = c["pad_for_high_bus_bandwidth"] ? bus_alignment : 1;
    buffer_writer out(lcm(group, bandwidth), c["bucket_size"].is_null() ? 0 : c["bucket_size"].get<index_t>(), entries,
                      buckets);
    for (int i = static_cast<int>(parameters.size()) - 1; i >= 0; --i) {
      const json& p = parameters[static_cast<std::size_t>(i)];
      if (p["shared_embedding"]) out.shared(i, p["numel"]);
      else out.parameters(i, 0, 0, 1, p["numel"]);
    }
    out.finish();

    json index_map = json::object(), ranges = json::array(), shards = json::array();
    for (const interval b : buckets) ranges.push_back({b.begin, b.end});
    for (const buffer_entry& e : entries) {
      const interval at = e.outer.item(0);
      index_map[parameters[static_cast<std::size_t>(e.family)]["name"].get<std::string>()] = {at.begin, at.end,
                                                                                              e.bucket};
    }
    for (std::size_t b = 0; b < buckets.size(); ++b)
      for (index_t part = 0; part < group; ++part) {
        const interval range = even_part(buckets[b], part, group);
        json held = json::object();
        for (const buffer_entry& e : entries) {
          const interval own = translate(intersect(e.outer.item(0), range), -e.outer.begin);
          if (!own.empty())
            held[parameters[static_cast<std::size_t>(e.family)]["name"].get<std::string>()] = {own.begin, own.end};
        }
        shards.push_back({{"bucket", b}, {"dp_rank", part}, {"range", {range.begin, range.end}}, {"params", held}});
      }
    CHECK(index_map == c["index_map"]);
    CHECK(ranges == c["buckets"]);
    CHECK(shards == c["shards"]);
    ++checked;
  }
  CHECK(checked == static_cast<int>(data("zero1_buffers.json").size()));
}

TEST_CASE("every rank of seven Megatron models holds what their own sharded state and optimizer buffers say") {
  index_t ranks = 0;
  for (const json& c : data("megatron_models.json")) {
    CAPTURE(c["layout"].get<std::string>());
    const space s(to_model(model_of(c["config"])), parse_degrees(c["layout"].get<std::string>()));
    const computed_holding h(s);
    REQUIRE(s.ranks() == c["world"].get<rank_t>());
    REQUIRE(c["ranks"].size() == static_cast<std::size_t>(s.ranks()));
    for (rank_t rank = 0; rank < s.ranks(); ++rank, ++ranks) {
      const holdings ours = held_states(h, rank);
      holdings theirs = nothing();
      for (const json& held : c["ranks"][static_cast<std::size_t>(rank)]) {
        const std::string state = held[0], tensor = held[1];
        const auto like = ours.at(state).find(tensor);
        REQUIRE(like != ours.at(state).end());
        for (std::size_t i = 0; i < held[2].size(); i += 2)
          mark(theirs[state][tensor], held[2][i], held[2][i + 1], like->second);
      }
      CHECK(ours == theirs);
    }
  }
  CHECK(ranks == 62);
}

TEST_CASE("the regions of the tiny Qwen3-MoE, read from the contract by brute force") {
  const model m = to_model(model_of(data("tiny_qwen3_moe.config.json")));
  index_t ranks = 0;
  for (const json& c : data("regions_tiny_qwen3_moe.json")) {
    CAPTURE(c["layout"].get<std::string>());
    const space s(m, parse_degrees(c["layout"].get<std::string>()));
    const computed_holding h(s);
    CHECK(s.ranks() == c["world"].get<rank_t>());
    for (const json& rank : c["ranks"]) {
      const holdings ours = held_states(h, rank["rank"]);
      holdings theirs = nothing();
      for (const json& held : rank["held"]) {
        const std::string state = held["state"], tensor = held["tensor"];
        const auto like = ours.at(state).find(tensor);
        REQUIRE(like != ours.at(state).end());
        for (const json& i : held["intervals"]) mark(theirs[state][tensor], i[0], i[1], like->second);
        CHECK(oracle::count(theirs[state][tensor]) == held["elements"].get<long>());
      }
      CHECK(ours == theirs);
      ++ranks;
    }
  }
  CHECK(ranks > 0);
}
