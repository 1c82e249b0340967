// SPDX-License-Identifier: Apache-2.0
// What all devices do or none does: each does something that may be refused, and all go on or none does, with the
// sentence of the lowest device that refused.
// Builds on: base/sink.hpp, transport/meeting.hpp.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <string_view>

#include <reshard/base/refusal.hpp>
#include <reshard/base/sink.hpp>
#include <reshard/transport/meeting.hpp>

namespace reshard::detail {

/// The number that a device brings to an agreement where it refuses; no other does.
inline constexpr std::int64_t refused = std::numeric_limits<std::int64_t>::max();

/// One device of those that make something together, over a transport or a meeting that outlives it.
template <typename T>
struct all_or_none {
  T& transport;
  std::string_view what;   // they make: "the switch"
  std::string_view after;  // a refusal: "; nothing was touched"
  bool all_know = false;   // they refused together, and may try again

  /// Does something that may be refused and says what this device brings to an agreement: all go on, or none does.
  agreement agree(const sink<proposal&>& something) {
    std::exception_ptr mine;
    proposal brought;
    try {
      something(brought);
    } catch (const peer_failed&) {
      throw;
    } catch (...) {
      mine = std::current_exception();
      brought = {refused, 0, sentence_of(mine)};
    }
    const agreement all = transport.agree(brought);
    all_know = all.largest == refused;
    if (mine) std::rethrow_exception(mine);
    if (all_know)
      throw peer_failed(text_of("reshard: device ", transport.device(), ": device ", all.refuser, " refused ", what,
                                ": ", without_prefix(all.sentence), after));
    return all;
  }
  /// Refuses what every device refuses alike.
  template <typename... Parts>
  [[noreturn]] void refuse_together(const Parts&... parts) {
    all_know = true;
    refuse(parts...);
  }
  /// Does something; the other devices are told of what it throws, unless they know, and `first` is done before.
  void tell(const sink<>& something, const sink<>& first = sink<>::of([] {})) {
    try {
      something();
    } catch (...) {
      const std::string sentence = sentence_of(std::current_exception());
      if (all_know) throw;
      first();
      transport.fail(sentence);
      throw;
    }
  }
};

}  // namespace reshard::detail
