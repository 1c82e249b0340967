// SPDX-License-Identifier: Apache-2.0
// The factor of the learning rate against the contract's formula in fractions of this test's own, its laws, and the
// paper's formula as printed beside it.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <reshard/job/rate.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

constexpr index_t most = std::numeric_limits<index_t>::max();

/// A quotient of 128 bits, reduced.
__extension__ using wide = __int128;
__extension__ using unsigned_wide = unsigned __int128;
struct quotient {
  wide n = 0, d = 1;
};
quotient reduced(wide n, wide d) {
  wide a = n, b = d;
  while (b != 0) a = std::exchange(b, a % b);
  return {n / a, d / a};
}
std::string text(quotient q) {
  const auto decimal = [](wide n) {
    std::string digits;
    do digits.insert(0, 1, static_cast<char>('0' + static_cast<int>(n % 10)));
    while ((n /= 10) != 0);
    return digits;
  };
  return decimal(q.n) + "/" + decimal(q.d);
}

/// m(t), by going back through the changes: m(t) = m0 + (m1 - m0) min(1, (t - T0) / T), m0 of the changes before.
quotient wanted(const std::vector<rate_change>& changes, std::size_t count, index_t base, index_t t) {
  while (count > 0 && changes[count - 1].at > t) --count;
  if (count == 0) return {1, 1};
  const rate_change& last = changes[count - 1];
  const quotient m1 = reduced(last.batch, base);
  if (last.ramp == 0 || t >= last.at + last.ramp) return m1;
  const quotient m0 = wanted(changes, count - 1, base, last.at);
  return reduced(m0.n * m1.d * last.ramp + (m1.n * m0.d - m0.n * m1.d) * (t - last.at), m0.d * m1.d * last.ramp);
}

/// floor(2^32 sqrt(batch / base)), for numbers below 2^40.
std::uint64_t root_of_2_64(index_t batch, index_t base) {
  std::uint64_t root = 0;
  for (std::uint64_t more = std::uint64_t{1} << 52; more > 0; more /= 2) {
    const std::uint64_t larger = root + more;
    if (static_cast<unsigned_wide>(larger) * larger <=
        (static_cast<unsigned_wide>(batch) << 64) / static_cast<unsigned_wide>(base))
      root = larger;
  }
  return root;
}

/// Elan's Algorithm 1, lines 18 to 31, as printed: t, T0 and T are numbers of iterations.
double printed_rate(double lr0, double k, index_t big_t, index_t t0, index_t t) {
  const double lr_t = lr0 * k;
  if (t < big_t) return lr0 + static_cast<double>(t - t0) / static_cast<double>(big_t) * (lr_t - lr0);
  return lr_t;
}

}  // namespace

TEST_CASE("all N, N' <= 32 and batches up to 512: linear is the batches' ratio, a root squared is") {
  for (index_t base = 1; base <= 512; base += base < 9 ? 1 : 61)
    for (index_t batch = 1; batch <= 512; ++batch) {
      CHECK(rate_factor(batch, base, rate_power::linear) == fraction(batch, base));
      const fraction root = rate_factor(batch, base, rate_power::root);
      const auto common = std::gcd(batch, base);
      const auto top = static_cast<index_t>(std::lround(std::sqrt(batch / common))),
                 over = static_cast<index_t>(std::lround(std::sqrt(base / common)));
      if (top * top * common == batch && over * over * common == base) CHECK(root == fraction(top, over));
      else CHECK(root == fraction::of_parts(root_of_2_64(batch, base), std::uint64_t{1} << 32));
    }
  CHECK(rate_factor(512, 256, rate_power::root).text() == "6074000999/4294967296");
  CHECK(rate_factor(1024, 256, rate_power::root).text() == "2/1");
  CHECK(rate_factor(1, most, rate_power::root).text() == "1/4294967296");
  CHECK(rate_factor(most, 1, rate_power::root).text() == "13043817825332782211/4294967296");
}

