// SPDX-License-Identifier: Apache-2.0
// Copies that members keep of their state and of their neighbours', between threads of one process: of which versions
// there are some, whose, and what is in them, when sending goes on and when it breaks off.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/run/snapshots.hpp>

#include "../support/mover.hpp"

using namespace reshard;
using namespace testing;
using copies_list = std::vector<kept_copy>;

namespace {

/// Members in a world, each with its arrays, and a thread that brings each what the store says.
struct ring {
  explicit ring(const std::vector<std::string>& names, const char* layout, index_t every = 5)
      : w(cut(1, member_list(names.begin(), names.end()), layout)) {
    for (const std::string& who : names) all.push_back(std::make_unique<mover>(shared, who, no_budget, every));
    for (auto& m : all) m->hear(), m->begin(w, 10);
    hears = std::jthread([this](const std::stop_token& stop) {
      for (; !stop.stop_requested(); std::this_thread::sleep_for(patience(1)))
        for (auto& m : all) m->hear();
    });
  }
  /// All arrays are those of a version from now on, and so is small state.
  void compute(index_t version) {
    for (auto& m : all) m->arrays[1]->fill(version), m->sum = sum_of(version);
  }
  /// All come to a version, whose turn it is or not.
  void come_to(index_t version) {
    compute(version);
    for (auto& m : all) m->copies.before_step(version);
  }
  static std::uint64_t sum_of(index_t version) { return 1000 + static_cast<std::uint64_t>(version); }
  copies_list told(std::size_t m) {
    return all[m]->core.locked([&] { return all[m]->core.copies; });
  }
  /// Whether a member comes to tell these within twenty seconds.
  bool tells(std::size_t m, const copies_list& expected) {
    for (const auto end = just_now() + std::chrono::seconds(20); told(m) != expected && just_now() < end;)
      std::this_thread::sleep_for(patience(1));
    return told(m) == expected;
  }
  /// How many bytes a member holds of a version that are not what that version was; -1 where small state is another.
  index_t wrong(std::size_t m, index_t version, bytes_t& bytes) {
    auto [held, small] = all[m]->copies.held(version);
    index_t wrong = 0;
    bytes = 0;
    for (const bound_box& b : held.boxes()) {
      bytes += b.bytes();
      wrong += all[m]->arrays[1]->wrong_in(b, version);
    }
    std::uint64_t sum = 0;
    if (!small.blobs().empty()) std::memcpy(&sum, small.bytes_of({"sum"}).data(), sizeof sum);
    return sum == (bytes > 0 ? sum_of(version) : 0) ? wrong : -1;
  }
  bytes_t bytes_of(std::size_t m) { return all[m]->arrays[1]->bytes(); }

  local_store shared;
  world w;
  std::vector<std::unique_ptr<mover>> all;
  std::jthread hears;
};

}  // namespace

TEST_CASE("each keeps its own and what the one before it holds alone, of the last two turns") {
  ring r({"a", "b", "c"}, "dp=3,zero=1");
  r.come_to(10);
  for (std::size_t m = 0; m < 3; ++m) {
    const member_name &me = r.w.members[m], &before = r.w.members[(m + 2) % 3];
    REQUIRE(r.tells(m, {{me, 10}, {before, 10}}));
  }
  r.come_to(12);  // not its turn
  CHECK(r.told(0) == copies_list{{"a", 10}, {"c", 10}});
  r.come_to(15);
  for (std::size_t m = 0; m < 3; ++m) {
    const member_name &me = r.w.members[m], &before = r.w.members[(m + 2) % 3];
    REQUIRE(r.tells(m, {{me, 10}, {before, 10}, {me, 15}, {before, 15}}));
  }
  r.come_to(20);  // over those of 10
  for (std::size_t m = 0; m < 3; ++m) {
    const member_name &me = r.w.members[m], &before = r.w.members[(m + 2) % 3];
    REQUIRE(r.tells(m, {{me, 20}, {before, 20}, {me, 15}, {before, 15}}));
  }
  r.compute(21);
  for (std::size_t m = 0; m < 3; ++m) {
    bytes_t bytes = 0;
    CHECK(r.wrong(m, 10, bytes) == 0);
    CHECK(bytes == 0);
    for (const index_t version : {15, 20}) {
      CHECK(r.wrong(m, version, bytes) == 0);
      CHECK(bytes > r.bytes_of(m));  // its own, and shards of moments
    }
  }
}

