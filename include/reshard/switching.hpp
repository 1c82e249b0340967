// SPDX-License-Identifier: Apache-2.0
// A door: planning, arrays bound to memory, and switches over threads of one process (Linux).
// Builds on: reshard/reshard.hpp.
#pragma once

#include <reshard/job/exchange_small_state.hpp>
#include <reshard/memory/bind_shard.hpp>
#include <reshard/memory/rank_arrays.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/reshard.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/switch/torn_switch.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>
