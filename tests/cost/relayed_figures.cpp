// SPDX-License-Identifier: Apache-2.0
// Figures from streams are those that every device's plan adds up to.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <tuple>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/relayed_figures.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::any_tensors, testing::dice;

namespace {
/// u as its words have it: the greatest of 0 .. S with which no slot is above the limit, what nobody reads being there
/// up to slot u - 1 + phases - 1; 0 where none is.
index_t greatest_u(const std::vector<bytes_t>& live, bytes_t unread, bytes_t limit, index_t stages, index_t phases) {
  for (index_t u = stages; u > 0; --u) {
    bool kept = true;
    for (index_t t = 0; t < std::ssize(live); ++t)
      kept = kept && live[static_cast<std::size_t>(t)] + (t <= u - 1 + phases - 1 ? unread : 0) <= limit;
    if (kept) return u;
  }
  return 0;
}

/// Figures from streams against those of all plans; they are alike in all but messages and u, which plans alone tell.
template <typename Switch>
switch_figures check_alike(const Switch& change, const routing& how, sources after_use) {
  relayed_streams streams = relayed_streams_of(change, how.chains);
  const switch_figures a = figures_of_relay(change, streams.streams(), how, streams.phases(), after_use);
  figure_collector plans(change, how, streams.phases(), figures_of::whole_switch, after_use);
  for (rank_t device = 0; device < change.devices(); ++device) plans.add(make_plan(change, device, how));
  const switch_figures& b = plans.figures();
  CHECK(a.how == b.how);
  CHECK(a.phases == b.phases);
  CHECK(a.slots() == how.stages + streams.phases() - 1);
  CHECK(a.after_use == after_use);
  for (bytes_t switch_figures::*figure :
       {&switch_figures::moved, &switch_figures::relayed, &switch_figures::retained, &switch_figures::created,
        &switch_figures::lost, &switch_figures::least, &switch_figures::inter_node, &switch_figures::cross_rail,
        &switch_figures::max_send, &switch_figures::max_receive, &switch_figures::peak, &switch_figures::peak_floor,
        &switch_figures::peak_excess})
    CHECK(a.*figure == b.*figure);
  REQUIRE(a.busiest.size() == b.busiest.size());
  for (std::size_t i = 0; i < a.busiest.size(); ++i) {
    const link_figures &one = a.busiest[i], &other = b.busiest[i];
    CHECK(std::tuple(one.src, one.dst, one.bytes) == std::tuple(other.src, other.dst, other.bytes));
  }
  REQUIRE(a.devices.size() == b.devices.size());
  for (std::size_t d = 0; d < a.devices.size(); ++d) {
    CHECK(a.devices[d].device == b.devices[d].device);
    for (bytes_t device_figures::*figure : {&device_figures::send, &device_figures::receive, &device_figures::retained,
                                            &device_figures::created, &device_figures::before, &device_figures::after,
                                            &device_figures::peak, &device_figures::lost, &device_figures::passed})
      CHECK(a.devices[d].*figure == b.devices[d].*figure);
  }
  return b;
}
}  // namespace

TEST_CASE("any tensors, lost ones among them: figures of streams and of plans, and what is passed on, row by row") {
  dice random(7);
  int relayed = 0, lost = 0, none = 0, some = 0, all = 0;
  for (int n = 0; n < 60; ++n) {
    const any_tensors given(random, true);
    const auto change = given.change();
    const routing how{relay::always, random.within(1, 2), random.within(1, 6)};
    const switch_figures f = check_alike(change, how, random.coin() ? sources::keep : sources::release);
    bytes_t moved = 0, gone = 0, received = 0, passed = 0;
    for (const any_tensors::row& row : given.rows) {
      gone += row.had.empty() && !row.needs.empty() ? row.bytes : 0;
      for (const rank_t d : row.needs) moved += row.had.empty() || row.had.contains(d) ? 0 : row.bytes;
    }
    index_t messages = 0;
    const bytes_t budget = random.within(1, 60);
    figure_collector within(change, how, f.phases, figures_of::whole_switch, sources::release, budget);
    figure_collector unlimited(change, how, f.phases, figures_of::whole_switch);
    std::optional<index_t> least_u;
    for (rank_t d = 0; d < change.devices(); ++d) {
      const plan p = make_plan(change, d, how);
      within.add(p), unlimited.add(p);
      const device_figures& figures = within.figures().devices.back();
      const relayed_memory memory(p, figures.before, sources::release);
      if (memory.unread() > 0) {
        const index_t u = greatest_u(memory.live(how.stages, f.slots()), memory.unread(), figures.floor() + budget,
                                     how.stages, f.phases);
        least_u = std::min(least_u.value_or(u), u);
        ++(u == 0 ? none : u == how.stages ? all : some);
      }
      received += total_bytes(p.receives);
      messages += relayed_messages(p.receives, how.stages);
      for (const transfer& t : p.receives) passed += t.why == purpose::passed_on ? t.bytes() : 0;
      figure_collector view(change, how, f.phases, figures_of::one_device);
      view.add(p);
      bytes_t in = 0, out = 0;
      for (const transfer& t : p.receives) in += t.why == purpose::passed_on ? t.bytes() : 0;
      for (const transfer& t : p.sends) out += t.why == purpose::passed_on ? t.bytes() : 0;
      CHECK(view.figures().relayed == in + out);
      CHECK(view.figures().moved == total_bytes(p.receives) - in + total_bytes(p.sends) - out);
      CHECK(view.figures().messages ==
            relayed_messages(p.receives, how.stages) + relayed_messages(p.sends, how.stages));
    }
    CHECK(within.figures().unread_kept == least_u);
    CHECK(unlimited.figures().unread_kept == (least_u ? std::optional(how.stages) : std::nullopt));
    CHECK(f.moved == moved);
    CHECK(f.least == moved);
    CHECK(f.lost == gone);
    CHECK(f.relayed == passed);
    CHECK(f.moved + f.relayed == received);
    CHECK(f.messages == messages);
    relayed += passed > 0 ? 1 : 0, lost += gone > 0 ? 1 : 0;
  }
  std::printf("%d of 60 pass something on, %d have lost rows; u is 0 %d times, S %d times, between %d times\n", relayed,
              lost, none, all, some);
  for (const int met : {relayed, none, some, all}) CHECK_DRAWN(met > 5);
  CHECK_DRAWN(lost > 2);
}

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
    relayed += check_alike(change, how, random.coin() ? sources::keep : sources::release).relayed > 0 ? 1 : 0;
  }
  std::printf("%d of 120 pass something on\n", relayed);
  CHECK_DRAWN(relayed > 24);
}

TEST_CASE("created padding counts in figures of streams as in those of plans") {
  const model m = make_transformer(
      {.name = "m", .layers = 1, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 10});
  const layout_switch change(space(m, parse_degrees("tp=2")), space(m, parse_degrees("tp=2,dp=2,pad=8")),
                             {.on = nodes_of(2)});
  const switch_figures f = check_alike(change, {relay::always, 1, 3}, sources::release);
  // rows 10 to 15 of the embedding and of the output, of 8 columns and 14 bytes, on both replicas
  CHECK(f.created == 2 * 2 * 6 * 8 * 14);
}
