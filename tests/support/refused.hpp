// SPDX-License-Identifier: Apache-2.0
// What a call is refused with.
#pragma once

#include <string>

#include <reshard/base/refusal.hpp>

namespace testing {

/// The sentence of the refusal that `call()` throws; "accepted" where it throws none.
template <typename Call>
std::string refused(Call&& call) {
  try {
    call();
  } catch (const reshard::refusal& sentence) {
    return sentence.what();
  }
  return "accepted";
}

}  // namespace testing

/// The call is refused with a sentence that contains these words.
#define CHECK_REFUSED(call, words)                                                   \
  do {                                                                               \
    const std::string sentence = testing::refused([&] { static_cast<void>(call); }); \
    CAPTURE(sentence);                                                               \
    CHECK(sentence.find(words) != std::string::npos);                                \
  } while (false)
