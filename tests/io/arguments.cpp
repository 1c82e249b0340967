// SPDX-License-Identifier: Apache-2.0
// The written forms of devices, clusters, bytes, states and ranks.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/io/arguments.hpp>

using namespace reshard;

namespace {
template <typename F>
std::string refusal_of(F&& f) {
  try {
    f();
  } catch (const refusal& stopped) {
    return stopped.what();
  }
  return "accepted";
}
std::string list_refusal(const char* text, rank_t ranks) {
  return refusal_of([&] { parse_device_list("--to-devices", text, ranks); });
}
}  // namespace

TEST_CASE("device lists") {
  using list = std::vector<rank_t>;
  CHECK(parse_device_list("d", "0-3", 4) == list{0, 1, 2, 3});
  CHECK(parse_device_list("d", "0-2,8,12-15", 8) == list{0, 1, 2, 8, 12, 13, 14, 15});
  CHECK(parse_device_list("d", "5", 1) == list{5});
  CHECK(parse_device_list("d", "3,2,0-1", 4) == list{3, 2, 0, 1});
  CHECK(parse_device_list("d", "007-08", 2) == list{7, 8});
  CHECK(parse_device_list("d", "4194303", 1) == list{4194303});
}

TEST_CASE("device lists that are refused") {
  CHECK(list_refusal("", 2) == "reshard: --to-devices: the list is empty, but there are 2 ranks");
  CHECK(list_refusal("0-3", 8) == "reshard: --to-devices: 4 devices are listed for 8 ranks");
  CHECK(list_refusal("0-3", 1) == "reshard: --to-devices: 4 devices are listed for 1 rank");
  CHECK(list_refusal("0-4194303", 8) == "reshard: --to-devices: 4194304 devices are listed for 8 ranks");
  CHECK(list_refusal("0,0", 2) == "reshard: --to-devices: device 0 is listed twice");
  CHECK(list_refusal("4-7,0-4", 9) == "reshard: --to-devices: device 4 is listed twice");
  CHECK(list_refusal("0-9,5", 11) == "reshard: --to-devices: device 5 is listed twice");
  CHECK(list_refusal("3-1", 3) == "reshard: --to-devices: the range 3-1 runs backwards");
  CHECK(list_refusal("4194304", 1) == "reshard: --to-devices: device 4194304 is too large; devices are 0 to 4194303");
  CHECK(list_refusal("9223372036854775807", 1).starts_with("reshard: --to-devices: device 9223372036854775807 is too large"));
  CHECK(list_refusal("9223372036854775808", 1) == "reshard: --to-devices: 9223372036854775808 does not fit 64 bits");
  for (const char* text : {",", "0,", ",0", "0,,1", "-1", "1-"})
    CHECK(list_refusal(text, 2) == "reshard: --to-devices: a number is missing");
  CHECK(list_refusal("0-1-2", 3) == "reshard: --to-devices: '1-2' is not a number");
  for (const char* text : {"a", " 0", "0 ", "+1", "0x1", "1.0", "\n"}) CHECK(list_refusal(text, 1).ends_with("is not a number"));
}

TEST_CASE("clusters") {
  CHECK(parse_cluster("16x8").nodes == 16);
  CHECK(parse_cluster("16x8").node_devices == 8);
  CHECK(parse_cluster("16x8").devices() == 128);
  const auto refused = [](const char* text) { return refusal_of([&] { parse_cluster(text); }); };
  CHECK(refused("16") == "reshard: --cluster: '16' is not of the form NODESxGPUS, like 16x8");
  CHECK(refused("0x8") == "reshard: --cluster: 0 nodes of 8 devices; both are at least 1");
  CHECK(refused("x8") == "reshard: --cluster: a number is missing");
  CHECK(refused("2x8x2") == "reshard: --cluster: '8x2' is not a number");
  CHECK(refused("9223372036854775807x8") == "reshard: --cluster: 9223372036854775807 nodes of 8 devices are more than 4194304 devices");
}

TEST_CASE("bytes") {
  CHECK(parse_bytes("--budget", "1") == 1);
  CHECK(parse_bytes("--budget", "67108864") == 67108864);
  CHECK(parse_bytes("--budget", "64MiB") == 67108864);
  CHECK(parse_bytes("--budget", "64 MiB") == 67108864);
  CHECK(parse_bytes("--budget", "1GB") == 1'000'000'000);
  CHECK(parse_bytes("--budget", "5B") == 5);
  CHECK(parse_bytes("--budget", "2TiB") == bytes_t{1} << 41);
  const auto refused = [](const char* text) { return refusal_of([&] { parse_bytes("--budget", text); }); };
  CHECK(refused("0") == "reshard: --budget: it must be at least 1 byte");
  CHECK(refused("0MiB") == "reshard: --budget: it must be at least 1 byte");
  CHECK(refused("") == "reshard: --budget: a number is missing");
  CHECK(refused("MiB") == "reshard: --budget: a number is missing");
  CHECK(refused("-1") == "reshard: --budget: '-1' is not a number");
  CHECK(refused("1.5GiB") == "reshard: --budget: '1.5' is not a number");
  CHECK(refused("64mib") == "reshard: --budget: '64mib' is not a number");
  CHECK(refused("9000000TiB") == "reshard: --budget: 9000000TiB does not fit 64 bits");
}

TEST_CASE("states and ranks") {
  CHECK(parse_states("param") == only(0));
  CHECK(parse_states("exp_avg_sq") == only(3));
  CHECK(parse_states("optimizer") == optimizer_states);
  CHECK(parse_states("all") == all_states);
  CHECK(refusal_of([] { parse_states("grad"); }) == "reshard: --state: 'grad' is unknown; it is param, master, exp_avg, exp_avg_sq, optimizer or all");
  CHECK(refusal_of([] { parse_states(""); }).starts_with("reshard: --state: '' is unknown"));
  CHECK(parse_rank("7", 8) == 7);
  CHECK(refusal_of([] { parse_rank("8", 8); }) == "reshard: --rank: there is no rank 8; ranks are 0 to 7");
  CHECK(refusal_of([] { parse_rank("-1", 8); }) == "reshard: --rank: '-1' is not a number");
}
