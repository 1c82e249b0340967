// SPDX-License-Identifier: Apache-2.0
// Copies that a member keeps of its state as it was, and of what its neighbour alone holds, every k steps and of two
// versions: copied between two steps on the trainer's thread, and sent by another one while steps go on.
// Builds on: elastic/run/job_core.hpp, elastic/run/world_groups.hpp, copy/binding_copy.hpp, memory/rank_storage.hpp,
// space/copied_holding.hpp, switch/prepared_switch.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/copy/binding_copy.hpp>
#include <reshard/elastic/run/job_core.hpp>
#include <reshard/elastic/run/world_groups.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/space/copied_holding.hpp>
#include <reshard/switch/prepared_switch.hpp>

namespace reshard::detail {

/// The trainer's thread uses it, but for interrupt(). While something is sent, the group, its switches, what is kept
/// and the room of the other slot are the sending thread's.
class snapshots {
 public:
  snapshots(job_core& core, world_groups& groups) : core_(core), groups_(groups) {}
  snapshots(const snapshots&) = delete;
  ~snapshots() { drop(); }

  /// The world's arrays are the state from now on. Copies of another world's are dropped.
  void settle(const world& w, const binding& arrays) {
    drop();
    world_ = w, arrays_ = &arrays;
    const rank_t n = std::ssize(w.members);
    if (core_.settings.snapshot < 1 || n < 2) return;
    const computed_holding all(space(core_.settings.model, w.layout), core_.settings.list.all());
    copied_holding<computed_holding> sent(all, rank_copies::shifted(n, 1));
    if (!keeps_any(sent)) return;  // every element has more than one holder
    change_.emplace(all, std::move(sent), placement{.list = core_.settings.list});
  }
  /// The world is over, and its copies go.
  void drop() {
    rest();
    const std::lock_guard lock(core_.mutex);
    slots_[0] = {}, slots_[1] = {};
    core_.copies.clear();
    sending_ = nullptr;
    last_ = holds_nothing;
    change_.reset();
    stop_ = {};
  }
  /// Before a step is made: copies, if this version's turn has come, over those of the turn before the last one. Waits
  /// until the last one is sent, so that one version is whole while another is sent; if its sending broke off, though
  /// all live, there is none until this one is. Whoever is here has all others at the last one's boundary, so they are
  /// sending, too.
  void before_step(index_t version) {
    if (!change_ || (version - world_.first_step) % core_.settings.snapshot != 0 || version == last_) return;
    slot& to = slots_[static_cast<std::size_t>((version - world_.first_step) / core_.settings.snapshot % 2)];
    {
      std::unique_lock lock(core_.mutex);
      core_.changed.wait(lock, [&] { return !sending_ || core_.promised || stop_.stop_requested(); });
      if (core_.promised || stop_.stop_requested()) return;
      to.version = to.kept = holds_nothing;
      tell();
    }
    if (!to.own) make_room(to);
    to.own->take(*arrays_);
    if (core_.calls.small) to.small = core_.calls.small();
    last_ = version;
    {
      const std::lock_guard lock(core_.mutex);
      to.version = version;
      tell();
      sending_ = &to;
      core_.changed.notify_all();
    }
    core_.watcher.at("copied");
    if (!sends_.joinable()) sends_ = std::thread([this] { run(); });
  }

  /// What is waited for in sending ends: the world is over.
  void interrupt() {
    const std::lock_guard lock(core_.mutex);
    stop_.request_stop();
    if (group_) group_->stop("the world whose copies are sent is over");
    core_.changed.notify_all();
  }
  /// What it holds of a version, and small state as it was, once nothing is sent any more. Empty where it holds none.
  std::pair<binding, small_state> held(index_t version) {
    rest();
    binding all(std::string(core_.me().text()), {}, core_.settings.list);
    small_state small;
    for (slot& s : slots_) {
      if (s.version == version) {
        for (const bound_box& b : s.own->tensors().boxes()) all.add(b);
        small = s.small;
      }
      if (s.kept == version)
        for (const bound_box& b : s.kept_arrays.tensors().boxes()) all.add(b);
    }
    all.seal();
    return {std::move(all), std::move(small)};
  }

 private:
  /// What a promise says of copies. Of core.mutex.
  void tell() {
    core_.copies.clear();
    for (const slot& s : slots_) {
      if (s.version != holds_nothing) core_.copies.push_back({core_.me(), s.version});
      if (s.kept != holds_nothing) core_.copies.push_back({before_me(), s.kept});
    }
  }

