// SPDX-License-Identifier: Apache-2.0
// How much a switch moves: against counting every element of every rank, and against what the plans say.
#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr transformer small{.name = "small",
                            .layers = 4,
                            .hidden = 4,
                            .heads = 4,
                            .groups = 2,
                            .head_dim = 1,
                            .ffn = 4,
                            .vocabulary = 4,
                            .tied = true};
constexpr model tiny = make_transformer(small);

using element = std::array<index_t, 7>;  // state, family, coordinate
std::set<element> held(const computed_holding& h, rank_t rank, state_set states) {
  std::set<element> all;
  for (const int s : all_states)
    if (states.contains(s))
      each_held(h, rank, adam[s].placed_as(), [&](int f, const family_box& b) {
        testing::each_point(b, [&](const index_t(&x)[family_ndim]) {
          all.insert({s, f, x[0], x[1], x[2], x[3], x[4]});
        });
      });
  return all;
}
}  // namespace

TEST_CASE("moved is what ranks need and their devices lack, retained what is already there, element by element") {
  dice random(1);
  constexpr const char* layouts[] = {"",
                                     "tp=2",
                                     "pp=2,dp=2",
                                     "tp=2,pp=2,dp=2,zero=1",
                                     "dp=4,zero=1",
                                     "tp=4,zero=1,dp=2",
                                     "pp=4,split=spread,zero=1,dp=3",
                                     "cp=2,tp=2"};
  int with_both = 0, apart = 0;
  for (int n = 0; n < 40; ++n) {
    const std::string from_text = layouts[random.below(8)], to_text = layouts[random.below(8)];
    CAPTURE(from_text);
    CAPTURE(to_text);
    const space from(tiny, parse_degrees(from_text)), to(tiny, parse_degrees(to_text));
    const state_set states = all_states.masked(static_cast<unsigned>(random.within(1, 15)));
    const computed_holding have(from), want(to);
    const rank_t first = random.below(4);
    std::vector<rank_t> devices;
    for (rank_t r = 0; r < to.ranks(); ++r) devices.push_back(first + r);
    if (devices.size() > 1) std::swap(devices.front(), devices.back());
    const layout_switch change(from, to, {.to = device_map(devices), .states = states});
    switch_volume wanted;
    for (rank_t r = 0; r < to.ranks(); ++r) {
      const rank_t device = devices[static_cast<std::size_t>(r)];
      const std::set<element> there = device < from.ranks() ? held(have, device, states) : std::set<element>{};
      for (const element& e : held(want, r, states))
        (there.contains(e) ? wanted.retained : wanted.moved) += e[0] == 0 ? 2 : 4;
      apart += device >= from.ranks() ? 1 : 0;
    }
    CHECK(volume_of(change) == wanted);
    switch_volume planned;
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device);
      planned.moved += total_bytes(p.receives);
      planned.retained += total_bytes(p.retains);
    }
    CHECK(planned == wanted);
    with_both += wanted.moved > 0 && wanted.retained > 0 ? 1 : 0;
  }
  std::printf("of 40 switches %d move and retain; %d ranks sit where no rank was\n", with_both, apart);
  CHECK_DRAWN(with_both > 10);
  CHECK_DRAWN(apart > 10);
}

TEST_CASE("between spaces: rank r on device r, of the states asked for, at compile time too") {
  static constexpr space one{tiny, config<tp<2>>{}}, two{tiny, config<dp<2>>{}};
  constexpr switch_volume whole = volume_of(layout_switch(one, two));
  static_assert(whole.moved + whole.retained == 2 * 14 * tiny.parameters());
  static_assert(moved_bytes(one, two) == whole.moved && retained_bytes(one, two) == whole.retained);
  static_assert(7 * moved_bytes(one, two, {.states = parameter_states}) == whole.moved);
  static_assert(moved_bytes(one, two, {.states = only(2)}) + moved_bytes(one, two, {.states = only(3)}) ==
                4 * moved_bytes(one, two, {.states = parameter_states}));
  static_assert(moved_bytes(one, one) == 0 && retained_bytes(two, two) == 2 * 14 * tiny.parameters());
  CHECK(whole.moved > 0);
  CHECK(whole.retained > whole.moved);
  for (const state_set states : {all_states, only(0), only(2)}) {  // the short forms ask the long one, here too
    CHECK(moved_bytes(one, two, {.states = states}) == volume_of(layout_switch(one, two, {.states = states})).moved);
    CHECK(retained_bytes(one, two, {.states = states}) ==
          volume_of(layout_switch(one, two, {.states = states})).retained);
  }
  CHECK(retained_bytes(one, two) == whole.retained);
  const space four(tiny, config<dp<4>>{});  // more ranks on one side: what is kept depends on which it is
  CHECK(retained_bytes(two, four) == 2 * 14 * tiny.parameters());
  CHECK(moved_bytes(two, four) == 2 * 14 * tiny.parameters());
  CHECK(moved_bytes(four, two) == 0);
}

