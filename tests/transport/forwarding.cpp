// SPDX-License-Identifier: Apache-2.0
// What forwarding hands on: every call of a transport, one by one; and whole switches of wrappers that derive from it,
// round threads, mailboxes and sockets (round MPI in mpi.cpp).
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/sockets.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/bystander.hpp"
#include "../support/processes.hpp"

using namespace reshard;

namespace {

constexpr patience soon = std::chrono::seconds(60);

/// An end that writes down which calls it got, with what they say.
struct noted {
  mutable std::vector<std::string> calls = {};

  template <typename Result = void, typename... Words>
  Result note(const Words&... words) const {
    calls.push_back(detail::text_of(words...));
    return Result();
  }

  rank_t device() const { return note<rank_t>("device") + 3; }
  rank_t devices() const { return note<rank_t>("devices") + 5; }
  transport_facts facts() const {
    note("facts");
    return {.lag = 1, .fixed_bytes = 7, .absent = {2}, .checks_messages = false};
  }
  agreement agree(const proposal& mine) {
    note("agree ", mine.number);
    return {.largest = 11};
  }
  std::int64_t all_reduce_max(std::int64_t n) { return note<std::int64_t>("all_reduce_max ", n) + 13; }
  std::vector<std::string> gather(const std::string& text) {
    note("gather ", text);
    return {"said"};
  }
  void keep_alive() { note("keep_alive"); }
  void fail(const std::string& sentence) { note("fail ", sentence); }
  bool reaches(memory_place place) const { return note<bool>("reaches ", place.number) || place.number == 4; }
  void locate(binding& tensors) { note("locate ", tensors.who()); }
  void offer(const binding& tensors) { note("offer ", tensors.who()); }
  void settle() { note("settle"); }
  void fill_with_zeros(const bound_box& b) { note("fill_with_zeros ", b.state); }
  void check_messages(bool on) { note("check_messages ", on ? "on" : "off"); }
  void contact(const std::vector<rank_t>& to, const std::vector<rank_t>& from) {
    note("contact ", to.at(0), " ", from.at(0));
  }
  reshard::footprint footprint(const staged_plan& plan) const {
    note("footprint ", plan.stages);
    return even_footprint(plan.times(), 17);
  }
  char prepare(const staged_plan& plan, const binding& into, page_stages&) {
    note("prepare ", plan.stages, " ", into.who());
    return 'm';
  }
  std::string disagreement(char& moves) {
    note("disagreement ", std::string(1, moves));
    return "they differ";
  }
  void connect(char& moves) { note("connect ", std::string(1, moves)); }
  void move(char& moves, index_t slot) { note("move ", std::string(1, moves), " ", slot); }
  void await(index_t k) { note("await ", k); }
};
/// And of those that part.
struct noted_parting : noted {
  parting part(index_t slots, bool moved) {
    note("part ", slots, moved ? " moved" : " not moved");
    return {.in_place = 19};
  }
  rank_t decides() const { return note<rank_t>("decides") + 23; }
};

using of_thread = thread_group::endpoint;
using of_mailbox = mailbox_group::endpoint;
static_assert(Transport<forwarding<noted>> && Transport<forwarding<of_thread>> && Transport<forwarding<of_mailbox>>);
static_assert(Transport<forwarding<forwarding<of_mailbox>>>);
static_assert(PartingTransport<forwarding<noted_parting>> && PartingTransport<forwarding<socket_endpoint>>);
static_assert(PartingTransport<forwarding<forwarding<socket_endpoint>>>);
static_assert(!PartingTransport<forwarding<noted>> && !PartingTransport<forwarding<of_thread>>);
static_assert(!PartingTransport<forwarding<of_mailbox>>);

}  // namespace

TEST_CASE("every call is handed on, with what it says, and its answer comes back") {
  noted_parting end;
  forwarding<noted_parting> through{end};
  const forwarding<noted_parting>& asked = through;
  binding before("before"), after("after");
  before.seal(), after.seal();
  page_stages pages(after, binding_side::target);
  staged_plan plan;
  plan.stages = 4;

  CHECK(asked.device() == 3);
  CHECK(asked.devices() == 5);
  const transport_facts facts = asked.facts();
  CHECK(facts.lag == 1);
  CHECK(facts.fixed_bytes == 7);
  CHECK(facts.absent == std::vector<rank_t>{2});
  CHECK_FALSE(facts.checks_messages);
  CHECK(through.agree({6}).largest == 11);
  CHECK(through.all_reduce_max(8) == 13);
  CHECK(through.gather("text") == std::vector<std::string>{"said"});
  through.keep_alive();
  through.fail("a disk is full");
  CHECK(asked.reaches({memory_place::kind::device, 4}));
  CHECK_FALSE(asked.reaches({memory_place::kind::device, 5}));
  through.locate(before);
  through.offer(before);
  through.settle();
  bound_box zeros{};
  zeros.state = 2;
  through.fill_with_zeros(zeros);
  through.check_messages(true);
  through.contact({1, 2}, {3});
  CHECK(asked.footprint(plan).most == 17);
  char moves = through.prepare(plan, after, pages);
  CHECK(through.disagreement(moves) == "they differ");
  through.connect(moves);
  through.move(moves, 9);
  through.await(10);
  CHECK(through.part(12, true).in_place == 19);
  CHECK(asked.decides() == 23);
  CHECK(end.calls == std::vector<std::string>{"device",
                                              "devices",
                                              "facts",
                                              "agree 6",
                                              "all_reduce_max 8",
                                              "gather text",
                                              "keep_alive",
                                              "fail a disk is full",
                                              "reaches 4",
                                              "reaches 5",
                                              "locate before",
                                              "offer before",
                                              "settle",
                                              "fill_with_zeros 2",
                                              "check_messages on",
                                              "contact 1 3",
                                              "footprint 4",
                                              "prepare 4 after",
                                              "disagreement m",
                                              "connect m",
                                              "move m 9",
                                              "await 10",
                                              "part 12 moved",
                                              "decides"});
}

TEST_CASE_TEMPLATE("a wrapper round the ends of threads moves everything right", World, thread_group, mailbox_group) {
  World world(4, soon);
  std::atomic<index_t> wrong = 0;
  world.run([&](auto& here) { wrong += testing::wrong_through_bystander(here); });
  CHECK(wrong == 0);
}

TEST_CASE("a wrapper round mailboxes moves everything right in each way, in one round and in several") {
  for (const exchange_as how : {exchange_as::naive, exchange_as::buffered, exchange_as::asynchronous})
    for (const bytes_t round_bytes : {least_round_bytes, usual_round_bytes}) {
      mailbox_group world(4, soon, how, round_bytes);
      std::atomic<index_t> wrong = 0;
      world.run([&](auto& here) { wrong += testing::wrong_through_bystander(here); });
      CHECK(wrong == 0);
    }
}

TEST_CASE("a wrapper round sockets moves everything right") {
  testing::processes all(4);
  all.start_all([&](long d, listening_socket listening, testing::left_behind& left) {
    socket_endpoint here(d, all.addresses, std::move(listening), soon, exchange_as::asynchronous, least_round_bytes);
    left.wrong = static_cast<long>(testing::wrong_through_bystander(here));
    left.reached = 1;
  });
  REQUIRE(all.ended_within(120));
  for (long d = 0; d < 4; ++d) {
    CHECK(std::string(all.of(d).sentence) == "");
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).wrong == 0);
  }
}
