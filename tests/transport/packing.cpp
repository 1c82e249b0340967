// SPDX-License-Identifier: Apache-2.0
// How pieces lie in a message, by hand and against the rule byte by byte; in which order peers come; and that a digest
// notices every number that both ends must share.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/transport/exchange/packing.hpp>

#include "../support/dice.hpp"

using namespace reshard;

namespace {

staged_piece piece(index_t stage, rank_t src, rank_t dst, state_set states, const box<3>& where, index_t member = 0) {
  return {stage, src, dst, states, {0, member, 0}, where};
}

}  // namespace

TEST_CASE("a message by hand") {
  const std::vector<staged_piece> list = {piece(0, 1, 2, only(0), {{{0, 1}, {0, 1}, {3, 10}}}),    // bf16: lead 6
                                          piece(0, 1, 2, only(1), {{{0, 1}, {0, 2}, {8, 12}}}),    // fp32: lead 0
                                          piece(0, 1, 2, only(2), {{{0, 1}, {0, 1}, {1, 200}}})};  // fp32: lead 4
  std::vector<bytes_t> offsets;
  const bytes_t bytes =
      lay_out({list.data(), list.data() + 3}, [&](const bound_box&, bytes_t at) { offsets.push_back(at); });
  CHECK(offsets == std::vector<bytes_t>{6, 32, 68});  // 6 + 14 = 20 -> 32; 32 + 32 = 64 -> 68
  CHECK(bytes == 1024);                               // 68 + 796 = 864
  CHECK(message_bytes({list.data(), list.data()}) == 0);
}

TEST_CASE(
    "random messages: each piece at the first offset that is its first column's, none overlap, multiples of 512") {
  testing::dice random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<staged_piece> list;
    for (index_t i = random.within(1, 6); i > 0; --i) {
      const index_t column = random.below(40);
      const state_set states = random.coin() ? all_states : only(static_cast<int>(random.below(4)));
      list.push_back(
          piece(0, 0, 1, states,
                {{{0, random.within(1, 2)}, {3, random.within(4, 6)}, {column, column + random.within(1, 50)}}}));
    }
    bytes_t past = 0;
    std::size_t pieces = 0, expected = 0;
    for (const staged_piece& p : list)
      for (const int state : all_states) expected += p.states.contains(state) ? 1 : 0;
    const bytes_t bytes = lay_out({list.data(), list.data() + list.size()}, [&](const bound_box& what, bytes_t at) {
      ++pieces;
      CHECK(at >= past);
      CHECK(at < past + 16);
      CHECK(at % 16 == what.where.dim[2].begin * what.element_bytes % 16);
      past = at + what.bytes();
    });
    CHECK(pieces == expected);
    CHECK(bytes >= past);
    CHECK(bytes < past + 512);
    CHECK(bytes % 512 == 0);
  }
}

TEST_CASE(
    "random messages in rounds: every element once and in order, each message as long as it may be and as it says") {
  testing::dice random(6);
  for (int round = 0; round < 20; ++round) {
    std::vector<staged_piece> list;
    for (index_t i = random.within(1, 6); i > 0; --i) {
      const index_t row = random.below(5), column = random.below(4000);
      const state_set states = random.coin() ? all_states : only(static_cast<int>(random.below(4)));
      list.push_back(piece(0, 0, 1, states,
                           {{{0, random.within(1, 3)},
                             {row, row + random.within(1, 40)},
                             {column, column + random.within(1, random.coin() ? 8000 : 30)}}}));
    }
    const bytes_t most = 4096 + random.below(4) * 512, trailer = random.coin() ? 16 : 0;
    std::vector<tensor_box> parts;  // as they came
    std::vector<index_t> columns;
    bytes_t past = 0, messages = 0, payload = 0;
    lay_out_in_rounds(
        {list.data(), list.data() + list.size()}, most, trailer,
        [&](const bound_box& what, bytes_t at) {
          CHECK(at >= past);
          CHECK(at < past + 16);
          CHECK(at % 16 == what.where.dim[2].begin * what.element_bytes % 16);
          CHECK(what.bytes() <= std::max(most / parts_of_a_message, what.element_bytes));
          past = at + what.bytes();
          payload += what.bytes();
          parts.push_back(what);
        },
        [&](bytes_t bytes) {
          CHECK(bytes <= most);
          CHECK(bytes % 512 == 0);
          CHECK(past + trailer <= bytes);
          CHECK(past + trailer > bytes - 512);
          if (++messages > 1) CHECK(past > 0);
          past = 0;
        });
    CHECK(messages >= ceil_divide(payload, most));
    CHECK(messages <= 1 + ceil_divide(payload, most - most / parts_of_a_message - 48));
    CHECK(past == 0);
    // the parts of a piece's state, one after the other, are its elements in row-major order
    auto next = parts.begin();
    for (const staged_piece& p : list)
      for (const int state : p.states)
        for (index_t element = 0; element < p.where.volume();) {
          REQUIRE(next != parts.end());
          const index_t rows = p.where.dim[1].size(), width = p.where.dim[2].size();
          CHECK(next->state == state);
          CHECK(next->where.dim[0].begin == p.where.dim[0].begin + element / width / rows);
          CHECK(next->where.dim[1].begin == p.where.dim[1].begin + element / width % rows);
          CHECK(next->where.dim[2].begin == p.where.dim[2].begin + element % width);
          element += next++->where.volume();
        }
    CHECK(next == parts.end());
  }
}

