// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's functions about streams, events, host functions and entry points.
#include <cstring>

#include "emulation.hpp"
#include "memory.hpp"
#include "runtime.hpp"
#include "streams.hpp"

using emulation::answer;
using emulation::event_of;
using emulation::stream_of;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  EMULATED_IN_CONTEXT(cudaStreamCreateWithPriority, cudaErrorMemoryAllocation);
  if (failure == 0) *stream = emulation::make_stream(flags);
  return answer(failure);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  EMULATED_IN_CONTEXT(cudaStreamCreateWithFlags, cudaErrorMemoryAllocation);
  if (failure == 0) *stream = emulation::make_stream(flags);
  return answer(failure);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  EMULATED_IN_CONTEXT(cudaStreamCreate, cudaErrorMemoryAllocation);
  if (failure == 0) *stream = emulation::make_stream(cudaStreamDefault);
  return answer(failure);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  EMULATED_IN_CONTEXT(cudaStreamDestroy, cudaErrorUnknown);
  emulation::destroy_stream(stream_of(stream, "cudaStreamDestroy"));
  return answer(failure);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  EMULATED_IN_CONTEXT(cudaStreamQuery, cudaErrorLaunchFailure);
  if (failure != 0) return answer(failure);
  return emulation::unfinished(stream_of(stream, "cudaStreamQuery")).empty() ? cudaSuccess : answer(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  EMULATED_IN_CONTEXT(cudaStreamSynchronize, cudaErrorLaunchFailure);
  if (failure != 0) return answer(failure);
  emulation::wait_for(emulation::unfinished(stream_of(stream, "cudaStreamSynchronize")), "cudaStreamSynchronize");
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  EMULATED_IN_CONTEXT(cudaDeviceSynchronize, cudaErrorLaunchFailure);
  if (failure != 0) return answer(failure);
  emulation::drain("cudaDeviceSynchronize");
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  EMULATED_IN_CONTEXT(cudaStreamWaitEvent, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  CUstream_st* on = stream_of(stream, "cudaStreamWaitEvent");
  const CUevent_st* e = event_of(event, "cudaStreamWaitEvent");
  if (e->recorded == nullptr) return cudaSuccess;  // as documented: an event that was never recorded is no wait
  emulation::issue(on, {"a wait for event " + std::to_string(e->number), {e->recorded}, {}}, "cudaStreamWaitEvent");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  EMULATED(cudaDeviceGetStreamPriorityRange, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  EMULATED_IN_CONTEXT(cudaEventCreateWithFlags, cudaErrorMemoryAllocation);
  if (failure == 0) *event = emulation::make_event(flags);
  return answer(failure);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  EMULATED_IN_CONTEXT(cudaEventCreate, cudaErrorMemoryAllocation);
  if (failure == 0) *event = emulation::make_event(cudaEventDefault);
  return answer(failure);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  EMULATED_IN_CONTEXT(cudaEventDestroy, cudaErrorUnknown);
  event_of(event, "cudaEventDestroy")->alive = false;  // what waits for it keeps waiting
  return answer(failure);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  EMULATED_IN_CONTEXT(cudaEventRecord, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  CUevent_st* e = event_of(event, "cudaEventRecord");
  e->recorded = emulation::issue(stream_of(stream, "cudaEventRecord"), {"event " + std::to_string(e->number), {}, {}},
                                 "cudaEventRecord");
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  EMULATED_IN_CONTEXT(cudaEventQuery, cudaErrorLaunchFailure);
  if (failure != 0) return answer(failure);
  return emulation::ended(event_of(event, "cudaEventQuery")->recorded) ? cudaSuccess : answer(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  EMULATED_IN_CONTEXT(cudaEventSynchronize, cudaErrorLaunchFailure);
  if (failure != 0) return answer(failure);
  if (const auto recorded = event_of(event, "cudaEventSynchronize")->recorded)
    emulation::wait_for({recorded}, "cudaEventSynchronize");
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  EMULATED_IN_CONTEXT(cudaEventElapsedTime, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  const CUevent_st *a = event_of(begin, "cudaEventElapsedTime"), *b = event_of(end, "cudaEventElapsedTime");
  if (a->recorded == nullptr || b->recorded == nullptr || ((a->flags | b->flags) & cudaEventDisableTiming) != 0)
    return answer(cudaErrorInvalidResourceHandle);
  if (!emulation::ended(a->recorded) || !emulation::ended(b->recorded)) return answer(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(b->recorded->at - a->recorded->at).count();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  EMULATED_IN_CONTEXT(cudaLaunchHostFunc, cudaErrorUnknown);
  if (failure != 0) return answer(failure);
  emulation::issue(stream_of(stream, "cudaLaunchHostFunc"), {"a host function", {}, [=] { function(data); }},
                   "cudaLaunchHostFunc");
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t,
                             cudaStream_t stream) {
  const std::optional<emulation::host_twin> twin = emulation::twin_of(function);
  if (!twin) emulation::stop("cudaLaunchKernel of a kernel that has no host twin");
  if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z == 0 || block.x * block.y * block.z > 1024)
    return answer(cudaErrorInvalidConfiguration);
  return emulation::launch(stream, twin->kernel.c_str(), twin->body_of(arguments));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  EMULATED_IN_CONTEXT(cudaFuncGetAttributes, cudaErrorUnknown);
  if (failure == 0) *attributes = cudaFuncAttributes{};
  return answer(failure);
}

namespace {
cudaError_t entry_point(const char* symbol, void** function, cudaDriverEntryPointQueryResult* status) {
  *function = emulation::driver_function(symbol);
  if (status != nullptr)
    *status = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *function != nullptr ? cudaSuccess : answer(cudaErrorSymbolNotFound);
}
}  // namespace
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* status) {
  EMULATED(cudaGetDriverEntryPoint, cudaErrorUnknown);
  return failure != 0 ? answer(failure) : entry_point(symbol, function, status);
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  EMULATED(cudaGetDriverEntryPointByVersion, cudaErrorUnknown);
  return failure != 0 ? answer(failure) : entry_point(symbol, function, status);
}
#endif
