// SPDX-License-Identifier: Apache-2.0
// expect: asked\.facts\(\)
#include <reshard/switch/switch_state.hpp>

#ifndef ACCEPT
#define FACTS transport_facts facts();
#endif
#include "an_end.hpp"
using namespace reshard;

// A transport's facts are asked of a constant end.
switch_report moved(const computed_switch& change, binding& before, binding& after, an_end& here) {
  return switch_state(change, before, after, here);
}
