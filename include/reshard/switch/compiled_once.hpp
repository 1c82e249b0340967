// SPDX-License-Identifier: Apache-2.0
// Switches over computed layouts and over any_holding, compiled once: the doors declare them in files with
// RESHARD_COMPILED_ONCE, and define them in the one with reshard/compile_once.hpp.
// Builds on: switch/attempt_switch.hpp, switch/prepared_switch.hpp, switch/switch_state.hpp.
#pragma once

#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>

/// The switches between two sides of one kind over a transport, as `extern template` or `template`; the transport comes
/// last, as its name may have commas.
#define RESHARD_SWITCHES_OF(instance, Side, ...)                                                          \
  instance switch_report switch_state(const layout_switch<Side, Side>&, binding&, binding&, __VA_ARGS__&, \
                                      const switch_options&);                                             \
  instance class prepared_switch<Side, Side, __VA_ARGS__>
#define RESHARD_SWITCHES_OVER(instance, ...)                    \
  RESHARD_SWITCHES_OF(instance, computed_holding, __VA_ARGS__); \
  RESHARD_SWITCHES_OF(instance, any_holding, __VA_ARGS__)
/// Over a transport whose devices part with one another's word, the ends of switches, too.
#define RESHARD_ATTEMPTS_OVER(instance, ...)                                                      \
  instance switch_ending attempt_switch(const computed_switch&, binding&, binding&, __VA_ARGS__&, \
                                        const switch_options&);                                   \
  instance switch_ending attempt_switch(const any_switch&, binding&, binding&, __VA_ARGS__&, const switch_options&)
