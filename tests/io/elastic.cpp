// SPDX-License-Identifier: Apache-2.0
// `reshard elastic cursor|order|batch|rate`: answers against a walk and against formulas; every fault of a question in
// one sentence; and five hundred damaged, strange and huge questions, none of which ends otherwise.
#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/arguments.hpp>
#include <reshard/io/batch_json.hpp>
#include <reshard/io/cursor_json.hpp>

#include "../oracle/job_walk.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"
#include "process.hpp"

using namespace reshard;
using namespace reshard::io;
using nlohmann::json;
using testing::answer, testing::ask, testing::dice, testing::here, testing::refused;

namespace {

std::string cursor_answer(const std::string& text, samples_told samples = samples_told::no) {
  const cursor_question asked = cursor_from_json(text, "q");
  text_output out;
  write_cursor_json(out, asked, samples);
  return out.text();
}
std::string batch_answer(const std::string& text) {
  text_output out;
  write_batch_json(out, batch_from_json(text, "q"));
  return out.text();
}
std::string rate_answer(const std::string& text) {
  text_output out;
  write_rate_json(out, rate_from_json(text, "q"));
  return out.text();
}
/// What a question is refused with, behind its name.
template <typename Answer>
std::string fault(const Answer& answer_of, const std::string& text) {
  const std::string sentence = refused([&] { static_cast<void>(answer_of(text)); });
  return sentence.starts_with("reshard: q: ") ? sentence.substr(12) : sentence;
}
const auto of_cursor = [](const std::string& text) { return cursor_answer(text); };
const auto of_samples = [](const std::string& text) { return cursor_answer(text, samples_told::yes); };
const auto of_batch = [](const std::string& text) { return batch_answer(text); };
const auto of_rate = [](const std::string& text) { return rate_answer(text); };

const std::string steps = R"("steps":[{"ranks":3,"batch":7,"count":2}])";

}  // namespace

TEST_CASE("cursors: random questions with undone steps, against a walk") {
  dice random;
  for (int i = 0; i < testing::tries(100); ++i) {
    const index_t start = random.below(50), length = random.within(1, 5);
    const bool tokens = random.coin();
    json question{{"start", start}, {"steps", json::array()}, {"undo", json::array()}};
    if (tokens) question["tokens"] = {{"lengths", {5, 0, 7}}}, question["length"] = length;
    else question["set"] = 10, question["seed"] = random.bits();
    oracle::walked_job walked{start, {}};
    std::vector<rank_t> worlds;
    for (index_t n = random.within(0, 4); n > 0; --n) {
      const index_t ranks = random.within(1, 5), batch = random.within(1, 9), count = random.within(0, 3);
      question["steps"].push_back({{"ranks", ranks}, {"batch", batch}, {"count", count}});
      for (index_t s = 0; s < count; ++s) walked.step(ranks, batch, tokens ? length : 1), worlds.push_back(ranks);
      const index_t undone = random.below(static_cast<index_t>(walked.steps.size()) + 1);
      question["undo"].push_back(undone);
      for (index_t s = 0; s < undone; ++s) walked.undo(), worlds.pop_back();
    }
    const json said = json::parse(cursor_answer(question.dump()));
    CHECK(said["cursor"] == walked.at);
    json shares = json::array();
    for (std::size_t s = 0; s < worlds.size(); ++s) {
      index_t at = walked.steps[s].began;
      for (rank_t r = 0; r < worlds[s]; ++r) {
        const index_t begin = at;
        for (const oracle::used_sample& one : walked.steps[s].samples)
          if (one.rank == r) at = one.begin + one.length;
        shares.push_back({{"step", s}, {"rank", r}, {"begin", begin}, {"end", at}});
      }
    }
    CHECK(said["shares"] == shares);
    CHECK(said.size() == 2);
  }
}

TEST_CASE("cursors with their samples: elements of the pass's order, and pieces of documents") {
  const json said =
      json::parse(cursor_answer(R"({"start":8,"set":5,"seed":3,"steps":[{"ranks":2,"batch":5}]})", samples_told::yes));
  CHECK(said["shares"][0]["elements"] == json{sample_order(5, 3, 1)(3), sample_order(5, 3, 1)(4)});
  CHECK(said["shares"][1]["elements"] ==
        json{sample_order(5, 3, 2)(0), sample_order(5, 3, 2)(1), sample_order(5, 3, 2)(2)});
  CHECK(cursor_answer(R"({"tokens":{"lengths":[3,0,4,2]},"length":2,"steps":[{"ranks":2,"batch":3},{"ranks":1,)"
                      R"("batch":1,"length":4}]})",
                      samples_told::yes) ==
        R"({"shares":[{"step":0,"rank":0,"begin":0,"end":2,"documents":[[0,0,2]]},{"step":0,"rank":1,)"
        R"("begin":2,"end":6,"documents":[[0,2,3],[2,0,3]]},)"
        R"({"step":1,"rank":0,"begin":6,"end":10,"documents":[[2,3,4],[3,0,2],[0,0,1]]}],"cursor":10})"
        "\n");
}

