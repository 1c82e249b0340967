// SPDX-License-Identifier: Apache-2.0
// Relay as a closed form over nodes: a byte enters a node once, by all of its NICs. For every piece, which is the
// intersection of a FROM box and a TO box, with n nodes that hold it and F chains each:
//   phase 0      holders hand segments to the devices of their node that carry them (plan/relay/rails.hpp);
//   phase 1      segment s goes from its carrier on a holder node to its carrier on a needing node: the first F n of
//                these share the holder nodes by plan/detail/source.hpp, nodes in the place of ranks;
//   phase 2 + i  the carriers of node j, i = floor(j / (F n)), pass it to those of the node that lack it, and on to
//                node j + F n.
// What a node holds, does not send, and more of its devices lack than hold is scattered over these in phase 0, and
// exchanged among them in phase 1; else holders send it in phase 0.
// Builds on: plan/relay/hops.hpp, plan/relay/rails.hpp, plan/detail/node_ranks.hpp, plan/relay/routes.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <reshard/plan/detail/node_ranks.hpp>
#include <reshard/plan/relay/hops.hpp>
#include <reshard/plan/relay/rails.hpp>
#include <reshard/plan/relay/routes.hpp>

namespace reshard::detail {

/// Goes through the hops of a switch node by node. `Sources` is FROM, or what lives of it.
template <Holding From, Holding To, Holding Sources>
class relay_router : node_hops {
 public:
  relay_router(const layout_switch<From, To>& change, const Sources& sources, const node_rails& rails, index_t chains,
               const hop_sink& sink)
      : node_hops(sink), change_(&change), from_(&sources), to_(&change.to()), rails_(&rails),
        gpus_(change.node_devices()), routes_(change.from_devices(), change.to_devices(), gpus_, chains) {}

  /// From here on, hops of this node.
  void enter(const wanted_hops& wanted) {
    here_ = node_ranks_of(*change_, wanted.node);
    node_hops::enter(wanted, here_.devices);
    const bool all_hops = wanted.device < 0 && !wanted.from_holders;
    leaving_ = all_hops ? here_.from : ranks_meeting_others(change_->from(), here_.from, *to_, here_.to);
    entering_.clear();
    if (!wanted.from_holders) entering_ = ranks_meeting_others(*to_, here_.to, change_->from(), here_.from);
    own_.clear();
    if (gpus_ == 0 || wanted.device < 0) return;
    const std::vector<index_t>& carriers = rails_->carriers(wanted.node);
    for (index_t s = 0; s < rails_->segments(); ++s)
      if (here_.devices.begin + carriers[static_cast<std::size_t>(s)] == wanted.device) own_.push_back(s);
  }

  /// Boxes of which nothing leaves the node, as the lowest rank here that holds them is not leaving, are asked of the
  /// wanted device alone; all others of the ranks of the node.
  void route(role r, const state_set& states) {
    states_ = states;
    for (const interval& ranks : leaving_)
      for (rank_t rank = ranks.begin; rank < ranks.end; ++rank)
        each_shared(*from_, rank, r, [&](int f, const family_box& source, const Holders auto& holders) {
          if (lowest_among(holders, here_.from) == rank) held(f, r, source, holders);
        });
    for (const interval& ranks : entering_)
      for (rank_t rank = ranks.begin; rank < ranks.end; ++rank)
        each_shared(*to_, rank, r, [&](int f, const family_box& target, const Holders auto& destinations) {
          if (lowest_among(destinations, here_.to) == rank) needed(f, r, target, destinations);
        });
    if (wanted_.device >= 0) staying(r);
  }

 private:
  /// A FROM box that the node holds: what it sends to other nodes, and what its own devices lack.
  template <Holders Having>
  void held(int f, role r, const family_box& source, const Having& holders) {
    find_holding(holders);
    to_->owners(f, r, source, [&](const family_box& target, const Holders auto& destinations) {
      take_up(f, from_->family_at(f), intersect(source, target));
      if (find_lacking(destinations) < destinations.count()) send_parts(holders, destinations);
      else if (!lacking_.empty()) within_node(piece_, mixed_key(holder_key(holders), holder_key(destinations)));
    });
    for (const rank_t device : holding_) holds_[place(device)] = 0;
  }
  template <Holders Having>
  void find_holding(const Having& holders) {
    holding_.clear();
    devices_among(holders, here_.from, change_->from_devices(), holding_);
    for (const rank_t device : holding_) holds_[place(device)] = 1;
  }
  /// Finds the destinations on this node that do not hold the piece; returns how many destinations are here.
  template <Holders Wanting>
  index_t find_lacking(const Wanting& destinations) {
    lacking_.clear();
    devices_among(destinations, here_.to, change_->to_devices(), lacking_);
    const index_t here = static_cast<index_t>(lacking_.size());
    std::erase_if(lacking_, [&](rank_t device) { return holds_[place(device)] != 0; });
    return here;
  }

