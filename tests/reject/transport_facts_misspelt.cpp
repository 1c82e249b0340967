// SPDX-License-Identifier: Apache-2.0
// expect: has no non-static data member named .lags|designator .lags. does not refer to any field
#include <reshard/transport/transport.hpp>

#ifndef ACCEPT
#define FACTS \
  transport_facts facts() const { return transport_facts{.lags = 1}; }
#endif
#include "an_end.hpp"
using namespace reshard;

// A fact by a name that is none.
static_assert(Transport<an_end>);
