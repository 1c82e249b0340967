// SPDX-License-Identifier: Apache-2.0
// `reshard plan` as a program sees it, against the oracle: random switches, every element of every device, every figure
// counted again from the printed transfers, peaks replayed element by element. The program is in RESHARD_TOOL.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/cost/direct_stages.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>

#include "../oracle/plan_check.hpp"
#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/tries.hpp"
#include "process.hpp"

using nlohmann::json;
using testing::ask, testing::dice, testing::here, testing::words;

namespace {

struct printed {
  oracle::piece piece;
  long stage = 0;
  long bytes() const {
    long elements = 1;
    for (const auto& [begin, end] : piece.box) elements *= end - begin;
    return elements * oracle::width_of(piece.st);
  }
  auto key() const { return std::tuple(piece.src, piece.dst, piece.st, piece.tensor, piece.box, stage); }
};

oracle::state state_named(const std::string& name) {
  for (const oracle::state s : oracle::all_states)
    if (oracle::name_of(s) == name) return s;
  FAIL("unknown state " << name);
  return {};
}

std::vector<printed> transfers_of(const json& answer) {
  std::vector<printed> result;
  for (const json& t : answer.at("transfers")) {
    printed p{{t.at("src"), t.at("dst"), state_named(t.at("state")), t.at("tensor"), t.at("dims"), {}}, t.at("stage")};
    for (const json& interval : t.at("box")) p.piece.box.push_back({interval.at(0), interval.at(1)});
    CHECK(t.at("phase") == 0);
    CHECK(t.at("relay") == false);
    result.push_back(p);
  }
  return result;
}

json plan_json(const words& arguments) {
  const testing::answer got = ask(arguments);
  REQUIRE_MESSAGE(got.code == 0, got.err);
  CHECK(got.err == "");
  return json::parse(got.out);
}

/// One switch, as arguments.
words arguments_of(const oracle::switch_case& c, const std::string& config) {
  words arguments{"plan", config, c.from_text, c.to_text, "--json", "--transfers"};
  if (!c.from_devices_text.empty()) arguments.insert(arguments.end(), {"--from-devices", c.from_devices_text});
  if (!c.to_devices_text.empty()) arguments.insert(arguments.end(), {"--to-devices", c.to_devices_text});
  return arguments;
}

struct device_count {
  long send = 0, receive = 0, retained = 0, before = 0, after = 0, peak = 0;
};

/// Live bytes of every device over the stages, element by element.
std::map<long, device_count> count_devices(const oracle::switch_case& c, const std::vector<printed>& transfers,
                                           long stages, long devices, const std::vector<oracle::state>& states) {
  std::map<long, device_count> result;
  // stage of the last reader; `stages`: kept; -1: nobody
  std::map<long, std::map<std::pair<oracle::state, std::string>, std::vector<long>>> last;
  std::map<long, std::vector<long>> arrives;
  for (long d = 0; d < devices; ++d) result[d], arrives[d].resize(oracle::index(stages));
  for (const oracle::state s : states) {
    for (long rank = 0; rank < c.from.world; ++rank) {
      const long device = c.from_devices[oracle::index(rank)];
      for (const auto& [name, set] : oracle::held(c.m, c.from, rank, s)) {
        std::vector<long>& mine = last[device][{s, oracle::one_name(c.m, name)}];
        mine.assign(set.size(), -2);
        for (std::size_t i = 0; i < set.size(); ++i)
          if (set[i] != 0) mine[i] = -1, result[device].before += oracle::width_of(s);
      }
    }
    for (long rank = 0; rank < c.to.world; ++rank)
      result[c.to_devices[oracle::index(rank)]].after += oracle::bytes_held(c.m, c.to, rank, s);
  }
  for (const printed& t : transfers) {
    const bool kept = t.piece.src == t.piece.dst;
    (kept ? result[t.piece.src].retained : result[t.piece.src].send) += t.bytes();
    if (!kept) result[t.piece.dst].receive += t.bytes(), arrives[t.piece.dst][oracle::index(t.stage)] += t.bytes();
    std::vector<long>& source = last[t.piece.src].at({t.piece.st, oracle::one_name(c.m, t.piece.tensor)});
    std::vector<long> elements;
    REQUIRE(oracle::elements_of_box(t.piece.dims, t.piece.box, oracle::length(source), elements) == "");
    for (const long element : elements)
      source[oracle::index(element)] = std::max(source[oracle::index(element)], kept ? stages : t.stage);
  }
  for (auto& [device, count] : result) {
    std::vector<long> live(oracle::index(stages), 0);
    long arrived = 0;
    for (long k = 0; k < stages; ++k) live[oracle::index(k)] = arrived += arrives[device][oracle::index(k)];
    for (const auto& [what, elements] : last[device])
      for (const long reader : elements)
        for (long k = 0; k <= std::min(reader, stages - 1); ++k) live[oracle::index(k)] += oracle::width_of(what.first);
    count.peak = std::max({count.before, count.after, *std::max_element(live.begin(), live.end())});
  }
  return result;
}

void check_summary(const json& summary, const std::map<long, device_count>& devices,
                   const std::vector<printed>& transfers, long node) {
  long moved = 0, retained = 0, inter_node = 0, max_send = 0, max_receive = 0, peak = 0, floor = 0, excess = 0;
  std::set<std::tuple<long, long, long>> messages;
  for (const printed& t : transfers) {
    if (t.piece.src == t.piece.dst) {
      retained += t.bytes();
      continue;
    }
    moved += t.bytes();
    if (node > 0 && t.piece.src / node != t.piece.dst / node) inter_node += t.bytes();
    messages.insert({t.piece.src, t.piece.dst, t.stage});
  }
  for (const auto& [device, d] : devices) {
    max_send = std::max(max_send, d.send);
    max_receive = std::max(max_receive, d.receive);
    peak = std::max(peak, d.peak);
    floor = std::max({floor, d.before, d.after});
    excess = std::max(excess, d.peak - std::max(d.before, d.after));
  }
  CHECK(summary.at("moved_bytes") == moved);
  CHECK(summary.at("least_bytes") == moved);
  CHECK(summary.at("relayed_bytes") == 0);
  CHECK(summary.at("retained_bytes") == retained);
  CHECK(summary.at("inter_node_bytes") == inter_node);
  CHECK(summary.at("messages") == messages.size());
  CHECK(summary.at("max_send_bytes") == max_send);
  CHECK(summary.at("max_receive_bytes") == max_receive);
  CHECK(summary.at("peak_bytes") == peak);
  CHECK(summary.at("peak_floor_bytes") == floor);
  CHECK(summary.at("peak_excess_bytes") == excess);
  CHECK(summary.at("planning_seconds").get<double>() > 0);
}

void check_devices(const json& listed, const std::map<long, device_count>& devices) {
  CHECK(listed.size() == devices.size());
  for (const json& d : listed) {
    const device_count& count = devices.at(d.at("device"));
    CHECK(d == json{{"device", d.at("device")},
                    {"send_bytes", count.send},
                    {"receive_bytes", count.receive},
                    {"retained_bytes", count.retained},
                    {"before_bytes", count.before},
                    {"after_bytes", count.after},
                    {"peak_bytes", count.peak}});
  }
}

}  // namespace

