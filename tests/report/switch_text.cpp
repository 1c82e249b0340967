// SPDX-License-Identifier: Apache-2.0
// A plan as a person reads it: which devices share a row, which rows are shown, and every line of the summary.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/report/simulation_text.hpp>
#include <reshard/report/switch_text.hpp>

#include "../support/dice.hpp"

using namespace reshard;

using namespace reshard::io;
using testing::dice;

namespace {
constexpr bytes_t device_figures::*fields[] = {&device_figures::send,     &device_figures::receive,
                                               &device_figures::retained, &device_figures::before,
                                               &device_figures::after,    &device_figures::peak};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
/// A line's cells, parted by two spaces or more.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = line.find_first_not_of(' '); at < line.size();) {
    const std::size_t end = std::min(line.find("  ", at), line.size());
    cells.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(' ', end);
  }
  return cells;
}
std::vector<std::vector<std::string>> rows_of(const std::vector<device_figures>& devices) {
  switch_figures f;
  f.devices = devices;
  for (const device_figures& d : devices) f.peak_excess = greatest(f.peak_excess, d.peak - d.floor());
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : lines_of(io::detail::device_table(f))) rows.push_back(cells_of(line));
  return rows;
}
/// The cells of devices that share these figures.
std::vector<std::string> row_of(std::string name, const device_figures& d) {
  std::vector<std::string> row{std::move(name)};
  for (const auto field : fields) row.push_back(narrow_bytes_text(d.*field));
  row.push_back(narrow_bytes_text(d.peak - std::max(d.before, d.after)));
  return row;
}
std::string named(rank_t first, rank_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}
}  // namespace

TEST_CASE("two devices share a row where every figure agrees, and not where any one differs, peaks too") {
  const device_figures first{
      .device = 3, .send = 10, .receive = 20, .retained = 30, .before = 40, .after = 50, .peak = 60};
  device_figures second = first;
  second.device = 4;
  const std::vector<std::string> heading = {"device", "sends", "receives", "keeps",
                                            "before", "after", "peak",     "excess"};
  auto rows = rows_of({first, second});
  REQUIRE(rows.size() == 4);
  CHECK(rows[0] == heading);
  CHECK(rows[1] == row_of("3-4", first));
  for (const auto field : fields) {
    device_figures other = second;
    other.*field += 5;
    rows = rows_of({first, other});
    REQUIRE(rows.size() == 5);
    CHECK(rows[1] == row_of("3", first));
    CHECK(rows[2] == row_of("4", other));
  }
  second.device = 5;  // no neighbour
  rows = rows_of({first, second});
  REQUIRE(rows.size() == 5);
  CHECK(rows[1] == row_of("3", first));
  CHECK(rows[2] == row_of("5", first));
  CHECK(rows_of({first}) == std::vector<std::vector<std::string>>{
                                heading, row_of("3", first)});  // of one device there is no least and most
}

TEST_CASE(
    "rows are the longest runs of neighbours that agree; least and most are of each column; of many rows the busiest "
    "are shown") {
  dice random(1);
  int merged = 0, left_out = 0;
  for (int n = 0; n < 300; ++n) {
    std::vector<device_figures> devices;
    const rank_t count = random.within(2, n % 2 == 0 ? 15 : 90);
    for (rank_t d = 0; d < count; ++d) {
      device_figures one{.device = d};
      for (const auto field : fields)
        one.*field = 100 + (random.below(n % 2 == 0 ? 8 : 3) == 0 ? random.below(400) : 0);
      one.peak += 500;
      devices.push_back(one);
    }
    std::vector<std::pair<interval, device_figures>> groups;  // by comparing printed cells
    for (rank_t d = 0; d < count; ++d) {
      const device_figures& one = devices[static_cast<std::size_t>(d)];
      if (d > 0 && row_of("", one) == row_of("", groups.back().second)) ++groups.back().first.end;
      else groups.push_back({{d, d + 1}, one});
    }
    const std::size_t all = groups.size();
    merged += all < devices.size() ? 1 : 0;
    if (all > 20) {
      ++left_out;
      std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
        return a.second.send + a.second.receive > b.second.send + b.second.receive;
      });
      groups.resize(20);
    }
    std::vector<std::vector<std::string>> rows = rows_of(devices), wanted;
    rows.erase(rows.begin());
    for (const auto& [range, figures] : groups) wanted.push_back(row_of(named(range.begin, range.end - 1), figures));
    for (const bool most : {false, true}) {
      std::vector<std::string> row{most ? "most" : "least"};
      const auto pick = [most](bytes_t a, bytes_t b) { return most ? std::max(a, b) : std::min(a, b); };
      for (const auto field : fields) {
        bytes_t chosen = devices[0].*field;
        for (const device_figures& d : devices) chosen = pick(chosen, d.*field);
        row.push_back(narrow_bytes_text(chosen));
      }
      bytes_t excess = devices[0].peak - std::max(devices[0].before, devices[0].after);
      for (const device_figures& d : devices) excess = pick(excess, d.peak - std::max(d.before, d.after));
      row.push_back(narrow_bytes_text(excess));
      wanted.push_back(row);
    }
    if (all > 20)
      wanted.push_back(
          {"The busiest devices; " + std::to_string(all - 20) + " more rows are left out. --json has them all."});
    CHECK(rows == wanted);
  }
  std::printf("of 300 tables %d share rows, %d leave some out\n", merged, left_out);
  CHECK_DRAWN(merged > 100);
  CHECK_DRAWN(left_out > 50);
}

