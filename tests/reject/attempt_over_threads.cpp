// SPDX-License-Identifier: Apache-2.0
// expect: reshard: this transport cannot tell who is left; a socket_endpoint can
// expect: t\.part\(slots, moved\)
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/transport/sockets.hpp>
#include <reshard/transport/thread_group.hpp>
using namespace reshard;

// A switch that says how it ended, over a transport whose devices do not part.
#ifdef ACCEPT
using end = socket_endpoint;
#else
using end = thread_group::endpoint;
#endif
switch_ending attempted(const computed_switch& change, binding& before, binding& after, end& here) {
  return attempt_switch(change, before, after, here);
}
