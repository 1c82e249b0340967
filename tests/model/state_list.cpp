// SPDX-License-Identifier: Apache-2.0
// Lists of states: what the ready ones are, text read by an independent reader, and every refusal beside an accepted
// neighbour.
#include <doctest/doctest.h>

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/model/state_list.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {

struct written {
  std::string name, type;
  int level;
};
std::string text_of(const std::vector<written>& states) {
  std::string text;
  for (const written& s : states)
    text += (text.empty() ? "" : ",") + s.name + ":" + s.type + ":" + std::to_string(s.level);
  return text;
}
bytes_t bytes_of(const std::string& type) { return type == "fp32" ? 4 : type == "fp8" ? 1 : 2; }

std::string says(const std::string& text) {
  return refused([&] { static_cast<void>(parse_state_list(text)); });
}
std::set<int> members(const state_set& s) {
  std::set<int> all;
  for (int i = 0; i < 32; ++i)
    if (s.contains(i)) all.insert(i);
  return all;
}

constexpr const char* ready_lists[][2] = {
    {"adam", "param:bf16:3,master:fp32:1,exp_avg:fp32:1,exp_avg_sq:fp32:1"},
    {"lion", "param:bf16:3,master:fp32:1,exp_avg:fp32:1"},
    {"momentum", "param:bf16:3,master:fp32:1,momentum_buffer:fp32:1"},
    {"sgd", "param:bf16:3,master:fp32:1"},
};

}  // namespace

TEST_CASE("the ready lists are the contract's, and each with gradients at its end") {
  for (const auto& ready : ready_lists) {
    const char *const name = ready[0], *const text = ready[1];
    CAPTURE(name);
    CHECK(parse_state_list(name) == parse_state_list(text));
    CHECK(parse_state_list(std::string(name) + "+grad") == parse_state_list(std::string(text) + ",grad:fp32:2"));
    CHECK(parse_state_list(text).all().of(role::gradient).empty());
  }
  CHECK(parse_state_list("adam") == adam);
  CHECK(parse_state_list("lion") == lion);
  CHECK(parse_state_list("momentum") == momentum);
  CHECK(parse_state_list("sgd") == sgd);
  CHECK(with_gradients(lion) == parse_state_list("lion+grad"));
  static_assert(parse_state_list("adam+grad").all().of(role::gradient).bytes_per_element() == 4);
  static_assert(adam.all().bytes_per_element() == 18 && lion.all().bytes_per_element() == 14);
  static_assert(state_set(sgd) == sgd.all() && momentum != lion);
}

TEST_CASE("mixed-precision Adam is the default: its sets") {
  CHECK(adam.size() == 4);
  CHECK(adam[2] == state{"exp_avg", dtype::fp32, 1});
  CHECK(adam[0] == state{"param", dtype::bf16, 3});
  CHECK(adam[statistic_state].name == "param");
  CHECK(adam[statistic_state].type == dtype::fp32);
  CHECK(adam[statistic_state].placed_as() == role::statistic);
  for (const int i : {0, 1, 2, 3, 16}) CHECK(members(only(i)) == std::set<int>{i});
  CHECK(members(all_states) == std::set<int>{0, 1, 2, 3, 16});
  CHECK(members(parameter_states) == std::set<int>{0, 16});
  CHECK(members(optimizer_states) == std::set<int>{1, 2, 3});
  CHECK((states_of(role::parameter) | states_of(role::statistic)) == parameter_states);
  CHECK(states_of(role::optimizer) == optimizer_states);
  CHECK(states_of(role::gradient).empty());
  CHECK(states_of(role::gradient, with_gradients(adam)).bytes_per_element() == 4);
  CHECK(adam.named("param") == parameter_states);
  CHECK(adam.named("exp_avg") == only(2));
  CHECK(adam.named("exp").empty());
  CHECK(adam.find("exp_avg_sq") == 3);
  CHECK(adam.find("") == -1);
}

