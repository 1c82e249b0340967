// SPDX-License-Identifier: Apache-2.0
// `reshard elastic schedule` and `trace`, asked as a person or a program asks them.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../support/drawn.hpp"
#include "process.hpp"

using nlohmann::json;
using testing::answer, testing::ask, testing::content_of, testing::here, testing::words;

namespace {
std::string trace() {
  const answer printed = ask({"elastic", "trace", "--seed", "5", "--hours", "12", "--devices", "32"});
  REQUIRE(printed.code == 0);
  return here().file("trace.json", printed.out);
}
void refused(const words& question, const std::string& sentence) {
  const answer got = ask(question);
  CHECK(got.code == 1);
  CHECK(got.out.empty());
  if (got.err.find(sentence) == std::string::npos) CHECK(got.err == sentence);
}
}  // namespace

TEST_CASE("a trace that is printed: the same for a seed, two days of 128 devices by default") {
  const answer two_days = ask({"elastic", "trace"});
  REQUIRE(two_days.code == 0);
  const json file = json::parse(two_days.out);
  CHECK(file["devices"] == 128);
  CHECK(file["jobs"].size() > 200);
  CHECK(file["jobs"].back()["submit"] > 40 * 3600);
  CHECK(ask({"elastic", "trace", "--seed", "1", "--hours", "48", "--devices", "128"}).out == two_days.out);
  CHECK(ask({"elastic", "trace", "--seed", "2"}).out != two_days.out);
}

TEST_CASE("one policy or all four, as a table, JSON and a picture") {
  const std::string file = trace();
  const answer table = ask({"elastic", "schedule", file, "--pause", "0.25", "--overhead", "0.003"});
  REQUIRE(table.code == 0);
  for (const char* said : {" jobs on 32 devices; simulated, not measured\n", "a change stops a job for 250.00 ms; ",
                           "being elastic takes 0.30 % of its speed", "fifo", "e-backfill", "pending, mean",
                           "completion, median", "makespan", "utilisation"})
    CHECK(table.out.find(said) != std::string::npos);
  const answer all = ask({"elastic", "schedule", "--json", "--pause", "2", file});
  REQUIRE(all.code == 0);
  const json schedules = json::parse(all.out)["schedules"];
  REQUIRE(schedules.size() == 4);
  const char* const names[] = {"fifo", "e-fifo", "backfill", "e-backfill"};
  for (std::size_t i = 0; i < 4; ++i) {
    const answer one = ask({"elastic", "schedule", "--policy", names[i], "--json", "--pause", "2", file});
    REQUIRE(one.code == 0);
    CHECK(json::parse(one.out) == schedules[i]);
    CHECK(schedules[i]["policy"] == names[i]);
    CHECK(schedules[i]["pause"] == 2);
  }
  CHECK(schedules[1]["completion"]["mean"] < schedules[0]["completion"]["mean"]);
  CHECK(schedules[3]["completion"]["mean"] < schedules[2]["completion"]["mean"]);
  const std::string svg = (here().folder / "schedule.svg").string();
  REQUIRE(ask({"elastic", "schedule", "--policy", "fifo", "--svg", svg, file}).code == 0);
  const testing::drawn_picture picture(content_of(svg));
  for (const char* policy : names) CHECK(picture.says(std::string(policy) + ": utilisation"));
}

TEST_CASE("what is refused") {
  const std::string file = trace();
  refused({"elastic"}, "a subcommand is required");
  refused({"elastic", "schedule"}, "TRACE is required");
  refused({"elastic", "schedule", file, "--policy", "lifo"},
          "reshard: --policy: 'lifo' is unknown; it is fifo, e-fifo, backfill or e-backfill\n");
  for (const char* number : {"", "1x", "x", "1,5", " 1"})
    refused({"elastic", "schedule", file, "--pause", number}, "reshard: --pause: '");
  refused({"elastic", "schedule", file, "--overhead", "few"}, "reshard: --overhead: 'few' is not a number\n");
  refused({"elastic", "schedule", file, "--pause=-1"}, "reshard: a pause of -1 seconds; it is 0 to ten years\n");
  refused({"elastic", "schedule", file, "--pause", "nan"}, "a pause of nan seconds");
  refused({"elastic", "schedule", file, "--overhead", "1"},
          "an overhead of 1; it is a fraction, 0 or more and below 1");
  refused({"elastic", "schedule", "/none"}, "reshard: /none cannot be read: No such file or directory\n");
  refused({"elastic", "schedule", here().file("bad.json", "{\"devices\": 4}")}, "the trace: jobs is missing");
  refused({"elastic", "schedule", file, "--svg", "/none/a.svg"}, "/none/a.svg cannot be written");
  refused({"elastic", "trace", "--seed", "-1"}, "reshard: --seed: '-1' is not a number");
  refused({"elastic", "trace", "--hours", "0"}, "a synthetic trace of 0 hours; there are 1 to 8784");
  refused({"elastic", "trace", "--devices", "4097"}, "a synthetic trace of 4097 devices; there are 1 to 4096");
  refused({"elastic", "trace", "--hours", "1e3"}, "--hours: '1e3' is not a number");
  CHECK(ask({"elastic", "schedule", "--help"}).out.find("TRACE: {\"devices\": 128") != std::string::npos);
}
