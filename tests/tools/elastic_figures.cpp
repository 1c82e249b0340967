// SPDX-License-Identifier: Apache-2.0
// What the demo of elastic jobs says of logs, on logs that were written by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include <reshard/base/digest.hpp>
#include <reshard/base/refusal.hpp>

#include "../../tools/lib/elastic/demo_figures.hpp"
#include "../../tools/lib/elastic/demo_judge.hpp"
#include "../support/own_folder.hpp"

namespace {

using namespace elastic;

event_list list_of(const std::string& text) {
  event_list all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all.push_back(parse_event(line, "hand"));
  return all;
}
std::string sentence_of(const event_list& deeds, const event_list& workers) {
  try {
    static_cast<void>(figures_of(deeds, workers));
  } catch (const reshard::refusal& why) {
    return why.what();
  }
  return {};
}

// a and b found; c joins: a ends its last step at 10, its next ones at 13, 14, 15.5, 16, so 1 s is usual; b pauses for
// less. Then a is killed at 20; b names it at 20.25, c at 20.5, and b begins again.
const std::string workers = R"({"t":9.0,"id":"a","ev":"step","epoch":1,"step":0,"sum":1}
{"t":10.0,"id":"a","ev":"step","epoch":1,"step":1,"sum":1}
{"t":12.0,"id":"a","ev":"world","epoch":2,"members":["a","b","c"],"layout":"dp=3","switch":0.5}
{"t":13.0,"id":"a","ev":"step","epoch":2,"step":2,"sum":1}
{"t":14.0,"id":"a","ev":"step","epoch":2,"step":3,"sum":1}
{"t":15.5,"id":"a","ev":"step","epoch":2,"step":4,"sum":1}
{"t":16.0,"id":"a","ev":"step","epoch":2,"step":5,"sum":1}
{"t":10.5,"id":"b","ev":"step","epoch":1,"step":1,"sum":1}
{"t":12.0,"id":"b","ev":"world","epoch":2,"members":["a","b","c"],"layout":"dp=3","switch":0.25}
{"t":13.0,"id":"b","ev":"step","epoch":2,"step":2,"sum":1}
{"t":14.0,"id":"b","ev":"step","epoch":2,"step":3,"sum":1}
{"t":17.0,"id":"b","ev":"gone","who":"z","by":"eof","after":0.1}
{"t":20.25,"id":"b","ev":"broken","epoch":2,"why":"z, y and a","version":4}
{"t":20.75,"id":"b","ev":"gone","who":"a","by":"eof","after":0.1}
{"t":21.0,"id":"b","ev":"world","epoch":3,"members":["b","c"],"layout":"dp=2","switch":0.125}
{"t":22.0,"id":"b","ev":"step","epoch":3,"step":4,"sum":1}
{"t":23.0,"id":"b","ev":"step","epoch":3,"step":5,"sum":1}
{"t":12.0,"id":"c","ev":"world","epoch":2,"members":["a","b","c"],"layout":"dp=3","switch":7.0}
{"t":13.0,"id":"c","ev":"step","epoch":2,"step":2,"sum":1}
{"t":14.0,"id":"c","ev":"step","epoch":2,"step":3,"sum":1}
{"t":19.0,"id":"c","ev":"gone","who":"a","by":"silence","after":0.1}
{"t":20.5,"id":"c","ev":"gone","who":"a","by":"eof","after":0.1}
{"t":21.0,"id":"c","ev":"world","epoch":3,"members":["b","c"],"layout":"dp=2","switch":0.0625}
{"t":21.5,"id":"c","ev":"step","epoch":3,"step":4,"sum":1}
{"t":22.75,"id":"c","ev":"step","epoch":3,"step":5,"sum":1}
)";
const std::string deeds = R"({"t":11.0,"id":"demo","ev":"asked","what":"join","who":"c","text":"done"}
{"t":20.0,"id":"demo","ev":"killed","what":"kill","who":"a"}
{"t":24.0,"id":"demo","ev":"asked","what":"finish","who":"","text":"done"}
{"t":25.0,"id":"demo","ev":"exit","who":"a","code":-9}
)";

