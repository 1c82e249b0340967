// SPDX-License-Identifier: Apache-2.0
// What every file of a trainer includes that calls switch_state over threads: the compiler finds the switch declared
// here and leaves it to switch_compiled_once.cpp.
#pragma once

#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/thread_group.hpp>

extern template reshard::switch_report reshard::switch_state(const reshard::computed_switch&, reshard::binding&,
                                                             reshard::binding&, reshard::thread_group::endpoint&,
                                                             const reshard::switch_options&);
