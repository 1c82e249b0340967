// SPDX-License-Identifier: Apache-2.0
// How much of packing and unpacking an exchange hides, and DynaTrain's Table 3: devices as threads over a wire that
// takes time and next to no processor (simulated: tests/support/throttled_wire.hpp), such that the exchange alone takes
// twice as long as all copies. `asynchronous` and `buffered` are a mode's time over that of the exchange alone.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/exchange.hpp>
#include <reshard/transport/threads/rendezvous.hpp>

#include "../../tests/support/throttled_wire.hpp"

using namespace reshard;

namespace {

using seconds = std::chrono::duration<double>;

/// One device's end, and what it does in a mode.
struct end {
  meeting_of_threads meeting;
  testing::throttled_wire wire;
  exchange<meeting_of_threads, testing::throttled_wire> here;
  staged_plan plan;
  binding& from;
  binding& into;
  page_stages pages;
  exchange_moves moves;

  end(rendezvous& all, testing::throttle& shared, const computed_switch& change, rank_t device, index_t stages,
      exchange_as how, binding& old_tensors, binding& new_tensors)
      : meeting(all, device), wire(shared, device), here(meeting, wire, how),
        plan(stage_plan(make_plan(change, device), change, stages)), from(old_tensors), into(new_tensors),
        pages(into, binding_side::target) {
    here.offer(from);
    moves = here.prepare(plan, into, pages);
  }

  void exchange_all() {
    const index_t lag = here.facts().lag;
    for (index_t slot = 0; slot < moves.slots + lag; ++slot) here.move(moves, slot);
    here.await(moves.slots - 1);
  }
  /// Its messages alone, as many rounds on their way as there are arenas.
  void messages_alone() {
    for (std::size_t r = 0; r <= moves.rounds.size(); ++r) {
      if (r < moves.rounds.size()) {
        for (std::size_t i = moves.rounds[r].in_begin; i < moves.rounds[r].in_end; ++i) wire.receive(moves.in[i]);
        for (std::size_t i = moves.rounds[r].out_begin; i < moves.rounds[r].out_end; ++i) wire.send(moves.out[i]);
      }
      if (r > 0) finish(moves.rounds[r - 1]);
    }
  }
  void copies_alone() {
    for (const job_list* list : {&moves.pack, &moves.unpack, &moves.retain})
      for (std::size_t i = 0; i < list->size(); ++i) list->run(i, into);
  }

