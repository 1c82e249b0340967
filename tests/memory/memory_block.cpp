// SPDX-License-Identifier: Apache-2.0
// Blocks of granules: whose calls take them and give them back, and which bytes those are; in a debug build, that
// nobody reads what was given back.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdint>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <reshard/memory/memory_block.hpp>
#include <reshard/memory/pages.hpp>

using namespace reshard;

namespace {
using calls = std::vector<std::pair<std::byte*, bytes_t>>;

memory_block::call noted(calls& list) {
  return [&list](std::byte* at, bytes_t bytes) { list.emplace_back(at, bytes); };
}
}  // namespace

TEST_CASE("pages of a range are committed and given back by the range") {
  page_range range(6 * page_bytes);
  const memory_block block = range.block();
  CHECK(block.begin == range.data());
  CHECK(block.end() == range.data() + range.bytes());
  CHECK(block.come == granules_come::when_written);
  block.commit({1, 4});
  CHECK(range.resident_bytes() == 3 * page_bytes);
  range.data()[page_bytes] = range.data()[2 * page_bytes] = std::byte{5};
  block.release({2, 3});
  CHECK(range.resident_bytes() == 2 * page_bytes);
  CHECK(range.data()[page_bytes] == std::byte{5});
  block.release({0, 6});
  CHECK(range.resident_bytes() == 0);
  block.commit({2, 3});  // it may be used again
  CHECK(range.data()[2 * page_bytes] == std::byte{0});
  range.data()[2 * page_bytes] = std::byte{6};
  CHECK(range.resident_bytes() == page_bytes);
}

namespace {
/// What a process of its own reads at an address; -1 where it is stopped there.
int read_apart(const std::byte* at) {
  const pid_t reader = ::fork();
  REQUIRE(reader >= 0);
  if (reader == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would tell of it
    ::_exit(static_cast<int>(*static_cast<const volatile std::byte*>(at)));
  }
  int status = 0;
  REQUIRE(::waitpid(reader, &status, 0) == reader);
  return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) == SIGSEGV ? -1 : -2;
}
}  // namespace

TEST_CASE("what a block gave back is unreadable in a debug build and zero in others, until it is opened or taken") {
#if !defined(NDEBUG) && !defined(__OPTIMIZE__)
  constexpr int given_back = -1;
#else
  constexpr int given_back = 0;
#endif
  page_range range(4 * page_bytes);
  const memory_block block = range.block();
  block.commit({0, 4});
  for (bytes_t page = 0; page < 4; ++page) range.data()[page * page_bytes + 7] = std::byte{5};
  block.release({1, 3});
  const auto reads = [&](bytes_t page) { return read_apart(range.data() + page * page_bytes + 7); };
  CHECK(reads(0) == 5);
  CHECK(reads(1) == given_back);
  CHECK(reads(2) == given_back);
  CHECK(reads(3) == 5);
  block.commit({1, 2});
  CHECK(reads(1) == 0);
  CHECK(reads(2) == given_back);
  block.open_again();
  CHECK(reads(2) == 0);
  CHECK(reads(3) == 5);
  CHECK(range.resident_bytes() == 3 * page_bytes);  // what is opened is not there yet
}

TEST_CASE("pages that are committed beforehand are not committed again") {
  page_range range(2 * page_bytes);
  const memory_block block = range.block(pages_are::committed);
  block.commit({0, 2});
  CHECK(range.resident_bytes() == 0);
}

TEST_CASE("memory of an owner's is taken and given back by its calls, by the byte, and committed by nobody else") {
  page_range range(8 * page_bytes);
  calls given, taken;
  memory_block block{.begin = range.data() + page_bytes, .granules = 5, .give_back = noted(given)};
  CHECK(block.end() == range.data() + 6 * page_bytes);
  block.commit({0, 5});
  CHECK(range.resident_bytes() == 0);
  CHECK(given.empty());
  block.release({2, 5});
  CHECK(given == calls{{range.data() + 3 * page_bytes, 3 * page_bytes}});
  block.take = noted(taken);
  block.commit({1, 3});
  CHECK(taken == calls{{range.data() + 2 * page_bytes, 2 * page_bytes}});
}

TEST_CASE("granules of a device are of its own size") {
  constexpr bytes_t granule = bytes_t{2} << 20;
  std::byte* const at = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // never touched
  calls given, taken;
  const memory_block block{
      .begin = at, .granules = 7, .granule = granule, .take = noted(taken), .give_back = noted(given)};
  CHECK(block.end() == at + 7 * granule);
  block.commit({1, 2});
  block.release({3, 6});
  CHECK(taken == calls{{at + granule, granule}});
  CHECK(given == calls{{at + 3 * granule, 3 * granule}});
}

TEST_CASE("what memory is called in sentences") {
  CHECK(memory_place{}.text() == "host memory");
  CHECK(memory_place{memory_place::kind::pinned}.text() == "pinned host memory");
  CHECK(memory_place{memory_place::kind::device, 3}.text() == "device memory of device 3");
}

TEST_CASE("memory knows the width of its elements where they have one, and may be said to hold another type") {
  std::vector<float> floats(6);
  std::vector<char> letters(6);
  const memory of_floats(floats), of_letters(letters), wide = of_letters.as(fp32);
  CHECK(of_floats.data == reinterpret_cast<std::byte*>(floats.data()));
  CHECK(of_floats.bytes == 24);
  CHECK(of_floats.element_bytes == 4);
  CHECK(of_letters.bytes == 6);
  CHECK(of_letters.element_bytes == 0);
  CHECK_FALSE(of_letters.holds);
  CHECK(wide.holds == fp32);
  CHECK(wide.data == of_letters.data);
  CHECK(wide.bytes == 6);
  CHECK(wide.element_bytes == 0);
}
