// SPDX-License-Identifier: Apache-2.0
// Switches between any two kinds of layout, over every key and architecture, of any list of states: the transfers of
// all devices are the plan that the oracle accepts, element by element, and the bytes are those that it counts.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/hf_config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/report/switch_json.hpp>

#include "../oracle/random_keys.hpp"
#include "../oracle/random_states.hpp"
#include "../support/dice.hpp"
#include "../support/printed.hpp"
#include "../support/tries.hpp"

using namespace reshard;
namespace trainer = oracle::trainer;
using nlohmann::json;

namespace {

device_map map_of(const trainer::numbers& devices) {
  return device_map(std::vector<rank_t>(devices.begin(), devices.end()));
}

/// The transfers that all devices' plans list, as JSON prints them; and the sums over devices.
std::vector<trainer::piece> pieces_of(const computed_switch& change, switch_figures& figures) {
  figure_collector sums(change, 1, figures_of::whole_switch);
  io::text_output out;
  io::json_items items(out << "[");
  for (rank_t device = 0; device < change.devices(); ++device) {
    const plan p = make_plan(change, device);
    sums.add(p);
    io::write_transfers(items, change, p, figures_of::whole_switch);
  }
  figures = sums.figures();
  std::vector<trainer::piece> pieces;
  for (const json& t : json::parse(std::string(out.text()) + "]")) {
    const testing::printed_box b = testing::box_of(t);
    pieces.push_back({t.at("src").get<long>(), t.at("dst").get<long>(), t.at("state").get<std::string>(),
                      t.at("tensor").get<std::string>(), b.dims, b.box});
  }
  return pieces;
}

/// Both ends of every pair list the same, in the same order.
void check_both_ends(const computed_switch& change) {
  std::vector<plan> plans;
  for (rank_t device = 0; device < change.devices(); ++device) plans.push_back(make_plan(change, device));
  for (const plan& from : plans)
    for (const plan& to : plans) {
      std::vector<transfer> sent, received;
      for (const transfer& t : from.sends)
        if (t.dst == to.device) sent.push_back(t);
      for (const transfer& t : to.receives)
        if (t.src == from.device) received.push_back(t);
      CHECK(sent == received);
    }
}

}  // namespace

TEST_CASE("random switches over every key and architecture") {
  const char* const given = std::getenv("RESHARD_SWITCHES");
  const long cases = given != nullptr ? std::atol(given) : testing::tries(520);
  trainer::key_generator random(testing::seed());
  trainer::state_generator lists(testing::seed());
  long elements = 0;
  for (long i = 0; i < cases; ++i) {
    trainer::switch_case c = random.next_switch();
    const std::string list_text = i % 2 == 0 ? "adam" : lists.next();
    CAPTURE(list_text);
    c.question.states = trainer::parse_states(list_text);
    CAPTURE(c.describe());
    const trainer::switch_question& q = c.question;
    const std::string config = c.config.dump();
    const model m = io::parse_config(config, "model");
    const computed_switch change(
        space(m, parse_degrees(c.from_text)), space(m, parse_degrees(c.to_text)),
        placement{.from = map_of(q.from_devices), .to = map_of(q.to_devices), .list = parse_state_list(list_text)});
    switch_figures figures;
    const std::vector<trainer::piece> pieces = pieces_of(change, figures);
    trainer::switch_totals totals;
    const std::vector<std::string> faults = trainer::check_plan(q, pieces, totals);
    CHECK(faults == std::vector<std::string>{});
    CHECK(totals.wrong == 0);
    CHECK(figures.moved == totals.least_bytes);
    CHECK(figures.least == totals.least_bytes);
    CHECK(figures.created == totals.created_bytes);
    CHECK(figures.retained == totals.retained_bytes);
    const switch_volume volume = volume_of(change);
    CHECK(volume == switch_volume{totals.least_bytes, totals.retained_bytes, totals.created_bytes});
    check_both_ends(change);
    elements += totals.needed;
  }
  MESSAGE(cases, " switches, ", elements, " elements\n", random.switch_census().report());
  for (const auto& drawn : lists.counted()) MESSAGE(drawn.second, " lists of states: ", drawn.first);
  if (cases >= 500) {
    CHECK_DRAWN(lists.counted().size() == 13);
    for (const auto& drawn : lists.counted()) {
      CAPTURE(drawn.first);
      CHECK_DRAWN(drawn.second >= 5);
    }
  }
}
