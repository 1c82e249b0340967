// SPDX-License-Identifier: Apache-2.0
// `reshard elastic machine|standing|decide`: answers as they are printed; every fault of a question in one sentence, by
// the reader and by the tool; damaged questions, none of which ends otherwise.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/elastic_json.hpp>

#include "../oracle/job_machine.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"
#include "process.hpp"

using namespace reshard;
using namespace reshard::io;
using nlohmann::json;
using testing::answer, testing::ask, testing::dice, testing::refused;

namespace {

std::string standing_answer(const std::string& text) {
  text_output out;
  write_target_json(out, target(standings_from_json(text, "q")));
  return out.text();
}
std::string decide_answer(const std::string& text) {
  const decide_question asked = decide_from_json(text, "q");
  text_output out;
  write_decision_json(out, decide(asked.policy, asked.situation));
  return out.text();
}
/// What a question is refused with, behind its name.
std::string fault(std::string (*answer_of)(const std::string&), const std::string& text) {
  const std::string sentence = refused([&] { static_cast<void>(answer_of(text)); });
  return sentence.starts_with("reshard: q: ") ? sentence.substr(12) : sentence;
}
/// A question of two members, with more in its situation and its policy.
std::string question(const std::string& situation = "", const std::string& policy = "") {
  return R"({"policy":{)" + policy +
         R"(},"situation":{"model":"gpt3-1.3b","layout":"dp=2","version":7,"members":[{"name":"a"},)" +
         R"({"name":"b","dead":true}])" + (situation.empty() ? "" : ",") + situation + "}}";
}

const char* const two = R"([{"member":"a","version":7,"stage":2},{"member":"b","version":7,"stage":1}])";

}  // namespace

TEST_CASE("the table as JSON is the contract's") {
  text_output out;
  write_machine_json(out);
  const json said = json::parse(out.text());
  const oracle::job_machine twin;
  CHECK(said.size() == 3);
  CHECK(said["phases"].size() == twin.phases().size());
  CHECK(said["events"].size() == twin.events().size());
  CHECK(said["table"].size() == twin.rows());
  for (const json& row : said["table"]) {
    CHECK(row.size() == 4);
    CHECK(twin.has(row["from"], row["event"]));
    CHECK(twin.after(row["from"], row["event"]) == oracle::job_machine::answer{row["to"], row["epoch"]});
  }
  CHECK(out.text().starts_with(R"({"phases":["founding","idle","proposed")"));
}

TEST_CASE("targets as they are told") {
  CHECK(standing_answer(two) == "{\"target\":8,\"updates\":[\"b\"],\"empty\":[],\"refused\":null}\n");
  CHECK(standing_answer(R"([{"member":"a","version":7,"stage":0},{"member":"b","version":null,"stage":0}])") ==
        "{\"target\":7,\"updates\":[],\"empty\":[\"b\"],\"refused\":null}\n");
  CHECK(standing_answer(R"([{"member":"a","version":7,"stage":2},{"member":"b","version":7,"stage":0}])") ==
        "{\"target\":null,\"updates\":[],\"empty\":[],\"refused\":\"a is at version 7, stage 2, and b is at version 7, "
        "stage 0; the scalar on one member proves the gradients on all\"}\n");
  CHECK(standing_answer("[]") ==
        "{\"target\":null,\"updates\":[],\"empty\":[],\"refused\":\"nobody tells a standing\"}\n");
}

