// SPDX-License-Identifier: Apache-2.0
// expect: deleted (function|constructor).*living_hold
#include <reshard/space/listed_holding.hpp>
#include <reshard/space/living_holding.hpp>
using namespace reshard;

// So with holders.
const std::vector<rank_t> ranks{0, 1};
const std::vector<interval> lost{{0, 1}};
const listed_ranks both{&ranks};
#ifdef ACCEPT
const living_holders living(both, lost);
#else
const living_holders living(listed_ranks{&ranks}, lost);
#endif
