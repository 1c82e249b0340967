// SPDX-License-Identifier: Apache-2.0
// `reshard simulate --trace` against what `plan --transfers` prints: bytes by device, slot and port, live bytes, and
// where in time everything stands.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/cluster_json.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/report/chrome_trace.hpp>

#include "../io/process.hpp"

using namespace reshard;
using nlohmann::json;
using testing::answer, testing::ask, testing::content_of, testing::here, testing::words;

namespace {
const char* tiny =
    R"({"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 4,
    "vocab_size": 48, "mlp_only_layers": [1]})";
const char* links = R"({"gpus": 3, "nvlink_GBps": 1e-3, "nic_GBps": 2e-4, "copy_GBps": 5e-3, "nics": 2,
    "message_us": 3, "stage_us": 7})";

json asked(const words& question) {
  const answer got = ask(question);
  CAPTURE(got.err);
  REQUIRE(got.code == 0);
  return json::parse(got.out);
}
bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)}); }

/// By device, slot and port.
using traffic = std::map<std::tuple<long, long, std::string>, long>;

/// NIC of a device: 3 GPUs of a node share 2.
long nic_of(long device) { return device % 3 * 2 / 3; }

struct expected {
  traffic bytes, messages, across;
};
expected of_transfers(const json& plan) {
  expected e;
  std::set<std::tuple<long, long, long, long>> seen;
  for (const json& t : plan["transfers"]) {
    const long src = t["src"], dst = t["dst"], phase = t["phase"], slot = t["stage"].get<long>() + phase;
    if (src == dst) continue;
    long bytes = t["state"] == "param" ? 2 : 4;
    for (const json& side : t["box"]) bytes *= side[1].get<long>() - side[0].get<long>();
    const bool inside = src / 3 == dst / 3, first = seen.insert({src, dst, slot, phase}).second;
    const std::string port = inside ? "nvlink" : "nic";
    for (const auto& key : {std::tuple(src, slot, port + "_out"), std::tuple(dst, slot, port + "_in")}) {
      e.bytes[key] += bytes;
      e.messages[key] += first ? 1 : 0;
      e.across[key] += !inside && nic_of(src) != nic_of(dst) ? bytes : 0;
    }
  }
  return e;
}

/// Live bytes by device in order of time, the processes and the threads.
struct told {
  expected moves;
  std::map<long, std::vector<std::pair<double, long>>> live;
  std::map<long, long> node;  // by thread
  std::set<long> processes;
  double last = 0;
};
told read_trace(const json& trace) {
  told all;
  for (const json& e : trace["traceEvents"]) {
    const long device = e["tid"], pid = e["pid"];
    const json& args = e["args"];
    if (e["ph"] == "M") {
      if (e["name"] == "process_name") {
        CHECK(args["name"] == "node " + std::to_string(pid));
        CHECK(all.processes.insert(pid).second);
      }
      if (e["name"] == "thread_name") {
        CHECK(args["name"] == "device " + std::to_string(device));
        CHECK(all.node.insert({device, pid}).second);
      }
      continue;
    }
    CHECK(all.node.at(device) == pid);
    all.last = std::max(all.last, e["ts"].get<double>());
    if (e["ph"] == "C") {
      CHECK(e["name"] == "live bytes of device " + std::to_string(device));
      all.live[device].push_back({e["ts"], args["bytes"]});
      continue;
    }
    REQUIRE(e["ph"] == "X");
    const std::string port = args["port"];
    const std::tuple key(device, args["slot"].get<long>(), port);
    CHECK(all.moves.bytes.count(key) == 0);
    all.moves.bytes[key] = args["bytes"];
    all.moves.messages[key] = args["messages"];
    all.moves.across[key] = args["across_rails"];
    CHECK(near(e["dur"], args["bytes"].get<double>() / (port.starts_with("nic") ? 2e-4 : 1e-3) * 1e-3));
    CHECK(e["name"].get<std::string>().starts_with(port.ends_with("out") ? "sends" : "receives"));
    CHECK((e["name"].get<std::string>().find("NIC") != std::string::npos) == port.starts_with("nic"));
  }
  return all;
}
}  // namespace

