// SPDX-License-Identifier: Apache-2.0
// Switches by messages in XOR order: the same random layouts as over threads, every size of world up to 64, and what
// happens where a device does not come.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <reshard/plan/volume.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/switches.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::refused, testing::switch_in_memory;

namespace {
#ifndef RESHARD_PATIENCE_SECONDS
#define RESHARD_PATIENCE_SECONDS 60
#endif
constexpr patience soon = std::chrono::seconds(RESHARD_PATIENCE_SECONDS);

constexpr exchange_as ways[] = {exchange_as::asynchronous, exchange_as::buffered, exchange_as::naive};

model tiny() {
  return make_transformer(
      {.name = "tiny", .layers = 8, .hidden = 16, .heads = 2, .groups = 2, .head_dim = 8, .ffn = 16, .vocabulary = 64});
}
}  // namespace

TEST_CASE("random switches in one stage, in every way") {
  oracle::generator cases(testing::seed());
  for (int i = 0; i < testing::tries(60); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    mailbox_group world(s.change.devices(), soon, ways[i % 3]);
    s.run(world);
  }
}

TEST_CASE("random switches whose stages take many rounds, in one stage and in many") {
  oracle::generator cases(testing::seed() + 7);
  index_t stages = 0;
  for (int i = 0; i < testing::tries(40); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    const exchange_as how = ways[i % 2];
    const bytes_t round_bytes = least_round_bytes + i % 3 * 512;
    switch_in_memory one(c), many(c);
    mailbox_group world(one.change.devices(), soon, how, round_bytes);
    one.run(world);
    stages += many.run_in_stages<mailbox_group>(192_KiB, how, round_bytes);
  }
  CHECK_DRAWN(stages > testing::tries(40) * 2);
}

TEST_CASE("rounds keep the arenas small however large a stage is") {
  const model wider = make_transformer({.name = "wider",
                                        .layers = 8,
                                        .hidden = 48,
                                        .heads = 2,
                                        .groups = 2,
                                        .head_dim = 24,
                                        .ffn = 64,
                                        .vocabulary = 64});
  for (const exchange_as how : {exchange_as::asynchronous, exchange_as::buffered}) {
    switch_in_memory s(wider, "dp=4,zero=1", "tp=2,pp=2");
    mailbox_group world(4, soon, how, least_round_bytes);
    const bytes_t both_ways = 2 * (how == exchange_as::asynchronous ? 2 : 1);
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      const staged_plan plan = stage_plan(make_plan(s.change, here.device()), s.change, 1);
      CHECK(total_bytes(make_plan(s.change, here.device()).receives) > 4 * 3 * 4 * least_round_bytes);
      const reshard::footprint taken = here.footprint(plan);
      const bytes_t held = taken.most;
      CHECK(held > 0);
      CHECK(held <= both_ways * 3 * least_round_bytes);  // a message from, and to, each of the others
      CHECK(taken.written_in == std::vector<index_t>{0});
      switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here);
      CHECK(s.found_after(d).wrong == 0);
    });
  }
  for (const bytes_t wrong : {4000, 4097, 3584, 0, -4096}) {
    const std::string sentence = refused([&] { mailbox_group(1, soon, exchange_as::buffered, wrong).at(0); });
    CHECK(sentence.find("rounds of " + std::to_string(wrong) +
                        " bytes a message; they must be a multiple of 512 and at "
                        "least 4096") != std::string::npos);
  }
}

TEST_CASE("what an end answers of a plan hangs on no plan that it was asked of before") {
  switch_in_memory s(tiny(), "dp=4,zero=1", "tp=2,pp=2");
  for (const exchange_as how : ways) {
    mailbox_group world(4, soon, how, least_round_bytes);
    world.run([&](auto& here) {
      const index_t lag = here.facts().lag;
      CHECK(lag == (how == exchange_as::asynchronous ? 1 : 0));
      const auto cut = [&](index_t stages) {
        return stage_plan(make_plan(s.change, here.device()), s.change, slot_times{stages, 1, lag});
      };
      const staged_plan whole = cut(1), many = cut(64);
      const reshard::footprint first = here.footprint(whole), other = here.footprint(many),
                               again = here.footprint(whole);
      CHECK(again.staging == first.staging);
      CHECK(again.written_in == first.written_in);
      CHECK(first.tells_of(whole.times()));
      CHECK(other.tells_of(many.times()));
      CHECK(other.most < first.most);
      CHECK(first.written_in[0] == 0);  // in several rounds; with one a stage is written a lag later
      CHECK(std::count(other.written_in.begin(), other.written_in.end(), 0) == (lag == 0 ? 1 : 0));
    });
  }
}

