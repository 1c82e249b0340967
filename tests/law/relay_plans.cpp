// SPDX-License-Identifier: Apache-2.0
// Plans with relay as `reshard plan` prints them, against the oracle: random switches on clusters, every hop of every
// element of every device; figures, live bytes and seconds counted again. The program is in RESHARD_TOOL.
// A build throws 80, RESHARD_SWITCHES=520 as many as a release wants (a quarter of an hour), RESHARD_CASE=I looks at
// the I-th of these alone and tells what it asks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "../io/process.hpp"
#include "../oracle/relay_switches.hpp"
#include "../oracle/relay_time.hpp"
#include "../support/dice.hpp"
#include "../support/tries.hpp"

using nlohmann::json;
using oracle::index, oracle::relay::asked_switch, oracle::relay::figures, oracle::relay::hop, oracle::relay::question,
    oracle::relay::routing;
using testing::answer, testing::ask, testing::here, testing::words;

namespace {

/// What is asked of plan and simulate alike; what differs is added.
words options_of(const asked_switch& s, const std::string& cluster) {
  words options{"--from-devices", oracle::device_text(s.from_devices),
                "--to-devices",   oracle::device_text(s.to_devices),
                "--state",        s.state_text,
                "--cluster",      cluster};
  if (s.keep_sources) options.push_back("--keep-sources");
  if (s.relabel) options.push_back("--relabel");
  for (long device : s.lost) options.insert(options.end(), {"--lost-devices", std::to_string(device)});
  if (!s.lost.empty()) options.push_back("--leave-out-lost");
  return options;
}

/// One switch being looked at.
struct looked_at {
  const asked_switch& s;
  std::string config, cluster;
  oracle::relay::tensor_numbers numbers;  // before the question, which fills it
  question q;
  std::map<long, std::set<std::pair<oracle::state, std::string>>> names;  // of what a device needs, TO's
  long largest = 0;                                                       // the contract's B

  explicit looked_at(const asked_switch& of)
      : s(of), config(here().file("model.json", of.config)),
        cluster(of.shape ? of.cluster_text : here().file("cluster.json", of.cluster_text)),
        q(question_of(of, numbers)) {
    for (long rank = 0; rank < s.to.world; ++rank)
      for (const oracle::state st : s.states)
        for (const auto& held : oracle::held(s.m, s.to, rank, st))
          names[s.to_seats[index(rank)]].insert({st, held.first});
    largest = figures_of(q, {}).peak_floor;
  }

