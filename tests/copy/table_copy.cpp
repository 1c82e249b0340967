// SPDX-License-Identifier: Apache-2.0
// The body of the copy kernels, run on the host: every thread of every copy, in rising, falling and shuffled order,
// against one byte at a time; and how copies are cut into those of a table.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include <reshard/copy/copy_table.hpp>

#include "../support/dice.hpp"
#include "../support/random_copies.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::aligned_bytes, testing::any_copy, testing::dice, testing::random_copy;

namespace {

enum class order { rising, falling, shuffled };

std::vector<std::uint32_t> numbers_in(order how, std::size_t count, dice& random) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::uint32_t{0});
  if (how == order::falling) std::reverse(numbers.begin(), numbers.end());
  for (std::size_t i = count; how == order::shuffled && i > 1; --i)
    std::swap(numbers[i - 1], numbers[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
  return numbers;
}

/// As a launch would run a table: a block of threads a copy.
void run(const copy_table& table, std::uint32_t threads, order how, dice& random) {
  const std::vector<std::uint32_t> numbers = numbers_in(how, threads, random);
  for (const std::uint32_t job : numbers_in(how, table.size(), random))
    for (const std::uint32_t thread : numbers) run_table_copy(table.data()[job], thread, threads);
}

/// The widest unit that a copy of the table could have, from its addresses one by one.
std::int64_t widest_unit(const table_copy& job) {
  std::uintptr_t bits = 16 | (job.run_units * job.dst_unit);
  for (std::uint32_t i = 0; i < job.extent[0]; ++i)
    for (std::uint32_t j = 0; j < job.extent[1]; ++j)
      for (std::uint32_t k = 0; k < job.extent[2]; ++k)
        bits |= reinterpret_cast<std::uintptr_t>(job.dst + i * job.dst_stride[0] + j * job.dst_stride[1] +
                                                 k * job.dst_stride[2]) |
                reinterpret_cast<std::uintptr_t>(job.src + i * job.src_stride[0] + j * job.src_stride[1] +
                                                 k * job.src_stride[2]);
  return std::int64_t{1} << std::countr_zero(bits);
}

/// The most elements, at most 4, that a converting copy of the table could have in a unit.
std::int64_t widest_conversion(const table_copy& job, const testing::random_conversion& of) {
  const auto run = static_cast<std::int64_t>(job.run_units) * job.dst_unit / of.to_width;
  for (std::int64_t together = 4; together > 1; together /= 2) {
    bool fits = run % together == 0;
    for (std::uint32_t i = 0; i < job.extent[0]; ++i)
      for (std::uint32_t j = 0; j < job.extent[1]; ++j)
        for (std::uint32_t k = 0; k < job.extent[2]; ++k) {
          const auto at = [&](const std::byte* first, const std::int64_t* stride) {
            return reinterpret_cast<std::uintptr_t>(first + i * stride[0] + j * stride[1] + k * stride[2]);
          };
          fits = fits && at(job.dst, job.dst_stride) % static_cast<std::uintptr_t>(together * of.to_width) == 0 &&
                 at(job.src, job.src_stride) % static_cast<std::uintptr_t>(together * of.from_width) == 0;
        }
    if (fits) return together;
  }
  return 1;
}

bytes_t bytes_of(const table_copy& job) { return index_t{job.units()} * job.dst_unit; }

}  // namespace

