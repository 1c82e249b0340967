// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3 on 64 ranks with uneven ends, ZeRO-1 and its prediction layer: within the steps that a compiler takes by
// default.
#include <reshard/reshard.hpp>

using namespace reshard;

inline constexpr auto& on_64 =
    space_of<models::deepseek_v3, config<pp<4>, dp<16>, ep<16>, zero<1>, first_layers<15>, last_layers<14>>>;
static_assert(on_64.ranks() == 64);
static_assert(covers(on_64));
static_assert(at_most<max_bytes_per_rank(on_64), 170'000'000'000>);
