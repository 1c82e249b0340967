// SPDX-License-Identifier: Apache-2.0
// expect: (30867243008 <= 30000000000|Number = 30867243008[];]).* evaluated to .?false
// expect: (30867243008 <= 30000000000|Limit = 30000000000[];]).* evaluated to .?false
#include <reshard/model/presets.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/static_space.hpp>
using namespace reshard;

constexpr auto& s = space_of<models::llama2_70b, config<tp<4>, pp<8>>>;
#ifdef ACCEPT
static_assert(at_most<max_bytes_per_rank(s), 31'000'000'000>);
#else
static_assert(at_most<max_bytes_per_rank(s), 30'000'000'000>);
#endif
