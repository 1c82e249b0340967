// SPDX-License-Identifier: Apache-2.0
// The picture of schedules, read back: its curves are the minutes' means, bars the figures, and words stay apart.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <reshard/queue/synthetic_trace.hpp>
#include <reshard/report/job_schedule_svg.hpp>

#include "../support/drawn.hpp"

using namespace reshard;
using testing::drawn_picture, testing::drawn_shape;

namespace {
drawn_picture drawn(const job_trace& trace, const std::vector<job_run>& runs) {
  io::text_output out;
  io::write_job_runs_svg(out, trace, runs);
  return drawn_picture(out.text());
}
std::vector<drawn_shape> of(const drawn_picture& picture, const char* style) {
  std::vector<drawn_shape> found;
  std::copy_if(picture.rectangles.begin(), picture.rectangles.end(), std::back_inserter(found),
               [&](const drawn_shape& r) { return r.has(style); });
  return found;
}
double area(const std::vector<drawn_shape>& shapes, double upper, double lower) {
  double sum = 0;
  for (const drawn_shape& r : shapes)
    if (r.y >= upper - 0.1 && r.y + r.height <= lower + 0.1) sum += r.width * r.height;
  return sum;
}
}  // namespace

TEST_CASE("four policies under each other, on one axis of time") {
  const job_trace trace = synthetic_trace(2);
  std::vector<job_run> runs;
  double longest = 0, most_waiting = 0;
  for (const job_policy policy : job_policies) {
    runs.push_back(run_jobs(trace, policy, {30, 0}));
    longest = std::max(longest, static_cast<double>(runs.back().figures.by_minute.size()));
    for (const double jobs : runs.back().figures.waiting) most_waiting = std::max(most_waiting, jobs);
  }
  const drawn_picture picture = drawn(trace, runs);
  picture.check_words_apart();
  CHECK(picture.says("261 jobs on 128 devices, simulated"));
  CHECK(picture.says("a change stops an elastic job for 30.000 s"));
  const std::vector<drawn_shape> grounds = of(picture, "#f4f4f4"), held = of(picture, "#4a90d9"),
                                 waiting = of(picture, "#d9480f");
  REQUIRE(grounds.size() == 8);
  for (std::size_t i = 0; i < 4; ++i) {
    const schedule_figures& f = runs[i].figures;
    CHECK(picture.says(std::string(name(runs[i].schedule.policy)) + ": utilisation "));
    const drawn_shape &above = grounds[2 * i], &below = grounds[2 * i + 1];
    CHECK(above.y + above.height < below.y);
    if (i > 0) CHECK(grounds[2 * i - 1].y + grounds[2 * i - 1].height < above.y);
    double minutes = 0, jobs = 0;
    for (const double share : f.by_minute) minutes += share;
    for (const double one : f.waiting) jobs += one;
    // areas are shares of the ground that all policies have
    CHECK(area(held, above.y, above.y + above.height) / (above.width * above.height) ==
          doctest::Approx(minutes / longest).epsilon(0.01));
    CHECK(area(waiting, below.y, below.y + below.height) / (below.width * below.height) ==
          doctest::Approx(jobs / longest / most_waiting).epsilon(0.01));
    for (const drawn_shape& r : held) CHECK(r.x + r.width <= above.x + above.width + 0.1);
  }
}

TEST_CASE("bars are as long as the figures") {
  const job_trace trace = synthetic_trace(3);
  std::vector<job_run> runs;
  for (const job_policy policy : job_policies) runs.push_back(run_jobs(trace, policy));
  const drawn_picture picture = drawn(trace, runs);
  CHECK(picture.says("for 0 s; blue"));
  std::vector<drawn_shape> bars;
  for (const drawn_shape& r : picture.rectangles)
    if (std::fabs(r.x - 260) < 0.1 && std::fabs(r.height - 10) < 0.1) bars.push_back(r);
  REQUIRE(bars.size() == 12);
  double (*const of_run[])(const job_run&) = {[](const job_run& r) { return r.figures.pending.mean; },
                                              [](const job_run& r) { return r.figures.completion.mean; },
                                              [](const job_run& r) { return r.figures.makespan; }};
  for (std::size_t m = 0; m < 3; ++m) {
    double most = 0;
    for (const job_run& run : runs) most = std::max(most, of_run[m](run));
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(std::fabs(bars[4 * m + i].width - 520 * of_run[m](runs[i]) / most) < 0.11);
      CHECK(picture.says(io::duration_text(of_run[m](runs[i]))));
      CHECK(bars[4 * m + i].has(is_elastic(runs[i].schedule.policy) ? "#4a90d9" : "#999"));
    }
  }
  for (const char* metric : {"mean pending", "mean completion", "makespan"}) CHECK(picture.says(metric));
}

