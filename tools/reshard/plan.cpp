// SPDX-License-Identifier: Apache-2.0
// plan: what must move when a job goes from one layout to another.
#include <reshard/base/refusal.hpp>

#include "commands.hpp"

namespace reshard::tool {

void plan(const arguments&) { refuse("plan is not built yet; built are check and regions"); }

}  // namespace reshard::tool