namespace {
constexpr space from{models::llama2_7b, config<tp<2>, dp<2>>{}}, to{models::llama2_7b, config<tp<4>>{}};

/// The cells of the line that begins with a word; none where there is no such line.
std::vector<std::string> line_of(const std::string& text, const std::string& word) {
  for (const std::string& line : lines_of(text))
    if (const auto cells = cells_of(line); !cells.empty() && cells[0] == word) return cells;
  return {};
}
}  // namespace

TEST_CASE("the summary says what the figures are, each in its line") {
  const layout_switch asked(from, to);
  constexpr double seconds = 0.25;
  switch_figures f;
  f.moved = 1000, f.retained = 2000, f.least = 900, f.inter_node = 300, f.messages = 1234, f.peak = 5000,
  f.peak_excess = 600;
  f.devices.push_back({.device = 0});
  f.busiest = {{7, 8, 512}, {1, 2, 100}};
  std::string text = switch_text(asked, f, seconds, 0, -1);
  CHECK(lines_of(text)[0] == "llama2-7b from tp=2,dp=2 (4 ranks)");
  CHECK(lines_of(text)[1] == "to tp=4 (4 ranks)");
  CHECK(lines_of(text)[2] == "on 4 devices of one node");
  using row = std::vector<std::string>;
  CHECK(line_of(text, "moves") == row{"moves", "1000 B", "least possible: 900 B"});
  CHECK(line_of(text, "keeps") == row{"keeps", "1.95 KiB", "already where it is needed"});
  CHECK(line_of(text, "creates").empty());
  CHECK(line_of(text, "messages") == row{"messages", "1,234", "in 1 stage"});
  CHECK(line_of(text, "peak") == row{"peak", "4.88 KiB", "of any device"});
  CHECK(line_of(text, "excess") == row{"excess", "600 B", "at most above what a device holds before or after"});
  CHECK(line_of(text, "planned in") == row{"planned in", "250.00 ms"});
  CHECK(line_of(text, "budget").empty());
  CHECK(line_of(text, "300 B").empty());  // one node: nothing goes between nodes
  CHECK(line_of(text, "busiest links") == row{"busiest links", "bytes"});
  CHECK(line_of(text, "7 -> 8") == row{"7 -> 8", "512 B"});
  CHECK(line_of(text, "1 -> 2") == row{"1 -> 2", "100 B"});

  f.created = 77;
  CHECK(line_of(switch_text(asked, f, seconds, 0, -1), "creates") ==
        row{"creates", "77 B", "zeros: rows of the vocabulary that only TO has"});
  CHECK(line_of(text, "lost").empty());
  f.lost = 78;
  CHECK(line_of(switch_text(asked, f, seconds, 0, -1), "lost") ==
        row{"lost", "78 B", "held by lost devices alone; left out"});
  f.created = 1, f.lost = 1;  // one byte is told too
  CHECK(line_of(switch_text(asked, f, seconds, 0, -1), "creates").at(1) == "1 B");
  CHECK(line_of(switch_text(asked, f, seconds, 0, -1), "lost").at(1) == "1 B");
  f.created = 77, f.lost = 0;
  CHECK(lines_of(switch_text(layout_switch(from, to, {.to = device_map({4, 5, 6, 7}), .lost = {1, 3}}), f, seconds, 0,
                             -1))[2] == "on 8 devices of one node, 2 of them lost");
  CHECK(lines_of(
            switch_text(layout_switch(from, to, {.to = device_map({4, 5, 6, 7}), .lost = {1, 3}, .empty = {2, 4, 5}}),
                        f, seconds, 0, -1))[2] == "on 8 devices of one node, 2 of them lost, 3 of them empty");
  f.least = f.moved;
  CHECK(line_of(switch_text(asked, f, seconds, 0, -1), "moves") == row{"moves", "1000 B", "the least possible"});
  CHECK(line_of(switch_text(asked, f, seconds, 600, -1), "budget") == row{"budget", "600 B", "kept"});
  CHECK(line_of(switch_text(asked, f, seconds, 599, -1), "budget") == row{"budget", "599 B", "exceeded by 1 B"});
  CHECK(lines_of(switch_text(asked, f, seconds, 0, 3))[2] ==
        "on 4 devices of one node; only what goes from or to device 3");
  CHECK(lines_of(switch_text(layout_switch(from, to, {.states = only(1) | only(3)}), f, seconds, 0, -1))[2] ==
        "on 4 devices of one node, master + exp_avg_sq only");
  f.how.stages = 7;
  text = switch_text(layout_switch(from, to, {.on = nodes_of(3), .states = only(1) | only(3)}), f, seconds, 0, -1);
  CHECK(lines_of(text)[2] == "on 2 nodes of 3 devices, master + exp_avg_sq only");
  CHECK(line_of(text, "300 B") == row{"300 B", "of it between nodes"});
  CHECK(line_of(text, "messages") == row{"messages", "1,234", "in 7 stages"});
  f.busiest.clear();
  CHECK(line_of(switch_text(asked, f, seconds, 0, -1), "busiest links").empty());
}