TEST_CASE("random switches: the printed plan is right, and so is every figure") {
  oracle::generator generator(testing::seed() + 21);
  dice random(22);
  constexpr std::pair<const char*, std::vector<oracle::state> (*)()> state_choices[] = {
      {"all", [] { return std::vector<oracle::state>(std::begin(oracle::all_states), std::end(oracle::all_states)); }},
      {"param", [] { return std::vector{oracle::state::param}; }},
      {"exp_avg", [] { return std::vector{oracle::state::exp_avg}; }},
      {"optimizer", [] {
         return std::vector{oracle::state::master, oracle::state::exp_avg, oracle::state::exp_avg_sq};
       }}};
  int several = 0;  // within a budget in several stages
  for (int n = 0; n < testing::tries(60); ++n) {
    const oracle::switch_case c = generator.next_switch();
    const std::string description = c.describe();
    CAPTURE(description);
    words arguments = arguments_of(c, here().file("model.json", c.config));
    const long named = 1 + std::max(*std::max_element(c.from_devices.begin(), c.from_devices.end()),
                                    *std::max_element(c.to_devices.begin(), c.to_devices.end()));
    long devices = named, node = 0, stages = 1, budget = 0;
    if (n % 3 == 1) {
      node = random.within(1, 5);
      const long nodes = (named + node - 1) / node + random.below(2);
      devices = nodes * node;
      arguments.insert(arguments.end(), {"--cluster", std::to_string(nodes) + "x" + std::to_string(node)});
    }
    const auto& [states_named, make_states] = state_choices[n % 4 == 3 ? 1 + random.below(3) : 0];
    const std::vector<oracle::state> states = make_states();
    arguments.insert(arguments.end(), {"--state", states_named});
    if (n % 2 == 1) {
      long most = 0;  // B
      for (const auto& [l, world] : {std::pair(&c.from, c.from.world), std::pair(&c.to, c.to.world)})
        for (long rank = 0; rank < world; ++rank) {
          long bytes = 0;
          for (const oracle::state s : states) bytes += oracle::bytes_held(c.m, *l, rank, s);
          most = std::max(most, bytes);
        }
      budget = std::max(1L, most / random.within(1, 60));
      arguments.insert(arguments.end(), {"--budget", std::to_string(budget)});
      const std::string refused = ask(arguments).err, named_there = "the least budget that does is ";
      if (const std::size_t at = refused.find(named_there); at != refused.npos) {
        budget = std::stol(refused.substr(at + named_there.size()));
        arguments.back() = std::to_string(budget);
      }
    }
    const json answer = plan_json(arguments);
    stages = answer.at("summary").at("stages");
    if (budget > 0) {  // and half as many do not keep it
      CHECK(answer.at("summary").at("peak_excess_bytes") <= budget);
      CHECK((stages & (stages - 1)) == 0);
      several += stages > 1 ? 1 : 0;
      for (long fewer = stages / 2; fewer >= 1; fewer /= 2) {
        words less(arguments.begin(), arguments.end() - 2);
        less.insert(less.end(), {"--stages", std::to_string(fewer)});
        CHECK(plan_json(less).at("summary").at("peak_excess_bytes") > budget);
      }
    }
    const std::vector<printed> transfers = transfers_of(answer);
    std::vector<oracle::piece> pieces;
    for (const printed& t : transfers) {
      pieces.push_back(t.piece);
      CHECK(t.stage >= 0);
      CHECK(t.stage < stages);
    }
    oracle::totals sums;
    for (const std::string& fault : check_plan(c.m, c.from, c.to, c.from_devices, c.to_devices, pieces, sums, states))
      FAIL_CHECK(fault);
    CHECK(sums.moved_bytes == sums.least_bytes);
    CHECK(answer.at("summary").at("stages") == stages);
    const std::map<long, device_count> counted = count_devices(c, transfers, stages, devices, states);
    check_summary(answer.at("summary"), counted, transfers, node);
    check_devices(answer.at("devices"), counted);
    std::vector<long> rank_of_device(oracle::index(devices), -1);
    for (long rank = 0; rank < c.to.world; ++rank)
      rank_of_device[oracle::index(c.to_devices[oracle::index(rank)])] = rank;
    CHECK(answer.at("rank_of_device") == rank_of_device);

    // one device's view: the same transfers, but only those from or to it
    const long device = random.below(devices);
    CAPTURE(device);
    arguments.insert(arguments.end(), {"--rank", std::to_string(device)});
    const json view = plan_json(arguments);
    std::vector<printed> own = transfers_of(view), expected;
    for (const printed& t : transfers)
      if (t.piece.src == device || t.piece.dst == device) expected.push_back(t);
    const auto by_key = [](const printed& a, const printed& b) { return a.key() < b.key(); };
    std::sort(own.begin(), own.end(), by_key);
    std::sort(expected.begin(), expected.end(), by_key);
    CHECK(std::equal(own.begin(), own.end(), expected.begin(), expected.end(),
                     [](const printed& a, const printed& b) { return a.key() == b.key(); }));
    check_summary(view.at("summary"), {*counted.find(device)}, expected, node);
    check_devices(view.at("devices"), {*counted.find(device)});
    CHECK(view.at("rank_of_device") == rank_of_device);
  }
  CHECK_DRAWN(several > 0);
}

