// SPDX-License-Identifier: Apache-2.0
// Who holds what, drawn in 80 columns of a terminal: layers along the pipeline, then how tensors, experts and what ZeRO
// shards are cut inside one stage, which is the same in every stage. Worlds of any size: what repeats is drawn once.
// Builds on: report/layout_text.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <reshard/report/layout_text.hpp>

namespace reshard::io {

namespace detail {

inline constexpr index_t bar_columns = 32;
inline constexpr index_t picture_rows = 16;  // of one block; more are left out in the middle

/// A bar for the part [begin, end) of `extent`: full blocks, a half one at an end that falls inside a column, dots
/// elsewhere.
inline std::string bar_text(const std::vector<interval>& parts, index_t extent, index_t columns = bar_columns) {
  std::string bar;
  for (index_t c = 0; c < columns; ++c) {
    // a column is halves 2c and 2c + 1; a half is full where its middle lies in a part
    const auto filled = [&](index_t half) {
      const interval own{split_point(half, extent, 2 * columns), split_point(half + 1, extent, 2 * columns)};
      for (const interval& part : parts) {
        if (own.empty() ? part.contains(own.begin) : 2 * intersect(own, part).size() >= own.size()) return true;
        if (part.size() < own.size() && own.contains(part.begin)) return true;  // never invisible
      }
      return false;
    };
    const bool left = filled(2 * c), right = filled(2 * c + 1);
    bar += left && right ? "█" : left ? "▌" : right ? "▐" : "·";
  }
  return bar;
}

/// Ranks of a product, in order: all where there are few or they are a range, else the first ones and how many there
/// are.
inline std::string holders_text(const rank_product& ranks) {
  const index_t count = ranks.count();
  if (ranks[count - 1] == ranks[0] + count - 1) return range_text({ranks[0], ranks[0] + count});
  return few_ranks_text(count, [&](index_t i) { return ranks[i]; });
}

/// A row of a block and the bar of what it holds.
struct bar_row {
  std::string label;
  std::vector<interval> parts;
  std::string after;
};

/// Rows under a heading; row(i) makes the i-th of `count`.
template <typename Row>
std::string block_text(const std::string& heading, index_t count, index_t extent, Row&& row) {
  std::string text = text_of("\n", folded(heading), "\n");
  const index_t head = count > picture_rows ? picture_rows - 2 : count;
  const auto line = [&](index_t i) {
    const bar_row r = row(i);
    std::string label = r.label;
    while (text_width(label) < 10) label += ' ';
    text += text_of("  ", label, " ", bar_text(r.parts, extent), " ", r.after, "\n");
  };
  for (index_t i = 0; i < head; ++i) line(i);
  if (head < count) {
    text += text_of("  ... ", count - head - 1, " more like these\n");
    line(count - 1);
  }
  return text;
}

/// Which ranks hold which share of what ZeRO cuts: of every optimizer buffer of a kind, or of the rows of each tensor.
inline std::string buffer_block(const computed_holding& holding, mesh_kind kind, const char* what) {
  const space& s = holding.space();
  const degrees& d = s.degrees();
  const index_t n = s.shards(kind);
  if (n == 1 || (holding.buffered(role::optimizer) && holding.buffers().elements(0, kind) == 0)) return {};
  const std::string in =
      text_of(" in ", n, kind == mesh_kind::dense ? " (cp x dp" : " (edp", d.instances > 1 ? " / instances)" : ")");
  const std::string states = holding.sharded(role::parameter) ? "all states" : "optimizer states";
  const char* of = d.experts == experts_as::grouped && kind == mesh_kind::expert
                       ? " cuts what a rank has of a layer's experts, whole experts, of "
                       : " cuts the rows that a rank has of each tensor, of ";
  const std::string heading = holding.buffered(role::optimizer)
                                  ? text_of(" cuts each buffer of optimizer states of ", what, in)
                                  : text_of(of, states, " of ", what, ",", in);
  return block_text(text_of("zero=", d.zero, heading), n, n, [&](index_t i) -> bar_row {
    std::vector<rank_t> ranks;  // of stage 0
    for (rank_t rank = 0; rank < s.ranks(); ++rank)
      if (s.stage_of(rank) == 0 && s.shard_index(kind, rank) == i) ranks.push_back(rank);
    rank_product holders;
    holders.listed = &ranks;
    return {text_of("shard ", i), {{i, i + 1}}, text_of("ranks ", holders_text(holders))};
  });
}

/// Which layers each stage holds; several stages share a row where there are many.
inline std::string pipeline_block(const space& s) {
  const model& m = s.model();
  const degrees& d = s.degrees();
  const index_t per_row = ceil_divide(d.pp, 32), rows = ceil_divide(d.pp, per_row);
  const stage_ends ends(s);
  table stages({{"stage"}, {"ranks"}, {"", table::side::left}, {"layers"}, {"", table::side::left}});
  for (index_t row = 0; row < rows; ++row) {
    const interval stages_of_row = intersect(interval{row * per_row, (row + 1) * per_row}, interval{0, d.pp});
    std::vector<interval> parts;
    index_t layers = 0;
    for (index_t stage = stages_of_row.begin; stage < stages_of_row.end; ++stage)
      s.pipeline().intervals(stage, [&](interval part) {
        parts.push_back(part);
        layers += part.size();
      });
    std::string range;
    if (per_row == 1 && !parts.empty()) range = to_text(parts[0]);
    if (per_row == 1 && parts.size() > 1) range += parts.size() > 2 ? " .." : text_of(" ", to_text(parts[1]));
    stages.row({range_text(stages_of_row), ranks_text(s, stages_of_row),
                text_of(ends.embedding(stages_of_row) ? "E" : " ", bar_text(parts, m.shape.layers, 30),
                        ends.letters(stages_of_row)),
                std::to_string(layers), range});
  }
  const std::string heading = text_of("Layers along the pipeline, 0 to ", m.shape.layers - 1, " (", ends.legend(), ")");
  return text_of("\n", folded(heading), "\n", stages.text());
}

/// The ranks of stage 0 with tensor part t.
inline rank_product ranks_of_tensor_part(const space& s, index_t t) {
  const mesh& on = s.mesh_for(mesh_kind::dense);
  rank_product ranks{on, {{0, on.extent[0]}, {0, on.extent[1]}, {0, on.extent[2]}, {0, on.extent[3]}}};
  ranks.axis(mesh_axis::tensor) = {t};
  ranks.axis(mesh_axis::pipeline) = {0};
  return ranks;
}

/// What tensor part t has of the dimension that tp cuts in the first piece of a family, in the dimension's numbers:
/// those of one axis, or of rows counted over the parts.
inline std::vector<interval> numbers_of_tensor_part(const space& s, int f, index_t t) {
  const family& tensors = s.family_at(f);
  const box<3> piece = s.piece_box(f, 0);
  const int axis = tensors.cut_axis();
  const index_t along = piece.dim[axis - axis_of::part].size(), parts = piece.dim[0].size();
  const bool over_parts = tensors.cuts_over_parts();
  std::vector<interval> numbers;
  const auto add = [&](interval more) {
    if (more.empty()) return;
    if (!numbers.empty() && numbers.back().end == more.begin) numbers.back().end = more.end;
    else numbers.push_back(more);
  };
  if (s.cut_unevenly(f)) {
    add(chunk_part({0, over_parts ? parts * along : along}, t, s.tensor_parts(f)));
    return numbers;
  }
  const family_box shard = s.shard_box(f, 0, {0, 1}, 0, t);
  const interval mine = translate(shard.dim[axis], -piece.dim[axis - axis_of::part].begin);
  if (!over_parts) add(mine);
  else
    for (index_t part = shard.dim[axis_of::part].begin; part < shard.dim[axis_of::part].end; ++part)
      add(translate(mine, (part - piece.dim[0].begin) * along));
  return numbers;
}

/// How tp cuts matrices whose heads do not tell it, drawn for one of them.
inline std::string tensor_block_of(const space& s, int f) {
  const family& tensors = s.family_at(f);
  const box<3> piece = s.piece_box(f, 0);
  const index_t along = piece.dim[tensors.cut_axis() - axis_of::part].size(),
                extent = tensors.cuts_over_parts() ? piece.dim[0].size() * along : along;
  const auto row = [&](index_t t) -> bar_row {
    const std::vector<interval> mine = numbers_of_tensor_part(s, f, t);
    const std::string numbers = mine.empty() ? "none" : text_of(to_text(mine[0]), mine.size() > 1 ? " .." : "");
    return {text_of("tp ", t), mine, text_of(numbers, " ", holders_text(ranks_of_tensor_part(s, t)))};
  };
  const std::string name = short_name(names_on(s, f, 0, s.first_rank(0)), tensors.place);
  const char* what = tensors.cut_axis() == axis_of::column ? "columns of "
                     : tensors.cut_axis() == axis_of::part ? "parts of "
                                                           : "rows of ";
  return block_text(
      text_of("tp cuts dense matrices in ", s.degrees().tp, rules::cuts_by_chunk(s.degrees()) ? " by chunk()" : "",
              ", drawn for ", what, name, ": its numbers and their ranks"),
      s.degrees().tp, extent, row);
}

/// How tp cuts matrices: told by their heads where it divides them; nothing where neither they nor a matrix tell it.
inline std::string tensor_block(const space& s) {
  const index_t tp = s.degrees().tp, all_heads = s.model().shape.heads;
  std::optional<int> first;  // that tp cuts
  for (int f = s.families() - 1; f >= 0; --f)
    if (s.family_at(f).mesh == mesh_kind::dense && s.tensor_parts(f) > 1) first = f;
  for (int f = 0; f < s.families(); ++f)
    if (s.family_at(f).mesh == mesh_kind::dense && s.cut_unevenly(f)) return tensor_block_of(s, f);
  if (all_heads == 0 || all_heads % tp != 0) return first ? tensor_block_of(s, *first) : std::string();
  const auto row = [&](index_t t) -> bar_row {
    return {
        text_of("tp ", t), {equal_part(all_heads, t, tp)}, text_of("ranks ", holders_text(ranks_of_tensor_part(s, t)))};
  };
  return block_text(text_of("tp cuts dense matrices in ", tp, " (qkv, fc1, vocabulary: rows; proj, fc2: columns)"), tp,
                    all_heads, row);
}

/// How ep deals experts, and etp cuts them.
inline std::string expert_block(const space& s) {
  const degrees& d = s.degrees();
  const index_t all_experts = s.model().shape.experts;
  const mesh& on = s.mesh_for(mesh_kind::expert);
  const auto row = [&](index_t e) -> bar_row {
    const interval experts = chunk_part({0, all_experts}, e, d.ep);
    const std::vector<interval> parts(experts.empty() ? 0 : 1, experts);
    rank_product ranks{on, {{0, on.extent[0]}, {0, on.extent[1]}, {0, on.extent[2]}, {0, on.extent[3]}}};
    ranks.axis(mesh_axis::middle) = {e};
    ranks.axis(mesh_axis::pipeline) = {0};
    return {text_of("ep ", e), parts, text_of(experts.empty() ? "none" : to_text(experts), " ", holders_text(ranks))};
  };
  const std::string by_etp = d.expert_tp() > 1 ? text_of(", etp each expert in ", d.expert_tp()) : "";
  return block_text(
      text_of("ep cuts the ", all_experts, " experts of a layer in ", d.ep, by_etp, ": experts and their ranks"), d.ep,
      all_experts, row);
}

}  // namespace detail

/// What `reshard regions` prints.
inline std::string layout_picture(const computed_holding& holding) {
  using namespace detail;
  const space& s = holding.space();
  const model& m = s.model();
  const degrees& d = s.degrees();
  const std::string stage_ranks = count_text(d.stage_ranks());
  std::string text =
      text_of(folded(title_text(s)), "\n", count_text(s.ranks()), s.ranks() == 1 ? " rank, " : " ranks, ",
              count_text(d.pp), d.pp == 1 ? " stage" : " stages", " of ", stage_ranks, "; ", count_text(m.parameters()),
              " parameters\n", pipeline_block(s));
  if (d.stage_ranks() > 1)
    text += text_of("\nInside a stage, drawn for stage 0",
                    d.pp == 1 ? ""
                    : s.first_rank(1) == d.stage_ranks()
                        ? text_of("; the others add ", stage_ranks, " ranks a stage")
                        : text_of("; a stage further adds ", s.first_rank(1), " to each rank"),
                    ".\n");
  if (d.tp > 1) text += tensor_block(s);
  if (m.shape.experts > 0 && d.ep * d.expert_tp() > 1) text += expert_block(s);
  if (holding.sharded(role::optimizer)) {
    const bool own_experts = m.shape.experts > 0 && (d.shard == shard_by::rows || d.expert_buffers());
    text += buffer_block(holding, mesh_kind::dense, own_experts ? "all but experts" : "all tensors");
    if (own_experts) text += buffer_block(holding, mesh_kind::expert, "experts");
  }
  return text;
}
inline std::string layout_picture(const any_holding& holding) { return layout_picture(computed_of(holding)); }

}  // namespace reshard::io