TEST_CASE("peers come in the order in which pairs meet, each with all its pieces of the stage") {
  const box<3> one = {{{0, 1}, {0, 1}, {0, 1}}};
  std::vector<staged_piece> list;
  for (index_t stage = 0; stage < 3; ++stage)
    for (const rank_t dst : {0, 1, 2, 4, 7})
      for (index_t i = 0; i <= (dst + stage) % 3; ++i) list.push_back(piece(stage, 5, dst, only(1), one, i));
  std::vector<peer_pieces> groups;
  for (index_t stage = 0; stage < 3; ++stage) {
    pieces_by_peer(list, stage, &staged_piece::dst, 5, groups);
    std::vector<rank_t> peers;
    for (const peer_pieces& g : groups) {
      peers.push_back(g.peer);
      CHECK(g.pieces.end() - g.pieces.begin() == (g.peer + stage) % 3 + 1);
      for (const staged_piece& p : g.pieces) CHECK((p.dst == g.peer && p.stage == stage));
    }
    CHECK(peers == std::vector<rank_t>{4, 7, 1, 0, 2});  // 5 XOR: 1, 2, 4, 5, 7
  }
  pieces_by_peer(list, 3, &staged_piece::dst, 5, groups);
  CHECK(groups.empty());
}

TEST_CASE("a digest notices every number that both ends must share, and their order") {
  const staged_piece base = piece(1, 0, 1, only(1), {{{0, 2}, {3, 6}, {8, 12}}}, 4);
  std::set<std::uint64_t> seen;
  const auto add = [&](const std::vector<staged_piece>& list, index_t stages, bytes_t bytes) {
    pair_digest d(stages);
    for (const staged_piece& p : list) d.add(p);
    d.add_message(1, bytes);
    CHECK(seen.insert(d.value()).second);
    pair_digest again(stages);
    for (const staged_piece& p : list) again.add(p);
    again.add_message(1, bytes);
    CHECK(again.value() == d.value());
  };
  add({base}, 8, 512);
  add({base}, 9, 512);
  add({base}, 8, 1024);
  std::vector<staged_piece> others(10, base);
  others[0].stage = 2;
  others[1].states = only(2);
  others[2].tensor.family = 1;
  others[3].tensor.member = 5;
  others[4].tensor.expert = 1;
  for (int dim = 0; dim < 3; ++dim) others[static_cast<std::size_t>(5 + dim)].where.dim[dim].begin -= 1;
  others[8].where.dim[0].end += 1;
  others[9].where.dim[2].end += 1;
  for (const staged_piece& p : others) add({p}, 8, 512);
  add({base, others[0]}, 8, 512);
  add({others[0], base}, 8, 512);
  add({}, 8, 512);
  // who sends and who receives is not in it: both ends have the same
  staged_piece elsewhere = base;
  elsewhere.src = 7, elsewhere.dst = 9;
  pair_digest a(8), b(8);
  a.add(base), b.add(elsewhere);
  CHECK(a.value() == b.value());
}

TEST_CASE("a digest tells stages, trailers, lengths of rounds and ways to exchange apart") {
  const std::uint64_t usual = pair_digest(8, 16, 4096, 1).value();
  static_assert(pair_digest(8, 16, 4096, 1).value() == pair_digest(8, 16, 4096, 1).value());
  CHECK(pair_digest(7, 16, 4096, 1).value() != usual);
  CHECK(pair_digest(8, 0, 4096, 1).value() != usual);
  CHECK(pair_digest(8, 16, 4608, 1).value() != usual);
  CHECK(pair_digest(8, 16, 4096, 2).value() != usual);
}

