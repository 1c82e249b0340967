// SPDX-License-Identifier: Apache-2.0
// Questions about a cursor and their answers, by hand: shares of the steps that stand, with the elements of passes that
// are permutations, and with pieces of documents. (io/elastic.cpp asks random and hostile ones.)
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/cursor_json.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using namespace reshard::io;

namespace {
std::string cursor_said(const std::string& asked, samples_told samples = samples_told::no) {
  text_output out;
  write_cursor_json(out, cursor_from_json("{" + asked + "}", "c.json"), samples);
  return out.text();
}
/// The elements of every share, one after the other.
std::vector<index_t> elements_said(const std::string& asked) {
  std::vector<index_t> all;
  const nlohmann::json said = nlohmann::json::parse(cursor_said(asked, samples_told::yes));
  for (const auto& share : said["shares"]) {
    CHECK(share["elements"].size() == share["end"].get<std::size_t>() - share["begin"].get<std::size_t>());
    for (const auto& element : share["elements"]) all.push_back(element.get<index_t>());
  }
  return all;
}
}  // namespace

TEST_CASE("shares are of the steps that stand, by step and rank, and the cursor is behind the last") {
  CHECK(cursor_said(R"("steps":[])") == "{\"shares\":[],\"cursor\":0}\n");
  CHECK(cursor_said(R"("start":7,"steps":[{"ranks":2,"batch":5,"count":0}])") == "{\"shares\":[],\"cursor\":7}\n");
  CHECK(cursor_said(R"("start":3,"steps":[{"ranks":2,"batch":3},{"ranks":1,"batch":4,"count":2}])") ==
        R"({"shares":[{"step":0,"rank":0,"begin":3,"end":4},{"step":0,"rank":1,"begin":4,"end":6},)"
        R"({"step":1,"rank":0,"begin":6,"end":10},{"step":2,"rank":0,"begin":10,"end":14}],"cursor":14})"
        "\n");
}

TEST_CASE("after entry i the last undo[i] steps are undone, and what is beyond is used again") {
  const std::string steps = R"("steps":[{"ranks":1,"batch":2,"count":3},{"ranks":2,"batch":4}])";
  CHECK(cursor_said(steps + R"(,"undo":[2])") ==
        R"({"shares":[{"step":0,"rank":0,"begin":0,"end":2},)"
        R"({"step":1,"rank":0,"begin":2,"end":4},{"step":1,"rank":1,"begin":4,"end":6}],"cursor":6})"
        "\n");
  CHECK(cursor_said(steps + R"(,"undo":[0,4])") == "{\"shares\":[],\"cursor\":0}\n");
  CHECK(cursor_said(steps + R"(,"undo":[])") == cursor_said(steps));
}

TEST_CASE("elements: each pass has all of the set once, in an order of its own and of the seed") {
  const auto passes = [](const std::string& seed) {  // two of 16 elements, the second begun within a step
    return elements_said(R"("set":16,)" + seed + R"("steps":[{"ranks":3,"batch":8,"count":4}])");
  };
  const std::vector<index_t> all = passes("");
  REQUIRE(all.size() == 32);
  const std::vector<index_t> first(all.begin(), all.begin() + 16), second(all.begin() + 16, all.end());
  for (const std::vector<index_t>& pass : {first, second}) {
    const std::set<index_t> elements(pass.begin(), pass.end());
    CHECK((elements.size() == 16 && *elements.begin() == 0 && *elements.rbegin() == 15));
  }
  CHECK(first != second);
  CHECK(passes("\"seed\":0,") == all);
  CHECK(passes("\"seed\":1,") != all);
  CHECK(passes("\"seed\":18446744073709551615,") != all);
}

