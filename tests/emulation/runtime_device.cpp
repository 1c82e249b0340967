// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's functions about devices and errors, and what is checked at exit.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include <unistd.h>

#include "emulation.hpp"
#include "memory.hpp"
#include "nccl_leaks.hpp"
#include "runtime.hpp"
#include "streams.hpp"

namespace emulation {
namespace {
thread_local int device_now = 0, context_now = -1;
thread_local cudaError_t last = cudaSuccess;
bool finished = false;

/// Primary contexts: one a device, from the first call that needs it to the end of the process.
struct context {
  std::string maker;
  bool used = false;
};
struct all_contexts {
  std::mutex lock;
  std::map<int, context> of;
};
all_contexts& made() {
  static all_contexts* these = new all_contexts;
  return *these;
}
void make_context(int device, const char* caller, bool uses) {
  const std::lock_guard hold(made().lock);
  context& here = made().of.try_emplace(device, context{caller, false}).first->second;
  here.used = here.used || uses;
}

void check_at_exit() {
  if (finished) return;
  finish();
}
}  // namespace

int device_count() {
  static const int count = static_cast<int>(setting("EMULATION_DEVICES", 8));
  return count;
}
int current_device() { return context_now >= 0 ? context_now : device_now; }
void make_current(int device) { device_now = device; }

int current_context() { return context_now; }
void set_context(int device) { context_now = device; }
bool has_context(int device) {
  const std::lock_guard hold(made().lock);
  return made().of.count(device) > 0;
}
void in_context(const char* caller) {
  make_context(current_device(), caller, true);
  context_now = current_device();
}
void uses_context(int device) {
  const std::lock_guard hold(made().lock);
  if (const auto here = made().of.find(device); here != made().of.end()) here->second.used = true;
}
std::vector<int> contexts() {
  const std::lock_guard hold(made().lock);
  std::vector<int> devices;
  for (const auto& [device, context] : made().of) devices.push_back(device);
  return devices;
}
std::vector<std::string> idle_contexts() {
  const std::lock_guard hold(made().lock);
  std::vector<std::string> idle;
  for (const auto& [device, context] : made().of)
    if (!context.used)
      idle.push_back("device " + std::to_string(device) + " has a context, which " + context.maker +
                     " made, and nothing was done there");
  return idle;
}

cudaError_t answer(int code) {
  if (code != 0) last = static_cast<cudaError_t>(code);
  return static_cast<cudaError_t>(code);
}

void watch_exit() {
  std::atexit(check_at_exit);
  watch_faults();
}
std::vector<std::string> leaks() {
  std::vector<std::string> left = nccl_leaks();
  for (const auto& more : {stream_leaks(), memory_leaks(), driver_leaks()})
    left.insert(left.end(), more.begin(), more.end());
  return left;
}
void finish() {
  finished = true;
  write_counts();
  if (const std::vector<std::string> idle = idle_contexts(); !idle.empty()) stop(idle[0]);
  const std::vector<std::string> left = leaks();
  if (left.empty()) return;
  std::string sentence = plural(left.size(), "handle") + " left at exit: ";
  for (std::size_t i = 0; i < left.size() && i < 8; ++i) sentence += (i > 0 ? "; " : "") + left[i];
  stop(sentence + (left.size() > 8 ? "; .." : ""));
}

}  // namespace emulation

using emulation::answer;

cudaError_t cudaGetDeviceCount(int* count) {
  EMULATED(cudaGetDeviceCount, cudaErrorInsufficientDriver);
  if (failure != 0) return answer(failure);
  *count = emulation::device_count();
  return *count == 0 ? answer(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  EMULATED(cudaSetDevice, cudaErrorDevicesUnavailable);
  if (failure != 0) return answer(failure);
  if (device < 0 || device >= emulation::device_count()) return answer(cudaErrorInvalidDevice);
  static const bool mixed = (emulation::mix_seed(static_cast<std::uint64_t>(device)), true);
  static_cast<void>(mixed);
  emulation::make_current(device);
  emulation::make_context(device, "cudaSetDevice", false);  // since CUDA 12, at once
  emulation::set_context(device);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  EMULATED(cudaGetDevice, cudaErrorUnknown);
  if (failure == 0) *device = emulation::current_device();
  return answer(failure);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  EMULATED(cudaGetDeviceProperties, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  if (device < 0 || device >= emulation::device_count()) return answer(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  properties->totalGlobalMem = emulation::all_bytes(device);
  properties->major = 9, properties->minor = 0;
  properties->multiProcessorCount = 8;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  properties->asyncEngineCount = 2;
  properties->pciBusID = device + 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  EMULATED(cudaDeviceGetAttribute, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  if (device < 0 || device >= emulation::device_count()) return answer(cudaErrorInvalidDevice);
  const auto known = emulation::device_attribute(static_cast<int>(attribute), device);
  if (!known) emulation::stop("cudaDeviceGetAttribute: attribute " + std::to_string(attribute) + " is not emulated");
  *value = *known;
  return cudaSuccess;
}
namespace emulation {
std::optional<int> device_attribute(int attribute, int device) {
  switch (attribute) {  // the driver's numbers are the runtime's
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxBlockDimX: return 1024;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMultiProcessorCount: return 8;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrUnifiedAddressing: return 1;
    case cudaDevAttrCanMapHostMemory: return 1;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrComputeCapabilityMinor: return 0;
    case cudaDevAttrPciBusId: return device + 1;
    case cudaDevAttrPciDeviceId: return 0;
    case cudaDevAttrPciDomainId: return 0;
    case cudaDevAttrAsyncEngineCount: return 2;
    case cudaDevAttrConcurrentKernels: return 1;
    case cudaDevAttrComputeMode: return cudaComputeModeDefault;
    case cudaDevAttrHostRegisterSupported: return 1;
    case cudaDevAttrCanUseHostPointerForRegisteredMem: return 1;
    case 102: return 1;  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    case 103: return 1;  // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    default: return std::nullopt;
  }
}
}  // namespace emulation
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  EMULATED(cudaDeviceGetPCIBusId, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  if (device < 0 || device >= emulation::device_count() || length < 13) return answer(cudaErrorInvalidValue);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device + 1) & 255u);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  EMULATED(cudaDriverGetVersion, cudaErrorUnknown);
  if (failure == 0) *version = CUDART_VERSION;
  return answer(failure);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  EMULATED(cudaRuntimeGetVersion, cudaErrorUnknown);
  if (failure == 0) *version = CUDART_VERSION;
  return answer(failure);
}
// These have no side and no failure of their own.
cudaError_t cudaGetLastError() {
  EMULATED(cudaGetLastError, cudaErrorLaunchFailure);
  if (failure != 0) return static_cast<cudaError_t>(failure);
  return std::exchange(emulation::last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  EMULATED(cudaPeekAtLastError, cudaErrorLaunchFailure);
  return failure != 0 ? static_cast<cudaError_t>(failure) : emulation::last;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorLaunchOutOfResources: return "cudaErrorLaunchOutOfResources";
    case cudaErrorDevicesUnavailable: return "cudaErrorDevicesUnavailable";
    case cudaErrorHostMemoryAlreadyRegistered: return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorSymbolNotFound: return "cudaErrorSymbolNotFound";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    default: return "an error of the emulation";
  }
}