TEST_CASE("what relabelling saves, in words: bytes, seconds, and on which devices the ranks sit") {
  const space four{models::llama2_7b, parse_degrees("tp=2,dp=2")};
  const auto said = [&](std::vector<rank_t> devices, const std::optional<relabel_saves>& saves) {
    return relabel_text(layout_switch(four, four, {.to = device_map(std::move(devices))}), saves);
  };
  CHECK(said({0, 1, 2, 3}, {}).empty());
  CHECK(said({0, 1, 2, 3}, relabel_saves{}) == "relabelling saves nothing: TO sits where it was\n");
  CHECK(said({2, 3, 0, 1}, relabel_saves{true, 0, 0.25}) ==
        "TO relabelled: 0 B saved, 250.00 ms saved\nits ranks on devices 2-3, 0-1\n");
  CHECK(said({1, 0, 2, 3}, relabel_saves{true, -1536, 0.0}) ==
        "TO relabelled: 1.50 KiB more to move\nits ranks on devices 1, 0, 2-3\n");
  CHECK(said({3, 2, 1, 0}, relabel_saves{true, 1, -0.25}) ==
        "TO relabelled: 1 B saved, 250.00 ms more\nits ranks on devices 3, 2, 1, 0\n");
  CHECK(said({4, 5, 6, 7}, relabel_saves{true, 1, {}}) == "TO relabelled: 1 B saved\nits ranks on devices 4-7\n");
  // of 100 ranks that sit in turn on two sides there is no room for the list
  const space many{models::llama2_7b, parse_degrees("dp=100")};
  std::vector<rank_t> turned;
  for (rank_t r = 0; r < 100; ++r) turned.push_back(r % 2 * 100 + r / 2);
  CHECK(relabel_text(layout_switch(many, many, {.to = device_map(turned)}), relabel_saves{true, 1, {}})
            .ends_with("\nits ranks on devices as --json says in rank_of_device\n"));
}

