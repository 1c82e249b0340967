// SPDX-License-Identifier: Apache-2.0
// Questions about standings and what to decide, as they are read: every key, what may be missing, and each fault in its
// sentence; and the answers as they are written, from values of every kind.
#include <doctest/doctest.h>

#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/elastic_json.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using namespace reshard::io;
using nlohmann::json;
using testing::refused;

namespace {

template <typename Write>
std::string written(Write&& write) {
  text_output out;
  write(out);
  return out.text();
}
std::string of_standings(const std::string& text) {
  return refused([&] { static_cast<void>(standings_from_json(text, "q")); });
}
std::string of_question(const std::string& text) {
  return refused([&] { static_cast<void>(decide_from_json(text, "q")); });
}
std::string of_policy(const std::string& text) {
  return refused([&] { static_cast<void>(policy_from_json(text, "q")); });
}
/// A question with all keys, whose value at `at` is another.
std::string with(const char* at, const json& value) {
  static const json good = json::parse(
      R"({"policy":{"rungs":["wait"],"factor":1,"windows":1,"wait":1,"min":1,"axes":"dp"},"situation":{)"
      R"("model":"gpt3-1.3b","layout":"","version":0,"members":[{"name":"a","dead":false,"empty":false,"steps":[1]}],)"
      R"("spares":["x"],"waited":0,"snapshots":[{"of":"a","at":"a","version":0}],)"
      R"("checkpoint":{"name":"c","version":0}}})");
  json other = good;
  other[json::json_pointer(at)] = value;
  return other.dump();
}
json many(std::size_t count, const json& one) { return std::vector<json>(count, one); }

}  // namespace

TEST_CASE("the machine's phases, events and every row of its table") {
  const json told = json::parse(written([](text_output& out) { write_machine_json(out); }));
  CHECK(told.size() == 3);
  CHECK(told["phases"] ==
        json({"founding", "idle", "proposed", "armed", "entering", "recovering", "waiting", "lost", "done"}));
  CHECK(told["events"].size() == std::size(job_event_names));
  CHECK(told["events"][4] == "acked");
  REQUIRE(told["table"].size() == std::size(job_table));
  CHECK(told["table"][0] == json{{"from", "founding"}, {"event", "found"}, {"to", "idle"}, {"epoch", 1}});
  for (std::size_t i = 0; i < std::size(job_table); ++i) {
    const job_transition& row = job_table[i];
    CHECK(told["table"][i] ==
          json{{"from", name(row.from)}, {"event", name(row.event)}, {"to", name(row.to)}, {"epoch", row.epoch}});
  }
}

TEST_CASE("standings are read as they are told: the highest version there can be, and none") {
  const std::vector<standing> told = standings_from_json(
      R"([{"member":"a","version":9223372036854775806,"stage":2},{"stage":0,"version":null,"member":"b#2"},)"
      R"({"member":"c","version":0,"stage":1}])",
      "q");
  CHECK(told == std::vector<standing>{{"a", 9223372036854775806, update_stage::scalar},
                                      {"b#2", holds_nothing, update_stage::nothing},
                                      {"c", 0, update_stage::gradients}});
  CHECK(standings_from_json("[]", "q").empty());
}

TEST_CASE("what a question about standings must not say") {
  const std::string q = "reshard: q: ";
  CHECK(of_standings("{}") ==
        q + "a question about standings is {}; it is a list of objects with member, version and stage");
  CHECK(of_standings("[3]") == q + "a standing is 3; it is an object");
  CHECK(of_standings(R"([{"member":"a","version":1,"stage":1,"x":1}])") ==
        q + "a standing has the unknown key 'x'; the keys are member, version, stage");
  CHECK(of_standings(R"([{"version":1,"stage":1}])") == q + "member is missing");
  CHECK(of_standings(R"([{"member":"a","stage":1}])") == q + "version is missing");
  CHECK(of_standings(R"([{"member":"a","version":1}])") == q + "stage is missing");
  CHECK(of_standings(R"([{"member":3,"version":1,"stage":1}])") == q + "member is 3; it is a name");
  CHECK(of_standings(R"([{"member":"a,b","version":1,"stage":1}])").starts_with(q + "member: name: character 1"));
  CHECK(of_standings(R"([{"member":"a","version":-1,"stage":1}])") ==
        q + "version is -1; it is a whole number from 0 to 9223372036854775806");
  CHECK(of_standings(R"([{"member":"a","version":9223372036854775807,"stage":1}])") ==
        q + "version is 9223372036854775807; it is a whole number from 0 to 9223372036854775806");
  for (const char* stage : {"-1", "3"})
    CHECK(of_standings(R"([{"member":"a","version":1,"stage":)" + std::string(stage) + "}]") ==
          q + "stage is " + stage + "; it is a whole number from 0 to 2");
  const json one = {{"member", "a"}, {"version", 1}, {"stage", 0}};
  CHECK(standings_from_json(many(4096, one).dump(), "q").size() == 4096);
  CHECK(of_standings(many(4097, one).dump()) ==
        q + "the list of standings has 4097 entries; at most 4096 are looked at");
}

