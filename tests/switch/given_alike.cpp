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

#include "../support/dice.hpp"
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
                 "TO on 0-1 of 12, lost 7, what is lost left out"});
  all.push_back({{.devices = 12, .lost = {7}, .empty = {8, 9}}, "TO on 0-1 of 12, lost 7, empty 8-9"});
  all.push_back({{.devices = 12, .empty = {7}}, "TO on 0-1 of 12, empty 7"});
  all.push_back({{.devices = 12, .lost_elements = when_lost::leave_out}, "TO on 0-1 of 12, what is lost left out"});
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

namespace {

/// Something that a device may be given, and the words for it, whole.
struct told {
  detail::given what;
  std::string words;
};
/// Every one has its words, and a number that no other one has and that an agreement may bring.
void check_each_by_itself(const std::vector<told>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(all[i].words);
    CHECK(all[i].what.text == all[i].words);
    CHECK(all[i].what.value >= 0);
    CHECK(all[i].what.value < detail::refused);
    for (std::size_t j = 0; j < i; ++j) {
      CAPTURE(all[j].words);
      CHECK(all[i].what.value != all[j].what.value);
    }
  }
}

/// A Holding of the caller's own.
struct of_ones_own : computed_holding {
  using computed_holding::computed_holding;
};

}  // namespace

TEST_CASE("a digest's number is its first 62 bits") {
  testing::dice random(1);
  digest of;
  for (int i = 0; i < 100; ++i) {
    of.add(static_cast<std::int64_t>(random.bits()));
    const std::int64_t number = detail::number_of(of);
    CHECK(number >= 0);
    CHECK(number < std::int64_t{1} << 62);
    CHECK(static_cast<std::uint64_t>(number) == of.value() / 4);
  }
}

TEST_CASE("budgets, uses of sources, and states each have a number and words of their own") {
  check_each_by_itself({{detail::given_budget(no_budget), "no budget"},
                        {detail::given_budget(no_budget - 1), detail::text_of("a budget of ", no_budget - 1, " bytes")},
                        {detail::given_budget(0), "a budget of 0 bytes"},
                        {detail::given_budget(1), "a budget of 1 bytes"}});
  CHECK(detail::given_budget(17).value == 17);
  check_each_by_itself({{detail::given_sources(sources::keep), "sources that are kept"},
                        {detail::given_sources(sources::release), "sources that are released"}});
  const auto of = [](const char* list, std::initializer_list<int> moving, bool statistics = false) {
    const state_list states = state_list::parse(list);
    state_set all = statistics ? states.only(statistic_state) : state_set();
    for (const int s : moving) all = all | states.only(s);
    return detail::given_states(states, all);
  };
  const char* const usual = "param:bf16:3,b:fp32:1";
  check_each_by_itself({{of(usual, {0, 1}), "the states 0=param:bf16:3,1=b:fp32:1"},
                        {of(usual, {0, 1}, true), "the states 0=param:bf16:3,1=b:fp32:1"},
                        {of(usual, {0}), "the states 0=param:bf16:3"},
                        {of(usual, {1}), "the states 1=b:fp32:1"},
                        {of(usual, {}, true), "the states of statistics alone"},
                        {of("param:bf16:3,b:fp32:2", {0, 1}), "the states 0=param:bf16:3,1=b:fp32:2"},
                        {of("param:fp16:3,b:fp32:1", {0, 1}), "the states 0=param:fp16:3,1=b:fp32:1"},
                        {of("param:bf16:3,c:fp32:1", {0, 1}), "the states 0=param:bf16:3,1=c:fp32:1"},
                        {of("b:fp32:1,param:bf16:3", {0, 1}), "the states 0=b:fp32:1,1=param:bf16:3"}});
}

