// SPDX-License-Identifier: Apache-2.0
// elastic schedule, elastic trace: is elasticity worth it on a cluster, for jobs that came to it or might have?
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <reshard/io/arguments.hpp>
#include <reshard/io/job_trace_json.hpp>
#include <reshard/queue/synthetic_trace.hpp>
#include <reshard/report/job_schedule_svg.hpp>
#include <reshard/report/job_schedule_text.hpp>

#include "commands.hpp"

namespace reshard::tool {

namespace {

struct schedule_arguments {
  std::string trace;
  std::optional<std::string> policy, pause, overhead, svg;
  bool json = false;
};
struct trace_arguments {
  std::optional<std::string> seed, hours, devices;
};

/// A decimal number, 0 where it is not given; what it may be is refused by who takes it.
double number_of(const char* what, const std::optional<std::string>& text) {
  if (!text) return 0;
  double number = 0;
  const auto [past, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error == std::errc::result_out_of_range)
    refuse(what, ": '", one_line(*text, 40), "' is too near 0, or too large");
  if (error != std::errc() || past != text->data() + text->size())
    refuse(what, ": '", one_line(*text, 40), "' is not a number");
  return number;
}

std::vector<job_policy> policies_asked_for(const std::optional<std::string>& text) {
  if (!text) return {std::begin(job_policies), std::end(job_policies)};
  const std::optional<job_policy> found = find_job_policy(*text);
  if (!found) refuse("--policy: '", one_line(*text, 40), "' is unknown; it is fifo, e-fifo, backfill or e-backfill");
  return {*found};
}

/// The table, or JSON, of the policy that is asked for, or of all four; the picture is always of all four.
void schedule(const schedule_arguments& given) {
  const change_cost cost{number_of("--pause", given.pause), number_of("--overhead", given.overhead)};
  const std::vector<job_policy> policies = policies_asked_for(given.policy);
  const job_trace trace = load_job_trace(given.trace);
  std::vector<job_run> runs;
  for (const job_policy policy : policies) runs.push_back(run_jobs(trace, policy, cost));
  if (given.svg) {
    std::vector<job_run> all;
    for (const job_policy policy : job_policies) all.push_back(run_jobs(trace, policy, cost));
    text_output picture;
    write_job_runs_svg(picture, trace, all);
    write_file(*given.svg, picture.text());
  }
  text_output out(stdout);
  if (!given.json) {
    out << job_runs_text(trace, runs);
  } else if (given.policy) {
    write_job_run(out, trace, runs.front());
    out << "\n";
  } else {
    out << "{\"schedules\":[";
    json_items items(out);
    for (const job_run& run : runs) write_job_run(items.next() << "\n", trace, run);
    out << "\n]}\n";
  }
  out.flush();
}

index_t digits_or(const char* what, const std::optional<std::string>& text, index_t otherwise) {
  return text ? io::detail::digits_of(what, *text) : otherwise;
}

void print_trace(const trace_arguments& given) {
  const index_t seed = digits_or("--seed", given.seed, 1);
  const job_trace trace = synthetic_trace(static_cast<std::uint64_t>(seed), digits_or("--hours", given.hours, 48),
                                          digits_or("--devices", given.devices, 128));
  text_output out(stdout);
  write_job_trace(out, trace);
  out.flush();
}

}  // namespace

void add_schedule(CLI::App& elastic) {
  constexpr const char* footer = R"(TRACE: {"devices": 128, "jobs": [{"submit": 0, "requested": 4, "min": 2,
"max": 8, "samples": 1e6, "throughput": {"2": 90, "3": 130, ..}}, ..]}, seconds
and samples a second by devices; reshard elastic trace prints one.)";
  CLI::App& schedules = *elastic.add_subcommand("schedule", "who runs when, by four policies: simulated");
  schedules.footer(footer);
  const auto asked = std::make_shared<schedule_arguments>();
  schedules.add_option("TRACE", asked->trace, "a JSON file of jobs and devices")->required();
  schedules.add_option("--policy", asked->policy, "fifo, e-fifo, backfill or e-backfill; default: all four");
  schedules.add_option("--pause", asked->pause, "seconds for which a change stops a job; 0 if not given");
  schedules.add_option("--overhead", asked->overhead, "the fraction of its speed that being elastic takes; 0");
  schedules.add_flag("--json", asked->json, "answer a program: JSON on stdout");
  schedules.add_option("--svg", asked->svg, "write all four policies as a picture to this file");
  schedules.callback([asked] { schedule(*asked); });

  CLI::App& traces = *elastic.add_subcommand("trace", "a synthetic trace of jobs, for elastic schedule");
  traces.footer("");
  const auto wanted = std::make_shared<trace_arguments>();
  traces.add_option("--seed", wanted->seed, "which one; 1 if not given");
  traces.add_option("--hours", wanted->hours, "how long jobs arrive; 48 if not given");
  traces.add_option("--devices", wanted->devices, "how many there are; 128 if not given");
  traces.callback([wanted] { print_trace(*wanted); });
}

}  // namespace reshard::tool
