// SPDX-License-Identifier: Apache-2.0
// Layouts that a job could go to as a picture file: seconds of the switch against the memory of a rank. Those that no
// other is below in both stand out, with numbers and a list. Without speeds bytes moved take the place of seconds.
// Builds on: cost/compare_layouts.hpp, report/layout_svg.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/cost/compare_layouts.hpp>
#include <reshard/report/layout_svg.hpp>

namespace reshard::io {

namespace detail {

/// The numbers of those layouts, best first, that no other is at or below in both memory and cost, one of equal ones;
/// ascending by cost, so descending by memory.
inline std::vector<std::size_t> undominated(const std::vector<compared_layout>& layouts) {
  std::vector<std::size_t> found;
  const auto same_cost = [&](const compared_layout& a, const compared_layout& b) {
    return a.seconds && b.seconds ? same_seconds(*a.seconds, *b.seconds) : a.moved == b.moved;
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (!found.empty() && layouts[i].bytes_per_rank >= layouts[found.back()].bytes_per_rank) continue;
    if (!found.empty() && same_cost(layouts[i], layouts[found.back()])) found.pop_back();
    found.push_back(i);
  }
  return found;
}

/// Draws a scatter from top to bottom, in tenths of a pixel.
class scatter {
 public:
  scatter(text_output& out, const space& from, rank_t devices, const layout_comparison& c)
      : from_(&from), devices_(devices), c_(&c), best_(undominated(c.layouts)),
        canvas_(out, 8300, top + height + 900 + 200 * std::ssize(best_)) {
    for (const compared_layout& one : c.layouts) {
      const double x = static_cast<double>(one.bytes_per_rank), y = cost(one);
      most_x_ = std::max(most_x_, x), most_y_ = std::max(most_y_, y);
      if (y > 0) least_y_ = least_y_ == 0 ? y : std::min(least_y_, y);
    }
    logarithmic_ = least_y_ > 0 && most_y_ > 30 * least_y_;
    if (logarithmic_) least_y_ = std::pow(10.0, std::floor(std::log10(least_y_)));
  }

  void draw() {
    title();
    axes();
    for (std::size_t i = 0; i < c_->layouts.size(); ++i)
      canvas_.circle(across(c_->layouts[i]), down(cost(c_->layouts[i])), 40,
                     "fill=\"#9ecae1\" fill-opacity=\"0.8\" stroke=\"#222\" stroke-width=\"0.5\"");
    for (const std::size_t i : best_)
      canvas_.circle(across(c_->layouts[i]), down(cost(c_->layouts[i])), 50, "fill=\"#d9480f\"");
    numbers();
    list(top + height + 750);
    canvas_.finish();
  }

 private:
  static constexpr index_t left = 1200, top = 1200, width = 6700, height = 4600;

  bool speeds() const { return !c_->layouts.empty() && c_->layouts.front().seconds.has_value(); }
  double cost(const compared_layout& one) const { return one.seconds ? *one.seconds : static_cast<double>(one.moved); }
  std::string cost_text(double cost) const {
    return speeds() ? seconds_text(cost) : bytes_text(static_cast<bytes_t>(cost));
  }
  index_t across(const compared_layout& one) const {
    const double share = most_x_ > 0 ? static_cast<double>(one.bytes_per_rank) / most_x_ : 0;
    return left + static_cast<index_t>(share * 0.95 * static_cast<double>(width));
  }
  /// Zero at the bottom; of a logarithmic axis, what is at most its least.
  index_t down(double cost) const {
    double share = most_y_ > 0 ? cost / most_y_ : 0;
    if (logarithmic_) share = cost <= least_y_ ? 0 : std::log(cost / least_y_) / std::log(most_y_ / least_y_);
    return top + height - static_cast<index_t>(share * 0.95 * static_cast<double>(height));
  }

