// SPDX-License-Identifier: Apache-2.0
// Lost and empty devices: what is refused, by whom and with which numbers; what is left out; and figures at compile
// time.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/io/detail/plan_check.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/cover.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/strict_list.hpp"

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

TEST_CASE("an empty device lives: it sends and keeps nothing of FROM, and receives what it shall hold") {
  // rank 1 of FROM was on device 1, which is stale; 2 has what that had. Of TO a rank is on 1, and one on 4, a new one
  const std::vector<shard> both = {{0, "w", bf16, {6, 4}, {0, 0}, {6, 4}}, {1, "w", bf16, {6, 4}, {0, 0}, {6, 4}}};
  const layout_switch change(before, both, {.to = device_map({1, 4}), .empty = {4, 1}}),
      fresh(before, both, {.to = device_map({1, 4})});
  CHECK(total_bytes(make_plan(fresh, 1).retains) == 32);
  const plan stale = make_plan(change, 1), here = make_plan(change, 4);
  CHECK(stale.sends.empty());
  CHECK(stale.retains.empty());
  CHECK(total_bytes(stale.receives) == 48);
  CHECK(total_bytes(here.receives) == 48);
  CHECK(total_bytes(make_plan(change, 0).sends) == 32);
  CHECK(total_bytes(make_plan(change, 2).sends) == 64);
  CHECK(volume_of(change) == switch_volume{96, 0, 0, 0});
  CHECK(change.empty(1));
  CHECK(change.empty(4));
  CHECK_FALSE(change.empty(2));
  CHECK_FALSE(change.lost(1));
  CHECK(change.from_rank(1) == -1);
  CHECK(change.to_rank(1) == 0);
  CHECK(change.empty_devices() == std::vector<interval>{{1, 2}, {4, 5}});
  CHECK(change.lost_devices().empty());
  CHECK(change.lost_ranks() == std::vector<interval>{{1, 2}});
}

TEST_CASE("what empty and lost devices alone held is refused, and told apart from what lost ones held") {
  const layout_switch change(before, after, {.to = device_map(std::vector<rank_t>{1}), .lost = {2}, .empty = {1}});
  CHECK(lost_bytes(change) == 32);
  CHECK(refused([&] { require_nothing_lost(change); }) ==
        "reshard: switch: 32 bytes that TO holds were on lost or empty devices alone: w 32; "
        "when_lost::leave_out makes the switch without them");
  const layout_switch leaving(
      before, after,
      {.to = device_map(std::vector<rank_t>{1}), .lost = {2}, .lost_elements = when_lost::leave_out, .empty = {1}});
  CHECK(total_bytes(make_plan(leaving, 1).receives) == 16);
  CHECK(total_bytes(make_plan(leaving, 1).lost) == 32);
  CHECK(make_plan(leaving, 2) == plan{2, {}, {}, {}, {}, {}});
}

TEST_CASE("empty devices are devices of the switch, each named once, and none of the lost") {
  const auto with = [](std::vector<rank_t> empty, std::vector<rank_t> lost = {}) {
    static_cast<void>(layout_switch(
        before, after,
        {.to = device_map(std::vector<rank_t>{3}), .devices = 5, .lost = std::move(lost), .empty = std::move(empty)}));
  };
  CHECK(refused([&] { with({4, 3, 0}, {1}); }) == "accepted");
  CHECK(refused([&] { with({5}); }) == "reshard: switch: device 5 is called empty, but devices are 0 to 4");
  CHECK(refused([&] { with({-1}); }) == "reshard: switch: device -1 is called empty, but devices are 0 to 4");
  CHECK(refused([&] { with({2, 1, 2}); }) == "reshard: switch: device 2 is called empty twice");
  CHECK(refused([&] {
          with({1, 2}, {2});
        }) == "reshard: switch: device 2 is called lost and empty; who lives and holds nothing is empty alone");
}

TEST_CASE("a plan by which an empty device sends or keeps something is refused where it is read") {
  const layout_switch usual(before, after, {.to = device_map(std::vector<rank_t>{2})}),
      change(before, after, {.to = device_map(std::vector<rank_t>{2}), .empty = {2}});
  const auto read = [](const plan& p, const auto& of) { return refused([&] { io::require_plan_of(of, p, "plan"); }); };
  for (const rank_t d : {0, 1, 2}) CHECK(read(make_plan(change, d), change) == "accepted");
  CHECK(read(make_plan(usual, 2), change) ==
        "reshard: plan: retains[0] goes from device 2 to 2, and device 2 is empty");
  plan sends = make_plan(usual, 2);
  sends.retains.clear();
  sends.sends.push_back(make_plan(usual, 0).sends[0]);
  sends.sends[0].src = 2, sends.sends[0].dst = 0;
  CHECK(read(sends, change) == "reshard: plan: sends[0] goes from device 2 to 0, and device 2 is empty");
}

