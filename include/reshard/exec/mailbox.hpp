// SPDX-License-Identifier: Apache-2.0
// One pair of devices' rendezvous: each hands the other a message, taken by a copy while its sender waits, or none at
// all.
// Builds on: exec/rendezvous.hpp, memory/memory_block.hpp.
#pragma once

#include <condition_variable>
#include <cstring>
#include <mutex>

#include <reshard/exec/rendezvous.hpp>
#include <reshard/memory/memory_block.hpp>

namespace reshard {

/// Where two devices hand messages over, in both directions. A message is taken, by a copy, while its sender waits.
class mailbox {
 public:
  /// Which device of the pair calls.
  enum class side { lower, higher };

  /// Hands `out` to the peer and fills `in` with what the peer hands over; neither where it has no bytes. False where
  /// the peer does not come in time, or `world` breaks. Where `in` has bytes and the peer's message came, `offered` is
  /// its length.
  bool exchange(side mine, memory out, memory in, rendezvous& world, bytes_t& offered) {
    std::unique_lock lock(mutex_);
    const auto wait = [&](auto&& what) {
      return changed_.wait_for(lock, world.waits(), [&] { return what() || world.broken(); }) && what();
    };
    letter &to = letters_[mine == side::higher], &from = letters_[mine == side::lower];
    offered = in.bytes;
    const auto retract = [&] { return to.full = false; };  // nobody takes a letter whose sender is gone
    if (world.broken()) return false;
    if (out.bytes > 0) {
      to = {out, true};
      changed_.notify_all();
    }
    if (in.bytes > 0) {
      if (!wait([&] { return from.full; })) return retract();
      offered = from.content.bytes;
      if (offered == in.bytes) std::memcpy(in.data, from.content.data, static_cast<std::size_t>(in.bytes));
      from.full = false;
      changed_.notify_all();
    }
    return out.bytes == 0 || wait([&] { return !to.full; }) || retract();
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  struct letter {
    memory content;
    bool full = false;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  letter letters_[2];
};

}  // namespace reshard
