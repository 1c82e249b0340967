// SPDX-License-Identifier: Apache-2.0
// The switch: every device calls switch_state with its tensors before and after, and the state moves from one layout to
// the other in memory-bounded stages. Whatever can be refused is refused, on all devices, before the first page is
// touched.
// Builds on: plan/layout_switch.hpp, memory/binding.hpp, switch/options.hpp, switch/detail/make_ready.hpp,
// switch/detail/run_ready.hpp.
#pragma once

#include <reshard/memory/binding.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/options.hpp>
#ifndef RESHARD_COMPILED_ONCE
#include <reshard/switch/detail/make_ready.hpp>
#include <reshard/switch/detail/run_ready.hpp>
#endif

namespace reshard {

/// Called by every device of the transport, each with its own tensors; a device without a rank on a side has an empty
/// binding there. On return the new tensors hold what they shall, and the old ones' pages have gone (unless they are
/// kept, or cannot).
template <Holding From, Holding To, typename T>
switch_report switch_state(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors,
                           T& transport, const switch_options& options = {});

#ifndef RESHARD_COMPILED_ONCE
template <Holding From, Holding To, typename T>
switch_report switch_state(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors,
                           T& transport, const switch_options& options) {
  static_assert(Transport<T>, "reshard: this is no Transport; transport/transport.hpp says what one does");
  if constexpr (Transport<T>) {
    detail::all_or_none<T> devices = detail::one_of_switch(transport);
    const auto ready = detail::ready_maker(change, old_tensors, new_tensors, devices, options).make();
    detail::ready_run(*ready, devices).run();
    return ready->report;
  } else {
    return {};
  }
}
#endif

}  // namespace reshard
