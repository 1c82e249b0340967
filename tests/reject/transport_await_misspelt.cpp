// SPDX-License-Identifier: Apache-2.0
// expect: t\.await\(k\)
#include <reshard/transport/transport.hpp>

#ifndef ACCEPT
#define AWAIT void awaits(index_t);
#endif
#include "an_end.hpp"
using namespace reshard;

// An action by a name that is none.
static_assert(Transport<an_end>);
