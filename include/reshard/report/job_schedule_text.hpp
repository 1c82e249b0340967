// SPDX-License-Identifier: Apache-2.0
// What `reshard elastic schedule` prints: policies beside each other as a table of 80 columns, and each as JSON. All of
// it is simulated.
// Builds on: io/print.hpp, io/text_output.hpp, queue/schedule_figures.hpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <reshard/io/print.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/queue/schedule_figures.hpp>

namespace reshard::io {

/// "45.0 s", "12.3 min", "3.42 h"
inline std::string duration_text(double seconds) {
  if (seconds < 119.95) return text_of(detail::decimal_text(seconds, 1), " s");
  if (seconds < 7197) return text_of(detail::decimal_text(seconds / 60, 1), " min");
  return text_of(detail::decimal_text(seconds / 3600, 2), " h");
}

/// {"simulated":true,"policy":"..","devices":G,"pause":..,"overhead":..,"pending":{"mean":..,"median":..},
/// "completion":{..},"makespan":..,"mean_utilisation":..,"stopped":..,"changes":..,"utilisation":[..],"waiting":[..],
/// "jobs":[{"submit":..,"start":..,"end":..,"changes":..,"allocations":[[from,devices],..]},..]}
inline void write_job_run(text_output& out, const job_trace& trace, const job_run& run) {
  const schedule_figures& f = run.figures;
  const auto pair = [&](const char* key, const mean_and_median& of) {
    out << ",\"" << key << "\":{\"mean\":" << of.mean << ",\"median\":" << of.median << "}";
  };
  const auto list = [&](const char* key, const std::vector<double>& minutes) {
    out << ",\"" << key << "\":[";
    json_items items(out);
    for (const double one : minutes) items.next() << one;
    out << "]";
  };
  out << "{\"simulated\":true,\"policy\":\"" << name(run.schedule.policy) << "\",\"devices\":" << trace.devices
      << ",\"pause\":" << run.schedule.cost.pause << ",\"overhead\":" << run.schedule.cost.overhead;
  pair("pending", f.pending);
  pair("completion", f.completion);
  out << ",\"makespan\":" << f.makespan << ",\"mean_utilisation\":" << f.utilisation << ",\"stopped\":" << f.stopped
      << ",\"changes\":" << f.changes;
  list("utilisation", f.by_minute);
  list("waiting", f.waiting);
  out << ",\"jobs\":[";
  json_items jobs(out);
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    const scheduled_job& job = run.schedule.jobs[i];
    jobs.next() << "{\"submit\":" << trace.jobs[i].submit << ",\"start\":" << job.start << ",\"end\":" << job.end
                << ",\"changes\":" << job.changes() << ",\"allocations\":[";
    json_items held(out);
    for (const held_devices& h : job.held) held.next() << "[" << h.from << "," << h.devices << "]";
    out << "]}";
  }
  out << "]}";
}

namespace detail {

/// A block as high as a share: " " for none, eight eighths for all.
inline const char* block_of(double share) {
  constexpr const char* blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int eighths = static_cast<int>(share * 8 + 0.5);
  return blocks[eighths < 0 ? 0 : eighths > 8 ? 8 : eighths];
}

/// Means of so many minutes each.
inline std::vector<double> means_of(const std::vector<double>& minutes, std::size_t each) {
  std::vector<double> means;
  for (std::size_t first = 0; first < minutes.size(); first += each) {
    const std::size_t past = std::min(first + each, minutes.size());
    double sum = 0;
    for (std::size_t m = first; m < past; ++m) sum += minutes[m];
    means.push_back(sum / static_cast<double>(past - first));
  }
  return means;
}

/// A row of blocks for each run, of at most 64 columns; all have the same minutes a column.
inline std::string utilisation_text(const std::vector<job_run>& runs) {
  std::size_t longest = 1, each = 1;
  for (const job_run& run : runs) longest = std::max(longest, run.figures.by_minute.size());
  for (const std::size_t minutes : {1u, 5u, 15u, 30u, 60u, 120u, 360u, 1440u}) {
    each = minutes;
    if (longest <= 64 * each) break;
  }
  while (longest > 64 * each) each *= 2;
  std::string text = text_of("utilisation, ", duration_text(60 * static_cast<double>(each)), " a column:\n");
  for (const job_run& run : runs) {
    std::string label = text_of("  ", name(run.schedule.policy));
    label.resize(12, ' ');
    text += label + " ";
    for (const double share : means_of(run.figures.by_minute, each)) text += block_of(share);
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  return text;
}

}  // namespace detail

/// The table of runs of one trace, a column each; each has the same cost of a change.
inline std::string job_runs_text(const job_trace& trace, const std::vector<job_run>& runs) {
  std::string text =
      text_of(count_text(std::ssize(trace.jobs)), trace.jobs.size() == 1 ? " job on " : " jobs on ",
              count_text(trace.devices), trace.devices == 1 ? " device" : " devices", "; simulated, not measured\n");
  const change_cost& cost = runs.front().schedule.cost;
  bool elastic = false;
  for (const job_run& run : runs) elastic = elastic || is_elastic(run.schedule.policy);
  if (elastic)
    text += text_of("a change stops a job for ", cost.pause > 0 ? seconds_text(cost.pause) : "0 s",
                    "; being elastic takes ", detail::decimal_text(100 * cost.overhead, 2), " % of its speed\n");
  std::vector<table::column> columns{{"", table::side::left}};
  for (const job_run& run : runs) columns.push_back({std::string(name(run.schedule.policy))});
  table rows(columns);
  const auto row = [&](const char* what, const auto& cell) {
    std::vector<std::string> cells{what};
    for (const job_run& run : runs) cells.push_back(cell(run.figures));
    rows.row(std::move(cells));
  };
  const auto percent = [](double share) { return text_of(detail::decimal_text(100 * share, 1), " %"); };
  row("pending, mean", [](const schedule_figures& f) { return duration_text(f.pending.mean); });
  row("pending, median", [](const schedule_figures& f) { return duration_text(f.pending.median); });
  row("completion, mean", [](const schedule_figures& f) { return duration_text(f.completion.mean); });
  row("completion, median", [](const schedule_figures& f) { return duration_text(f.completion.median); });
  row("makespan", [](const schedule_figures& f) { return duration_text(f.makespan); });
  row("utilisation", [&](const schedule_figures& f) { return percent(f.utilisation); });
  row("stopped for changes", [&](const schedule_figures& f) { return percent(f.stopped); });
  row("changes", [](const schedule_figures& f) { return count_text(f.changes); });
  return text + "\n" + rows.text() + "\n" + detail::utilisation_text(runs);
}

}  // namespace reshard::io
