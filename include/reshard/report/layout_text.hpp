// SPDX-License-Identifier: Apache-2.0
// A layout as a person reads it: the summary that `check` prints, and the table of what one rank holds.
// Builds on: io/print.hpp, report/regions.hpp, parallelism/parse_degrees.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/io/print.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/report/regions.hpp>

namespace reshard::io {

namespace detail {

inline std::string layout_name(const space& s) {
  const std::string text = to_text(s.degrees());
  return text.empty() ? "''" : text;
}

/// "tp=2, dp=2 (4 ranks)", or of what is no computed layout what it is.
template <Holding H>
std::string side_text(const H& h) {
  const computed_holding* c = known_as<computed_holding>(h);
  const std::string name = c != nullptr                             ? layout_name(c->space())
                           : known_as<listed_holding>(h) != nullptr ? "a list of shards"
                                                                    : "a holding";
  return text_of(name, " (", count_text(h.ranks()), h.ranks() == 1 ? " rank)" : " ranks)");
}

/// "llama2-7b", by the side of a switch that knows it.
template <Holding From, Holding To>
std::string model_name(const From& from, const To& to) {
  for (const computed_holding* const side : {known_as<computed_holding>(from), known_as<computed_holding>(to)})
    if (side != nullptr) return std::string(side->space().model().name);
  return "tensors of no model";
}

/// "llama2-7b under tp=2,pp=2"
inline std::string title_text(const space& s) {
  return text_of(one_line(s.model().name, 60), " under ", layout_name(s));
}

/// A family's name without what tells it from no other: "qkv", "qkv.layer_norm", "experts.fc1", "mtp.qkv" of a
/// prediction layer; of Hugging Face's names "q_proj", "experts.gate_proj".
inline std::string short_name(std::string_view pattern, home place = home::layers) {
  const bool prediction = place == home::prediction || pattern.starts_with("mtp.layers.");
  for (const std::string_view prefix :
       {"mtp.layers.0.", "mtp_model_layer.", "decoder.layers.{layer}.", "model.layers.{layer}.", "self_attention.",
        "self_attn.", "mlp.", "block_sparse_moe.", "decoder.", "embedding.", "model."})
    if (pattern.starts_with(prefix)) pattern.remove_prefix(prefix.size());
  for (const std::string_view suffix : {"{expert}", ".weight", "_weight"})
    if (pattern.ends_with(suffix)) pattern.remove_suffix(suffix.size());
  std::string name(pattern);
  constexpr std::string_view kind = "linear_";
  if (const std::size_t at = name.find(kind); at != name.npos) name.erase(at, kind.size());
  constexpr struct {
    std::string_view in, shorter;
  } others[] = {
      {"{expert}.", ""},          {"shared_experts", "shared"}, {"post_attention_layernorm", "post_attention_norm"},
      {"_up_proj", "_up"},        {"_down_proj", "_down"},      {"e_score_correction_bias", "score_bias"},
      {"_proj_with_mqa", "_proj"}};
  for (const auto& [in, shorter] : others)
    if (const std::size_t at = name.find(in); at != name.npos) name.replace(at, in.size(), shorter);
  return prediction ? "mtp." + name : name;
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

/// A box of one tensor, a piece of a family's, as in JSON: parts where there are several, rows but for a vector,
/// columns.
inline std::string tensor_box_text(const family& tensors, const box<3>& piece, const family_box& b) {
  const auto in_piece = [&](int a) { return to_text(translate(b.dim[a], -piece.dim[a - axis_of::part].begin)); };
  std::string text = in_piece(axis_of::column);
  if (!tensors.vector()) text = text_of(in_piece(axis_of::row), "x", text);
  if (piece.dim[0].size() > 1) text = text_of(in_piece(axis_of::part), "x", text);
  return text;
}
inline std::string tensor_box_text(const family& tensors, const family_box& b) {
  box<3> all;
  all.dim[0].end = tensors.extent[axis_of::part];
  return tensor_box_text(tensors, all, b);
}

inline std::string model_text(const model& m) {
  const dimensions& s = m.shape;
  std::string text =
      text_of(count_text(s.layers), " layers, hidden ", count_text(s.hidden), ", ", count_text(s.heads), " heads");
  if (s.groups > 0) text += text_of(" of ", count_text(s.head_dim), " in ", count_text(s.groups), " query groups");
  if (s.ffn > 0) text += text_of(", ffn ", count_text(s.ffn));
  if (s.experts > 0) text += text_of(", ", count_text(s.experts), " experts of ", count_text(s.expert_ffn));
  if (s.shared_ffn > 0) text += text_of(", shared experts of ", count_text(s.shared_ffn));
  if (s.predictions > 0) text += text_of(", ", s.predictions, " prediction layer");
  text += text_of(", vocabulary ", count_text(s.vocabulary));
  index_t rows = 0;  // of the vocabulary on this side
  for (int f = 0; f < m.families; ++f)
    if (m[f].padded == padded_as::vocabulary) rows = m[f].extent[axis_of::row];
  if (rows > s.vocabulary) text += text_of(", padded to ", count_text(rows));
  return s.tied ? text + " (tied)" : text;
}

/// The ranks rank(0), rank(1) .. rank(count - 1), which ascend: all up to 4, else the first 3 and how many there are.
template <typename Rank>
std::string few_ranks_text(index_t count, Rank&& rank) {
  std::string text;
  for (index_t i = 0; i < (count > 4 ? 3 : count); ++i) text += text_of(i == 0 ? "" : ",", rank(i));
  return count > 4 ? text_of(text, ",.. (", count, ")") : text;
}
/// The ranks of some stages: a range where they are one.
inline std::string ranks_text(const space& s, interval stages) {
  const index_t each = s.stage_ranks(), pp = s.degrees().pp;
  if (pp == 1 || s.first_rank(1) == each) return range_text({stages.begin * each, stages.end * each});
  if (stages.size() == pp) return range_text({0, s.ranks()});
  const index_t run = stages.size() * s.first_rank(1), count = stages.size() * each;  // ranks next to each other
  return few_ranks_text(count,
                        [&](index_t i) { return i / run * s.first_rank(pp) + s.first_rank(stages.begin) + i % run; });
}

/// What stages of the pipeline have beside layers.
class stage_ends {
 public:
  explicit stage_ends(const space& s) : last_(s.degrees().pp - 1), norm_(last_), tied_(s.model().shape.tied) {
    const pipeline_placement& pipeline = s.pipeline();
    if (s.model().shape.predictions > 0) prediction_ = pipeline.stage_of_chunk(pipeline.prediction_chunk());
    for (int f = 0; f < s.families(); ++f) {
      if (s.family_at(f).place == home::last_layer) norm_ = pipeline.stage_of_chunk(pipeline.last_layer_chunk());
      if (s.family_at(f).place == home::first_stage) positions_ = true;
    }
  }

  bool predictions() const { return prediction_ >= 0; }
  bool tied_copy() const { return tied_ && last_ > 0; }
  bool embedding(interval stages) const { return stages.contains(0); }
  bool norm(interval stages) const { return stages.contains(norm_); }
  bool prediction(interval stages) const { return predictions() && stages.contains(prediction_); }
  bool output(interval stages) const { return !tied_ && stages.contains(last_); }
  /// A copy of the embedding: of a tied one on the last stage; where prediction layers are.
  bool copy(interval stages) const {
    return (tied_copy() && stages.contains(last_)) || (prediction_ > 0 && stages.contains(prediction_));
  }

  /// "embedding, " in front of the layers.
  std::string before(interval stages) const {
    return !embedding(stages) ? "" : positions_ ? "embedding, positions, " : "embedding, ";
  }
  /// ", norm, output" behind them.
  std::string after(interval stages) const {
    return text_of(norm(stages) ? ", norm" : "", prediction(stages) ? ", prediction layer" : "",
                   output(stages) ? ", output" : "", copy(stages) ? ", copy of the embedding" : "");
  }
  /// What pinned families these stages have, as letters of a picture; legend() says what they mean.
  std::string letters(interval stages) const {
    return text_of(norm(stages) ? "N" : "", prediction(stages) ? "P" : "", output(stages) ? "O" : "",
                   copy(stages) ? "e" : "");
  }
  std::string legend() const {
    return text_of(positions_ ? "E embeddings" : "E embedding", ", N norm", predictions() ? ", P prediction layer" : "",
                   tied_ ? "" : ", O output",
                   predictions() && last_ > 0 ? ", e copy of E"
                   : tied_copy()              ? ", e its tied copy"
                                              : "");
  }

 private:
  index_t last_, norm_, prediction_ = -1;  // stages
  bool tied_, positions_ = false;
};

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
inline std::string check_text(const computed_holding& holding, const state_list& list = adam) {
  const space& s = holding.space();
  const model& m = s.model();
  const degrees& d = s.degrees();
  index_t tensors = 0;
  for (int f = 0; f < m.families; ++f)
    if (m.counts(f)) tensors += m[f].tensors() * s.pieces(f);
  std::string text =
      text_of(folded(text_of(detail::title_text(s), " is legal.")), "\n\n",
              folded(text_of("  model        ", detail::model_text(m)), 15), "\n  parameters   ",
              count_text(m.parameters()), " in ", count_text(tensors), " tensors of ", m.families, " families",
              m.padding() > 0 ? "; beside them " : "", m.padding() > 0 ? count_text(m.padding()) : "",
              m.padding() > 0 ? " of padding" : "", "\n  world        ", count_text(s.ranks()),
              s.ranks() == 1 ? " rank" : " ranks", "\n  dense mesh   ", detail::mesh_text(s, mesh_kind::dense), "\n");
  if (m.shape.experts > 0) text += text_of("  expert mesh  ", detail::mesh_text(s, mesh_kind::expert), "\n");
  text += "\n";

  using side = table::side;
  table states({{"state", side::left}, {"least on a rank"}, {"most on a rank"}, {"mean"}, {"all ranks"}});
  const auto state_row = [&](const std::string& name, const state_set& which) {
    const std::vector<bytes_t> bytes = bytes_of_ranks(holding, which);
    bytes_t low = bytes[0], high = bytes[0], sum = 0;
    for (const bytes_t b : bytes) low = least(low, b), high = greatest(high, b), sum = checked_add(sum, b);
    states.row({name, bytes_text(low), bytes_text(high), bytes_text(sum / s.ranks()), bytes_text(sum)});
  };
  for (int i = 0; i < list.size(); ++i) state_row(std::string(list[i].name), list.named(list[i].name));
  state_row("all", list.all());
  text += states.text() + "\n";

  // stages with as many layers as their neighbours share a line where there are many: then three lines at most
  table stages({{"stage"}, {"ranks"}, {"layers each"}, {"holds", side::left}});
  const pipeline_placement& pipeline = s.pipeline();
  const detail::stage_ends ends(s);
  const auto alike = [&](index_t stage, index_t other) {
    return d.pp > 16 && detail::stage_layer_count(pipeline, stage) == detail::stage_layer_count(pipeline, other);
  };
  reshard::detail::each_run(d.pp, alike, [&](index_t stage, index_t past) {
    std::string holds = text_of(ends.before({stage, past}), detail::stage_layers_text(pipeline, {stage, past}));
    std::string after = ends.after({stage, past});
    const bool runs = d.pp == 1 || s.first_rank(1) == s.stage_ranks();
    constexpr std::size_t room = 46;  // of 80 columns, beside numbers of ranks
    const bool apart =
        !after.empty() && (ends.prediction({stage, past}) || !runs || holds.size() + after.size() > room);
    if (!apart) holds += after;
    stages.row({range_text({stage, past}), detail::ranks_text(s, {stage, past}),
                std::to_string(detail::stage_layer_count(pipeline, stage)), holds});
    if (!apart) return;
    const std::size_t copy = after.find(", copy");
    stages.row({"", "", "", after.substr(2, copy - 2)});
    if (copy != after.npos && copy > 0) stages.row({"", "", "", after.substr(copy + 2)});
  });
  return text + stages.text();
}

namespace detail {

/// The boxes that a rank has of states that lie alike, at most `boxes_shown` of a family, and how many bytes all are.
inline std::string boxes_text(const computed_holding& holding, rank_t rank, const state_set& states,
                              index_t boxes_shown, const state_list& list) {
  const space& s = holding.space();
  const model& m = s.model();
  const role r = states.role_of(*states.begin());
  const bool experts = m.shape.experts > 0;
  using side = table::side;
  std::vector<table::column> columns{
      {"family", side::left}, {"layers", side::left}, {"box of a tensor", side::left}, {"bytes"}};
  if (experts) columns.insert(columns.begin() + 2, {"experts", side::left});
  table boxes(columns);
  bytes_t sum = 0;
  for (int f = 0; f < m.families; ++f) {
    const state_set kept = states_of(m[f].kind, states);
    if (kept.empty()) continue;
    index_t shown = 0, more = 0;  // of a piece, whose boxes come together
    bytes_t rest = 0;
    int piece = -1;
    const auto tell_rest = [&] {
      if (more == 0) return;
      std::vector<std::string> last(columns.size());
      last.front() = text_of("  and ", count_text(more), " more");
      last.back() = narrow_bytes_text(rest);
      boxes.row(std::move(last));
    };
    holding.held(f, rank, m[f].kind == tensor_kind::statistic ? role::statistic : r, [&](int, const family_box& b) {
      if (const int of = s.piece_of(f, b); of != piece) tell_rest(), piece = of, shown = 0, more = 0, rest = 0;
      const bytes_t bytes = checked_multiply(b.volume(), kept.bytes_per_element());
      sum += bytes;
      if (shown == boxes_shown) {
        ++more, rest += bytes;
        return;
      }
      std::vector<std::string> cells{shown++ == 0 ? short_name(names_on(s, f, piece, rank), m[f].place) : "",
                                     layers_text(m, f, b.dim[axis_of::layer]),
                                     tensor_box_text(m[f], s.piece_box(f, piece), b), narrow_bytes_text(bytes)};
      const bool of_experts = m[f].mesh == mesh_kind::expert;
      if (experts) cells.insert(cells.begin() + 2, of_experts ? to_text(b.dim[axis_of::expert]) : "-");
      boxes.row(std::move(cells));
    });
    tell_rest();
  }
  const std::string heading = text_of("\n", to_text(states, list), ": ", bytes_text(sum), "\n");
  return boxes.empty() ? heading : heading + boxes.text();
}

}  // namespace detail

/// What `reshard regions --rank R` prints: boxes of families, at most `boxes_shown` of each.
inline std::string rank_text(const computed_holding& holding, rank_t rank, const state_set& wanted,
                             index_t boxes_shown = 4, const state_list& list = adam) {
  const space& s = holding.space();
  const model& m = s.model();
  const std::string title = text_of("Rank ", rank, " of ", count_text(s.ranks()), ", ", detail::title_text(s));
  std::string text = folded(title) + "\n";
  const char* separator = "  at ";
  for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
    if (kind == mesh_kind::expert && m.shape.experts == 0) continue;
    constexpr const char* names[2][mesh_ndim] = {{"tp ", "cp ", "dp ", "pp "}, {"etp ", "ep ", "edp ", nullptr}};
    for (int a = 0; a < mesh_ndim; ++a)
      if (const char* name = names[kind == mesh_kind::expert ? 1 : 0][a])
        text += text_of(separator, name, s.mesh_for(kind).coordinate(a, rank)), separator = ", ";
  }
  text += "\n";

  // states that lie as parameters do share a table, and all others, which ZeRO shards and those not
  state_set beside, apart;
  for (const int state : wanted) {
    const role r = state == statistic_state ? role::parameter : wanted.role_of(state);
    state_set& table = holding.sharded(r) == holding.sharded(role::parameter) ? beside : apart;
    table = table | wanted.masked(1u << state);
  }
  for (const state_set& states : {beside, apart})
    if (!states.empty()) text += detail::boxes_text(holding, rank, states, boxes_shown, list);
  return text;
}

inline std::string check_text(const any_holding& holding, const state_list& list = adam) {
  return check_text(computed_of(holding), list);
}
inline std::string rank_text(const any_holding& holding, rank_t rank, const state_set& wanted, index_t boxes_shown = 4,
                             const state_list& list = adam) {
  return rank_text(computed_of(holding), rank, wanted, boxes_shown, list);
}

}  // namespace reshard::io
