// SPDX-License-Identifier: Apache-2.0
// Tables of copies by hand: from where to where each goes, how many bytes it has, and in what dimensions. Nothing is
// copied, and no byte is followed; copy/copy_table.cpp follows each.
#include <doctest/doctest.h>

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include <reshard/copy/copy_table.hpp>

using namespace reshard;

namespace {

alignas(64) std::byte written[4 << 20], read_from[4 << 20];
constexpr conversion widened{dtype::bf16, dtype::bf16, dtype::fp32}, narrowed{dtype::fp32, dtype::bf16, dtype::bf16};

/// A copy of a table: where it writes and reads, its bytes there, its dimensions.
struct told {
  std::int64_t to = 0, from = 0, bytes = 0;
  std::vector<std::int64_t> extents = {1, 1, 1};
  bool operator==(const told&) const = default;
};
using list = std::vector<told>;
list told_of(const copy_table& table) {
  list all;
  for (const table_copy& c : table)
    all.push_back({c.dst - written,
                   c.src - read_from,
                   std::int64_t{c.units()} * c.dst_unit,
                   {c.extent[0], c.extent[1], c.extent[2]}});
  return all;
}
list cut(const copy_shape& s, const conversion& as = {}) {
  copy_table table;
  table.add(written, read_from, s, as);
  return told_of(table);
}

}  // namespace

TEST_CASE("a run of more than 262144 bytes is cut in pieces of so many and a rest") {
  CHECK(cut({.run_bytes = 262144}) == list{{0, 0, 262144}});
  CHECK(cut({.run_bytes = 262145}) == list{{0, 0, 262144}, {262144, 262144, 1}});
  CHECK(cut({.run_bytes = 2 * 262144 + 48}) == list{{0, 0, 262144}, {262144, 262144, 262144}, {524288, 524288, 48}});
  CHECK(cut({.run_bytes = 2 * 262144}) == list{{0, 0, 262144}, {262144, 262144, 262144}});
  CHECK(cut({.run_bytes = 262148}, {dtype::bf16, dtype::bf16, dtype::bf16}) ==
        list{{0, 0, 262144}, {262144, 262144, 4}});  // which converts nothing
  CHECK(cut({.run_bytes = 262144 + 12}, widened) == list{{0, 0, 262144}, {262144, 131072, 12}});
  CHECK(cut({.run_bytes = 2 * 262144 + 6}, narrowed) ==
        list{{0, 0, 262144}, {262144, 524288, 262144}, {524288, 1048576, 6}});
}

TEST_CASE("of one dimension as many indices as fit are a copy") {
  CHECK(cut({1, {256}, {1040}, {1056}, 1024}) == list{{0, 0, 262144, {1, 1, 256}}});
  CHECK(cut({1, {257}, {1040}, {1056}, 1024}) == list{{0, 0, 262144, {1, 1, 256}}, {256 * 1056, 256 * 1040, 1024}});
  CHECK(cut({1, {600}, {1040}, {1056}, 1024}) == list{{0, 0, 262144, {1, 1, 256}},
                                                      {256 * 1056, 256 * 1040, 262144, {1, 1, 256}},
                                                      {512 * 1056, 512 * 1040, 88 * 1024, {1, 1, 88}}});
  CHECK(cut({1, {2}, {300000}, {310000}, 262144}) == list{{0, 0, 262144}, {310000, 300000, 262144}});
  CHECK(cut({1, {2}, {300000}, {310000}, 262145}) ==
        list{{0, 0, 262144}, {262144, 262144, 1}, {310000, 300000, 262144}, {310000 + 262144, 300000 + 262144, 1}});
}

TEST_CASE("the outermost dimension is cut first, and an index of it that is too long is cut for itself") {
  CHECK(cut({2, {2, 3}, {400000, 110000}, {420000, 120000}, 100000}) == list{{0, 0, 200000, {1, 1, 2}},
                                                                             {240000, 220000, 100000},
                                                                             {420000, 400000, 200000, {1, 1, 2}},
                                                                             {660000, 620000, 100000}});
  CHECK(cut({3, {5, 2, 3}, {1000000, 400000, 110000}, {300000, 100000, 31000}, 20000}) ==
        list{{0, 0, 240000, {2, 2, 3}}, {600000, 2000000, 240000, {2, 2, 3}}, {1200000, 4000000, 120000, {1, 2, 3}}});
}

