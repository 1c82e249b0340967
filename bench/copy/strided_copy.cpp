// SPDX-License-Identifier: Apache-2.0
// How fast copy() moves runs that lie apart in the source (gather) or the destination (scatter), by
// run length: GB/s of payload, and the median of the ratios to one memcpy of as many bytes (flat)
// and to one memcpy a run (reference). Every iteration times all three, one after another, so that
// a ratio compares neighbours in time. Builds on: copy/strided_copy.hpp, memory/pages.hpp, Google Benchmark.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "reshard/copy/strided_copy.hpp"
#include "reshard/memory/pages.hpp"

namespace {

using reshard::copy_path;
using reshard::copy_shape;
using reshard::page_range;
using seconds = std::chrono::duration<double>;

enum direction : std::int64_t { gather, scatter };
enum contender : std::size_t { flat, reference, ours, contenders };

/// The time from the first thread's start to the last one's end of work(thread).
template <class Work>
double timed(std::int64_t threads, const Work& work) {
  const auto now = std::chrono::steady_clock::now;
  std::array<decltype(now()), 2> began{}, ended{};
  std::barrier start(static_cast<std::ptrdiff_t>(threads));
  const auto body = [&](std::int64_t t) {
    start.arrive_and_wait();
    began[static_cast<std::size_t>(t)] = now();
    work(t);
    ended[static_cast<std::size_t>(t)] = now();
  };
  if (threads == 1) {
    body(0);
    return seconds(ended[0] - began[0]).count();
  }
  std::thread other(body, 1);
  body(0);
  other.join();
  return seconds(std::max(ended[0], ended[1]) - std::min(began[0], began[1])).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void strided_copy(benchmark::State& state) {
  const std::int64_t way = state.range(0);
  const std::int64_t threads = state.range(1);
  const std::int64_t payload = state.range(2) << 20;
  const std::int64_t run = state.range(3);
  const std::int64_t repeats = std::max<std::int64_t>(1, (std::int64_t{16} << 20) / payload);
  page_range src(2 * payload);
  page_range dst(2 * payload);
  std::memset(src.data(), 1, static_cast<std::size_t>(src.bytes()));
  dst.commit(0, dst.bytes());

  copy_shape shape{1, {payload / threads / run}, {way == gather ? 2 * run : run}, {way == gather ? run : 2 * run}, run};
  const auto move = [&](contender which, std::int64_t thread) {
    std::byte* to = dst.data() + thread * shape.extent[0] * shape.dst_stride[0];
    const std::byte* from = src.data() + thread * shape.extent[0] * shape.src_stride[0];
    for (std::int64_t i = 0; i < repeats; ++i) {
      if (which == flat) std::memcpy(to, from, static_cast<std::size_t>(payload / threads));
      else reshard::copy(to, from, shape, which == ours ? copy_path::automatic : copy_path::reference);
      benchmark::ClobberMemory();
    }
  };

  std::array<std::vector<double>, contenders> took;
  for (auto _ : state) {
    for (const contender which : {flat, reference, ours})
      took[which].push_back(timed(threads, [&](std::int64_t t) { move(which, t); }));
    state.SetIterationTime(took[ours].back() / static_cast<double>(repeats));
  }
  std::array<std::vector<double>, contenders> ratio;
  for (const contender to : {flat, reference})
    for (std::size_t i = 0; i < took[ours].size(); ++i) ratio[to].push_back(took[to][i] / took[ours][i]);
  const auto gigabytes = static_cast<double>(payload * repeats) / 1e9;
  state.counters["GB/s"] = gigabytes / median(took[ours]);
  state.counters["flat_GB/s"] = gigabytes / median(took[flat]);
  state.counters["x_flat"] = median(ratio[flat]);
  state.counters["x_reference"] = median(ratio[reference]);
}

const std::vector<std::int64_t> runs{64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768};

BENCHMARK(strided_copy)
    ->ArgNames({"scatter", "threads", "MiB", "run"})
    ->ArgsProduct({{gather, scatter}, {1, 2}, {64}, runs})
    ->ArgsProduct({{gather, scatter}, {1}, {2}, runs})
    ->UseManualTime()
    ->Iterations(15);

}  // namespace

BENCHMARK_MAIN();