TEST_CASE("routes and what they go over each have a number and words of their own") {
  const auto direct = [](index_t chains, index_t stages, const cluster& on) {
    return detail::given_routing({relay::never, chains, stages}, on);
  };
  for (const cluster& on : {cluster(), nodes_of(2), clusters::h100}) {  // nothing else counts
    CHECK(direct(1, 7, on).value == 7);
    CHECK(direct(3, 7, on).value == 7);
    CHECK(direct(1, 7, on).text == "direct routes in 7 stages");
  }
  const auto relayed = [](index_t chains, index_t stages, const cluster& on) {
    return detail::given_routing({relay::always, chains, stages}, on);
  };
  const auto kinds = [](std::vector<node_kind> nodes) { return cluster{.gpus = 8, .nodes = std::move(nodes)}; };
  const std::string words = "relay over 1 chains a node in 1 stages, nodes of ";
  check_each_by_itself(
      {{relayed(1, 1, nodes_of(2)), words + "2 NICs"},
       {relayed(2, 1, nodes_of(2)), "relay over 2 chains a node in 1 stages, nodes of 2 NICs"},
       {relayed(1, 2, nodes_of(2)), "relay over 1 chains a node in 2 stages, nodes of 2 NICs"},
       {relayed(1, 1, {.gpus = 2, .each = {.nics = 1}}), words + "1 NICs"},
       {relayed(1, 1, {.gpus = 2, .each = {.nics = 1, .nic_GBps = 50}}), words + "1 NICs"},
       {relayed(1, 1, {.gpus = 2, .each = {.nics = 1, .nic_GBps = 50.5}}), words + "1 NICs"},
       {relayed(1, 1, kinds({{.count = 2}})), words + "8 NICs"},
       {relayed(1, 1, kinds({{.count = 1}, {.count = 1}})), words + "8,8 NICs"},
       {relayed(1, 1, kinds({{.count = 2, .nics = 4}})), words + "4 NICs"},
       {relayed(1, 1, kinds({{.count = 2, .nics = 4}, {.count = 1, .nics = 1}})), words + "4,1 NICs"},
       {relayed(1, 1, kinds({{.count = 2, .nics = 1}, {.count = 1, .nics = 4}})), words + "1,4 NICs"},
       {relayed(1, 1, kinds({{.count = 1, .nics = 4}, {.count = 2, .nics = 1}, {}})), words + "4,1,8 NICs"}});
  cluster listed = kinds({{.count = 2, .nics = 4}});  // `each` is of no node
  listed.each.nics = 3;
  CHECK(relayed(1, 1, listed).value == relayed(1, 1, kinds({{.count = 2, .nics = 4}})).value);
}

