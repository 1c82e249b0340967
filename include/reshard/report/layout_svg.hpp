// SPDX-License-Identifier: Apache-2.0
// Who holds what as a picture file: a self-contained SVG with layers along the pipeline above, and below, for ranks of
// one stage beside each other, the part of every tensor family that each of them holds. Families that the stage lacks
// follow, for ranks of a stage that has them.
// Builds on: report/layout_text.hpp.
#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/report/layout_text.hpp>

namespace reshard::io {

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
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width / 10 << "\" height=\"" << height / 10
        << "\" viewBox=\"0 0 " << width / 10 << " " << height / 10
        << "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  }
  void rectangle(index_t x, index_t y, index_t width, index_t height, std::string_view style) {
    *out_ << "<rect x=\"" << tenths(x) << "\" y=\"" << tenths(y) << "\" width=\"" << tenths(width) << "\" height=\""
          << tenths(height) << "\" " << style << "/>\n";
  }
  void circle(index_t x, index_t y, index_t radius, std::string_view style) {
    *out_ << "<circle cx=\"" << tenths(x) << "\" cy=\"" << tenths(y) << "\" r=\"" << tenths(radius) << "\" " << style
          << "/>\n";
  }
  /// `anchor`: start, middle or end.
  void text(index_t x, index_t y, std::string_view words, std::string_view anchor = "start",
            std::string_view style = "") {
    *out_ << "<text x=\"" << tenths(x) << "\" y=\"" << tenths(y) << "\" text-anchor=\"" << anchor << "\"" << style
          << ">" << xml_text(words) << "</text>\n";
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
inline cell_part part_of_cell(const family& tensors, interval members, const family_box& b) {
  const int down = tensors.extent[axis_of::expert] > 1      ? axis_of::expert
                   : tensors.vector()                       ? axis_of::column
                   : tensors.tensor_axis == axis_of::column ? axis_of::column
                   : tensors.tensor_axis == axis_of::part   ? axis_of::part
                                                            : axis_of::row;
  const auto scaled = [](interval a, index_t extent) {
    const double unit = 10000.0 / static_cast<double>(extent);
    return interval{static_cast<index_t>(unit * static_cast<double>(a.begin)),
                    static_cast<index_t>(unit * static_cast<double>(a.end))};
  };
  cell_part part{scaled(translate(b.dim[axis_of::layer], -members.begin), members.size()),
                 scaled(b.dim[down], tensors.extent[down])};
  double covered = 1000;
  for (int a = axis_of::expert; a < family_ndim; ++a)
    if (a != down) covered = covered * static_cast<double>(b.dim[a].size()) / static_cast<double>(tensors.extent[a]);
  part.covered = static_cast<index_t>(covered);
  return part;
}

/// Families whose cells are drawn for the ranks of one stage.
struct stage_families {
  index_t stage;
  std::vector<int> families;
};

/// The members of a family on a stage: the hull of its chunks', which ascend.
inline interval members_on_stage(const space& s, int f, index_t stage) {
  interval members;
  for (index_t k = stage; k < s.pipeline().chunks(); k += s.degrees().pp)
    if (const interval chunk = s.chunk_members(f, k); !chunk.empty())
      members = {members.empty() ? chunk.begin : members.begin, chunk.end};
  return members;
}

/// Every family once: of `stage` those that it has, the others of the first stage that does.
inline std::vector<stage_families> cell_blocks(const space& s, index_t stage) {
  std::vector<stage_families> blocks{{stage, {}}};
  std::vector<bool> placed(static_cast<std::size_t>(s.families()), false);
  const auto place_on = [&](stage_families& block) {
    for (int f = 0; f < s.families(); ++f)
      if (!placed[static_cast<std::size_t>(f)] && !members_on_stage(s, f, block.stage).empty()) {
        block.families.push_back(f);
        placed[static_cast<std::size_t>(f)] = true;
      }
  };
  place_on(blocks[0]);
  for (index_t other = 0; other < s.degrees().pp; ++other) {
    stage_families block{other, {}};
    place_on(block);
    if (!block.families.empty()) blocks.push_back(block);
  }
  return blocks;
}

/// Draws a layout from top to bottom, in tenths of a pixel.
class layout_drawing {
 public:
  layout_drawing(text_output& out, const computed_holding& holding, rank_t rank)
      : holding_(&holding), stage_ranks_(holding.space().degrees().stage_ranks()), columns_(least(stage_ranks_, 16)),
        first_(holding.space().place_in_stage(rank) / columns_ * columns_),
        blocks_(cell_blocks(holding.space(), holding.space().stage_of(rank))),
        canvas_(out, left + layers_width + 800, blocks_top() + height_of_blocks() + 1100) {}

  void draw() {
    title();
    for (index_t row = 0; row < rows(); ++row) stage_row(row);
    layer_axis();
    index_t y = blocks_top();
    for (const stage_families& block : blocks_) {
      block_heading(block.stage, y);
      for (const int f : block.families) {
        family_row(f, block.stage, y);
        y += cell_height;
      }
      y += block_gap;
    }
    legend(y - block_gap + 300);
    canvas_.finish();
  }

 private:
  static constexpr index_t left = 2100, top = 800, layers_width = 7400, cell_height = 340, block_gap = 700;
  static constexpr std::string_view light = "fill=\"#9ecae1\"", dark = "fill=\"#d9480f\"",
                                    outline = "fill=\"#f4f4f4\" stroke=\"#bbb\" stroke-width=\"0.5\"";

  const reshard::space& space() const { return holding_->space(); }
  const reshard::model& model() const { return space().model(); }
  const reshard::degrees& degrees() const { return space().degrees(); }
  bool tied_copy() const { return model().shape.tied && degrees().pp > 1; }
  index_t stages_of_a_row() const { return ceil_divide(degrees().pp, 48); }
  index_t rows() const { return ceil_divide(degrees().pp, stages_of_a_row()); }
  index_t row_height() const { return rows() > 24 ? 120 : 200; }
  index_t cell_width() const { return least(900, layers_width / columns_); }
  index_t blocks_top() const { return top + rows() * row_height() + 1300; }
  index_t height_of_blocks() const {
    index_t rows = 0;
    for (const stage_families& block : blocks_) rows += std::ssize(block.families);
    return rows * cell_height + (std::ssize(blocks_) - 1) * block_gap;
  }
  /// Where a layer begins on the axis of the pipeline.
  index_t across(index_t layer) const {
    return left + 250 + split_point(layer, layers_width - 500, model().shape.layers);
  }

  void title() {
    const std::string words = one_line(text_of(one_line(model().name, 40), " under ", layout_name(space())), 150);
    canvas_.text(
        200, 320, words, "start",
        words.size() > 100 ? " font-size=\"11\" font-weight=\"bold\"" : " font-size=\"16\" font-weight=\"bold\"");
    canvas_.text(200, 540,
                 text_of(count_text(space().ranks()), " ranks, ", count_text(degrees().pp), " pipeline stages of ",
                         count_text(stage_ranks_), "; ", count_text(model().parameters()), " parameters"));
    canvas_.text(left, top - 60, "layers along the pipeline");
  }

  /// The layers of a few stages; embedding and output layer at the ends.
  void stage_row(index_t row) {
    const auto& d = degrees();
    const stage_ends ends(space());
    const index_t y = top + row * row_height(), base = y + row_height() / 2 + 40;
    const auto box = [&](index_t x, index_t width, index_t stage) {
      canvas_.rectangle(x, y + 10, greatest(width - 5, 5), row_height() - 20, stage_fill(stage));
    };
    const auto pinned = [&](index_t x, index_t stage, const char* letter) {
      box(x, 200, stage);
      canvas_.text(x + 100, base, letter, "middle");
    };
    const interval own = intersect(interval{row * stages_of_a_row(), (row + 1) * stages_of_a_row()}, interval{0, d.pp});
    canvas_.text(left - 100, base,
                 text_of(own.size() > 1 ? "stages " : "stage ", range_text(own), ", ranks ", ranks_text(space(), own)),
                 "end", rows() > 24 ? " font-size=\"9\"" : "");
    for (index_t s = own.begin; s < own.end; ++s) {
      space().pipeline().intervals(
          s, [&](interval part) { box(across(part.begin), across(part.end) - across(part.begin), s); });
      const interval one{s, s + 1};
      if (ends.embedding(one)) pinned(left, s, "E");
      const char* last = s != d.pp - 1      ? ends.norm(one) ? "N" : nullptr
                         : tied_copy()      ? "e"
                         : ends.output(one) ? "O"
                                            : "N";
      if (last != nullptr) pinned(left + layers_width - 220, s, last);
      if (ends.prediction(one)) pinned(left + layers_width, s, "P");
    }
  }

  /// Numbers of layers, and what the letters mean.
  void layer_axis() {
    const index_t y = top + rows() * row_height() + 150, layers = model().shape.layers;
    const index_t tick = greatest(1, round_up(layers / 10, layers > 100 ? 10 : layers > 20 ? 5 : 1));
    for (index_t layer = 0; layer <= layers; layer += tick)
      canvas_.text(across(layer), y, std::to_string(layer), "middle", " font-size=\"10\"");
    const interval last{degrees().pp - 1, degrees().pp};
    const stage_ends ends(space());
    const char* norm = ends.norm(last) ? "final norm and " : "";
    std::string words = tied_copy()          ? text_of("E: embedding, e: ", norm, "the embedding's tied copy")
                        : model().shape.tied ? std::string("E: embedding, N: final norm")
                                             : text_of("E: embedding, O: ", norm, "output layer");
    if (!ends.norm(last) && degrees().pp > 1) words += ", N: final norm";
    if (ends.predictions())
      words += degrees().pp > 1 ? ", P: prediction layer, with a copy of the embedding" : ", P: prediction layer";
    canvas_.text(left, y + 220, words, "start", " font-size=\"11\"");
  }

  rank_t drawn_rank(index_t stage, index_t c) const { return space().rank_at(stage, first_ + c); }

  void block_heading(index_t stage, index_t y) {
    const index_t own = blocks_[0].stage;
    const rank_t first = drawn_rank(stage, 0), last = drawn_rank(stage, columns_ - 1);
    const std::string ranks =
        last - first + 1 == columns_ ? text_of("ranks ", range_text({first, last + 1})) : "these ranks";
    canvas_.text(left, y - 480,
                 text_of("what ", ranks, " of stage ", stage, " hold of ",
                         stage == own ? "each tensor family" : text_of("families that stage ", own, " lacks")));
    for (index_t c = 0; c < columns_; ++c)
      canvas_.text(left + c * cell_width() + cell_width() / 2, y - 100, text_of("rank ", drawn_rank(stage, c)),
                   "middle", " font-size=\"9\"");
  }

  /// What a rank calls a family, or the tensors that it is in pieces: "q_proj, k_proj, v_proj".
  std::string label(int f, rank_t rank) const {
    std::string text = short_name(names_on(space(), f, 0, rank), model()[f].place);
    for (int piece = 1; piece < space().pieces(f); ++piece) {
      const std::string name = short_name(names_on(space(), f, piece, rank));
      text += ", " + name.substr(name.rfind('.') + 1);
    }
    return text;
  }
  /// Whether parameters and optimizer states lie differently.
  bool two_halves() const { return holding_->sharded(role::optimizer) != holding_->sharded(role::parameter); }

  /// A cell for each rank; where the states of the two roles lie differently, the optimizer's are below the parameters.
  void family_row(int f, index_t stage, index_t y) {
    constexpr index_t gap = 20, tall = cell_height - 60;
    canvas_.text(left - 100, y + 200, label(f, drawn_rank(stage, 0)), "end", " font-size=\"11\"");
    for (index_t c = 0; c < columns_; ++c) {
      const index_t x = left + c * cell_width(), half = (tall - gap) / 2;
      if (two_halves()) {
        cell(f, stage, c, role::parameter, {x, x + cell_width() - 60}, {y, y + half});
        cell(f, stage, c, role::optimizer, {x, x + cell_width() - 60}, {y + half + gap, y + tall});
      } else {
        cell(f, stage, c, role::parameter, {x, x + cell_width() - 60}, {y, y + tall});
      }
    }
  }

  /// What the c-th rank that is drawn holds of a family, in the rectangle x by y.
  void cell(int f, index_t stage, index_t c, role r, interval x, interval y) {
    const interval members = members_on_stage(space(), f, stage);
    canvas_.rectangle(x.begin, y.begin, x.size(), y.size(), outline);
    const bool statistic = model()[f].kind == tensor_kind::statistic;  // which the optimizer has none of
    if (statistic && r == role::optimizer) return;
    holding_->held(f, drawn_rank(stage, c), statistic ? role::statistic : r, [&](int, const family_box& b) {
      const cell_part part = part_of_cell(model()[f], members, b);
      const auto scaled = [](interval side, index_t share) { return split_point(share, side.size(), 10000); };
      std::string style(r == role::parameter ? light : dark);
      if (part.covered < 1000) style += text_of(" fill-opacity=\"0.", 3 + part.covered * 6 / 1000, "\"");
      canvas_.rectangle(x.begin + scaled(x, part.across.begin), y.begin + scaled(y, part.down.begin),
                        greatest(scaled(x, part.across.size()), 5), greatest(scaled(y, part.down.size()), 5), style);
    });
  }

  void legend(index_t y) {
    const auto key = [&](index_t x, std::string_view style, std::string_view words) {
      canvas_.rectangle(x, y, 240, 140, style);
      canvas_.text(x + 320, y + 120, words);
    };
    const bool sharded = two_halves();
    key(left, outline, "the stage's layers");
    key(left + 1900, light, sharded ? "parameters held" : "all states held");
    if (sharded) key(left + 3700, dark, "optimizer states held");
    canvas_.text(left, y + 380,
                 "Across a cell: layers of the stage. Down: experts, or else the axis that tensor parallelism cuts.",
                 "start", " font-size=\"11\"");
    canvas_.text(left, y + 560, "Pale: only a part of the remaining axes.", "start", " font-size=\"11\"");
  }

  const computed_holding* holding_;
  index_t stage_ranks_, columns_, first_;  // ranks of a stage; those that are drawn, from the first_ on
  std::vector<stage_families> blocks_;
  svg_canvas canvas_;
};

}  // namespace detail

/// Draws the layout; the ranks below are those around `rank`, then those in their places of stages that hold what its
/// stage lacks.
inline void write_svg(text_output& out, const computed_holding& holding, rank_t rank) {
  detail::layout_drawing(out, holding, rank).draw();
}
inline void write_svg(text_output& out, const any_holding& holding, rank_t rank) {
  write_svg(out, computed_of(holding), rank);
}

}  // namespace reshard::io
