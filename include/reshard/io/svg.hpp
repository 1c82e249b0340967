// SPDX-License-Identifier: Apache-2.0
// Who holds what as a picture file: a self-contained SVG with layers along the pipeline above, and below, for ranks of one
// stage beside each other, the part of every tensor family that each of them holds.
// Builds on: io/layout_text.hpp.
#pragma once

#include <string>
#include <string_view>

#include <reshard/io/layout_text.hpp>

namespace reshard {

namespace detail {

/// Text for XML: its special characters escaped, everything that is not printable ASCII replaced.
inline std::string xml_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return result;
}

/// Draws in tenths of a pixel, so that no number depends on a locale or on rounding.
class svg_canvas {
 public:
  svg_canvas(text_output& out, index_t width, index_t height) : out_(&out) {
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width / 10 << "\" height=\"" << height / 10 << "\" viewBox=\"0 0 "
        << width / 10 << " " << height / 10 << "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  }
  void rectangle(index_t x, index_t y, index_t width, index_t height, std::string_view style) {
    *out_ << "<rect x=\"" << tenths(x) << "\" y=\"" << tenths(y) << "\" width=\"" << tenths(width) << "\" height=\"" << tenths(height)
          << "\" " << style << "/>\n";
  }
  /// `anchor`: start, middle or end.
  void text(index_t x, index_t y, std::string_view words, std::string_view anchor = "start", std::string_view style = "") {
    *out_ << "<text x=\"" << tenths(x) << "\" y=\"" << tenths(y) << "\" text-anchor=\"" << anchor << "\"" << style << ">" << xml_text(words)
          << "</text>\n";
  }
  void finish() { *out_ << "</svg>\n"; }

 private:
  static std::string tenths(index_t number) { return text_of(number / 10, ".", number % 10); }
  text_output* out_;
};

/// A hue per stage, neighbours far apart on the wheel.
inline std::string stage_fill(index_t stage) { return text_of("fill=\"hsl(", stage * 67 % 360, ",60%,55%)\""); }

/// Where a box lies in the cell of its family: members across, experts (or else the axis that tp cuts) down.
struct cell_part {
  interval across, down;   // in ten thousandths of the cell
  index_t covered = 1000;  // how much of the other axes it has, in thousandths
};
inline cell_part part_of_cell(const family& of, interval members, const family_box& b) {
  const int down = of.extent[axis_of::expert] > 1 ? axis_of::expert
                   : of.vector()                  ? axis_of::column
                   : of.tensor_axis == axis_of::column ? axis_of::column
                                                       : axis_of::row;
  const auto scaled = [](interval a, index_t extent) {
    const double unit = 10000.0 / static_cast<double>(extent);
    return interval{static_cast<index_t>(unit * static_cast<double>(a.begin)), static_cast<index_t>(unit * static_cast<double>(a.end))};
  };
  cell_part part{scaled(translate(b.dim[axis_of::layer], -members.begin), members.size()), scaled(b.dim[down], of.extent[down])};
  double covered = 1000;
  for (int a = axis_of::expert; a < family_ndim; ++a)
    if (a != down) covered = covered * static_cast<double>(b.dim[a].size()) / static_cast<double>(of.extent[a]);
  part.covered = static_cast<index_t>(covered);
  return part;
}

}  // namespace detail

/// Draws the layout; the ranks below are those around `rank`.
inline void write_svg(text_output& out, const computed_holding& holding, rank_t rank) {
  using namespace detail;
  const space& where = holding.where();
  const model& m = where.which_model();
  const degrees& d = where.which_degrees();
  const pipeline_placement& pipeline = where.pipeline();
  constexpr index_t left = 2100;
  constexpr index_t right_margin = 500;
  constexpr index_t top = 800;
  constexpr index_t layers_width = 7400;
  constexpr index_t cell_height = 340;
  constexpr std::string_view light = "fill=\"#9ecae1\"", dark = "fill=\"#d9480f\"", outline = "fill=\"#f4f4f4\" stroke=\"#bbb\" stroke-width=\"0.5\"";

  const index_t together = ceil_divide(d.pp, 48), rows = ceil_divide(d.pp, together);
  const index_t row_height = rows > 24 ? 120 : 200;
  const index_t stage = rank / d.stage_ranks(), columns = least(d.stage_ranks(), 16);
  const rank_t first_rank = stage * d.stage_ranks() + rank % d.stage_ranks() / columns * columns;
  const index_t cell_width = least(900, layers_width / columns);
  const index_t cells_top = top + rows * row_height + 1300;
  const index_t height = cells_top + m.families * cell_height + 1100;
  svg_canvas canvas(out, left + layers_width + right_margin + 300, height);

  canvas.text(200, 320, text_of(one_line(m.name, 40), " under ", layout_name(where)), "start", " font-size=\"16\" font-weight=\"bold\"");
  canvas.text(200, 540, text_of(count_text(where.ranks()), " ranks, ", count_text(d.pp), " pipeline stages of ", count_text(d.stage_ranks()), "; ",
                                count_text(m.parameters()), " parameters"));
  canvas.text(left, top - 60, "layers along the pipeline");

  const auto across = [&](index_t layer) { return left + 250 + split_point(layer, layers_width - 500, m.shape.layers); };
  const auto box = [&](index_t x, index_t row, index_t width, index_t of_stage) {
    canvas.rectangle(x, top + row * row_height + 10, greatest(width - 5, 5), row_height - 20, stage_fill(of_stage));
  };
  for (index_t row = 0; row < rows; ++row) {
    const interval own = intersect(interval{row * together, (row + 1) * together}, interval{0, d.pp});
    const index_t base = top + (row + 1) * row_height - row_height / 2 + 40;
    canvas.text(left - 100, base, text_of(own.size() > 1 ? "stages " : "stage ", range_text(own), ", ranks ", range_text({own.begin * d.stage_ranks(), own.end * d.stage_ranks()})),
                "end", rows > 24 ? " font-size=\"9\"" : "");
    for (index_t s = own.begin; s < own.end; ++s) {
      pipeline.intervals(s, [&](interval part) { box(across(part.begin), row, across(part.end) - across(part.begin), s); });
      const auto pinned = [&](index_t x, const char* letter) {
        box(x, row, 200, s);
        canvas.text(x + 100, base, letter, "middle");
      };
      if (s == 0) pinned(left, "E");
      if (s == d.pp - 1) pinned(left + layers_width - 220, m.shape.tied ? d.pp > 1 ? "e" : "N" : "O");
    }
  }
  const index_t axis = top + rows * row_height + 150;
  const index_t tick = greatest(1, round_up(m.shape.layers / 10, m.shape.layers > 100 ? 10 : m.shape.layers > 20 ? 5 : 1));
  for (index_t layer = 0; layer <= m.shape.layers; layer += tick) canvas.text(across(layer), axis, std::to_string(layer), "middle", " font-size=\"10\"");
  canvas.text(left, axis + 220, m.shape.tied && d.pp > 1 ? "E: embedding, e: final norm and the embedding's tied copy" : "E: embedding, O: final norm and output layer",
              "start", " font-size=\"11\"");

  canvas.text(left, cells_top - 480, text_of("what ranks ", range_text({first_rank, first_rank + columns}), " of stage ", stage, " hold of each tensor family"));
  for (index_t c = 0; c < columns; ++c) canvas.text(left + c * cell_width + cell_width / 2, cells_top - 100, text_of("rank ", first_rank + c), "middle", " font-size=\"9\"");
  index_t row = 0;
  for (int f = 0; f < m.families; ++f) {
    interval members;  // of the stage: the hull of its chunks', which ascend
    for (index_t k = stage; k < pipeline.chunks(); k += d.pp)
      if (const interval chunk = where.chunk_members(f, k); !chunk.empty())
        members = {members.empty() ? chunk.begin : members.begin, chunk.end};
    if (members.empty()) continue;
    const index_t y = cells_top + row++ * cell_height;
    canvas.text(left - 100, y + 200, short_name(where.names_on(f, first_rank)), "end", " font-size=\"11\"");
    for (index_t c = 0; c < columns; ++c) {
      constexpr index_t tall = cell_height - 60;
      const index_t x = left + c * cell_width, width = cell_width - 60;
      canvas.rectangle(x, y, width, tall, outline);
      for (const role r : roles) {
        if (r == role::optimizer && !holding.sharded(r)) continue;
        holding.held(f, first_rank + c, r, [&](int, const family_box& b) {
          const cell_part part = part_of_cell(m[f], members, b);
          const index_t from_x = x + split_point(part.across.begin, width, 10000), from_y = y + split_point(part.down.begin, tall, 10000);
          const index_t wide = greatest(split_point(part.across.size(), width, 10000), 5), high = greatest(split_point(part.down.size(), tall, 10000), 5);
          std::string style(r == role::parameter ? light : dark);
          if (part.covered < 1000) style += text_of(" fill-opacity=\"0.", 3 + part.covered * 6 / 1000, "\"");
          canvas.rectangle(from_x, from_y, wide, high, style);
        });
      }
    }
  }
  const index_t legend = cells_top + row * cell_height + 300;
  const auto key = [&](index_t x, std::string_view style, std::string_view words) {
    canvas.rectangle(x, legend, 240, 140, style);
    canvas.text(x + 320, legend + 120, words);
  };
  key(left, outline, "the stage's layers");
  key(left + 1900, light, holding.sharded(role::optimizer) ? "parameters held" : "all states held");
  if (holding.sharded(role::optimizer)) key(left + 3700, dark, "optimizer states held");
  canvas.text(left, legend + 380, "Across a cell: layers of the stage. Down: experts, or else the axis that tensor parallelism cuts.", "start", " font-size=\"11\"");
  canvas.text(left, legend + 560, "Pale: only a part of the remaining axes.", "start", " font-size=\"11\"");
  canvas.finish();
}

}  // namespace reshard