/// A job of two steps of two samples that is right: a founds it alone, b joins it after one, c is killed before.
event_list right_job() {
  const auto sum = [](int begin) {
    return std::to_string(reshard::mix64(static_cast<std::uint64_t>(begin)) +
                          reshard::mix64(static_cast<std::uint64_t>(begin) + 1));
  };
  const auto w = [](const char* id, const char* epoch, const char* rest) {
    return std::string("{\"t\":1.0,\"id\":\"") + id + "\",\"ev\":\"world\",\"epoch\":" + epoch + rest + "\n";
  };
  const std::string one = R"(,"members":["a"],"layout":"","first_step":0,"cursor":0,"batch":2,"why":"","switch":0.0})";
  const std::string two =
      R"(,"members":["a","b"],"layout":"dp=2","first_step":1,"cursor":2,"batch":2,"why":"","switch":0.0})";
  return list_of(R"({"t":0.0,"id":"a","ev":"start","pid":1,"addr":""}
{"t":0.0,"id":"b","ev":"start","pid":2,"addr":""}
{"t":0.0,"id":"c","ev":"start","pid":3,"addr":""}
)" + w("a", "1", one.c_str()) +
                 w("a", "2", two.c_str()) + w("b", "2", two.c_str()) +
                 R"({"t":1.0,"id":"a","ev":"samples","epoch":1,"step":0,"dp":0,"of":1,"begin":0,"end":2}
{"t":1.0,"id":"a","ev":"samples","epoch":1,"step":1,"dp":0,"of":1,"begin":2,"end":4}
{"t":1.0,"id":"a","ev":"samples","epoch":2,"step":1,"dp":0,"of":2,"begin":2,"end":3}
{"t":1.0,"id":"b","ev":"samples","epoch":2,"step":1,"dp":1,"of":2,"begin":3,"end":4}
{"t":1.0,"id":"a","ev":"step","epoch":1,"step":0,"sum":)" +
                 sum(0) + R"(}
{"t":1.0,"id":"b","ev":"step","epoch":2,"step":1,"sum":)" +
                 sum(2) + R"(}
{"t":2.0,"id":"a","ev":"end","why":"done","version":2,"digests":{"param x":18446744073709551615}}
{"t":2.0,"id":"b","ev":"end","why":"done","version":2,"digests":{}}
)");
}
const std::string right_deeds = R"({"t":1.0,"id":"demo","ev":"killed","what":"kill","who":"c"}
{"t":3.0,"id":"demo","ev":"exit","who":"a","code":0}
{"t":3.0,"id":"demo","ev":"exit","who":"b","code":0}
{"t":3.0,"id":"demo","ev":"exit","who":"c","code":-9}
)";
bool said(const job_verdict& v, const std::string& words) {
  return std::any_of(v.wrong.begin(), v.wrong.end(), [&](const std::string& w) { return w.find(words) != w.npos; });
}

}  // namespace

TEST_CASE("figures of a join and of a death, from lines alone") {
  const auto all = figures_of(list_of(deeds), list_of(workers));
  REQUIRE(all.size() == 2);
  CHECK(all[0].what == "join");
  CHECK(all[0].epoch == 2);
  CHECK(all[0].pause == 2.0);     // a: 13 - 10 - 1; b: 13 - 10.5 - 1; c has no step before
  CHECK(all[0].switched == 0.5);  // c, who came, waited for the others
  CHECK(!all[0].detection);
  CHECK(!all[0].recovery);
  CHECK(all[1].epoch == 3);
  CHECK(all[1].pause == 7.0);  // b: 22 - 14 - 1; c: 21.5 - 14 - 1.25; a died
  CHECK(all[1].switched == 0.125);
  CHECK(all[1].detection == 0.25);  // b, by a line that names two; c had suspected it before it was killed
  CHECK(all[1].known == 0.5);
  CHECK(all[1].recovery == 1.5);
}

TEST_CASE("the median of an even number of steps is between two") {
  event_list lines = list_of(workers);
  std::erase_if(lines, [](const log_event& e) { return e.id == "a" && e.ev == "step" && e.t == 16.0; });
  CHECK(figures_of(list_of(deeds), lines)[0].pause == 1.75);  // 1 and 1.5
}

TEST_CASE("figures that logs do not bear are refused") {
  const event_list all = list_of(workers), asked = list_of(deeds);
  const auto without = [&](auto&& which) {
    event_list left = all;
    std::erase_if(left, which);
    return sentence_of(asked, left);
  };
  CHECK(sentence_of(asked, all).empty());
  CHECK(without([](const log_event& e) { return e.ev == "world" && e.epoch >= 2; }) ==
        "reshard: no world follows join c");
  CHECK(without([](const log_event& e) { return e.epoch == 3; }) == "reshard: no world follows kill a");
  CHECK(without([](const log_event& e) { return e.id == "c" && e.ev == "gone" && e.t > 20; }) ==
        "reshard: c goes on after the death of a and never named it");
  CHECK(without([](const log_event& e) { return e.ev == "step" && e.t == 23.0; }) ==
        "reshard: b ended one step after kill a, and no usual one");
  CHECK(without([](const log_event& e) { return e.ev == "step" && e.epoch == 1; }) ==
        "reshard: nobody ended steps both before and after join c");
}

TEST_CASE("which world a deed led to") {
  const event_list all = list_of(workers);
  const auto epoch = [&](const char* what, const char* who, const char* by, index_t after) {
    return epoch_of({.ev = "asked", .what = what, .who = who, .by = by}, all, after);
  };
  CHECK(epoch("join", "c", "", 1) == 2);
  CHECK(epoch("join", "c", "", 2) == 3);
  CHECK(epoch("join", "d", "", 1) == 0);
  CHECK(epoch("leave", "a", "", 1) == 3);
  CHECK(epoch("leave", "b", "", 1) == 0);
  CHECK(epoch("replace", "a", "c", 1) == 3);
  CHECK(epoch("replace", "a", "d", 1) == 0);
}

