// SPDX-License-Identifier: Apache-2.0
// expect: deleted
// expect: layout_switch
#include <reshard/exec/switch_options.hpp>
#include <reshard/model/presets.hpp>
using namespace reshard;

// A switch refers to its two holdings, so both must outlive it.
const space two(models::llama2_7b, config<tp<2>>{}), four(models::llama2_7b, config<tp<4>>{});
const computed_holding from(two);
#ifdef ACCEPT
const computed_holding to(four);
const layout_switch change(from, to);
#else
const layout_switch change(from, computed_holding(four));
const auto devices = change.devices();
#endif
