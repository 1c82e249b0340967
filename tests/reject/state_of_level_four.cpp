// SPDX-License-Identifier: Apache-2.0
// expect: levels are 1, 2 and 3, the least zero at which a state is sharded
#include <reshard/model/state_list.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr state_list list = parse_state_list("param:bf16:3,grad:fp32:2");
#else
constexpr state_list list = parse_state_list("param:bf16:3,grad:fp32:4");
#endif
