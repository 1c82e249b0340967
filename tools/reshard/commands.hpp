// SPDX-License-Identifier: Apache-2.0
// What the command line said, and the subcommands that answer it. Everything arrives as text and is read by the
// library, so that every refusal is one of its sentences. A command prints nothing before all that could be refused has
// been.
#pragma once

#include <optional>
#include <string>

#include <reshard/model/state_list.hpp>

#include <reshard/plan/cluster.hpp>
#include <reshard/report/regions.hpp>

namespace CLI {
class App;
}

namespace reshard::tool {
using namespace io;

struct arguments {
  std::string model;
  std::string layout;  // FROM, for those that take two
  std::string to;
  std::optional<std::string> rank;
  std::optional<std::string> states;
  std::optional<std::string> state;
  std::optional<std::string> svg;
  std::optional<std::string> trace;
  std::optional<std::string> cluster;
  std::optional<std::string> from_devices;
  std::optional<std::string> to_devices;
  std::optional<std::string> lost_devices;
  std::optional<std::string> budget;
  std::optional<std::string> stages;
  std::optional<std::string> relay;
  std::optional<std::string> relabel;
  std::optional<std::string> devices;
  std::optional<std::string> memory;
  std::optional<std::string> axes;
  std::optional<std::string> top;
  bool json = false;
  bool transfers = false;
  bool leave_out_lost = false;
  bool keep_sources = false;
};

void check(const arguments& given);
void regions(const arguments& given);
void plan(const arguments& given);
void simulate(const arguments& given);
void compare(const arguments& given);
/// `schedule` and `trace` among the subcommands of `elastic`, which answer when they are parsed.
void add_schedule(CLI::App& elastic);

/// Adds `elastic` and its subcommands: they keep what they are given, and answer when they have been parsed.
void add_elastic(CLI::App& app);

/// MODEL: a preset or what a configuration file says.
model model_asked_for(const arguments& given);
/// --cluster: a name, a shape or what a file says.
cluster cluster_asked_for(const std::string& text);

/// --states: the list of states, of mixed-precision Adam by default.
state_list list_asked_for(const arguments& given);
/// --state: one of the list's, `optimizer` (all of level 1), or `all` (the default).
state_set states_asked_for(const arguments& given, const state_list& list);

/// Refuses a world too large to be gone through rank by rank, before anything is made for it.
inline void require_listable(const char* side, rank_t ranks) {
  if (ranks > max_listed_ranks)
    refuse(side, " has ", ranks, " ranks; at most ", max_listed_ranks, " are gone through one by one");
}

}  // namespace reshard::tool
