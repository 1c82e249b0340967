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
/// size mod degree == 0
constexpr bool divides(index_t degree, index_t size) { return size % degree == 0; }
/// groups mod tp == 0 or tp mod groups == 0
constexpr bool groups_match(index_t groups, index_t tp) { return groups % tp == 0 || tp % groups == 0; }
/// vpp == 1 or pp > 1
constexpr bool vpp_has_stages(index_t vpp, index_t pp) { return vpp == 1 || pp > 1; }
/// experts > 0, or ep == 1 and etp at its default, 0
constexpr bool has_experts(index_t experts, index_t ep, index_t etp) { return experts > 0 || (ep == 1 && etp == 0); }
/// zero is 0 or 1.
constexpr bool zero_is_built(index_t zero) { return zero == 0 || zero == 1; }
/// Layers, with 2 for embedding and loss where they count, over the chunks; spread has one chunk a stage.
constexpr bool layers_split(pipeline_split split, index_t layers, index_t pp, index_t vpp) {
  if (split == pipeline_split::spread) return vpp == 1;
  return (layers + (split == pipeline_split::account ? 2 : 0)) % (pp * vpp) == 0;
}
/// The products of positive factors that algorithms form of the degrees.
constexpr bool fits_64_bits(const degrees& d) {
  const auto fits = [](auto... factors) {
    index_t product = 1;
    return (... && !__builtin_mul_overflow(product, index_t{factors}, &product));
  };
  return fits(d.tp, d.cp, d.dp, d.pp) && fits(d.pp, d.vpp, 16) && fits(d.tp, d.cp, d.dp, d.tp, d.cp, d.dp, 4) &&
         fits(d.expert_tp(), d.ep);
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

constexpr void refuse_indivisible(const char* what, index_t size, const char* key, index_t degree) {
  refuse(size, " ", what, " do not divide by ", key, "=", degree, "; legal are ", key, " in {", divisors{size}, "}");
}
// Each takes plain numbers, which a compiler shows where it cannot show the sentence.
constexpr void refuse_groups(index_t groups, index_t tp) {
  refuse(groups, " query groups and tp=", tp, ": one must divide the other");
}
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
constexpr void refuse_spread_chunks(index_t vpp) { refuse("split=spread needs vpp=1, and vpp=", vpp); }
constexpr void refuse_layers(pipeline_split split, index_t layers, index_t pp, index_t vpp) {
  switch (split) {
    case pipeline_split::even: return refuse_even_layers(layers, pp, vpp);
    case pipeline_split::account: return refuse_accounted_layers(layers, pp, vpp);
    case pipeline_split::spread: return refuse_spread_chunks(vpp);
  }
}
constexpr void refuse_experts(index_t ep, index_t etp) {
  if (ep > 1) refuse("ep=", ep, " needs a model with experts; this one has none");
  refuse("etp=", etp, " needs a model with experts; this one has none");
}
constexpr void refuse_expert_world(index_t stage_ranks, index_t etp, index_t ep) {
  refuse("tp x cp x dp = ", stage_ranks, " ranks of a stage do not divide by etp=", etp, " x ep=", ep, " = ", etp * ep);
}
constexpr void refuse_zero_level(index_t zero) { refuse("zero=", zero, " is not built; zero is 0 or 1"); }
/// Ranks, chunks and what is computed of them fit 64 bits: these products are refused where they do not.
constexpr void refuse_numbers_of_more_than_64_bits(const degrees& d) {
  d.world();
  checked_multiply(checked_multiply(d.chunks(), 4), 4);
  checked_multiply(checked_multiply(d.stage_ranks(), d.stage_ranks()), 4);
  checked_multiply(d.expert_tp(), d.ep);
}

/// The list: calls visit(holds, refuse) for each rule, in order, while it returns true; refuse() says the sentence. A
/// rule is read only where those before it hold. Whether all did.
template <typename Visit>
constexpr bool each_rule(const model& m, const degrees& d, Visit&& visit) {
  const dimensions& s = m.shape;
  for (const key_entry& k : layout_keys) {
    const bool by_itself =
        k.key == layout_key::split || k.key == layout_key::zero || (k.key == layout_key::etp && d.etp == 0);
    if (!by_itself && !visit(d.*k.number >= k.least, [&] { require_degree(k.key, d.*k.number); })) return false;
  }
  return visit(rules::zero_is_built(d.zero), [&] { refuse_zero_level(d.zero); }) &&
         visit(rules::fits_64_bits(d), [&] { refuse_numbers_of_more_than_64_bits(d); }) &&
         visit(rules::divides(d.tp, s.heads), [&] { refuse_indivisible("attention heads", s.heads, "tp", d.tp); }) &&
         visit(rules::divides(d.tp, s.vocabulary),
               [&] { refuse_indivisible("rows of the vocabulary", s.vocabulary, "tp", d.tp); }) &&
         visit(rules::groups_match(s.groups, d.tp), [&] { refuse_groups(s.groups, d.tp); }) &&
         visit(rules::divides(d.tp, s.qkv_rows()), [&] { refuse_indivisible("qkv rows", s.qkv_rows(), "tp", d.tp); }) &&
         visit(rules::divides(d.tp, s.ffn),
               [&] { refuse_indivisible("rows of the dense layers' fc1", s.ffn, "tp", d.tp); }) &&
         visit(rules::has_experts(s.experts, d.ep, d.etp), [&] { refuse_experts(d.ep, d.etp); }) &&
         (s.experts == 0 ||
          (visit(rules::divides(d.ep, s.experts), [&] { refuse_indivisible("experts", s.experts, "ep", d.ep); }) &&
           visit(rules::divides(d.expert_tp() * d.ep, d.stage_ranks()),
                 [&] { refuse_expert_world(d.stage_ranks(), d.expert_tp(), d.ep); }) &&
           visit(rules::divides(d.expert_tp(), s.expert_ffn),
                 [&] { refuse_indivisible("rows of an expert's fc1", s.expert_ffn, "etp", d.expert_tp()); }))) &&
         visit(rules::vpp_has_stages(d.vpp, d.pp), [&] { refuse_chunks(d.vpp, d.pp); }) &&
         visit(rules::layers_split(d.split, s.layers, d.pp, d.vpp),
               [&] { refuse_layers(d.split, s.layers, d.pp, d.vpp); });
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