TEST_CASE("of more than three dimensions each index of the outer ones is a copy, but for those that merge") {
  const copy_shape five{5, {2, 3, 2, 3, 2}, {1000, 300, 140, 40, 14}, {1100, 330, 150, 45, 15}, 10};
  list wanted;
  for (const std::int64_t i : {0, 1})
    for (const std::int64_t j : {0, 1, 2}) wanted.push_back({1100 * i + 330 * j, 1000 * i + 300 * j, 120, {2, 3, 2}});
  CHECK(cut(five) == wanted);
  copy_table table;
  table.add(written, read_from, five);
  const table_copy& first = *table.data();
  CHECK((first.dst_stride[0] == 150 && first.dst_stride[1] == 45 && first.dst_stride[2] == 15));
  CHECK((first.src_stride[0] == 140 && first.src_stride[1] == 40 && first.src_stride[2] == 14));
  CHECK(cut({4, {2, 3, 4, 5}, {600, 200, 50, 10}, {600, 200, 50, 10}, 10}) == list{{0, 0, 1200}});
  CHECK(cut({4, {2, 1, 4, 5}, {600, 200, 50, 10}, {600, 200, 50, 10}, 8}).size() == 1);
  copy_shape eight{.ndim = 8, .run_bytes = 1};
  for (int d = 0; d < 8; ++d) eight.extent[d] = 2, eight.src_stride[d] = 1000 - d, eight.dst_stride[d] = 1 << (2 * d);
  const list of_eight = cut(eight);
  CHECK((of_eight.size() == 32 && of_eight[31].to == 1 + 4 + 16 + 64 + 256 && of_eight[31].from == 5000 - 10));
  // where elements are converted nothing merges
  CHECK(cut({1, {2}, {8}, {16}, 16}, widened) == list{{0, 0, 32, {1, 1, 2}}});
  CHECK(cut({4, {2, 1, 1, 3}, {100, 100, 100, 8}, {200, 200, 200, 16}, 16}, widened) ==
        list{{0, 0, 48, {1, 1, 3}}, {200, 100, 48, {1, 1, 3}}});
}

TEST_CASE("nothing adds nothing; boxes, and the jobs of one stage of a list, are added to what is there") {
  copy_table table;
  table.add(written, read_from, {.run_bytes = 0});
  table.add(written, read_from, {1, {0}, {1}, {1}, 1});
  bound_box from{{0, {}, {{{0, 2}, {0, 3}, {4, 6}}}}, read_from + 64, {100, 10, 1}, 2};
  bound_box to = from, nothing = from;
  to.data = written + 32, to.stride[0] = 6, to.stride[1] = 2;
  nothing.where.dim[1] = {2, 2};
  table.add(nothing, from);
  CHECK((table.empty() && table.size() == 0 && table.begin() == table.end()));
  table.add(written, read_from, {.run_bytes = 5});
  table.add(to, from);
  CHECK((table.size() == 2 && table.end() - table.begin() == 2 && !table.empty()));
  CHECK(told_of(table) == list{{0, 0, 5}, {32, 64, 24, {1, 2, 3}}});
  CHECK((table.data()[1].dst_stride[1] == 12 && table.data()[1].dst_stride[2] == 4));
  CHECK((table.data()[1].src_stride[1] == 200 && table.data()[1].src_stride[2] == 20));
  to.holds = dtype::bf16, to.travels = dtype::fp32, from.holds = from.travels = dtype::fp32, from.element_bytes = 4;
  job_list listed(3);
  listed.add(0, from, from, nullptr), listed.add(1, to, from, nullptr), listed.add(1, from, from, nullptr);
  listed.add(2, from, from, nullptr);
  listed.seal();
  table.clear();
  CHECK((table.empty() && table.begin() == table.end()));
  table.add(listed, 1);
  REQUIRE(table.size() == 2);
  CHECK(table.data()[0].as == conversion{dtype::fp32, dtype::fp32, dtype::bf16});
  CHECK((table.data()[0].dst == written + 32 && table.data()[0].src == read_from + 64));
  CHECK((table.data()[1].as.none() && table.data()[1].dst == read_from + 64));
  copy_table of_box;
  of_box.add(to, from);
  CHECK(of_box.data()[0].as == conversion{dtype::fp32, dtype::fp32, dtype::bf16});
}
