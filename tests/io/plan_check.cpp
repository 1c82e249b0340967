// SPDX-License-Identifier: Apache-2.0
// Whether a plan is one of a switch, by hand: what each list may have, and each thing that is refused, in its sentence.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/io/detail/plan_check.hpp>

#include "../support/refused.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;

namespace {

/// Of four devices that have all of "w" and "v" the first is lost, the second empty; then 2 and 1 have all.
auto four_devices() {
  std::vector<shard> from = testing::whole_on(4, "w", {4, 6}), to = testing::whole_on(2, "w", {4, 6});
  for (const shard& s : testing::whole_on(4, "v", {8})) from.push_back(s);
  for (const shard& s : testing::whole_on(2, "v", {8})) to.push_back(s);
  return layout_switch(from, to, {.to = device_map({2, 1}), .lost = {0}, .empty = {1}});
}

using list_of = std::vector<transfer> plan::*;
struct named_list {
  const char* name;
  list_of list;
};
constexpr named_list lists[] = {{"sends", &plan::sends},
                                {"receives", &plan::receives},
                                {"retains", &plan::retains},
                                {"creates", &plan::creates},
                                {"lost", &plan::lost}};

struct checked_plans {
  decltype(four_devices()) change = four_devices();

  int family(const char* name) const { return change.to().family_at(0).name == name ? 0 : 1; }
  transfer from_to(rank_t src, rank_t dst) const {
    return {src, dst, only(0), family("w"), change.to().family_at(family("w")).whole()};
  }
  std::string said(const plan& p) const {
    return testing::refused([&] { io::require_plan_of(change, p, "this"); });
  }
  /// Of a plan of a device with these in one list alone.
  std::string said(rank_t device, list_of list, const std::vector<transfer>& has) const {
    plan p;
    p.device = device;
    p.*list = has;
    return said(p);
  }
};

}  // namespace

TEST_CASE("a plan of a device that there is, with lists of its own, is one") {
  const checked_plans of;
  for (rank_t device = 0; device < 4; ++device) CHECK(of.said(device, &plan::sends, {}) == "accepted");
  for (const rank_t device : {-1, 4})
    CHECK(of.said(device, &plan::sends, {}) ==
          "reshard: this: a plan of device " + std::to_string(device) + "; the switch has 4 devices");
  const transfer own = of.from_to(2, 2);
  CHECK(of.said({2, {of.from_to(2, 1)}, {of.from_to(3, 2)}, {own}, {own}, {own}}) == "accepted");
}

TEST_CASE("both ends of every box are devices that there are, in every list, and as the list has them") {
  const checked_plans of;
  for (const auto& [name, list] : lists)
    for (rank_t src = -1; src <= 4; ++src)
      for (rank_t dst = -1; dst <= 4; ++dst) {
        const bool leaves = src == 2, arrives = dst == 2, sends = list == &plan::sends;
        const std::string way = "reshard: this: " + std::string(name) + "[0] goes from device " + std::to_string(src) +
                                " to " + std::to_string(dst);
        std::string wanted = "accepted";
        if (src < 0 || src > 3 || dst < 0 || dst > 3) wanted = way + "; the switch has 4 devices";
        else if (leaves != (list != &plan::receives) || arrives != !sends) wanted = way + ", in a plan of device 2";
        else if (src == 0 || dst == 0) wanted = way + ", and device 0 is lost";
        else if (src == 1) wanted = way + ", and device 1 is empty";
        CHECK(of.said(2, list, {of.from_to(src, dst)}) == wanted);
      }
}

TEST_CASE("an empty device passes on what came to it, and has what it makes itself, and nothing else") {
  const checked_plans of;
  transfer on = of.from_to(1, 2);
  CHECK(of.said(1, &plan::sends, {on}) == "reshard: this: sends[0] goes from device 1 to 2, and device 1 is empty");
  for (const int phase : {1, most_phases}) {
    on.phase = phase;
    CHECK(of.said(1, &plan::sends, {on}) == "accepted");
    CHECK(of.said(2, &plan::receives, {on}) == "accepted");
  }
  const transfer own = of.from_to(1, 1);
  CHECK(of.said(1, &plan::retains, {own}) ==
        "reshard: this: retains[0] goes from device 1 to 1, and device 1 is empty");
  for (const list_of made : {&plan::creates, &plan::lost}) CHECK(of.said(1, made, {own}) == "accepted");
  CHECK(of.said(0, &plan::lost, {of.from_to(0, 0)}) ==
        "reshard: this: lost[0] goes from device 0 to 0, and device 0 is lost");
}

TEST_CASE("states, family and box are of the switch, in every list, and the sentence says which entry is not") {
  const checked_plans of;
  for (const auto& [name, list] : lists) {
    const rank_t src = list == &plan::receives ? 3 : 2, dst = list == &plan::sends ? 1 : 2;
    const transfer good = of.from_to(src, dst);
    const std::string who = "reshard: this: " + std::string(name) + "[1]";
    const auto said = [&, where = list](auto&& change) {  // the second of two entries
      transfer first = good, second = good;
      first.where.dim[3] = {0, 1}, second.where.dim[3] = {1, 2};
      change(second);
      return of.said(2, where, {first, second});
    };
    CHECK(said([](transfer&) {}) == "accepted");
    CHECK(said([](transfer& t) { t.states = {}; }) == who + " has states that the switch does not move");
    CHECK(said([](transfer& t) { t.states = only(1); }) == who + " has states that the switch does not move");
    CHECK(said([](transfer& t) { t.states = only(0) | only(1); }) == who + " has states that the switch does not move");
    CHECK(said([](transfer& t) { t.family = -1; }) == who + " is of family -1; the switch has 2");
    CHECK(said([](transfer& t) { t.family = 2; }) == who + " is of family 2; the switch has 2");
    CHECK(said([](transfer& t) { t.where.dim[3] = {3, 4}; }) == "accepted");
    CHECK(said([](transfer& t) { t.where.dim[3] = {3, 5}; }) == who + " is no part of w");
    CHECK(said([](transfer& t) { t.where.dim[3] = {-1, 1}; }) == who + " is no part of w");
    CHECK(said([](transfer& t) { t.where.dim[4] = {6, 6}; }) == who + " is no part of w");
    CHECK(said([&](transfer& t) { t.family = of.family("v"); }) == who + " is no part of v");
    CHECK(said([](transfer& t) { t.where.dim[3] = {0, 1}; }) == who + " is out of order");
    CHECK(said([](transfer& t) { t.where.dim[3] = {0, 2}; }) == "accepted");
  }
}

TEST_CASE("what stays on its device does so in phase 0, and is passed on to nobody") {
  const checked_plans of;
  for (const auto& [name, list] : lists) {
    const rank_t src = list == &plan::receives ? 3 : 2, dst = list == &plan::sends ? 1 : 2;
    const std::string who = "reshard: this: " + std::string(name) + "[0] stays on its device, in phase ";
    transfer later = of.from_to(src, dst), on = later, both = later;
    later.phase = 1, on.why = purpose::passed_on, both.phase = 7, both.why = purpose::passed_on;
    const bool stays = src == dst;
    CHECK(of.said(2, list, {later}) == (stays ? who + "1" : "accepted"));
    CHECK(of.said(2, list, {on}) == (stays ? who + "0, to be passed on" : "accepted"));
    CHECK(of.said(2, list, {both}) == (stays ? who + "7, to be passed on" : "accepted"));
  }
}
