// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <reshard/io/print.hpp>

namespace train {

namespace {

template <typename... Values>
std::string printed(const char* form, Values... values) {
  char text[512];
  const int size = std::snprintf(text, sizeof text, form, values...);
  return {text, static_cast<std::size_t>(std::clamp(size, 0, 511))};
}
std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) all += c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32 ? ' ' : c;
  return all + "\"";
}
std::string json_of(const digests& d) {
  return printed("{\"param\":\"%016llx\",\"master\":\"%016llx\",\"exp_avg\":\"%016llx\",\"exp_avg_sq\":\"%016llx\"}",
                 static_cast<unsigned long long>(d.of[0]), static_cast<unsigned long long>(d.of[1]),
                 static_cast<unsigned long long>(d.of[2]), static_cast<unsigned long long>(d.of[3]));
}
std::string json_of_seconds(double s) { return printed("%.6f", s); }

}  // namespace

std::string json_of(const step_report& r) {
  std::string samples;
  for (const interval& i : r.of.samples)
    samples += printed("%s[%lld,%lld]", samples.empty() ? "" : ",", static_cast<long long>(i.begin),
                       static_cast<long long>(i.end));
  return printed("{\"step\":%lld,\"loss\":%.9g,\"loss_hex\":\"%a\",\"norm_hex\":\"%a\",\"rate\":%.9g,",
                 static_cast<long long>(r.step), r.of.loss, r.of.loss, static_cast<double>(r.of.norm), r.rate) +
         "\"samples\":[" + samples + "],\"layout\":" + quoted(r.layout) +
         printed(",\"devices\":%lld,\"seconds\":%.6f}", static_cast<long long>(r.devices), r.seconds);
}
std::string json_of(const change_report& r) {
  return printed("{\"switch\":%lld,\"from\":", static_cast<long long>(r.step)) + quoted(r.from) +
         ",\"to\":" + quoted(r.to) + ",\"before\":" + json_of(r.before) + ",\"after\":" + json_of(r.after) +
         printed(",\"moved_bytes\":%lld,\"least_bytes\":%lld,\"peak_excess_bytes\":%lld,\"seconds\":",
                 static_cast<long long>(r.moved), static_cast<long long>(r.least), static_cast<long long>(r.excess)) +
         json_of_seconds(r.seconds) + ",\"wait_seconds\":" + json_of_seconds(r.wait_seconds) + "}";
}
std::string json_of(const end_report& r) {
  return printed("{\"done\":%lld,\"digest\":", static_cast<long long>(r.step)) + json_of(r.digest) +
         printed(",\"small\":{\"step\":%lld,\"cursor\":%lld,\"seed\":%llu},\"cpu_seconds\":%.3f,\"peak_bytes\":%lld}",
                 static_cast<long long>(r.step), static_cast<long long>(r.cursor),
                 static_cast<unsigned long long>(r.seed), r.cpu_seconds, static_cast<long long>(r.peak_bytes));
}

std::string line_of(const step_report& r) {
  return printed("step %-5lld loss %.4f  norm %.4f  ", static_cast<long long>(r.step), r.of.loss,
                 static_cast<double>(r.of.norm)) +
         (r.layout.empty() ? "one device" : r.layout);
}
std::string line_of(const change_report& r) {
  return printed("before step %lld: ", static_cast<long long>(r.step)) + r.from + " -> " + r.to + ": " +
         io::bytes_text(r.moved) + " moved in " + io::seconds_text(r.seconds) +
         (r.before == r.after ? ", digests equal" : ", DIGESTS DIFFER");
}

