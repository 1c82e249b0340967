// SPDX-License-Identifier: Apache-2.0
// expect: reshard: a side of a switch is a space, a list of shards, or a type that models Holding
// alone
#include <reshard/model/presets.hpp>
#include <reshard/plan/layout_switch.hpp>
using namespace reshard;

// A switch of sides that are no layouts.
const space two(models::llama2_7b, config<tp<2>>{});
#ifdef ACCEPT
const layout_switch change(two, two);
#else
const layout_switch change(two, 4);
#endif
