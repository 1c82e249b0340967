// SPDX-License-Identifier: Apache-2.0
// To which version does a job go on after a death? A step has gradients (collectives that touch no state), one
// collective over all members that yields a scalar, and an update without collectives. So the scalar on one member
// proves the gradients on all, and everybody can follow whoever has it.
// Builds on: elastic/member_name.hpp, base/integer.hpp.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/elastic/member_name.hpp>

namespace reshard {

/// How far a member is on from its version.
enum class update_stage {
  nothing,    // 0: its gradients are not whole
  gradients,  // 1: they are, and are kept until the boundary after their update
  scalar,     // 2: it knows the scalar, or has made some or all of the update
};

/// The version of a member that holds no state: one that was about to come.
inline constexpr index_t holds_nothing = -1;

/// What a member says of its state with its promise: its version, and what it could go on to.
struct standing {
  member_name member = {};
  index_t version = 0;
  update_stage stage = update_stage::nothing;

  friend constexpr bool operator==(const standing&, const standing&) = default;
};

/// The version that all survivors go on from, and what some do before.
struct target_version {
  index_t version = holds_nothing;  // none where `refused` is not empty
  member_list updates = {};         // who makes the update, with the scalar from the record
  member_list empty = {};           // who takes part as a destination only
  std::string refused = {};         // why no target is named, where these standings cannot occur

  friend constexpr bool operator==(const target_version&, const target_version&) = default;
};

namespace detail {

inline std::string standing_text(const standing& s) {
  if (s.version == holds_nothing) return text_of(s.member.text(), " holds nothing");
  return text_of(s.member.text(), " is at version ", s.version, ", stage ", static_cast<int>(s.stage));
}

/// Why standings cannot occur together; empty where they can.
inline std::string impossible_standings(const std::vector<standing>& told) {
  const standing *low = nullptr, *high = nullptr;
  for (std::size_t i = 0; i < told.size(); ++i) {
    const standing& s = told[i];
    for (std::size_t j = 0; j < i; ++j)
      if (told[j].member == s.member) return text_of(s.member.text(), " is there twice; a member has one standing");
    if (s.version == holds_nothing && s.stage != update_stage::nothing)
      return text_of(s.member.text(), " holds nothing and is at stage ", static_cast<int>(s.stage),
                     "; what has no version is at stage 0");
    if (s.version == holds_nothing) continue;
    const auto behind = [](const standing& a, const standing& b) {
      return a.version < b.version || (a.version == b.version && a.stage < b.stage);
    };
    if (low == nullptr || behind(s, *low)) low = &s;
    if (high == nullptr || behind(*high, s)) high = &s;
  }
  if (low == nullptr) return told.empty() ? "nobody tells a standing" : "nobody holds any state";
  const auto beside = [&](const char* why) {
    return text_of(standing_text(*high), ", and ", standing_text(*low), "; ", why);
  };
  if (high->version > low->version + 1) return beside("versions of one world are at most one apart");
  if (high->version > low->version && high->stage == update_stage::scalar)
    return beside("the scalar of a step is known to nobody before all have begun it");
  if (low->stage == update_stage::nothing && (high->version > low->version || high->stage == update_stage::scalar))
    return beside("the scalar on one member proves the gradients on all");
  return {};
}

}  // namespace detail

/// target = v + 1 if some survivor is at version v + 1, or at v and stage 2, v being the least version; else v. With
/// target v + 1 those at stage 1 of v make the update. Law: every survivor can reach the target and none is beyond it.
/// Standings that no run of a world comes to are refused by name.
[[nodiscard]] inline target_version target(const std::vector<standing>& told) {
  target_version to;
  to.refused = detail::impossible_standings(told);
  if (!to.refused.empty()) return to;
  bool proved = false;  // the scalar of the step after the least version
  for (const standing& s : told)
    if (s.version != holds_nothing && (to.version == holds_nothing || s.version < to.version)) to.version = s.version;
  for (const standing& s : told)
    proved = proved || s.version > to.version || (s.version == to.version && s.stage == update_stage::scalar);
  for (const standing& s : told) {
    if (s.version == holds_nothing) to.empty.push_back(s.member);
    else if (proved && s.version == to.version && s.stage == update_stage::gradients) to.updates.push_back(s.member);
  }
  if (proved) ++to.version;
  return to;
}

/// Without a scalar collective nobody can follow: the highest version of which `whole(members at it)` says that they
/// hold every element. Others count as empty. Where no version is whole it is refused.
template <typename Whole>
[[nodiscard]] target_version target_as_told(const std::vector<standing>& told, const Whole& whole) {
  target_version to;
  index_t below = std::numeric_limits<index_t>::max();
  for (;;) {
    index_t version = holds_nothing;
    for (const standing& s : told)
      if (s.version < below && s.version > version) version = s.version;
    if (version == holds_nothing) break;
    member_list at;
    for (const standing& s : told)
      if (s.version == version) at.push_back(s.member);
    if (whole(at)) {
      to.version = version;
      break;
    }
    below = version;
  }
  if (to.version == holds_nothing) to.refused = "no version is held whole by those who tell a standing";
  else
    for (const standing& s : told)
      if (s.version != to.version) to.empty.push_back(s.member);
  return to;
}

/// "version 7; b makes the update; c is empty"
inline std::string to_text(const target_version& to) {
  if (!to.refused.empty()) return "no version: " + to.refused;
  std::string text = detail::text_of("version ", to.version);
  if (!to.updates.empty())
    text += detail::text_of("; ", members_text(to.updates), to.updates.size() == 1 ? " makes" : " make", " the update");
  if (!to.empty.empty())
    text += detail::text_of("; ", members_text(to.empty), to.empty.size() == 1 ? " is" : " are", " empty");
  return text;
}

}  // namespace reshard
