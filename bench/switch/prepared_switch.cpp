// SPDX-License-Identifier: Apache-2.0
// The second and later runs of a prepared switch, 4 devices as threads: weights of two pipeline stages to two replicas
// of tp=2. `ratio` is the time of a run over that of its copies alone: the same strided copies, by as many threads,
// that meet before and after. argument: hidden size. `MiB` is what a run writes.
// demo_copies: the first switch of the demo by its copies alone, without a plan, a stage or a check, over as many bytes
// by one memcpy a device: what a switch of such short rows can reach of memcpy.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/transport/thread_group.hpp>

using namespace reshard;

namespace {

constexpr int runs = 15;

/// The median of the times that `body(run)` takes on the slowest device, all beginning together.
template <typename Endpoint, typename Body>
double median_of_runs(Endpoint& here, Body&& body) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    here.all_reduce_max(0);
    const auto begun = std::chrono::steady_clock::now();
    body();
    const auto took =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun).count();
    times.push_back(static_cast<double>(here.all_reduce_max(took)) * 1e-9);
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[runs / 2];
}

/// The copies that a device receives and retains, as one list.
job_list copies_of(const computed_switch& change, rank_t device, const std::vector<rank_storage>& from,
                   const binding& into) {
  const plan p = make_plan(change, device);
  const staged_plan all = stage_plan(p, change, 1);
  job_list jobs(1);
  for (const std::vector<staged_piece>* list : {&all.receives, &all.retains})
    for (const staged_piece& t : *list)
      for (const int state : t.states)
        into.meet({state, t.tensor, t.where}, [&](const bound_box& target) {
          from[static_cast<std::size_t>(t.src)].tensors().meet(
              target, [&](const bound_box& source) { jobs.add(0, target.narrowed(source.where), source, nullptr); });
        });
  jobs.seal();
  return jobs;
}

void later_runs(benchmark::State& state) {
  const model m = make_transformer({.name = "small",
                                    .layers = 8,
                                    .hidden = state.range(0),
                                    .heads = 16,
                                    .groups = 16,
                                    .head_dim = state.range(0) / 16,
                                    .ffn = 3 * state.range(0),
                                    .vocabulary = 32000});
  const layout_switch change(space(m, config{pp{2}, dp{2}}), space(m, config{tp{2}, dp{2}}),
                             {.states = parameter_states});
  std::vector<rank_storage> before, after;
  for (rank_t device = 0; device < change.devices(); ++device) {
    before.emplace_back(change.from(), device, "before", pages_are::committed);
    after.emplace_back(change.to(), device, "after", pages_are::committed);
  }
  double prepared = 0, alone = 0;
  for (auto _ : state) {
    thread_group world(change.devices());
    world.run([&](auto& here) {
      binding& mine = after[static_cast<std::size_t>(here.device())].tensors();
      prepared_switch again(change, before[static_cast<std::size_t>(here.device())].tensors(), mine, here);
      again.run();
      const job_list jobs = copies_of(change, here.device(), before, mine);
      const double of_copies = median_of_runs(here, [&] {
        for (std::size_t i = jobs.begin(0); i < jobs.end(0); ++i) jobs.run(i, mine);
        here.all_reduce_max(0);
      });
      const double of_runs = median_of_runs(here, [&] { again.run(); });
      if (here.device() == 0) prepared = of_runs, alone = of_copies;
    });
  }
  bytes_t written = 0;
  for (rank_t rank = 0; rank < change.to().ranks(); ++rank) written += held_bytes(change.to(), rank);
  state.counters["ratio"] = prepared / alone;
  state.counters["ms"] = prepared * 1e3;
  state.counters["MiB"] = static_cast<double>(written) / (1 << 20);
}
BENCHMARK(later_runs)->Arg(256)->Arg(512)->Arg(1024)->Iterations(1)->Repetitions(3)->Unit(benchmark::kMillisecond);

void demo_copies(benchmark::State& state) {
  const model m = make_transformer({.name = "llama-160m",
                                    .layers = 12,
                                    .hidden = 768,
                                    .heads = 12,
                                    .groups = 12,
                                    .head_dim = 64,
                                    .ffn = 3072,
                                    .vocabulary = 32000});
  const layout_switch change(space(m, config{tp{2}, pp{2}, dp{2}, zero{1}}), space(m, config{tp{4}, dp{2}, zero{1}}));
  std::vector<rank_storage> before, after;
  for (rank_t device = 0; device < change.devices(); ++device) {
    before.emplace_back(change.from(), device, "before", pages_are::committed);
    after.emplace_back(change.to(), device, "after", pages_are::committed);
  }
  double strided = 0, flat = 0;
  for (auto _ : state) {
    thread_group world(change.devices());
    world.run([&](auto& here) {
      const rank_t device = here.device();
      binding& mine = after[static_cast<std::size_t>(device)].tensors();
      const job_list jobs = copies_of(change, device, before, mine);
      const auto bytes = static_cast<std::size_t>(held_bytes(change.to(), device));
      page_range source(static_cast<bytes_t>(bytes)), target(static_cast<bytes_t>(bytes));
      source.commit(0, source.bytes()), target.commit(0, target.bytes());
      const double of_jobs = median_of_runs(here, [&] {
        for (std::size_t i = jobs.begin(0); i < jobs.end(0); ++i) jobs.run(i, mine);
        here.all_reduce_max(0);
      });
      const double of_memcpy = median_of_runs(here, [&] {
        std::memcpy(target.data(), source.data(), bytes);
        here.all_reduce_max(0);
      });
      if (device == 0) strided = of_jobs, flat = of_memcpy;
    });
  }
  state.counters["of_memcpy"] = flat / strided;
  state.counters["ms"] = strided * 1e3;
}
BENCHMARK(demo_copies)->Iterations(1)->Repetitions(3)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
