// SPDX-License-Identifier: Apache-2.0
// What a device says of its small state, byte by byte; that it is read as it was said, and that nothing else is.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <reshard/job/detail/small_state_text.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using reshard::detail::directory_reader, reshard::detail::directory_writer;
using testing::refused;

namespace {

/// A number as eight bytes, the least first.
std::string number(std::int64_t n) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(static_cast<std::uint64_t>(n) >> 8 * i & 255u);
  return bytes;
}
std::string word(const std::string& w) { return number(static_cast<std::int64_t>(w.size())) + w; }

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}
/// Words of eight bytes into each other, by splitmix64.
std::uint64_t slow_hash(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 0x243F6A8885A308D3u;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    for (std::size_t i = at; i < std::min(at + 8, bytes.size()); ++i)
      word |= static_cast<std::uint64_t>(bytes[i]) << 8 * (i - at);
    std::uint64_t x = (hash ^ word) + 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    hash = x ^ x >> 31;
  }
  return hash;
}
std::string entry(const blob_id& id, std::int64_t bytes, std::uint64_t hash) {
  return word(id.name) + word(id.key) + number(bytes) + number(static_cast<std::int64_t>(hash));
}
blob_directory read(const std::string& text) { return directory_reader::directory(3, text); }

const std::string no_build = "reshard: device 3 says of small state what no device of this build of the library says";

}  // namespace

TEST_CASE("a hash is of words of eight bytes, the last one filled up with zeros") {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 70; ++i) {
    CHECK(detail::hash_of(bytes) == slow_hash(bytes));
    bytes.push_back(static_cast<std::byte>(i % 9 == 0 ? 255 : 7 * i));
  }
  for (std::size_t size = 0; size <= bytes.size(); ++size)  // of what stands behind nothing counts
    CHECK(detail::hash_of(std::span<const std::byte>(bytes).first(size)) ==
          slow_hash({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}));
}

TEST_CASE("what a device says, byte by byte, and what the others read") {
  small_state mine;
  mine.add_same("step", bytes_of("seven"));
  mine.add_per_rank("rng", "tp=1", bytes_of("0123456789"));
  mine.add_per_rank("rng", "tp=0", {});
  const std::vector<blob_id> wanted = {{"rng", "tp=2"}, {"a name", "k"}};
  const blob_entry has[] = {{{"rng", "tp=0"}, 0, slow_hash({})},
                            {{"rng", "tp=1"}, 10, slow_hash(bytes_of("0123456789"))},
                            {{"step"}, 5, slow_hash(bytes_of("seven"))}};
  std::string said = number(3);
  for (const blob_entry& e : has) said += entry(e.id, e.bytes, e.hash);
  said += number(2) + word("rng") + word("tp=2") + word("a name") + word("k");
  CHECK(directory_writer::text(mine, wanted) == said);
  const blob_directory there = read(said);
  CHECK(there.takes_part);
  CHECK(there.has == std::vector<blob_entry>(std::begin(has), std::end(has)));
  CHECK(there.wants == wanted);

  CHECK(directory_writer::text({}, {}) == number(0) + number(0));
  const blob_directory nothing = read(number(0) + number(0)), absent = read("");
  CHECK(nothing.takes_part);
  CHECK_FALSE(absent.takes_part);
  for (const blob_directory& d : {nothing, absent}) CHECK((d.has.empty() && d.wants.empty()));
  for (std::size_t size = 1; size < said.size(); ++size)
    CHECK(refused([&] { read(said.substr(0, size)); }) == no_build);
  for (const char more : {'\0', 'x'}) CHECK(refused([&] { read(said + more); }) == no_build);
}

TEST_CASE("numbers that no device says: lengths and counts below 0 or beyond what is there, blobs above 1 MiB") {
  const auto blob_of = [](std::int64_t bytes) { return number(1) + entry({"b"}, bytes, 5) + number(0); };
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, most_small_bytes - 1, most_small_bytes})
    CHECK(read(blob_of(bytes)).has == std::vector<blob_entry>{{{"b"}, bytes, 5}});
  for (const std::int64_t bytes : {std::int64_t{-1}, most_small_bytes + 1, INT64_MAX, INT64_MIN})
    CHECK(refused([&] { read(blob_of(bytes)); }) == no_build);
  for (const std::int64_t odd : {std::int64_t{-1}, std::int64_t{1}, INT64_MAX, INT64_MIN}) {
    CHECK(refused([&] { read(number(odd) + number(0)); }) == no_build);
    CHECK(refused([&] { read(number(0) + number(odd)); }) == no_build);
    CHECK(refused([&] { read(number(0) + number(1) + number(odd) + number(0)); }) == no_build);
    CHECK(refused([&] { read(number(0) + number(1) + number(0) + number(odd)); }) == no_build);
  }
  CHECK(read(number(0) + number(1) + word("") + word("")).wants == std::vector<blob_id>{{"", ""}});
}