TEST_CASE("random lists: as they were written, states and sets of them alike") {
  dice random(82);
  const char* const types[] = {"bf16", "fp16", "fp32", "fp8"};
  int of_sixteen = 0;
  for (int n = 0; n < 300; ++n) {
    std::vector<written> states(static_cast<std::size_t>(random.within(1, 16)));
    for (std::size_t i = 0; i < states.size(); ++i) {
      std::string name = "s" + std::to_string(i);
      while (random.below(3) != 0 && name.size() < 31) name += "aZ_.-/7"[random.below(7)];
      states[i] = {name, types[random.below(4)], static_cast<int>(random.within(1, 3))};
    }
    const std::size_t parameters = static_cast<std::size_t>(random.below(static_cast<index_t>(states.size())));
    states[parameters].name = "param", states[parameters].level = 3;
    of_sixteen += states.size() == 16 ? 1 : 0;
    const std::string text = text_of(states);
    CAPTURE(text);
    const state_list list = parse_state_list(text), copy = list;
    CHECK(list.size() == static_cast<int>(states.size()));
    CHECK(copy == list);
    state_set all = statistic_states;
    for (int i = 0; i < list.size(); ++i) {
      const written& wanted = states[static_cast<std::size_t>(i)];
      CHECK(copy[i].name == wanted.name);
      CHECK(name(copy[i].type) == wanted.type);
      CHECK(copy[i].level == wanted.level);
      CHECK(list.find(wanted.name) == i);
      const state_set one = list.only(i);
      CHECK(members(one) == std::set<int>{i});
      CHECK(one.width_of(i) == bytes_of(wanted.type));
      CHECK(sharding_level(one.role_of(i)) == wanted.level);
      CHECK(list.named(wanted.name) == (wanted.name == "param" ? one | statistic_states : one));
      all = all | one;
    }
    CHECK(list.all() == all);
    states[parameters].type = states[parameters].type == "fp8" ? "bf16" : "fp8";
    CHECK(parse_state_list(text_of(states)) != list);
  }
  CHECK_DRAWN(of_sixteen > 5);
}

TEST_CASE("what is no list is refused in a sentence, and its neighbour is read") {
  CHECK(says("param:bf16:3") == "accepted");
  CHECK(says("") ==
        "reshard: states: '' is no list; it is adam, lion, momentum or sgd, each also with +grad, or "
        "name:dtype:level by commas");
  CHECK(says("Adam").starts_with("reshard: states: 'Adam' is no list; it is adam,"));
  CHECK(says("adam+grads").starts_with("reshard: states: 'adam+grads' is no list"));
  CHECK(says("+grad").starts_with("reshard: states: '+grad' is no list"));
  CHECK(says("adam,ema:fp32:3") == "reshard: states: 'adam' is not of the form name:dtype:level, like exp_avg:fp32:1");
  for (const char* malformed : {"param:bf16:3,", ",param:bf16:3", "param:bf16:3,m:fp32", "param:bf16:3,,m:fp32:1"})
    CHECK(says(malformed).find("' is not of the form name:dtype:level") != std::string::npos);
  CHECK(says("param:bf16:3,m:fp64:1") ==
        "reshard: states: 'm' is of dtype 'fp64'; dtypes are bf16, fp16, fp32 and fp8");
  CHECK(says("param:bf16:3,m::1").find("is of dtype ''") != std::string::npos);
  const std::string levels = "; levels are 1, 2 and 3, the least zero at which a state is sharded";
  for (const char* level : {"0", "4", "", "01", "1 ", "-1", "1:1", "3+grad"})
    CHECK(says("param:bf16:3,m:fp32:" + std::string(level)) ==
          "reshard: states: 'm' is of level '" + std::string(level) + "'" + levels);
  CHECK(says("param:bf16:3,m:fp32:7") ==
        "reshard: states: 'm' is of level '7'; levels are 1, 2 and 3, the least zero at which a state is sharded");
  CHECK(says("param:bf16:3,m:fp32:1,m:fp32:1") == "reshard: states: 'm' is listed twice");
  CHECK(says("param:bf16:3,param:fp32:3") == "reshard: states: 'param' is listed twice");
  CHECK(says("m:bf16:3,n:fp32:1") == "reshard: states: none of 2 is called param; one is, and is of level 3");
  CHECK(says("param:bf16:1") == "reshard: states: param is of level 1; it is of level 3");
  CHECK(says("param:bf16:2,m:fp32:1") == "reshard: states: param is of level 2; it is of level 3");
  CHECK(says("param:bf16:3,:fp32:1") == "reshard: states: the name '' has 0 characters; 1 to 31 are supported");
  CHECK(says("param:bf16:3," + std::string(31, 'x') + ":fp32:1") == "accepted");
  CHECK(says("param:bf16:3," + std::string(32, 'x') + ":fp32:1") ==
        "reshard: states: the name '" + std::string(32, 'x') + "' has 32 characters; 1 to 31 are supported");
  for (const std::string name : {"a b", "a\"b", "a\\b", "a\nb", "\xc3\xa4", "a+b", "{layer}"})
    CHECK(says("param:bf16:3," + name + ":fp32:1") == "reshard: states: the name '" + name +
                                                          "' has characters that are none of letters, digits, '_', "
                                                          "'.', '-', '/'");
  std::string many = "param:bf16:3";
  for (int i = 1; i < 16; ++i) many += ",s" + std::to_string(i) + ":fp8:2";
  CHECK(says(many) == "accepted");
  CHECK(says(many + ",more:fp8:2") == "reshard: states: more than 16 are listed");
  CHECK(refused([&] { static_cast<void>(with_gradients(parse_state_list(many))); }) ==
        "reshard: states: more than 16 are listed");
  CHECK(refused([] {
          static_cast<void>(state_list{{"param", dtype::bf16, 3}, {"m", dtype::fp64, 0}});
        }) == "reshard: states: 'm' is of level 0" + levels);
  CHECK(refused([] {
          static_cast<void>(state_list{{"param", dtype::bf16, 3}, {"m", dtype::fp64, 4}});
        }) == "reshard: states: 'm' is of level 4" + levels);
  CHECK(state_list{{"param", dtype::bf16, 3}, {"m", dtype::fp64, 1}}.all().bytes_per_element() == 2 + 8 + 4);
  CHECK(refused([] { static_cast<void>(sgd.only(2)); }) ==
        "reshard: states: there is no state 2; they are 0 to 1, and 16 of statistics");
  CHECK(refused([] { static_cast<void>(sgd.only(-1)); }).find("there is no state -1") != std::string::npos);
}

