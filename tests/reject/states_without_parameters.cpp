// SPDX-License-Identifier: Apache-2.0
// expect: none of
// expect: is called param; one is, and is of level 3
#include <reshard/model/state_list.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr state_list list{{"param", dtype::bf16, 3}, {"grad", dtype::fp32, 2}};
#else
constexpr state_list list{{"weight", dtype::bf16, 3}, {"grad", dtype::fp32, 2}};
#endif
