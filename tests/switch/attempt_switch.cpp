// SPDX-License-Identifier: Apache-2.0
// How a switch ends between real processes of which one dies or stops: all who live say the same, in time; what each
// then holds is what the agreed numbers say, element by element; and they go on with it.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/switch/torn_switch.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/sockets.hpp>

#include "../support/faults.hpp"
#include "../support/processes.hpp"

using namespace reshard;
using testing::left_behind, testing::processes;
using testing::never_zero, testing::now, testing::words_of;

namespace {

constexpr patience two_seconds = std::chrono::seconds(2);
constexpr rank_t devices = 4;

model tiny() {
  return make_transformer({.name = "tiny",
                           .layers = 8,
                           .hidden = 64,
                           .heads = 4,
                           .groups = 4,
                           .head_dim = 16,
                           .ffn = 128,
                           .vocabulary = 256});
}
computed_switch change_of(const char* from, const char* to) {
  return layout_switch(space(tiny(), parse_degrees(from)), space(tiny(), parse_degrees(to)));
}

/// An end that raises a signal at the begin of a slot.
struct faulty : forwarding<socket_endpoint> {
  int number;
  index_t at_slot;  // of the slots; below 0: in the closing round
  left_behind& left;

  void raise_it() {
    left.seconds = now();
    left.reached = 1;
    ::raise(number);
  }
  void move(moves& m, index_t slot) {
    left.stages = static_cast<long>(m.slots);
    if (number != 0 && left.reached == 0 && slot == std::min(at_slot, m.slots)) raise_it();
    inner.move(m, slot);
  }
};

/// An end that hears, once it has everything, that it is gone; and that all stages are in place everywhere.
struct given_up : forwarding<socket_endpoint> {
  std::vector<rank_t> survivors;  // as it is told then

  void move(moves& m, index_t slot) {
    inner.move(m, slot);
    if (slot + 1 >= m.slots) throw peer_failed("reshard: device 0 was given up");
  }
  parting part(index_t stages, bool) { return {stages, true, survivors}; }
  rank_t decides() const { return 0; }
};

/// The survivors' new world, with addresses of its own: they go on to dp=3.
void go_on(const computed_switch& change, const ended::torn& ending, rank_t d, std::vector<std::string> addresses,
           listening_socket listening, const binding& old_tensors, const binding& new_tensors, left_behind& left) {
  const std::vector<torn_box> boxes = torn_boxes(change, ending);
  binding held = binding_after(boxes, d, old_tensors, new_tensors);
  const comparison listed = compare(held, change.to(), never_zero{});
  left.wrong = static_cast<long>(listed.wrong), left.elements = static_cast<long>(listed.elements);
  for (rank_t a = 0; a < devices; ++a)
    if (std::find(ending.survivors.begin(), ending.survivors.end(), a) == ending.survivors.end())
      addresses[static_cast<std::size_t>(a)].clear();
  const torn_layout layout = layout_after(change, boxes, ending.survivors);
  const space then(tiny(), parse_degrees("dp=3,zero=1"));
  const layout_switch next(layout.shards, then, layout.placed(device_map(ending.survivors)));
  socket_endpoint again(d, addresses, std::move(listening), two_seconds * 5);
  rank_storage fresh(next.to(), next.to_rank(d), "fresh");
  switch_state(next, held, fresh.tensors(), again, {.budget = 4_MiB, .after_use = sources::keep});
  const comparison found = compare(fresh.tensors(), next.to(), never_zero{});
  index_t lost = 0;
  for (const transfer& t : make_plan(next, d).lost)
    for ([[maybe_unused]] const int s : t.states) lost += t.where.volume();
  left.wrong += found.wrong == lost ? 0 : 1'000'000;
  left.kernel_agrees = static_cast<long>(lost);
}

struct fault {
  int number;
  rank_t victim;
  int third;  // of the stages: first, middle, last
  bool keep;
};

void check_fault(const fault& f) {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  CAPTURE(f.number);
  CAPTURE(f.victim);
  CAPTURE(f.third);
  CAPTURE(f.keep);
  processes all(devices);
  std::vector<std::optional<listening_socket>> later;  // of the survivors' world
  std::vector<std::string> addresses;
  for (rank_t d = 0; d < devices; ++d) {
    later.emplace_back("127.0.0.1:0");
    addresses.push_back("127.0.0.1:" + std::to_string(later.back()->port()));
  }
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    listening_socket mine = std::move(*later[static_cast<std::size_t>(d)]);
    later.clear();
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    fill(before.tensors(), change.from(), never_zero{});
    const bytes_t budget = f.keep ? no_budget : 300_KiB;
    switch_ending ending;
    {
      socket_endpoint here(d, all.addresses, std::move(listening), two_seconds);
      const auto stages = static_cast<index_t>(f.keep ? 3 : 12);  // about, for where the middle is
      const index_t slots[] = {0, stages / 2, most_stages};
      faulty through{{here}, d == f.victim ? f.number : 0, slots[f.third], left};
      ending = attempt_switch(
          change, before.tensors(), after.tensors(), through,
          {.budget = budget, .after_use = f.keep ? sources::keep : sources::release, .route = {.stages = 4}});
      if (d != f.victim) left.seconds = now();
    }
    left.say(words_of(ending) + "|" + sentence_of(ending));
    if (f.keep) left.wrong = static_cast<long>(compare(before.tensors(), change.from(), never_zero{}).wrong);
    if (d == f.victim || f.keep) return;
    if (const ended::torn* t = std::get_if<ended::torn>(&ending))
      go_on(change, *t, d, addresses, std::move(mine), before.tensors(), after.tensors(), left);
  });
  later.clear();
  REQUIRE(all.ended_within(30, f.number == SIGSTOP ? f.victim : -1));
  std::string survivors, first;
  for (rank_t d = 0; d < devices; ++d)
    if (d != f.victim) survivors += (survivors.empty() ? "" : ",") + std::to_string(d);
  CHECK(all.of(f.victim).reached == 1);
  for (rank_t d = 0; d < devices; ++d) {
    if (d == f.victim) continue;
    CAPTURE(d);
    const std::string said = all.of(d).sentence, words = said.substr(0, said.find('|'));
    CAPTURE(said);
    if (first.empty()) first = words;
    CHECK(words == first);
    const bool in_doubt = words.starts_with("unknown ");  // all had everything, and the hub was gone
    CHECK((words.starts_with(f.keep ? "failed " : "torn ") || (in_doubt && f.victim == 0 && f.third == 2)));
    CHECK(words.ends_with(" " + survivors));
    CHECK(said.find("device " + std::to_string(f.victim)) != said.npos);
    CHECK(all.of(d).seconds - all.of(f.victim).seconds - all.late() < (f.number == SIGKILL ? 2 : 4));
    CHECK(all.of(d).wrong == 0);
    if (!f.keep && !in_doubt) CHECK(all.of(d).elements > 0);
  }
  if (f.number != SIGSTOP) return;
  all.send_signal(f.victim, SIGCONT);  // it wakes, and finds out
  REQUIRE(all.ended_within(30));
  const std::string said = all.of(f.victim).sentence;
  CAPTURE(said);
  CHECK_FALSE(said.starts_with("finished"));
  CHECK(said.find("was given up") != said.npos);
}

}  // namespace

