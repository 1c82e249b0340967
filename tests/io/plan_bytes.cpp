// SPDX-License-Identifier: Apache-2.0
// Plans as bytes: any two sides, read back equal; and what was changed, cut short or is of another switch is refused.
#include <doctest/doctest.h>

#include <span>
#include <string_view>
#include <vector>

#include <reshard/io/plan_bytes.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/some_switches.hpp"

using namespace reshard;

using namespace reshard::io;
using testing::dice, testing::refused;

namespace {
std::uint64_t fnv(std::span<const std::byte> bytes) {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  return hash;
}
/// The bytes with their closing hash made right again: a fault that the hash does not find.
std::vector<std::byte> closed(std::vector<std::byte> bytes) {
  const std::uint64_t hash = fnv(std::span(bytes).first(bytes.size() - 8));
  for (std::size_t i = 0; i < 8; ++i) bytes[bytes.size() - 8 + i] = static_cast<std::byte>(hash >> (8 * i));
  return bytes;
}
/// Of the list's names, types and levels, then of the families' names and extents; numbers and lengths in eight bytes.
std::uint64_t of_states_and_families(const auto& change) {
  std::vector<std::byte> all;
  const auto number = [&](auto n) {
    for (int i = 0; i < 8; ++i) all.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(n) >> (8 * i)));
  };
  const auto text = [&](std::string_view t) {
    number(t.size());
    for (const char c : t) all.push_back(static_cast<std::byte>(c));
  };
  for (int s = 0; s < change.list().size(); ++s) {
    text(change.list()[s].name), text(name(change.list()[s].type));
    number(change.list()[s].level);
  }
  for (int f = 0; f < change.to().families(); ++f) {
    text(change.to().family_at(f).name);
    for (const interval& side : change.to().family_at(f).whole().dim) number(side.end);
  }
  return fnv(all);
}
}  // namespace

TEST_CASE("plans of any two sides are read back equal, and their length is what the format says") {
  std::size_t transfers = 0;
  testing::some_switches([&](const auto& change) {
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device);
      const std::vector<std::byte> bytes = to_bytes(p, change);
      const std::size_t listed =
          p.sends.size() + p.receives.size() + p.retains.size() + p.creates.size() + p.lost.size();
      CHECK(bytes.size() == 8 * (9 + 17 * listed + 1));
      CHECK(closed(bytes) == bytes);
      CHECK(plan_from_bytes(bytes, change) == p);
      transfers += listed;
    }
  });
  CHECK(transfers > 100);
}

TEST_CASE("bytes are the words that the format says, the least significant byte first, each list behind the other") {
  std::size_t listed = 0;
  testing::some_switches([&](const auto& change) {
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device);
      const std::vector<std::byte> bytes = to_bytes(p, change);
      std::vector<std::uint64_t> words(bytes.size() / 8), wanted{0, 4, of_states_and_families(change)};
      for (std::size_t i = 0; i < bytes.size(); ++i)
        words[i / 8] += static_cast<std::uint64_t>(bytes[i]) << (8 * (i % 8));
      const auto put = [&](auto number) { wanted.push_back(static_cast<std::uint64_t>(number)); };
      put(device);
      const std::vector<transfer>* const lists[] = {&p.sends, &p.receives, &p.retains, &p.creates, &p.lost};
      for (const std::vector<transfer>* list : lists) put(list->size());
      for (const std::vector<transfer>* list : lists)
        for (const transfer& t : *list) {
          ++listed;
          put(t.src), put(t.dst), put(t.states.bits()), put(t.family), put(t.phase), put(static_cast<int>(t.why));
          put(t.stream);
          for (const interval& side : t.where.dim) put(side.begin), put(side.end);
        }
      for (std::size_t i = 8; i-- > 0;) wanted[0] = wanted[0] << 8 | static_cast<unsigned char>("reshplan"[i]);
      words.pop_back();  // the hash, which others ask of
      CHECK(words == wanted);
    }
  });
  CHECK(listed > 100);
}

TEST_CASE("phase, purpose and stream of a box are read back as they were, each from its own word") {
  const layout_switch change = testing::rows_to_columns();
  plan p = make_plan(change, 0);
  p.sends[0].phase = 3, p.sends[0].why = purpose::passed_on, p.sends[0].stream = 0xFEDCBA9876543210u;
  p.receives[1].phase = most_phases, p.receives[1].stream = 7;
  CHECK(plan_from_bytes(to_bytes(p, change), change) == p);
  p.sends[0].phase = 1, p.sends[0].why = purpose::delivered, p.sends[0].stream = 2;
  CHECK(plan_from_bytes(to_bytes(p, change), change) == p);
}

TEST_CASE("no byte can be changed, and none be missing or too many, without a refusal") {
  dice random;
  testing::some_switches([&](const auto& change) {
    const std::vector<std::byte> bytes = to_bytes(make_plan(change, 0), change);
    for (int n = 0; n < 200; ++n) {
      std::vector<std::byte> other = bytes;
      other[static_cast<std::size_t>(random.below(static_cast<index_t>(bytes.size())))] ^=
          static_cast<std::byte>(1 << random.below(8));
      CHECK(refused([&] { static_cast<void>(plan_from_bytes(other, change)); }) != "accepted");
      other = bytes;
      other.resize(static_cast<std::size_t>(random.below(static_cast<index_t>(bytes.size()))));
      CHECK(refused([&] { static_cast<void>(plan_from_bytes(other, change)); }) != "accepted");
      if (other.size() >= 16)
        CHECK(refused([&] { static_cast<void>(plan_from_bytes(closed(other), change)); }) != "accepted");
    }
    std::vector<std::byte> longer = bytes;
    longer.resize(bytes.size() + 8);
    CHECK(refused([&] {
            static_cast<void>(plan_from_bytes(closed(longer), change));
          }).ends_with("bytes are not what its lists need"));
  });
}