TEST_CASE("a single byte that is lost is refused and told, too") {
  const state_list bytes = parse_state_list("param:fp8:3");
  const std::vector<shard> one = {{0, "w", dtype::fp8, {1}, {0}, {1}}, {1, "w", dtype::fp8, {1}, {0}, {1}}},
                           first = {one[0]};
  const auto losing_both = [&](when_lost what) {
    return layout_switch(
        one, first, {.to = device_map(std::vector<rank_t>{2}), .list = bytes, .lost = {0, 1}, .lost_elements = what});
  };
  const layout_switch leaving = losing_both(when_lost::leave_out);
  CHECK(lost_bytes(leaving) == 1);
  CHECK(lost_families(leaving) == "w 1");
  CHECK(volume_of(leaving) == switch_volume{0, 0, 0, 1});
  const std::string sentence =
      "reshard: switch: 1 bytes that TO holds were on lost devices alone: w 1; when_lost::leave_out makes the switch "
      "without them";
  CHECK(refused([&] { require_nothing_lost(losing_both(when_lost::refuse)); }) == sentence);
  CHECK(refused([&] { static_cast<void>(volume_of(losing_both(when_lost::refuse))); }) == sentence);
  CHECK(refused([&] { static_cast<void>(make_plan(losing_both(when_lost::refuse), 2)); }) == sentence);
}

TEST_CASE("what is lost is asked of the lost ranks, up to the last that there is") {
  for (const std::vector<rank_t>& lost : {std::vector<rank_t>{2}, {1, 2}, {0}, {0, 2}}) {
    const layout_switch change(
        testing::strict_list(shard_list(before)), testing::strict_list(shard_list(after)),
        {.to = device_map(std::vector<rank_t>{3}), .lost = lost, .lost_elements = when_lost::leave_out});
    CHECK(lost_bytes(change) == (lost[0] == 0 ? 16 : 0) + (lost.size() == 2 && lost[0] == 1 ? 32 : 0));
  }
}

TEST_CASE("what FROM lacks of states that stay is not missing") {
  std::vector<shard> some = before, all = after;
  some.push_back({0, "w", fp32, {6, 4}, {0, 0}, {2, 4}, "exp_avg"});
  all.push_back({0, "w", fp32, {6, 4}, {0, 0}, {6, 4}, "exp_avg"});
  const auto moving = [&](const char* states) {
    const layout_switch change(some, all, {.states = adam.named(states)});
    return refused([&] { require_nothing_missing(change); });
  };
  CHECK(moving("param") == "accepted");
  CHECK(moving("exp_avg") == "reshard: plan: rank 0 needs 24 elements of w, and no rank of FROM holds 16 of them");
}

TEST_CASE("any tensors: what is lost box by box, tensor by tensor and in the sentence; and what else moves") {
  testing::dice random(13);
  int lost = 0, several = 0;
  for (int n = 0; n < 150; ++n) {
    const testing::any_tensors given(random, false);
    const auto change = given.change(), refusing = given.change(when_lost::refuse);
    switch_volume wanted;
    std::vector<bytes_t> of(3, 0);
    std::map<std::tuple<std::string, bool, index_t>, index_t> rows, told;  // how many want it
    std::map<std::pair<int, bool>, index_t> at;
    bytes_t once = 0;
    for (const testing::any_tensors::row& row : given.rows) {
      const index_t number = at[{row.tensor, row.moments}]++;
      for (const rank_t d : row.needs)
        (row.had.empty() ? wanted.lost : row.had.contains(d) ? wanted.retained : wanted.moved) += row.bytes;
      if (!row.had.empty() || row.needs.empty()) continue;
      once += row.bytes, of[static_cast<std::size_t>(row.tensor)] += row.bytes;
      rows[{std::string(1, static_cast<char>('a' + row.tensor)), row.moments, number}] = std::ssize(row.needs);
    }
    CHECK(volume_of(change) == wanted);
    CHECK(moved_bytes(change) == wanted.moved);
    CHECK(retained_bytes(change) == wanted.retained);
    CHECK(lost_bytes(change) == once);
    bytes_t summed = 0;
    each_lost(change, [&](const lost_box& b) {
      summed += b.bytes();
      for (index_t row = b.where.dim[axis_of::row].begin; row < b.where.dim[axis_of::row].end; ++row)
        CHECK(told.emplace(std::tuple(std::string(change.to().family_at(b.family).name), b.states != only(0), row),
                           b.wanted)
                  .second);
    });
    CHECK(summed == once);
    CHECK(told == rows);
    std::string families;
    for (int t = 0; t < 3; ++t)
      if (const bytes_t bytes = of[static_cast<std::size_t>(t)]; bytes > 0)
        families +=
            (families.empty() ? "" : ", ") + std::string(1, static_cast<char>('a' + t)) + " " + std::to_string(bytes);
    CHECK(lost_families(change) == families);
    const std::string sentence = "reshard: switch: " + std::to_string(once) + " bytes that TO holds were on lost" +
                                 (given.world.empty.empty() ? "" : " or empty") + " devices alone: " + families +
                                 "; when_lost::leave_out makes the switch without them";
    CHECK(refused([&] { require_nothing_lost(change); }) == "accepted");
    CHECK(refused([&] { require_nothing_lost(refusing); }) == (once > 0 ? sentence : "accepted"));
    CHECK(refused([&] { static_cast<void>(volume_of(refusing)); }) == (once > 0 ? sentence : "accepted"));
    for (rank_t d = 0; d < change.devices(); ++d) {
      const bool loses = !make_plan(change, d).lost.empty();
      CHECK(refused([&] { static_cast<void>(make_plan(refusing, d)); }) == (loses ? sentence : "accepted"));
    }
    lost += once > 0 ? 1 : 0, several += families.find(',') != std::string::npos ? 1 : 0;
  }
  CHECK_DRAWN(lost > 20);
  CHECK_DRAWN(several > 1);
}
