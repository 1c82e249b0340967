// SPDX-License-Identifier: Apache-2.0
// A door: switches between GPUs over NCCL, and device memory that comes and goes. It needs CUDA's runtime and NCCL.
// Builds on: reshard/switching.hpp.
#pragma once

#include <reshard/cuda/device_memory.hpp>
#include <reshard/memory/bind_dlpack.hpp>
#include <reshard/switching.hpp>
#include <reshard/transport/nccl.hpp>
#include <reshard/transport/socket_meeting.hpp>

// Its switches, compiled once (reshard/compile_once.hpp).
namespace reshard {
#if defined(RESHARD_COMPILES_ONCE)
RESHARD_SWITCHES_OVER(template, nccl_endpoint<socket_meeting>);
#elif defined(RESHARD_COMPILED_ONCE)
RESHARD_SWITCHES_OVER(extern template, nccl_endpoint<socket_meeting>);
#endif
}  // namespace reshard
