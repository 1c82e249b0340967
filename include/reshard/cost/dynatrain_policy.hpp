// SPDX-License-Identifier: Apache-2.0
// What a switch costs by DynaTrain's policy, as we read its section 4.3 and Algorithm 1: every byte comes from the
// lowest device of the destination's node that holds it, else from the lowest of all; one stage, no relay. Simulated.
//   asynchronous:  everything at once, one slot of the formula of cost/detail/switch_seconds.hpp;
//   synchronous:   pairs with bytes for each other meet in XOR order; a meeting begins when both have ended their
//                  earlier ones and lasts message_us + its longer direction over the slowest of its ports;
//   naive:         a message for every tensor of a state: message_us x the larger number of its two directions.
// Builds on: cost/detail/switch_seconds.hpp, cost/switch_bytes.hpp, plan/lost.hpp, plan/node_holders.hpp,
// space/any_holding.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/cost/detail/switch_seconds.hpp>
#include <reshard/cost/switch_bytes.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/plan/node_holders.hpp>
#include <reshard/space/any_holding.hpp>

namespace reshard {

/// What one device sends one other by the policy: bytes, and tensors, counted once per state.
struct baseline_message {
  rank_t src = 0;
  rank_t dst = 0;
  bytes_t bytes = 0;
  index_t tensors = 0;

  friend constexpr bool operator==(const baseline_message&, const baseline_message&) = default;
};

/// All that the policy moves: streams, retained ones among them, and messages; by destination, then source.
struct baseline_plan {
  std::vector<sized_stream> streams;
  std::vector<baseline_message> messages;
};

/// Seconds of the policy's three modes; none where it crosses rails at a node whose NICs do not meet.
struct baseline_seconds {
  std::optional<double> naive, synchronous, asynchronous;
};

namespace detail {

/// Which named tensors of a family a box is of: the number of a piece where those have names, members and experts.
template <Holding H>
std::pair<int, box<2>> tensors_of_box(const H& h, int f, const family_box& b) {
  std::pair<int, box<2>> named{0, {{b.dim[axis_of::layer], b.dim[axis_of::expert]}}};
  if (const computed_holding* c = known_as<computed_holding>(h)) named.first = c->space().piece_of(f, b);
  return named;
}

/// Chooses the source of every piece of one destination, and adds up what comes from each.
template <Holding From, Holding To, Holding Sources>
class baseline_router {
 public:
  baseline_router(const layout_switch<From, To>& change, const Sources& sources)
      : change_(&change), from_(&sources), ascending_(change.from_devices().ascending()) {}

  void add(rank_t device, baseline_plan& result) const {
    struct named_box {
      rank_t src;
      int state_role, family, piece;
      box<2> where;
      auto key() const { return std::tuple(src, state_role, family, piece); }
    };
    std::map<std::pair<rank_t, int>, index_t> elements;  // by source and role
    std::vector<named_box> boxes;
    const rank_t rank = change_->to_rank(device), was = change_->from_rank(device);
    for (const role r : roles) {
      if (change_->states().of(r).empty() || !has_role(change_->to(), r)) continue;
      each_held(change_->to(), rank, r, [&](int f, const family_box& target) {
        from_->owners(f, r, target, [&](const family_box& source, const Holders auto& holders) {
          const family_box piece = intersect(source, target);
          const rank_t src = was >= 0 && holders.contains(was) ? device : nearest(holders, device);
          elements[{src, static_cast<int>(r)}] += piece.volume();
          if (src == device) return;
          const auto [number, where] = tensors_of_box(change_->to(), f, piece);
          boxes.push_back({src, static_cast<int>(r), f, number, where});
        });
      });
    }
    const std::size_t first_message = result.messages.size();
    for (const auto& [from, count] : elements) {
      const bytes_t width = change_->states().of(static_cast<role>(from.second)).bytes_per_element();
      result.streams.push_back({from.first, device, count, width});
      if (from.first == device) continue;
      if (result.messages.empty() || result.messages.back().src != from.first || result.messages.back().dst != device)
        result.messages.push_back({from.first, device, 0, 0});
      result.messages.back().bytes += count * width;
    }
    const auto before = [](const named_box& a, const named_box& b) { return a.key() < b.key(); };
    std::sort(boxes.begin(), boxes.end(), before);
    auto message = result.messages.begin() + static_cast<std::ptrdiff_t>(first_message);
    std::vector<box<2>> where;
    const auto alike = [&](std::size_t i, std::size_t j) { return boxes[i].key() == boxes[j].key(); };
    each_run(boxes.size(), alike, [&](std::size_t first, std::size_t past) {
      where.clear();
      for (std::size_t i = first; i < past; ++i) where.push_back(boxes[i].where);
      while (message->src != boxes[first].src) ++message;
      message->tensors += union_volume(std::span(where)) *
                          std::popcount(change_->states().of(static_cast<role>(boxes[first].state_role)).bits());
    });
  }

