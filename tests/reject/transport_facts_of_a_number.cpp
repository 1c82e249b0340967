// SPDX-License-Identifier: Apache-2.0
// expect: asked\.facts\(\)
#include <reshard/transport/transport.hpp>

#ifndef ACCEPT
#define FACTS index_t facts() const;
#endif
#include "an_end.hpp"
using namespace reshard;

// A lag for all facts.
static_assert(Transport<an_end>);
