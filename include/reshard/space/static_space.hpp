// SPDX-License-Identifier: Apache-2.0
// A space whose legality is a matter of its type: space_of<models::llama2_70b, config<tp<4>, pp<8>>{}> either is a
// constexpr space, or stops the build with a literal sentence and, in the compiler's note, the numbers. The predicates
// are those that a run-time refusal uses.
// Builds on: space/space.hpp.
#pragma once

#include <reshard/space/space.hpp>

namespace reshard {

// Concepts over plain integers: a compiler that finds one false prints its arguments.
namespace rules {
/// Size mod Degree == 0
template <index_t Degree, index_t Size>
concept divides_evenly = divides(Degree, Size);
/// Groups mod Tp == 0 or Tp mod Groups == 0
template <index_t Groups, index_t Tp>
concept one_divides_the_other = groups_match(Groups, Tp);
/// Vpp == 1 or Pp > 1
template <index_t Vpp, index_t Pp>
concept chunks_have_stages = vpp_has_stages(Vpp, Pp);
/// Layers, with 2 for embedding and loss where Split counts them, divide by Pp x Vpp; spread needs Vpp == 1.
template <index_t Layers, index_t Pp, index_t Vpp, pipeline_split Split>
concept layers_fit_the_split = layers_split(Split, Layers, Pp, Vpp);
/// Experts > 0, or Ep == 1 and Etp at its default, 0
template <index_t Experts, index_t Ep, index_t Etp>
concept experts_for_ep_and_etp = has_experts(Experts, Ep, Etp);
/// Zero is 0 to 2 where buffers are sharded, 0 to 3 where rows are.
template <index_t Zero, shard_by Shard>
concept zero_level_is_built = zero_is_built(Zero, Shard);
}  // namespace rules

/// The space of a model with linkage and a static configuration.
template <const model& Model, degrees (*Degrees)()>
struct static_space {
  static constexpr degrees d = Degrees();
  static constexpr dimensions shape = Model.shape;
  // The sizes that the rules below ask about. Where a rule does not apply, a size that it admits with any degree: 0
  // layers where first, last or a string deals them (no split is legal beside these); 0 rows where the vocabulary is
  // padded; as many groups as tp, and 0 qkv rows, where the model has no groups; 0 where it has no experts, and of
  // what chunk() cuts.
  static constexpr bool split_by_count = !d.string.given() && d.first == 0 && d.last == 0;
  static constexpr index_t layers = split_by_count ? shape.layers : 0;
  static constexpr bool by_chunk = rules::cuts_by_chunk(d);
  static constexpr index_t divided(index_t size) { return by_chunk ? 0 : size; }
  static constexpr index_t vocabulary = divided(d.pad == 0 ? shape.vocabulary : 0);
  static constexpr index_t groups = shape.groups == 0 || by_chunk ? d.tp : shape.groups;
  static constexpr index_t qkv_rows = divided(shape.groups == 0 ? 0 : shape.qkv_rows());
  static constexpr index_t with_experts(index_t size) { return shape.experts > 0 ? size : 0; }

  static_assert(rules::zero_level_is_built<d.zero, d.shard>,
                "reshard: this ZeRO level is not built; zero is 0 to 2, and 3 with shard=rows");
  static_assert(rules::divides_evenly<d.tp, divided(shape.heads)>, "reshard: the attention heads do not divide by tp");
  static_assert(rules::divides_evenly<d.tp, vocabulary>, "reshard: the rows of the vocabulary do not divide by tp");
  static_assert(rules::one_divides_the_other<groups, d.tp>,
                "reshard: of the query groups and tp, one must divide the other");
  static_assert(rules::divides_evenly<d.tp, qkv_rows>, "reshard: the qkv rows do not divide by tp");
  static_assert(rules::divides_evenly<d.tp, divided(shape.ffn)>, "reshard: the rows of fc1 do not divide by tp");
  static_assert(rules::experts_for_ep_and_etp<shape.experts, d.ep, d.etp>,
                "reshard: ep > 1 and etp need a model with experts");
  static_assert(rules::divides_evenly<d.ep, with_experts(rules::chunks_experts(d) ? 0 : shape.experts)>,
                "reshard: the experts do not divide by ep");
  static_assert(rules::divides_evenly<d.ep * d.expert_tp(), with_experts(d.stage_ranks())>,
                "reshard: the ranks of a stage, tp x cp x dp, do not divide by etp x ep");
  static_assert(rules::divides_evenly<d.expert_tp(), with_experts(divided(shape.expert_ffn))>,
                "reshard: the rows of an expert's fc1 do not divide by etp");
  static_assert(rules::chunks_have_stages<d.vpp, d.pp>, "reshard: vpp > 1 needs pp > 1");
  static_assert(
      rules::layers_fit_the_split<layers, d.pp, d.vpp, d.split>,
      "reshard: the layers do not divide over pp x vpp; split=spread takes any number, split=account counts two more");

  static_assert(is_legal(Model, d), "reshard: the model does not admit this configuration; require_legal says why");

  static constexpr space value{Model, d};
};

namespace detail {
template <typename Config>
constexpr degrees degrees_of_type() {
  return Config{};
}
}  // namespace detail

/// space_of<models::llama2_70b, config<tp<4>, pp<8>, dp<2>>>
template <const model& Model, typename Config>
inline constexpr const space& space_of = static_space<Model, &detail::degrees_of_type<Config>>::value;

}  // namespace reshard
