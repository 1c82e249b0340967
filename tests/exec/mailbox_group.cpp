// SPDX-License-Identifier: Apache-2.0
// Switches by messages in XOR order: the same random layouts as over threads, every size of world up to 64, and what
// happens where a device does not come.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/exec/mailbox_group.hpp>

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

model tiny() {
  return make_transformer(
      {.name = "tiny", .layers = 8, .hidden = 16, .heads = 2, .groups = 2, .head_dim = 8, .ffn = 16, .vocabulary = 64});
}
}  // namespace

TEST_CASE("random switches in one stage") {
  oracle::generator cases(testing::seed());
  for (int i = 0; i < testing::tries(60); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    mailbox_group world(s.change.devices(), soon);
    s.run(world);
  }
}

TEST_CASE("random switches in many stages") {
  oracle::generator cases(testing::seed() + 2);
  index_t stages = 0;
  for (int i = 0; i < testing::tries(30); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    stages += s.run_in_stages<mailbox_group>(32_KiB);
  }
  CHECK(stages > testing::tries(30) * 5);
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

TEST_CASE("between two devices a stage takes exactly what it said, and leaves nothing to the next") {
  struct thinned : testing::forwarding<mailbox_group::endpoint> {  // nothing is exchanged in stage 1, little in stage 2
    std::vector<bytes_t> said = {}, seen = {};
    bytes_t left = 0;  // of messages, after their stage

    moves prepare(staged_plan plan, const binding& into, page_stages& pages) {
      for (std::vector<staged_piece>* list : {&plan.sends, &plan.receives}) {
        std::erase_if(*list, [](const staged_piece& p) { return p.stage == 1; });
        const auto first = std::find_if(list->begin(), list->end(), [](const staged_piece& p) { return p.stage == 2; });
        const auto last = std::find_if(first, list->end(), [](const staged_piece& p) { return p.stage > 2; });
        list->erase(first + (last - first) / 4, last);
      }
      for (index_t k = 0; k < plan.stages; ++k) said.push_back(inner.staging_bytes(plan, k));
      return inner.prepare(plan, into, pages);
    }
    void move(moves& prepared, index_t k) {
      inner.move(prepared, k);
      seen.push_back(inner.staging_seen());
      for (const std::optional<page_range>* messages : {&prepared.out, &prepared.in})
        if (*messages) left += (*messages)->resident_bytes();
    }
  };
  switch_in_memory s(tiny(), "dp=2,zero=1", "pp=2");
  mailbox_group world(2, soon);
  std::vector<bytes_t> said[2], seen[2];
  bytes_t left[2] = {-1, -1};
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    thinned one{{here}};
    switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), one, {.budget = 160_KiB});
    said[d] = one.said, seen[d] = one.seen, left[d] = one.left;
  });
  for (int d = 0; d < 2; ++d) {
    CHECK(seen[d] == said[d]);
    CHECK(left[d] == 0);
    REQUIRE(seen[d].size() == 5);  // messages included
    CHECK(seen[d][0] > 2 * seen[d][2]);
    CHECK(seen[d][1] == 0);
    CHECK(seen[d][2] > 0);
  }
}

TEST_CASE("a device that does not come ends in a sentence") {
  const model m = tiny();
  switch_in_memory s(m, "dp=2,zero=1", "tp=2");
  mailbox_group world(2, std::chrono::milliseconds(2500));  // ample for what comes before
  struct sleeper : testing::forwarding<mailbox_group::endpoint> {
    void move(moves& prepared, index_t k) {
      if (device() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(6000));
      inner.move(prepared, k);
    }
  };
  std::string sentence;
  try {
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      sleeper late{{here}};
      switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), late);
    });
  } catch (const peer_missing& e) {
    sentence = e.what();
  }
  INFO(sentence);
  CHECK(sentence == "reshard: device 0 waited 2500 ms in vain for device 1, in stage 0, step 1 of 1");
}

TEST_CASE("who waits for a message of a device that fails hears why it failed") {
  switch_in_memory s(tiny(), "dp=2,zero=1", "tp=2");
  struct torn : testing::forwarding<mailbox_group::endpoint> {
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

TEST_CASE("a message of another length than is expected is refused, and says whose") {
  switch_in_memory s(tiny(), "dp=2,zero=1", "tp=2");
  struct forgetful : testing::forwarding<mailbox_group::endpoint> {
    moves prepare(staged_plan plan, const binding& into, page_stages& pages) {
      if (device() == 1) plan.receives.pop_back();
      return inner.prepare(plan, into, pages);
    }
  };
  mailbox_group world(2, std::chrono::seconds(5));
  const std::string sentence = refused([&] {
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      forgetful one{{here}};
      switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), one);
    });
  });
  const bytes_t all = total_bytes(make_plan(s.change, 1).receives);
  INFO(sentence);
  CHECK(sentence.starts_with("reshard: device 1 expects "));
  CHECK(sentence.ends_with(" bytes from device 0 in stage 0, which sends " + std::to_string(all)));
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
