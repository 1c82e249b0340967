// SPDX-License-Identifier: Apache-2.0
// The written forms of devices, clusters, bytes, states and ranks.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <reshard/io/arguments.hpp>

using namespace reshard;

using namespace reshard::io;

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

TEST_CASE("a device that is listed many times is listed twice, and a list of any length is looked through") {
  std::string same = "0", apart = "99", upwards = "0";
  std::vector<rank_t> devices = {99};
  for (int n = 1; n < 40; ++n) same += ",0", upwards += ',' + std::to_string(n);
  for (rank_t n = 98; n >= 0; --n) apart += ',' + std::to_string(n), devices.push_back(n);
  CHECK(list_refusal(same.c_str(), 40) == "reshard: --to-devices: device 0 is listed twice");
  CHECK(list_refusal((upwards + ",39").c_str(), 41) == "reshard: --to-devices: device 39 is listed twice");
  CHECK(parse_device_list("d", apart, 100) == devices);
}

TEST_CASE("some devices, in the order of the list, none of them twice") {
  using list = std::vector<rank_t>;
  CHECK(parse_devices("--lost", "3,7") == list{3, 7});
  CHECK(parse_devices("--lost", "4-7") == list{4, 5, 6, 7});
  CHECK(parse_devices("--lost", "7,0-1") == list{7, 0, 1});
  const auto refused = [](const char* text) { return refusal_of([&] { parse_devices("--lost", text); }); };
  CHECK(refused("7,6-8") == "reshard: --lost: device 7 is listed twice");
  CHECK(refused("") == "reshard: --lost: a number is missing");
  CHECK(refused("4194304") == "reshard: --lost: device 4194304 is too large; devices are 0 to 4194303");
}

TEST_CASE("samples are told in any order, also twice; at most 4096") {
  using list = std::vector<index_t>;
  CHECK(parse_samples("--at", "0") == list{0});
  CHECK(parse_samples("--at", "500,0,1000,500") == list{500, 0, 1000, 500});
  CHECK(parse_samples("--at", "9223372036854775807,1") == list{9223372036854775807, 1});
  const auto refused = [](const std::string& text) { return refusal_of([&] { parse_samples("--at", text); }); };
  for (const char* text : {"", ",", "1,", ",1", "1,,2"}) CHECK(refused(text) == "reshard: --at: a number is missing");
  CHECK(refused("1,x") == "reshard: --at: 'x' is not a number");
  CHECK(refused("9223372036854775808") == "reshard: --at: 9223372036854775808 does not fit 64 bits");
  std::string most = "7";
  for (int n = 1; n < 4096; ++n) most += ",7";
  CHECK(parse_samples("--at", most) == list(4096, 7));
  CHECK(refused(most + ",7") == "reshard: --at: more than 4096 samples are listed");
}

TEST_CASE("a number without a sign is one of 64 bits") {
  using io::detail::unsigned_digits_of;
  CHECK(unsigned_digits_of("--seed", "0") == 0);
  CHECK(unsigned_digits_of("--seed", "190") == 190);
  CHECK(unsigned_digits_of("--seed", "0012345678") == 12345678);
  CHECK(unsigned_digits_of("--seed", "18446744073709551615") == 18446744073709551615u);
  const auto refused = [](const std::string& text) { return refusal_of([&] { unsigned_digits_of("--seed", text); }); };
  CHECK(refused("") == "reshard: --seed: a number is missing");
  for (const std::string text : {"-1", "1/", "1:", "x", "1 ", "+1"})
    CHECK(refused(text) == "reshard: --seed: '" + text + "' is not a number");
  for (const std::string text : {"18446744073709551616", "18446744073709551620", "184467440737095516150"})
    CHECK(refused(text) == "reshard: --seed: " + text + " does not fit 64 bits without a sign");
  const std::string nines(43, '9'), ys = std::string(27, 'y') + std::string(17, 'z') + std::string(13, 'y');
  CHECK(refused(nines) == "reshard: --seed: " + nines + " does not fit 64 bits without a sign");
  CHECK(refused(std::string(27, '8') + std::string(4, '9') + std::string(13, '7')) ==
        "reshard: --seed: " + std::string(27, '8') + "..." + std::string(13, '7') +
            " does not fit 64 bits without a sign");
  CHECK(refused(std::string(43, 'y')) == "reshard: --seed: '" + std::string(43, 'y') + "' is not a number");
  CHECK(refused(ys) ==
        "reshard: --seed: '" + std::string(27, 'y') + "..." + std::string(13, 'y') + "' is not a number");
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
  CHECK(list_refusal("9223372036854775807", 1)
            .starts_with("reshard: --to-devices: device 9223372036854775807 is too large"));
  CHECK(list_refusal("9223372036854775808", 1) == "reshard: --to-devices: 9223372036854775808 does not fit 64 bits");
  for (const char* text : {",", "0,", ",0", "0,,1", "-1", "1-"})
    CHECK(list_refusal(text, 2) == "reshard: --to-devices: a number is missing");
  CHECK(list_refusal("0-1-2", 3) == "reshard: --to-devices: '1-2' is not a number");
  for (const char* text : {"a", " 0", "0 ", "+1", "0x1", "1.0", "\n"})
    CHECK(list_refusal(text, 1).ends_with("is not a number"));
}

