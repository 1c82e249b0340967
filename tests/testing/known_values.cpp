// SPDX-License-Identifier: Apache-2.0
// fill and compare themselves: which bytes are written, with which values, and how many faults are counted.
#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <vector>

#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/indices.hpp>

#include <reshard/model/family.hpp>
#include <reshard/testing/known_values.hpp>

#include "../support/judged.hpp"

using namespace reshard;
using ranges::views::cartesian_product, ranges::views::indices;

namespace {

/// Two tensors of 3 x 5 x 7, and of 2 x 6 x 4.
struct two_tensors {
  family of[2];
  two_tensors() {
    const index_t extents[2][5] = {{2, 1, 3, 5, 7}, {1, 2, 2, 6, 4}};
    for (int f = 0; f < 2; ++f) std::copy(extents[f], extents[f] + 5, of[f].extent);
  }
  const family& family_at(int f) const { return of[f]; }
};

/// Some of their boxes, each with gaps at its own strides (even between columns), in memory that is filled with
/// `canary`.
struct bound_boxes {
  two_tensors sizes;
  std::vector<std::byte> bytes;
  binding bound;
  explicit bound_boxes(std::byte canary = {}) : bytes(8192, canary) {
    const tensor_box what[] = {{0, {0, 0, 0}, {{{1, 3}, {2, 5}, {0, 7}}}},
                               {0, {0, 1, 0}, {{{0, 1}, {0, 5}, {3, 6}}}},
                               {1, {0, 1, 0}, {{{0, 3}, {4, 5}, {1, 7}}}},
                               {2, {1, 0, 1}, {{{0, 2}, {1, 6}, {0, 4}}}},
                               {3, {1, 0, 0}, {{{1, 2}, {0, 6}, {2, 4}}}}};
    const index_t stride[][3] = {{40, 9, 1}, {100, 20, 3}, {7, 60, 1}, {50, 10, 2}, {0, 3, 1}};
    for (index_t i = 0; i < 5; ++i) {
      const auto& step = stride[i];
      bound.add(
          bound_box{what[i], bytes.data() + 1024 * i, {step[0], step[1], step[2]}, width(adam[what[i].state].type)});
    }
    bound.seal();
  }
  /// The same elements by the judge's own arithmetic.
  template <typename Visit>
  void each(Visit&& visit) {
    for (const bound_box& b : bound.boxes())
      oracle::each_element(testing::plain_numbers(b, sizes),
                           [&](std::byte* at, std::uint64_t, long, long, long) { visit(at, b.element_bytes); });
  }
};

/// Values that can be told by heart.
struct constant {
  struct of_tensor {
    int state;
    template <typename Element>
    Element value(index_t index) const {
      return static_cast<Element>(100 * state + index);
    }
  };
  of_tensor operator()(const tensor_box& t) const { return {t.state}; }
};

constexpr index_t elements = 2 * 3 * 7 + 5 * 3 + 3 * 6 + 2 * 5 * 4 + 6 * 2;

}  // namespace

TEST_CASE("fill writes every element that is bound, and no other byte") {
  bound_boxes over_zeros(std::byte{0}), over_ones(std::byte{0xff});
  fill(over_zeros.bound, over_zeros.sizes);
  fill(over_ones.bound, over_ones.sizes);
  std::set<std::size_t> shall, written;
  over_zeros.each([&](std::byte* at, bytes_t width) {
    for (bytes_t i = 0; i < width; ++i)
      CHECK(shall.insert(static_cast<std::size_t>(at + i - over_zeros.bytes.data())).second);
  });
  for (std::size_t i = 0; i < over_zeros.bytes.size(); ++i)
    if (over_zeros.bytes[i] == over_ones.bytes[i]) written.insert(i);  // what is left alone differs
  CHECK(written == shall);
}

TEST_CASE("compare counts every element, and every one that is wrong") {
  bound_boxes b;
  fill(b.bound, b.sizes);
  const auto found = [&] { return compare(b.bound, b.sizes); };
  CHECK(found().elements == elements);
  CHECK(found().wrong == 0);
  index_t spoilt = 0;
  b.each([&](std::byte* at, bytes_t width) {  // one more each time, by its first byte or its last
    at[spoilt % 2 == 0 ? 0 : width - 1] ^= std::byte{0x10};
    CHECK(found().wrong == ++spoilt);
  });
  CHECK(spoilt == elements);
  CHECK(found().elements == elements);
}

