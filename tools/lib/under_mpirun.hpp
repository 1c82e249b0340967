// SPDX-License-Identifier: Apache-2.0
// A program that becomes as many processes as it needs: started by hand, it starts itself under mpirun.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <mpi.h>
#include <unistd.h>

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
  // of Open MPI 5
  ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
  ::setenv("PRTE_MCA_hwloc_default_binding_policy", "none", 0);
  return {"mpirun.openmpi", "-n", std::to_string(processes)};
#else
  // UCX keeps the memory of a long message that nobody takes, as cases that end badly leave some, and aborts over it in
  // MPI_Finalize; what is sent at once it does not keep.
  ::setenv("UCX_RNDV_THRESH", "inf", 0);
  return {"mpirun.mpich", "-n", std::to_string(processes)};
#endif
}

/// Returns in a process that mpirun started; one that was started by hand becomes mpirun, with the same arguments.
inline void start_under_mpirun(int processes) {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr) return;
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

}  // namespace testing
