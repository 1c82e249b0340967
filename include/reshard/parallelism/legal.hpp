// SPDX-License-Identifier: Apache-2.0
// Which configurations a model admits. Every rule is one predicate over plain integers: `require_legal` refuses with a
// sentence and its values at run time, and static_space (space/static_space.hpp) makes a static_assert of the same
// predicate.
// Builds on: model/model.hpp, parallelism/config.hpp, parallelism/mesh.hpp, parallelism/detail/legal_pipeline.hpp.
#pragma once

#include <reshard/model/hf_names.hpp>
#include <reshard/model/model.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/detail/legal_pipeline.hpp>
#include <reshard/parallelism/mesh.hpp>

namespace reshard {

/// The rules, each true of what is legal.
namespace rules {
/// size mod degree == 0
constexpr bool divides(index_t degree, index_t size) { return size % degree == 0; }
/// groups mod tp == 0 or tp mod groups == 0
constexpr bool groups_match(index_t groups, index_t tp) { return groups % tp == 0 || tp % groups == 0; }
/// experts > 0, or ep == 1 and etp at its default, 0
constexpr bool has_experts(index_t experts, index_t ep, index_t etp) { return experts > 0 || (ep == 1 && etp == 0); }
/// Flat buffers shard optimizer states (1) and gradients (2), rows parameters too (3).
constexpr index_t highest_zero(shard_by shard) { return shard == shard_by::rows ? 3 : 2; }
/// 0 <= zero <= highest_zero(shard)
constexpr bool zero_is_built(index_t zero, shard_by shard) { return zero >= 0 && zero <= highest_zero(shard); }
/// Whether a layout has expert ranks: Megatron reads the ranks in both ways whatever the model, DTensor makes no mesh
/// of experts where there are none.
constexpr bool has_expert_ranks(const degrees& d, index_t experts) { return experts > 0 || d.shard != shard_by::rows; }
/// Whether tensors are cut by torch's chunk(), which divides nothing: rows of a checkpoint's tensors are DTensor's;
/// Megatron's tensors must divide.
constexpr bool cuts_by_chunk(const degrees& d) { return d.shard == shard_by::rows && d.names == names_as::hf; }
/// Whether all experts of a layer are one tensor that is cut by chunk(); else a rank has whole numbers of tensors.
constexpr bool chunks_experts(const degrees& d) { return cuts_by_chunk(d) && d.experts == experts_as::grouped; }
/// An axis that an order does not name has a degree of 1, in both readings of the ranks where there are two.
constexpr bool order_names_all(const degrees& d, index_t experts) {
  const bool both = has_expert_ranks(d, experts);
  return (d.order.has(order_axis::tp) || (d.tp == 1 && (!both || d.expert_tp() == 1))) &&
         (d.order.has(order_axis::cp) || d.cp == 1) && (d.order.has(order_axis::ep) || d.ep == 1) &&
         (d.order.has(order_axis::dp) || (d.dp == 1 && (!both || d.expert_dp() == 1))) &&
         (d.order.has(order_axis::pp) || d.pp == 1);
}
/// Both readings give every rank the same pipeline stage; where stages are no runs of ranks, dp is edp.
constexpr bool order_keeps_stages(const degrees& d, index_t experts) {
  if (!has_expert_ranks(d, experts)) return true;
  if (d.pp == 1 || d.order.axis[d.order.axes - 1] == order_axis::pp) return true;
  return d.expert_dp() == d.dp && mesh_of(d, mesh_kind::dense).pitch(mesh_axis::pipeline) ==
                                      mesh_of(d, mesh_kind::expert).pitch(mesh_axis::pipeline);
}
/// The products of positive factors that algorithms form of the degrees.
constexpr bool fits_64_bits(const degrees& d) {
  const auto fits = [](auto... factors) {
    index_t product = 1;
    return (... && !RESHARD_MULTIPLY_OVERFLOWS(product, index_t{factors}, &product));
  };
  return fits(d.tp, d.cp, d.dp, d.pp) && fits(d.pp, d.vpp, 16) && fits(d.tp, d.cp, d.dp, d.tp, d.cp, d.dp, 4) &&
         fits(d.expert_tp(), d.ep);
}
/// The padded vocabulary, at most pad x tp rows longer, times what is computed of it.
constexpr bool padding_fits(const degrees& d, index_t vocabulary, index_t hidden) {
  index_t rows = 0;
  return !RESHARD_MULTIPLY_OVERFLOWS(d.pad, d.tp, &rows) && !RESHARD_ADD_OVERFLOWS(rows, vocabulary, &rows) &&
         !RESHARD_MULTIPLY_OVERFLOWS(rows, hidden, &rows) &&
         !RESHARD_MULTIPLY_OVERFLOWS(rows, index_t{16 * max_families}, &rows);
}
/// Pieces that tensor parallelism makes of a family divide it: the parts of one that is cut across them, as far as
/// these go, and then what lies in a part.
constexpr bool cut_divides(const family& f, index_t degree) {
  if (f.tensor_axis == axis_of::none) return true;
  if (f.tensor_axis != axis_of::part) return f.extent[f.tensor_axis] % degree == 0;
  const index_t parts = f.extent[axis_of::part];
  return parts % degree == 0 || (degree % parts == 0 && f.extent[f.inner_axis()] % (degree / parts) == 0);
}
}  // namespace rules

namespace detail {

constexpr void refuse_indivisible(const char* what, index_t size, const char* key, index_t degree) {
  refuse(size, " ", what, " do not divide by ", key, "=", degree, "; legal are ", key, " in {", divisors{size}, "}");
}
// Each takes plain numbers, which a compiler shows where it cannot show the sentence.
constexpr void refuse_groups(index_t groups, index_t tp) {
  refuse(groups, " query groups and tp=", tp, ": one must divide the other");
}
constexpr void refuse_experts(index_t ep, index_t etp) {
  if (ep > 1) refuse("ep=", ep, " needs a model with experts; this one has none");
  refuse("etp=", etp, " needs a model with experts; this one has none");
}
constexpr void refuse_expert_world(index_t stage_ranks, index_t etp, index_t ep) {
  refuse("tp x cp x dp = ", stage_ranks, " ranks of a stage do not divide by etp=", etp, " x ep=", ep, " = ", etp * ep);
}
constexpr void refuse_zero_level(index_t zero, shard_by shard) {
  refuse("zero=", zero, " is not built with shard=", name(shard), "; zero is 0 to ", rules::highest_zero(shard),
         shard == shard_by::rows ? "" : ", and 3 with shard=rows");
}
constexpr void refuse_busbw(index_t busbw) { refuse("busbw=", busbw, "; it is 1, or not named"); }
constexpr void refuse_padding(const degrees& d) {
  refuse("pad=", d.pad, " x tp=", d.tp, ": the padded vocabulary does not fit 64 bits");
}
constexpr void refuse_cut(const family& f, index_t degree, const char* key) {
  refuse("'", f.name, "' of ", f.extent[axis_of::part], " x ", f.extent[axis_of::row], " x ", f.extent[axis_of::column],
         " (parts, rows, columns) is not cut into ", key, "=", degree, " equal pieces");
}
constexpr void refuse_unnamed_axis(const degrees& d) {
  refuse("the order leaves out an axis whose degree is not 1: of tp=", d.tp, " (etp=", d.expert_tp(), "), cp=", d.cp,
         ", ep=", d.ep, ", dp=", d.dp, " (edp=", d.expert_dp(), "), pp=", d.pp, " it has ", d.order.axes, " axes");
}
constexpr void refuse_stages_of_order(const degrees& d) {
  refuse("an order whose last axis is not pp gives dense and expert ranks different stages or replicas: pp=", d.pp,
         ", dp=", d.dp, ", edp=", d.expert_dp(), "; it wants dp = edp and as many ranks before pp in both");
}
constexpr void refuse_instances(const degrees& d) {
  refuse("instances=", d.instances, " does not divide the sharding groups of cp x dp = ", d.cp * d.dp,
         " and edp = ", d.expert_dp(), " ranks");
}
constexpr void refuse_grouped(const degrees& d, index_t experts) {
  refuse("experts=grouped with shard=", name(d.shard), " and ", experts,
         " experts: it says how shard=rows cuts the experts of a model that has some");
}
constexpr void refuse_names_of_buffers() { refuse("names=hf needs shard=rows: flat buffers hold Megatron's tensors"); }
/// Ranks, chunks and what is computed of them fit 64 bits: these products are refused where they do not.
constexpr void refuse_numbers_of_more_than_64_bits(const degrees& d) {
  d.world();
  checked_multiply(checked_multiply(d.chunks(), 4), 4);
  checked_multiply(checked_multiply(d.stage_ranks(), d.stage_ranks()), 4);
  checked_multiply(d.expert_tp(), d.ep);
}

/// What tensor parallelism cuts of a family is divided by it: tp, of experts etp.
template <typename Visit>
constexpr bool each_cut_rule(const model& m, const degrees& d, Visit&& visit) {
  for (int f = 0; f < m.families; ++f) {
    const family& tensors = m[f];
    if (tensors.padded == padded_as::vocabulary && d.pad > 0) continue;
    const bool dense = tensors.mesh == mesh_kind::dense;
    const index_t degree = dense ? d.tp : d.expert_tp();
    if (!visit(rules::cut_divides(tensors, degree), [&] { refuse_cut(tensors, degree, dense ? "tp" : "etp"); }))
      return false;
  }
  return true;
}

/// The order of ranks, the sharding groups, and the names.
template <typename Visit>
constexpr bool each_order_rule(const model& m, const degrees& d, Visit&& visit) {
  const index_t experts = m.shape.experts;
  return visit(rules::order_names_all(d, experts), [&] { refuse_unnamed_axis(d); }) &&
         visit(rules::order_keeps_stages(d, experts), [&] { refuse_stages_of_order(d); }) &&
         visit(rules::divides(d.instances, d.cp * d.dp) &&
                   (!rules::has_expert_ranks(d, experts) || rules::divides(d.instances, d.expert_dp())),
               [&] { refuse_instances(d); }) &&
         visit(d.experts == experts_as::separate || (d.shard == shard_by::rows && m.shape.experts > 0),
               [&] { refuse_grouped(d, m.shape.experts); }) &&
         (d.names == names_as::megatron || (visit(d.shard == shard_by::rows, [&] { refuse_names_of_buffers(); }) &&
                                            visit(has_hf_names(m), [&] { require_hf_names(m); })));
}

/// What Megatron divides by tp of dense layers, the vocabulary and attention.
template <typename Visit>
constexpr bool each_dense_division(const dimensions& s, const degrees& d, Visit&& visit) {
  return visit(rules::divides(d.tp, s.heads), [&] { refuse_indivisible("attention heads", s.heads, "tp", d.tp); }) &&
         visit(d.pad > 0 || rules::divides(d.tp, s.vocabulary),
               [&] { refuse_indivisible("rows of the vocabulary", s.vocabulary, "tp", d.tp); }) &&
         (s.groups == 0 || (visit(rules::groups_match(s.groups, d.tp), [&] { refuse_groups(s.groups, d.tp); }) &&
                            visit(rules::divides(d.tp, s.qkv_rows()),
                                  [&] { refuse_indivisible("qkv rows", s.qkv_rows(), "tp", d.tp); }))) &&
         visit(rules::divides(d.tp, s.ffn),
               [&] { refuse_indivisible("rows of the dense layers' fc1", s.ffn, "tp", d.tp); });
}

/// The list: calls visit(holds, refuse) for each rule, in order, while it returns true; refuse() says the sentence. A
/// rule is read only where those before it hold. Whether all did.
template <typename Visit>
constexpr bool each_rule(const model& m, const degrees& d, Visit&& visit) {
  const dimensions& s = m.shape;
  for (const key_entry& k : layout_keys) {
    if (k.number == nullptr || k.key == layout_key::zero) continue;
    const bool absent =
        d.*k.number == 0 && (k.key == layout_key::etp || k.key == layout_key::pad || k.key == layout_key::first ||
                             k.key == layout_key::last || k.key == layout_key::busbw);
    if (!absent && !visit(d.*k.number >= k.least, [&] { require_degree(k.key, d.*k.number); })) return false;
  }
  return visit(rules::zero_is_built(d.zero, d.shard), [&] { refuse_zero_level(d.zero, d.shard); }) &&
         visit(d.busbw <= 1, [&] { refuse_busbw(d.busbw); }) &&
         visit(rules::fits_64_bits(d), [&] { refuse_numbers_of_more_than_64_bits(d); }) &&
         visit(d.pad == 0 || rules::padding_fits(d, s.vocabulary, s.hidden), [&] { refuse_padding(d); }) &&
         (rules::cuts_by_chunk(d) || each_dense_division(s, d, visit)) &&
         visit(rules::has_experts(s.experts, d.ep, d.etp), [&] { refuse_experts(d.ep, d.etp); }) &&
         (s.experts == 0 ||
          (visit(rules::chunks_experts(d) || rules::divides(d.ep, s.experts),
                 [&] { refuse_indivisible("experts", s.experts, "ep", d.ep); }) &&
           visit(rules::divides(d.expert_tp() * d.ep, d.stage_ranks()),
                 [&] { refuse_expert_world(d.stage_ranks(), d.expert_tp(), d.ep); }) &&
           visit(rules::cuts_by_chunk(d) || rules::divides(d.expert_tp(), s.expert_ffn),
                 [&] { refuse_indivisible("rows of an expert's fc1", s.expert_ffn, "etp", d.expert_tp()); }))) &&
         each_pipeline_rule(m, d, visit) && (rules::cuts_by_chunk(d) || each_cut_rule(m, d, visit)) &&
         each_order_rule(m, d, visit);
}

}  // namespace detail

/// Whether the model admits the configuration.
[[nodiscard]] constexpr bool is_legal(const model& m, const degrees& d) {
  return detail::each_rule(m, d, [](bool holds, const auto&) { return holds; });
}

/// Refuses every configuration that the model does not admit; returns what it was given. The rules are
/// facts of the layout (docs/reference/layouts.md lists them), in this order.
constexpr degrees require_legal(const model& m, const degrees& d) {
  detail::each_rule(m, d, [](bool holds, const auto& refuse) {
    if (!holds) refuse();
    return true;
  });
  return d;
}

}  // namespace reshard
