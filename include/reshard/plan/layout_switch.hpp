// SPDX-License-Identifier: Apache-2.0
// A switch: from what to what, where the ranks of both sides sit, and which devices hold nothing of FROM, lost or
// empty. Every question about moving is asked of it.
// Builds on: space/any_holding.hpp, space/holding_of.hpp, plan/cluster.hpp, plan/device_map.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <reshard/base/sort.hpp>
#include <reshard/plan/cluster.hpp>
#include <reshard/plan/device_map.hpp>
#include <reshard/space/any_holding.hpp>
#include <reshard/space/holding_of.hpp>

namespace reshard {

/// What becomes of elements that a rank of TO holds and, of FROM, ranks on lost or empty devices alone: the switch is
/// refused, or made without them.
enum class when_lost { refuse, leave_out };

/// Where the two worlds sit, which states they keep, and what is to move. Defaults: rank r on device r, one node, all
/// states that TO has, of mixed-precision Adam; no device lost or empty.
struct placement {
  device_map from = {};
  device_map to = {};
  cluster on = cluster();                // nodes and their links; by default all devices share one. {}: g++ 12 warns
  std::optional<state_set> states = {};  // none, also written {}: all that TO has
  rank_t devices = 0;                    // at least; there are as many as ranks of both sides need
  state_list list = adam;
  std::vector<rank_t> lost = {};  // devices that are gone: FROM's ranks on them hold nothing
  when_lost lost_elements = when_lost::refuse;
  std::vector<rank_t> empty = {};  // devices that live and hold nothing of FROM that may be used: stale, or just here

  /// The states that are to move; those of the list where none are named.
  constexpr const state_set& wanted() const { return states ? *states : list.all(); }
};

namespace detail {

template <typename From, typename To>
struct two_sides {
  From from;
  To to;
};

/// The type that answers for a layout; that of a space for what is none.
template <typename L>
struct side_of {
  using type = computed_holding;
};
template <Holding H>
struct side_of<H> {
  using type = H;
};
template <ListOfShards L>
struct side_of<L> {
  using type = listed_holding;
};
template <typename L>
using side_of_t = typename side_of<std::remove_cvref_t<L>>::type;

template <typename L>
inline constexpr bool is_layout = Layout<std::remove_cvref_t<L>>;
template <typename L>
inline constexpr bool is_list = ListOfShards<std::remove_cvref_t<L>>;

/// What is made of a space beside a holding has the states of that, where none are named.
template <typename L>
constexpr state_set states_beside(const L& other, const placement& placed) {
  if constexpr (Holding<L>) return placed.states ? *placed.states : other.states();
  else return placed.wanted();
}

template <typename From, typename To, typename A, typename B>
  requires(!is_list<A> && !is_list<B>)
constexpr two_sides<From, To> make_sides(A&& from, B&& to, const placement& placed) {
  const state_set of_from = states_beside(to, placed), of_to = states_beside(from, placed);
  return {holding_of(std::forward<A>(from), of_from), holding_of(std::forward<B>(to), of_to)};
}

/// By which tensors a list beside a layout is read: those of the model, or of the other list.
inline tensor_table table_beside(const space& s) { return tensor_table(s.model()); }
inline tensor_table table_beside(const computed_holding& h) { return table_beside(h.space()); }
inline tensor_table table_beside(const listed_holding& h) { return h.table(); }
inline tensor_table table_beside(const any_holding& h) {
  if (const computed_holding* c = known_as<computed_holding>(h)) return table_beside(*c);
  if (const listed_holding* l = known_as<listed_holding>(h)) return table_beside(*l);
  refuse("switch: a list of shards is beside a holding of ", h.ranks(),
         " ranks that names no tensors; give it as a listed_holding, made with a table");
}
template <typename H>
tensor_table table_beside(const H&) {
  static_assert(
      std::same_as<H, space>,
      "reshard: a list of shards beside a Holding of your own is given as a listed_holding, made with a table");
  return tensor_table{};
}

template <typename From, typename To, typename A, typename B>
  requires(is_list<A> && !is_list<B>)
two_sides<From, To> make_sides(const A& from, B&& to, const placement& placed) {
  return make_sides<From, To>(listed_holding(table_beside(to), from, placed.list), std::forward<B>(to), placed);
}
template <typename From, typename To, typename A, typename B>
  requires(!is_list<A> && is_list<B>)
two_sides<From, To> make_sides(A&& from, const B& to, const placement& placed) {
  listed_holding list(table_beside(from), to, placed.list);
  return make_sides<From, To>(std::forward<A>(from), std::move(list), placed);
}
template <typename From, typename To, typename A, typename B>
  requires(is_list<A>&& is_list<B>)
two_sides<From, To> make_sides(const A& from, const B& to, const placement& placed) {
  const shard_list &a = from, &b = to;
  const tensor_table both{&a.shards(), &b.shards()};
  return make_sides<From, To>(listed_holding(both, a, placed.list), listed_holding(both, b, placed.list), placed);
}

/// Whether the extents of a family along an axis may differ from side to side: the rows of a padded vocabulary, and
/// prediction layers of a kind that one side does not have.
constexpr bool may_differ(const family& a, const family& b, int axis) {
  return (axis == axis_of::row && a.padded == padded_as::vocabulary && b.padded == padded_as::vocabulary) ||
         (axis == axis_of::layer && a.place == home::prediction && b.place == home::prediction);
}

}  // namespace detail

/// A switch between two layouts, each a space, a list of shards or a Holding, named or temporary: it keeps what it is
/// given (of what is named, a copy) and what it makes. Refuses sides of different models, maps of the wrong size,
/// states that a side lacks, lost devices that TO has, and devices that are lost and empty.
template <Holding From, Holding To>
class layout_switch {
 public:
  template <typename A, typename B>
    requires(detail::is_layout<A>&& detail::is_layout<B>)
  constexpr layout_switch(A&& from, B&& to, const placement& placed = {})
      : sides_(detail::make_sides<From, To>(std::forward<A>(from), std::forward<B>(to), placed)),
        from_devices_(placed.from.of_world(sides_.from.ranks())), to_devices_(placed.to.of_world(sides_.to.ranks())),
        on_(placed.on), node_devices_(on_.nodes.empty() || on_.node_count() > 1 ? on_.gpus : 0), list_(placed.list),
        states_(placed.states ? *placed.states : sides_.to.states()),
        devices_(greatest(placed.devices, greatest(from_devices_.devices(), to_devices_.devices()))),
        lost_elements_(placed.lost_elements) {
    require_placed(placed.devices);
    if (!placed.lost.empty() || !placed.empty.empty()) lose(placed);
    require_one_model();
    require_listed();
    require_states(sides_.from.states(), "FROM");
    require_states(sides_.to.states(), "TO");
  }
  template <typename A, typename B>
  layout_switch(A&&, B&&, const placement& = {}) : layout_switch() {
    static_assert(detail::is_layout<A> && detail::is_layout<B>,
                  "reshard: a side of a switch is a space, a list of shards, or a type that models Holding");
  }

