// SPDX-License-Identifier: Apache-2.0
// What is checked of bindings before a switch, against a count of every byte: boxes at random places and strides,
// interleaved and overlapping ones among them; and pages that are given back.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <reshard/switch/detail/switch_checks.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/sanitized.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {

constexpr bytes_t arena_bytes = 600;
alignas(64) std::byte arena[arena_bytes];

/// Marks the bytes of a box; whether one was marked already.
bool mark(const bound_box& b, std::vector<int>& bytes) {
  bool twice = false;
  const bytes_t width = b.element_bytes;
  for (index_t i = 0; i < b.where.dim[0].size(); ++i)
    for (index_t j = 0; j < b.where.dim[1].size(); ++j)
      for (index_t k = 0; k < b.where.dim[2].size(); ++k)
        for (bytes_t byte = 0; byte < width; ++byte) {
          int& count = bytes[static_cast<std::size_t>(
              b.data - arena + width * (i * b.stride[0] + j * b.stride[1] + k * b.stride[2]) + byte)];
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
    const bytes_t width = reshard::width(adam[state].type), room = arena_bytes - (last + 1) * width;
    if (room < 0) continue;
    const bytes_t at = random.below(room / width + 1) * width;
    to.add(bound_box{{state, {tensor, 0, 0}, {{{0, size[0]}, {0, size[1]}, {0, size[2]}}}},
                     arena + at,
                     {stride[0], stride[1], stride[2]},
                     width});
    return;
  }
}

std::string apart(const binding& from, const binding& into, state_set moving = all_states,
                  sources after_use = sources::keep) {
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
  std::printf(
      "accepted %d, interleaved among them %d; refused: targets %d, with a source %d, a target with itself %d\n",
      accepted, interleaved, between_targets, with_source, itself);
  CHECK_DRAWN(accepted >= 300);
  CHECK_DRAWN(interleaved >= 30);
  CHECK_DRAWN(between_targets >= 300);
  CHECK_DRAWN(with_source >= 300);
  CHECK_DRAWN(itself >= 30);
}

TEST_CASE("the sentence names both, and their owners") {
  const tensor_box first{0, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 8}}}}, second{0, {1, 0, 0}, {{{0, 1}, {0, 1}, {0, 8}}}};
  const memory low{arena, 16}, crossing{arena + 14, 16}, high{arena + 16, 16};
  const auto names = [](const tensor_id& t) { return std::string(t.family == 0 ? "a" : "b"); };
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
        "reshard: device 3, TO: param of b lies in the memory of param of a of FROM; a switch wants memory of its own "
        "for what it makes");
  CHECK(apart(bound("FROM", std::pair(first, low)), bound("TO", std::pair(second, crossing)), only(1)) == "accepted");
  binding folded("TO", names);
  folded.add(bound_box{{0, {0, 0, 0}, {{{0, 1}, {0, 2}, {0, 4}}}}, arena, {0, 2, 1}, 2});
  folded.seal();
  CHECK(apart(none, folded) ==
        "reshard: device 3, TO: param of a has strides by which its elements lie in the same memory");
  binding made("TO", names), kept("FROM", names);  // a state that stays is not written over
  made.add(first, low);
  kept.add({1, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 4}}}}, {arena + 8, 16});
  made.seal();
  kept.seal();
  CHECK(apart(kept, made, only(0)) ==
        "reshard: device 3, TO: param of a lies in the memory of master of a of FROM; a switch wants memory of its own "
        "for what it makes");
}

TEST_CASE("of a source and two targets in one place, the source is named first") {
  const auto names = [](const tensor_id& t) { return std::string(1, static_cast<char>('a' + t.family)); };
  binding from("FROM", names), into("TO", names);
  from.add({0, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 8}}}}, {arena, 16});
  for (const int f : {1, 2}) into.add({0, {f, 0, 0}, {{{0, 1}, {0, 1}, {0, 8}}}}, {arena, 16});
  from.seal();
  into.seal();
  CHECK(apart(from, into) ==
        "reshard: device 3, TO: param of b lies in the memory of param of a of FROM; a switch wants memory of its own "
        "for what it makes");
}

