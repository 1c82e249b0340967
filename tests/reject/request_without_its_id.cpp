// SPDX-License-Identifier: Apache-2.0
// expect: refuse
// expect: " has no id; its asker chooses one"
#include <reshard/elastic/request.hpp>
using namespace reshard;

constexpr bool is_a_request(member_name id) {
  require_request({.id = id, .kind = request_kind::leave, .members = {"a"}});
  return true;
}
#ifdef ACCEPT
static_assert(is_a_request("ask#1"));
#else
static_assert(is_a_request({}));
#endif
