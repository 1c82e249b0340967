// SPDX-License-Identifier: Apache-2.0
// What devices that broke off tell one another about a switch, and over what.
// Builds on: transport/transport.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <vector>

#include <reshard/transport/transport.hpp>

namespace reshard {

/// What devices that broke off agree on: how many stages some device knows to be in place on all; whether all of them
/// have everything; and who they are, ascending. A device that was given up learns of no survivors. In doubt they are
/// where all have everything, and the device that decides so is not among them.
struct parting {
  index_t in_place = 0;
  bool all_have_all = false;
  std::vector<rank_t> survivors = {};

  bool in_doubt(rank_t decides) const {
    return all_have_all && std::find(survivors.begin(), survivors.end(), decides) == survivors.end();
  }
  /// What it is after one more device's word.
  void add(rank_t device, index_t known, bool has_all) {
    in_place = greatest(in_place, known);
    all_have_all = has_all && (all_have_all || survivors.empty());
    survivors.push_back(device);
  }
};

/// A meeting that some survive where one device is gone:
///   m.part(has_all)          what all who are left know, this one telling whether it has everything; then it is over;
///   m.hub()                  const: the device that decides what is in place everywhere.
template <typename M>
concept SurvivingMeeting = Meeting<M> && requires(M& m, const M& asked, bool has_all) {
  { m.part(has_all) } -> std::same_as<parting>;
  { asked.hub() } -> std::same_as<rank_t>;
};

/// A transport whose devices part with one another's word where one is gone:
///   t.part(slots, moved)     what this device and those who are left know of a switch in so many slots that broke off,
///                            `moved` where it came to its first slot; then it is over;
///   t.decides()              const: the device that decides what is in place everywhere.
template <typename T>
concept PartingTransport = Transport<T> && requires(T& t, const T& asked, index_t slots, bool moved) {
  { t.part(slots, moved) } -> std::same_as<parting>;
  { asked.decides() } -> std::same_as<rank_t>;
};

}  // namespace reshard