TEST_CASE("random switches in many stages, in every way") {
  oracle::generator cases(testing::seed() + 2);
  index_t stages = 0;
  for (int i = 0; i < testing::tries(30); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    stages += s.run_in_stages<mailbox_group>(192_KiB, ways[i % 3]);
    CHECK(s.reports[0].lag == (ways[i % 3] == exchange_as::asynchronous ? 1 : 0));
  }
  CHECK_DRAWN(stages > testing::tries(30) * 5);
}

TEST_CASE("every size of world from 1 to 64, from data parallel to fewer and more ranks") {
  const model m = tiny();
  for (rank_t n = 1; n <= testing::tries(64); ++n) {
    INFO(n, " devices");
    const std::string from = "zero=1,dp=" + std::to_string(n), to = "zero=1,tp=2,dp=" + std::to_string((n + 3) / 4);
    switch_in_memory s(m, from, to);
    mailbox_group world(s.change.devices(), soon);
    s.run(world, {.budget = 1_MiB});
  }
}

TEST_CASE("what the exchange holds is what it said: its arenas, two each way where it is asynchronous") {
  for (const exchange_as how : ways) {
    CAPTURE(static_cast<int>(how));
    switch_in_memory s(tiny(), "dp=2,zero=1", "pp=2");
    mailbox_group world(2, soon, how);
    bytes_t said[2] = {}, seen[2] = {}, one_stage[2] = {}, longest[2] = {};
    index_t stages = 0;
    world.run([&](auto& here) {
      struct noting : forwarding<mailbox_group::endpoint> {
        bytes_t& said;
        bytes_t& seen;
        bytes_t& longest;
        moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
          const reshard::footprint taken = inner.footprint(plan);
          said = taken.most;
          CHECK(taken.staging == std::vector<bytes_t>(static_cast<std::size_t>(plan.times().slots()), said));
          moves made = inner.prepare(plan, into, pages);
          for (const std::vector<message>* list : {&made.out, &made.in})
            for (const message& m : *list) {
              longest = std::max(longest, m.bytes);
              CHECK(m.bytes % 512 == 0);
            }
          return made;
        }
        void move(moves& prepared, index_t k) {
          inner.move(prepared, k);
          seen = inner.staging_seen();
        }
      };
      const auto d = static_cast<std::size_t>(here.device());
      one_stage[d] = here.footprint(stage_plan(make_plan(s.change, here.device()), s.change, 1)).most;
      noting one{{here}, said[d], seen[d], longest[d]};
      const switch_report report =
          switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), one, {.budget = 160_KiB});
      if (d == 0) stages = report.stages;
    });
    CHECK(stages >= 4);
    for (int d = 0; d < 2; ++d) {
      CHECK(said[d] == seen[d]);
      CHECK(said[d] > 0);
      CHECK(said[d] < one_stage[d]);
      const index_t arenas = how == exchange_as::asynchronous ? 4 : 2;
      if (how != exchange_as::naive) CHECK(said[d] <= arenas * (longest[d] + page_bytes));
    }
  }
}

TEST_CASE("more stages are taken where the arenas do not fit, and the small switches of the issue keep B / 8") {
  const index_t width = testing::under_sanitizer() ? 64
                        : testing::few()           ? 128
                                                   : 256;  // a sanitizer looks at every element
  const model m = make_transformer({.name = "small",
                                    .layers = 8,
                                    .hidden = width,
                                    .heads = 8,
                                    .groups = 8,
                                    .head_dim = width / 8,
                                    .ffn = 3 * width,
                                    .vocabulary = 16 * width});
  for (const auto& both : {std::pair("tp=2,pp=2,dp=2,zero=1", "tp=4,dp=2,zero=1"), std::pair("pp=8", "dp=8")}) {
    CAPTURE(both.first);
    switch_in_memory s(m, both.first, both.second), without(m, both.first, both.second);
    const bytes_t budget = largest_holding(s.change) / 8;
    mailbox_group world(8, soon);
    s.run(world, {.budget = budget});
    thread_group no_arenas(8, soon);
    without.run(no_arenas, {.budget = budget});
    CHECK(s.reports[0].stages > without.reports[0].stages);
    for (const switch_report& r : s.reports) CHECK(r.memory.excess() <= budget);
  }
}

