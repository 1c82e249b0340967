// SPDX-License-Identifier: Apache-2.0
//
// Is the judge of memory right? Every way in which memory can be wrong is made, and seen to be noticed and counted.
#include <doctest/doctest.h>

#include "memory_judge.hpp"

#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace {

using namespace oracle;

constexpr std::byte canary{0xa5};

// Parts 1 to 2, rows 2 to 4, columns 3 to 7 of a tensor of 4 x 6 x 8, with gaps behind every row and every part.
struct case_in_memory {
  std::vector<std::byte> bytes;
  memory_box box;
  explicit case_in_memory(long width, std::array<long, 4> identity = {1, 2, 3, 4})
      : bytes(static_cast<std::size_t>(64 * width), canary),
        box{bytes.data() + 2 * width, {1, 2, 3}, {3, 5, 8}, {25, 7, 1}, width, {4, 6, 8}, identity} {
    write_known(box);
  }
  std::byte* at(long part, long row, long column) {
    return box.data + ((part - 1) * 25 + (row - 2) * 7 + (column - 3)) * box.width;
  }
  verdict judged() const {
    verdict found;
    judge(box, found);
    return found;
  }
};

constexpr long widths[] = {1, 2, 4, 8};

}  // namespace

TEST_CASE("what was written is right, and counted") {
  for (long width : widths) {
    const case_in_memory c(width);
    CHECK(c.judged().compared == 2 * 3 * 5);
    CHECK(c.judged().wrong == 0);
    CHECK(c.judged().first.empty());
  }
}

TEST_CASE("one bit of any byte of any element is noticed") {
  for (long width : widths) {
    case_in_memory c(width);
    for (long part = 1; part < 3; ++part)
      for (long row = 2; row < 5; ++row)
        for (long column = 3; column < 8; ++column)
          for (long byte = 0; byte < width; ++byte) {
            std::byte& there = c.at(part, row, column)[byte];
            there ^= std::byte{1};
            CHECK(c.judged().wrong == 1);
            there ^= std::byte{1};
          }
    CHECK(c.judged().wrong == 0);
  }
}

TEST_CASE("two wrong elements count two, and the first is named") {
  case_in_memory c(4);
  *c.at(2, 3, 4) ^= std::byte{255};
  *c.at(1, 4, 7) ^= std::byte{255};
  const verdict found = c.judged();
  CHECK(found.wrong == 2);
  CHECK(found.first.find("state 1, family 2, member 3, expert 4: element (1, 4, 7) is ") == 0);
}

TEST_CASE("verdicts of several boxes add up") {
  case_in_memory a(2), b(2);
  *a.at(1, 2, 3) ^= std::byte{1};
  *b.at(1, 2, 4) ^= std::byte{1};
  *b.at(1, 2, 5) ^= std::byte{1};
  verdict found;
  judge(a.box, found);
  judge(b.box, found);
  CHECK(found.compared == 60);
  CHECK(found.wrong == 3);
  CHECK(found.first.find("element (1, 2, 3)") != found.first.npos);
}

TEST_CASE("swapped rows and swapped neighbours are noticed") {
  for (long width : widths) {
    case_in_memory c(width);
    for (long i = 0; i < 5 * width; ++i) std::swap(c.at(1, 2, 3)[i], c.at(1, 3, 3)[i]);
    CHECK(c.judged().wrong >= 8);  // of one byte now and then two are the same
    case_in_memory d(width);
    for (long i = 0; i < width; ++i) std::swap(d.at(2, 4, 6)[i], d.at(2, 4, 7)[i]);
    CHECK(d.judged().wrong == 2);
  }
}

TEST_CASE("a box that is shifted by one in any dimension is noticed") {
  for (long width : widths)
    for (std::size_t dim = 0; dim < 3; ++dim) {
      case_in_memory c(width);
      --c.box.begin[dim];
      --c.box.end[dim];
      CHECK(c.judged().wrong >= 26);
    }
}

TEST_CASE("another state, family, member or expert is noticed") {
  for (long width : widths)
    for (std::size_t which = 0; which < 4; ++which)
      for (long by : {-1L, 1L}) {
        case_in_memory c(width);
        c.box.identity[which] += by;
        CHECK(c.judged().wrong >= 26);
      }
  case_in_memory swapped(2, {0, 1, 2, 3});
  swapped.box.identity = {1, 0, 2, 3};
  CHECK(swapped.judged().wrong >= 29);
}

TEST_CASE("other extents of the whole tensor are noticed, but for the number of parts") {
  for (std::size_t dim = 1; dim < 3; ++dim) {
    case_in_memory c(2);
    ++c.box.whole[dim];
    CHECK(c.judged().wrong >= 14);
  }
  case_in_memory c(2);
  ++c.box.whole[0];
  CHECK(c.judged().wrong == 0);
}

TEST_CASE("the bytes between strides are neither written nor read") {
  for (long width : widths) {
    case_in_memory c(width);
    std::set<const std::byte*> mine;
    for (long part = 1; part < 3; ++part)
      for (long row = 2; row < 5; ++row)
        for (long column = 3; column < 8; ++column)
          for (long byte = 0; byte < width; ++byte) mine.insert(c.at(part, row, column) + byte);
    CHECK(mine.size() == static_cast<std::size_t>(30 * width));
    bool written = false;
    for (std::byte& b : c.bytes)
      if (mine.count(&b) == 0) {
        written = written || b != canary;
        b = std::byte{0x11};
      }
    CHECK_FALSE(written);
    CHECK(c.judged().wrong == 0);
  }
}

TEST_CASE("memory that nobody wrote is wrong in every element") {
  for (long width : widths) {
    std::vector<std::byte> zeros(static_cast<std::size_t>(1000 * width));
    verdict found;
    judge({zeros.data(), {0, 0, 0}, {10, 10, 10}, {100, 10, 1}, width, {10, 10, 10}, {0, 0, 0, 0}}, found);
    CHECK(found.wrong == 1000);
  }
}

TEST_CASE("one box written in pieces at other places is one tensor") {
  const std::array<long, 3> whole{2, 4, 6};
  std::vector<std::byte> one(2 * 48), left(2 * 24), right(2 * 24);
  write_known({one.data(), {0, 0, 0}, whole, {24, 6, 1}, 2, whole, {3, 0, 0, 0}});
  write_known({left.data(), {0, 0, 0}, {2, 4, 3}, {12, 3, 1}, 2, whole, {3, 0, 0, 0}});
  write_known({right.data(), {0, 0, 3}, {2, 4, 6}, {12, 3, 1}, 2, whole, {3, 0, 0, 0}});
  for (std::size_t row = 0; row < 8; ++row) {
    CHECK(std::memcmp(&one[12 * row], &left[6 * row], 6) == 0);
    CHECK(std::memcmp(&one[12 * row + 6], &right[6 * row], 6) == 0);
  }
}

TEST_CASE("a box without elements is neither written nor judged") {
  verdict found;
  const memory_box none{nullptr, {0, 2, 0}, {3, 2, 5}, {10, 5, 1}, 4, {3, 4, 5}, {0, 0, 0, 0}};
  write_known(none);
  judge(none, found);
  CHECK(found.compared == 0);
}
