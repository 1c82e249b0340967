// SPDX-License-Identifier: Apache-2.0
// How much memory an exchange takes, by hand: what a stage's messages are in each way, which arena is whose, in whole
// pages or granules, and where the arenas lie.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <reshard/transport/exchange/arenas.hpp>

#include "../support/dice.hpp"

using namespace reshard;

namespace {

staged_piece piece(index_t stage, rank_t src, rank_t dst, state_set states, index_t elements, index_t member = 0) {
  return {stage, src, dst, states, {0, member, 0}, {{{0, 1}, {0, 1}, {0, elements}}}};
}
bytes_t bytes_of(const staged_piece& p, int state) { return p.where.volume() * p.states.width_of(state); }
bytes_t whole(bytes_t bytes, bytes_t granule) { return (bytes + granule - 1) / granule * granule; }

/// A device's plan, pieces of which are sorted as plans have them: by stage, then by the peer as pairs meet.
staged_plan plan_of(rank_t device, index_t stages, index_t lag, std::vector<staged_piece> sends,
                    std::vector<staged_piece> receives) {
  staged_plan p;
  p.device = device, p.stages = stages, p.lag = lag;
  const auto sorted = [&](std::vector<staged_piece>& list, rank_t staged_piece::*peer) {
    std::stable_sort(list.begin(), list.end(), [&](const staged_piece& a, const staged_piece& b) {
      return std::pair(a.stage, (a.*peer) ^ device) < std::pair(b.stage, (b.*peer) ^ device);
    });
  };
  sorted(sends, &staged_piece::dst), sorted(receives, &staged_piece::src);
  p.sends = std::move(sends), p.receives = std::move(receives);
  return p;
}

/// Bytes of one direction's arenas by the rule: per stage the sum over peers, in the n mod (1 + L)-th.
struct by_hand {
  bytes_t arenas[2] = {};
  std::vector<bool> several;

  by_hand(const std::vector<staged_piece>& list, rank_t staged_piece::*peer, const staged_plan& plan, exchange_as how,
          bytes_t trailer, bytes_t round_bytes, bytes_t of_one)
      : several(static_cast<std::size_t>(plan.stages), false) {
    for (index_t k = 0; k < plan.stages; ++k) {
      std::map<rank_t, std::vector<staged_piece>> of_peer;
      for (const staged_piece& p : list)
        if (p.stage == k) of_peer[p.*peer].push_back(p);
      bytes_t stage = 0;
      for (const auto& [who, pieces] : of_peer) {
        if (how == exchange_as::naive) {
          for (const staged_piece& p : pieces)
            for (const int state : p.states) stage += whole(bytes_of(p, state) + trailer, 512);
          continue;
        }
        const bytes_t all = message_bytes({pieces.data(), pieces.data() + pieces.size()}, trailer);
        if (all > round_bytes) several[static_cast<std::size_t>(k)] = true;
        stage += std::min(all, round_bytes);
      }
      bytes_t& arena = arenas[k % (1 + (how == exchange_as::asynchronous ? 1 : 0))];
      arena = std::max(arena, whole(stage, of_one));
    }
  }
};

}  // namespace

TEST_CASE("an asynchronous exchange lags by one slot, others by none") {
  static_assert(lag_of_exchange(exchange_as::asynchronous) == 1);
  CHECK(lag_of_exchange(exchange_as::asynchronous) == 1);
  CHECK(lag_of_exchange(exchange_as::buffered) == 0);
  CHECK(lag_of_exchange(exchange_as::naive) == 0);
}

TEST_CASE("a peer's pieces of a stage are a message; naively each state of each piece is one") {
  const std::vector<staged_piece> list = {piece(0, 1, 2, only(0) | only(2), 40), piece(0, 1, 2, only(1), 7, 1)};
  const slot_range all{list.data(), list.data() + 2};
  for (const exchange_as how : {exchange_as::buffered, exchange_as::asynchronous}) {
    int calls = 0;
    each_message(all, how, [&](slot_range pieces) {
      ++calls;
      CHECK(pieces.begin() == list.data());
      CHECK(pieces.end() == list.data() + 2);
    });
    CHECK(calls == 1);
  }
  std::vector<std::pair<index_t, state_set>> each;
  each_message(all, exchange_as::naive, [&](slot_range pieces) {
    REQUIRE(pieces.end() - pieces.begin() == 1);
    each.emplace_back(pieces.begin()->tensor.member, pieces.begin()->states);
  });
  REQUIRE(each.size() == 3);
  CHECK(each[0] == std::pair(index_t{0}, only(0)));
  CHECK(each[1] == std::pair(index_t{0}, only(2)));
  CHECK(each[2] == std::pair(index_t{1}, only(1)));
}

