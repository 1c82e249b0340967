// SPDX-License-Identifier: Apache-2.0
//
// Oracle and library against torch's own DTensor and fully_shard: random layouts with shard=rows, most of which cut
// some tensor into unequal parts. tests/tools/dtensor_layouts.py wrote the cases.
#include <doctest/doctest.h>

#include <string>

#include <nlohmann/json.hpp>

#include <reshard/io/hf_config.hpp>
#include <reshard/model/state_list.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>

#include "../support/printed.hpp"
#include "golden_file.hpp"
#include "trainer_holds.hpp"

using nlohmann::json;
using namespace oracle::trainer;

namespace {

const char* const states_text = "param:bf16:3,exp_avg:fp32:1";

// What a rank of a case holds of a state, by torch.
holding by_torch(const json& c, long rank, std::size_t which) {
  holding h;
  for (const json& entry : c.at("tables").at(c.at("ranks").at(at(rank)).at(which).get<std::size_t>())) {
    intervals& set = h[entry.at(0)];
    const json& list = c.at("sets").at(entry.at(1).get<std::size_t>());
    for (std::size_t i = 0; i + 1 < list.size(); i += 2) set.emplace_back(list.at(i), list.at(i + 1));
  }
  return h;
}

bool refuses(const json& config, const std::string& layout) {
  try {
    reshard::space(reshard::io::parse_config(config.dump(), "model"), reshard::parse_degrees(layout));
    return false;
  } catch (const reshard::refusal&) {
    return true;
  }
}

}  // namespace

TEST_CASE("every rank of 64 random layouts as torch cuts them, or refused by both") {
  const json cases = golden("dtensor_layouts.json");
  REQUIRE(cases.size() == 64);
  const reshard::state_list list = reshard::parse_state_list(states_text);
  const std::vector<state> states = parse_states(states_text);
  long layouts = 0, ranks = 0, refused = 0, uneven = 0;
  for (const json& c : cases) {
    const model m = read_model(c.at("config"));
    const std::string text = c.at("layout"), what = text + " of " + c.at("config").dump();
    CAPTURE(what);
    CHECK(why_illegal(m, text).empty() == !c.contains("refused"));
    CHECK(refuses(c.at("config"), text) == c.contains("refused"));
    if (c.contains("refused")) {
      ++refused;
      continue;
    }
    const layout l = parse(m, text);
    const reshard::computed_holding h(
        reshard::space(reshard::io::parse_config(c.at("config").dump(), "model"), reshard::parse_degrees(text)), list);
    REQUIRE(l.world == length(c.at("ranks")));
    REQUIRE(h.ranks() == l.world);
    bool any = false;
    for (int f = 0; f < h.families(); ++f) any = any || h.space().cut_unevenly(f);
    ++layouts, uneven += any ? 1 : 0;
    for (long rank = 0; rank < l.world; ++rank, ++ranks) {
      testing::states_of_rank torch;
      for (std::size_t s = 0; s < states.size(); ++s) {
        torch[states[s].name] = by_torch(c, rank, s);
        CHECK(held(m, l, rank, states[s]) == torch[states[s].name]);
      }
      CHECK(testing::difference(testing::printed(h, rank, list), torch) == "");
    }
  }
  CHECK(refused == 15);
  CHECK(uneven > 25);
  MESSAGE(layouts, " layouts, ", uneven, " with unequal parts, ", ranks, " ranks in two states; ", refused, " refused");
}
