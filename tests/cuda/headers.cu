// SPDX-License-Identifier: Apache-2.0
// A trainer that is one .cu: every header that a CUDA compiler meets (all.cuh has them, without io/ and MPI's), layouts
// checked while it compiles, and a switch of two ranks on the host.
#include "all.cuh"

#include <cstdio>
#include <string>

using namespace reshard;

namespace {

constexpr auto before = space(models::llama2_70b, config<tp<4>, pp<8>, dp<2>, zero<1>>{});
constexpr auto after = space(models::llama2_70b, config<tp<8>, pp<16>, zero<1>>{});
static_assert(covers(before) && covers(after));
static_assert(max_bytes_per_rank(after) <= 80'000'000'000);
static_assert(moved_bytes(before, after) <= 960'000'000'000);
static_assert(moved_bytes(before, after) > 0);
static_assert(max_bytes_per_rank(space_of<models::qwen3_30b_a3b, config<tp<2>, pp<4>, dp<2>, ep<4>, etp<1>>>) > 0);

/// Two ranks in tensor parallelism become two in data parallelism: elements that are wrong afterwards.
template <typename World>
index_t wrong_after_a_switch() {
  const model m = make_transformer({.name = "tiny",
                                    .layers = 2,
                                    .hidden = 64,
                                    .heads = 4,
                                    .groups = 2,
                                    .head_dim = 16,
                                    .ffn = 96,
                                    .vocabulary = 128});
  const layout_switch change(space(m, config{tp{2}, zero<1>{}}), space(m, config{dp{2}, zero<1>{}}));
  index_t wrong[2] = {-1, -1};
  World world(change.devices());
  world.run([&](auto& here) {
    const rank_t device = here.device();
    rank_storage held(change.from(), change.from_rank(device), "before", pages_are::committed),
        wanted(change.to(), change.to_rank(device), "after");
    fill(held.tensors(), change.from());
    switch_state(change, held.tensors(), wanted.tensors(), here, {});
    wrong[device] = compare(wanted.tensors(), change.to()).wrong;
  });
  return wrong[0] + wrong[1];
}

/// The refusal of a product that leaves 64 bits, which nvcc computes in its own way.
std::string refused_product(index_t a, index_t b) {
  try {
    return std::to_string(checked_multiply(a, b));
  } catch (const refusal& e) {
    return e.what();
  }
}

}  // namespace

int main() {
  constexpr index_t most = 0x7fffffffffffffff;
  int failed = 0;
  const auto check = [&](bool holds, const char* what) {
    if (!holds) std::printf("failed: %s\n", what);
    failed += holds ? 0 : 1;
  };
  check(wrong_after_a_switch<thread_group>() == 0, "a switch over threads");
  check(wrong_after_a_switch<mailbox_group>() == 0, "a switch by messages");
  check(refused_product(most, 2) == "reshard: 9223372036854775807 x 2 does not fit 64 bits", "a product past 64 bits");
  check(refused_product(-most - 1, -1) == "reshard: -9223372036854775808 x -1 does not fit 64 bits", "-2^63 x -1");
  check(refused_product(-most - 1, 1) == "-9223372036854775808", "-2^63 x 1");
  check(refused_product(most / 7, -7) == std::to_string(most / 7 * -7), "a product that fits");
  std::printf("%d passed, %d failed\n", 6 - failed, failed);
  return failed;
}