TEST_CASE("--keep-sources: what is held on either side, each byte once, and nothing above that") {
  const std::string config =
      here().file("kept.json", R"({"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 4, "hidden_size": 16,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "moe_intermediate_size": 8,
      "num_experts": 4, "vocab_size": 48})");
  const words asked[] = {{"tp=2,pp=2,zero=1", "tp=2,dp=3,ep=2,zero=1"},
                         {"tp=4", "dp=2", "--state", "param", "--to-devices", "5,2"},
                         {"pp=2,dp=2", "dp=4,ep=2", "--lost-devices", "1", "--to-devices", "0,2,3,4"}};
  for (const words& what : asked)
    for (const words& how : {words{}, words{"--stages", "3"}, words{"--budget", "20kB"}}) {
      words question{"plan", config};
      question.insert(question.end(), what.begin(), what.end());
      question.insert(question.end(), how.begin(), how.end());
      question.push_back("--json");
      const bool budget = !how.empty() && how[0] == "--budget";
      const json given_back = plan_json(question);
      question.push_back("--keep-sources");
      const json kept = plan_json(question);
      REQUIRE(kept["devices"].size() == given_back["devices"].size());
      long most = 0;
      for (std::size_t d = 0; d < kept["devices"].size(); ++d) {
        json was = given_back["devices"][d];
        const json& is = kept["devices"][d];
        const long all =
            was["before_bytes"].get<long>() + was["after_bytes"].get<long>() - was["retained_bytes"].get<long>();
        CHECK(is["after_bytes"] == all);
        CHECK(is["peak_bytes"] == all);
        for (const char* key : {"before_bytes", "send_bytes", "receive_bytes", "retained_bytes"})
          CHECK(is[key] == was[key]);
        most = std::max(most, all);
        question.insert(question.end(), {"--rank", std::to_string(d)});
        if (was["device"] != 1) CHECK(plan_json(question)["devices"][0] == is);  // which one switch has lost
        question.resize(question.size() - 2);
      }
      const json &summary = kept["summary"], &other = given_back["summary"];
      CHECK(summary["peak_bytes"] == most);
      CHECK(summary["peak_floor_bytes"] == most);
      CHECK(summary["peak_excess_bytes"] == 0);
      CHECK(summary["moved_bytes"] == other["moved_bytes"]);
      CHECK(summary["least_bytes"] == other["least_bytes"]);
      CHECK(summary["stages"] == (budget ? 1 : other["stages"].get<long>()));  // no more stages would take less
      question = {"simulate", config, "--cluster", "a800", "--keep-sources"};
      question.insert(question.end(), what.begin(), what.end());
      question.insert(question.end(), how.begin(), how.end());
      const testing::answer text = ask(question);
      CHECK(text.code == 0);
      CHECK(text.out.find("FROM's bytes") != std::string::npos);
      question.push_back("--json");
      CHECK(plan_json(question)["peak_bytes"] == most);
      CHECK(plan_json(question)["stages"] == summary["stages"]);
    }
}