TEST_CASE("a history that is right, and what is told of others") {
  const event_list asked = list_of(right_deeds);
  const job_verdict right = judge_history(asked, right_job());
  CHECK(right.wrong.empty());
  CHECK(right.steps == 2);
  CHECK(right.samples == 4);
  const auto doctored = [&](auto&& change, const char* words) {
    event_list lines = right_job(), told = asked;
    change(lines, told);
    const job_verdict v = judge_history(told, lines);
    INFO(words);
    CHECK(said(v, words));
  };
  // lines 0-2 start, 3-5 world, 6-9 samples, 10-11 step, 12-13 end; the step of epoch 1 that was begun in vain is none
  doctored([](event_list& l, event_list&) { l[9].begin = 2; }, "step 1: b begins with sample 2, not 3");
  doctored([](event_list& l, event_list&) { l[9].end = 3; }, "step 1: samples end at 3, not 4");
  doctored([](event_list& l, event_list&) { l.erase(l.begin() + 6); },
           "step 0: samples end at 0, not 2, by 0 of 0 ranks");
  doctored([](event_list& l, event_list&) { l[8].of = l[9].of = 3; }, "by 2 of 3 ranks");
  doctored([](event_list& l, event_list&) { l[9].dp = 0; }, "a and b take other samples in step 1");
  doctored([](event_list& l, event_list&) { ++l[11].sum; }, "the sum of b in step 1 is not that of its samples");
  doctored([](event_list& l, event_list&) { l[5].first_step = 0; }, "epoch 2 is one world to a and another to b");
  doctored([](event_list& l, event_list&) { l[4].cursor = l[5].cursor = 3; }, "epoch 2 begins at step 1 with sample 3");
  doctored([](event_list& l, event_list&) { l[13].version = 1; }, "done with version 2, and with 1 to b");
  doctored([](event_list& l, event_list&) { l.pop_back(); }, "b ends as '', expected is 'done'");
  doctored([](event_list& l, event_list&) { l.resize(12); }, "nobody says that the job is done");
  doctored([](event_list& l, event_list&) { l.push_back(l[13]); }, "b ends twice");
  doctored([](event_list& l, event_list&) { l.clear(); }, "no world was ever entered");
  doctored([](event_list&, event_list& d) { d[2].code = 4; }, "b ends with 4, not 0");
  doctored([](event_list&, event_list& d) { d[3].code = 0; }, "c ends with 0, not -9");
  doctored([](event_list&, event_list& d) { d.pop_back(); }, "no exit code is told of c");
  doctored([](event_list&, event_list& d) { d.erase(d.begin()); }, "c ends as '', expected is 'left'");
  doctored([](event_list&,
              event_list& d) { d.push_back({.ev = "asked", .what = "join", .who = "b", .text = "failed: so"}); },
           "join b is answered 'failed: so'");
}

TEST_CASE("logs are read as they come, whole lines alone, and who did it apart") {
  const testing::own_folder folder;
  std::ofstream a(folder.path + "/a.log"), other(folder.path + "/a.out");
  log_reader logs(folder.path);
  other << "no log\n" << std::flush;
  a << R"({"t":1.5,"id":"a","ev":"start","pid":1,"addr":""})"
    << "\n{\"t\":2" << std::flush;
  logs.look();
  REQUIRE(logs.workers().size() == 1);
  CHECK(logs.workers()[0].t == 1.5);
  CHECK_THROWS_WITH_AS(logs.look(look_for::the_end), doctest::Contains("has no demo.log"), reshard::refusal);
  std::ofstream(folder.path + "/demo.log") << R"({"t":3.0,"id":"demo","ev":"killed","what":"kill","who":"a"})"
                                           << "\n";
  CHECK_THROWS_WITH_AS(logs.look(look_for::the_end), "reshard: the log of a ends within a line", reshard::refusal);
  a << R"(.5,"id":"a","ev":"end","why":"left","version":3,"digests":{"param x":18446744073709551615}})"
    << "\n"
    << std::flush;
  logs.look(look_for::the_end);
  REQUIRE(logs.workers().size() == 2);
  CHECK(logs.workers()[1].t == 2.5);
  CHECK(logs.workers()[1].digests.at("param x") == ~std::uint64_t{0});
  REQUIRE(logs.deeds().size() == 1);
  CHECK(logs.deeds()[0].who == "a");
  for (const char* line : {"[1]", "{}", R"({"t":1.0,"id":"a","ev":"step","epoch":"one"})", "rust",
                           R"({"t":1.0,"id":"a","ev":"step","sum":18446744073709551616})",
                           R"({"t":1.0,"id":"a","ev":"end","digests":{"param x":-1}})"})
    CHECK_THROWS_WITH_AS(parse_event(line, "a"), doctest::Contains("the log of a has a line that is none of it"),
                         reshard::refusal);
}
