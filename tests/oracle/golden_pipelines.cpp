// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts against Megatron's own functions: layers of chunks, rank orders, padded vocabularies,
// and what they refuse.
#include "golden_file.hpp"
#include "trainer_tensors.hpp"

#include <map>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using namespace oracle::trainer;

// "" or why it is refused.
std::string refusal(const pipeline_keys& keys, long layers, long predictions, pipeline& p) {
  try {
    p = pipeline_of(keys, layers, predictions);
    return {};
  } catch (const illegal& why) {
    return why.what();
  }
}

void check_stages(const json& stages, const pipeline& p, const std::string& what) {
  for (long k = 0; k < p.chunks(); ++k) {
    const interval expected = stages.at(at(k % p.pp)).at(at(k / p.pp));
    CHECK_MESSAGE(p.layers.at(at(k)) == expected, what, " chunk ", k);
  }
}

pipeline_keys keys_of_case(const json& c) {
  pipeline_keys keys;
  keys.pp = c.at("pp");
  keys.vpp = c.at("vpp").get<long>();
  if (!c.at("first_stage_layers").is_null()) keys.first = c.at("first_stage_layers").get<long>();
  if (!c.at("last_stage_layers").is_null()) keys.last = c.at("last_stage_layers").get<long>();
  const bool embedding = c.at("account_for_embedding"), loss = c.at("account_for_loss");
  if (embedding) keys.split = loss ? "account" : "account_embedding";
  else if (loss) keys.split = "account_loss";
  return keys;
}

model small() {
  return {.layers = 1, .hidden = 8, .heads = 48, .groups = 48, .head_dim = 2, .ffn = 48, .vocab = 48, .moe = {false}};
}

}  // namespace

TEST_CASE("layout strings") {
  const json cases = golden("megatron_layout_strings.json");
  REQUIRE(cases.size() == 32);
  long equal = 0, refused = 0;
  for (const json& c : cases) {
    const std::string what = c.dump();
    pipeline_keys keys;
    keys.pp = c.at("pp");
    keys.string = c.at("string").get<std::string>();
    std::erase(*keys.string, ',');  // a LAYOUT leaves them out
    pipeline p;
    const std::string why = refusal(keys, c.at("layers"), c.at("mtp"), p);
    if (c.contains("refused")) {
      CHECK_MESSAGE(!why.empty(), what);
      ++refused;
      continue;
    }
    REQUIRE_MESSAGE(why == "", what);
    CHECK_MESSAGE(p.vpp == c.at("vpp").get<long>(), what);
    for (long k = 0; k < p.chunks(); ++k) {
      const std::size_t stage = at(k % p.pp), chunk = at(k / p.pp);
      const auto [first, past] = p.layers.at(at(k));
      CHECK_MESSAGE(range(first, past) == c.at("decoders").at(stage).at(chunk).get<numbers>(), what, " chunk ", k);
      if (c.at("mtps").is_null()) continue;
      const bool has = !c.at("mtps").at(stage).at(chunk).empty();
      CHECK_MESSAGE(has == (p.prediction == k), what, " chunk ", k);
    }
    ++equal;
  }
  MESSAGE(equal, " equal, ", refused, " refused");
}

TEST_CASE("even, accounted and uneven pipelines") {
  long equal = 0, refused = 0;
  for (const char* name : {"pipeline.json", "megatron_uneven_pipelines.json"})
    for (const json& c : golden(name)) {
      pipeline p;
      const std::string why = refusal(keys_of_case(c), c.at("layers"), 0, p);
      // vpp above 1 without pp: Megatron's function gives all chunks all layers, and the contract refuses it.
      if (c.contains("refused") || !c.value("covers", true)) {
        CHECK_MESSAGE(!why.empty(), c.dump());
        ++refused;
        continue;
      }
      REQUIRE_MESSAGE(why == "", c.dump());
      check_stages(c.at("stages"), p, c.dump());
      ++equal;
    }
  CHECK(equal + refused == 10 + 44);
  MESSAGE(equal, " equal, ", refused, " refused");
}

TEST_CASE("groups of ranks") {
  model m = small();
  m.experts = 48;
  m.expert_ffn = 48;
  m.moe = {true};
  long equal = 0, refused = 0;
  for (const char* name : {"rank_groups.json", "megatron_rank_orders.json"})
    for (const json& c : golden(name)) {
      const long tp = c.at("tp"), cp = c.at("cp"), pp = c.at("pp"), world = c.at("world");
      const long etp = c.at("etp").is_null() ? tp : c.at("etp").get<long>();  // Megatron's default
      const std::string text = "tp=" + std::to_string(tp) + ",cp=" + std::to_string(cp) + ",pp=" + std::to_string(pp) +
                               ",dp=" + std::to_string(world / (tp * cp * pp)) + ",ep=" + c.at("ep").dump() +
                               ",etp=" + std::to_string(etp) +
                               ",split=spread,order=" + c.at("order").get<std::string>();
      if (c.contains("refused")) {
        CHECK_MESSAGE(!why_illegal(m, text).empty(), text);
        ++refused;
        continue;
      }
      REQUIRE_MESSAGE(why_illegal(m, text) == "", text);
      const layout l = parse(m, text);
      REQUIRE(l.world == world);
      for (const auto& item : c.at("groups").items()) {
        // Ranks that agree in every coordinate of the grid but those along which the group goes, by rank.
        const std::string axis = item.key();
        std::map<numbers, numbers> groups;
        for (long rank = 0; rank < world; ++rank) {
          const coordinates own = coordinates_of(l, rank);
          std::map<std::string, long> grid = {{"tp", own.tp}, {"cp", own.cp}, {"dp", own.dp}, {"pp", own.pp}};
          if (axis[0] == 'e') grid = {{"etp", own.etp}, {"ep", own.ep}, {"edp", own.edp}, {"pp", own.pp}};
          if (axis == "dp-cp") grid.erase("dp"), grid.erase("cp");
          grid.erase(axis);
          numbers others;
          for (const auto& [other, coordinate] : grid) others.push_back(coordinate);
          groups[others].push_back(rank);
        }
        std::vector<numbers> found;
        for (const auto& [others, group] : groups) found.push_back(group);
        std::sort(found.begin(), found.end());
        auto expected = item.value().get<std::vector<numbers>>();
        // The index in the sharding group is the place in Megatron's list.
        for (const numbers& group : expected)
          for (long i = 0; i < length(group); ++i) {
            const coordinates own = coordinates_of(l, group[at(i)]);
            if (axis == "dp-cp") CHECK_MESSAGE(dense_member(l, own).index == i, text);
            if (axis == "edp") CHECK_MESSAGE(expert_member(l, own).index == i, text);
          }
        for (numbers& group : expected) std::sort(group.begin(), group.end());
        std::sort(expected.begin(), expected.end());
        CHECK_MESSAGE(found == expected, axis, " of ", text);
      }
      ++equal;
    }
  CHECK(equal + refused == 7 + 24);
  MESSAGE(equal, " equal, ", refused, " refused");
}

TEST_CASE("padded vocabularies") {
  const json cases = golden("megatron_vocabulary.json");
  REQUIRE(cases.size() == 564);
  for (const json& c : cases) {
    model m = small();
    m.vocab = c.at("vocabulary");
    const layout l = parse(m, "tp=" + c.at("tp").dump() + ",dp=1,pad=" + c.at("divisible_by").dump());
    CHECK_MESSAGE(vocabulary_rows(m, l) == c.at("padded").get<long>(), c.dump());
  }
}
