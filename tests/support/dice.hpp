// SPDX-License-Identifier: Apache-2.0
// Random numbers that can be thrown again: every program prints its seed, and RESHARD_SEED replays it; `today` stands
// for the date (UTC), a new seed every day, or for RESHARD_TODAY. The same seed gives the same numbers with every
// standard library.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

namespace testing {

/// The date as digits, 20261121; RESHARD_TODAY where that is set, which stands for another day.
inline std::uint64_t today() {
  if (const char* given = std::getenv("RESHARD_TODAY")) return std::strtoull(given, nullptr, 10);
  using namespace std::chrono;
  const year_month_day date(floor<days>(system_clock::now()));
  return (static_cast<std::uint64_t>(static_cast<int>(date.year())) * 100 + static_cast<unsigned>(date.month())) * 100 +
         static_cast<unsigned>(date.day());
}

inline constexpr std::uint64_t fixed_seed = 20261121;

/// The seed of this run, printed once.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* given = std::getenv("RESHARD_SEED");
    const std::uint64_t chosen = given == nullptr                     ? fixed_seed
                                 : std::string_view(given) == "today" ? today()
                                                                      : std::strtoull(given, nullptr, 10);
    std::printf("RESHARD_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    std::fflush(stdout);  // a crash is to be replayed too
    return chosen;
  }();
  return value;
}

/// How many of n cases to throw: all of them with the fixed seed; half with the day's, which adds to those.
inline int thrown(int n) { return seed() == fixed_seed ? n : n / 2; }

/// What a test counts of its draw: asserted of the fixed seed's, which is the same on every date. No other seed owes
/// it; where it has less, that is said.
#define CHECK_DRAWN(...)                                            \
  do {                                                              \
    if (testing::seed() == testing::fixed_seed) CHECK(__VA_ARGS__); \
    else WARN(__VA_ARGS__);                                         \
  } while (false)

class dice {
 public:
  /// One stream per test case, so that running a single case throws the same numbers.
  explicit dice(std::uint64_t stream = 0) : random_(seed() + stream) {}

  /// 0 <= result < n
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  /// low <= result <= high
  std::int64_t within(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 0; }
  std::uint64_t bits() { return random_(); }

 private:
  std::mt19937_64 random_;
};

}  // namespace testing
