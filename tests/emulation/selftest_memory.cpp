// SPDX-License-Identifier: Apache-2.0
// The emulation's rules of memory, and of hosts that wait, one process each.
#include <doctest/doctest.h>

#include "selftest_parts.hpp"

using namespace children;

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
  stopped(alone([] { cudaFree(static_cast<char*>(device_memory(64)) + 16); }),
          "which is not, or is no longer, of cudaMalloc");
}

TEST_CASE("a kernel in flight faults on memory that was freed") {
  for (const bool of_nccl : {false, true})
    stopped(alone(
                [=] {
                  static std::atomic<bool> go{false};
                  void* at = nullptr;
                  if (of_nccl) check(ncclMemAlloc(&at, 64));
                  else at = device_memory(64);
                  cudaStream_t s;
                  check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
                  std::byte* view = emulation::device_view(at, 64, emulation::use::write);
                  emulation::enqueue(s, [view] {
                    while (!go) std::this_thread::sleep_for(std::chrono::microseconds(50));
                    *static_cast<volatile std::byte*>(view) = std::byte{1};
                  });
                  if (of_nccl) check(ncclMemFree(at));
                  else check(cudaFree(at));
                  go = true;
                  check(cudaDeviceSynchronize());
                },
                {{"EMULATION_SYNC", "never"}}),
            "was freed while its work was in flight");
  stopped(alone([] {
            void* at = nullptr;
            check(cudaHostAlloc(&at, 64, 0));
            check(cudaFreeHost(at));
            stream s;
            emulation::enqueue(s.here, [=] { *static_cast<volatile char*>(at) = 1; });
            check(cudaStreamSynchronize(s.here));
          }),
          "a device touched what is no memory");
}

TEST_CASE("each rule of granules stops who breaks it") {
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

TEST_CASE("freeing and mapping wait for the whole device in some calls, and not in others") {
  const auto waits = [](std::uint64_t seed, bool maps) {
    const outcome o = alone(
        [&] {
          static held kernel;
          emulation::seed(seed);
          void* at = device_memory(64);
          cudaStream_t s;
          check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
          kernel.on(s);
          if (maps) at = device_memory(64);
          else check(cudaFree(at));
          ::_exit(0);
        },
        {{"EMULATION_PATIENCE_MS", "40"}});
    CHECK((o.code == 0 || o.says("which waits for the whole device")));
    return o.code != 0;
  };
  int freeing = 0, mapping = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) freeing += waits(seed, false), mapping += waits(seed, true);
  CHECK(freeing > 4);
  CHECK(freeing < 20);
  CHECK(mapping > freeing);
  CHECK(mapping < 24);
}

TEST_CASE("where only pinned memory waits for the whole device, all else does not") {
  const auto with_a_kernel = [](const std::function<void(void*, void*)>& calls) {
    return alone(
        [&] {
          static held kernel;
          void *at = device_memory(64), *pinned = nullptr;
          check(cudaHostAlloc(&pinned, 64, 0));
          cudaStream_t s;
          check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
          kernel.on(s);
          calls(at, pinned);
          ::_exit(0);
        },
        {{"EMULATION_SYNC", "pinned"}, {"EMULATION_PATIENCE_MS", "100"}});
  };
  ended_well(with_a_kernel([](void* at, void*) {
    check(cudaFree(at));
    device_memory(64);
  }));
  stopped(with_a_kernel([](void*, void* pinned) { check(cudaFreeHost(pinned)); }),
          "cudaFreeHost, which waits for the whole device,");
}