TEST_CASE("a device that does not come ends in a sentence") {
  const model m = tiny();
  switch_in_memory s(m, "dp=2,zero=1", "tp=2");
  mailbox_group world(2, std::chrono::milliseconds(2500));  // ample for what comes before
  static std::atomic<bool> waited;  // in vain: until then device 1 does not come, however busy the machine is
  waited = false;
  struct sleeper : forwarding<mailbox_group::endpoint> {
    void move(moves& prepared, index_t k) {
      for (int i = 0; device() == 1 && k == 0 && !waited && i < 6000; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      inner.move(prepared, k);
    }
  };
  std::string sentence;
  try {
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      sleeper late{{here}};
      try {
        switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), late);
      } catch (const peer_missing&) {
        waited = true;
        throw;
      }
    });
  } catch (const peer_missing& e) {
    sentence = e.what();
  }
  INFO(sentence);
  CHECK(sentence == "reshard: device 0 waited 2500 ms in vain for device 1, in stage 0");
}

TEST_CASE("who waits for a message of a device that fails hears why it failed") {
  switch_in_memory s(tiny(), "dp=2,zero=1", "tp=2");
  struct torn : forwarding<mailbox_group::endpoint> {
    void move(moves& prepared, index_t k) {
      if (device() == 1) throw std::runtime_error("a cable is torn");
      inner.move(prepared, k);
    }
  };
  mailbox_group world(2, soon);
  std::string heard;
  const auto run = [&] {
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      torn one{{here}};
      try {
        switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), one);
      } catch (const peer_failed& e) {
        heard = e.what();
        throw;
      }
    });
  };
  CHECK_THROWS_WITH_AS(run(), "a cable is torn", std::runtime_error);
  CHECK(heard == "a cable is torn");
}

TEST_CASE("devices that will not exchange the same are named on all, nothing is touched, and the world goes on") {
  switch_in_memory s(tiny(), "dp=4,zero=1", "tp=2,dp=2,zero=1");
  struct odd : forwarding<mailbox_group::endpoint> {
    std::function<void(staged_plan&)> change;
    moves prepare(staged_plan plan, const binding& into, page_stages& pages) {
      if (device() == 2) change(plan);
      return inner.prepare(plan, into, pages);
    }
  };
  const auto ends_with = [&](std::function<void(staged_plan&)> change) {
    mailbox_group world(4, std::chrono::seconds(20));
    std::string ends[4];
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      odd one{{here}, change};
      ends[d] = refused([&] { switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), one); });
      here.all_reduce_max(0);  // it still agrees
    });
    CHECK(s.untouched());
    for (const std::string& end : ends) CHECK(end == ends[0]);
    return ends[0];
  };
  const std::string words = " differ in what they will exchange; device 2 differs from ";
  for (const std::string& sentence :
       {ends_with([](staged_plan& p) { p.receives.pop_back(); }),
        ends_with([](staged_plan& p) { p.sends.erase(p.sends.begin()); }), ends_with([](staged_plan& p) {
          for (staged_piece& q : p.sends) q.states = only(1);
        }),
        ends_with([](staged_plan& p) {
          for (std::vector<staged_piece>* list : {&p.sends, &p.receives})
            for (staged_piece& q : *list) q.tensor.member ^= 1;
        })}) {
    CAPTURE(sentence);
    CHECK(sentence.starts_with("reshard: device "));
    CHECK(sentence.find("device 2") != sentence.npos);
    CHECK(sentence.find(" differ in what they will exchange; device ") != sentence.npos);
    CHECK(
        sentence.ends_with(" device 2 differs from 1 of 3 others. All devices want the same layouts, lists, "
                           "placements, states, budget, build of "
                           "the library and way to exchange: exchange_as and round_bytes"));
  }
  CHECK(ends_with([](staged_plan& p) {
          for (std::vector<staged_piece>* list : {&p.sends, &p.receives})
            for (staged_piece& q : *list) q.where.dim[2].begin += q.where.dim[2].size() > 1 ? 1 : 0;
        }).find(words) != std::string::npos);
  mailbox_group world(4, soon);
  s.run(world);
}

TEST_CASE("who has left, or never came to be, is waited for by nobody") {
  constexpr patience long_enough = std::chrono::seconds(60);
  mailbox_group world(2, long_enough);
  auto here = world.at(0);
  { auto gone = world.at(1); }
  CHECK_THROWS_WITH_AS(here.all_reduce_max(1), "reshard: device 1 has left; a world serves one run", peer_failed);
  mailbox_group other(2, long_enough);
  auto alone = other.at(0);
  other.leave(1, "reshard: there is no thread for device 1");
  CHECK_THROWS_WITH_AS(alone.all_reduce_max(1), "reshard: there is no thread for device 1", peer_failed);
}
