// SPDX-License-Identifier: Apache-2.0
// Planning one rank of Qwen3-235B; every ratio is of two times in the same run.
// one_rank: parameters, dp scaled with the world. `ratio` is the time of the scan over all ranks, which arithmetic
// owners replace, over the plan's. in_buckets: all states under ZeRO-1 with Megatron's buckets, argument: elements of a
// bucket. `ratio` is the plan's time over that of the same switch without buckets; as transfers multiply,
// `us_per_transfer` shows whether each still costs the same. over_sorting: one plan of a switch that is made already,
// over writing the same transfers from a shuffled copy and sorting them, the least that any planner does. `ratio` is of
// the best of many times each, taken by turns; `us` is the plan's. lost_devices: a plan of a
// switch that lost eight of 16,384 ranks over that of the same switch with all of them, and by how much it has more
// transfers: 504 holders share with 64 destinations in other parts than 512. `ratio` is the time of one transfer.
// relayed: one device's plan with relay, from nothing, over writing and sorting its own transfers; of some devices the
// one with the greatest ratio. `spaces_us` is what making both spaces and the switch takes beside it, and `messages`
// the most that one of the devices sends or receives in a stage. over_any: a plan over any_holding over that of the
// same switch by its own types, also with relay and from a list of shards. `ratio` is of the best of many times each,
// taken by turns.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay.hpp>

using namespace reshard;

