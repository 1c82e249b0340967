// SPDX-License-Identifier: Apache-2.0
// What a test sees of the emulation: how its host twin of a kernel gets onto a stream, how it looks into device memory,
// which calls fail, what is left. Functions of CUDA and NCCL are called by their own names. README.md says the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace emulation {

/// The exit code of a process that broke a rule; its sentence is on stderr, after "emulation: ".
inline constexpr int stopped_code = 70;

/// A launch: `body` runs on the stream's thread, once what was issued to the stream before has ended. The first launch
/// of a kernel may wait for the whole device, as modules are loaded lazily. Counted, and failed, as "launch".
cudaError_t launch(cudaStream_t stream, const char* kernel, std::function<void()> body);
/// What cudaLaunchKernel runs instead of a kernel: from its arguments, which are read at once, the body of a launch.
struct host_twin {
  std::string kernel;  // its name
  std::function<std::function<void()>(void** arguments)> body_of;
};
/// Whether it is the kernel's first.
bool twin(const void* kernel, host_twin of);
/// The same without loading: for a test's own steps.
void enqueue(cudaStream_t stream, std::function<void()> body);

enum class use { read, write };
/// Where a body of a launch reads or writes the `bytes` at a device's address: device memory that is mapped and has its
/// access set, pinned or registered host memory; all else stops the test. Neighbours stay neighbours: one range of
/// addresses has one view. The address itself is what other calls, and who asks for alignment, shall see.
std::byte* device_view(const void* address, std::size_t bytes, use how);
template <typename T>
const T* readable(const T* address, std::size_t count) {
  return reinterpret_cast<const T*>(device_view(address, count * sizeof(T), use::read));
}
template <typename T>
T* writable(T* address, std::size_t count) {
  return reinterpret_cast<T*>(device_view(address, count * sizeof(T), use::write));
}

/// A test looks into device memory or fills it, at once and beside all streams.
void peek(void* to, const void* device_address, std::size_t bytes);
void poke(void* device_address, const void* from, std::size_t bytes);

/// The n-th call (from 1) of `function` in this process from now on fails with `code`; 0 is the function's usual code.
/// "ncclCommGetAsyncError.state" fails what it tells, not the call. As EMULATION_FAIL=function:n[:code][,..] does.
void fail(const std::string& function, long nth, int code = 0);
struct call_count {
  std::string function;
  long calls;
};
/// Every function that this process has called, by name.
std::vector<call_count> counts();
/// How many failures that were asked for have been met.
long failures_met();

/// Whether this thread is in a call of the emulation, whose memory is its own affair: for tests that let it run out.
bool is_inside();

/// Delays and coins of this process from now on; EMULATION_SEED before. Say it before the first call of CUDA or NCCL.
void seed(std::uint64_t number);

/// One sentence for each handle that is alive: communicators, registrations, streams, events, memory, reservations.
std::vector<std::string> leaks();
/// Stops the test where there are leaks, work has not ended, or a context was made in which nothing was done. At exit
/// this happens by itself; before _exit it does not.
void finish();

/// nChannelsPerNetPeer of the communicator that this process made last; nothing where it did not say.
std::optional<int> channels_per_net_peer();
/// Devices on which this process has a context; each takes hundreds of MiB of a real one.
std::vector<int> contexts();

/// Device memory in use, and the most so far; of the current device, with what NCCL takes for itself.
std::size_t used_bytes();
std::size_t peak_bytes();

/// What this process's groups have moved.
struct moved {
  long groups = 0, sends = 0, receives = 0, to_itself = 0;
  std::size_t sent_bytes = 0;
};
moved so_far();

}  // namespace emulation
