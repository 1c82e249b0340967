// SPDX-License-Identifier: Apache-2.0
// Rows of runs, copied through the caches and past them: every function against a copy of one byte at a time, with all
// that lies around the destination compared, and which rows are streamed by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reshard/copy/detail/copy_row.hpp>
#include <reshard/copy/detail/streaming_row.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using detail::copy_row, detail::line_bytes;
using testing::dice;

namespace {

/// Two stretches of memory from multiples of 64 on, each with a margin on both sides, and what the destination is to
/// be.
class sheets {
 public:
  explicit sheets(dice& random, std::int64_t bytes)
      : size_(bytes + 2 * margin), from_(room()), to_(room()), wanted_(room()) {
    for (std::int64_t i = 0; i < size_; ++i) {
      at(from_, i) = static_cast<std::byte>(random.bits() >> 7);
      at(to_, i) = at(wanted_, i) = static_cast<std::byte>(random.bits() >> 7);
    }
  }
  std::byte* to(std::int64_t at_byte) { return &at(to_, margin + at_byte); }
  const std::byte* from(std::int64_t at_byte) { return &at(from_, margin + at_byte); }
  /// These bytes are to be copied.
  void want(std::int64_t to_byte, std::int64_t from_byte, std::int64_t n) {
    for (std::int64_t b = 0; b < n; ++b) at(wanted_, margin + to_byte + b) = at(from_, margin + from_byte + b);
  }
  void want(std::int64_t to_byte, std::int64_t from_byte, const copy_row& row) {
    for (std::int64_t i = 0; i < row.count; ++i)
      want(to_byte + i * row.dst_stride, from_byte + i * row.src_stride, row.run_bytes);
  }
  bool as_wanted() { return std::equal(&at(to_, 0), &at(to_, 0) + size_, &at(wanted_, 0)); }

 private:
  static constexpr std::int64_t margin = 192;
  std::vector<std::byte> room() const { return std::vector<std::byte>(static_cast<std::size_t>(size_) + 64); }
  static std::byte& at(std::vector<std::byte>& all, std::int64_t i) {
    const auto apart = (64 - reinterpret_cast<std::uintptr_t>(all.data()) % 64) % 64;
    return all[apart + static_cast<std::size_t>(i)];
  }
  std::int64_t size_;
  std::vector<std::byte> from_, to_, wanted_;
};

/// A row with runs that lie apart by up to `gap` units more than their length; on either side perhaps from last to
/// first. Offsets are where the first run begins.
struct any_row {
  copy_row row;
  std::int64_t to = 0, from = 0, bytes = 0;

  any_row(dice& random, std::int64_t count, std::int64_t run, std::int64_t unit, std::int64_t gap) {
    row = {count, run + random.below(gap + 1), run + unit * random.below(gap + 1), run};
    bytes = std::max(row.src_stride, row.dst_stride) * count + run + 128;
    const std::int64_t last = std::max<std::int64_t>(count - 1, 0);
    if (random.below(4) == 0) to = row.dst_stride * last, row.dst_stride = -row.dst_stride;
    if (random.below(4) == 0) from = row.src_stride * last, row.src_stride = -row.src_stride;
    if (random.below(8) == 0) from = 0, row.src_stride = 0;
    to += unit * random.below(unit == 1 ? 64 : 4), from += random.below(64);
  }
  void check(dice& random, detail::row_copier copier) const {
    sheets all(random, bytes);
    all.want(to, from, row);
    copier(all.to(to), all.from(from), row);
    CAPTURE(row.count);
    CAPTURE(row.run_bytes);
    CAPTURE(row.dst_stride);
    CAPTURE(row.src_stride);
    CHECK(all.as_wanted());
  }
};

}  // namespace