TEST_CASE("decisions as they are told") {
  CHECK(decide_answer(question("", R"("rungs":["replace","shrink"],"axes":"dp")")) ==
        R"({"rung":"shrink","world":["a"],"layout":"","because":[{"rung":"replace","not":)"
        R"("0 spares are registered for 1 dead member"}]})"
        "\n");
  CHECK(decide_answer(question(R"("spares":["x"])", R"("rungs":["replace"])")) ==
        "{\"rung\":\"replace\",\"world\":[\"a\",\"x\"],\"layout\":\"dp=2\",\"because\":[]}\n");
  CHECK(decide_answer(question("", R"("rungs":["wait"])")) ==
        "{\"rung\":\"wait\",\"world\":null,\"layout\":null,\"because\":[]}\n");
  CHECK(decide_answer(question(R"("waited":3)", R"("rungs":["wait"],"wait":2.5)")) ==
        "{\"rung\":null,\"world\":null,\"layout\":null,\"because\":[{\"rung\":\"wait\",\"not\":\"waited 3 of 2.5 "
        "s\"}]}\n");
}

TEST_CASE("every key of a question is read") {
  const decide_question q = decide_from_json(
      R"({"policy":{"rungs":["wait","hot"],"factor":1.5,"windows":4,"wait":9,"min":2,"axes":"tp,dp"},"situation":{)"
      R"("model":"gpt3-1.3b","layout":"tp=2","version":7,)"
      R"("members":[{"name":"a","steps":[1,2.5]},{"name":"b","empty":true}],)"
      R"("spares":["x"],"waited":2,"snapshots":[{"of":"a","at":"x","version":6}],)"
      R"("checkpoint":{"name":"c","version":3}}})",
      "q");
  CHECK(q.policy.rungs == std::vector<rung>{rung::wait, rung::hot});
  CHECK(q.policy.factor == 1.5);
  CHECK(q.policy.windows == 4);
  CHECK(q.policy.wait == 9);
  CHECK(q.policy.min == 2);
  CHECK(q.policy.axes == varied_axes{layout_key::tp, layout_key::dp});
  CHECK(q.situation.layout.tp == 2);
  CHECK(q.situation.version == 7);
  CHECK(q.situation.members[0].steps == std::vector<double>{1, 2.5});
  CHECK_FALSE(q.situation.members[0].empty);
  CHECK(q.situation.members[1].empty);
  CHECK(q.situation.spares == member_list{"x"});
  CHECK(q.situation.waited == 2);
  CHECK(q.situation.snapshots[0].at == "x");
  CHECK(q.situation.snapshots[0].version == 6);
  CHECK(q.situation.checkpoint == 3);
}

TEST_CASE("what a question about standings must not say") {
  const auto f = [](const std::string& text) { return fault(standing_answer, text); };
  CHECK(f("{}") == "a question about standings is {}; it is a list of objects with member, version and stage");
  CHECK(f("[3]") == "a standing is 3; it is an object");
  CHECK(f(R"([{"member":"a","version":1}])") == "stage is missing");
  CHECK(f(R"([{"member":"a","stage":1}])") == "version is missing");
  CHECK(f(R"([{"version":1,"stage":1}])") == "member is missing");
  CHECK(f(R"([{"member":3,"version":1,"stage":1}])") == "member is 3; it is a name");
  CHECK(f(R"([{"member":"","version":1,"stage":1}])") ==
        "member: name: a name has 1 to 63 characters, and this one has 0");
  CHECK(f(R"([{"member":"a","version":1,"stage":3}])") == "stage is 3; it is a whole number from 0 to 2");
  CHECK(f(R"([{"member":"a","version":-1,"stage":0}])") ==
        "version is -1; it is a whole number from 0 to 9223372036854775806");
  CHECK(f("[" + std::string(2, ' ')).starts_with("not JSON: "));
  std::string many = "[";
  for (int i = 0; i < 4097; ++i) many += i == 0 ? "0" : ",0";
  CHECK(f(many + "]") == "the list of standings has 4097 entries; at most 4096 are looked at");
}

