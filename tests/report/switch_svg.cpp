// SPDX-License-Identifier: Apache-2.0
// The heat map, read back: a cell for every pair of devices that exchange bytes, as dark as they are many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/report/switch_svg.hpp>

#include "../io/process.hpp"
#include "../support/drawn.hpp"

using namespace reshard;
using testing::drawn_picture, testing::drawn_shape;

namespace {
const model tiny = make_transformer({.name = "small <&>",
                                     .layers = 4,
                                     .hidden = 8,
                                     .heads = 4,
                                     .groups = 2,
                                     .head_dim = 2,
                                     .ffn = 8,
                                     .vocabulary = 16});
cluster nodes_with_speeds(index_t gpus) {
  return {.gpus = gpus, .each = {.nvlink_GBps = 1, .nic_GBps = 1, .copy_GBps = 1}};
}

using bytes_by_pair = std::map<std::pair<rank_t, rank_t>, bytes_t>;
struct drawn_switch {
  drawn_picture picture;
  bytes_by_pair bytes;         // between devices
  std::vector<rank_t> taking;  // devices that take part
};
drawn_switch draw(const char* from, const char* to, index_t gpus, const device_map& to_devices) {
  const layout_switch change(space(tiny, parse_degrees(from)), space(tiny, parse_degrees(to)),
                             {.to = to_devices, .on = nodes_with_speeds(gpus)});
  simulator all(change);
  bytes_by_pair bytes;
  std::vector<rank_t> taking;
  for (rank_t d = 0; d < change.devices(); ++d) {
    const plan p = make_plan(change, d);
    for (const transfer& t : p.receives) bytes[{t.src, t.dst}] += t.bytes();
    all.add(p);
    if (change.from_rank(d) >= 0 || change.to_rank(d) >= 0) taking.push_back(d);
  }
  io::text_output out;
  write_switch_svg(out, change, all.on(), all.streams());
  return {drawn_picture(out.text()), bytes, taking};
}

/// Cells by column and row, from the plot's upper left corner.
std::map<std::pair<long, long>, drawn_shape> cells(const drawn_picture& p, long groups) {
  const drawn_shape& plot = p.rectangles.front();
  const double cell = plot.width / static_cast<double>(groups);
  std::map<std::pair<long, long>, drawn_shape> found;
  for (const drawn_shape& r : p.rectangles) {
    if (!r.has("fill-opacity") || r.y >= plot.y + plot.height) continue;
    CHECK(std::abs(r.width - cell) < 0.2);
    const auto place = [&](double at, double begin) { return std::lround((at - begin) / cell); };
    CHECK(found.insert({{place(r.y, plot.y), place(r.x, plot.x)}, r}).second);
  }
  return found;
}
/// A group of each device, and what every pair of groups exchanges; nodes told by `node_of`.
void check_cells(const drawn_switch& d, const std::map<rank_t, long>& group, long groups, index_t gpus) {
  std::map<std::pair<long, long>, bytes_t> wanted;
  std::map<std::pair<long, long>, bool> inside;
  bytes_t most = 0;
  for (const auto& [pair, bytes] : d.bytes) {
    const std::pair place{group.at(pair.first), group.at(pair.second)};
    most = std::max(most, wanted[place] += bytes);
    inside[place] = pair.first / gpus == pair.second / gpus;
  }
  const auto found = cells(d.picture, groups);
  CHECK(found.size() == wanted.size());
  for (const auto& [place, bytes] : wanted) {
    REQUIRE(found.count(place) == 1);
    const drawn_shape& cell = found.at(place);
    const double share = static_cast<double>(bytes) / static_cast<double>(most);
    CHECK(std::abs(drawn_picture::number(cell.line, "fill-opacity") - (0.1 + 0.9 * share)) < 0.0101);
    CHECK(cell.has(inside.at(place) ? "#1971c2" : "#d9480f"));
  }
  d.picture.check_words_apart();
}
/// The same picture, drawn from the bytes between devices alone.
void check_whole(const drawn_switch& d, const std::string& from, const std::string& to, index_t gpus) {
  struct band {  // of devices that share a row
    std::vector<rank_t> devices;
    rank_t first_node, last_node;
    std::string nodes() const {
      return std::to_string(first_node) + (last_node > first_node ? "-" + std::to_string(last_node) : "");
    }
  };
  std::vector<band> bands;
  std::map<rank_t, std::vector<rank_t>> by_node;
  for (const rank_t device : d.taking) by_node[device / gpus].push_back(device);
  const bool alone = d.taking.size() <= 144;
  const std::size_t together = (by_node.size() + 143) / 144;
  std::size_t nth = 0;
  for (const auto& [node, devices] : by_node) {
    for (const rank_t device : devices)
      if (alone) bands.push_back({{device}, node, node});
    if (!alone && nth++ % together == 0) bands.push_back({{}, node, node});
    if (alone) continue;
    bands.back().devices.insert(bands.back().devices.end(), devices.begin(), devices.end());
    bands.back().last_node = node;
  }
  const long n = static_cast<long>(bands.size()), cell = std::min(900L, 7200 / n), plot = n * cell;
  std::map<rank_t, long> band_of;
  for (long b = 0; b < n; ++b)
    for (const rank_t device : bands[static_cast<std::size_t>(b)].devices) band_of[device] = b;
  std::map<std::pair<long, long>, bytes_t> bytes;  // row by row
  bytes_t sums[2] = {0, 0}, most = 0;              // between nodes, inside one
  for (const auto& [pair, b] : d.bytes) {
    if (pair.first == pair.second) continue;
    bytes[{band_of[pair.first], band_of[pair.second]}] += b;
    sums[pair.first / gpus == pair.second / gpus ? 1 : 0] += b;
  }
  for (const auto& [place, b] : bytes) most = std::max(most, b);

  testing::own_picture own(std::max(8300L, plot + 1700), plot + 3100);
  const auto side = [](const std::string& begin, const std::string& layout) {
    const index_t ranks = parse_degrees(layout).world();
    return begin + (layout.empty() ? "''" : layout) + " (" + std::to_string(ranks) +
           (ranks == 1 ? " rank)" : " ranks)");
  };
  own.text(200, 320, "start", "small &lt;&amp;&gt;: bytes from device to device",
           "font-size=\"16\" font-weight=\"bold\"");
  own.text(200, 540, "start", side("from ", from));
  own.text(200, 720, "start", side("to ", to));
  own.text(200, 900, "start",
           std::string("down: who sends, across: who receives; a cell is ") +
               (alone           ? "a device, nodes are outlined"
                : together == 1 ? "a node, all its devices together"
                                : std::to_string(together) + " neighbouring nodes, all their devices together"));
  own.rectangle(1300, 1700, plot, plot, "fill=\"#f4f4f4\"");
  const auto shade = [](const char* colour, int hundredths) {
    const std::string two = std::to_string(hundredths % 100);
    return "fill=\"" + std::string(colour) + "\" fill-opacity=\"" + (hundredths < 100 ? "0." : "1.") +
           (two.size() < 2 ? "0" : "") + two + "\"";
  };
  for (const auto& [place, b] : bytes) {
    const auto node_of = [&](long band) { return bands[static_cast<std::size_t>(band)].first_node; };
    own.rectangle(1300 + place.second * cell, 1700 + place.first * cell, cell, cell,
                  shade(node_of(place.first) == node_of(place.second) ? "#1971c2" : "#d9480f",
                        10 + static_cast<int>(90 * (static_cast<double>(b) / static_cast<double>(most)))));
  }
  std::vector<std::pair<long, long>> squares;  // bands of a node
  for (long b = 0; b < n; ++b) {
    const auto at = static_cast<std::size_t>(b);
    if (alone && b > 0 && bands[at].first_node == bands[at - 1].first_node) squares.back().second = b + 1;
    else squares.emplace_back(b, b + 1);
  }
  for (const auto& [first, past] : squares) {
    if (alone && first > 0) {
      own.rectangle(1298 + first * cell, 1700, 5, plot, "fill=\"#bbb\"");
      own.rectangle(1300, 1698 + first * cell, plot, 5, "fill=\"#bbb\"");
    }
    own.rectangle(1300 + first * cell, 1700 + first * cell, (past - first) * cell, (past - first) * cell,
                  "fill=\"none\" stroke=\"#222\" stroke-width=\"1\"");
  }
  const auto number = [&](long b) {
    const band& one = bands[static_cast<std::size_t>(b)];
    return alone ? std::to_string(one.devices[0]) : one.nodes();
  };
  const std::string tiny_words = "font-size=\"9\"";
  long digits = 1;
  for (long b = 0; b < n; ++b) digits = std::max(digits, static_cast<long>(number(b).size()));
  for (long b = 0, room = 60 * digits + 60; b < n; b += (room + cell - 1) / cell)
    own.text(1300 + b * cell + cell / 2, 1620, "middle", number(b), tiny_words);
  for (long b = 0; b < n; b += (119 + cell) / cell)
    own.text(1220, 1730 + b * cell + cell / 2, "end", number(b), tiny_words);
  own.text(1220, 1620, "end", alone ? "device" : "node", tiny_words);
  if (alone) own.text(1220, 1460, "end", "node", tiny_words);
  long free_x = 0, free_y = 0;
  for (const auto& [first, past] : squares) {
    if (!alone) break;
    const std::string name = bands[static_cast<std::size_t>(first)].nodes();
    const long middle = (first * cell + past * cell) / 2, half = 30 + 30 * static_cast<long>(name.size());
    if (first == 0 || middle - half >= free_x) {
      own.text(1300 + middle, 1460, "middle", name, tiny_words);
      free_x = middle + half;
    }
    if (first == 0 || middle - 60 >= free_y) {
      own.text(800, 1730 + middle, "end", "node " + name, tiny_words);
      free_y = middle + 60;
    }
  }
  long y = plot + 2000;
  const auto scale = [&](const char* colour, const std::string& words, bytes_t sum) {
    own.text(200, y + 110, "start", words);
    const int hundredths[] = {10, 32, 55, 77, 100};
    for (int i = 0; i < 5; ++i) own.rectangle(1500 + 240 * i, y, 220, 140, shade(colour, hundredths[i]));
    own.text(2800, y + 110, "start", io::bytes_text(sum) + " in all");
    y += 240;
  };
  scale("#1971c2", "inside a node", sums[1]);
  if (by_node.size() > together) scale("#d9480f", alone || together == 1 ? "between nodes" : "between cells", sums[0]);
  if (most == 0) {
    own.text(200, y + 110, "start", "nothing moves");
    return own.check(d.picture);
  }
  const auto darkest = std::find_if(bytes.begin(), bytes.end(), [&](const auto& b) { return b.second == most; });
  const std::string what = alone ? "device " : "node ";
  own.text(200, y + 110, "start",
           "the darkest cell: " + io::bytes_text(most) + " from " + what + number(darkest->first.first) + " to " +
               what + number(darkest->first.second) + "; shades are in proportion");
  own.check(d.picture);
}
long outlined(const drawn_picture& p) {
  return std::count_if(p.rectangles.begin(), p.rectangles.end(),
                       [](const drawn_shape& r) { return r.has("stroke=\"#222\""); });
}
}  // namespace

