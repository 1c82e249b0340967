// SPDX-License-Identifier: Apache-2.0
// Seconds of a switch with relay for any number of stages, from its streams, and what each of its slots moves. Slot t
// has phase p of stage t - p; stage k has the k-th of S equal parts of every stream.
// Builds on: cost/detail/relayed_streams.hpp, cost/slot_traffic.hpp.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/base/same_seconds.hpp>
#include <reshard/cost/detail/relayed_streams.hpp>
#include <reshard/cost/slot_traffic.hpp>

namespace reshard {

namespace detail {

/// Bytes by port and messages by device of some phases, added and taken away phase by phase.
class slot_window {
 public:
  explicit slot_window(const port_table& on)
      : on_(&on), bytes_(on.ports().size(), 0), sent_(on.seats().size(), 0), received_(sent_) {}

  /// `amount` bytes of a stream; negative: taken away.
  void add(const relayed_stream& s, bytes_t amount) {
    each_engine_and_port(s, [&](std::size_t p, bytes_t times) { bytes_[p] += times * amount; });
  }
  void add_message(const relayed_stream& s, index_t times) {
    if (s.sized.src == s.sized.dst) return;
    sent_[on_->seat_of(s.sized.src)] += times;
    received_[on_->seat_of(s.sized.dst)] += times;
  }
  /// The most seconds of those ports that a stream passes.
  double busiest_of(const relayed_stream& s) const {
    double most = 0;
    each_engine_and_port(s, [&](std::size_t p, bytes_t) { most = std::max(most, seconds(p)); });
    return most;
  }
  index_t most_messages_of(const relayed_stream& s) const {
    return greatest(sent_[on_->seat_of(s.sized.src)], received_[on_->seat_of(s.sized.dst)]);
  }
  /// The most seconds of a port, by its number.
  std::pair<double, std::size_t> busiest() const {
    std::pair<double, std::size_t> most{0, 0};
    for (std::size_t p = 0; p < bytes_.size(); ++p)
      if (const double here = seconds(p); here > most.first) most = {here, p};
    return most;
  }
  index_t most_messages() const {
    index_t most = 0;
    for (std::size_t d = 0; d < sent_.size(); ++d) most = greatest(most, greatest(sent_[d], received_[d]));
    return most;
  }

 private:
  double seconds(std::size_t p) const {
    return bytes_[p] > 0 ? static_cast<double>(bytes_[p]) / on_->ports()[p].bytes_per_second : 0;
  }
  /// Calls sink(port, times) for what passes a port so many times.
  template <typename Sink>
  void each_engine_and_port(const relayed_stream& s, Sink&& sink) const {
    const rank_t src = s.sized.src, dst = s.sized.dst;
    if (s.source == had::before) sink(on_->copy_engine(src), 2);
    if (src == dst) return;
    if (s.why == purpose::delivered) sink(on_->copy_engine(dst), 2);
    on_->each_port(src, dst, [&](std::size_t p) { sink(p, 1); });
  }

  const port_table* on_;
  std::vector<bytes_t> bytes_;
  std::vector<index_t> sent_, received_;
};

}  // namespace detail

/// Seconds of a switch with relay: the formula of cost/detail/switch_seconds.hpp over slots 0 .. S + phases - 2.
class relayed_seconds {
 public:
  relayed_seconds(const port_table& on, relayed_streams& streams)
      : on_(&on), streams_(&streams.streams()), phases_(streams.phases()) {
    std::vector<rank_pair> pairs;
    for (const relayed_stream& s : *streams_) pairs.push_back({s.sized.src, s.sized.dst});
    require_rails_meet(on, pairs);
    first_.assign(static_cast<std::size_t>(phases_) + 1, streams_->size());
    for (std::size_t i = streams_->size(); i-- > 0;) first_[static_cast<std::size_t>((*streams_)[i].phase)] = i;
    for (std::size_t p = static_cast<std::size_t>(phases_); p-- > 0;) first_[p] = std::min(first_[p], first_[p + 1]);
    detail::slot_window whole(on);
    for (const relayed_stream& s : *streams_) whole.add(s, s.sized.bytes());
    const auto [seconds, port] = whole.busiest();
    if (seconds > 0) busiest_ = {on.ports()[port].kind, on.ports()[port].device, seconds};
  }
  index_t phases() const { return phases_; }

