// SPDX-License-Identifier: Apache-2.0
// The order of a pass: a bijection by every element of small sets and by its inverse in large ones, and the network
// that is told. (job/order_chance.cpp asks whether it looks like chance.)
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <range/v3/algorithm/equal.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/stride.hpp>
#include <range/v3/view/transform.hpp>

#include <reshard/algebra/interval.hpp>
#include <reshard/job/order.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

constexpr index_t most = std::numeric_limits<index_t>::max();

std::vector<index_t> whole_pass(const sample_order& order) {
  std::vector<index_t> elements;
  for (index_t p = 0; p < order.size(); ++p) elements.push_back(order(p));
  return elements;
}

}  // namespace

TEST_CASE("every element once, for every small size; and the inverse") {
  dice random;
  for (index_t size = 1; size <= 300; ++size) {
    const sample_order order(size, random.bits(), random.below(1000));
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (index_t p = 0; p < size; ++p) {
      const index_t element = order(p);
      REQUIRE(0 <= element);
      REQUIRE(element < size);
      CHECK_FALSE(seen[static_cast<std::size_t>(element)]);
      seen[static_cast<std::size_t>(element)] = true;
      CHECK(order.position_of(element) == p);
    }
  }
}

TEST_CASE("sets too large to be gone through: within the set, and back") {
  dice random(1);
  for (int i = 0; i < testing::tries(2000); ++i) {
    const index_t size = i == 0 ? most : i == 1 ? 1'000'000'000'000 : 1 + random.below(most >> random.below(62));
    const sample_order order(size, random.bits(), random.below(most));
    const index_t p = i % 3 == 0 ? size - 1 : random.below(size), element = order(p);
    CHECK(0 <= element);
    CHECK(element < size);
    CHECK(order.position_of(element) == p);
  }
}

