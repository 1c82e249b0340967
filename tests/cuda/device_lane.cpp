// SPDX-License-Identifier: Apache-2.0
// How a lane of copies ends, on the emulation of CUDA, each time in a process of its own: what is on its way when it
// ends is waited for, and the memory of what never ends stays. The emulation stops who frees what a copy reads.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <reshard/cuda/device_lane.hpp>
#include <reshard/transport/nccl/handles.hpp>

#include "../emulation/selftest_parts.hpp"
#include "../support/emulated_copies.hpp"

using namespace reshard;
using children::alone, children::ended_well, children::expect;

namespace {

/// What something says that can't be done.
template <typename Something>
std::string refused(Something&& something) {
  try {
    something();
    return "accepted";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("a lane whose copy broke off is idle only once what was begun has ended, and so is what comes after it") {
  constexpr index_t count = 30'000;  // three parts, of which two begin
  const auto held_copy = [](device_lane& lane, std::byte* at, std::atomic<bool>& go) {
    copy_table table;
    for (index_t i = 0; i < count; ++i) table.add(at + 64 * i + 32, at + 64 * i, {.run_bytes = 32});
    lane.load();
    while (!lane.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    emulation::enqueue(lane.stream().get(), [&go] {
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    expect(refused([&] { lane.copy(table, std::chrono::milliseconds(70)); }) ==
               "reshard: copies on a device did not end for 70 ms",
           "it breaks off");
    expect(!lane.idle(), "two parts are on their way");
  };
  for (const bool ends : {true, false})
    ended_well(alone(
        [&] {
          std::atomic<bool> go = false;
          const nccl_memory tables(0, device_lane::table_bytes), memory(0, 64 * count);
          cuda_stream after;
          {
            device_lane lane(tables.data());
            held_copy(lane, memory.data(), go);
            lane.precedes(after);
            expect(!after.idle(), "what comes after it waits");
            go = ends;
            while (ends && !lane.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
          long freed = 0;
          for (const emulation::call_count& c : emulation::counts())
            freed += c.function == "cudaFreeHost" ? c.calls : 0;
          expect(freed == (ends ? 1 : 0), "what they read stays, where they have not ended");
          go = true;
          while (!after.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
          if (!ends) ::_exit(0);  // with that left
        },
        {{"EMULATION_SYNC", "pinned"}}));
}

TEST_CASE("a lane that is at something waits for it at its end, as long as its copy might have") {
  for (const bool launches : {true, false})
    ended_well(alone([&] {
      const nccl_memory tables(0, device_lane::table_bytes), memory(0, 4096);
      device_lane lane(tables.data());
      lane.load();
      while (!lane.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
      copy_table table;
      table.add(memory.data(), memory.data() + 64, {.run_bytes = 64});
      emulation::enqueue(lane.stream().get(), [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
      if (!launches) emulation::fail("launch", 1);
      expect((refused([&] { lane.copy(table, std::chrono::seconds(5)); }) == "accepted") == launches, "it begins");
    }));
}

TEST_CASE("a table whose copies were not launched is read all the same, and not written over before") {
  ended_well(alone([] {
    std::atomic<bool> go = false;
    const nccl_memory tables(0, device_lane::table_bytes), memory(0, 4096);
    device_lane lane(tables.data());
    lane.load();
    while (!lane.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    copy_table table;
    table.add(memory.data(), memory.data() + 64, {.run_bytes = 64});
    emulation::enqueue(lane.stream().get(), [&go] {
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    const auto begins = [&] { return refused([&] { lane.copy(table, std::chrono::milliseconds(70)); }); };
    emulation::fail("launch", 1);
    expect(begins().starts_with("reshard: CUDA could not launch copies: "), "it is told");
    expect(begins() == "accepted", "the other half is free");
    expect(begins() == "reshard: copies on a device did not end for 70 ms", "this one is not");
    go = true;
    while (!lane.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    expect(begins() == "accepted", "now it is");
  }));
}
