// SPDX-License-Identifier: Apache-2.0
// Live bytes of a device over the slots of a switch with relay, from its plan alone: neither tensors nor stages are
// expanded. Every stream has its k-th of S equal parts in stage k on all of its hops, and a device that sends one had
// it before or receives it; so a stream comes and goes as a whole, part by part.
// Builds on: schedule/memory_replay.hpp.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/schedule/memory_replay.hpp>

namespace reshard {

/// Messages of a device's sends or receives in so many stages: distinct (src, dst, stage, phase).
[[nodiscard]] inline index_t relayed_messages(const std::vector<transfer>& list, index_t stages) {
  index_t messages = 0;
  std::vector<std::tuple<std::uint32_t, std::uint64_t, index_t>> streams;
  const auto hop = [&](std::size_t i) { return std::tuple(list[i].src, list[i].dst, list[i].phase); };
  const auto same_hop = [&](std::size_t i, std::size_t j) { return hop(i) == hop(j); };
  detail::each_run(list.size(), same_hop, [&](std::size_t first, std::size_t past) {
    streams.clear();
    for (std::size_t i = first; i < past; ++i)
      streams.emplace_back(list[i].states.bits(), list[i].stream, list[i].where.volume());
    std::sort(streams.begin(), streams.end());
    std::vector<index_t> elements;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const auto& [states, stream, volume] = streams[i];
      if (i > 0 && std::get<0>(streams[i - 1]) == states && std::get<1>(streams[i - 1]) == stream)
        elements.back() += volume;
      else elements.push_back(volume);
    }
    if (*std::max_element(elements.begin(), elements.end()) >= stages) {
      messages += stages;
      return;
    }
    for (index_t k = 0; k < stages; ++k)
      messages += std::any_of(elements.begin(), elements.end(),
                              [&](index_t e) {
                                return even_part({0, e}, k, stages).size() > 0;
                              })
                      ? 1
                      : 0;
  });
  return messages;
}

/// All of a stream that a device receives or sends, as one of its peers has it: the first and the last phase in which
/// it passes, and of one that was there before whether it stays.
struct stream_flow {
  std::uint32_t states = 0;
  std::uint64_t stream = 0;
  index_t elements = 0;
  bytes_t width = 0;
  index_t first = 0, last = 0;
  purpose why = purpose::delivered;
  bool stays = false;

  std::tuple<std::uint32_t, std::uint64_t> key() const { return {states, stream}; }
};

namespace detail {

/// A hop of a stream as the device at one of its ends sees it, and which of a list it is.
struct stream_end {
  rank_t own, peer;
  stream_flow flow;
  std::size_t entry = 0;

  auto key() const { return std::tuple(own, flow.key(), peer); }
};

/// Calls give(the first of its hops, flow) with the flows that hops come to, by device, states and stream: each peer
/// has all of a stream, so the elements are those of the first.
template <typename Give>
void each_flow(std::vector<stream_end> hops, Give&& give) {
  std::sort(hops.begin(), hops.end(), [](const stream_end& a, const stream_end& b) { return a.key() < b.key(); });
  const auto same_flow = [&](std::size_t i, std::size_t j) {
    return hops[i].own == hops[j].own && hops[i].flow.key() == hops[j].flow.key();
  };
  each_run(hops.size(), same_flow, [&](std::size_t first, std::size_t past) {
    const stream_end& one = hops[first];
    stream_flow all = one.flow;
    for (std::size_t i = first + 1; i < past; ++i) {
      const stream_flow& hop = hops[i].flow;
      all.first = least(all.first, hop.first), all.last = greatest(all.last, hop.last);
      if (hops[i].peer == one.peer) all.elements += hop.elements;
    }
    give(one, all);
  });
}

}  // namespace detail

