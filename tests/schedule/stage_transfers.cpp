// SPDX-License-Identifier: Apache-2.0
// The cut of a stream: S equal parts of its elements, in address order.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/memory_replay.hpp>
#include <reshard/space/cover.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr space before{models::llama2_7b, config<tp<2>, pp<2>, dp<2>, zero<1>>{}};
constexpr space after{models::llama2_7b, config<tp<4>, pp<1>, dp<2>, zero<1>>{}};
}  // namespace

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
    const auto key = [](const staged_piece& p) { return std::tuple(p.src, p.dst, p.states.bits(), p.stage); };
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

TEST_CASE("a stream of boxes is cut at elements, box after box and in the order of their addresses") {
  const staged_piece boxes[] = {{.states = only(0), .where = {{{3, 5}, {10, 13}, {20, 24}}}},    // 24 elements
                                {.states = only(0), .where = {{{7, 10}, {30, 32}, {40, 41}}}}};  // 6
  using element = std::array<index_t, 4>;                                                        // stage, and where
  for (const index_t stages : {1, 2, 4, 5, 7, 30, 31, 47}) {
    std::vector<element> wanted, told;
    index_t number = 0;
    for (const staged_piece& b : boxes)
      for (index_t part = b.where.dim[0].begin; part < b.where.dim[0].end; ++part)
        for (index_t row = b.where.dim[1].begin; row < b.where.dim[1].end; ++row)
          for (index_t column = b.where.dim[2].begin; column < b.where.dim[2].end; ++column, ++number) {
            index_t stage = 0;
            while ((stage + 1) * 30 / stages <= number) ++stage;
            wanted.push_back({stage, part, row, column});
          }
    detail::cut_stream(boxes, boxes + 2, stages, [&](const staged_piece& p) {
      for (index_t part = p.where.dim[0].begin; part < p.where.dim[0].end; ++part)
        for (index_t row = p.where.dim[1].begin; row < p.where.dim[1].end; ++row)
          for (index_t column = p.where.dim[2].begin; column < p.where.dim[2].end; ++column)
            told.push_back({p.stage, part, row, column});
    });
    CHECK(told == wanted);
  }
}

TEST_CASE("what is passed on is cut as the lowest rank that holds it keeps it, what is not as its destination does") {
  const std::vector<shard> from = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 8}}},
                           to = {{1, "wte", bf16, {10, 8}, {0, 0}, {10, 8}},
                                 {2, "wte", bf16, {10, 8}, {0, 0}, {10, 8}}};
  const layout_switch change(from, to, {.to = device_map({5, 4, 3})});
  transfer t{0, 3, parameter_states, 0, {{{0, 1}, {0, 1}, {0, 1}, {3, 6}, {0, 8}}}};
  CHECK(ordering_rank(t, role::parameter, change) == 2);  // the rank of device 3
  t.stream = 7;
  CHECK(ordering_rank(t, role::parameter, change) == 1);
}

TEST_CASE("boxes of one tensor come in the order of their addresses, however they are listed") {
  const std::vector<shard> all = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 8}}},
                           to = {{1, "wte", bf16, {10, 8}, {0, 0}, {10, 8}}};
  const layout_switch change(all, to);
  std::vector<transfer> list;
  for (const interval rows : {interval{6, 9}, interval{0, 2}, interval{2, 6}})
    list.push_back({0, 1, parameter_states, 0, {{{0, 1}, {0, 1}, {0, 1}, rows, {0, 8}}}});
  std::vector<std::pair<index_t, index_t>> told;  // stage and first row: of 9 rows in 3 stages
  for (const staged_piece& p : stage_transfers(list, change, 3)) told.emplace_back(p.stage, p.where.dim[1].begin);
  CHECK(told == std::vector<std::pair<index_t, index_t>>{{0, 0}, {0, 2}, {1, 3}, {2, 6}});
}
