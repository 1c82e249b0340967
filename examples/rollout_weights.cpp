// SPDX-License-Identifier: Apache-2.0
// Weights go to rollout replicas after every training step: the switch is prepared once, and a run only copies.
#include <atomic>
#include <cstdio>

#include <reshard/exec/prepared_switch.hpp>
#include <reshard/exec/thread_group.hpp>
#include <reshard/io/plan_text.hpp>
#include <reshard/memory/known_values.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/reshard.hpp>

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
  // trained over two pipeline stages; rolled out by two replicas of tp=2, on the same four devices
  const layout_switch weights(space(m, config{pp{2}, dp{2}}), space(m, config{tp{2}, dp{2}}),
                              {.states = parameter_states});
  std::atomic<bool> good = true;

  thread_group world(weights.devices());
  world.run([&](auto& here) {
    rank_storage trained(weights.from(), here.device(), "trainer"), replica(weights.to(), here.device(), "rollout");
    prepared_switch publish(weights, trained.tensors(), replica.tensors(), here);
    for (unsigned step = 1; step <= 5; ++step) {
      fill(trained.tensors(), weights.from(), known_values{step});  // in place of a training step
      publish.run();
      // in place of a rollout
      if (compare(replica.tensors(), weights.to(), known_values{step}).wrong != 0) good = false;
    }
    if (here.device() == 0) std::puts(to_text(publish.report()).c_str());
  });
  return good ? 0 : 1;
}
