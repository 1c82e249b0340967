// SPDX-License-Identifier: Apache-2.0
// A job's devices as processes over TCP: the library's sockets for switches, and a full mesh of its own for sums.
#pragma once

#include <reshard/transport/socket_meeting.hpp>

#include "collectives.hpp"

namespace trainer {

/// The end of one process: where others call it for switches and for sums, and where it calls them.
std::unique_ptr<world> socket_world(rank_t device, const std::vector<std::string>& for_switches, listening_socket mine,
                                    const std::vector<std::string>& for_sums, listening_socket mine_of_sums);

/// Sums alone, where a job moves its state itself: nobody is waited for longer than `wait`, to call or to be called.
std::unique_ptr<world> socket_sums(rank_t device, const std::vector<std::string>& addresses,
                                   const listening_socket& mine, patience wait);

}  // namespace trainer
