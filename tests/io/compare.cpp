// SPDX-License-Identifier: Apache-2.0
// What `reshard compare` says, against the tool itself: every legal layout of a brute-force enumeration is asked of
// `check` and `simulate`.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/print.hpp>

#include "process.hpp"

using nlohmann::json;
using testing::answer, testing::ask, testing::here, testing::words;

namespace {
json asked(words question, const words& more = {}) {
  question.insert(question.end(), more.begin(), more.end());
  question.push_back("--json");
  const answer got = ask(question);
  CAPTURE(got.err);
  REQUIRE(got.code == 0);
  return json::parse(got.out);
}

const char* tiny =
    R"({"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 4,
    "vocab_size": 48, "mlp_only_layers": [1]})";
const char* dense =
    R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 6, "hidden_size": 24, "num_attention_heads": 6,
    "num_key_value_heads": 3, "head_dim": 4, "intermediate_size": 36, "vocab_size": 36})";
const char* links = R"({"gpus": 3, "nvlink_GBps": 1e-3, "nic_GBps": 2e-4, "copy_GBps": 5e-3, "nics": 2,
    "spine_GBps": 3e-4, "message_us": 3, "stage_us": 7})";

/// A layout's values by key, with the defaults of those that vary.
std::map<std::string, std::string> values(const std::string& layout) {
  std::map<std::string, std::string> found{{"tp", "1"}, {"pp", "1"}, {"dp", "1"}, {"ep", "1"}, {"split", "even"}};
  std::istringstream in(layout);
  for (std::string item; std::getline(in, item, ',');)
    found[item.substr(0, item.find('='))] = item.substr(item.find('=') + 1);
  if (found.count("etp") == 0) found["etp"] = found["ep"] != "1" ? "1" : found["tp"];
  return found;
}

/// What a row says of a switch, but for its layout.
json row_of(const std::string& model, const std::string& from, const std::string& to, const words& options) {
  const json bytes = asked({"check", model, to})["bytes_per_rank"],
             found = asked({"simulate", model, from, to}, options);
  long largest = 0;
  for (std::size_t rank = 0; rank < bytes["param"].size(); ++rank) {
    long sum = 0;
    for (const auto& state : bytes) sum += state[rank].get<long>();
    largest = std::max(largest, sum);
  }
  return {{"bytes_per_rank", largest},
          {"moved_bytes", found["moved_bytes"]},
          {"retained_bytes", found["retained_bytes"]},
          {"peak_bytes", found["peak_bytes"]},
          {"seconds", found["seconds"]}};
}

/// Rows of all legal layouts by their values, from five loops over what `check` takes.
std::map<std::map<std::string, std::string>, json> brute(const std::string& model, int layers, int experts, int devices,
                                                         const std::string& from, const std::string& kept,
                                                         const words& options) {
  const int cp = kept.find("cp=2") != kept.npos ? 2 : 1;
  std::map<std::map<std::string, std::string>, json> rows;
  for (int tp = 1; tp <= devices; ++tp)
    for (int pp = 1; pp * tp <= devices; ++pp)
      for (int ep = 1; ep <= std::max(experts, 1); ++ep) {
        if (devices % (tp * pp * cp) != 0) continue;
        std::ostringstream to;
        to << "dp=" << devices / tp / pp / cp << ",pp=" << pp << ",tp=" << tp
           << ",split=" << (layers % pp == 0 ? "even" : "spread") << kept;
        if (experts > 0) to << ",etp=1,ep=" << ep;
        if (ask({"check", model, to.str()}).code == 0) rows[values(to.str())] = row_of(model, from, to.str(), options);
      }
  return rows;
}

