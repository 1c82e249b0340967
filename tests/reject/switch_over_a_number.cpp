// SPDX-License-Identifier: Apache-2.0
// expect: reshard: this is no Transport; transport/transport.hpp says what one does
// alone
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/thread_group.hpp>
using namespace reshard;

// A switch over what is no transport: one error.
switch_report moved(const computed_switch& change, binding& before, binding& after, thread_group::endpoint& here) {
#ifdef ACCEPT
  return switch_state(change, before, after, here);
#else
  return switch_state(change, before, after, change);
#endif
}
