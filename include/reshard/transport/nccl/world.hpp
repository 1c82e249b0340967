// SPDX-License-Identifier: Apache-2.0
// A world over NCCL, from its beginning to its end: all devices of a meeting that live make one communicator, and leave
// it together; where one can't, communicators are aborted, whatever they are at.
// Builds on: transport/nccl/options.hpp, transport/nccl/seats.hpp, transport/nccl/device.hpp,
// transport/nccl/lookout.hpp, transport/parting.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <reshard/transport/nccl/device.hpp>
#include <reshard/transport/nccl/lookout.hpp>
#include <reshard/transport/nccl/options.hpp>
#include <reshard/transport/nccl/seats.hpp>
#include <reshard/transport/parting.hpp>

namespace reshard {

/// One process's part of a world over NCCL; the meeting outlives it. Made by all devices that the meeting has.
template <Meeting M>
class nccl_world {
 public:
  /// `gpu`: CUDA's number of this process's device. Refused on all where one can't.
  nccl_world(M& meeting, int gpu, const nccl_options& options)
      : meeting_(&meeting), gpu_(gpu), options_(options), look_(meeting), seats_(meeting),
        comm_(std::make_shared<nccl_communicator>()) {
    const ncclUniqueId id = seats_.agree(gpu_, options_.lent != nullptr, [this] { begin_on_device(); });
    try {
      const on_device here(gpu_);
      join(id);
      took(free_at_first_ - free_bytes());
    } catch (const std::exception& e) {
      meeting_->give_up(e.what());
      stop();
      meeting_->fail(e.what());
      throw;
    }
  }
  nccl_world(const nccl_world&) = delete;
  nccl_world& operator=(const nccl_world&) = delete;

  M& meeting() const { return *meeting_; }
  int gpu() const { return gpu_; }
  const nccl_options& options() const { return options_; }
  lookout<M>& look() { return look_; }
  const nccl_seats<M>& seats() const { return seats_; }
  const std::shared_ptr<nccl_communicator>& communicator() const { return comm_; }
  nccl_device& device() { return *device_; }

  static bytes_t free_bytes() {
    std::size_t free = 0, all = 0;
    detail::require_cuda(::cudaMemGetInfo(&free, &all), "say how much memory is free");
    return static_cast<bytes_t>(free);
  }
  /// NCCL has taken so much for itself.
  void took(bytes_t bytes) { fixed_ += greatest(0, bytes); }
  bytes_t fixed_bytes() const { return options_.fixed_bytes >= 0 ? options_.fixed_bytes : fixed_; }

  /// After stop there is no communicator, nor anything that moves.
  void require_going() const {
    if (stopped_)
      throw std::runtime_error(
          detail::text_of("reshard: device ", meeting_->device(), " has stopped its wire; no message goes any more"));
  }
  /// The communicator, where there still is one, has met no error.
  void require_well() const {
    if (*comm_) require(comm_->state(), "exchange messages");
  }
  /// Until what a call began in the background is on its stream, or is done.
  void settle(ncclResult_t code, const char* what) {
    require(code, what);
    for (vain_wait waited(meeting_->waits());; look_.pause()) {
      const ncclResult_t state = comm_->state();
      require(state, what);
      if (state == ncclSuccess) return;
      meeting_->require_whole();
      if (waited.over()) throw look_.in_vain(detail::text_of("NCCL to ", what));
    }
  }

