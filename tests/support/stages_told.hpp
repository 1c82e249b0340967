// SPDX-License-Identifier: Apache-2.0
// What somebody who watches a switch must be told, over every transport.
#pragma once

#include <reshard/switch/options.hpp>

namespace testing {

/// Adds up what on_stage tells; `right` is what must hold of it.
class stages_told {
 public:
  /// The options, watched; this outlives their use.
  reshard::switch_options watch(reshard::switch_options options) {
    options.on_stage = [this](const reshard::stage_report& r) {
      in_order_ = in_order_ && r.stage == count_ && r.stage < r.stages && r.seconds >= 0 && r.seconds < 600 &&
                  (r.bytes > 0) == (r.peers > 0) && r.bytes >= 0;
      bytes_ += r.bytes, stages_ = r.stages, ++count_;
    };
    return options;
  }
  /// Every stage once, in order; their bytes are all that was received.
  bool right(const reshard::switch_report& all) const {
    return in_order_ && count_ == all.stages && stages_ == all.stages && bytes_ == all.received;
  }

 private:
  bool in_order_ = true;
  reshard::index_t count_ = 0, stages_ = 0;
  reshard::bytes_t bytes_ = 0;
};

}  // namespace testing
