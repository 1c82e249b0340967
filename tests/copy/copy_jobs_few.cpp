// SPDX-License-Identifier: Apache-2.0
// Jobs by hand: from where to where each one copies, in which stage, and which pages it commits. Little is copied here;
// copy/copy_jobs.cpp follows every byte.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/copy/copy_jobs.hpp>

using namespace reshard;

namespace {

alignas(64) std::byte to_memory[4 << 20], from_memory[4 << 20];
constexpr bytes_t words = job_bytes / 4;

bound_box box_at(std::byte* at, index_t parts, index_t rows, index_t columns, const index_t (&stride)[3],
                 bytes_t width = 4) {
  return {{1, {}, {{{1, 1 + parts}, {2, 2 + rows}, {3, 3 + columns}}}}, at, {stride[0], stride[1], stride[2]}, width};
}
/// Of each job: where it writes and reads, and how many bytes.
using told = std::vector<std::tuple<bytes_t, bytes_t, bytes_t>>;
told jobs_told(index_t parts, index_t rows, index_t columns, const index_t (&to)[3], const index_t (&from)[3]) {
  job_list jobs(1);
  jobs.add(0, box_at(to_memory + 8, parts, rows, columns, to), box_at(from_memory + 4, parts, rows, columns, from),
           nullptr);
  jobs.seal();
  CHECK((jobs.begin(0) == 0 && jobs.end(0) == jobs.size()));
  told all;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    all.emplace_back(jobs[i].dst - (to_memory + 8), jobs[i].src - (from_memory + 4), jobs[i].shape().total_bytes());
    CHECK((jobs[i].spans == 0 && jobs[i].first_span == 0 && jobs[i].as.none()));
  }
  return all;
}
/// Dense where it is written; where it is read rows lie `row` apart, and parts `part`.
told cut_of(index_t parts, index_t rows, index_t columns, index_t part, index_t row) {
  return jobs_told(parts, rows, columns, {rows * columns, columns, 1}, {part, row, 1});
}

/// A block of pages that notes what is taken of it, as offset and bytes.
struct noted_pages {
  std::vector<std::pair<bytes_t, bytes_t>> taken;
  std::byte* const at = to_memory + (1 << 20);

  binding of(const std::vector<bound_box>& boxes, std::int64_t pages) {
    binding b("into");
    for (const bound_box& one : boxes) b.add(one);
    b.own(memory_block{.begin = at,
                       .granules = pages,
                       .granule = page_bytes,
                       .take = [this](std::byte* first, bytes_t bytes) { taken.emplace_back(first - at, bytes); },
                       .give_back = [](std::byte*, bytes_t) {}});
    b.seal();
    return b;
  }
  std::vector<std::pair<bytes_t, bytes_t>> now() { return std::exchange(taken, {}); }
};
using spans = std::vector<std::pair<bytes_t, bytes_t>>;
/// Rows [first, first + rows) of a tensor of which a row takes a page, at its place in the block.
bound_box rows_of_pages(const noted_pages& in, index_t first, index_t rows) {
  return {{1, {}, {{{0, 1}, {first, first + rows}, {0, 1024}}}}, in.at + first * page_bytes, {0, 1024, 1}, 4};
}
bound_box read_of(const bound_box& b) {
  bound_box from = b;
  from.data = from_memory;
  return from;
}

}  // namespace

TEST_CASE("a box of few bytes is one job, a longer one as many slices of its outermost dimension as fit") {
  CHECK(job_bytes == 262144);
  CHECK(cut_of(1, 1, words, 0, 0) == told{{0, 0, 262144}});
  CHECK(cut_of(1, 1, words + 1, 0, 0) == told{{0, 0, 262144}, {262144, 262144, 4}});
  CHECK(cut_of(1, 4, words / 4, 0, 16390) == told{{0, 0, 262144}});
  CHECK(cut_of(1, 5, words / 4, 0, 16390) == told{{0, 0, 262144}, {262144, 4 * 4 * 16390, 65536}});
  CHECK(cut_of(5, 2, words / 8, 20000, 9000) == told{{0, 0, 262144}, {262144, 4 * 4 * 20000, 65536}});
  CHECK(cut_of(3, 2, words / 2, 80000, 40000) ==
        told{{0, 0, 262144}, {262144, 320000, 262144}, {524288, 640000, 262144}});  // a slice is a job
  CHECK(cut_of(1, 3, 50000, 0, 60000) == told{{0, 0, 200000}, {200000, 240000, 200000}, {400000, 480000, 200000}});
  CHECK(cut_of(1, 1, 1, 0, 0) == told{{0, 0, 4}});
}

