// SPDX-License-Identifier: Apache-2.0
// What commands that speak of a switch have in common: the switch that the command line names, and its stages.
#include <optional>
#include <string>

#include <reshard/cost/direct_stages.hpp>
#include <reshard/cost/simulate.hpp>
#include <reshard/cost/switch_bytes.hpp>
#include <reshard/io/arguments.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/volume.hpp>

#include "asked.hpp"

namespace reshard::tool {

namespace {

/// Where the ranks of a layout sit: as listed, or rank r on device r.
device_map devices_of(const char* what, const std::optional<std::string>& list, rank_t ranks) {
  return list ? device_map(parse_device_list(what, *list, ranks)) : device_map(ranks);
}

/// Refuses what could overflow later: all bytes of all devices, on both sides, and every one of them moved.
void require_countable(const model& m, const state_list& list, rank_t from_ranks, rank_t to_ranks) {
  checked_multiply(checked_multiply(m.parameters(), list.all().bytes_per_element()), greatest(from_ranks, to_ranks));
}

/// Whether a budget is kept by a direct plan; if not, why, and the least that is, where it was looked for.
struct budget_verdict {
  bool kept = true;
  std::optional<bytes_t> least = {};
  std::string why = {};
};

constexpr rank_t most_searched_devices = 256;  // the least budget is sought by planning every device 13 times

/// That no number of stages keeps the budget.
budget_verdict not_kept(const any_switch& change, bytes_t budget, rank_t only_device, sources after_use) {
  const std::string why = text_of("--budget: ", budget, " bytes cannot work: of 1, 2, 4 .. ", most_stages,
                                  " stages none keeps it on ", only_device < 0 ? "every device" : "that device");
  if (change.devices() > most_searched_devices && only_device < 0) return {false, {}, why};
  const bytes_t least_that_does = least_direct_budget(change, devices_asked_for(change, only_device), after_use);
  return {false, least_that_does, text_of(why, "; the least budget that does is ", least_that_does, " bytes")};
}

/// Where a transfer crosses rails that do not meet, what is said of it; looked at only where there is such a node.
class rails_check {
 public:
  explicit rails_check(const cluster& on) : on_(&on) {
    for (const node_kind& kind : on.nodes) any_ = any_ || kind.spine_GBps == 0;
  }
  bool any() const { return any_; }
  void add(const transfer& t) {
    if (why_.empty() && on_->crosses_rails(t.src, t.dst) && (apart(t.src) || apart(t.dst)))
      why_ = text_of("--cluster: device ", t.src, ", of NIC ", on_->nic_of(t.src), ", sends to device ", t.dst,
                     ", of NIC ", on_->nic_of(t.dst),
                     ", on another node, and where spine_GBps is 0 NICs of different numbers do not meet");
  }
  const std::string& why() const { return why_; }

 private:
  bool apart(rank_t device) const { return on_->kind_of(on_->node_of(device)).spine_GBps == 0; }

