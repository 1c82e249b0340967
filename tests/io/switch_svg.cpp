// SPDX-License-Identifier: Apache-2.0
// The heat map, read back: a cell for every pair of devices that exchange bytes, as dark as they are many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/io/switch_svg.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/drawn.hpp"
#include "process.hpp"

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
                        {"", "dp=100", 8, {}, 13}};
  for (const auto& s : switches) {
    CAPTURE(s.to);
    const drawn_switch d = draw(s.from, s.to, s.gpus, s.to_devices.empty() ? device_map() : device_map(s.to_devices));
    std::map<rank_t, long> group;
    for (const rank_t device : d.taking) group.insert({device, static_cast<long>(group.size())});
    check_cells(d, group, static_cast<long>(group.size()), s.gpus);
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
  CHECK(outlined(by_node.picture) == 20);
  CHECK(by_node.picture.says("a cell is a node, all its devices together"));
  CHECK(by_node.picture.says("from node 0 to node "));

  const drawn_switch by_two = draw("", "dp=300", 2, {});  // 150 nodes
  CHECK(by_two.picture.says("a cell is 2 neighbouring nodes"));
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
