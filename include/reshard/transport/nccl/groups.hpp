// SPDX-License-Identifier: Apache-2.0
// Groups of messages over NCCL: what was begun to be sent and received goes together, all of it or none, on the stream
// of messages. An event says when a group is done. One that NCCL has and that could not be waited for stays posted
// until the world stops: nobody knows what of it is still read or written.
// Builds on: transport/nccl/world.hpp, transport/wire.hpp.
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include <reshard/base/refusal.hpp>
#include <reshard/transport/nccl/world.hpp>
#include <reshard/transport/wire.hpp>

namespace reshard {

/// What one process sends and receives in a world, which outlives it.
template <Meeting M>
class nccl_groups {
 public:
  explicit nccl_groups(nccl_world<M>& world) : world_(&world) {}
  nccl_groups(const nccl_groups&) = delete;
  nccl_groups& operator=(const nccl_groups&) = delete;
  ~nccl_groups() {
    const on_device here(world_->gpu(), std::nothrow);
    posted_.clear(), spare_.clear();
  }

  void send(message& m) { begin(m, sending_); }
  void receive(message& m) { begin(m, receiving_); }

  /// What was sent and received since the last time is one group, which reads what was packed before: all or none.
  void post() {
    if (sending_.empty() && receiving_.empty()) return;
    world_->require_going();
    const on_device here(world_->gpu());
    posted_group made{spare_event(), receiving_, receiving_.size()};
    made.messages.insert(made.messages.end(), sending_.begin(), sending_.end());
    const begun now = begin_group(std::move(made));
    sending_.clear(), receiving_.clear();
    settle_group(now);
  }
  /// A message of 16 bytes to each of these devices and from each of those, where there was none yet: NCCL connects
  /// them and takes the memory that it wants for them.
  void contact(const std::vector<rank_t>& to, const std::vector<rank_t>& from) {
    const std::vector<rank_t> in = strangers(from, met_from_), out = strangers(to, met_to_);
    const std::size_t count = in.size() + out.size();
    if (static_cast<bytes_t>(count) * contact_bytes > nccl_device::tables_bytes)
      refuse("first contact with ", count, " devices");
    if (count == 0) return;
    world_->require_going();
    const on_device here(world_->gpu());
    posted_group made{spare_event(), {}, in.size()};
    made.own.reserve(count), made.messages.reserve(count);
    std::byte* at = world_->device().tables.data();
    for (const std::vector<rank_t>* const peers : {&in, &out})
      for (const rank_t peer : *peers) {
        made.messages.push_back(&made.own.emplace_back(message{peer, 0, at, contact_bytes, false}));
        at += contact_bytes;
      }
    const bytes_t before = world_->free_bytes();
    settle_group(begin_group(std::move(made)));
    wait_for_contact();
    met_from_.insert(met_from_.end(), in.begin(), in.end()), met_to_.insert(met_to_.end(), out.begin(), out.end());
    world_->took(before - world_->free_bytes());
  }

  bool idle() const { return posted_.empty(); }
  /// Notes the groups that are done, in their order; whether there was one.
  bool note_done() {
    bool any = false;
    for (; !posted_.empty() && posted_.front().on_stream && posted_.front().end.happened(); any = true) {
      spare_.push_back(std::move(posted_.front().end));
      for (message* const m : posted_.front().messages) m->done = true;
      posted_.pop_front();
      world_->look().stir();
    }
    return any;
  }
  /// Messages are not touched any more, done or not.
  void forget() {
    const on_device here(world_->gpu(), std::nothrow);
    sending_.clear(), receiving_.clear(), posted_.clear();
  }

 private:
  static constexpr bytes_t contact_bytes = 16;

  struct posted_group {
    cuda_event end;
    std::vector<message*> messages;  // first those that come
    std::size_t receives;
    std::vector<message> own = {};  // messages of first contact
    bool on_stream = false;         // with its end recorded after it
  };
  /// What NCCL said of a group.
  struct begun {
    ncclResult_t code;
    const char* what;
  };

  void begin(message& m, std::vector<message*>& list) {
    m.done = m.bytes == 0;
    if (!m.done) list.push_back(&m);
  }
  /// The peers that are not this device, and not known.
  std::vector<rank_t> strangers(const std::vector<rank_t>& peers, const std::vector<rank_t>& known) const {
    std::vector<rank_t> fresh;
    const auto has = [](const std::vector<rank_t>& list, rank_t d) {
      return std::find(list.begin(), list.end(), d) != list.end();
    };
    for (const rank_t peer : peers)
      if (peer != world_->meeting().device() && !has(known, peer) && !has(fresh, peer)) fresh.push_back(peer);
    return fresh;
  }

  cuda_event spare_event() {
    if (spare_.empty()) return {};
    cuda_event event = std::move(spare_.back());
    spare_.pop_back();
    return event;
  }
  /// Where this throws NCCL has nothing of the group; from then on it is posted.
  begun begin_group(posted_group&& made) {
    nccl_device& device = world_->device();
    device.packing.precedes(device.exchange);
    posted_.push_back(std::move(made));
    const posted_group& group = posted_.back();
    begun now{ncclSuccess, "exchange messages"};
    const auto calls = [&]() noexcept {
      ncclResult_t code = ncclSuccess;
      for (std::size_t i = 0; i < group.messages.size() && !detail::went_wrong(code); ++i) {
        const bool comes = i < group.receives;
        code = call(*group.messages[i], comes);
        if (detail::went_wrong(code)) now.what = comes ? "receive a message" : "send a message";
      }
      return code;
    };
    world_->look().stir();
    try {
      now.code = detail::in_one_group(calls);
    } catch (const std::exception&) {
      posted_.pop_back();
      throw;
    }
    return now;
  }
  ncclResult_t call(const message& m, bool comes) const noexcept {
    const auto bytes = static_cast<std::size_t>(m.bytes);
    const int peer = world_->seats().of(m.peer);
    const ncclComm_t comm = world_->communicator()->get();
    const cudaStream_t on = world_->device().exchange.get();
    return comes ? ::ncclRecv(m.data, bytes, ncclUint8, peer, comm, on)
                 : ::ncclSend(m.data, bytes, ncclUint8, peer, comm, on);
  }
  /// Waits for the group that was begun last to be on its stream, and records its end: an event that never was recorded
  /// would have happened.
  void settle_group(begun now) {
    world_->settle(now.code, now.what);
    posted_.back().end.record(world_->device().exchange);
    posted_.back().on_stream = true;
  }
  void wait_for_contact() {
    M& meeting = world_->meeting();
    for (vain_wait waited(meeting.waits()); !idle(); world_->look().pause()) {
      meeting.require_whole();
      if (waited.over()) throw world_->look().in_vain("first contact with the devices of a plan");
      world_->require_well();
      note_done();
    }
  }

  nccl_world<M>* world_;
  std::vector<message*> sending_, receiving_;
  std::deque<posted_group> posted_;
  std::vector<cuda_event> spare_;
  std::vector<rank_t> met_to_, met_from_;
};

}  // namespace reshard
