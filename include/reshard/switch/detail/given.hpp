// SPDX-License-Identifier: Apache-2.0
// What one device was given to make a switch, as numbers that are others where it was given something else, and in
// words: the budget, what becomes of sources, the route, states, tensors, layouts, and where ranks sit.
// Builds on: base/digest.hpp, switch/options.hpp, parallelism/parse_degrees.hpp, plan/layout_switch.hpp.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/options.hpp>

namespace reshard::detail {

/// Something that a device was given: a number, never negative, that is another where it was given something else; and
/// words for it.
struct given {
  std::int64_t value = 0;
  std::string text;
};
/// 62 bits of a digest, as a number.
inline std::int64_t number_of(const digest& d) { return static_cast<std::int64_t>(d.value() >> 2); }

inline given given_budget(bytes_t budget) {
  return {budget, budget == no_budget ? "no budget" : text_of("a budget of ", budget, " bytes")};
}
inline given given_sources(sources after_use) {
  return after_use == sources::keep ? given{1, "sources that are kept"} : given{0, "sources that are released"};
}
/// With relay the nodes' NICs and their speeds count too, by which bytes are shared out.
inline given given_routing(const routing& route, const cluster& on) {
  if (route.how == relay::never) return {route.stages, text_of("direct routes in ", route.stages, " stages")};
  digest of;
  of.add(route.chains), of.add(route.stages);
  std::string nics;
  const auto add = [&](const node_kind& kind) {
    of.add(kind.count), of.add(kind.nics), of.add(std::bit_cast<std::int64_t>(kind.nic_GBps));
    nics += text_of(nics.empty() ? "" : ",", kind.nics == 0 ? on.gpus : kind.nics);
  };
  for (const node_kind& kind : on.nodes) add(kind);
  if (on.nodes.empty()) add(on.each);
  return {number_of(of), text_of("relay over ", route.chains, " chains a node in ", route.stages, " stages, nodes of ",
                                 nics, " NICs")};
}
inline given given_states(const state_list& list, const state_set& moving) {
  std::string text;
  for (const int s : moving)
    if (s != statistic_state)
      text += text_of(text.empty() ? "" : ",", s, "=", list[s].name, ":", name(list[s].type), ":", list[s].level);
  digest of;
  for (const char c : text) of.add(c);
  of.add(moving.bits());
  return {number_of(of), "the states " + (text.empty() ? "of statistics alone" : text)};
}

/// A tensor family of a holding, by its number.
template <Holding H>
given given_family(const H& of, int f) {
  const family& tensors = of.family_at(f);
  digest all;
  for (const char c : tensors.name) all.add(c);
  std::string extents;
  for (const index_t extent : tensors.extent) {
    all.add(extent);
    extents += text_of(extents.empty() ? "" : " x ", extent);
  }
  return {number_of(all), text_of("tensor ", f, " as ", tensors.name, " of ", extents)};
}
/// "0-5,7,6": numbers in runs, of which a few are told.
class run_words {
 public:
  void add(rank_t first, index_t count) {
    if (++runs_ > most) return;
    text_ += text_of(runs_ == 1 ? "" : ",", first);
    if (count > 1) text_ += text_of("-", first + count - 1);
  }
  std::string text() const { return runs_ > most ? text_of(text_, " and ", runs_ - most, " runs more") : text_; }

 private:
  static constexpr index_t most = 8;
  index_t runs_ = 0;
  std::string text_;
};

/// Where ranks of both sides sit, of how many devices and nodes of how many, and which are lost or empty.
template <Holding From, Holding To>
given given_placement(const layout_switch<From, To>& change) {
  digest of;
  std::string text;
  for (const device_map* side : {&change.from_devices(), &change.to_devices()}) {
    run_words words;
    side->each_seat_run([&](rank_t rank, rank_t device, index_t count) {
      words.add(device, count);
      of.add(rank), of.add(device), of.add(count);
    });
    of.add(-1);
    text += text_of(text.empty() ? "FROM on devices " : ", TO on ", words.text());
  }
  text += text_of(" of ", change.devices());
  of.add(change.devices()), of.add(change.node_devices()), of.add(static_cast<int>(change.lost_elements()));
  if (change.node_devices() > 0) text += text_of(" in nodes of ", change.node_devices());
  run_words lost;
  for (const interval& gone : change.lost_devices()) {
    lost.add(gone.begin, gone.size());
    of.add(gone.begin), of.add(gone.end);
  }
  if (!change.lost_devices().empty()) text += text_of(", lost ", lost.text());
  run_words empty;
  for (const interval& run : change.empty_devices()) {
    empty.add(run.begin, run.size());
    of.add(-2), of.add(run.begin), of.add(run.end);
  }
  if (!change.empty_devices().empty()) text += text_of(", empty ", empty.text());
  const bool leaves_out = change.lost_elements() == when_lost::leave_out;
  return {number_of(of), text_of(text, leaves_out ? ", what is lost left out" : "")};
}

/// One side: its degrees, or every box of a list with its holders; of a Holding of the caller's own only how many ranks
/// it has.
template <Holding H>
given given_side(const H& h) {
  digest of;
  of.add(h.ranks());
  if (const computed_holding* c = known_as<computed_holding>(h)) {
    const std::string text = to_text(c->space().degrees());
    for (const char letter : text) of.add(letter);
    return {number_of(of), text_of("'", text, "'")};
  }
  const listed_holding* list = known_as<listed_holding>(h);
  if (list == nullptr) return {number_of(of), text_of("a holding of ", h.ranks(), " ranks")};
  index_t boxes = 0;
  for (const role r : roles)
    for (int f = 0; f < h.families(); ++f)
      list->owners(f, r, h.family_at(f).whole(), [&](const family_box& b, const listed_ranks& holders) {
        ++boxes;
        of.add(static_cast<int>(r)), of.add(f), of.add(holders.count());
        for (const interval& i : b.dim) of.add(i.begin), of.add(i.end);
        for (index_t i = 0; i < holders.count(); ++i) of.add(holders[i]);
      });
  return {number_of(of), text_of("a list of ", boxes, " boxes on ", h.ranks(), " ranks, hash ", number_of(of))};
}
template <Holding From, Holding To>
given given_layouts(const layout_switch<From, To>& change) {
  const given from = given_side(change.from()), to = given_side(change.to());
  digest of;
  of.add(from.value), of.add(to.value);
  return {number_of(of), text_of("FROM as ", from.text, " and TO as ", to.text)};
}

}  // namespace reshard::detail
