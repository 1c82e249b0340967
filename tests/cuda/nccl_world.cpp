// SPDX-License-Identifier: Apache-2.0
// A program that is linked with the real NCCL: it names its version, makes a unique id, and then a world of one rank.
// Where there is no device to make it on, that ends in one sentence with CUDA's error, and 1.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include <reshard/base/refusal.hpp>

using namespace reshard;

namespace {

std::string told(const char* who, const char* error) { return std::string(who) + " says '" + error + "'"; }

/// A communicator of one rank on device 0, which is given up at once.
void make_world(const ncclUniqueId& id) {
  int devices = 0;
  if (const cudaError_t found = cudaGetDeviceCount(&devices); found != cudaSuccess || devices == 0)
    refuse("no world over NCCL without a device: ", told("CUDA", cudaGetErrorString(found)));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t world = nullptr;
  ncclResult_t state = ncclCommInitRankConfig(&world, 1, id, 0, &config);
  while (state == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (ncclCommGetAsyncError(world, &state) != ncclSuccess) break;
  }
  const std::string last = state == ncclSuccess ? "" : told("NCCL", ncclGetLastError(nullptr));
  if (world != nullptr) ncclCommAbort(world);
  if (state != ncclSuccess) refuse("no world over NCCL: ", ncclGetErrorString(state), "; ", last);
}

}  // namespace

int main() {
  try {
    int version = 0;
    ncclUniqueId id{};
    if (ncclGetVersion(&version) != ncclSuccess || ncclGetUniqueId(&id) != ncclSuccess)
      refuse("NCCL makes no unique id");
    const bool made = std::any_of(id.internal, id.internal + sizeof id.internal, [](char c) { return c != 0; });
    std::printf("NCCL %d.%d.%d, a unique id of %zu bytes%s\n", version / 10000, version / 100 % 100, version % 100,
                sizeof id.internal, made ? "" : ", all zero");
    std::fflush(stdout);
    make_world(id);
    std::puts("a world of one rank");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
