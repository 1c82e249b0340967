// SPDX-License-Identifier: Apache-2.0
// What devices do before a switch touches anything: each does something that may be refused, and all go on or none
// does, with the sentence of the lowest device that refused.
// Builds on: transport/transport.hpp, transport/threads/rendezvous.hpp.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <string>

#include <reshard/base/refusal.hpp>
#include <reshard/base/sink.hpp>
#include <reshard/transport/threads/rendezvous.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard::detail {

/// Steps of one device that all devices make, or none.
template <Transport T>
class agreed_steps {
 protected:
  explicit agreed_steps(T& transport) : transport_(transport) {}

  std::string me() const { return text_of("device ", transport_.device()); }

  /// Does something that may be refused, and agrees on the largest of the numbers that devices have then (`number` is
  /// read after it was done): all go on, or none does.
  std::int64_t max_of_all(const std::int64_t& number, const sink<>& something) {
    std::exception_ptr mine;
    proposal brought{refused};
    try {
      something();
      brought.number = number;
    } catch (const peer_failed&) {
      throw;
    } catch (const std::exception& e) {
      mine = std::current_exception();
      brought.sentence = e.what();
    } catch (...) {
      mine = std::current_exception();
      brought.sentence = "reshard: an exception of no standard kind";
    }
    const agreement all = transport_.agree(brought);
    all_know_ = all.largest == refused;
    if (mine) std::rethrow_exception(mine);
    if (all_know_) throw peer_failed("reshard: " + me() + ": " + refusal_of(all) + "; nothing was touched");
    return all.largest;
  }
  void all_or_none(const sink<>& something) { max_of_all(0, something); }
  /// Refuses what every device has been told to refuse; nothing where there is no sentence.
  void refuse_together(const std::string& sentence) {
    if (sentence.empty()) return;
    all_know_ = true;
    refuse(sentence);
  }

  T& transport_;
  bool all_know_ = false;  // they refused together, and may try again

 private:
  static constexpr std::int64_t refused = std::numeric_limits<std::int64_t>::max();

  static std::string refusal_of(const agreement& all) {
    return text_of("device ", all.refuser, " refused the switch: ", without_prefix(all.sentence));
  }
};

}  // namespace reshard::detail