 private:
  void finish(const exchange_round& r) {
    const auto left = [](const std::vector<message>& list, std::size_t first, std::size_t past) {
      return std::any_of(list.begin() + static_cast<std::ptrdiff_t>(first),
                         list.begin() + static_cast<std::ptrdiff_t>(past), [](const message& m) { return !m.done; });
    };
    while (left(moves.in, r.in_begin, r.in_end) || left(moves.out, r.out_begin, r.out_end))
      wire.poll(std::chrono::milliseconds(1));
  }
};

/// Seconds of the slowest device, all beginning together.
template <typename Body>
double together(rendezvous& all, rank_t device, Body&& body) {
  all.all_reduce_max(device, 0);
  const auto begun = std::chrono::steady_clock::now();
  body();
  const seconds took = std::chrono::steady_clock::now() - begun;
  return static_cast<double>(all.all_reduce_max(device, static_cast<std::int64_t>(took.count() * 1e9))) * 1e-9;
}
double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// A switch in 32 stages over a wire on which the exchange alone takes twice as long as all copies.
struct measured {
  double copies = 0, alone = 0;
  double of_mode[3] = {};  // as exchange_as lists them
  bytes_t bytes = 0;       // that the busiest device sends
  index_t wrong = 0;       // elements that a mode did not bring as they were
};

measured measure(const computed_switch& change, std::chrono::microseconds latency, int runs,
                 const std::vector<exchange_as>& modes) {
  constexpr index_t stages = 32;
  measured result;
  const rank_t devices = change.devices();
  rendezvous all(devices, std::chrono::seconds(60));
  testing::throttle shared(devices, latency);
  all.on_break([&shared] { shared.wake(); });
  std::vector<std::thread> running;
  for (rank_t d = 0; d < devices; ++d)
    running.emplace_back([&, d] {
      rank_storage before(change.from(), d, "before", pages_are::committed),
          after(change.to(), d, "after", pages_are::committed);
      std::vector<std::unique_ptr<end>> ends;
      for (const exchange_as how : modes)
        ends.push_back(std::make_unique<end>(all, shared, change, d, stages, how, before.tensors(), after.tensors()));
      end& last = *ends.back();  // asynchronous
      fill(before.tensors(), change.from(), known_values{});
      std::vector<double> copies, alone;
      std::vector<std::vector<double>> times(ends.size());
      index_t wrong = 0;
      for (const auto& one : ends) {
        fill(after.tensors(), change.to(), known_values{77});
        together(all, d, [&] { one->exchange_all(); });
        wrong += compare(after.tensors(), change.to(), known_values{}).wrong;
      }
      wrong = all.all_reduce_max(d, wrong);
      for (int i = 0; i < runs; ++i) copies.push_back(together(all, d, [&] { last.copies_alone(); }));
      const bytes_t most = all.all_reduce_max(d, last.moves.sent_bytes());
      if (d == 0) shared.set_rate(static_cast<double>(most) / (2 * median(copies)));
      for (int i = 0; i < runs; ++i) {
        alone.push_back(together(all, d, [&] { last.messages_alone(); }));
        for (std::size_t e = 0; e < ends.size(); ++e)
          times[e].push_back(together(all, d, [&] { ends[e]->exchange_all(); }));
      }
      if (d != 0) return;
      result.wrong = wrong;
      result.bytes = most, result.copies = median(copies), result.alone = median(alone);
      for (std::size_t e = 0; e < ends.size(); ++e) result.of_mode[static_cast<int>(modes[e])] = median(times[e]);
    });
  for (std::thread& t : running) t.join();
  return result;
}

/// argument: hidden size
void hidden_behind_the_wire(benchmark::State& state) {
  const index_t hidden = state.range(0);
  const model m = make_transformer({.name = "small",
                                    .layers = 8,
                                    .hidden = hidden,
                                    .heads = 16,
                                    .groups = 16,
                                    .head_dim = hidden / 16,
                                    .ffn = 3 * hidden,
                                    .vocabulary = 32000});
  const layout_switch change(space(m, config{pp{2}}), space(m, config{tp{2}}), {.states = parameter_states});
  measured of;
  for (auto _ : state)
    of = measure(change, std::chrono::microseconds(5), 7, {exchange_as::buffered, exchange_as::asynchronous});
  if (of.wrong > 0) state.SkipWithError("elements are wrong");
  state.counters["asynchronous"] = of.of_mode[static_cast<int>(exchange_as::asynchronous)] / of.alone;
  state.counters["buffered"] = of.of_mode[static_cast<int>(exchange_as::buffered)] / of.alone;
  state.counters["copies"] = of.copies / of.alone;
  state.counters["ms"] = of.alone * 1e3;
  state.counters["MiB"] = static_cast<double>(of.bytes) / (1 << 20);
}
BENCHMARK(hidden_behind_the_wire)
    ->Arg(256)
    ->Arg(512)
    ->Arg(1024)
    ->Iterations(1)
    ->Repetitions(3)
    ->Unit(benchmark::kMillisecond);

/// The first switch of the demo in the three ways of DynaTrain's Table 3, 50 us a message.
void table_3(benchmark::State& state) {
  const model m = make_transformer({.name = "llama-160m",
                                    .layers = 12,
                                    .hidden = 768,
                                    .heads = 12,
                                    .groups = 12,
                                    .head_dim = 64,
                                    .ffn = 3072,
                                    .vocabulary = 32000});
  const layout_switch change(space(m, config{tp{2}, pp{2}, dp{2}, zero{1}}), space(m, config{tp{4}, dp{2}, zero{1}}));
  measured of;
  for (auto _ : state)
    of = measure(change, std::chrono::microseconds(50), 1,
                 {exchange_as::naive, exchange_as::buffered, exchange_as::asynchronous});
  if (of.wrong > 0) state.SkipWithError("elements are wrong");
  const double buffered = of.of_mode[static_cast<int>(exchange_as::buffered)];
  state.counters["naive_over_buffered"] = of.of_mode[static_cast<int>(exchange_as::naive)] / buffered;
  state.counters["buffered_over_asynchronous"] = buffered / of.of_mode[static_cast<int>(exchange_as::asynchronous)];
  state.counters["asynchronous_s"] = of.of_mode[static_cast<int>(exchange_as::asynchronous)];
  state.counters["alone_s"] = of.alone;
  state.counters["copies_s"] = of.copies;
}
BENCHMARK(table_3)->Iterations(1)->Repetitions(3)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
