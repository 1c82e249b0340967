// SPDX-License-Identifier: Apache-2.0
// Traces of jobs as files: what is read, what is refused, in one sentence, and that what is written is read back.
// (job_trace_hostile.cpp has damaged and large ones.)
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/job_trace_json.hpp>
#include <reshard/queue/synthetic_trace.hpp>

#include "../support/refused.hpp"
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

TEST_CASE("a list or an object of up to eight is shown in a sentence, a longer one called what it is") {
  const std::vector<int> eight(8, 0), nine(9, 0);
  CHECK_REFUSED(read(changed("/jobs/1/samples", eight).dump()), "job 1: samples is [0,0,0,0,0,0,0,0]; it is a number");
  CHECK_REFUSED(read(changed("/jobs/1/samples", nine).dump()), "job 1: samples is a list; it is a number");
  json many = {{"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}, {"e", 0}, {"f", 0}, {"g", 0}};
  for (const char* key : {"h", "i"}) {
    many[key] = 0;
    CHECK_REFUSED(read(changed("/jobs", many).dump()),
                  std::string("t.json: jobs is ") +
                      (many.size() == 8 ? R"({"a":0,"b":0,"c":0,"d":0,"e...,"g":0,"h":0})" : "an object") +
                      "; it is a list of jobs");
  }
}

TEST_CASE("a value is shown with 43 letters, and of more the first 27 and the last 13; counts have a greatest") {
  const std::string xs(41, 'x'), counts = "; it is a whole number from 1 to 4096";
  CHECK_REFUSED(read(changed("/devices", xs).dump()), "t.json: devices is \"" + xs + "\"" + counts);
  CHECK_REFUSED(read(changed("/devices", xs + "x").dump()),
                "t.json: devices is \"" + xs.substr(0, 26) + "..." + xs.substr(0, 12) + "\"" + counts);
  CHECK(read(changed("/devices", 4096).dump()).devices == 4096);
  CHECK_REFUSED(read(changed("/devices", 4097).dump()), "t.json: devices is 4097" + counts);
  for (const char* key : {"requested", "min", "max"}) {
    const std::string at = "/jobs/0/" + std::string(key), words = "job 0: " + std::string(key) + " is ";
    const std::string most = testing::refused([&] { read(changed(at.c_str(), 1'000'000).dump()); });
    CHECK(most.find("it is a whole number") == std::string::npos);
    CHECK_REFUSED(read(changed(at.c_str(), 1'000'001).dump()),
                  words + "1000001; it is a whole number from 1 to 1000000");
    CHECK_REFUSED(read(changed(at.c_str(), 0).dump()), words + "0; it is a whole number from 1 to 1000000");
  }
}

TEST_CASE("throughput is told with up to 4096 devices, whichever way it is told") {
  const std::string with = "job 0: throughput with 4097 devices; they are 1 to 4096";
  const job_trace by_key = read(changed("/jobs/0/throughput/4096", 30).dump());
  REQUIRE(by_key.jobs[0].throughput.size() == 4097);
  CHECK(by_key.jobs[0].throughput[4096] == 30);
  CHECK(by_key.jobs[0].throughput[4095] == 0);
  CHECK_REFUSED(read(changed("/jobs/0/throughput", std::vector<int>(4097, 5)).dump()), with);
  const job_trace as_list = read(changed("/jobs/0/throughput", std::vector<int>(4096, 5)).dump());
  CHECK(as_list.jobs[0].throughput.size() == 4097);
  CHECK(read(changed("/jobs/1/throughput/2", {4096, 40}).dump()).jobs[1].throughput[4096] == 40);
  CHECK_REFUSED(read(changed("/jobs/1/throughput/2", {4097, 40}).dump()),
                "job 1: throughput's devices is 4097; it is a whole number from 1 to 4096");
}

TEST_CASE("a key of throughput is a number in digits, from 1 to 4096, without a zero before it") {
  for (const std::string key : {"", "0", "x", "-1", "+1", "1x", "x1", "/", ":", "1 ", " 1", "1.0", "1:", "9:", "0x1"}) {
    json file = json::parse(sound);
    file["jobs"][0]["throughput"][key] = 5;
    CHECK_REFUSED(read(file.dump()), "t.json: job 0: throughput with '" + key + "' devices; they are 1 to 4096");
  }
  // of what has too many digits the rest is not read
  CHECK_REFUSED(read(changed("/jobs/0/throughput/40960", 5).dump()), "throughput with 40960 devices; they are 1 to");
  CHECK_REFUSED(read(changed("/jobs/0/throughput/40970", 5).dump()), "throughput with '40970' devices; they are 1 to");
  json file = json::parse(sound);  // 44 digits
  file["jobs"][0]["throughput"][std::string(27, '1') + std::string(4, '2') + std::string(13, '3')] = 5;
  CHECK_REFUSED(read(file.dump()), "throughput with '" + std::string(27, '1') + "..." + std::string(13, '3') + "' dev");
}

TEST_CASE("at most 20,000 jobs are looked at") {
  CHECK_REFUSED(read(changed("/jobs", std::vector<int>(20000, 0)).dump()), "t.json: job 0 is 0; it is an object");
  CHECK_REFUSED(read(changed("/jobs", std::vector<int>(20001, 0)).dump()),
                "t.json: there are 20001 jobs; at most 20000 are scheduled");
}

TEST_CASE("files") {
  CHECK(io::load_job_trace(testing::here().file("sound.json", sound)).jobs.size() == 3);
  CHECK_REFUSED(io::load_job_trace("/none/at all"), "/none/at all cannot be read: No such file");
  CHECK_REFUSED(io::load_job_trace("/"), "/ cannot be read: ");
  CHECK_REFUSED(io::load_job_trace("/dev/zero"), "/dev/zero is larger than 33554432 bytes, so it is no trace of jobs");
  CHECK_REFUSED(io::load_job_trace("/dev/null"), "/dev/null: not JSON");
  const std::string large = testing::here().file("large.json", "");  // of zeros
  std::filesystem::resize_file(large, 1 << 25);
  CHECK_REFUSED(io::load_job_trace(large), "large.json: not JSON");
  std::filesystem::resize_file(large, (1 << 25) + 1);
  CHECK_REFUSED(io::load_job_trace(large), "large.json is larger than 33554432 bytes, so it is no trace of jobs");
}