TEST_CASE("tensors, seats and layouts each have a number and words of their own") {
  const auto one = [](const char* name, index_t rows, index_t columns) {
    const shard_list list({{0, name, bf16, {rows, columns}, {0, 0}, {rows, columns}}}, 1);
    return detail::given_family(listed_holding(list), 0);
  };
  check_each_by_itself({{one("a", 4, 8), "tensor 0 as a of 1 x 1 x 1 x 4 x 8"},
                        {one("b", 4, 8), "tensor 0 as b of 1 x 1 x 1 x 4 x 8"},
                        {one("ab", 4, 8), "tensor 0 as ab of 1 x 1 x 1 x 4 x 8"},
                        {one("a", 8, 4), "tensor 0 as a of 1 x 1 x 1 x 8 x 4"},
                        {one("a", 4, 9), "tensor 0 as a of 1 x 1 x 1 x 4 x 9"}});

  const auto seats = [](const placement& placed) {
    return detail::given_placement(layout_switch(space(testing::tiny(4), parse_degrees("dp=2")),
                                                 space(testing::tiny(4), parse_degrees("tp=4")), placed));
  };
  const auto leave_out = when_lost::leave_out;
  const std::string usual = "FROM on devices 0-1, TO on 0-3";
  check_each_by_itself({{seats({}), usual + " of 4"},
                        {seats({.devices = 5}), usual + " of 5"},
                        {seats({.on = nodes_of(2)}), usual + " of 4 in nodes of 2"},
                        {seats({.on = nodes_of(1)}), usual + " of 4 in nodes of 1"},
                        {seats({.from = device_map({1, 0})}), "FROM on devices 1,0, TO on 0-3 of 4"},
                        {seats({.from = device_map({0, 2})}), "FROM on devices 0,2, TO on 0-3 of 4"},
                        {seats({.from = device_map({1, 2})}), "FROM on devices 1-2, TO on 0-3 of 4"},
                        {seats({.to = device_map({1, 2, 3, 0})}), "FROM on devices 0-1, TO on 1-3,0 of 4"},
                        {seats({.to = device_map({3, 0, 1, 2})}), "FROM on devices 0-1, TO on 3,0-2 of 4"},
                        {seats({.devices = 7, .lost = {4}}), usual + " of 7, lost 4"},
                        {seats({.devices = 7, .lost = {5}}), usual + " of 7, lost 5"},
                        {seats({.devices = 7, .lost = {4, 5}}), usual + " of 7, lost 4-5"},
                        {seats({.devices = 7, .lost = {4, 6}}), usual + " of 7, lost 4,6"},
                        {seats({.devices = 7, .empty = {4}}), usual + " of 7, empty 4"},
                        {seats({.devices = 7, .empty = {4, 5}}), usual + " of 7, empty 4-5"},
                        {seats({.devices = 7, .empty = {4, 6}}), usual + " of 7, empty 4,6"},
                        {seats({.devices = 7, .lost = {4}, .empty = {6}}), usual + " of 7, lost 4, empty 6"},
                        {seats({.devices = 7, .lost = {6}, .empty = {4}}), usual + " of 7, lost 6, empty 4"},
                        {seats({.devices = 7, .lost = {4}, .lost_elements = leave_out, .empty = {6}}),
                         usual + " of 7, lost 4, empty 6, what is lost left out"},
                        {seats({.devices = 7, .lost_elements = leave_out, .empty = {6}}),
                         usual + " of 7, empty 6, what is lost left out"},
                        {seats({.lost_elements = leave_out}), usual + " of 4, what is lost left out"}});

  const auto list_of = [](std::vector<shard> shards, rank_t ranks) {
    return detail::given_side(listed_holding(shard_list(std::move(shards), ranks)));
  };
  const auto listed = [](const detail::given& list, index_t boxes, rank_t ranks) {
    return told{list, detail::text_of("a list of ", boxes, " boxes on ", ranks, " ranks, hash ", list.value)};
  };
  const auto part = [](rank_t rank, const char* tensor, index_t row, index_t rows, const char* state = "param") {
    return shard{rank, tensor, std::string_view(state) == "param" ? bf16 : fp32, {8, 4}, {row, 0}, {rows, 4}, state};
  };
  check_each_by_itself(
      {{detail::given_side(computed_holding(space(testing::tiny(4), parse_degrees("tp=2")))), "'tp=2'"},
       {detail::given_side(computed_holding(space(testing::tiny(4), parse_degrees("dp=2")))), "'dp=2'"},
       {detail::given_side(of_ones_own(space(testing::tiny(4), parse_degrees("dp=2")))), "a holding of 2 ranks"},
       {detail::given_side(of_ones_own(space(testing::tiny(4), parse_degrees("dp=3")))), "a holding of 3 ranks"},
       listed(list_of({part(0, "a", 0, 4), part(1, "a", 4, 4)}, 2), 2, 2),
       listed(list_of({part(0, "a", 0, 4), part(1, "a", 4, 4)}, 3), 2, 3),
       listed(list_of({part(1, "a", 0, 4), part(0, "a", 4, 4)}, 2), 2, 2),
       listed(list_of({part(0, "a", 0, 3), part(1, "a", 3, 5)}, 2), 2, 2),
       listed(list_of({part(0, "a", 0, 4), part(1, "a", 0, 4)}, 2), 1, 2),
       listed(list_of({part(0, "a", 4, 4), part(1, "a", 4, 4)}, 2), 1, 2),
       listed(list_of({part(0, "a", 0, 4)}, 2), 1, 2),
       listed(list_of({part(0, "a", 0, 4, "master")}, 2), 1, 2),
       listed(list_of({part(0, "a", 0, 8), part(1, "b", 0, 8)}, 2), 2, 2),
       listed(list_of({part(1, "a", 0, 8), part(0, "b", 0, 8)}, 2), 2, 2),
       listed(list_of({part(0, "a", 0, 8), part(1, "b", 0, 8), part(1, "b", 0, 8, "master")}, 2), 3, 2)});
}

