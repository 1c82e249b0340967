// SPDX-License-Identifier: Apache-2.0
// Seconds of a switch on a cluster, by a formula that anyone can recompute from its transfers. Simulated: nothing is
// measured.
//   seconds = sum over slots of [ max over ports (bytes in the slot / bandwidth)
//             + message_us max over devices max(messages sent, messages received) + stage_us ]
// A direct plan has one phase, so slot k is stage k. The copy engine moves 2 x (bytes out + bytes in + bytes retained).
// Builds on: cost/detail/port_table.hpp, cost/detail/stream.hpp.
#pragma once

#include <limits>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/cost/detail/port_table.hpp>
#include <reshard/cost/detail/stream.hpp>

namespace reshard {

/// A port with what passes it in a switch, in seconds.
struct busy_port {
  port_kind kind = port_kind::nic_out;
  rank_t device = 0;
  double seconds = 0;
};

/// The three sums of the formula, in seconds, and the port with the most over all slots.
struct switch_seconds {
  double ports = 0;
  double messages = 0;
  double slots = 0;
  busy_port busiest;

  constexpr double total() const { return ports + messages + slots; }
};

namespace detail {

/// Bytes by port, and messages by device.
struct slot_load {
  std::vector<double> bytes;
  std::vector<index_t> sent, received;

  constexpr explicit slot_load(const port_table& on)
      : bytes(on.ports().size(), 0), sent(on.seats().size(), 0), received(sent) {}

  constexpr void add_bytes(const port_table& on, const sized_stream& s, double amount) {
    bytes[on.copy_engine(s.src)] += 2 * amount;
    if (s.src == s.dst) return;
    bytes[on.copy_engine(s.dst)] += 2 * amount;
    on.each_port(s.src, s.dst, [&](std::size_t p) { bytes[p] += amount; });
  }
  constexpr void add_message(const port_table& on, const sized_stream& s) {
    ++sent[on.seat_of(s.src)];
    ++received[on.seat_of(s.dst)];
  }
  constexpr busy_port busiest(const port_table& on) const {
    busy_port most;
    for (std::size_t p = 0; p < bytes.size(); ++p)
      if (bytes[p] > 0 && bytes[p] / on.ports()[p].bytes_per_second > most.seconds)
        most = {on.ports()[p].kind, on.ports()[p].device, bytes[p] / on.ports()[p].bytes_per_second};
    return most;
  }
  constexpr index_t most_messages() const {
    index_t most = 0;
    for (std::size_t d = 0; d < sent.size(); ++d) most = greatest(most, greatest(sent[d], received[d]));
    return most;
  }
};

/// Calls give(first, past) for the streams of each two devices, which stand side by side.
template <typename Give>
constexpr void each_pair(const std::vector<sized_stream>& streams, Give&& give) {
  const auto same_pair = [&](std::size_t i, std::size_t j) {
    return streams[i].src == streams[j].src && streams[i].dst == streams[j].dst;
  };
  each_run(streams.size(), same_pair, give);
}

/// The formula, streams of at least `even_from` elements counted as 1/S in every slot, the others as they are.
constexpr switch_seconds sum_slots(const port_table& on, const std::vector<sized_stream>& streams, index_t stages,
                                   index_t even_from) {
  slot_load every(on);                     // what every slot has
  std::vector<sized_stream> uneven;        // the rest, pair by pair
  std::vector<sized_stream> uneven_pairs;  // those of no message in every slot
  const double part = 1 / static_cast<double>(stages);
  each_pair(streams, [&](std::size_t first, std::size_t past) {
    bool always = false;
    for (std::size_t i = first; i < past; ++i) always = always || streams[i].elements >= stages;
    if (always && streams[first].src != streams[first].dst) every.add_message(on, streams[first]);
    for (std::size_t i = first; i < past; ++i) {
      if (streams[i].elements >= even_from)
        every.add_bytes(on, streams[i], static_cast<double>(streams[i].bytes()) * part);
      else uneven.push_back(streams[i]);
      if (!always && streams[i].src != streams[i].dst) uneven_pairs.push_back(streams[i]);
    }
  });
  switch_seconds sum;
  const auto add = [&](const slot_load& slot, double times) {
    sum.ports += times * slot.busiest(on).seconds;
    sum.messages += times * on.message_seconds() * static_cast<double>(slot.most_messages());
  };
  sum.slots = on.slot_seconds() * static_cast<double>(stages);
  if (uneven.empty() && uneven_pairs.empty()) {
    add(every, static_cast<double>(stages));
    return sum;
  }
  for (index_t k = 0; k < stages; ++k) {
    slot_load slot = every;
    for (const sized_stream& s : uneven) slot.add_bytes(on, s, static_cast<double>(s.in_stage(k, stages) * s.width));
    each_pair(uneven_pairs, [&](std::size_t first, std::size_t past) {
      bool any = false;
      for (std::size_t i = first; i < past; ++i) any = any || uneven_pairs[i].in_stage(k, stages) > 0;
      if (any) slot.add_message(on, uneven_pairs[first]);
    });
    add(slot, 1);
  }
  return sum;
}

}  // namespace detail

/// The seconds of streams, those of two devices side by side, in S stages. Refuses what crosses rails that do not meet.
/// A part of a stream differs from 1/S of it by less than an element, so that a slot's bytes differ by less than its
/// streams' widths: where that could be more than 0.02 % of the seconds, every part is counted as it is.
[[nodiscard]] constexpr switch_seconds seconds_of(const port_table& on, const std::vector<sized_stream>& streams,
                                                  index_t stages) {
  require_rails_meet(on, streams);
  if (stages < 1) refuse("simulate: ", stages, " stages; there is at least 1");
  detail::slot_load whole(on), rounding(on);
  for (const sized_stream& s : streams) {
    whole.add_bytes(on, s, static_cast<double>(s.bytes()));
    if (s.elements % stages != 0) rounding.add_bytes(on, s, static_cast<double>(s.width));
  }
  switch_seconds sum = detail::sum_slots(on, streams, stages, stages);
  constexpr double negligible = 2e-4;
  if (static_cast<double>(stages) * rounding.busiest(on).seconds > negligible * sum.total())
    sum = detail::sum_slots(on, streams, stages, std::numeric_limits<index_t>::max());
  sum.busiest = whole.busiest(on);
  return sum;
}

}  // namespace reshard
