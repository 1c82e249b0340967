// SPDX-License-Identifier: Apache-2.0
// What goes from device to device as a picture file: a heat map, sources down, destinations across, nodes outlined.
// Worlds of more devices than can be told apart are drawn node by node, or several nodes to a cell; the picture says
// so.
// Builds on: cost/simulate.hpp, report/layout_svg.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/cost/simulate.hpp>
#include <reshard/report/layout_svg.hpp>

namespace reshard::io {

namespace detail {

/// Devices that share a row and a column of the heat map.
struct heat_group {
  std::size_t first = 0, past = 0;  // seats
  interval nodes;                   // of these devices
};

/// A group for every device while there are at most `most` of them; else for every node, or for as many neighbouring
/// nodes as it takes.
inline std::vector<heat_group> heat_groups(const port_table& on, std::size_t most) {
  const std::vector<port_table::seat>& seats = on.seats();
  std::vector<heat_group> nodes, groups;
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const index_t node = seats[i].node;
    groups.push_back({i, i + 1, {node, node + 1}});
    if (nodes.empty() || nodes.back().nodes.begin != node) nodes.push_back(groups.back());
    nodes.back().past = i + 1;
  }
  if (groups.size() <= most) return groups;
  const std::size_t each = (nodes.size() + most - 1) / most;
  groups.clear();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i % each == 0) groups.push_back(nodes[i]);
    groups.back().past = nodes[i].past, groups.back().nodes.end = nodes[i].nodes.end;
  }
  return groups;
}

/// Draws a heat map from top to bottom, in tenths of a pixel.
class heat_map {
 public:
  /// A model and two sides, each in words.
  struct words {
    std::string model, from, to;
  };