TEST_CASE("of what others have, too, nothing is sent, and each keeps its own") {
  ring r({"a", "b", "c", "d"}, "pp=2,dp=2");  // parameters and moments have two holders each
  r.come_to(10);
  for (std::size_t m = 0; m < 4; ++m) CHECK(r.told(m).empty());
  ring shards({"a", "b", "c", "d"}, "pp=2,dp=2,zero=1");
  shards.come_to(10);
  for (std::size_t m = 0; m < 4; ++m)
    REQUIRE(shards.tells(m, {{shards.w.members[m], 10}, {shards.w.members[(m + 3) % 4], 10}}));
  for (std::size_t m = 0; m < 4; ++m) {
    bytes_t bytes = 0;
    CHECK(shards.wrong(m, 10, bytes) == 0);
    CHECK(bytes > shards.bytes_of(m));
    CHECK(bytes < shards.bytes_of(m) + shards.bytes_of((m + 3) % 4));  // its parameters have another holder
  }
}

TEST_CASE("where a group broke and all live, the next version goes through another") {
  ring r({"a", "b"}, "pp=2");
  r.come_to(10);
  for (const std::size_t m : {0u, 1u}) REQUIRE(r.tells(m, {{r.w.members[m], 10}, {r.w.members[1 - m], 10}}));
  r.all[1]->copies.settle(r.w, r.all[1]->arrays[1]->storage.tensors());  // b begins again: its copies are gone
  CHECK(r.told(1).empty());
  r.come_to(15);
  REQUIRE(r.tells(0, {{"a", 10}, {"b", 10}, {"a", 15}, {"b", 15}}));
  REQUIRE(r.tells(1, {{"b", 15}, {"a", 15}}));
  for (const std::size_t m : {0u, 1u}) CHECK(r.all[m]->told().find("failed") == std::string::npos);
}

TEST_CASE("a world that is over ends what is sent and what waits for it; what is whole stays until it is dropped") {
  ring r({"a", "b"}, "pp=2");
  r.come_to(10);
  for (const std::size_t m : {0u, 1u}) REQUIRE(r.tells(m, {{r.w.members[m], 10}, {r.w.members[1 - m], 10}}));
  r.compute(15);
  r.all[0]->copies.before_step(15);  // b does not come
  CHECK(r.told(0) == copies_list{{"a", 10}, {"b", 10}, {"a", 15}});
  std::jthread waits([&] { r.all[0]->copies.before_step(20); });  // until 15 is sent
  std::this_thread::sleep_for(patience(30));
  r.all[0]->copies.interrupt();
  waits.join();
  CHECK(r.told(0) == copies_list{{"a", 10}, {"b", 10}, {"a", 15}});
  bytes_t bytes = 0;
  r.compute(20);
  CHECK(r.wrong(0, 10, bytes) == 0);
  CHECK(bytes == r.bytes_of(0) + r.bytes_of(1));
  CHECK(r.wrong(0, 15, bytes) == 0);
  CHECK(bytes == r.bytes_of(0));
  r.all[0]->copies.before_step(25);  // nothing is copied any more
  CHECK(r.told(0) == copies_list{{"a", 10}, {"b", 10}, {"a", 15}});
  r.all[0]->copies.drop();
  CHECK(r.told(0).empty());
  CHECK(r.wrong(0, 10, bytes) == 0);
  CHECK(bytes == 0);
}

TEST_CASE("who has promised copies nothing more while the last one is sent") {
  ring r({"a", "b"}, "pp=2");
  r.compute(10);
  r.all[0]->copies.before_step(10);  // b does not come
  r.all[0]->core.locked([&] { r.all[0]->core.promised = true; });
  r.all[0]->copies.before_step(15);
  CHECK(r.told(0) == copies_list{{"a", 10}});
}