TEST_CASE("it is the network that is told: every position of small sets, some of large ones") {
  __extension__ using wide = unsigned __int128;
  const auto told = [](index_t size, std::uint64_t seed, index_t pass, index_t position) {
    const auto n = static_cast<std::uint64_t>(size);
    auto a = static_cast<std::uint64_t>(std::sqrt(static_cast<long double>(size)));
    while (static_cast<wide>(a) * a < n || a % 2 == 1) ++a;
    while (a > 2 && static_cast<wide>(a - 2) * (a - 2) >= n) a -= 2;
    const std::uint64_t b = (n - 1) / a + 1;
    auto at = static_cast<std::uint64_t>(position);
    do {
      std::uint64_t pair[] = {at / b, at % b}, key = mix64(mix64(seed) + static_cast<std::uint64_t>(pass));
      for (int round = 0; round < 24; ++round) {
        key = mix64(key);
        std::uint64_t& changes = pair[round % 2];
        const std::uint64_t below = round % 2 == 0 ? a : b, mixed = mix64(pair[1 - round % 2] ^ key);
        changes =
            static_cast<std::uint64_t>((static_cast<wide>(changes) + (static_cast<wide>(mixed) * below >> 64)) % below);
      }
      at = pair[0] * b + pair[1];
    } while (at >= n);
    return static_cast<index_t>(at);
  };
  dice random(2);
  for (index_t size = 1; size <= 120; ++size) {
    const std::uint64_t seed = random.bits();
    const index_t pass = random.below(1000);
    index_t wrong = 0;
    for (index_t p = 0; p < size; ++p) wrong += sample_order(size, seed, pass)(p) == told(size, seed, pass, p) ? 0 : 1;
    CAPTURE(size);
    CHECK(wrong == 0);
  }
  for (index_t root = 1; root <= index_t{3'037'000'499}; root = root * 3 + 1)
    for (const index_t size : {root * root, root * root + 1, greatest(1, root * root - 1), root * root + root}) {
      const index_t p = random.below(size);
      CHECK(sample_order(size, 1, 2)(p) == told(size, 1, 2, p));
      CHECK(sample_order(size, 1, 2)(size - 1) == told(size, 1, 2, size - 1));
    }
  CHECK(sample_order(most, 1, most)(5) == told(most, 1, most, 5));
}

TEST_CASE("a root rounded up, and a number below another made of 64 bits") {
  std::uint64_t root = 1;
  for (std::uint64_t x = 1; x <= 10'000; ++x) {
    while (root * root < x) ++root;
    CHECK(detail::root_above(x) == root);
  }
  for (const std::uint64_t r : {std::uint64_t{65'536}, std::uint64_t{1} << 31, std::uint64_t{3'037'000'499}}) {
    CHECK(detail::root_above(r * r - 1) == r);
    CHECK(detail::root_above(r * r) == r);
    CHECK(detail::root_above(r * r + 1) == r + 1);
  }
  CHECK(detail::root_above(static_cast<std::uint64_t>(most)) == 3'037'000'500);
  constexpr std::uint64_t all = ~std::uint64_t{0}, half = std::uint64_t{1} << 63;
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{7}, half, all}) {
    CHECK(detail::below(n, 0) == 0);
    CHECK(detail::below(n, all) == n - 1);
    CHECK(detail::below(n, half) == n / 2);
  }
  CHECK(detail::below(3, all / 3) == 0);
  CHECK(detail::below(3, all / 3 + 1) == 1);
}

TEST_CASE("the same on every machine") {
  const sample_order order(10, 20261121, 3);
  CHECK(whole_pass(order) == std::vector<index_t>{3, 6, 4, 9, 2, 0, 8, 5, 7, 1});
  CHECK(sample_order(1'000'000'000'000, 5, 2)(17) == 551492389527);
  CHECK(sample_order(most, ~std::uint64_t{0}, most)(most - 1) == 3370502097842684146);
}

TEST_CASE("positions of all passes: each pass has an order of its own") {
  const sample_set set{11, 9};
  for (index_t pass = 0; pass < 20; ++pass) {
    const sample_order order(11, 9, pass);
    for (index_t p = 0; p < 11; ++p) {
      CHECK(set.element(pass * 11 + p) == order(p));
      CHECK(set.pass_of(pass * 11 + p) == pass);
    }
  }
  CHECK(whole_pass(sample_order(11, 9, 0)) != whole_pass(sample_order(11, 9, 1)));
  CHECK(whole_pass(sample_order(11, 9, 0)) != whole_pass(sample_order(11, 10, 0)));
}

TEST_CASE("a rank's samples as a view: nothing is stored, and what is not looked at is not computed") {
  const sample_set set{1'000'000'000'000, 3};
  const interval share{999'999'999'998, 1'000'000'000'004};  // across the end of a pass
  const auto samples =
      ranges::views::iota(share.begin, share.end) | ranges::views::transform([&](index_t p) { return set.element(p); });
  const std::vector<index_t> wanted = {set.element(999'999'999'998), set.element(1'000'000'000'000),
                                       set.element(1'000'000'000'002)};
  CHECK(ranges::equal(samples | ranges::views::stride(2), wanted));
}

TEST_CASE("what is refused") {
  CHECK_REFUSED(sample_order(0, 1, 0), "order: a set of 0 elements; it has at least 1");
  CHECK_REFUSED(sample_order(5, 1, -1), "order: pass -1; passes count from 0");
  CHECK_REFUSED(sample_order(5, 1, 0)(5), "order: there is no position 5; they are 0 to 4");
  CHECK_REFUSED(sample_order(5, 1, 0)(-1), "order: there is no position -1; they are 0 to 4");
  CHECK_REFUSED(sample_order(5, 1, 0).position_of(5), "order: there is no element 5; they are 0 to 4");
  CHECK_REFUSED(sample_order(5, 1, 0).position_of(-1), "order: there is no element -1; they are 0 to 4");
  CHECK_REFUSED(sample_order(-1, 1, 0), "order: a set of -1 elements; it has at least 1");
  CHECK_REFUSED((sample_set{-3, 1}.pass_of(0)), "order: position 0 of passes over -3 elements");
  CHECK(sample_set{}.element(3) == 0);
  CHECK(sample_set{}.pass_of(3) == 3);
  CHECK_REFUSED(sample_set{}.element(-1),
                "order: position -1 of passes over 1 elements; both are told from 0, and a set is not empty");
  CHECK_REFUSED((sample_set{0, 1}.element(1)), "order: position 1 of passes over 0 elements");
  CHECK_REFUSED((sample_set{0, 1}.pass_of(5)), "order: position 5 of passes over 0 elements");
}
