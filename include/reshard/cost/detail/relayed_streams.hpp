// SPDX-License-Identifier: Apache-2.0
// What a switch with relay moves, as streams with phases: every hop, with what it carries of each. Neither tensors nor
// stages are expanded.
// Builds on: base/digest.hpp, plan/relay.hpp, cost/detail/stream.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/cost/detail/stream.hpp>
#include <reshard/plan/relay.hpp>

namespace reshard {

/// Where the source of a stream has its bytes from: before the switch, or in an earlier phase.
enum class had : unsigned char { before, from_another };

/// All of a stream on one hop.
struct relayed_stream {
  sized_stream sized;
  std::uint64_t stream = 0;
  std::uint32_t states = 0;
  int phase = 0;
  purpose why = purpose::delivered;
  had source = had::before;
  bool stays = false;  // of what its source held before: needed there afterwards; known of whole switches

  constexpr auto hop() const { return std::tuple(phase, sized.src, sized.dst); }
  constexpr auto key() const { return std::tuple(phase, sized.src, sized.dst, states, stream); }
};

/// Collects the transfers of a whole switch.
class relayed_streams {
 public:
  /// Every transfer once, retained ones too.
  void add(const transfer& t) {
    add(t, [] { return false; });
  }
  /// stays() says whether the source's rank of TO needs it. It is asked once for hops of a stream that leave one device
  /// one after the other, and not from phase 2 on, where no source held before what it sends.
  template <typename Stays>
  void add(const transfer& t, Stays&& stays) {
    const index_t elements = t.where.volume();
    if (recent_.empty()) recent_.assign(std::size_t{1} << recent_bits, 0);
    std::size_t& recent = recent_[recent_place(t)];
    if (recent < streams_.size())
      if (relayed_stream& same = streams_[recent];
          same.key() == std::tuple(t.phase, t.src, t.dst, t.states.bits(), t.stream)) {
        same.sized.elements += elements;
        return;
      }
    recent = streams_.size();
    bool needed = false;
    if (t.phase <= 1) {
      const relayed_stream* const last = streams_.empty() ? nullptr : &streams_.back();
      const bool follows = last != nullptr && last->phase <= 1 && last->sized.src == t.src &&
                           last->states == t.states.bits() && last->stream == t.stream;
      needed = follows ? last->stays : stays();
    }
    streams_.push_back({{t.src, t.dst, elements, t.states.bytes_per_element()},
                        t.stream,
                        t.states.bits(),
                        t.phase,
                        t.why,
                        had::before,
                        needed});
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
    sort_streams();
    std::size_t kept = 0;
    for (std::size_t i = 1; i < streams_.size(); ++i) {
      if (streams_[kept].key() == streams_[i].key()) streams_[kept].sized.elements += streams_[i].sized.elements;
      else streams_[++kept] = streams_[i];
    }
    if (!streams_.empty()) streams_.resize(kept + 1);
    mark_sources();
  }
  /// By key: into groups of one phase and source, where these are not more than the streams, and then inside of each.
  void sort_streams() {
    std::size_t sources = 0, phases = 0;
    for (const relayed_stream& s : streams_) {
      sources = std::max(sources, static_cast<std::size_t>(s.sized.src) + 1);
      phases = std::max(phases, static_cast<std::size_t>(s.phase) + 1);
    }
    const auto group = [&](const relayed_stream& s) {
      return static_cast<std::size_t>(s.phase) * sources + static_cast<std::size_t>(s.sized.src);
    };
    const auto before = [](const relayed_stream& a, const relayed_stream& b) { return a.key() < b.key(); };
    if (phases * sources > streams_.size()) return std::sort(streams_.begin(), streams_.end(), before);
    std::vector<std::size_t> ends(phases * sources + 1, 0);
    for (const relayed_stream& s : streams_) ++ends[group(s) + 1];
    for (std::size_t g = 1; g < ends.size(); ++g) ends[g] += ends[g - 1];
    std::vector<relayed_stream> grouped(streams_.size());
    for (const relayed_stream& s : streams_) grouped[ends[group(s)]++] = s;
    streams_.swap(grouped);
    const auto at = [&](std::size_t i) { return streams_.begin() + static_cast<std::ptrdiff_t>(i); };
    std::size_t first = 0;
    for (const std::size_t past : ends) {
      std::sort(at(first), at(past), before);
      first = past;
    }
  }
  /// In phase 0 all was there before; in phase 1 what did not come in phase 0; later nothing.
  void mark_sources() {
    std::vector<std::tuple<rank_t, std::uint64_t, std::uint32_t>> came;
    for (const relayed_stream& s : streams_)
      if (s.phase == 0) came.emplace_back(s.sized.dst, s.stream, s.states);
    std::sort(came.begin(), came.end());
    for (relayed_stream& s : streams_)
      if (s.phase > 1 ||
          (s.phase == 1 && std::binary_search(came.begin(), came.end(), std::tuple(s.sized.src, s.stream, s.states))))
        s.source = had::from_another;
  }

  static constexpr int recent_bits = 12;
  static std::size_t recent_place(const transfer& t) {
    const std::uint64_t ends = (static_cast<std::uint64_t>(t.src) << 32) ^ static_cast<std::uint64_t>(t.dst);
    return static_cast<std::size_t>(((t.stream ^ ends * mixing_step) * mixing_step) >> (64 - recent_bits));
  }

  std::vector<relayed_stream> streams_;
  std::vector<std::size_t> recent_;  // where some were put, by what they are
  bool settled_ = true;
};

}  // namespace reshard
