// SPDX-License-Identifier: Apache-2.0
// Values as people read them: intervals, boxes, bytes, counts, aligned tables, and quoted text that stays on one line.
// Builds on: algebra/box.hpp, base/text.hpp, model/state_list.hpp.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/algebra/box.hpp>
#include <reshard/base/text.hpp>
#include <reshard/model/state_list.hpp>

namespace reshard::io {

/// The parts one after the other, numbers in decimal.
using reshard::detail::text_of;

}  // namespace reshard::io

namespace reshard {

/// "[0,4)"
[[nodiscard]] inline std::string to_text(interval a) { return io::text_of("[", a.begin, ",", a.end, ")"); }

/// "[0,4)x[2,6)"
template <int N>
[[nodiscard]] std::string to_text(const box<N>& b) {
  std::string text;
  for (int i = 0; i < N; ++i) text += io::text_of(i == 0 ? "" : "x", to_text(b.dim[i]));
  return text;
}

/// "param + exp_avg"
[[nodiscard]] inline std::string to_text(const state_set& states, const state_list& list = adam) {
  const bool parameters = states.contains(list.find("param"));
  std::string text;
  for (const int s : states)
    if (s != statistic_state || !parameters) text += io::text_of(text.empty() ? "" : " + ", list[s].name);
  return text.empty() ? "no state" : text;
}

/// "param:bf16:3,master:fp32:1"
[[nodiscard]] inline std::string to_text(const state_list& list) {
  std::string text;
  for (int s = 0; s < list.size(); ++s)
    text += io::text_of(s == 0 ? "" : ",", list[s].name, ":", name(list[s].type), ":", list[s].level);
  return text;
}

}  // namespace reshard

namespace reshard::io {

/// "12,345,678"
inline std::string count_text(index_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool group_begins = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (group_begins) text += ',';
    text += digits[i];
  }
  return text;
}

namespace detail {
/// `value` with `decimals` digits after the point.
inline std::string decimal_text(double value, int decimals) {
  char digits[64];
  return {digits, static_cast<std::size_t>(std::snprintf(digits, sizeof digits, "%.*f", decimals, value))};
}
}  // namespace detail

/// "512 B", "1.50 KiB", "64.00 MiB", ...: the largest unit of which there is at least one.
inline std::string bytes_text(bytes_t bytes) {
  if (bytes > -1024 && bytes < 1024) return text_of(bytes, " B");
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; (value >= 1023.995 || value <= -1023.995) && unit < 5; ++unit) value /= 1024;
  return text_of(detail::decimal_text(value, 2), " ", units[unit]);
}

/// Bytes in seven columns at most, for tables: "512B", "1.50KiB", "64.0MiB", "1023GiB"; bytes >= 0.
inline std::string narrow_bytes_text(bytes_t bytes) {
  if (bytes < 1024) return text_of(bytes, "B");
  double value = static_cast<double>(bytes) / 1024;
  const char* unit = "KMGTPE";
  for (; value >= 1023.5; ++unit) value /= 1024;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return text_of(detail::decimal_text(value, decimals), std::string_view(unit, 1), "iB");
}

/// "1.234 s", "12.34 ms", "5.678 us"
inline std::string seconds_text(double seconds) {
  if (seconds >= 1) return text_of(detail::decimal_text(seconds, 3), " s");
  if (seconds >= 1e-3) return text_of(detail::decimal_text(seconds * 1e3, 2), " ms");
  return text_of(detail::decimal_text(seconds * 1e6, 1), " us");
}

/// "0-7", "3": the integers of an interval, both ends included; "-" for none.
inline std::string range_text(interval a) {
  if (a.empty()) return "-";
  if (a.size() == 1) return std::to_string(a.begin);
  return text_of(a.begin, "-", a.end - 1);
}

/// Text of others inside a sentence of ours: control characters written as \xNN, and the middle left out where it is
/// long.
inline std::string one_line(std::string_view text, std::size_t limit = 80) {
  const std::size_t tail = limit / 3, head = limit - tail;
  const bool whole = text.size() <= limit + 3;
  std::string line;
  const auto put = [&line](std::string_view part) {
    for (const char c : part) {
      const unsigned code = static_cast<unsigned char>(c);
      if (code >= 32 && code != 127) {
        line += c;
      } else {
        constexpr char hex[] = "0123456789abcdef";
        line += {'\\', 'x', hex[code / 16], hex[code % 16]};
      }
    }
  };
  put(whole ? text : text.substr(0, head));
  if (whole) return line;
  line += "...";
  put(text.substr(text.size() - tail));
  return line;
}

/// A line as lines of at most 80 bytes, broken after a comma or else between words; a longer word is broken after a
/// comma in it, or stays whole. All but the first begin with `hang` spaces.
inline std::string folded(std::string_view line, std::size_t hang = 4) {
  constexpr std::size_t columns = 80;
  std::string text;
  for (std::size_t room = columns; line.size() > room; room = columns - hang) {
    const std::string_view head = line.substr(0, room + 1);
    const std::size_t comma = head.rfind(", "), at = comma == head.npos ? head.rfind(' ') : comma + 1;
    const std::size_t inside = at == head.npos ? head.substr(0, room).rfind(',') : at;
    if (inside == head.npos) break;
    text.append(line.substr(0, at == head.npos ? inside + 1 : at)).append("\n").append(hang, ' ');
    line.remove_prefix(inside + 1);
  }
  return text.append(line);
}

/// Columns a terminal uses for UTF-8 text without wide or combining characters: its code points.
constexpr index_t text_width(std::string_view text) {
  index_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u ? 1 : 0;
  return width;
}

/// An aligned table: headings, then rows; every column as wide as its widest cell.
class table {
 public:
  enum class side { left, right };
  struct column {
    std::string heading;
    side aligned = side::right;
  };

  explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}

  /// Cells in the order of the columns; those that are missing at the end stay empty.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }

  /// Every line begins with `indent` spaces and ends without any.
  std::string text(std::size_t indent = 2) const {
    std::vector<index_t> width;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      index_t widest = text_width(columns_[c].heading);
      for (const auto& cells : rows_)
        if (c < cells.size()) widest = greatest(widest, text_width(cells[c]));
      width.push_back(widest);
    }
    std::string result;
    const auto line = [&](const auto& cell) {
      std::string written(indent, ' ');
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        const std::string_view content = cell(c);
        const std::string padding(static_cast<std::size_t>(width[c] - text_width(content)), ' ');
        if (c > 0) written += "  ";
        if (columns_[c].aligned == side::right) written += padding;
        written += content;
        if (columns_[c].aligned == side::left) written += padding;
      }
      written.erase(written.find_last_not_of(' ') + 1);
      result += written + "\n";
    };
    line([&](std::size_t c) { return std::string_view(columns_[c].heading); });
    for (const auto& cells : rows_)
      line([&](std::size_t c) { return c < cells.size() ? std::string_view(cells[c]) : std::string_view(); });
    return result;
  }

 private:
  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace reshard::io
