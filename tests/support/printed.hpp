// SPDX-License-Identifier: Apache-2.0
// What the library prints as JSON, in the words of the oracle: sets of flat indices per state and tensor.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/report/regions.hpp>

#include "../oracle/trainer_switch.hpp"

namespace testing {

namespace trainer = oracle::trainer;

/// A box as it is printed.
struct printed_box {
  trainer::numbers dims;
  std::vector<std::array<long, 2>> box;
};
inline printed_box box_of(const nlohmann::json& printed) {
  printed_box b;
  for (const nlohmann::json& d : printed.at("dims")) b.dims.push_back(d.get<long>());
  for (const nlohmann::json& side : printed.at("box"))
    b.box.push_back({side.at(0).get<long>(), side.at(1).get<long>()});
  return b;
}

using states_of_rank = std::map<std::string, trainer::holding>;

/// What the library prints of a rank, per state and tensor as flat indices.
inline states_of_rank printed(const reshard::computed_holding& h, reshard::rank_t rank,
                              const reshard::state_list& list = reshard::adam) {
  reshard::io::text_output out;
  reshard::io::write_rank_json(out, h, rank, list, list);
  const nlohmann::json text = nlohmann::json::parse(out.text());
  states_of_rank result;
  for (const nlohmann::json& region : text.at("regions")) {
    const printed_box b = box_of(region);
    long elements = 1;
    for (const long extent : b.dims) elements *= extent;
    trainer::intervals set;
    REQUIRE(trainer::flat_of_box(b.dims, b.box, elements, set) == "");
    trainer::intervals& all = result[region.at("state").get<std::string>()][region.at("tensor").get<std::string>()];
    CHECK(trainer::both(all, set).empty());
    all = trainer::either(all, set);
  }
  return result;
}

/// What the oracle says of it.
inline states_of_rank expected(const trainer::model& m, const trainer::layout& l, long rank,
                               const std::vector<trainer::state>& states) {
  states_of_rank result;
  for (const trainer::state& s : states)
    if (trainer::holding held = trainer::held(m, l, rank, s); !held.empty()) result[s.name] = held;
  return result;
}

inline std::string text_of(const trainer::intervals& set) {
  std::string text;
  for (std::size_t i = 0; i < set.size() && i < 4; ++i)
    text += " [" + std::to_string(set[i].first) + "," + std::to_string(set[i].second) + ")";
  return text + (set.size() > 4 ? " .." : "");
}

/// What an answer has of a state and a tensor; nothing where it does not name them.
inline trainer::intervals set_of(const states_of_rank& all, const std::string& state, const std::string& tensor) {
  const auto of_state = all.find(state);
  if (of_state == all.end()) return {};
  const auto of_tensor = of_state->second.find(tensor);
  return of_tensor == of_state->second.end() ? trainer::intervals{} : of_tensor->second;
}

/// The first state and tensor in which two answers differ, and how; nothing where they are equal.
inline std::string difference(const states_of_rank& ours, const states_of_rank& theirs) {
  for (const auto* side : {&ours, &theirs})
    for (const auto& [state, tensors] : *side)
      for (const auto& [tensor, set] : tensors) {
        const trainer::intervals here = set_of(ours, state, tensor), there = set_of(theirs, state, tensor);
        if (here != there)
          return state + " of " + tensor + ": ours" + text_of(here) + ", the oracle's" + text_of(there);
      }
  return {};
}

}  // namespace testing