TEST_CASE("a trace says what the plan's transfers say, slot by slot, and every peak") {
  const std::string model = here().file("tiny.json", tiny), cluster = here().file("links.json", links),
                    file = (here().folder / "trace.json").string();
  const words switches[] = {{"tp=2,pp=2,zero=1", "dp=4,ep=2,zero=1", "--to-devices", "1,4-6"},
                            {"dp=4,ep=4,zero=1", "tp=2,dp=4,zero=1", "--to-devices", "9,1-3,5-8"},
                            {"pp=4", "tp=2", "--from-devices", "0-2,6", "--keep-sources"},
                            {"pp=2,dp=2", "dp=4,ep=2", "--lost-devices", "1", "--to-devices", "0,2,3,4"}};
  int several_ports = 0, across = 0;
  for (const words& what : switches)
    for (const words& how :
         {words{"--relay", "never", "--stages", "1"}, words{"--relay", "never", "--stages", "3"},
          words{"--relay", "always", "--stages", "3"}, words{"--relay", "never", "--budget", "40kB"}}) {
      CAPTURE(what[0]);
      words planned{"plan", model, "--json", "--transfers", "--cluster", cluster},
          simulated{"simulate", model, "--json", "--trace", file, "--cluster", cluster};
      for (words* one : {&planned, &simulated}) {
        one->insert(one->end(), what.begin(), what.end());
        one->insert(one->end(), how.begin(), how.end());
      }
      const json plan = asked(planned), simulation = asked(simulated);
      const json trace = json::parse(content_of(file));
      CHECK(trace["otherData"]["simulated"] == "not measured");
      const told found = read_trace(trace);
      const expected wanted = of_transfers(plan);
      CHECK(found.moves.bytes == wanted.bytes);
      CHECK(found.moves.messages == wanted.messages);
      CHECK(found.moves.across == wanted.across);
      for (const auto& [key, bytes] : wanted.across) across += bytes > 0 ? 1 : 0;
      std::map<std::pair<long, long>, int> ports;
      for (const auto& [key, bytes] : wanted.bytes) several_ports += ++ports[{std::get<0>(key), std::get<1>(key)}] > 2;
      // memory: before, one value a slot, after
      const std::size_t slots = plan["summary"]["slots"];
      long highest = 0;
      std::set<long> nodes;
      for (const json& d : plan["devices"]) {
        const long device = d["device"];
        if (d["before_bytes"] == 0 && d["after_bytes"] == 0) {
          CHECK(found.live.count(device) == 0);
          continue;
        }
        nodes.insert(device / 3);
        CHECK(found.node.at(device) == device / 3);
        const auto& live = found.live.at(device);
        REQUIRE(live.size() == slots + 2);
        CHECK(live.front().second == d["before_bytes"]);
        CHECK(live.back().second == d["after_bytes"]);
        long most = 0;
        for (const auto& [at, bytes] : live) most = std::max(most, bytes);
        CHECK(most == d["peak_bytes"]);
        CHECK(std::is_sorted(live.begin(), live.end(), [](auto& a, auto& b) { return a.first < b.first; }));
        highest = std::max(highest, most);
      }
      CHECK(highest == simulation["peak_bytes"]);
      CHECK(found.processes == nodes);
      // time: the end is the formula's seconds, and nothing lasts longer than its slot
      CHECK(found.last == doctest::Approx(simulation["seconds"].get<double>() * 1e6).epsilon(1e-3));
      const auto& any = found.live.begin()->second;
      for (const json& e : trace["traceEvents"])
        if (e["ph"] == "X") {
          const std::size_t k = e["args"]["slot"];
          CHECK(near(e["ts"], any[k + 1].first));
          const double end = any[k + 2].first - (k + 1 < slots ? 7 : 0);
          CHECK(e["ts"].get<double>() + e["dur"].get<double>() <= end + 1e-6);
        }
      CHECK(near(any[1].first, 7));
    }
  CHECK(several_ports > 10);
  CHECK(across > 10);
}

TEST_CASE("the library writes what the tool does: a device that only gives, and one that waits") {
  const model m = make_transformer(
      {.name = "m", .layers = 2, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 16});
  const layout_switch change(space(m, parse_degrees("")), space(m, parse_degrees("")),
                             {.to = device_map(std::vector<rank_t>{4}), .on = io::cluster_from_json(links, "links")});
  simulator all(change);
  io::live_recorder memory(change, 2, sources::release), kept(change, 2, sources::keep);
  bytes_t moved = 0;
  for (rank_t d = 0; d < change.devices(); ++d) {
    const plan p = make_plan(change, d);
    moved += total_bytes(p.sends);
    all.add(p), memory.add(p), kept.add(p);
  }
  REQUIRE(moved > 0);
  io::text_output out;
  write_trace(out, all, memory);
  const told found = read_trace(json::parse(out.text()));
  CHECK(found.processes == std::set<long>{0, 1});
  CHECK(found.node == std::map<long, long>{{0, 0}, {4, 1}});  // no other takes part
  using key = std::tuple<long, long, std::string>;
  const traffic half{{key(0, 0, "nic_out"), moved / 2},
                     {key(0, 1, "nic_out"), moved / 2},
                     {key(4, 0, "nic_in"), moved / 2},
                     {key(4, 1, "nic_in"), moved / 2}};
  CHECK(found.moves.bytes == half);
  const auto values = [](const std::vector<std::pair<double, long>>& live) {
    std::vector<long> bytes;
    for (const auto& one : live) bytes.push_back(one.second);
    return bytes;
  };
  CHECK(values(found.live.at(0)) == std::vector<long>{moved, moved, moved / 2, 0});
  CHECK(values(found.live.at(4)) == std::vector<long>{0, moved / 2, moved, moved});
  CHECK(found.live.at(0)[1].first == 7);  // stage_us
  CHECK(near(found.last, seconds_of(all.on(), all.streams(), 2).total() * 1e6));
  REQUIRE(kept.devices().size() == 2);
  CHECK(kept.devices()[0].after == moved);
  CHECK(kept.devices()[0].live == std::vector<bytes_t>{moved, moved});
}

TEST_CASE("a trace that cannot be written is refused, and nothing printed") {
  const answer got =
      ask({"simulate", "llama2-7b", "tp=2", "tp=4", "--cluster", "a800", "--trace", "/no/such/folder/trace.json"});
  CHECK(got.code == 1);
  CHECK(got.out.empty());
  CHECK(got.err.find("/no/such/folder/trace.json cannot be written") != std::string::npos);
}
