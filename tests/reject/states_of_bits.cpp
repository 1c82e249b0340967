// SPDX-License-Identifier: Apache-2.0
// expect: there is no state
#include <reshard/model/state.hpp>
using namespace reshard;

// A set of states is made of states, each with its level and width: not of a number that no list has.
#ifdef ACCEPT
constexpr state_set one(15, 1, 4);
#else
constexpr state_set one(17, 1, 4);
#endif