TEST_CASE("a whole root, beside every square") {
  CHECK(detail::root_of(0) == 0);
  for (std::uint64_t root = 1; root < 300; ++root)
    for (std::uint64_t x = root * root; x < (root + 1) * (root + 1); ++x) CHECK(detail::root_of(x) == root);
  for (int bit = 8; bit <= 64; ++bit)
    for (const std::uint64_t root :
         {(~std::uint64_t{0} >> (64 - bit)), std::uint64_t{1} << (bit - 1), (std::uint64_t{1} << (bit - 1)) + 3,
          std::uint64_t{0xB504F333F9DE6484} >> (64 - bit)}) {
      const unsigned_wide square = static_cast<unsigned_wide>(root) * root;
      CHECK(detail::root_of(square) == root);
      CHECK(detail::root_of(square - 1) == root - 1);
      CHECK(detail::root_of(square + 2 * static_cast<unsigned_wide>(root)) == root);
    }
}

TEST_CASE("the last change at or before a sample counts, of however many") {
  for (index_t count = 0; count <= 20; ++count) {
    rate_schedule schedule(1);
    for (index_t i = 0; i < count; ++i) schedule.add({10 + 5 * i, 2 + i, 0});
    for (index_t t = 0; t < 10 + 5 * count + 5; ++t)
      CHECK(schedule.factor(t) == (t < 10 || count == 0 ? fraction(1, 1) : fraction(1 + least(count, (t - 5) / 5), 1)));
    for (index_t t = 10 + 5 * count; t >= 0; --t) {
      schedule.undo_to(t);
      CHECK(schedule.factor(most) ==
            (t < 10 || count == 0 ? fraction(1, 1) : fraction(1 + least(count, (t - 5) / 5), 1)));
    }
  }
}

TEST_CASE("random changes, ramps over each other: the formula, at every sample that is asked") {
  dice random;
  const int rounds = testing::tries(200);
  int overlapping = 0, at_once = 0, same_sample = 0;
  for (int i = 0; i < rounds; ++i) {
    const index_t base = random.within(1, 64);
    rate_schedule schedule(base);
    std::vector<rate_change> changes;
    index_t at = random.below(20), over = 0;
    for (index_t n = random.within(1, 4); n > 0; --n) {
      changes.push_back({at, random.within(1, 128), random.below(3) == 0 ? 0 : random.within(1, 60)});
      schedule.add(changes.back());
      overlapping += at < over ? 1 : 0;
      at_once += changes.back().ramp == 0 ? 1 : 0;
      over = at + changes.back().ramp;
      const index_t apart = random.below(40);
      same_sample += apart == 0 ? 1 : 0;
      at += apart;
    }
    for (index_t t = 0; t <= at + 70; ++t)
      CHECK(schedule.factor(t).text() == text(wanted(changes, changes.size(), base, t)));
  }
  CHECK_DRAWN(overlapping * 2 > rounds);
  CHECK_DRAWN(at_once * 3 > rounds);
  CHECK_DRAWN(same_sample * 100 > rounds);
}

TEST_CASE(
    "laws: steps of at most |m1 - m0| / T; after the last ramp the batch alone decides; warm-up is a ramp from 1") {
  dice random(1);
  for (int i = 0; i < testing::tries(40); ++i) {
    const rate_power power = random.coin() ? rate_power::linear : rate_power::root;
    rate_schedule schedule(256, power);
    const index_t batch = random.within(1, 1024);
    index_t at = 0;
    for (index_t n = random.within(1, 12); n > 0; --n, at += random.within(0, 50)) {
      const index_t ramp = random.within(1, 100);
      const double before = schedule.factor(at).value(), target = rate_factor(batch + n - 1, 256, power).value();
      schedule.add({at, batch + n - 1, ramp});
      CHECK(schedule.factor(at).value() == doctest::Approx(before).epsilon(1e-14));  // continuous
      for (index_t t = at; t < at + ramp; ++t)
        CHECK(std::abs(schedule.factor(t + 1).value() - schedule.factor(t).value()) <=
              std::abs(target - before) / static_cast<double>(ramp) * (1 + 1e-9) + 1e-13);
    }
    CHECK(schedule.factor(at + 100) == rate_factor(batch, 256, power));
    CHECK(schedule.factor(most) == rate_factor(batch, 256, power));
  }
  rate_schedule warm(256);
  warm.add({0, 8192, 1000});
  CHECK(warm.factor(0) == fraction(1, 1));
  CHECK(warm.factor(500).text() == "33/2");
  CHECK(warm.factor(1000) == fraction(32, 1));
}

