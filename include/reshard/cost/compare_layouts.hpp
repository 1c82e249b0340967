// SPDX-License-Identifier: Apache-2.0
// Layouts that a job could go to, side by side: what each holds, what the switch to it moves, needs and takes, and
// which is best. Seconds are simulated.
// Builds on: parallelism/parse_degrees.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/base/same_seconds.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

namespace reshard {

/// A layout and the switch to it, in bytes and simulated seconds.
struct compared_layout {
  degrees layout;
  bytes_t bytes_per_rank = 0;  // of its largest rank
  bytes_t moved = 0;
  bytes_t retained = 0;
  bytes_t peak = 0;               // the largest of any device
  std::optional<double> seconds;  // none where the cluster has no speeds
};

/// Layouts side by side, best first once sort_best_first was called.
struct layout_comparison {
  std::vector<compared_layout> layouts;
  index_t legal = 0;        // in all
  index_t too_large = 0;    // of these, above the memory of a device
  index_t refused = 0;      // of these, whose switch is refused as it is asked for
  std::string why_refused;  // the first sentence, without "reshard: "
};

/// Ascending by seconds, those equal but for rounding to the least of them being one, or by bytes moved where none has
/// any; then by the layout as text.
inline void sort_best_first(layout_comparison& c) {
  std::vector<std::pair<std::string, compared_layout>> named;
  for (compared_layout& one : c.layouts) named.emplace_back(to_text(one.layout), std::move(one));
  std::sort(named.begin(), named.end(), [](const auto& a, const auto& b) {
    if (a.second.seconds != b.second.seconds) return a.second.seconds < b.second.seconds;
    if (!a.second.seconds && a.second.moved != b.second.moved) return a.second.moved < b.second.moved;
    return a.first < b.first;
  });
  const auto by_text = [](const auto& a, const auto& b) { return a.first < b.first; };
  for (auto first = named.begin(); first != named.end() && first->second.seconds;) {
    const auto past = std::find_if(first, named.end(), [least = *first->second.seconds](const auto& one) {
      return !one.second.seconds || fewer_seconds(least, *one.second.seconds);
    });
    std::sort(first, past, by_text);
    first = past;
  }
  c.layouts.clear();
  for (auto& one : named) c.layouts.push_back(std::move(one.second));
}

}  // namespace reshard