TEST_CASE("slices that are too long are cut further, each for itself") {
  CHECK(cut_of(2, 2, words + 1, 200000, 70000) == told{{0, 0, 262144},
                                                       {262144, 262144, 4},
                                                       {262148, 280000, 262144},
                                                       {524292, 280000 + 262144, 4},
                                                       {524296, 800000, 262144},
                                                       {786440, 800000 + 262144, 4},
                                                       {786444, 1080000, 262144},
                                                       {1048588, 1080000 + 262144, 4}});
  CHECK(cut_of(2, 3, 40000, 150000, 50000) == told{{0, 0, 160000},
                                                   {160000, 200000, 160000},
                                                   {320000, 400000, 160000},
                                                   {480000, 600000, 160000},
                                                   {640000, 800000, 160000},
                                                   {800000, 1000000, 160000}});
  CHECK(cut_of(2, 1, words + 2, 70000, 0) ==
        told{{0, 0, 262144}, {262144, 262144, 8}, {262152, 280000, 262144}, {524296, 280000 + 262144, 8}});
  CHECK(jobs_told(1, 1, words + 3, {0, 0, 2}, {0, 0, 3}) == told{{0, 0, 262144}, {524288, 786432, 12}});
}

TEST_CASE("between two places a box is copied in the fewest dimensions, runs and strides in bytes of either side") {
  const index_t dense[] = {12, 4, 1}, apart[] = {100, 10, 1}, other[] = {200, 30, 2};
  const auto of = [](const bound_box& to, const bound_box& from) { return shape_between(to, from); };
  CHECK(of(box_at(to_memory, 2, 3, 4, dense), box_at(from_memory, 2, 3, 4, dense)) == copy_shape{.run_bytes = 96});
  CHECK(of(box_at(to_memory, 2, 3, 4, dense), box_at(from_memory, 2, 3, 4, apart)) ==
        copy_shape{2, {2, 3}, {400, 40}, {48, 16}, 16});
  CHECK(of(box_at(to_memory, 2, 3, 4, apart), box_at(from_memory, 2, 3, 4, other)) ==
        copy_shape{3, {2, 3, 4}, {800, 120, 8}, {400, 40, 4}, 4});
  CHECK(of(box_at(to_memory, 2, 3, 4, apart, 2), box_at(from_memory, 2, 3, 4, other)) ==
        copy_shape{3, {2, 3, 4}, {800, 120, 8}, {200, 20, 2}, 2});
  CHECK(of(box_at(to_memory, 2, 3, 4, dense), box_at(from_memory, 2, 3, 4, dense, 2)) == copy_shape{.run_bytes = 96});
}

TEST_CASE("a job has its shape, and is run: bytes, or elements that are converted") {
  const index_t apart[] = {100, 10, 1}, other[] = {200, 30, 2};
  bound_box to = box_at(to_memory, 2, 3, 4, apart), from = box_at(from_memory, 2, 3, 4, other);
  for (int i = 0; i < 4096; ++i) from_memory[i] = static_cast<std::byte>(7 * i + 3), to_memory[i] = std::byte{};
  job_list jobs(1);
  jobs.add(0, to, from, nullptr);
  to.data += 1600, to.element_bytes = 2, to.holds = dtype::bf16, to.travels = dtype::fp32;
  from.holds = from.travels = dtype::fp32;
  jobs.add(0, to, from, nullptr);
  jobs.seal();
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].shape() == copy_shape{3, {2, 3, 4}, {800, 120, 8}, {400, 40, 4}, 4});
  CHECK((jobs[0].as.none() && jobs[0].ndim == 3 && jobs[0].run_bytes == 4));
  CHECK(jobs[1].as == conversion{dtype::fp32, dtype::fp32, dtype::bf16});
  const binding none;
  for (const copy_path path : {copy_path::streaming, copy_path::cached}) {
    std::fill(to_memory, to_memory + 4096, std::byte{});
    jobs.run(0, none, path), jobs.run(1, none);
    int wrong = 0;
    std::vector<std::byte> wanted(4096);
    for (index_t i = 0; i < 2; ++i)
      for (index_t j = 0; j < 3; ++j)
        for (index_t k = 0; k < 4; ++k) {
          const std::byte* const at = from_memory + 4 * (200 * i + 30 * j + 2 * k);
          std::uint32_t bits;
          std::memcpy(&bits, at, 4);
          std::memcpy(&wanted[static_cast<std::size_t>(4 * (100 * i + 10 * j + k))], at, 4);
          const std::uint32_t narrow = bf16_of_fp32(bits);
          std::memcpy(&wanted[static_cast<std::size_t>(1600 + 2 * (100 * i + 10 * j + k))], &narrow, 2);
        }
    for (std::size_t i = 0; i < wanted.size(); ++i) wrong += to_memory[i] != wanted[i] ? 1 : 0;
    CHECK(wrong == 0);
  }
}

