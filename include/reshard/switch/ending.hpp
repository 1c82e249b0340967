// SPDX-License-Identifier: Apache-2.0
// How a switch ends on one device, as types.
// Builds on: switch/options.hpp.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <reshard/switch/options.hpp>

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
  bool everywhere = false;  // a device refused it, and all know
};
/// Begun and broken off; the sources were kept, and are whole.
struct failed {
  std::string sentence;
  std::vector<rank_t> survivors;
};
/// Begun and broken off, the sources being released. From what stands here, and nothing of its own, each survivor
/// derives who holds what (switch/torn_switch.hpp).
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
  index_t in_place = 0;                                  // C and u as of a torn one, of what the last sources are
  std::optional<std::vector<index_t>> unread_kept = {};  // .. where they were released
};

}  // namespace ended

/// What a survivor of a torn switch says of itself. Whoever was told apart from the others may know of fewer stages
/// that are in place everywhere than they do.
struct torn_share {
  rank_t device = 0;
  index_t in_place = 0;  // C, as it was told: none of its sources of later stages went
  index_t here = 0;      // at least C: so many are in place here, whatever the others have
  // u: what it neither sends nor retains stands where C < u; without, all of its sources stand
  std::optional<index_t> unread_kept = {};

  friend bool operator==(const torn_share&, const torn_share&) = default;
};

/// How a switch ended on one device. While one that lives has refused, failed or torn, none has finished.
using switch_ending = std::variant<ended::finished, ended::refused, ended::failed, ended::torn, ended::unknown>;

/// The sentence of an ending.
[[nodiscard]] inline std::string sentence_of(const switch_ending& ending) {
  return std::visit([](const auto& end) { return end.sentence; }, ending);
}

}  // namespace reshard