  words asked(const char* command, const words& more) const {
    words all{command, config, s.from_text, s.to_text, "--json"};
    for (const words& some : {options_of(s, cluster), more}) all.insert(all.end(), some.begin(), some.end());
    return all;
  }
  json told(const char* command, const words& more) const {
    const answer got = ask(asked(command, more));
    std::string command_line;
    for (const std::string& word : asked(command, more)) command_line += " '" + word + "'";
    if (std::getenv("RESHARD_CASE") != nullptr) std::printf("reshard%s\n", command_line.c_str());
    CAPTURE(command_line);
    REQUIRE_MESSAGE(got.code == 0, got.err);
    return json::parse(got.out);
  }
};

oracle::state state_named(const std::string& name) {
  for (const oracle::state s : oracle::all_states)
    if (oracle::name_of(s) == name) return s;
  FAIL("unknown state " << name);
  return {};
}

/// The printed transfers; names are TO's, those of delivered boxes what the destination holds.
std::vector<hop> hops_of(const looked_at& l, const json& transfers) {
  std::vector<hop> hops;
  for (const json& t : transfers) {
    const oracle::state st = state_named(t.at("state"));
    const std::string tensor = t.at("tensor"), text = t.dump();
    CAPTURE(text);
    hop h{t.at("src"),   t.at("dst"),  l.numbers.at({st, oracle::one_name(l.s.m, tensor)}), {}, t.at("stage"),
          t.at("phase"), t.at("relay")};
    std::vector<std::array<long, 2>> box;
    for (const json& side : t.at("box")) box.push_back({side.at(0), side.at(1)});
    CHECK(oracle::elements_of_box(t.at("dims"), box, l.q.tensors[index(h.what)].elements, h.elements) == "");
    if (!h.passed) {
      const auto own = l.names.find(h.dst);
      const bool named = own != l.names.end() && own->second.count({st, tensor}) != 0;
      CHECK(named);
    }
    hops.push_back(h);
  }
  return hops;
}

/// Every figure of the summary that the transfers tell.
void check_summary(const json& summary, const figures& f) {
  CHECK(summary.at("moved_bytes") == f.moved);
  CHECK(summary.at("relayed_bytes") == f.relayed);
  CHECK(summary.at("retained_bytes") == f.retained);
  CHECK(summary.at("least_bytes") == f.least);
  CHECK(summary.at("inter_node_bytes") == f.inter_node);
  CHECK(summary.at("cross_rail_bytes") == f.cross_rail);
  CHECK(summary.at("messages") == f.messages);
  CHECK(summary.at("phases") == f.phases);
  CHECK(summary.at("slots") == f.slots);
  CHECK(summary.at("max_send_bytes") == f.max_send);
  CHECK(summary.at("max_receive_bytes") == f.max_receive);
  CHECK(summary.at("peak_bytes") == f.peak);
  CHECK(summary.at("peak_floor_bytes") == f.peak_floor);
  CHECK(summary.at("peak_excess_bytes") == f.peak_excess);
}

json device_row(long device, const oracle::relay::device_figures& d) {
  return {{"device", device},           {"send_bytes", d.send},
          {"receive_bytes", d.receive}, {"retained_bytes", d.retained},
          {"before_bytes", d.before},   {"after_bytes", d.after},
          {"peak_bytes", d.peak}};
}

void check_devices(const json& listed, const figures& f) {
  std::size_t found = 0;
  for (const json& row : listed) {
    const auto at = f.devices.find(row.at("device"));
    if (at != f.devices.end()) ++found;
    CHECK(row == device_row(row.at("device"), at == f.devices.end() ? oracle::relay::device_figures{} : at->second));
  }
  CHECK(found == f.devices.size());
}

/// A plan that was looked at, and what it was asked with.
struct right_plan {
  json printed;
  std::vector<hop> hops;
  figures f;
  question q;
  oracle::link_seconds seconds;
};

/// Every element of every transfer and every figure.
right_plan check_plan(const looked_at& l, const json& printed) {
  right_plan p{printed, {}, {}, l.q, {}};
  const json& summary = printed.at("summary");
  p.q.stages = summary.at("stages");
  const std::string route = summary.at("relay");
  REQUIRE((route == "never" || route == "always"));
  p.q.route = route == "always" ? routing::always : routing::never;
  p.hops = hops_of(l, printed.at("transfers"));
  const oracle::relay::verdict v = judge(p.q, p.hops);
  for (const std::string& sentence : v.sentences()) FAIL_CHECK(sentence);
  if (!v.faults.empty()) return p;
  p.f = figures_of(p.q, p.hops);
  check_summary(summary, p.f);
  check_devices(printed.at("devices"), p.f);
  p.seconds = seconds_of(p.q, p.hops);
  return p;
}

struct tally {
  long plans = 0, relayed = 0, refused = 0, elements = 0, in_chains = 0, deep = 0, simulated = 0, staged = 0;
  long alike = 0, formulas = 0, timed = 0, rounded = 0, of_other_chains = 0;
};

/// What simulate says of the same question.
void check_seconds(const looked_at& l, const right_plan& p, const words& how, tally& seen) {
  json found = l.told("simulate", how);
  // a stage counts as 1/S of everything: streams of few elements are cut less evenly, which is seldom seen
  const bool exact = found["seconds"] == doctest::Approx(p.seconds.total()).epsilon(1e-3);
  CHECK((exact || p.q.stages > 1));
  CHECK(found["seconds"] == doctest::Approx(p.seconds.total()).epsilon(exact ? 1e-3 : 0.15));
  CHECK(found["parts"]["ports"] == doctest::Approx(p.seconds.ports).epsilon(exact ? 2e-3 : 0.2));
  seen.rounded += exact ? 0 : 1;
  CHECK(found["parts"]["messages"] == doctest::Approx(p.seconds.messages).epsilon(1e-3));
  CHECK(found["parts"]["slots"] == doctest::Approx(p.seconds.slots).epsilon(1e-9));
  double most = 0;
  for (const auto& of : p.seconds.of_port) most = std::max(most, of.second);
  CHECK(found["busiest"]["seconds"] == doctest::Approx(most).epsilon(1e-3));
  CHECK(found["floor_seconds"] == doctest::Approx(floor_of(l.q, l.q.taking_part())).epsilon(1e-9));
  for (const auto& item : p.printed.at("summary").items()) {
    const std::string key = item.key();
    CAPTURE(key);
    if (key != "planning_seconds") CHECK(found[key] == item.value());
  }
}

/// What --trace says: live bytes of every device before the first slot, in each and after the last; and, over all
/// slots, the bytes by every device's ports.
void check_trace(const looked_at& l, const right_plan& p, words how) {
  const std::string file = here().file("trace.json", "");
  how.insert(how.end(), {"--trace", file});
  l.told("simulate", how);
  std::map<long, std::vector<std::pair<double, long>>> live;
  std::map<std::pair<long, std::string>, long> told, wanted;
  const json trace = json::parse(testing::content_of(file));
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "C") live[event.at("tid")].push_back({event.at("ts"), event.at("args").at("bytes")});
    if (event.at("ph") == "X")
      told[{event.at("tid"), event.at("args").at("port")}] += event.at("args").at("bytes").get<long>();
  }
  for (const hop& h : p.hops) {
    if (h.src == h.dst) continue;
    const std::string port = p.q.node_of(h.src) == p.q.node_of(h.dst) ? "nvlink_" : "nic_";
    const long bytes = static_cast<long>(h.elements.size()) * p.q.tensors[index(h.what)].width;
    wanted[{h.src, port + "out"}] += bytes;
    wanted[{h.dst, port + "in"}] += bytes;
  }
  CHECK(told == wanted);
  CHECK(live.size() == p.f.devices.size());
  for (const auto& [device, d] : p.f.devices) {
    std::vector<long> counted{d.before}, of_trace;
    counted.insert(counted.end(), d.live.begin(), d.live.end());
    counted.push_back(d.after);
    for (const auto& at : live[device]) of_trace.push_back(at.second);
    const auto which = device;
    CAPTURE(which);
    CHECK(of_trace == counted);
  }
}

