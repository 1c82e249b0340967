// SPDX-License-Identifier: Apache-2.0
// The making of offset maps: every byte of small ones by hand; where a stretch ends; and what a builder that begins
// again goes on with. (job/offset_map.cpp asks maps of random files what they say.)
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>

#include <unistd.h>

#include <reshard/job/build_offset_map.hpp>

#include "../io/process.hpp"
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

/// A file that is longer than a stretch by five bytes, of which the last of the stretch and the next are delimiters.
struct long_lines {
  static constexpr bytes_t stretch = bytes_t{64} << 20;
  scratch room;
  std::string source = room.file("lines", ""), map = (room.folder / "map").string(), part = map + ".part";
  explicit long_lines(bytes_t bytes = stretch + 5) {
    REQUIRE(::truncate(source.c_str(), bytes) == 0);
    std::fstream file(source, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(stretch - 1);
    file.write("\n\n", bytes > stretch ? 2 : 1);
  }
};
constexpr std::uint64_t stretch_words = std::uint64_t{64} << 20;
static_assert(offset_map_builder::stretch == long_lines::stretch);
}  // namespace

TEST_CASE("a map is a head, the ends of its documents in six bytes each, and two bytes of nothing") {
  const scratch room;
  const std::string map = (room.folder / "map").string();
  const auto built = [&](const std::string& content, const document_form& form = {}) {
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
