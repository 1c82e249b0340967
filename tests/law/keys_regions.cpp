// SPDX-License-Identifier: Apache-2.0
// Every key of a layout, on every architecture: what `reshard regions` prints of each rank is what the oracle says,
// which was written from the contract alone; and a layout is refused where the oracle refuses it. The cases are runs of
// Megatron-core, and random ones.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include <reshard/io/hf_config.hpp>
#include <reshard/io/regions.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>

#include "../oracle/golden_file.hpp"
#include "../oracle/trainer_switch.hpp"

using namespace reshard;
namespace trainer = oracle::trainer;
using nlohmann::json;

namespace {

/// What the library prints of a rank, per state and tensor as flat indices.
std::map<std::string, trainer::holding> printed(const computed_holding& h, rank_t rank) {
  io::text_output out;
  io::write_rank_json(out, h, rank, all_states);
  std::map<std::string, trainer::holding> result;
  const json rank_text = json::parse(out.text());
  for (const json& region : rank_text.at("regions")) {
    trainer::numbers dims;
    std::vector<std::array<long, 2>> box;
    long elements = 1;
    for (const json& d : region.at("dims")) dims.push_back(d.get<long>()), elements *= dims.back();
    for (const json& side : region.at("box")) box.push_back({side.at(0).get<long>(), side.at(1).get<long>()});
    trainer::intervals set;
    REQUIRE(trainer::flat_of_box(dims, box, elements, set) == "");
    trainer::intervals& all = result[region.at("state").get<std::string>()][region.at("tensor").get<std::string>()];
    CHECK(trainer::both(all, set).empty());
    all = trainer::either(all, set);
  }
  return result;
}

using states_of_rank = std::map<std::string, trainer::holding>;

std::string text_of(const trainer::intervals& set) {
  std::string text;
  for (std::size_t i = 0; i < set.size() && i < 4; ++i)
    text += " [" + std::to_string(set[i].first) + "," + std::to_string(set[i].second) + ")";
  return text + (set.size() > 4 ? " .." : "");
}

/// The first state and tensor in which two answers differ, and how; nothing where they are equal.
std::string difference(const states_of_rank& ours, const states_of_rank& theirs) {
  for (const auto* side : {&ours, &theirs})
    for (const auto& [state, tensors] : *side)
      for (const auto& [tensor, set] : tensors) {
        const auto find = [&](const states_of_rank& all) {
          const auto a = all.find(state);
          if (a == all.end()) return trainer::intervals{};
          const auto b = a->second.find(tensor);
          return b == a->second.end() ? trainer::intervals{} : b->second;
        };
        if (find(ours) != find(theirs))
          return state + " of " + tensor + ": ours" + text_of(find(ours)) + ", the oracle's" + text_of(find(theirs));
      }
  return {};
}

std::string refusal_of(const std::string& config, const std::string& layout) {
  try {
    space(io::parse_config(config, "model"), parse_degrees(layout));
    return {};
  } catch (const refusal& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("golden: what every rank of real Megatron models holds") {
  long ranks = 0, refused = 0;
  for (const json& c : golden("megatron_holds.json")) {
    const std::string config = c.at("config").dump(), layout = c.at("layout").get<std::string>();
    CAPTURE(config);
    CAPTURE(layout);
    const std::string why = refusal_of(config, layout);
    CAPTURE(why);
    CHECK(why.empty() == !c.contains("refused"));
    if (c.contains("refused")) { ++refused; continue; }
    if (!why.empty()) continue;
    const computed_holding h(space(io::parse_config(config, "model"), parse_degrees(layout)));
    CHECK(covers(h));
    const trainer::model m = trainer::read_model(c.at("config"));
    const trainer::layout l = trainer::parse(m, layout);
    for (rank_t rank = 0; rank < h.ranks(); ++rank, ++ranks) {
      std::map<std::string, trainer::holding> expected;
      for (const trainer::state& s : trainer::parse_states("adam"))
        if (trainer::holding held = trainer::held(m, l, rank, s); !held.empty()) expected[s.name] = held;
      CHECK(difference(printed(h, rank), expected) == "");
    }
  }
  MESSAGE(ranks, " ranks, ", refused, " refused");
}
