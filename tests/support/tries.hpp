// SPDX-License-Identifier: Apache-2.0
// How many rounds a test has.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace testing {

/// The number that the environment asks for by this name.
inline long asked_for(const char* name, long otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::atol(given) : otherwise;
}

/// How often to try what is tried n times: n / RESHARD_FEW where that is set, for sanitizers and for what runs programs
/// in thousands; but RESHARD_LEAST times, 20 if not set, or n where that is less. RESHARD_ALL_TRIES, set by whoever
/// starts a test, asks for n whatever a test's own environment says.
inline int tries(int n) {
  if (std::getenv("RESHARD_ALL_TRIES") != nullptr) return n;
  const int few = static_cast<int>(std::max(1l, asked_for("RESHARD_FEW", 1)));
  const int least = static_cast<int>(std::max(1l, asked_for("RESHARD_LEAST", 20)));
  return std::min(n, std::max(least, n / few));
}

/// Whether fewer tries are asked for: then what is costly beside what it can find is made small, too.
inline bool few() { return std::getenv("RESHARD_FEW") != nullptr; }

/// Whether a sanitizer looks on, or something else for which the least of tries was set.
inline bool under_sanitizer() { return asked_for("RESHARD_LEAST", 20) < 20; }

/// These, or every fifth where RESHARD_LEAST is set: under a sanitizer each takes seconds, and all go the same way.
template <typename T, std::size_t n>
std::vector<T> some(const T (&all)[n]) {
  std::vector<T> chosen;
  for (std::size_t i = 0; i < n; i += under_sanitizer() ? 5 : 1) chosen.push_back(all[i]);
  return chosen;
}

}  // namespace testing
