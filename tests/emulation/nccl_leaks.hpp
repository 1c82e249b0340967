// SPDX-License-Identifier: Apache-2.0
// What is left of NCCL: apart from communicator.hpp, so that the runtime's files need no nccl.h.
#pragma once

#include <string>
#include <vector>

namespace emulation {
std::vector<std::string> nccl_leaks();
}
