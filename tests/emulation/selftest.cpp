// SPDX-License-Identifier: Apache-2.0
// The emulation's rules, one process each: what works works, and who breaks a rule is stopped with its sentence.
#include <doctest/doctest.h>

#include <cstring>

#include <cuda.h>

#include "children.hpp"

using namespace children;

namespace {
constexpr std::size_t mib = std::size_t{1} << 20;

void stopped(const outcome& found, const std::string& sentence) {
  INFO(found.words);
  CHECK(found.code == emulation::stopped_code);
  CHECK(found.says("emulation: "));
  CHECK(found.says(sentence));
}
void ended_well(const outcome& found) {
  INFO(found.words);
  CHECK(found.code == 0);
}
template <typename F>
F driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
  return reinterpret_cast<F>(found);
}
void* device_memory(std::size_t bytes) {
  void* at = nullptr;
  check(cudaMalloc(&at, bytes));
  return at;
}
/// A kernel that ends when it is told.
struct held {
  std::atomic<bool> free{false};
  void on(cudaStream_t s) {
    emulation::enqueue(s, [this] {
      while (!free) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  }
};
/// One granule at an address.
struct granule {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  static constexpr std::size_t bytes = 2 * mib;
  CUmemAllocationProp how() const {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED, p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return p;
  }
  void map() {
    const CUmemAllocationProp p = how();
    expect(cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0) == CUDA_SUCCESS, "reserved");
    expect(cuMemCreate(&handle, bytes, &p, 0) == CUDA_SUCCESS, "made");
    expect(cuMemMap(at, bytes, 0, handle, 0) == CUDA_SUCCESS, "mapped");
  }
  void grant() {
    CUmemAccessDesc d{};
    d.location.type = CU_MEM_LOCATION_TYPE_DEVICE, d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    expect(cuMemSetAccess(at, bytes, &d, 1) == CUDA_SUCCESS, "granted");
  }
  void* pointer() const { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)); }
};
}  // namespace

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

TEST_CASE("memory comes with garbage in it, counts, and ends") {
  ended_well(alone(
      [] {
        std::size_t free = 0, total = 0, less = 0;
        check(cudaMemGetInfo(&free, &total));
        expect(free == total && total == 16 * mib, "all is free");
        auto* at = static_cast<std::uint64_t*>(device_memory(8 * mib));
        check(cudaMemGetInfo(&less, &total));
        expect(free - less >= 8 * mib && emulation::peak_bytes() == emulation::used_bytes(), "it counts");
        std::uint64_t words[2] = {0, 0};
        emulation::peek(words, at, sizeof words);
        expect(words[0] != 0 && words[0] != words[1], "garbage");
        void* none = nullptr;
        expect(cudaMalloc(&none, 9 * mib) == cudaErrorMemoryAllocation, "there is no more");
        expect(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess, "remembered once");
        cudaPointerAttributes says{};
        check(cudaPointerGetAttributes(&says, at + 5));
        expect(says.type == cudaMemoryTypeDevice && says.device == 0, "a device's");
        check(cudaPointerGetAttributes(&says, words));
        expect(says.type == cudaMemoryTypeUnregistered, "nobody's");
        CUdeviceptr begin = 0;
        std::size_t bytes = 0;
        expect(cuMemGetAddressRange(&begin, &bytes, reinterpret_cast<CUdeviceptr>(at + 9)) == CUDA_SUCCESS, "a range");
        expect(begin == reinterpret_cast<CUdeviceptr>(at) && bytes == 8 * mib, "the whole range");
        check(cudaFree(at));
        expect(emulation::used_bytes() == 0, "all is free again");
      },
      {{"EMULATION_MEMORY_MIB", "16"}}));
}

TEST_CASE("granules: addresses stay, contents stay with the handle, neighbours are one") {
  ended_well(alone([] {
    const auto unmap = driver<decltype(&cuMemUnmap)>("cuMemUnmap");
    granule g;
    g.map();
    g.grant();
    CUmemGenericAllocationHandle second = 0;
    const CUmemAllocationProp p = g.how();
    expect(cuMemCreate(&second, granule::bytes, &p, 0) == CUDA_SUCCESS, "made");
    expect(cuMemMap(g.at + granule::bytes, granule::bytes, 0, second, 0) == CUDA_SUCCESS, "mapped");
    CUmemAccessDesc d{};
    d.location.type = CU_MEM_LOCATION_TYPE_DEVICE, d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    expect(cuMemSetAccess(g.at, 2 * granule::bytes, &d, 1) == CUDA_SUCCESS, "granted");
    check(cudaMemset(g.pointer(), 3, 2 * granule::bytes));  // over the border
    check(cudaDeviceSynchronize());
    expect(unmap(g.at, granule::bytes) == CUDA_SUCCESS, "unmapped");
    expect(unmap(g.at + granule::bytes, granule::bytes) == CUDA_SUCCESS, "unmapped");
    expect(cuMemMap(g.at, granule::bytes, 0, second, 0) == CUDA_SUCCESS, "mapped elsewhere");
    g.grant();
    unsigned char last = 0;
    emulation::peek(&last, static_cast<std::byte*>(g.pointer()) + granule::bytes - 1, 1);
    expect(last == 3, "its bytes came along");
    expect(cuMemRelease(second) == CUDA_SUCCESS && cuMemRelease(g.handle) == CUDA_SUCCESS, "released");
    expect(emulation::used_bytes() == granule::bytes, "the mapping holds it");
    expect(unmap(g.at, granule::bytes) == CUDA_SUCCESS && emulation::used_bytes() == 0, "gone");
    expect(cuMemAddressFree(g.at, 2 * granule::bytes) == CUDA_SUCCESS, "given back");
    void* none = nullptr;
    expect(cudaGetDriverEntryPointByVersion("cuNothing", &none, 12000, cudaEnableDefault, nullptr) != cudaSuccess,
           "none");
  }));
}

