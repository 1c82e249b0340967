// SPDX-License-Identifier: Apache-2.0
// Memory replay against a device whose every element is followed: when it arrives, who reads it last, when it goes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <vector>

#include <reshard/schedule/memory_replay.hpp>

#include "../support/points.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr index_t extent[family_ndim] = {2, 2, 2, 3, 4};
using element = std::array<index_t, 7>;  // state, family, and where

template <typename Sink>
void each_element(state_set states, int family, const family_box& where, Sink&& sink) {
  for (const int s : all_states)
    if (states.contains(s))
      testing::each_point(where, [&](const index_t(&x)[family_ndim]) {
        sink(element{s, family, x[0], x[1], x[2], x[3], x[4]});
      });
}
family_box whole_of(const staged_piece& p) {
  return {{{p.tensor.member, p.tensor.member + 1},
           {p.tensor.expert, p.tensor.expert + 1},
           p.where.dim[0],
           p.where.dim[1],
           p.where.dim[2]}};
}
bytes_t width_of(const element& e) { return e[0] == 0 ? 2 : 4; }

struct device_story {
  std::vector<staged_piece> received, sent;
  std::vector<transfer> retained;
  index_t stages = 1;
  bytes_t before = 0, after = 0, peak = 0;  // the last by following every element
  int read_twice = 0, sent_and_kept = 0, unread = 0;
};

device_story tell(dice& random) {
  device_story d;
  d.stages = random.within(1, 6);
  const auto random_states = [&] { return random.coin() ? only(0) : optimizer_states; };
  const auto random_piece = [&] {
    const family_box b = testing::random_part(random, extent);
    return staged_piece{random.below(d.stages),
                        0,
                        random.within(1, 3),
                        random_states(),
                        {static_cast<int>(random.below(2)), random.below(2), random.below(2)},
                        {{b.dim[2], b.dim[3], b.dim[4]}}};
  };
  std::map<element, index_t> last_reader;  // -1: nobody, `stages`: kept for good
  for (int f = 0; f < 2; ++f)
    for (const state_set states : {only(0), optimizer_states})
      if (random.below(4) != 0)
        each_element(states, f, whole_box(extent), [&](const element& e) { last_reader[e] = -1; });
  const auto holds = [&](state_set states, int f) {
    bool all = true;
    each_element(states, f, whole_box(extent), [&](const element& e) { all = all && last_reader.contains(e); });
    return all;
  };
  for (const auto& [e, reader] : last_reader) d.before += width_of(e);

  std::map<std::pair<rank_t, element>, int> sent_to;
  std::vector<staged_piece> wanted;
  for (index_t left = random.below(10); left > 0; --left) wanted.push_back(random_piece());
  if (random.coin())  // one destination takes all there is
    for (index_t tensor = 0; tensor < 16; ++tensor)
      wanted.push_back({random.below(d.stages),
                        0,
                        4,
                        tensor % 2 == 0 ? only(0) : optimizer_states,
                        {static_cast<int>(tensor / 2 % 2), tensor / 4 % 2, tensor / 8},
                        {{{0, extent[2]}, {0, extent[3]}, {0, extent[4]}}}});
  for (const staged_piece& p : wanted) {
    bool fresh = holds(p.states, p.tensor.family);
    each_element(p.states, p.tensor.family, whole_of(p), [&](const element& e) {
      fresh = fresh && !sent_to.contains({p.dst, e});
    });
    if (!fresh) continue;  // what one destination gets is disjoint
    d.sent.push_back(p);
    each_element(p.states, p.tensor.family, whole_of(p), [&](const element& e) {
      ++sent_to[{p.dst, e}];
      d.read_twice += last_reader.at(e) >= 0 ? 1 : 0;
      last_reader[e] = std::max(last_reader.at(e), p.stage);
    });
  }
  bytes_t kept = 0;
  for (index_t left = random.below(4); left > 0; --left) {
    const transfer t{0, 0, random_states(), static_cast<int>(random.below(2)), testing::random_part(random, extent)};
    bool fresh = holds(t.states, t.family);
    each_element(t.states, t.family, t.where, [&](const element& e) { fresh = fresh && last_reader.at(e) < d.stages; });
    if (!fresh) continue;  // retained boxes are disjoint
    d.retained.push_back(t);
    each_element(t.states, t.family, t.where, [&](const element& e) {
      d.sent_and_kept += last_reader.at(e) >= 0 ? 1 : 0;
      last_reader[e] = d.stages;
      kept += width_of(e);
    });
  }
  for (index_t left = random.below(40); left > 0; --left) d.received.push_back(random_piece());

  std::vector<bytes_t> live(static_cast<std::size_t>(d.stages), 0);
  d.after = kept;
  for (const staged_piece& p : d.received)
    each_element(p.states, p.tensor.family, whole_of(p), [&](const element& e) {
      d.after += width_of(e);
      for (index_t k = p.stage; k < d.stages; ++k) live[static_cast<std::size_t>(k)] += width_of(e);
    });
  for (const auto& [e, reader] : last_reader) {
    d.unread += reader < 0 ? 1 : 0;
    for (index_t k = 0; k < d.stages && k <= reader; ++k) live[static_cast<std::size_t>(k)] += width_of(e);
  }
  d.peak = std::max({d.before, d.after, *std::max_element(live.begin(), live.end())});
  return d;
}
}  // namespace

