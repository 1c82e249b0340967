// SPDX-License-Identifier: Apache-2.0
// Runs of one trace as a picture file, as Elan's Figures 20 and 21: under each other the utilisation over time of each
// policy and how many jobs wait, on one axis of time; then mean pending, mean completion and makespan as bars.
// Builds on: report/job_schedule_text.hpp, report/layout_svg.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/report/job_schedule_text.hpp>
#include <reshard/report/layout_svg.hpp>

namespace reshard::io {

namespace detail {

/// Draws runs from top to bottom, in tenths of a pixel.
class schedule_drawing {
 public:
  schedule_drawing(text_output& out, const job_trace& trace, const std::vector<job_run>& runs)
      : trace_(&trace), runs_(&runs), canvas_(out, 9400, top + panel * std::ssize(runs) + bars * 3 + 300) {
    for (const job_run& run : runs) {
      minutes_ = std::max(minutes_, run.figures.by_minute.size());
      for (const double jobs : run.figures.waiting) most_waiting_ = std::max(most_waiting_, jobs);
    }
    each_ = (minutes_ + columns - 1) / columns;
  }

  void draw() {
    canvas_.text(200, 320,
                 text_of(count_text(std::ssize(trace_->jobs)), trace_->jobs.size() == 1 ? " job on " : " jobs on ",
                         count_text(trace_->devices), trace_->devices == 1 ? " device" : " devices", ", simulated"),
                 "start", " font-size=\"16\" font-weight=\"bold\"");
    const change_cost& cost = runs_->front().schedule.cost;
    canvas_.text(200, 540,
                 text_of("a change stops an elastic job for ", cost.pause > 0 ? seconds_text(cost.pause) : "0 s",
                         "; blue: devices held, of all; orange: jobs that wait, of ", decimal_text(most_waiting_, 1)));
    index_t y = top;
    for (const job_run& run : *runs_) one_run(run, y), y += panel;
    metric("mean pending", y, [](const schedule_figures& f) { return f.pending.mean; });
    metric("mean completion", y + bars, [](const schedule_figures& f) { return f.completion.mean; });
    metric("makespan", y + 2 * bars, [](const schedule_figures& f) { return f.makespan; });
    canvas_.finish();
  }

 private:
  static constexpr index_t left = 1200, top = 800, width = 7800, held = 800, waits = 400, panel = 1800, bars = 800;
  static constexpr std::size_t columns = 780;

  index_t across(double minute) const {
    return left + static_cast<index_t>(minute / static_cast<double>(minutes_) * static_cast<double>(width));
  }
  /// Columns of equally many minutes, as high as their mean is of `most`; neighbours of one height are one rectangle.
  void curve(const std::vector<double>& minutes, double most, index_t y, index_t height, const char* style) {
    const std::vector<double> means = means_of(minutes, each_);
    const auto high = [&](std::size_t c) {
      return most > 0 ? static_cast<index_t>(means[c] / most * static_cast<double>(height) + 0.5) : 0;
    };
    for (std::size_t c = 0; c < means.size();) {
      const std::size_t first = c;
      while (c < means.size() && high(c) == high(first)) ++c;
      const index_t x = across(static_cast<double>(first * each_)), h = high(first);
      const index_t past = across(static_cast<double>(std::min(c * each_, minutes.size())));
      if (h > 0 && past > x) canvas_.rectangle(x, y + height - h, past - x, h, style);
    }
  }
  void one_run(const job_run& run, index_t y) {
    canvas_.text(left, y + 130,
                 text_of(name(run.schedule.policy), ": utilisation ", decimal_text(100 * run.figures.utilisation, 1),
                         " %, ", count_text(run.figures.changes), " changes"),
                 "start", " font-weight=\"bold\"");
    canvas_.rectangle(left, y + 200, width, held, "fill=\"#f4f4f4\"");
    curve(run.figures.by_minute, 1, y + 200, held, "fill=\"#4a90d9\" shape-rendering=\"crispEdges\"");
    canvas_.rectangle(left, y + 250 + held, width, waits, "fill=\"#f4f4f4\"");
    curve(run.figures.waiting, most_waiting_, y + 250 + held, waits, "fill=\"#d9480f\" shape-rendering=\"crispEdges\"");
    canvas_.text(left - 100, y + 280, "100 %", "end", " font-size=\"10\"");
    canvas_.text(left - 100, y + 200 + held, "0 %", "end", " font-size=\"10\"");
    canvas_.text(left - 100, y + 450 + held, "waiting", "end", " font-size=\"10\"");
    for (int i = 0; i <= 4; ++i) {
      const double minute = static_cast<double>(minutes_) * i / 4;
      canvas_.text(across(minute), y + 380 + held + waits, duration_text(60 * minute), "middle", " font-size=\"10\"");
    }
  }
  template <typename Metric>
  void metric(const char* what, index_t y, const Metric& of) {
    double most = 0;
    for (const job_run& run : *runs_) most = std::max(most, of(run.figures));
    canvas_.text(200, y + 130, what, "start", " font-weight=\"bold\"");
    for (std::size_t i = 0; i < runs_->size(); ++i) {
      const job_run& run = (*runs_)[i];
      const double value = of(run.figures);
      const index_t at = y + 130 * static_cast<index_t>(i);
      const index_t w = most > 0 ? static_cast<index_t>(value / most * 5200) : 0;
      canvas_.text(2500, at + 130, name(run.schedule.policy), "end", " font-size=\"10\"");
      if (w > 0)
        canvas_.rectangle(2600, at + 40, w, 100,
                          is_elastic(run.schedule.policy) ? "fill=\"#4a90d9\"" : "fill=\"#999\"");
      canvas_.text(2700 + w, at + 130, duration_text(value), "start", " font-size=\"10\"");
    }
  }

  const job_trace* trace_;
  const std::vector<job_run>* runs_;
  std::size_t minutes_ = 1, each_ = 1;
  double most_waiting_ = 0;
  svg_canvas canvas_;
};

}  // namespace detail

/// Draws runs of one trace, in their order; with the same cost of a change.
inline void write_job_runs_svg(text_output& out, const job_trace& trace, const std::vector<job_run>& runs) {
  detail::schedule_drawing(out, trace, runs).draw();
}

}  // namespace reshard::io
