// SPDX-License-Identifier: Apache-2.0
// How copies are cut into those of a table, by numbers worked out by hand; and byte by byte, that a table is from where
// to where its copies are, whatever they are cut into. Nothing is copied here (copy/table_copy.cpp does).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <reshard/copy/copy_table.hpp>

using namespace reshard;

namespace {
using copy_bytes = std::vector<std::int64_t>;
using byte_moves = std::vector<std::pair<std::int64_t, std::int64_t>>;  // from which byte to which
alignas(16) std::byte written_memory[2 << 20], read_memory[2 << 20];

/// What one strided copy moves, dimension by dimension and byte by byte.
byte_moves moves_of(const copy_shape& s, std::int64_t read, std::int64_t written) {
  byte_moves all{{read, written}};
  for (int d = 0; d <= s.ndim; ++d) {
    byte_moves next;
    for (const auto& [from, to] : all)
      for (std::int64_t i = 0; i < (d < s.ndim ? s.extent[d] : s.run_bytes); ++i)
        next.emplace_back(from + i * (d < s.ndim ? s.src_stride[d] : 1), to + i * (d < s.ndim ? s.dst_stride[d] : 1));
    all = std::move(next);
  }
  return all;
}
byte_moves sorted(byte_moves all) {
  std::sort(all.begin(), all.end());
  return all;
}
byte_moves moves_of(const copy_table& table) {
  byte_moves all;
  for (const table_copy& c : table) {
    copy_shape s{.ndim = 3, .run_bytes = std::int64_t{c.run_units} * c.dst_unit};
    for (int d = 0; d < 3; ++d)
      s.extent[d] = c.extent[d], s.src_stride[d] = c.src_stride[d], s.dst_stride[d] = c.dst_stride[d];
    for (const auto& one : moves_of(s, c.src - read_memory, c.dst - written_memory)) all.push_back(one);
  }
  return sorted(std::move(all));
}
copy_table table_of(const copy_shape& s, const conversion& as = {}) {
  copy_table table;
  table.add(written_memory, read_memory, s, as);
  return table;
}
void check_cut(const copy_shape& s, const copy_bytes& wanted) {
  const copy_table table = table_of(s);
  copy_bytes found;
  for (const table_copy& c : table) found.push_back(std::int64_t{c.units()} * c.dst_unit);
  CHECK(found == wanted);
  CHECK(moves_of(table) == sorted(moves_of(s, 0, 0)));
}
}  // namespace

TEST_CASE("copies are of 262144 bytes at most: runs are cut where they are longer, else as many rows as fit") {
  check_cut({.run_bytes = 262144}, {262144});
  check_cut({.run_bytes = 2 * 262144 + 48}, {262144, 262144, 48});
  check_cut({1, {256}, {1040}, {1056}, 1024}, {262144});
  check_cut({1, {3000}, {100}, {112}, 100}, {262100, 37900});  // 2621 rows of 3000
  check_cut({2, {2, 3}, {400000, 110000}, {420000, 120000}, 100000}, {200000, 100000, 200000, 100000});
  check_cut({1, {2}, {300000}, {310000}, 262145}, {262144, 1, 262144, 1});
}

TEST_CASE("of more than three dimensions each index of the outer ones is a copy, but for those that merge") {
  check_cut({5, {2, 3, 2, 3, 2}, {1000, 300, 140, 40, 14}, {1100, 330, 150, 45, 15}, 10}, copy_bytes(6, 120));
  check_cut({4, {2, 3, 4, 5}, {600, 200, 50, 10}, {600, 200, 50, 10}, 10}, {1200});
  CHECK(table_of({1, {75}, {16}, {16}, 16}).data()->run_units == 75);
}

TEST_CASE("where elements are converted nothing merges, and a run is cut at as many elements on either side") {
  const conversion widened{dtype::bf16, dtype::bf16, dtype::fp32};
  const table_copy two = *table_of({1, {2}, {16}, {16}, 16}, widened).data();  // 8 of 16 bytes there are read
  CHECK((two.extent[2] == 2 && two.run_units == 1 && two.dst_unit == 16 && two.src_unit == 8 && two.as == widened));
  const copy_table cut = table_of({.run_bytes = 262144 + 12}, widened);
  REQUIRE(cut.size() == 2);
  const table_copy rest = cut.data()[1];
  CHECK((rest.dst - written_memory == 262144 && rest.src - read_memory == 131072));
  CHECK((rest.run_units == 3 && rest.dst_unit == 4 && rest.src_unit == 2));
}

TEST_CASE("what is added follows what is there; nothing adds nothing, and a cleared table is empty") {
  const bound_box from{{0, {}, {{{0, 2}, {0, 3}, {4, 6}}}}, read_memory + 64, {100, 10, 1}, 2};
  bound_box to = from, nothing = from;
  to.data = written_memory + 32, to.stride[0] = 6, to.stride[1] = 2;
  nothing.where.dim[1] = {2, 2};
  copy_table table;
  table.add(written_memory, read_memory, {.run_bytes = 0});
  table.add(written_memory, read_memory, {1, {0}, {1}, {1}, 1});
  table.add(nothing, from);
  CHECK((table.empty() && table.size() == 0 && table.begin() == table.end()));
  table.add(written_memory, read_memory, {.run_bytes = 5});
  table.add(to, from);  // rows of 4 bytes, 20 apart there and 4 here
  CHECK((table.size() == 2 && table.end() - table.begin() == 2));
  byte_moves wanted = moves_of({.run_bytes = 5}, 0, 0);
  for (const auto& one : moves_of({2, {2, 3}, {200, 20}, {12, 4}, 4}, 64, 32)) wanted.push_back(one);
  CHECK(moves_of(table) == sorted(wanted));
  table.clear();
  CHECK((table.empty() && table.begin() == table.end()));
}