TEST_CASE("compare finds a single wrong element wherever it is, and minds no byte that is not bound") {
  bound_boxes b;
  fill(b.bound, b.sizes);
  std::set<const std::byte*> bound;
  b.each([&](std::byte* at, bytes_t width) {
    for (bytes_t i = 0; i < width; ++i) {
      bound.insert(at + i);
      at[i] ^= std::byte{1};
      CHECK(compare(b.bound, b.sizes).wrong == 1);
      at[i] ^= std::byte{1};
    }
  });
  for (std::byte& byte : b.bytes)
    if (!bound.contains(&byte)) byte ^= std::byte{0xff};
  CHECK(compare(b.bound, b.sizes).wrong == 0);
}

TEST_CASE("an element's value depends on its tensor and its place in the whole tensor, not on what is bound with it") {
  const two_tensors sizes;
  const tensor_box whole{1, {0, 1, 0}, {{{0, 3}, {0, 5}, {0, 7}}}};
  std::vector<std::byte> together(4 * 105), apart(4 * 1000);
  binding one, many;
  one.add(whole, {together.data(), 4 * 105});
  index_t at = 0;
  for (const interval parts : {interval{0, 1}, interval{1, 3}})
    for (const interval rows : {interval{0, 2}, interval{2, 5}})
      for (const interval columns : {interval{0, 3}, interval{3, 7}}) {
        many.add(bound_box{{1, {0, 1, 0}, {{parts, rows, columns}}}, apart.data() + at, {20, 5, 1}, 4});
        at += 400;
      }
  one.seal();
  many.seal();
  fill(one, sizes);
  fill(many, sizes);
  index_t seen = 0;
  many.meet(whole, [&](const bound_box& part) {
    one.meet(part, [&](const bound_box& same) {
      for (index_t i = 0; i < part.where.dim[0].size(); ++i)
        for (index_t j = 0; j < part.where.dim[1].size(); ++j)
          for (index_t k = 0; k < part.where.dim[2].size(); ++k, ++seen)
            CHECK(std::memcmp(part.data + 4 * (20 * i + 5 * j + k), same.data + 4 * (35 * i + 7 * j + k), 4) == 0);
    });
  });
  CHECK(seen == 105);
}

TEST_CASE("elements of every width are visited once, with their place in the whole tensor") {
  const index_t tensor[] = {3, 5, 7};
  for (const bytes_t width : {1, 2, 4, 8})
    for (const index_t step : {1, 2}) {
      std::vector<std::byte> bytes(8 * 200);
      const bound_box b{{0, {0, 0, 0}, {{{1, 3}, {2, 5}, {3, 6}}}}, bytes.data(), {40 * step, 8 * step, step}, 2};
      std::vector<index_t> places;
      detail::each_element_of_width(width, b, tensor, [&](auto& element, index_t index) {
        CHECK(sizeof(element) == static_cast<std::size_t>(width));
        const index_t n = static_cast<index_t>(places.size()), part = n / 9, row = n / 3 % 3, column = n % 3;
        CHECK(reinterpret_cast<std::byte*>(&element) == bytes.data() + width * step * (40 * part + 8 * row + column));
        CHECK(index == 35 * (1 + part) + 7 * (2 + row) + 3 + column);
        places.push_back(index);
      });
      CHECK(places.size() == 18);
    }
}

