// SPDX-License-Identifier: Apache-2.0
// A mixture of experts goes from a Megatron job to an FSDP2 job that calls its tensors by Hugging Face's names, and
// back, in memory; what came back is compared with what left.
#include <atomic>
#include <cstdio>

#include <reshard/switching.hpp>
#include <reshard/testing.hpp>

using namespace reshard;

int main() {
  const model m = make_transformer({.name = "small-moe",
                                    .layers = 4,
                                    .hidden = 256,
                                    .heads = 8,
                                    .groups = 4,
                                    .head_dim = 32,
                                    .vocabulary = 4096,
                                    .experts = 8,
                                    .expert_ffn = 192});
  const space megatron(m, config<tp<2>, pp<2>, dp<2>, ep<4>, zero<1>>{});
  const space fsdp(m, config<tp<2>, dp<4>, ep<4>, zero<3>, shard_as<shard_by::rows>, names_are<names_as::hf>>{});
  const layout_switch there(megatron, fsdp), back(fsdp, megatron);
  const known_values values{7};
  std::atomic<index_t> wrong = 0;

  thread_group world(there.devices());
  world.run([&](auto& here) {
    rank_storage trained(there.from(), here.device(), "trainer");
    fill(trained.tensors(), there.from(), values);
    rank_storage sharded(there.to(), here.device(), "fsdp");
    const switch_report report = switch_state(there, trained.tensors(), sharded.tensors(), here);
    wrong += compare(sharded.tensors(), there.to(), values).wrong;
    rank_storage again(back.to(), here.device(), "trainer again");
    switch_state(back, sharded.tensors(), again.tensors(), here);
    wrong += compare(again.tensors(), back.to(), values).wrong;
    if (here.device() == 0) std::puts(to_text(report).c_str());
  });
  std::printf("%lld elements are wrong\n", static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