TEST_CASE("jobs are of the stage that they are added in, and a list has as many as it is sealed with, at least") {
  const index_t dense[] = {0, words / 4, 1};
  const bound_box five = box_at(to_memory, 1, 5, words / 4, dense), one = box_at(to_memory, 1, 1, 4, dense);
  using ends = std::vector<std::size_t>;
  const auto of = [](const job_list& jobs, index_t stages) {
    ends all;
    for (index_t k = 0; k < stages; ++k) all.push_back(jobs.begin(k)), all.push_back(jobs.end(k));
    return all;
  };
  job_list jobs;  // that grows
  jobs.add(1, one, one, nullptr);
  jobs.add(1, five, five, nullptr);
  jobs.add(3, five, five, nullptr);
  jobs.seal(6);
  CHECK(jobs.size() == 5);
  CHECK(of(jobs, 6) == ends{0, 0, 0, 3, 3, 3, 3, 5, 5, 5, 5, 5});
  jobs.seal(2);
  CHECK(of(jobs, 6) == ends{0, 0, 0, 3, 3, 3, 3, 5, 5, 5, 5, 5});
  job_list first(2);
  first.add(0, one, one, nullptr);
  first.seal();
  CHECK(of(first, 2) == ends{0, 1, 1, 1});
  job_list grown;
  grown.add(0, one, one, nullptr);
  grown.seal();
  CHECK(of(grown, 1) == ends{0, 1});
  job_list sealed;
  sealed.seal(3);
  CHECK(of(sealed, 3) == ends{0, 0, 0, 0, 0, 0});
  const job_list none(3);
  CHECK(of(none, 3) == ends{0, 0, 0, 0, 0, 0});
}

TEST_CASE(
    "a job takes those pages that it is the first to write, before it copies; what is there already it does not") {
  noted_pages pages;
  const bound_box all = rows_of_pages(pages, 0, 6);
  const binding into = pages.of({all}, 8);
  page_stages stages(into, binding_side::target);
  job_list jobs(3);
  const auto add = [&](index_t stage, index_t first, index_t rows) {
    const bound_box to = rows_of_pages(pages, first, rows);
    jobs.add(stage, to, read_of(to), &stages);
  };
  add(0, 1, 2), add(0, 4, 1), add(1, 0, 6), add(2, 2, 2);
  jobs.seal();
  REQUIRE(jobs.size() == 4);
  CHECK((jobs[0].first_span == 0 && jobs[0].spans == 1 && jobs[1].first_span == 1 && jobs[1].spans == 1));
  CHECK((jobs[2].first_span == 2 && jobs[2].spans == 3 && jobs[3].spans == 0));
  std::fill(from_memory, from_memory + 8 * page_bytes, std::byte{5});
  std::fill(pages.at, pages.at + 8 * page_bytes, std::byte{});
  jobs.run(0, into);
  CHECK(pages.now() == spans{{4096, 8192}});
  CHECK((pages.at[4096] == std::byte{5} && pages.at[12287] == std::byte{5} && pages.at[12288] == std::byte{}));
  jobs.run(2, into);
  CHECK(pages.now() == spans{{0, 4096}, {12288, 4096}, {20480, 4096}});
  jobs.run(3, into);
  CHECK(pages.now().empty());
  jobs.run(1, into);
  CHECK(pages.now() == spans{{16384, 4096}});
  jobs.keep_pages(0);
  CHECK((jobs[0].spans == 0 && jobs[1].spans == 0 && jobs[2].spans == 3));
  jobs.run(0, into), jobs.run(1, into);
  CHECK(pages.now().empty());
}

TEST_CASE("pages of a stage are taken ahead of its jobs, and what something else writes has all of its own") {
  noted_pages pages;
  const bound_box all = rows_of_pages(pages, 0, 7);
  const binding into = pages.of({all}, 8);
  page_stages stages(into, binding_side::target);
  job_list jobs(3);
  const bound_box two = rows_of_pages(pages, 2, 2), three = rows_of_pages(pages, 3, 3),
                  last = rows_of_pages(pages, 6, 1);
  jobs.add(0, two, read_of(two), &stages);
  jobs.add(1, last, read_of(last), &stages);
  jobs.add_pages(1, three, stages);
  jobs.add_pages(2, two, stages);
  jobs.seal();
  REQUIRE(jobs.size() == 4);
  CHECK((jobs.begin(1) == 1 && jobs.end(1) == 3 && jobs.end(2) == 4));
  CHECK((jobs[2].first_span == 2 && jobs[2].spans == 1 && jobs[2].run_bytes == 0 && jobs[2].dst == nullptr));
  jobs.take_pages(1, into);
  CHECK(pages.now() == spans{{24576, 4096}, {12288, 12288}});
  CHECK((jobs[0].spans == 1 && jobs[1].spans == 0 && jobs[2].spans == 0 && jobs[3].spans == 1));
  jobs.run(1, into), jobs.run(2, into);
  CHECK(pages.now().empty());
  jobs.take_pages(2, into);
  CHECK(pages.now() == spans{{8192, 8192}});
  CHECK(jobs[0].spans == 1);
}
