// SPDX-License-Identifier: Apache-2.0
// expect: reshard: a layout is a space, a list of shards, or a type that models Holding
// alone
#include <reshard/model/presets.hpp>
#include <reshard/space/cover.hpp>
using namespace reshard;

// What is no layout, asked what it holds: one error.
constexpr space two(models::llama2_7b, config<tp<2>>{});
#ifdef ACCEPT
static_assert(held_bytes(two, 1) > 0);
#else
const bytes_t bytes = held_bytes(4, 1);
#endif