TEST_CASE(
    "the peak is that of following every element: arrivals at the start of a stage, departures at the end of the last "
    "reader's") {
  dice random(5);
  int read_twice = 0, sent_and_kept = 0, unread = 0, above_both_sides = 0;
  for (int n = 0; n < 400; ++n) {
    const device_story d = tell(random);
    const memory_replay replay = replay_memory(d.before, d.after, d.received, d.sent, d.retained, d.stages);
    CAPTURE(n);
    CHECK(replay.before == d.before);
    CHECK(replay.after == d.after);
    CHECK(replay.peak == d.peak);
    CHECK(replay.excess() == d.peak - std::max(d.before, d.after));
    read_twice += d.read_twice > 0 ? 1 : 0;
    sent_and_kept += d.sent_and_kept > 0 ? 1 : 0;
    unread += d.unread > 0 ? 1 : 0;
    above_both_sides += replay.excess() > 0 ? 1 : 0;
  }
  std::printf("of 400: %d with elements read twice, %d sent and kept, %d unread; %d peaks above both sides\n",
              read_twice, sent_and_kept, unread, above_both_sides);
  for (const int met : {read_twice, sent_and_kept, unread, above_both_sides}) CHECK_DRAWN(met > 20);
}

TEST_CASE("one device by hand: 16 elements, 8 of them sent, 4 kept, 4 that nobody wants") {
  // rows 0, 1: sent in stages 0 and 1; row 2: kept; row 3: nobody's. 32 bytes before.
  const auto row = [](index_t r) { return box<3>{{{0, 1}, {r, r + 1}, {0, 4}}}; };
  const staged_piece first{.stage = 0, .dst = 1, .states = only(0), .where = row(0)};
  const staged_piece second{.stage = 1, .dst = 1, .states = only(0), .where = row(1)};
  const std::vector<transfer> kept = {{0, 0, only(0), 0, {{{0, 1}, {0, 1}, {0, 1}, {2, 3}, {0, 4}}}}};
  staged_piece fresh{
      .stage = 0, .src = 1, .states = only(0), .tensor = {.family = 1}, .where = {{{0, 1}, {0, 3}, {0, 4}}}};
  // row 3 goes first: 24 left; 24 arrive: 48; row 0 goes: 40; row 1 goes: 32
  const memory_replay early = replay_memory(32, 32, {fresh}, {first, second}, kept, 2);
  CHECK(early.peak == 48);
  CHECK(early.excess() == 16);
  fresh.stage = 1;  // row 0 went before it came
  CHECK(replay_memory(32, 32, {fresh}, {first, second}, kept, 2).peak == 40);
  CHECK(replay_memory(32, 8, {}, {first, second}, kept, 2).peak == 32);     // before is the most
  CHECK(replay_memory(32, 100, {}, {first, second}, kept, 2).peak == 100);  // or after
  CHECK(replay_memory(32, 100, {}, {first, second}, kept, 2).excess() == 0);
}

TEST_CASE("sources that are kept: nothing goes, and after it is all that is held on either side") {
  const auto row = [](index_t r) { return box<3>{{{0, 1}, {r, r + 1}, {0, 4}}}; };
  const staged_piece sent{.stage = 0, .dst = 1, .states = only(0), .where = row(0)};
  const std::vector<transfer> kept = {{0, 0, only(0), 0, {{{0, 1}, {0, 1}, {0, 1}, {2, 3}, {0, 4}}}}};
  const staged_piece fresh{
      .stage = 1, .src = 1, .states = only(0), .tensor = {.family = 1}, .where = {{{0, 1}, {0, 3}, {0, 4}}}};
  // 32 before; TO wants the 8 that are kept, the 24 that arrive, and 6 that are created
  const memory_replay all = replay_memory(32, 38, {fresh}, {sent}, kept, 2, 6, sources::keep);
  CHECK(all.before == 32);
  CHECK(all.after == 62);
  CHECK(all.peak == 62);
  CHECK(all.excess() == 0);
  CHECK(replay_memory(32, 8, {}, {sent}, kept, 2, 0, sources::keep).peak == 32);
  CHECK(live_bytes(32, {fresh}, {sent}, kept, 2, 6, sources::keep) == std::vector<bytes_t>{38, 62});
  CHECK(live_bytes(32, {fresh}, {sent}, kept, 2, 6) == std::vector<bytes_t>{22, 38});  // 8 kept, 8 sent, 6 created
}

