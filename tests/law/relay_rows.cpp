// SPDX-License-Identifier: Apache-2.0
// Relay on the rows of the engine's tables: what is delivered is the least, every byte enters a node that lacks it
// once, no rail is crossed where nodes are alike, and the NICs of a node work alike. From every device's own plan.
#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/volume.hpp>

#include "../oracle/relay_time.hpp"
#include "../oracle/trainer_switch.hpp"
#include "../support/tries.hpp"

using namespace reshard;

namespace {

struct row {
  const char *model, *from, *to;
  state_set states;
  cluster on;
  rank_t first_from = 0, first_to = 0;  // the lowest device of each side
  rank_t gone = 0, until = 0;           // devices [gone, until) of nobody's between TO's
};

std::vector<rank_t> devices_from(rank_t first, rank_t world, rank_t gone = 0, rank_t until = 0) {
  std::vector<rank_t> list;
  for (rank_t d = first; static_cast<rank_t>(list.size()) < world; ++d)
    if (d < gone || d >= until) list.push_back(d);
  return list;
}

computed_switch switch_of(const row& r) {
  const model m = preset(r.model);
  space from(m, parse_degrees(r.from)), to(m, parse_degrees(r.to));
  const placement placed{.from = device_map(devices_from(r.first_from, from.ranks())),
                         .to = device_map(devices_from(r.first_to, to.ranks(), r.gone, r.until)),
                         .on = r.on,
                         .states = r.states};
  return computed_switch(std::move(from), std::move(to), placed);
}

/// The same cluster for the oracle.
oracle::link_cluster links_of(const cluster& on, rank_t devices) {
  oracle::link_cluster links{on.gpus, {}, on.message_us, on.stage_us};
  const cluster listed = on.for_devices(devices);
  for (index_t y = 0; y < listed.node_count(); ++y) {
    const node_kind& kind = listed.kind_of(y);
    links.nodes.push_back({kind.nics == 0 ? on.gpus : kind.nics, kind.nvlink_GBps, kind.nic_GBps, kind.copy_GBps, -1});
  }
  return links;
}

struct looked_at {
  bytes_t delivered = 0, passed = 0, between = 0, crossing = 0;
  double busiest_over_mean = 0;  // of nodes that pass 1 GB or more
};

looked_at look(const computed_switch& change, const row& r, index_t chains) {
  const oracle::link_cluster links = links_of(r.on, change.devices());
  std::set<long> part;
  looked_at seen;
  std::vector<oracle::move> moves;
  for (rank_t device = 0; device < change.devices(); ++device) {
    if (change.from_rank(device) >= 0 || change.to_rank(device) >= 0) part.insert(device);
    for (const transfer& t : make_plan(change, device, {relay::always, chains, 1}).receives) {
      (t.why == purpose::passed_on ? seen.passed : seen.delivered) += t.bytes();
      if (links.node_of(t.src) == links.node_of(t.dst)) continue;
      seen.between += t.bytes();
      if (links.crosses_rails(t.src, t.dst)) seen.crossing += t.bytes();
      moves.push_back({t.src, t.dst, t.bytes(), 0});
    }
  }
  for (const auto& of : oracle::relay::nic_works(links, part, moves))
    if (of.second.bytes >= 1000000000) seen.busiest_over_mean = std::max(seen.busiest_over_mean, of.second.over_mean());
  return seen;
}

const char *m7 = "llama2-7b", *m13 = "llama2-13b", *m70 = "llama2-70b", *m32 = "llama-32b", *q30 = "qwen3-30b-a3b",
           *q235 = "qwen3-235b-a22b";
const row rows[] = {
    {m7, "tp=2,pp=2,dp=2,zero=1", "tp=4,pp=4,zero=1", all_states, clusters::a800},
    {m13, "tp=4,pp=4,zero=1", "tp=2,pp=8,dp=2,zero=1", all_states, clusters::a800},
    {m70, "tp=4,pp=8,dp=2,zero=1", "tp=8,pp=16,zero=1", all_states, clusters::a800},
    {m32, "tp=4,pp=4,dp=2,zero=1,split=spread", "tp=2,pp=8,dp=2,zero=1,split=spread", parameter_states, clusters::a800},
    {m32, "tp=2,pp=8,dp=2,zero=1,split=spread", "pp=16,dp=2,zero=1,split=spread", parameter_states, clusters::a800},
    {q30, "tp=4,pp=8,ep=4,zero=1", "tp=2,pp=4,dp=4,ep=2,zero=1", all_states, clusters::a800},
    {q235, "tp=4,pp=8,dp=4,ep=16,zero=1,split=account", "tp=8,pp=16,ep=8,zero=1,split=account", all_states,
     clusters::a800}};
// Of the 70B row: a node with 7 NICs, and four with 4.
const cluster uneven{
    .gpus = 8,
    .each = clusters::a800.each,
    .nodes = {{3, 8, 160, 25, 1300}, {1, 7, 160, 25, 1300}, {8, 8, 160, 25, 1300}, {4, 4, 160, 25, 1300}}};
const row uneven_row{m70, "tp=4,pp=8,dp=2,zero=1", "tp=8,pp=16,zero=1", all_states, uneven};
const row beyond[] = {{m13, "tp=4,pp=4,dp=2,zero=1", "tp=4,pp=2,dp=3,zero=1", all_states, clusters::a800, 0, 0, 16, 24},
                      {m7, "", "dp=8", parameter_states, clusters::a800},
                      {m13, "tp=8,zero=1", "tp=8,dp=8,zero=1", all_states, clusters::a800},
                      {m7, "tp=4,dp=2,zero=1", "tp=4,dp=2,zero=1", all_states, clusters::a800, 0, 8},
                      {m70, "tp=4,pp=8,dp=2", "tp=8,dp=8", parameter_states, clusters::h100, 0, 64},
                      {m70, "tp=4,pp=8,dp=2", "tp=8,dp=32", parameter_states, clusters::h100, 0, 64},
                      {m70, "tp=8,pp=8", "tp=8,dp=8", parameter_states, clusters::gb200, 0, 72}};

void check_row(const row& r, index_t chains, bool alike) {
  CAPTURE(r.model);
  CAPTURE(r.from);
  CAPTURE(r.to);
  CAPTURE(chains);
  const computed_switch change = switch_of(r);
  const looked_at seen = look(change, r, chains);
  CHECK(seen.delivered == volume_of(change).moved);
  CHECK(seen.busiest_over_mean <= 1.05);
  if (alike) CHECK(seen.crossing == 0);
  std::printf("%-16s %-44s %-38s F=%d  %.4f of the mean, %.3f GB passed, %.3f GB between nodes\n", r.model, r.from,
              r.to, static_cast<int>(chains), seen.busiest_over_mean, static_cast<double>(seen.passed) / 1e9,
              static_cast<double>(seen.between) / 1e9);
}

/// The sum over nodes of what TO's ranks on them hold and FROM's do not, by the other oracle's intervals.
bytes_t lacked(const nlohmann::json& config, const row& r, const std::string& states) {
  using namespace oracle::trainer;
  const oracle::trainer::model m = read_model(config);
  switch_question q{m, oracle::trainer::parse(m, r.from), oracle::trainer::parse(m, r.to), {}, {}, {}};
  for (long rank = 0; rank < q.from.world; ++rank) q.from_devices.push_back(static_cast<long>(r.first_from) + rank);
  for (long rank = 0; rank < q.to.world; ++rank) q.to_devices.push_back(static_cast<long>(r.first_to) + rank);
  bytes_t bytes = 0;
  for (const oracle::trainer::state& s : parse_states("adam")) {
    if (states != "all" && states != s.name) continue;
    const devices_of_state d = devices_of(q, s);
    std::map<long, elements> before, after;
    for (const auto& [device, held] : d.before)
      for (const auto& [family, set] : held)
        before[device / r.on.gpus][family] = either(before[device / r.on.gpus][family], set);
    for (const auto& [device, held] : d.needed)
      for (const auto& [name, set] : held) {
        const tensor& t = d.to.at(name);
        after[device / r.on.gpus][t.family] = either(after[device / r.on.gpus][t.family], in_family(t, set));
      }
    for (const auto& [node, families] : after)
      for (const auto& [family, set] : families) bytes += count(without(set, before[node][family])) * s.width;
  }
  return bytes;
}

}  // namespace

TEST_CASE("bytes between nodes are those that nodes lack, to the byte, by the other oracle") {
  const nlohmann::json llama7b{{"architectures", {"LlamaForCausalLM"}},
                               {"num_hidden_layers", 32},
                               {"hidden_size", 4096},
                               {"num_attention_heads", 32},
                               {"intermediate_size", 11008},
                               {"vocab_size", 32000}};
  row back = rows[0];
  std::swap(back.from, back.to);
  for (const row& r : {rows[0], back, beyond[1], beyond[3]})
    CHECK(look(switch_of(r), r, 1).between == lacked(llama7b, r, r.states == parameter_states ? "param" : "all"));
}

TEST_CASE("the rows of Table 1, there and back") {
  for (const row& r : rows) {
    check_row(r, 1, true);
    row back = r;
    std::swap(back.from, back.to);
    check_row(back, 1, true);
  }
}

TEST_CASE("rows beyond the paper, with one chain and with four") {
  for (const row& r : beyond)
    for (const index_t chains : {1, 4}) check_row(r, chains, r.gone == 0);
}

TEST_CASE("uneven NICs: those of a node work alike all the same") { check_row(uneven_row, 1, false); }