TEST_CASE("a cell for every pair of devices that exchange bytes") {
  struct {
    const char *from, *to;
    index_t gpus;
    std::vector<rank_t> to_devices;
    long nodes;
  } const switches[] = {{"tp=2,pp=2,zero=1", "dp=8,zero=1", 3, {0, 1, 2, 3, 4, 5, 6, 7}, 3},
                        {"tp=2,pp=2", "tp=4", 4, {9, 8, 1, 0}, 2},
                        {"", "dp=2", 8, {0, 1}, 1},
                        {"", "dp=100", 8, {}, 13},
                        {"", "dp=144", 1, {}, 144},
                        {"", "dp=144", 2, {}, 72},
                        {"", "dp=120", 2, {}, 60},
                        {"", "dp=13", 8, {}, 2}};  // whose sides are no whole pixels
  for (const auto& s : switches) {
    CAPTURE(s.to);
    const drawn_switch d = draw(s.from, s.to, s.gpus, s.to_devices.empty() ? device_map() : device_map(s.to_devices));
    std::map<rank_t, long> group;
    for (const rank_t device : d.taking) group.insert({device, static_cast<long>(group.size())});
    check_cells(d, group, static_cast<long>(group.size()), s.gpus);
    check_whole(d, s.from, s.to, s.gpus);
    CHECK(outlined(d.picture) == s.nodes);
    CHECK(d.picture.says("a cell is a device, nodes are outlined"));
    CHECK(d.picture.says("small &lt;&amp;&gt;: bytes from device to device"));
    CHECK(d.picture.says("between nodes") == (s.nodes > 1));
    bytes_t inside = 0;
    for (const auto& [pair, bytes] : d.bytes) inside += pair.first / s.gpus == pair.second / s.gpus ? bytes : 0;
    CHECK(d.picture.says(io::bytes_text(inside) + " in all"));
  }
}

