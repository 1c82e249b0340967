// SPDX-License-Identifier: Apache-2.0
// Questions about a batch and a rate, and their answers, worked out by hand; one sentence for what is no question, and
// nothing written where an answer is refused. (io/elastic.cpp asks five hundred hostile ones.)
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/io/batch_json.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using namespace reshard::io;

namespace {
std::string batch_said(const std::string& asked) {
  text_output out;
  write_batch_json(out, batch_from_json("{" + asked + "}", "b.json"));
  return out.text();
}
std::string rate_said(const std::string& asked) {
  text_output out;
  write_rate_json(out, rate_from_json("{" + asked + "}", "r.json"));
  return out.text();
}
const std::string from_1_to_4 = R"("ranks":1,"to":4,"batch":8,)";
/// Seconds of batches of 8 that are 1 + B / n + n: 10 with one rank, 7 with two and with four.
const std::string ten_and_seven = R"("throughput":[[8,1,0.8],[8,2,1.1428571428571428],[8,4,1.1428571428571428]])";
}  // namespace

TEST_CASE("a batch by a list of optima: the first k of 1, 2, 4 .. that is worth it, else in proportion") {
  CHECK(batch_said(from_1_to_4 + R"("optimum":[[8,4]])") == "{\"batch\":8,\"k\":1,\"tried\":[1]}\n");
  CHECK(batch_said(from_1_to_4 + R"("optimum":[[32,4],[8,3],[16,3]])") == "{\"batch\":32,\"k\":4,\"tried\":[1,2,4]}\n");
  CHECK(batch_said(from_1_to_4 + R"("optimum":[[8,1],[16,1],[32,3]])") ==
        "{\"batch\":32,\"k\":null,\"tried\":[1,2,4]}\n");
  CHECK(batch_said(R"("ranks":4,"to":3,"batch":9,"optimum":[[9,1]])") == "{\"batch\":6,\"k\":null,\"tried\":[1]}\n");
}

TEST_CASE("by throughputs that were measured the largest of the fastest counts, by a model the one between them") {
  CHECK(batch_said(from_1_to_4 + ten_and_seven) == "{\"batch\":8,\"k\":1,\"tried\":[1]}\n");
  CHECK(batch_said(from_1_to_4 + ten_and_seven + ",\"model\":false") == "{\"batch\":8,\"k\":1,\"tried\":[1]}\n");
  // 1 + 8 / n + n is least with three ranks, and 1 + 16 / n + n with four
  CHECK(batch_said(from_1_to_4 + ten_and_seven + ",\"model\":true") == "{\"batch\":16,\"k\":2,\"tried\":[1,2]}\n");
}

TEST_CASE("a rank has at most as many samples as the limit, which null and its absence do not set") {
  const std::string three = R"("ranks":1,"to":3,"batch":8,"optimum":[[8,3]])";  // 2, 3 and 3 samples
  for (const char* fine : {"", ",\"limit\":null", ",\"limit\":3", ",\"limit\":9223372036854775807"})
    CHECK(batch_said(three + fine) == "{\"batch\":8,\"k\":1,\"tried\":[1]}\n");
  CHECK_REFUSED(batch_said(three + ",\"limit\":2"), "8 samples over 3 ranks are 3 a rank, and the limit is 2");
}

TEST_CASE("factors of a rate at the samples that are asked of, else where ramps begin and end") {
  const std::string changes = R"("base":100,"changes":[{"at":0,"batch":200},{"at":10,"batch":400,"ramp":20}])";
  CHECK(rate_said(changes) ==
        R"({"factors":[{"at":0,"factor":"2/1"},{"at":10,"factor":"2/1"},{"at":30,"factor":"4/1"}]})"
        "\n");
  CHECK(rate_said(changes + R"(,"at":[15,0,10000])") ==
        R"({"factors":[{"at":15,"factor":"5/2"},{"at":0,"factor":"2/1"},{"at":10000,"factor":"4/1"}]})"
        "\n");
  for (const char* one : {"1", "1.0", "\"1\""})
    CHECK(rate_said(changes + R"(,"at":[15],"power":)" + one) == "{\"factors\":[{\"at\":15,\"factor\":\"5/2\"}]}\n");
  for (const char* half : {"0.5", "\"1/2\""})  // sqrt(2), the greatest multiple of 2^-32 below it; then 2
    CHECK(rate_said(changes + R"(,"at":[0,30],"power":)" + half) ==
          R"({"factors":[{"at":0,"factor":"6074000999/4294967296"},{"at":30,"factor":"2/1"}]})"
          "\n");
  CHECK(rate_said(R"("base":1,"changes":[],"at":[])") == "{\"factors\":[]}\n");
  CHECK(rate_said(R"("base":1,"changes":[])") == "{\"factors\":[]}\n");
}

