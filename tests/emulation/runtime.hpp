// SPDX-License-Identifier: Apache-2.0
// What the files of the runtime and the driver share.
// Builds on: rules.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace emulation {

/// Remembers an error for cudaGetLastError, and answers it.
cudaError_t answer(int code);
/// What cudaDeviceGetAttribute and cuDeviceGetAttribute say; nothing where the emulation does not know it.
std::optional<int> device_attribute(int attribute, int device);
std::vector<std::string> driver_leaks();
/// A function of the driver by its name, without its version; nullptr where it is not emulated.
void* driver_function(const std::string& name);

}  // namespace emulation