/// How a switch is asked for with this relay.
words with_relay(words how, const std::string& relay) {
  how.at(1) = relay;
  return how;
}

/// auto is whichever takes fewer seconds of those that keep the budget, never where equal.
void check_choice(const looked_at& l, const right_plan& p, const words& how) {
  const answer never = ask(l.asked("simulate", with_relay(how, "never"))),
               always = ask(l.asked("simulate", with_relay(how, "always")));
  const json found = l.told("simulate", how);
  REQUIRE((never.code == 0 || always.code == 0));
  if (never.code != 0 || always.code != 0) {
    CHECK(found["relay"] == (never.code == 0 ? "never" : "always"));
  } else {
    const json a = json::parse(never.out), b = json::parse(always.out);
    CHECK(found["relay"] == (b["seconds"].get<double>() < a["seconds"].get<double>() ? "always" : "never"));
  }
  // Saved are the seconds of this question without relabelling, for which auto may have taken the other relay.
  json chosen = found, same = json::parse(found["relay"] == "always" ? always.out : never.out);
  if (same.contains("/relabel_saves/seconds"_json_pointer) && same["relabel_saves"]["seconds"].is_number()) {
    const double saved = chosen["relabel_saves"]["seconds"], saved_alone = same["relabel_saves"]["seconds"];
    CHECK(saved <= saved_alone + 1e-9 * (std::abs(saved_alone) + same["seconds"].get<double>()));
    for (json* one : {&chosen, &same}) (*one)["relabel_saves"].erase("seconds");
  }
  CHECK(chosen == same);
  CHECK(p.printed.at("summary")["relay"] == found["relay"]);
}

/// Bytes of a device beyond max(before, after) in so many stages.
right_plan in_stages(const looked_at& l, const std::string& relay, long stages) {
  return check_plan(l, l.told("plan", {"--transfers", "--relay", relay, "--stages", std::to_string(stages)}));
}

/// Which device sends to which, and when: the same for all stages of one number of chains.
std::set<std::tuple<long, long, long>> ways_of(const right_plan& p) {
  std::set<std::tuple<long, long, long>> ways;
  for (const hop& h : p.hops) ways.insert({h.src, h.dst, h.phase});
  return ways;
}

