// SPDX-License-Identifier: Apache-2.0
// Stage counts and the cut of a stream: S equal parts of its elements, in address order.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/memory_replay.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr space before{models::llama2_7b, config<tp<2>, pp<2>, dp<2>, zero<1>>{}};
constexpr space after{models::llama2_7b, config<tp<4>, pp<1>, dp<2>, zero<1>>{}};
}  // namespace

TEST_CASE("S = max(1, ceil(4 B / budget))") {
  static_assert(stage_count(0, 1) == 1);
  static_assert(stage_count(100, 400) == 1 && stage_count(101, 400) == 2 && stage_count(100, 399) == 2);
  CHECK(stage_count(339'187'712, 64 << 20) == 21);
  CHECK_REFUSED(stage_count(100, 0), "a budget of 0 bytes; it must be at least 1");
}

TEST_CASE(
    "the least budget: no smaller one is kept by the number of stages that it makes, of S = 1, 2, 4 .. 4096, each of "
    "which is tried") {
  testing::dice random(7);
  std::map<index_t, int> won;  // by stages of the least budget
  for (int n = 0; n < 400; ++n) {
    const bytes_t largest = n % 20 == 0 ? random.below(3) : random.within(1, n % 2 == 0 ? 200 : 20000);
    std::map<index_t, bytes_t> excess;
    for (index_t stages = 1; stages <= 4096; stages *= 2)
      excess[stages] = random.below(random.coin() ? 8 * largest + 1 : 4 * largest / stages + 2);
    bytes_t wanted = 1;  // try every budget
    for (index_t stages = 0;; ++wanted) {
      stages = 1;
      while (stages * wanted < 4 * largest) ++stages;
      if (excess.contains(stages) && excess[stages] <= wanted) {
        ++won[stages];
        break;
      }
    }
    std::vector<index_t> tried;
    const bytes_t found = least_budget(largest, [&](index_t stages) {
      tried.push_back(stages);
      return excess.at(stages);
    });
    CAPTURE(largest);
    CHECK(found == wanted);
    CHECK(tried == std::vector<index_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096});
  }
  for (const auto& [stages, times] : won)
    std::printf("least with %d stages: %d times\n", static_cast<int>(stages), times);
  CHECK(won.size() > 5);
}

TEST_CASE("a least budget by hand: each number of stages is the best one for some switch") {
  for (index_t best = 1; best <= 4096; best *= 2) {
    CAPTURE(best);
    const bytes_t largest = 4096 * 25;
    // every number of stages but one needs more than the whole state; `best` needs no more than what makes that many
    // stages
    const bytes_t found = least_budget(largest, [best](index_t stages) { return stages == best ? 1 : 5 * 4096 * 25; });
    CHECK(found == 4 * largest / best);
  }
  CHECK(least_budget(0, [](index_t) { return 0; }) == 1);
  CHECK(least_budget(10, [](index_t) { return 1000; }) == 1000);  // one stage, however large the excess
}

TEST_CASE("stages where a transport holds memory of its own: the first s0, and the powers of two above") {
  static_assert(stage_count({.largest = 100}, 399) == stage_count(100, 399));
  static_assert(stage_count({.largest = 100, .staging = 50, .fixed = 7}, 157) == 3);
  static_assert(stage_count({.largest = 100, .staging = 51, .fixed = 7}, 157) == 4);
  static_assert(stage_count({.staging = 0}, 1) == 1);
  static_assert(memory_demand::stages_after(1) == 2 && memory_demand::stages_after(2) == 4);
  static_assert(memory_demand::stages_after(21) == 32 && memory_demand::stages_after(4096) == 8192);
  CHECK_REFUSED(stage_count({.largest = 100, .fixed = 7}, 7),
                "a budget of 7 bytes, and the transport holds 7 whatever the stages; it must be above that");
  CHECK_REFUSED(stage_count({.largest = 100, .fixed = 7}, 0), "a budget of 0 bytes; it must be at least 1");
}

TEST_CASE("the least budget of a switch is one that it accepts, and none below is, whatever the stages exceed") {
  testing::dice random(7);
  index_t above = 0;  // switches that s0 stages refuse and more accept
  for (int round = 0; round < 200; ++round) {
    const memory_demand demand{random.within(1, 60), random.below(3) * random.below(80), random.below(2) * 9};
    std::map<index_t, bytes_t> excess;
    for (index_t stages = 1; stages <= 4096; stages *= 2)
      excess[stages] = random.below(random.coin() ? 8 * demand.largest + 1 : 4 * demand.largest / stages + 2);
    const auto accepts = [&](bytes_t budget) {  // by powers of two alone
      if (budget <= demand.fixed) return false;
      index_t stages = 1;
      while (stages * (budget - demand.fixed) < 4 * demand.largest + demand.staging) ++stages;
      bool first = true;
      for (index_t s = 1; s <= 4096; s *= 2)
        if (s >= stages) {
          if (excess[s] <= budget - demand.fixed) {
            above += first ? 0 : 1;
            return true;
          }
          first = false;
        }
      return false;
    };
    bytes_t wanted = 1;
    while (!accepts(wanted)) ++wanted;
    CHECK(least_budget(demand, [&](index_t stages) { return excess.at(stages); }) == wanted);
  }
  CHECK(above > 20);
}

