// SPDX-License-Identifier: Apache-2.0
// Traces of jobs that are damaged, strange or large: one sentence, soon, or a schedule in which every job ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/job_trace_json.hpp>
#include <reshard/queue/schedule_jobs.hpp>
#include <reshard/queue/synthetic_trace.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using nlohmann::json;

namespace {
job_trace read(const std::string& text) { return io::job_trace_from_json(text, "t.json"); }
}  // namespace

TEST_CASE("each object of a list, and each key of an object, is looked at once, however many there are") {
  std::string many = R"({"k":0)";
  for (int i = 0; i < 100'000; ++i) many += ",\"" + std::to_string(i) + "\":0";  // minutes where each is looked for
  CHECK_REFUSED(read(many + R"(,"7":0})"), "the key '7' is there twice");
  const json objects = {{"devices", 8}, {"jobs", std::vector<json>(200000, json::object())}};
  CHECK_REFUSED(read(objects.dump()), "t.json: there are 200000 jobs; at most 20000 are scheduled");
  const std::string lists(999'999, '['), ends(999'999, ']');
  CHECK_REFUSED(read(R"({"x": )" + lists + ends + "}"), "t.json: lists and objects are nested deeper than 32");
}

namespace {
enum class hostile { refused, answered, either };
struct hostile_trace {
  std::string text;
  hostile expected = hostile::refused;
};

/// A sound trace with one thing wrong, or strange.
hostile_trace one_hostile(testing::dice& dice) {
  io::text_output out;
  const std::uint64_t seed = dice.bits();
  io::write_job_trace(out, synthetic_trace(seed, 3, dice.within(1, 40)));
  json file = json::parse(out.text());
  json& job = file["jobs"][static_cast<std::size_t>(dice.below(std::ssize(file["jobs"])))];
  const char* const keys[] = {"submit", "requested", "min", "max", "samples", "throughput"};
  const char* const key = keys[dice.below(6)];
  const json wrong[] = {nullptr, "7", true, json::array(), json::object(), -1, -1e300, 1e300, 0, "", {{"1", 2}}};
  switch (dice.below(12)) {
    case 0: job.erase(key); break;
    case 1:
      job[key] = wrong[dice.below(std::ssize(wrong))];
      return {file.dump(), hostile::either};  // a job may be submitted at 0
    case 2: job["min"] = job["max"].get<long>() + dice.within(1, 9); break;
    case 3: job["requested"] = file["devices"].get<long>() + dice.within(1, 1000); break;
    case 4: job["throughput"][0][1] = dice.coin() ? json(0) : json(-5); break;
    case 5: job["throughput"].erase(0); break;
    case 6: {  // falls with every device, from anywhere on
      double speed = 100;
      for (json& pair : job["throughput"]) pair[1] = speed *= 0.97;
      return {file.dump(), hostile::answered};
    }
    case 7: job["submit"] = -1 - static_cast<double>(dice.below(1000)); break;
    case 8: file["jobs"] = dice.coin() ? json(1000000000) : json(std::vector<json>(20001, nullptr)); break;
    case 9:
      for (json& one : file["jobs"]) one["submit"] = job["submit"];
      return {file.dump(), hostile::answered};
    case 10: {
      std::string text = file.dump();
      const std::string number = dice.coin() ? "NaN" : "1e999";
      text.replace(text.find("\"samples\":") + 10, 1, number + ",\"x\":");
      return {text};
    }
    default: {
      std::string text = file.dump();
      for (std::int64_t i = dice.within(1, 4); i > 0 && text.size() > 1; --i) {
        const auto at = static_cast<std::size_t>(dice.below(std::ssize(text)));
        switch (dice.below(4)) {
          case 0: text.erase(at, static_cast<std::size_t>(dice.within(1, 20))); break;
          case 1: text[at] = static_cast<char>(dice.within(1, 255)); break;
          case 2: text.insert(at, text.substr(at, 12)); break;
          default: text.resize(at + 1);
        }
      }
      return {text, hostile::either};
    }
  }
  return {file.dump()};
}
}  // namespace

TEST_CASE("five hundred hostile traces: one sentence, or a schedule in which every job ends") {
  testing::dice dice(53);
  const int rounds = std::max(testing::tries(500), 100);
  int refused = 0, answered = 0;
  for (int round = 0; round < rounds; ++round) {
    const hostile_trace one = one_hostile(dice);
    CAPTURE(round);
    CAPTURE(one.text.substr(0, 400));
    try {
      const job_trace trace = read(one.text);
      CHECK(one.expected != hostile::refused);
      ++answered;
      for (const job_policy policy : job_policies)
        for (const scheduled_job& job : schedule_jobs(trace, policy, {1, 0}).jobs) {
          CHECK(!job.held.empty());
          CHECK(job.start <= job.end);
        }
    } catch (const refusal& why) {
      const std::string sentence = why.what();
      CAPTURE(sentence);
      CHECK(one.expected != hostile::answered);
      CHECK(sentence.starts_with("reshard: t.json: "));
      CHECK(sentence.size() < 300);
      for (const char c : sentence) CHECK((static_cast<unsigned char>(c) >= 32 && c != 127));
      ++refused;
    }
  }
  std::printf("%d refused, %d answered\n", refused, answered);
  if (!testing::few()) {
    CHECK_DRAWN(refused > 250);
    CHECK_DRAWN(answered > 50);
  }
}