TEST_CASE("a plan is one of the tensors' names and sizes: of another model it is refused") {
  const auto change_of = [](const char* name, index_t rows) {
    const std::vector<shard> from = {{0, name, bf16, {rows, 8}, {0, 0}, {rows, 8}}},
                             to = {{1, name, bf16, {rows, 8}, {0, 0}, {rows, 8}}};
    return layout_switch(from, to);
  };
  const auto change = change_of("w", 4);
  const std::vector<shard> whole = {{0, "w", bf16, {4, 8}, {0, 0}, {4, 8}}},
                           there = {{1, "w", bf16, {4, 8}, {0, 0}, {4, 8}}};
  const std::vector<std::byte> bytes = to_bytes(make_plan(change, 0), change);
  CHECK(plan_from_bytes(bytes, change_of("w", 4)) == make_plan(change, 0));
  CHECK_REFUSED(plan_from_bytes(bytes, change_of("w", 5)), "plan from bytes: the plan is of another model");
  CHECK_REFUSED(plan_from_bytes(bytes, change_of("v", 4)), "plan from bytes: the plan is of another model");
  CHECK(plan_from_bytes(bytes, layout_switch(whole, there)) == make_plan(change, 0));
  for (const char* list : {"sgd", "param:bf16:3,master:fp32:1,exp_avg:fp32:1,exp_avg_sq:fp32:2",
                           "param:bf16:3,master:fp32:1,exp_avg:fp32:1,exp_avg_sq:bf16:1",
                           "param:bf16:3,master:fp32:1,exp_avg:fp32:1,exp_avg_s:fp32:1"})
    CHECK_REFUSED(plan_from_bytes(bytes, layout_switch(whole, there, {.list = parse_state_list(list)})),
                  "plan from bytes: the plan is of another model or list of states");
}

TEST_CASE("what is wrong is said") {
  const layout_switch change = testing::rows_to_columns();
  const plan p = make_plan(change, 0);
  const std::vector<std::byte> bytes = to_bytes(p, change);
  const auto with = [&](std::size_t number, std::uint64_t value) {
    std::vector<std::byte> other = bytes;
    for (std::size_t i = 0; i < 8; ++i) other[8 * number + i] = static_cast<std::byte>(value >> (8 * i));
    return refused([&] { static_cast<void>(plan_from_bytes(closed(other), change)); });
  };
  const std::string who = "reshard: plan from bytes: ";
  CHECK(with(3, 0) == "accepted");
  CHECK(with(0, 1) == who + "these do not begin as a plan does");
  CHECK(with(1, 3) == who + "version 3; version 4 is read here");
  CHECK(with(2, 0) == who + "the plan is of another model or list of states");
  CHECK(with(3, 9) == who + "a plan of device 9; the switch has 3 devices");
  // 17 words a box: 2^61 boxes more are as many bytes modulo 2^64
  for (const std::uint64_t many :
       {std::uint64_t{2}, ~std::uint64_t{0}, std::uint64_t{1} << 60, (std::uint64_t{1} << 61) + 1})
    CHECK(with(4, many) == who + std::to_string(bytes.size()) + " bytes are not what its lists need");
  for (const std::size_t word : {11u, 12u})  // states, family: what an int would cut off counts
    CHECK(with(word, std::uint64_t{1} << 32) == who + "no states or family have such a number");
  for (const std::size_t word : {11u, 12u})
    CHECK(with(word, std::uint64_t{1} << 31) == who + "no states or family have such a number");
  CHECK(with(12, std::uint64_t{1} << 30) == who + "sends[0] is of family 1073741824; the switch has 1");
  REQUIRE((p.sends.size() == 1 && p.receives.size() == 2 && p.retains.size() == 1));
  const char* const entries[] = {"sends[0]", "receives[0]", "receives[1]", "retains[0]"};
  for (std::size_t entry = 0; entry < 4; ++entry)  // also where some of the states are moved
    for (const std::uint64_t states : {std::uint64_t{6}, std::uint64_t{3}, std::uint64_t{1} << 30})
      CHECK(with(11 + 17 * entry, states) == who + entries[entry] + " has states that the switch does not move");
  for (const std::size_t word : {13u, 14u})  // phase, purpose
    CHECK(with(word, std::uint64_t{1} << 32) == who + "no phase or purpose has such a number");
  CHECK(with(13, 1 << 15) == who + "no phase or purpose has such a number");
  CHECK(with(14, 2) == who + "no phase or purpose has such a number");
  CHECK(with(13, (1 << 15) - 1) == "accepted");
  CHECK(with(14, 1) == "accepted");
  CHECK(with(12, 7) == who + "sends[0] is of family 7; the switch has 1");
  for (std::size_t i = 0; i < 8; ++i) {
    std::vector<std::byte> odd = bytes;
    odd[i] ^= std::byte{1};
    CHECK(refused([&] { static_cast<void>(plan_from_bytes(closed(odd), change)); }) ==
          who + "these do not begin as a plan does");
  }
  std::vector<std::byte> other = bytes;
  other[68] ^= std::byte{1};
  CHECK(refused([&] { static_cast<void>(plan_from_bytes(other, change)); }) == who + "some of them were changed");
  CHECK(refused([&] { static_cast<void>(plan_from_bytes(std::span(bytes).first(79), change)); }) ==
        who + "79 bytes are too few");
}