TEST_CASE("large worlds are drawn by nodes, and very large ones by several; the picture says so") {
  const drawn_switch by_node = draw("dp=2", "dp=160", 8, {});
  std::map<rank_t, long> group;
  for (const rank_t device : by_node.taking) group[device] = device / 8;
  check_cells(by_node, group, 20, 8);
  check_whole(by_node, "dp=2", "dp=160", 8);
  CHECK(outlined(by_node.picture) == 20);
  CHECK(by_node.picture.says("a cell is a node, all its devices together"));
  CHECK(by_node.picture.says("from node 0 to node "));

  CHECK(draw("", "dp=288", 1, {}).picture.says("a cell is 2 neighbouring nodes"));
  const drawn_switch by_two = draw("", "dp=300", 2, {});  // 150 nodes
  CHECK(by_two.picture.says("a cell is 2 neighbouring nodes"));
  check_whole(by_two, "", "dp=300", 2);
  check_whole(draw("", "dp=145", 1, {}), "", "dp=145", 1);      // 73 cells, the last of one node
  check_whole(draw("", "dp=150", 150, {}), "", "dp=150", 150);  // one
  CHECK(outlined(by_two.picture) == 75);
  by_two.picture.check_words_apart();
  bytes_t sum = 0;
  for (const auto& [pair, bytes] : by_two.bytes) sum += bytes;
  CHECK(cells(by_two.picture, 75).size() == 75);  // all receive from the first
  CHECK(sum > 0);
}

TEST_CASE("where nothing moves the picture says so") {
  const drawn_switch d = draw("dp=2", "dp=2", 8, {});
  CHECK(d.picture.says("nothing moves"));
  check_whole(d, "dp=2", "dp=2", 8);
  check_cells(d, {{0, 0}, {1, 1}}, 2, 8);
}

TEST_CASE("simulate --svg writes it") {
  const std::string file = (testing::here().folder / "heat.svg").string();
  const testing::answer got = testing::ask(
      {"simulate", "llama2-7b", "tp=2,pp=2,dp=2,zero=1", "tp=4,pp=4,zero=1", "--cluster", "a800", "--svg", file});
  REQUIRE(got.code == 0);
  const drawn_picture picture(testing::content_of(file));
  picture.check_words_apart();
  CHECK(picture.says("llama2-7b: bytes from device to device"));
  CHECK(picture.says("to tp=4,pp=4,zero=1 (16 ranks)"));
  CHECK(testing::ask({"simulate", "llama2-7b", "tp=2", "tp=4", "--cluster", "a800", "--svg", "/no/such/x.svg"}).err ==
        "reshard: /no/such/x.svg cannot be written: No such file or directory\n");
}
