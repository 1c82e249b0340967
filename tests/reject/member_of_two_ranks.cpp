// SPDX-License-Identifier: Apache-2.0
// expect: refuse
// expect: "world: ranks "
// expect: a member has one rank
#include <reshard/elastic/world.hpp>
using namespace reshard;

constexpr bool is_a_world(const char* second) {
  require_world({.members = {"a", second}, .layout = {.dp = 2}});
  return true;
}
#ifdef ACCEPT
static_assert(is_a_world("b"));
#else
static_assert(is_a_world("a"));
#endif
