// SPDX-License-Identifier: Apache-2.0
// What the driver says of addresses, devices and errors, and its functions by name.
#include <cuda.h>

#include <map>
#include <string>

#include "memory.hpp"
#include "runtime.hpp"

using namespace emulation;

namespace {
CUresult code_of(int failure) { return static_cast<CUresult>(failure); }
/// The handle of a device's context; of -1, none.
CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device + 1)); }
const void* pointer(CUdeviceptr address) { return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)); }

/// One attribute of the address of memory that CUDA knows.
CUresult tell(void* to, CUpointer_attribute attribute, CUdeviceptr address, const range& r) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<CUcontext*>(to) = context_of(r.device); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(to) = on_device(r) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr*>(to) = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (on_device(r)) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<const void**>(to) = pointer(address);
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<unsigned long long*>(to) = r.number; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(to) = 0; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(to) = r.device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(to) = r.begin; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<std::size_t*>(to) = r.bytes; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *static_cast<unsigned*>(to) = 1; break;
    default: stop("cuPointerGetAttribute: attribute " + std::to_string(attribute) + " is not emulated");
  }
  return CUDA_SUCCESS;
}
}  // namespace

CUresult cuPointerGetAttribute(void* to, CUpointer_attribute attribute, CUdeviceptr address) {
  EMULATED(cuPointerGetAttribute, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  const auto r = range_of(pointer(address));
  return r ? tell(to, attribute, address, *r) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** to, CUdeviceptr address) {
  EMULATED(cuPointerGetAttributes, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  const auto r = range_of(pointer(address));
  for (unsigned i = 0; i < count; ++i)  // of an address that CUDA does not know, this one answers with zeros
    if (r) static_cast<void>(tell(to[i], attributes[i], address, *r));
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
             attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
      *static_cast<unsigned*>(to[i]) = 0;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(to[i]) = -2;
    else *static_cast<std::size_t*>(to[i]) = 0;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr address) {
  EMULATED(cuMemGetAddressRange, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  const auto r = range_of(pointer(address));
  if (!r || !on_device(*r)) return CUDA_ERROR_NOT_FOUND;
  if (begin != nullptr) *begin = r->begin;
  if (bytes != nullptr) *bytes = r->bytes;
  return CUDA_SUCCESS;
}
CUresult cuInit(unsigned) {
  EMULATED(cuInit, CUDA_ERROR_UNKNOWN);
  return code_of(failure);
}
CUresult cuDeviceGet(CUdevice* device, int number) {
  EMULATED(cuDeviceGet, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  if (number < 0 || number >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *device = number;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  EMULATED(cuCtxGetCurrent, CUDA_ERROR_UNKNOWN);
  if (failure == 0) *context = context_of(current_context());
  return code_of(failure);
}
CUresult cuCtxSetCurrent(CUcontext context) {
  EMULATED(cuCtxSetCurrent, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  const int device = static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1;
  if (context != nullptr && (device >= device_count() || !has_context(device))) return CUDA_ERROR_INVALID_CONTEXT;
  set_context(device);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  EMULATED(cuCtxGetDevice, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  if (current_context() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  EMULATED(cuDevicePrimaryCtxGetState, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = has_context(device) ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  EMULATED(cuDeviceGetAttribute, CUDA_ERROR_UNKNOWN);
  if (failure != 0) return code_of(failure);
  const auto known = device_attribute(static_cast<int>(attribute), device);
  if (!known) stop("cuDeviceGetAttribute: attribute " + std::to_string(attribute) + " is not emulated");
  *value = *known;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  EMULATED(cuDriverGetVersion, CUDA_ERROR_UNKNOWN);
  if (failure == 0) *version = CUDA_VERSION;
  return code_of(failure);
}
CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
    case CUDA_SUCCESS: *name = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
    case CUDA_ERROR_INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
    default: *name = "CUDA_ERROR_UNKNOWN";
  }
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS: *text = "no error"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
    default: *text = "an error of the emulation";
  }
  return CUDA_SUCCESS;
}

namespace emulation {
void* driver_function(const std::string& name) {
  const auto of = [](auto* function) { return reinterpret_cast<void*>(function); };
  static const std::map<std::string, void*> functions{
      {"cuInit", of(cuInit)},
      {"cuDriverGetVersion", of(cuDriverGetVersion)},
      {"cuDeviceGet", of(cuDeviceGet)},
      {"cuDeviceGetAttribute", of(cuDeviceGetAttribute)},
      {"cuCtxGetCurrent", of(cuCtxGetCurrent)},
      {"cuCtxSetCurrent", of(cuCtxSetCurrent)},
      {"cuCtxGetDevice", of(cuCtxGetDevice)},
      {"cuDevicePrimaryCtxGetState", of(cuDevicePrimaryCtxGetState)},
      {"cuGetErrorName", of(cuGetErrorName)},
      {"cuGetErrorString", of(cuGetErrorString)},
      {"cuMemAddressReserve", of(cuMemAddressReserve)},
      {"cuMemAddressFree", of(cuMemAddressFree)},
      {"cuMemCreate", of(cuMemCreate)},
      {"cuMemRelease", of(cuMemRelease)},
      {"cuMemMap", of(cuMemMap)},
      {"cuMemUnmap", of(cuMemUnmap)},
      {"cuMemSetAccess", of(cuMemSetAccess)},
      {"cuMemGetAllocationGranularity", of(cuMemGetAllocationGranularity)},
      {"cuMemRetainAllocationHandle", of(cuMemRetainAllocationHandle)},
      {"cuMemGetAddressRange", of(cuMemGetAddressRange)},
      {"cuPointerGetAttribute", of(cuPointerGetAttribute)},
      {"cuPointerGetAttributes", of(cuPointerGetAttributes)},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}
}  // namespace emulation