TEST_CASE("what a question of what to decide must not say") {
  const auto f = [](const std::string& text) { return fault(decide_answer, text); };
  const auto s = [&](const std::string& more) { return f(question(more)); };
  const auto p = [&](const std::string& more) { return f(question("", more)); };
  CHECK(f("{}") == "situation is missing");
  CHECK(f(R"({"situation":{"layout":""}})") == "members is missing");
  CHECK(f(R"({"situation":{"layout":"","members":[{"name":"a"}]}})") == "model is missing");
  CHECK(f(R"({"situation":{"layout":3}})") == "layout is 3; it is a text");
  CHECK(f(R"({"situation":{"layout":"","members":[{}]}})") == "name is missing");
  CHECK(s(R"("spares":["a"])") == "a is there twice; a member has one place, or is a spare");
  CHECK(s(R"("waited":-1)") == "waited is -1; it is a number, 0 or more");
  CHECK(s(R"("snapshots":[{"of":"a","at":"b"}])") == "version is missing");
  CHECK(s(R"("checkpoint":{"name":"c"})") == "version is missing");
  CHECK(s(R"("x":1)").starts_with("situation has the unknown key 'x'; the keys are model, layout, version"));
  CHECK(p(R"("rungs":["up"])") == "a rung is \"up\"; rungs are hot, replace, shrink, snapshot, checkpoint and wait");
  CHECK(p(R"("rungs":["hot","hot"])") == "the rung hot is there twice");
  CHECK(p(R"("windows":0)").starts_with("windows is 0; it is a whole number from 1 to "));
  CHECK(p(R"("factor":"2")") == "factor is \"2\"; it is a number, 0 or more");
  CHECK(f(R"({"situation":{"layout":"","members":[{"name":"a","dead":1}]}})") == "dead is 1; it is true or false");
  CHECK(f(R"({"situation":{"layout":"","members":[{"name":"a","steps":[-1]}]}})") ==
        "a step took -1; it is a number of seconds, 0 or more");
  CHECK(f(R"({"situation":{"model":"gpt3-1.3b","layout":"","members":[]}})") ==
        "reshard: decide: 0 members, and the layout has 1 ranks");
}

