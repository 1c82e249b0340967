// SPDX-License-Identifier: Apache-2.0
// Devices that were given different switches: who was given what is said on all, and nothing is touched.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/memory/bind_shard.hpp>
#include <reshard/switch/detail/given_alike.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/tiny.hpp"

using namespace reshard;

namespace {

/// What one device is given: tensors of 4 x columns floats, whole on device 0 and wanted on device 1.
struct question {
  std::string states = "param:bf16:3,exp_avg:fp32:1,exp_avg_sq:fp32:1";
  std::vector<std::string> moving = {"exp_avg", "exp_avg_sq"};
  std::vector<std::string> tensors = {"a", "b"};
  index_t columns = 8;
  bytes_t budget = no_budget;
  sources after_use = sources::keep;
};

shard_list list_of(const question& q, rank_t rank) {
  std::vector<shard> shards;
  for (const std::string& tensor : q.tensors)
    for (const std::string& state : q.moving)
      shards.push_back({rank, tensor, fp32, {4, q.columns}, {0, 0}, {4, q.columns}, state});
  return shard_list(shards, 3);
}

struct outcome {
  std::string sentence = "finished";
  double first = -1;  // of what device 1 holds then
};

/// Three devices, of which the third has no rank; `odd` is asked another question.
template <typename World>
std::vector<outcome> ask(rank_t odd, const question& usual, const question& other) {
  std::vector<outcome> ends(3);
  World world(3, std::chrono::seconds(20));
  world.run([&](auto& here) {
    const rank_t d = here.device();
    const question& mine = d == odd ? other : usual;
    const state_list states = state_list::parse(mine.states);
    state_set moving;
    for (const std::string& s : mine.moving) moving = moving | states.named(s);
    const layout_switch change(list_of(mine, 0), list_of(mine, 1), {.states = moving, .devices = 3, .list = states});
    const std::size_t shards = mine.tensors.size() * mine.moving.size();
    std::vector<std::vector<float>> arrays(shards,
                                           std::vector<float>(static_cast<std::size_t>(4 * mine.columns), -1.f));
    binding before("before", {}, states), after("after", {}, states);
    for (std::size_t i = 0; d < 2 && i < shards; ++i) {
      if (d == 0) arrays[i].assign(arrays[i].size(), static_cast<float>(i));
      bind_shard(d == 0 ? before : after, d == 0 ? change.from().table() : change.to().table(),
                 list_of(mine, d).shards()[i], memory(arrays[i]));
    }
    outcome& mine_outcome = ends[static_cast<std::size_t>(d)];
    try {
      switch_state(change, before, after, here, {.budget = mine.budget, .after_use = mine.after_use});
    } catch (const refusal& e) {
      mine_outcome.sentence = e.what();
    }
    mine_outcome.first = arrays.back().back();
    here.all_reduce_max(0);
  });
  return ends;
}

}  // namespace

TEST_CASE_TEMPLATE("what one device was given otherwise is named with both, and nothing is touched", World,
                   thread_group, mailbox_group) {
  const question usual;
  for (const outcome& e : ask<World>(1, usual, usual)) CHECK(e.sentence == "finished");
  CHECK(ask<World>(1, usual, usual)[1].first == 3);

  struct otherwise {
    question other;
    std::string usual_is, other_is;
  };
  std::vector<otherwise> all(7);
  const std::string states = "the states 1=exp_avg:fp32:1,2=exp_avg_sq:fp32:1";
  all[0] = {{.states = "param:bf16:3,exp_avg_sq:fp32:1,exp_avg:fp32:1"},
            states,
            "the states 1=exp_avg_sq:fp32:1,2=exp_avg:fp32:1"};
  all[1] = {{.moving = {"exp_avg"}}, states, "the states 1=exp_avg:fp32:1"};
  all[2] = {{.tensors = {"a", "c"}}, "tensor 1 as b of 1 x 1 x 1 x 4 x 8", "tensor 1 as c of 1 x 1 x 1 x 4 x 8"};
  all[3] = {{.tensors = {"a", "b", "c", "d", "e"}}, "no more than 2 tensors", "tensor 2 as c of 1 x 1 x 1 x 4 x 8"};
  all[4] = {{.columns = 9}, "tensor 0 as a of 1 x 1 x 1 x 4 x 8", "tensor 0 as a of 1 x 1 x 1 x 4 x 9"};
  all[5] = {{.budget = 1 << 20}, "no budget", "a budget of 1048576 bytes"};
  all[6] = {{.after_use = sources::release}, "sources that are kept", "sources that are released"};
  for (const rank_t odd : {0, 1, 2})
    for (const otherwise& o : all) {
      CAPTURE(odd);
      CAPTURE(o.other_is);
      const std::string expected = "reshard: device 0 was given " + (odd == 0 ? o.other_is : o.usual_is) +
                                   " and device " + std::to_string(odd == 0 ? 1 : odd) + " " +
                                   (odd == 0 ? o.usual_is : o.other_is) + "; all make one switch";
      const std::vector<outcome> ends = ask<World>(odd, usual, o.other);
      for (const outcome& e : ends) CHECK(e.sentence == expected);
      CHECK(ends[1].first == -1);
    }
}

