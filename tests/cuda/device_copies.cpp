// SPDX-License-Identifier: Apache-2.0
// The copy kernels, linked to a program that no CUDA compiler saw: where there is a device they make random tables as
// one byte at a time does; where there is none, every call returns CUDA's error at once.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include <reshard/copy/copy_table.hpp>
#include <reshard/cuda/launch_copies.hpp>

#include "../support/dice.hpp"
#include "../support/random_copies.hpp"

using namespace reshard;
using testing::any_copy, testing::dice, testing::random_copy;

namespace {

bool has_device() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

/// Memory of the device, as far from a multiple of 256 as the host's is.
class on_device {
 public:
  on_device(const std::byte* bytes, std::int64_t size) {
    REQUIRE(cudaMalloc(&at_, static_cast<std::size_t>(size) + 1) == cudaSuccess);
    REQUIRE(cudaMemcpy(at_, bytes, static_cast<std::size_t>(size), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~on_device() { cudaFree(at_); }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(at_); }

 private:
  void* at_ = nullptr;
};

template <typename Copy>
void check_on_device(Copy& one, const copy_shape& shape, const conversion& as) {
  const on_device dst(one.dst.data(), one.dst.size()), src(one.src.data(), one.src.size());
  copy_table table;
  table.add(dst.data() + one.dst_at, src.data() + one.src_at, shape, as);
  const on_device copies(reinterpret_cast<const std::byte*>(table.data()),
                         static_cast<std::int64_t>(table.size() * sizeof(table_copy)));
  REQUIRE(launch_copies(reinterpret_cast<const table_copy*>(copies.data()), static_cast<index_t>(table.size()),
                        nullptr) == 0);
  REQUIRE(cudaMemcpy(one.dst.data(), dst.data(), static_cast<std::size_t>(one.dst.size()), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  REQUIRE(one.made());
}

}  // namespace

TEST_CASE("copies of a table on the device, or CUDA's error") {
  if (!has_device()) {
    const int loaded = load_copy_kernels(nullptr), launched = launch_copies(nullptr, 1, nullptr);
    std::printf("no device: %s\n", cudaGetErrorString(static_cast<cudaError_t>(launched)));
    CHECK(loaded != 0);
    CHECK(launched != 0);
    CHECK(launch_copies(nullptr, 0, nullptr) == 0);  // nothing is launched
    return;
  }
  REQUIRE(load_copy_kernels(nullptr) == 0);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  dice random(1);
  for (int i = 0; i < 2000; ++i) {
    CAPTURE(i);
    random_copy one = any_copy(random, i);
    check_on_device(one, one.shape, {});
    testing::random_conversion other = testing::any_converted_copy(random);
    check_on_device(other, other.shape(), other.as);
  }
}