TEST_CASE("which of two sides is which counts") {
  const space a(testing::tiny(4), parse_degrees("dp=2")), b(testing::tiny(4), parse_degrees("tp=2"));
  const detail::given there = detail::given_layouts(layout_switch(a, b)),
                      back = detail::given_layouts(layout_switch(b, a));
  check_each_by_itself({{there, "FROM as 'dp=2' and TO as 'tp=2'"}, {back, "FROM as 'tp=2' and TO as 'dp=2'"}});
  const device_map low(2), high({2, 3});
  check_each_by_itself(
      {{detail::given_placement(layout_switch(a, b, {.from = low, .to = high})), "FROM on devices 0-1, TO on 2-3 of 4"},
       {detail::given_placement(layout_switch(a, b, {.from = high, .to = low})),
        "FROM on devices 2-3, TO on 0-1 of 4"}});
}

TEST_CASE("all that is given, in the order in which differences are told") {
  const layout_switch change(space(testing::tiny(4), parse_degrees("dp=2")),
                             space(testing::tiny(4), parse_degrees("tp=2")), {.on = nodes_of(1)});
  const std::vector<detail::given> all =
      detail::all_given(change, {.budget = 5, .after_use = sources::keep, .route = {relay::always, 2, 3}});
  const int families = change.to().families();
  std::vector<std::string> words = {"a budget of 5 bytes", "sources that are kept",
                                    detail::given_states(change.list(), change.states()).text,
                                    "relay over 2 chains a node in 3 stages, nodes of 1 NICs"};
  for (int f = 0; f < families; ++f) words.push_back(detail::given_family(change.to(), f).text);
  words.push_back("no more than " + std::to_string(families) + " tensors");
  words.push_back("FROM on devices 0-1, TO on 0-1 of 2 in nodes of 1");
  words.push_back("FROM as 'dp=2' and TO as 'tp=2'");
  REQUIRE(all.size() == words.size());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i].text == words[i]);
  CHECK(all[all.size() - 3].value == families);
}

TEST_CASE("devices that were given anything, against a slow look at all pairs") {
  testing::dice random(2);
  int alike = 0, elsewhere = 0;
  for (int round = 0; round < 60; ++round) {
    const auto devices = static_cast<std::size_t>(random.within(1, 4)),
               parts = static_cast<std::size_t>(random.within(1, 3));
    std::vector<std::vector<detail::given>> given(devices);
    for (std::size_t d = 0; d < devices; ++d)
      for (std::size_t i = 0; i < parts; ++i)
        given[d].push_back({random.below(8) == 0 ? random.below(3) : 0, detail::text_of(d, ".", i)});
    std::string expected;
    for (std::size_t i = 0; i < parts && expected.empty(); ++i)
      for (std::size_t d = 1; d < devices && expected.empty(); ++d)
        if (given[d][i].value != given[0][i].value)
          expected =
              detail::text_of("device 0 was given 0.", i, " and device ", d, " ", d, ".", i, "; all make one switch");
    std::vector<std::string> sentences(devices);
    thread_group world(static_cast<rank_t>(devices), std::chrono::seconds(20));
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      sentences[d] = detail::difference_between(here, given[d]);
      here.all_reduce_max(0);
    });
    for (const std::string& s : sentences) CHECK(s == expected);
    alike += expected.empty() ? 1 : 0, elsewhere += expected.find("device 2") != expected.npos ? 1 : 0;
  }
  CHECK_DRAWN(alike >= 5);
  CHECK_DRAWN(elsewhere >= 5);
}