TEST_CASE("what a box reaches, whether its dimensions nest, and its runs, against a count of every byte") {
  dice random(5);
  int nest = 0, dense = 0;
  for (int round = 0; round < 3000; ++round) {
    binding one("ONE");
    add_random(one, 0, random);
    bound_box b = one.boxes()[0];
    if (random.below(3) == 0) b.where.dim[random.below(3)] = {7, 8};
    const bool target = random.coin();
    CAPTURE(round);
    std::vector<int> bytes(arena_bytes), by_runs(arena_bytes);
    mark(b, bytes);
    std::size_t past = bytes.size();
    while (bytes[past - 1] == 0) --past;
    const detail::stretch all = detail::hull(b, target);
    CHECK(all.begin == b.data);
    CHECK(all.end == arena + past);
    CHECK(all.of == &b);
    CHECK(all.target == target);

    bool expected = true;
    for (int i = 0; i < 3; ++i) {
      index_t below = 0;  // what the dimensions of smaller strides reach
      for (int j = 0; j < 3; ++j)
        if (b.stride[j] < b.stride[i] || (b.stride[j] == b.stride[i] && j < i))
          below += (b.where.dim[j].size() - 1) * b.stride[j];
      if (b.where.dim[i].size() > 1 && b.stride[i] <= below) expected = false;
    }
    CHECK(detail::nested(b) == expected);
    if (expected) CHECK(*std::max_element(bytes.begin(), bytes.end()) == 1);
    nest += expected;

    index_t runs = 0;
    detail::each_run(b, target, [&](const detail::stretch& run) {
      ++runs;
      CHECK(run.of == &b);
      CHECK(run.target == target);
      for (const std::byte* at = run.begin; at < run.end; ++at) ++by_runs[static_cast<std::size_t>(at - arena)];
    });
    CHECK(by_runs == bytes);
    CHECK(runs == (b.stride[2] == 1 ? b.where.dim[0].size() * b.where.dim[1].size() : b.where.volume()));
    dense += b.stride[2] == 1;
  }
  CHECK_DRAWN(nest > 1000);
  CHECK_DRAWN(nest < 2900);
  CHECK_DRAWN(dense > 1000);
  CHECK_DRAWN(dense < 2900);
}

TEST_CASE("only arrays that cross in memory are compared run by run, and 4194304 runs at most") {
  std::byte* const far = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // nothing is read there
  const auto names = [](const tensor_id& t) { return std::string(1, static_cast<char>('a' + t.family)); };
  struct part {
    bytes_t at;
    index_t rows, columns;
    index_t stride[3];
  };
  const auto bound = [&](const char* who, int first, const std::vector<part>& parts) {
    binding b(who, names);
    for (const part& p : parts)
      b.add(bound_box{{0, {first++, 0, 0}, {{{0, 1}, {0, p.rows}, {0, p.columns}}}},
                      far + p.at,
                      {p.stride[0], p.stride[1], p.stride[2]},
                      2});
    b.seal();
    return b;
  };
  const auto into = [&](const std::vector<part>& parts) { return bound("TO", 0, parts); };
  const binding none("FROM");
  const auto too_many = [](const std::string& which) {
    return "reshard: device 3, " + which + " crosses other arrays in memory; more than 4194304 runs are not compared";
  };
  const index_t many = most_runs + 1;
  CHECK(apart(none, into({{0, 1, many, {0, 0, 2}}})) == "accepted");  // alone
  // side by side
  CHECK(apart(none, into({{0, 1, many, {0, 0, 2}}, {4 * many - 2, 1, many, {0, 0, 2}}})) == "accepted");
  CHECK(apart(none, into({{0, 2, many, {0, 1, 2}}, {4 * many, 2, many, {0, many, 1}}})) == "accepted");  // both ways
  CHECK(apart(none, into({{0, 1, many, {0, 0, 2}}, {2, 1, many, {0, 0, 2}}})) == too_many("TO: param of a"));
  CHECK(apart(none, into({{0, 1, 2 * many, {0, 0, 2}}, {2, 1, 1, {0, 0, 1}}})) == too_many("TO: param of a"));
  CHECK(apart(none, into({{0, 1, most_runs - 3, {0, 0, 2}}, {2, 1, 4, {0, 0, 2}}})) == too_many("TO: param of b"));
  CHECK(apart(none, into({{0, 1, many, {0, 0, 0}}})) == too_many("TO: param of a"));  // one that crosses itself
  if (!testing::sanitized) {                                                          // half a minute there
    const index_t half = most_runs / 2;                                               // each between two of the other
    CHECK(apart(none, into({{0, 1, half, {0, 0, 2}}, {2, 1, half, {0, 0, 2}}})) == "accepted");
    CHECK(apart(none, into({{0, 1, half, {0, 0, 2}}, {2, 1, half + 1, {0, 0, 2}}})) == too_many("TO: param of b"));
  }
  const binding source = bound("FROM", 0, {{0, 1, many, {0, 0, 2}}}), inside = bound("TO", 1, {{2, 1, 1, {0, 0, 1}}});
  CHECK(apart(source, inside) == too_many("FROM: param of a"));
  CHECK(apart(source, none) == "accepted");
  // sources that cross one another are nobody's matter
  CHECK(apart(bound("FROM", 0, {{0, 1, many, {0, 0, 2}}, {2, 1, many, {0, 0, 2}}}), inside) ==
        too_many("FROM: param of a"));
  CHECK(apart(bound("FROM", 0, {{0, 1, many, {0, 0, 2}}, {2, 1, many, {0, 0, 2}}}),
              bound("TO", 2, {{8 * many, 1, 1, {0, 0, 1}}})) == "accepted");
  // rows are runs where their elements lie side by side
  const index_t wide = 3 * most_runs / 4;
  CHECK(apart(none, into({{0, 2, wide, {0, 2 * wide, 1}}, {2 * wide, 2, wide, {0, 2 * wide, 1}}})) == "accepted");
  CHECK(apart(none, into({{0, 2, wide, {0, 1, 2}}, {2, 2, wide, {0, wide, 1}}})) == too_many("TO: param of a"));
}