TEST_CASE("what on_stage throws of the last stage is told by who finished; of an earlier one it tears the switch") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const bool last : {true, false}) {
    CAPTURE(last);
    processes all(devices);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      socket_endpoint here(d, all.addresses, std::move(listening), two_seconds);
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
      fill(before.tensors(), change.from(), never_zero{});
      switch_options options{.budget = 2_MiB};
      options.on_stage = [&](const stage_report& r) {
        left.stages = static_cast<long>(r.stages);
        if (d == 2 && r.stage == (last ? r.stages - 1 : 0)) throw std::runtime_error("the disk is full");
      };
      const switch_ending end = attempt_switch(change, before.tensors(), after.tensors(), here, options);
      left.reached = static_cast<long>(end.index());
      left.say(sentence_of(end));
      left.wrong = static_cast<long>(compare(after.tensors(), change.to(), never_zero{}).wrong);
    });
    REQUIRE(all.ended_within(60));
    for (long d = 0; d < devices; ++d) {
      const std::string sentence = all.of(d).sentence;
      CAPTURE(sentence);
      if (d == 2) CHECK(all.of(d).stages > 1);
      CHECK(all.of(d).reached == (last ? 0 : 3));  // finished, torn
      if (last) CHECK(all.of(d).wrong == 0);
      if (last) CHECK(sentence == (d == 2 ? "the disk is full" : ""));
      else CHECK(sentence.find("the disk is full") != sentence.npos);
    }
  }
}

TEST_CASE("a switch without a fault is finished on all, and one that is refused touches nothing") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  processes all(devices);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    socket_endpoint here(d, all.addresses, std::move(listening), two_seconds * 5);
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    fill(before.tensors(), change.from());
    const switch_ending tight = attempt_switch(change, before.tensors(), after.tensors(), here, {.budget = 1});
    left.untouched = tight.index() == 1 && after.resident_bytes() == 0;
    const switch_ending ending = attempt_switch(change, before.tensors(), after.tensors(), here, {.budget = 2_MiB});
    left.say(words_of(ending) + sentence_of(ending));
    left.wrong = static_cast<long>(compare(after.tensors(), change.to()).wrong);
  });
  REQUIRE(all.ended_within(30));
  for (rank_t d = 0; d < devices; ++d) {
    CHECK(std::string(all.of(d).sentence) == "finished");
    CHECK(all.of(d).untouched == 1);
    CHECK(all.of(d).wrong == 0);
  }
}

TEST_CASE("who is killed: survivors agree on what is in place and on who is left, and go on") {
  for (const rank_t victim : {0, 1, 3})
    for (const int third : {0, 1, 2}) check_fault({SIGKILL, victim, third, false});
  for (const rank_t victim : {0, 2}) check_fault({SIGKILL, victim, 1, true});
}

TEST_CASE("who stops: the same, and who wakes hears that it was given up") {
  for (const rank_t victim : {0, 2}) check_fault({SIGSTOP, victim, static_cast<int>(victim) / 2 + 1, false});
  check_fault({SIGSTOP, 1, 0, true});
}

TEST_CASE("who has everything and was given up does not know; who is left knows that all is finished") {
  const computed_switch change = change_of("", "zero=1");
  for (const bool left_over : {false, true}) {
    processes all(1);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      socket_endpoint here(d, all.addresses, std::move(listening), two_seconds);
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
      fill(before.tensors(), change.from());
      given_up through{{here}, left_over ? std::vector<rank_t>{0} : std::vector<rank_t>{}};
      const switch_ending ending = attempt_switch(change, before.tensors(), after.tensors(), through);
      left.say(words_of(ending) + sentence_of(ending));
      left.wrong = static_cast<long>(compare(after.tensors(), change.to()).wrong);
    });
    REQUIRE(all.ended_within(30));
    const std::string said = all.of(0).sentence;
    CAPTURE(said);
    CHECK(said.starts_with(left_over ? "finished" : "unknown"));
    CHECK(all.of(0).wrong == 0);
  }
}
