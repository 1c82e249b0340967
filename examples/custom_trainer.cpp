// SPDX-License-Identifier: Apache-2.0
// A trainer with arrays of its own, a vector per parameter and flat buffers for the optimizer as Megatron-LM has them,
// goes from four ranks (tp=2, dp=2, ZeRO-1) to three pipeline stages, in memory, each device within a budget.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <reshard/switching.hpp>
#include <reshard/testing.hpp>

using namespace reshard;

namespace {
/// A vector's elements are not zeroed when it is made, so that a page of it takes memory once it is written, not
/// before.
template <typename T>
struct unwritten : std::allocator<T> {
  using value_type = T;
  unwritten() = default;
  template <typename U>
  unwritten(const unwritten<U>&) {}
  void construct(T* at) { ::new (at) T; }
};

/// The state of one rank, as this trainer keeps it, by names of its own: nothing in here is the library's.
using trainer = std::map<std::string, std::vector<std::byte, unwritten<std::byte>>>;

/// Tells the library where a rank's arrays lie, and that their pages may go once nobody reads them any more.
binding bind(const computed_holding& layout, rank_t rank, trainer& mine, pages_are at_first) {
  binding tensors = bind_rank(layout, rank, "rank " + std::to_string(rank), [&](const rank_array& a) {
    auto& array = mine[array_name(layout, a)];
    array.resize(a.bytes());
    return memory(array);
  });
  for (auto& [name, array] : mine)
    tensors.own(array, at_first, [](std::byte* begin, bytes_t bytes) { ::madvise(begin, bytes, MADV_DONTNEED); });
  return tensors;
}
}  // namespace

int main() {
  const model m = make_transformer({.name = "small",
                                    .layers = 6,
                                    .hidden = 512,
                                    .heads = 8,
                                    .groups = 4,
                                    .head_dim = 64,
                                    .ffn = 1536,
                                    .vocabulary = 8192});
  const layout_switch change(space(m, config{tp{2}, dp{2}, zero<1>{}}), space(m, config{pp{3}, zero<1>{}}));
  std::atomic<bool> good = true;

  thread_group world(change.devices());
  world.run([&](auto& here) {  // on a thread per device; device 3 has no rank afterwards, and nothing to bind
    trainer old_state, new_state;
    binding before = bind(change.from(), change.from_rank(here.device()), old_state, pages_are::committed);
    binding after = bind(change.to(), change.to_rank(here.device()), new_state, pages_are::reserved);
    fill(before, change.from());  // known values, in place of training

    const switch_report report = switch_state(change, before, after, here, {.budget = 24_MiB});

    std::puts(to_text(report).c_str());
    if (compare(after, change.to()).wrong != 0 || report.memory.excess() > 24_MiB) good = false;
  });
  return good ? 0 : 1;
}
