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
