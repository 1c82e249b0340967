// SPDX-License-Identifier: Apache-2.0
// The emulation's streams, failures, delays and what it says at exit, one process each: what works works, and who
// breaks a rule is stopped with its sentence.
#include <doctest/doctest.h>

#include <algorithm>

#include "selftest_parts.hpp"

using namespace children;

TEST_CASE("copies, kernels, events and settings do what they say") {
  ended_well(alone([] {
    stream a, b;
    cudaEvent_t done;
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    check(cudaEventQuery(done));
    int* there = static_cast<int*>(device_memory(4000));
    int *from = nullptr, *back = nullptr;
    check(cudaHostAlloc(reinterpret_cast<void**>(&from), 4000, cudaHostAllocDefault));
    check(cudaMallocHost(reinterpret_cast<void**>(&back), 4000));
    for (int i = 0; i < 1000; ++i) from[i] = i;
    check(cudaMemcpyAsync(there, from, 4000, cudaMemcpyHostToDevice, a.here));
    check(emulation::launch(a.here, "double", [=] {
      const int* in = emulation::readable(there, 1000);
      int* out = emulation::writable(there, 1000);
      for (int i = 0; i < 1000; ++i) out[i] = 2 * in[i];
    }));
    check(cudaEventRecord(done, a.here));
    check(cudaStreamWaitEvent(b.here, done, 0));
    check(cudaMemcpyAsync(back, there, 4000, cudaMemcpyDefault, b.here));
    while (cudaStreamQuery(b.here) == cudaErrorNotReady) std::this_thread::sleep_for(std::chrono::microseconds(50));
    for (int i = 0; i < 1000; ++i) expect(back[i] == 2 * i, "the doubles came back");
    check(cudaMemset(there, 7, 4000));
    std::vector<unsigned char> pageable(4000);
    check(cudaMemcpy(pageable.data(), there, 4000, cudaMemcpyDeviceToHost));
    expect(pageable[3999] == 7, "set");
    check(cudaEventDestroy(done));
    check(cudaFree(there));
    check(cudaFreeHost(from));
    check(cudaFreeHost(back));
  }));
}

TEST_CASE("a stream waits for what an event recorded, and for no more") {
  ended_well(alone([] {
    stream s, t, u;
    held kernel;
    std::atomic<int> ran{0}, apart{0};
    cudaEvent_t recorded;
    check(cudaEventCreateWithFlags(&recorded, cudaEventDisableTiming));
    check(cudaStreamWaitEvent(u.here, recorded, 0));  // never recorded: no wait
    kernel.on(s.here);
    check(cudaEventRecord(recorded, s.here));
    check(cudaStreamWaitEvent(t.here, recorded, 0));
    check(cudaEventRecord(recorded, u.here));  // the wait is for what was recorded when it was issued
    emulation::enqueue(t.here, [&] { ran = 1; });
    emulation::enqueue(u.here, [&] { apart = 1; });
    check(cudaStreamSynchronize(u.here));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    expect(apart == 1 && ran == 0, "one waits, one does not");
    expect(cudaStreamQuery(t.here) == cudaErrorNotReady, "not ready");
    kernel.free = true;
    check(cudaStreamSynchronize(t.here));
    expect(ran == 1, "then it runs");
    check(cudaEventDestroy(recorded));
  }));
}

