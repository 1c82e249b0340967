// SPDX-License-Identifier: Apache-2.0
// Plans as JSON: any two sides, read back equal, also by another reader; and what is no plan of the switch is refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/plan_json.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/some_switches.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;

using namespace reshard::io;
using nlohmann::json;
using testing::dice, testing::refused;

TEST_CASE("plans of any two sides are read back equal") {
  std::size_t transfers = 0;
  testing::some_switches([&](const auto& change) {
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device);
      CHECK(plan_from_json(to_json(p, change), change) == p);
      transfers += p.sends.size() + p.receives.size() + p.retains.size() + p.creates.size() + p.lost.size();
    }
  });
  CHECK(transfers > 100);
}

TEST_CASE("the format is the one that is documented") {
  const layout_switch change = testing::rows_to_columns();
  CHECK(json::parse(to_json(make_plan(change, 2), change)) == json::parse(R"({"format": "reshard plan", "version": 4,
                         "list": "param:bf16:3,master:fp32:1,exp_avg:fp32:1,exp_avg_sq:fp32:1", "device": 2,
    "sends": [{"src": 2, "dst": 0, "states": ["param"], "family": "wte", "box": [[0,1],[0,1],[0,1],[8,10],[0,4]],
               "phase": 0, "purpose": "delivered", "stream": 0}],
    "receives": [{"src": 0, "dst": 2, "states": ["param"], "family": "wte", "box": [[0,1],[0,1],[0,1],[0,4],[4,8]],
                  "phase": 0, "purpose": "delivered", "stream": 0},
                 {"src": 1, "dst": 2, "states": ["param"], "family": "wte", "box": [[0,1],[0,1],[0,1],[4,8],[4,8]],
                  "phase": 0, "purpose": "delivered", "stream": 0}],
    "retains": [{"src": 2, "dst": 2, "states": ["param"], "family": "wte", "box": [[0,1],[0,1],[0,1],[8,10],[4,8]],
                 "phase": 0, "purpose": "delivered", "stream": 0}],
    "creates": [], "lost": []})"));
}

TEST_CASE("a plan of another list of states is refused") {
  const model m = make_transformer(
      {.name = "tiny", .layers = 1, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 4});
  const space from(m, parse_degrees("dp=2,zero=1")), to(m, parse_degrees("tp=2"));
  const layout_switch one(from, to, {.list = sgd}), other(from, to, {.list = lion});
  const std::string text = to_json(make_plan(one, 0), one);
  CHECK(plan_from_json(text, one) == make_plan(one, 0));
  CHECK(refused([&] { static_cast<void>(plan_from_json(text, other)); }) ==
        "reshard: plan from JSON: it is of the states \"param:bf16:3,master:fp32:1\", and the switch has "
        "param:bf16:3,master:fp32:1,exp_avg:fp32:1");
}

TEST_CASE("names are quoted as JSON wants them, and refused where they are no text") {
  const auto named = [](const std::string& name) {
    const std::vector<shard> list = {{0, name, bf16, {4}, {0}, {4}}};
    return layout_switch(list, list);
  };
  const layout_switch odd = named("a \"b\"\\\n\xc3\xa9");
  CHECK(plan_from_json(to_json(make_plan(odd, 0), odd), odd) == make_plan(odd, 0));
  const layout_switch broken = named("\xff");
  CHECK(refused([&] { static_cast<void>(to_json(make_plan(broken, 0), broken)); }) ==
        "reshard: plan to JSON: a tensor's name is not UTF-8");
}

TEST_CASE("a plan in which the dead send is none of the switch without them") {
  const std::vector<shard> both = testing::whole_on(2, "w", {4, 6}), third = {{0, "w", bf16, {4, 6}, {0, 0}, {4, 6}}};
  const device_map two(std::vector<rank_t>{2});
  const layout_switch all(both, third, {.to = two}), one(both, third, {.to = two, .lost = {0}});
  CHECK(plan_from_json(to_json(make_plan(one, 2), one), one) == make_plan(one, 2));
  CHECK(refused([&] { static_cast<void>(plan_from_json(to_json(make_plan(all, 2), all), one)); }) ==
        "reshard: plan from JSON: receives[0] goes from device 0 to 2, and device 0 is lost");
}

