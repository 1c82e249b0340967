// SPDX-License-Identifier: Apache-2.0
// What a loader asks: one position of an order over 10^12 elements, one token's document among 10^8, and the offset map
// of a file. Ratios are of what it would do otherwise: read a number of a stored permutation, search by halving, and
// only read the file; seconds are of the processor.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <reshard/job/build_offset_map.hpp>
#include <reshard/job/order.hpp>

using namespace reshard;

namespace {

namespace fs = std::filesystem;

/// This program's own seconds of a processor, the kernel's for it among them: other work on the machine is not counted.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
double seconds_since(double start) { return now() - start; }

/// Files of this program, gone at its end.
struct scratch {
  fs::path folder;
  scratch() {
    std::string name = (fs::temp_directory_path() / "reshard-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder = name;
  }
  ~scratch() { fs::remove_all(folder); }
};
const fs::path& folder() {
  static const scratch only;
  return only.folder;
}

/// A file of so many lines, of 1 to 2 `mean` - 1 bytes each.
std::string lines(std::int64_t count, std::int64_t mean) {
  const fs::path path = folder() / ("lines-" + std::to_string(count) + "-" + std::to_string(mean));
  if (fs::exists(path)) return path.string();
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  std::mt19937_64 random(20261121);
  std::string buffer;
  for (std::int64_t i = 0; i < count; ++i) {
    buffer.append(random() % static_cast<std::uint64_t>(2 * mean - 1), 'x');
    buffer += '\n';
    if (buffer.size() < (1 << 20) && i + 1 < count) continue;
    if (std::fwrite(buffer.data(), 1, buffer.size(), file) != buffer.size()) std::abort();
    buffer.clear();
  }
  std::fclose(file);
  return path.string();
}

/// Reads a file by the builder's means, and does nothing else.
double seconds_of_reading(const std::string& path) {
  const auto start = now();
  const detail::file_handle file(path, O_RDONLY);
  static std::vector<char> buffer(1 << 17);
  for (off_t at = 0; at < file.bytes();) {
    const ssize_t got = ::pread(file.number(), buffer.data(), buffer.size(), at);
    if (got <= 0) std::abort();
    benchmark::DoNotOptimize(buffer.data());
    at += got;
  }
  return seconds_since(start);
}

/// The order of a pass is made anew for each position, as where ranks change passes.
void one_position(benchmark::State& state) {
  const index_t size = state.range(0);
  std::mt19937_64 random(1);
  std::vector<index_t> asked(1 << 12);
  for (index_t& p : asked) p = static_cast<index_t>(random() % static_cast<std::uint64_t>(4 * size));
  std::size_t i = 0;
  const auto start = now();
  for (auto _ : state) benchmark::DoNotOptimize(sample_set{size, 7}.element(asked[i++ % asked.size()]));
  const double each = seconds_since(start) / static_cast<double>(state.iterations());
  // a stored permutation: one of 2^26 numbers stands for it, which caches do not hold either
  static const std::vector<index_t> stored(std::size_t{1} << 26, 1);
  index_t at = 0;
  const auto reading = now();
  for (int n = 0; n < 1 << 16; ++n) at += stored[(random() + static_cast<std::uint64_t>(at)) % stored.size()];
  benchmark::DoNotOptimize(at);
  state.counters["ratio"] = each / (seconds_since(reading) / (1 << 16));
}
BENCHMARK(one_position)->Arg(1'000)->Arg(1'000'000'000'000);

void one_document(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  const std::string map_name = (folder() / ("map-" + std::to_string(count))).string();
  if (!fs::exists(map_name)) {
    const std::string source = lines(count, 8);
    build_offset_map(source, map_name);
    fs::remove(source);
  }
  const offset_map map(map_name);
  std::mt19937_64 random(2);
  std::vector<index_t> asked(1 << 20);
  for (index_t& t : asked) t = static_cast<index_t>(random() % static_cast<std::uint64_t>(map.tokens()));
  std::size_t i = 0;
  const auto start = now();
  for (auto _ : state) benchmark::DoNotOptimize(map.find(asked[i++ % asked.size()]));
  const double each = seconds_since(start) / static_cast<double>(state.iterations());
  const auto halving = now();
  for (int n = 0; n < 1 << 14; ++n) {
    index_t low = 0, high = map.count() - 1;
    while (low < high) {
      const index_t middle = low + (high - low) / 2;
      if (map.tokens_of(middle).end <= asked[(i + static_cast<std::size_t>(n)) % asked.size()]) low = middle + 1;
      else high = middle;
    }
    benchmark::DoNotOptimize(low);
  }
  state.counters["ratio"] = each / (seconds_since(halving) / (1 << 14));
  state.counters["bytes_a_document"] = static_cast<double>(fs::file_size(map_name)) / static_cast<double>(map.count());
}
BENCHMARK(one_document)->Arg(100'000)->Arg(100'000'000);

/// A file in the page cache, so that nothing of it is the disk's; lines of the second argument's mean length.
void build(benchmark::State& state) {
  const std::int64_t mean = state.range(1);
  const std::string source = lines(state.range(0) / mean, mean), map_name = (folder() / "built").string();
  double building = 0, reading = 0;
  seconds_of_reading(source);
  for (auto _ : state) {
    reading += seconds_of_reading(source);
    const auto start = now();
    build_offset_map(source, map_name);
    building += seconds_since(start);
  }
  fs::remove(map_name);
  state.counters["ratio"] = building / reading;
}
BENCHMARK(build)
    ->Args({1 << 24, 1000})
    ->Args({1'000'000'000, 1000})
    ->Args({1'000'000'000, 100})
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
