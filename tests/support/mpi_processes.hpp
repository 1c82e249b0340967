// SPDX-License-Identifier: Apache-2.0
// A test program as 8 processes under mpirun: it starts itself there, and every process runs the same cases. What each
// leaves behind is told to all, so that all check the same and end alike; the first one speaks.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/mpi.hpp>

#include "../../tools/lib/under_mpirun.hpp"
#include "left_behind.hpp"

namespace testing {

/// Before main: the process that was started by hand becomes mpirun.
class mpi_program {
 public:
  explicit mpi_program(int processes, bool by_any_thread = false) {
    start_under_mpirun(processes);
    int level = MPI_THREAD_SINGLE;
    if (by_any_thread) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    else MPI_Init(nullptr, nullptr);
#ifndef OPEN_MPI
    // MPICH asks this one's handler about a message that is longer than its memory, whichever communicator it came by
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#endif
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) std::abort();
  }
  mpi_program(const mpi_program&) = delete;
  ~mpi_program() { MPI_Finalize(); }
};

/// Calls body(communicator, device, what it leaves behind) in so many of the processes; what they left, in all.
template <typename Body>
std::vector<left_behind> on_ranks(long devices, Body&& body) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < devices ? 0 : MPI_UNDEFINED, rank, &part);
  left_behind mine;
  if (part != MPI_COMM_NULL) {
    try {
      body(part, static_cast<long>(rank), mine);
    } catch (const std::exception& e) {
      mine.say(e.what());
    } catch (...) {
      mine.say("an exception of no standard kind");
    }
  }  // the communicator stays: calls that nobody answers may still hold it
  std::vector<left_behind> all(static_cast<std::size_t>(size));
  // Asked now and then, as who waits inside of MPI works for the whole of it, and all eight wait on few cores.
  MPI_Request gathering = MPI_REQUEST_NULL;
  MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD, &gathering);
  int done = 0;
  while (MPI_Test(&gathering, &done, MPI_STATUS_IGNORE), done == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  all.resize(static_cast<std::size_t>(devices));
  return all;
}

}  // namespace testing