TEST_CASE("one job that never waits, and one that takes no time") {
  const job_trace trace{1, {{0, 1, 1, 1, 600, {0, 1}, ""}}};
  const drawn_picture picture = drawn(trace, {run_jobs(trace, job_policy::fifo)});
  picture.check_words_apart();
  CHECK(of(picture, "#4a90d9").size() == 1);
  CHECK(of(picture, "#d9480f").empty());
  CHECK(picture.says("1 job on 1 device, simulated"));
  // two minutes a column, and one left over
  const job_trace odd{1, {{0, 1, 1, 1, 781 * 60, {0, 1}, ""}}};
  const drawn_picture cut = drawn(odd, {run_jobs(odd, job_policy::fifo)});
  const std::vector<drawn_shape> held = of(cut, "#4a90d9\" shape"), ground = of(cut, "#f4f4f4");
  REQUIRE(held.size() == 1);
  CHECK(held[0].width == ground[0].width);
  const job_trace none{1, {{0, 1, 1, 1, 1e-12, {0, 1e3}, ""}}};
  drawn(none, {run_jobs(none, job_policy::e_fifo)}).check_words_apart();
}

TEST_CASE("780 columns at most: each is the mean of equally many minutes") {
  const job_trace trace{1, {{0, 1, 1, 1, 600, {0, 1}, ""}}};
  for (const std::size_t minutes : {780u, 1560u}) {
    job_run run = run_jobs(trace, job_policy::fifo);
    run.figures.by_minute.clear();
    for (std::size_t m = 0; m < minutes; ++m) run.figures.by_minute.push_back(m % 2 == 0 ? 1 : 0);
    const drawn_picture picture = drawn(trace, {run});
    const std::vector<drawn_shape> held = of(picture, "#4a90d9\" shape"), ground = of(picture, "#f4f4f4");
    REQUIRE(held.size() == (minutes == 780 ? 390 : 1));
    CHECK(held[0].height == doctest::Approx(ground[0].height * (minutes == 780 ? 1 : 0.5)));
  }
}

