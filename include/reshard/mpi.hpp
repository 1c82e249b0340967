// SPDX-License-Identifier: Apache-2.0
// A door: switches between processes over MPI, which it needs.
// Builds on: reshard/switching.hpp.
#pragma once

#include <reshard/switching.hpp>
#include <reshard/transport/mpi.hpp>
