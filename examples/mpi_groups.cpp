// SPDX-License-Identifier: Apache-2.0
// Worlds among some of the processes that mpirun started, made beside what all of them do: mpirun -n 4 mpi_groups.
#include <cstdio>

#include <mpi.h>

#include <reshard/transport/mpi_processes.hpp>

using namespace reshard;

namespace {

/// What every process does; whether it is right.
bool process() {
  mpi_processes set(MPI_COMM_WORLD, {.wait = std::chrono::seconds(10)});
  group_cache<mpi_endpoint, std::vector<rank_t>> groups(
      [&](const std::vector<rank_t>& members, const std::stop_token& stop) { return set.make(members, stop); }, 4, {},
      set.where());
  if (set.process() == 0 && set.where() == groups_are_made::where_asked) std::puts(set.why_at_boundary().c_str());
  if (set.process() == 1) return true;  // it is in no world now
  groups.begin({3, 0, 2});
  // Here these three make steps.
  const std::shared_ptr<mpi_endpoint> group = groups.get({3, 0, 2});
  const agreement all = group->agree({.addend = static_cast<std::uint64_t>(set.process())});
  std::printf("process %lld is device %lld of %lld, which sum to %llu\n", static_cast<long long>(set.process()),
              static_cast<long long>(group->device()), static_cast<long long>(group->devices()),
              static_cast<unsigned long long>(all.sum));
  return all.sum == 5;
}

}  // namespace

int main(int count, char** words) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);  // so that groups are made on a thread of their own
  bool right = false;
  try {
    right = process();  // its groups are gone before MPI is
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  std::fflush(stdout);
  MPI_Finalize();
  return right ? 0 : 1;
}
