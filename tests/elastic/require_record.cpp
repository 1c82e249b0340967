// SPDX-License-Identifier: Apache-2.0
// What is a record of a job, in every phase, and what is none: each law broken by one number, with its sentence.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/require_record.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

constexpr world two_members(index_t epoch) {
  return {.epoch = epoch, .members = {"a", "b"}, .layout = {.dp = 2}, .first_step = 10 * epoch, .batch = 4};
}
/// A record as its phase demands: its own world, that before where nobody makes steps, and the next where one is named.
constexpr job_record record_in(job_phase phase) {
  job_record r{.phase = phase, .epoch = phase == job_phase::founding ? 0 : 3};
  const bool steps = makes_steps(phase);
  if (phase != job_phase::founding && !steps) r.worlds.push_back(two_members(2));
  if (phase != job_phase::founding) r.worlds.push_back(two_members(3));
  if (phase == job_phase::proposed || phase == job_phase::armed) r.proposed.push_back(two_members(4));
  if (!steps && phase != job_phase::founding)
    r.promises.push_back(
        {.told = {"b", 30}, .of_epoch = 2, .torn_stages = 4, .torn_in_place = 4, .torn_here = 4, .copies = {{"a", 0}}});
  return r;
}
constexpr job_phase every_phase[] = {job_phase::founding, job_phase::idle,     job_phase::proposed,
                                     job_phase::armed,    job_phase::entering, job_phase::recovering,
                                     job_phase::waiting,  job_phase::lost,     job_phase::done};
constexpr bool every_phase_has_a_record() {
  for (const job_phase phase : every_phase) require_record(record_in(phase));
  job_record r = record_in(job_phase::entering);
  r.from_copies = true;
  r.promises[0].told.version = holds_nothing, r.promises[0].of_epoch = 0;
  r.promises[0].torn_stages = r.promises[0].torn_in_place = r.promises[0].torn_here = 0;
  r.gone = {"x"};  // who is gone may be in no world
  require_record(r);
  return true;
}
static_assert(every_phase_has_a_record());

/// A change that breaks one law, and the sentence of that.
struct broken_law {
  job_phase in;
  void (*change)(job_record&);
  std::string said;
};
void check_each(const std::vector<broken_law>& laws) {
  for (const broken_law& law : laws) {
    job_record r = record_in(law.in);
    law.change(r);
    CHECK(testing::refused([&] { require_record(r); }) == "reshard: " + law.said);
  }
}
using enum job_phase;
}  // namespace

TEST_CASE("in every phase there is a record, and the least and most that it may say is accepted") {
  CHECK(every_phase_has_a_record());
}

TEST_CASE("numbers below their least, and a phase that is not of its epoch, are no record") {
  const std::string least_are = " members wanted; numbers count from 0, and a job has at least 1 member",
                    only_that = "; founding is epoch 0, and only that";
  check_each(
      {{idle, [](job_record& r) { r.epoch = -1; }, "record: epoch -1, attempt 0, boundary 0 and 1" + least_are},
       {idle, [](job_record& r) { r.attempt = -1; }, "record: epoch 3, attempt -1, boundary 0 and 1" + least_are},
       {done, [](job_record& r) { r.boundary = -1; }, "record: epoch 3, attempt 0, boundary -1 and 1" + least_are},
       {founding, [](job_record& r) { r.wanted = 0; }, "record: epoch 0, attempt 0, boundary 0 and 0" + least_are},
       {founding, [](job_record& r) { r.epoch = 1; }, "record: it is founding in epoch 1" + only_that},
       {founding, [](job_record& r) { r.phase = waiting; }, "record: it is waiting in epoch 0" + only_that}});
}

TEST_CASE("worlds that are none, out of order, more than one while steps are made, or not those of the phase") {
  const std::string batch = "world: a batch of 0 samples; it has at least 1";
  check_each(
      {{entering, [](job_record& r) { r.worlds[0].batch = 0; }, batch},
       {armed, [](job_record& r) { r.proposed[0].batch = 0; }, batch},
       {entering, [](job_record& r) { r.worlds[0].epoch = 3; }, "record: a world of epoch 3 comes after one of 3"},
       {lost, [](job_record& r) { std::swap(r.worlds[0], r.worlds[1]); },
        "record: a world of epoch 2 comes after one of 3"},
       {done, [](job_record& r) { r.worlds.pop_back(); }, "record: its last world is of epoch 2, and it is of epoch 3"},
       {idle, [](job_record& r) { r.worlds.clear(); }, "record: its last world is of epoch 0, and it is of epoch 3"},
       {armed, [](job_record& r) { r.proposed[0].epoch = 3; },
        "record: a world of epoch 3 is proposed, and it is of epoch 3"},
       {armed, [](job_record& r) { r.proposed[0].epoch = 5; },
        "record: a world of epoch 5 is proposed, and it is of epoch 3"}});
  for (const job_phase phase : every_phase) {
    const std::string in_phase = ", and it is " + std::string(name(phase));
    const auto propose = [](job_record& r) { r.proposed.push_back(two_members(r.epoch + 1)); };
    const bool named = phase == proposed || phase == armed;
    check_each({{phase, propose, "record: " + std::string(named ? "2" : "1") + " worlds are proposed" + in_phase}});
    if (named)
      check_each({{phase, [](job_record& r) { r.proposed.clear(); }, "record: 0 worlds are proposed" + in_phase}});
    const auto torn = [](job_record& r) { r.worlds.insert(r.worlds.begin(), two_members(1)); };
    if (makes_steps(phase)) check_each({{phase, torn, "record: state may lie in 2 worlds" + in_phase}});
  }
}