  /// What the wanted device sends of boxes that do not leave the node, and what it receives of them.
  void staying(role r) {
    const rank_t from = change_->from_rank(wanted_.device), to = change_->to_rank(wanted_.device);
    const auto stays = [&](const Holders auto& holders) {
      const rank_t lowest = lowest_among(holders, here_.from);
      return lowest >= 0 && !covered_by({lowest, lowest + 1}, leaving_);
    };
    if (from >= 0)
      each_shared(*from_, from, r, [&](int f, const family_box& source, const Holders auto& holders) {
        if (stays(holders)) held(f, r, source, holders);
      });
    if (to < 0) return;
    each_shared(*to_, to, r, [&](int f, const family_box& target, const Holders auto& destinations) {
      from_->owners(f, r, target, [&](const family_box& source, const Holders auto& holders) {
        if (!stays(holders) || (from >= 0 && holders.contains(from))) return;
        find_holding(holders);
        find_lacking(destinations);
        take_up(f, from_->family_at(f), intersect(source, target));
        within_node(piece_, mixed_key(holder_key(holders), holder_key(destinations)));
        for (const rank_t device : holding_) holds_[place(device)] = 0;
      });
    });
  }

  /// Part by part: to other nodes by way of the carriers, which hand it to the devices here that lack it as well; or
  /// to these alone.
  template <Holders Having, Holders Wanting>
  void send_parts(const Having& holders, const Wanting& destinations) {
    const node_route& way = routes_.between(holders, destinations);
    const index_t n = way.holders->count(), index = way.holders->index_of(wanted_.node);
    const piece_cut cut = cut_piece(piece_, tensors_, n, way.heads);
    receivers_.clear();  // (q, node)
    destinations_of_holder(index, n, way.heads, cut.parts, [&](index_t k, index_t q) {
      const index_t node = way.needing != nullptr ? (*way.needing)[k] : (*way.all)[k];
      if (way.needing == nullptr && way.holders->contains(node)) return;
      receivers_.emplace_back(q, node);
    });
    std::sort(receivers_.begin(), receivers_.end());
    if (receivers_.empty()) {
      if (!lacking_.empty()) within_node(piece_, way.key);
      return;
    }
    for (const rank_t device : lacking_) needs_[place(device)] = 1;
    std::size_t first = 0;
    for (index_t q = 0; q < cut.parts; ++q) {
      std::size_t past = first;
      while (past < receivers_.size() && receivers_[past].first == q) ++past;
      const std::uint64_t key =
          mixed_key(mixed_key(way.key, static_cast<std::uint64_t>(cut.parts)), static_cast<std::uint64_t>(q));
      if (first < past) send_out(cut.part(piece_, q), key, destinations, first, past);
      else if (!lacking_.empty()) within_node(cut.part(piece_, q), key);
      first = past;
    }
    for (const rank_t device : lacking_) needs_[place(device)] = 0;
  }

  /// One part to some nodes, receivers_[first .. past), and to the devices here that lack it.
  template <Holders Wanting>
  void send_out(const family_box& part, std::uint64_t key, const Wanting& destinations, std::size_t first,
                std::size_t past) {
    const std::vector<index_t>& carriers = rails_->carriers(wanted_.node);
    const int axis = even_axis(part, rails_->segments());
    std::size_t handed = 0;
    for (index_t s = 0; s < rails_->segments(); ++s) {
      const rank_t carrier = here_.devices.begin + carriers[static_cast<std::size_t>(s)];
      const rank_t holder = holds_[place(carrier)] != 0 ? carrier : holding_[handed++ % holding_.size()];
      const bool own = wanted_.device < 0 || wanted_.device == carrier || wanted_.device == holder ||
                       needs_[place(wanted_.device)] != 0;
      if (!own) continue;
      family_box box = part;
      box.dim[axis] = rails_->segment_of(part.dim[axis], s);
      if (box.dim[axis].empty()) continue;
      const std::uint64_t stream = mixed_key(key, static_cast<std::uint64_t>(s)) | 1;
      if (holder != carrier)
        hop(holder, carrier, 0, needs_[place(carrier)] != 0 ? purpose::delivered : purpose::passed_on, stream, box);
      for (std::size_t i = first; i < past; ++i) across(carrier, receivers_[i].second, s, 1, stream, box, destinations);
      for (const rank_t device : lacking_)
        if (device != carrier) hop(carrier, device, 1, purpose::delivered, stream, box);
    }
  }
  /// From a carrier to that of another node.
  template <Holders Wanting>
  void across(rank_t carrier, index_t node, index_t s, index_t phase, std::uint64_t stream, const family_box& box,
              const Wanting& destinations) {
    if (wanted_.device != carrier && !wanted_.from_holders) return;
    const rank_t device = node * gpus_ + rails_->carriers(node)[static_cast<std::size_t>(s)];
    const rank_t rank = change_->to_rank(device);
    hop(carrier, device, phase, rank >= 0 && destinations.contains(rank) ? purpose::delivered : purpose::passed_on,
        stream, box);
  }