  /// All communicators end, whatever they are at, and this device's streams with them.
  void stop() {
    if (std::exchange(stopped_, true)) return;
    const on_device here(gpu_, std::nothrow);
    try {
      if (comm_->lent() && *comm_) *options_.lent = nullptr;
      comm_->abort(options_.aborted_with);
      quiet_ = device_->ends([this] { look_.pause(); });
    } catch (const std::exception&) {  // what it may still read or write is kept
    }
  }
  bool stopped() const { return stopped_; }
  /// Whether this device has stopped, and reads and writes nothing any more.
  bool quiet() const { return quiet_; }
  /// The communicator ends in good order, or, where it is not done with a call or others don't come, by itself.
  void leave() {
    if (stopped_) return;
    try {
      const on_device here(gpu_);
      if (comm_->state() == ncclSuccess) finish();
    } catch (const std::exception&) {  // it is aborted
    }
    stop();
  }
  /// Returns once all devices that live have stopped, or are silent.
  void hear_others_stop() {
    try {
      if constexpr (SurvivingMeeting<M>) {
        meeting_->part(false);
      } else if constexpr (EndingMeeting<M>) {
        meeting_->tell_ended(std::vector<index_t>(static_cast<std::size_t>(meeting_->devices()), 0));
        const auto ended = [this](rank_t d) {
          return d == meeting_->device() || meeting_->gone(d) || meeting_->ended_after(d) >= 0;
        };
        const std::vector<rank_t>& all = seats_.living();
        for (vain_wait waited(a_moment()); !std::all_of(all.begin(), all.end(), ended) && !waited.over();)
          look_.pause();
      }
    } catch (const std::exception&) {  // nobody is left to hear
    }
  }

 private:
  patience a_moment() const { return std::min<patience>(meeting_->waits(), std::chrono::seconds(5)); }
  void require(ncclResult_t code, const char* what) const { detail::require_nccl(code, what, comm_->get()); }

  void begin_on_device() {
    detail::require_cuda(::cudaFree(nullptr), "begin on a device");  // its context is there from here on
    free_at_first_ = free_bytes();
    device_.reset(new nccl_device(gpu_, meeting_->waits()));
    device_->packing.load();
    const bool loaded = device_->ends([this] {
      meeting_->require_whole();
      look_.pause();
    });
    if (!loaded) throw look_.in_vain("the kernels for copies");
    if (options_.lent != nullptr) borrow(*options_.lent);
  }
  /// Refused where it is another than this world would make.
  void borrow(ncclComm_t made) {
    int ranks = 0, rank = 0, gpu = 0;
    detail::require_nccl(::ncclCommCount(made, &ranks), "say how many ranks a communicator has", made);
    detail::require_nccl(::ncclCommUserRank(made, &rank), "say which rank this is of a communicator", made);
    detail::require_nccl(::ncclCommCuDevice(made, &gpu), "say which device a communicator is on", made);
    const int seat = seats_.of(meeting_->device());
    if (ranks != seats_.count() || rank != seat || gpu != gpu_)
      refuse("device ", meeting_->device(), " lends a communicator of rank ", rank, " of ", ranks, " on GPU ", gpu,
             "; its world wants rank ", seat, " of ", seats_.count(), " on GPU ", gpu_);
    comm_->borrow(made);
  }
  void join(const ncclUniqueId& id) {
    if (comm_->lent()) return;
    ncclConfig_t config = options_.config;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (config.nChannelsPerNetPeer == NCCL_CONFIG_UNDEF_INT) config.nChannelsPerNetPeer = 8;
#endif
    settle(comm_->begin(seats_.count(), id, seats_.of(meeting_->device()), config), "make a communicator");
  }
  /// The end in good order, which takes all devices.
  void finish() {
    if (comm_->lent()) return give_back();
    require(comm_->finalize(), "finalize a communicator");
    vain_wait waited(a_moment());
    ncclResult_t state = comm_->state();
    for (; state == ncclInProgress && !waited.over(); state = comm_->state()) look_.pause();
    if (state == ncclSuccess) comm_->destroy();
    stopped_ = !*comm_;
    quiet_ = stopped_ && device_->ends([this] { look_.pause(); });
  }

  /// Where nothing of this device is under way on it any more; else it is aborted.
  void give_back() {
    quiet_ = device_->ends([this] { look_.pause(); });
    if (!quiet_) return;
    comm_->forget();
    stopped_ = true;
  }

  M* meeting_;
  int gpu_;
  nccl_options options_;
  lookout<M> look_;
  nccl_seats<M> seats_;
  std::shared_ptr<nccl_communicator> comm_;
  std::unique_ptr<nccl_device, once_ended> device_;
  bytes_t free_at_first_ = 0, fixed_ = 0;
  bool stopped_ = false, quiet_ = false;
};

}  // namespace reshard
