// SPDX-License-Identifier: Apache-2.0
// Which device is current, on the emulation of CUDA, each time in a process of its own: no context comes into being on
// a device that nobody asked for, and the caller's thread has afterwards what it had before.
#include <doctest/doctest.h>

#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/cuda/device_memory.hpp>
#include <reshard/cuda/on_device.hpp>
#include <reshard/transport/nccl/handles.hpp>

#include "../emulation/selftest_parts.hpp"

using namespace reshard;
using children::alone, children::check, children::ended_well, children::expect;

namespace {

int current() {
  int device = -1;
  check(cudaGetDevice(&device));
  return device;
}
CUcontext current_context() {
  CUcontext context = nullptr;
  const detail::cuda_driver& driver = detail::cuda_driver::get();
  driver.require(driver.current_context(&context), "say which context is current");
  return context;
}
bool only(int device) { return emulation::contexts() == std::vector{device}; }

}  // namespace

TEST_CASE("a process that begins with device 5 has a context there, and nowhere else") {
  ended_well(alone([] {
    {
      device_granules pool(5);
      device_memory range(pool, 3 * device_granule_bytes);
      range.take_all();
      const nccl_memory memory(5, 4096);
      expect(only(5), "one context");
    }
    expect(only(5), "nor do their ends make another");
    expect(current() == 5, "what makes no context stays current");
  }));
  ended_well(alone([] {
    const device_granules pool(0);
    expect(only(0), "of the first device, too");
  }));
}

TEST_CASE("what a range was to wait for goes on its device, in a thread that has used none") {
  ended_well(alone([] {
    device_granules pool(5);
    std::optional<device_memory> range(std::in_place, pool, device_granule_bytes);
    range->take_all();
    {
      const cuda_stream reader;
      cuda_event end;
      end.record(reader);
      while (!reader.idle()) std::this_thread::yield();  // what is under way as the process ends is a fault of it
      range->read_until(std::move(end));
    }
    std::thread([&] {
      range.reset();
      expect(only(5), "its end makes no context on device 0");
    }).join();
    expect(pool.bytes() == 0, "all is given back");
  }));
}

TEST_CASE("the device that was current is so again, wherever it has a context") {
  ended_well(alone([] {
    check(cudaSetDevice(3));
    check(cudaFree(nullptr));
    const CUcontext before = current_context();
    {
      const on_device here(5);
      expect(current() == 5, "meanwhile the other");
      check(cudaFree(nullptr));
      {
        const on_device again(5);
        expect(current() == 5, "once more, which is nothing to do");
      }
      expect(current() == 5, "still");
    }
    expect(current() == 3 && current_context() == before, "the context that was");
    try {
      const on_device none(99);
      expect(false, "there is no device 99");
    } catch (const std::runtime_error&) {
    }
    expect(current() == 3 && current_context() == before, "as before");
    std::thread([] {  // begins with device 0 and no context
      const on_device here(5);
    })
        .join();
    expect(emulation::contexts() == std::vector{3, 5}, "none on device 0");
  }));
  ended_well(alone([] {
    check(cudaFree(nullptr));
    std::thread([] {
      expect(current() == 0 && current_context() == nullptr, "a thread has none at first");
      { const device_granules pool(5); }
      expect(current() == 0, "device 0 has a context of another thread's");
    }).join();
    expect(emulation::contexts() == std::vector{0, 5}, "two, and both of use");
  }));
}
