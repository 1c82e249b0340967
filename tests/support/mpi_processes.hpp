// SPDX-License-Identifier: Apache-2.0
// A test program as 8 processes under mpirun: it starts itself there, and every process runs the same cases. What each
// leaves behind is told to all, so that all check the same and end alike; the first one speaks.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include <reshard/exec/mpi.hpp>

#include "left_behind.hpp"

namespace testing {

/// The words that start a program in so many processes, with the library that it was compiled with.
inline std::vector<std::string> under_mpirun(int processes) {
  // LeakSanitizer would count what an MPI keeps until the end
  const char* const asan = std::getenv("ASAN_OPTIONS");
  ::setenv("ASAN_OPTIONS", ((asan == nullptr ? "" : asan + std::string(":")) + "detect_leaks=0").c_str(), 1);
#ifdef OPEN_MPI
  // root, and more processes than cores: a test's machine
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"})
    ::setenv(name, "1", 0);
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
  return {"mpirun.openmpi", "-n", std::to_string(processes)};
#else
  return {"mpirun.mpich", "-n", std::to_string(processes)};
#endif
}

/// Before main: the process that was started by hand becomes mpirun.
class mpi_program {
 public:
  explicit mpi_program(int processes) {
    if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr && std::getenv("PMI_RANK") == nullptr) start(processes);
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) std::abort();
  }
  mpi_program(const mpi_program&) = delete;
  ~mpi_program() { MPI_Finalize(); }

 private:
  [[noreturn]] static void start(int processes) {
    std::ifstream given("/proc/self/cmdline", std::ios::binary);
    const std::string mine{std::istreambuf_iterator<char>(given), std::istreambuf_iterator<char>()};
    std::vector<std::string> words = under_mpirun(processes);
    for (std::size_t at = 0; at < mine.size(); at += std::strlen(mine.c_str() + at) + 1)
      words.emplace_back(mine.c_str() + at);
    std::vector<char*> arguments;
    for (std::string& w : words) arguments.push_back(w.data());
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    arguments[0] = const_cast<char*>("mpirun");  // elsewhere it has no other name
    ::execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "mpirun cannot be started: %s\n", std::strerror(errno));
    std::_Exit(1);
  }
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
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  all.resize(static_cast<std::size_t>(devices));
  return all;
}

}  // namespace testing
