// SPDX-License-Identifier: Apache-2.0
// Somebody whose switches are compiled once, in a file that reshard brings: here they are only declared.
#include <cstdio>

#include <reshard/sockets.hpp>

#ifndef RESHARD_COMPILED_ONCE
#error "what links this says that switches are compiled once"
#endif
using namespace reshard;

int main() {
  const model m = make_transformer(
      {.name = "m", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8});
  const space from(m, config{tp{2}}), to(m, config{pp{2}});
  const any_switch change(from, to);
  const layout_switch computed(from, to);
  thread_group world(2);
  world.run([&](auto& here) {
    rank_storage before(change.from(), here.device(), "before"), after(change.to(), here.device(), "after");
    const switch_options keeping{.after_use = sources::keep};
    const switch_report any = switch_state(change, before.tensors(), after.tensors(), here, keeping);
    const switch_report own = switch_state(computed, before.tensors(), after.tensors(), here);
    if (here.device() == 0)
      std::printf("%lld and %lld bytes received\n", static_cast<long long>(any.received),
                  static_cast<long long>(own.received));
  });
}
