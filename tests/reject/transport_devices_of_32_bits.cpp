// SPDX-License-Identifier: Apache-2.0
// expect: asked\.devices\(\)
#include <reshard/transport/transport.hpp>

#ifndef ACCEPT
#define DEVICES std::int32_t devices() const;
#endif
#include "an_end.hpp"
using namespace reshard;

// A number of devices of another integer type.
static_assert(Transport<an_end>);
