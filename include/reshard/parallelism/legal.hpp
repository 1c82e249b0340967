// SPDX-License-Identifier: Apache-2.0
// Which configurations a model admits. Every rule is one predicate over plain integers: `require_legal` refuses with a
// sentence and its values at run time, and static_space (space/static_space.hpp) makes a static_assert of the same
// predicate.
// Builds on: model/model.hpp, parallelism/config.hpp.
#pragma once

#include <reshard/model/model.hpp>
#include <reshard/parallelism/config.hpp>

namespace reshard {

/// The rules, each true of what is legal.
namespace rules {
constexpr bool divides(index_t degree, index_t size) { return size % degree == 0; }
constexpr bool groups_match(index_t groups, index_t tp) { return groups % tp == 0 || tp % groups == 0; }
constexpr bool vpp_has_stages(index_t vpp, index_t pp) { return vpp == 1 || pp > 1; }
constexpr bool has_experts(index_t experts, index_t ep, index_t etp) { return experts > 0 || (ep == 1 && etp == 0); }
constexpr bool zero_is_built(index_t zero) { return zero == 0 || zero == 1; }
/// Layers, with 2 for embedding and loss where they count, over the chunks; spread has one chunk a stage.
constexpr bool layers_split(pipeline_split split, index_t layers, index_t pp, index_t vpp) {
  if (split == pipeline_split::spread) return vpp == 1;
  return (layers + (split == pipeline_split::account ? 2 : 0)) % (pp * vpp) == 0;
}
}  // namespace rules

namespace detail {

/// "1,2,4,8" in a sentence: the divisors of n up to 1024, at most 16, for what would be legal. A number until it is
/// written.
struct divisors {
  index_t n;
};
inline void append(std::string& sentence, divisors of) {
  index_t shown = 0;
  for (index_t d = 1; d <= least(of.n, 1024) && shown < 16; ++d) {
    if (of.n % d != 0) continue;
    sentence += shown++ == 0 ? "" : ",";
    sentence += std::to_string(d);
  }
}

constexpr void require_divides(const char* what, index_t size, const char* key, index_t degree) {
  if (!rules::divides(degree, size))
    refuse(size, " ", what, " do not divide by ", key, "=", degree, "; legal are ", key, " in {", divisors{size}, "}");
}
constexpr void require_groups_match(index_t groups, index_t tp) {
  if (!rules::groups_match(groups, tp)) refuse(groups, " query groups and tp=", tp, ": one must divide the other");
}
constexpr void require_vpp_has_stages(index_t vpp, index_t pp) {
  if (!rules::vpp_has_stages(vpp, pp)) refuse("vpp=", vpp, " needs pp > 1, and pp=", pp);
}
constexpr void require_even_layers(index_t layers, index_t pp, index_t vpp) {
  if (!rules::layers_split(pipeline_split::even, layers, pp, vpp)) {
    if (vpp == 1)
      refuse(layers, " layers do not divide by pp=", pp, "; give split=spread or pp in {", divisors{layers}, "}");
    refuse(layers, " layers do not divide by pp=", pp, " x vpp=", vpp, " = ", pp * vpp, " chunks; pp x vpp in {",
           divisors{layers}, "} would do");
  }
}
constexpr void require_accounted_layers(index_t layers, index_t pp, index_t vpp) {
  if (!rules::layers_split(pipeline_split::account, layers, pp, vpp))
    refuse("split=account: ", layers, " layers and 2 for embedding and loss do not divide by pp=", pp, " x vpp=", vpp,
           "; pp x vpp in {", divisors{layers + 2}, "} would do");
}
constexpr void require_spread_is_flat(index_t vpp) {
  if (!rules::layers_split(pipeline_split::spread, 0, 1, vpp)) refuse("split=spread needs vpp=1, and vpp=", vpp);
}
constexpr void require_experts(index_t experts, index_t ep, index_t etp) {
  if (rules::has_experts(experts, ep, etp)) return;
  if (ep > 1) refuse("ep=", ep, " needs a model with experts; this one has none");
  refuse("etp=", etp, " needs a model with experts; this one has none");
}
constexpr void require_expert_world(index_t stage_ranks, index_t etp, index_t ep) {
  const index_t group = checked_multiply(etp, ep);
  if (!rules::divides(group, stage_ranks))
    refuse("tp x cp x dp = ", stage_ranks, " ranks of a stage do not divide by etp=", etp, " x ep=", ep, " = ", group);
}
constexpr void require_zero_level(index_t zero) {
  if (!rules::zero_is_built(zero)) refuse("zero=", zero, " is not built; zero is 0 or 1");
}

}  // namespace detail

/// Refuses every configuration that the model does not admit; returns what it was given. The rules are
/// facts of the layout (docs/reference/layouts.md lists them), in this order.
constexpr degrees require_legal(const model& m, const degrees& d) {
  for (const key_entry& k : layout_keys) {
    const bool by_itself =
        k.key == layout_key::split || k.key == layout_key::zero || (k.key == layout_key::etp && d.etp == 0);
    if (!by_itself) require_degree(k.key, d.*k.number);
  }
  detail::require_zero_level(d.zero);
  const dimensions& s = m.shape;
  d.world();
  checked_multiply(checked_multiply(d.chunks(), 4), 4);
  checked_multiply(checked_multiply(d.stage_ranks(), d.stage_ranks()), 4);
  detail::require_divides("attention heads", s.heads, "tp", d.tp);
  detail::require_divides("rows of the vocabulary", s.vocabulary, "tp", d.tp);
  detail::require_groups_match(s.groups, d.tp);
  detail::require_divides("qkv rows", s.qkv_rows(), "tp", d.tp);
  if (s.ffn > 0) detail::require_divides("rows of the dense layers' fc1", s.ffn, "tp", d.tp);
  detail::require_experts(s.experts, d.ep, d.etp);
  if (s.experts > 0) {
    detail::require_divides("experts", s.experts, "ep", d.ep);
    detail::require_expert_world(d.stage_ranks(), d.expert_tp(), d.ep);
    if (s.expert_ffn > 0) detail::require_divides("rows of an expert's fc1", s.expert_ffn, "etp", d.expert_tp());
  }
  detail::require_vpp_has_stages(d.vpp, d.pp);
  switch (d.split) {
    case pipeline_split::even: detail::require_even_layers(s.layers, d.pp, d.vpp); break;
    case pipeline_split::account: detail::require_accounted_layers(s.layers, d.pp, d.vpp); break;
    case pipeline_split::spread: detail::require_spread_is_flat(d.vpp); break;
  }
  return d;
}

}  // namespace reshard