  constexpr const From& from() const { return sides_.from; }
  constexpr const To& to() const { return sides_.to; }
  constexpr const device_map& from_devices() const { return from_devices_; }
  constexpr const device_map& to_devices() const { return to_devices_; }

  /// The rank of a side that sits on a device and is there, living and not empty, or -1.
  constexpr rank_t from_rank(rank_t device) const { return from_devices_.rank_of(device); }
  constexpr rank_t to_rank(rank_t device) const { return to_devices_.rank_of(device); }

  constexpr rank_t devices() const { return devices_; }
  constexpr const cluster& on() const { return on_; }
  /// Devices of a node; 0: all share one.
  constexpr index_t node_devices() const { return node_devices_; }
  /// The list that names the states; both sides keep them.
  constexpr const state_list& list() const { return list_; }
  /// The states that move.
  constexpr const state_set& states() const { return states_; }

  /// Ranks of FROM that hold nothing, on lost and on empty devices, as ascending, disjoint intervals.
  constexpr const std::vector<interval>& lost_ranks() const { return lost_ranks_; }
  constexpr const std::vector<interval>& lost_devices() const { return lost_devices_; }
  constexpr when_lost lost_elements() const { return lost_elements_; }
  constexpr bool lost(rank_t device) const { return contains(lost_devices_, device); }
  /// Devices that live and hold nothing of FROM: of them TO's ranks are destinations like any other.
  constexpr const std::vector<interval>& empty_devices() const { return empty_devices_; }
  constexpr bool empty(rank_t device) const { return contains(empty_devices_, device); }

