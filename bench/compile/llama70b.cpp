// SPDX-License-Identifier: Apache-2.0
// What validating a layout at compile time costs: compile this with and without -DASSERTIONS and compare.
// LLaMA-2-70B, tp4 pp8 dp2 -> tp8 pp16 dp1, parameters: exact cover from the boxes, bytes moved and kept.
#include <reshard/model/presets.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/cover.hpp>

using namespace reshard;

constexpr space before{models::llama2_70b, config<tp<4>, pp<8>, dp<2>>{}};
constexpr space after{models::llama2_70b, config<tp<8>, pp<16>, dp<1>>{}};
#ifdef ASSERTIONS
static_assert(covers(before, parameter_states));
static_assert(covers(after, parameter_states));
static_assert(volume_of(layout_switch(before, after, {.states = parameter_states})) ==
              switch_volume{135'700'283'392, 2'271'477'760});
#endif