  const cluster* on_;
  bool any_ = false;
  std::string why_;
};
std::string rails_of_direct(const any_switch& change, rank_t only_device) {
  rails_check found(change.on());
  const interval devices = devices_asked_for(change, only_device);
  for (rank_t device = devices.begin; found.any() && device < devices.end; ++device) {
    const reshard::plan p = make_plan(change, device);
    for (const std::vector<transfer>* list : {&p.receives, &p.sends})
      for (const transfer& t : *list) found.add(t);
  }
  return found.why();
}
std::string rails_of_relay(const any_switch& change) {
  rails_check found(change.on());
  if (found.any()) each_relayed(change, 1, [&](const transfer& t) { found.add(t); });
  return found.why();
}

}  // namespace

interval devices_asked_for(const any_switch& change, rank_t only_device) {
  return only_device < 0 ? interval{0, change.devices()} : interval{only_device, only_device + 1};
}

any_switch switch_asked_for(const arguments& given, const model& m, const std::optional<device_map>& to_devices) {
  const state_list list = list_asked_for(given);
  const degrees from_degrees = parse_degrees(given.layout), to_degrees = parse_degrees(given.to);
  const space from(m, from_degrees), to(m, to_degrees);
  require_listable("FROM", from.ranks());
  require_listable("TO", to.ranks());
  require_countable(m, list, from.ranks(), to.ranks());
  placement placed{.from = devices_of("--from-devices", given.from_devices, from.ranks()),
                   .to = to_devices ? *to_devices : devices_of("--to-devices", given.to_devices, to.ranks()),
                   .states = states_asked_for(given, list),
                   .list = list};
  if (given.lost_devices) placed.lost = parse_devices("--lost-devices", *given.lost_devices);
  if (given.leave_out_lost) placed.lost_elements = when_lost::leave_out;
  if (given.cluster) {
    const rank_t needed = greatest(placed.from.devices(), placed.to.devices());
    placed.on = cluster_asked_for(*given.cluster).for_devices(needed);
    placed.devices = placed.on.devices();
    if (placed.devices < needed)
      refuse("--cluster ", one_line(*given.cluster, 40), " has ", placed.devices, " devices, but device ", needed - 1,
             " is named");
  }
  return any_switch(from, to, placed);
}

void require_possible(const arguments&, const any_switch& change) {
  if (change.lost_elements() == when_lost::refuse && !change.lost_ranks().empty())
    if (const bytes_t bytes = lost_bytes(change); bytes > 0)
      refuse("--lost-devices: ", bytes, " bytes that TO holds were on lost devices alone: ", lost_families(change),
             "; --leave-out-lost plans without them");
}

void require_sensible(const arguments& given) {
  if (given.relay && *given.relay != "never" && *given.relay != "auto" && *given.relay != "always")
    refuse("--relay: '", one_line(*given.relay, 40), "' is unknown; it is never, auto or always");
  if (given.relabel && *given.relabel != "nodes" && *given.relabel != "groups")
    refuse("--relabel: '", one_line(*given.relabel, 40), "' is unknown; it is nodes or groups");
  if (given.leave_out_lost && !given.lost_devices)
    refuse("--leave-out-lost leaves out what lost devices held; say with --lost-devices which they are");
}

sources sources_asked_for(const arguments& given) { return given.keep_sources ? sources::keep : sources::release; }

bytes_t limit_asked_for(const arguments& given) {
  const bytes_t budget = budget_asked_for(given);
  return budget > 0 ? budget : no_budget;
}
bytes_t budget_asked_for(const arguments& given) { return given.budget ? parse_bytes("--budget", *given.budget) : 0; }

namespace {

/// The seconds of the question on this switch, 0 without speeds; none where it is refused.
std::optional<double> seconds_asked_for(const arguments& given, const any_switch& change, relay_when otherwise,
                                        stages_unless_named stages) {
  try {
    require_possible(given, change);
    const routing_asked found = routing_asked_for(given, change, otherwise, stages);
    if (found.seconds) return found.seconds;
    return change.on().has_speeds() ? direct_seconds(change, found.how.stages) : 0;
  } catch (const refusal&) {
    return {};
  }
}

}  // namespace

relabelled_switch relabelled_for(const arguments& given, const model& m, const any_switch& change, relay_when otherwise,
                                 stages_unless_named stages) {
  relabelled_switch found;
  if (!given.relabel) return found;
  found.saves.emplace();
  std::optional<relabelling> proposed;
  found.planning_seconds = timed([&] {
    proposed = relabel(change, *given.relabel == "groups" ? relabel_by::groups : relabel_by::nodes);
    if (proposed->relabelled) found.change.emplace(switch_asked_for(given, m, proposed->to));
  });
  if (!proposed->relabelled) return found;
  found.saves = saves_of(true, proposed->proposed.retained - proposed->given.retained,
                         seconds_asked_for(given, change, otherwise, stages),
                         seconds_asked_for(given, *found.change, otherwise, stages));
  if (!found.saves->relabelled) found.change.reset();
  return found;
}

namespace {

std::optional<index_t> named_stages(const arguments& given) {
  if (!given.stages) return {};
  const index_t stages = io::detail::digits_of("--stages", *given.stages);
  if (stages < 1 || stages > most_stages) refuse("--stages: ", stages, " stages; they are 1 to ", most_stages);
  return stages;
}

/// That so many stages do not keep the budget, `with_relay` or without.
std::string why_not_in(bytes_t budget, std::string_view with_relay, index_t stages, bytes_t excess) {
  return text_of("--budget: ", budget, " bytes cannot work", with_relay, " in the ", stages,
                 " of --stages: a device needs ", excess,
                 " bytes beyond max(before, after), which is the least budget that does in so many");
}

/// The stages of the direct plan, and whether they keep the budget.
budget_verdict direct_in_stages(const arguments& given, const any_switch& change, rank_t only_device,
                                routing_asked& found) {
  const std::optional<index_t> named = named_stages(given);
  found.how.stages = named.value_or(1);
  const bytes_t budget = budget_asked_for(given);
  const sources after_use = sources_asked_for(given);
  if (budget == 0) return {};
  if (named) {
    const interval devices = devices_asked_for(change, only_device);
    const stages_found in = stages_named(*named, direct_excess(change, devices, *named, after_use), budget);
    return in.kept ? budget_verdict{} : budget_verdict{false, in.excess, why_not_in(budget, "", *named, in.excess)};
  }
  // The whole switch's, whichever device is asked about; of a world that takes long to look at, that device's alone.
  const rank_t looked_at = change.devices() > most_searched_devices ? only_device : -1;
  stages_found within;
  found.planning_seconds =
      timed([&] { within = direct_stages(change, devices_asked_for(change, looked_at), budget, after_use); });
  if (!within.kept) return not_kept(change, budget, looked_at, after_use);
  found.how.stages = within.stages;
  return {};
}

/// With its seconds, where there are speeds.
routing_asked predicted(const any_switch& change, routing_asked direct) {
  if (change.on().has_speeds()) direct.seconds = direct_seconds(change, direct.how.stages);
  return direct;
}

std::string why_relay_is_not_kept(const arguments& given, bytes_t budget, const routing_choice& relayed) {
  if (given.stages) return why_not_in(budget, " with relay", relayed.how.stages, relayed.excess);
  return text_of("--budget: ", budget, " bytes cannot work with relay: of 1, 2, 4 .. ", most_stages,
                 " stages none keeps it on every device; the least budget that does is ", relayed.least_budget,
                 " bytes");
}

}  // namespace

routing_asked routing_asked_for(const arguments& given, const any_switch& change, relay_when otherwise,
                                stages_unless_named stages, rank_t only_device) {
  const relay_when when = !given.relay               ? otherwise
                          : *given.relay == "auto"   ? relay_when::faster
                          : *given.relay == "always" ? relay_when::always
                                                     : relay_when::never;
  if (when == relay_when::faster && !change.on().has_speeds())
    refuse(
        "--relay auto compares seconds, and the cluster has no speeds; give --cluster a name or a file, or say never "
        "or always");
  routing_asked direct;
  const bytes_t budget = budget_asked_for(given);
  budget_verdict kept;
  std::string apart;
  if (when != relay_when::always) {
    apart = rails_of_direct(change, when == relay_when::never ? only_device : -1);
    if (apart.empty()) kept = direct_in_stages(given, change, when == relay_when::never ? only_device : -1, direct);
    if (when == relay_when::never) {
      if (!apart.empty()) refuse(apart);
      if (!kept.kept) refuse(kept.why);
      return stages == stages_unless_named::fastest ? predicted(change, direct) : direct;
    }
  }
  const std::string relay_apart = rails_of_relay(change);
  const bool direct_can = when != relay_when::always && apart.empty();
  if (!relay_apart.empty()) {
    if (!direct_can) refuse(relay_apart);
    if (!kept.kept) refuse(kept.why);
    return predicted(change, direct);
  }
  routing_choice relayed = choose_relay(change, {.when = relay_when::always,
                                                 .stages = named_stages(given),
                                                 .budget = budget,
                                                 .after_use = sources_asked_for(given),
                                                 .otherwise = stages});
  if (!relayed.kept && (!direct_can || !kept.kept))
    refuse(direct_can && kept.least.value_or(relayed.least_budget) < relayed.least_budget
               ? kept.why
               : why_relay_is_not_kept(given, budget, relayed));
  if (direct_can && kept.kept) {
    direct = predicted(change, direct);
    if (!relayed.kept || !relay_is_better(direct.seconds, relayed.seconds)) return direct;
  }
  return {relayed.how, relayed.phases, 0, relayed.seconds, std::move(relayed.streams)};
}

}  // namespace reshard::tool