TEST_CASE("what is wrong is said") {
  const layout_switch change = testing::rows_to_columns();
  const json good = json::parse(to_json(make_plan(change, 2), change));
  const auto said = [&](const char* at, const json& value) {
    json other = good;
    other[json::json_pointer(at)] = value;
    return refused([&] { static_cast<void>(plan_from_json(other.dump(), change)); });
  };
  const std::string who = "reshard: plan from JSON: ";
  CHECK(said("/device", 2) == "accepted");
  CHECK(said("/format", "plan") == who + "its format is not 'reshard plan'");
  CHECK(said("/version", 3) == who + "version 3; version 4 is read here");
  CHECK(said("/device", 3) == who + "a plan of device 3; the switch has 3 devices");
  CHECK(said("/device", -1) == who + "a plan of device -1; the switch has 3 devices");
  CHECK(said("/device", 1) == who + "sends[0] goes from device 2 to 0, in a plan of device 1");
  CHECK(said("/sends/0/dst", 7) == who + "sends[0] goes from device 2 to 7; the switch has 3 devices");
  CHECK(said("/sends/0/src", -1) == who + "sends[0] goes from device -1 to 0; the switch has 3 devices");
  CHECK(said("/sends/0/dst", 2) == who + "sends[0] goes from device 2 to 2, in a plan of device 2");
  CHECK(said("/receives/0/src", 2) == who + "receives[0] goes from device 2 to 2, in a plan of device 2");
  CHECK(said("/retains/0/src", 1) == who + "retains[0] goes from device 1 to 2, in a plan of device 2");
  CHECK(said("/sends/0/states", json::array()) == who + "sends[0] has states that the switch does not move");
  CHECK(said("/sends/0/states", {"master"}) == who + "sends[0] has states that the switch does not move");
  CHECK(said("/sends/0/states", {"momentum"}) == who + "no state is called 'momentum'");
  CHECK(said("/sends/0/family", "wpe") == who + "no family is called 'wpe'");
  CHECK(said("/sends/0/box/3/1", 11) == who + "sends[0] is no part of wte");
  CHECK(said("/sends/0/box/3/1", 8) == who + "sends[0] is no part of wte");
  CHECK(said("/sends/0/box", {{0, 1}}) == who + "a box of 1 intervals; it has 5");
  CHECK(said("/sends/0/box/5", {0, 1}) == who + "a box of 6 intervals; it has 5");
  CHECK(said("/sends/0/phase", 32767) == "accepted");
  CHECK(said("/sends/0/phase", 32768) == who + "phase 32768; phases are 0 to 32767");
  CHECK(said("/sends/0/phase", -1) == who + "phase -1; phases are 0 to 32767");
  CHECK(said("/sends/0/purpose", "passed_on") == "accepted");
  CHECK(said("/sends/0/purpose", "kept") == who + "no purpose is called 'kept'");
  CHECK(said("/retains/0/phase", 1) == who + "retains[0] stays on its device, in phase 1");
  CHECK(said("/retains/0/purpose", "passed_on") == who + "retains[0] stays on its device, in phase 0, to be passed on");
  CHECK(said("/receives/1/src", 0) == "accepted");  // later in the order by its box
  CHECK(said("/receives/0/src", 1) == "accepted");
  CHECK(said("/receives/0/box/3", {8, 10}) == "accepted");
  CHECK(said("/receives/1", good["receives"][0]) == who + "receives[1] is out of order");
  CHECK(said("/sends", 7).starts_with(who));
  CHECK(said("/sends/0/src", "two").starts_with(who));
  for (const char* text :
       {"", "[]", "{}", "{\"format\": 3}", "not JSON", "{\"format\": \"reshard plan\", \"version\": 1}"})
    CHECK(refused([&] { static_cast<void>(plan_from_json(text, change)); }).starts_with(who));
}

TEST_CASE("text that was changed anywhere is a plan or refused, never anything else") {
  dice random;
  const layout_switch change = testing::rows_to_columns();
  const std::string good = to_json(make_plan(change, 2), change);
  int plans = 0;
  for (int n = 0; n < 2000; ++n) {
    std::string text = good;
    for (index_t times = random.within(1, 3); times > 0; --times)
      text[static_cast<std::size_t>(random.below(static_cast<index_t>(text.size())))] =
          static_cast<char>(random.below(256));
    plans += refused([&] { static_cast<void>(plan_from_json(text, change)); }) == "accepted" ? 1 : 0;
  }
  CHECK(plans < 1000);
}
