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
