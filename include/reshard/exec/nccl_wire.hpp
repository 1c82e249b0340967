// SPDX-License-Identifier: Apache-2.0
// The wire of GPUs over NCCL: what a round sends and receives is one group on a stream, what it packs and unpacks are
// launches on two others, and events say in which order. Nothing here waits for a device but by asking again and again,
// so that who is gone is heard of; then all communicators are aborted together.
// Builds on: exec/nccl_handles.hpp, exec/device_lane.hpp, exec/wire.hpp, exec/exchange_moves.hpp, exec/meeting.hpp.
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/exec/device_lane.hpp>
#include <reshard/exec/exchange_moves.hpp>
#include <reshard/exec/meeting.hpp>
#include <reshard/exec/nccl_handles.hpp>
#include <reshard/exec/switch_ending.hpp>
#include <reshard/exec/wire.hpp>

namespace reshard {

/// Whether arenas are registered with the communicator, so that a peer may write right into them; then no message lies
/// in a tensor. The same on all devices.
enum class arenas_are { plain, registered };

/// What a message over NCCL holds at most: a stage has one group, or several where it has more for a peer.
inline constexpr bytes_t nccl_round_bytes = bytes_t{256} << 20;

/// How an end of a world over NCCL works.
struct nccl_options {
  exchange_as how = exchange_as::asynchronous;
  bytes_t round_bytes = nccl_round_bytes;
  arenas_are arenas = arenas_are::plain;
  bytes_t fixed_bytes = -1;  // F: what the communicator takes on a device; below 0: as cudaMemGetInfo tells
  /// It never blocks, whatever is said here. Channels per peer are 8 where nobody says (as of NCCL 2.28): NCCL gives
  /// every peer, over NVLink too, as few as the slowest has, which are 2.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::vector<ncclComm_t> aborted_with = {};  // others of this process that may have work under way when it breaks
};

/// One process's end of a wire over NCCL; the meeting outlives it. Made by all devices that the meeting has.
template <Meeting M>
class nccl_wire {
  using clock = std::chrono::steady_clock;

 public:
  /// `gpu`: CUDA's number of this process's device. Refused on all where one can't.
  nccl_wire(M& meeting, int gpu, const nccl_options& options)
      : meeting_(&meeting), gpu_(gpu), options_(options), comm_(std::make_shared<nccl_communicator>()) {
    for (rank_t d = 0; d < meeting.devices(); ++d)
      if (!is_absent(d)) living_.push_back(d);
    const std::string id = begin_together();
    try {
      const on_device here(gpu_);
      join(id);
      measure();
    } catch (const std::exception& e) {
      meeting_->give_up(e.what());
      stop();
      meeting_->fail(e.what());
      throw;
    }
  }
  nccl_wire(const nccl_wire&) = delete;
  nccl_wire& operator=(const nccl_wire&) = delete;
  ~nccl_wire() {
    if (!stopped_) leave();
    if (!kept_.empty()) hear_others_stop();
    others_stopped();
    if (!kept_.empty()) static_cast<void>(new std::list<message_arenas>(std::move(kept_)));  // the device may use them
  }

  int gpu() const { return gpu_; }
  bytes_t fixed_bytes() const { return options_.fixed_bytes >= 0 ? options_.fixed_bytes : fixed_; }

  void connect(const std::vector<rank_t>&) {}  // contact does

  /// A message of 16 bytes to each of these devices and from each of those, where there was none yet: NCCL connects
  /// them and takes the memory that it wants for them.
  void contact(const std::vector<rank_t>& to, const std::vector<rank_t>& from) {
    const on_device here(gpu_);
    std::vector<message> out, in;
    std::byte* at = own_->tables.data();
    const auto add = [&](std::vector<message>& list, const std::vector<rank_t>& peers, std::vector<rank_t>& known) {
      for (const rank_t peer : peers) {
        if (peer == meeting_->device() || std::find(known.begin(), known.end(), peer) != known.end()) continue;
        known.push_back(peer);
        list.push_back({peer, 0, at, contact_bytes});
        at += contact_bytes;
      }
    };
    add(out, to, met_to_), add(in, from, met_from_);
    if (at > own_->tables.data() + tables_bytes) refuse("first contact with ", out.size() + in.size(), " devices");
    const bytes_t before = free_bytes();
    for (message& m : in) receive(m);
    for (message& m : out) send(m);
    post();
    wait_for([&] { return idle(); }, "first contact with the devices of a plan");
    fixed_ += greatest(0, before - free_bytes());
  }

