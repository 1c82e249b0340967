// SPDX-License-Identifier: Apache-2.0
// The cut of a stream: S equal parts of its elements, in address order.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
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
