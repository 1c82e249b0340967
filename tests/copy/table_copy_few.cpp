// SPDX-License-Identifier: Apache-2.0
// Copies of a table one by one: the units that table_copy_of finds, by hand, and what each of a few threads does, unit
// by unit. copy/table_copy.cpp throws many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include <reshard/copy/table_copy.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using std::uint32_t;

namespace {

constexpr std::int64_t room = 6000;
alignas(16) std::byte written[room], read_from[room];

void fill(testing::dice& random) {
  for (std::int64_t i = 0; i < room; ++i) {
    written[i] = static_cast<std::byte>(random.bits() >> 9), read_from[i] = static_cast<std::byte>(random.bits() >> 9);
  }
}

/// Units of a copy in the order of their numbers, as offsets in what is written and read.
struct unit_of {
  std::int64_t to, from;
};
std::vector<unit_of> units_of(const table_copy& job) {
  std::vector<unit_of> all;
  for (uint32_t i = 0; i < job.extent[0]; ++i)
    for (uint32_t j = 0; j < job.extent[1]; ++j)
      for (uint32_t k = 0; k < job.extent[2]; ++k)
        for (uint32_t u = 0; u < job.run_units; ++u) {
          const auto at = [&](const std::int64_t* stride, uint32_t unit) {
            return i * stride[0] + j * stride[1] + k * stride[2] + std::int64_t{u} * unit;
          };
          all.push_back({job.dst - written + at(job.dst_stride, job.dst_unit),
                         job.src - read_from + at(job.src_stride, job.src_unit)});
        }
  return all;
}
uint32_t bits_at(const std::byte* at, bytes_t bytes) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, static_cast<std::size_t>(bytes));
  return bits;
}
/// Every thread alone makes its own units, and writes nothing else.
void check_threads(const table_copy& job, uint32_t threads, testing::dice& random) {
  const std::vector<unit_of> units = units_of(job);
  CHECK(units.size() == job.units());
  for (uint32_t thread = 0; thread < threads; ++thread) {
    fill(random);
    std::vector<std::byte> wanted(written, written + room);
    for (std::size_t n = thread; n < units.size(); n += threads) {
      std::byte* const to = wanted.data() + units[n].to;
      const std::byte* const from = read_from + units[n].from;
      if (job.as.none()) {
        std::copy(from, from + job.dst_unit, to);
        continue;
      }
      const bytes_t wide = width(job.as.to), of = width(job.as.from);
      for (std::int64_t e = 0; e < job.dst_unit / wide; ++e) {
        const uint32_t bits = job.as(bits_at(from + e * of, of));
        std::memcpy(to + e * wide, &bits, static_cast<std::size_t>(wide));
      }
    }
    run_table_copy(job, thread, threads);
    CAPTURE(thread);
    CHECK(std::equal(wanted.begin(), wanted.end(), written));
  }
}

/// How the units of a copy are: in how many, and how long on either side.
using told = std::tuple<uint32_t, uint32_t, uint32_t>;
told units_told(std::int64_t to, std::int64_t from, const copy_shape& s, const conversion& as = {}) {
  const table_copy job = table_copy_of(written + to, read_from + from, s, as);
  CHECK((job.dst == written + to && job.src == read_from + from && job.as == as));
  return {job.run_units, job.dst_unit, job.src_unit};
}
constexpr conversion widened{dtype::bf16, dtype::bf16, dtype::fp32}, narrowed{dtype::fp32, dtype::bf16, dtype::bf16},
    rounded{dtype::fp32, dtype::fp16, dtype::fp32}, other{dtype::bf16, dtype::fp32, dtype::fp16};

}  // namespace

TEST_CASE("a copy of no dimension is one run, of fewer than three has them last") {
  const table_copy none;
  CHECK(none.units() == 0);
  CHECK(
      (none.extent[0] == 1 && none.extent[1] == 1 && none.extent[2] == 1 && none.dst_unit == 1 && none.src_unit == 1));
  const table_copy run = table_copy_of(written, read_from, {.run_bytes = 48});
  CHECK((run.extent[0] == 1 && run.extent[1] == 1 && run.extent[2] == 1 && run.units() == 3));
  const table_copy two = table_copy_of(written, read_from, {2, {5, 7}, {320, 32}, {640, 48}, 32});
  CHECK((two.extent[0] == 1 && two.extent[1] == 5 && two.extent[2] == 7));
  CHECK((two.dst_stride[0] == 0 && two.dst_stride[1] == 640 && two.dst_stride[2] == 48));
  CHECK((two.src_stride[0] == 0 && two.src_stride[1] == 320 && two.src_stride[2] == 32));
  CHECK(two.units() == 70);
  const table_copy three = table_copy_of(written, read_from, {3, {2, 3, 4}, {96, 32, 8}, {120, 40, 8}, 8});
  CHECK((three.extent[0] == 2 && three.extent[1] == 3 && three.extent[2] == 4));
  CHECK((three.dst_stride[0] == 120 && three.src_stride[0] == 96 && three.dst_stride[2] == 8));
  CHECK((three.run_units == 1 && three.dst_unit == 8 && three.units() == 24));
}

