// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's functions about memory: making, freeing, copying, setting, and saying what an address is.
#include <cstring>

#include "emulation.hpp"
#include "memory.hpp"
#include "runtime.hpp"
#include "streams.hpp"

using emulation::answer;
using emulation::kind;

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  EMULATED_IN_CONTEXT(cudaMalloc, cudaErrorMemoryAllocation);
  if (failure != 0) return answer(failure);
  emulation::may_drain(emulation::draining::mapping, "cudaMalloc");
  if (address == nullptr) return answer(cudaErrorInvalidValue);
  *address = bytes == 0 ? nullptr : emulation::take_memory(bytes, kind::device);
  return bytes > 0 && *address == nullptr ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  EMULATED_IN_CONTEXT(cudaFree, cudaErrorUnknown);
  if (address != nullptr) {
    emulation::may_drain(emulation::draining::freeing, "cudaFree");
    emulation::give_memory(address, kind::device, "cudaFree");
  }
  return answer(failure);
}
cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  EMULATED_IN_CONTEXT(cudaHostAlloc, cudaErrorMemoryAllocation);
  if (failure != 0) return answer(failure);
  emulation::may_drain(emulation::draining::mapping, "cudaHostAlloc");
  *address = bytes == 0 ? nullptr : emulation::take_pinned(bytes);
  return bytes > 0 && *address == nullptr ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  EMULATED_IN_CONTEXT(cudaMallocHost, cudaErrorMemoryAllocation);
  if (failure != 0) return answer(failure);
  emulation::may_drain(emulation::draining::mapping, "cudaMallocHost");
  *address = bytes == 0 ? nullptr : emulation::take_pinned(bytes);
  return bytes > 0 && *address == nullptr ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* address) {
  EMULATED_IN_CONTEXT(cudaFreeHost, cudaErrorUnknown);
  if (address != nullptr) {
    emulation::may_drain(emulation::draining::freeing, "cudaFreeHost");
    emulation::give_memory(address, kind::pinned, "cudaFreeHost");
  }
  return answer(failure);
}
cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  EMULATED_IN_CONTEXT(cudaHostRegister, cudaErrorMemoryAllocation);
  if (failure != 0) return answer(failure);
  if (address == nullptr || bytes == 0) return answer(cudaErrorInvalidValue);
  emulation::may_drain(emulation::draining::mapping, "cudaHostRegister");
  return emulation::register_host(address, bytes) ? cudaSuccess : answer(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* address) {
  EMULATED_IN_CONTEXT(cudaHostUnregister, cudaErrorUnknown);
  emulation::may_drain(emulation::draining::freeing, "cudaHostUnregister");
  emulation::give_memory(address, kind::registered, "cudaHostUnregister");
  return answer(failure);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  EMULATED_IN_CONTEXT(cudaHostGetDevicePointer, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  const auto r = emulation::range_of(host);
  if (!r || emulation::on_device(*r)) return answer(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  EMULATED_IN_CONTEXT(cudaMemGetInfo, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  *free = emulation::free_bytes(emulation::current_device());
  *total = emulation::all_bytes(emulation::current_device());
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  EMULATED_IN_CONTEXT(cudaPointerGetAttributes, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  *attributes = cudaPointerAttributes{};
  const auto r = emulation::range_of(address);
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -2;
  if (!r) {
    attributes->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  attributes->device = r->device;
  attributes->type = emulation::on_device(*r) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->devicePointer = const_cast<void*>(address);
  attributes->hostPointer = emulation::on_device(*r) ? nullptr : const_cast<void*>(address);
  return cudaSuccess;
}

namespace {
bool pageable(const void* address) { return !emulation::range_of(address); }
bool of_device(const void* address) {
  const auto r = emulation::range_of(address);
  return r && emulation::on_device(*r);
}
/// Where a copy finds memory that no device may touch by itself: the host's call copies it.
const std::byte* source_at(const void* address, std::size_t bytes) {
  return pageable(address) ? static_cast<const std::byte*>(address)
                           : emulation::device_view(address, bytes, emulation::use::read);
}
std::byte* target_at(void* address, std::size_t bytes) {
  return pageable(address) ? static_cast<std::byte*>(address)
                           : emulation::device_view(address, bytes, emulation::use::write);
}
bool says_what_it_is(const void* to, const void* from, cudaMemcpyKind how) {
  if (how == cudaMemcpyDefault) return true;
  const bool to_device = how == cudaMemcpyHostToDevice || how == cudaMemcpyDeviceToDevice;
  const bool from_device = how == cudaMemcpyDeviceToHost || how == cudaMemcpyDeviceToDevice;
  return of_device(to) == to_device && of_device(from) == from_device;
}
/// A copy on a stream; the host waits where one end is pageable.
void copy_on(CUstream_st* stream, void* to, const void* from, std::size_t bytes, const char* caller) {
  if (bytes == 0) return;
  const std::string what = "a copy of " + std::to_string(bytes) + " bytes";
  const bool waits = pageable(to) || pageable(from);
  if (!pageable(to)) emulation::check_usable(to, bytes, caller);
  if (!pageable(from)) emulation::check_usable(from, bytes, caller);
  const auto reads = emulation::begin_use(from, bytes, what), writes = emulation::begin_use(to, bytes, what);
  const auto end = emulation::issue(stream,
                                    {what,
                                     {},
                                     [=] {
                                       std::memmove(target_at(to, bytes), source_at(from, bytes), bytes);
                                       emulation::end_use(reads);
                                       emulation::end_use(writes);
                                     }},
                                    caller);
  if (waits) emulation::wait_for({end}, std::string(caller) + " of pageable memory");
}
}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind how, cudaStream_t stream) {
  EMULATED_IN_CONTEXT(cudaMemcpyAsync, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  if (!says_what_it_is(to, from, how)) return answer(cudaErrorInvalidValue);
  copy_on(emulation::stream_of(stream, "cudaMemcpyAsync"), to, from, bytes, "cudaMemcpyAsync");
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind how) {
  EMULATED_IN_CONTEXT(cudaMemcpy, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  if (!says_what_it_is(to, from, how)) return answer(cudaErrorInvalidValue);
  CUstream_st* stream = emulation::stream_of(nullptr, "cudaMemcpy");
  copy_on(stream, to, from, bytes, "cudaMemcpy");
  emulation::wait_for(emulation::unfinished(stream), "cudaMemcpy");
  return cudaSuccess;
}
namespace {
void set_on(CUstream_st* stream, void* at, int value, std::size_t bytes, const char* caller) {
  if (bytes == 0) return;
  emulation::check_usable(at, bytes, caller);
  const std::string what = "a setting of " + std::to_string(bytes) + " bytes";
  const auto writes = emulation::begin_use(at, bytes, what);
  emulation::issue(stream,
                   {what,
                    {},
                    [=] {
                      std::memset(emulation::device_view(at, bytes, emulation::use::write), value, bytes);
                      emulation::end_use(writes);
                    }},
                   caller);
}
}  // namespace
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  EMULATED_IN_CONTEXT(cudaMemsetAsync, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  set_on(emulation::stream_of(stream, "cudaMemsetAsync"), at, value, bytes, "cudaMemsetAsync");
  return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  EMULATED_IN_CONTEXT(cudaMemset, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  set_on(emulation::stream_of(nullptr, "cudaMemset"), at, value, bytes, "cudaMemset");  // the host need not wait
  return cudaSuccess;
}
