// SPDX-License-Identifier: Apache-2.0
// What `reshard compare` prints: layouts that a job could go to, best first, as a table of 80 columns and as JSON.
// Builds on: cost/compare_layouts.hpp, report/switch_text.hpp.
#pragma once

#include <string>
#include <vector>

#include <reshard/cost/compare_layouts.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/report/switch_text.hpp>

namespace reshard::io {

/// {"layouts":[{"layout","bytes_per_rank","moved_bytes","retained_bytes","peak_bytes","seconds"}],"legal","too_large"},
/// the first `top` layouts; "refused" where some are. seconds is null where the cluster has no speeds.
inline void write_comparison(text_output& out, const layout_comparison& c, index_t top) {
  out << "{\"layouts\":[";
  json_items items(out);
  for (index_t i = 0; i < least(top, std::ssize(c.layouts)); ++i) {
    const compared_layout& one = c.layouts[static_cast<std::size_t>(i)];
    items.next() << "{\"layout\":\"" << to_text(one.layout) << "\",\"bytes_per_rank\":" << one.bytes_per_rank
                 << ",\"moved_bytes\":" << one.moved << ",\"retained_bytes\":" << one.retained
                 << ",\"peak_bytes\":" << one.peak << ",\"seconds\":";
    if (one.seconds) out << *one.seconds << "}";
    else out << "null}";
  }
  out << "],\"legal\":" << c.legal << ",\"too_large\":" << c.too_large;
  if (c.refused > 0) out << ",\"refused\":" << c.refused;
  out << "}\n";
}

namespace detail {

/// A column for each of tp, pp, dp and ep, and for the split where one is not even.
inline std::string layouts_table(const layout_comparison& c, index_t shown, bool experts) {
  using side = table::side;
  bool spread = false;
  for (index_t i = 0; i < shown; ++i)
    spread = spread || c.layouts[static_cast<std::size_t>(i)].layout.split == pipeline_split::spread;
  std::vector<table::column> columns{{"tp"}, {"pp"}, {"dp"}};
  if (experts) columns.push_back({"ep"});
  if (spread) columns.push_back({"split", side::left});
  for (const char* heading : {"a rank", "moves", "keeps", "peak", "seconds"}) columns.push_back({heading});
  table rows(columns);
  for (index_t i = 0; i < shown; ++i) {
    const compared_layout& one = c.layouts[static_cast<std::size_t>(i)];
    const degrees& d = one.layout;
    std::vector<std::string> cells{std::to_string(d.tp), std::to_string(d.pp), std::to_string(d.dp)};
    if (experts) cells.push_back(std::to_string(d.ep));
    if (spread) cells.emplace_back(d.split == pipeline_split::spread ? "spread" : "even");
    for (const bytes_t bytes : {one.bytes_per_rank, one.moved, one.retained, one.peak})
      cells.push_back(narrow_bytes_text(bytes));
    cells.push_back(one.seconds ? seconds_text(*one.seconds) : "-");
    rows.row(cells);
  }
  return rows.text();
}

}  // namespace detail

/// What `reshard compare` prints for a person: `from` names the model and FROM, `memory` is 0 where no limit was given.
inline std::string comparison_text(const space& from, const layout_comparison& c, rank_t devices, bytes_t memory,
                                   index_t top) {
  const bool experts = from.model().shape.experts > 0;
  std::string text =
      text_of(folded(text_of(one_line(from.model().name, 60), " from ", detail::layout_name(from), " (",
                             count_text(from.ranks()), from.ranks() == 1 ? " rank)" : " ranks)"),
                     4),
              "\n", "to ", count_text(devices), devices == 1 ? " device: " : " devices: ", count_text(c.legal),
              c.legal == 1 ? " legal layout" : " legal layouts", "\n");
  if (memory > 0)
    text += text_of(count_text(c.too_large), c.too_large == 1 ? " has" : " have", " a rank of more than ",
                    bytes_text(memory), "\n");
  if (c.refused > 0)
    text += folded(text_of(count_text(c.refused), " refused; one reason: ", one_line(c.why_refused, 200))) + "\n";
  const index_t all = std::ssize(c.layouts), shown = least(top, all);
  if (shown == 0) return text;
  const compared_layout& best = c.layouts.front();
  text += text_of(best.seconds ? "seconds are simulated, not measured; best first"
                               : "the cluster has no speeds, so fewest bytes moved first",
                  "\n\n", detail::layouts_table(c, shown, experts));
  if (shown < all) text += text_of("  .. and ", count_text(all - shown), " more; --top says how many are shown\n");
  return text + "\n" + folded(text_of("first: ", layout_word(best.layout))) + "\n";
}

}  // namespace reshard::io
