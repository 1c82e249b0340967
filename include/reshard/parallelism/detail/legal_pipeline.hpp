// SPDX-License-Identifier: Apache-2.0
// Which pipelines a model admits: the rules of split, first and last, layout strings and prediction layers, each a
// predicate and the sentence that refuses.
// Source: Megatron-core TransformerConfig and PipelineParallelLayerLayout.
// Builds on: model/model.hpp, parallelism/detail/layout_keys.hpp.
#pragma once

#include <string>

#include <reshard/model/model.hpp>
#include <reshard/parallelism/detail/layout_keys.hpp>

namespace reshard {

namespace rules {
/// vpp == 1 or pp > 1
constexpr bool vpp_has_stages(index_t vpp, index_t pp) { return vpp == 1 || pp > 1; }
/// How many more layers than there are a split counts: the embedding, the loss.
constexpr index_t counted_as_layers(pipeline_split split) {
  return split == pipeline_split::account                                                      ? 2
         : split == pipeline_split::account_embedding || split == pipeline_split::account_loss ? 1
                                                                                               : 0;
}
/// Layers, with embedding and loss where they count, over the chunks; spread has one chunk a stage.
constexpr bool layers_split(pipeline_split split, index_t layers, index_t pp, index_t vpp) {
  if (split == pipeline_split::spread) return vpp == 1;
  return (layers + counted_as_layers(split)) % (pp * vpp) == 0;
}
/// At most one of split, first or last, and string says how layers are dealt.
constexpr bool dealt_once(const degrees& d) {
  return (d.split != pipeline_split::even) + (d.first > 0 || d.last > 0) + d.string.given() <= 1;
}
/// Stages between the first and the last where these have numbers of their own.
constexpr index_t stages_between(const degrees& d) { return d.pp - (d.first > 0 ? 1 : 0) - (d.last > 0 ? 1 : 0); }
/// F + Z = L where there is no stage between; else what is left divides by those, at least one layer each.
constexpr bool ends_leave_layers(const degrees& d, index_t layers) {
  const index_t between = stages_between(d);
  if (between < 0 || d.first > layers || d.last > layers - d.first) return false;
  const index_t rest = layers - d.first - d.last;
  return between == 0 ? rest == 0 : rest > 0 && rest % between == 0;
}
/// With vpp chunks a stage every stage's number divides by vpp, and two uneven stages have one chunk each.
constexpr bool ends_divide_by_chunks(const degrees& d, index_t layers) {
  if (d.vpp == 1) return true;
  const index_t between = stages_between(d);
  if (between == 0 && d.first > 0 && d.last > 0) return false;
  return d.first % d.vpp == 0 && d.last % d.vpp == 0 &&
         (between == 0 || (layers - d.first - d.last) / between % d.vpp == 0);
}
}  // namespace rules

namespace detail {

/// "1,2,4,8" in a sentence: the divisors of n up to 1024, at most 16, for what would be legal. A number until it is
/// written.
struct divisors {
  index_t n;

  constexpr operator text_part() const { return {n, append}; }