 private:
  layout_switch();
  static constexpr bool contains(const std::vector<interval>& runs, rank_t device) {
    for (const interval& run : runs)
      if (run.contains(device)) return true;
    return false;
  }
  /// Takes FROM's ranks off the devices that hold nothing of it.
  constexpr void lose(const placement& placed) {
    std::vector<rank_t> ranks;
    lost_devices_ = called("lost", placed.lost, ranks), empty_devices_ = called("empty", placed.empty, ranks);
    for (const rank_t device : placed.lost) {
      if (const rank_t rank = to_devices_.rank_of(device); rank >= 0)
        refuse("switch: rank ", rank, " of TO is on device ", device, ", which is lost; TO wants living devices");
      if (empty(device))
        refuse("switch: device ", device, " is called lost and empty; who lives and holds nothing is empty alone");
    }
    detail::sort_items(ranks, [](rank_t a, rank_t b) { return a < b; });
    lost_ranks_ = runs_of(ranks);
    from_devices_ = from_devices_.without(lost_devices_).without(empty_devices_);
  }
  /// Devices that are called so, as intervals; their ranks of FROM are added to others.
  constexpr std::vector<interval> called(std::string_view so, std::vector<rank_t> devices,
                                         std::vector<rank_t>& ranks) const {
    detail::sort_items(devices, [](rank_t a, rank_t b) { return a < b; });
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const rank_t device = devices[i];
      if (device < 0 || device >= devices_)
        refuse("switch: device ", device, " is called ", so, ", but devices are 0 to ", devices_ - 1);
      if (i > 0 && device == devices[i - 1]) refuse("switch: device ", device, " is called ", so, " twice");
      if (const rank_t rank = from_devices_.rank_of(device); rank >= 0) ranks.push_back(rank);
    }
    return runs_of(devices);
  }
  /// Ascending numbers as intervals.
  static constexpr std::vector<interval> runs_of(const std::vector<rank_t>& numbers) {
    std::vector<interval> runs;
    for (const rank_t n : numbers) {
      if (!runs.empty() && runs.back().end == n) ++runs.back().end;
      else runs.push_back({n, n + 1});
    }
    return runs;
  }
  constexpr void require_placed(rank_t at_least) const {
    const rank_t from_ranks = sides_.from.ranks(), to_ranks = sides_.to.ranks();
    if (from_devices_.ranks() != from_ranks)
      refuse("switch: FROM has ", from_ranks, " ranks, but ", from_devices_.ranks(), " devices are listed for it");
    if (to_devices_.ranks() != to_ranks)
      refuse("switch: TO has ", to_ranks, " ranks, but ", to_devices_.ranks(), " devices are listed for it");
    require_cluster(on_, devices_);
    if (at_least < 0)
      refuse("switch: a world of at least ", at_least, " devices; 0 is as many as ranks of both sides need");
  }
  constexpr void require_one_model() const {
    const From& from = sides_.from;
    const To& to = sides_.to;
    if (from.families() != to.families())
      refuse("switch: FROM has ", from.families(), " tensor families and TO ", to.families(),
             "; both sides hold one model");
    for (int f = 0; f < from.families(); ++f) {
      const family &a = from.family_at(f), &b = to.family_at(f);
      if (a.name != b.name) refuse("switch: family ", f, " is ", a.name, " on one side and ", b.name, " on the other");
      for (int i = 0; i < family_ndim; ++i)
        if (a.extent[i] != b.extent[i] && !detail::may_differ(a, b, i))
          refuse("switch: ", a.name, " has extent ", a.extent[i], " along axis ", i, " on one side and ", b.extent[i],
                 " on the other");
    }
  }
  constexpr void require_states(const state_set& has, std::string_view side) const {
    for (const int s : states_ - (states_ & has)) {
      if (!has_role(sides_.to, states_.role_of(s))) continue;
      if (has.contains(s))
        refuse("switch: ", list_[s].name, " shall move with ", states_.width_of(s), " bytes and level ",
               sharding_level(states_.role_of(s)), ", and ", side, " has it with ", has.width_of(s),
               " bytes and level ", sharding_level(has.role_of(s)), "; both sides have the states of one list");
      refuse_lacking(s, has, side);
    }
  }
  [[noreturn]] void refuse_lacking(int s, const state_set& has, std::string_view side) const {
    const std::string names = detail::state_names(list_, " and ", has & list_.all());
    refuse("switch: ", list_[s].name, " shall move, and ", side, " does not have it; of the list it has ",
           names.empty() ? "none" : names);
  }
  constexpr void require_listed() const {
    for (const int s : states_ - (states_ & list_.all()))
      refuse("switch: state ", s, " shall move, of ", states_.width_of(s), " bytes and level ",
             sharding_level(states_.role_of(s)), ", and is none of the switch's list; name the list in the placement");
  }

  detail::two_sides<From, To> sides_;
  device_map from_devices_;
  device_map to_devices_;
  cluster on_;
  index_t node_devices_;
  state_list list_;
  state_set states_;
  rank_t devices_;
  when_lost lost_elements_;
  std::vector<interval> lost_devices_, empty_devices_;
  std::vector<interval> lost_ranks_;
};

template <typename A, typename B>
layout_switch(A&&, B&&, const placement& = {}) -> layout_switch<detail::side_of_t<A>, detail::side_of_t<B>>;

/// Between two spaces.
using computed_switch = layout_switch<computed_holding, computed_holding>;
/// Between sides of any kind: plans, reports and switches over it are compiled once.
using any_switch = layout_switch<any_holding, any_holding>;

}  // namespace reshard
