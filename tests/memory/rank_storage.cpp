// SPDX-License-Identifier: Apache-2.0
// A rank's state in pages of its own: as many as its arrays need, page by page and by hand; when the kernel has them;
// and that they stay where they are when the storage moves.
#include <doctest/doctest.h>

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/rank_storage.hpp>

#include <reshard/space/listed_holding.hpp>

using namespace reshard;

namespace {
constexpr bytes_t page = 4096;
const state_list two_states = parse_state_list("param:bf16:3,mean:fp32:1");

/// Rank 0: 6000 and 4096 bytes of param, 12000 and 8192 of mean, so 2 + 1 + 3 + 2 pages. Rank 1: an element of each.
/// Rank 2: nothing.
shard_list odd_arrays() {
  std::vector<shard> list;
  for (const char* name : {"param", "mean"}) {
    const dtype type = name == std::string("param") ? bf16 : fp32;
    list.push_back({0, "a", type, {3, 1000}, {0, 0}, {3, 1000}, name});
    list.push_back({0, "b", type, {2049}, {0}, {2048}, name});
    list.push_back({1, "b", type, {2049}, {2048}, {1}, name});
  }
  return {std::move(list), 3};
}
const shard_list odd_list = odd_arrays();

rank_storage stored_odd(rank_t rank, pages_are at_first = pages_are::reserved,
                        const std::optional<state_set>& wanted = {}) {
  return {odd_list, rank, "rank " + std::to_string(rank), at_first, wanted, two_states};
}
/// The block of an array, in the order above.
const memory_block& block_of(const rank_storage& s, std::size_t array) {
  const std::byte* const at = s.tensors().boxes()[array].data;
  for (const memory_block& block : s.tensors().blocks())
    if (block.begin == at) return block;
  FAIL("no block begins where array ", array, " does");
  return s.tensors().blocks()[0];
}
static_assert(std::movable<rank_storage>);
}  // namespace

TEST_CASE("a range of whole pages for each array, reserved or committed, and no more") {
  const rank_storage reserved = stored_odd(0), committed = stored_odd(0, pages_are::committed), one = stored_odd(1);
  CHECK(reserved.reserved_bytes() == 8 * page);
  CHECK(reserved.resident_bytes() == 0);
  CHECK(committed.reserved_bytes() == 8 * page);
  CHECK(committed.resident_bytes() == 8 * page);
  CHECK(one.reserved_bytes() == 2 * page);
  REQUIRE(reserved.tensors().blocks().size() == 4);
  const std::int64_t granules[] = {2, 1, 3, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(block_of(reserved, i).granules == granules[i]);
    CHECK(block_of(reserved, i).at_first == pages_are::reserved);
    CHECK(block_of(committed, i).at_first == pages_are::committed);
  }
}

TEST_CASE("what is reserved is committed piece by piece as long as somebody wants it") {
  rank_storage one = stored_odd(0);
  int asked = 0;
  CHECK_FALSE(one.commit_while([&] { return ++asked <= 2; }));
  CHECK(asked == 3);
  CHECK(one.resident_bytes() == 3 * page);  // the first array has two pages, the second one
  CHECK(one.commit_while([] { return true; }));
  CHECK(one.resident_bytes() == 8 * page);
}

TEST_CASE("a large array is committed 16 MiB at a time, and nobody is asked once all of it is there") {
  constexpr bytes_t piece = bytes_t{16} << 20;
  const shard_list list({{0, "large", bf16, {2 * piece / 2}, {0}, {2 * piece / 2}}});
  rank_storage large(list, 0, "rank 0");
  REQUIRE(large.reserved_bytes() == 2 * piece);
  std::vector<bytes_t> there;
  CHECK(large.commit_while([&] { return there.push_back(large.resident_bytes()), there.size() < 9; }));
  CHECK(there == std::vector<bytes_t>{0, piece});
  CHECK(large.resident_bytes() == 2 * piece);
}

TEST_CASE("arrays have their names and bytes, state by state") {
  const rank_storage s = stored_odd(0);
  const std::vector<bound_box>& boxes = s.tensors().boxes();
  std::vector<std::string> names;
  std::vector<bytes_t> bytes;
  for (const bound_box& b : boxes) names.push_back(s.tensors().name(b)), bytes.push_back(b.bytes());
  CHECK(names == std::vector<std::string>{"param of a", "param of b", "mean of a", "mean of b"});
  CHECK(bytes == std::vector<bytes_t>{6000, 4096, 12000, 8192});
  CHECK(s.tensors().who() == "rank 0");
}

TEST_CASE("a page comes with the first byte that is written to it, and goes when its block gives it back") {
  rank_storage s = stored_odd(0);
  const memory_block& third = block_of(s, 2);
  third.begin[page] = std::byte{1};
  CHECK(s.resident_bytes() == page);
  third.commit({1, 3});
  CHECK(s.resident_bytes() == 2 * page);
  CHECK(third.begin[page] == std::byte{1});
  third.release({1, 2});
  CHECK(s.resident_bytes() == page);
  third.open_again();
}

TEST_CASE("of the wanted states alone there is storage; a device without a rank, and a rank without arrays, has none") {
  CHECK(stored_odd(0, pages_are::committed, two_states.all().of(role::parameter)).reserved_bytes() == 3 * page);
  CHECK(stored_odd(0, pages_are::reserved, two_states.all().of(role::optimizer)).reserved_bytes() == 5 * page);
  const rank_storage nobody, idle("an idle device"), nothing = stored_odd(2, pages_are::committed);
  CHECK(nobody.tensors().who() == "no rank");
  CHECK(idle.tensors().who() == "an idle device");
  for (const rank_storage* none : {&nobody, &idle, &nothing}) {
    CHECK((none->reserved_bytes() == 0 && none->resident_bytes() == 0));
    CHECK((none->tensors().boxes().empty() && none->tensors().blocks().empty()));
  }
}

TEST_CASE("when a storage moves, its arrays stay where they are, and its blocks still take and give back pages") {
  rank_storage first = stored_odd(0);
  std::byte* const at = block_of(first, 0).begin;
  at[5999] = std::byte{7};
  rank_storage second = std::move(first), third("no rank");
  third = std::move(second);
  CHECK(block_of(third, 0).begin == at);
  CHECK(at[5999] == std::byte{7});
  CHECK(third.resident_bytes() == page);
  block_of(third, 3).commit({0, 2});
  CHECK(third.resident_bytes() == 3 * page);
}
