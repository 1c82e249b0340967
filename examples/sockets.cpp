// SPDX-License-Identifier: Apache-2.0
// Processes move their state over TCP, the small state beside the tensors too. Here one program forks four on this
// machine; on a cluster each process is started with its number and everybody's address.
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <reshard/sockets.hpp>
#include <reshard/testing.hpp>

using namespace reshard;

namespace {

/// The step, which only the first process knows, and the random numbers of a tensor-parallel rank: all processes are
/// such a rank 0 after the switch. Whether this one has both then.
bool exchange_step_and_random_numbers(rank_t device, socket_endpoint& here) {
  const std::int64_t step = 1200;
  const std::string random = "the generator of tensor-parallel rank " + std::to_string(device % 2);

  small_state mine;
  if (device == 0) mine.add_same("step", std::as_bytes(std::span(&step, 1)));
  mine.add_per_rank("random", "tp=" + std::to_string(device % 2), std::as_bytes(std::span(random)));
  const small_state after = exchange_small_state(mine, {{"random", "tp=0"}}, here);

  const std::vector<std::byte>& numbers = after.bytes_of({"random", "tp=0"});
  return after.bytes_of({"step"}).size() == sizeof step && numbers.back() == std::byte{'0'};
}

/// What process `device` does; its exit code.
int process(rank_t device, const std::vector<std::string>& addresses, listening_socket listening) {
  const model m = make_transformer({.name = "small",
                                    .layers = 6,
                                    .hidden = 512,
                                    .heads = 8,
                                    .groups = 4,
                                    .head_dim = 64,
                                    .ffn = 1536,
                                    .vocabulary = 8192});
  const layout_switch change(space(m, config{tp{2}, pp{2}, zero{1}}), space(m, config{dp{4}, zero{1}}));
  try {
    socket_endpoint here(device, addresses, std::move(listening), std::chrono::seconds(10));
    rank_storage before(change.from(), device, "before"), after(change.to(), device, "after");
    fill(before.tensors(), change.from());
    if (!exchange_step_and_random_numbers(device, here)) return 1;
    const switch_report report = switch_state(change, before.tensors(), after.tensors(), here, {.budget = 24_MiB});
    const comparison found = compare(after.tensors(), change.to());
    std::printf("process %lld: %lld bytes received in %lld stages, %lld of %lld elements wrong\n",
                static_cast<long long>(device), static_cast<long long>(report.received),
                static_cast<long long>(report.stages), static_cast<long long>(found.wrong),
                static_cast<long long>(found.elements));
    std::fflush(stdout);
    return found.wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "process %lld: %s\n", static_cast<long long>(device), e.what());
    return 1;
  }
}

}  // namespace

int main() {
  constexpr rank_t devices = 4;
  std::vector<listening_socket> listening;
  std::vector<std::string> addresses;
  for (rank_t d = 0; d < devices; ++d) {
    listening.emplace_back("127.0.0.1:0");
    addresses.push_back("127.0.0.1:" + std::to_string(listening.back().port()));
  }
  for (rank_t d = 0; d < devices; ++d)
    if (::fork() == 0) {
      listening_socket mine = std::move(listening[static_cast<std::size_t>(d)]);
      listening.clear();
      ::_exit(process(d, addresses, std::move(mine)));
    }
  listening.clear();
  bool good = true;
  for (int status = 0; ::wait(&status) > 0;) good = good && status == 0;
  return good ? 0 : 1;
}
