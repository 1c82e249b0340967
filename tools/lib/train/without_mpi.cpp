// SPDX-License-Identifier: Apache-2.0
// The program without MPI: it becomes mpirun of the one with it, which lies beside it.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "run.hpp"

namespace train {

void run_on_mpi(const job& all, const listener&) {
  namespace fs = std::filesystem;
  const fs::path with_mpi = fs::read_symlink("/proc/self/exe").parent_path() / "train-mpi";
  if (!fs::exists(with_mpi)) refuse("--transport mpi: ", with_mpi.string(), " is not there; it is built where MPI is");
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(all.devices()), with_mpi.string()};
  std::ifstream asked("/proc/self/cmdline", std::ios::binary);
  std::string word;
  std::getline(asked, word, '\0');
  while (std::getline(asked, word, '\0')) words.push_back(word);
  for (const char* const name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    ::setenv(name, "1", 0);
  ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  ::execvp("mpirun", arguments.data());
  refuse("--transport mpi: mpirun cannot be started");
}

}  // namespace train
