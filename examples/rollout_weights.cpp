// SPDX-License-Identifier: Apache-2.0
// Weights go to rollout replicas on other nodes after every training step: how they are routed is chosen once, the
// switch is prepared once, and a run only copies.
#include <atomic>
#include <cstdio>

#include <reshard/reshard.hpp>
#include <reshard/switching.hpp>
#include <reshard/testing.hpp>

using namespace reshard;

int main() {
  const model m = make_transformer({.name = "small",
                                    .layers = 6,
                                    .hidden = 512,
                                    .heads = 8,
                                    .groups = 4,
                                    .head_dim = 64,
                                    .ffn = 1536,
                                    .vocabulary = 8192});
  // trained on a node of four devices; rolled out by four replicas of tp=2 on two other nodes
  const cluster nodes{.gpus = 4, .each = {.nvlink_GBps = 370, .nic_GBps = 49, .copy_GBps = 2600}};
  const layout_switch weights(space(m, config{pp{2}, dp{2}}), space(m, config{tp{2}, dp{4}}),
                              {.to = device_map({4, 5, 6, 7, 8, 9, 10, 11}), .on = nodes, .states = parameter_states});
  const routing route = choose_routing(weights).how;  // relay or not, chains, stages: given to every device alike
  std::atomic<bool> good = true;

  thread_group world(weights.devices());
  world.run([&](auto& here) {
    const rank_t from = weights.from_rank(here.device()), to = weights.to_rank(here.device());
    rank_storage trained = from < 0 ? rank_storage() : rank_storage(weights.from(), from, "trainer");
    rank_storage replica = to < 0 ? rank_storage() : rank_storage(weights.to(), to, "rollout");
    prepared_switch publish(weights, trained.tensors(), replica.tensors(), here, {.route = route});
    for (unsigned step = 1; step <= 5; ++step) {
      fill(trained.tensors(), weights.from(), known_values{step});  // in place of a training step
      publish.run();
      // in place of a rollout
      if (compare(replica.tensors(), weights.to(), known_values{step}).wrong != 0) good = false;
    }
    if (here.device() == 4) std::puts(to_text(publish.report()).c_str());
  });
  return good ? 0 : 1;
}