namespace {
/// A switch of one's own beside the others': each device tries its own, and says what it heard.
template <typename World, typename Mine>
std::vector<std::string> sentences_of(rank_t devices, Mine&& mine) {
  std::vector<std::string> all(static_cast<std::size_t>(devices));
  World world(devices, std::chrono::seconds(20));
  world.run([&](auto& here) {
    const auto change = mine(here.device());
    std::string& sentence = all[static_cast<std::size_t>(here.device())];
    sentence = difference_over(here, change, {});
    here.all_reduce_max(0);
  });
  return all;
}
}  // namespace

TEST_CASE_TEMPLATE("where ranks sit is the same for all, also for a device that exchanges nothing", World, thread_group,
                   mailbox_group) {
  const space from(testing::tiny(4), parse_degrees("dp=2")), to(testing::tiny(4), parse_degrees("tp=2"));
  const placement usual{.devices = 12};
  struct otherwise {
    placement other;
    const char* words;
  };
  std::vector<otherwise> all;
  all.push_back({{.to = device_map({1, 0}), .devices = 12}, "FROM on devices 0-1, TO on 1,0 of 12"});
  all.push_back({{.from = device_map({2, 3}), .devices = 12}, "FROM on devices 2-3, TO on 0-1 of 12"});
  all.push_back({{.on = nodes_of(2), .devices = 12}, "FROM on devices 0-1, TO on 0-1 of 12 in nodes of 2"});
  all.push_back({{.devices = 12, .lost = {7, 8, 10}}, "TO on 0-1 of 12, lost 7-8,10"});
  all.push_back({{.devices = 12, .lost = {7}, .lost_elements = when_lost::leave_out},
                 "TO on 0-1 of 12, lost 7, their elements left out"});
  all.push_back({{.devices = 12, .lost = {7}, .empty = {8, 9}}, "TO on 0-1 of 12, lost 7, empty 8-9"});
  all.push_back({{.devices = 12, .empty = {7}}, "TO on 0-1 of 12, empty 7"});
  for (const rank_t odd : {0, 11})
    for (const otherwise& o : all) {
      CAPTURE(o.words);
      const std::vector<std::string> sentences =
          sentences_of<World>(12, [&](rank_t d) { return layout_switch(from, to, d == odd ? o.other : usual); });
      for (const std::string& s : sentences) {
        CAPTURE(s);
        CHECK(s == sentences[0]);
        CHECK(s.find("device 0 was given FROM on devices ") == 0);
        CHECK(s.find(o.words) != s.npos);
        CHECK(s.find(odd == 0 ? " and device 1 FROM on devices 0-1, TO on 0-1 of 12; all" : " and device 11 FROM ") !=
              s.npos);
      }
    }
  for (const std::string& s : sentences_of<World>(12, [&](rank_t) { return layout_switch(from, to, all[3].other); }))
    CHECK(s.empty());
  for (const std::string& s : sentences_of<World>(12, [&](rank_t d) {
         return layout_switch(from, to, {.devices = 12, .lost = {d == 5 ? rank_t{7} : rank_t{8}}});
       }))
    CHECK(s.find(", lost 8 and device 5 FROM ") != s.npos);
  for (const std::string& s : sentences_of<World>(12, [&](rank_t d) {
         return layout_switch(from, to, {.devices = 12, .empty = {d == 5 ? rank_t{7} : rank_t{8}}});
       }))
    CHECK(s.find(", empty 8 and device 5 FROM ") != s.npos);
}