TEST_CASE("undone steps take the changes with them that came after") {
  rate_schedule schedule(4), without(4);
  schedule.add({10, 8, 10});
  without.add({10, 8, 10});
  schedule.add({15, 16, 10});
  schedule.undo_to(14);
  for (index_t t = 0; t < 40; ++t) CHECK(schedule.factor(t) == without.factor(t));
  schedule.add({14, 2, 0});
  CHECK(schedule.factor(14) == fraction(1, 2));
  schedule.undo_to(14);
  CHECK(schedule.factor(14) == fraction(1, 2));
  schedule.undo_to(9);
  CHECK(schedule.factor(30) == fraction(1, 1));
}

TEST_CASE("as printed, a change after iteration T is no ramp but a jump; before, the ramp breaks off") {
  constexpr index_t ramp = 100;
  const auto meant = [](index_t t0, index_t t) {
    rate_schedule schedule(256);
    schedule.add({t0, 512, ramp});
    return schedule.factor(t).value();
  };
  CHECK(printed_rate(1, 2, ramp, 0, 50) == meant(0, 50));  // what begins at 0 is the same
  CHECK(printed_rate(1, 2, ramp, 5000, 5000) == 2);        // t < T is never true: all at once
  CHECK(meant(5000, 5000) == 1);
  CHECK(printed_rate(1, 2, ramp, 60, 99) == doctest::Approx(1.39));  // breaks off at 39 %
  CHECK(printed_rate(1, 2, ramp, 60, 100) == 2);
  CHECK(meant(60, 100) == doctest::Approx(1.4));
  CHECK(meant(60, 160) == 2);
}

TEST_CASE("many ramps over each other stay exact, until they take more bits than are kept") {
  rate_schedule schedule(256);
  for (index_t i = 0; i < 40; ++i) schedule.add({i * 1000, 257 + i * 31 % 97, 1'000'003 + i * 30});
  CHECK(schedule.factor(39'500).text().size() > 400);
  const auto add = [&] {
    for (index_t i = 40; i < 1000; ++i) schedule.add({i * 1000, 257 + i * 31 % 97, 1'000'003 + i * 30});
  };
  CHECK_REFUSED(add(), "fraction: it takes");
}

TEST_CASE("what is refused") {
  rate_schedule schedule(256);
  schedule.add({10, 512, 5});
  CHECK_REFUSED(schedule.add({9, 512, 5}),
                "rate: a change at sample 9 after one at 10; they are told in order, from 0");
  CHECK_REFUSED(schedule.add({11, 512, -1}), "rate: a ramp of -1 samples; it has at least 0");
  CHECK_REFUSED(schedule.add({11, 0, 1}), "rate: a batch of 0 samples beside one of 256; both have at least 1");
  CHECK_REFUSED(schedule.factor(-1), "rate: there is no sample -1; they count from 0");
  CHECK_REFUSED(rate_factor(0, 1, rate_power::root),
                "rate: a batch of 0 samples beside one of 1; both have at least 1");
  CHECK_REFUSED(rate_factor(1, 0, rate_power::root),
                "rate: a batch of 1 samples beside one of 0; both have at least 1");
  CHECK_REFUSED(rate_factor(1, 0, rate_power::linear), "rate: a batch of 1 samples beside one of 0");
  CHECK(rate_factor(1, 1, rate_power::root) == fraction(1, 1));
  CHECK_REFUSED(rate_schedule(0), "rate: a base batch of 0 samples; it has at least 1");
  CHECK_REFUSED(rate_schedule(1).add({-1, 1, 0}), "rate: a change at sample -1 after one at 0");
  CHECK(schedule.factor(most) == fraction(2, 1));
}
