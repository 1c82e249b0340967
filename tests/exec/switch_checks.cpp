// SPDX-License-Identifier: Apache-2.0
// What is checked of bindings before a switch, against a count of every byte: boxes at random places and strides, interleaved and
// overlapping ones among them; and pages that are given back.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include <reshard/exec/switch_checks.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {

constexpr bytes_t arena_bytes = 600;
alignas(64) std::byte arena[arena_bytes];

/// Marks the bytes of a box; whether one was marked already.
bool mark(const bound_box& b, std::vector<int>& bytes) {
  bool twice = false;
  const bytes_t width = b.element_bytes();
  for (index_t i = 0; i < b.where.dim[0].size(); ++i)
    for (index_t j = 0; j < b.where.dim[1].size(); ++j)
      for (index_t k = 0; k < b.where.dim[2].size(); ++k)
        for (bytes_t byte = 0; byte < width; ++byte) {
          int& count = bytes[static_cast<std::size_t>(b.data - arena + width * (i * b.stride[0] + j * b.stride[1] + k * b.stride[2]) + byte)];
          twice = twice || count > 0;
          ++count;
        }
  return twice;
}

/// A box of a tensor of its own, somewhere in the arena: dense, padded, transposed, or at strides that overlap.
void add_random(binding& to, int tensor, dice& random) {
  for (;;) {
    const index_t size[] = {random.within(1, 2), random.within(1, 3), random.within(1, 4)};
    index_t stride[] = {size[1] * size[2] + random.below(4), size[2] + random.below(3), 1};
    if (random.below(4) == 0) std::swap(stride[1], stride[2]);
    if (random.below(4) == 0) stride[1] = size[2] + random.within(5, 20);
    if (random.below(10) == 0) stride[random.below(3)] = random.below(3);
    const index_t last = (size[0] - 1) * stride[0] + (size[1] - 1) * stride[1] + (size[2] - 1) * stride[2];
    const int state = random.coin() ? 0 : 1;
    const bytes_t width = reshard::width(adam_states[state].type), room = arena_bytes - (last + 1) * width;
    if (room < 0) continue;
    const bytes_t at = random.below(room / width + 1) * width;
    to.add({state, tensor, 0, 0, {{{0, size[0]}, {0, size[1]}, {0, size[2]}}}}, {arena + at, arena_bytes - at}, stride);
    return;
  }
}

std::string apart(const binding& from, const binding& into, state_set moving = all_states, sources after_use = sources::keep) {
  return refused([&] { require_apart("device 3", from, into, moving, after_use); });
}

}  // namespace

TEST_CASE("refused exactly where a byte of a target is also a byte of something else that moves") {
  dice random(4);
  int accepted = 0, between_targets = 0, with_source = 0, interleaved = 0, itself = 0;
  for (int round = 0; round < 6000; ++round) {
    binding from("FROM"), into("TO");
    for (index_t n = random.within(0, 2), i = 0; i < n; ++i) add_random(from, static_cast<int>(i), random);
    for (index_t n = random.within(1, 3), i = 0; i < n; ++i) add_random(into, static_cast<int>(i), random);
    from.seal();
    into.seal();
    const state_set moving = random.below(5) == 0 ? only(0) : all_states;
    std::vector<int> read(arena_bytes), made(arena_bytes);
    for (const bound_box& b : from.boxes()) mark(b, read);
    bool twice = false, own = false, crossing = false;
    for (const bound_box& b : into.boxes()) {
      if (!moving.contains(b.state)) continue;
      std::vector<int> alone(arena_bytes);
      own = mark(b, alone) || own;
      twice = mark(b, made) || twice;
      for (const bound_box& other : into.boxes())
        crossing = crossing || (moving.contains(other.state) && &other != &b && other.data > b.data &&
                                other.data < detail::hull(b, true).end);
    }
    bool shared = false;
    for (std::size_t i = 0; i < read.size(); ++i) shared = shared || (read[i] > 0 && made[i] > 0);
    const std::string sentence = apart(from, into, moving);
    CAPTURE(round);
    CAPTURE(sentence);
    REQUIRE((sentence != "accepted") == (twice || shared));
    if (sentence.find("lie in the same memory") != sentence.npos) REQUIRE(twice);
    if (sentence.find("by which its elements") != sentence.npos) REQUIRE(own);
    if (sentence.find("a switch wants memory of its own for what it makes") != sentence.npos) REQUIRE(shared);
    accepted += !twice && !shared;
    between_targets += twice;
    with_source += shared;
    interleaved += crossing && !twice && !shared;
    itself += own;
  }
  std::printf("accepted %d, interleaved among them %d; refused: targets %d, with a source %d, a target with itself %d\n", accepted, interleaved,
              between_targets, with_source, itself);
  CHECK(accepted >= 300);
  CHECK(interleaved >= 30);
  CHECK(between_targets >= 300);
  CHECK(with_source >= 300);
  CHECK(itself >= 30);
}

