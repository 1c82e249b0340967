// SPDX-License-Identifier: Apache-2.0
// expect: t\.all_reduce_max\(n\)
#include <reshard/transport/transport.hpp>

#ifndef ACCEPT
#define ALL_REDUCE_MAX std::uint64_t all_reduce_max(std::uint64_t);
#endif
#include "an_end.hpp"
using namespace reshard;

// The largest of all numbers, of another integer type.
static_assert(Transport<an_end>);