  /// Streams of at least S elements have 1/S in every stage, the others what they have. Once that takes more seconds
  /// than `enough` the rest may be left out.
  switch_seconds of_stages(index_t stages, double enough = std::numeric_limits<double>::infinity()) const {
    if (stages < 1) refuse("simulate: ", stages, " stages; there is at least 1");
    switch_seconds sum;
    sum.busiest = busiest_;
    const index_t slots = stages + phases_ - 1;
    sum.slots = on_->slot_seconds() * static_cast<double>(slots);
    const std::vector<std::size_t> short_ones = shorter_than(stages);
    std::vector<passing> now;          // of these, in a slot
    std::vector<std::size_t> alone;    // hops that have no other message in it
    detail::slot_window window(*on_);  // S times what a slot has
    double even_ports = 0;             // of what is even, which a phase alone changes
    index_t even_messages = 0;
    for (index_t t = 0; t < slots && sum.total() <= enough; ++t) {
      if (t < phases_) add_phase(window, t, stages, 1);
      if (t >= stages) add_phase(window, t - stages, stages, -1);
      if (t < phases_ || t >= stages) even_ports = window.busiest().first, even_messages = window.most_messages();
      double ports = even_ports;
      index_t messages = even_messages;
      now.clear(), alone.clear();
      for (const std::size_t first : short_ones)
        if (add_short(first, t - (*streams_)[first].phase, stages, now)) alone.push_back(first);
      const auto add_all = [&](index_t sign) {
        for (const passing& one : now) window.add(*one.stream, sign * one.amount);
        for (const std::size_t first : alone) window.add_message((*streams_)[first], sign);
      };
      add_all(1);
      for (const passing& one : now) {
        ports = std::max(ports, window.busiest_of(*one.stream));
        messages = greatest(messages, window.most_messages_of(*one.stream));
      }
      add_all(-1);
      sum.ports += ports / static_cast<double>(stages);
      sum.messages += on_->message_seconds() * static_cast<double>(messages);
    }
    return sum;
  }
  /// The smallest S of 1, 2, 4 .. most with the fewest seconds, but for rounding.
  index_t best_stages(index_t most) const {
    std::vector<std::pair<index_t, double>> tried{
        {1, of_stages(1).total()}};  // each with fewer seconds, if only by rounding
    for (index_t stages = 2; stages <= most; stages *= 2) {
      const double fewest = tried.back().second;
      if (fewer_seconds(fewest, at_least(stages))) continue;
      if (const double seconds = of_stages(stages, fewest).total(); seconds < fewest)
        tried.emplace_back(stages, seconds);
    }
    const double fewest = tried.back().second;
    return std::find_if(tried.begin(), tried.end(), [&](const auto& one) { return same_seconds(one.second, fewest); })
        ->first;
  }
  /// Messages of all devices in so many stages.
  index_t messages(index_t stages) const {
    index_t all = 0;
    for (std::size_t i = 0; i < streams_->size(); i = past_hop(i)) {
      if ((*streams_)[i].sized.src == (*streams_)[i].sized.dst) continue;
      all += hop_stages(i, stages);
    }
    return all;
  }