TEST_CASE("the sentence names both, and their owners") {
  const tensor_box first{0, 0, 0, 0, {{{0, 1}, {0, 1}, {0, 8}}}}, second{0, 1, 0, 0, {{{0, 1}, {0, 1}, {0, 8}}}};
  const memory low{arena, 16}, crossing{arena + 14, 16}, high{arena + 16, 16};
  const auto names = [](int f, index_t, index_t) { return std::string(f == 0 ? "a" : "b"); };
  const auto bound = [&](const char* who, auto... parts) {
    binding b(who, names);
    (b.add(parts.first, parts.second), ...);
    b.seal();
    return b;
  };
  const binding none("FROM");
  CHECK(apart(none, bound("TO", std::pair(first, low), std::pair(second, high))) == "accepted");
  CHECK(apart(none, bound("TO", std::pair(first, low), std::pair(second, crossing))) ==
        "reshard: device 3, TO: param of a and param of b lie in the same memory");
  CHECK(apart(bound("FROM", std::pair(first, low)), bound("TO", std::pair(second, crossing))) ==
        "reshard: device 3, TO: param of b lies in the memory of param of a of FROM; a switch wants memory of its own for what it makes");
  CHECK(apart(bound("FROM", std::pair(first, low)), bound("TO", std::pair(second, crossing)), only(1)) == "accepted");
  binding folded("TO", names);
  folded.add({0, 0, 0, 0, {{{0, 1}, {0, 2}, {0, 4}}}}, {arena, 16}, {0, 2, 1});
  folded.seal();
  CHECK(apart(none, folded) == "reshard: device 3, TO: param of a has strides by which its elements lie in the same memory");
  binding made("TO", names), kept("FROM", names);  // a state that stays is not written over
  made.add(first, low);
  kept.add({1, 0, 0, 0, {{{0, 1}, {0, 1}, {0, 4}}}}, {arena + 8, 16});
  made.seal();
  kept.seal();
  CHECK(apart(kept, made, only(0)) ==
        "reshard: device 3, TO: param of a lies in the memory of master of a of FROM; a switch wants memory of its own for what it makes");
  std::vector<std::byte> large(32 * most_runs);
  binding crossed("TO", names);
  for (const int f : {0, 1})
    crossed.add({0, f, 0, 0, {{{0, 1}, {0, 1}, {0, most_runs}}}}, {large.data() + 2 * f, static_cast<bytes_t>(large.size()) - 2 * f}, {0, 0, 2});
  crossed.seal();
  CHECK(apart(none, crossed).find(" crosses other arrays in memory; more than 4194304 runs are not compared") != std::string::npos);
}

TEST_CASE("a target in pages that a source gives back is refused, one beside or around them is not") {
  std::vector<std::byte> bytes(8 * page_bytes);
  std::byte* const pages = bytes.data() + (page_bytes - reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes) % page_bytes;
  const auto given_back = [&](bytes_t at, bytes_t size) {
    binding b("FROM");
    b.own(memory{pages + at, size}, pages_are::committed, [](std::byte*, bytes_t) {});
    b.seal();
    return b;
  };
  const auto target = [&](bytes_t at, index_t elements) {
    binding b("TO");
    b.add({0, 0, 0, 0, {{{0, 1}, {0, 1}, {0, elements}}}}, {pages + at, 2 * elements});
    b.seal();
    return b;
  };
  const binding two = given_back(2 * page_bytes, 2 * page_bytes);
  const auto says = [&](const binding& into) { return apart(two, into, all_states, sources::release); };
  CHECK(says(target(0, page_bytes)) == "accepted");
  CHECK(says(target(4 * page_bytes, 8)) == "accepted");
  for (const auto& [at, elements] : {std::pair<bytes_t, index_t>{2 * page_bytes - 2, 2}, {4 * page_bytes - 2, 1}, {page_bytes, 2 * page_bytes}})
    CHECK(says(target(at, elements)) == "reshard: device 3, TO: param of family 0, member 0, expert 0 lies in pages that FROM gives back");
  CHECK(apart(two, target(2 * page_bytes, 4), all_states, sources::keep) == "accepted");
  binding around("TO");  // a row before the pages, a row after them
  const index_t stride[] = {0, 2 * page_bytes, 1};
  around.add({0, 0, 0, 0, {{{0, 1}, {0, 2}, {0, 8}}}}, {pages + page_bytes, 5 * page_bytes}, stride);
  around.seal();
  CHECK(says(around) == "accepted");
}