/// The number of stages is the least of 1, 2, 4 .. that keeps the budget with the chains that were chosen. Fewer may do
/// with others: of each number of chains its least stages are taken, and of those whichever take the fewest seconds.
void check_stages_of_budget(const looked_at& l, const right_plan& p, long budget, const words& how, tally& seen) {
  const std::string relay = p.printed.at("summary").at("relay");
  CHECK(p.f.peak_excess <= budget);
  CHECK(p.q.stages <= 4096);
  CHECK((p.q.stages & (p.q.stages - 1)) == 0);
  bool first = true;
  for (long stages = 1; stages < p.q.stages; stages *= 2) {
    const words named{"--relay", relay, "--stages", std::to_string(stages), "--budget", std::to_string(budget)};
    if (ask(l.asked("plan", named)).code != 0) {
      CHECK(in_stages(l, relay, stages).f.peak_excess > budget);
      continue;
    }
    words told = named;
    told.push_back("--transfers");
    const right_plan fewer = check_plan(l, l.told("plan", told));
    CHECK(fewer.f.peak_excess <= budget);
    CHECK(ways_of(fewer) != ways_of(p));
    if (first)
      CHECK(l.told("simulate", named)["seconds"].get<double>() > l.told("simulate", how)["seconds"].get<double>());
    first = false;
    ++seen.of_other_chains;
  }
}

/// The least budget that does, as a refusal names it.
long least_budget_named(const answer& refused) {
  const std::string words = "the least budget that does is ";
  const std::size_t at = refused.err.find(words);
  REQUIRE_MESSAGE(at != std::string::npos, refused.err);
  return std::atol(refused.err.c_str() + at + words.size());
}

/// The contract's: the least, over S = 1, 2, 4 .. 4096, of the excess of S stages, or 1.
long least_by_formula(const looked_at& l, const std::string& relay) {
  long least = std::numeric_limits<long>::max();
  for (long stages = 1; stages <= 4096; stages *= 2) {
    least = std::min(least, std::max(1L, in_stages(l, relay, stages).f.peak_excess));
  }
  return least;
}

/// Whether some byte passes from node to node to node.
bool has_chain(const right_plan& p) {
  for (const hop& h : p.hops)
    if (p.q.node_of(h.src) != p.q.node_of(h.dst) &&
        !p.q.node_has(p.q.before, p.q.node_of(h.src), h.what, h.elements[0]))
      return true;
  return false;
}

/// Whether nodes are alike and the same GPU numbers take part on each.
bool alike(const question& q) {
  std::map<long, std::set<long>> gpus;
  for (long d : q.taking_part()) gpus[q.node_of(d)].insert(d % q.cluster.gpus);
  for (const auto& of : gpus)
    if (of.second != gpus.begin()->second ||
        q.cluster.nodes[index(of.first)].nics != q.cluster.nodes[index(gpus.begin()->first)].nics ||
        q.cluster.nodes[index(of.first)].nic != q.cluster.nodes[index(gpus.begin()->first)].nic)
      return false;
  return true;
}

/// Where TO's ranks sit, as plan says, on the devices that are TO's.
void seat(asked_switch& s, const words& how) {
  const std::set<long> devices(s.to_devices.begin(), s.to_devices.end());
  const json told = looked_at(s).told("plan", how).at("rank_of_device");
  std::vector<long> seats(s.to_devices.size(), -1);
  for (long device = 0; device < static_cast<long>(told.size()); ++device)
    if (const long rank = told[index(device)]; rank >= 0) {
      CHECK(devices.count(device) == 1);
      seats.at(index(rank)) = device;
    }
  CHECK(std::set<long>(seats.begin(), seats.end()) == devices);
  s.to_seats = seats;
}

/// --stages with --budget: S is fixed, and refused where its replay does not keep it.
void check_fixed_stages(const looked_at& l, const right_plan& p, words how) {
  const long budget = std::max(1L, p.f.peak_excess);
  how.insert(how.end(), {"--transfers", "--budget", std::to_string(budget)});
  json same = l.told("plan", how);
  CHECK(same["transfers"] == p.printed["transfers"]);
  CHECK(same["summary"]["stages"] == p.q.stages);
  how.back() = std::to_string(budget - 1);
  if (budget == 1) return;
  if (const answer less = ask(l.asked("plan", how)); less.code == 0)  // with other chains, which take longer
    CHECK(json::parse(less.out)["summary"]["peak_excess_bytes"] < budget);
}