  void send(message& m) { begin(m, sending_); }
  void receive(message& m) { begin(m, receiving_); }

  /// What was sent and received since the last time is one group, which reads what was packed before: all or none.
  void post() {
    if (sending_.empty() && receiving_.empty()) return;
    require_going();
    const on_device here(gpu_);
    own_->packing.precedes(own_->exchange);
    posted_group made{spare_event(), receiving_};
    made.messages.insert(made.messages.end(), sending_.begin(), sending_.end());
    posted_.push_back(std::move(made));
    posted_group& group = posted_.back();
    const char* what = "exchange messages";
    const auto calls = [&]() noexcept {
      ncclResult_t code = ncclSuccess;
      for (std::size_t i = 0; i < group.messages.size() && !detail::went_wrong(code); ++i) {
        const message& m = *group.messages[i];
        const auto bytes = static_cast<std::size_t>(m.bytes);
        const bool comes = i < receiving_.size();
        code = comes ? ::ncclRecv(m.data, bytes, ncclUint8, seat(m.peer), comm_->get(), own_->exchange.get())
                     : ::ncclSend(m.data, bytes, ncclUint8, seat(m.peer), comm_->get(), own_->exchange.get());
        if (detail::went_wrong(code)) what = comes ? "receive a message" : "send a message";
      }
      return code;
    };
    stir();
    try {
      const ncclResult_t code = detail::in_one_group(calls);
      settle(code, what);
      group.end.record(own_->exchange);
    } catch (const std::exception&) {
      posted_.pop_back();
      throw;
    }
    sending_.clear(), receiving_.clear();
  }
  bool idle() const { return posted_.empty(); }

  void copy(copies_of which, const copy_table& table) {
    const on_device here(gpu_);
    lane(which).copy(table, meeting_->waits());
    copying(which) = true;
    stir();
  }
  void zero(const bound_box& b) {
    const on_device here(gpu_);
    own_->packing.zero(b, meeting_->waits());
    copying(copies_of::outgoing) = true;
    stir();
  }
  bool copied(copies_of which) {
    const on_device here(gpu_);
    if (!copying(which)) return true;
    if (!lane(which).idle()) return false;
    copying(which) = false;
    stir();
    return true;
  }

  arena_source arenas() const {
    const bool registered = options_.arenas == arenas_are::registered;
    return {device_granule, registered ? in_tensors::never : in_tensors::outgoing, piece_alignment};
  }
  std::shared_ptr<std::byte> make_arena(bytes_t bytes) {
    if (options_.arenas == arenas_are::registered) require_going();
    const auto arena = std::make_shared<nccl_memory>(
        gpu_, bytes, options_.arenas == arenas_are::registered ? comm_ : std::shared_ptr<nccl_communicator>());
    return {arena, arena->data()};
  }

  void poll(std::chrono::microseconds at_most) {
    const on_device here(gpu_);
    const bool out = copying(copies_of::outgoing), in = copying(copies_of::incoming);
    for (const auto end = clock::now() + at_most;; wait_a_little()) {
      const bool heard = hear();
      if (*comm_) require(comm_->state(), "exchange messages");
      if (note_done() || (out && copied(copies_of::outgoing)) || (in && copied(copies_of::incoming)) || heard ||
          clock::now() >= end)
        return;
    }
  }

  /// All communicators end, whatever they are at, and this device's streams with them.
  void stop() {
    if (std::exchange(stopped_, true)) return;
    sending_.clear(), receiving_.clear(), posted_.clear();
    if (own_ == nullptr) return;
    const on_device here(gpu_, std::nothrow);
    try {
      comm_->abort(options_.aborted_with);
      quiet_ = own_->ends([this] { pause(); });
    } catch (const std::exception&) {  // what it may still read or write is kept
    }
  }
  /// Peers may write to arenas until they have stopped as well.
  bool unfinished() const { return stopped_; }
  void keep(message_arenas&& arenas) { kept_.push_back(std::move(arenas)); }
  /// Every device that lives has stopped.
  void others_stopped() {
    if (quiet_) kept_.clear();
  }

