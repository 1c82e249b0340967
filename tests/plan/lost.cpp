// SPDX-License-Identifier: Apache-2.0
// Lost devices: what is refused, by whom and with which numbers; what is left out; and figures at compile time.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/cover.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {
/// Rows of w on devices 0 and 1, the upper ones on device 2 too; the whole of it on device 3 after.
const std::vector<shard> before = {{0, "w", bf16, {6, 4}, {0, 0}, {2, 4}},
                                   {1, "w", bf16, {6, 4}, {2, 0}, {4, 4}},
                                   {2, "w", bf16, {6, 4}, {2, 0}, {4, 4}}};
const std::vector<shard> after = {{0, "w", bf16, {6, 4}, {0, 0}, {6, 4}}};
auto losing(std::vector<rank_t> lost, when_lost elements = when_lost::refuse) {
  return layout_switch(
      before, after,
      {.to = device_map(std::vector<rank_t>{3}), .devices = 5, .lost = std::move(lost), .lost_elements = elements});
}
}  // namespace

TEST_CASE("the living replica sends what the lost one would have sent") {
  const auto all = losing({}), one = losing({1});
  CHECK(make_plan(all, 1).sends.size() == 1);
  CHECK(make_plan(all, 2).sends.size() == 1);
  CHECK(make_plan(one, 1).sends.empty());
  REQUIRE(make_plan(one, 2).sends.size() == 1);
  CHECK(make_plan(one, 2).sends[0].bytes() == 4 * 4 * 2);
  CHECK(make_plan(one, 3).receives.size() == 2);
  CHECK(make_plan(one, 3).lost.empty());
  CHECK(one.from_rank(1) == -1);
  CHECK(one.lost(1));
  CHECK_FALSE(one.lost(2));
  CHECK(moved_bytes(one) == 48);
  CHECK(lost_bytes(one) == 0);
}

TEST_CASE("what lost devices alone held is refused by tensor and bytes, or left out and told") {
  const auto refusing = losing({1, 2}), leaving = losing({2, 1}, when_lost::leave_out);
  const char* const sentence =
      "reshard: switch: 32 bytes that TO holds were on lost devices alone: w 32; "
      "when_lost::leave_out makes the switch without them";
  CHECK(refused([&] { static_cast<void>(make_plan(refusing, 3)); }) == sentence);
  CHECK(refused([&] { static_cast<void>(volume_of(refusing)); }) == sentence);
  CHECK(refused([&] { require_nothing_lost(refusing); }) == sentence);
  CHECK(refused([&] { require_nothing_lost(leaving); }) == "accepted");
  CHECK(refused([&] { require_nothing_lost(losing({1})); }) == "accepted");
  const plan p = make_plan(leaving, 3);
  CHECK(total_bytes(p.receives) == 16);
  REQUIRE(p.lost.size() == 1);
  CHECK(p.lost[0] == transfer{3, 3, only(0), 0, {{{0, 1}, {0, 1}, {0, 1}, {2, 6}, {0, 4}}}});
  CHECK(volume_of(leaving) == switch_volume{16, 0, 0, 32});
  CHECK(make_plan(leaving, 0).sends.size() == 1);
  CHECK(make_plan(leaving, 1) == plan{1, {}, {}, {}, {}, {}});
}

TEST_CASE("what no rank of FROM ever held stays refused as such") {
  const std::vector<shard> half = {{0, "w", bf16, {6, 4}, {0, 0}, {2, 4}}, {1, "w", bf16, {6, 4}, {2, 0}, {2, 4}}};
  const layout_switch change(
      half, after, {.to = device_map(std::vector<rank_t>{3}), .lost = {1}, .lost_elements = when_lost::leave_out});
  CHECK(refused([&] { static_cast<void>(make_plan(change, 3)); }) ==
        "reshard: plan: rank 0 needs 24 elements of w, and no rank of FROM holds 8 of them");
}

TEST_CASE("lost devices are devices of the switch, each named once, and none of TO's") {
  CHECK(refused([] { losing({4}); }) == "accepted");  // nobody's
  CHECK(refused([] { losing({0, 1, 2}); }) == "accepted");
  CHECK(refused([] { losing({5}); }) == "reshard: switch: device 5 is called lost, but devices are 0 to 4");
  CHECK(refused([] { losing({-1}); }) == "reshard: switch: device -1 is called lost, but devices are 0 to 4");
  CHECK(refused([] { losing({1, 2, 1}); }) == "reshard: switch: device 1 is called lost twice");
  CHECK(refused([] { losing({3}); }) ==
        "reshard: switch: rank 0 of TO is on device 3, which is lost; TO wants living devices");
}

TEST_CASE("two devices that want what is lost lose it twice; it is told once") {
  const std::vector<shard> both = {{0, "w", bf16, {6, 4}, {0, 0}, {6, 4}}, {1, "w", bf16, {6, 4}, {0, 0}, {6, 4}}};
  const layout_switch change(before, both,
                             {.to = device_map({3, 4}), .lost = {0}, .lost_elements = when_lost::leave_out});
  CHECK(lost_bytes(change) == 16);
  CHECK(volume_of(change).lost == 32);
  CHECK(volume_of(change).moved == 64);
  int boxes = 0;
  each_lost(change, [&](const lost_box& b) {
    ++boxes;
    CHECK(b == lost_box{only(0), 0, {{{0, 1}, {0, 1}, {0, 1}, {0, 2}, {0, 4}}}, 2});
  });
  CHECK(boxes == 1);
}

TEST_CASE("a node of two dies: what moves is counted in a static_assert") {
  constexpr auto before_it = space(models::gpt3_1_3b, config<tp<2>, dp<4>>{});
  constexpr auto after_it = space(models::gpt3_1_3b, config<tp<2>, dp<3>>{});
  constexpr bytes_t moved = moved_bytes(before_it, after_it, {.lost = {6, 7}});
  static_assert(moved == 0);  // six of eight have it all
  CHECK(moved == 0);
  CHECK(moved_bytes(before_it, after_it, {.to = device_map({2, 3, 4, 5, 8, 9}), .lost = {0, 1, 6, 7}}) ==
        max_bytes_per_rank(after_it) * 2);
}