TEST_CASE("of every list as many entries are looked at as the sentence says that refuses one more") {
  const auto list = [](index_t count, auto&& entry) {
    std::string all;
    for (index_t i = 1; i <= count; ++i) all += (i == 1 ? "[" : ",") + entry(std::to_string(i));
    return all + "]";
  };
  const auto optimum = [](const std::string& i) { return "[" + i + ",4]"; };
  const auto speed = [](const std::string& i) { return "[" + std::to_string(7 + std::stoi(i)) + ",4,1]"; };
  const auto change = [](const std::string& i) { return "{\"at\":" + i + ",\"batch\":8}"; };
  const auto sample = [](const std::string& i) { return i; };
  for (const index_t more : {0, 1}) {
    const auto check = [&](const std::string& said, const std::string& wanted) {
      CHECK(said == (more == 0 ? "accepted" : wanted));
    };
    const auto batch = [&](const std::string& asked) {
      return testing::refused([&] { batch_said(from_1_to_4 + asked); });
    };
    const auto rate = [&](const std::string& asked) { return testing::refused([&] { rate_said(asked); }); };
    check(batch("\"optimum\":" + list(4096 + more, optimum)),
          "reshard: b.json: optimum has 4097 entries; at most 4096 are looked through");
    check(batch("\"throughput\":" + list(4096 + more, speed)),
          "reshard: b.json: throughput has 4097 entries; at most 4096 are looked through");
    check(rate("\"base\":8,\"changes\":" + list(1024 + more, change)),
          "reshard: r.json: changes has 1025 entries; at most 1024 are looked at");
    check(rate("\"base\":8,\"changes\":[],\"at\":" + list(4096 + more, sample)),
          "reshard: r.json: at has 4097 entries; at most 4096 are told");
    check(rate(R"("base":8,"changes":[{"at":9223372036854775806,"batch":8,"ramp":)" + std::to_string(1 + more) + "}]"),
          "reshard: r.json: a ramp of 2 samples from 9223372036854775806 ends behind sample 9223372036854775807; say "
          "in at which samples are asked of");
  }
  // of samples that are named the end of a ramp is not told, wherever it is
  CHECK(rate_said(R"("base":8,"changes":[{"at":9223372036854775806,"batch":8,"ramp":2}],"at":[1])") ==
        "{\"factors\":[{\"at\":1,\"factor\":\"1/1\"}]}\n");
}

TEST_CASE("each number of a question about a batch has a least, and no batch is listed twice") {
  const std::string numbers = "; it is a whole number from 1 to 9223372036854775807";
  const auto said = [](const std::string& asked) { return testing::refused([&] { batch_said(asked); }); };
  CHECK(said(R"("ranks":1)") == "reshard: b.json: to is missing");
  CHECK(said(R"("ranks":1,"to":0)") == "reshard: b.json: to is 0" + numbers);
  CHECK(said(R"("ranks":1,"to":1)") == "reshard: b.json: batch is missing");
  CHECK(said(R"("ranks":1,"to":1,"batch":0)") == "reshard: b.json: batch is 0" + numbers);
  CHECK(said(R"("ranks":1,"to":1,"batch":1,"optimum":[[1,1]])") == "accepted");
  CHECK(said(from_1_to_4 + R"("optimum":[[8,4]],"limit":0)") == "reshard: b.json: limit is 0" + numbers);
  CHECK(said(from_1_to_4 + R"("optimum":[[8,4]],"model":1)") == "reshard: b.json: model is 1; it is true or false");
  CHECK(said(from_1_to_4 + R"("optimum":8)") == "reshard: b.json: optimum is 8; it is a list of [batch, ranks]");
  CHECK(said(from_1_to_4 + R"("optimum":[[0,4]])") == "reshard: b.json: a batch of optimum is 0" + numbers);
  CHECK(said(from_1_to_4 + R"("optimum":[[8,0]])") == "reshard: b.json: ranks of optimum is 0" + numbers);
  CHECK(said(from_1_to_4 + R"("optimum":[[8,4],[9,1],[8,3]])") == "reshard: b.json: optimum has a batch of 8 twice");
  CHECK(said(from_1_to_4 + R"("optimum":[[8,3],[32,4]])") ==
        "reshard: batch: optimum has no entry for a batch of 16 among its 2 entries; it is asked of k TBS");
  CHECK(said(from_1_to_4 + R"("throughput":8)") ==
        "reshard: b.json: throughput is 8; it is a list of [batch, ranks, samples a second]");
  CHECK(said(from_1_to_4 + R"("throughput":[[8,4]])") ==
        "reshard: b.json: an entry of throughput is [8,4]; it is [batch, ranks, samples a second]");
  CHECK(said(from_1_to_4 + R"("throughput":[[8,4,"9"]])") ==
        "reshard: b.json: a throughput is \"9\"; it is a number of samples a second");
  CHECK(said(from_1_to_4 + R"("throughput":[[0,4,9]])") == "reshard: b.json: a batch of throughput is 0" + numbers);
  CHECK(said(from_1_to_4 + R"("throughput":[[8,0,9]])") == "reshard: b.json: ranks of throughput is 0" + numbers);
  CHECK(said(from_1_to_4 + R"("throughput":[[8,4,9],[8,4,9]])") ==
        "reshard: throughput: a batch of 8 over 4 ranks is there twice");
  CHECK(said(R"("ranks":8,"to":9,"batch":8,"optimum":[[8,1]])") == "accepted");
}