 private:
  static constexpr bytes_t contact_bytes = 16, tables_bytes = 2 * device_lane::table_bytes,
                           device_granule = bytes_t{2} << 20;

  /// What it has on the device, which goes only once it has ended.
  struct on_gpu {
    on_gpu(int number, patience wait) : gpu(number), waits(wait), tables(number, tables_bytes) {}
    on_gpu(const on_gpu&) = delete;
    on_gpu& operator=(const on_gpu&) = delete;

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
  /// To free memory, of the host's too, waits for the device: where what was begun never ends, all of it stays.
  struct once_ended {
    void operator()(on_gpu* mine) const {
      const on_device here(mine->gpu, std::nothrow);
      try {
        if (!mine->ends([] { std::this_thread::sleep_for(std::chrono::microseconds(20)); })) return;
      } catch (const std::exception&) {  // the device does nothing more
      }
      delete mine;
    }
  };
  struct posted_group {
    cuda_event end;
    std::vector<message*> messages;
  };

  bool is_absent(rank_t d) const {
    const std::vector<rank_t> absent = meeting_->absent();
    return std::find(absent.begin(), absent.end(), d) != absent.end();
  }
  /// A device's rank in the communicator.
  int seat(rank_t d) const {
    return static_cast<int>(std::lower_bound(living_.begin(), living_.end(), d) - living_.begin());
  }
  /// After stop there is no communicator, nor anything that moves.
  void require_going() const {
    if (stopped_)
      throw std::runtime_error(
          detail::text_of("reshard: device ", meeting_->device(), " has stopped its wire; no message goes any more"));
  }
  device_lane& lane(copies_of which) { return which == copies_of::outgoing ? own_->packing : own_->unpacking; }
  bool& copying(copies_of which) { return copying_[which == copies_of::outgoing ? 0 : 1]; }
  void require(ncclResult_t code, const char* what) const { detail::require_nccl(code, what, comm_->get()); }
  void begin(message& m, std::vector<message*>& list) {
    m.done = m.bytes == 0;
    if (!m.done) list.push_back(&m);
  }

  /// What can be refused without another device's help; the communicator's id, from the lowest.
  std::string begin_together() {
    int version = 0;
    ncclUniqueId id = {};
    proposal mine;
    std::exception_ptr why;
    try {
      detail::require_nccl(::ncclGetVersion(&version), "say its version");
      const on_device here(gpu_);
      detail::require_cuda(::cudaFree(nullptr), "begin on a device");  // its context is there from here on
      free_at_first_ = free_bytes();
      own_.reset(new on_gpu(gpu_, meeting_->waits()));
      own_->packing.load();
      wait_for([&] { return own_->packing.idle(); }, "the kernels for copies");
      if (meeting_->device() == living_.front()) detail::require_nccl(::ncclGetUniqueId(&id), "make a unique id");
      mine.number = version;
    } catch (const std::exception& e) {
      mine.sentence = e.what();
      why = std::current_exception();
    }
    const agreement all = meeting_->agree(mine);
    if (why) std::rethrow_exception(why);
    if (all.refuser >= 0)
      throw peer_failed(
          detail::text_of("reshard: no world over NCCL, as device ", all.refuser, " says: ", all.sentence));
    const std::int64_t oldest = -meeting_->agree({-std::int64_t{version}}).largest;
    if (oldest != all.largest)
      refuse("the devices have NCCL of versions ", oldest, " to ", all.largest, "; a world has one");
    std::string text(reinterpret_cast<const char*>(&id), sizeof id);
    return meeting_->gather(text)[static_cast<std::size_t>(living_.front())];
  }
  void join(const std::string& text) {
    ncclUniqueId id = {};
    std::copy_n(text.begin(), std::min(text.size(), sizeof id), reinterpret_cast<char*>(&id));
    ncclConfig_t config = options_.config;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (config.nChannelsPerNetPeer == NCCL_CONFIG_UNDEF_INT) config.nChannelsPerNetPeer = 8;
#endif
    settle(comm_->begin(static_cast<int>(living_.size()), id, seat(meeting_->device()), config), "make a communicator");
  }
  static bytes_t free_bytes() {
    std::size_t free = 0, all = 0;
    detail::require_cuda(::cudaMemGetInfo(&free, &all), "say how much memory is free");
    return static_cast<bytes_t>(free);
  }
  void measure() { fixed_ = greatest(0, free_at_first_ - free_bytes()); }

