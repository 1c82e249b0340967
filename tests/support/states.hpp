// SPDX-License-Identifier: Apache-2.0
// The states of a list as a range, that of statistics at the end.
#pragma once

#include <vector>

#include <reshard/model/state_list.hpp>

namespace testing {

inline std::vector<reshard::state> each_state(const reshard::state_list& list = reshard::adam) {
  std::vector<reshard::state> all;
  for (const int i : list.all()) all.push_back(list[i]);
  return all;
}

}  // namespace testing