TEST_CASE(
    "copies that nobody told of or no world begins with, members without a name, and promises that nobody makes") {
  const std::string copies = "record: its world begins with copies, and it is ",
                    because = " promises; copies are told by promises, and begin a world that is entered",
                    of_copies = "; a copy is of a member, and versions count from 0";
  check_each(
      {{waiting, [](job_record& r) { r.from_copies = true; }, copies + "waiting with 1" + because},
       {entering, [](job_record& r) { r.from_copies = true, r.promises.clear(); },
        copies + "entering with 0" + because},
       {waiting,
        [](job_record& r) {
          r.gone = {"a", {}};
        },
        "record: of 2 members that are gone one has no name"},
       {lost,
        [](job_record& r) {
          r.promises.push_back({.told = {"b", 9}});
        },
        "record: b promises twice; a member has one promise"},
       {done, [](job_record& r) { r.promises[0].told.member = "c"; },
        "record: c promises, and is in no world that state may lie in"},
       {done, [](job_record& r) { r.promises[0].told.version = -2; },
        "record: b promises version -2; versions count from 0, and nothing is -1"},
       {done, [](job_record& r) { r.promises[0].of_epoch = 1; },
        "record: b holds the layout of epoch 1, and no world is of that"},
       {done, [](job_record& r) { r.promises[0].torn_in_place = -1; },
        "record: b has 4 of 4 stages in place, and knows of -1 everywhere"},
       {done, [](job_record& r) { r.promises[0].torn_in_place = 5; },
        "record: b has 4 of 4 stages in place, and knows of 5 everywhere"},
       {done, [](job_record& r) { r.promises[0].torn_here = 5; },
        "record: b has 5 of 4 stages in place, and knows of 4 everywhere"},
       {done, [](job_record& r) { r.promises[0].torn_unread = 5; },
        "record: what nobody reads went at b with stage 5 of 4"},
       {done, [](job_record& r) { r.promises[0].torn_unread = -1; },
        "record: what nobody reads went at b with stage -1 of 4"},
       {done, [](job_record& r) { r.promises[0].of_epoch = 3; },
        "record: b holds a torn switch from epoch 3 at version 30; it is between two worlds that the record has, "
        "and of a version"},
       {done, [](job_record& r) { r.promises[0].of_epoch = 0; },
        "record: b holds a torn switch from epoch 0 at version 30; it is between two worlds that the record has, "
        "and of a version"},
       {done, [](job_record& r) { r.promises[0].told.version = holds_nothing; },
        "record: b holds a torn switch from epoch 2 at version -1; it is between two worlds that the record has, "
        "and of a version"},
       {done,
        [](job_record& r) {
          r.promises[0].copies.push_back({{}, 3});
        },
        "record: b has a copy of version 3 of nobody" + of_copies},
       {done,
        [](job_record& r) {
          r.promises[0].copies.push_back({"a", -1});
        },
        "record: b has a copy of version -1 of a" + of_copies}});
}

TEST_CASE("a torn switch may be from the first world to the second; what is of no epoch is between none") {
  job_record r{.phase = recovering, .epoch = 2};
  r.worlds = {two_members(1), two_members(2)};
  r.promises = {{.told = {"a", 20}, .of_epoch = 1, .torn_stages = 3}};
  CHECK(testing::refused([&] { require_record(r); }) == "accepted");
  r.promises[0].of_epoch = 0;
  CHECK(testing::refused([&] { require_record(r); }) ==
        "reshard: record: a holds a torn switch from epoch 0 at version 20; it is between two worlds that the record "
        "has, and of a version");
  r.promises[0].torn_stages = 0;
  CHECK(testing::refused([&] { require_record(r); }) == "accepted");
}
