// SPDX-License-Identifier: Apache-2.0
// What devices agree by: numbers, the sentence of the lowest device that refuses, what all have to say, how many stages
// are in place everywhere; and who is gone. Of the two things that a message transport has the one without messages.
// Builds on: base/patience.hpp, base/text.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/patience.hpp>
#include <reshard/base/text.hpp>

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

  friend bool operator==(const agreement&, const agreement&) = default;

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
///   m.device(), m.devices(), m.waits()  const: which device of how many, and how long it waits;
///   m.absent()                          const: the devices that have no end, being gone; ascending;
///   m.agree(proposal)                   what all devices propose; nobody returns before all have called. Throws
///                                       peer_failed where one failed or left, peer_missing where one does not come;
///   m.gather(text)                      every device's text, in their order; the same way;
///   m.confirm(n)                        this device has n stages in place, counted from the world's begin; no waiting;
///   m.confirmed()                       const: how many that is by now;
///   m.in_place(n), m.behind(n)          const: whether every device is known to have n stages in place, and which are
///                                       not; no waiting;
///   m.poll()                            hears and says what there is to hear and say; no waiting;
///   m.require_whole()                   throws peer_failed once a device has failed, left or been given up;
///   m.give_up(sentence)                 this device does not wait on: the others hear why;
///   m.fail(sentence)                    the same, and returns once none reads this device's memory.
template <typename M>
concept Meeting = requires(M& m, const M& asked, const proposal& mine, const std::string& sentence, index_t n) {
  { asked.device() } -> std::same_as<rank_t>;
  { asked.devices() } -> std::same_as<rank_t>;
  { asked.waits() } -> std::same_as<patience>;
  { asked.absent() } -> std::same_as<std::vector<rank_t>>;
  { m.agree(mine) } -> std::same_as<agreement>;
  { m.gather(sentence) } -> std::same_as<std::vector<std::string>>;
  { m.confirm(n) } -> std::same_as<void>;
  { asked.confirmed() } -> std::same_as<index_t>;
  { asked.in_place(n) } -> std::same_as<bool>;
  { asked.behind(n) } -> std::same_as<std::vector<rank_t>>;
  m.poll();
  { m.require_whole() } -> std::same_as<void>;
  { m.give_up(sentence) } -> std::same_as<void>;
  { m.fail(sentence) } -> std::same_as<void>;
};

/// A meeting by which each device hears when another sends no more messages:
///   m.tell_ended(sent)                  this device sends no more, and has sent so many to each;
///   m.ended_after(d)                    const: how many d has sent to this one, once it sends no more; -1 before;
///   m.gone(d)                           const: whether it has left in good order.
template <typename M>
concept EndingMeeting = Meeting<M> && requires(M& m, const M& asked, const std::vector<index_t>& sent, rank_t d) {
  { m.tell_ended(sent) } -> std::same_as<void>;
  { asked.ended_after(d) } -> std::same_as<index_t>;
  { asked.gone(d) } -> std::same_as<bool>;
};

}  // namespace reshard
