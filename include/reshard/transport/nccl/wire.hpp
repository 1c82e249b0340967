// SPDX-License-Identifier: Apache-2.0
// The wire of GPUs over NCCL: what a round sends and receives is one group on a stream, what it packs and unpacks are
// launches on two others, and events say in which order. Who waits for any of it hears who is gone; then all
// communicators are aborted together, and memory stays until no device that lives writes to it.
// Builds on: transport/nccl/groups.hpp.
#pragma once

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <reshard/transport/nccl/groups.hpp>

namespace reshard {

/// One process's end of a wire over NCCL; the meeting outlives it. Made by all devices that the meeting has.
template <Meeting M>
class nccl_wire {
  using clock = std::chrono::steady_clock;

 public:
  /// `gpu`: CUDA's number of this process's device. Refused on all where one can't.
  nccl_wire(M& meeting, int gpu, const nccl_options& options) : world_(meeting, gpu, options), groups_(world_) {}
  nccl_wire(const nccl_wire&) = delete;
  nccl_wire& operator=(const nccl_wire&) = delete;
  ~nccl_wire() {
    world_.leave();
    if (!kept_.empty()) world_.hear_others_stop();
    others_stopped();
    if (!kept_.empty()) static_cast<void>(new std::list<message_arenas>(std::move(kept_)));  // the device may use them
  }

  int gpu() const { return world_.gpu(); }
  bytes_t fixed_bytes() const { return world_.fixed_bytes(); }

  void connect(const std::vector<rank_t>&) {}  // contact does
  std::vector<rank_t> unconnected() const { return {}; }
  void contact(const std::vector<rank_t>& to, const std::vector<rank_t>& from) { groups_.contact(to, from); }
  void send(message& m) { groups_.send(m); }
  void receive(message& m) { groups_.receive(m); }
  void post() { groups_.post(); }
  bool idle() const { return groups_.idle(); }

  void copy(copies_of which, const copy_table& table) {
    const on_device here(gpu());
    copying(which) = true;
    lane(which).copy(table, world_.meeting().waits());
    world_.look().stir();
  }
  void zero(const bound_box& b) {
    const on_device here(gpu());
    copying(copies_of::outgoing) = true;
    lane(copies_of::outgoing).zero(b, world_.meeting().waits());
    world_.look().stir();
  }
  bool copied(copies_of which) {
    const on_device here(gpu());
    if (!copying(which)) return true;
    if (!lane(which).idle()) return false;
    copying(which) = false;
    world_.look().stir();
    return true;
  }

  arena_source arenas() const {
    return {device_granule, registered() ? in_tensors::never : in_tensors::outgoing, piece_alignment};
  }
  std::shared_ptr<std::byte> make_arena(bytes_t bytes) {
    if (registered()) world_.require_going();
    const auto arena = std::make_shared<nccl_memory>(
        gpu(), bytes, registered() ? world_.communicator() : std::shared_ptr<nccl_communicator>());
    return {arena, arena->data()};
  }

  void poll(std::chrono::microseconds at_most) {
    const on_device here(gpu());
    const bool out = copying(copies_of::outgoing), in = copying(copies_of::incoming);
    for (const auto end = clock::now() + at_most;; world_.look().wait_a_little()) {
      const bool heard = world_.look().hear();
      world_.require_well();
      if (groups_.note_done() || (out && copied(copies_of::outgoing)) || (in && copied(copies_of::incoming)) || heard ||
          clock::now() >= end)
        return;
    }
  }

  /// All communicators end, whatever they are at, and this device's streams with them.
  void stop() {
    groups_.forget();
    world_.stop();
  }
  /// Peers may write to arenas until they have stopped as well.
  bool unfinished() const { return world_.stopped(); }
  void keep(message_arenas&& arenas) { kept_.push_back(std::move(arenas)); }
  /// Every device that lives has stopped.
  void others_stopped() {
    if (world_.quiet()) kept_.clear();
  }

 private:
  static constexpr bytes_t device_granule = bytes_t{2} << 20;

  bool registered() const { return world_.options().arenas == arenas_are::registered; }
  device_lane& lane(copies_of which) {
    return which == copies_of::outgoing ? world_.device().packing : world_.device().unpacking;
  }
  bool& copying(copies_of which) { return copying_[which == copies_of::outgoing ? 0 : 1]; }

  nccl_world<M> world_;
  nccl_groups<M> groups_;
  std::list<message_arenas> kept_;
  bool copying_[2] = {};
};

}  // namespace reshard
