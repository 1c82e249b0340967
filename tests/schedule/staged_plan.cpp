// SPDX-License-Identifier: Apache-2.0
// Staged plans: nothing is lost or added, lists are by stage, and both ends of a stage list what passes between them
// alike.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/staged_plan.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr transformer small{
    .name = "small", .layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 8};
constexpr model tiny = make_transformer(small);

struct one_switch {
  computed_switch change{space(tiny, config<tp<2>, pp<2>, dp<2>, zero<1>>{}),
                         space(tiny, config<tp<4>, dp<2>, zero<1>>{}),
                         {.to = device_map({1, 0, 2, 3, 4, 7, 6, 5})}};
  std::vector<staged_plan> all(index_t stages) const {
    std::vector<staged_plan> plans;
    for (rank_t device = 0; device < 8; ++device)
      plans.push_back(stage_plan(make_plan(change, device), change, stages));
    return plans;
  }
};
}  // namespace

TEST_CASE("each list has the pieces of stage_transfers, by stage, in the order they had") {
  const computed_switch change = one_switch().change;
  int reordered = 0;
  for (const index_t stages : {1, 3, 8})
    for (rank_t device = 0; device < 8; ++device) {
      const plan whole = make_plan(change, device);
      const staged_plan staged = stage_plan(whole, change, stages);
      CHECK(staged.device == device);
      CHECK(staged.stages == stages);
      const struct {
        const std::vector<transfer>& transfers;
        const std::vector<staged_piece>& pieces;
      } lists[] = {{whole.sends, staged.sends}, {whole.receives, staged.receives}, {whole.retains, staged.retains}};
      for (const auto& list : lists) {
        const std::vector<staged_piece> unsorted = stage_transfers(list.transfers, change, stages);
        std::vector<staged_piece> wanted;
        for (index_t k = 0; k < stages; ++k)
          for (const staged_piece& p : unsorted)
            if (p.stage == k) wanted.push_back(p);
        CHECK(list.pieces == wanted);
        reordered += unsorted != wanted ? 1 : 0;
      }
      CHECK_FALSE(staged.receives.empty());
    }
  std::printf("%d lists were not by stage before\n", reordered);
  CHECK(reordered > 5);
}

TEST_CASE("what two devices exchange in a stage comes in the same order at both ends") {
  const one_switch change;
  for (const index_t stages : {1, 2, 5}) {
    const std::vector<staged_plan> plans = change.all(stages);
    int exchanges = 0;
    for (index_t k = 0; k < stages; ++k)
      for (const staged_plan& source : plans)
        for (const staged_plan& target : plans) {
          std::vector<staged_piece> sent, received;
          for (const staged_piece& p : source.sends)
            if (p.stage == k && p.dst == target.device) sent.push_back(p);
          for (const staged_piece& p : target.receives)
            if (p.stage == k && p.src == source.device) received.push_back(p);
          CHECK(sent == received);
          exchanges += sent.empty() ? 0 : 1;
        }
    CHECK(exchanges > 8);
  }
}

TEST_CASE("the pieces of a slot are those of its stages and phases, also where there are none") {
  std::vector<staged_piece> pieces;
  for (const auto& [stage, phase] : {std::pair{0, 0}, {0, 0}, {2, 0}, {1, 1}, {0, 2}, {5, 0}})
    pieces.push_back(
        {.stage = stage, .dst = static_cast<rank_t>(pieces.size()), .states = {}, .where = {}, .phase = phase});
  for (index_t k = 0; k <= 6; ++k) {
    std::vector<rank_t> found, wanted;
    for (const staged_piece& p : pieces_of_slot(pieces, k)) found.push_back(p.dst);
    for (const staged_piece& p : pieces)
      if (p.stage + p.phase == k) wanted.push_back(p.dst);
    CHECK(found == wanted);
  }
  const std::vector<staged_piece> none;
  CHECK(pieces_of_slot(none, 0).begin() == pieces_of_slot(none, 0).end());
}

