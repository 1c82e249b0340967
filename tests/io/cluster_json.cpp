// SPDX-License-Identifier: Apache-2.0
// Clusters as they are written: shapes, names and JSON files; every fault of a file in one sentence.
#include <doctest/doctest.h>

#include <string>

#include <nlohmann/json.hpp>

#include <reshard/io/cluster_json.hpp>

#include "../support/refused.hpp"
#include "process.hpp"

using namespace reshard;
using namespace reshard::io;
using nlohmann::json;
using testing::refused;

namespace {
const json plainest{{"gpus", 8}, {"nvlink_GBps", 160}, {"nic_GBps", 25.5}, {"copy_GBps", 1300}};

json with(const char* key, const json& value) {
  json changed = plainest;
  changed[key] = value;
  return changed;
}
cluster read(const json& file) { return cluster_from_json(file.dump(), "my.json"); }
/// What a file is refused with, behind its name.
std::string fault(const std::string& text) {
  const std::string sentence = refused([&] { (void)cluster_from_json(text, "my.json"); });
  const std::string begins = "reshard: my.json: ";
  return sentence.starts_with(begins) ? sentence.substr(begins.size()) : sentence;
}
std::string fault(const json& file) { return fault(file.dump()); }
}  // namespace

TEST_CASE("a file with what is required has the rest by default") {
  const cluster on = read(plainest);
  CHECK(on == cluster{.gpus = 8, .each = {.nvlink_GBps = 160, .nic_GBps = 25.5, .copy_GBps = 1300}});
  CHECK(on.message_us == 10);
  CHECK(on.stage_us == 50);
  CHECK(on.each.spine_GBps == no_limit);
}

TEST_CASE("a file says everything, and nodes what is their own") {
  const cluster on = cluster_from_json(
      R"({"gpus": 8, "nvlink_GBps": 160, "nics": 7, "nic_GBps": 25, "spine_GBps": 200, "copy_GBps": 1300,
      "message_us": 0, "stage_us": 1.5, "nodes": [{"count": 12}, {"count": 4, "nics": 4}, {"spine_GBps": null},
      {"nvlink_GBps": 1, "nic_GBps": 2, "copy_GBps": 3, "spine_GBps": 0}]})",
      "my.json");
  CHECK(on.message_us == 0);
  CHECK(on.stage_us == 1.5);
  const node_kind each{.nics = 7, .nvlink_GBps = 160, .nic_GBps = 25, .copy_GBps = 1300, .spine_GBps = 200};
  CHECK(on.each == each);
  node_kind twelve = each, four = each, free = each;
  twelve.count = 12, four.count = 4, four.nics = 4, free.spine_GBps = no_limit;
  const node_kind apart{.nics = 7, .nvlink_GBps = 1, .nic_GBps = 2, .copy_GBps = 3, .spine_GBps = 0};
  CHECK(on.nodes == std::vector<node_kind>{twelve, four, free, apart});
  CHECK(on.devices() == 18 * 8);
  CHECK(
      cluster_from_json(R"({"nodes": [{"nics": 2}, {"nics": 3}], "nics": 4, "gpus": 4, "nvlink_GBps": 1, "nic_GBps": 1,
      "copy_GBps": 1})",
                        "my.json")
          .nodes[1]
          .nics == 3);  // a key of one object is none of another
}