TEST_CASE("u is the greatest of 0 .. S with which no slot is above the limit, against every u") {
  dice random(6);
  int none = 0, some = 0, all = 0, never = 0;
  for (int n = 0; n < 1000; ++n) {
    const index_t stages = random.within(1, 6), late = random.below(4), slots = stages + late;
    const bytes_t unread = random.within(1, 9), limit = random.within(0, 25);
    std::vector<bytes_t> gone, there;
    for (index_t t = 0; t < slots; ++t)
      gone.push_back(random.below(n % 3 == 0 ? 40 : 20)), there.push_back(gone.back() + unread);
    bool kept_without = true;
    for (const bytes_t bytes : gone) kept_without = kept_without && bytes <= limit;
    index_t wanted = 0;  // also where nothing keeps it
    for (index_t u = 1; u <= stages; ++u) {
      bool kept = true;
      for (index_t t = 0; t < slots; ++t) {
        const bool still = t <= u - 1 + late;  // goes at the end of that slot
        kept = kept && (still ? there : gone)[static_cast<std::size_t>(t)] <= limit;
      }
      if (kept) wanted = u;
    }
    CHECK(unread_kept(gone, there, limit, stages, late) == wanted);
    ++(!kept_without ? never : wanted == 0 ? none : wanted == stages ? all : some);
  }
  for (const int met : {none, some, all, never}) CHECK_DRAWN(met > 20);
}

namespace {
/// A row of so many elements that device 1 receives or sends.
staged_piece passing_piece(std::uint64_t stream, state_set states, index_t stage, int phase, index_t elements = 1) {
  return {.stage = stage,
          .src = 1,
          .dst = 2,
          .states = states,
          .where = {{{0, 1}, {0, 1}, {0, elements}}},
          .phase = phase,
          .why = purpose::passed_on,
          .stream = stream};
}
}  // namespace

TEST_CASE("what passes through is a stage of a stream, until the last slot in which it is sent on") {
  const auto own = only(0), other = optimizer_states;
  const std::vector<staged_piece> received = {passing_piece(12, own, 3, 0), passing_piece(9, own, 1, 1),
                                              passing_piece(9, own, 0, 0),  passing_piece(9, own, 1, 2),
                                              passing_piece(0, own, 0, 0),  passing_piece(4, other, 0, 0)};
  const std::vector<staged_piece> near = {passing_piece(4, own, 0, 5),    // other states
                                          passing_piece(3, other, 0, 5),  // another stream
                                          passing_piece(12, own, 2, 5),   // another stage
                                          passing_piece(20, own, 0, 5),   // behind all
                                          passing_piece(0, own, 0, 5)};   // of no stream
  std::vector<staged_piece> sent = {passing_piece(9, own, 1, 3), passing_piece(9, own, 1, 2),
                                    passing_piece(4, other, 0, 0)};
  sent.insert(sent.end(), near.begin(), near.end());
  const std::vector<detail::passing> all = detail::passing_streams(received, sent);
  CHECK(all == std::vector<detail::passing>{
                   {4, other.bits(), 0, 0}, {9, own.bits(), 0, -1}, {9, own.bits(), 1, 4}, {12, own.bits(), 3, -1}});
  const std::vector<detail::passing> waiting = {
      {4, other.bits(), 0, -1}, {9, own.bits(), 0, -1}, {9, own.bits(), 1, -1}, {12, own.bits(), 3, -1}};
  CHECK(detail::passing_of(waiting, received[0]) == &waiting[3]);
  CHECK(detail::passing_of(waiting, received[1]) == &waiting[2]);
  CHECK(detail::passing_of(waiting, received[2]) == &waiting[1]);
  CHECK(detail::passing_of(waiting, received[5]) == &waiting[0]);
  for (const staged_piece& p : near) CHECK(detail::passing_of(waiting, p) == nullptr);
}

TEST_CASE("what is passed on goes after the last slot in which it is sent, what is delivered stays, by hand") {
  std::vector<staged_piece> received = {
      passing_piece(7, only(0), 0, 0, 4),    // 8 bytes from slot 0 on, sent on in slots 1 and 2
      passing_piece(7, only(0), 1, 0, 4),    // 8 bytes from slot 1 on, sent on in slot 2
      passing_piece(6, only(0), 0, 0, 2),    // 4 bytes from slot 0 on, sent on in slot 0
      passing_piece(8, only(0), 0, 0, 1),    // 2 bytes from slot 0 on, never sent on
      passing_piece(10, only(0), 0, 3, 3)};  // 6 bytes from slot 3 on, delivered, and sent in slot 3
  received.back().why = purpose::delivered;
  std::vector<staged_piece> sent = {passing_piece(7, only(0), 0, 2, 4),
                                    passing_piece(7, only(0), 0, 1, 4),
                                    passing_piece(7, only(0), 1, 1, 4),
                                    passing_piece(6, only(0), 0, 0, 2),
                                    passing_piece(10, only(0), 0, 3, 3),
                                    passing_piece(9, only(0), 0, 0, 4)};  // 8 bytes that were there, sent in slot 0
  CHECK(live_bytes(8, received, sent, {}, 4) == std::vector<bytes_t>{22, 18, 18, 8});
  CHECK(live_bytes(8, received, sent, {}, 4, 0, sources::keep) == std::vector<bytes_t>{22, 26, 26, 16});
}