  /// One version: this member's own, and what the rank before it holds alone.
  struct slot {
    std::optional<binding_copy> own = {};
    rank_storage kept_arrays{};
    small_state small = {};
    // of core.mutex: which version is there; holds_nothing: none, or it is being written
    index_t version = holds_nothing, kept = holds_nothing;
    std::unique_ptr<prepared_switch<any_holding, any_holding, socket_endpoint>> sent = {};
  };

  static bool keeps_any(const copied_holding<computed_holding>& h) {
    for (rank_t r = 0; r < h.ranks(); ++r)
      for (const role one : roles) {
        bool any = false;
        if (!h.states().of(one).empty()) each_held(h, r, one, [&](int, const family_box&) { any = true; });
        if (any) return true;
      }
    return false;
  }
  const member_name& before_me() const {
    const rank_t n = std::ssize(world_.members);
    return world_.members[static_cast<std::size_t>((world_.rank_of(core_.me()) + n - 1) % n)];
  }
  void make_room(slot& s) {
    s.own.emplace(*arrays_, text_of("copies of ", core_.me().text()));
    s.kept_arrays = rank_storage(change_->to(), world_.rank_of(core_.me()), text_of("copies of ", before_me().text()),
                                 pages_are::committed, std::nullopt, core_.settings.list);
  }

  void run() {
    for (;;) {
      slot* to = nullptr;
      {
        std::unique_lock lock(core_.mutex);
        core_.changed.wait(lock, [&] { return sending_ != nullptr || stop_.stop_requested(); });
        if (stop_.stop_requested()) {
          sending_ = nullptr;
          return core_.changed.notify_all();
        }
        to = sending_;
      }
      try {
        send(*to);
      } catch (const peer_failed&) {  // whoever is gone is told otherwise; the next ones go through another group
        forget_group();
      } catch (const peer_missing&) {
        forget_group();
      } catch (const std::exception& why) {
        core_.watcher.failed(text_of("copies were not sent: ", without_prefix(why.what())));
        forget_group();
      }
      core_.locked([&] {
        sending_ = nullptr;
        core_.changed.notify_all();
      });
    }
  }
  /// Where one lost the group alone, it makes another for this version; the others find theirs broken, and come too.
  void send(slot& s) {
    const bool of_an_earlier = group_ != nullptr;
    try {
      send_over_group(s);
    } catch (const peer_failed&) {
      if (!of_an_earlier) throw;
      forget_group();
      send_over_group(s);
    }
  }
  void send_over_group(slot& s) {
    if (!group_ && !make_group(s.version)) return;
    s.sent->run();
    core_.locked([&] {
      s.kept = s.version;
      tell();
    });
    core_.watcher.at("kept");
    group_->agree({.addend = 1});  // whoever hears this knows that all have it
  }
  /// Among the world's members, and both slots' switches over it, in an order that is the same on all.
  /// False where it is not wanted any more.
  bool make_group(index_t version) {
    auto made = groups_.make_among(world_, text_of("copies.", version), stop_.get_token());
    {
      const std::lock_guard lock(core_.mutex);
      if (stop_.stop_requested()) return false;
      group_ = std::move(made);
    }
    for (slot& s : slots_) {
      if (!s.own) make_room(s);
      s.sent = std::make_unique<prepared_switch<any_holding, any_holding, socket_endpoint>>(
          *change_, s.own->tensors(), s.kept_arrays.tensors(), *group_);
    }
    return true;
  }
  void forget_group() {
    for (slot& s : slots_) s.sent.reset();
    const std::unique_ptr<socket_endpoint> gone = core_.locked([&] { return std::move(group_); });
  }
  /// Nothing is sent any more; what was, stays.
  void rest() {
    interrupt();
    if (sends_.joinable()) sends_.join();
    forget_group();
  }

  job_core& core_;
  world_groups& groups_;
  world world_ = {.epoch = 0};
  const binding* arrays_ = nullptr;
  std::optional<any_switch> change_ = {};  // from ranks to the ranks after them; none: nothing is copied
  slot slots_[2] = {};
  slot* sending_ = nullptr;  // of core.mutex
  index_t last_ = holds_nothing;
  std::unique_ptr<socket_endpoint> group_ = {};  // its pointer of core.mutex
  std::stop_source stop_ = {};
  std::thread sends_;
};

}  // namespace reshard::detail