TEST_CASE("every hop of a stream is cut into the same stages, and pieces come by slots") {
  // rows of wte go from device 0 by way of device 2, which has no rank of TO, to device 1, half of them in each stream
  const std::vector<shard> from = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 8}}},
                           to = {{1, "wte", bf16, {10, 8}, {0, 0}, {10, 8}}};
  const layout_switch change(from, to, {.devices = 3});
  const auto hop = [](rank_t src, rank_t dst, interval rows, int phase, std::uint64_t stream) {
    return transfer{src,
                    dst,
                    parameter_states,
                    0,
                    {{{0, 1}, {0, 1}, {0, 1}, rows, {0, 8}}},
                    phase,
                    dst == 2 ? purpose::passed_on : purpose::delivered,
                    stream};
  };
  plan passing;
  passing.device = 2;
  passing.receives = {hop(0, 2, {0, 3}, 1, 7), hop(0, 2, {3, 6}, 1, 5), hop(0, 2, {6, 9}, 1, 7)};
  passing.sends = {hop(2, 1, {0, 3}, 2, 7), hop(2, 1, {3, 6}, 2, 5), hop(2, 1, {6, 9}, 2, 7)};
  for (const index_t stages : {1, 3, 4}) {
    const staged_plan cut = stage_plan(passing, change, stages);
    std::vector<index_t> stage_of_row[2] = {std::vector<index_t>(9, -1), std::vector<index_t>(9, -1)};
    for (const std::vector<staged_piece>* list : {&cut.receives, &cut.sends}) {
      CHECK(std::is_sorted(list->begin(), list->end(),
                           [](const staged_piece& a, const staged_piece& b) { return a.slot() < b.slot(); }));
      for (const staged_piece& p : *list)
        for (index_t row = p.where.dim[1].begin; row < p.where.dim[1].end; ++row)
          if (p.where.dim[2].begin == 0) stage_of_row[list == &cut.sends][static_cast<std::size_t>(row)] = p.stage;
    }
    CHECK(stage_of_row[0] == stage_of_row[1]);
    CHECK(stage_of_row[0][8] == stages - 1);
    CHECK(stage_of_row[0][3] == 0);  // a stream of its own
  }
}

TEST_CASE("a staged plan says its stages, phases and lag as times") {
  staged_plan p;
  p.stages = 5, p.phases = 3, p.lag = 2;
  CHECK(p.times() == slot_times{5, 3, 2});
}

TEST_CASE("with a lag each list is by the slots that it makes, and those are found by it") {
  dice random(1);
  for (int n = 0; n < 100; ++n) {
    const index_t stages = random.within(1, 6), lag = random.below(4);
    const std::vector<shard> all = testing::whole_on(2, "wte", {10, 8});
    const layout_switch change(all, all, {.to = device_map({1, 2})});
    plan p;
    p.device = 2;
    index_t row = 0;
    for (int phase = 0; phase < 3; ++phase)
      if (random.below(4) != 0) {
        p.receives.push_back({0, 2, parameter_states, 0, {{{0, 1}, {0, 1}, {0, 1}, {row, row + 3}, {0, 8}}}, phase});
        p.receives.back().stream = static_cast<std::uint64_t>(phase) + 1, row += 3;
      }
    const staged_plan cut = stage_plan(p, change, {stages, 3, lag});
    CHECK(cut.stages == stages);
    CHECK(cut.phases == 3);
    CHECK(cut.lag == lag);
    std::vector<staged_piece> wanted = stage_transfers(p.receives, change, stages);
    std::stable_sort(wanted.begin(), wanted.end(), [&](const staged_piece& a, const staged_piece& b) {
      return a.stage + a.phase * (1 + lag) < b.stage + b.phase * (1 + lag);
    });
    CHECK(cut.receives == wanted);
    std::size_t found = 0;
    for (index_t slot = 0; slot < cut.times().slots(); ++slot)
      for (const staged_piece& piece : pieces_of_slot(cut.receives, slot, lag)) {
        CHECK(piece.stage + piece.phase * (1 + lag) == slot);
        CHECK(piece == cut.receives[found++]);
      }
    CHECK(found == cut.receives.size());
  }
}