TEST_CASE("stage k of a stream is elements [floor(k E / S), floor((k + 1) E / S)), and addresses ascend") {
  const layout_switch change(before, after);
  for (const index_t stages : {1, 2, 7, 20})
    for (const rank_t device : {0, 5, 7}) {
      const plan p = make_plan(change, device);
      for (const std::vector<transfer>* list : {&p.receives, &p.retains}) {
        const std::vector<staged_piece> pieces = stage_transfers(*list, change, stages);
        CHECK(total_bytes(*list) == [&] {
          bytes_t bytes = 0;
          for (const staged_piece& s : pieces) bytes += s.bytes();
          return bytes;
        }());
        for (std::size_t i = 0, past = 0; i < pieces.size(); i = past) {
          std::vector<index_t> per_stage(static_cast<std::size_t>(stages), 0);
          index_t elements = 0;
          for (past = i;
               past < pieces.size() && pieces[past].src == pieces[i].src && pieces[past].states == pieces[i].states;
               ++past) {
            per_stage[static_cast<std::size_t>(pieces[past].stage)] += pieces[past].where.volume();
            elements += pieces[past].where.volume();
            if (past == i) continue;
            const staged_piece &a = pieces[past - 1], &b = pieces[past];
            CHECK(a.stage <= b.stage);
            const role r = (b.states & parameter_states).empty() ? role::optimizer : role::parameter;
            const storage_order x = change.to().order_of(a.tensor, device, r),
                                y = change.to().order_of(b.tensor, device, r);
            CHECK(x <= y);
          }
          for (index_t k = 0; k < stages; ++k)
            CHECK(per_stage[static_cast<std::size_t>(k)] == even_part({0, elements}, k, stages).size());
        }
      }
    }
}

TEST_CASE("pieces come by source, destination, states and stage") {
  const layout_switch change(before, after);
  for (rank_t device = 0; device < change.devices(); ++device) {
    const std::vector<staged_piece> pieces = stage_transfers(make_plan(change, device).receives, change, 5);
    const auto key = [](const staged_piece& p) { return std::tuple(p.src, p.dst, p.states.bits, p.stage); };
    CHECK(pieces.front().src < pieces.back().src);
    CHECK(std::is_sorted(pieces.begin(), pieces.end(),
                         [&](const staged_piece& a, const staged_piece& b) { return key(a) < key(b); }));
  }
}

TEST_CASE("sends come by destination; a tied copy comes where its destination keeps it, after the last layers") {
  static constexpr model tied = make_transformer({.name = "tied",
                                                  .layers = 4,
                                                  .hidden = 8,
                                                  .heads = 4,
                                                  .groups = 2,
                                                  .head_dim = 2,
                                                  .ffn = 8,
                                                  .vocabulary = 8,
                                                  .tied = true});
  const layout_switch change(space(tied, config<tp<1>>{}), space(tied, config<pp<2>>{}), {.to = device_map({1, 2})});
  const std::vector<staged_piece> sent = stage_transfers(make_plan(change, 0).sends, change, 1);
  const std::vector<staged_piece> received = stage_transfers(make_plan(change, 2).receives, change, 1);
  REQUIRE(sent.size() > received.size());
  CHECK(sent.front().dst == 1);
  CHECK(sent.back().dst == 2);
  for (std::size_t i = 1; i < sent.size(); ++i) CHECK(sent[i - 1].dst <= sent[i].dst);
  CHECK(std::vector<staged_piece>(sent.end() - static_cast<std::ptrdiff_t>(received.size()), sent.end()) == received);
  const auto parameters_end =
      std::find_if(received.begin(), received.end(), [](const staged_piece& p) { return p.states != only(0); });
  REQUIRE(parameters_end != received.begin());
  CHECK(tied[(parameters_end - 1)->tensor.family].place == home::embedding);  // device 0 keeps it first
  CHECK(tied[received.front().tensor.family].place == home::layers);
}

TEST_CASE("peak falls with the number of stages, and one stage holds both sides but what is retained") {
  const layout_switch change(before, after);
  bytes_t last = 0;
  for (const index_t stages : {1, 4, 16, 64}) {
    bytes_t worst = 0;
    for (rank_t d = 0; d < 8; ++d) {
      const plan p = make_plan(change, d);
      const memory_replay replay = replay_memory(held_bytes(change.from(), d), held_bytes(change.to(), d),
                                                 stage_transfers(p.receives, change, stages),
                                                 stage_transfers(p.sends, change, stages), p.retains, stages);
      CHECK(replay.peak >= greatest(replay.before, replay.after));
      worst = greatest(worst, replay.excess());
    }
    if (last != 0) CHECK(worst < last);
    last = worst;
  }
}

TEST_CASE("an element that several stages read goes with the last of them") {
  const staged_piece first{.stage = 0, .states = only(0), .where = {{{0, 1}, {0, 8}, {0, 4}}}};
  staged_piece last = first;
  last.dst = 1;
  last.stage = 3;
  last.where.dim[1] = {6, 8};
  const std::vector<bytes_t> goes = detail::last_read_bytes({first, last}, 4);
  CHECK(goes == std::vector<bytes_t>{6 * 4 * 2, 0, 0, 2 * 4 * 2});
  CHECK(detail::last_read_bytes({last, first}, 4) == goes);
}