TEST_CASE("the whole text of a plan, of one device and of several nodes") {
  static constexpr space one{models::llama2_7b, config<tp<1>>{}};
  const layout_switch asked(one, one);
  switch_figures f;
  f.retained = 2048, f.peak = 4096;
  f.devices = {{0, 0, 0, 2048, 0, 2048, 2048, 4096}};
  f.peak_excess = 2048;
  CHECK(switch_text(asked, f, 2, 0, -1) ==
        "llama2-7b from '' (1 rank)\n"
        "to '' (1 rank)\n"
        "on 1 device of one node\n"
        "\n"
        "  moves       0 B  the least possible\n"
        "  keeps       2.00 KiB  already where it is needed\n"
        "  messages    0  in 1 stage\n"
        "  peak        4.00 KiB  of any device\n"
        "  excess      2.00 KiB  at most above what a device holds before or after\n"
        "  planned in  2.000 s\n"
        "\n"
        "  device  sends  receives    keeps   before    after     peak   excess\n"
        "  0          0B        0B  2.00KiB  2.00KiB  2.00KiB  4.00KiB  2.00KiB\n");
  f.busiest = {{0, 0, 0}};  // a link without bytes is not worth a table
  CHECK(switch_text(asked, f, 2, 0, -1).find("busiest") == std::string::npos);
  f.busiest = {{2, 0, 1}};
  CHECK(switch_text(asked, f, 2, 0, -1).ends_with("2.00KiB\n\n  busiest links  bytes\n  2 -> 0           1 B\n"));
  f.busiest.clear();
  CHECK(switch_text(asked, f, 2, 1, 0).find("on 1 device of one node; only what goes from or to device 0\n\n  moves") !=
        std::string::npos);
  CHECK(switch_text(asked, f, 2, 1, 0).find("  budget      1 B  exceeded by 2.00 KiB\n") != std::string::npos);

  const layout_switch several(from, to, {.on = nodes_of(2)});
  f.how.stages = 2;
  f.moved = 10, f.least = 9, f.inter_node = 8, f.messages = 7, f.busiest = {{0, 1, 6}, {1, 2, 4}};
  f.devices = {{0, 1, 2, 3, 0, 4, 5, 9}, {1, 1, 2, 3, 0, 4, 5, 9}, {2, 7, 1, 4, 0, 3, 6, 8}, {3, 1, 2, 3, 0, 4, 5, 9}};
  f.peak = 9, f.peak_excess = 4;
  CHECK(switch_text(several, f, 2, 4, -1) ==
        "llama2-7b from tp=2,dp=2 (4 ranks)\n"
        "to tp=4 (4 ranks)\n"
        "on 2 nodes of 2 devices\n"
        "\n"
        "  moves       10 B  least possible: 9 B\n"
        "              8 B  of it between nodes\n"
        "  keeps       2.00 KiB  already where it is needed\n"
        "  messages    7  in 2 stages\n"
        "  peak        9 B  of any device\n"
        "  excess      4 B  at most above what a device holds before or after\n"
        "  budget      4 B  kept\n"
        "  planned in  2.000 s\n"
        "\n"
        "  device  sends  receives  keeps  before  after  peak  excess\n"
        "  0-1        1B        2B     3B      4B     5B    9B      4B\n"
        "  2          7B        1B     4B      3B     6B    8B      2B\n"
        "  3          1B        2B     3B      4B     5B    9B      4B\n"
        "  least      1B        1B     3B      3B     5B    8B      2B\n"
        "  most       7B        2B     4B      4B     6B    9B      4B\n"
        "\n"
        "  busiest links  bytes\n"
        "  0 -> 1           6 B\n"
        "  1 -> 2           4 B\n");
  CHECK(switch_text(several, f, 2, 4, -1).find("  relays ") == std::string::npos);
  f.how.how = relay::always, f.relayed = 6;
  CHECK(switch_text(several, f, 2, 4, -1).find("  relays      6 B  received only to be passed on\n") !=
        std::string::npos);
}

TEST_CASE("a long line of the summary goes on in the next, and a long name is shortened to 60 characters") {
  static const model long_name = [] {
    transformer t = models::presets[0];
    t.name = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbcccccccccccccccccccc";  // 40, 10, 20
    return make_transformer(t);
  }();
  static const space before(long_name, parse_degrees("tp=2,dp=2")), after(long_name, parse_degrees("tp=4"));
  const layout_switch asked(before, after, {.on = nodes_of(1000), .states = only(0) | only(2) | only(3)});
  switch_figures f;
  f.devices = {{}};
  CHECK(
      switch_text(asked, f, 1, 0, 3)
          .starts_with("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...cccccccccccccccccccc from tp=2,dp=2\n    (4 ranks)\n"
                       "to tp=4 (4 ranks)\n"
                       "on 1 node of 1000 devices,\n    param + exp_avg + exp_avg_sq only; only what goes from or to "
                       "device 3\n\n"));
}