TEST_CASE("whatever a question of what to decide says in place of what it should is named, with what it should be") {
  const json good = json::parse(
      R"({"policy":{"rungs":["wait"],"factor":1,"windows":1,"wait":1,"min":1,"axes":"dp"},"situation":{)"
      R"("model":"gpt3-1.3b","layout":"","version":0,"members":[{"name":"a","dead":false,"empty":false,"steps":[1]}],)"
      R"("spares":["x"],"waited":0,"snapshots":[{"of":"a","at":"a","version":0}],)"
      R"("checkpoint":{"name":"c","version":0}}})");
  const auto said = [&](const char* at, const json& value) {
    json other = good;
    other[json::json_pointer(at)] = value;
    return refused([&] { static_cast<void>(decide_from_json(other.dump(), "q")); });
  };
  const std::string whole = "; it is a whole number from ", most = " to 9223372036854775807",
                    number = "; it is a number, 0 or more", list = "; it is a list of ";
  const struct {
    const char* at;
    json value;
    std::string sentence;
  } cases[] = {
      {"", 3, "a question of what to decide is 3; it is an object"},
      {"/x", 3, "a question of what to decide has the unknown key 'x'; the keys are policy, situation"},
      {"/policy", 3, "policy is 3; it is an object"},
      {"/policy/x", 3, "policy has the unknown key 'x'; the keys are rungs, factor, windows, wait, min, axes"},
      {"/policy/rungs", 3, "rungs is 3" + list + "names of rungs"},
      {"/policy/rungs/0", 3, "a rung is 3; rungs are hot, replace, shrink, snapshot, checkpoint and wait"},
      {"/policy/rungs/1", "wait", "the rung wait is there twice"},
      {"/policy/factor", -0.5, "factor is -0.5" + number},
      {"/policy/factor", nullptr, "factor is null" + number},
      {"/policy/wait", "2", "wait is \"2\"" + number},
      {"/policy/windows", 0, "windows is 0" + whole + "1" + most},
      {"/policy/min", 0, "min is 0" + whole + "1" + most},
      {"/policy/min", 1.5, "min is 1.5" + whole + "1" + most},
      {"/policy/axes", 3, "axes is 3; it is a text"},
      {"/situation", 3, "situation is 3; it is an object"},
      {"/situation/x", 3,
       "situation has the unknown key 'x'; the keys are model, layout, version, members, spares, waited, snapshots, "
       "checkpoint"},
      {"/situation/model", 3, "model is 3; it is a text"},
      {"/situation/layout", nullptr, "layout is null; it is a text"},
      {"/situation/version", -1, "version is -1" + whole + "0" + most},
      {"/situation/members", 3, "members is 3" + list + "objects with name, dead, empty and steps"},
      {"/situation/members/0", 3, "a member is 3; it is an object"},
      {"/situation/members/0/x", 3, "a member has the unknown key 'x'; the keys are name, dead, empty, steps"},
      {"/situation/members/0/name", 3, "name is 3; it is a name"},
      {"/situation/members/0/name", "", "name: name: a name has 1 to 63 characters, and this one has 0"},
      {"/situation/members/0/dead", 0, "dead is 0; it is true or false"},
      {"/situation/members/0/empty", "no", "empty is \"no\"; it is true or false"},
      {"/situation/members/0/steps", 3, "steps is 3" + list + "seconds"},
      {"/situation/members/0/steps/0", -0.5, "a step took -0.5; it is a number of seconds, 0 or more"},
      {"/situation/members/0/steps/0", nullptr, "a step took null; it is a number of seconds, 0 or more"},
      {"/situation/members/1", {{"name", "a"}}, "a is there twice; a member has one place, or is a spare"},
      {"/situation/spares", 3, "spares is 3" + list + "names"},
      {"/situation/spares/0", 3, "a spare is 3; it is a name"},
      {"/situation/spares/1", "x", "x is there twice; a member has one place, or is a spare"},
      {"/situation/waited", true, "waited is true" + number},
      {"/situation/snapshots", 3, "snapshots is 3" + list + "objects with of, at and version"},
      {"/situation/snapshots/0", 3, "a snapshot is 3; it is an object"},
      {"/situation/snapshots/0/x", 3, "a snapshot has the unknown key 'x'; the keys are of, at, version"},
      {"/situation/snapshots/0/of", 3, "of is 3; it is a name"},
      {"/situation/snapshots/0/at", 3, "at is 3; it is a name"},
      {"/situation/snapshots/0/version", -1, "version is -1" + whole + "0" + most},
      {"/situation/checkpoint", 3, "checkpoint is 3; it is an object"},
      {"/situation/checkpoint/x", 3, "checkpoint has the unknown key 'x'; the keys are name, version"},
      {"/situation/checkpoint/version", -1, "version is -1" + whole + "0" + most}};
  CHECK(said("/situation/waited", 0) == "accepted");
  for (const auto& c : cases) CHECK(said(c.at, c.value) == "reshard: q: " + c.sentence);
  for (const char* fine : {"/situation/checkpoint", "/policy/factor", "/policy/wait", "/situation/members/0/steps/0"})
    CHECK(said(fine, std::string(fine).ends_with("checkpoint") ? json(nullptr) : json(0)) == "accepted");
}