TEST_CASE("layouts are the same for all, spaces and lists, also where a device's own part of them is") {
  const model m = testing::tiny(4);
  const space two(m, parse_degrees("dp=2")), of_zero(m, parse_degrees("dp=2,zero=1"));
  for (const std::string& s : sentences_of<thread_group>(3, [&](rank_t d) {
         return layout_switch(two, d == 2 ? of_zero : two, {.states = parameter_states, .devices = 3});
       }))
    CHECK(s ==
          "device 0 was given FROM as 'dp=2' and TO as 'dp=2' and device 2 FROM as 'dp=2' and TO as 'dp=2,zero=1'; all "
          "make one switch");
  const auto list = [](index_t cut, rank_t last) {
    return shard_list({{0, "w", fp32, {8, 4}, {0, 0}, {4, 4}, "param"},
                       {1, "w", fp32, {8, 4}, {4, 0}, {cut, 4}, "param"},
                       {last, "w", fp32, {8, 4}, {4 + cut, 0}, {4 - cut, 4}, "param"}},
                      3);
  };
  const state_list one = state_list::parse("param:fp32:3");
  const auto ask_lists = [&](index_t cut, rank_t last) {
    return sentences_of<thread_group>(3, [&](rank_t d) {
      const shard_list mine = d == 0 ? list(cut, last) : list(2, 2);
      return layout_switch(mine, mine, {.list = one});
    });
  };
  for (const std::string& s : ask_lists(2, 2)) CHECK(s.empty());
  for (const auto& [cut, last] : {std::pair<index_t, rank_t>{1, 2}, {2, 1}})
    for (const std::string& s : ask_lists(cut, last)) {
      CAPTURE(s);
      CHECK(s.find("device 0 was given FROM as a list of 3 boxes on 3 ranks, hash ") == 0);
      CHECK(s.find(" and device 1 FROM as a list of 3 boxes on 3 ranks, hash ") != s.npos);
    }
}

TEST_CASE("routes are told with their stages, and the world goes on") {
  const space two(testing::tiny(4), parse_degrees("dp=2"));
  const auto heard = [&](const routing& of_last) {
    std::vector<std::string> all(3);
    thread_group world(3, std::chrono::seconds(20));
    world.run([&](auto& here) {
      const layout_switch change(two, two, {.on = nodes_of(2), .devices = 3});
      switch_options options;
      if (here.device() == 2) options.route = of_last;
      all[static_cast<std::size_t>(here.device())] = difference_over(here, change, options);
      here.all_reduce_max(0);
    });
    CHECK(all[1] == all[0]);
    CHECK(all[2] == all[0]);
    return all[0];
  };
  CHECK(heard({}).empty());
  CHECK(heard({.stages = 7}) ==
        "device 0 was given direct routes in 1 stages and device 2 direct routes in 7 stages; all make one switch");
  CHECK(heard({relay::always, 3, 7}) ==
        "device 0 was given direct routes in 1 stages and device 2 relay over 3 chains a node in 7 stages, nodes of 2 "
        "NICs; all make one switch");
}

TEST_CASE("devices in words: as runs, of which eight are told") {
  detail::run_words words;
  words.add(0, 6), words.add(7, 1), words.add(6, 1);
  CHECK(words.text() == "0-5,7,6");
  for (rank_t d = 10; d < 18; ++d) words.add(2 * d, 1);
  CHECK(words.text() == "0-5,7,6,20,22,24,26,28 and 3 runs more");
}

TEST_CASE("types of one width are told apart") {
  const state_list a = state_list::parse("param:bf16:3"), b = state_list::parse("param:fp16:3");
  CHECK(detail::given_states(a, a.all()).value != detail::given_states(b, b.all()).value);
  CHECK(detail::given_states(a, a.all()).value == detail::given_states(a, a.all()).value);
}

