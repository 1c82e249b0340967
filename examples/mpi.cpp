// SPDX-License-Identifier: Apache-2.0
// Processes move their state over MPI: mpirun -n 4 mpi. Each is the device of its rank.
#include <cstdio>

#include <mpi.h>

#include <reshard/mpi.hpp>
#include <reshard/testing.hpp>

using namespace reshard;

namespace {

/// What every process does; whether its elements are right.
bool process() {
  const model m = make_transformer({.name = "small",
                                    .layers = 6,
                                    .hidden = 512,
                                    .heads = 8,
                                    .groups = 4,
                                    .head_dim = 64,
                                    .ffn = 1536,
                                    .vocabulary = 8192});
  const layout_switch change(space(m, config{tp{2}, pp{2}, zero{1}}), space(m, config{dp{4}, zero{1}}));
  mpi_endpoint here(MPI_COMM_WORLD, {.wait = std::chrono::seconds(10)});
  rank_storage before(change.from(), here.device(), "before"), after(change.to(), here.device(), "after");
  fill(before.tensors(), change.from());
  const switch_options options{.budget = 24_MiB, .checks = true, .on_stage = [&](const stage_report& r) {
                                 if (here.device() == 0 && r.stage + 1 == r.stages)
                                   std::printf("stage %lld of %lld: %lld bytes from %lld others\n",
                                               static_cast<long long>(r.stage + 1), static_cast<long long>(r.stages),
                                               static_cast<long long>(r.bytes), static_cast<long long>(r.peers));
                               }};
  const switch_report report = switch_state(change, before.tensors(), after.tensors(), here, options);
  const comparison found = compare(after.tensors(), change.to());
  std::printf("process %lld: %lld bytes received in %lld stages, %lld of %lld elements wrong\n",
              static_cast<long long>(here.device()), static_cast<long long>(report.received),
              static_cast<long long>(report.stages), static_cast<long long>(found.wrong),
              static_cast<long long>(found.elements));
  return found.wrong == 0;
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  bool right = false;
  try {
    right = process();  // its end of the world is gone before MPI is
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  std::fflush(stdout);
  MPI_Finalize();
  return right ? 0 : 1;
}
