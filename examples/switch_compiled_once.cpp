// SPDX-License-Identifier: Apache-2.0
// A switch compiled once, whatever number of files call it, and not again when they change. custom_trainer.cpp is
// built with it, its text as it is.
#include "switch_compiled_once.hpp"

template reshard::switch_report reshard::switch_state(const reshard::computed_switch&, reshard::binding&,
                                                      reshard::binding&, reshard::thread_group::endpoint&,
                                                      const reshard::switch_options&);
