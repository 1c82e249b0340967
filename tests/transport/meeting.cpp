// SPDX-License-Identifier: Apache-2.0
// An agreement of proposals, in every order, is the largest number, the sum mod 2^64 and the sentence of the lowest
// device that refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <reshard/transport/meeting.hpp>

using namespace reshard;

namespace {
std::string failure(const agreement& all, rank_t device) {
  try {
    return std::to_string(all.largest_for(device));
  } catch (const peer_failed& e) {
    return e.what();
  }
}
}  // namespace

TEST_CASE("what devices agree on does not hang on the order in which they come") {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  const std::vector<proposal> said{{-7, most, ""}, {-3, 2, "reshard: no"}, {-5, 3, "reshard: never"}, {-9, most, ""}};
  std::vector<rank_t> order{0, 1, 2, 3};
  do {
    agreement all{99, 99, 0, "of before"};
    for (std::size_t i = 0; i < order.size(); ++i) all.add(order[i], said[static_cast<std::size_t>(order[i])], i == 0);
    CHECK(all == agreement{-3, 3, 1, "reshard: no"});
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the largest number is everybody's where nobody refuses; else all hear who does, and why") {
  agreement all;
  all.add(0, {4, 0, {}}, true);
  all.add(1, {2, 0, {}}, false);
  CHECK(all.refuser == -1);
  CHECK(failure(all, 0) == "4");
  CHECK(failure(all, 1) == "4");
  all.add(2, {9, 0, "reshard: 3 stages are too few"}, false);
  CHECK(failure(all, 0) == "reshard: device 0: device 2 does something else: 3 stages are too few");
  CHECK(failure(all, 2) == "reshard: device 2: device 2 does something else: 3 stages are too few");
}

TEST_CASE("device 0 is the lowest of those who refuse, and is heard as others are") {
  agreement all;
  all.add(0, {1, 0, "reshard: not I"}, true);
  all.add(1, {2, 0, "reshard: nor I"}, false);
  CHECK(all == agreement{2, 0, 0, "reshard: not I"});
  CHECK(failure(all, 1) == "reshard: device 1: device 0 does something else: not I");
}
