// SPDX-License-Identifier: Apache-2.0
// Small state as a value, and the routes of its blobs: against what looking at everything finds, over random worlds,
// refusals with their devices included.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <reshard/job/detail/small_state_routes.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/small_worlds.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::refused;

namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

/// What a device says; a hash that any two differing contents of these tests differ in.
blob_directory directory_of(const testing::small_world& world, std::size_t d) {
  if (world.devices[d].absent) return {.takes_part = false};
  blob_directory said{.wants = world.wants(d)};
  const small_state has = world.has(d);
  for (const blob& b : has.blobs()) {
    std::uint64_t hash = 14695981039346656037u;
    for (const std::byte byte : b.bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
    said.has.push_back({b.id, static_cast<bytes_t>(b.bytes.size()), hash});
  }
  return said;
}

std::vector<blob_route> routes_of(const testing::small_world& world) {
  std::vector<blob_directory> all;
  for (std::size_t d = 0; d < world.devices.size(); ++d) all.push_back(directory_of(world, d));
  return small_state_routes(all);
}

/// Carries blobs over their routes, and nothing else, from what devices have and shall have.
void check_routes(const testing::small_world& world, const std::vector<blob_route>& routes,
                  const testing::small_outcome& shall) {
  std::vector<std::map<std::pair<std::string, std::string>, std::vector<std::byte>>> after(world.devices.size());
  for (std::size_t d = 0; d < world.devices.size(); ++d)
    for (const auto& [id, bytes] : world.devices[d].has)
      if (shall.after[d].count(id) > 0) after[d][id] = bytes;
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const blob_route& r = routes[i];
    const std::pair<std::string, std::string> id{r.what.id.name, r.what.id.key};
    if (i > 0) CHECK(routes[i - 1].what.id < r.what.id);
    for (std::size_t d = 0; d < static_cast<std::size_t>(r.src); ++d) CHECK(world.devices[d].has.count(id) == 0);
    const std::vector<std::byte>& bytes = world.devices[static_cast<std::size_t>(r.src)].has.at(id);
    CHECK(r.what.bytes == static_cast<bytes_t>(bytes.size()));
    for (std::size_t j = 0; j < r.dst.size(); ++j) {
      if (j > 0) CHECK(r.dst[j - 1] < r.dst[j]);
      const auto dst = static_cast<std::size_t>(r.dst[j]);
      CHECK(world.devices[dst].has.count(id) == 0);
      CHECK(after[dst].emplace(id, bytes).second);
    }
  }
  CHECK(after == shall.after);
  std::set<std::pair<std::string, std::string>> somewhere;
  for (const auto& blobs : shall.after)
    for (const auto& [id, bytes] : blobs) somewhere.insert(id);
  CHECK(routes.size() == somewhere.size());
}

}  // namespace

TEST_CASE("blobs are kept in order, each once, under one rule") {
  small_state mine;
  mine.add_per_rank("rng", "tp=1", bytes_of("one"));
  mine.add_same("step", bytes_of("7"));
  mine.add_per_rank("rng", "tp=0", bytes_of("zero"));
  mine.add_same("lr", {});
  CHECK(mine.blobs().size() == 4);
  for (std::size_t i = 1; i < 4; ++i) CHECK(mine.blobs()[i - 1].id < mine.blobs()[i].id);
  CHECK(mine.counted() == 2 + 3 + 4 + 4 + 3 + 4 + 3 + 4 + 1);
  CHECK(mine.bytes_of({"rng", "tp=0"}) == bytes_of("zero"));
  CHECK(mine.bytes_of({"step"}) == bytes_of("7"));
  CHECK(mine.has({"lr"}));
  CHECK(!mine.has({"rng"}));
  CHECK(!mine.has({"rng", "tp=2"}));
  CHECK(blob_id{"step"}.text() == "step");
  CHECK(blob_id{"rng", "tp=1"}.text() == "rng[tp=1]");

  const small_state before = mine;
  CHECK_REFUSED((mine.add_same("step", bytes_of("8"))), "small state step is there twice");
  CHECK_REFUSED((mine.add_per_rank("rng", "tp=1", {})), "small state rng[tp=1] is there twice");
  CHECK_REFUSED((mine.add_per_rank("rng", "", {})),
                "reshard: small state rng is per rank, and has no key that says whose it is");
  CHECK(refused([&] { mine.add_same("", {}); }) == "reshard: a blob of small state has no name");
  CHECK_REFUSED((mine.add_per_rank("", "tp=1", {})), "a blob of small state has no name, and the key tp=1");
  const std::string both = " is both the same on all devices and per rank; a name has one rule";
  CHECK(refused([&] { mine.add_same("rng", {}); }) ==
        "reshard: small state rng is both the same on all devices and per rank; a name has one rule");
  CHECK(refused([&] { mine.add_per_rank("step", "a", {}); }) == "reshard: small state step" + both);
  const std::string alphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  CHECK(refused([&] { mine.add_same(alphabet + std::string(220, 'x'), {}); }) ==
        "reshard: a blob of small state has a name or a key of 256 bytes; at most 255 are legal: "
        "abcdefghijklmnopqrstuvwxyz012345..");
  CHECK_REFUSED((mine.add_per_rank("k", std::string(300, 'x'), {})), "a name or a key of 300 bytes");
  CHECK_REFUSED((mine.bytes_of({"rng", "tp=2"})), "there is no small state rng[tp=2] among 4 blobs");
  CHECK(mine == before);
  mine.add_same(std::string(255, 'x'), {});
}