TEST_CASE("a list made of states is one as text is: with param, of level 3") {
  const auto made = [](std::initializer_list<state> states) {
    return refused([&] { static_cast<void>(state_list(states)); });
  };
  CHECK(made({{"param", dtype::bf16, 3}}) == "accepted");
  CHECK(made({{"weights", dtype::bf16, 3}}) == "reshard: states: none of 1 is called param; one is, and is of level 3");
  CHECK(made({{"m", dtype::fp32, 1}, {"param", dtype::bf16, 2}}) ==
        "reshard: states: param is of level 2; it is of level 3");
}

TEST_CASE("a name has letters, digits and four signs, and no other character") {
  const std::string allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
  for (int code = 0; code < 256; ++code) {
    const char c = static_cast<char>(code);
    CAPTURE(code);
    const std::string sentence = refused([c] {
      static_cast<void>(state_list{{"param", dtype::bf16, 3}, {std::string_view(&c, 1), fp32, 1}});
    });
    CHECK((sentence == "accepted") == (allowed.find(c) != std::string::npos));
  }
}

TEST_CASE("of what is refused a sentence has the first 40 characters") {
  const std::string forty = "abcdefghijklmnopqrstuvwxyz0123456789ABCD", longer = forty + "EFG";
  CHECK(says(longer) == "reshard: states: '" + forty +
                            "' is no list; it is adam, lion, momentum or sgd, each also with +grad, or "
                            "name:dtype:level by commas");
  CHECK(says("param:bf16:3," + longer) ==
        "reshard: states: '" + forty + "' is not of the form name:dtype:level, like exp_avg:fp32:1");
  CHECK(says("param:bf16:3," + longer + ":" + longer + ":1") ==
        "reshard: states: '" + forty + "' is of dtype '" + forty + "'; dtypes are bf16, fp16, fp32 and fp8");
  CHECK(says("param:bf16:3," + longer + ":fp8:" + longer) ==
        "reshard: states: '" + forty + "' is of level '" + forty +
            "'; levels are 1, 2 and 3, the least zero at which a state is sharded");
  CHECK(says("param:bf16:3," + longer + ":fp8:1") ==
        "reshard: states: the name '" + forty + "' has 43 characters; 1 to 31 are supported");
}

TEST_CASE("the names of a list in a sentence: all, or those of a set, with a word before the last") {
  const auto names = [](const state_list& list, const char* word, const state_set& of) {
    return detail::state_names(list, word, of);
  };
  CHECK(detail::state_names(adam, " and ") == "param, master, exp_avg and exp_avg_sq");
  CHECK(detail::state_names(sgd, " or ") == "param or master");
  CHECK(names(adam, " or ", optimizer_states) == "master, exp_avg or exp_avg_sq");
  CHECK(names(adam, " and ", only(0) | only(3)) == "param and exp_avg_sq");
  CHECK(names(adam, " and ", only(3)) == "exp_avg_sq");
  CHECK(names(adam, " and ", statistic_states).empty());
  CHECK(names(adam, " and ", {}).empty());
  std::string text = "param:bf16:3", all = "param";  // as many as there are; the statistic's is no name of the list
  for (int i = 1; i < 16; ++i) {
    text += ",s" + std::to_string(i) + ":fp8:2";
    all += (i < 15 ? ", s" : " and s") + std::to_string(i);
  }
  const state_list sixteen = parse_state_list(text);
  CHECK(detail::state_names(sixteen, " and ") == all);
  CHECK(names(sixteen, " and ", sixteen.only(0) | sixteen.only(15) | statistic_states) == "param and s15");
}
