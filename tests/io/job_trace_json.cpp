// SPDX-License-Identifier: Apache-2.0
// Traces of jobs as files: what is read, what is refused, in one sentence however it is damaged, and that what is
// written is read back.
#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/job_trace_json.hpp>
#include <reshard/queue/schedule_jobs.hpp>
#include <reshard/queue/synthetic_trace.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"
#include "process.hpp"

using namespace reshard;
using nlohmann::json;

namespace {
const char* const sound = R"({"devices": 8, "jobs": [
  {"submit": 0, "requested": 2, "min": 1, "max": 3, "samples": 100, "throughput": {"1": 10, "3": 25, "2": 19.5}},
  {"submit": 1.5, "requested": 2, "min": 2, "max": 3, "samples": 1e3, "throughput": [[3, 25], [2, 18]], "name": "b"},
  {"submit": 1.5, "requested": 3, "min": 2, "max": 3, "samples": 1, "throughput": [10, 18, 25], "more": {"x": [1]}}]})";

job_trace read(const std::string& text) { return io::job_trace_from_json(text, "t.json"); }
json changed(const char* path, const json& value) {
  json file = json::parse(sound);
  file[json::json_pointer(path)] = value;
  return file;
}
json without(const char* of, const char* key) {
  json file = json::parse(sound);
  file[json::json_pointer(of)].erase(key);
  return file;
}
}  // namespace

TEST_CASE("throughput by n, as pairs, or as a list from one device on") {
  const job_trace trace = read(sound);
  CHECK(trace.devices == 8);
  REQUIRE(trace.jobs.size() == 3);
  CHECK(trace.jobs[0].throughput == std::vector<double>{0, 10, 19.5, 25});
  CHECK(trace.jobs[1].throughput == std::vector<double>{0, 0, 18, 25});
  CHECK(trace.jobs[2].throughput == std::vector<double>{0, 10, 18, 25});
  CHECK(trace.jobs[1].submit == 1.5);
  CHECK(trace.jobs[1].samples == 1000);
  CHECK(trace.jobs[1].requested == 2);
  CHECK(trace.jobs[0].min == 1);
  CHECK(trace.jobs[0].max == 3);
  CHECK(trace.jobs[1].name == "b");
  CHECK(trace.jobs[2].name.empty());
}

TEST_CASE("what is written is read back") {
  for (const std::uint64_t seed : {1u, 2u}) {
    job_trace trace = synthetic_trace(seed, 24, 16);
    trace.jobs[0].submit = 0.1, trace.jobs[0].name = "a \"name\"\n";
    io::text_output out;
    io::write_job_trace(out, trace);
    const job_trace again = read(out.text());
    CHECK(again.devices == trace.devices);
    REQUIRE(again.jobs.size() == trace.jobs.size());
    for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
      const traced_job &a = trace.jobs[i], &b = again.jobs[i];
      CHECK(a.submit == b.submit);
      CHECK(a.requested == b.requested);
      CHECK(a.min == b.min);
      CHECK(a.max == b.max);
      CHECK(a.samples == b.samples);
      CHECK(a.throughput == b.throughput);
      CHECK(a.name == b.name);
    }
  }
}

TEST_CASE("a trace is written a job on each line, its throughput as pairs from min to max, a name where there is one") {
  job_trace trace{.devices = 8, .jobs = {}};
  const traced_job plain{0, 2, 1, 3, 100, {0, 10, 19.5, 25}, ""},
      named{1.5, 3, 3, 5, 1e9, {0, 1, 2, 9, 8}, "\"a\"\n\xff"};
  trace.jobs = {plain, named};
  io::text_output out;
  io::write_job_trace(out, trace);
  CHECK(out.text() ==
        "{\"devices\":8,\"jobs\":[\n"
        "{\"submit\":0,\"requested\":2,\"min\":1,\"max\":3,\"samples\":100,"
        "\"throughput\":[[1,10],[2,19.5],[3,25]]},\n"
        "{\"submit\":1.5,\"requested\":3,\"min\":3,\"max\":5,\"samples\":1e+09,\"throughput\":[[3,9],[4,8]],"
        "\"name\":\"\\\"a\\\"\\n\\ufffd\"}\n]}\n");
}