TEST_CASE("a device's small state has 1 MiB at most, names and keys counted") {
  small_state mine;
  mine.add_per_rank("ab", "cde", std::vector<std::byte>((1 << 20) - 5 - 4));
  CHECK(mine.counted() == most_small_bytes - 4);
  CHECK_REFUSED((mine.add_same("four", std::vector<std::byte>(1))), "small state has 1048577 bytes with four; at most");
  mine.add_same("four", {});
  CHECK(mine.counted() == most_small_bytes);
  CHECK_REFUSED(
      (mine.add_same("f", {})),
      "reshard: small state has 1048577 bytes with f; at most 1048576 a device are legal, names and keys counted");
}

TEST_CASE("random worlds: every blob goes from the lowest device that has it to all that shall have it and have not") {
  testing::small_features met;
  testing::dice random(91);
  for (int i = 0; i < testing::tries(4000); ++i) {
    const testing::small_world world = testing::next_small_world(random, random.within(1, 7), true, 1000);
    const testing::small_outcome shall = testing::outcome_of(world, met);
    CAPTURE(i);
    if (!shall.refused()) {
      check_routes(world, routes_of(world), shall);
      continue;
    }
    const std::string sentence = refused([&] { static_cast<void>(routes_of(world)); });
    CAPTURE(sentence);
    CHECK(sentence.starts_with("reshard: "));
    for (const std::string& words : shall.refusal_words) CHECK(sentence.find(words) != sentence.npos);
  }
  MESSAGE("worlds " << met.worlds << ", absent " << met.absent << ", moved " << met.moved << ", kept " << met.kept
                    << ", per rank " << met.per_rank << ", empty " << met.empty << "; differ " << met.differs
                    << ", two rules " << met.rules << ", missing " << met.missing << ", asked though the same "
                    << met.of_same << ", too much " << met.too_much);
  for (const long count : {met.absent, met.moved, met.kept, met.per_rank, met.empty, met.differs, met.rules,
                           met.missing, met.of_same, met.too_much})
    if (!testing::few()) CHECK_DRAWN(count > 10);
}

TEST_CASE("a name has one rule on a device, whatever lies beside it; each blob is found again, and none else") {
  const blob_id all[] = {{"a"}, {"a", "0"}, {"a", "1"}, {"b"}, {"b", "0"}, {"ab"}, {"ab", "0"}, {"c", "0"}, {"c", "1"}};
  constexpr unsigned count = 9;
  for (unsigned chosen = 0; chosen < 1u << count; ++chosen)
    for (const bool backwards : {false, true}) {
      small_state mine;
      std::vector<blob_id> there;
      for (unsigned i = 0; i < count; ++i) {
        const unsigned which = backwards ? count - 1 - i : i;
        if ((chosen >> which & 1u) == 0) continue;
        const blob_id& id = all[which];
        bool other_rule = false;
        for (const blob_id& one : there) other_rule = other_rule || (one.name == id.name && one.same() != id.same());
        const std::string sentence = refused([&] { mine.add({id, bytes_of(id.text())}); });
        CHECK(sentence == (other_rule ? "reshard: small state " + id.name +
                                            " is both the same on all devices and per rank; a name has one rule"
                                      : "accepted"));
        if (!other_rule) there.push_back(id);
      }
      CHECK(mine.blobs().size() == there.size());
      bytes_t counted = 0;
      for (const blob_id& id : all) {
        const bool is_there = std::find(there.begin(), there.end(), id) != there.end();
        CHECK(mine.has(id) == is_there);
        if (is_there) CHECK(mine.bytes_of(id) == bytes_of(id.text()));
        else CHECK_REFUSED(mine.bytes_of(id), "there is no small state " + id.text() + " among ");
        counted += is_there ? static_cast<bytes_t>(id.name.size() + id.key.size() + id.text().size()) : 0;
      }
      CHECK(mine.counted() == counted);
    }
}