TEST_CASE("20,000 random tables equal a copy of one byte at a time, in whatever order threads run") {
  dice random(1);
  for (int i = 0; i < testing::tries(20'000); ++i) {
    CAPTURE(i);
    random_copy one = any_copy(random, i);
    copy_table table;
    table.add(one.to(), one.from(), one.shape);
    bytes_t bytes = 0, most = 0;
    bool widest = true;
    for (const table_copy& job : table) {
      bytes += bytes_of(job), most = greatest(most, bytes_of(job));
      widest = widest && job.dst_unit == widest_unit(job) && job.src_unit == job.dst_unit;
    }
    REQUIRE(bytes == one.shape.total_bytes());
    REQUIRE(most <= job_bytes);
    REQUIRE(widest);
    constexpr std::uint32_t threads[] = {256, 1, 7, 32, 100, 1024};
    run(table, threads[i % 6], static_cast<order>(i % 3), random);
    REQUIRE(one.made());
  }
}

TEST_CASE("every unit is one thread's alone") {
  dice random(2);
  for (int i = 0; i < 200; ++i) {
    const copy_shape shape = random_copy::shape_of(random, random.within(1, 40), 2000);
    random_copy one(random, shape, random.below(16), random.below(16));
    for (std::int64_t b = 0; b < one.src.size(); ++b) one.src.data()[b] |= std::byte{1};  // none is zero
    copy_table table;
    table.add(one.to(), one.from(), one.shape);
    bytes_t written = 0;
    const auto threads = static_cast<std::uint32_t>(random.within(1, 40));
    for (const table_copy& job : table)
      for (std::uint32_t thread = 0; thread < threads; ++thread) {
        one.dst.assign(std::vector<std::byte>(static_cast<std::size_t>(one.dst.size())));
        run_table_copy(job, thread, threads);
        written += one.dst.size() - std::count(one.dst.data(), one.dst.data() + one.dst.size(), std::byte{});
      }
    CHECK(written == shape.total_bytes());
  }
}

TEST_CASE("elements are converted one by one, in whatever units and order") {
  dice random(5);
  int of_four = 0;
  for (int i = 0; i < testing::tries(4000); ++i) {
    CAPTURE(i);
    testing::random_conversion one = testing::any_converted_copy(random);
    copy_table table;
    table.add(one.to(), one.from(), one.shape(), one.as);
    bytes_t bytes = 0, most = 0;
    bool aligned = true;
    for (const table_copy& job : table) {
      bytes += bytes_of(job), most = greatest(most, bytes_of(job));
      const std::int64_t together = job.dst_unit / one.to_width;
      of_four += together == 4 ? 1 : 0;
      aligned = aligned && job.src_unit == together * one.from_width && together <= 4 &&
                (together == 4 || widest_conversion(job, one) == together);
    }
    REQUIRE(bytes == one.shape().total_bytes());
    REQUIRE(most <= job_bytes);
    REQUIRE(aligned);
    constexpr std::uint32_t threads[] = {256, 1, 7, 32};
    run(table, threads[i % 4], static_cast<order>(i % 3), random);
    REQUIRE(one.made());
  }
  CHECK_DRAWN(of_four > 0);
}

TEST_CASE("more dimensions than three, and a run longer than a job") {
  dice random(3);
  const copy_shape five{5, {2, 3, 2, 3, 2}, {1000, 300, 140, 40, 14}, {1100, 330, 150, 45, 15}, 10};
  const copy_shape long_run{1, {2}, {3 * job_bytes}, {3 * job_bytes}, 2 * job_bytes + 48};
  for (const copy_shape& shape : {five, long_run})
    for (int place = 0; place < 16; ++place) {
      random_copy one(random, shape, place, random.below(16));
      copy_table table;
      table.add(one.to(), one.from(), shape);
      CHECK(table.size() == 6);
      run(table, 256, order::shuffled, random);
      CHECK(one.made());
    }
}

TEST_CASE("a table holds what it was given: boxes, and stages of a list of jobs") {
  dice random(4);
  const tensor_box what{0, {0, 0, 0}, {{{1, 3}, {4, 9}, {2, 8}}}};
  aligned_bytes from(2 * 8 * 10 * 2, random), boxes(2 * 5 * 6 * 2, random), staged(boxes.size(), random);
  const bound_box source{what, from.data(), {80, 10, 1}, 2};
  const auto target = [&](aligned_bytes& at) { return bound_box{what, at.data(), {30, 6, 1}, 2}; };
  copy_table by_box, by_stage;
  CHECK(by_box.empty());
  by_box.add(target(boxes), source);
  job_list jobs;
  jobs.add(0, target(boxes).narrowed({{{1, 2}, {4, 9}, {2, 8}}}), source.narrowed({{{1, 2}, {4, 9}, {2, 8}}}), nullptr);
  jobs.add(2, target(staged), source, nullptr);
  jobs.seal();
  by_stage.add(jobs, 1);
  CHECK(by_stage.empty());
  by_stage.add(jobs, 2);
  run(by_box, 32, order::rising, random);
  run(by_stage, 32, order::falling, random);
  for (index_t i = 0; i < 2; ++i)
    for (index_t j = 0; j < 5; ++j)
      for (index_t k = 0; k < 12; ++k) {
        const std::byte wanted = from.data()[i * 160 + j * 20 + k];
        CHECK(boxes.data()[i * 60 + j * 12 + k] == wanted);
        CHECK(staged.data()[i * 60 + j * 12 + k] == wanted);
      }
  bound_box nothing = target(boxes);
  nothing.where.dim[0] = {1, 1};
  by_box.add(nothing, source);
  CHECK(by_box.size() == 1);  // nothing is no copy
  by_box.clear();
  CHECK(by_box.empty());
}
