// SPDX-License-Identifier: Apache-2.0
// What the demo measures over MPI, started by demo_measure.cpp: DEVICES MODEL FROM TO BUDGET FROM_DEVICES TO_DEVICES.
// It starts itself under mpirun; each process is a device. Beside the switch under the budget it measures the switch
// without one between memory that is all there, and, in turn with it, one MPI_Alltoallw that moves the same elements.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/transport/mpi.hpp>

#include "demo_found.hpp"
#include "lib/all_to_all.hpp"
#include "lib/under_mpirun.hpp"

namespace {

using namespace demo;

/// This device's state on one side, or nothing.
template <typename Rank>
rank_storage storage(const computed_holding& h, Rank rank, const std::string& side, pages_are at_first) {
  if (rank < 0) return rank_storage();
  return rank_storage(h, rank, "rank " + std::to_string(rank) + " of " + side, at_first);
}

/// All devices' finds, on device 0.
std::vector<found_by_device> gathered(const found_by_device& mine, rank_t devices) {
  std::vector<found_by_device> all(static_cast<std::size_t>(devices));
  constexpr int bytes = sizeof(found_by_device);
  MPI_Gather(&mine, bytes, MPI_BYTE, static_cast<void*>(all.data()), bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
  return all;
}

/// The switch without a budget and MPI_Alltoallw in turn, medians; the elements that either left wrong.
bytes_t compare_with_alltoallw(const computed_switch& change, mpi_endpoint& here, double& uncut, double& alltoallw) {
  const rank_t d = here.device();
  rank_storage before = storage(change.from(), change.from_rank(d), "FROM", pages_are::committed),
               after = storage(change.to(), change.to_rank(d), "TO", pages_are::committed);
  fill(before.tensors(), change.from());
  const staged_plan plan = stage_plan(make_plan(change, d), change, 1);
  before.tensors().seal(), after.tensors().seal();
  std::vector<double> ours, theirs;
  bytes_t wrong = 0;
  constexpr int repetitions = 5;
  for (int i = 0; i < repetitions; ++i) {
    for (const bool mine : {true, false}) {
      if (i == 0) fill(after.tensors(), change.to(), known_values{99});
      (mine ? ours : theirs).push_back(testing::timed([&] {
        if (mine) switch_state(change, before.tensors(), after.tensors(), here, {.after_use = sources::keep});
        else testing::move_by_alltoallw(plan, before.tensors(), after.tensors());
      }));
      if (i == 0) wrong += compare(after.tensors(), change.to()).wrong;
    }
  }
  uncut = testing::median(ours), alltoallw = testing::median(theirs);
  return wrong;
}

void measure_device(const switch_request& request) {
  const computed_switch change = switch_of(request);
  mpi_endpoint here(MPI_COMM_WORLD, {.wait = std::chrono::minutes(1)});
  found_by_device mine;
  {
    rank_storage before = storage(change.from(), change.from_rank(here.device()), "FROM", pages_are::reserved),
                 after = storage(change.to(), change.to_rank(here.device()), "TO", pages_are::reserved);
    fill(before.tensors(), change.from());
    switch_once(change, before.tensors(), after.tensors(), here, {.budget = request.budget}, mine);
    mine.compared = compare(after.tensors(), change.to());
  }
  double uncut = 0, alltoallw = 0;
  mine.compared.wrong += compare_with_alltoallw(change, here, uncut, alltoallw);
  const std::vector<found_by_device> found = gathered(mine, here.devices());
  if (here.device() != 0) return;
  tell_found(found, request, demo::elapsed(found));
  std::printf("uncut_seconds %.9f\nalltoallw_seconds %.9f\n", uncut, alltoallw);
}

constexpr const char* streams = "RESHARD_DEMO_STREAMS";  // a folder in which mpirun's are 1 and 2

/// Before this process becomes mpirun: says where its streams are found.
void remember_streams() { ::setenv(streams, ("/proc/" + std::to_string(::getpid()) + "/fd/").c_str(), 0); }
/// What device 0 says goes to mpirun's own streams: mpirun, which passes on what processes write, can lose the end of
/// it (Open MPI 5). Where those cannot be opened it goes the usual way.
void reopen_streams() {
  const char* const folder = std::getenv(streams);
  for (const int number : {STDOUT_FILENO, STDERR_FILENO}) {
    const int again = folder == nullptr ? -1 : ::open((folder + std::to_string(number)).c_str(), O_WRONLY | O_APPEND);
    if (again >= 0) ::dup2(again, number), ::close(again);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 8) {
    std::fprintf(stderr, "demo-mpi DEVICES MODEL FROM TO BUDGET FROM_DEVICES TO_DEVICES; tools/demo starts it\n");
    return 2;
  }
  remember_streams();
  testing::start_under_mpirun(std::atoi(words[1]));
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) reopen_streams();
  try {
    measure_device({{}, words[2], words[3], words[4], words[6], words[7], parse_bytes("--budget", words[5]), "mpi"});
  } catch (const std::exception& e) {
    // of what all hear only the lowest device speaks; mpirun would add words to an exit code
    if (rank == 0) std::fprintf(stderr, "%s\n", e.what()), std::printf("failed 1\n");
  }
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
