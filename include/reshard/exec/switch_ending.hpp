// SPDX-License-Identifier: Apache-2.0
// How a switch ends on one device, as types, what devices that broke off tell one another about it, and over what.
// Builds on: exec/switch_options.hpp, exec/transport.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <reshard/exec/switch_options.hpp>
#include <reshard/exec/transport.hpp>

namespace reshard {

/// The ways in which a switch ends.
namespace ended {

/// The new tensors hold what they shall, on every device.
struct finished {
  switch_report report;
  std::string sentence = {};  // what went wrong after that, here or on another device; else empty
};
/// Nothing was touched.
struct refused {
  std::string sentence;
};
/// Begun and broken off; the sources were kept, and are whole.
struct failed {
  std::string sentence;
  std::vector<rank_t> survivors;
};
/// Begun and broken off, the sources being released. From what stands here, and nothing of its own, each survivor
/// derives who holds what (exec/torn_switch.hpp).
struct torn {
  std::string sentence;
  index_t stages = 1;    // S
  index_t in_place = 0;  // C: stages 0 .. C - 1 are in place on every device; nobody's sources of the others went
  std::vector<rank_t> survivors;
  // u of each device: what it neither sends nor retains went with the sources of stage u - 1. Without a budget there is
  // none, and no source went.
  std::optional<std::vector<index_t>> unread_kept = {};
};
/// This device has everything and its last sources, and so have all who are left; but who decides that all have is not
/// among them, and may have.
struct unknown {
  std::string sentence;
  index_t stages = 1;
  std::vector<rank_t> survivors;
};

}  // namespace ended

/// How a switch ended on one device. While one that lives has refused, failed or torn, none has finished.
using switch_ending = std::variant<ended::finished, ended::refused, ended::failed, ended::torn, ended::unknown>;

/// The sentence of an ending.
[[nodiscard]] inline std::string sentence_of(const switch_ending& ending) {
  return std::visit([](const auto& end) { return end.sentence; }, ending);
}

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
