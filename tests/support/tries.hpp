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

/// Which part of its tries a test makes, 1 / fewer(): all where nothing is set. RESHARD_ALL_TRIES outdoes RESHARD_FEW,
/// which a test's own environment sets.
inline int fewer() {
  return std::getenv("RESHARD_ALL_TRIES") != nullptr ? 1 : static_cast<int>(std::max(1l, asked_for("RESHARD_FEW", 1)));
}

/// How often to try what is tried n times: n / RESHARD_FEW where that is set, for sanitizers and for what runs programs
/// in thousands; but RESHARD_LEAST times, 20 if not set, or n where that is less.
inline int tries(int n) {
  const int least = static_cast<int>(std::max(1l, asked_for("RESHARD_LEAST", 20)));
  return std::min(n, std::max(least, n / fewer()));
}

/// Whether fewer tries are asked for: then what is costly beside what it can find is made small, too.
inline bool few() { return fewer() > 1; }

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