void check_against_brute(const std::string& model, int layers, int experts, int devices, const std::string& from,
                         const std::string& kept, const words& options, std::size_t at_least) {
  CAPTURE(from);
  CAPTURE(devices);
  const auto wanted = brute(model, layers, experts, devices, from, kept, options);
  const json found = asked({"compare", model, from, "--devices", std::to_string(devices)}, options);
  CHECK(wanted.size() >= at_least);
  CHECK(found["legal"] == wanted.size());
  CHECK(found["too_large"] == 0);
  CHECK(!found.contains("refused"));
  REQUIRE(found["layouts"].size() == wanted.size());
  std::map<std::map<std::string, std::string>, int> seen;
  for (json row : found["layouts"]) {
    const std::string layout = row["layout"];
    CAPTURE(layout);
    auto key = values(layout);
    ++seen[key];
    row.erase("layout");
    REQUIRE(wanted.count(key) == 1);
    CHECK(row == wanted.at(key));
  }
  CHECK(seen.size() == wanted.size());
  const json& rows = found["layouts"];
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto order = [](const json& row) {
      return std::tuple(row["seconds"].get<double>(), row["layout"].get<std::string>());
    };
    CHECK(order(rows[i - 1]) < order(rows[i]));
  }
}
}  // namespace

TEST_CASE("every legal layout once, as check and simulate answer for each") {
  const std::string moe = here().file("tiny.json", tiny), llama = here().file("dense.json", dense),
                    cluster = here().file("links.json", links);
  const words on{"--cluster", cluster};
  check_against_brute(moe, 4, 4, 8, "tp=2,pp=2,zero=1", ",zero=1", on, 20);
  check_against_brute(moe, 4, 4, 6, "tp=2,pp=2,dp=2,ep=2,bucket=100", ",bucket=100", {"--cluster", "h100"}, 8);
  check_against_brute(llama, 6, 0, 12, "tp=3,dp=2,zero=1", ",zero=1",
                      {"--cluster", cluster, "--stages", "3", "--from-devices", "6-11"}, 8);
  check_against_brute(llama, 6, 0, 8, "pp=6,cp=2,split=spread", ",cp=2", {"--cluster", cluster, "--relabel"}, 3);
}

TEST_CASE("layouts above the memory are counted, and not listed") {
  const std::string moe = here().file("tiny.json", tiny);
  const words question{"compare", moe, "dp=2,zero=1", "--devices", "4", "--cluster", "a800"};
  const json all = asked(question);
  std::vector<long> bytes;
  for (const json& row : all["layouts"]) bytes.push_back(row["bytes_per_rank"]);
  std::sort(bytes.begin(), bytes.end());
  const long limit = bytes[bytes.size() / 2];
  const json some = asked(question, {"--memory", std::to_string(limit)});
  const auto fit = std::count_if(bytes.begin(), bytes.end(), [&](long b) { return b <= limit; });
  CHECK(static_cast<std::size_t>(fit) < bytes.size());
  CHECK(some["layouts"].size() == static_cast<std::size_t>(fit));
  CHECK(some["legal"] == bytes.size());
  CHECK(some["too_large"] == bytes.size() - static_cast<std::size_t>(fit));
  for (const json& row : some["layouts"]) CHECK(row["bytes_per_rank"] <= limit);
  const json none = asked(question, {"--memory", "1"});
  CHECK(none["layouts"].empty());
  CHECK(none["too_large"] == bytes.size());
  words text = question;
  text.insert(text.end(), {"--memory", "1"});
  CHECK(ask(text).out.find(" have a rank of more than 1 B") != std::string::npos);
}

TEST_CASE("without speeds the fewest bytes moved come first, and seconds are null") {
  const std::string moe = here().file("tiny.json", tiny);
  for (const words& more : {words{}, words{"--cluster", "2x4"}}) {
    const json found = asked({"compare", moe, "tp=2,pp=2", "--devices", "8"}, more);
    const json& rows = found["layouts"];
    REQUIRE(rows.size() > 10);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i]["seconds"].is_null());
      const auto order = [](const json& row) {
        return std::tuple(row["moved_bytes"].get<long>(), row["layout"].get<std::string>());
      };
      if (i > 0) CHECK(order(rows[i - 1]) < order(rows[i]));
    }
  }
}

