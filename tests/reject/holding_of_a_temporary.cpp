// SPDX-License-Identifier: Apache-2.0
// expect: deleted
// expect: computed_holding
#include <reshard/model/presets.hpp>
#include <reshard/space/holding.hpp>
using namespace reshard;

// A holding refers to its space, so the space must outlive it.
#ifdef ACCEPT
const space s(models::llama2_7b, config<tp<4>>{});
const computed_holding h(s);
#else
const computed_holding h(space(models::llama2_7b, config<tp<4>>{}));
const auto ranks = h.ranks();
#endif
