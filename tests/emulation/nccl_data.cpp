// SPDX-License-Identifier: Apache-2.0
// NCCL's functions about memory and messages; three collectives, each a group of messages of its own kind.
#include <nccl.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "communicator.hpp"
#include "emulation.hpp"

using namespace emulation;

namespace emulation {
void check_not_registered(const void* at, std::size_t bytes);
}

namespace {
ncclResult_t code_of(int failure) { return static_cast<ncclResult_t>(failure); }
std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}
std::byte* bytes_at(const void* at) { return static_cast<std::byte*>(const_cast<void*>(at)); }
void copy_here(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from) std::memmove(device_view(to, bytes, use::write), device_view(from, bytes, use::read), bytes);
}
}  // namespace

ncclResult_t ncclMemAlloc(void** address, std::size_t bytes) {
  EMULATED_IN_CONTEXT(ncclMemAlloc, ncclUnhandledCudaError);
  if (failure != 0) return code_of(failure);
  if (address == nullptr || bytes == 0) return ncclInvalidArgument;
  may_drain(draining::mapping, "ncclMemAlloc");
  *address = take_memory(bytes, kind::nccl);
  return *address != nullptr ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* address) {
  EMULATED_IN_CONTEXT(ncclMemFree, ncclUnhandledCudaError);
  if (address != nullptr) {
    if (const auto r = range_of(address)) check_not_registered(address, r->bytes);
    may_drain(draining::freeing, "ncclMemFree");
    give_memory(address, kind::nccl, "ncclMemFree");
  }
  return code_of(failure);
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* address, std::size_t bytes, void** handle) {
  EMULATED_IN_CONTEXT(ncclCommRegister, ncclUnhandledCudaError);
  if (failure != 0) return code_of(failure);
  if (const ncclResult_t able = ready(comm, "ncclCommRegister"); able != ncclSuccess) return able;
  if (address == nullptr || bytes == 0 || handle == nullptr) return ncclInvalidArgument;
  check_device_memory(address, bytes, "ncclCommRegister");
  static std::uintptr_t made = 0;  // one thread at a time
  *handle = reinterpret_cast<void*>(++made);
  // Memory of cudaMalloc is told to be registered, and is not, unless NCCL_LEGACY_CUDA_REGISTER is set.
  const bool counts = range_of(address)->is != kind::device || setting_is("NCCL_LEGACY_CUDA_REGISTER", "1");
  comm->registrations[made] = {bytes_at(address), counts ? bytes : 0};
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  EMULATED(ncclCommDeregister, ncclUnhandledCudaError);
  if (const ncclResult_t able = ready(comm, "ncclCommDeregister"); able == ncclInvalidArgument) return able;
  const auto found = comm->registrations.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == comm->registrations.end())
    stop("ncclCommDeregister of what is not, or is no longer, registered with " + text(comm));
  if (comm->in_flight > 0)
    check_unused(reinterpret_cast<std::uintptr_t>(found->second.begin), found->second.bytes, "ncclCommDeregister");
  comm->registrations.erase(found);
  return code_of(failure);
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  EMULATED(ncclSend, ncclInternalError);
  if (failure != 0) return note_error(code_of(failure)), code_of(failure);
  return add_message(comm, peer, {bytes_at(from), count * size_of(type), false}, true, stream, "ncclSend");
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  EMULATED(ncclRecv, ncclInternalError);
  if (failure != 0) return note_error(code_of(failure)), code_of(failure);
  return add_message(comm, peer, {bytes_at(to), count * size_of(type), false}, false, stream, "ncclRecv");
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  EMULATED(ncclBroadcast, ncclInternalError);
  if (failure != 0) return note_error(code_of(failure)), code_of(failure);
  alive(comm, "ncclBroadcast");
  if (root < 0 || root >= comm->ranks) return ncclInvalidArgument;
  const std::size_t bytes = count * size_of(type);
  if (bytes == 0) return ncclSuccess;
  exchange what{"a broadcast", 1, {}, {}};
  if (comm->rank != root) what.peers[root].receives = {bytes_at(to), bytes, false};
  else
    for (int r = 0; r < comm->ranks; ++r)
      if (r != root) what.peers[r].sends = {bytes_at(from), bytes, false};
  if (comm->rank == root) what.after = [=] { copy_here(bytes_at(to), bytes_at(from), bytes); };
  return add_collective(comm, std::move(what), stream, "ncclBroadcast");
}
namespace {
/// All ranks' bytes, one after the other, at `to`.
exchange gather(const ncclComm* comm, const void* from, std::byte* to, std::size_t bytes, const char* name,
                std::uint64_t kind) {
  exchange what{name, kind, {}, {}};
  for (int r = 0; r < comm->ranks; ++r)
    if (r != comm->rank)
      what.peers[r] = {{bytes_at(from), bytes, false}, {to + static_cast<std::size_t>(r) * bytes, bytes, false}};
  std::byte* own = to + static_cast<std::size_t>(comm->rank) * bytes;
  what.after = [=] { copy_here(own, bytes_at(from), bytes); };
  return what;
}
template <typename T>
void reduce(T* to, const T* from, std::size_t count, std::size_t ranks, ncclRedOp_t how) {
  for (std::size_t i = 0; i < count; ++i) {
    T value = from[i];
    for (std::size_t r = 1; r < ranks; ++r) {
      const T next = from[r * count + i];
      if (how == ncclSum) value = static_cast<T>(value + next);
      else if (how == ncclMax) value = std::max(value, next);
      else if (how == ncclMin) value = std::min(value, next);
      else stop("ncclAllReduce: only sum, max and min are emulated");
    }
    to[i] = value;
  }
}
void reduce_as(ncclDataType_t type, void* to, const void* from, std::size_t count, std::size_t ranks, ncclRedOp_t how) {
  const auto as = [&](auto zero) {
    reduce(static_cast<decltype(zero)*>(to), static_cast<const decltype(zero)*>(from), count, ranks, how);
  };
  switch (type) {
    case ncclUint8: return as(std::uint8_t{});
    case ncclInt32: return as(std::int32_t{});
    case ncclInt64: return as(std::int64_t{});
    case ncclUint64: return as(std::uint64_t{});
    case ncclFloat32: return as(float{});
    case ncclFloat64: return as(double{});
    default: stop("ncclAllReduce: this type is not emulated");
  }
}
}  // namespace
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  EMULATED(ncclAllGather, ncclInternalError);
  if (failure != 0) return note_error(code_of(failure)), code_of(failure);
  alive(comm, "ncclAllGather");
  if (count == 0) return ncclSuccess;
  return add_collective(comm, gather(comm, from, bytes_at(to), count * size_of(type), "an all-gather", 2), stream,
                        "ncclAllGather");
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t how,
                           ncclComm_t comm, cudaStream_t stream) {
  EMULATED(ncclAllReduce, ncclInternalError);
  if (failure != 0) return note_error(code_of(failure)), code_of(failure);
  alive(comm, "ncclAllReduce");
  const std::size_t bytes = count * size_of(type), ranks = static_cast<std::size_t>(comm->ranks);
  if (bytes == 0) return ncclSuccess;
  // NCCL's own memory: nobody sees it, and it goes with the last that refers to it.
  const std::shared_ptr<void> all(take_memory(bytes * ranks, kind::nccl), [](void* at) {
    if (at != nullptr) give_memory(at, kind::nccl, "ncclAllReduce");
  });
  if (all == nullptr) return ncclUnhandledCudaError;
  exchange what = gather(comm, from, bytes_at(all.get()), bytes, "an all-reduce", 3);
  what.after = [=, first = what.after] {
    first();
    reduce_as(type, device_view(to, bytes, use::write), device_view(all.get(), bytes * ranks, use::read), count, ranks,
              how);
  };
  return add_collective(comm, std::move(what), stream, "ncclAllReduce");
}
