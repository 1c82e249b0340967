// SPDX-License-Identifier: Apache-2.0
// Figures from streams are those that every device's plan adds up to.
#include <doctest/doctest.h>

#include <cstdio>
#include <tuple>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/relayed_figures.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/dice.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::dice;

TEST_CASE("figures of streams and figures of plans are the same, device by device") {
  constexpr const char* layouts[] = {"dp=2", "tp=2,dp=2,zero=1",      "pp=2,dp=3",   "tp=4,dp=2",
                                     "dp=8", "pp=2,tp=2,zero=1,dp=2", "dp=3,zero=1", ""};
  dice random(6);
  int relayed = 0;
  for (int n = 0; n < 120; ++n) {
    const space from(testing::tiny(2), parse_degrees(layouts[random.below(std::size(layouts))])),
        to(testing::tiny(2), parse_degrees(layouts[random.below(std::size(layouts))]));
    const layout_switch change(from, to, {.on = nodes_of(random.within(1, 4))});
    const routing how{relay::always, random.within(1, 2), random.within(1, 9)};
    const sources after_use = random.coin() ? sources::keep : sources::release;
    relayed_streams streams = relayed_streams_of(change, how.chains);
    const switch_figures a = figures_of_relay(change, streams.streams(), how, streams.phases(), after_use);
    figure_collector plans(change, how, streams.phases(), figures_of::whole_switch, after_use);
    for (rank_t device = 0; device < change.devices(); ++device) plans.add(make_plan(change, device, how));
    const switch_figures& b = plans.figures();
    for (bytes_t switch_figures::*figure :
         {&switch_figures::moved, &switch_figures::relayed, &switch_figures::retained, &switch_figures::created,
          &switch_figures::least, &switch_figures::inter_node, &switch_figures::cross_rail, &switch_figures::max_send,
          &switch_figures::max_receive, &switch_figures::peak, &switch_figures::peak_floor,
          &switch_figures::peak_excess})
      CHECK(a.*figure == b.*figure);
    REQUIRE(a.busiest.size() == b.busiest.size());
    for (std::size_t i = 0; i < a.busiest.size(); ++i) {
      const link_figures &one = a.busiest[i], &other = b.busiest[i];
      CHECK(std::tuple(one.src, one.dst, one.bytes) == std::tuple(other.src, other.dst, other.bytes));
    }
    REQUIRE(a.devices.size() == b.devices.size());
    for (std::size_t d = 0; d < a.devices.size(); ++d)
      for (bytes_t device_figures::*figure :
           {&device_figures::send, &device_figures::receive, &device_figures::retained, &device_figures::before,
            &device_figures::after, &device_figures::peak, &device_figures::passed})
        CHECK(a.devices[d].*figure == b.devices[d].*figure);
    relayed += a.relayed > 0 ? 1 : 0;
  }
  std::printf("%d of 120 pass something on\n", relayed);
  CHECK_DRAWN(relayed > 24);
}
