// SPDX-License-Identifier: Apache-2.0
// expect: refuse
// expect: "name: character "
// expect: without quotes, commas and backslashes
#include <reshard/elastic/member_name.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr member_name who("node3.0#2");
#else
constexpr member_name who("node 3");
#endif
