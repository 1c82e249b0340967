// SPDX-License-Identifier: Apache-2.0
// A door: planning, arrays bound to memory, and switches over threads of one process (Linux). In files with
// RESHARD_COMPILED_ONCE it brings layouts, arrays and declared switches: who plans, too, includes reshard/reshard.hpp,
// who goes on from torn switches switch/torn_switch.hpp.
// Builds on: reshard/reshard.hpp.
#pragma once

#include <reshard/io/plan_text.hpp>
#include <reshard/job/exchange_small_state.hpp>
#include <reshard/memory/bind_shard.hpp>
#include <reshard/memory/rank_arrays.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/compiled_once.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>
#ifndef RESHARD_COMPILED_ONCE
#include <reshard/reshard.hpp>
#include <reshard/switch/torn_switch.hpp>
#endif

#define RESHARD_HAS_DOORS

// Their switches, compiled once (reshard/compile_once.hpp).
namespace reshard {
#if defined(RESHARD_COMPILES_ONCE)
RESHARD_SWITCHES_OVER(template, thread_group::endpoint);
RESHARD_SWITCHES_OVER(template, mailbox_group::endpoint);
#elif defined(RESHARD_COMPILED_ONCE)
RESHARD_SWITCHES_OVER(extern template, thread_group::endpoint);
RESHARD_SWITCHES_OVER(extern template, mailbox_group::endpoint);
#endif
}  // namespace reshard
