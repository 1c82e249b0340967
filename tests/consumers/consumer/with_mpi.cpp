// SPDX-License-Identifier: Apache-2.0
// Somebody who moves state over MPI, on a machine that has it. Without mpirun there is a sentence to hear.
#include <cstdio>
#include <exception>

#include <reshard/transport/mpi.hpp>

int main() {
  try {
    reshard::mpi_endpoint here(MPI_COMM_SELF);
    return 1;
  } catch (const std::exception& e) {
    std::puts(e.what());
  }
}