TEST_CASE("what is little is drawn, what is nothing is not") {
  const job_trace trace{1, {{0, 1, 1, 1, 600, {0, 1}, ""}}};
  const job_run run = run_jobs(trace, job_policy::fifo);
  const auto bars = [&](const std::vector<job_run>& runs) {
    std::vector<double> widths;
    for (const drawn_shape& r : drawn(trace, runs).rectangles)
      if (std::fabs(r.x - 260) < 0.1 && std::fabs(r.height - 10) < 0.1) widths.push_back(r.width);
    return widths;
  };
  CHECK(bars({run}) == std::vector<double>{520, 520});  // nobody waits
  job_run shorter = run, little = run;
  shorter.figures.makespan = 600 / 5200.;
  CHECK(bars({run, shorter}) == std::vector<double>{520, 520, 520, 0.1});
  shorter.figures.completion.mean = 0.25;  // seconds: the longest is as long as any
  CHECK(bars({shorter}) == std::vector<double>{520, 520});
  little.figures.by_minute = {1 / 800.};
  const std::vector<drawn_shape> held = of(drawn(trace, {little}), "#4a90d9");
  REQUIRE(held.size() == 1);
  CHECK(held[0].height == doctest::Approx(0.1));
  // a minute of 78,000 in a column of its own: a tenth of a tenth of a pixel
  job_run longest = run;
  longest.figures.by_minute.assign(78'000, 0);
  little.figures.by_minute.assign(100, 0);
  little.figures.by_minute.push_back(1);
  CHECK(of(drawn(trace, {longest, little}), "#4a90d9").empty());
}

TEST_CASE("each line of a picture, written by other code") {
  const job_trace trace{
      2, {{0, 1, 1, 2, 300, {0, 1, 2}, ""}, {30, 1, 1, 2, 180, {0, 1, 2}, ""}, {40, 2, 1, 2, 90, {0, 1, 2}, ""}}};
  std::vector<job_run> runs;
  for (const job_policy policy : {job_policy::fifo, job_policy::e_fifo}) runs.push_back(run_jobs(trace, policy));
  std::size_t minutes = 0;
  double most_waiting = 0;
  for (const job_run& run : runs) {
    minutes = std::max(minutes, run.figures.by_minute.size());
    for (const double jobs : run.figures.waiting) most_waiting = std::max(most_waiting, jobs);
  }
  REQUIRE((minutes > 2 && minutes < 780 && most_waiting > 0));  // a minute a column
  const auto column = [&](double minute) {
    return 1200 + static_cast<long>(minute / static_cast<double>(minutes) * 7800);
  };
  const std::string bold = "font-weight=\"bold\"", ten = "font-size=\"10\"", crisp = " shape-rendering=\"crispEdges\"";
  testing::own_picture own(9400, 3500 + 1800 * 2);
  own.text(200, 320, "start", "3 jobs on 2 devices, simulated", "font-size=\"16\" " + bold);
  own.text(200, 540, "start",
           "a change stops an elastic job for 0 s; blue: devices held, of all; orange: jobs that wait, of " +
               io::detail::decimal_text(most_waiting, 1));
  std::size_t stairs = 0;
  const auto curve = [&](const std::vector<double>& each, double most, long lower, long height,
                         const std::string& style) {
    const auto high = [&](std::size_t m) { return std::lround(each[m] / most * static_cast<double>(height)); };
    std::size_t first = 0;
    for (std::size_t m = 1; m <= each.size(); ++m) {
      if (m < each.size() && high(m) == high(first)) continue;
      const long left = column(static_cast<double>(first)), right = column(static_cast<double>(m));
      if (high(first) > 0) own.rectangle(left, lower - high(first), right - left, high(first), style), ++stairs;
      first = m;
    }
  };
  for (std::size_t i = 0; i < 2; ++i) {
    const long top = 800 + 1800 * static_cast<long>(i);
    const schedule_figures& f = runs[i].figures;
    own.text(1200, top + 130, "start",
             std::string(name(runs[i].schedule.policy)) + ": utilisation " +
                 io::detail::decimal_text(100 * f.utilisation, 1) + " %, " + std::to_string(f.changes) + " changes",
             bold);
    own.rectangle(1200, top + 200, 7800, 800, "fill=\"#f4f4f4\"");
    curve(f.by_minute, 1, top + 1000, 800, "fill=\"#4a90d9\"" + crisp);
    own.rectangle(1200, top + 1050, 7800, 400, "fill=\"#f4f4f4\"");
    curve(f.waiting, most_waiting, top + 1450, 400, "fill=\"#d9480f\"" + crisp);
    own.text(1100, top + 280, "end", "100 %", ten);
    own.text(1100, top + 1000, "end", "0 %", ten);
    own.text(1100, top + 1250, "end", "waiting", ten);
    for (int quarter = 0; quarter < 5; ++quarter) {
      const double at = static_cast<double>(minutes) * quarter / 4;
      own.text(column(at), top + 1580, "middle", io::duration_text(60 * at), ten);
    }
  }
  CHECK(stairs > 4);
  const auto bars = [&](long top, const char* what, double first, double second) {
    own.text(200, top + 130, "start", what, bold);
    for (std::size_t i = 0; i < 2; ++i) {
      const double value = i == 0 ? first : second;
      const long y = top + 130 * static_cast<long>(i), wide = static_cast<long>(value / std::max(first, second) * 5200);
      own.text(2500, y + 130, "end", std::string(name(runs[i].schedule.policy)), ten);
      own.rectangle(2600, y + 40, wide, 100, i == 0 ? "fill=\"#999\"" : "fill=\"#4a90d9\"");
      own.text(2700 + wide, y + 130, "start", io::duration_text(value), ten);
    }
  };
  const schedule_figures &a = runs[0].figures, &b = runs[1].figures;
  bars(4400, "mean pending", a.pending.mean, b.pending.mean);
  bars(5200, "mean completion", a.completion.mean, b.completion.mean);
  bars(6000, "makespan", a.makespan, b.makespan);
  own.check(drawn(trace, runs));
}