TEST_CASE("what a file must not say") {
  const std::string keys =
      "; the keys are gpus, nvlink_GBps, nics, nic_GBps, spine_GBps, copy_GBps, message_us, stage_us, "
      "nodes";
  const std::string speed = "; it is above 0, from 1e-9 to 1e9 GB/s", time = "; it is 0 to 1e12 microseconds";
  CHECK(fault(with("nic_gbps", 3)) == "a cluster has the unknown key 'nic_gbps'" + keys);
  CHECK(fault(with(std::string(44, 'k').c_str(), 3)) ==  // 27 letters and 13
        "a cluster has the unknown key '" + std::string(27, 'k') + "..." + std::string(13, 'k') + "'" + keys);
  CHECK(fault(with("nodes", json::array({json{{"gpus", 4}}}))) ==
        "an entry of nodes has the unknown key 'gpus'; the keys are count, nics, nic_GBps, nvlink_GBps, copy_GBps, "
        "spine_GBps");
  for (const char* key : {"gpus", "nvlink_GBps", "nic_GBps", "copy_GBps"}) {
    json without = plainest;
    without.erase(key);
    CHECK(fault(without) == std::string(key) + " is missing");
  }
  for (const char* key : {"nvlink_GBps", "nic_GBps", "copy_GBps", "spine_GBps"}) {
    CHECK(fault(with(key, -1)) == std::string(key) + " is -1" + speed);
    CHECK(fault(with(key, "25")) == std::string(key) + " is \"25\"" + speed);
    CHECK(fault(with(key, 1e300)) == std::string(key) + " is 1e+300" + speed);
    if (std::string(key) == "spine_GBps") continue;
    CHECK(fault(with(key, 0)) == std::string(key) + " is 0" + speed);
    CHECK(fault(with(key, nullptr)) == std::string(key) + " is null" + speed);
  }
  for (const char* key : {"message_us", "stage_us"}) {
    CHECK(fault(with(key, 0)) == "accepted");
    CHECK(fault(with(key, -0.5)) == std::string(key) + " is -0.5" + time);
    CHECK(fault(with(key, false)) == std::string(key) + " is false" + time);
  }
  for (const json& gpus : {json(0), json(-8), json(8.0), json("8"), json(std::uint64_t{1} << 63), json(4194305)})
    CHECK(fault(with("gpus", gpus)) == "gpus is " + gpus.dump() + "; it is a whole number from 1 to 4194304");
  CHECK(fault(with("gpus", std::string(50, 'g'))) ==  // 27 bytes and 13, with the quotation marks
        "gpus is \"" + std::string(26, 'g') + "..." + std::string(12, 'g') +
            "\"; it is a whole number from 1 to 4194304");
  CHECK(fault(with("nics", 9)) == "nics is 9; it is a whole number from 1 to 8");
  CHECK(fault(with("nics", 0)) == "nics is 0; it is a whole number from 1 to 8");
  CHECK(fault(with("nodes", json::array({json{{"count", 0}}}))) ==
        "count is 0; it is a whole number from 1 to 4194304");
  CHECK(fault(with("nodes", json::array())) == "nodes is []; it is a list of nodes");
  CHECK(fault(with("nodes", json::array({4}))) == "an entry of nodes is 4; it is an object");
  CHECK(fault(with("nodes", json::array({json{{"count", 524288}}}))) == "accepted");
  CHECK(fault(with("nodes", json::array({json{{"count", 524289}}}))) ==
        "524289 nodes of 8 devices are more than 4194304 devices");
  CHECK(fault(json::array()) == "a cluster is []; it is an object");
  CHECK(fault(std::string(R"({"gpus": 8, "gpus": 8})")) == "the key 'gpus' is there twice");
  CHECK(fault(std::string(R"({"nodes": [{"count": 1}, {"count": 2, "count": 3}]})")) ==
        "the key 'count' is there twice");
  CHECK(fault(std::string(R"({"gpus": 8, "nodes": [{"count": 1}], "gpus": 8})")) == "the key 'gpus' is there twice");
  for (const char* text : {"", "{", "{\"gpus\": 8,}", "nan", "\xff", "{\"nic_GBps\": 1e999}"})
    CHECK(fault(std::string(text)).starts_with("not JSON: "));
  CHECK(fault(std::string(100000, '[')) == "lists and objects are nested deeper than 32");
}

