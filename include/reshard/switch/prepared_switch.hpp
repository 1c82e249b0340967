// SPDX-License-Identifier: Apache-2.0
// A switch that is made ready once and run as often as one likes, as weights go to rollout replicas after every step:
// planned, checked, staged and bound when it is made; run() only copies.
// Builds on: switch/detail/switch_steps.hpp.
#pragma once

#include <utility>

#include <reshard/switch/detail/switch_steps.hpp>

namespace reshard {

/// Made by every device of the transport, each with its own tensors; a device without a rank on a side has an empty
/// binding there. Keeps its sources, whatever the options say. The switch, the bindings and the transport outlive it.
template <Holding From, Holding To, typename T>
class prepared_switch {
  static_assert(Transport<T>, "reshard: this is no Transport; transport/transport.hpp says what one does");

 public:
  prepared_switch(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors, T& transport,
                  switch_options options = {});

  /// Called by every device, with what its old tensors hold by then. On return the new tensors hold it.
  void run();

  /// What each run moves, and the memory from the first on.
  const switch_report& report() const { return steps_.report(); }

 private:
  static switch_options kept(switch_options options) {
    options.after_use = sources::keep;
    return options;
  }

  typename detail::steps_over<From, To, T>::type steps_;
};

// Outside of the class they are not inline, so that who declares an instance `extern` does not compile it again.
template <Holding From, Holding To, typename T>
prepared_switch<From, To, T>::prepared_switch(const layout_switch<From, To>& change, binding& old_tensors,
                                              binding& new_tensors, T& transport, switch_options options)
    : steps_(change, old_tensors, new_tensors, transport, kept(std::move(options))) {
  steps_.prepare();
}

template <Holding From, Holding To, typename T>
void prepared_switch<From, To, T>::run() {
  steps_.run();
}

}  // namespace reshard
