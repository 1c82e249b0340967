// SPDX-License-Identifier: Apache-2.0
// Copies of what a rank's tensors hold: every element where strides and types of memory differ from tensor to tensor,
// again after the tensors have changed; how much memory they take; and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <reshard/copy/binding_copy.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/testing/known_values.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::dice, testing::each_point, testing::refused;

namespace {

const std::byte* element(const bound_box& b, const index_t (&x)[3]) {
  index_t at = 0;
  for (int i = 0; i < 3; ++i) at += (x[i] - b.where.dim[i].begin) * b.stride[i];
  return b.data + at * b.element_bytes;
}

bool converts_at_all(dtype type) { return type == bf16 || type == fp32; }

/// Boxes of several tensors and states, elements apart in one memory, some in another type than the state's.
struct drawn_boxes {
  static constexpr const char* states = "param:bf16:3,grad:fp8:2,exp_avg:fp32:1";
  std::vector<std::vector<std::byte>> arrays;
  binding bound{"the tensors", {}, parse_state_list(states)};
  bytes_t bytes = 0;  // of the elements
  int strided = 0, converted = 0, odd = 0;

  explicit drawn_boxes(dice& random) {
    for (int i = 0; i < 12; ++i) {
      const index_t extent[] = {random.within(1, 3), random.within(1, 4), random.within(1, 5)};
      index_t corner[3];
      for (index_t& c : corner) c = random.below(4);
      const tensor_box box{static_cast<int>(random.below(3)), {0, i, 0}, translate(whole_box(extent), corner)};
      const dtype type = bound.list()[box.state].type;
      const bool converts = converts_at_all(type) && random.coin(), apart = random.coin();
      const dtype holds = !converts ? type : type == bf16 ? fp32 : bf16;
      index_t stride[3] = {extent[1] * extent[2], extent[2], 1};
      if (apart) {
        // columns outermost every other time
        const index_t gap = random.within(1, 3);
        stride[2] = gap, stride[1] = gap * extent[2] + random.below(3), stride[0] = stride[1] * extent[1];
        if (random.coin()) stride[0] = gap, stride[1] = gap * extent[0], stride[2] = stride[1] * extent[1];
      }
      index_t last = 1;
      for (int d = 0; d < 3; ++d) last += (extent[d] - 1) * stride[d];
      std::vector<std::byte>& array = arrays.emplace_back(static_cast<std::size_t>(last * width(holds)));
      for (std::byte& b : array) b = static_cast<std::byte>(random.below(256));
      const memory at(array.data(), static_cast<bytes_t>(array.size()));
      bound.add(box, converts ? at.as(holds) : at, stride);
      bytes += box.where.volume() * width(holds);
      strided += apart ? 1 : 0, converted += converts ? 1 : 0, odd += box.where.volume() % 2 == 1 ? 1 : 0;
    }
    bound.seal();
  }
  void write_over(dice& random) {
    for (std::vector<std::byte>& array : arrays)
      for (std::byte& b : array) b = static_cast<std::byte>(random.below(256));
  }
};

/// Elements of a copy that are not those of what it was taken of.
index_t wrong(const binding_copy& copy, const binding& of) {
  index_t result = 0;
  REQUIRE(copy.tensors().boxes().size() == of.boxes().size());
  for (const bound_box& b : of.boxes()) {
    index_t seen = 0;
    copy.tensors().meet(b, [&](const bound_box& c) {
      if (!(c.where == b.where && c.element_bytes == b.element_bytes && c.holds == b.holds && c.travels == b.travels))
        ++result;
      each_point(c.where, [&](const index_t(&x)[3]) {
        ++seen;
        if (std::memcmp(element(c, x), element(b, x), static_cast<std::size_t>(b.element_bytes)) != 0) ++result;
      });
    });
    result += seen == b.where.volume() ? 0 : 1;
  }
  return result;
}

}  // namespace

TEST_CASE("a copy has every element as it was, until it is taken again") {
  dice random(81);
  int strided = 0, converted = 0, odd = 0, stale = 0;
  for (int n = 0; n < testing::thrown(100); ++n) {
    drawn_boxes drawn(random);
    binding_copy copy(drawn.bound, "the copy");
    CHECK(copy.bytes() == drawn.bytes);
    CHECK(copy.tensors().who() == "the copy");
    CHECK(copy.tensors().list() == drawn.bound.list());
    copy.take(drawn.bound);
    CHECK(wrong(copy, drawn.bound) == 0);
    drawn.write_over(random);
    stale += wrong(copy, drawn.bound) > 0 ? 1 : 0;
    copy.take(drawn.bound);
    CHECK(wrong(copy, drawn.bound) == 0);
    const binding_copy moved = std::move(copy);
    CHECK(wrong(moved, drawn.bound) == 0);
    strided += drawn.strided, converted += drawn.converted, odd += drawn.odd;
  }
  MESSAGE(strided, " boxes at strides, ", converted, " in another type, ", odd, " of an odd number of elements");
  CHECK(stale == testing::thrown(100));  // so it has memory of its own
  for (const int times : {strided, converted, odd}) CHECK_DRAWN(times > 200);
}