TEST_CASE("batches and rates are told as they are") {
  CHECK(batch_answer(R"({"ranks":4,"to":16,"batch":256,"optimum":[[256,8],[512,12],[1024,32]]})") ==
        "{\"batch\":1024,\"k\":4,\"tried\":[1,2,4]}\n");
  CHECK(batch_answer(R"({"ranks":4,"to":6,"batch":257,"optimum":[[257,4]],"limit":null})") ==
        "{\"batch\":385,\"k\":null,\"tried\":[1]}\n");
  CHECK(batch_answer(R"({"ranks":1,"to":2,"batch":8,"throughput":[[8,1,5],[8,2,4],[16,1,5],[16,2,5.0]],"limit":8})") ==
        "{\"batch\":16,\"k\":2,\"tried\":[1,2]}\n");
  CHECK(batch_answer(R"({"ranks":1,"to":2,"batch":8,"throughput":[[8,1,1],[8,2,2],[16,4,3]],"model":true})") ==
        "{\"batch\":8,\"k\":1,\"tried\":[1]}\n");
  const std::string asked =
      R"({"base":256,"changes":[{"at":0,"batch":512,"ramp":1000},{"at":300,"batch":1024,"ramp":700}])";
  CHECK(rate_answer(asked + R"(,"at":[0,150,650,2000]})") ==
        R"({"factors":[{"at":0,"factor":"1/1"},{"at":150,"factor":"23/20"},{"at":650,"factor":"53/20"},)"
        R"({"at":2000,"factor":"4/1"}]})"
        "\n");
  CHECK(rate_answer(asked + "}") ==
        R"({"factors":[{"at":0,"factor":"1/1"},{"at":1000,"factor":"4/1"},{"at":300,"factor":"13/10"},)"
        R"({"at":1000,"factor":"4/1"}]})"
        "\n");
  for (const char* root : {"0.5", "\"1/2\""})
    CHECK(rate_answer(R"({"base":256,"power":)" + std::string(root) +
                      R"(,"changes":[{"at":1,"batch":1024}],"at":[0,1]})") ==
          R"({"factors":[{"at":0,"factor":"1/1"},{"at":1,"factor":"2/1"}]})"
          "\n");
  CHECK(rate_answer(R"({"base":256,"power":1.0,"changes":[],"at":[7]})") ==
        "{\"factors\":[{\"at\":7,\"factor\":\"1/1\"}]}\n");
}