namespace {
/// What moved_bytes and the plan of a device are refused with, each.
template <typename From, typename To>
std::pair<std::string, std::string> both_refusals(const From& from, const To& to, rank_t device) {
  return {testing::refused([&] { static_cast<void>(moved_bytes(from, to)); }),
          testing::refused([&] { static_cast<void>(make_plan(layout_switch(from, to), device)); })};
}
}  // namespace

TEST_CASE("what no rank of FROM holds is refused as in a plan, not counted as moved") {
  const auto both = [](std::string words) { return std::pair(words, words); };
  const std::vector<shard> half = {{1, "w", bf16, {4, 6}, {0, 0}, {2, 6}}}, all = testing::whole_on(2, "w", {4, 6});
  CHECK(both_refusals(half, all, 0) ==
        both("reshard: plan: rank 0 needs 24 elements of w, and no rank of FROM holds 12 of them"));
  CHECK(both_refusals(all, half, 0) == both("accepted"));
  CHECK(moved_bytes(all, half) == 0);
  std::vector<shard> rows = half;
  rows.push_back({0, "w", bf16, {4, 6}, {2, 0}, {2, 6}});
  CHECK(both_refusals(rows, all, 0) == both("accepted"));
  CHECK(moved_bytes(rows, all) == 2 * 24);

  // a prediction layer of which each side has a kind that the other has not
  const model m = testing::tiny_predicting();
  const space alone(m, parse_degrees(testing::prediction_alone)), after(m, parse_degrees("dp=2"));
  const auto [volume, planned] = both_refusals(after, alone, 2);
  CHECK(volume.starts_with("reshard: plan: rank 2 needs "));
  CHECK(volume == planned);
  CHECK(testing::refused([&] { static_cast<void>(moved_bytes(alone, after)); }).starts_with("reshard: plan: rank 0 "));
  CHECK(both_refusals(alone, alone, 2) == both("accepted"));
}

namespace {
/// A holding that is not known to be a space's: its boxes are looked at.
struct own_holding : computed_holding {
  using computed_holding::computed_holding;
};
}  // namespace

TEST_CASE("rows of the vocabulary that only TO's padding has are created, and not missing from FROM") {
  for (const char* layout : {"tp=2,pad=3", "pp=2,pad=5,zero=1,dp=2"}) {
    const space from(tiny, parse_degrees("pad=1")), to(tiny, parse_degrees(layout));
    const switch_volume volume = volume_of(layout_switch(from, to));
    CHECK(volume.created > 0);
    CHECK(volume_of(layout_switch(own_holding(from), to)) == volume);
    CHECK(volume_of(layout_switch(own_holding(to), from)) == volume_of(layout_switch(to, from)));
  }
}

TEST_CASE("the most that any living device holds on either side") {
  const model m = make_transformer(
      {.name = "tiny", .layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 64});
  const space stages(m, parse_degrees("pp=2,dp=2")), whole(m, parse_degrees("tp=4")), halves(m, parse_degrees("tp=2"));
  const bytes_t first = held_bytes(stages, 0), last = held_bytes(stages, 2), quarter = held_bytes(whole, 0);
  CHECK(first != last);
  CHECK(largest_holding(layout_switch(stages, whole)) == greatest(first, last));
  CHECK(largest_holding(layout_switch(whole, halves)) == held_bytes(halves, 0));
  const auto without = [&](std::vector<rank_t> lost) {
    return largest_holding(layout_switch(
        stages, whole, {.to = device_map({4, 5, 6, 7}), .lost = lost, .lost_elements = when_lost::leave_out}));
  };
  CHECK(without({0, 1}) == last);
  CHECK(without({2, 3}) == first);
  CHECK(without({0, 2}) == greatest(first, last));
  CHECK(without({0, 1, 2, 3}) == quarter);
}
