// SPDX-License-Identifier: Apache-2.0
// How many rounds a test has.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace testing {

/// How often to try what is tried n times: n / RESHARD_FEW where that is set, for sanitizers and for what runs programs
/// in thousands; but 20 times, or n where that is less.
inline int tries(int n) {
  const char* const few = std::getenv("RESHARD_FEW");
  return few == nullptr ? n : std::min(n, std::max(20, n / std::max(1, std::atoi(few))));
}

/// Whether fewer tries are asked for: then what is costly beside what it can find is made small, too.
inline bool few() { return std::getenv("RESHARD_FEW") != nullptr; }

/// The number that the environment asks for by this name.
inline long asked_for(const char* name, long otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::atol(given) : otherwise;
}

}  // namespace testing