TEST_CASE("rows by the reference, and runs of every length by the copier that is chosen for them") {
  dice random(31);
  for (std::int64_t run = 1; run <= 140; ++run) {
    const any_row one(random, random.within(0, 9), run, 1, 5);
    one.check(random, detail::copy_row_reference);
    one.check(random, detail::choose_cached(run));
  }
  for (const std::int64_t run : {1000, 4095, 4096, 4097, 9000}) {
    const any_row one(random, random.within(1, 9), run, 1, 5);
    one.check(random, detail::copy_row_reference);
    one.check(random, detail::copy_row_long);
  }
  any_row(random, 3000, 3, 1, 2).check(random, detail::choose_cached(3));
  any_row(random, 200, 100, 1, 2).check(random, detail::choose_cached(100));
}

TEST_CASE("runs of up to 64 bytes are copied as their halves, of the least size that does; longer ones by memcpy") {
  const auto chosen = [](std::int64_t run, detail::row_copier copier) { return detail::choose_cached(run) == copier; };
  for (const std::int64_t run : {1, 2}) CHECK(chosen(run, detail::copy_row_short<1>));
  for (const std::int64_t run : {3, 4}) CHECK(chosen(run, detail::copy_row_short<2>));
  for (const std::int64_t run : {5, 8}) CHECK(chosen(run, detail::copy_row_short<4>));
  for (const std::int64_t run : {9, 16}) CHECK(chosen(run, detail::copy_row_short<8>));
  for (const std::int64_t run : {17, 32}) CHECK(chosen(run, detail::copy_row_short<16>));
  for (const std::int64_t run : {33, 64}) CHECK(chosen(run, detail::copy_row_short<32>));
  for (const std::int64_t run : {65, 128, 5000}) CHECK(chosen(run, detail::copy_row_long));
}

TEST_CASE("streaming pays for whole lines, for runs that follow one another, and for long runs") {
  const auto fills = [](std::uintptr_t dst, std::int64_t run, std::vector<std::int64_t> strides) {
    copy_shape shape{.ndim = static_cast<int>(strides.size()), .run_bytes = run};
    for (std::size_t d = 0; d < strides.size(); ++d) shape.extent[d] = 3, shape.dst_stride[d] = strides[d];
    shape.dst_stride[strides.size()] = 5;  // of no dimension
    return detail::fills_lines(dst, shape);
  };
  CHECK(!fills(0, 63, {63}));
  CHECK(!fills(0, 48, {48}));  // shorter than a line
  CHECK(fills(0, 64, {}));
  CHECK(fills(0, 64, {128}));
  CHECK(!fills(16, 64, {128}));
  CHECK(!fills(0, 64, {80}));
  CHECK(!fills(0, 80, {128}));
  CHECK(!fills(0, 80, {}));
  CHECK(fills(0, 80, {80}));  // one after the other
  CHECK(fills(16, 80, {80}));
  CHECK(!fills(8, 80, {80}));
  CHECK(!fills(0, 72, {72}));
  CHECK(fills(0, 80, {160, 80}));
  CHECK(!fills(0, 80, {80, 160}));  // the innermost ones do not
  CHECK(!fills(0, 80, {168, 80}));
  CHECK(!fills(0, 128, {72, 256}));
  CHECK(!fills(3, 2047, {5}));
  CHECK(fills(3, 2048, {5}));  // so long that their ends do not matter
  CHECK(fills(3, 9000, {}));
}

#if defined(__SSE2__)

TEST_CASE("a line, and any multiples of 16 bytes, are streamed from any place") {
  dice random(32);
  for (const std::int64_t from : {0, 1, 17}) {
    sheets line(random, 128);
    line.want(16, from, 64);
    detail::stream_line(line.to(16), line.from(from));
    CHECK(line.as_wanted());
    for (std::int64_t n = 0; n <= 320; n += 16) {
      sheets all(random, 512);
      all.want(48, from, n);
      detail::stream(all.to(48), all.from(from), n);
      CAPTURE(n);
      CHECK(all.as_wanted());
    }
  }
}

TEST_CASE("four stretches side by side, each in turn, and what is left of a line") {
  dice random(33);
  for (std::int64_t n = 0; n <= 320; n += 16)
    for (const std::int64_t apart : {320, 336, 1024}) {
      sheets all(random, 4 * 1024 + 512);
      for (std::int64_t i = 0; i < 4; ++i) all.want(16 + i * apart, 5 + i * (apart + 7), n);
      detail::stream_beside(all.to(16), all.from(5), apart, apart + 7, n);
      CAPTURE(n);
      CHECK(all.as_wanted());
    }
}