  /// Hears the meeting, if not just now; whether it did.
  bool hear() {
    const auto now = clock::now();
    if (now - heard_ < std::chrono::microseconds(100)) return false;
    heard_ = now;
    meeting_->poll();
    return true;
  }
  void pause() {
    hear();
    wait_a_little();
  }
  /// For 50 us after something began or ended here, when the next is soon there, it looks again at once; from then on
  /// it sleeps. A sleep of 20 us is one of about 70, by the slack of Linux' timers.
  void wait_a_little() const {
    if (clock::now() - stirred_ < std::chrono::microseconds(50)) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  void stir() { stirred_ = clock::now(); }
  template <typename What>
  void wait_for(What&& what, const char* of) {
    for (vain_wait waited(meeting_->waits()); !what();) {
      meeting_->require_whole();
      if (waited.over())
        throw peer_missing(detail::text_of("reshard: device ", meeting_->device(), " waited ",
                                           meeting_->waits().count(), " ms in vain for ", of));
      if (*comm_) poll(std::chrono::microseconds(0));
      pause();
    }
  }
  /// Until what a call began in the background is on its stream, or is done.
  void settle(ncclResult_t code, const char* what) {
    require(code, what);
    for (vain_wait waited(meeting_->waits());; pause()) {
      const ncclResult_t state = comm_->state();
      require(state, what);
      if (state == ncclSuccess) return;
      meeting_->require_whole();
      if (waited.over())
        throw peer_missing(detail::text_of("reshard: device ", meeting_->device(), " waited ",
                                           meeting_->waits().count(), " ms in vain for NCCL to ", what));
    }
  }

  /// Notes the groups that are done, in their order; whether there was one.
  bool note_done() {
    bool any = false;
    while (!posted_.empty() && posted_.front().end.happened()) {
      for (message* m : posted_.front().messages) m->done = true;
      spare_.push_back(std::move(posted_.front().end));
      posted_.pop_front();
      any = true;
      stir();
    }
    return any;
  }
  cuda_event spare_event() {
    if (spare_.empty()) return {};
    cuda_event event = std::move(spare_.back());
    spare_.pop_back();
    return event;
  }

  /// The communicator ends in good order, or, where others don't, by itself.
  void leave() {
    try {
      const on_device here(gpu_);
      require(comm_->finalize(), "finalize a communicator");
      vain_wait waited(std::min<patience>(meeting_->waits(), std::chrono::seconds(5)));
      ncclResult_t state = comm_->state();
      for (; state == ncclInProgress && !waited.over(); state = comm_->state()) pause();
      if (state == ncclSuccess) comm_->destroy();
      stopped_ = !*comm_;
      quiet_ = stopped_ && own_->ends([this] { pause(); });
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
        for (vain_wait waited(std::min<patience>(meeting_->waits(), std::chrono::seconds(5)));
             !std::all_of(living_.begin(), living_.end(), ended) && !waited.over();)
          pause();
      }
    } catch (const std::exception&) {  // nobody is left to hear
    }
  }

  M* meeting_;
  int gpu_;
  nccl_options options_;
  std::vector<rank_t> living_;  // ascending
  std::shared_ptr<nccl_communicator> comm_;
  std::unique_ptr<on_gpu, once_ended> own_;
  std::vector<message*> sending_, receiving_;
  std::deque<posted_group> posted_;
  std::vector<cuda_event> spare_;
  std::vector<rank_t> met_to_, met_from_;
  std::list<message_arenas> kept_;
  bytes_t free_at_first_ = 0, fixed_ = 0;
  bool copying_[2] = {}, stopped_ = false, quiet_ = false;
  clock::time_point heard_ = {}, stirred_ = {};
};

}  // namespace reshard
