// SPDX-License-Identifier: Apache-2.0
// Names of members, and worlds: what is none, which follow each other, and whose a step is.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/elastic/world.hpp>

#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("what a member may be called") {
  CHECK(member_name("node3.0#2").text() == "node3.0#2");
  CHECK(member_name(std::string(63, 'x')).text() == std::string(63, 'x'));
  CHECK(member_name("a") < member_name("b"));
  CHECK(member_name("a") != member_name("aa"));
  CHECK(member_name().empty());
  CHECK_REFUSED(member_name(""), "a name has 1 to 63 characters, and this one has 0");
  CHECK_REFUSED(member_name(std::string(64, 'x')), "a name has 1 to 63 characters, and this one has 64");
  for (const std::string bad : {" ", "\"", "'", ",", "\\", "\n", "\x7f", "\xc3"})
    CHECK_REFUSED(member_name("ab" + bad), "character 2 of a name is number ");
  CHECK_REFUSED(member_name("a b"),
                "character 1 of a name is number 32; a name has visible ASCII characters, without quotes, commas and "
                "backslashes");
}

TEST_CASE("lists of members") {
  member_list list{"a", "b"};
  CHECK(has_members(list, {"b"}));
  CHECK_FALSE(has_members(list, {"b", "c"}));
  add_members(list, {"b", "c", "c"});
  CHECK(members_text(list) == "a, b and c");
  CHECK(members_text({"a"}) == "a");
  CHECK(members_text({}) == "nobody");
}

TEST_CASE("what is no world") {
  const world good{.epoch = 1, .members = {"a", "b"}, .layout = {.dp = 2}, .batch = 4};
  require_world(good);
  const auto with = [&](auto change) {
    world w = good;
    change(w);
    return testing::refused([&] { require_world(w); });
  };
  CHECK(with([](world& w) { w.epoch = 0; }) == "reshard: world: epoch 0; epochs count from 1");
  for (const bool step : {true, false})
    CHECK(with([&](world& w) { (step ? w.first_step : w.cursor) = -1; }) ==
          (step ? "reshard: world: it begins at step -1 and sample 0; both count from 0"
                : "reshard: world: it begins at step 0 and sample -1; both count from 0"));
  CHECK(with([](world& w) { w.batch = 0; }) == "reshard: world: a batch of 0 samples; it has at least 1");
  CHECK(with([](world& w) { w.members[1] = "a"; }) ==
        "reshard: world: ranks 0 and 1 are both a; a member has one rank");
  CHECK(with([](world& w) { w.members[1] = {}; }) == "reshard: world: rank 1 has no name");
  CHECK(with([](world& w) { w.members[0] = {}; }) == "reshard: world: rank 0 has no name");
  CHECK(with([](world& w) {
          w.members = {"a", "b", "c", "b"};
        }) == "reshard: world: ranks 1 and 3 are both b; a member has one rank");
  CHECK(with([](world& w) { w.batch = 1; }) == "accepted");
  CHECK(with([](world& w) { w.layout.tp = 2; }) == "reshard: world: 2 members, and the layout has 4 ranks");
}

TEST_CASE("worlds follow each other where the cursor does, and steps are theirs") {
  const world one{.epoch = 1, .members = {"a"}, .first_step = 10, .cursor = 100, .batch = 4};
  world two{.epoch = 2, .members = {"a"}, .first_step = 15, .cursor = 120, .batch = 8};
  CHECK(follows(one, two));
  CHECK_FALSE(follows(two, one));
  two.cursor = 121;
  CHECK_FALSE(follows(one, two));
  two.first_step = 9;  // undone: an earlier world tells the cursor
  CHECK(follows(one, two));
  two.epoch = 3;
  CHECK_FALSE(follows(one, two));
  CHECK(one.cursor_at(12) == 108);
  CHECK(one.rank_of("a") == 0);
  CHECK(one.rank_of("b") == -1);
  CHECK(one.has("a"));
  CHECK_FALSE(one.has("b"));
  two.first_step = 15;
  for (index_t s = 0; s < 20; ++s) CHECK(epoch_of_step({one, two}, s) == (s >= 15 ? 3 : s >= 10 ? 1 : 0));
  // going back: step 12 is of the later epoch, though the earlier one had it too
  two.first_step = 12;
  CHECK(epoch_of_step({one, two}, 12) == 3);
  CHECK(to_text(one) == "epoch 1: a; tp=1; from step 10, sample 100, in batches of 4");
}

TEST_CASE("a world of the same first step begins at the same sample; steps are undone back to 0, and not beyond") {
  const world one{.epoch = 4, .members = {"a"}, .first_step = 10, .cursor = 100, .batch = 4};
  world two{.epoch = 5, .members = {"a"}, .first_step = 10, .cursor = 100, .batch = 8};
  CHECK(follows(one, two));
  two.cursor = 101;
  CHECK_FALSE(follows(one, two));
  two.first_step = 9;
  CHECK(follows(one, two));
  two.first_step = 0;
  CHECK(follows(one, two));
  two.first_step = -1;
  CHECK_FALSE(follows(one, two));
  two.first_step = 9, two.epoch = 3;
  CHECK_FALSE(follows(one, two));
  CHECK(one.cursor_at(9) == 96);
}

TEST_CASE("a step before every world's is of none, and without worlds none is of any") {
  const world one{.epoch = 3, .members = {"a"}, .first_step = 2};
  CHECK(epoch_of_step({one}, 1) == 0);
  CHECK(epoch_of_step({one}, 2) == 3);
  CHECK(epoch_of_step({}, 2) == 0);
}
