// SPDX-License-Identifier: Apache-2.0
// expect: lags
#include <reshard/exec/switch_state.hpp>

#ifndef ACCEPT
#define FACTS \
  transport_facts facts() const { return {.lags = 1}; }
#endif
#include "an_end.hpp"
using namespace reshard;

// A fact by a name that is none.
static_assert(Transport<an_end>);
