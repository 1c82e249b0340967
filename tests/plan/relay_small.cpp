// SPDX-License-Identifier: Apache-2.0
// Plans with relay of small switches: what stays is what stays without relay, and the rest is the device's own share of
// all hops, in order; how many phases there are; and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {

using devices = std::vector<rank_t>;

/// A vector, whole on all devices of each side.
auto whole(const devices& from, const devices& to, index_t gpus) {
  return layout_switch(testing::whole_on(std::ssize(from), "w", {12}), testing::whole_on(std::ssize(to), "w", {12}),
                       {.from = device_map(from), .to = device_map(to), .on = nodes_of(gpus)});
}

struct met_lists {
  int sends = 0, receives = 0, retains = 0, creates = 0, lost = 0, idle = 0;
};
template <typename Switch>
void check_plans(const Switch& change, index_t chains, met_lists& met) {
  std::vector<transfer> hops;
  each_relayed(change, chains, [&](const transfer& t) { hops.push_back(t); });
  std::sort(hops.begin(), hops.end(), [](const transfer& a, const transfer& b) { return precedes(a, b); });
  for (rank_t d = 0; d < change.devices() + 2; ++d) {
    plan wanted = make_plan(change, d);  // of it, what stays
    wanted.sends.clear(), wanted.receives.clear();
    for (const transfer& t : hops) {
      if (t.src == d) wanted.sends.push_back(t);
      if (t.dst == d) wanted.receives.push_back(t);
    }
    CAPTURE(d);
    CHECK(make_plan(change, d, {relay::always, chains, 1}) == wanted);
    met.sends += wanted.sends.empty() ? 0 : 1, met.receives += wanted.receives.empty() ? 0 : 1;
    met.retains += wanted.retains.empty() ? 0 : 1, met.creates += wanted.creates.empty() ? 0 : 1;
    met.lost += wanted.lost.empty() ? 0 : 1, met.idle += wanted == plan{d, {}, {}, {}, {}, {}} ? 1 : 0;
  }
}

}  // namespace

TEST_CASE("any tensors: of a device's plan what stays is as without relay, the rest its share of all hops, in order") {
  dice random(78);
  met_lists met;
  for (int n = testing::thrown(60); n > 0; --n) {
    const testing::any_tensors given(random, true);
    CAPTURE(n);
    check_plans(given.change(), random.within(1, 2), met);
  }
  for (const int times : {met.sends, met.receives, met.retains, met.lost, met.idle}) CHECK_DRAWN(times > 20);
  CHECK(met.creates == 0);
}

TEST_CASE("rows that only TO's padding has are created, with relay as without") {
  const model m = make_transformer(
      {.name = "small", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8});
  met_lists met;
  for (const index_t gpus : {0, 1, 2, 4})
    check_plans(layout_switch(space(m, parse_degrees("dp=2")), space(m, parse_degrees("tp=2,dp=2,pad=5")),
                              {.on = gpus == 0 ? cluster() : nodes_of(gpus)}),
                1, met);
  CHECK(met.creates == 4 * 2);  // two of the four ranks have them
  CHECK(met.receives == 4 * 2);
}

TEST_CASE("phases are the longest way; without relay there is one") {
  const auto phases = [](const auto& change, index_t chains) { return phases_of(change, {relay::always, chains, 1}); };
  const auto chain = whole({0}, {1, 2, 3}, 1);
  CHECK(phases(chain, 1) == 4);  // phases 1, 2 and 3; in phase 0 nothing is sent
  CHECK(phases(chain, 2) == 3);
  CHECK(phases(chain, 3) == 2);
  CHECK(phases(whole({0}, {1, 2, 3}, 4), 1) == 2);  // scattered and exchanged
  CHECK(phases(whole({0, 1}, {2}, 4), 1) == 1);
  CHECK(phases(whole({0}, {0}, 1), 1) == 1);
  CHECK(phases_of(chain, {}) == 1);
  CHECK(phases_of(chain, {relay::never, 0, 1}) == 1);
}

TEST_CASE("with relay each node has one chain at least; without it chains are not looked at") {
  const auto chain = whole({0}, {1, 2, 3}, 1);
  for (const index_t chains : {0, -3})
    CHECK(refused([&] {
            static_cast<void>(make_plan(chain, 0, {relay::always, chains, 1}));
          }) == "reshard: relay: " + std::to_string(chains) + " chains of each node; there is at least 1");
  CHECK(refused([&] { static_cast<void>(make_plan(chain, 0, {relay::always, 1, 1})); }) == "accepted");
  for (rank_t d = 0; d < 4; ++d) {
    CHECK(make_plan(chain, d, {relay::never, 0, 1}) == make_plan(chain, d));
    CHECK(make_plan(chain, d, {}).receives.size() == (d == 0 ? 0 : 1));
  }
}
