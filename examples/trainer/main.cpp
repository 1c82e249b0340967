// SPDX-License-Identifier: Apache-2.0
// A small decoder, of Llama's kind, learns a language on eight devices, on six, on seven, each time under another
// layout, and on one that never changes: the losses are the same, to the last bit. tools/train asks for more.
#include <cstdio>
#include <cstring>
#include <thread>

#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/reshard.hpp>

#include "change.hpp"
#include "threads.hpp"

using namespace trainer;

namespace {

/// A model that reshard knows by its sizes; another one is other numbers here.
const model small = make_transformer({.name = "small",
                                      .layers = 6,
                                      .hidden = 96,
                                      .heads = 12,
                                      .groups = 6,
                                      .head_dim = 8,
                                      .ffn = 288,
                                      .vocabulary = 264});

constexpr index_t batch = 24, length = 32;  // samples a step, and tokens a sample

/// A layout from a step on.
phase phase_at(index_t step, const char* text, const std::vector<rank_t>& devices) {
  return {step, text, space(small, parse_degrees(text)), devices};
}

/// Trains on a thread for each device; the losses, and the digests of the last state.
std::pair<std::vector<double>, digests> train(const std::vector<phase>& phases, index_t steps) {
  const settings how{.total = 120};
  const job all{.z = sizes_of(small, batch, length),
                .set = how,
                .data = dataset(how.seed, length),
                .phases = phases,
                .steps = steps,
                .bad = {}};
  for (const phase& p : phases) require_trainable(p.layout, all.z);
  std::pair<std::vector<double>, digests> result;
  const listener told{.step = [&](const step_report& r) { result.first.push_back(r.of.loss); },
                      .change =
                          [](const change_report& r) {
                            std::printf("before step %lld: %s -> %s, %lld bytes moved, digests %s\n",
                                        static_cast<long long>(r.step), r.from.c_str(), r.to.c_str(),
                                        static_cast<long long>(r.moved), r.before == r.after ? "equal" : "DIFFERENT");
                          },
                      .end = [&](const end_report& r) { result.second = r.digest; }};
  thread_hub hub(all.devices());
  std::vector<std::thread> devices;
  for (rank_t d = 0; d < all.devices(); ++d)
    devices.emplace_back([&, d] {
      try {
        const std::unique_ptr<world> here = hub.at(d);
        run_device(all, *here, told);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "device %lld: %s\n", static_cast<long long>(d), e.what());
      }
    });
  for (std::thread& t : devices) t.join();
  return result;
}

}  // namespace

int main() {
  constexpr index_t steps = 8;
  const auto changing =
      train({phase_at(0, "tp=2,pp=2,dp=2,zero=1", {0, 1, 2, 3, 4, 5, 6, 7}),
             phase_at(2, "tp=3,pp=2,zero=1", {1, 2, 3, 4, 5, 6}), phase_at(4, "dp=7,zero=1", {6, 5, 4, 3, 2, 1, 0}),
             phase_at(6, "tp=2,dp=4", {0, 1, 2, 3, 4, 5, 6, 7})},
            steps);
  const auto alone = train({phase_at(0, "", {0})}, steps);
  std::size_t same = 0;
  for (std::size_t i = 0; i < changing.first.size() && i < alone.first.size(); ++i)
    same += std::memcmp(&changing.first[i], &alone.first[i], sizeof(double)) == 0 ? 1 : 0;
  const bool all = same == steps && changing.second == alone.second;
  std::printf("%zu of %lld losses have the same bits, and the states %s\n", same, static_cast<long long>(steps),
              changing.second == alone.second ? "too" : "DIFFER");
  return all ? 0 : 1;
}