TEST_CASE("a plan's elements that are not bound are named, with the state, the tensor, the side and how many") {
  const auto names = [](const tensor_id& t) {
    return "tensor " + std::to_string(t.family) + "." + std::to_string(t.member) + "." + std::to_string(t.expert);
  };
  const state_set moving = only(0) | only(2);
  const family_box where{{{2, 4}, {5, 7}, {0, 2}, {1, 4}, {3, 8}}};
  const std::vector<transfer> needed{{0, 1, only(3), 8, {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 2}}}},
                                     {0, 1, moving, 9, where}};
  // everything of both but what `lacks` says
  const auto says = [&](auto&& lacks) {
    std::vector<std::byte> bytes(4096);
    binding b("rank 1 of TO");
    b.add({3, {8, 0, 0}, {{{0, 1}, {0, 1}, {0, 2}}}}, {bytes.data(), 8});
    for (const int state : {0, 2})
      for (index_t member = 2; member < 4; ++member)
        for (index_t expert = 5; expert < 7; ++expert) {
          const interval rows = lacks(state, member, expert) ? interval{2, 9} : interval{0, 9};
          const tensor_box left{state, {9, member, expert}, {{{0, 4}, rows, {2, 5}}}},
              right{state, {9, member, expert}, {{{0, 4}, {0, 9}, {5, 9}}}};
          const bytes_t width = state == 0 ? 2 : 4;
          b.add(left, {bytes.data(), left.where.volume() * width});
          b.add(right, {bytes.data(), right.where.volume() * width});
        }
    b.seal();
    return refused([&] { require_bound("device 7", needed, b, "TO", names); });
  };
  CHECK(says([](int, index_t, index_t) { return false; }) == "accepted");
  for (const int state : {0, 2})
    for (index_t member = 2; member < 4; ++member)
      for (index_t expert = 5; expert < 7; ++expert)
        CHECK(says([&](int s, index_t m, index_t e) { return s == state && m == member && e == expert; }) ==
              "reshard: device 7, rank 1 of TO: 4 of 30 elements that the plan needs of " +
                  std::string(state == 0 ? "param" : "exp_avg") + " of tensor 9." + std::to_string(member) + "." +
                  std::to_string(expert) + " are not bound, on the side of TO");
  // the first of several
  CHECK(says([](int, index_t, index_t) { return true; }).find("param of tensor 9.2.5 ") != std::string::npos);
  const binding none("nobody");
  CHECK(refused([&] { require_bound("device 7", needed, none, "FROM", names); }) ==
        "reshard: device 7, nobody: 2 of 2 elements that the plan needs of exp_avg_sq of tensor 8.0.0 are not bound, "
        "on the side of FROM");
  CHECK(refused([&] { require_bound("device 7", {}, none, "FROM", names); }) == "accepted");
}

TEST_CASE("a target in pages that a source gives back is refused, one beside or around them is not") {
  std::vector<std::byte> bytes(8 * page_bytes);
  std::byte* const pages =
      bytes.data() + (page_bytes - reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes) % page_bytes;
  const auto given_back = [&](bytes_t at, bytes_t size) {
    binding b("FROM");
    b.own(memory{pages + at, size}, pages_are::committed, [](std::byte*, bytes_t) {});
    b.seal();
    return b;
  };
  const auto target = [&](bytes_t at, index_t elements) {
    binding b("TO");
    b.add({0, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, elements}}}}, {pages + at, 2 * elements});
    b.seal();
    return b;
  };
  const binding two = given_back(2 * page_bytes, 2 * page_bytes);
  const auto says = [&](const binding& into) { return apart(two, into, all_states, sources::release); };
  CHECK(says(target(0, page_bytes)) == "accepted");
  CHECK(says(target(4 * page_bytes, 8)) == "accepted");
  for (const auto& [at, elements] :
       {std::pair<bytes_t, index_t>{2 * page_bytes - 2, 2}, {4 * page_bytes - 2, 1}, {page_bytes, 2 * page_bytes}})
    CHECK(says(target(at, elements)) ==
          "reshard: device 3, TO: param of family 0, member 0, expert 0 lies in pages that FROM gives back");
  CHECK(apart(two, target(2 * page_bytes, 4), all_states, sources::keep) == "accepted");
  binding lying = given_back(2 * page_bytes, 2 * page_bytes);  // its own arrays may lie there
  lying.add({0, {1, 0, 0}, {{{0, 1}, {0, 1}, {0, 8}}}}, {pages + 2 * page_bytes, 16});
  lying.seal();
  CHECK(apart(lying, target(0, page_bytes), all_states, sources::release) == "accepted");
  binding around("TO");  // a row before the pages, a row after them
  const index_t stride[] = {0, 2 * page_bytes, 1};
  around.add(
      bound_box{{0, {0, 0, 0}, {{{0, 1}, {0, 2}, {0, 8}}}}, pages + page_bytes, {stride[0], stride[1], stride[2]}, 2});
  around.seal();
  CHECK(says(around) == "accepted");
}