TEST_CASE(
    "documents: pieces of [document, begin, end], over the ends of documents and of passes, with lengths by entry") {
  // tokens 0 1 | | 2 3 4 of three documents, again and again; sequences of 2 tokens, then one of 4
  const std::string tokens = R"("tokens":{"lengths":[2,0,3]},"length":2,)"
                             R"("steps":[{"ranks":2,"batch":3},{"ranks":1,"batch":1,"length":4}])";
  CHECK(cursor_said(tokens, samples_told::yes) ==
        R"({"shares":[{"step":0,"rank":0,"begin":0,"end":2,"documents":[[0,0,2]]},)"
        R"({"step":0,"rank":1,"begin":2,"end":6,"documents":[[2,0,3],[0,0,1]]},)"
        R"({"step":1,"rank":0,"begin":6,"end":10,"documents":[[0,1,2],[2,0,3]]}],"cursor":10})"
        "\n");
  CHECK(cursor_said(tokens).find("documents") == std::string::npos);
}

TEST_CASE("each number of a question has a least, each key a place, and data are a set or documents") {
  const auto said = [](const std::string& asked) {
    const std::string sentence = testing::refused([&] { cursor_said(asked); }), begins = "reshard: c.json: ";
    return sentence.starts_with(begins) ? sentence.substr(begins.size()) : sentence;
  };
  const std::string from_0 = "; it is a whole number from 0 to 9223372036854775807",
                    from_1 = "; it is a whole number from 1 to 9223372036854775807", none = R"(,"steps":[])";
  const auto step = [&](const std::string& of) { return said("\"steps\":[{" + of + "}]"); };
  CHECK(said("\"x\":1") ==
        "a question about a cursor has the unknown key 'x'; the keys are start, set, seed, tokens, "
        "length, steps, undo");
  CHECK(said("\"steps\":8") == "steps is 8; it is a list of objects with ranks, batch and count");
  CHECK(said("\"steps\":[8]") == "an entry of steps is 8; it is an object");
  CHECK(step("\"x\":1") == "an entry of steps has the unknown key 'x'; the keys are ranks, batch, count, length");
  CHECK(step("\"batch\":1") == "ranks is missing");
  CHECK(step("\"ranks\":1") == "batch is missing");
  CHECK(step(R"("ranks":0,"batch":1)") == "ranks is 0" + from_1);
  CHECK(step(R"("ranks":1,"batch":0)") == "batch is 0" + from_1);
  CHECK(step(R"("ranks":1,"batch":1,"count":-1)") == "count is -1" + from_0);
  CHECK(step(R"("ranks":1,"batch":1,"length":1)") == "an entry of steps has a length, and tokens are not there");
  CHECK(said(R"("undo":8,"steps":[])") == "undo is 8; it is a list of numbers of steps");
  CHECK(said(R"("undo":[-1],"steps":[{"ranks":1,"batch":1}])") ==
        "an entry of undo is -1; it is a whole number from 0 to 1");
  CHECK(said("\"seed\":1" + none) == "set is missing");
  CHECK(said("\"set\":0" + none) == "set is 0" + from_1);
  CHECK(said("\"set\":1" + none) == "accepted");
  for (const char* seed : {"-1", "1.5", "null", "18446744073709551616"})
    CHECK(said(R"("set":1,"seed":)" + std::string(seed) + none)
              .ends_with("; it is a whole number from 0 to 18446744073709551615"));
  const std::string tokens = R"("tokens":{"lengths":[0,3]})";
  for (const char* too : {",\"set\":1", ",\"seed\":1", ",\"set\":1,\"seed\":1"})
    CHECK(said(tokens + ",\"length\":1" + too + none) ==
          "set or seed are there beside tokens; the data are a set in an order, or documents");
  CHECK(said(tokens + none) == "length is missing");
  CHECK(said(tokens + ",\"length\":0" + none) == "length is 0" + from_1);
  CHECK(said(tokens + ",\"length\":1" + none) == "accepted");
  CHECK(said(tokens + R"(,"length":1,"steps":[{"ranks":1,"batch":1,"length":0}])") == "length is 0" + from_1);
  CHECK(said("\"tokens\":8" + none) == "tokens is 8; it is an object");
  CHECK(said(R"("tokens":{"x":1})" + none) == "tokens has the unknown key 'x'; the keys are lengths");
  CHECK(said("\"tokens\":{}" + none) == "lengths is missing");
  CHECK(said(R"("tokens":{"lengths":8})" + none) == "lengths is 8; it is a list of numbers of tokens");
  CHECK(said(R"("tokens":{"lengths":[1,-1]})" + none) == "a length is -1" + from_0);
}

