// SPDX-License-Identifier: Apache-2.0
// What a switch is told: sizes as they are written, defaults, and the devices that two holdings name.
#include <doctest/doctest.h>

#include <type_traits>

#include <reshard/exec/switch_options.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse.hpp>

using namespace reshard;

static_assert(3_KiB == 3'072 && 3_MiB == 3'145'728 && 3_GiB == 3'221'225'472);
static_assert(switch_options{}.budget == no_budget && switch_options{}.after_use == sources::release);
static_assert(no_budget > 1'000'000_GiB && no_budget * 4 > 0);  // far away, and may be multiplied
static_assert(switch_report{}.stages == 1 && switch_report{}.sent == 0 && switch_report{}.memory.excess() == 0);

// Both holdings must outlive the switch.
using holding = computed_holding;
using change = layout_switch<holding, holding>;
static_assert(std::is_constructible_v<change, const holding&, const holding&>);
static_assert(!std::is_constructible_v<change, holding, const holding&> &&
              !std::is_constructible_v<change, const holding&, holding>);
static_assert(!std::is_constructible_v<change, holding, holding> &&
              !std::is_constructible_v<change, holding, holding, placement>);

TEST_CASE("a switch names as many devices as the side with more, and as its maps reach") {
  const model m = make_transformer(
      {.name = "tiny", .layers = 4, .hidden = 16, .heads = 4, .groups = 4, .head_dim = 4, .ffn = 16, .vocabulary = 32});
  const space two(m, parse_degrees("tp=2")), four(m, parse_degrees("pp=4"));
  const holding a(two), b(four);
  CHECK(layout_switch(a, b).devices() == 4);
  CHECK(layout_switch(b, a).devices() == 4);
  CHECK(layout_switch(a, a).devices() == 2);
  const layout_switch placed(a, b, placement{device_map({7, 1}), device_map(4)});
  CHECK(placed.devices() == 8);
  CHECK(&placed.from == &a);
  CHECK(&placed.to == &b);
  const layout_switch direct(a, b);
  for (rank_t r = 0; r < 4; ++r) CHECK(direct.where.to.device_of(r) == r);
  for (rank_t r = 0; r < 2; ++r) CHECK(direct.where.from.device_of(r) == r);
  CHECK(direct.where.states == all_states);
}
