// SPDX-License-Identifier: Apache-2.0
// What a switch with relay moves, as streams with phases, and its seconds for any number of stages: neither tensors nor
// stages are expanded. Slot t has phase p of stage t - p; stage k has the k-th of S equal parts of every stream.
// Builds on: plan/relay.hpp, simulate/slot_traffic.hpp.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/plan/relay.hpp>
#include <reshard/simulate/slot_traffic.hpp>

namespace reshard {

/// Where the source of a stream has its bytes from: before the switch, or in an earlier phase.
enum class had { before, from_another };

/// All of a stream on one hop.
struct relayed_stream {
  sized_stream sized;
  int phase = 0;
  purpose why = purpose::delivered;
  had source = had::before;
  std::uint32_t states = 0;
  std::uint64_t stream = 0;
  bool stays = false;  // of what its source held before: needed there afterwards; known of whole switches

  constexpr auto hop() const { return std::tuple(phase, sized.src, sized.dst); }
  constexpr auto key() const { return std::tuple(phase, sized.src, sized.dst, states, stream); }
};

/// Collects the transfers of a whole switch, and answers for any S.
class relayed_streams {
 public:
  /// Every transfer once, retained ones too.
  void add(const transfer& t) {
    add(t, [] { return false; });
  }
  /// stays() says whether the source's rank of TO needs it.
  template <typename Stays>
  void add(const transfer& t, Stays&& stays) {
    const index_t elements = t.where.volume();
    if (!streams_.empty()) {
      relayed_stream& last = streams_.back();
      if (last.key() == std::tuple(t.phase, t.src, t.dst, t.states.bits(), t.stream)) {
        last.sized.elements += elements;
        return;
      }
    }
    streams_.push_back({{t.src, t.dst, elements, t.states.bytes_per_element()},
                        t.phase,
                        t.why,
                        had::before,
                        t.states.bits(),
                        t.stream,
                        stays()});
    settled_ = false;
  }
  /// What a device receives and retains.
  void add(const plan& p) {
    for (const std::vector<transfer>* list : {&p.receives, &p.retains})
      for (const transfer& t : *list) add(t);
  }

  /// By phase, source, destination; each once.
  const std::vector<relayed_stream>& streams() {
    settle();
    return streams_;
  }
  /// 1 + the highest phase
  index_t phases() {
    settle();
    return streams_.empty() ? 1 : streams_.back().phase + 1;
  }

 private:
  void settle() {
    if (settled_) return;
    settled_ = true;
    std::sort(streams_.begin(), streams_.end(),
              [](const relayed_stream& a, const relayed_stream& b) { return a.key() < b.key(); });
    std::size_t kept = 0;
    for (std::size_t i = 1; i < streams_.size(); ++i) {
      if (streams_[kept].key() == streams_[i].key()) streams_[kept].sized.elements += streams_[i].sized.elements;
      else streams_[++kept] = streams_[i];
    }
    if (!streams_.empty()) streams_.resize(kept + 1);
    mark_sources();
  }
  /// In phase 0 all was there before; in phase 1 what did not come in phase 0; later nothing.
  void mark_sources() {
    std::vector<std::tuple<rank_t, std::uint64_t, std::uint32_t>> came;
    for (const relayed_stream& s : streams_)
      if (s.phase == 0 && s.stream != 0) came.emplace_back(s.sized.dst, s.stream, s.states);
    std::sort(came.begin(), came.end());
    for (relayed_stream& s : streams_)
      if (s.phase > 1 ||
          (s.phase == 1 && std::binary_search(came.begin(), came.end(), std::tuple(s.sized.src, s.stream, s.states))))
        s.source = had::from_another;
  }

  std::vector<relayed_stream> streams_;
  bool settled_ = true;
};

namespace detail {

/// Bytes by port and messages by device of some phases, added and taken away phase by phase.
class slot_window {
 public:
  explicit slot_window(const port_table& on)
      : on_(&on), bytes_(on.ports().size(), 0), sent_(on.seats().size(), 0), received_(sent_) {}

  /// `amount` bytes of a stream; negative: taken away.
  void add(const relayed_stream& s, bytes_t amount) {
    const rank_t src = s.sized.src, dst = s.sized.dst;
    if (s.source == had::before) bytes_[on_->copy_engine(src)] += 2 * amount;
    if (src == dst) return;
    if (s.why == purpose::delivered) bytes_[on_->copy_engine(dst)] += 2 * amount;
    on_->each_port(src, dst, [&](std::size_t p) { bytes_[p] += amount; });
  }
  void add_message(const relayed_stream& s, index_t times) {
    if (s.sized.src == s.sized.dst) return;
    sent_[on_->seat_of(s.sized.src)] += times;
    received_[on_->seat_of(s.sized.dst)] += times;
  }
  /// The most seconds of a port, by its number.
  std::pair<double, std::size_t> busiest() const {
    std::pair<double, std::size_t> most{0, 0};
    for (std::size_t p = 0; p < bytes_.size(); ++p)
      if (bytes_[p] > 0) {
        const double seconds = static_cast<double>(bytes_[p]) / on_->ports()[p].bytes_per_second;
        if (seconds > most.first) most = {seconds, p};
      }
    return most;
  }
  index_t most_messages() const {
    index_t most = 0;
    for (std::size_t d = 0; d < sent_.size(); ++d) most = greatest(most, greatest(sent_[d], received_[d]));
    return most;
  }