 private:
  static void append(std::string& sentence, index_t n) {
    index_t shown = 0;
    for (index_t d = 1; d <= least(n, 1024) && shown < 16; ++d) {
      if (n % d != 0) continue;
      sentence += shown++ == 0 ? "" : ",";
      sentence += std::to_string(d);
    }
  }
};

constexpr void refuse_chunks(index_t vpp, index_t pp) { refuse("vpp=", vpp, " needs pp > 1, and pp=", pp); }
constexpr void refuse_even_layers(index_t layers, index_t pp, index_t vpp) {
  if (vpp == 1)
    refuse(layers, " layers do not divide by pp=", pp, "; give split=spread or pp in {", divisors{layers}, "}");
  refuse(layers, " layers do not divide by pp=", pp, " x vpp=", vpp, " = ", pp * vpp, " chunks; pp x vpp in {",
         divisors{layers}, "} would do");
}
constexpr void refuse_accounted_layers(index_t layers, index_t pp, index_t vpp) {
  refuse("split=account: ", layers, " layers and 2 for embedding and loss do not divide by pp=", pp, " x vpp=", vpp,
         "; pp x vpp in {", divisors{layers + 2}, "} would do");
}
constexpr void refuse_with_one_counted(const char* which, index_t layers, index_t pp, index_t vpp) {
  refuse("split=account_", which, ": ", layers, " layers and 1 for the ", which, " do not divide by pp=", pp,
         " x vpp=", vpp, "; pp x vpp in {", divisors{layers + 1}, "} would do");
}
constexpr void refuse_spread_chunks(index_t vpp) { refuse("split=spread needs vpp=1, and vpp=", vpp); }
constexpr void refuse_layers(pipeline_split split, index_t layers, index_t pp, index_t vpp) {
  switch (split) {
    case pipeline_split::even: return refuse_even_layers(layers, pp, vpp);
    case pipeline_split::account: return refuse_accounted_layers(layers, pp, vpp);
    case pipeline_split::account_embedding: return refuse_with_one_counted("embedding", layers, pp, vpp);
    case pipeline_split::account_loss: return refuse_with_one_counted("loss", layers, pp, vpp);
    case pipeline_split::spread: return refuse_spread_chunks(vpp);
  }
}
constexpr void refuse_two_deals(const degrees& d) {
  refuse("of split, first or last, and string one says how layers are dealt; given are",
         d.split != pipeline_split::even ? " split" : "", d.first > 0 ? " first" : "", d.last > 0 ? " last" : "",
         d.string.given() ? " string" : "");
}
constexpr void refuse_ends(const degrees& d, index_t layers) {
  const index_t between = rules::stages_between(d);
  if (between < 0)
    refuse("pp=2 or more would do: first=", d.first, " and last=", d.last, " are two stages, and pp=", d.pp, " is one");
  if (between == 0)
    refuse("first + last = ", layers, " would do: with pp=", d.pp,
           " no stage is left for more layers, and first=", d.first, ", last=", d.last, " (0: not given) take ",
           d.first + d.last, " of ", layers);
  refuse("first + last = ", layers, " - n x ", between, ", n at least 1, would do: first=", d.first, ", last=", d.last,
         " (0: not given) leave ", layers - d.first - d.last, " of ", layers, " layers to ", between,
         between == 1 ? " stage between" : " stages between, which take as many each");
}
constexpr void refuse_ends_in_chunks(const degrees& d) {
  refuse("first=", d.first, ", last=", d.last, " (0: not given) with pp=", d.pp, " and vpp=", d.vpp,
         ": every stage's layers divide by vpp, and pp is above 2 where both ends are given");
}
constexpr void refuse_string_chunks(const degrees& d) {
  refuse("the layout string has ", d.string.chunks, " chunks, and pp=", d.pp, " x vpp=", d.vpp, " = ", d.pp * d.vpp);
}
constexpr void refuse_string_layers(const degrees& d, const dimensions& s) {
  refuse("the layout string has ", d.string.layers, " t and ", d.string.predictions, " m; the model has ", s.layers,
         " layers and ", s.predictions, " prediction layers");
}
constexpr void refuse_prediction_chunk(const degrees& d) {
  refuse("the layout string has its m in chunk ", d.string.prediction_chunk,
         ", which is not the last of a stage; those are chunks ", d.pp * (d.vpp - 1), " to ", d.pp * d.vpp - 1);
}
constexpr void refuse_tied_prediction(index_t pp) {
  refuse("prediction layers and tied embeddings with pp=", pp,
         " > 1: both want the last chunk's embedding; give a layout string whose m is in another chunk");
}

/// The rules of the pipeline, in order, as each_rule (legal.hpp) visits them.
template <typename Visit>
constexpr bool each_pipeline_rule(const model& m, const degrees& d, Visit&& visit) {
  const dimensions& s = m.shape;
  const bool ends = d.first > 0 || d.last > 0;
  return visit(rules::vpp_has_stages(d.vpp, d.pp), [&] { refuse_chunks(d.vpp, d.pp); }) &&
         visit(rules::dealt_once(d), [&] { refuse_two_deals(d); }) &&
         (d.string.given() || ends ||
          visit(rules::layers_split(d.split, s.layers, d.pp, d.vpp),
                [&] { refuse_layers(d.split, s.layers, d.pp, d.vpp); })) &&
         (!ends || (visit(rules::ends_leave_layers(d, s.layers), [&] { refuse_ends(d, s.layers); }) &&
                    visit(rules::ends_divide_by_chunks(d, s.layers), [&] { refuse_ends_in_chunks(d); }))) &&
         (!d.string.given() || (visit(d.string.chunks == d.pp * d.vpp, [&] { refuse_string_chunks(d); }) &&
                                visit(d.string.layers == s.layers && d.string.predictions == s.predictions,
                                      [&] { refuse_string_layers(d, s); }) &&
                                visit(s.predictions == 0 || d.string.prediction_chunk >= d.pp * (d.vpp - 1),
                                      [&] { refuse_prediction_chunk(d); }))) &&
         visit(s.predictions == 0 || !s.tied || d.pp == 1 ||
                   (d.string.given() && d.string.prediction_chunk != d.string.chunks - 1),
               [&] { refuse_tied_prediction(d.pp); });
}

}  // namespace detail

}  // namespace reshard
