// SPDX-License-Identifier: Apache-2.0
// Schedules as a table and as JSON: the numbers are the figures', lines have 80 columns, and all is called simulated.
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/queue/synthetic_trace.hpp>
#include <reshard/report/job_schedule_text.hpp>

using namespace reshard;
using nlohmann::json;

namespace {
std::vector<job_run> all_runs(const job_trace& trace, change_cost cost) {
  std::vector<job_run> runs;
  for (const job_policy policy : job_policies) runs.push_back(run_jobs(trace, policy, cost));
  return runs;
}
}  // namespace

TEST_CASE("durations") {
  CHECK(io::duration_text(0) == "0.0 s");
  CHECK(io::duration_text(119.9) == "119.9 s");
  CHECK(io::duration_text(119.95) == "2.0 min");
  CHECK(io::duration_text(119.96) == "2.0 min");
  CHECK(io::duration_text(7190) == "119.8 min");
  CHECK(io::duration_text(7196.9) == "119.9 min");
  CHECK(io::duration_text(7197) == "2.00 h");
  CHECK(io::duration_text(7200) == "2.00 h");
  CHECK(io::duration_text(90000) == "25.00 h");
}

TEST_CASE("the table, of a trace by hand") {
  const job_trace trace{2, {{0, 2, 1, 2, 7200, {0, 1, 2}, ""}, {60, 2, 1, 2, 240, {0, 1, 2}, ""}}};
  std::vector<job_run> runs{run_jobs(trace, job_policy::fifo, {0.5, 0.003}),
                            run_jobs(trace, job_policy::e_fifo, {0.5, 0.003})};
  runs[0].figures.pending.median = 30, runs[0].figures.completion.median = 3600;  // of two they are the means
  CHECK(io::job_runs_text(trace, runs) == R"(2 jobs on 2 devices; simulated, not measured
a change stops a job for 500.00 ms; being elastic takes 0.30 % of its speed

                           fifo    e-fifo
  pending, mean        29.5 min     0.0 s
  pending, median        30.0 s     0.0 s
  completion, mean     60.5 min  33.1 min
  completion, median   60.0 min  33.1 min
  makespan             62.0 min  62.2 min
  utilisation           100.0 %   100.0 %
  stopped for changes     0.0 %     0.0 %
  changes                     0         2

utilisation, 60.0 s a column:
  fifo       ██████████████████████████████████████████████████████████████
  e-fifo     ███████████████████████████████████████████████████████████████
)");
  for (job_run& run : runs) run.schedule.cost = {0, 0.25};
  CHECK(io::job_runs_text(trace, runs).find("\na change stops a job for 0 s; being elastic takes 25.00 % of its") !=
        std::string::npos);
  runs.pop_back();
  const std::string one = io::job_runs_text({1, {trace.jobs[0]}}, runs);
  CHECK(one.starts_with("1 job on 1 device; simulated, not measured\n\n"));  // no change, no cost of one
}

TEST_CASE("a column of utilisation is the mean of its minutes") {
  using io::detail::block_of;
  CHECK(block_of(0) == std::string(" "));
  CHECK(block_of(0.06) == std::string(" "));
  CHECK(block_of(0.07) == std::string("▁"));
  const char* const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  for (int n = 0; n <= 8; ++n) CHECK(block_of(n / 8.0) == std::string(eighths[n]));
  CHECK(block_of(1) == std::string("█"));
  CHECK(block_of(1.1) == std::string("█"));
  CHECK(block_of(1.2) == std::string("█"));
  CHECK(io::detail::means_of({1, 3, 5, 7, 10}, 2) == std::vector<double>{2, 6, 10});
  job_run run;
  run.figures.by_minute.assign(65, 1);
  CHECK(
      io::detail::utilisation_text({run}).starts_with("utilisation, 5.0 min a column:\n  fifo       █████████████\n"));
  const std::pair<std::size_t, const char*> columns[] = {
      {1, "60.0 s"},      {64, "60.0 s"},     {65, "5.0 min"},     {320, "5.0 min"},   {321, "15.0 min"},
      {960, "15.0 min"},  {961, "30.0 min"},  {1920, "30.0 min"},  {1921, "60.0 min"}, {3840, "60.0 min"},
      {3841, "2.00 h"},   {7680, "2.00 h"},   {7681, "6.00 h"},    {23040, "6.00 h"},  {23041, "24.00 h"},
      {92160, "24.00 h"}, {92161, "48.00 h"}, {184320, "48.00 h"}, {184321, "96.00 h"}};
  for (const auto& [minutes, column] : columns) {
    run.figures.by_minute.assign(minutes, 1);
    const std::string text = io::detail::utilisation_text({run});
    CHECK_MESSAGE(text.starts_with("utilisation, " + std::string(column) + " a column:\n"), text);
  }
  run.figures.by_minute = {-1, 2};  // no more than an empty column, and a full one
  CHECK(io::detail::utilisation_text({run}).ends_with("  fifo        █\n"));
  run.figures.by_minute = {1, 0, 0};  // no spaces at a line's end
  CHECK(io::detail::utilisation_text({run}).ends_with("  fifo       █\n"));
  run.figures.by_minute.assign(64 * 1440 + 1, 1);
  CHECK(io::detail::utilisation_text({run}).starts_with("utilisation, 48.00 h a column:\n"));
}

TEST_CASE("80 columns, whatever the trace") {
  for (const index_t hours : {1, 12, 48, 200}) {
    const job_trace trace = synthetic_trace(7, hours, 24);
    std::istringstream text(io::job_runs_text(trace, all_runs(trace, {100, 0.01})));
    for (std::string line; std::getline(text, line);) CHECK(io::text_width(line) <= 80);
  }
}

TEST_CASE("JSON has every figure and every change") {
  const job_trace trace = synthetic_trace(3, 10, 20);
  for (const job_run& run : all_runs(trace, {2, 0.25})) {
    io::text_output out;
    io::write_job_run(out, trace, run);
    const json told = json::parse(out.text());
    const schedule_figures& f = run.figures;
    CHECK(told["simulated"] == true);
    CHECK(told["policy"] == std::string(name(run.schedule.policy)));
    CHECK(told["devices"] == 20);
    CHECK(told["pause"] == 2);
    CHECK(told["overhead"] == 0.25);
    CHECK(told["pending"] == json{{"mean", f.pending.mean}, {"median", f.pending.median}});
    CHECK(told["completion"] == json{{"mean", f.completion.mean}, {"median", f.completion.median}});
    CHECK(told["makespan"] == f.makespan);
    CHECK(told["mean_utilisation"] == f.utilisation);
    CHECK(told["stopped"] == f.stopped);
    CHECK(told["changes"] == f.changes);
    CHECK(told["utilisation"] == json(f.by_minute));
    CHECK(told["waiting"] == json(f.waiting));
    REQUIRE(told["jobs"].size() == trace.jobs.size());
    for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
      const scheduled_job& job = run.schedule.jobs[i];
      json held = json::array();
      for (const held_devices& h : job.held) held.push_back({h.from, h.devices});
      CHECK(told["jobs"][i] == json{{"submit", trace.jobs[i].submit},
                                    {"start", job.start},
                                    {"end", job.end},
                                    {"changes", job.changes()},
                                    {"allocations", held}});
    }
  }
}