TEST_CASE("the first of many families that differs is found, wherever it is") {
  const computed_switch change = testing::tiny_switch(4, "dp=2", "tp=2");
  const std::vector<detail::given> usual = detail::all_given(change, {});
  const std::size_t before = 4, families = static_cast<std::size_t>(change.to().families());
  REQUIRE(usual.size() == before + families + 3);
  for (std::size_t f = 0; f < families; ++f) {
    thread_group world(2, std::chrono::seconds(20));
    std::string sentences[2];
    world.run([&](auto& here) {
      const rank_t d = here.device();
      std::vector<detail::given> mine = usual;
      for (std::size_t i = before + f; d == 1 && i < mine.size(); ++i) mine[i].value += 1;
      sentences[d] = detail::difference_between(here, mine);
      here.all_reduce_max(0);
    });
    for (const std::string& s : sentences) CHECK(s.find("given tensor " + std::to_string(f) + " as ") != s.npos);
  }
}

TEST_CASE(
    "of devices that differ at several places the first place is told, and of those that differ there the lowest") {
  const std::vector<detail::given> usual = {{1, "a"}, {2, "b"}, {3, "c"}};
  thread_group world(4, std::chrono::seconds(20));
  std::string sentences[4];
  world.run([&](auto& here) {
    const rank_t d = here.device();
    std::vector<detail::given> mine = usual;
    if (d == 1) mine[2] = {7, "of 1"};
    if (d == 2) mine[1] = {std::int64_t{2} << 32, "of 2"}, mine[2] = {8, "x"};
    if (d == 3) mine[1] = {9, "of 3"};
    sentences[d] = detail::difference_between(here, mine);
    here.all_reduce_max(0);
  });
  for (const std::string& s : sentences) CHECK(s == "device 0 was given b and device 2 of 2; all make one switch");
}

TEST_CASE("the place is told in whichever byte a number differs, of the first, a middle and the last of them") {
  const std::vector<detail::given> usual = {{0x0102030405060708, "a"}, {-1, "b"}, {0, "c"}};
  for (std::size_t at = 0; at < usual.size(); ++at)
    for (int byte = 0; byte < 8; ++byte) {
      thread_group world(2, std::chrono::seconds(20));
      std::string sentences[2];
      world.run([&](auto& here) {
        std::vector<detail::given> mine = usual;
        if (here.device() == 1)
          mine[at] = {
              static_cast<std::int64_t>(static_cast<std::uint64_t>(mine[at].value) ^ std::uint64_t{0x40} << 8 * byte),
              "other"};
        sentences[here.device()] = detail::difference_between(here, mine);
        here.all_reduce_max(0);
      });
      CAPTURE(byte);
      for (const std::string& s : sentences)
        CHECK(s == "device 0 was given " + usual[at].text + " and device 1 other; all make one switch");
    }
}

namespace {
/// Device d of a world in which device 0 is gone, and device d - 1 of one in which nobody is.
struct after_a_loss : forwarding<thread_group::endpoint> {
  bool told;  // that it is gone
  rank_t device() const { return inner.device() + 1; }
  rank_t devices() const { return inner.devices() + 1; }
  transport_facts facts() const {
    transport_facts all = inner.facts();
    if (told) all.absent = {0};
    return all;
  }
  std::vector<std::string> gather(const std::string& text) {
    std::vector<std::string> all = inner.gather(text);
    all.insert(all.begin(), std::string());
    return all;
  }
};
}  // namespace

TEST_CASE("who is gone was given nothing, and all who are left may have been given the same") {
  for (const bool told : {true, false})
    for (const bool alike : {true, false}) {
      thread_group world(2, std::chrono::seconds(20));
      std::string sentences[2];
      world.run([&](auto& inner) {
        after_a_loss here{{inner}, told};
        sentences[inner.device()] = detail::difference_between(
            here, {{1, "a"}, {alike ? 2 : inner.device(), detail::text_of("b of ", here.device())}});
        inner.all_reduce_max(0);
      });
      for (const std::string& s : sentences)
        CHECK(s == (alike ? "" : "device 1 was given b of 1 and device 2 b of 2; all make one switch"));
    }
}