TEST_CASE("units are as wide as addresses, strides and runs allow, 16 bytes at most") {
  CHECK(units_told(0, 0, {.run_bytes = 96}) == told{6, 16, 16});
  CHECK(units_told(0, 0, {.run_bytes = 64}) == told{4, 16, 16});
  CHECK(units_told(0, 0, {.run_bytes = 96}, {dtype::bf16, dtype::bf16, dtype::bf16}) ==
        told{6, 16, 16});  // as they are
  CHECK(units_told(0, 0, {.run_bytes = 24}) == told{3, 8, 8});
  CHECK(units_told(0, 0, {.run_bytes = 5}) == told{5, 1, 1});
  for (const std::int64_t odd : {1, 2, 4, 8}) {
    const told wanted{static_cast<uint32_t>(32 / odd), static_cast<uint32_t>(odd), static_cast<uint32_t>(odd)};
    CHECK(units_told(odd, 0, {.run_bytes = 32}) == wanted);
    CHECK(units_told(0, odd, {.run_bytes = 32}) == wanted);
    CHECK(units_told(0, 0, {1, {3}, {64}, {64 + odd}, 32}) == wanted);
    CHECK(units_told(0, 0, {1, {3}, {64 + odd}, {64}, 32}) == wanted);
    CHECK(units_told(0, 0, {2, {3, 2}, {640 + odd, 64}, {640, 64}, 32}) == wanted);
    CHECK(units_told(0, 0, {2, {3, 2}, {640, 64}, {640 + odd, 64}, 32}) == wanted);
  }
  CHECK(units_told(16, 32, {1, {3}, {48}, {80}, 32}) == told{2, 16, 16});
}

TEST_CASE("of elements that are converted units are of four at most, as many on either side") {
  CHECK(units_told(0, 0, {.run_bytes = 64}, widened) == told{4, 16, 8});
  CHECK(units_told(0, 0, {.run_bytes = 24}, widened) == told{3, 8, 4});
  CHECK(units_told(0, 0, {.run_bytes = 12}, widened) == told{3, 4, 2});
  CHECK(units_told(8, 0, {.run_bytes = 64}, widened) == told{8, 8, 4});
  CHECK(units_told(0, 4, {.run_bytes = 64}, widened) == told{8, 8, 4});
  CHECK(units_told(0, 2, {.run_bytes = 64}, widened) == told{16, 4, 2});
  CHECK(units_told(4, 0, {.run_bytes = 64}, widened) == told{16, 4, 2});
  CHECK(units_told(0, 8, {.run_bytes = 64}, widened) == told{4, 16, 8});  // 8 bytes are four elements there
  CHECK(units_told(0, 0, {1, {3}, {104}, {208}, 64}, widened) == told{4, 16, 8});
  CHECK(units_told(0, 0, {1, {3}, {100}, {208}, 64}, widened) == told{8, 8, 4});
  CHECK(units_told(0, 0, {1, {3}, {104}, {200}, 64}, widened) == told{8, 8, 4});
  CHECK(units_told(0, 0, {.run_bytes = 32}, narrowed) == told{4, 8, 16});
  CHECK(units_told(8, 0, {.run_bytes = 32}, narrowed) == told{4, 8, 16});
  CHECK(units_told(0, 8, {.run_bytes = 32}, narrowed) == told{8, 4, 8});
  CHECK(units_told(4, 0, {.run_bytes = 32}, narrowed) == told{8, 4, 8});
  CHECK(units_told(0, 0, {.run_bytes = 32}, rounded) == told{2, 16, 16});
  CHECK(units_told(0, 0, {.run_bytes = 32}, other) == told{4, 8, 8});
}

TEST_CASE("each of some threads copies the units whose numbers are its own modulo their number") {
  testing::dice random(71);
  for (const uint32_t unit : {16u, 8u, 4u, 2u, 1u}) {
    table_copy job{.dst = written + 32, .src = read_from + 48};
    const std::int64_t u = unit;
    const std::int64_t to[] = {90 * u, 28 * u, 5 * u}, from[] = {3 * u, 70 * u, 17 * u};
    std::copy(to, to + 3, job.dst_stride), std::copy(from, from + 3, job.src_stride);
    job.extent[0] = 3, job.extent[1] = 2, job.extent[2] = 4, job.run_units = 3;
    job.dst_unit = job.src_unit = unit;
    CAPTURE(unit);
    for (const uint32_t threads : {1u, 2u, 5u, 9u, 24u, 71u, 72u, 80u}) check_threads(job, threads, random);
  }
}

TEST_CASE("elements of one, two and four to a unit are converted one by one, from and to either width") {
  testing::dice random(72);
  for (const conversion& as : {widened, narrowed, rounded, other})
    for (const std::int64_t together : {4, 2, 1}) {
      const std::int64_t to = together * width(as.to), from = together * width(as.from);
      table_copy job{.dst = written + 16, .src = read_from + 64};
      const std::int64_t to_stride[] = {90 * to, 20 * to, 3 * to}, from_stride[] = {3 * from, 50 * from, 17 * from};
      std::copy(to_stride, to_stride + 3, job.dst_stride), std::copy(from_stride, from_stride + 3, job.src_stride);
      job.extent[0] = 2, job.extent[1] = 2, job.extent[2] = 3, job.run_units = 2;
      job.dst_unit = static_cast<uint32_t>(to), job.src_unit = static_cast<uint32_t>(from), job.as = as;
      CAPTURE(together);
      for (const uint32_t threads : {1u, 3u, 7u, 24u, 30u}) check_threads(job, threads, random);
    }
}

TEST_CASE("a copy of nothing, and one of fewer units than threads") {
  testing::dice random(73);
  table_copy job{.dst = written, .src = read_from};
  check_threads(job, 2, random);
  job.as = widened;
  check_threads(job, 2, random);
  job = table_copy_of(written, read_from, {.run_bytes = 7});
  check_threads(job, 8, random);
  job = table_copy_of(written, read_from, {.run_bytes = 12}, widened);
  check_threads(job, 4, random);
}