TEST_CASE("what simulate prints, line by line, of figures that all differ") {
  const cluster on{.gpus = 4, .each = {.nics = 2, .nvlink_GBps = 160, .nic_GBps = 25, .copy_GBps = 1300}};
  const layout_switch change(from, to, {.on = on});
  simulation s;
  s.seconds = {.ports = 1, .messages = 0.25, .slots = 0.75, .busiest = {port_kind::nvlink_in, 3, 0.5}};
  s.floor_seconds = 0.5, s.direct_seconds = 3;
  s.dynatrain = {.naive = 6, .synchronous = 5, .asynchronous = 4};
  switch_figures f;
  f.how = {relay::always, 2, 7};
  f.phases = 3, f.after_use = sources::keep;
  f.moved = 1 << 20, f.least = 1 << 20, f.relayed = 2 << 20, f.inter_node = 3 << 20, f.cross_rail = 4 << 20;
  f.retained = 5 << 20, f.peak = 6 << 20, f.peak_excess = 7 << 20, f.messages = 1234;
  const auto check = [](const std::string& text, const std::vector<std::string>& wanted) {
    const std::vector<std::string> lines = lines_of(text);
    CHECK(lines.size() == wanted.size());
    for (std::size_t i = 0; i < lines.size() && i < wanted.size(); ++i) CHECK(lines[i] == wanted[i]);
  };
  check(simulation_text(change, s, f, 8 << 20),
        {"llama2-7b from tp=2,dp=2 (4 ranks)",
         "to tp=4 (4 ranks)",
         "on 1 node of 4 devices",
         "NVLink 160 GB/s, 2 NICs of 25 GB/s, copies 1300 GB/s",
         "",
         "  simulated, not measured    seconds  x floor",
         "  this plan                  2.000 s     4.00  relay, in 7 stages of 3 phases",
         "  floor                    500.00 ms     1.00  no schedule is faster",
         "  direct plan, one stage     3.000 s     6.00  without relay",
         "  DynaTrain, asynchronous    4.000 s     8.00  everything at once",
         "  DynaTrain, synchronous     5.000 s    10.00  pairs take turns",
         "  DynaTrain, naive           6.000 s    12.00  a message per tensor",
         "",
         "  where they go    seconds",
         "  ports            1.000 s  busiest: NVLink in of device 3",
         "  messages       250.00 ms  1,234 in all",
         "  slots          750.00 ms  9",
         "",
         "  bytes",
         "  moves          1.00 MiB  the least possible",
         "  relays         2.00 MiB  received only to be passed on",
         "  between nodes  3.00 MiB",
         "  across rails   4.00 MiB  between NICs of different numbers",
         "  keeps          5.00 MiB  already where it is needed",
         "  peak           6.00 MiB  of any device, at most 7.00 MiB above",
         "  sources            stay  FROM's bytes are counted in the peak",
         "  budget         8.00 MiB  kept"});

  const cluster two_kinds{
      .gpus = 2,
      .nodes = {{.count = 1, .nvlink_GBps = 160, .nic_GBps = 25, .copy_GBps = 1300},
                {.count = 3, .nics = 1, .nvlink_GBps = 370, .nic_GBps = 49.5, .copy_GBps = 2600, .spine_GBps = 7}}};
  const layout_switch on_two(from, to, {.on = two_kinds});
  s.floor_seconds = 0, s.direct_seconds.reset(), s.dynatrain.naive.reset();
  s.seconds.busiest = {};
  f.how = {relay::never, 1, 7}, f.phases = 1, f.after_use = sources::release, f.least = 1;
  std::vector<std::string> wanted{"llama2-7b from tp=2,dp=2 (4 ranks)",
                                  "to tp=4 (4 ranks)",
                                  "on 2 nodes of 2 devices",
                                  "1 node: NVLink 160 GB/s, 2 NICs of 25 GB/s, copies 1300 GB/s",
                                  "3 nodes: NVLink 370 GB/s, 1 NICs of 49.5 GB/s, between rails 7 GB/s,",
                                  "    copies 2600 GB/s",
                                  "",
                                  "  simulated, not measured  seconds  x floor",
                                  "  this plan                2.000 s        -  direct, in stages",
                                  "  floor                     0.0 us        -  no schedule is faster",
                                  "  direct plan, one stage         -        -  crosses rails that do not meet",
                                  "  DynaTrain, asynchronous  4.000 s        -  everything at once",
                                  "  DynaTrain, synchronous   5.000 s        -  pairs take turns",
                                  "  DynaTrain, naive               -        -  crosses rails that do not meet",
                                  "",
                                  "  where they go    seconds",
                                  "  ports            1.000 s",
                                  "  messages       250.00 ms  1,234 in all",
                                  "  slots          750.00 ms  7",
                                  "",
                                  "  bytes",
                                  "  moves          1.00 MiB",
                                  "  between nodes  3.00 MiB",
                                  "  across rails   4.00 MiB  between NICs of different numbers",
                                  "  keeps          5.00 MiB  already where it is needed",
                                  "  peak           6.00 MiB  of any device, at most 7.00 MiB above"};
  check(simulation_text(on_two, s, f, 0), wanted);
  f.how = {};
  wanted[8] = "  this plan                2.000 s        -  direct, in one stage";
  wanted[18] = "  slots          750.00 ms  1";
  wanted.erase(wanted.begin() + 10);  // it is the plan
  check(simulation_text(on_two, s, f, 0), wanted);
}