TEST_CASE("speeds are 1e-9 to 1e9, times 0 to 1e12, counts 1 to what there can be, both ends included") {
  const auto limits = [](const char* key, const json& low, const json& high, const json& below, const json& above) {
    CAPTURE(std::string(key));
    CHECK(fault(with(key, low)) == "accepted");
    CHECK(fault(with(key, high)) == "accepted");
    CHECK(fault(with(key, below)).starts_with(std::string(key) + " is " + below.dump() + "; it is "));
    CHECK(fault(with(key, above)).starts_with(std::string(key) + " is " + above.dump() + "; it is "));
  };
  for (const char* key : {"nvlink_GBps", "nic_GBps", "copy_GBps", "spine_GBps"}) {
    limits(key, 1e-9, 1e9, 0.9e-9, 1.1e9);
    cluster on = read(with(key, 2.5));
    CHECK((std::string(key) == "nvlink_GBps" ? on.each.nvlink_GBps
           : std::string(key) == "nic_GBps"  ? on.each.nic_GBps
           : std::string(key) == "copy_GBps" ? on.each.copy_GBps
                                             : on.each.spine_GBps) == 2.5);
  }
  for (const char* key : {"message_us", "stage_us"}) limits(key, 0, 1e12, -1, 1.1e12);
  limits("gpus", 1, 4194304, 0, 4194305);
  limits("nics", 1, 8, 0, 9);
  CHECK(fault(with("nodes", json::array({json{{"count", 1}, {"nics", 8}}, json{{"count", 524287}}}))) == "accepted");
  CHECK(fault(with("nodes", json::array({json{{"count", 1}, {"nics", 9}}}))) ==
        "nics is 9; it is a whole number from 1 to 8");
  CHECK(fault(with("nodes", json::array({json{{"count", 2}}, json{{"count", 524287}}}))) ==
        "524289 nodes of 8 devices are more than 4194304 devices");
  CHECK(read(with("nodes", json::array({json::object()}))).nodes == std::vector<node_kind>{read(plainest).each});
}

TEST_CASE("a name, a shape, or a path") {
  CHECK(load_cluster("gb200") == clusters::gb200);
  const cluster shape = load_cluster("16x8");
  CHECK(shape.gpus == 8);
  CHECK(shape.node_count() == 16);
  CHECK(!shape.has_speeds());
  CHECK(load_cluster(testing::here().file("c.json", plainest.dump())) == read(plainest));
  const auto sentence = [](const std::string& text) { return refused([&] { (void)load_cluster(text); }); };
  for (const char* text : {"a100", "8", "A800", "16 x8", ""})
    CHECK(sentence(text).find("NODESxGPUS, like 16x8") != std::string::npos);
  CHECK(
      sentence("a100") ==
      "reshard: --cluster: 'a100' is neither a name (a800, h100, h200, gb200), nor of the form NODESxGPUS, like 16x8, "
      "nor a file");
  CHECK(sentence("2x0") == "reshard: --cluster: 2 nodes of 0 devices; both are at least 1");
  CHECK(sentence("missing.json") == "reshard: missing.json cannot be read: No such file or directory");
  CHECK(sentence("/") == "reshard: / cannot be read: Is a directory");
  for (const std::size_t more : {0u, 1u})  // shown whole with 43 letters, and of 44 the first 27 and the last 13
    CHECK(sentence(std::string(43 + more, 'a'))
              .starts_with("reshard: --cluster: '" +
                           (more == 0 ? std::string(43, 'a') : std::string(27, 'a') + "..." + std::string(13, 'a')) +
                           "' is neither a name ("));
  CHECK(sentence(".") == "reshard: . cannot be read: Is a directory");  // there is such a file
  CHECK(sentence(std::string(5000, 'a')) ==
        "reshard: " + one_line(std::string(5000, 'a')) + " cannot be read: File name too long");
  CHECK(sentence("none/a100") == "reshard: none/a100 cannot be read: No such file or directory");
  const std::string large = testing::here().file("large", std::string((1 << 20) + 1, ' '));
  CHECK(sentence(large) == "reshard: " + large + " is larger than 1048576 bytes, so it is no cluster");
  CHECK(sentence(testing::here().file("at_most", std::string(1 << 20, ' '))).find("not JSON") != std::string::npos);
}