namespace {

/// The picture's two panels.
class picture {
 public:
  picture(const told_by_run& run, const told_by_run& alone, const job& all) : run_(run), alone_(alone), all_(all) {
    for (const auto* steps : {&run.steps, &alone.steps})
      for (const step_report& s : *steps) most_ = std::max(most_, s.of.loss);
    const auto last = std::max<index_t>(all.steps - 50, 0);
    floor_ = all.data.floor_of(last * all.z.batch, all.steps * all.z.batch);
    for (std::size_t i = 0; i < std::min(run.steps.size(), alone.steps.size()); ++i)
      largest_ = std::max(largest_, std::abs(run.steps[i].of.loss - alone.steps[i].of.loss));
  }
  std::string text() {
    out_ = printed(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n",
        width, height);
    out_ += printed("<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
    axes();
    curve(alone_.steps, "#9ecae1", 5);
    curve(run_.steps, "#08519c", 1.5);
    for (const change_report& c : run_.changes) mark(c);
    difference();
    return out_ + "</svg>\n";
  }

 private:
  static constexpr int width = 1060, height = 560, left = 60, right = 880, top = 160, bottom = 440, low = 510;
  double x(index_t step) const {
    return left +
           (right - left) * static_cast<double>(step) / static_cast<double>(std::max<index_t>(all_.steps - 1, 1));
  }
  double y(double loss) const { return bottom - (bottom - top) * loss / most_; }
  void label(double at_x, double at_y, const std::string& text, const char* more = "") {
    out_ += printed("<text x=\"%.1f\" y=\"%.1f\" %s>", at_x, at_y, more) + text + "</text>\n";
  }
  void axes() {
    label(left, 22,
          printed("Loss of %lld steps with %zu switches, over that of one device that never changed",
                  static_cast<long long>(all_.steps), run_.changes.size()),
          "font-size=\"16\" font-weight=\"bold\"");
    for (int i = 0; i <= static_cast<int>(most_); ++i) {
      out_ += printed("<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, right, y(i), y(i));
      label(left - 8, y(i) + 4, std::to_string(i), "text-anchor=\"end\"");
    }
    if (floor_ > 0) {
      out_ +=
          printed("<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#d9480f\" stroke-dasharray=\"6 4\"/>\n",
                  left, right, y(floor_), y(floor_));
      label(right, y(floor_) - 5, printed("floor of the language, %.2f nats", floor_),
            "text-anchor=\"end\" fill=\"#d9480f\"");
    }
    label((left + right) / 2.0, bottom + 18, "step", "text-anchor=\"middle\"");
  }
  void curve(const std::vector<step_report>& steps, const char* color, double wide) {
    out_ += printed("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" points=\"", color, wide);
    for (const step_report& s : steps) out_ += printed("%.2f,%.2f ", x(s.step), y(s.of.loss));
    out_ += "\"/>\n";
  }
  void mark(const change_report& c) {
    out_ += printed("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#666\" stroke-width=\"0.7\"/>\n",
                    x(c.step), x(c.step), top, low + 15);
    out_ += printed("<text transform=\"translate(%.1f %d) rotate(-35)\" font-size=\"9\">", x(c.step), top - 4) + c.to +
            printed(", %.0f ms</text>\n", 1e3 * c.seconds);
  }
  void difference() {
    label(left, bottom + 42, printed("difference of the two, at most %g", largest_), "font-size=\"11\"");
    out_ += "<polyline fill=\"none\" stroke=\"#08519c\" stroke-width=\"1.5\" points=\"";
    for (std::size_t i = 0; i < std::min(run_.steps.size(), alone_.steps.size()); ++i) {
      const double d = run_.steps[i].of.loss - alone_.steps[i].of.loss;
      out_ += printed("%.2f,%.2f ", x(run_.steps[i].step), low - (largest_ > 0 ? 20 * d / largest_ : 0));
    }
    out_ += "\"/>\n";
    label(left - 8, low + 4, "0", "text-anchor=\"end\"");
  }

  const told_by_run &run_, &alone_;
  const job& all_;
  std::string out_;
  double most_ = 1, floor_ = 0, largest_ = 0;
};

}  // namespace

std::string picture_of(const told_by_run& run, const told_by_run& alone, const job& all) {
  return picture(run, alone, all).text();
}

}  // namespace train
