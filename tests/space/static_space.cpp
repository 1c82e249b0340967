// SPDX-License-Identifier: Apache-2.0
// A space as a type: the same space as at run time, and rules that hold for exactly the numbers that a run-time check
// accepts.
#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
template <const model& Model, typename Config>
void check_same_space() {
  constexpr const space& typed = space_of<Model, Config>;
  const degrees d = Config{};
  const space made(Model, d);
  CHECK(typed.ranks() == made.ranks());
  CHECK(typed.degrees() == d);
  CHECK(typed.model().name == Model.name);
  for (int f = 0; f < made.families(); ++f)
    for (index_t k = 0; k < made.pipeline().chunks(); ++k)
      CHECK(typed.shard_box(f, k, 0, 0) == made.shard_box(f, k, 0, 0));
}

/// Calls check.template operator()<1>(), .. <N>().
template <typename Check, std::size_t... I>
void up_to(std::index_sequence<I...>, Check&& check) {
  (check.template operator()<static_cast<index_t>(I) + 1>(), ...);
}
template <std::size_t N, typename Check>
void each(Check&& check) {
  up_to(std::make_index_sequence<N>{}, check);
}
}  // namespace

TEST_CASE("space_of is the space that the same numbers make at run time") {
  check_same_space<models::llama2_70b, config<tp<4>, pp<8>, dp<2>, zero<1>>>();
  check_same_space<models::llama2_7b, config<>>();
  check_same_space<models::llama2_7b, config<pp<4>, vpp<2>>>();
  check_same_space<models::llama2_7b, config<pp<5>, split<pipeline_split::spread>>>();
  check_same_space<models::qwen3_235b_a22b, config<tp<4>, pp<8>, dp<4>, ep<16>, split<pipeline_split::account>>>();
  check_same_space<models::qwen3_30b_a3b, config<tp<4>, dp<2>, etp<2>, ep<4>>>();
  check_same_space<models::qwen3_30b_a3b,
                   config<tp<2>, dp<4>, ep<4>, zero<3>, shard_as<shard_by::rows>, names_are<names_as::hf>>>();
  check_same_space<models::qwen3_30b_a3b, config<tp<3>, dp<5>, ep<5>, zero<3>, shard_as<shard_by::rows>,
                                                 experts_are<experts_as::grouped>, names_are<names_as::hf>>>();
  check_same_space<models::llama2_7b, config<tp<2>, pp<4>, pad_rows<128>, first_layers<5>, ordered<"tp-dp-pp">>>();
  check_same_space<models::llama2_7b, config<pp<4>, chunks_as<"E|(t*16|)*2L">>>();
  // no constant under UBSan
  CHECK(&space_of<models::llama2_7b, config<tp<2>>> != &space_of<models::llama2_7b, config<tp<4>>>);
}

TEST_CASE("a rule over integers holds for those numbers that its sentence says") {
  each<9>([]<index_t A>() {
    each<9>([]<index_t B>() {
      CHECK(rules::divides_evenly<A, B> == (B / A * A == B));
      CHECK(rules::one_divides_the_other<A, B> == (B / A * A == B || A / B * B == A));
      CHECK(rules::chunks_have_stages<A, B> == (A == 1 || B > 1));
      CHECK(rules::experts_for_ep_and_etp<0, A, B - 1> == (A == 1 && B == 1));
      CHECK(rules::experts_for_ep_and_etp<8, A, B - 1>);
      each<3>([]<index_t Vpp>() {
        CHECK(rules::layers_fit_the_split<12, A, Vpp, pipeline_split::even> == (12 % (A * Vpp) == 0));
        CHECK(rules::layers_fit_the_split<A * 4 - 2, B, Vpp, pipeline_split::account> == (A * 4 % (B * Vpp) == 0));
        CHECK(rules::layers_fit_the_split<A, B, Vpp, pipeline_split::spread> == (Vpp == 1));
      });
    });
    CHECK(rules::zero_level_is_built<A, shard_by::buffers> == (A <= 2));
    CHECK(rules::zero_level_is_built<A, shard_by::rows> == (A <= 3));
    CHECK(rules::divides_evenly<A, 0>);
  });
  static_assert(rules::zero_level_is_built<0, shard_by::buffers> && rules::zero_level_is_built<0, shard_by::rows>);
}

TEST_CASE("the sizes of experts count in a model with experts, and divide by anything in one without") {
  using moe = static_space<models::qwen3_30b_a3b, &detail::degrees_of_type<config<tp<4>, dp<2>, ep<4>>>>;
  using dense = static_space<models::llama2_7b, &detail::degrees_of_type<config<tp<4>, dp<2>>>>;
  static_assert(moe::with_experts(7) == 7 && dense::with_experts(7) == 0);
  static_assert(moe::d == degrees{.tp = 4, .dp = 2, .ep = 4});
  CHECK(moe::value.ranks() == 8);
  CHECK(dense::value.ranks() == 8);
}
