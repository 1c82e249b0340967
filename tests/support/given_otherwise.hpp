// SPDX-License-Identifier: Apache-2.0
// One of 8 processes that was given another switch than the others: what each of them does, and what all must say, in
// time and with nothing touched. The same for every transport between processes.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>

#include "left_behind.hpp"
#include "tiny.hpp"

namespace testing {

/// What one of them was given otherwise.
enum class otherwise { from, to, vpp, placement, budget, use, states, shards };
inline constexpr otherwise all_otherwise[] = {otherwise::from,      otherwise::to,     otherwise::vpp,
                                              otherwise::placement, otherwise::budget, otherwise::use,
                                              otherwise::states,    otherwise::shards};

namespace detail {

inline double clock_of_all() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Two matrices, rows on the first four of 8 ranks, or on the last.
inline reshard::shard_list two_matrices(const char* second, reshard::rank_t first_rank) {
  std::vector<reshard::shard> shards;
  for (const char* tensor : {"a", second})
    for (reshard::rank_t r = 0; r < 4; ++r)
      shards.push_back({first_rank + r, tensor, reshard::bf16, {64, 64}, {16 * r, 0}, {16, 64}, "param"});
  return reshard::shard_list(shards, 8);
}

/// Tries a switch, and says how that ended and what was touched.
template <typename Switch, typename Endpoint>
void attempt_and_say(const Switch& change, const reshard::switch_options& options, Endpoint& here, left_behind& left) {
  using namespace reshard;
  const rank_t d = here.device();
  rank_storage before(change.from(), change.from_rank(d), "before", pages_are::reserved, {}, change.list()),
      after(change.to(), change.to_rank(d), "after", pages_are::reserved, {}, change.list());
  fill(before.tensors(), change.from());
  try {
    switch_state(change, before.tensors(), after.tensors(), here, options);
    left.say("finished");
  } catch (const std::exception& e) {
    left.say(e.what());
  }
  left.seconds = clock_of_all();
  left.untouched = after.resident_bytes() == 0 && compare(before.tensors(), change.from()).wrong == 0;
}

}  // namespace detail

/// One process's part; `start` is when it was started, by the clock that all share.
template <typename Endpoint>
void switch_given(otherwise what, bool odd, Endpoint& here, double start, left_behind& left) {
  using namespace reshard;
  left.began = start;
  const auto given = [&](otherwise w) { return odd && what == w; };
  if (what == otherwise::shards) {
    const char* second = odd ? "c" : "b";
    detail::attempt_and_say(layout_switch(detail::two_matrices(second, 0), detail::two_matrices(second, 4),
                                          {.states = adam.named("param")}),
                            {}, here, left);
  } else {
    const model m = tiny(8);
    const space from(m, parse_degrees(given(otherwise::from)  ? "pp=2,dp=4,zero=1"
                                      : given(otherwise::vpp) ? "tp=2,pp=2,vpp=2,dp=2,zero=1"
                                                              : "tp=2,pp=2,dp=2,zero=1")),
        to(m, parse_degrees(given(otherwise::to) ? "tp=2,dp=4,zero=1" : "dp=8,zero=1"));
    placement placed;
    if (given(otherwise::placement)) placed.to = device_map({0, 1, 2, 3, 4, 5, 7, 6});
    if (given(otherwise::states))
      placed.list = state_list::parse("param:bf16:3,master:fp32:1,exp_avg_sq:fp32:1,exp_avg:fp32:1");
    switch_options options{.budget = given(otherwise::budget) ? 3_MiB : 2_MiB};
    if (what == otherwise::use) options = {.after_use = odd ? sources::keep : sources::release};
    detail::attempt_and_say(layout_switch(from, to, placed), options, here, left);
  }
  here.all_reduce_max(0);  // the world goes on
  left.reached = 1;
}

/// What all of them left behind. Not one of the others needs to be told who is right: two are named, one is `odd`.
inline void check_given(otherwise what, reshard::rank_t odd, const std::vector<left_behind>& all) {
  double last_start = 0;
  for (const left_behind& left : all) last_start = std::max(last_start, left.began);
  REQUIRE(last_start > 0);
  const char* words = what == otherwise::budget      ? "a budget of 3145728 bytes"
                      : what == otherwise::use       ? "sources that are kept"
                      : what == otherwise::states    ? "exp_avg_sq:fp32:1,"
                      : what == otherwise::shards    ? "tensor 1 as c of"
                      : what == otherwise::placement ? ", TO on 0-5,7,6 of 8"
                      : what == otherwise::vpp       ? "FROM as 'tp=2,pp=2,vpp=2,dp=2,zero=1' and"
                      : what == otherwise::from      ? "FROM as 'pp=2,dp=4,zero=1' and"
                                                     : "TO as 'tp=2,dp=4,zero=1'";
  for (const left_behind& left : all) {
    const std::string sentence = left.sentence;
    CAPTURE(sentence);
    CHECK(left.untouched == 1);
    CHECK(left.reached == 1);
    CHECK(sentence.starts_with("reshard: "));
    CHECK(sentence.find("device " + std::to_string(odd)) != sentence.npos);
    CHECK(sentence.find(words) != sentence.npos);
    CHECK(left.seconds - last_start < 20);  // a third of their patience: nobody waits for one who will not come
  }
}

}  // namespace testing