TEST_CASE("keys that may be missing have what a policy and a situation have by themselves, and the others are named") {
  const json good =
      json::parse(R"({"situation":{"model":"gpt3-1.3b","layout":"tp=2","members":[{"name":"a"},{"name":"b"}]}})");
  const decide_question q = decide_from_json(good.dump(), "q");
  const elastic_policy usual;
  const auto is_usual = [&](const elastic_policy& p) {
    return p.rungs == usual.rungs && p.factor == usual.factor && p.windows == usual.windows && p.wait == usual.wait &&
           p.min == usual.min && p.axes == usual.axes;
  };
  CHECK(is_usual(q.policy));
  CHECK(is_usual(policy_from_json("{}", "p")));
  CHECK(policy_from_json(R"({"rungs":[],"min":3})", "p").rungs.empty());
  CHECK(policy_from_json(R"({"rungs":[],"min":3})", "p").min == 3);
  CHECK(policy_from_json(R"({"rungs":[],"min":3})", "p").factor == usual.factor);
  CHECK(refused([] { static_cast<void>(policy_from_json("[]", "p")); }) == "reshard: p: policy is []; it is an object");
  CHECK(q.situation.version == 0);
  CHECK(q.situation.waited == 0);
  CHECK(q.situation.spares.empty());
  CHECK(q.situation.snapshots.empty());
  CHECK_FALSE(q.situation.checkpoint.has_value());
  for (const seen_member& m : q.situation.members) CHECK((!m.dead && !m.empty && m.steps.empty()));
  for (const char* key : {"model", "layout", "members"}) {
    json without = good;
    without["situation"].erase(key);
    CHECK(refused([&] { static_cast<void>(decide_from_json(without.dump(), "q")); }) ==
          "reshard: q: " + std::string(key) + " is missing");
  }
  for (const char* key : {"of", "at", "version"}) {
    json with = good;
    with["situation"]["snapshots"] = {{{"of", "a"}, {"at", "b"}, {"version", 1}}};
    with["situation"]["snapshots"][0].erase(key);
    CHECK(refused([&] { static_cast<void>(decide_from_json(with.dump(), "q")); }) ==
          "reshard: q: " + std::string(key) + " is missing");
  }
}

TEST_CASE("of every list 4096 entries are looked at, and one more is refused") {
  const auto names = [](int count, const char* of, bool objects) {
    json all = json::array();
    for (int i = 0; i < count; ++i) {
      const std::string name = of + std::to_string(i);
      all.push_back(objects ? json{{"name", name}} : json(name));
    }
    return all;
  };
  for (const int count : {4096, 4097}) {
    const auto said = [&](const char* key, const json& list, const std::string& what) {
      json asked = {{"situation", {{"model", "gpt3-1.3b"}, {"layout", ""}, {"members", json::array()}}}};
      if (std::string(key) == "steps") asked["situation"]["members"] = {{{"name", "a"}, {"steps", list}}};
      else asked["situation"][key] = list;
      CHECK(refused([&] { static_cast<void>(decide_from_json(asked.dump(), "q")); }) ==
            (count == 4096 ? "accepted" : "reshard: q: " + what + " has 4097 entries; at most 4096 are looked at"));
    };
    const json snapshot = {{"of", "a"}, {"at", "b"}, {"version", 1}};
    const auto n = static_cast<std::size_t>(count);
    said("members", names(count, "m", true), "members");
    said("spares", names(count, "s", false), "spares");
    said("steps", json(std::vector<int>(n, 1)), "steps");
    said("snapshots", json(std::vector<json>(n, snapshot)), "snapshots");
    const json standings = json(std::vector<json>(n, {{"member", "a"}, {"version", 1}, {"stage", 0}}));
    CHECK((refused([&] { static_cast<void>(standings_from_json(standings.dump(), "q")); }) == "accepted") ==
          (count == 4096));
  }
}

TEST_CASE("standings are read as they are told, up to the highest version there can be") {
  const std::vector<standing> told = standings_from_json(
      R"([{"member":"a","version":9223372036854775806,"stage":0},{"member":"b","version":null,"stage":1},)"
      R"({"member":"c","version":0,"stage":2}])",
      "q");
  REQUIRE(told.size() == 3);
  CHECK(told[0].member == member_name("a"));
  CHECK(told[0].version == 9223372036854775806);
  CHECK(told[1].member == member_name("b"));
  CHECK(told[1].version == holds_nothing);
  CHECK(told[2].version == 0);
  for (std::size_t i = 0; i < 3; ++i) CHECK(static_cast<std::size_t>(told[i].stage) == i);
  const std::string asked = R"([{"member":"a","version":9223372036854775807,"stage":0}])";
  CHECK(fault(standing_answer, asked) ==
        "version is 9223372036854775807; it is a whole number from 0 to 9223372036854775806");
  CHECK(fault(standing_answer, R"([{"member":"a","version":1,"stage":-1}])") ==
        "stage is -1; it is a whole number from 0 to 2");
  CHECK(fault(standing_answer, R"([{"member":"a","version":1,"stage":1,"x":1}])") ==
        "a standing has the unknown key 'x'; the keys are member, version, stage");
}