TEST_CASE("what a question about a cursor must not say") {
  const std::string whole = "; it is a whole number from ";
  CHECK(fault(of_cursor, "[]") == "a question about a cursor is []; it is an object");
  CHECK(fault(of_cursor, "{}") == "steps is missing");
  CHECK(
      fault(of_cursor, "{" + steps + ",\"x\":1}") ==
      "a question about a cursor has the unknown key 'x'; the keys are start, set, seed, tokens, length, steps, undo");
  CHECK(fault(of_cursor, "{" + steps + "," + steps + "}") == "the key 'steps' is there twice");
  CHECK(fault(of_cursor, "{" + steps).starts_with("not JSON: "));
  CHECK(fault(of_cursor, R"({"steps":{}})") == "steps is {}; it is a list of objects with ranks, batch and count");
  CHECK(fault(of_cursor, R"({"steps":[3]})") == "an entry of steps is 3; it is an object");
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":3,"count":1}]})") == "batch is missing");
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":0,"batch":1}]})") == "ranks is 0" + whole + "1 to 9223372036854775807");
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":1,"batch":1.5}]})") ==
        "batch is 1.5" + whole + "1 to 9223372036854775807");
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":1,"batch":9223372036854775808}]})") ==
        "batch is 9223372036854775808" + whole + "1 to 9223372036854775807");
  CHECK(fault(of_cursor, R"({"start":-1,"steps":[]})") == "start is -1" + whole + "0 to 9223372036854775807");
  CHECK(fault(of_cursor, "{" + steps + R"(,"length":4})") ==
        "length is there, and tokens are not; sequences have a length where tokens are counted");
  CHECK(fault(of_cursor, "{" + steps + R"(,"seed":4})") == "set is missing");
  CHECK(fault(of_cursor, "{" + steps + R"(,"set":4,"seed":-1})") ==
        "seed is -1; it is a whole number from 0 to 18446744073709551615");
  CHECK(fault(of_cursor, "{" + steps + R"(,"set":4,"tokens":{"lengths":[]},"length":1})") ==
        "set or seed are there beside tokens; the data are a set in an order, or documents");
  CHECK(fault(of_cursor, "{" + steps + R"(,"tokens":{"lengths":[]}})") == "length is missing");
  CHECK(fault(of_cursor, "{" + steps + R"(,"tokens":{"lengths":[1,-2]},"length":1})") ==
        "a length is -2" + whole + "0 to 9223372036854775807");
  CHECK(fault(of_cursor, "{" + steps + R"(,"undo":[1,1]})") ==
        "undo has 2 entries, and steps 1; undo[i] steps are undone after entry i of steps");
  CHECK(fault(of_cursor, "{" + steps + R"(,"undo":[3]})") == "an entry of undo is 3" + whole + "0 to 2");
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":1,"batch":1,"length":2}]})") ==
        "an entry of steps has a length, and tokens are not there");
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":4194305,"batch":1}]})") ==
        "with 1 steps over 4194305 ranks there are more than 4194304 shares, the most that are told");
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":2097152,"batch":1},{"ranks":2097153,"batch":1}]})")
            .starts_with("with 1 steps over 2097153 ranks"));
  CHECK(fault(of_cursor, R"({"steps":[{"ranks":1,"batch":9223372036854775807,"count":2}]})")
            .starts_with("reshard: history: 2 steps of 9223372036854775807"));
  CHECK(fault(of_cursor, std::string(40, '[') + std::string(40, ']')) == "lists and objects are nested deeper than 32");
  CHECK(fault(of_samples, "{" + steps + "}") ==
        "reshard: --samples: neither a set nor tokens are given, so positions have no samples");
  CHECK(fault(of_samples, R"({"set":9,"steps":[{"ranks":1,"batch":4194305}]})") ==
        "reshard: --samples: 4194305 samples or tokens were used; at most 4194304 are told");
  CHECK(fault(of_samples, "{" + steps + R"(,"tokens":{"lengths":[0]},"length":1})") ==
        "reshard: documents: [0, 2) of documents with 0 tokens in all");
}