TEST_CASE("a target is written with its version, or null and the sentence in quotes") {
  const auto said = [](const target_version& to) {
    return written([&](text_output& out) { write_target_json(out, to); });
  };
  CHECK(said({.version = 7, .updates = {"a", "b"}, .empty = {"c"}}) ==
        "{\"target\":7,\"updates\":[\"a\",\"b\"],\"empty\":[\"c\"],\"refused\":null}\n");
  CHECK(said({.version = 7, .refused = "a \"b\" \xc3\xa9\xff"}) ==
        "{\"target\":null,\"updates\":[],\"empty\":[],\"refused\":\"a \\\"b\\\" \\u00e9\\ufffd\"}\n");
}

TEST_CASE("every key of a question of what to decide is read") {
  const decide_question q = decide_from_json(
      R"({"policy":{"rungs":["wait","hot","shrink"],"factor":1.5,"windows":4,"wait":9,"min":2,"axes":"tp,dp"},)"
      R"("situation":{"model":"gpt3-1.3b","layout":"tp=2,dp=2","version":7,)"
      R"("members":[{"name":"a","steps":[1,2.5]},{"name":"b","empty":true},{"name":"c","dead":true},{"name":"d"}],)"
      R"("spares":["x","y"],"waited":2.5,"snapshots":[{"of":"a","at":"x","version":6}],)"
      R"("checkpoint":{"name":"c","version":3}}})",
      "q");
  CHECK(q.policy.rungs == std::vector<rung>{rung::wait, rung::hot, rung::shrink});
  CHECK(q.policy.factor == 1.5);
  CHECK(q.policy.windows == 4);
  CHECK(q.policy.wait == 9);
  CHECK(q.policy.min == 2);
  CHECK(q.policy.axes == varied_axes{layout_key::tp, layout_key::dp});
  const elastic_situation& s = q.situation;
  CHECK(s.model.name == "gpt3-1.3b");
  CHECK(s.layout.tp == 2);
  CHECK(s.layout.dp == 2);
  CHECK(s.version == 7);
  REQUIRE(s.members.size() == 4);
  for (std::size_t m = 0; m < 4; ++m) {
    CHECK(s.members[m].name.text() == std::string(1, static_cast<char>('a' + m)));
    CHECK(s.members[m].empty == (m == 1));
    CHECK(s.members[m].dead == (m == 2));
    CHECK(s.members[m].steps == (m == 0 ? std::vector<double>{1, 2.5} : std::vector<double>{}));
  }
  CHECK(s.spares == member_list{"x", "y"});
  CHECK(s.waited == 2.5);
  REQUIRE(s.snapshots.size() == 1);
  CHECK(s.snapshots[0].of == "a");
  CHECK(s.snapshots[0].at == "x");
  CHECK(s.snapshots[0].version == 6);
  CHECK(s.checkpoint == 3);
}

