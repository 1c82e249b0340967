// SPDX-License-Identifier: Apache-2.0
// The trainer's collectives over MPI. The program starts itself under mpirun, as four processes.
#include <doctest/doctest.h>

#include "../../examples/trainer/mpi.hpp"
#include "../support/mpi_processes.hpp"
#include "collectives.hpp"

namespace {

const testing::mpi_program under_mpirun(4);

}  // namespace

TEST_CASE("over MPI: sums, posts, messages; and a job that is closed ends every wait") {
  const auto here = trainer::mpi_world(MPI_COMM_WORLD);
  CHECK(testing::collectives_check(*here).everything() == "");
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(testing::collectives_check(*here).closed() == "");
  MPI_Barrier(MPI_COMM_WORLD);
}
