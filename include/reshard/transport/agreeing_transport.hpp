// SPDX-License-Identifier: Apache-2.0
// What devices agree by where they have a transport: who takes part, numbers, sentences, texts, and that one can't go
// on. It is all that small state needs of a transport.
// Builds on: transport/meeting.hpp, transport/transport_facts.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <reshard/transport/meeting.hpp>
#include <reshard/transport/transport_facts.hpp>

namespace reshard {

/// For one device's end t of a transport:
///   t.device(), t.devices()  const: which device of how many;
///   t.facts()                const: what it is, as transport_facts;
///   t.agree(proposal)        what all devices propose (transport/meeting.hpp); nobody returns before all have called.
///                            Throws peer_failed where a device failed, left or does something else, peer_missing
///                            where one does not come;
///   t.all_reduce_max(n)      the largest n of all devices; the same way;
///   t.gather(text)           every device's text, in their order; the same way;
///   t.keep_alive()           this device lives, though it works long between two agreements;
///   t.fail(sentence)         this device cannot go on: no device waits for it, and it returns once none reads its
///                            memory.
template <typename T>
concept AgreeingTransport = requires(T& t, const T& asked, const proposal& mine, const std::string& text,
                                     std::int64_t n) {
  { asked.device() } -> std::same_as<rank_t>;
  { asked.devices() } -> std::same_as<rank_t>;
  { asked.facts() } -> std::same_as<transport_facts>;
  { t.agree(mine) } -> std::same_as<agreement>;
  { t.all_reduce_max(n) } -> std::same_as<std::int64_t>;
  { t.gather(text) } -> std::same_as<std::vector<std::string>>;
  { t.keep_alive() } -> std::same_as<void>;
  { t.fail(text) } -> std::same_as<void>;
};

}  // namespace reshard