TEST_CASE("keys that may be missing have what a policy and a situation have by themselves") {
  const elastic_policy usual, none = policy_from_json("{}", "q"), some = policy_from_json(R"({"rungs":[]})", "q");
  for (const elastic_policy* p : {&none, &some}) {
    CHECK(p->factor == usual.factor);
    CHECK(p->windows == usual.windows);
    CHECK(p->wait == usual.wait);
    CHECK(p->min == usual.min);
    CHECK(p->axes == usual.axes);
  }
  CHECK(none.rungs == usual.rungs);
  CHECK(some.rungs.empty());
  const decide_question q =
      decide_from_json(R"({"situation":{"model":"gpt3-1.3b","layout":"","members":[{"name":"a"}]}})", "q");
  CHECK(q.policy.rungs == usual.rungs);
  CHECK(q.situation.version == 0);
  CHECK(q.situation.waited == 0);
  CHECK(q.situation.spares.empty());
  CHECK(q.situation.snapshots.empty());
  CHECK_FALSE(q.situation.checkpoint.has_value());
  CHECK_FALSE(q.situation.members[0].dead);
  CHECK_FALSE(q.situation.members[0].empty);
  CHECK_FALSE(decide_from_json(with("/situation/checkpoint", nullptr), "q").situation.checkpoint.has_value());
  for (const char* key : {"/policy/factor", "/policy/wait", "/situation/waited", "/situation/members/0/steps/0"})
    CHECK(of_question(with(key, 0)) == "accepted");
}

TEST_CASE("whatever a policy says in place of what it should is named, with what it should be") {
  const std::string q = "reshard: q: ", whole = "; it is a whole number from 1 to 9223372036854775807",
                    number = "; it is a number, 0 or more";
  const auto said = [](const char* key, const json& value) { return of_policy(json{{key, value}}.dump()); };
  CHECK(of_policy("3") == q + "policy is 3; it is an object");
  CHECK(said("x", 1) == q + "policy has the unknown key 'x'; the keys are rungs, factor, windows, wait, min, axes");
  CHECK(said("rungs", 3) == q + "rungs is 3; it is a list of names of rungs");
  CHECK(said("rungs", {"wait", 3}) == q + "a rung is 3; rungs are hot, replace, shrink, snapshot, checkpoint and wait");
  CHECK(said("rungs", {"up"}) == q + "a rung is \"up\"; rungs are hot, replace, shrink, snapshot, checkpoint and wait");
  CHECK(said("rungs", {"wait", "hot", "wait"}) == q + "the rung wait is there twice");
  CHECK(said("rungs", json(std::vector<std::string_view>(std::begin(rung_names), std::end(rung_names)))) == "accepted");
  CHECK(said("factor", -0.5) == q + "factor is -0.5" + number);
  CHECK(said("factor", nullptr) == q + "factor is null" + number);
  CHECK(said("wait", "2") == q + "wait is \"2\"" + number);
  CHECK(said("windows", 0) == q + "windows is 0" + whole);
  CHECK(said("min", 0) == q + "min is 0" + whole);
  CHECK(said("min", 1) == "accepted");
  CHECK(said("axes", 3) == q + "axes is 3; it is a text");
}

