// SPDX-License-Identifier: Apache-2.0
// A switch with relay, element by element, as its staged plans say it: nothing arrives twice, is sent before it
// arrived, or passes a device that takes no part; every hop of an element has its stage.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <reshard/plan/relay.hpp>
#include <reshard/schedule/staged_plan.hpp>

namespace testing {

struct relayed_counts {
  reshard::index_t phases = 1, passed = 0, into_nodes = 0, least_into_nodes = 0, delivered = 0, across_rails = 0;
  reshard::index_t faults = 0;  // things that must not be
};

template <reshard::Holding From, reshard::Holding To>
class relayed_elements {
 public:
  relayed_elements(const reshard::layout_switch<From, To>& change, const reshard::routing& how)
      : change_(change), how_(how) {
    using namespace reshard;
    for (rank_t d = 0; d < change.devices(); ++d) plans_.push_back(make_plan(change, d, how));
    place_ = 0;
    for (const role r : roles)
      for (int f = 0; f < change.to().families(); ++f) {
        first_[{static_cast<int>(r), f}] = place_;
        place_ += change.to().family_at(f).whole().volume();
      }
    arrived_.assign(static_cast<std::size_t>(change.devices()), std::vector<element>(static_cast<std::size_t>(place_)));
  }

  relayed_counts replay() {
    using namespace reshard;
    both_ends();
    mark(change_.from(), change_.from_devices(), [](element& e) { e.held = true; });
    mark(change_.to(), change_.to_devices(), [](element& e) { e.needed = true; });
    std::vector<staged_piece> pieces;
    for (const plan& p : plans_) {
      const staged_plan cut = stage_plan(p, change_, how_.stages);
      pieces.insert(pieces.end(), cut.receives.begin(), cut.receives.end());
      sent_alike(p, cut);
    }
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const staged_piece& a, const staged_piece& b) { return a.slot() < b.slot(); });
    for (const staged_piece& p : pieces) receive(p);
    for (const staged_piece& p : pieces) send(p);
    for (rank_t d = 0; d < change_.devices(); ++d)
      for (const element& e : arrived_[static_cast<std::size_t>(d)]) {
        if (e.needed && !e.held && e.slot < 0) ++counts_.faults;                  // lacking
        if (e.slot >= 0 && !e.needed && e.last_sent <= e.slot) ++counts_.faults;  // passed on to nobody
      }
    count_nodes();
    return counts_;
  }

 private:
  struct element {
    bool held = false, needed = false;
    reshard::index_t slot = -1, stage = -1, last_sent = -1;
  };
  template <typename Visit>
  void each_place(const reshard::state_set& states, int f, const reshard::family_box& b, Visit&& visit) {
    using namespace reshard;
    const role r = states.role_of(*states.begin());
    const family& tensors = change_.to().family_at(f);
    const index_t first = first_.at({static_cast<int>(r), f});
    index_t c[5];
    for (c[0] = b.dim[0].begin; c[0] < b.dim[0].end; ++c[0])
      for (c[1] = b.dim[1].begin; c[1] < b.dim[1].end; ++c[1])
        for (c[2] = b.dim[2].begin; c[2] < b.dim[2].end; ++c[2])
          for (c[3] = b.dim[3].begin; c[3] < b.dim[3].end; ++c[3])
            for (c[4] = b.dim[4].begin; c[4] < b.dim[4].end; ++c[4]) {
              index_t at = 0;
              for (int i = 0; i < 5; ++i) at = at * tensors.extent[i] + c[i];
              visit(static_cast<std::size_t>(first + at));
            }
  }
  template <typename H, typename Set>
  void mark(const H& h, const reshard::device_map& seats, Set&& set) {
    using namespace reshard;
    for (rank_t d = 0; d < change_.devices(); ++d)
      for (const role r : roles) {
        const state_set states = change_.states().of(r);
        if (states.empty() || seats.rank_of(d) < 0 || !has_role(change_.to(), r)) continue;
        each_held(h, seats.rank_of(d), r, [&](int f, const family_box& b) {
          each_place(states, f, b, [&](std::size_t at) { set(arrived_[static_cast<std::size_t>(d)][at]); });
        });
      }
  }
  void both_ends() {
    using namespace reshard;
    for (const plan& a : plans_)
      for (const plan& b : plans_) {
        std::vector<transfer> sent, received;
        for (const transfer& t : a.sends)
          if (t.dst == b.device) sent.push_back(t);
        for (const transfer& t : b.receives)
          if (t.src == a.device) received.push_back(t);
        if (sent != received) ++counts_.faults;
      }
    std::vector<transfer> whole, parts;
    if (how_.how == relay::always) each_relayed(change_, how_.chains, [&](const transfer& t) { whole.push_back(t); });
    for (const plan& p : plans_) {
      parts.insert(parts.end(), p.receives.begin(), p.receives.end());
      if (!std::is_sorted(p.sends.begin(), p.sends.end(), [](const auto& x, const auto& y) { return precedes(x, y); }))
        ++counts_.faults;
    }
    const auto by_order = [](const transfer& x, const transfer& y) { return precedes(x, y); };
    std::sort(whole.begin(), whole.end(), by_order), std::sort(parts.begin(), parts.end(), by_order);
    if (how_.how == relay::always && whole != parts) ++counts_.faults;
  }
  void sent_alike(const reshard::plan& p, const reshard::staged_plan& cut) {
    using namespace reshard;
    for (const staged_piece& s : cut.sends) sent_[p.device].push_back(s);
  }
  void receive(const reshard::staged_piece& p) {
    using namespace reshard;
    counts_.phases = std::max<index_t>(counts_.phases, p.phase + 1);
    if (change_.from_rank(p.dst) < 0 && change_.to_rank(p.dst) < 0) ++counts_.faults;
    const bool between = change_.node_devices() != 0 && !change_.on().one_node(p.src, p.dst);
    each_place(p.states, p.tensor.family, family_box_of(p.tensor, p.where), [&](std::size_t at) {
      element& e = arrived_[static_cast<std::size_t>(p.dst)][at];
      if (e.held || e.slot >= 0) ++counts_.faults;  // twice
      if (e.needed != (p.why == purpose::delivered)) ++counts_.faults;
      e.slot = p.slot(), e.stage = p.stage;
      counts_.passed += p.why == purpose::passed_on ? 1 : 0;
      counts_.delivered += p.why == purpose::delivered ? 1 : 0;
      counts_.into_nodes += between ? 1 : 0;
      counts_.across_rails += between && change_.on().crosses_rails(p.src, p.dst) ? 1 : 0;
      if (between) ++entered_[{p.dst / change_.node_devices(), at}];
    });
  }
  void send(const reshard::staged_piece& p) {
    each_place(p.states, p.tensor.family, family_box_of(p.tensor, p.where), [&](std::size_t at) {
      element& e = arrived_[static_cast<std::size_t>(p.src)][at];
      if (e.held) return;
      if (e.slot < 0 || e.slot >= p.slot() || e.stage != p.stage) ++counts_.faults;
      e.last_sent = std::max(e.last_sent, p.slot());
    });
  }
  /// Bytes enter a node once, and only one that lacks and needs them.
  void count_nodes() {
    using namespace reshard;
    const index_t gpus = change_.node_devices();
    if (gpus == 0) return;
    for (index_t y = 0; y * gpus < change_.devices(); ++y)
      for (std::size_t at = 0; at < static_cast<std::size_t>(place_); ++at) {
        bool held = false, needed = false;
        for (rank_t d = y * gpus; d < std::min((y + 1) * gpus, change_.devices()); ++d) {
          held = held || arrived_[static_cast<std::size_t>(d)][at].held;
          needed = needed || arrived_[static_cast<std::size_t>(d)][at].needed;
        }
        const bool shall = needed && !held;
        counts_.least_into_nodes += shall ? 1 : 0;
        const auto found = entered_.find({y, at});
        if (how_.how == relay::always && (found == entered_.end() ? 0 : found->second) != (shall ? 1 : 0))
          ++counts_.faults;
      }
  }

  const reshard::layout_switch<From, To>& change_;
  reshard::routing how_;
  std::vector<reshard::plan> plans_;
  std::map<std::pair<int, int>, reshard::index_t> first_;
  reshard::index_t place_ = 0;
  std::vector<std::vector<element>> arrived_;
  std::map<reshard::rank_t, std::vector<reshard::staged_piece>> sent_;
  std::map<std::pair<reshard::index_t, std::size_t>, int> entered_;
  relayed_counts counts_;
};

}  // namespace testing
