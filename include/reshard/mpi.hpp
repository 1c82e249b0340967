// SPDX-License-Identifier: Apache-2.0
// A door: switches between processes over MPI, which it needs.
// Builds on: reshard/switching.hpp.
#pragma once

#include <reshard/switching.hpp>
#include <reshard/transport/mpi.hpp>

// Its switches, compiled once (reshard/compile_once.hpp).
namespace reshard {
#if defined(RESHARD_COMPILES_ONCE)
RESHARD_SWITCHES_OVER(template, mpi_endpoint);
#elif defined(RESHARD_COMPILED_ONCE)
RESHARD_SWITCHES_OVER(extern template, mpi_endpoint);
#endif
}  // namespace reshard
