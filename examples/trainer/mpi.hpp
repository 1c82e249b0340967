// SPDX-License-Identifier: Apache-2.0
// A job's devices as the processes of an MPI world.
#pragma once

#include <mpi.h>

#include "collectives.hpp"

namespace trainer {

/// The end of this process; made by all of them.
std::unique_ptr<world> mpi_world(MPI_Comm all);

}  // namespace trainer
