// SPDX-License-Identifier: Apache-2.0
// Worlds of 1,024 ranks, each question within the steps that a compiler takes by default.
#include <reshard/model/presets.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;

namespace {
template <typename Config>
constexpr auto& llama = space_of<models::llama2_70b, Config>;
template <typename Config>
constexpr auto& qwen = space_of<models::qwen3_235b_a22b, Config>;
constexpr bool is_large_and_covered(const space& s) { return s.ranks() == 1024 && covers(s); }

using wide = config<tp<8>, pp<16>, dp<8>, zero<1>>;
using deep = config<tp<4>, pp<8>, dp<32>, zero<1>>;
static_assert(is_large_and_covered(llama<wide>));
static_assert(is_large_and_covered(llama<deep>));
static_assert(is_large_and_covered(llama<config<tp<8>, pp<8>, dp<16>, zero<1>>>));
static_assert(is_large_and_covered(llama<config<tp<8>, pp<16>, dp<8>>>));
static_assert(is_large_and_covered(qwen<config<tp<8>, pp<16>, dp<8>, ep<8>, split<pipeline_split::account>>>));
static_assert(max_bytes_per_rank(llama<wide>) == 1'986'711'552);
static_assert(max_bytes_per_rank(llama<deep>) == 5'236'407'296);
}  // namespace
