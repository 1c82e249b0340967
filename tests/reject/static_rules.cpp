// SPDX-License-Identifier: Apache-2.0
// expect: reshard: this ZeRO level is not built; zero is 0 to 2, and 3 with shard=rows
// expect: reshard: the rows of the vocabulary do not divide by tp
// expect: reshard: the qkv rows do not divide by tp
// expect: reshard: the rows of fc1 do not divide by tp
// expect: reshard: ep > 1 and etp need a model with experts
// expect: reshard: the rows of an expert's fc1 do not divide by etp
// expect: reshard: the model does not admit this configuration; require_legal says why
// expect: reshard: explicit cuts need one point more than parts
#include <reshard/algebra/distribution.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;
constexpr model made(index_t vocabulary, index_t head_dim, index_t ffn, index_t experts, index_t expert_ffn) {
  return make_transformer({.name = "small",
                           .layers = 2,
                           .hidden = 12,
                           .heads = 12,
                           .groups = 3,
                           .head_dim = head_dim,
                           .ffn = ffn,
                           .vocabulary = vocabulary,
                           .experts = experts,
                           .expert_ffn = expert_ffn});
}
inline constexpr model good = made(60, 4, 60, 0, 0), vocabulary = made(61, 4, 60, 0, 0), qkv = made(60, 1, 60, 0, 0),
                       fc1 = made(60, 4, 62, 0, 0), moe = made(60, 4, 60, 4, 6);
/// Whether the rules are asserted, without a value of it: fewer errors follow from each.
template <const model& Model, typename Config>
inline constexpr bool stands = sizeof(static_space<Model, &detail::degrees_of_type<Config>>) > 0;
#ifdef ACCEPT
static_assert(stands<good, config<tp<3>, zero<2>>>);
static_assert(stands<moe, config<tp<3>, ep<2>, etp<3>, dp<2>>>);
constexpr explicit_cuts<2> cuts({0, 1, 2});
#else
static_assert(stands<good, config<zero<3>>>);
static_assert(stands<vocabulary, config<tp<3>>>);
static_assert(stands<qkv, config<tp<12>>>);
static_assert(stands<fc1, config<tp<3>>>);
static_assert(stands<good, config<ep<2>>>);
static_assert(stands<moe, config<dp<4>, etp<4>>>);
static_assert(stands<good, config<dp<4>, instances<3>>>);
constexpr explicit_cuts<2> cuts({0, 1, 2, 3});
#endif