TEST_CASE("each rule of memory stops who breaks it") {
  const auto never = settings{{"EMULATION_SYNC", "never"}};
  stopped(alone([] { *static_cast<volatile char*>(device_memory(64)) = 1; }), "the host touched device memory");
  stopped(alone([] {
            void* at = device_memory(64);
            check(cudaFree(at));
            check(cudaMemset(at, 0, 64));
          }),
          "is no device memory");
  stopped(alone([] { check(cudaMemset(device_memory(64), 0, 65)); }), "leave what was allocated");
  stopped(alone([] {
            stream s;
            int mine = 0;
            emulation::enqueue(s.here, [&] { emulation::device_view(&mine, 4, emulation::use::read); });
            check(cudaStreamSynchronize(s.here));
          }),
          "no pinned or registered host memory");
  stopped(alone(
              [] {
                static held kernel;
                cudaStream_t s;
                check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
                void* at = device_memory(64);
                kernel.on(s);
                check(cudaMemsetAsync(at, 0, 64, s));
                check(cudaFree(at));
              },
              never),
          "cudaFree takes away memory that a setting of 64 bytes uses");
  stopped(alone(
              [] {
                granule g;
                g.map();
                g.grant();
                static std::atomic<bool> go{false};
                cudaStream_t s;
                check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
                char* view = reinterpret_cast<char*>(emulation::device_view(g.pointer(), 64, emulation::use::write));
                emulation::enqueue(s, [view] {
                  while (!go) std::this_thread::sleep_for(std::chrono::microseconds(50));
                  *static_cast<volatile char*>(view) = 1;
                });
                expect(cuMemUnmap(g.at, granule::bytes) == CUDA_SUCCESS, "unmapped");
                go = true;
                check(cudaDeviceSynchronize());
              },
              never),
          "a device touched memory that is not mapped, or was freed while its work was in flight");
  stopped(alone([] {
            granule g;
            g.map();
            check(cudaMemset(g.pointer(), 0, 4));
          }),
          "cuMemSetAccess was not called");
  stopped(alone([] {
            granule g;
            g.map();
            cuMemUnmap(g.at, granule::bytes / 2);
          }),
          "which is no whole mapping");
  stopped(alone([] {
            granule g;
            g.map();
            cuMemMap(g.at, granule::bytes, 0, g.handle, 0);
          }),
          "is mapped already");
  stopped(alone([] {
            granule g;
            g.map();
            cuMemMap(g.at + 2 * granule::bytes, granule::bytes, 0, g.handle, 0);
          }),
          "was not reserved");
  stopped(alone([] {
            granule g;
            g.map();
            cuMemRelease(g.handle);
            cuMemRelease(g.handle);
          }),
          "no longer, held");
  stopped(alone([] {
            granule g;
            g.map();
            cuMemAddressFree(g.at, 2 * granule::bytes);
          }),
          "where memory is still mapped");
  stopped(alone([] { cudaFree(static_cast<char*>(device_memory(64)) + 16); }),
          "which is not, or is no longer, of cudaMalloc");
}

TEST_CASE("a host that waits for its device in a circle is stopped") {
  const auto circle = [](const std::function<void(cudaStream_t)>& waits) {
    return alone(
        [&] {
          static held kernel;
          cudaStream_t s;
          check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
          kernel.on(s);
          waits(s);
        },
        {{"EMULATION_SYNC", "always"}});
  };
  stopped(circle([](cudaStream_t s) { check(cudaStreamSynchronize(s)); }),
          "cudaStreamSynchronize has waited 700 ms for its device");
  stopped(circle([](cudaStream_t) { check(cudaDeviceSynchronize()); }), "cudaDeviceSynchronize has waited");
  stopped(circle([](cudaStream_t) { device_memory(5); }), "cudaMalloc, which waits for the whole device, has waited");
  stopped(circle([](cudaStream_t) {
            void* p;
            check(cudaHostAlloc(&p, 5, 0));
          }),
          "cudaHostAlloc, which waits for the whole device");
  stopped(circle([](cudaStream_t) {
            granule g;
            g.map();
          }),
          "waits for the whole device");
  stopped(circle([](cudaStream_t s) {
            static_cast<void>(s);
            cudaStream_t other;
            check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
            check(emulation::launch(other, "loaded late", [] {}));
          }),
          "the first launch of loaded late, which waits for the whole device");
  stopped(circle([](cudaStream_t s) {
            static char pageable[8];
            void* at = nullptr;
            check(ncclMemAlloc(&at, 8));
            check(cudaMemcpyAsync(at, pageable, 8, cudaMemcpyHostToDevice, s));
          }),
          "waits for the whole device");
  stopped(alone([] {
            static held kernel;
            static char pageable[8];
            void* at = device_memory(8);
            cudaStream_t s;
            check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
            kernel.on(s);
            check(cudaMemcpyAsync(at, pageable, 8, cudaMemcpyHostToDevice, s));
          }),
          "cudaMemcpyAsync of pageable memory has waited");
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