  void title() {
    canvas_.text(200, 320,
                 text_of(one_line(from_->model().name, 40), ": ", count_text(std::ssize(c_->layouts)), " layouts of ",
                         count_text(devices_), devices_ == 1 ? " device" : " devices"),
                 "start", " font-size=\"16\" font-weight=\"bold\"");
    canvas_.text(200, 540, one_line(text_of("from ", layout_name(*from_)), 98));
    canvas_.text(200, 720,
                 text_of(speeds() ? "up: seconds of the switch, simulated" : "up: bytes that the switch moves",
                         logarithmic_ ? ", logarithmic" : "", "; across: bytes of the largest rank"));
    if (c_->layouts.size() < static_cast<std::size_t>(c_->legal))
      canvas_.text(200, 900,
                   text_of("of ", count_text(c_->legal), " legal ones ", count_text(c_->too_large),
                           " are too large and ", count_text(c_->refused), " refused"));
  }

  /// Lines with their values; powers of ten on a logarithmic axis.
  void axes() {
    canvas_.rectangle(left, top, width, height, "fill=\"#f4f4f4\"");
    const auto line = [&](double cost) {
      canvas_.rectangle(left, down(cost), width, 5, "fill=\"#bbb\"");
      canvas_.text(left - 100, down(cost) + 40, cost_text(cost), "end", " font-size=\"10\"");
    };
    if (logarithmic_)
      for (double at = least_y_; at <= most_y_ * 1.0001; at *= 10) line(at);
    else
      for (int i = 0; i <= (most_y_ > 0 ? 4 : 0); ++i) line(most_y_ * i / 4);
    for (int i = 0; i <= 4; ++i) {
      const index_t x = left + static_cast<index_t>(0.95 * static_cast<double>(width) * i / 4);
      canvas_.rectangle(x, top, 5, height, "fill=\"#bbb\"");
      canvas_.text(x, top + height + 200, bytes_text(static_cast<bytes_t>(most_x_ * i / 4)), "middle",
                   " font-size=\"10\"");
    }
  }

  /// A number beside each that stands out, left of it, below, right or above; none where there is no room.
  void numbers() {
    struct place {
      index_t x, y;
    };
    constexpr index_t wide = 190, tall = 130;
    std::vector<place> taken;
    for (std::size_t n = 0; n < best_.size(); ++n) {
      const compared_layout& one = c_->layouts[best_[n]];
      const index_t x = across(one), y = down(cost(one));
      for (const place& at : {place{x - 170, y + 40}, place{x, y + 180}, place{x + 170, y + 40}, place{x, y - 90}}) {
        const bool inside =
            at.x - wide / 2 > left && at.x + wide / 2 < left + width && at.y - tall > top && at.y < top + height;
        const bool clear = std::none_of(taken.begin(), taken.end(), [&](const place& other) {
          return std::abs(other.x - at.x) < wide && std::abs(other.y - at.y) < tall;
        });
        if (!inside || !clear) continue;
        taken.push_back(at);
        canvas_.text(at.x, at.y, std::to_string(n + 1), "middle", " font-size=\"11\" font-weight=\"bold\"");
        break;
      }
    }
  }

  void list(index_t y) {
    if (best_.empty()) return canvas_.text(200, y, "no layout is left");
    canvas_.text(200, y - 250, "where none is both faster to reach and smaller:");
    for (std::size_t n = 0; n < best_.size(); ++n) {
      const compared_layout& one = c_->layouts[best_[n]];
      const std::string layout = to_text(one.layout);
      canvas_.text(450, y, std::to_string(n + 1), "end", " font-size=\"11\" font-weight=\"bold\"");
      canvas_.text(600, y,
                   text_of(layout.empty() ? "one rank" : one_line(layout, 70), ": ", bytes_text(one.bytes_per_rank),
                           " a rank, ", cost_text(cost(one))),
                   "start", " font-size=\"11\"");
      y += 200;
    }
  }

  const space* from_;
  rank_t devices_;
  const layout_comparison* c_;
  std::vector<std::size_t> best_;
  double most_x_ = 0, most_y_ = 0, least_y_ = 0;
  bool logarithmic_ = false;
  svg_canvas canvas_;
};

}  // namespace detail

/// Draws a comparison, sorted best first.
inline void write_comparison_svg(text_output& out, const space& from, rank_t devices, const layout_comparison& c) {
  detail::scatter(out, from, devices, c).draw();
}

}  // namespace reshard::io