TEST_CASE("sentences inside an answer are quoted as JSON has them, in one line of ASCII") {
  text_output target;
  write_target_json(target, {.version = 4, .updates = {"a", "b"}, .empty = {"c"}, .refused = "\"a\"\n\\\xc3\xa9\xff"});
  CHECK(
      target.text() ==
      "{\"target\":null,\"updates\":[\"a\",\"b\"],\"empty\":[\"c\"],\"refused\":\"\\\"a\\\"\\n\\\\\\u00e9\\ufffd\"}\n");
  elastic_decision d;
  d.taken = rung::checkpoint, d.world = {"b", "a"}, d.layout = parse_degrees("tp=2,zero=1");
  d.because = {{rung::hot, "no \"a\"\n"}, {rung::snapshot, ""}};
  text_output decision;
  write_decision_json(decision, d);
  CHECK(decision.text() ==
        "{\"rung\":\"checkpoint\",\"world\":[\"b\",\"a\"],\"layout\":\"tp=2,zero=1\",\"because\":["
        "{\"rung\":\"hot\",\"not\":\"no \\\"a\\\"\\n\"},{\"rung\":\"snapshot\",\"not\":\"\"}]}\n");
}

TEST_CASE("the tool answers, and refuses in one sentence") {
  const answer table = ask({"elastic", "machine"}), machine = ask({"elastic", "machine", "--json"});
  CHECK(table.code == 0);
  CHECK(table.out.starts_with("founding    found       idle        epoch + 1\nidle        ask         proposed\n"));
  text_output out;
  write_machine_json(out);
  CHECK(machine.out == out.text());
  CHECK(ask({"elastic", "standing", two}).out == standing_answer(two));
  CHECK(ask({"elastic", "decide", question(), "--json"}).out == decide_answer(question()));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"elastic", "standing", "[3]"},
                                                {"elastic", "standing", "{\"a\":"},
                                                {"elastic", "decide", "{}"},
                                                {"elastic", "decide", "no/such/file"},
                                                {"elastic", "machine", "more"}}) {
    const answer got = ask(words);
    CHECK(got.code == 1);
    CHECK(got.out.empty());
    CHECK(got.err.starts_with("reshard: "));
    CHECK(got.err.find('\n') == got.err.size() - 1);
  }
}

TEST_CASE("damaged questions: an answer or one sentence") {
  dice random(7);
  int answered = 0, refusals = 0;
  const std::string whole[] = {two, question(R"("spares":["x"],"snapshots":[{"of":"a","at":"b","version":7}])")};
  for (int i = 0; i < testing::tries(400); ++i) {
    std::string text = whole[i % 2];
    for (index_t n = random.below(3); n > 0; --n) {
      const auto at = static_cast<std::size_t>(random.below(std::ssize(text)));
      if (random.coin()) text[at] = "0-9{}[]\",:a."[random.below(12)];
      else text.erase(at, static_cast<std::size_t>(random.within(1, 8)));
      if (text.empty()) text = "x";
    }
    const std::string sentence =
        refused([&] { static_cast<void>(i % 2 == 0 ? standing_answer(text) : decide_answer(text)); });
    ++(sentence == "accepted" ? answered : refusals);
    CHECK((sentence == "accepted" || sentence.starts_with("reshard: ")));
    CHECK(sentence.find('\n') == std::string::npos);
  }
  std::printf("%d answered, %d refused of %d damaged questions\n", answered, refusals, testing::tries(400));
  CHECK_DRAWN(answered > testing::tries(400) / 40);
  CHECK_DRAWN(refusals > testing::tries(400) / 4);
}
