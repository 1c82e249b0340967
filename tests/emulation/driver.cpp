// SPDX-License-Identifier: Apache-2.0
// The driver's virtual memory: addresses reserved, physical memory made, one mapped to the other, access granted.
#include <cuda.h>

#include <map>
#include <mutex>

#include "memory.hpp"
#include "runtime.hpp"
#include "streams.hpp"

namespace emulation {
namespace {

struct physical_handle {
  int device;
  std::size_t offset, bytes;
  int held = 1, mapped = 0;  // by handles, by mappings
};
struct all_virtual {
  std::mutex lock;
  std::map<std::uintptr_t, std::size_t> reservations;
  std::map<unsigned long long, physical_handle> handles;
  unsigned long long made = 0;
};
all_virtual& all() {
  static all_virtual* these = new all_virtual;
  return *these;
}
CUresult code_of(int failure) { return static_cast<CUresult>(failure); }
bool whole_granules(std::size_t bytes) { return bytes > 0 && bytes % granule == 0; }
std::string place(std::uintptr_t at, std::size_t bytes) {
  return std::to_string(bytes) + " bytes at " + address_text(reinterpret_cast<void*>(at));
}
/// Whether the bytes lie in one reservation. Under the lock.
bool reserved(std::uintptr_t at, std::size_t bytes) {
  const auto after = all().reservations.upper_bound(at);
  if (after == all().reservations.begin()) return false;
  const auto& [begin, length] = *std::prev(after);
  return at - begin < length && bytes <= length - (at - begin);
}
/// Frees what nothing holds. Under the lock.
void let_go(unsigned long long handle) {
  const physical_handle& h = all().handles.at(handle);
  if (h.held > 0 || h.mapped > 0) return;
  give_physical(h.device, h.offset, h.bytes);
  all().handles.erase(handle);
}

}  // namespace

std::vector<std::string> driver_leaks() {
  const std::lock_guard hold(all().lock);
  std::vector<std::string> left;
  for (const auto& [at, bytes] : all().reservations)
    left.push_back("the addresses of " + place(at, bytes) + " were not given back");
  for (const auto& [number, h] : all().handles)
    if (h.held > 0)
      left.push_back("allocation " + std::to_string(number) + " of cuMemCreate, " + std::to_string(h.bytes) +
                     " bytes, was not released");
  return left;
}

}  // namespace emulation

using namespace emulation;

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  EMULATED(cuMemAddressReserve, CUDA_ERROR_OUT_OF_MEMORY);
  if (failure != 0) return code_of(failure);
  if (!whole_granules(bytes) || flags != 0 || (alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uintptr_t at = take_addresses(bytes, alignment);
  const std::lock_guard hold(all().lock);
  all().reservations[at] = bytes;
  *address = at;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  EMULATED(cuMemAddressFree, CUDA_ERROR_UNKNOWN);
  const auto at = static_cast<std::uintptr_t>(address);
  const std::lock_guard hold(all().lock);
  const auto found = all().reservations.find(at);
  if (found == all().reservations.end() || found->second != bytes)
    stop("cuMemAddressFree of " + place(at, bytes) + ", which is no whole reservation");
  if (!ranges_within(at, bytes).empty())
    stop("cuMemAddressFree of " + place(at, bytes) + ", where memory is still mapped");
  all().reservations.erase(found);
  return code_of(failure);
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  EMULATED(cuMemGetAllocationGranularity, CUDA_ERROR_UNKNOWN);
  if (failure == 0) *bytes = granule;
  return code_of(failure);
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* of,
                     unsigned long long flags) {
  EMULATED(cuMemCreate, CUDA_ERROR_OUT_OF_MEMORY);
  if (failure != 0) return code_of(failure);
  if (!whole_granules(bytes) || flags != 0 || of == nullptr || of->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      of->location.type != CU_MEM_LOCATION_TYPE_DEVICE || of->location.id < 0 || of->location.id >= device_count())
    return CUDA_ERROR_INVALID_VALUE;
  uses_context(of->location.id);
  may_drain(draining::mapping, "cuMemCreate");
  const auto offset = take_physical(of->location.id, bytes);
  if (!offset) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard hold(all().lock);
  *handle = ++all().made;
  all().handles[*handle] = {of->location.id, *offset, bytes};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  EMULATED(cuMemRelease, CUDA_ERROR_UNKNOWN);
  may_drain(draining::freeing, "cuMemRelease");
  const std::lock_guard hold(all().lock);
  const auto found = all().handles.find(handle);
  if (found == all().handles.end() || found->second.held == 0)
    stop("cuMemRelease of allocation " + std::to_string(handle) + ", which is not, or is no longer, held");
  --found->second.held;
  let_go(handle);
  return code_of(failure);
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  EMULATED(cuMemRetainAllocationHandle, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  const auto r = range_of(address);
  if (!r || r->is != kind::mapped) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard hold(all().lock);
  ++all().handles.at(r->handle).held;
  *handle = r->handle;
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  EMULATED(cuMemMap, CUDA_ERROR_OUT_OF_MEMORY);
  if (failure != 0) return code_of(failure);
  may_drain(draining::mapping, "cuMemMap");
  const auto at = static_cast<std::uintptr_t>(address);
  if (!whole_granules(bytes) || at % granule != 0 || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard hold(all().lock);
  const auto found = all().handles.find(handle);
  if (found == all().handles.end() || found->second.held == 0)
    stop("cuMemMap of allocation " + std::to_string(handle) + ", which is not, or is no longer, held");
  if (!reserved(at, bytes)) stop("cuMemMap to " + place(at, bytes) + ", which was not reserved");
  if (!ranges_within(at, bytes).empty()) stop("cuMemMap to " + place(at, bytes) + ", where memory is mapped already");
  if (bytes > found->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  ++found->second.mapped;
  range r;
  r.begin = at, r.bytes = bytes, r.is = kind::mapped, r.device = found->second.device;
  r.offset = found->second.offset, r.accessible = false, r.handle = handle;
  add_range(r);
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  EMULATED(cuMemUnmap, CUDA_ERROR_UNKNOWN);
  may_drain(draining::freeing, "cuMemUnmap");
  const auto at = static_cast<std::uintptr_t>(address);
  const auto r = range_of(reinterpret_cast<void*>(at));
  if (!r || r->is != kind::mapped || r->begin != at || r->bytes != bytes)
    stop("cuMemUnmap of " + place(at, bytes) + ", which is no whole mapping");
  check_unused(at, bytes, "cuMemUnmap");
  const std::lock_guard hold(all().lock);
  remove_range(at);
  unmap_alias(at, bytes);
  --all().handles.at(r->handle).mapped;
  let_go(r->handle);
  return code_of(failure);
}
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* who, std::size_t count) {
  EMULATED(cuMemSetAccess, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  may_drain(draining::mapping, "cuMemSetAccess");
  const auto at = static_cast<std::uintptr_t>(address);
  std::size_t mapped = 0;
  const std::vector<range> there = ranges_within(at, bytes);
  for (const range& r : there) {
    if (r.is != kind::mapped || r.begin < at || r.begin + r.bytes > at + bytes) return CUDA_ERROR_INVALID_VALUE;
    mapped += r.bytes;
  }
  if (mapped != bytes || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (who[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (who[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      stop("cuMemSetAccess: only reading and writing is emulated");
    for (const range& r : there)
      if (r.device == who[i].location.id && !r.accessible)
        map_alias(r.begin, r.bytes, r.device, r.offset), set_accessible(r.begin);
  }
  return CUDA_SUCCESS;
}