  /// A TO box that a device of the node needs: what the node does not hold comes by its NICs.
  template <Holders Wanting>
  void needed(int f, role r, const family_box& target, const Wanting& destinations) {
    bool listed = false;
    from_->owners(f, r, target, [&](const family_box& source, const Holders auto& holders) {
      if (lowest_among(holders, here_.from) >= 0) return;  // the node has it
      if (!listed) {
        listed = true;
        lacking_.clear();
        devices_among(destinations, here_.to, change_->to_devices(), lacking_);
        for (const rank_t device : lacking_) needs_[place(device)] = 1;
      }
      take_up(f, from_->family_at(f), intersect(source, target));
      receive_parts(holders, destinations);
    });
    if (listed)
      for (const rank_t device : lacking_) needs_[place(device)] = 0;
  }

  template <Holders Having, Holders Wanting>
  void receive_parts(const Having& holders, const Wanting& destinations) {
    const node_route& way = routes_.between(holders, destinations);
    const index_t n = way.holders->count();
    const index_t j = way.needing != nullptr ? way.needing->index_of(wanted_.node) : way.all->index_of(wanted_.node);
    const index_t depth = j / way.heads;
    const piece_cut cut = cut_piece(piece_, tensors_, n, way.heads);
    const index_t next =
        way.needing != nullptr && j + way.heads < way.needing->count() ? (*way.needing)[j + way.heads] : index_t{-1};
    for (index_t q = 0; q < cut.parts; ++q) {
      const index_t source =
          depth > 0 ? (*way.needing)[j - way.heads] : (*way.holders)[holder_of_part(j, q, cut.parts, n)];
      const std::uint64_t key =
          mixed_key(mixed_key(way.key, static_cast<std::uint64_t>(cut.parts)), static_cast<std::uint64_t>(q));
      take_in(cut.part(piece_, q), key, source, next, 1 + depth, destinations);
    }
  }

  /// One part from a node, to the devices here that lack it, and on to the next node unless that is -1.
  template <Holders Wanting>
  void take_in(const family_box& part, std::uint64_t key, index_t source, index_t next, index_t phase,
               const Wanting& destinations) {
    const std::vector<index_t>& carriers = rails_->carriers(wanted_.node);
    const std::vector<index_t>& senders = rails_->carriers(source);
    const int axis = even_axis(part, rails_->segments());
    const auto take = [&](index_t s) {
      family_box box = part;
      box.dim[axis] = rails_->segment_of(part.dim[axis], s);
      if (box.dim[axis].empty()) return;
      const rank_t carrier = here_.devices.begin + carriers[static_cast<std::size_t>(s)];
      const std::uint64_t stream = mixed_key(key, static_cast<std::uint64_t>(s)) | 1;
      hop(source * gpus_ + senders[static_cast<std::size_t>(s)], carrier, phase,
          needs_[place(carrier)] != 0 ? purpose::delivered : purpose::passed_on, stream, box);
      if (next >= 0) across(carrier, next, s, phase + 1, stream, box, destinations);
      for (const rank_t device : lacking_)
        if (device != carrier) hop(carrier, device, phase + 1, purpose::delivered, stream, box);
    };
    if (wanted_.device >= 0 && needs_[place(wanted_.device)] == 0) {
      for (const index_t s : own_) take(s);
      return;
    }
    for (index_t s = 0; s < rails_->segments(); ++s) take(s);
  }

  const layout_switch<From, To>* change_;
  const Sources* from_;
  const To* to_;
  const node_rails* rails_;
  index_t gpus_;
  node_routes routes_;
  node_ranks here_;
  std::vector<interval> leaving_, entering_;  // of these, those that can have to do with other nodes
  std::vector<index_t> own_;                  // segments of the wanted device
  std::vector<std::pair<index_t, index_t>> receivers_;
};

}  // namespace reshard::detail