TEST_CASE("a long text is shortened inside every sentence: its first 27 characters and its last 13") {
  const std::string just(43, 'y'), letters = std::string(27, 'y') + std::string(20, 'z') + std::string(13, 'y'),
                                   shortened = std::string(27, 'y') + "..." + std::string(13, 'y');
  const std::string digits = std::string(27, '9') + std::string(20, '1') + std::string(13, '9'),
                    short_digits = std::string(27, '9') + "..." + std::string(13, '9');
  for (const auto& pair : {std::pair{just, just}, std::pair{just + "y", shortened}, std::pair{letters, shortened}}) {
    const std::string text = pair.first, shown = pair.second;
    CHECK(list_refusal(text.c_str(), 1) == "reshard: --to-devices: '" + shown + "' is not a number");
    CHECK(refusal_of([&] { parse_states(text); }) ==
          "reshard: --state: '" + shown + "' is unknown; it is param, master, exp_avg, exp_avg_sq, optimizer or all");
    CHECK(refusal_of([&] { parse_cluster(text); }) ==
          "reshard: --cluster: '" + shown + "' is not of the form NODESxGPUS, like 16x8");
  }
  CHECK(list_refusal(digits.c_str(), 1) == "reshard: --to-devices: " + short_digits + " does not fit 64 bits");
  const auto bytes_refusal = [](const std::string& text) { return refusal_of([&] { parse_bytes("--budget", text); }); };
  const std::string spaced = "9000000000000" + std::string(27, ' ');  // 40 characters before the unit
  CHECK(bytes_refusal(spaced + "TiB") == "reshard: --budget: " + spaced + "TiB does not fit 64 bits");
  CHECK(bytes_refusal(spaced + " TiB") == "reshard: --budget: 9000000000000" + std::string(14, ' ') + "..." +
                                              std::string(10, ' ') + "TiB does not fit 64 bits");
}

TEST_CASE("clusters") {
  CHECK(parse_cluster("16x8").nodes == 16);
  CHECK(parse_cluster("16x8").node_devices == 8);
  CHECK(parse_cluster("16x8").devices() == 128);
  for (const char* text : {"1x1", "1x8", "8x1", "4194304x1", "1x4194304", "2048x2048"})
    CHECK(refusal_of([&] { parse_cluster(text); }) == "accepted");
  CHECK(parse_cluster("1x4194304").devices() == 4194304);
  const auto refused = [](const char* text) { return refusal_of([&] { parse_cluster(text); }); };
  CHECK(refused("4194305x1") == "reshard: --cluster: 4194305 nodes of 1 devices are more than 4194304 devices");
  CHECK(refused("1x4194305") == "reshard: --cluster: 1 nodes of 4194305 devices are more than 4194304 devices");
  CHECK(refused("2048x2049") == "reshard: --cluster: 2048 nodes of 2049 devices are more than 4194304 devices");
  CHECK(refused("8x9223372036854775807") ==
        "reshard: --cluster: 8 nodes of 9223372036854775807 devices are more than 4194304 devices");
  CHECK(refused("8x0") == "reshard: --cluster: 8 nodes of 0 devices; both are at least 1");
  CHECK(refused("8x") == "reshard: --cluster: a number is missing");
  CHECK(refused("16") == "reshard: --cluster: '16' is not of the form NODESxGPUS, like 16x8");
  CHECK(refused("0x8") == "reshard: --cluster: 0 nodes of 8 devices; both are at least 1");
  CHECK(refused("x8") == "reshard: --cluster: a number is missing");
  CHECK(refused("2x8x2") == "reshard: --cluster: '8x2' is not a number");
  CHECK(refused("9223372036854775807x8") ==
        "reshard: --cluster: 9223372036854775807 nodes of 8 devices are more than 4194304 devices");
}

