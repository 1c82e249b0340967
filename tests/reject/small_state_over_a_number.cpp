// SPDX-License-Identifier: Apache-2.0
// expect: reshard: small state goes over a meeting, or a transport with agree and gather
// alone
#include <reshard/job/exchange_small_state.hpp>
#include <reshard/transport/thread_group.hpp>
using namespace reshard;

// Small state over what gathers nothing: one error.
small_state exchanged(const small_state& mine, thread_group::endpoint& here) {
#ifdef ACCEPT
  return exchange_small_state(mine, {}, here);
#else
  const int number = static_cast<int>(here.device());
  return exchange_small_state(mine, {}, number);
#endif
}
