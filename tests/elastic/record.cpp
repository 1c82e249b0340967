// SPDX-License-Identifier: Apache-2.0
// The record of a job as a value: what it says of its worlds and promises, the events about it, and both as text.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <reshard/elastic/record.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
world world_of(index_t epoch, member_list members, index_t first_step = 0) {
  world w{.epoch = epoch, .members = members, .first_step = first_step, .cursor = 8 * first_step, .batch = 8};
  w.layout.dp = static_cast<rank_t>(members.size());
  return w;
}

/// Recovering from a switch that was torn: a and b were to become b, c and d, and a is gone.
job_record torn() {
  job_record r{.phase = job_phase::recovering, .epoch = 2, .attempt = 5};
  r.worlds = {world_of(1, {"a", "b"}), world_of(2, {"b", "c", "d"}, 12)};
  r.promises = {{.told = {"b", 12, update_stage::scalar}, .of_epoch = 1, .torn_stages = 3},
                {.told = {"d", holds_nothing}}};
  r.gone = {"a"};
  return r;
}
}  // namespace

TEST_CASE("the world of a record is its last; members of several worlds are named once") {
  const job_record r = torn();
  CHECK(r.now() == r.worlds[1]);
  CHECK(r.concerned() == member_list{"a", "b", "c", "d"});
  CHECK(job_record{}.concerned().empty());
  CHECK_REFUSED(job_record{.phase = job_phase::waiting}.now(), "record: there is no world yet; the job is waiting");
}

TEST_CASE("a promise is found by who made it, and says whether there is state, and whether it is torn") {
  const job_record r = torn();
  REQUIRE(r.promise_of("b") == &r.promises[0]);
  REQUIRE(r.promise_of("d") == &r.promises[1]);
  CHECK(r.promise_of("c") == nullptr);
  CHECK(r.promises[0].holds_state());
  CHECK(r.promises[0].is_torn());
  CHECK_FALSE(r.promises[1].holds_state());
  CHECK_FALSE(r.promises[1].is_torn());
  CHECK(promise{.told = {"x", 0}}.holds_state());
  CHECK(promise{.torn_stages = 1}.is_torn());
}

TEST_CASE("a scalar goes with a promise bit for bit") {
  static_assert(bits_of_scalar(0.0) == 0 && bits_of_scalar(-2.0) == 0xC000000000000000u);
  static_assert(scalar_of_bits(0x3FF8000000000000u) == 1.5);
  CHECK(bits_of_scalar(std::numeric_limits<double>::infinity()) == 0x7FF0000000000000u);
}

TEST_CASE("an event is about what the record is at") {
  job_record r = torn();
  r.boundary = 7;
  const job_event e = event_about(r, job_event_kind::broke);
  CHECK(e == job_event{.kind = job_event_kind::broke, .epoch = 2, .attempt = 5, .boundary = 7});
}

TEST_CASE("a record as text: its phase, its worlds, who promised what and who is gone") {
  job_record r = torn();
  CHECK(to_text(r) ==
        "recovering in epoch 2, attempt 5; epoch 1: a and b; dp=2; from step 0, sample 0, in batches of 8; epoch 2: b, "
        "c and d; dp=3; from step 12, sample 96, in batches of 8; promised: b is at version 12, stage 2; promised: d "
        "holds nothing; gone: a");
  r = {.phase = job_phase::armed, .epoch = 1, .boundary = 12};
  r.worlds = {world_of(1, {"a"})}, r.proposed = {world_of(2, {"a", "b"}, 12)};
  r.request = "r1";
  CHECK(to_text(r) ==
        "armed in epoch 1, attempt 0: all stop before step 12; epoch 1: a; tp=1; from step 0, sample 0, in batches of "
        "8; proposed is epoch 2: a and b; dp=2; from step 12, sample 96, in batches of 8; asked for by r1");
  CHECK(to_text(job_record{.wanted = 3}) == "founding in epoch 0, attempt 0: 3 members are asked for");
  r = {.phase = job_phase::entering, .epoch = 3, .attempt = 2, .from_copies = true};
  r.worlds = {world_of(3, {"a"})};
  CHECK(to_text(r) ==
        "entering in epoch 3, attempt 2; epoch 3: a; tp=1; from step 0, sample 0, in batches of 8; it begins with "
        "copies");
}

TEST_CASE("an event as text: what it is about, which step it names, who says so and where it leads") {
  job_event e{.kind = job_event_kind::acked, .epoch = 3, .attempt = 1, .boundary = 120, .members = {"a", "b"}};
  CHECK(to_text(e) == "acked about epoch 3, attempt 1, boundary 120: a and b");
  e = {.kind = job_event_kind::passed, .epoch = 1, .at = 14};
  CHECK(to_text(e) == "passed about epoch 1, attempt 0, at step 14");
  e = {.kind = job_event_kind::passed, .epoch = 1, .boundary = 1, .at = 1};
  CHECK(to_text(e) == "passed about epoch 1, attempt 0, boundary 1, at step 1");
  e = {.kind = job_event_kind::accounted, .epoch = 1, .attempt = 4, .to = {world_of(2, {"c"}, 4)}, .from_copies = true};
  CHECK(to_text(e) ==
        "accounted about epoch 1, attempt 4; to epoch 2: c; tp=1; from step 4, sample 32, in batches of 8, from "
        "copies");
}
