// SPDX-License-Identifier: Apache-2.0
// expect: t\.settle\(\)
#include <reshard/transport/transport.hpp>

#ifndef ACCEPT
#define SETTLE bool settle();
#endif
#include "an_end.hpp"
using namespace reshard;

// An action that says whether it was done, to nobody.
static_assert(Transport<an_end>);
