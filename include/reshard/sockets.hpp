// SPDX-License-Identifier: Apache-2.0
// A door: switches between processes over sockets (Linux).
// Builds on: reshard/switching.hpp.
#pragma once

#include <reshard/switching.hpp>
#include <reshard/transport/socket_meeting.hpp>
#include <reshard/transport/sockets.hpp>