TEST_CASE("bytes") {
  CHECK(parse_bytes("--budget", "1") == 1);
  CHECK(parse_bytes("--budget", "67108864") == 67108864);
  CHECK(parse_bytes("--budget", "64MiB") == 67108864);
  CHECK(parse_bytes("--budget", "64 MiB") == 67108864);
  CHECK(parse_bytes("--budget", "1GB") == 1'000'000'000);
  CHECK(parse_bytes("--budget", "5B") == 5);
  CHECK(parse_bytes("--budget", "2TiB") == bytes_t{1} << 41);
  const std::pair<const char*, bytes_t> units[] = {
      {"3KiB", 3072},         {"3MiB", 3145728}, {"3GiB", 3221225472}, {"3TiB", 3298534883328},
      {"3kB", 3000},          {"3KB", 3000},     {"3MB", 3000000},     {"3GB", 3000000000},
      {"3TB", 3000000000000}, {"3B", 3},         {"3   kB", 3000}};
  for (const auto& unit : units) {
    const std::string text = unit.first;
    CAPTURE(text);
    CHECK(parse_bytes("--budget", text) == unit.second);
  }
  CHECK(parse_bytes("--budget", "9223372036854775807B") == 9223372036854775807);
  const auto refused = [](const char* text) { return refusal_of([&] { parse_bytes("--budget", text); }); };
  CHECK(refused("0") == "reshard: --budget: it must be at least 1 byte");
  CHECK(refused("0MiB") == "reshard: --budget: it must be at least 1 byte");
  CHECK(refused("") == "reshard: --budget: a number is missing");
  CHECK(refused("MiB") == "reshard: --budget: a number is missing");
  CHECK(refused("-1") == "reshard: --budget: '-1' is not a number");
  CHECK(refused("1.5GiB") == "reshard: --budget: '1.5GiB' is not a number");
  CHECK(refused("five") == "reshard: --budget: 'five' is not a number");
  CHECK(refused("5 ") == "reshard: --budget: '5 ' is not a number");  // blanks only before a unit
  CHECK(refused(" 5B") == "reshard: --budget: ' 5B' is not a number");
  CHECK(refused(" B") == "reshard: --budget: a number is missing");
  CHECK(refused("9000000TiB") == "reshard: --budget: 9000000TiB does not fit 64 bits");
}

TEST_CASE("a unit that may be decimal or binary is refused with both in bytes, an unknown one with the known ones") {
  const auto refused = [](const std::string& text) { return refusal_of([&] { parse_bytes("--budget", text); }); };
  const std::string units = "; units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB";
  const struct {
    const char *text, *both;
  } cases[] = {{"64M", "64MB, which is 64000000 bytes, or 64MiB, which is 67108864"},
               {"64m", "64MB, which is 64000000 bytes, or 64MiB, which is 67108864"},
               {"64 megabytes", "64MB, which is 64000000 bytes, or 64MiB, which is 67108864"},
               {"64mib", "64MB, which is 64000000 bytes, or 64MiB, which is 67108864"},
               {"3k", "3KB, which is 3000 bytes, or 3KiB, which is 3072"},
               {"3G", "3GB, which is 3000000000 bytes, or 3GiB, which is 3221225472"},
               {"3T", "3TB, which is 3000000000000 bytes, or 3TiB, which is 3298534883328"}};
  for (const auto& c : cases)
    CHECK(refused(c.text) == std::string("reshard: --budget: '") + c.text + "' may be " + c.both + units);
  for (const char* text : {"5x", "5 parsecs", "5A", "5Z", "5a", "5z", "5b"})
    CHECK(refused(text) == std::string("reshard: --budget: '") + text +
                               "' has an unknown unit; units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB");
  for (const char* text : {"5@", "5[", "5`", "5{", "5,", "5-6"})  // what begins with no letter is no unit
    CHECK(refused(text) == std::string("reshard: --budget: '") + text + "' is not a number");
  const std::string letters(43, 'x'), long_shown = "5" + std::string(26, 'x') + "..." + std::string(13, 'x');
  const std::string whole = "5" + letters.substr(1);
  CHECK(refused(whole) == "reshard: --budget: '" + whole + "' has an unknown unit" + units);
  CHECK(refused("5" + letters) == "reshard: --budget: '" + long_shown + "' has an unknown unit" + units);
  CHECK(refused("5M" + letters)
            .starts_with("reshard: --budget: '5M" + std::string(25, 'x') + "..." + std::string(13, 'x') +
                         "' may be 5MB"));
  CHECK(refused("99999999999999999T").ends_with("does not fit 64 bits"));
  CHECK(refused("9223372036854775808M") == "reshard: --budget: 9223372036854775808 does not fit 64 bits");
}

TEST_CASE("a file is written whole, in place of what was there, and refused where it cannot be") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("reshard-arguments-" + std::to_string(getpid()))).string();
  for (const std::string& content :
       {std::string("a\nb\0c\r\n", 7), std::string(100'000, 'x'), std::string("short"), std::string()}) {
    CHECK(refusal_of([&] { write_file(path, content); }) == "accepted");
    std::ifstream file(path, std::ios::binary);
    CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == content);
  }
  std::filesystem::remove(path);
  CHECK(refusal_of([&] { write_file(path + "/none", "x"); }) ==
        "reshard: " + one_line(path + "/none") + " cannot be written: No such file or directory");
  CHECK(refusal_of([] { write_file("/", "x"); }) == "reshard: / cannot be written: Is a directory");
  for (const std::size_t size : {std::size_t{1}, std::size_t{1} << 20})  // noticed at the close, and at the write
    CHECK(refusal_of([&] { write_file("/dev/full", std::string(size, 'x')); }) ==
          "reshard: /dev/full cannot be written: No space left on device");
}