void check_switch(asked_switch s, tally& seen) {
  const std::string relay = s.relay;
  long budget = s.budget_parts == 0 ? 0 : std::max(1L, looked_at(s).largest / s.budget_parts);
  words how{"--relay", relay};
  const auto add = [&](words to) {
    if (s.stages > 0) to.insert(to.end(), {"--stages", std::to_string(s.stages)});
    if (budget > 0) to.insert(to.end(), {"--budget", std::to_string(budget)});
    return to;
  };
  if (s.relabel) seat(s, add(how));
  const looked_at l(s);
  if (budget > 0)
    if (const answer refused = ask(l.asked("plan", add(how))); refused.code != 0) {
      const long least = least_budget_named(refused);
      CHECK(least > budget);
      if (relay == "auto") {  // the smaller of both
        const answer never = ask(l.asked("plan", add(with_relay(how, "never")))),
                     always = ask(l.asked("plan", add(with_relay(how, "always"))));
        CHECK(std::min(least_budget_named(never), least_budget_named(always)) == least);
      }
      // always may have fewer chains than are asked for here
      if (relay != "auto" && ++seen.formulas <= 12) {
        const long formula = least_by_formula(l, relay);
        if (relay == "never") CHECK(least == formula);
        else CHECK(least <= formula);
      }
      budget = least;
      ++seen.refused;
    }
  words question_asked = add(how);
  question_asked.push_back("--transfers");
  const right_plan p = check_plan(l, l.told("plan", question_asked));
  ++seen.plans;
  if (p.f.devices.empty()) return;  // faults were told
  CHECK((budget > 0 || p.q.stages == std::max(1L, s.stages)));
  if (relay != "auto") CHECK(p.printed.at("summary")["relay"] == relay);
  if (budget > 0) check_stages_of_budget(l, p, budget, add(how), seen);
  words simulated = add(how);
  if (budget == 0 && s.stages == 0) simulated.insert(simulated.end(), {"--stages", "1"});
  if (!s.shape) check_seconds(l, p, simulated, seen);
  if (!s.shape && s.lost.empty() && ++seen.timed % 4 == 0) check_trace(l, p, simulated);
  if (s.stages > 0 && relay != "auto") check_fixed_stages(l, p, add(how));
  if (relay == "auto") check_choice(l, p, simulated);
  if (p.q.route == routing::always && alike(l.q)) {
    ++seen.alike;
    CHECK(p.f.cross_rail == 0);
  }
  for (const hop& h : p.hops) seen.elements += static_cast<long>(h.elements.size());
  seen.relayed += p.f.phases > 1 ? 1 : 0;
  seen.in_chains += has_chain(p) ? 1 : 0;
  seen.deep += p.f.phases > 3 ? 1 : 0;
  seen.staged += p.q.stages > 1 ? 1 : 0;
}

}  // namespace

TEST_CASE("random switches: every hop of every element is right, and so is every figure") {
  const long cases = testing::asked_for("RESHARD_SWITCHES", testing::tries(testing::thrown(80)));
  oracle::relay::switch_generator random(testing::seed() + 61);
  tally seen;
  for (long i = 0; i < cases; ++i) {
    const asked_switch s = random.next();
    const std::string description = s.describe();
    CAPTURE(i);
    CAPTURE(description);
    if (const long only = testing::asked_for("RESHARD_CASE", i); only == i) check_switch(s, seen);
  }
  std::printf(
      "{\"plans\":%ld,\"elements\":%ld,\"with_relay\":%ld,\"chains\":%ld,\"phases_above_3\":%ld,"
      "\"stages_above_1\":%ld,\"least_budgets\":%ld,\"alike\":%ld,\"fewer_stages_of_other_chains\":%ld}\n",
      seen.plans, seen.elements, seen.relayed, seen.in_chains, seen.deep, seen.staged, seen.refused, seen.alike,
      seen.of_other_chains);
  for (const auto& of : random.count()) {
    std::printf("%-20s %ld\n", of.first.c_str(), of.second);
    CAPTURE(of.first);
    if (cases >= 500 && of.first != "lost devices") CHECK_DRAWN(of.second >= 50);
  }
  if (cases >= 500) CHECK_DRAWN(seen.in_chains >= 50);
  CHECK_DRAWN(seen.rounded <= std::max(2l, cases / 50));
}

