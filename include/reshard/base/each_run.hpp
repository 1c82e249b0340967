// SPDX-License-Identifier: Apache-2.0
// Runs of a list: neighbours that have something in common, taken together.
// Builds on: nothing of the library.
#pragma once

namespace reshard::detail {

/// Calls give(first, past) for the runs that 0, 1 .. count - 1 fall into, in order: a run begins at 0 and wherever
/// same(first, i) is false, `first` being where the run before i begins. Each i above 0 is asked about once.
template <typename Number, typename Same, typename Give>
constexpr void each_run(Number count, Same&& same, Give&& give) {
  for (Number first = 0; first < count;) {
    Number past = first + 1;
    while (past < count && same(first, past)) ++past;
    give(first, past);
    first = past;
  }
}

}  // namespace reshard::detail
