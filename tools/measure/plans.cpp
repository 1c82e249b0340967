// SPDX-License-Identifier: Apache-2.0
// measure-plans [--once]: measures planning, one line of JSON per figure, {"figure","value","unit"}. With --once every
// call is made once, which shows that it works and measures little. Every plan is built from nothing but the parsed
// model and layouts: spaces, optimizer buffers, device maps, transfers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../lib/even_split.hpp"

using namespace reshard;

namespace {

int most_calls = 1000;  // of what a median is taken

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}
void print(const char* figure, double value, const char* unit) {
  std::printf("{\"figure\":\"%s\",\"value\":%.4g,\"unit\":\"%s\"}\n", figure, value, unit);
  std::fflush(stdout);
}

struct switch_of_layouts {
  const model& m;
  degrees from;
  degrees to;
  state_set states;

  computed_switch change() const { return layout_switch(space(m, from), space(m, to), {.states = states}); }
  double one_call(rank_t device) const {
    const double start = now_us();
    const plan p = make_plan(change(), device);
    const double took = now_us() - start;
    if (p.sends.empty() && p.receives.empty() && p.retains.empty())
      std::fprintf(stderr, "device %lld has nothing to do\n", static_cast<long long>(device));
    return took;
  }
  double median_of(rank_t device, int calls) const {
    std::vector<double> times;
    for (int i = 0; i < std::min(calls, most_calls); ++i) times.push_back(one_call(device));
    return median(times);
  }
  std::size_t transfers(rank_t device) const {
    const plan p = make_plan(change(), device);
    return p.sends.size() + p.receives.size() + p.retains.size();
  }
  rank_t devices() const { return greatest(from.world(), to.world()); }

  /// The slowest rank by the median of 100 calls; with many ranks, among the 128 that a first round of 5 calls found
  /// slowest.
  double slowest_rank() const {
    std::vector<std::pair<double, rank_t>> first;
    for (rank_t d = 0; d < devices(); ++d) first.push_back({devices() > 128 ? median_of(d, 5) : 0.0, d});
    std::sort(first.rbegin(), first.rend());
    first.resize(static_cast<std::size_t>(least(128, devices())));
    double slowest = 0;
    for (const auto& [unused, device] : first) slowest = std::max(slowest, median_of(device, 100));
    return slowest;
  }

  /// Plans of all devices, the holdings built once inside the time.
  double all_ranks_ms() const {
    std::vector<double> times;
    for (int i = 0; i < std::min(21, most_calls); ++i) {
      const double start = now_us();
      const computed_switch asked = change();
      std::size_t transfers = 0;
      for (rank_t d = 0; d < devices(); ++d) transfers += make_plan(asked, d).receives.size();
      times.push_back((now_us() - start) / 1000.0);
      if (transfers == 0) std::fprintf(stderr, "nothing to plan\n");
    }
    return median(times);
  }
};

/// The alternative that arithmetic owners replace: every rank's boxes are looked at for every box of mine.
double all_pairs_us(const switch_of_layouts& s, rank_t device) {
  const space a(s.m, s.from), b(s.m, s.to);
  const computed_holding before(a, parameter_states), after(b, parameter_states);
  std::vector<double> times;
  index_t met = 0;
  for (int i = 0; i < std::min(11, most_calls); ++i) {
    const double start = now_us();
    each_held(after, device, role::parameter, [&](int f, const family_box& target) {
      for (rank_t r = 0; r < a.ranks(); ++r)
        before.held(f, r, role::parameter,
                    [&](int, const family_box& source) { met += intersects(source, target) ? 1 : 0; });
    });
    times.push_back(now_us() - start);
  }
  return met > 0 ? median(times) : -1.0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--once") most_calls = 1;
  const model& qwen = models::qwen3_235b_a22b;
  const auto with = [](const char* text, bool zero) {
    return parse_degrees(std::string(text) + (zero ? ",zero=1" : ""));
  };
  const char *from = "tp=4,pp=8,dp=4,ep=16,split=account", *to = "tp=8,pp=16,dp=1,ep=8,split=account";
  const char* one_stage = "tp=8,pp=1,dp=16,ep=8,split=account";
  const char *from_16k = "tp=4,pp=8,dp=512,ep=16,split=account", *to_16k = "tp=8,pp=16,dp=128,ep=8,split=account";
  const switch_of_layouts parameters{qwen, with(from, false), with(to, false), parameter_states};
  const switch_of_layouts zero1{qwen, with(from, true), with(to, true), optimizer_states};
  const switch_of_layouts to_one_stage{qwen, with(from, false), with(one_stage, false), parameter_states};
  const switch_of_layouts parameters_16k{qwen, with(from_16k, false), with(to_16k, false), parameter_states};
  const switch_of_layouts zero1_16k{qwen, with(from_16k, true), with(to_16k, true), optimizer_states};
  const switch_of_layouts everything{qwen, with(from, true), with(to, true), all_states};

  parameters.slowest_rank();  // the first calls find a cold machine
  print("plan, one rank of 128, parameters", parameters.slowest_rank(), "us");
  print("plan, one rank of 128, ZeRO-1 optimizer state", zero1.slowest_rank(), "us");
  print("plan, one rank of 128, parameters, to one pipeline stage", to_one_stage.slowest_rank(), "us");
  print("plan, one rank of 16384, parameters", parameters_16k.slowest_rank(), "us");
  print("plan, one rank of 16384, ZeRO-1 optimizer state", zero1_16k.slowest_rank(), "us");
  const switch_of_layouts buckets{qwen, parse_degrees("tp=4,dp=32,zero=1,bucket=1000000"),
                                  parse_degrees("tp=4,dp=16,zero=1,bucket=1000000"), optimizer_states};
  print("plan, one rank of 128, ZeRO-1 in buckets of 1000000, per transfer",
        buckets.median_of(5, 21) / static_cast<double>(buckets.transfers(5)), "us");
  print("plans of all 128 ranks, parameters and ZeRO-1", everything.all_ranks_ms(), "ms");
  print("scan over all ranks instead, one rank of 16384, over the plan",
        all_pairs_us(parameters_16k, 77) / parameters_16k.median_of(77, 100), "x");

  double worst = 0;
  for (const testing::balanced_switch& s : testing::balanced_switches)
    for (const index_t node : {index_t{0}, index_t{8}}) {
      const model m = preset(s.model);
      worst = std::max(worst,
                       testing::balance_ratio(s, node, space(m, parse_degrees(s.from)), space(m, parse_degrees(s.to))));
    }
  print("busiest sender over an even split, worst of the switches", worst, "x");
}