TEST_CASE("whatever a situation says in place of what it should is named, with what it should be") {
  const std::string whole = "; it is a whole number from 0 to 9223372036854775807",
                    twice = " is there twice; a member has one place, or is a spare";
  const struct {
    const char* at;
    json value;
    std::string sentence;
  } cases[] = {
      {"", 3, "a question of what to decide is 3; it is an object"},
      {"/x", 3, "a question of what to decide has the unknown key 'x'; the keys are policy, situation"},
      {"/policy", 3, "policy is 3; it is an object"},
      {"/situation", 3, "situation is 3; it is an object"},
      {"/situation/x", 3,
       "situation has the unknown key 'x'; the keys are model, layout, version, members, spares, waited, snapshots, "
       "checkpoint"},
      {"/situation/model", 3, "model is 3; it is a text"},
      {"/situation/layout", nullptr, "layout is null; it is a text"},
      {"/situation/version", -1, "version is -1" + whole},
      {"/situation/members", 3, "members is 3; it is a list of objects with name, dead, empty and steps"},
      {"/situation/members/0", 3, "a member is 3; it is an object"},
      {"/situation/members/0/x", 3, "a member has the unknown key 'x'; the keys are name, dead, empty, steps"},
      {"/situation/members/0/name", 3, "name is 3; it is a name"},
      {"/situation/members/0/name", "", "name: name: a name has 1 to 63 characters, and this one has 0"},
      {"/situation/members/0/dead", 0, "dead is 0; it is true or false"},
      {"/situation/members/0/empty", "no", "empty is \"no\"; it is true or false"},
      {"/situation/members/0/steps", 3, "steps is 3; it is a list of seconds"},
      {"/situation/members/0/steps/0", -0.5, "a step took -0.5; it is a number of seconds, 0 or more"},
      {"/situation/members/0/steps/0", nullptr, "a step took null; it is a number of seconds, 0 or more"},
      {"/situation/members/1", {{"name", "a"}}, "a" + twice},
      {"/situation/spares", 3, "spares is 3; it is a list of names"},
      {"/situation/spares/0", 3, "a spare is 3; it is a name"},
      {"/situation/spares/1", "x", "x" + twice},
      {"/situation/spares/1", "a", "a" + twice},
      {"/situation/waited", true, "waited is true; it is a number, 0 or more"},
      {"/situation/snapshots", 3, "snapshots is 3; it is a list of objects with of, at and version"},
      {"/situation/snapshots/0", 3, "a snapshot is 3; it is an object"},
      {"/situation/snapshots/0", {{"of", "a"}, {"at", "b"}}, "version is missing"},
      {"/situation/snapshots/0/x", 3, "a snapshot has the unknown key 'x'; the keys are of, at, version"},
      {"/situation/snapshots/0/of", 3, "of is 3; it is a name"},
      {"/situation/snapshots/0/at", 3, "at is 3; it is a name"},
      {"/situation/snapshots/0/version", -1, "version is -1" + whole},
      {"/situation/checkpoint", 3, "checkpoint is 3; it is an object"},
      {"/situation/checkpoint/x", 3, "checkpoint has the unknown key 'x'; the keys are name, version"},
      {"/situation/checkpoint/version", -1, "version is -1" + whole}};
  for (const auto& c : cases) {
    CAPTURE(c.at);
    CHECK(of_question(with(c.at, c.value)) == "reshard: q: " + c.sentence);
  }
  CHECK(of_question("{}") == "reshard: q: situation is missing");
  CHECK(of_question(with("/situation", {{"layout", ""}})) == "reshard: q: members is missing");
  CHECK(of_question(with("/situation", {{"layout", ""}, {"members", json::array()}})) ==
        "reshard: q: model is missing");
}

TEST_CASE("of every list of a situation 4096 entries are looked at, and one more is refused") {
  const json snapshot = {{"of", "a"}, {"at", "b"}, {"version", 1}};
  const auto check = [](const char* at, const json& list, const std::string& what) {
    json more = list;
    more.push_back(list[0]);
    CHECK(of_question(with(at, list)).find("looked at") == std::string::npos);
    CHECK(of_question(with(at, more)) == "reshard: q: " + what + " has 4097 entries; at most 4096 are looked at");
  };
  check("/situation/members", many(4096, {{"name", "m"}}), "members");
  check("/situation/spares", many(4096, "s"), "spares");
  check("/situation/members/0/steps", many(4096, 1), "steps");
  check("/situation/snapshots", many(4096, snapshot), "snapshots");
}

TEST_CASE("a decision is written with its rung, world and layout, or null, and why each rung before was not taken") {
  const auto said = [](const elastic_decision& d) {
    return written([&](text_output& out) { write_decision_json(out, d); });
  };
  CHECK(said({}) == "{\"rung\":null,\"world\":null,\"layout\":null,\"because\":[]}\n");
  CHECK(said({.taken = rung::wait, .because = {{rung::hot, "a \"b\""}, {rung::shrink, "c"}}}) ==
        "{\"rung\":\"wait\",\"world\":null,\"layout\":null,\"because\":[{\"rung\":\"hot\",\"not\":\"a \\\"b\\\"\"},"
        "{\"rung\":\"shrink\",\"not\":\"c\"}]}\n");
  CHECK(said({.taken = rung::replace, .world = {"x", "b"}, .layout = parse_degrees("dp=2")}) ==
        "{\"rung\":\"replace\",\"world\":[\"x\",\"b\"],\"layout\":\"dp=2\",\"because\":[]}\n");
}