TEST_CASE("what questions about batches and rates must not say") {
  const std::string asks = R"({"ranks":2,"to":4,"batch":8,)";
  CHECK(fault(of_batch, asks + R"("optimum":[[8]]})") == "an entry of optimum is [8]; it is [batch, ranks]");
  CHECK(fault(of_batch, asks + R"("optimum":[[8,1],[8,2]]})") == "optimum has a batch of 8 twice");
  CHECK(fault(of_batch, asks + R"("optimum":[[8,2]]})") ==
        "reshard: batch: optimum has no entry for a batch of 16 among its 1 entries; it is asked of k TBS");
  CHECK(fault(of_batch, asks + R"("throughput":[[8,2]]})") ==
        "an entry of throughput is [8,2]; it is [batch, ranks, samples a second]");
  CHECK(fault(of_batch, asks + R"("throughput":[[8,2,"x"]]})") ==
        "a throughput is \"x\"; it is a number of samples a second");
  CHECK(fault(of_batch, asks + R"("throughput":[[8,2,1]],"model":1})") == "model is 1; it is true or false");
  const std::string either =
      "either optimum or throughput says with how many ranks batches are fastest, and a model is fitted to throughput";
  CHECK(fault(of_batch, asks + R"("limit":1})") == either);
  CHECK(fault(of_batch, asks + R"("optimum":[[8,4]],"throughput":[]})") == either);
  CHECK(fault(of_batch, asks + R"("optimum":[[8,4]],"model":true})") == either);
  CHECK(fault(of_batch, asks + R"("optimum":[[8,4]],"limit":0})") ==
        "limit is 0; it is a whole number from 1 to 9223372036854775807");
  CHECK(fault(of_batch, asks + R"("optimum":[[8,4]],"limit":1})")
            .starts_with("reshard: batch: 8 samples over 4 ranks are 2 a rank, and the limit is 1"));
  json many = json::array(), speeds = json::array(), changes = json::array(), samples = json::array();
  for (int i = 1; i <= 4097; ++i) {
    many.push_back({i, 1}), speeds.push_back({i, 1, 1}), samples.push_back(i);
    if (i <= 1025) changes.push_back({{"at", i}, {"batch", 1}});
  }
  CHECK(fault(of_batch, asks + "\"optimum\":" + many.dump() + "}") ==
        "optimum has 4097 entries; at most 4096 are looked through");
  CHECK(fault(of_batch, asks + "\"throughput\":" + speeds.dump() + "}") ==
        "throughput has 4097 entries; at most 4096 are looked through");
  CHECK(fault(of_rate, R"({"base":1,"changes":)" + changes.dump() + "}") ==
        "changes has 1025 entries; at most 1024 are looked at");
  CHECK(fault(of_rate, R"({"base":1,"changes":[],"at":)" + samples.dump() + "}") ==
        "at has 4097 entries; at most 4096 are told");
  CHECK(fault(of_rate, R"({"base":1,"changes":[{"at":9223372036854775807,"batch":2,"ramp":1}]})") ==
        "a ramp of 1 samples from 9223372036854775807 ends behind sample 9223372036854775807; say in at which samples "
        "are "
        "asked of");
  CHECK(fault(of_rate, R"({"base":1,"power":2,"changes":[]})") == "power is 2; it is 1, or 1/2 (0.5)");
  CHECK(fault(of_rate, R"({"base":0,"changes":[]})") ==
        "base is 0; it is a whole number from 1 to 9223372036854775807");
  CHECK(fault(of_rate, R"({"base":1,"changes":[{"at":5,"batch":1},{"at":4,"batch":1}]})") ==
        "reshard: rate: a change at sample 4 after one at 5; they are told in order, from 0");
  CHECK(fault(of_rate, R"({"base":1,"changes":[],"at":3})") == "at is 3; it is a list of samples");
  CHECK(parse_samples("--at", "3,0,18") == std::vector<index_t>{3, 0, 18});
  CHECK_REFUSED(parse_samples("--at", "3,,4"), "--at: a number is missing");
  CHECK_REFUSED(parse_samples("--at", std::string(9000, ',').replace(0, 9000,
                                                                     [] {
                                                                       std::string t = "1";
                                                                       for (int i = 0; i < 4096; ++i) t += ",1";
                                                                       return t;
                                                                     }())),
                "--at: more than 4096 samples are listed");
  CHECK_REFUSED(io::detail::unsigned_digits_of("--seed", "18446744073709551616"),
                "--seed: 18446744073709551616 does not fit 64 bits without a sign");
  CHECK_REFUSED(io::detail::unsigned_digits_of("--seed", ""), "--seed: a number is missing");
  CHECK_REFUSED(io::detail::unsigned_digits_of("--seed", "1x"), "--seed: '1x' is not a number");
  CHECK(io::detail::unsigned_digits_of("--seed", "18446744073709551615") == ~std::uint64_t{0});
}

