// SPDX-License-Identifier: Apache-2.0
// A list of shards that is asked of the ranks that there are, and of no other.
#pragma once

#include <doctest/doctest.h>

#include <reshard/space/listed_holding.hpp>

namespace testing {

struct strict_list : reshard::listed_holding {
  using reshard::listed_holding::listed_holding;
  template <typename Sink>
  void held(int f, reshard::rank_t rank, reshard::role r, Sink&& sink) const {
    check_rank(rank);
    listed_holding::held(f, rank, r, sink);
  }
  template <typename Sink>
  void shared(int f, reshard::rank_t rank, reshard::role r, Sink&& sink) const {
    check_rank(rank);
    listed_holding::shared(f, rank, r, sink);
  }

 private:
  void check_rank(reshard::rank_t rank) const {
    CHECK(rank >= 0);
    CHECK(rank < ranks());
  }
};

}  // namespace testing