 private:
  /// The lowest device that holds, of those on the node; else of all.
  template <Holders All>
  rank_t nearest(const All& holders, rank_t device) const {
    const index_t node = change_->node_devices();
    if (node != 0) {
      const index_t first = device / node * node;
      const node_holders near(holders, change_->from_devices(), {first, first + node});
      if (near.count() > 0) return lowest(near);
    }
    return lowest(holders);
  }
  rank_t lowest(const auto& holders) const {
    rank_t device = change_->from_devices().device_of(holders[0]);
    for (index_t i = 1; !ascending_ && i < holders.count(); ++i)
      device = least(device, change_->from_devices().device_of(holders[i]));
    return device;
  }

  const layout_switch<From, To>* change_;
  const Sources* from_;
  bool ascending_;  // ranks of FROM sit on ascending devices
};

template <Holding From, Holding To, Holding Sources>
baseline_plan baseline_over(const layout_switch<From, To>& change, const Sources& sources) {
  baseline_plan result;
  const baseline_router<From, To, Sources> route(change, sources);
  for (rank_t device = 0; device < change.devices(); ++device)
    if (change.to_rank(device) >= 0) route.add(device, result);
  return result;
}

}  // namespace detail

/// What the policy moves.
template <Holding From, Holding To>
[[nodiscard]] baseline_plan baseline_plan_of(const layout_switch<From, To>& change) {
  if (change.lost_ranks().empty()) return detail::baseline_over(change, change.from());
  return detail::baseline_over(change, living_holding(change.from(), change.lost_ranks()));
}

/// When the last of the meetings ends, one after the other in XOR order over 1 .. bit_ceil(N) - 1, N being one past the
/// highest device that takes part; each lasts what `cost` says of its two directions' messages, plus the longer one's
/// bytes.
template <typename Cost>
[[nodiscard]] double last_meeting_ends(const port_table& on, const std::vector<baseline_message>& messages,
                                       Cost&& cost) {
  struct meeting {
    rank_t a = 0, b = 0;  // a < b
    bytes_t longer = 0;
    index_t tensors = 0;
    rank_t step() const { return a ^ b; }
  };
  std::vector<meeting> meetings;
  for (const baseline_message& m : messages)
    meetings.push_back({least(m.src, m.dst), greatest(m.src, m.dst), m.bytes, m.tensors});
  std::sort(meetings.begin(), meetings.end(),
            [](const meeting& x, const meeting& y) { return std::tuple(x.step(), x.a) < std::tuple(y.step(), y.a); });
  std::vector<double> ended(on.seats().size(), 0);
  double last = 0;
  for (std::size_t i = 0; i < meetings.size(); ++i) {
    meeting m = meetings[i];
    for (; i + 1 < meetings.size() && meetings[i + 1].a == m.a && meetings[i + 1].b == m.b; ++i)
      m.longer = greatest(m.longer, meetings[i + 1].longer), m.tensors = greatest(m.tensors, meetings[i + 1].tensors);
    double slowest = no_limit;
    on.each_port(m.a, m.b, [&](std::size_t p) { slowest = std::min(slowest, on.ports()[p].bytes_per_second); });
    double &a = ended[on.seat_of(m.a)], &b = ended[on.seat_of(m.b)];
    a = b = std::max(a, b) + cost(m.tensors) + static_cast<double>(m.longer) / slowest;
    last = std::max(last, a);
  }
  return last;
}

/// Seconds of the policy in its three modes.
[[nodiscard]] inline baseline_seconds seconds_of(const port_table& on, const baseline_plan& p) {
  for (const baseline_message& m : p.messages)
    if (on.apart(m.src, m.dst)) return {};
  const auto one = [&](index_t) { return on.message_seconds(); };
  const auto each = [&](index_t tensors) { return on.message_seconds() * static_cast<double>(tensors); };
  return {.naive = last_meeting_ends(on, p.messages, each) + on.slot_seconds(),
          .synchronous = last_meeting_ends(on, p.messages, one) + on.slot_seconds(),
          .asynchronous = seconds_of(on, p.streams, 1).total()};
}

}  // namespace reshard
