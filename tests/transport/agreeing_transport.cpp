// SPDX-License-Identifier: Apache-2.0
// The least that devices agree by: a world of one, over which small state goes; and types that lack one call each, or
// answer it otherwise, which are no such transport.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <reshard/transport/agreeing_transport.hpp>

#include <reshard/job/exchange_small_state.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

/// A world of one device.
struct lone_agreement {
  int alive = 0;
  std::string failed = {};

  rank_t device() const { return 0; }
  rank_t devices() const { return 1; }
  transport_facts facts() const { return {}; }
  agreement agree(const proposal& mine) {
    agreement all;
    all.add(0, mine, true);
    return all;
  }
  std::int64_t all_reduce_max(std::int64_t n) { return n; }
  std::vector<std::string> gather(const std::string& text) { return {text}; }
  void keep_alive() { ++alive; }
  void fail(const std::string& sentence) { failed = sentence; }
};
static_assert(AgreeingTransport<lone_agreement> && !Meeting<lone_agreement>);
static_assert(!AgreeingTransport<int> && !AgreeingTransport<const lone_agreement>);

// Without one of its calls it is none.
#define AGREEING_WITHOUT(call)                      \
  struct agreeing_without_##call : lone_agreement { \
    template <typename... Any>                      \
    void call(Any&&...) const = delete;             \
  };                                                \
  static_assert(!AgreeingTransport<agreeing_without_##call>)
AGREEING_WITHOUT(device);
AGREEING_WITHOUT(devices);
AGREEING_WITHOUT(facts);
AGREEING_WITHOUT(agree);
AGREEING_WITHOUT(all_reduce_max);
AGREEING_WITHOUT(gather);
AGREEING_WITHOUT(keep_alive);
AGREEING_WITHOUT(fail);
#undef AGREEING_WITHOUT

// With one that answers something else, or asks for more than the contract gives, too.
#define AGREEING_OTHERWISE(name, call) \
  struct name : lone_agreement {       \
    call                               \
  };                                   \
  static_assert(!AgreeingTransport<name>)
AGREEING_OTHERWISE(device_of_32_bits, int device() const;);
AGREEING_OTHERWISE(device_that_changes, rank_t device(););
AGREEING_OTHERWISE(devices_that_change, rank_t devices(););
AGREEING_OTHERWISE(facts_that_change, transport_facts facts(););
AGREEING_OTHERWISE(facts_elsewhere, const transport_facts& facts() const;);
AGREEING_OTHERWISE(agreement_on_a_number, std::int64_t agree(const proposal&););
AGREEING_OTHERWISE(agreement_that_takes_what_it_is_given, agreement agree(proposal&););
AGREEING_OTHERWISE(maximum_of_32_bits, int all_reduce_max(std::int64_t););
AGREEING_OTHERWISE(texts_as_one, std::string gather(const std::string&););
AGREEING_OTHERWISE(life_with_an_answer, bool keep_alive(););
AGREEING_OTHERWISE(failure_with_an_answer, bool fail(const std::string&););
#undef AGREEING_OTHERWISE
}  // namespace

TEST_CASE("small state goes over a transport that can agree and no more: each calls what it has its own") {
  lone_agreement here;
  small_state mine;
  mine.add({{"seed", "0"}, std::vector<std::byte>(3, std::byte{7})});
  mine.add_same("step", std::vector<std::byte>(8, std::byte{1}));
  const small_state kept = exchange_small_state(mine, {{"seed", "0"}}, here);
  CHECK(kept == mine);
  CHECK(here.failed.empty());
  CHECK(here.alive > 0);
  const small_state unasked = exchange_small_state(mine, {}, here);  // nobody asks for the value of rank 0
  CHECK((unasked.blobs().size() == 1 && unasked.has({"step"})));
}

TEST_CASE("over it all devices refuse together, and none is told that one has failed") {
  lone_agreement here;
  CHECK_REFUSED(exchange_small_state({}, {{"seed", "0"}}, here), "seed");
  CHECK(here.failed.empty());
}