namespace {

degrees from_of(index_t world) {
  return parse_degrees("tp=4,pp=8,ep=16,split=account,dp=" + std::to_string(world / 32));
}
degrees to_of(index_t world) {
  return parse_degrees("tp=8,pp=16,ep=8,split=account,dp=" + std::to_string(world / 128));
}

double seconds_of_scan(index_t world, rank_t device) {
  const space a(models::qwen3_235b_a22b, from_of(world)), b(models::qwen3_235b_a22b, to_of(world));
  const computed_holding before(a, parameter_states), after(b, parameter_states);
  const auto start = std::chrono::steady_clock::now();
  index_t met = 0;
  each_held(after, device, role::parameter, [&](int f, const family_box& target) {
    for (rank_t r = 0; r < a.ranks(); ++r)
      before.held(f, r, role::parameter,
                  [&](int, const family_box& source) { met += intersects(source, target) ? 1 : 0; });
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
    benchmark::DoNotOptimize(make_plan(layout_switch(a, b, {.states = parameter_states}), 77));
  }
  const double plan = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                      static_cast<double>(state.iterations());
  state.counters["ratio"] = seconds_of_scan(world, 77) / plan;
}
BENCHMARK(one_rank)->Arg(128)->Arg(1024)->Arg(16384)->Unit(benchmark::kMicrosecond);

struct timed_plan {
  double seconds = 0;
  std::size_t transfers = 0;
};

timed_plan plan_in_buckets(const std::string& bucket) {
  const degrees from = parse_degrees("tp=4,dp=32,zero=1" + bucket), to = parse_degrees("tp=4,dp=16,zero=1" + bucket);
  const auto start = std::chrono::steady_clock::now();
  const space a(models::qwen3_235b_a22b, from), b(models::qwen3_235b_a22b, to);
  const plan p = make_plan(layout_switch(a, b), 5);
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          p.sends.size() + p.receives.size() + p.retains.size()};
}

void in_buckets(benchmark::State& state) {
  const std::string bucket = ",bucket=" + std::to_string(state.range(0));
  std::vector<double> with, without;
  std::size_t transfers = 0;
  for (auto _ : state) {
    const timed_plan cut = plan_in_buckets(bucket);
    with.push_back(cut.seconds);
    transfers = cut.transfers;
    state.PauseTiming();
    without.push_back(plan_in_buckets("").seconds);
    state.ResumeTiming();
  }
  const auto median = [](std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  };
  state.counters["ratio"] = median(with) / median(without);
  state.counters["transfers"] = static_cast<double>(transfers);
  state.counters["us_per_transfer"] = median(with) * 1e6 / static_cast<double>(transfers);
}
BENCHMARK(in_buckets)
    ->Arg(1'000'000'000'000)
    ->Arg(100'000'000)
    ->Arg(10'000'000)
    ->Arg(1'000'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMicrosecond);

double seconds_of(const auto& call) {
  const auto begun = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

void over_sorting(benchmark::State& state, const model& m, const char* from, const char* to, state_set states,
                  rank_t device) {
  const layout_switch change(space(m, parse_degrees(from)), space(m, parse_degrees(to)), {.states = states});
  const plan p = make_plan(change, device);
  std::vector<transfer> shuffled[] = {p.sends, p.receives, p.retains};
  for (std::vector<transfer>& list : shuffled) std::shuffle(list.begin(), list.end(), std::mt19937(1));
  const std::size_t transfers = p.sends.size() + p.receives.size() + p.retains.size();
  const int calls = transfers > 1000 ? 20 : 2000;
  const auto plan_it = [&] { benchmark::DoNotOptimize(make_plan(change, device)); };
  const auto write_and_sort = [&] {
    for (const std::vector<transfer>& list : shuffled) {
      std::vector<transfer> written;
      for (const transfer& t : list) written.push_back(t);
      std::sort(written.begin(), written.end(), [](const transfer& a, const transfer& b) { return precedes(a, b); });
      benchmark::DoNotOptimize(written.data());
    }
  };
  double planning = 1e9, sorting = 1e9;
  for (auto _ : state) {
    for (int round = 0; round < 20; ++round) {  // by turns, as the machine is not equally fast all the time
      for (int i = 0; i < calls / 20; ++i) planning = std::min(planning, seconds_of(plan_it));
      for (int i = 0; i < calls / 20; ++i) sorting = std::min(sorting, seconds_of(write_and_sort));
    }
  }
  state.counters["ratio"] = planning / sorting;
  state.counters["us"] = planning * 1e6;
  state.counters["transfers"] = static_cast<double>(transfers);
}
#define RESHARD_OVER_SORTING_OF(name, ...) \
  BENCHMARK_CAPTURE(over_sorting, name, __VA_ARGS__)->Iterations(1)->Unit(benchmark::kMillisecond)
#define RESHARD_OVER_SORTING(name, ...) RESHARD_OVER_SORTING_OF(name, models::qwen3_235b_a22b, __VA_ARGS__)
RESHARD_OVER_SORTING(parameters, "tp=4,pp=8,dp=4,ep=16,split=account", "tp=8,pp=16,dp=1,ep=8,split=account",
                     parameter_states, 77);
RESHARD_OVER_SORTING(zero1, "tp=4,pp=8,dp=4,ep=16,split=account,zero=1", "tp=8,pp=16,dp=1,ep=8,split=account,zero=1",
                     optimizer_states, 77);
RESHARD_OVER_SORTING(to_one_stage, "tp=4,pp=8,dp=4,ep=16,split=account", "tp=8,pp=1,dp=16,ep=8,split=account",
                     parameter_states, 77);
RESHARD_OVER_SORTING(ranks_16384, "tp=4,pp=8,dp=512,ep=16,split=account", "tp=8,pp=16,dp=128,ep=8,split=account",
                     parameter_states, 77);
RESHARD_OVER_SORTING(buckets, "tp=4,dp=32,zero=1,bucket=1000000", "tp=4,dp=16,zero=1,bucket=1000000", optimizer_states,
                     5);
// DeepSeek-V3 on 2,048 ranks: a layout string with the prediction layer in a chunk of its own, to uneven ends.
constexpr const char* deepseek_from = "pp=16,dp=128,ep=64,zero=1,string=Et*3|(tt|)*29m|L";
constexpr const char* deepseek_to = "pp=8,dp=256,ep=32,zero=1,first=7,last=6";
RESHARD_OVER_SORTING_OF(deepseek_parameters, models::deepseek_v3, deepseek_from, deepseek_to, parameter_states, 777);
RESHARD_OVER_SORTING_OF(deepseek_all_states, models::deepseek_v3, deepseek_from, deepseek_to, all_states, 777);
RESHARD_OVER_SORTING_OF(megatron_to_rows, models::qwen3_235b_a22b, "tp=4,pp=8,dp=4,ep=16,split=account,zero=1",
                        "tp=2,dp=64,ep=16,zero=3,shard=rows,names=hf", all_states, 77);

/// TO sits beside the lost: what its device 2125 receives comes from stage 0, whose ranks are 0 to 2047.
void lost_devices(benchmark::State& state, const char* zero, state_set states, std::vector<rank_t> lost) {
  const space from(models::qwen3_235b_a22b, parse_degrees(std::string("tp=4,pp=8,dp=512,ep=16,split=account") + zero));
  const space to(models::qwen3_235b_a22b, parse_degrees(std::string("tp=8,pp=16,dp=64,ep=8,split=account") + zero));
  std::vector<rank_t> devices(static_cast<std::size_t>(to.ranks()));
  std::iota(devices.begin(), devices.end(), 2048);
  const device_map seats(devices);
  const layout_switch all(from, to, {.to = seats, .states = states});
  const layout_switch rest(from, to,
                           {.to = seats, .states = states, .lost = lost, .lost_elements = when_lost::leave_out});
  const auto transfers = [](const plan& p) {
    return static_cast<double>(p.sends.size() + p.receives.size() + p.retains.size());
  };
  double with = 1e9, without = 1e9;
  for (auto _ : state)
    for (int i = 0; i < 2000; ++i) {  // by turns, as the machine is not equally fast all the time
      with = std::min(with, seconds_of([&] { benchmark::DoNotOptimize(make_plan(rest, 2125)); }));
      without = std::min(without, seconds_of([&] { benchmark::DoNotOptimize(make_plan(all, 2125)); }));
    }
  const double more = transfers(make_plan(rest, 2125)) / transfers(make_plan(all, 2125));
  state.counters["ratio"] = with / without;
  state.counters["ratio_a_transfer"] = with / without / more;
  state.counters["times_the_transfers"] = more;
  state.counters["us"] = with * 1e6;
}
#define RESHARD_LOST_DEVICES(name, zero, states, ...)                                   \
  BENCHMARK_CAPTURE(lost_devices, name, zero, states, std::vector<rank_t>{__VA_ARGS__}) \
      ->Iterations(1)                                                                   \
      ->Unit(benchmark::kMillisecond)
// a node; one of each of eight nodes; those that hold what the device receives, side by side in its data-parallel group
RESHARD_LOST_DEVICES(parameters_node, "", parameter_states, 8, 9, 10, 11, 12, 13, 14, 15);
RESHARD_LOST_DEVICES(parameters_scattered, "", parameter_states, 1, 202, 403, 604, 805, 1006, 1207, 1408);
RESHARD_LOST_DEVICES(parameters_holders, "", parameter_states, 2, 6, 10, 14, 18, 22, 26, 30);
RESHARD_LOST_DEVICES(zero1_node, ",zero=1", optimizer_states, 8, 9, 10, 11, 12, 13, 14, 15);
RESHARD_LOST_DEVICES(zero1_scattered, ",zero=1", optimizer_states, 1, 202, 403, 604, 805, 1006, 1207, 1408);
RESHARD_LOST_DEVICES(zero1_holders, ",zero=1", optimizer_states, 2, 6, 10, 14, 18, 22, 26, 30);

struct relayed_row {
  double ratio = 0, us = 0, transfers = 0, spaces_us = 0;
  index_t messages = 0;
};

/// The most that a device exchanges with others in one stage, each direction.
index_t messages_of(const plan& p) {
  index_t most = 0;
  for (const std::vector<transfer>* list : {&p.sends, &p.receives}) {
    index_t messages = 0;
    for (std::size_t i = 0; i < list->size(); ++i) {
      const transfer &t = (*list)[i], &before = (*list)[i == 0 ? 0 : i - 1];
      messages += i == 0 || t.src != before.src || t.dst != before.dst || t.phase != before.phase ? 1 : 0;
    }
    most = greatest(most, messages);
  }
  return most;
}

void relayed(benchmark::State& state, const model& m, const char* from, const char* to, state_set states, index_t gpus,
             index_t chains, rank_t every) {
  const auto make = [&] {
    return layout_switch(space(m, parse_degrees(from)), space(m, parse_degrees(to)),
                         {.on = nodes_of(gpus), .states = states});
  };
  const auto change = make();
  const routing how{relay::always, chains, 1};
  relayed_row worst;
  for (auto _ : state)
    for (rank_t device = 0; device < change.devices(); device += every) {
      const plan p = make_plan(change, device, how);
      std::vector<transfer> shuffled[] = {p.sends, p.receives, p.retains};
      for (std::vector<transfer>& list : shuffled) std::shuffle(list.begin(), list.end(), std::mt19937(1));
      double planning = 1e9, sorting = 1e9, making = 1e9;
      for (int i = 0; i < 30; ++i) {  // by turns, as the machine is not equally fast all the time
        planning = std::min(planning, seconds_of([&] { benchmark::DoNotOptimize(make_plan(change, device, how)); }));
        sorting = std::min(sorting, seconds_of([&] {
                             for (const std::vector<transfer>& list : shuffled) {
                               std::vector<transfer> written;
                               for (const transfer& t : list) written.push_back(t);
                               std::sort(written.begin(), written.end(),
                                         [](const transfer& a, const transfer& b) { return precedes(a, b); });
                               benchmark::DoNotOptimize(written.data());
                             }
                           }));
      }
      for (int i = 0; i < 3; ++i) making = std::min(making, seconds_of([&] { benchmark::DoNotOptimize(make()); }));
      worst.messages = greatest(worst.messages, messages_of(p));
      if (planning / sorting < worst.ratio) continue;
      worst.ratio = planning / sorting, worst.us = planning * 1e6, worst.spaces_us = making * 1e6;
      worst.transfers = static_cast<double>(p.sends.size() + p.receives.size() + p.retains.size());
    }
  state.counters["ratio"] = worst.ratio;
  state.counters["us"] = worst.us;
  state.counters["spaces_us"] = worst.spaces_us;
  state.counters["transfers"] = worst.transfers;
  state.counters["messages"] = static_cast<double>(worst.messages);
}
#define RESHARD_RELAYED(name, ...) \
  BENCHMARK_CAPTURE(relayed, name, __VA_ARGS__)->Iterations(1)->Unit(benchmark::kMillisecond)
constexpr const char* relayed_from = "tp=4,pp=8,dp=4,ep=16,split=account,zero=1";
constexpr const char* relayed_to = "tp=8,pp=16,dp=1,ep=8,split=account,zero=1";
constexpr const char* large_from = "tp=4,pp=8,dp=512,ep=16,split=account,zero=1";
constexpr const char* large_to = "tp=8,pp=16,dp=128,ep=8,split=account,zero=1";
RESHARD_RELAYED(ranks_128, models::qwen3_235b_a22b, relayed_from, relayed_to, all_states, 8, 1, 1);
RESHARD_RELAYED(ranks_128_nodes_of_72, models::qwen3_235b_a22b, relayed_from, relayed_to, all_states, 72, 1, 1);
RESHARD_RELAYED(ranks_16384, models::qwen3_235b_a22b, large_from, large_to, all_states, 8, 1, 601);
RESHARD_RELAYED(ranks_16384_nodes_of_72, models::qwen3_235b_a22b, large_from, large_to, all_states, 72, 1, 1203);
RESHARD_RELAYED(to_2048_replicas, models::llama2_70b, "tp=8", "tp=8,dp=2048", parameter_states, 8, 4, 601);
RESHARD_RELAYED(to_2048_replicas_one_chain, models::llama2_70b, "tp=8", "tp=8,dp=2048", parameter_states, 8, 1, 601);

/// One device's plan over any_holding, over the template's.
template <Holding From, Holding To>
void over_any(benchmark::State& state, const layout_switch<From, To>& change, rank_t device, const routing& how = {}) {
  const any_switch any(change.from(), change.to(), {.on = change.on(), .states = change.states()});
  double over = 1e9, direct = 1e9;
  const std::size_t transfers = make_plan(change, device, how).receives.size();
  const int calls = transfers > 1000 ? 40 : 1000;
  for (auto _ : state)
    for (int i = 0; i < calls; ++i) {  // by turns, as the machine is not equally fast all the time
      over = std::min(over, seconds_of([&] { benchmark::DoNotOptimize(make_plan(any, device, how)); }));
      direct = std::min(direct, seconds_of([&] { benchmark::DoNotOptimize(make_plan(change, device, how)); }));
    }
  if (make_plan(any, device, how) != make_plan(change, device, how)) state.SkipWithError("the plans differ");
  state.counters["ratio"] = over / direct;
  state.counters["us"] = over * 1e6;
}
layout_switch<computed_holding, computed_holding> between(const model& m, const char* from, const char* to,
                                                          state_set states, index_t gpus = 0) {
  return layout_switch(space(m, parse_degrees(from)), space(m, parse_degrees(to)),
                       {.on = gpus == 0 ? cluster() : nodes_of(gpus), .states = states});
}
/// Rows of one matrix, on so many ranks.
std::vector<shard> rows_on(rank_t ranks) {
  std::vector<shard> shards;
  const index_t each = 9240 / ranks;
  for (rank_t r = 0; r < ranks; ++r) shards.push_back({r, "w", bf16, {9240, 8}, {r * each, 0}, {each, 8}});
  return shards;
}
#define RESHARD_OVER_ANY(name, ...) \
  BENCHMARK_CAPTURE(over_any, name, __VA_ARGS__)->Iterations(1)->Unit(benchmark::kMillisecond)
RESHARD_OVER_ANY(parameters,
                 between(models::qwen3_235b_a22b, "tp=4,pp=8,dp=4,ep=16,split=account",
                         "tp=8,pp=16,dp=1,ep=8,split=account", parameter_states),
                 77);
RESHARD_OVER_ANY(zero1, between(models::qwen3_235b_a22b, relayed_from, relayed_to, optimizer_states), 77);
RESHARD_OVER_ANY(to_one_stage,
                 between(models::qwen3_235b_a22b, "tp=4,pp=8,dp=4,ep=16,split=account",
                         "tp=8,pp=1,dp=16,ep=8,split=account", parameter_states),
                 77);
RESHARD_OVER_ANY(ranks_16384, between(models::qwen3_235b_a22b, large_from, large_to, all_states), 77);
RESHARD_OVER_ANY(buckets,
                 between(models::qwen3_235b_a22b, "tp=4,dp=32,zero=1,bucket=1000000",
                         "tp=4,dp=16,zero=1,bucket=1000000", optimizer_states),
                 5);
RESHARD_OVER_ANY(deepseek_all_states, between(models::deepseek_v3, deepseek_from, deepseek_to, all_states), 777);
RESHARD_OVER_ANY(relayed, between(models::qwen3_235b_a22b, relayed_from, relayed_to, all_states, 8), 77,
                 routing{relay::always, 1, 1});
RESHARD_OVER_ANY(relayed_16384, between(models::qwen3_235b_a22b, large_from, large_to, all_states, 8), 77,
                 routing{relay::always, 1, 1});
RESHARD_OVER_ANY(listed, layout_switch(rows_on(77), rows_on(120)), 7);

/// The region of a rank, and the owners of its boxes, in a world that grows: the set-up is told apart.
void of_a_rank(benchmark::State& state, const char* layout, role r) {
  const model& m = models::qwen3_30b_a3b;
  const std::string text = std::string(layout) + ",dp=" + std::to_string(state.range(0));
  const auto begun = std::chrono::steady_clock::now();
  const computed_holding h(space(m, parse_degrees(text)));
  const std::chrono::duration<double, std::micro> set_up = std::chrono::steady_clock::now() - begun;
  const rank_t rank = h.ranks() / 2 + 1;
  index_t boxes = 0;
  for (auto _ : state) {
    boxes = 0;
    each_shared(h, rank, r, [&](int f, const family_box& b, const rank_product& holders) {
      ++boxes;
      benchmark::DoNotOptimize(holders.count());
      h.owners(f, r, b, [&](const family_box& owned, const rank_product&) { benchmark::DoNotOptimize(&owned); });
    });
  }
  state.counters["boxes"] = static_cast<double>(boxes);
  state.counters["ns_per_box"] = benchmark::Counter(
      static_cast<double>(boxes) * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["set_up_us"] = set_up.count();
}
#define RESHARD_OF_A_RANK(name, ...) \
  BENCHMARK_CAPTURE(of_a_rank, name, __VA_ARGS__)->RangeMultiplier(16)->Range(8, 131072)
RESHARD_OF_A_RANK(whole, "tp=2,pp=4,ep=8", role::parameter);
RESHARD_OF_A_RANK(buffers, "tp=2,pp=4,ep=8,zero=1", role::optimizer);
RESHARD_OF_A_RANK(rows, "tp=2,pp=4,ep=8,zero=3,shard=rows,names=hf", role::parameter);
RESHARD_OF_A_RANK(instances, "tp=2,pp=4,ep=8,zero=1,instances=2", role::optimizer);
RESHARD_OF_A_RANK(ordered, "tp=2,pp=4,cp=2,zero=1,order=tp-dp-cp-pp", role::optimizer);

}  // namespace

BENCHMARK_MAIN();
