// SPDX-License-Identifier: Apache-2.0
// The making of offset maps: every byte of small ones by hand; where a stretch ends; and what a builder that begins
// again goes on with. (job/offset_map.cpp asks maps of random files what they say.)
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <reshard/job/build_offset_map.hpp>

#include "../io/process.hpp"
#include "../support/own_folder.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::content_of, testing::scratch;

namespace {
using map_words = std::initializer_list<std::uint64_t>;

/// The sum over words, at places i = 1, 2, .., of the i-th number that splitmix64 makes from the word.
std::uint64_t sum_of(map_words words) {
  std::uint64_t sum = 0, place = 0;
  for (const std::uint64_t word : words) {
    std::uint64_t x = word + ++place * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    sum += x ^ x >> 31;
  }
  return sum;
}
std::string little_endian(map_words words, int bytes) {
  std::string text;
  for (const std::uint64_t word : words)
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(word >> 8 * i & 255u);
  return text;
}
/// A map as it lies in its file: a head of eight words, the last a sum of the others, six bytes an end, and two more.
std::string map_bytes(map_words ends, std::uint64_t tokens, std::uint64_t source_bytes, const document_form& form) {
  const std::uint64_t magic = 0x3273636F64687372u;  // "rshdocs2"
  const std::uint64_t of_form = sum_of({static_cast<std::uint64_t>(form.width), form.delimiter}),
                      of_ends = sum_of(ends);
  const std::uint64_t of_head = sum_of({magic, ends.size(), tokens, source_bytes, source_bytes, of_form, of_ends});
  return little_endian({magic, ends.size(), tokens, source_bytes, source_bytes, of_form, of_ends, of_head}, 8) +
         little_endian(ends, 6) + std::string(2, '\0');
}

void write(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

/// A file that is longer than a stretch by five bytes, of which the last of the stretch and the next are delimiters.
struct long_lines {
  static constexpr bytes_t stretch = bytes_t{64} << 20;
  testing::own_folder room;
  std::string source = room.path + "/lines", map = room.path + "/map", part = map + ".part";
  explicit long_lines(bytes_t bytes = stretch + 5) {
    write(source, "");
    REQUIRE(::truncate(source.c_str(), bytes) == 0);
    std::fstream file(source, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(stretch - 1);
    file.write("\n\n", bytes > stretch ? 2 : 1);
  }
};
/// When a file was written, as (seconds, nanoseconds).
void set_written(const std::string& path, long seconds, long nanoseconds) {
  const timespec times[] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}
constexpr std::uint64_t stretch_words = std::uint64_t{64} << 20;
static_assert(offset_map_builder::stretch == long_lines::stretch);

/// How files are read and written meanwhile: so many bytes at most by a call, each second of which is interrupted; all
/// fail with an error that is set.
struct slow_files {
  std::size_t most = 0;  // 0: as always
  int calls = 0, error = 0;

  ssize_t call(long number, int file, void* bytes, std::size_t count, off_t at) {
    if (error != 0 || (most != 0 && ++calls % 2 == 1)) {
      errno = error != 0 ? error : EINTR;
      return -1;
    }
    return ::syscall(number, file, bytes, most == 0 ? count : std::min(count, most), at);
  }
};
slow_files reads, writes;
}  // namespace

/// These take the place of the C library's.
extern "C" ssize_t pread(int file, void* to, std::size_t count, off_t at) {
  return reads.call(SYS_pread64, file, to, count, at);
}
extern "C" ssize_t pwrite(int file, const void* from, std::size_t count, off_t at) {
  return writes.call(SYS_pwrite64, file, const_cast<void*>(from), count, at);
}

TEST_CASE("a map is a head, the ends of its documents in six bytes each, and two bytes of nothing") {
  const scratch room;
  const std::string map = (room.folder / "map").string();
  const auto built = [&](const std::string& content, const document_form& form = {}) {
    write(map + ".part", std::string(5000, 'z'));  // of nothing: it goes
    build_offset_map(room.file("source", content), map, form);
    CHECK_FALSE(testing::fs::exists(map + ".part"));
    return content_of(map);
  };
  CHECK(built("") == map_bytes({}, 0, 0, {}));
  CHECK(built("\n") == map_bytes({1}, 1, 1, {}));
  CHECK(built("ab\n\nc\n") == map_bytes({3, 4, 6}, 6, 6, {}));
  CHECK(built("ab\n\nc") == map_bytes({3, 4, 5}, 5, 5, {}));  // the last without its delimiter
  CHECK(built(std::string(70000, 'x') + "\nyz") == map_bytes({70001, 70003}, 70003, 70003, {}));
  const document_form pairs{2, 0x0A00}, eights{8, 7};  // ends count tokens; a delimiter lies in one token, not across
  CHECK(built(little_endian({1, 0x0A00, 0x000A, 0x0A00, 0x0A0A}, 2), pairs) == map_bytes({2, 4, 5}, 5, 10, pairs));
  CHECK(built(little_endian({7, 8, 7}, 8), eights) == map_bytes({1, 3}, 3, 24, eights));
}

TEST_CASE("a map is made stretch by stretch, each of which lasts, and has its name once it is whole") {
  const long_lines of;
  const auto begin = [&] {
    offset_map_builder begun(of.source, of.map);
    CHECK(begun.scanned() == 0);
    CHECK(begun.advance());
    CHECK(begun.scanned() == long_lines::stretch);
    CHECK_FALSE(testing::fs::exists(of.map));
  };
  begin();
  CHECK(offset_map_builder(of.source, of.map, {1, 'x'}).scanned() == 0);  // of another delimiter
  begin();
  const auto written = testing::fs::last_write_time(of.source);
  testing::fs::last_write_time(of.source, testing::fs::last_write_time(of.part) + std::chrono::seconds(1));
  CHECK(offset_map_builder(of.source, of.map).scanned() == 0);  // the file was written since
  testing::fs::last_write_time(of.source, written);
  begin();
  offset_map_builder again(of.source, of.map);
  CHECK(again.scanned() == long_lines::stretch);
  CHECK_FALSE(again.advance());
  CHECK_FALSE(again.advance());
  CHECK_FALSE(testing::fs::exists(of.part));
  CHECK(content_of(of.map) ==
        map_bytes({stretch_words, stretch_words + 1, stretch_words + 5}, stretch_words + 5, stretch_words + 5, {}));
}

TEST_CASE("a file of many reads and many ends: none is lost where one follows the other") {
  const testing::own_folder room;
  const std::string source = room.path + "/source", map = room.path + "/map";
  const auto check = [&](const std::vector<std::uint64_t>& tokens, const document_form& form) {
    std::string bytes;
    std::vector<index_t> ends;
    for (const std::uint64_t token : tokens) {
      bytes.append(reinterpret_cast<const char*>(&token), static_cast<std::size_t>(form.width));
      if (token == form.delimiter) ends.push_back(static_cast<index_t>(bytes.size()) / form.width);
    }
    write(source, bytes);
    build_offset_map(source, map, form);
    const offset_map built(map);
    REQUIRE(built.count() == static_cast<index_t>(ends.size()));
    index_t wrong = 0;
    for (std::size_t d = 0; d < ends.size(); ++d)
      wrong += built.tokens_of(static_cast<index_t>(d)) == interval{d > 0 ? ends[d - 1] : 0, ends[d]} ? 0 : 1;
    CHECK(wrong == 0);
  };
  for (const std::size_t width : {1u, 2u, 4u, 8u}) {
    const std::size_t read = (std::size_t{1} << 17) / width;
    std::vector<std::uint64_t> tokens(3 * read + 5, 1);
    for (std::size_t at = 0; at < tokens.size(); at += 997) tokens[at] = 2;
    for (const std::size_t at : {read - 1, read, 2 * read, 3 * read - 2, 3 * read - 1, 3 * read, 3 * read + 4})
      tokens[at] = 2;
    check(tokens, {static_cast<index_t>(width), 2});
  }
  check(std::vector<std::uint64_t>(900'000, 2), {1, 2});  // 5,400,000 bytes of ends
}

TEST_CASE("calls that are interrupted or do less than they were asked for are gone on with; others are told") {
  const testing::own_folder room;
  const std::string source = room.path + "/source", map = room.path + "/map";
  std::string bytes;
  for (int i = 0; i < 40'000; ++i) bytes += little_endian({i % 3 == 0 ? 7u : static_cast<std::uint64_t>(i + 8)}, 8);
  write(source, bytes + bytes.substr(0, 16));
  const document_form form{8, 7};
  build_offset_map(source, map, form);
  const std::string whole = content_of(map);
  CHECK(offset_map(map).count() == 13'334 + 2);  // a delimiter, and one without, behind
  for (const std::size_t most : {999u, 4096u, 131'071u}) {
    reads = writes = {.most = most};
    build_offset_map(source, map, form);
    CHECK(reads.calls >= static_cast<int>(2 * 320'016 / most));
    CHECK(writes.calls >= static_cast<int>(2 * whole.size() / most));
    reads = writes = {};
    CHECK(content_of(map) == whole);
  }
  reads.error = EIO;
  CHECK(testing::refused([&] { build_offset_map(source, map, form); }) ==
        "reshard: " + source + " cannot be read: Input/output error");
  reads = {};
  writes.error = ENOSPC;
  CHECK(testing::refused([&] { build_offset_map(source, map, form); }) ==
        "reshard: " + map + ".part cannot be written: No space left on device");
  writes = {};
  CHECK(content_of(map) == whole);
}

TEST_CASE("what was begun is gone on with only where each bit of it is as it was left") {
  const long_lines of;
  CHECK(offset_map_builder(of.source, of.map).advance());
  const std::string begun = content_of(of.part);
  REQUIRE(begun.size() == 64 + 6);
  const auto from = [&](const std::string& content) {
    write(of.part, content);
    return offset_map_builder(of.source, of.map).scanned();
  };
  CHECK(from(begun) == long_lines::stretch);
  CHECK(from(begun + "more") == long_lines::stretch);
  for (std::size_t size = 0; size < begun.size(); ++size) CHECK(from(begun.substr(0, size)) == 0);
  for (std::size_t bit = 0; bit < 8 * begun.size(); ++bit) {
    std::string bad = begun;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    CHECK(from(bad) == 0);
  }
  const auto lie = [&](const auto& change) {  // with right sums
    detail::offset_map_head head;
    std::memcpy(&head, begun.data(), sizeof head);
    change(head);
    head.head_sum = head.sum();
    return from(std::string(reinterpret_cast<const char*>(&head), sizeof head) + begun.substr(64));
  };
  CHECK(lie([](auto&) {}) == long_lines::stretch);
  CHECK(lie([](auto& head) { head.scanned = 1; }) == 1);
  CHECK(lie([](auto& head) { head.scanned = -1; }) == 0);
  CHECK(lie([](auto& head) { head.scanned = head.source_bytes - 1; }) == long_lines::stretch + 4);
  CHECK(lie([](auto& head) { head.scanned = head.source_bytes; }) == 0);
  CHECK(lie([](auto& head) { head.scanned = head.source_bytes + 1; }) == 0);
  CHECK(lie([](auto& head) { head.source_bytes += 1; }) == 0);
  CHECK(lie([](auto& head) { head.width_and_delimiter += 1; }) == 0);
  CHECK(lie([](auto& head) { head.documents = 2; }) == 0);
  CHECK(lie([](auto& head) { head.documents = head.ends_sum = 0; }) == long_lines::stretch);
  CHECK(lie([](auto& head) { head.documents = -1, head.ends_sum = 0; }) == 0);
  write(of.part, begun + std::string(5000, 'z'));  // ends that no head had counted yet: they are found again
  build_offset_map(of.source, of.map);
  CHECK(content_of(of.map) ==
        map_bytes({stretch_words, stretch_words + 1, stretch_words + 5}, stretch_words + 5, stretch_words + 5, {}));
}

TEST_CASE("what was begun is gone on with unless the file was written after it, by a nanosecond") {
  const long_lines of;
  CHECK(offset_map_builder(of.source, of.map).advance());
  const std::string begun = content_of(of.part);
  const auto from = [&](long seconds, long nanoseconds) {
    write(of.part, begun);
    set_written(of.part, 1'000'000'000, 500);
    set_written(of.source, seconds, nanoseconds);
    return offset_map_builder(of.source, of.map).scanned();
  };
  CHECK(from(1'000'000'000, 499) == long_lines::stretch);
  CHECK(from(1'000'000'000, 500) == long_lines::stretch);
  CHECK(from(1'000'000'000, 501) == 0);
  CHECK(from(1'000'000'001, 499) == 0);
  CHECK(from(999'999'999, 501) == long_lines::stretch);
}

TEST_CASE("an offset map takes 2^48 - 1 tokens, of any width") {
  const testing::own_folder room;
  const std::string source = room.path + "/sparse", map = room.path + "/map";
  write(source, "");
  for (const index_t width : {1, 2, 4, 8}) {
    if (::truncate(source.c_str(), width << 48) != 0) return;  // not every file system has so large files
    CHECK(testing::refused([&] {
            const offset_map_builder none(source, map, {width, 0});
          }) == "reshard: " + source + " has 281474976710656 tokens; an offset map takes 281474976710655");
    CHECK_FALSE(testing::fs::exists(map + ".part"));
    REQUIRE(::truncate(source.c_str(), (width << 48) - width) == 0);
    CHECK(testing::refused([&] { const offset_map_builder begun(source, map, {width, 0}); }) == "accepted");
    CHECK(testing::fs::remove(map + ".part"));
  }
}

TEST_CASE("of a file that is a stretch long the first advance is the last") {
  const long_lines of(long_lines::stretch);
  offset_map_builder builder(of.source, of.map);
  CHECK_FALSE(builder.advance());
  CHECK(content_of(of.map) == map_bytes({stretch_words}, stretch_words, stretch_words, {}));
}

TEST_CASE("what has no map is refused, and stays as it is") {
  const scratch room;
  const std::string three = room.file("three", "abc"), map = (room.folder / "map").string();
  CHECK(testing::refused([&] {
          build_offset_map(three, map, {2, 0});
        }) == "reshard: " + three + " has 3 bytes, which are no whole number of tokens of 2");
  CHECK(testing::refused([&] { build_offset_map(three, three); }) ==
        "reshard: " + three + " is " + three +
            " itself, which the map would take the place of; name the map otherwise");
  CHECK_FALSE(testing::fs::exists(map + ".part"));
  CHECK(content_of(three) == "abc");
}