TEST_CASE("five hundred hostile questions: an answer or one sentence, soon") {
  dice random(2);
  const std::string good[] = {
      R"({"start":8,"set":5,"seed":3,"steps":[{"ranks":2,"batch":5,"count":3},{"ranks":3,"batch":7,)"
      R"("count":2}],"undo":[1,2]})",
      R"({"tokens":{"lengths":[3,0,4,2]},"length":2,"steps":[{"ranks":2,"batch":3,"count":2,"length":3}]})",
      R"({"ranks":4,"to":16,"batch":256,"optimum":[[256,8],[512,12],[1024,32]],"limit":100})",
      R"({"ranks":1,"to":2,"batch":8,"throughput":[[8,1,1],[8,2,2.5],[16,4,3]],"model":true})",
      R"({"base":256,"power":"1/2","changes":[{"at":0,"batch":512,"ramp":1000},{"at":300,"batch":1024,)"
      R"("ramp":700}],"at":[1,2]})"};
  const std::string numbers[] = {"-1",
                                 "0",
                                 "1e400",
                                 "9223372036854775807",
                                 "9223372036854775806",
                                 "4611686018427387904",
                                 "18446744073709551615",
                                 "1.5",
                                 "null",
                                 "\"x\"",
                                 "[]",
                                 "{}",
                                 "true",
                                 "1e9",
                                 "-9223372036854775808",
                                 "4294967296",
                                 "3037000500"};
  const int rounds = testing::tries(500);
  int refusals = 0, answers = 0;
  double longest = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::size_t kind = static_cast<std::size_t>(i) % 5;
    std::string bad = good[kind];
    for (index_t times = random.within(1, 2); times > 0; --times) {
      const auto at = static_cast<std::size_t>(random.below(static_cast<index_t>(bad.size())));
      switch (random.below(9)) {
        case 0: bad[at] = static_cast<char>(random.bits()); break;
        case 1: bad.erase(at, static_cast<std::size_t>(random.within(1, 9))); break;
        case 2: bad.insert(at, bad.substr(at / 2, static_cast<std::size_t>(random.within(1, 30)))); break;
        default: {  // a number becomes another
          const std::size_t digit = bad.find_first_of("0123456789", at);
          if (digit == bad.npos) break;
          bad.replace(digit, bad.find_first_not_of("0123456789", digit) - digit,
                      numbers[random.below(std::size(numbers))]);
        }
      }
      if (bad.empty()) bad = "[";
    }
    const auto begin = std::chrono::steady_clock::now();
    const std::string sentence = refused([&] {
      if (kind < 2) static_cast<void>(cursor_answer(bad, random.coin() ? samples_told::yes : samples_told::no));
      else if (kind < 4) static_cast<void>(batch_answer(bad));
      else static_cast<void>(rate_answer(bad));
    });
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    CAPTURE(bad);
    CAPTURE(sentence);
    ++(sentence == "accepted" ? answers : refusals);
    CHECK((sentence == "accepted" || sentence.starts_with("reshard: ")));
    for (const char c : sentence) CHECK_FALSE((static_cast<unsigned char>(c) < 32 || c == 127));
  }
  CHECK(longest < 20);  // what is sought without a plan takes minutes
  MESSAGE(refusals << " refused, " << answers << " answered, the longest in " << longest << " s");
  CHECK_DRAWN(refusals > rounds / 2);
  CHECK_DRAWN(answers > rounds / 40);
}

TEST_CASE("the tool: a file, stdin's place, or the question itself; a bad one is one sentence") {
  const std::string question = "{" + steps + R"(,"undo":[1]})",
                    told = R"({"shares":[{"step":0,"rank":0,"begin":0,"end":2},{"step":0,"rank":1,"begin":2,"end":4},)"
                           R"({"step":0,"rank":2,"begin":4,"end":7}],"cursor":7})"
                           "\n";
  const auto says = [](const testing::words& words) {
    const answer got = ask(words);
    CHECK((got.code == 0) == got.err.empty());
    return got.code == 0 ? got.out : got.err;
  };
  CHECK(says({"elastic", "cursor", question}) == told);
  CHECK(says({"elastic", "cursor", here().file("q.json", question), "--json"}) == told);
  CHECK(says({"elastic", "cursor", R"({"set":3,"steps":[{"ranks":1,"batch":3}]})", "--samples"})
            .find(R"("elements":[)") != std::string::npos);
  CHECK(says({"elastic", "order", "--size", "1000000000000", "--seed", "5", "--pass", "2", "--at", "17"}) ==
        "551492389527\n");
  CHECK(says({"elastic", "batch", R"({"ranks":4,"to":2,"batch":8,"optimum":[[8,2]]})"}) ==
        "{\"batch\":8,\"k\":1,\"tried\":[1]}\n");
  CHECK(says({"elastic", "rate", R"({"base":4,"changes":[{"at":0,"batch":8,"ramp":4}]})", "--at", "1,9"}) ==
        R"({"factors":[{"at":1,"factor":"5/4"},{"at":9,"factor":"2/1"}]})"
        "\n");
  CHECK(says({"elastic", "cursor", "/no/where.json"}) ==
        "reshard: /no/where.json cannot be read: No such file or directory\n");
  CHECK(says({"elastic", "rate", here().folder.string()}) ==
        "reshard: " + here().folder.string() + " cannot be read: Is a directory\n");
  CHECK(says({"elastic", "order", "--size", "4", "--at", "4"}) ==
        "reshard: order: there is no position 4; they are 0 to 3\n");
  CHECK(says({"elastic"}) == "reshard: a subcommand is required; see reshard --help\n");
  CHECK(says({"elastic", "cursor", "{"}).starts_with("reshard: the question: not JSON: "));
}
