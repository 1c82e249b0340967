// SPDX-License-Identifier: Apache-2.0
// What an end of a world over NCCL has on its device: two lanes of copies with memory for their tables, and the stream
// that messages go on. None of it goes before what was begun there has ended: to free memory, of the host's too, waits
// for the device, and where that never ends, so would the host.
// Builds on: transport/nccl/handles.hpp, cuda/device_lane.hpp, base/patience.hpp.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <thread>

#include <reshard/base/patience.hpp>
#include <reshard/cuda/device_lane.hpp>
#include <reshard/transport/nccl/handles.hpp>

namespace reshard {

/// Lanes and the stream of messages, which wait for each other on the device alone.
struct nccl_device {
  static constexpr bytes_t tables_bytes = 2 * device_lane::table_bytes;

  /// On the current device, which is CUDA's `number`; what is begun there is waited for so long at most.
  nccl_device(int number, patience wait) : gpu(number), waits(wait), tables(number, tables_bytes) {}
  nccl_device(const nccl_device&) = delete;
  nccl_device& operator=(const nccl_device&) = delete;

  /// Whether all that was begun here ends within a patience, which is waited once.
  template <typename Pause>
  bool ends(Pause&& pause) {
    for (vain_wait waited(waits); !(packing.idle() && unpacking.idle() && exchange.idle()); pause())
      if (waited.over()) return waits = patience(0), false;
    return true;
  }

  int gpu;
  patience waits;
  nccl_memory tables;
  device_lane packing{tables.data()}, unpacking{tables.data() + device_lane::table_bytes};
  cuda_stream exchange;
};

/// Gives it back once it has ended; where what was begun there never ends, all of it stays.
struct once_ended {
  void operator()(nccl_device* mine) const {
    const on_device here(mine->gpu, std::nothrow);
    try {
      if (!mine->ends([] { std::this_thread::sleep_for(std::chrono::microseconds(20)); })) return;
    } catch (const std::exception&) {  // the device does nothing more
    }
    delete mine;
  }
};

}  // namespace reshard
