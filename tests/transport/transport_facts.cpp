// SPDX-License-Identifier: Apache-2.0
// What a transport answers, as values: a footprint that is the same in every slot, and which ones tell of a plan.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/transport/transport_facts.hpp>

using namespace reshard;

TEST_CASE("an even footprint tells of every slot, and that what is sent is written a lag later") {
  for (const slot_times& at : {slot_times{1, 1, 0}, slot_times{5, 1, 0}, slot_times{5, 1, 1}, slot_times{4, 3, 1}}) {
    const footprint f = even_footprint(at, 4096);
    CHECK(f.staging == std::vector<bytes_t>(static_cast<std::size_t>(at.slots()), 4096));
    CHECK(f.most == 4096);
    REQUIRE(static_cast<index_t>(f.written_in.size()) == at.sending());
    for (index_t k = 0; k < at.sending(); ++k) CHECK(f.written_in[static_cast<std::size_t>(k)] == k + at.lag);
    CHECK(f.tells_of(at));
  }
}

TEST_CASE("a footprint tells of a plan by its slots, each written in itself or later, within the plan") {
  const slot_times at{3, 1, 1};
  const auto with = [&](auto&& change) {
    footprint f = even_footprint(at, 1);
    change(f);
    return f.tells_of(at);
  };
  CHECK(with([](footprint& f) { f.written_in = {0, 1, 2}; }));
  CHECK(with([](footprint& f) { f.written_in = {3, 3, 3}; }));
  CHECK_FALSE(with([](footprint& f) { f.written_in = {1, 0, 3}; }));
  CHECK_FALSE(with([](footprint& f) { f.written_in = {1, 2, 4}; }));
  CHECK_FALSE(with([](footprint& f) { f.written_in = {-1, 2, 3}; }));
  CHECK_FALSE(with([](footprint& f) { f.written_in.pop_back(); }));
  CHECK_FALSE(with([](footprint& f) { f.written_in.push_back(3); }));
  CHECK_FALSE(with([](footprint& f) { f.staging.pop_back(); }));
  CHECK_FALSE(with([](footprint& f) { f.staging.push_back(1); }));
}

TEST_CASE("a transport of which nothing is said has no lag, holds nothing, misses nobody and takes checks") {
  const transport_facts usual;
  CHECK(usual.lag == 0);
  CHECK(usual.fixed_bytes == 0);
  CHECK(usual.absent.empty());
  CHECK(usual.checks_messages);
}
