// SPDX-License-Identifier: Apache-2.0
// expect: deleted
// expect: shard_list
#include <reshard/plan/foreign.hpp>
using namespace reshard;

// shard_list is a name for a list that its owner keeps.
std::vector<shard> gathered();
#ifdef ACCEPT
const std::vector<shard> kept = gathered();
const shard_list list(kept);
#else
const shard_list list(gathered());
#endif
