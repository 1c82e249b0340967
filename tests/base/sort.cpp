// SPDX-License-Identifier: Apache-2.0
// sort_items against std::stable_sort; how often it compares; what may only be moved.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <reshard/base/sort.hpp>

#include "../support/dice.hpp"

using namespace reshard;

namespace {
struct card {
  std::int64_t key = 0;
  std::size_t dealt = 0;
  friend bool operator==(const card&, const card&) = default;
};
constexpr bool lower(const card& a, const card& b) { return a.key < b.key; }

constexpr bool sorts_at_compile_time() {
  std::vector<int> numbers{3, 1, 2, 2, 5, 4, 0};
  detail::sort_items(numbers, [](int a, int b) { return a < b; });
  return numbers == std::vector<int>{0, 1, 2, 2, 3, 4, 5};
}
static_assert(sorts_at_compile_time());
}  // namespace

TEST_CASE("any list is sorted as std::stable_sort sorts it, equals as they came") {
  testing::dice random;
  for (int round = 0; round < 2000; ++round) {
    std::vector<card> cards(static_cast<std::size_t>(random.within(0, round % 10 == 0 ? 300 : 12)));
    const std::int64_t keys = random.within(1, 20);
    for (std::size_t i = 0; i < cards.size(); ++i) cards[i] = {random.within(0, keys), i};
    std::vector<card> sorted = cards;
    std::stable_sort(sorted.begin(), sorted.end(), lower);
    detail::sort_items(cards, lower);
    REQUIRE(cards == sorted);
  }
}

TEST_CASE("what is in order is compared once and not touched; what descends takes count x ceil(log2(count)) steps") {
  for (const std::size_t count : {0u, 1u, 2u, 64u, 1000u}) {
    std::vector<std::size_t> up(count), down(count);
    for (std::size_t i = 0; i < count; ++i) up[i] = i, down[i] = count - i;
    const std::size_t* const kept = up.data();
    std::size_t compared = 0;
    const auto less = [&](std::size_t a, std::size_t b) { return ++compared, a < b; };
    detail::sort_items(up, less);
    CHECK(up.data() == kept);
    CHECK(compared == (count == 0 ? 0 : count - 1));
    compared = 0;
    detail::sort_items(down, less);
    CHECK(std::is_sorted(down.begin(), down.end()));
    CHECK(compared <= 2 * 10 * count);
  }
}

TEST_CASE("items are moved, not copied") {
  std::vector<std::unique_ptr<int>> boxed;
  for (const int i : {2, 0, 1}) boxed.push_back(std::make_unique<int>(i));
  detail::sort_items(boxed, [](const auto& a, const auto& b) { return *a < *b; });
  for (int i = 0; i < 3; ++i) CHECK(*boxed[static_cast<std::size_t>(i)] == i);
}
