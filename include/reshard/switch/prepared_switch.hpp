// SPDX-License-Identifier: Apache-2.0
// A switch that is made ready once and run as often as one likes, as weights go to rollout replicas after every step:
// planned, checked, staged and bound when it is made; run() only copies.
// Builds on: plan/layout_switch.hpp, memory/binding.hpp, switch/options.hpp, switch/detail/switch_steps.hpp.
#pragma once

#include <memory>
#include <utility>

#include <reshard/memory/binding.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/options.hpp>
#ifndef RESHARD_COMPILED_ONCE
#include <reshard/switch/detail/switch_steps.hpp>
#endif

namespace reshard {

/// Made by every device of the transport, each with its own tensors; a device without a rank on a side has an empty
/// binding there. Keeps its sources, whatever the options say. The switch, the bindings and the transport outlive it.
template <Holding From, Holding To, typename T>
class prepared_switch {
 public:
  prepared_switch(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors, T& transport,
                  switch_options options = {});
  prepared_switch(const prepared_switch&) = delete;
  ~prepared_switch();

  /// Called by every device, with what its old tensors hold by then. On return the new tensors hold it.
  void run();

  /// What each run moves, and the memory from the first on.
  const switch_report& report() const;

 private:
  struct made;
  std::unique_ptr<made> made_;
};

#ifndef RESHARD_COMPILED_ONCE

template <Holding From, Holding To, typename T>
struct prepared_switch<From, To, T>::made {
  made(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors, T& transport,
       const switch_options& options)
      : steps(change, old_tensors, new_tensors, transport, options) {}

  typename detail::steps_over<From, To, T>::type steps;
};

// Outside of the class they are not inline, so that who declares an instance `extern` does not compile it again.
template <Holding From, Holding To, typename T>
prepared_switch<From, To, T>::prepared_switch(const layout_switch<From, To>& change, binding& old_tensors,
                                              binding& new_tensors, T& transport, switch_options options) {
  static_assert(Transport<T>, "reshard: this is no Transport; transport/transport.hpp says what one does");
  options.after_use = sources::keep;
  made_ = std::make_unique<made>(change, old_tensors, new_tensors, transport, options);
  made_->steps.prepare();
}

template <Holding From, Holding To, typename T>
prepared_switch<From, To, T>::~prepared_switch() = default;

template <Holding From, Holding To, typename T>
void prepared_switch<From, To, T>::run() {
  made_->steps.run();
}

template <Holding From, Holding To, typename T>
const switch_report& prepared_switch<From, To, T>::report() const {
  return made_->steps.report();
}

#endif

}  // namespace reshard
