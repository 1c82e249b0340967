// SPDX-License-Identifier: Apache-2.0
// A list of shards that gives the boxes of its parameters whatever role it is asked for, as a holding of one's own may:
// that no tensor has statistics is for the asker to know, by the kinds of the families.
#pragma once

#include <reshard/space/listed_holding.hpp>

namespace testing {

struct any_role : reshard::listed_holding {
  using reshard::listed_holding::listed_holding;

  template <typename Sink>
  void held(int f, reshard::rank_t rank, reshard::role, Sink&& sink) const {
    reshard::listed_holding::held(f, rank, reshard::role::parameter, sink);
  }
  template <typename Sink>
  void shared(int f, reshard::rank_t rank, reshard::role, Sink&& sink) const {
    reshard::listed_holding::shared(f, rank, reshard::role::parameter, sink);
  }
  template <typename Sink>
  void owners(int f, reshard::role, const reshard::family_box& within, Sink&& sink) const {
    reshard::listed_holding::owners(f, reshard::role::parameter, within, sink);
  }
};

}  // namespace testing