 private:
  struct rank_pair {
    rank_t src, dst;
  };
  struct passing {
    const relayed_stream* stream;
    bytes_t amount;  // S times its bytes
  };
  std::size_t past_hop(std::size_t first) const {
    std::size_t past = first + 1;
    while (past < streams_->size() && (*streams_)[past].hop() == (*streams_)[first].hop()) ++past;
    return past;
  }
  bool every_stage(std::size_t first, index_t stages) const {
    for (std::size_t i = first, past = past_hop(first); i < past; ++i)
      if ((*streams_)[i].sized.elements >= stages) return true;
    return false;
  }
  /// In how many stages a hop has a message.
  index_t hop_stages(std::size_t first, index_t stages) const {
    if (every_stage(first, stages)) return stages;
    index_t with = 0;
    for (index_t k = 0; k < stages; ++k) with += any_in(first, k, stages) ? 1 : 0;
    return with;
  }
  bool any_in(std::size_t first, index_t k, index_t stages) const {
    for (std::size_t i = first, past = past_hop(first); i < past; ++i)
      if ((*streams_)[i].sized.in_stage(k, stages) > 0) return true;
    return false;
  }
  /// Hops that have a stream of fewer than S elements, by their first stream.
  std::vector<std::size_t> shorter_than(index_t stages) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < streams_->size(); i = past_hop(i)) {
      bool any = false;
      for (std::size_t k = i, past = past_hop(i); k < past; ++k) any = any || (*streams_)[k].sized.elements < stages;
      if (any) found.push_back(i);
    }
    return found;
  }
  /// What so many stages take at least: their slots, what passes the busiest port, and the messages of the device that
  /// has most in every stage.
  double at_least(index_t stages) const {
    detail::slot_window every(*on_);
    for (std::size_t i = 0; i < streams_->size(); i = past_hop(i))
      if (every_stage(i, stages)) every.add_message((*streams_)[i], 1);
    return busiest_.seconds + on_->slot_seconds() * static_cast<double>(stages + phases_ - 1) +
           on_->message_seconds() * static_cast<double>(stages * every.most_messages());
  }
  /// What is even of a phase: bytes of all stages, in the place of S times those of a slot.
  void add_phase(detail::slot_window& window, index_t phase, index_t stages, index_t sign) const {
    for (std::size_t i = first_[static_cast<std::size_t>(phase)], past = i,
                     end = first_[static_cast<std::size_t>(phase) + 1];
         i < end; i = past) {
      past = past_hop(i);
      bool always = false;
      for (std::size_t k = i; k < past; ++k) {
        const relayed_stream& s = (*streams_)[k];
        if (s.sized.elements < stages) continue;
        always = true;
        window.add(s, sign * s.sized.bytes());
      }
      if (always) window.add_message((*streams_)[i], sign);
    }
  }
  /// Appends what is not, in stage k, of one hop; whether the hop has a message then that it would not have without.
  bool add_short(std::size_t first, index_t k, index_t stages, std::vector<passing>& to) const {
    if (k < 0 || k >= stages) return false;
    const std::size_t before = to.size();
    bool always = false;
    for (std::size_t i = first, past = past_hop(first); i < past; ++i) {
      const relayed_stream& s = (*streams_)[i];
      if (s.sized.elements >= stages) always = true;
      else if (const index_t elements = s.sized.in_stage(k, stages); elements > 0)
        to.push_back({&s, elements * s.sized.width * stages});
    }
    return to.size() > before && !always;
  }

  const port_table* on_;
  const std::vector<relayed_stream>* streams_;
  index_t phases_;
  std::vector<std::size_t> first_;  // stream of each phase
  busy_port busiest_;
};

/// Slot t of the switch: as traffic_of_slot of cost/slot_traffic.hpp, every part as it is.
[[nodiscard]] inline slot_traffic traffic_of_slot(const port_table& on, const std::vector<relayed_stream>& streams,
                                                  index_t t, index_t stages) {
  slot_traffic slot{0, std::vector<device_traffic>(on.seats().size())};
  detail::slot_window load(on);
  const auto same_hop = [&](std::size_t i, std::size_t j) { return streams[i].hop() == streams[j].hop(); };
  detail::each_run(streams.size(), same_hop, [&](std::size_t first, std::size_t past) {
    const rank_t src = streams[first].sized.src, dst = streams[first].sized.dst;
    const index_t k = t - streams[first].phase;
    if (k < 0 || k >= stages) return;
    bytes_t bytes = 0;
    for (std::size_t i = first; i < past; ++i) {
      const bytes_t part = streams[i].sized.in_stage(k, stages) * streams[i].sized.width;
      load.add(streams[i], part);
      bytes += part;
    }
    if (bytes == 0 || src == dst) return;
    load.add_message(streams[first], 1);
    add_traffic(on, slot, src, dst, bytes);
  });
  slot.seconds =
      load.busiest().first + on.message_seconds() * static_cast<double>(load.most_messages()) + on.slot_seconds();
  return slot;
}

}  // namespace reshard
