// SPDX-License-Identifier: Apache-2.0
// What files with RESHARD_COMPILED_ONCE leave out, defined: one file of a program includes it, after the doors that any
// of them includes. Planning over any_holding is defined always.
// Builds on: reshard/reshard.hpp.
#pragma once

#ifndef RESHARD_COMPILED_ONCE
#error "reshard/compile_once.hpp defines what RESHARD_COMPILED_ONCE leaves out; define that for every file"
#endif

#include <reshard/reshard.hpp>

namespace reshard {

template <>
plan make_plan(const any_switch& change, rank_t device) {
  return detail::planned(change, device);
}

RESHARD_PLANNING_OVER_ANY(template);

}  // namespace reshard