namespace {
/// A device's own plan is what the whole says of it.
void check_view(const json& whole, const json& view, long device) {
  CAPTURE(device);
  std::multiset<std::string> own, expected;
  for (const json& t : whole.at("transfers"))
    if (t.at("src") == device || t.at("dst") == device) expected.insert(t.dump());
  for (const json& t : view.at("transfers")) own.insert(t.dump());
  CHECK(own == expected);
  CHECK(view.at("devices") == json::array({whole.at("devices").at(index(device))}));
  CHECK(view.at("rank_of_device") == whole.at("rank_of_device"));
  for (const char* key : {"stages", "phases", "slots", "relay"})
    CHECK(view.at("summary").at(key) == whole.at("summary").at(key));
}

/// What one device sends another, by stage and phase, in the order in which it is listed.
using listed = std::map<std::tuple<long, long, long, long>, std::vector<std::string>>;
void list_messages(const json& transfers, long device, const char* end, listed& into) {
  for (const json& t : transfers)
    if (t.at(end) == device && t.at("src") != t.at("dst"))
      into[{t.at("src"), t.at("dst"), t.at("stage"), t.at("phase")}].push_back(t.dump());
}
}  // namespace

TEST_CASE("a device's own plan is its part of the whole, and both ends list a message alike") {
  oracle::relay::switch_generator random(testing::seed() + 62);
  long devices = 0, messages = 0, relayed = 0;
  for (long i = 0; i < testing::asked_for("RESHARD_OWN_PLANS", testing::tries(testing::thrown(40))); ++i) {
    const asked_switch s = random.next();
    const std::string description = s.describe();
    CAPTURE(description);
    const looked_at l(s);
    words how{"--transfers", "--relay", s.relay};
    if (s.stages > 0) how.insert(how.end(), {"--stages", std::to_string(s.stages)});
    // twice what any needs, so that it is kept
    if (s.budget_parts > 0) how.insert(how.end(), {"--budget", std::to_string(2 * l.largest)});
    const json whole = l.told("plan", how);
    relayed += whole.at("summary").at("phases") > 1 ? 1 : 0;
    how.insert(how.end(), {"--rank", ""});
    listed sent, received;
    for (long device = 0; device < static_cast<long>(whole.at("devices").size()); ++device, ++devices) {
      if (s.lost.count(device) != 0) continue;  // it is refused, and all that it would send or get is nothing
      how.back() = std::to_string(device);
      const json view = l.told("plan", how);
      check_view(whole, view, device);
      list_messages(view.at("transfers"), device, "src", sent);
      list_messages(view.at("transfers"), device, "dst", received);
    }
    CHECK(sent == received);
    messages += static_cast<long>(sent.size());
  }
  std::printf("{\"own_plans\":%ld,\"messages\":%ld,\"switches_with_relay\":%ld}\n", devices, messages, relayed);
}

TEST_CASE("without stages or a budget simulate takes the number of stages with the fewest seconds") {
  oracle::relay::switch_generator random(testing::seed() + 63);
  for (int i = 0; i < testing::tries(20); ++i) {
    asked_switch s = random.next();
    while (s.shape) s = random.next();
    s.relabel = false;
    const std::string description = s.describe();
    CAPTURE(description);
    const looked_at l(s);
    for (const char* relay : {"never", "always"}) {
      const json found = l.told("simulate", {"--relay", relay});
      std::map<long, json> tried;
      double least = std::numeric_limits<double>::max();
      for (long stages = 1; stages <= 4096; stages *= 2) {
        tried[stages] = l.told("simulate", {"--relay", relay, "--stages", std::to_string(stages)});
        least = std::min(least, tried[stages]["seconds"].get<double>());
      }
      CHECK(found == tried[found["stages"]]);
      CHECK(found["seconds"].get<double>() <= least * (1 + 1e-9));
      for (const auto& of : tried)  // of equal seconds the smallest
        if (of.second["seconds"].get<double>() < least * (1 + 1e-9)) {
          CHECK(found["stages"] == of.first);
          break;
        }
    }
    const json chosen = l.told("simulate", {"--relay", "auto"}), standard = l.told("simulate", {});
    CHECK(standard == chosen);
    const json never = l.told("simulate", {"--relay", "never"}), always = l.told("simulate", {"--relay", "always"});
    CHECK(chosen == (always["seconds"].get<double>() < never["seconds"].get<double>() * (1 - 1e-9) ? always : never));
    json planned = l.told("plan", {}), direct = l.told("plan", {"--relay", "never"});
    for (json* one : {&planned, &direct}) (*one)["summary"].erase("planning_seconds");
    CHECK(planned == direct);
    CHECK(planned["summary"]["stages"] == 1);
  }
}