TEST_CASE("the bytes before a multiple of 16 are 0 to 15, and no more than there are") {
  dice random(34);
  sheets all(random, 64);
  for (std::int64_t at = 0; at < 16; ++at) {
    CHECK(detail::bytes_to_alignment(all.to(at), 100) == (at == 0 ? 0 : 16 - at));
    CHECK(detail::bytes_to_alignment(all.to(at), 3) == (at == 0 ? 0 : at < 13 ? 3 : 16 - at));
    CHECK(detail::bytes_to_alignment(all.to(at), 0) == 0);
  }
}

TEST_CASE("one run of any length and place: its pages by fours, then the rest") {
  dice random(35);
  for (const std::int64_t n : {0, 1, 15, 16, 17, 63, 64, 100, 4096, 16383, 16384, 16385, 16399, 16400, 32768, 40001})
    for (const std::int64_t to : {0, 1, 15, 16, 37}) {
      sheets all(random, n + 128);
      const std::int64_t from = random.below(64);
      all.want(to, from, n);
      detail::stream_run(all.to(to), all.from(from), n);
      CAPTURE(n);
      CAPTURE(to);
      CHECK(all.as_wanted());
    }
}

TEST_CASE("four runs side by side with their ends, wherever they begin") {
  dice random(36);
  for (const std::int64_t n : {0, 1, 16, 20, 64, 79, 80, 81, 127, 200, 1024})
    for (const std::int64_t to : {0, 1, 15, 16}) {
      sheets all(random, 4 * 1040 + 512);
      for (std::int64_t i = 0; i < 4; ++i) all.want(to + i * 1040, 3 + i * 1031, n);
      detail::stream_runs_beside(all.to(to), all.from(3), 1040, 1031, n);
      CAPTURE(n);
      CAPTURE(to);
      CHECK(all.as_wanted());
    }
}

TEST_CASE("whole rows past the caches: short runs in units of 16 bytes, and long ones of any length and place") {
  dice random(37);
  for (int n = 0; n < 120; ++n) {
    any_row(random, random.within(0, 40), 16 * random.within(4, 63), 16, 3).check(random, detail::copy_row_streaming);
    if (n % 4 == 0) any_row(random, random.within(200, 600), 64, 16, 0).check(random, detail::copy_row_streaming);
    if (n % 4 == 1)
      any_row(random, random.within(1, 20), 16 * random.within(64, 127), 16, 9)
          .check(random, detail::copy_row_streaming);
    if (n % 4 == 2)
      any_row(random, random.within(1, 13), random.within(2048, 9000), 1, 40).check(random, detail::copy_row_streaming);
    if (n % 4 == 3) {  // four side by side, wherever they begin
      any_row one(random, random.within(4, 13), 16 * random.within(128, 300), 16, 9);
      const std::int64_t apart = random.below(16);
      one.to += apart, one.row.run_bytes -= random.below(16);
      one.check(random, detail::copy_row_streaming);
    }
  }
  for (const std::int64_t run : {16 * 1024, 20'000})
    any_row(random, 5, run, 1, 9).check(random, detail::copy_row_streaming);
  any_row lines(random, 9, 1024, 16,
                0);  // the shortest whose lines take turns, but for places that are multiples of 16
  lines.row.dst_stride = 1032, lines.to = 3, lines.bytes = 9 * 1032 + 1024;
  lines.check(random, detail::copy_row_streaming);
}

TEST_CASE("one run is copied whatever the strides that it would step by") {
  dice random(38);
  constexpr std::int64_t far = std::int64_t{1} << 40;
  for (const std::int64_t run : {80, 1024, 5000})
    for (const detail::row_copier copier : {&detail::copy_row_streaming, detail::choose_cached(run)}) {
      sheets all(random, run);
      all.want(0, 0, run);
      copier(all.to(0), all.from(0), {1, -far, far, run});
      CHECK(all.as_wanted());
    }
}

#endif