TEST_CASE("what is refused, by which words") {
  const auto refused = [](const json& file, const char* words) { CHECK_REFUSED(read(file.dump()), words); };
  CHECK_REFUSED(read("{"), "reshard: t.json: not JSON: ");
  const auto nested = [](int depth) {  // in the trace's own object
    return R"({"x": )" + std::string(static_cast<std::size_t>(depth - 1), '[') +
           std::string(static_cast<std::size_t>(depth - 1), ']') + "}";
  };
  CHECK_REFUSED(read(nested(32)), "devices is missing");
  CHECK_REFUSED(read(nested(33)), "t.json: lists and objects are nested deeper than 32");
  CHECK_REFUSED(read(nested(1'000'000)), "nested deeper than 32");
  std::string many = R"({"k":0)";
  for (int i = 0; i < 100'000; ++i) many += ",\"" + std::to_string(i) + "\":0";  // minutes where each is looked for
  CHECK_REFUSED(read(many + R"(,"7":0})"), "the key '7' is there twice");
  CHECK_REFUSED(read(R"({"devices": 1, "devices": 1})"), "t.json: the key 'devices' is there twice");
  CHECK_REFUSED(read(R"({"devices": 1, "jobs": [{"x": {"a": 1, "b": 2, "a": 3}}]})"), "the key 'a' is there twice");
  CHECK_REFUSED(read(std::string(10, '[')), "t.json: not JSON: ");
  refused(json::array(), "t.json: the trace is []; it is an object");
  refused(without("", "devices"), "t.json: the trace: devices is missing");
  refused(without("", "jobs"), "t.json: the trace: jobs is missing");
  refused(changed("/devices", 0), "t.json: devices is 0; it is a whole number from 1 to 4096");
  refused(changed("/devices", 2.5), "t.json: devices is 2.5; it is a whole number from 1 to 4096");
  refused(changed("/jobs", 1000000000), "t.json: jobs is 1000000000; it is a list of jobs");
  refused(changed("/jobs", json::array()), "t.json: a job trace without jobs");
  refused(changed("/jobs", json(std::vector<int>(20001, 0))),
          "t.json: there are 20001 jobs; at most 20000 are scheduled");
  // each object of a list is looked at once, however many there are
  refused(changed("/jobs", json(std::vector<json>(200000, json::object()))),
          "t.json: there are 200000 jobs; at most 20000");
  refused(changed("/jobs/1", "x"), "t.json: job 1 is \"x\"; it is an object");
  for (const char* key : {"submit", "requested", "min", "max", "samples", "throughput"})
    refused(without("/jobs/2", key), ("t.json: job 2: " + std::string(key) + " is missing").c_str());
  refused(changed("/jobs/1/submit", "now"), "t.json: job 1: submit is \"now\"; it is a number");
  refused(changed("/jobs/1/submit", -1), "t.json: job 1: submit is -1; it is 0 to 4e9 seconds");
  refused(changed("/jobs/1/min", 4), "t.json: job 1: min 4 is above max 3");
  refused(changed("/jobs/1/max", 1e9), "t.json: job 1: max is 1000000000.0; it is a whole number from 1 to 1000000");
  refused(changed("/jobs/0/throughput", 7), "t.json: job 0: throughput is 7; it is samples a second by devices");
  refused(changed("/jobs/0/throughput/2", nullptr), "job 0: throughput with 2 devices is null; it is a number");
  refused(changed("/jobs/0/throughput/1", "x"), "job 0: throughput with 1 device is \"x\"; it is a number");
  refused(changed("/jobs/0/throughput/3", 0), "job 0: throughput with 3 devices is 0; it is above 0");
  refused(changed("/jobs/0/throughput/02", 5), "job 0: throughput with '02' devices; they are 1 to 4096");
  refused(changed("/jobs/0/throughput/4097", 5), "job 0: throughput with 4097 devices; they are 1 to 4096");
  refused(changed("/jobs/0/throughput/4999999999999999999999", 5), "devices; they are 1 to 4096");
  refused(changed("/jobs/1/throughput/0/0", 2), "job 1: throughput with 2 devices is told twice");
  CHECK_REFUSED(read(R"({"devices": 1, "jobs": [{"submit": 0, "requested": 1, "min": 1, "max": 1, "samples": 1,)"
                     R"( "throughput": [[1, 0], [1, 5]]}]})"),
                "job 0: throughput with 1 devices is told twice");
  refused(changed("/jobs/1/throughput/0", {1, 2, 3}),
          "job 1: throughput has [1,2,3]; a pair is [devices, samples a second]");
  refused(changed("/jobs/1/throughput/0/0", 0),
          "job 1: throughput's devices is 0; it is a whole number from 1 to 4096");
  refused(changed("/jobs/1/throughput", json(std::vector<int>(9, 0))), "job 1: throughput with 2 devices is 0; it is");
  refused(changed("/jobs/1/name", 5), "t.json: job 1: name is 5; it is a text");
  refused(changed("/jobs/1/samples", json(std::vector<int>(9, 0))), "job 1: samples is a list; it is a number");
}

TEST_CASE("files") {
  CHECK(io::load_job_trace(testing::here().file("sound.json", sound)).jobs.size() == 3);
  CHECK_REFUSED(io::load_job_trace("/none/at all"), "/none/at all cannot be read: No such file");
  CHECK_REFUSED(io::load_job_trace("/"), "/ cannot be read: ");
  CHECK_REFUSED(io::load_job_trace("/dev/zero"), "/dev/zero is larger than 33554432 bytes, so it is no trace of jobs");
  CHECK_REFUSED(io::load_job_trace("/dev/null"), "/dev/null: not JSON");
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
