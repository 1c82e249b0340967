// SPDX-License-Identifier: Apache-2.0
// What devices agree by: numbers, the sentence of the lowest device that refuses, what all have to say, how many stages
// are in place everywhere; and who is gone. Of the two things that a message transport has the one without messages.
// Builds on: exec/patience.hpp, base/text.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/text.hpp>
#include <reshard/exec/patience.hpp>

namespace reshard {

/// What a device brings to an agreement: a number, an addend, and a sentence where it refuses.
struct proposal {
  std::int64_t number = 0;
  std::uint64_t addend = 0;
  std::string sentence = {};
};

/// What all devices learn: the largest number, the sum of the addends mod 2^64, and the lowest device that refuses.
struct agreement {
  std::int64_t largest = 0;
  std::uint64_t sum = 0;
  rank_t refuser = -1;
  std::string sentence = {};

  /// What it is after one more device's proposal; `first` where that is the first.
  void add(rank_t device, const proposal& p, bool first) {
    if (first) *this = {};
    largest = first || p.number > largest ? p.number : largest;
    sum += p.addend;
    if (!p.sentence.empty() && (refuser < 0 || device < refuser)) refuser = device, sentence = p.sentence;
  }

  /// The largest number, for a device that asks for nothing else: peer_failed with the sentence of one that refuses.
  std::int64_t largest_for(rank_t device) const {
    if (refuser < 0) return largest;
    throw peer_failed(detail::text_of("reshard: device ", device, ": device ", refuser,
                                      " does something else: ", detail::without_prefix(sentence)));
  }
};

/// For one device's end m of a meeting:
///   m.device(), m.devices(), m.waits()  which device of how many, and how long it waits;
///   m.agree(proposal)                   what all devices propose; nobody returns before all have called. Throws
///                                       peer_failed where one failed or left, peer_missing where one does not come;
///   m.gather(text)                      every device's text, in their order; the same way;
///   m.confirm(n)                        this device has n stages in place, counted from the world's begin; no waiting;
///   m.in_place(n)                       whether every device is known to have n stages in place; no waiting;
///   m.behind(n)                         the devices that are not;
///   m.require_whole()                   throws peer_failed once a device has failed, left or been given up;
///   m.give_up(sentence)                 this device does not wait on: the others hear why;
///   m.fail(sentence)                    the same, and returns once none reads this device's memory.
template <typename M>
concept Meeting = requires(M& m, const proposal& mine, const std::string& sentence, index_t n) {
  { m.device() } -> std::same_as<rank_t>;
  { m.devices() } -> std::same_as<rank_t>;
  { m.waits() } -> std::same_as<patience>;
  { m.agree(mine) } -> std::same_as<agreement>;
  { m.gather(sentence) } -> std::same_as<std::vector<std::string>>;
  m.confirm(n);
  { m.in_place(n) } -> std::same_as<bool>;
  { m.behind(n) } -> std::same_as<std::vector<rank_t>>;
  m.require_whole();
  m.give_up(sentence);
  m.fail(sentence);
};

}  // namespace reshard
