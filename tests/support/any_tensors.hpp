// SPDX-License-Identifier: Apache-2.0
// Switches between lists of shards, thrown by dice, beside what they are row by row: who had it, who needs it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/listed_holding.hpp>

#include "any_links.hpp"
#include "dice.hpp"

namespace testing {

/// One to three tensors, cut into rows by each side for itself, in param and in both moments, which lie otherwise. A
/// block of FROM has some holders, one of TO perhaps none; where devices are lost or empty, so may be rows.
struct any_tensors {
  /// A row of one tensor in one role: bytes of all its states, and devices, of FROM's those that are not gone.
  struct row {
    int tensor = 0;
    bool moments = false;
    reshard::index_t elements = 0;
    reshard::bytes_t bytes = 0;
    std::set<reshard::rank_t> had = {}, needs = {};
  };
  any_world world;
  std::vector<reshard::shard> before, after;
  std::vector<row> rows;

  any_tensors(dice& random, bool meet) : world(random, meet) {
    std::set<reshard::rank_t> gone(world.lost.begin(), world.lost.end());
    gone.insert(world.empty.begin(), world.empty.end());
    for (int t = 0, tensors = static_cast<int>(random.within(1, 3)); t < tensors; ++t) {
      const reshard::index_t high = random.within(1, 6), wide = random.within(1, 9);
      for (const bool moments : {false, true}) {
        const std::size_t first = rows.size();
        for (reshard::index_t i = 0; i < high; ++i) rows.push_back({t, moments, wide, wide * (moments ? 8 : 2)});
        for (const bool to : {false, true}) {
          const std::vector<reshard::rank_t>& seats = to ? world.to : world.from;
          for (reshard::index_t begin = 0, end = 0; begin < high; begin = end) {
            end = random.coin() ? high : random.within(begin + 1, high);
            for (const reshard::rank_t rank : some_ranks(random, std::ssize(seats), to && t + begin > 0)) {
              list(to ? after : before, rank, t, moments, {high, wide}, begin, end);
              const reshard::rank_t device = seats[static_cast<std::size_t>(rank)];
              if (to || !gone.contains(device))
                for (reshard::index_t i = begin; i < end; ++i)
                  (to ? rows[first + static_cast<std::size_t>(i)].needs : rows[first + static_cast<std::size_t>(i)].had)
                      .insert(device);
            }
          }
        }
      }
    }
  }
  auto change(reshard::when_lost what = reshard::when_lost::leave_out) const {
    using namespace reshard;
    return layout_switch(shard_list(before, std::ssize(world.from)), shard_list(after, std::ssize(world.to)),
                         {.from = device_map(world.from),
                          .to = device_map(world.to),
                          .on = world.on,
                          .states = adam.named("param") | adam.named("exp_avg") | adam.named("exp_avg_sq"),
                          .lost = world.lost,
                          .lost_elements = what,
                          .empty = world.empty});
  }

 private:
  static std::vector<reshard::rank_t> some_ranks(dice& random, reshard::rank_t ranks, bool perhaps_none) {
    const reshard::rank_t most = random.coin() ? 1 : ranks;
    if (perhaps_none && random.below(6) == 0) return {};
    return any_seats(random, random.within(1, most), ranks);
  }
  static void list(std::vector<reshard::shard>& to, reshard::rank_t rank, int tensor, bool moments,
                   reshard::extents whole, reshard::index_t begin, reshard::index_t end) {
    const std::string name(1, static_cast<char>('a' + tensor));
    for (const std::string& state :
         moments ? std::vector<std::string>{"exp_avg", "exp_avg_sq"} : std::vector<std::string>{"param"})
      to.push_back(
          {rank, name, moments ? reshard::fp32 : reshard::bf16, whole, {begin, 0}, {end - begin, whole.at[1]}, state});
  }
};

}  // namespace testing