TEST_CASE("any tensors in any number of stages: every element once, in its part of its stream, alike at both ends") {
  dice random(2);
  int empty_parts = 0, lost = 0;
  for (int n = 0; n < 40; ++n) {
    const testing::any_tensors given(random, false);
    const auto change = given.change();
    const index_t stages = random.within(1, n % 4 == 0 ? 60 : 6);
    std::vector<staged_piece> sent, received;
    for (rank_t d = 0; d < change.devices(); ++d) {
      const plan p = make_plan(change, d);
      const staged_plan cut = stage_plan(p, change, stages);
      std::map<std::pair<rank_t, std::uint32_t>, std::vector<index_t>> by_stage;  // elements of each, by its stream
      for (const std::vector<staged_piece>* list : {&cut.receives, &cut.retains})
        for (const staged_piece& piece : *list) {
          std::vector<index_t>& parts = by_stage[{piece.src, piece.states.bits()}];
          parts.resize(static_cast<std::size_t>(stages), 0);
          parts[static_cast<std::size_t>(piece.stage)] += piece.where.volume();
        }
      for (const auto& [stream, parts] : by_stage) {
        index_t elements = 0;
        for (const index_t part : parts) elements += part;
        for (index_t k = 0; k < stages; ++k) {
          CHECK(parts[static_cast<std::size_t>(k)] == elements * (k + 1) / stages - elements * k / stages);
          empty_parts += parts[static_cast<std::size_t>(k)] == 0 ? 1 : 0;
        }
      }
      std::set<std::tuple<std::uint32_t, int, index_t, index_t>> told, wanted;  // states, family, row, column
      for (const std::vector<staged_piece>* list : {&cut.receives, &cut.retains, &cut.creates})
        for (const staged_piece& piece : *list)
          for (index_t row = piece.where.dim[1].begin; row < piece.where.dim[1].end; ++row)
            for (index_t column = piece.where.dim[2].begin; column < piece.where.dim[2].end; ++column)
              CHECK(told.emplace(piece.states.bits(), piece.tensor.family, row, column).second);
      for (const std::vector<transfer>* list : {&p.receives, &p.retains, &p.lost})
        for (const transfer& t : *list)
          for (index_t row = t.where.dim[3].begin; row < t.where.dim[3].end; ++row)
            for (index_t column = t.where.dim[4].begin; column < t.where.dim[4].end; ++column)
              wanted.emplace(t.states.bits(), t.family, row, column);
      CHECK(told == wanted);
      for (const staged_piece& piece : cut.creates) CHECK(piece.stage == 0);
      lost += p.lost.empty() ? 0 : 1;
      sent.insert(sent.end(), cut.sends.begin(), cut.sends.end());
      received.insert(received.end(), cut.receives.begin(), cut.receives.end());
    }
    const auto before = [](const staged_piece& a, const staged_piece& b) {
      return std::tuple(a.src, a.dst, a.stage) < std::tuple(b.src, b.dst, b.stage);
    };
    for (std::vector<staged_piece>* list : {&sent, &received}) std::stable_sort(list->begin(), list->end(), before);
    CHECK(sent == received);
  }
  CHECK_DRAWN(empty_parts > 50);
  CHECK_DRAWN(lost > 10);
}

TEST_CASE("zeros are all of the first stage, however many there are") {
  const layout_switch change(space(tiny, parse_degrees("tp=2")), space(tiny, parse_degrees("tp=2,pad=48")));
  std::size_t created = 0;
  for (rank_t device = 0; device < 2; ++device) {
    const plan whole = make_plan(change, device);
    const staged_plan cut = stage_plan(whole, change, 3);
    CHECK(cut.creates == stage_transfers(whole.creates, change, 1));
    bytes_t bytes = 0;
    for (const staged_piece& piece : cut.creates) {
      CHECK(piece.stage == 0);
      bytes += piece.bytes();
    }
    CHECK(bytes == total_bytes(whole.creates));
    created += cut.creates.size();
  }
  CHECK(created > 0);
}