TEST_CASE("states and ranks") {
  CHECK(parse_states("param") == (only(0) | statistic_states));  // and a statistic's
  CHECK(parse_states("exp_avg_sq") == only(3));
  CHECK(parse_states("optimizer") == optimizer_states);
  CHECK(parse_states("all") == all_states);
  CHECK(refusal_of([] { parse_states("grad"); }) ==
        "reshard: --state: 'grad' is unknown; it is param, master, exp_avg, exp_avg_sq, optimizer or all");
  CHECK(refusal_of([] { parse_states(""); }).starts_with("reshard: --state: '' is unknown"));
  for (const int s : all_states) CHECK(parse_states(adam[s].name) == adam.named(adam[s].name));
  CHECK(parse_states("master") == only(1));
  const state_list own = parse_state_list("all:bf16:2,exp_avg:fp8:1,param:fp32:3,ema:fp32:3,master:fp32:1");
  CHECK(parse_states("param", own) == (own.only(2) | statistic_states));
  CHECK(parse_states("ema", own) == own.only(3));
  CHECK(parse_states("optimizer", own) == (own.only(1) | own.only(4)));
  CHECK(parse_states("all", own) == own.only(0));  // names come first
  CHECK(parse_states("all", sgd) == sgd.all());
  CHECK(refusal_of([&] { parse_states("exp_avg_sq", own); }) ==
        "reshard: --state: 'exp_avg_sq' is unknown; it is all, exp_avg, param, ema, master, optimizer or all");
  CHECK(refusal_of([] { parse_states("optimizer", parse_state_list("param:fp32:3")); }) ==
        "reshard: --state: 'optimizer' is unknown; it is param or all");
  CHECK(parse_rank("7", 8) == 7);
  CHECK(parse_rank("0", 1) == 0);
  CHECK(refusal_of([] { parse_rank("12", 12, "device"); }) ==
        "reshard: --rank: there is no device 12; devices are 0 to 11");
  CHECK(refusal_of([] { parse_rank("8", 8); }) == "reshard: --rank: there is no rank 8; ranks are 0 to 7");
  CHECK(refusal_of([] { parse_rank("-1", 8); }) == "reshard: --rank: '-1' is not a number");
}