TEST_CASE("the volume of a union: overlapping, equal, nested and touching boxes, against every point") {
  using namespace reshard;
  using namespace reshard::io;
  dice random(31);
  for (int n = 0; n < 400; ++n) {
    const index_t side = random.within(2, 9);
    std::vector<box<3>> boxes;
    for (index_t left = random.within(1, 12); left > 0; --left) {
      box<3> b{};
      for (interval& i : b.dim) {
        i.begin = random.below(side);
        i.end = random.within(i.begin + 1, least(side, i.begin + 4));
      }
      boxes.push_back(b);
      if (random.below(4) == 0) boxes.push_back(b);
    }
    index_t covered = 0;
    for (const int times : testing::occurrences(box<3>{{{0, side}, {0, side}, {0, side}}}, boxes))
      covered += times > 0 ? 1 : 0;
    CHECK(reshard::detail::union_volume(std::span(boxes)) == covered);
  }
}

TEST_CASE("shortcuts of the report equal the general way") {
  using namespace reshard;
  using namespace reshard::io;
  oracle::generator generator(testing::seed() + 23);
  for (int n = 0; n < testing::tries(120); ++n) {
    const oracle::switch_case c = generator.next_switch();
    const std::string description = c.describe();
    CAPTURE(description);
    const model m = parse_config(c.config, "random");
    const space from(m, parse_degrees(c.from_text)), to(m, parse_degrees(c.to_text));
    const layout_switch change(from, to,
                               {device_map(std::vector<rank_t>(c.from_devices.begin(), c.from_devices.end())),
                                device_map(std::vector<rank_t>(c.to_devices.begin(), c.to_devices.end()))});
    const computed_holding &before = change.from(), &after = change.to();
    for (const state_set states : {all_states, parameter_states, optimizer_states}) {
      bytes_t most = 0;  // rank by rank
      for (const computed_holding* h : {&before, &after})
        for (rank_t r = 0; r < h->ranks(); ++r) most = greatest(most, held_bytes(*h, r, states));
      CHECK(most == largest_holding(layout_switch(from, to, {.states = states})));
    }
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device);
      const bytes_t had = held_bytes(before, change.from_rank(device)), has = held_bytes(after, change.to_rank(device));
      const memory_replay replay = replay_memory(had, has, stage_transfers(p.receives, change, 1),
                                                 stage_transfers(p.sends, change, 1), p.retains, 1);
      CHECK(direct_memory(change, device, sources::release).excess(1) == replay.excess());
    }
  }
}
