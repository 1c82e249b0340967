// SPDX-License-Identifier: Apache-2.0
// expect: asked\.facts\(\)
#include <reshard/transport/transport.hpp>

#ifndef ACCEPT
#define FACTS
#endif
#include "an_end.hpp"
using namespace reshard;

// No facts.
static_assert(Transport<an_end>);
