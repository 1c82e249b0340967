// SPDX-License-Identifier: Apache-2.0
// expect: deleted (function|constructor).*living_hold
#include <reshard/model/presets.hpp>
#include <reshard/space/computed_holding.hpp>
#include <reshard/space/living_holding.hpp>
using namespace reshard;

// What lives of a holding asks that holding, which has to be there still.
const space two(models::llama2_7b, config<tp<2>>{});
const computed_holding whole(two);
#ifdef ACCEPT
const living_holding living(whole, {{0, 1}});
#else
const living_holding living(computed_holding(two), {{0, 1}});
#endif