/// What a device holds over time, for any number of stages.
class relayed_memory {
 public:
  /// Follows a device that holds `before` bytes first and whose plan with relay this is.
  relayed_memory(const plan& p, bytes_t before, sources after_use) : before_(before) {
    std::vector<stream_flow> out = flows(p.sends, &transfer::dst, &p.retains);
    set(total_bytes(p.retains), total_bytes(p.creates) + total_bytes(p.lost),
        flows(p.receives, &transfer::src, nullptr), out, after_use);
  }
  /// Follows a device by its flows, each by states and stream, and the bytes that it retains and creates.
  relayed_memory(bytes_t before, bytes_t retained, bytes_t created, std::vector<stream_flow> in,
                 const std::vector<stream_flow>& out, sources after_use)
      : before_(before) {
    set(retained, created, std::move(in), out, after_use);
  }

  /// Bytes that it receives only to pass them on.
  bytes_t passed() const { return passed_; }

  /// Bytes that it neither sends nor retains.
  bytes_t unread() const { return unread_; }

  /// In each slot, arrivals of the slot included; there are S + phases - 1 of the whole switch.
  std::vector<bytes_t> live(index_t stages, index_t slots) const {
    timeline all(held_, slots);
    for (const move& m : moves_) {
      const index_t each = m.elements / stages, rest = m.elements % stages;
      index_t ahead = 0;  // k rest mod S, so that stage k has floor((k + 1) e / S) - floor(k e / S) without dividing
      for (index_t k = 0; k < stages; ++k) {
        ahead += rest;
        const bytes_t bytes = (each + (ahead >= stages ? 1 : 0)) * m.width;
        if (ahead >= stages) ahead -= stages;
        if (m.comes >= 0) all.comes[static_cast<std::size_t>(k + m.comes)] += bytes;
        if (m.goes >= 0) all.goes[static_cast<std::size_t>(k + m.goes)] += bytes;
      }
    }
    return all.live();
  }
  /// The largest of `before`, of what it holds afterwards, and of every slot.
  bytes_t peak(index_t stages, index_t slots, bytes_t after) const {
    return peak_of(live(stages, slots), greatest(before_, after));
  }

 private:
  struct move {
    index_t elements;
    bytes_t width;
    index_t comes, goes;  // phases; -1: it was there, it stays
  };

  void set(bytes_t retained, bytes_t created, std::vector<stream_flow> in, const std::vector<stream_flow>& out,
           sources after_use) {
    for (const stream_flow& came : in) passed_ += came.why == purpose::passed_on ? came.elements * came.width : 0;
    held_ = (after_use == sources::keep ? before_ : retained) + created;
    unread_ = before_ - retained;
    for (const stream_flow& sent : out) {
      const auto came = std::lower_bound(in.begin(), in.end(), sent.key(),
                                         [](const stream_flow& a, const auto& key) { return a.key() < key; });
      if (came != in.end() && came->key() == sent.key()) {
        came->last = sent.last;
        continue;
      }
      if (sent.stays) continue;
      unread_ -= sent.elements * sent.width;
      if (after_use == sources::keep) continue;
      held_ += sent.elements * sent.width;
      moves_.push_back({sent.elements, sent.width, -1, sent.last});
    }
    for (const stream_flow& came : in)
      moves_.push_back({came.elements, came.width, came.first, came.why == purpose::passed_on ? came.last : -1});
  }

  /// By states and stream.
  static std::vector<stream_flow> flows(const std::vector<transfer>& list, rank_t transfer::*peer,
                                        const std::vector<transfer>* retains) {
    std::vector<detail::stream_end> hops;
    for (const transfer& t : list)
      hops.push_back(
          {0,
           t.*peer,
           {t.states.bits(), t.stream, t.where.volume(), t.states.bytes_per_element(), t.phase, t.phase, t.why},
           hops.size()});
    std::vector<stream_flow> found;
    detail::each_flow(std::move(hops), [&](const detail::stream_end& first, stream_flow flow) {
      flow.stays = retains != nullptr && retained(*retains, list[first.entry]);
      found.push_back(flow);
    });
    return found;
  }
  /// A stream is retained as a whole or not at all.
  static bool retained(const std::vector<transfer>& retains, const transfer& t) {
    for (const transfer& kept : retains)
      if (kept.family == t.family && kept.states == t.states && kept.where.contains(t.where)) return true;
    return false;
  }

  bytes_t before_, held_ = 0, passed_ = 0, unread_ = 0;
  std::vector<move> moves_;
};

}  // namespace reshard
