// SPDX-License-Identifier: Apache-2.0
// Device maps: the inverse, ranges of devices, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <reshard/plan/device_map.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {
/// Runs, and what they are asked for, beside the list that they come from.
void check_runs(const device_map& map, const std::vector<rank_t>& devices) {
  const rank_t ranks = map.ranks(), world = map.devices();
  CHECK(map.ascending() == std::is_sorted(devices.begin(), devices.end()));
  bool consecutive = true, identity = true;
  for (rank_t r = 0; r < ranks; ++r) {
    consecutive = consecutive && devices[static_cast<std::size_t>(r)] == devices.front() + r;
    identity = identity && devices[static_cast<std::size_t>(r)] == r;
  }
  CHECK(map.one_run() == consecutive);
  CHECK(map.identity() == identity);
  std::vector<rank_t> by_rank, by_device, sorted = devices;
  rank_t before = -2;
  map.each_seat_run([&](rank_t rank, rank_t device, index_t count) {
    CHECK(rank == std::ssize(by_rank));
    CHECK(count > 0);
    CHECK((by_rank.empty() || device != before + 1));  // else it would be one run
    for (index_t i = 0; i < count; ++i) by_rank.push_back(device + i);
    before = device + count - 1;
  });
  CHECK(by_rank == devices);
  map.each_run([&](interval run) {
    for (rank_t d = run.begin; d < run.end; ++d) by_device.push_back(d);
  });
  std::sort(sorted.begin(), sorted.end());
  CHECK(by_device == sorted);
  for (rank_t d = -1; map.ascending() && d <= world + 1; ++d)
    CHECK(map.first_rank_from(d) == std::lower_bound(devices.begin(), devices.end(), d) - devices.begin());
}
}  // namespace

TEST_CASE("rank_of inverts device_of, and ranks_on is the preimage of a range") {
  testing::dice random(3);
  for (int n = 0; n < 300; ++n) {
    const rank_t ranks = random.within(1, n % 10 == 0 ? 200 : 20), world = ranks + random.below(20);
    std::vector<rank_t> devices;
    for (rank_t d = 0; d < world; ++d) devices.push_back(d);
    for (rank_t i = world - 1; i > 0; --i)
      if (random.below(n % 4 + 1) != 0)
        std::swap(devices[static_cast<std::size_t>(i)], devices[static_cast<std::size_t>(random.below(i + 1))]);
    devices.resize(static_cast<std::size_t>(ranks));
    const device_map map(devices);
    CHECK(map.ranks() == ranks);
    CHECK(map.devices() == *std::max_element(devices.begin(), devices.end()) + 1);
    for (rank_t d = -1; d <= world; ++d) {
      const auto at = std::find(devices.begin(), devices.end(), d);
      CHECK(map.rank_of(d) == (at == devices.end() ? -1 : at - devices.begin()));
    }
    for (rank_t r = 0; r < ranks; ++r) CHECK(map.device_of(r) == devices[static_cast<std::size_t>(r)]);
    const interval range{random.below(world), random.within(0, world)};
    std::vector<interval> found;
    map.ranks_on(range, found);
    std::vector<rank_t> listed, wanted;
    for (const interval& i : found) CHECK(!i.empty());
    for (const interval& i : found)
      for (rank_t r = i.begin; r < i.end; ++r) listed.push_back(r);
    for (rank_t r = 0; r < ranks; ++r)
      if (range.contains(devices[static_cast<std::size_t>(r)])) wanted.push_back(r);
    CHECK(listed == wanted);

    check_runs(map, devices);

    const interval gone{random.below(world), random.within(1, world)}, later{gone.end + 1, gone.end + 1 + n % 3};
    if (gone.empty()) continue;
    const device_map left = map.without({gone, later});
    CHECK(left.ranks() == ranks);
    CHECK(left.devices() == map.devices());
    for (rank_t r = 0; r < ranks; ++r) CHECK(left.device_of(r) == map.device_of(r));
    for (rank_t d = -1; d <= world; ++d)
      CHECK(left.rank_of(d) == (gone.contains(d) || later.contains(d) ? -1 : map.rank_of(d)));
    std::vector<interval> of_living;
    left.ranks_on({0, world}, of_living);
    index_t living = 0;
    for (const interval& i : of_living) living += i.size();
    for (rank_t r = 0; r < ranks; ++r) living -= left.rank_of(map.device_of(r)) < 0 ? 0 : 1;
    CHECK(living == 0);
  }
  CHECK(device_map(3).without({{1, 2}}).rank_of(2) == 2);
  CHECK(device_map(3).without({{0, 3}}).rank_of(1) == -1);
  CHECK(device_map(std::vector<rank_t>{0, 1, 2}).identity());
  CHECK_REFUSED((device_map(std::vector<rank_t>{0, 3, 1, 3})), "device map: device 3 is given to two ranks");
  CHECK_REFUSED((device_map(std::vector<rank_t>{3, 3})), "device map: device 3 is given to two ranks");
  CHECK_REFUSED((device_map(std::vector<rank_t>{4, 5, 6, 5})), "device map: device 5 is given to two ranks");
  CHECK_REFUSED((device_map(std::vector<rank_t>{0, -1})),
                "device map: rank 1 is on device -1, but devices count from 0");
  const rank_t last = std::numeric_limits<rank_t>::max();  // one past it is no number
  CHECK_REFUSED((device_map(std::vector<rank_t>{0, last})), "9223372036854775807 + 1 does not fit 64 bits");
  CHECK(device_map(std::vector<rank_t>{0, last - 1}).devices() == last);
}

TEST_CASE("maps that need no list, no ranks, and who is left of some, as runs") {
  check_runs(device_map(3), {0, 1, 2});
  check_runs(device_map(std::vector<rank_t>{5, 6, 7}), {5, 6, 7});
  CHECK(device_map(0).devices() == 0);
  CHECK(device_map(0).rank_of(0) == -1);
  CHECK(device_map(4).device_of(3) == 3);
  CHECK(device_map(std::vector<rank_t>{5, 6}).of_world(9).ranks() == 2);
  CHECK(device_map().of_world(9).ranks() == 9);
  CHECK(device_map(0).of_world(9).ranks() == 0);  // made for a world of nobody, not for any
  CHECK(device_map(std::vector<rank_t>{}).of_world(9).ranks() == 0);
  device_map(0).each_seat_run([](rank_t, rank_t, index_t) { CHECK(false); });
  device_map(0).each_run([](interval) { CHECK(false); });
  const device_map apart = device_map(8).without({{1, 2}, {4, 6}});  // who is left, as runs
  std::vector<interval> left;
  apart.each_run([&](interval run) { left.push_back(run); });
  CHECK(left == std::vector<interval>{{0, 1}, {2, 4}, {6, 8}});
  // ranks 1, 4 and 5 are on no device, so that none of them is the first on no lower one
  for (const auto& [device, first] : {std::pair<rank_t, rank_t>(-1, 0), {0, 0}, {1, 2}, {2, 2}, {3, 3}, {4, 6}, {5, 6}})
    CHECK(apart.first_rank_from(device) == first);
  const device_map front = device_map(8).without({{5, 8}});
  CHECK(front.first_rank_from(4) == 4);
  CHECK(front.first_rank_from(5) == 8);  // none
  const device_map nobody = device_map(0).without({{0, 2}}), as_given = device_map(0).without({});
  for (const device_map* none : {&nobody, &as_given}) {
    CHECK(none->identity());
    none->each_run([](interval) { CHECK(false); });
    none->each_seat_run([](rank_t, rank_t, index_t) { CHECK(false); });
  }
}
