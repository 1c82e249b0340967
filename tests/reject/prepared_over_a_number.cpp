// SPDX-License-Identifier: Apache-2.0
// expect: reshard: this is no Transport; transport/transport.hpp says what one does
// alone
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/transport/thread_group.hpp>
using namespace reshard;

// A switch made ready over what is no transport: one error.
void moved(const computed_switch& change, binding& before, binding& after, thread_group::endpoint& here, int number) {
#ifdef ACCEPT
  prepared_switch again(change, before, after, here);
#else
  prepared_switch again(change, before, after, number);
#endif
  again.run();
  static_cast<void>(here);
  static_cast<void>(number);
}