TEST_CASE("--axes and --top") {
  const std::string moe = here().file("tiny.json", tiny);
  const words question{"compare", moe, "pp=2,tp=2", "--devices", "8", "--cluster", "a800"};
  const json all = asked(question), two = asked(question, {"--top", "2"}), over_dp = asked(question, {"--axes", "dp"});
  CHECK(two["layouts"].size() == 2);
  CHECK(two["layouts"][1] == all["layouts"][1]);
  CHECK(two["legal"] == all["legal"]);
  REQUIRE(over_dp["layouts"].size() == 1);
  CHECK(over_dp["layouts"][0]["layout"] == "tp=2,pp=2,dp=2");
  CHECK(all["layouts"].size() > 20);
  const auto lines = [](const answer& got) { return std::count(got.out.begin(), got.out.end(), '\n'); };
  words three = question;
  three.insert(three.end(), {"--top", "3"});
  CHECK(lines(ask(question)) == lines(ask(three)) + 17);  // 20 of themselves
}

TEST_CASE("what compare refuses, and what it leaves out") {
  const std::string moe = here().file("tiny.json", tiny);
  const auto refused = [&](const words& options, const std::string& sentence) {
    words question{"compare", moe, "tp=2,dp=2"};
    question.insert(question.end(), options.begin(), options.end());
    const answer got = ask(question);
    CHECK(got.code == 1);
    CHECK(got.out.empty());
    if (got.err.find(sentence) == std::string::npos) CHECK(got.err == sentence);
  };
  refused({}, "--devices is required");
  refused({"--devices", "0"}, "reshard: --devices: 0 devices; there is at least 1\n");
  refused({"--devices", "4194305"}, "--devices: 4194305 devices; at most 4194304 are gone through one by one");
  refused({"--devices", "x"}, "--devices: 'x' is not a number");
  refused({"--devices", "8", "--axes", "tp,xp"}, "axes: 'xp' is none that varies; tp, pp, dp and ep do");
  refused({"--devices", "8", "--top", "0"}, "--top: 0 layouts; there is at least 1");
  refused({"--devices", "8", "--memory", "40G"}, "--memory: '40G' may be 40GB");
  refused({"--devices", "6", "--axes", "tp"},
          "reshard: --devices: no layout of 6 devices is legal over the axes tp with every other key as in FROM; 4 or "
          "8 devices have some\n");
  refused({"--devices", "8", "--relay", "auto"}, "--relay auto compares seconds, and the cluster has no speeds");
  refused({"--devices", "8", "--relay", "sometimes"}, "--relay: 'sometimes' is unknown; it is never, auto or always");
  refused({"--devices", "8", "--to-devices", "0-6"}, "--to-devices: 7 devices are listed for 8 ranks");
  refused({"--devices", "8", "--rank", "0"}, "--rank");
  // a budget that some switches keep
  const words question{"compare", moe,        "pp=4", "--devices", "4",   "--stages",
                       "1",       "--budget", "20kB", "--cluster", "a800"};
  const json found = asked(question);
  CHECK(found["refused"] > 0);
  CHECK(!found["layouts"].empty());
  CHECK(found["legal"] == found["layouts"].size() + found["refused"].get<std::size_t>());
  CHECK(ask(question).out.find(" refused; one reason: --budget: 20000 bytes") != std::string::npos);
}

TEST_CASE("the table has 80 columns and says that seconds are simulated") {
  for (const char* devices : {"32", "96", "64"}) {
    const answer got = ask({"compare", "qwen3-30b-a3b", "tp=4,pp=8,ep=4,zero=1", "--devices", devices, "--cluster",
                            "a800", "--axes", "pp,dp,ep", "--memory", "40GiB"});
    REQUIRE(got.code == 0);
    CHECK(got.out.find("seconds are simulated, not measured; best first") != std::string::npos);
    CHECK(got.out.find("\nfirst: tp=4,") != std::string::npos);
    std::istringstream text(got.out);
    for (std::string line; std::getline(text, line);) CHECK(reshard::io::text_width(line) <= 80);
  }
}
