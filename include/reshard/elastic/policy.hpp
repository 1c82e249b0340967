// SPDX-License-Identifier: Apache-2.0
// What a job does about members that are dead or slow, as a value; and the situation that it is asked in. Neither knows
// a clock: how long something was waited for is said.
// Builds on: elastic/standing.hpp, model/model.hpp, model/state_list.hpp, parallelism/legal_layouts.hpp.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <reshard/elastic/standing.hpp>
#include <reshard/model/model.hpp>
#include <reshard/model/state_list.hpp>
#include <reshard/parallelism/legal_layouts.hpp>

namespace reshard {

/// A way to go on, tried in the policy's order.
enum class rung {
  hot,         // a slow member makes place for a spare while it lives
  replace,     // spares take the places of the dead
  shrink,      // a legal layout of who is there
  snapshot,    // back to the newest version that survivors and snapshots hold whole
  checkpoint,  // back to the checkpoint that the situation names; a running job's names none
  wait,        // for somebody to come
};
/// Rungs by their numbers, as policies write them.
inline constexpr std::string_view rung_names[] = {"hot", "replace", "shrink", "snapshot", "checkpoint", "wait"};
/// "shrink"
constexpr std::string_view name(rung r) { return rung_names[static_cast<std::size_t>(r)]; }

/// Which rungs, in which order, and their conditions.
struct elastic_policy {
  std::vector<rung> rungs = {rung::hot, rung::replace, rung::shrink, rung::snapshot, rung::checkpoint, rung::wait};
  double factor = 2;      // hot: own time of a step over the median of the peers' that is slow ..
  index_t windows = 3;    // .. in so many windows one after the other
  double wait = 60;       // seconds that a spare, or somebody, is waited for
  index_t min = 1;        // members of the smallest world
  varied_axes axes = {};  // what varies from layout to layout; empty: default_axes(model)
};

/// A member of the world, as the others see it.
struct seen_member {
  member_name name = {};
  bool dead = false;
  bool empty = false;              // it lives, and what it holds is not of the target version
  std::vector<double> steps = {};  // seconds that its own steps took, a mean for each window, latest last
};
/// A copy, kept by a member, of another one's states as they were at a version.
struct kept_snapshot {
  member_name of = {};
  member_name at = {};
  index_t version = 0;
};

/// Who is there, and what is held by whom.
struct elastic_situation {
  reshard::model model = {};
  state_list list = adam;
  degrees layout = {};
  std::vector<seen_member> members = {};  // by rank
  member_list spares = {};                // registered, and in no world
  index_t version = 0;                    // the target that standings name
  std::optional<index_t> batch = {};      // samples of a step: no more data-parallel ranks; none: as many as there are
  double waited = 0;                      // seconds since it was found out
  std::vector<kept_snapshot> snapshots = {};
  std::optional<bytes_t> unheld = {};      // where state lies between two layouts: what nobody holds of it who lives
  std::optional<index_t> checkpoint = {};  // the version of the one that the trainer named
};

}  // namespace reshard
