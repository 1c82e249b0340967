// SPDX-License-Identifier: Apache-2.0
// Switches over any_holding: bytes arrive in arrays and optimizer buffers as over the layouts themselves, names in
// sentences are theirs, and devices that hold the same layouts by other types are given alike.
#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/drawn_layouts.hpp"

using namespace reshard;

namespace {
const model m = testing::drawn_model(false);
const computed_holding from(space(m, parse_degrees("tp=2,dp=2,zero=1"))),
    to(space(m, parse_degrees("pp=2,dp=2,zero=1")));

/// Elements that are wrong on a device once it has switched; 1 more where none was looked at.
template <Holding From, Holding To>
index_t wrong_after(const layout_switch<From, To>& change, auto& here, switch_report& report) {
  rank_storage before(change.from(), here.device(), "before"), after(change.to(), here.device(), "after");
  fill(before.tensors(), change.from());
  report = switch_state(change, before.tensors(), after.tensors(), here, {.budget = 1 << 22});
  const comparison found = compare(after.tensors(), change.to());
  return found.wrong + (found.elements == 0 ? 1 : 0);
}
}  // namespace

TEST_CASE("state arrives over any_holding as it does over what it holds") {
  const listed_holding list(tensor_table(m), testing::listed(from), 4);
  const auto check = [&](const auto& change, const any_switch& any) {
    std::atomic<index_t> wrong = 0, received = 0;
    thread_group world(4);
    world.run([&](auto& here) {
      switch_report own, over_any;
      wrong += wrong_after(change, here, own) + wrong_after(any, here, over_any);
      wrong += own.received != over_any.received || own.sent != over_any.sent || own.stages != over_any.stages ? 1 : 0;
      received += over_any.received;
    });
    CHECK(wrong == 0);
    CHECK(received > 1000);
  };
  check(layout_switch(from, to), any_switch(from, to));
  check(layout_switch(list, to), any_switch(list, to));
}

TEST_CASE("arrays of a rank are those of the layout: buffers where it has them, tensors where it is a list") {
  for (const rank_t rank : {0, 3}) {
    std::vector<std::string> wanted, found;
    std::vector<bytes_t> bytes, found_bytes;
    const auto by_names = [](std::vector<std::string>& names, std::vector<bytes_t>& sizes, const auto& h) {
      return [&](const rank_array& a) { names.push_back(array_name(h, a)), sizes.push_back(a.bytes()); };
    };
    const any_holding any(from);
    each_array(from, rank, {}, by_names(wanted, bytes, from));
    each_array(any, rank, {}, by_names(found, found_bytes, any));
    CHECK(wanted.size() > 10);
    CHECK(found == wanted);
    CHECK(found_bytes == bytes);
    CHECK(std::any_of(found.begin(), found.end(),
                      [](const std::string& name) { return name.find("buffer") != name.npos; }));
  }
  const tensor_id third{1, 2, 0};
  CHECK(names_of(any_holding(from))(third) == m.tensor(third));
  const listed_holding list(tensor_table(m), testing::listed(from), 4);
  CHECK(names_of(any_holding(list))(third) == names_of(list)(third));
}

TEST_CASE("devices that hold the same layouts by other types are given alike, others are told apart") {
  const computed_holding other(space(m, parse_degrees("pp=4")));
  const listed_holding list(tensor_table(m), testing::listed(from), 4);
  const auto sentence_of = [&](const auto& change, const any_switch& any) {
    std::string sentence = "alike";
    mailbox_group world(4);
    world.run([&](auto& here) {
      try {
        switch_report report;
        if (here.device() == 1) wrong_after(any, here, report);
        else wrong_after(change, here, report);
      } catch (const std::exception& e) {
        if (here.device() == 0) sentence = e.what();
      }
    });
    return sentence;
  };
  CHECK(sentence_of(layout_switch(from, to), any_switch(from, to)) == "alike");
  CHECK(sentence_of(layout_switch(list, to), any_switch(list, to)) == "alike");
  const std::string apart = sentence_of(layout_switch(from, to), any_switch(from, other));
  CAPTURE(apart);
  CHECK(apart.find("TO as 'pp=4'") != apart.npos);
}

TEST_CASE("a prepared switch over any_holding runs as often as one likes") {
  const any_switch change(from, to);
  std::atomic<index_t> wrong = 0;
  thread_group world(4);
  world.run([&](auto& here) {
    rank_storage before(change.from(), here.device(), "before"), after(change.to(), here.device(), "after");
    prepared_switch weights(change, before.tensors(), after.tensors(), here);
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      fill(before.tensors(), change.from(), known_values{seed});
      weights.run();
      wrong += compare(after.tensors(), change.to(), known_values{seed}).wrong;
    }
    wrong += weights.report().received == 0 ? 1 : 0;
  });
  CHECK(wrong == 0);
}
