// SPDX-License-Identifier: Apache-2.0
// The switch of a job that outlives its devices: it does not throw, it says how it ended, the same way on all who live.
// Builds on: plan/layout_switch.hpp, memory/binding.hpp, switch/ending.hpp, switch/detail/switch_steps.hpp.
#pragma once

#include <exception>
#include <string>

#include <reshard/memory/binding.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/ending.hpp>
#ifndef RESHARD_COMPILED_ONCE
#include <reshard/switch/detail/switch_steps.hpp>
#include <reshard/transport/parting.hpp>
#endif

namespace reshard {

/// A switch, as switch_state makes one, over a transport whose devices part with one another's word where one is gone:
///   finished  iff every device is known to have every stage in place;
///   unknown   where all who are left have everything, and the device that decides whether all have is gone; or where
///             this one has everything, and the others gave it up;
///   failed    where the sources were kept, torn where they were released, otherwise;
///   refused   where it ended before anything was touched.
template <Holding From, Holding To, typename T>
[[nodiscard]] switch_ending attempt_switch(const layout_switch<From, To>& change, binding& old_tensors,
                                           binding& new_tensors, T& transport, const switch_options& options = {});

#ifndef RESHARD_COMPILED_ONCE
template <Holding From, Holding To, typename T>
switch_ending attempt_switch(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors,
                             T& transport, const switch_options& options) {
  static_assert(PartingTransport<T>, "reshard: this transport cannot tell who is left; a socket_endpoint can");
  typename detail::steps_over<From, To, T>::type steps(change, old_tensors, new_tensors, transport, options);
  std::string sentence;
  try {
    steps.prepare();
    steps.run();
    return ended::finished{steps.report(), {}};
  } catch (const std::exception& e) {
    sentence = e.what();
  } catch (...) {
    sentence = "reshard: an exception of no standard kind";
  }
  if (steps.all_refused()) return ended::refused{sentence};
  const index_t stages = steps.report().stages;
  const slot_times times = steps.times();
  parting left = transport.part(times.sending(), steps.moved());
  left.in_place = times.stages_in_place(left.in_place);
  if (!steps.touched()) return ended::refused{sentence};
  if (left.in_place >= stages && !left.survivors.empty()) {  // none: this one was given up
    steps.leave_rest();
    return ended::finished{steps.report(), sentence};
  }
  if (left.in_doubt(transport.decides())) return ended::unknown{sentence, stages, left.survivors};
  if (options.after_use == sources::keep) return ended::failed{sentence, left.survivors};
  ended::torn end{sentence, stages, left.in_place, left.survivors};
  if (options.budget != no_budget) end.unread_kept = steps.unread_kept();
  return end;
}
#endif

}  // namespace reshard
