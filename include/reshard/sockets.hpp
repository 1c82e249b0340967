// SPDX-License-Identifier: Apache-2.0
// A door: switches between processes over sockets (Linux).
// Builds on: reshard/switching.hpp.
#pragma once

#include <reshard/switching.hpp>
#include <reshard/transport/socket_meeting.hpp>
#include <reshard/transport/sockets.hpp>

// Its switches, compiled once (reshard/compile_once.hpp).
namespace reshard {
#if defined(RESHARD_COMPILES_ONCE)
RESHARD_SWITCHES_OVER(template, socket_endpoint);
RESHARD_ATTEMPTS_OVER(template, socket_endpoint);
#elif defined(RESHARD_COMPILED_ONCE)
RESHARD_SWITCHES_OVER(extern template, socket_endpoint);
RESHARD_ATTEMPTS_OVER(extern template, socket_endpoint);
#endif
}  // namespace reshard
