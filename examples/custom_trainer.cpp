// SPDX-License-Identifier: Apache-2.0
// A trainer with arrays of its own, a vector per parameter and flat buffers for the optimizer as Megatron-LM has them, goes from
// four ranks (tp=2, dp=2, ZeRO-1) to three pipeline stages, in memory, each device within a budget above the larger of its two sides.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <reshard/exec/fill.hpp>
#include <reshard/exec/switch_state.hpp>
#include <reshard/exec/threads.hpp>
#include <reshard/reshard.hpp>

using namespace reshard;

namespace {
constexpr bytes_t budget = 24_MiB;
std::atomic<bytes_t> given_back = 0;

/// A vector's elements are not zeroed when it is made, so that a page of it takes memory once it is written, not before.
template <typename T>
struct unwritten : std::allocator<T> {
  using value_type = T;
  unwritten() = default;
  template <typename U>
  unwritten(const unwritten<U>&) {}
  void construct(T* at) { ::new (static_cast<void*>(at)) T; }
};

/// The state of one rank, as this trainer keeps it, by names of its own: nothing in here is the library's.
using trainer = std::map<std::string, std::vector<std::byte, unwritten<std::byte>>>;

/// Tells the library where this rank's arrays lie, and that their pages may go once nobody reads them any more.
binding bind(const computed_holding& layout, rank_t rank, trainer& mine, pages_are at_first) {
  binding tensors = bind_rank(layout, rank, "rank " + std::to_string(rank), [&](const rank_array& a) {
    const std::string state(adam_states[a.box.state].name);
    auto& array = a.sharded ? mine[state + " buffer of chunk " + std::to_string(a.chunk)]
                            : mine[state + " of " + tensor_name(layout, a.box.family, a.box.member, a.box.expert)];
    array.resize(static_cast<std::size_t>(a.bytes()));
    return memory{array.data(), a.bytes()};
  });
  for (auto& [name, array] : mine)
    tensors.own({array.data(), static_cast<bytes_t>(array.size())}, at_first, [](std::byte* begin, bytes_t bytes) {
      ::madvise(begin, static_cast<std::size_t>(bytes), MADV_DONTNEED);
      given_back += bytes;
    });
  return tensors;
}
}  // namespace

int main() {
  const model m = make_transformer({.name = "small", .layers = 6, .hidden = 512, .heads = 8, .groups = 4, .head_dim = 64, .ffn = 1536, .vocabulary = 8192});
  const space from(m, config{tp{2}, dp{2}, zero<1>{}}), to(m, config{pp{3}, zero<1>{}});
  const computed_holding before(from), after(to);
  const layout_switch change(before, after);
  std::atomic<bool> good = true;

  threads world(change.devices());
  world.run([&](auto& here) {  // on a thread per device
    const rank_t rank = here.device();
    trainer old_state, new_state;
    binding old_tensors = bind(before, rank, old_state, pages_are::committed), new_tensors;
    if (rank < after.ranks()) new_tensors = bind(after, rank, new_state, pages_are::reserved);  // device 3 holds nothing afterwards
    fill(old_tensors, before);                                                                  // known values, in place of training

    const switch_report report = switch_state(change, old_tensors, new_tensors, here, {.budget = budget});

    const comparison found = compare(new_tensors, after);
    const bytes_t needed = rank < after.ranks() ? held_bytes(after, rank) : 0;
    if (found.wrong != 0 || report.received + report.retained != needed || report.memory.excess() > budget) good = false;
    std::printf("device %d: sent %lld, received %lld, kept %lld bytes in %d stages; peak %lld above max(before, after); %lld elements, %d wrong\n",
                static_cast<int>(rank), static_cast<long long>(report.sent), static_cast<long long>(report.received), static_cast<long long>(report.retained),
                static_cast<int>(report.stages), static_cast<long long>(report.memory.excess()), static_cast<long long>(found.elements), static_cast<int>(found.wrong));
  });
  return good && given_back > 0 ? 0 : 1;
}