TEST_CASE(
    "its boxes are in row-major order, side by side in memory of its own, each element at a multiple of its width") {
  dice random(82);
  for (int n = 0; n < testing::thrown(50); ++n) {
    const drawn_boxes drawn(random);
    const binding_copy copy(drawn.bound);
    std::vector<std::pair<const std::byte*, bytes_t>> lie;
    for (const bound_box& b : copy.tensors().boxes()) {
      const index_t rows = b.where.dim[1].size(), columns = b.where.dim[2].size();
      CHECK(b.stride[0] == rows * columns);
      CHECK(b.stride[1] == columns);
      CHECK(b.stride[2] == 1);
      CHECK(reinterpret_cast<std::uintptr_t>(b.data) % static_cast<std::uintptr_t>(b.element_bytes) == 0);
      lie.emplace_back(b.data, b.bytes());
    }
    std::sort(lie.begin(), lie.end());
    const std::byte* at = lie[0].first;
    for (const auto& [begin, bytes] : lie) {
      CHECK(begin == at);
      at += bytes;
    }
    CHECK(at - lie[0].first == copy.bytes());
  }
}

TEST_CASE("elements of eight bytes lie before those of four, two and one, each at a multiple of its width") {
  const state_list list{{"param", fp32, 3}, {"count", dtype::int64, 1}, {"half", fp16, 1}, {"code", dtype::int8, 2}};
  std::vector<std::byte> array(256);
  for (std::size_t i = 0; i < array.size(); ++i) array[i] = static_cast<std::byte>(5 * i + 1);
  binding bound("the tensors", {}, list);
  const bytes_t widths[] = {4, 8, 2, 1};
  for (int state = 0; state < 4; ++state)
    bound.add({state, {}, {{{0, 1}, {0, 1}, {0, 3}}}}, {array.data() + 64 * state, 3 * widths[state]});
  bound.seal();
  binding_copy copy(bound);
  CHECK(copy.bytes() == 45);
  copy.take(bound);
  CHECK(wrong(copy, bound) == 0);
  const std::byte* const first = copy.tensors().boxes()[1].data;
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 8 == 0);
  const std::ptrdiff_t wanted[] = {24, 0, 36, 42};
  for (std::size_t state = 0; state < 4; ++state) CHECK(copy.tensors().boxes()[state].data - first == wanted[state]);
}

TEST_CASE("a rank's arrays are copied, buffers among them, and come back") {
  const computed_holding h(space(testing::tiny(2), parse_degrees("tp=2,dp=2,zero=1")));
  const rank_storage state(h, 3, "state");
  reshard::fill(state.tensors(), h);
  binding_copy copy(state.tensors());
  CHECK(copy.tensors().who() == "a copy");
  bytes_t bytes = 0;
  for (const bound_box& b : state.tensors().boxes()) bytes += b.where.volume() * b.element_bytes;
  CHECK(copy.bytes() == bytes);
  copy.take(state.tensors());
  reshard::fill(state.tensors(), h, known_values{2});
  const comparison was = reshard::compare(copy.tensors(), h);
  CHECK(was.wrong == 0);
  CHECK(was.elements > 1000);
  const rank_storage again(h, 3, "again");
  binding_copy back(again.tensors());
  back.take(copy.tensors());
  CHECK(reshard::compare(back.tensors(), h).wrong == 0);
}

TEST_CASE("nothing bound is copied to nothing") {
  const binding nothing("no rank");
  binding_copy copy(nothing);
  copy.take(nothing);
  CHECK(copy.bytes() == 0);
  CHECK(copy.tensors().boxes().empty());
}

TEST_CASE("memory of a device, and other boxes than it has room for, are refused") {
  std::vector<std::byte> memory_of_all(64);
  const auto bound = [&](const std::vector<tensor_box>& boxes, const char* who = "others", bool wide = false) {
    binding b(who);
    for (const tensor_box& box : boxes) {
      const memory at(memory_of_all.data(), box.where.volume() * (wide ? 4 : 2));
      b.add(box, wide ? at.as(fp32) : at);
    }
    b.seal();
    return b;
  };
  const tensor_box one{0, {1, 2, 0}, {{{0, 1}, {0, 2}, {0, 3}}}}, two{0, {1, 3, 0}, {{{0, 1}, {0, 2}, {0, 3}}}};
  tensor_box lower = one, another = one;
  lower.where.dim[1] = {1, 3}, another.tensor.expert = 1;
  binding_copy copy(bound({one}), "the copy");
  const auto said = [&](const binding& of) { return refused([&] { copy.take(of); }); };
  CHECK(said(bound({one})) == "accepted");
  CHECK(said(bound({one, two})) == "reshard: the copy: it has room for 1 boxes, and others has 2");
  CHECK(said(bound({})) == "reshard: the copy: it has room for 1 boxes, and others has 0");
  const std::string room = "reshard: the copy: it has room for param of family 1, member 2, expert 0, and others has ";
  CHECK(said(bound({two})) ==
        "reshard: the copy: it has room for param of family 1, member 2, expert 0, and others has param of family 1, "
        "member 3, expert 0 there");
  CHECK(said(bound({another})) == room + "param of family 1, member 2, expert 1 there");
  CHECK(said(bound({lower})) == room + "param of family 1, member 2, expert 0 there");
  CHECK(said(bound({one}, "others", true)) == room + "param of family 1, member 2, expert 0 there");

  binding away = bound({one}, "rank 3");
  away.lies_in({memory_place::kind::device, 1});
  const auto made = [](const binding& of) { return refused([&] { binding_copy(of, "copies"); }); };
  CHECK(made(away) ==
        "reshard: copies: what is copied lies in device memory of device 1, and copies are made of host memory");
  CHECK(said(away) ==
        "reshard: the copy: what is copied lies in device memory of device 1, and copies are made of host memory");
  away.lies_in({memory_place::kind::pinned});
  CHECK(made(away) == "reshard: copies: what is copied lies in pinned host memory, and copies are made of host memory");
}
