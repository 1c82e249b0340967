// SPDX-License-Identifier: Apache-2.0
// A picture file read back: its rectangles, circles and words, and whether words lie over each other or outside; and a
// picture that a test draws itself, to be compared line by line.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace testing {

struct drawn_shape {
  double x = 0, y = 0, width = 0, height = 0;  // of a circle: its middle, and twice the radius
  std::string line;
  bool has(const std::string& style) const { return line.find(style) != line.npos; }
};
/// Where words are, a character being at most 0.62 of the font's size wide.
struct drawn_words {
  double left = 0, right = 0, upper = 0, lower = 0;
  std::string words;
};

/// One shape or text a line, as the library writes them.
struct drawn_picture {
  double width = 0, height = 0;
  std::vector<drawn_shape> rectangles, circles;
  std::vector<drawn_words> texts;
  std::vector<std::string> lines;

  static double number(const std::string& line, const std::string& attribute, double otherwise = -1) {
    const std::size_t at = line.find(" " + attribute + "=\"");
    return at == line.npos ? otherwise : std::stod(line.substr(at + attribute.size() + 3));
  }
  explicit drawn_picture(const std::string& svg) {
    REQUIRE(svg.ends_with("</svg>\n"));
    for (std::size_t at = 0; at < svg.size();) {
      const std::size_t end = svg.find('\n', at);
      const std::string line = svg.substr(at, end - at);
      at = end + 1;
      lines.push_back(line);
      if (line.starts_with("<svg")) width = number(line, "width"), height = number(line, "height");
      if (line.starts_with("<rect x="))
        rectangles.push_back(
            {number(line, "x"), number(line, "y"), number(line, "width"), number(line, "height"), line});
      if (line.starts_with("<circle "))
        circles.push_back({number(line, "cx"), number(line, "cy"), 2 * number(line, "r"), 2 * number(line, "r"), line});
      if (!line.starts_with("<text ")) continue;
      const std::size_t from = line.find('>') + 1;
      drawn_words one;
      one.words = line.substr(from, line.rfind("</text>") - from);
      const double size = number(line, "font-size", 12), x = number(line, "x");
      const double wide = 0.62 * size * static_cast<double>(one.words.size());
      one.left = line.find("\"end\"") != line.npos ? x - wide : line.find("\"middle\"") != line.npos ? x - wide / 2 : x;
      one.right = one.left + wide;
      one.lower = number(line, "y");
      one.upper = one.lower - 0.8 * size;
      texts.push_back(one);
    }
  }
  bool says(const std::string& sentence) const {
    for (const drawn_words& one : texts)
      if (one.words.find(sentence) != one.words.npos) return true;
    return false;
  }
  void check_words_apart() const {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const drawn_words& a = texts[i];
      CAPTURE(a.words);
      CHECK(a.left >= 0);
      CHECK(a.right <= width);
      CHECK(a.upper >= 0);
      CHECK(a.lower <= height);
      for (std::size_t j = i + 1; j < texts.size(); ++j) {
        const drawn_words& b = texts[j];
        CAPTURE(b.words);
        const bool apart = a.right <= b.left || b.right <= a.left || a.lower <= b.upper || b.lower <= a.upper;
        CHECK(apart);
      }
    }
  }
};

/// A picture as a test would write it, its numbers in tenths of a pixel.
struct own_picture {
  std::vector<std::string> lines;

  own_picture(long width, long height) {
    const std::string w = std::to_string(width / 10), h = std::to_string(height / 10);
    lines.push_back("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
                    "\" viewBox=\"0 0 " + w + " " + h +
                    "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">");
    lines.emplace_back("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
  }
  static std::string is(const char* attribute, long tenths) {
    return " " + std::string(attribute) + "=\"" + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
           "\"";
  }
  void rectangle(long x, long y, long width, long height, const std::string& style) {
    lines.push_back("<rect" + is("x", x) + is("y", y) + is("width", width) + is("height", height) + " " + style + "/>");
  }
  void circle(long x, long y, long radius, const std::string& style) {
    lines.push_back("<circle" + is("cx", x) + is("cy", y) + is("r", radius) + " " + style + "/>");
  }
  void text(long x, long y, const std::string& anchor, const std::string& said, const std::string& style = "") {
    lines.push_back("<text" + is("x", x) + is("y", y) + " text-anchor=\"" + anchor + "\"" +
                    (style.empty() ? "" : " " + style) + ">" + said + "</text>");
  }
  void check(const drawn_picture& found) {
    std::vector<std::string> wanted = lines;
    wanted.emplace_back("</svg>");
    CHECK(found.lines.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size() && i < found.lines.size(); ++i) CHECK(found.lines[i] == wanted[i]);
  }
};

}  // namespace testing
