// SPDX-License-Identifier: Apache-2.0
// expect: at_most
// expect: 13476831232
// expect: 1000000000
#include <reshard/model/presets.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/static_space.hpp>
using namespace reshard;

// A limit that is broken is said with both numbers.
inline constexpr auto& alone = space_of<models::llama2_7b, config<tp<1>>>;
#ifdef ACCEPT
static_assert(at_most<bytes_per_rank(alone, parameter_states), 14'000'000'000>);
#else
static_assert(at_most<bytes_per_rank(alone, parameter_states), 1'000'000'000>);
#endif
