// SPDX-License-Identifier: Apache-2.0
// The switch of a job that outlives its devices: it does not throw, it says how it ended, the same way on all who live.
// Builds on: plan/layout_switch.hpp, memory/binding.hpp, switch/ending.hpp, switch/detail/make_ready.hpp,
// switch/detail/run_ready.hpp, transport/parting.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/binding.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/ending.hpp>
#ifndef RESHARD_COMPILED_ONCE
#include <reshard/switch/detail/make_ready.hpp>
#include <reshard/switch/detail/run_ready.hpp>
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
  if constexpr (PartingTransport<T>) {
    detail::all_or_none<T> devices = detail::one_of_switch(transport);
    std::unique_ptr<detail::ready_switch<T>> ready;
    std::string sentence;
    try {
      ready = detail::ready_maker(change, old_tensors, new_tensors, devices, options).make();
      detail::ready_run(*ready, devices).run();
      return ended::finished{ready->report, {}};
    } catch (...) {
      sentence = sentence_of(std::current_exception());
    }
    if (devices.all_know) return ended::refused{sentence, true};
    const slot_times times = ready ? ready->times() : slot_times{};
    parting left = transport.part(times.sending(), ready && ready->moved);
    if (!ready || !ready->touched) return ended::refused{sentence};
    left.in_place = times.stages_in_place(left.in_place);
    if (left.in_place >= times.stages && !left.survivors.empty()) {  // none: this one was given up
      detail::ready_run(*ready, devices).leave_rest();
      return ended::finished{ready->report, sentence};
    }
    std::optional<std::vector<index_t>> unread;
    if (options.budget != no_budget) unread = ready->unread_kept_by(transport.devices());
    if (left.in_doubt(transport.decides()))
      return ended::unknown{sentence, times.stages, left.survivors, left.in_place, std::move(unread)};
    if (options.after_use == sources::keep) return ended::failed{sentence, left.survivors};
    return ended::torn{sentence, times.stages, left.in_place, left.survivors, std::move(unread)};
  } else {
    return {};
  }
}
#endif

}  // namespace reshard
