// SPDX-License-Identifier: Apache-2.0
// Layouts side by side: which comes first.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include <reshard/cost/compare_layouts.hpp>

using namespace reshard;

namespace {
compared_layout row(const char* layout, bytes_t moved, std::optional<double> seconds) {
  compared_layout one;
  one.layout = parse_degrees(layout);
  one.moved = moved;
  one.seconds = seconds;
  return one;
}
std::vector<std::string> sorted(const std::vector<compared_layout>& rows) {
  layout_comparison c;
  c.layouts = rows;
  sort_best_first(c);
  std::vector<std::string> texts;
  for (const compared_layout& one : c.layouts) texts.push_back(to_text(one.layout));
  return texts;
}
}  // namespace

TEST_CASE("fewest seconds first, then the layout as text") {
  CHECK(sorted({row("tp=8", 1, 2.0), row("tp=2", 9, 1.0), row("tp=16", 9, 2.0), row("pp=4", 5, 2.0)}) ==
        std::vector<std::string>{"tp=2", "pp=4", "tp=16", "tp=8"});
}

TEST_CASE("without seconds the fewest bytes moved first") {
  CHECK(sorted({row("tp=2", 9, {}), row("tp=8", 1, {}), row("tp=4", 1, {})}) ==
        std::vector<std::string>{"tp=4", "tp=8", "tp=2"});
}

TEST_CASE("seconds that are equal but for rounding are one: then the layout as text") {
  CHECK(sorted({row("tp=8", 1, 2.0), row("tp=2", 9, 2.0 + 1e-12), row("pp=4", 5, 2.0 - 1e-12), row("dp=9", 5, 2.1)}) ==
        std::vector<std::string>{"pp=4", "tp=2", "tp=8", "dp=9"});
  CHECK(sorted({row("tp=8", 1, 2.0), row("tp=2", 9, 2.0 + 1e-8)}) == std::vector<std::string>{"tp=8", "tp=2"});
}