  heat_map(text_output& out, words said, const port_table& on, const std::vector<sized_stream>& streams)
      : said_(std::move(said)), on_(&on), groups_(heat_groups(on, most_cells)),
        by_device_(groups_.size() == on.seats().size()), cell_(least(900, side / greatest(1, std::ssize(groups_)))),
        bytes_(groups_.size() * groups_.size(), 0),
        canvas_(out, greatest(left + plot() + 400, 8300), top + plot() + 1400) {
    std::vector<std::size_t> group_of(on.seats().size());
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t i = groups_[g].first; i < groups_[g].past; ++i) group_of[i] = g;
    for (const sized_stream& s : streams) {
      if (s.src == s.dst) continue;
      bytes_[group_of[on.seat_of(s.src)] * groups_.size() + group_of[on.seat_of(s.dst)]] += s.bytes();
      (on.one_node(s.src, s.dst) ? inside_ : between_) += s.bytes();
    }
  }

  void draw() {
    title();
    canvas_.rectangle(left, top, plot(), plot(), "fill=\"#f4f4f4\"");
    for (std::size_t src = 0; src < groups_.size(); ++src)
      for (std::size_t dst = 0; dst < groups_.size(); ++dst)
        if (const bytes_t bytes = bytes_[src * groups_.size() + dst]; bytes > 0)
          canvas_.rectangle(at(dst, left), at(src, top), cell_, cell_, style(same_nodes(src, dst), bytes));
    outlines();
    labels();
    legend(top + plot() + 300);
    canvas_.finish();
  }

 private:
  static constexpr std::size_t most_cells = 144;  // of five pixels
  static constexpr index_t left = 1300, top = 1700, side = 7200;
  static constexpr std::string_view inside = "#1971c2", across = "#d9480f";

  index_t plot() const { return cell_ * std::ssize(groups_); }
  index_t at(std::size_t group, index_t begin) const { return begin + static_cast<index_t>(group) * cell_; }
  bytes_t most() const {
    bytes_t most = 0;
    for (const bytes_t bytes : bytes_) most = greatest(most, bytes);
    return most;
  }
  bool same_nodes(std::size_t a, std::size_t b) const { return groups_[a].nodes == groups_[b].nodes; }
  /// From a tenth of the colour to all of it, in proportion to the bytes.
  static std::string shade(std::string_view colour, double share) {
    const index_t hundredths = 10 + static_cast<index_t>(90 * share);
    return text_of("fill=\"", colour, "\" fill-opacity=\"", hundredths / 100, ".", hundredths % 100 < 10 ? "0" : "",
                   hundredths % 100, "\"");
  }
  std::string style(bool one_node, bytes_t bytes) const {
    return shade(one_node ? inside : across, static_cast<double>(bytes) / static_cast<double>(most()));
  }

  void title() {
    canvas_.text(200, 320, text_of(one_line(said_.model, 40), ": bytes from device to device"), "start",
                 " font-size=\"16\" font-weight=\"bold\"");
    canvas_.text(200, 540, one_line("from " + said_.from, 98));
    canvas_.text(200, 720, one_line("to " + said_.to, 98));
    const index_t nodes = groups_[0].nodes.size();  // there is one: a switch has a device
    canvas_.text(200, 900,
                 text_of("down: who sends, across: who receives; a cell is ",
                         by_device_   ? "a device, nodes are outlined"
                         : nodes == 1 ? "a node, all its devices together"
                                      : text_of(nodes, " neighbouring nodes, all their devices together")));
  }

  /// Every node's own square, and where others begin.
  void outlines() {
    const auto outlined = [this](std::size_t a, std::size_t b) { return by_device_ && same_nodes(a, b); };
    reshard::detail::each_run(groups_.size(), outlined, [this](std::size_t g, std::size_t past) {
      const index_t begin = at(g, 0), size = at(past, 0) - begin;
      if (g > 0 && by_device_) {
        canvas_.rectangle(left + begin - 2, top, 5, plot(), "fill=\"#bbb\"");
        canvas_.rectangle(left, top + begin - 2, plot(), 5, "fill=\"#bbb\"");
      }
      canvas_.rectangle(left + begin, top + begin, size, size, "fill=\"none\" stroke=\"#222\" stroke-width=\"1\"");
    });
  }

  /// Numbers of devices and nodes, as many as have room.
  void labels() {
    constexpr std::string_view small = " font-size=\"9\"";
    const auto number = [&](std::size_t g) {
      return by_device_ ? std::to_string(on_->seats()[groups_[g].first].device) : range_text(groups_[g].nodes);
    };
    index_t widest = 1;
    for (std::size_t g = 0; g < groups_.size(); ++g) widest = greatest(widest, std::ssize(number(g)));
    const auto every = [&](index_t room) { return static_cast<std::size_t>(ceil_divide(room, cell_)); };
    for (std::size_t g = 0; g < groups_.size(); g += every(60 * widest + 60))
      canvas_.text(at(g, left) + cell_ / 2, top - 80, number(g), "middle", small);
    for (std::size_t g = 0; g < groups_.size(); g += every(120))
      canvas_.text(left - 80, at(g, top) + cell_ / 2 + 30, number(g), "end", small);
    canvas_.text(left - 80, top - 80, by_device_ ? "device" : "node", "end", small);
    if (!by_device_) return;
    canvas_.text(left - 80, top - 240, "node", "end", small);
    index_t free_across = 0, free_down = 0;
    const auto in_one = [this](std::size_t a, std::size_t b) { return same_nodes(a, b); };
    reshard::detail::each_run(groups_.size(), in_one, [&](std::size_t g, std::size_t past) {
      const std::string name = std::to_string(groups_[g].nodes.begin);
      const index_t middle = (at(g, 0) + at(past, 0)) / 2, half = 30 * std::ssize(name) + 30;
      if (middle - half >= free_across || g == 0) {
        canvas_.text(left + middle, top - 240, name, "middle", small);
        free_across = middle + half;
      }
      if (middle - 60 < free_down && g > 0) return;
      canvas_.text(left - 500, top + middle + 30, text_of("node ", name), "end", small);
      free_down = middle + 60;
    });
  }

  void legend(index_t y) {
    const auto scale = [&](std::string_view colour, std::string_view called, bytes_t sum) {
      canvas_.text(200, y + 110, called);
      for (index_t i = 0; i < 5; ++i)
        canvas_.rectangle(1500 + i * 240, y, 220, 140, shade(colour, static_cast<double>(i) / 4));
      canvas_.text(2800, y + 110, text_of(bytes_text(sum), " in all"));
      y += 240;
    };
    scale(inside, "inside a node", inside_);
    if (groups_.front().nodes != groups_.back().nodes)
      scale(across, by_device_ || groups_[0].nodes.size() == 1 ? "between nodes" : "between cells", between_);
    if (most() == 0) return canvas_.text(200, y + 110, "nothing moves");
    const std::size_t darkest =
        static_cast<std::size_t>(std::max_element(bytes_.begin(), bytes_.end()) - bytes_.begin());
    const auto cell_name = [&](std::size_t g) {
      return by_device_ ? text_of("device ", on_->seats()[groups_[g].first].device)
                        : text_of("node ", range_text(groups_[g].nodes));
    };
    canvas_.text(200, y + 110,
                 text_of("the darkest cell: ", bytes_text(most()), " from ", cell_name(darkest / groups_.size()),
                         " to ", cell_name(darkest % groups_.size()), "; shades are in proportion"));
  }

  words said_;
  const port_table* on_;
  std::vector<heat_group> groups_;
  bool by_device_;
  index_t cell_;
  std::vector<bytes_t> bytes_;  // by source, then destination
  bytes_t inside_ = 0, between_ = 0;
  svg_canvas canvas_;
};

}  // namespace detail

/// Draws what a switch moves from device to device.
template <Holding From, Holding To>
void write_switch_svg(text_output& out, const layout_switch<From, To>& change, const port_table& on,
                      const std::vector<sized_stream>& streams) {
  detail::heat_map(out,
                   {detail::model_name(change.from(), change.to()), detail::side_text(change.from()),
                    detail::side_text(change.to())},
                   on, streams)
      .draw();
}

}  // namespace reshard::io
