// SPDX-License-Identifier: Apache-2.0
// What it takes to make one rank of a switch by messages ready: its plan, cut into 64 stages, its messages, arenas and
// copies, of memory that is reserved and not there. Qwen3-235B-A22B with ZeRO-1, on 128 ranks and on 16,384.
// `over_128` is the time of 16,384 ranks over that of 128, each over its pieces or over its messages, whichever is
// more, both measured in one run. (With 128 ranks each has more bytes, so more messages of 512 KiB for a piece.)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/transport/exchange/moves.hpp>

using namespace reshard;

namespace {

/// Of one rank, in the middle of the world.
struct prepared {
  double seconds = 0;
  index_t pieces = 0, messages = 0;
};

space qwen(const std::string& degrees, index_t dp) {
  return space(models::qwen3_235b_a22b, parse_degrees(degrees + ",zero=1,split=account,dp=" + std::to_string(dp)));
}

class one_rank {
 public:
  one_rank(index_t from_dp, index_t to_dp)
      : change_(qwen("tp=4,pp=8,ep=16", from_dp), qwen("tp=8,pp=16,ep=8", to_dp)), rank_(change_.devices() / 2 + 13),
        before_(change_.from(), rank_, "before"), after_(change_.to(), rank_, "after") {}

  prepared again() {
    const auto begun = std::chrono::steady_clock::now();
    const staged_plan plan = stage_plan(make_plan(change_, rank_), change_, 64);
    page_stages pages(after_.tensors(), binding_side::target);
    const exchange_moves moves =
        prepare_exchange(plan, before_.tensors(), after_.tensors(), pages, exchange_as::asynchronous);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    return {took.count(), static_cast<index_t>(plan.sends.size() + plan.receives.size() + plan.retains.size()),
            static_cast<index_t>(moves.in.size() + moves.out.size())};
  }

 private:
  layout_switch<computed_holding, computed_holding> change_;
  rank_t rank_;
  rank_storage before_, after_;
};

void one_rank_ready(benchmark::State& state) {
  one_rank small(4, 1), large(512, 128);
  std::vector<double> times[2];
  prepared last[2];
  for (auto _ : state)
    for (int i = 0; i < 5; ++i)
      for (one_rank* const world : {&small, &large}) {
        const bool is_large = world == &large;
        last[is_large] = world->again();
        times[is_large].push_back(last[is_large].seconds);
      }
  for (std::vector<double>& list : times)
    std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2), list.end());
  const double ratio = times[1][times[1].size() / 2] / times[0][times[0].size() / 2];
  const auto fewer = [&](index_t prepared::*count) {
    return static_cast<double>(last[0].*count) / static_cast<double>(last[1].*count);
  };
  state.counters["over_128"] = ratio * std::max(fewer(&prepared::pieces), fewer(&prepared::messages));
  state.counters["ms"] = times[1][times[1].size() / 2] * 1e3;
  state.counters["pieces"] = static_cast<double>(last[1].pieces);
  state.counters["pieces_128"] = static_cast<double>(last[0].pieces);
  state.counters["messages"] = static_cast<double>(last[1].messages);
  state.counters["messages_128"] = static_cast<double>(last[0].messages);
}
BENCHMARK(one_rank_ready)->Iterations(1)->Repetitions(3)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