 private:
  const port_table* on_;
  std::vector<bytes_t> bytes_;
  std::vector<index_t> sent_, received_;
};

}  // namespace detail

/// Seconds of a switch with relay: the formula of simulate/seconds.hpp over slots 0 .. S + phases - 2.
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

  /// Streams of at least `even_from` elements have 1/S in every stage, the others what they have.
  switch_seconds of_stages(index_t stages) const {
    if (stages < 1) refuse("simulate: ", stages, " stages; there is at least 1");
    switch_seconds sum;
    sum.busiest = busiest_;
    const index_t slots = stages + phases_ - 1;
    sum.slots = on_->slot_seconds() * static_cast<double>(slots);
    const std::vector<std::size_t> short_ones = shorter_than(stages);
    detail::slot_window window(*on_);  // S times what a slot has
    bool changed = true;
    double ports = 0, messages = 0;
    for (index_t t = 0; t < slots; ++t) {
      if (t < phases_) add_phase(window, t, stages, 1), changed = true;
      if (t >= stages) add_phase(window, t - stages, stages, -1), changed = true;
      if (!short_ones.empty()) {
        for (const std::size_t first : short_ones) add_short(window, first, t, stages, 1);
        changed = true;
      }
      if (changed) {
        ports = window.busiest().first / static_cast<double>(stages);
        messages = on_->message_seconds() * static_cast<double>(window.most_messages());
      }
      sum.ports += ports, sum.messages += messages;
      changed = false;
      for (const std::size_t first : short_ones) add_short(window, first, t, stages, -1);
    }
    return sum;
  }
  /// S of 1, 2, 4 .. most with the fewest seconds; of equal ones the smallest. No S takes less than its slots and what
  /// passes the busiest port.
  index_t best_stages(index_t most) const {
    index_t best = 1;
    double least_seconds = of_stages(1).total();
    for (index_t stages = 2; stages <= most; stages *= 2) {
      const double at_least = busiest_.seconds + on_->slot_seconds() * static_cast<double>(stages + phases_ - 1);
      if (at_least > least_seconds) continue;
      if (const double seconds = of_stages(stages).total(); seconds < least_seconds)
        best = stages, least_seconds = seconds;
    }
    return best;
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
  /// What is not, in slot t.
  void add_short(detail::slot_window& window, std::size_t first, index_t t, index_t stages, index_t sign) const {
    const index_t k = t - (*streams_)[first].phase;
    if (k < 0 || k >= stages) return;
    bool always = false, any = false;
    for (std::size_t i = first, past = past_hop(first); i < past; ++i) {
      const relayed_stream& s = (*streams_)[i];
      if (s.sized.elements >= stages) {
        always = true;
        continue;
      }
      const index_t elements = s.sized.in_stage(k, stages);
      if (elements == 0) continue;
      any = true;
      window.add(s, sign * elements * s.sized.width * stages);
    }
    if (any && !always) window.add_message((*streams_)[first], sign);
  }

  const port_table* on_;
  const std::vector<relayed_stream>* streams_;
  index_t phases_;
  std::vector<std::size_t> first_;  // stream of each phase
  busy_port busiest_;
};

/// Slot t of the switch: as traffic_of_slot of simulate/slot_traffic.hpp, every part as it is.
[[nodiscard]] inline slot_traffic traffic_of_slot(const port_table& on, const std::vector<relayed_stream>& streams,
                                                  index_t t, index_t stages) {
  slot_traffic slot{0, std::vector<device_traffic>(on.seats().size())};
  detail::slot_window load(on);
  for (std::size_t first = 0, past = 0; first < streams.size(); first = past) {
    const rank_t src = streams[first].sized.src, dst = streams[first].sized.dst;
    const index_t k = t - streams[first].phase;
    bytes_t bytes = 0;
    for (past = first; past < streams.size() && streams[past].hop() == streams[first].hop(); ++past) {
      if (k < 0 || k >= stages) continue;
      const bytes_t part = streams[past].sized.in_stage(k, stages) * streams[past].sized.width;
      load.add(streams[past], part);
      bytes += part;
    }
    if (bytes == 0 || src == dst) continue;
    load.add_message(streams[first], 1);
    add_traffic(on, slot, src, dst, bytes);
  }
  slot.seconds =
      load.busiest().first + on.message_seconds() * static_cast<double>(load.most_messages()) + on.slot_seconds();
  return slot;
}

}  // namespace reshard