TEST_CASE("shares of all runs together are at most so many, and samples are counted from where the job starts") {
  const auto asked = [](const std::string& text) {
    return testing::refused([&] { static_cast<void>(cursor_from_json(text, "c.json")); });
  };
  const std::string half = R"({"ranks":2097152,"batch":2097152})", one = R"({"ranks":1,"batch":1})";
  CHECK(asked("{\"steps\":[" + half + "," + half + "]}") == "accepted");
  CHECK(asked("{\"steps\":[" + half + "," + half + "," + one + "]}") ==
        "reshard: c.json: with 1 steps over 1 ranks there are more than 4194304 shares, the most that are told");
  CHECK(asked("{\"undo\":[0,1],\"steps\":[" + half + "," + half + "," + one + "]}") == "accepted");
  const std::string late = R"("start":10000000,"tokens":{"lengths":[4194305]},"length":1,)";
  const auto told = [&](const char* batch) {
    return testing::refused(
        [&] { cursor_said(late + R"("steps":[{"ranks":1,"batch":)" + batch + "}]", samples_told::yes); });
  };
  CHECK(told("4194304") == "accepted");
  CHECK(told("4194305") == "reshard: --samples: 4194305 samples or tokens were used; at most 4194304 are told");
}

TEST_CASE("what is no question, and what is too long an answer, is refused in one sentence") {
  const auto said = [](const std::string& asked, samples_told samples = samples_told::no) {
    return testing::refused([&] { cursor_said(asked, samples); });
  };
  CHECK(said("") == "reshard: c.json: steps is missing");
  CHECK(said(R"("start":-1,"steps":[])") ==
        "reshard: c.json: start is -1; it is a whole number from 0 to 9223372036854775807");
  CHECK(said(R"("steps":[{"ranks":1,"batch":1}],"undo":[2])") ==
        "reshard: c.json: an entry of undo is 2; it is a whole number from 0 to 1");
  CHECK(said(R"("steps":[],"undo":[0])") ==
        "reshard: c.json: undo has 1 entries, and steps 0; undo[i] steps are undone after entry i of steps");
  CHECK(said(R"("steps":[],"length":1)") ==
        "reshard: c.json: length is there, and tokens are not; sequences have a length where tokens are counted");
  CHECK(said(R"("steps":[{"ranks":1,"batch":1}])", samples_told::yes) ==
        "reshard: --samples: neither a set nor tokens are given, so positions have no samples");
  CHECK(most_told == 4194304);
  const auto told = [&](const char* tokens_used) {  // as one document, and as several shares of which each is one
    return said(
        R"("tokens":{"lengths":[4194305]},"length":1,"steps":[{"ranks":1,"batch":)" + std::string(tokens_used) + "}]",
        samples_told::yes);
  };
  CHECK(told("4194304") == "accepted");
  CHECK(told("4194305") == "reshard: --samples: 4194305 samples or tokens were used; at most 4194304 are told");
  const auto shares = [](const char* ranks, const char* count) {
    const std::string asked = R"({"steps":[{"ranks":)" + std::string(ranks) + R"(,"batch":1,"count":)" + count + "}]}";
    return testing::refused([&] { static_cast<void>(cursor_from_json(asked, "c.json")); });
  };
  CHECK(shares("4194304", "1") == "accepted");
  CHECK(shares("2", "2097152") == "accepted");
  for (const char* count : {"2097153", "9223372036854775807"})
    CHECK(shares("2", count) == "reshard: c.json: with " + std::string(count) +
                                    " steps over 2 ranks there are more than 4194304 shares, the most that are told");
  CHECK(said(R"("set":1,"steps":[{"ranks":1,"batch":4194305}])", samples_told::yes) ==
        "reshard: --samples: 4194305 samples or tokens were used; at most 4194304 are told");
}
