// SPDX-License-Identifier: Apache-2.0
// A layout as a person reads it: the summary that `check` prints, and the table of what one rank holds.
// Builds on: io/print.hpp, io/regions.hpp, parallelism/parse_degrees.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/io/print.hpp>
#include <reshard/io/regions.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

namespace reshard::io {

namespace detail {

inline std::string layout_name(const space& s) {
  const std::string text = to_text(s.degrees());
  return text.empty() ? "''" : text;
}

/// "llama2-7b under tp=2,pp=2"
inline std::string title_text(const space& s) {
  return text_of(one_line(s.model().name, 60), " under ", layout_name(s));
}

/// A family's name without what tells it from no other: "qkv", "qkv.layer_norm", "experts.fc1".
inline std::string short_name(std::string_view pattern) {
  for (const std::string_view prefix : {"decoder.layers.{layer}.", "self_attention.", "mlp.", "decoder.", "embedding."})
    if (pattern.starts_with(prefix)) pattern.remove_prefix(prefix.size());
  for (const std::string_view suffix : {"{expert}", ".weight", "_weight"})
    if (pattern.ends_with(suffix)) pattern.remove_suffix(suffix.size());
  std::string name(pattern);
  constexpr std::string_view kind = "linear_";
  if (const std::size_t at = name.find(kind); at != name.npos) name.erase(at, kind.size());
  return name;
}

/// The global layers of some members: "[4,8)", or "[4,12) 4 of 8" where the family has not all of them; "-" for pinned
/// ones.
inline std::string layers_text(const model& m, int f, interval members) {
  if (m[f].place != home::layers) return "-";
  const interval layers{m.layers_of(f).layer_of(members.begin), m.layers_of(f).layer_of(members.end - 1) + 1};
  if (layers.size() == members.size()) return to_text(layers);
  return text_of(to_text(layers), " ", members.size(), " of ", layers.size());
}

/// The global layers that pipeline stages hold, as intervals that do not touch: "layers [0,4) [8,12)"; of more than
/// three intervals the first: "layers [0,4) and 5 more".
inline std::string stage_layers_text(const pipeline_placement& pipeline, interval stages) {
  std::vector<interval> chunks, runs;
  for (index_t stage = stages.begin; stage < stages.end; ++stage)
    pipeline.intervals(stage, [&](interval layers) { chunks.push_back(layers); });
  std::sort(chunks.begin(), chunks.end(), [](interval a, interval b) { return a.begin < b.begin; });
  for (const interval& chunk : chunks) {
    if (!runs.empty() && runs.back().end == chunk.begin) runs.back().end = chunk.end;
    else runs.push_back(chunk);
  }
  if (runs.empty()) return "no layers";
  std::string text = text_of("layers ", to_text(runs[0]));
  if (runs.size() > 3) return text_of(text, " and ", runs.size() - 1, " more");
  for (std::size_t i = 1; i < runs.size(); ++i) text += text_of(" ", to_text(runs[i]));
  return text;
}
inline index_t stage_layer_count(const pipeline_placement& pipeline, index_t stage) {
  index_t layers = 0;
  pipeline.intervals(stage, [&](interval part) { layers += part.size(); });
  return layers;
}

/// A box of one tensor, as in JSON: parts where there are several, rows but for a vector, columns.
inline std::string tensor_box_text(const family& tensors, const family_box& b) {
  std::string text = to_text(b.dim[axis_of::column]);
  if (!tensors.vector()) text = text_of(to_text(b.dim[axis_of::row]), "x", text);
  if (tensors.extent[axis_of::part] > 1) text = text_of(to_text(b.dim[axis_of::part]), "x", text);
  return text;
}

inline std::string model_text(const model& m) {
  const dimensions& s = m.shape;
  std::string text = text_of(count_text(s.layers), " layers, hidden ", count_text(s.hidden), ", ", count_text(s.heads),
                             " heads of ", count_text(s.head_dim), " in ", count_text(s.groups), " query groups");
  if (s.ffn > 0) text += text_of(", ffn ", count_text(s.ffn));
  if (s.experts > 0) text += text_of(", ", count_text(s.experts), " experts of ", count_text(s.expert_ffn));
  return text_of(text, ", vocabulary ", count_text(s.vocabulary), s.tied ? " (tied)" : "");
}

/// The ranks of some stages: a range where stages are runs of ranks.
inline std::string ranks_text(const space& s, interval stages) {
  const index_t each = s.stage_ranks();
  if (s.first_rank(1) == each || s.degrees().pp == 1) return range_text({stages.begin * each, stages.end * each});
  return text_of(s.first_rank(stages.begin), ",.. (", stages.size() * each, ")");
}

inline std::string mesh_text(const space& s, mesh_kind kind) {
  const mesh m = mesh_of(s.degrees(), kind);
  constexpr const char* names[2][mesh_ndim] = {{"tp ", "cp ", "dp ", "pp "}, {"etp ", "ep ", "edp ", "pp "}};
  std::string text;
  for (int a = 0; a < mesh_ndim; ++a)
    text += text_of(a > 0 ? " x " : "", names[kind == mesh_kind::expert ? 1 : 0][a], m.along(a));
  return text;
}

}  // namespace detail

/// What `reshard check` prints.
inline std::string check_text(const computed_holding& holding) {
  const space& s = holding.space();
  const model& m = s.model();
  const degrees& d = s.degrees();
  index_t tensors = 0;
  for (int f = 0; f < m.families; ++f) tensors += m[f].tensors();
  std::string text = text_of(folded(text_of(detail::title_text(s), " is legal."), 4), "\n\n",
                             folded(text_of("  model        ", detail::model_text(m)), 15), "\n  parameters   ",
                             count_text(m.parameters()), " in ", count_text(tensors), " tensors of ", m.families,
                             " families\n  world        ", count_text(s.ranks()), s.ranks() == 1 ? " rank" : " ranks",
                             "\n  dense mesh   ", detail::mesh_text(s, mesh_kind::dense), "\n");
  if (m.shape.experts > 0) text += text_of("  expert mesh  ", detail::mesh_text(s, mesh_kind::expert), "\n");
  text += "\n";

  using side = table::side;
  table states({{"state", side::left}, {"least on a rank"}, {"most on a rank"}, {"mean"}, {"all ranks"}});
  const auto state_row = [&](const std::string& name, state_set which) {
    const std::vector<bytes_t> bytes = bytes_of_ranks(holding, which);
    bytes_t low = bytes[0], high = bytes[0], sum = 0;
    for (const bytes_t b : bytes) low = least(low, b), high = greatest(high, b), sum = checked_add(sum, b);
    states.row({name, bytes_text(low), bytes_text(high), bytes_text(sum / s.ranks()), bytes_text(sum)});
  };
  for (const state& kept : adam_states)
    if (kept.placed_as != role::statistic) state_row(std::string(kept.name), states_named(kept.name));
  state_row("all", all_states);
  text += states.text() + "\n";

  // stages with as many layers as their neighbours share a line where there are many: then three lines at most
  table stages({{"stage"}, {"ranks"}, {"layers each"}, {"holds", side::left}});
  const pipeline_placement& pipeline = s.pipeline();
  const index_t together = d.pp <= 16 ? 1 : d.pp;
  for (index_t stage = 0, past = 0; stage < d.pp; stage = past) {
    const index_t layers = detail::stage_layer_count(pipeline, stage);
    for (past = stage + 1;
         past < d.pp && past - stage < together && detail::stage_layer_count(pipeline, past) == layers;)
      ++past;
    std::string holds = text_of(stage == 0 ? "embedding, " : "", detail::stage_layers_text(pipeline, {stage, past}));
    if (past == d.pp) holds += m.shape.tied ? d.pp > 1 ? ", norm, copy of the embedding" : ", norm" : ", norm, output";
    stages.row({range_text({stage, past}), detail::ranks_text(s, {stage, past}),
                std::to_string(layers), holds});
  }
  return text + stages.text();
}

namespace detail {

/// The boxes that a rank has of states that lie alike, at most `boxes_shown` of a family, and how many bytes all are.
inline std::string boxes_text(const computed_holding& holding, rank_t rank, state_set states, index_t boxes_shown) {
  const space& s = holding.space();
  const model& m = s.model();
  const role r = (states & parameter_states).empty() ? role::optimizer : role::parameter;
  const bool experts = m.shape.experts > 0;
  using side = table::side;
  std::vector<table::column> columns{
      {"family", side::left}, {"layers", side::left}, {"box of a tensor", side::left}, {"bytes"}};
  if (experts) columns.insert(columns.begin() + 2, {"experts", side::left});
  table boxes(columns);
  bytes_t sum = 0;
  for (int f = 0; f < m.families; ++f) {
    const std::string name = short_name(s.names_on(f, rank));
    const state_set kept = states_of(m[f].kind, states);
    if (kept.empty()) continue;
    index_t shown = 0, more = 0;
    bytes_t rest = 0;
    holding.held(f, rank, m[f].kind == tensor_kind::statistic ? role::statistic : r, [&](int, const family_box& b) {
      const bytes_t bytes = checked_multiply(b.volume(), kept.bytes_per_element());
      sum += bytes;
      if (shown == boxes_shown) {
        ++more, rest += bytes;
        return;
      }
      std::vector<std::string> cells{shown++ == 0 ? name : "", layers_text(m, f, b.dim[axis_of::layer]),
                                     tensor_box_text(m[f], b), narrow_bytes_text(bytes)};
      const bool of_experts = m[f].mesh == mesh_kind::expert;
      if (experts) cells.insert(cells.begin() + 2, of_experts ? to_text(b.dim[axis_of::expert]) : "-");
      boxes.row(std::move(cells));
    });
    if (more == 0) continue;
    std::vector<std::string> last(columns.size());
    last.front() = text_of("  and ", count_text(more), " more");
    last.back() = narrow_bytes_text(rest);
    boxes.row(std::move(last));
  }
  const std::string heading = text_of("\n", to_text(states), ": ", bytes_text(sum), "\n");
  return boxes.empty() ? heading : heading + boxes.text();
}

}  // namespace detail

/// What `reshard regions --rank R` prints: boxes of families, at most `boxes_shown` of each.
inline std::string rank_text(const computed_holding& holding, rank_t rank, state_set wanted, index_t boxes_shown = 4) {
  const space& s = holding.space();
  const model& m = s.model();
  const std::string title = text_of("Rank ", rank, " of ", count_text(s.ranks()), ", ", detail::title_text(s));
  std::string text = folded(title, 4) + "\n";
  const char* separator = "  at ";
  for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
    if (kind == mesh_kind::expert && m.shape.experts == 0) continue;
    constexpr const char* names[2][mesh_ndim] = {{"tp ", "cp ", "dp ", "pp "}, {"etp ", "ep ", "edp ", nullptr}};
    for (int a = 0; a < mesh_ndim; ++a)
      if (const char* name = names[kind == mesh_kind::expert ? 1 : 0][a])
        text += text_of(separator, name, s.mesh_for(kind).coordinate(a, rank)), separator = ", ";
  }
  text += "\n";

  // roles that lie alike share a table
  const bool alike = !holding.sharded(role::optimizer);
  std::vector<state_set> tables;
  if (alike) tables = {wanted};
  else tables = {wanted & parameter_states, wanted & optimizer_states};
  for (const state_set states : tables) {
    if (states.empty()) continue;
    text += detail::boxes_text(holding, rank, states, boxes_shown);
  }
  return text;
}

}  // namespace reshard::io