TEST_CASE("the default stream and blocking streams wait for each other") {
  ended_well(alone([] {
    held kernel;
    std::atomic<int> after{0}, then{0};
    cudaStream_t blocking;
    check(cudaStreamCreate(&blocking));
    kernel.on(blocking);
    emulation::enqueue(nullptr, [&] { after = 1; });
    emulation::enqueue(blocking, [&] { then = after.load(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    expect(after == 0, "it waits");
    kernel.free = true;
    check(cudaStreamSynchronize(blocking));
    expect(after == 1 && then == 1, "in order");
    check(cudaStreamDestroy(blocking));
  }));
}

TEST_CASE("what is left at exit is told") {
  stopped(alone([] {
            cudaStream_t s;
            check(cudaStreamCreate(&s));
          }),
          "1 handle left at exit: stream 0 was not destroyed");
  stopped(alone([] {
            cudaEvent_t e;
            check(cudaEventCreate(&e));
          }),
          "event 0 was not destroyed");
  stopped(alone([] { device_memory(64); }), "64 bytes of cudaMalloc at ");
  stopped(alone([] {
            void* p;
            check(cudaHostAlloc(&p, 64, 0));
          }),
          "64 bytes of cudaHostAlloc at ");
  stopped(alone([] {
            static char p[64];
            check(cudaHostRegister(p, 64, 0));
          }),
          "were not unregistered");
  stopped(alone([] {
            granule g;
            g.map();
          }),
          "3 handles left at exit");
  stopped(alone([] {
            CUdeviceptr p;
            cuMemAddressReserve(&p, 4 * mib, 0, 0, 0);
          }),
          "were not given back");
  stopped(alone([] {
            cudaStream_t s;
            check(cudaStreamCreate(&s));
            std::exit(0);
          }),
          "left at exit");
  stopped(alone([] {
            void* p;
            check(ncclMemAlloc(&p, 100));
          }),
          "100 bytes of ncclMemAlloc");
}

TEST_CASE("stale handles, host functions that call CUDA, and a fork too late") {
  stopped(alone([] {
            cudaStream_t s;
            check(cudaStreamCreate(&s));
            check(cudaStreamDestroy(s));
            check(cudaStreamQuery(s));
          }),
          "stream 0, which was destroyed");
  stopped(alone([] {
            cudaEvent_t e;
            check(cudaEventCreate(&e));
            check(cudaEventDestroy(e));
            check(cudaEventQuery(e));
          }),
          "event 0, which was destroyed");
  stopped(alone([] {
            stream s;
            check(cudaLaunchHostFunc(
                s.here, [](void*) { cudaDeviceSynchronize(); }, nullptr));
            check(cudaStreamSynchronize(s.here));
          }),
          "cudaDeviceSynchronize was called by work of a stream");
  stopped(alone([] {
            int count = 0;
            check(cudaGetDeviceCount(&count));
            if (::fork() == 0) check(cudaGetDeviceCount(&count));
            int status = 0;
            ::wait(&status);
            ::_exit(WEXITSTATUS(status));
          }),
          "after a fork");
}

TEST_CASE("a context comes with cudaSetDevice or the first call that needs it, and must be of use") {
  stopped(alone([] {
            check(cudaSetDevice(2));
            check(cudaFree(nullptr));
            check(cudaSetDevice(0));
          }),
          "device 0 has a context, which cudaSetDevice made, and nothing was done there");
  ended_well(alone([] {
    using get = CUresult (*)(CUcontext*);
    using set = CUresult (*)(CUcontext);
    using state = CUresult (*)(CUdevice, unsigned*, int*);
    const auto current = driver<get>("cuCtxGetCurrent");
    const auto make_current = driver<set>("cuCtxSetCurrent");
    const auto primary = driver<state>("cuDevicePrimaryCtxGetState");
    int device = -1, active = -1;
    unsigned flags = 0;
    check(cudaGetDevice(&device));
    CUcontext none = nullptr, on_1 = nullptr, now = nullptr;
    expect(device == 0 && current(&none) == CUDA_SUCCESS && none == nullptr, "to ask makes none");
    expect(emulation::contexts().empty(), "nor is one there");
    check(cudaSetDevice(1));
    expect(current(&on_1) == CUDA_SUCCESS && on_1 != nullptr, "it is current at once");
    std::thread([&] {
      expect(current(&now) == CUDA_SUCCESS && now == nullptr, "each thread has its own");
      check(cudaGetDevice(&device));
      expect(device == 0, "and begins with device 0");
    }).join();
    expect(primary(1, &flags, &active) == CUDA_SUCCESS && active == 1, "device 1 has one");
    expect(primary(0, &flags, &active) == CUDA_SUCCESS && active == 0, "device 0 has none");
    check(cudaFree(nullptr));
    expect(make_current(nullptr) == CUDA_SUCCESS && current(&now) == CUDA_SUCCESS && now == nullptr, "none again");
    expect(make_current(on_1) == CUDA_SUCCESS, "and back");
    expect(make_current(reinterpret_cast<CUcontext>(std::uintptr_t{6})) == CUDA_ERROR_INVALID_CONTEXT, "no context");
    check(cudaGetDevice(&device));
    expect(device == 1, "that device");
    std::thread([&] {
      check(cudaFree(nullptr));
      expect(primary(0, &flags, &active) == CUDA_SUCCESS && active == 1, "the first call that needs one makes it");
    }).join();
    expect(emulation::contexts() == std::vector{0, 1}, "two");
  }));
}

TEST_CASE(
    "the last error stays until it is asked for: of any call, also that something is not ready, and of no launch") {
  stopped(alone([] {
            static const int kernel = 0;
            static_cast<void>(cudaLaunchKernel(&kernel, dim3(1), dim3(1), nullptr, 0, nullptr));
          }),
          "a kernel that has no host twin");
  ended_well(alone([] {
    static const int kernel = 0;
    static std::atomic<int> ran{0};
    emulation::twin(&kernel, {"counts", [](void** arguments) {
                                const int by = *static_cast<int*>(arguments[0]);
                                return [by] { ran += by; };
                              }});
    int by = 3;
    void* arguments[] = {&by};
    expect(cudaSetDevice(99) == cudaErrorInvalidDevice, "no such device");
    stream s;
    check(cudaLaunchKernel(&kernel, dim3(1), dim3(32), arguments, 0, s.here));
    by = 100;  // the launch has read it
    check(cudaStreamSynchronize(s.here));
    expect(ran == 3, "the twin ran");
    expect(cudaPeekAtLastError() == cudaErrorInvalidDevice, "the old error is there");
    expect(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess, "until it is asked for");
    expect(cudaLaunchKernel(&kernel, dim3(0), dim3(32), arguments, 0, s.here) == cudaErrorInvalidConfiguration,
           "no blocks");
    expect(cudaGetLastError() == cudaErrorInvalidConfiguration, "a launch's own");
    held work;
    work.on(s.here);
    expect(cudaStreamQuery(s.here) == cudaErrorNotReady && cudaGetLastError() == cudaErrorNotReady, "of a query");
    cudaEvent_t e;
    check(cudaEventCreate(&e));
    check(cudaEventRecord(e, s.here));
    expect(cudaEventQuery(e) == cudaErrorNotReady && cudaGetLastError() == cudaErrorNotReady, "of an event's");
    work.free = true;
    check(cudaStreamSynchronize(s.here));
    check(cudaEventDestroy(e));
  }));
}

TEST_CASE("failures come where they were asked for, and calls are counted") {
  ended_well(alone(
      [] {
        emulation::fail("cudaMalloc", 2);
        emulation::fail("cudaFree", 1, cudaErrorLaunchFailure);
        void *a = device_memory(16), *b = nullptr;
        expect(cudaMalloc(&b, 16) == cudaErrorMemoryAllocation, "the second fails");
        expect(cudaFree(a) == cudaErrorLaunchFailure, "it fails, and frees");
        check(cudaMalloc(&b, 16));
        check(cudaFree(b));
        int count = 0;
        expect(cudaGetDeviceCount(&count) == cudaErrorNoDevice, "of the environment, with its code");
        expect(emulation::failures_met() == 3, "all were met");
        long mallocs = 0;
        for (const auto& c : emulation::counts()) mallocs += c.function == "cudaMalloc" ? c.calls : 0;
        expect(mallocs == 3, "counted");
      },
      {{"EMULATION_FAIL", "cudaGetDeviceCount:1:100"}}));
}

TEST_CASE("delays and coins differ by seed, and are those of their seed") {
  const auto order = [](const char* seed) {
    // Each of two streams writes its name; who is first differs.
    family one;
    one.start({{"EMULATION_SEED", seed}, {"EMULATION_DELAY_US", "20000"}}, [](board& b) {
      stream s, t;
      for (int i = 0; i < 6; ++i) {
        std::atomic<int> first{0};
        emulation::enqueue(s.here, [&] {
          int none = 0;
          first.compare_exchange_strong(none, 1);
        });
        emulation::enqueue(t.here, [&] {
          int none = 0;
          first.compare_exchange_strong(none, 2);
        });
        check(cudaDeviceSynchronize());
        b.flags[0] = b.flags[0] * 3 + first;
      }
    });
    ended_well(one.wait(0));
    return one.shared->flags[0].load();
  };
  std::vector<int> orders;
  for (const char* seed : {"1", "2", "3", "4", "5"}) orders.push_back(order(seed));
  CHECK(std::count(orders.begin(), orders.end(), orders[0]) < 5);
}

TEST_CASE("with one hardware queue, what waits holds up all that was issued after it") {
  const auto runs_on = [](const char* queues) {
    const outcome o = alone(
        [] {
          static held kernel;
          stream s, t, u;
          cudaEvent_t after;
          check(cudaEventCreate(&after));
          kernel.on(s.here);
          check(cudaEventRecord(after, s.here));
          check(cudaStreamWaitEvent(t.here, after, 0));
          static std::atomic<bool> ran{false};
          emulation::enqueue(u.here, [] { ran = true; });
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          const bool at_once = ran;
          kernel.free = true;
          check(cudaDeviceSynchronize());
          check(cudaEventDestroy(after));
          ::_exit(ran ? (at_once ? 10 : 11) : 12);
        },
        {{"EMULATION_QUEUES", queues}});
    return o.code;
  };
  CHECK(runs_on("0") == 10);
  CHECK(runs_on("1") == 11);
}
