// SPDX-License-Identifier: Apache-2.0
// expect: t\.fill_with_zeros\(box\)
#include <reshard/switch/switch_state.hpp>

#ifndef ACCEPT
#define FILL_WITH_ZEROS
#endif
#include "an_end.hpp"
using namespace reshard;

// An action that is missing.
switch_report moved(const computed_switch& change, binding& before, binding& after, an_end& here) {
  return switch_state(change, before, after, here);
}