TEST_CASE("random plans: the arenas are what the stages of their turn take at most, in whole pages or granules") {
  testing::dice random(31);
  int several = 0, alone = 0, on_the_limit = 0;
  for (int n = 0; n < 300; ++n) {
    const auto how = static_cast<exchange_as>(random.below(3));
    const index_t lag = lag_of_exchange(how), stages = random.within(1, 5);
    const bytes_t trailer = random.below(2) == 0 ? 0 : 16;
    const bytes_t round_bytes = 512 * random.within(8, 12);
    const bytes_t granule = random.below(2) == 0 ? page_bytes : bytes_t{1} << 21;
    std::vector<staged_piece> sends, receives;
    for (index_t i = random.below(8); i > 0; --i) {
      const index_t most = random.below(4) == 0 ? 4000 : 300;
      sends.push_back(piece(random.below(stages), 2, random.below(2), only(static_cast<int>(random.below(3))),
                            random.within(1, most), i));
      receives.push_back(piece(random.below(stages), 3 + random.below(3), 2, only(static_cast<int>(random.below(3))),
                               random.below(5) == 0 ? (round_bytes - trailer) / 4 : random.within(1, most), i));
    }
    const staged_plan plan = plan_of(2, stages, lag, sends, receives);
    const bytes_t of_one = granule == page_bytes ? 4096 : 512;
    by_hand out(plan.sends, &staged_piece::dst, plan, how, trailer, round_bytes, of_one),
        in(plan.receives, &staged_piece::src, plan, how, trailer, round_bytes, of_one);
    const arena_sizes sizes(plan, how, trailer, round_bytes, granule);
    bool any = false;
    for (index_t k = 0; k < stages; ++k) {
      const auto at = static_cast<std::size_t>(k);
      CHECK(sizes.several_rounds(k) == (out.several[at] || in.several[at]));
      any = any || sizes.several_rounds(k);
      (sizes.several_rounds(k) ? several : alone) += 1;
    }
    if (any && lag > 0)  // a round may be in either
      for (by_hand* const one : {&out, &in}) one->arenas[0] = one->arenas[1] = std::max(one->arenas[0], one->arenas[1]);
    for (const int i : {0, 1}) {
      CHECK(sizes.out[i] == out.arenas[i]);
      CHECK(sizes.in[i] == in.arenas[i]);
    }
    CHECK(sizes.total() == whole(out.arenas[0] + out.arenas[1] + in.arenas[0] + in.arenas[1], granule));
    for (const staged_piece& p : plan.receives) on_the_limit += whole(bytes_of(p, 1) + trailer, 512) == round_bytes;

    const message_arenas pages(sizes);
    CHECK(pages.whole_bytes == 0);
    CHECK(pages.resident_bytes() ==
          whole(sizes.out[0], 4096) + whole(sizes.out[1], 4096) + whole(sizes.in[0], 4096) + whole(sizes.in[1], 4096));
    std::byte* const of_pages[] = {pages.out[0], pages.in[0], pages.out[1], pages.in[1]};
    const bytes_t bytes[] = {sizes.out[0], sizes.in[0], sizes.out[1], sizes.in[1]};
    for (int i = 0; i < 4; ++i) CHECK((of_pages[i] == nullptr) == (bytes[i] == 0));

    bytes_t asked = 0;
    const auto make =
        detail::sink<bytes_t, std::shared_ptr<std::byte>&>::of([&](bytes_t size, std::shared_ptr<std::byte>& arena) {
          asked = size;
          arena.reset(new std::byte[static_cast<std::size_t>(size)], std::default_delete<std::byte[]>());
        });
    arena_source source;
    source.make = &make;
    const message_arenas one(sizes, source);
    CHECK(asked == sizes.total());
    CHECK(one.whole_bytes == sizes.total());
    CHECK(one.resident_bytes() == sizes.total());
    CHECK(one.ranges.empty());
    std::byte* at = one.whole.get();
    std::byte* const of_whole[] = {one.out[0], one.in[0], one.out[1], one.in[1]};
    for (int i = 0; i < 4; ++i) {
      CHECK(of_whole[i] == (bytes[i] == 0 ? nullptr : at));
      at += bytes[i];
    }
  }
  MESSAGE(several << " stages of several rounds, " << alone << " of one; " << on_the_limit
                  << " messages of all a round has");
  CHECK_DRAWN(several > 20);
  CHECK_DRAWN(alone > 20);
  CHECK_DRAWN(on_the_limit > 5);
}

TEST_CASE("usually a round has half a MiB, at least 4 KiB, and a plan without messages takes nothing") {
  CHECK(usual_round_bytes == 524288);
  CHECK(least_round_bytes == 4096);
  const staged_plan nothing = plan_of(0, 3, 1, {}, {});
  const arena_sizes sizes(nothing, exchange_as::asynchronous);
  CHECK(sizes.total() == 0);
  const message_arenas none(sizes);
  CHECK(none.resident_bytes() == 0);
  CHECK(none.out[0] == nullptr);
  CHECK(message_arenas().resident_bytes() == 0);
  int made = 0;
  const auto make =
      detail::sink<bytes_t, std::shared_ptr<std::byte>&>::of([&made](bytes_t, std::shared_ptr<std::byte>&) { ++made; });
  arena_source source;
  source.make = &make;
  CHECK(message_arenas(sizes, source).whole_bytes == 0);
  CHECK(made == 0);
}