TEST_CASE("names and keys of each length: up to 255 bytes are legal, and a name has one") {
  for (const std::size_t name : {0u, 1u, 31u, 33u, 254u, 255u, 256u, 300u})
    for (const std::size_t key : {0u, 1u, 254u, 255u, 256u, 257u}) {
      const blob_id id{std::string(name, 'n'), std::string(key, 'k')};
      const std::string wrong =
          name == 0 ? "reshard: a blob of small state has no name" + (key > 0 ? ", and the key " + id.key : "")
          : name > 255 || key > 255
              ? "reshard: a blob of small state has a name or a key of " + std::to_string(std::max(name, key)) +
                    " bytes; at most 255 are legal: " + std::string(std::min<std::size_t>(name, 32), 'n') + ".."
              : "accepted";
      CHECK(refused([&] { require_legal(id); }) == wrong);
      CHECK(id.bytes() == static_cast<bytes_t>(name + key));
      CHECK(id.same() == (key == 0));
    }
}

TEST_CASE("a device has 1 MiB at most afterwards, what comes from others counted, to the byte") {
  const auto said = [](const blob_id& id, bytes_t bytes) { return blob_directory{.has = {{id, bytes, 1}}}; };
  for (const bytes_t more : {0, 1}) {
    blob_directory asks = said({"own"}, 100);
    asks.wants = {{"of", "0"}, {"of", "0"}};
    const bytes_t rest = most_small_bytes - (3 + 100) - 3 - 6;
    CHECK(refused([&] {
            static_cast<void>(small_state_routes({said({"of", "0"}, rest + more), said({"shared"}, 0), asks}));
          }) == (more == 0 ? "accepted"
                           : "reshard: device 2 would have 1048577 bytes of small state; at most 1048576 a device are "
                             "legal, names and keys counted"));
    const bytes_t alike = most_small_bytes - 4;
    CHECK(refused([&] {
            static_cast<void>(small_state_routes({{.takes_part = false}, said({"same"}, alike + more), {}}));
          }) == (more == 0 ? "accepted"
                           : "reshard: device 1 would have 1048577 bytes of small state; at most 1048576 a device are "
                             "legal, names and keys counted"));
  }
}

TEST_CASE("what is called meanwhile is called at every 1024th blob taken up, compared, asked for or dealt") {
  int called = 0;
  const auto call = [&] { ++called; };
  const auto what = detail::sink<>::of(call);
  detail::now_and_then breath(what);
  for (int drawn = 1; drawn <= 5000; ++drawn) {
    breath.draw();
    CHECK(called == drawn / 1024);
  }
  for (const int blobs : {170, 171, 341, 342, 1000}) {  // on two devices each, asked for by one
    blob_directory has, asks;
    for (int i = 0; i < blobs; ++i) {
      has.has.push_back({{"b" + std::to_string(i), "0"}, 8, 1});
      asks.wants.push_back(has.has.back().id);
    }
    called = 0;
    CHECK(detail::routes_of({has, has, asks}, what).size() == static_cast<std::size_t>(blobs));
    CHECK(called == (2 * blobs + blobs + blobs + blobs) / 1024);
  }
}

TEST_CASE("what nobody asks for: of ranks, and not of who takes no part") {
  const blob_directory has{.has = {{{"step"}, 8, 1}, {{"rng", "tp=0"}, 8, 1}, {{"rng", "tp=1"}, 8, 2}}};
  CHECK(unasked_blobs({has, has}) == std::vector<blob_id>{{"rng", "tp=0"}, {"rng", "tp=1"}});
  CHECK(unasked_blobs({has, {.wants = {{"rng", "tp=1"}}}}) == std::vector<blob_id>{{"rng", "tp=0"}});
  CHECK(unasked_blobs({has, {.takes_part = false, .wants = {{"rng", "tp=1"}}}}).size() == 2);
  CHECK(unasked_blobs({{}, {.wants = {{"rng", "tp=1"}}}}).empty());
}

TEST_CASE("who agrees with whom is told, and what keys there are") {
  const auto of = [](std::uint64_t hash) { return blob_directory{.has = {{{"step"}, 8, hash}}}; };
  CHECK(refused([&] {
          static_cast<void>(small_state_routes({of(5), of(5), of(6), of(5)}));
        }) ==
        "reshard: small state step differs: device 0 has 8 bytes of hash 5, device 2 has 8 bytes of hash 6; 3 of 4 "
        "that have it agree with device 0");
  const blob_directory keyed{.has = {{{"rng", "tp=0"}, 8, 1}, {{"rng", "tp=1"}, 8, 2}}};
  CHECK(refused([&] {
          static_cast<void>(small_state_routes({{}, keyed, {.wants = {{"rng", "tp=2"}}}}));
        }) ==
        "reshard: device 2 asks for small state rng[tp=2], which no device has; there are 2 keys, the first of them "
        "tp=0");
  CHECK(refused([&] {
          static_cast<void>(small_state_routes({of(5), {.wants = {{"rng", "tp=2"}}}}));
        }) == "reshard: device 1 asks for small state rng[tp=2], and no device has any rng");
  CHECK(refused([&] {
          static_cast<void>(small_state_routes({of(5), {.wants = {{"step", "tp=2"}}}}));
        }) == "reshard: device 1 asks for small state step[tp=2], and step is the same on all devices");
}
