// SPDX-License-Identifier: Apache-2.0
// A transfer: a box that goes from one device to another, when and what for, as data; and the order in which both ends
// list their transfers.
// Builds on: model/state.hpp, model/family.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <reshard/model/family.hpp>
#include <reshard/model/state.hpp>

namespace reshard {

/// What a device receives bytes for: its rank of TO holds them, or another device shall have them from it.
enum class purpose : std::uint8_t { delivered, passed_on };

/// The highest phase of a transfer that there can be.
inline constexpr int most_phases = (1 << 15) - 1;

/// A box of one family that goes from device src to device dst, for every state of the set. Without relay all is of
/// phase 0; what is sent in a later phase was held before the switch, or arrived in an earlier phase. On a device all
/// hops of a stream (plan/relay.hpp) carry the same bytes, so that these are cut into stages alike wherever they pass;
/// devices of two nodes may know two streams by one number. 0: all that goes from src to dst without relay.
struct transfer {
  rank_t src = 0;
  rank_t dst = 0;
  state_set states;
  int family = 0;
  family_box where;
  int phase = 0;
  purpose why = purpose::delivered;
  std::uint64_t stream = 0;

  /// volume x the widths of the states
  constexpr bytes_t bytes() const { return checked_multiply(where.volume(), states.bytes_per_element()); }

  friend constexpr bool operator==(const transfer&, const transfer&) = default;
};

/// The order in which both ends list what passes between them: source, destination, phase, states, family, box.
constexpr bool precedes(const transfer& a, const transfer& b) {
  if (a.src != b.src) return a.src < b.src;
  if (a.dst != b.dst) return a.dst < b.dst;
  if (a.phase != b.phase) return a.phase < b.phase;
  if (a.states.bits() != b.states.bits()) return a.states.bits() < b.states.bits();
  if (a.family != b.family) return a.family < b.family;
  return precedes(a.where, b.where);
}

/// Sorts a list of one end's transfers by `precedes`, given the other end of each. Small keys are sorted, as a transfer
/// is too large to be moved log(n) times: by peer, phase, states and family, then inside such a list, whose boxes
/// arrive in order or, from buffers that pack parameters in reverse, as runs that descend.
constexpr void sort_transfers(std::vector<transfer>& transfers, rank_t transfer::*peer) {
  if (std::is_sorted(transfers.begin(), transfers.end(),
                     [](const transfer& a, const transfer& b) { return precedes(a, b); }))
    return;
  struct key {
    rank_t peer;
    std::uint64_t what;  // phase, states, family: 15, 17 and 32 bits
    std::size_t at;
  };
  std::vector<key> keys(transfers.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const transfer& t = transfers[i];
    const std::uint64_t when = static_cast<std::uint64_t>(t.phase) << 49;
    keys[i] = {t.*peer, when | std::uint64_t{t.states.bits()} << 32 | static_cast<std::uint32_t>(t.family), i};
  }
  bool by_box = false;  // or by place
  const auto before = [&](const key& a, const key& b) {
    if (a.peer != b.peer) return a.peer < b.peer;
    if (a.what != b.what) return a.what < b.what;
    return by_box ? precedes(transfers[a.at].where, transfers[b.at].where) : a.at < b.at;
  };
  std::sort(keys.begin(), keys.end(), before);
  by_box = true;
  for (auto first = keys.begin(), past = first; first != keys.end(); first = past) {
    bool ordered = true;
    for (past = first + 1; past != keys.end() && past->peer == first->peer && past->what == first->what; ++past)
      ordered = ordered && !before(*past, *(past - 1));
    if (ordered) continue;
    std::reverse(first, past);
    for (auto run = first, end = first; run != past; run = end) {
      for (end = run + 1; end != past && before(*end, *(end - 1));) ++end;
      std::reverse(run, end);
    }
    if (!std::is_sorted(first, past, before)) std::sort(first, past, before);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {  // along each cycle: transfers[i] <- transfers[keys[i].at]
    if (keys[i].at == i) continue;
    const transfer last = transfers[i];
    std::size_t to = i;
    for (std::size_t from = keys[i].at; from != i; from = keys[to].at) {
      transfers[to] = transfers[from];
      keys[to].at = to;
      to = from;
    }
    transfers[to] = last;
    keys[to].at = to;
  }
}

}  // namespace reshard
