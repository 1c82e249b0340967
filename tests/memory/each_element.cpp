// SPDX-License-Identifier: Apache-2.0
// The elements of bound boxes with their numbers in whole tensors, and boxes of several states at one place.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <reshard/memory/each_element.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/config.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

const model small = make_transformer(
    {.name = "small", .layers = 2, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 12, .vocabulary = 16});

}  // namespace

TEST_CASE("over all ranks every element of a tensor is visited with its row-major number") {
  const computed_holding h(space(small, config{tp{2}, pp{2}, zero<1>{}}));
  std::map<tensor_id, std::map<index_t, int>> met;  // of masters, which one rank has each
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    rank_storage of(h, rank, "a rank", pages_are::committed);
    for (const bound_box& b : of.tensors().boxes())
      if (b.state == 1)
        each_element<float>(b, h.family_at(b.tensor.family), [&](float& x, index_t i) {
          x = 1;
          ++met[b.tensor][i];
        });
  }
  index_t tensors = 0;
  for (int f = 0; f < h.families(); ++f)
    for (index_t member = 0; member < h.family_at(f).extent[axis_of::layer]; ++member, ++tensors) {
      const auto& elements = met[{f, member, 0}];
      CHECK(static_cast<index_t>(elements.size()) == h.family_at(f).tensor_elements());
      CHECK(elements.rbegin()->first + 1 == h.family_at(f).tensor_elements());
      const int times = h.family_at(f).tensor_axis == axis_of::none ? 2 : 1;  // vectors lie on both tp ranks
      for (const auto& [i, n] : elements) CHECK(n == times);
    }
  CHECK(met.size() == static_cast<std::size_t>(tensors));
}

TEST_CASE("the number is (part rows + row) columns + column") {
  const family f{.name = "w", .extent = {1, 1, 3, 5, 7}};
  std::vector<std::uint16_t> memory(100);
  const bound_box b{
      {0, {0, 0, 0}, {{{1, 3}, {2, 4}, {3, 6}}}}, reinterpret_cast<std::byte*>(memory.data()), {20, 8, 2}, 2};
  std::vector<index_t> numbers;
  each_element<std::uint16_t>(b, f, [&](std::uint16_t& x, index_t i) {
    const auto at = &x - memory.data();
    const index_t part = at / 20, row = at % 20 / 8, column = at % 20 % 8 / 2;
    CHECK(i == ((1 + part) * 5 + 2 + row) * 7 + 3 + column);
    numbers.push_back(i);
  });
  CHECK(numbers.size() == 12);
  CHECK(testing::refused([&] { each_element<float>(b, f, [](float&, index_t) {}); }) ==
        "reshard: elements of 4 bytes are asked for of a box of family 0, member 0, whose elements have 2");
}

TEST_CASE("siblings lie at the same place, in arrays and in optimizer buffers") {
  for (const index_t level : {0, 1}) {
    const computed_holding h(space(small, config{dp{3}, zero{level}}));
    for (rank_t rank = 0; rank < 3; ++rank) {
      rank_storage of(h, rank, "a rank", pages_are::committed);
      index_t elements = 0, wanted = 0;
      for (const bound_box& b : of.tensors().boxes()) {
        if (b.state != 1) continue;
        wanted += b.where.volume();
        each_sibling(of.tensors(), b, {2, 3}, [&](const std::vector<bound_box>& all) {
          REQUIRE(all.size() == 3);
          for (int k = 0; k < 3; ++k) {
            CHECK(all[static_cast<std::size_t>(k)].state == 1 + k);
            CHECK(all[static_cast<std::size_t>(k)].tensor == b.tensor);
            CHECK(all[static_cast<std::size_t>(k)].where == all[0].where);
          }
          elements += all[0].where.volume();
        });
      }
      CHECK(elements == wanted);
      CHECK(wanted > 0);
    }
  }
}

TEST_CASE("a state that is bound elsewhere, or in two boxes, is refused as a sibling") {
  std::vector<float> memory(64);
  binding b("me");
  const tensor_box whole{1, {0, 0, 0}, {{{0, 1}, {0, 2}, {0, 4}}}};
  b.add(whole, std::span(memory.data(), 8));
  for (const index_t row : {0, 1})
    b.add({2, {0, 0, 0}, {{{0, 1}, {row, row + 1}, {0, 4}}}}, std::span(memory.data() + 8 + 4 * row, 4));
  b.seal();
  CHECK(testing::refused([&] { each_sibling(b, whole, {2}, [](const auto&) {}); }) ==
        "reshard: me: exp_avg of family 0, member 0, expert 0 is not bound in one box where master of family 0, member "
        "0, expert 0 is");
}

TEST_CASE("columns that lie on one another are one element, visited for each") {
  const family f{.name = "w", .extent = {1, 1, 1, 2, 3}};
  std::vector<std::uint32_t> memory(9);
  const bound_box b{
      {1, {0, 0, 0}, {{{0, 1}, {0, 2}, {0, 3}}}}, reinterpret_cast<std::byte*>(memory.data()), {0, 4, 0}, 4};
  std::vector<std::pair<std::ptrdiff_t, index_t>> visits;
  each_element<std::uint32_t>(b, f, [&](std::uint32_t& x, index_t i) { visits.emplace_back(&x - memory.data(), i); });
  CHECK(visits == std::vector<std::pair<std::ptrdiff_t, index_t>>{{0, 0}, {0, 1}, {0, 2}, {4, 3}, {4, 4}, {4, 5}});
}

TEST_CASE("elements of each width are numbers of as many bytes") {
  const index_t whole[] = {2, 2, 3};
  for (const bytes_t width : {1, 2, 4, 8}) {
    std::vector<std::uint64_t> memory(24);
    const bound_box b{
        {0, {0, 0, 0}, {{{1, 2}, {0, 2}, {1, 3}}}}, reinterpret_cast<std::byte*>(memory.data()), {9, 4, 1}, width};
    std::vector<std::pair<std::ptrdiff_t, index_t>> visits;
    detail::each_element_of_width(width, b, whole, [&](auto& x, index_t i) {
      CHECK(static_cast<bytes_t>(sizeof x) == width);
      visits.emplace_back(reinterpret_cast<const std::byte*>(&x) - b.data, i);
    });
    CHECK(visits ==
          std::vector<std::pair<std::ptrdiff_t, index_t>>{{0, 7}, {width, 8}, {4 * width, 10}, {5 * width, 11}});
  }
}
