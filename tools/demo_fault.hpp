// SPDX-License-Identifier: Apache-2.0
// The demo with a fault: a switch between processes of which one is killed or stopped, how it ended on each that lives,
// what each holds then, and the switch that goes on from there.
#pragma once

#include <string>

#include "demo_measure.hpp"

namespace demo {

/// What happens to whom, when it begins the pack of a stage.
struct fault_request {
  enum class kind { none, kill, stop } what = kind::none;
  rank_t device = 0;
  index_t stage = 0;
  bool keep = false;
  std::string then;  // a layout; empty: nobody goes on
  double patience_seconds = 2;
};

/// "kill:3@0" or "stop:0@7"
void parse_fault(const std::string& text, fault_request& fault);
/// Seconds, above 0 and at most an hour.
double parse_patience(const std::string& text);

/// Prints one object per device that lives, what is lost, and the switch that went on; whether all of it was right.
bool run_with_fault(const switch_request& r, const fault_request& fault);

}  // namespace demo
