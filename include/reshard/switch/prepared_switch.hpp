// SPDX-License-Identifier: Apache-2.0
// A switch that is made ready once and run as often as one likes, as weights go to rollout replicas after every step:
// planned, checked, staged and bound when it is made; run() only copies.
// Builds on: plan/layout_switch.hpp, memory/binding.hpp, switch/options.hpp, switch/detail/make_ready.hpp,
// switch/detail/run_ready.hpp.
#pragma once

#include <memory>
#include <utility>

#include <reshard/memory/binding.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/options.hpp>
#ifndef RESHARD_COMPILED_ONCE
#include <reshard/switch/detail/make_ready.hpp>
#include <reshard/switch/detail/run_ready.hpp>
#endif

namespace reshard {

namespace detail {
template <typename T>
struct ready_switch;
}

/// Made by every device of the transport, each with its own tensors; a device without a rank on a side has an empty
/// binding there. Keeps its sources, whatever the options say. The switch, the bindings and the transport outlive it.
template <Holding From, Holding To, typename T>
class prepared_switch {
 public:
  prepared_switch(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors, T& transport,
                  switch_options options = {});
  prepared_switch(const prepared_switch&) = delete;

  /// Called by every device, with what its old tensors hold by then. On return the new tensors hold it.
  void run();

  /// What each run moves, and the memory from the first on.
  const switch_report& report() const { return report_; }

 private:
  T& transport_;
  std::shared_ptr<detail::ready_switch<T>> ready_;
  switch_report report_;
};

#ifndef RESHARD_COMPILED_ONCE

// Outside of the class they are not inline, so that who declares an instance `extern` does not compile it again.
template <Holding From, Holding To, typename T>
prepared_switch<From, To, T>::prepared_switch(const layout_switch<From, To>& change, binding& old_tensors,
                                              binding& new_tensors, T& transport, switch_options options)
    : transport_(transport) {
  static_assert(Transport<T>, "reshard: this is no Transport; transport/transport.hpp says what one does");
  options.after_use = sources::keep;
  if constexpr (Transport<T>) {
    detail::all_or_none<T> devices = detail::one_of_switch(transport);
    ready_ = detail::ready_maker(change, old_tensors, new_tensors, devices, options).make();
    report_ = ready_->report;
  }
}

template <Holding From, Holding To, typename T>
void prepared_switch<From, To, T>::run() {
  if constexpr (Transport<T>) {
    detail::all_or_none<T> devices = detail::one_of_switch(transport_);
    detail::ready_run(*ready_, devices).run();
  }
}

#endif

}  // namespace reshard