TEST_CASE("each number of a question about a rate has a least, and keys are those of the question and of a change") {
  const std::string from_0 = "; it is a whole number from 0 to 9223372036854775807",
                    from_1 = "; it is a whole number from 1 to 9223372036854775807";
  const auto said = [](const std::string& asked) { return testing::refused([&] { rate_said(asked); }); };
  const auto change = [&](const std::string& of) { return said("\"base\":8,\"changes\":[{" + of + "}]"); };
  CHECK(said(R"("changes":[])") == "reshard: r.json: base is missing");
  CHECK(said(R"("base":0,"changes":[])") == "reshard: r.json: base is 0" + from_1);
  CHECK(said(R"("base":1,"changes":8)") ==
        "reshard: r.json: changes is 8; it is a list of objects with at, batch and ramp");
  CHECK(said(R"("base":1,"changes":[8])") == "reshard: r.json: an entry of changes is 8; it is an object");
  CHECK(change(R"("at":0,"batch":1,"x":2)") ==
        "reshard: r.json: an entry of changes has the unknown key 'x'; the keys are at, batch, ramp");
  CHECK(change(R"("batch":1)") == "reshard: r.json: at is missing");
  CHECK(change(R"("at":0)") == "reshard: r.json: batch is missing");
  CHECK(change(R"("at":-1,"batch":1)") == "reshard: r.json: at is -1" + from_0);
  CHECK(change(R"("at":0,"batch":0)") == "reshard: r.json: batch is 0" + from_1);
  CHECK(change(R"("at":0,"batch":1,"ramp":-1)") == "reshard: r.json: ramp is -1" + from_0);
  CHECK(change(R"("at":0,"batch":1,"ramp":0)") == "accepted");
  CHECK(said(R"("base":1,"changes":[],"at":3)") == "reshard: r.json: at is 3; it is a list of samples");
  CHECK(said(R"("base":1,"changes":[],"at":[0,-1])") == "reshard: r.json: a sample of at is -1" + from_0);
  CHECK(said(R"("base":1,"changes":[],"at":[0])") == "accepted");
  CHECK(rate_said(R"("base":8,"changes":[{"at":4,"batch":8,"ramp":1}])") ==
        "{\"factors\":[{\"at\":4,\"factor\":\"1/1\"},{\"at\":5,\"factor\":\"1/1\"}]}\n");
}

TEST_CASE("where one factor is refused none is written") {
  rate_question asked{rate_schedule(4), {0, -1}};
  text_output out;
  CHECK_REFUSED(write_rate_json(out, asked), "rate: there is no sample -1; they count from 0");
  CHECK(out.text().empty());
}

TEST_CASE("what is no question is refused in one sentence that begins with what the text is called") {
  const auto said = [](const std::string& asked, bool rate) {
    return testing::refused([&] { rate ? rate_said(asked) : batch_said(asked); });
  };
  const std::string keys = " has the unknown key 'x'; the keys are ", numbers = "; it is a whole number from 1 to ",
                    entry = "reshard: b.json: an entry of ";
  CHECK(said("\"x\":1", false) ==
        "reshard: b.json: a question about a batch" + keys + "ranks, to, batch, optimum, throughput, model, limit");
  CHECK(said("\"x\":1", true) == "reshard: r.json: a question about a rate" + keys + "base, power, changes, at");
  CHECK(said("", false) == "reshard: b.json: ranks is missing");
  CHECK(said("\"base\":1", true) == "reshard: r.json: changes is missing");
  CHECK(said(R"("ranks":0)", false) == "reshard: b.json: ranks is 0" + numbers + "9223372036854775807");
  CHECK(said(from_1_to_4 + R"("optimum":[[8,1,1]])", false) == entry + "optimum is [8,1,1]; it is [batch, ranks]");
  CHECK(said(from_1_to_4 + R"("throughput":[8])", false) ==
        entry + "throughput is 8; it is [batch, ranks, samples a second]");
  const std::string neither = R"("limit":1)", both = R"("optimum":[],)" + ten_and_seven,
                    fitted = R"("model":true,"optimum":[[8,4]])";
  for (const std::string& bad : {neither, both, fitted})
    CHECK(said(from_1_to_4 + bad, false) ==
          "reshard: b.json: either optimum or throughput says with how many ranks batches are fastest, and a model is "
          "fitted to throughput");
  for (const char* power : {"2", "\"0.5\"", "null"})
    CHECK(said(R"("base":1,"changes":[],"power":)" + std::string(power), true) ==
          "reshard: r.json: power is " + std::string(power) + "; it is 1, or 1/2 (0.5)");
}