TEST_CASE("a digest by hand: the version and what all messages are like, then the numbers of each piece and message") {
  staged_piece p = piece(3, 0, 1, only(1) | only(2), {{{0, 2}, {3, 6}, {8, 12}}}, 4);
  p.phase = 1, p.tensor.family = 5, p.tensor.expert = 7;
  pair_digest d(9, 16, 4096, 2);
  d.add(p);
  d.add_message(3, 512);
  digest by_hand;
  for (const char c : std::string_view(RESHARD_VERSION)) by_hand.add(c);
  for (const std::int64_t number : {9, 16, 4096, 2, 3, 1}) by_hand.add(number);
  by_hand.add(static_cast<std::int64_t>((only(1) | only(2)).bits()));
  for (const std::int64_t number : {5, 4, 7, 0, 2, 3, 6, 8, 12, 3, 512}) by_hand.add(number);
  CHECK(d.value() == by_hand.value());
}

namespace {
/// The parts that a box is cut into, as text: "0-1 0-2 0-150; "
std::string parts_of(const box<3>& where, bytes_t width, bytes_t most) {
  std::string text;
  each_part(where, width, most, [&](const box<3>& part) {
    for (int i = 0; i < 3; ++i)
      text += std::to_string(part.dim[i].begin) + "-" + std::to_string(part.dim[i].end) + (i < 2 ? " " : "; ");
  });
  return text;
}
}  // namespace

TEST_CASE("a box is cut along its outermost dimension, into multiples of 512 bytes where some of its slices are one") {
  CHECK(parts_of({{{0, 1}, {0, 1}, {5, 6}}}, 4, 512) == "0-1 0-1 5-6; ");
  CHECK(parts_of({{{0, 1}, {0, 1}, {5, 8}}}, 4, 2) ==
        "0-1 0-1 5-6; 0-1 0-1 6-7; 0-1 0-1 7-8; ");  // an element at least
  CHECK(parts_of({{{0, 1}, {0, 1}, {0, 300}}}, 4, 600) == "0-1 0-1 0-128; 0-1 0-1 128-256; 0-1 0-1 256-300; ");
  CHECK(parts_of({{{0, 1}, {0, 1}, {0, 300}}}, 4, 512) == "0-1 0-1 0-128; 0-1 0-1 128-256; 0-1 0-1 256-300; ");
  CHECK(parts_of({{{0, 1}, {0, 1}, {0, 300}}}, 4, 508) == "0-1 0-1 0-127; 0-1 0-1 127-254; 0-1 0-1 254-300; ");
  CHECK(parts_of({{{0, 1}, {2, 104}, {0, 3}}}, 4, 600) == "0-1 2-52 0-3; 0-1 52-102 0-3; 0-1 102-104 0-3; ");
  CHECK(parts_of({{{0, 1}, {0, 2}, {0, 150}}}, 4, 600) == "0-1 0-1 0-150; 0-1 1-2 0-150; ");  // a row is all a part has
  CHECK(parts_of({{{0, 1}, {0, 2}, {0, 150}}}, 4, 599) ==
        "0-1 0-1 0-128; 0-1 0-1 128-150; 0-1 1-2 0-128; 0-1 1-2 128-150; ");
  CHECK(parts_of({{{3, 5}, {0, 2}, {0, 10}}}, 4, 80) == "3-4 0-2 0-10; 4-5 0-2 0-10; ");
}

TEST_CASE("in a message a box has its rows one after the other, and no place yet") {
  const staged_piece p = piece(0, 0, 1, only(0), {{{2, 4}, {1, 4}, {10, 15}}}, 6);
  const bound_box whole = packed_box(p, 0, p.where), part = packed_box(p, 0, {{{3, 4}, {1, 3}, {10, 17}}});
  CHECK(whole.data == nullptr);
  CHECK((whole.stride[0] == 15 && whole.stride[1] == 5 && whole.stride[2] == 1));
  CHECK(whole.element_bytes == 2);
  CHECK(whole.state == 0);
  CHECK(whole.tensor == p.tensor);
  CHECK((part.stride[0] == 14 && part.stride[1] == 7 && part.stride[2] == 1));
  CHECK(part.where == box<3>{{{3, 4}, {1, 3}, {10, 17}}});
}
