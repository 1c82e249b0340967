// SPDX-License-Identifier: Apache-2.0
// A node died: of eight processes two are gone, and the six others go on with what they hold, over TCP. Here one
// program forks the six; what the two held is in nobody's memory.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <reshard/sockets.hpp>
#include <reshard/testing.hpp>

using namespace reshard;

namespace {

/// What process `device` does; its exit code.
int process(const computed_switch& change, rank_t device, const std::vector<std::string>& addresses,
            listening_socket listening) {
  try {
    rank_storage before(change.from(), change.from_rank(device), "before"),
        after(change.to(), change.to_rank(device), "after");
    fill(before.tensors(), change.from());
    socket_endpoint here(device, addresses, std::move(listening), std::chrono::seconds(10));
    switch_state(change, before.tensors(), after.tensors(), here);
    const comparison found = compare(after.tensors(), change.to());
    std::printf("device %lld goes on as rank %lld: %lld of %lld elements wrong\n", static_cast<long long>(device),
                static_cast<long long>(change.to_rank(device)), static_cast<long long>(found.wrong),
                static_cast<long long>(found.elements));
    std::fflush(stdout);
    return found.wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "device %lld: %s\n", static_cast<long long>(device), e.what());
    return 1;
  }
}

/// The same with ZeRO-1, whose optimizer states have one holder each: what must come from a checkpoint.
void tell_what_is_lost(const model& m) {
  const layout_switch change(
      space(m, config{tp{2}, pp{2}, dp{2}, zero{1}}), space(m, config{tp{2}, dp{3}}),
      {.to = device_map({0, 1, 2, 4, 5, 6}), .lost = {3, 7}, .lost_elements = when_lost::leave_out});
  std::printf("with ZeRO-1 %lld bytes are lost:\n", static_cast<long long>(lost_bytes(change)));
  index_t boxes = 0;
  each_lost(change, [&](const lost_box& b) { boxes += b.states.contains(0) ? 0 : 1; });
  std::printf("%lld boxes of optimizer states, none of parameters\n", static_cast<long long>(boxes));
}

}  // namespace

int main() {
  const model m = make_transformer({.name = "small",
                                    .layers = 6,
                                    .hidden = 384,
                                    .heads = 6,
                                    .groups = 6,
                                    .head_dim = 64,
                                    .ffn = 1536,
                                    .vocabulary = 6144});
  const layout_switch change(space(m, config{tp{2}, pp{2}, dp{2}}), space(m, config{tp{2}, dp{3}, zero{1}}),
                             {.to = device_map({0, 1, 2, 4, 5, 6}), .lost = {3, 7}});
  std::vector<listening_socket> listening;
  std::vector<std::string> addresses;
  for (rank_t d = 0; d < change.devices(); ++d) {
    listening.emplace_back("127.0.0.1:0");
    addresses.push_back("127.0.0.1:" + std::to_string(listening.back().port()));
  }
  for (const rank_t dead : {3, 7}) addresses[static_cast<std::size_t>(dead)].clear();
  for (rank_t d = 0; d < change.devices(); ++d) {
    if (change.lost(d) || ::fork() != 0) continue;
    listening_socket mine = std::move(listening[static_cast<std::size_t>(d)]);
    listening.clear();
    ::_exit(process(change, d, addresses, std::move(mine)));
  }
  listening.clear();
  bool good = true;
  for (int status = 0; ::wait(&status) > 0;) good = good && status == 0;
  tell_what_is_lost(m);
  return good ? 0 : 1;
}