TEST_CASE("known values differ between the elements of a tensor") {
  const known_values::of_tensor of = known_values{}({0, {3, 1, 2}, {}});
  std::set<std::uint32_t> words;
  std::set<std::uint64_t> longs;
  for (index_t i = 0; i < 10'000; ++i) {
    words.insert(of.value<std::uint32_t>(i));
    longs.insert(of.value<std::uint64_t>(i));
    CHECK(of.value<std::uint16_t>(i) != of.value<std::uint16_t>(i + 1));
    CHECK(of.value<std::uint8_t>(i) != of.value<std::uint8_t>(i + 1));
  }
  CHECK(words.size() == 10'000);
  CHECK(longs.size() == 10'000);
  for (const index_t columns : {16, 64, 128, 256, 4096, 65536}) {  // and between rows
    CHECK(of.value<std::uint16_t>(5) != of.value<std::uint16_t>(5 + columns));
    CHECK(of.value<std::uint8_t>(5) != of.value<std::uint8_t>(5 + columns));
  }
}

TEST_CASE("known values differ between tensors and between states, and with the seed") {
  for (const std::uint64_t seed : {1u, 2u, 7u}) {
    std::set<std::uint32_t> bases;
    std::size_t tensors = 0;
    for (const auto [state, f, member, expert] :
         cartesian_product(indices(4), indices(6), indices(index_t{6}), indices(index_t{6}))) {
      const tensor_box of{state, {f, member, expert}, {}};
      bases.insert(known_values{seed}(of).value<std::uint32_t>(0));
      CHECK(known_values{seed}(of).base != known_values{seed + 1}(of).base);
      ++tensors;
    }
    CHECK(bases.size() == tensors);
  }
  const tensor_box corner{1, {2, 3, 4}, {{{0, 1}, {0, 1}, {0, 1}}}}, other{1, {2, 3, 4}, {{{2, 3}, {1, 5}, {0, 9}}}};
  CHECK(known_values{}(corner).base == known_values{}(other).base);  // not between the boxes of one
}

TEST_CASE("known values are the same in every build: what one writes, another can compare") {
  struct known {
    std::uint64_t seed;
    index_t of[4];  // state, family, member, expert
    std::uint32_t base;
  };
  const known table[] = {
      {1, {0, 0, 0, 0}, 0xC856C27Au},        {1, {3, 1, 0, 0}, 0x4D88E9FDu},    {1, {1, 0, 5, 0}, 0xCB766691u},
      {1, {2, 4, 7, 9}, 0x1CE7AD07u},        {1, {0, 11, 96, 63}, 0x29F2A12Du}, {7, {2, 4, 7, 9}, 0x9C16AAC4u},
      {20261121, {1, 2, 3, 4}, 0x6FCC8A78u},
  };
  for (const known& k : table) {
    const known_values::of_tensor of =
        known_values{k.seed}({static_cast<int>(k.of[0]), {static_cast<int>(k.of[1]), k.of[2], k.of[3]}, {}});
    CHECK(of.base == k.base);
    for (const index_t i :
         {index_t{0}, index_t{1}, index_t{12345}, index_t{1} << 31, (index_t{1} << 32) + 5, index_t{1} << 40}) {
      const std::uint32_t word = k.base + static_cast<std::uint32_t>(i) * 2654435761u;
      CHECK(of.value<std::uint32_t>(i) == word);
      CHECK(of.value<std::uint16_t>(i) == static_cast<std::uint16_t>(word >> 16));
      CHECK(of.value<std::uint8_t>(i) == static_cast<std::uint8_t>(word >> 24));
      CHECK(of.value<std::uint64_t>(i) == 4294967296u * std::uint64_t{k.base} + static_cast<std::uint64_t>(i));
    }
  }
}

TEST_CASE("values of one's own are written and compared") {
  bound_boxes b;
  fill(b.bound, b.sizes, constant{});
  CHECK(compare(b.bound, b.sizes, constant{}).wrong == 0);
  CHECK(compare(b.bound, b.sizes).wrong > elements / 2);
  std::uint32_t first = 0;
  b.bound.meet({2, {1, 0, 1}, {{{1, 2}, {2, 3}, {3, 4}}}},
               [&](const bound_box& one) { std::memcpy(&first, one.data, 4); });
  CHECK(first == 200 + 24 + 2 * 4 + 3);
}

TEST_CASE("a stride of 0 keeps to the one element that it says") {
  const family w{.name = "w", .extent = {1, 1, 1, 1, 6}};
  struct one_family {
    family of;
    const family& family_at(int) const { return of; }
  } h{w};
  std::vector<std::uint16_t> memory(6, 0xABCD);
  binding b("me");
  b.add({0, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 6}}}}, {reinterpret_cast<std::byte*>(memory.data()), 2}, {0, 0, 0});
  b.seal();
  fill(b, h);
  CHECK(memory[0] != 0xABCD);
  for (std::size_t i = 1; i < memory.size(); ++i) CHECK(memory[i] == 0xABCD);
  CHECK(compare(b, h).elements == 6);
}
