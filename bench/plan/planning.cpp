// SPDX-License-Identifier: Apache-2.0
// Planning one rank, beside the scan over all ranks that arithmetic owners replace: `ratio` is the scan's time over the plan's,
// measured in the same run. Qwen3-235B, parameters, dp scaled with the world.
#include <benchmark/benchmark.h>

#include <chrono>
#include <string>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse.hpp>
#include <reshard/plan/make_plan.hpp>

using namespace reshard;

namespace {

degrees from_of(index_t world) { return parse_degrees("tp=4,pp=8,ep=16,split=account,dp=" + std::to_string(world / 32)); }
degrees to_of(index_t world) { return parse_degrees("tp=8,pp=16,ep=8,split=account,dp=" + std::to_string(world / 128)); }

double seconds_of_scan(index_t world, rank_t device) {
  const space a(models::qwen3_235b_a22b, from_of(world)), b(models::qwen3_235b_a22b, to_of(world));
  const computed_holding before(a, parameter_states), after(b, parameter_states);
  const auto start = std::chrono::steady_clock::now();
  index_t met = 0;
  after.held(device, role::parameter, [&](int f, const family_box& target) {
    for (rank_t r = 0; r < a.ranks(); ++r)
      before.held(f, r, role::parameter, [&](int, const family_box& source) { met += intersects(source, target) ? 1 : 0; });
  });
  benchmark::DoNotOptimize(met);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void one_rank(benchmark::State& state) {
  const index_t world = state.range(0);
  const degrees from = from_of(world), to = to_of(world);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    const space a(models::qwen3_235b_a22b, from), b(models::qwen3_235b_a22b, to);
    benchmark::DoNotOptimize(make_plan(a, b, 77, placement{device_map(a.ranks()), device_map(b.ranks()), 0, parameter_states}));
  }
  const double plan = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(state.iterations());
  state.counters["ratio"] = seconds_of_scan(world, 77) / plan;
}
BENCHMARK(one_rank)->Arg(128)->Arg(1024)->Arg(16384)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
