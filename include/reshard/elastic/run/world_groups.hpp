// SPDX-License-Identifier: Apache-2.0
// The groups of a world: that of the switch into it, among old and new members, and the trainer's. They are made beside
// the steps, on a thread of their own, where a change is planned; after a death at once.
// Builds on: elastic/run/job_core.hpp, elastic/entry.hpp, transport/sockets.hpp.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/elastic/entry.hpp>
#include <reshard/elastic/run/job_core.hpp>
#include <reshard/transport/sockets.hpp>

namespace reshard::detail {

class world_groups {
 public:
  world_groups(job_core& core, process_door& door) : core_(core), door_(door) {}
  world_groups(const world_groups&) = delete;
  ~world_groups() { end(); }

  /// Begins to make those of the world that is proposed, unless they are being made.
  void begin(const job_record& r) {
    if (core_.locked([&] { return making_ == std::pair(r.epoch, r.attempt); })) return;
    end();
    const std::stop_token stop = core_.locked([&] {
      making_ = {r.epoch, r.attempt};
      return making_stop_.get_token();
    });
    maker_ = std::thread([this, r, stop] {
      std::unique_ptr<socket_endpoint> made;
      std::string sentence;
      try {
        made = make(r, {.from = &r.now()}, r.proposed[0], stop);
      } catch (const std::exception& why) {
        sentence = text_of("its groups could not be made: ", without_prefix(why.what()));
      }
      const std::lock_guard lock(core_.mutex);
      stands_ = made != nullptr;
      made_ = std::move(made);
      sentence_ = sentence;
      core_.changed.notify_all();
    });
  }
  /// A change is over. What stands keeps the token that it was made with, so that is asked to stop only before.
  void end() {
    core_.locked([&] {
      if (!stands_) making_stop_.request_stop();
      making_stop_ = std::stop_source();
    });
    if (maker_.joinable()) maker_.join();
    const std::unique_ptr<socket_endpoint> gone = core_.locked([&] {
      making_ = {-1, -1};
      stands_ = false;
      sentence_.clear();
      return std::move(made_);
    });
  }
  /// Whether the groups of an attempt stand; a sentence where they can't be made.
  std::pair<bool, std::string> made(const job_record& r) {
    return core_.locked([&] {
      const bool of_it = making_ == std::pair(r.epoch, r.attempt);
      return std::pair(of_it && stands_, of_it ? sentence_ : std::string());
    });
  }
  /// Ends what the trainer's thread waits for in a change to an earlier attempt.
  void interrupt(index_t epoch, index_t attempt) {
    core_.locked([&] {
      if (entering_for_ < std::pair(epoch, attempt)) entering_.request_stop();
    });
  }

  /// What ends the change into the record's world, for the trainer's thread.
  std::stop_token stop_of(const job_record& r) {
    return core_.locked([&] {
      entering_for_ = {r.epoch, r.attempt};
      entering_ = std::stop_source();
      return entering_.get_token();
    });
  }
  /// The switch's group into the record's world: that which was made beside the steps, or one that is made now.
  std::unique_ptr<socket_endpoint> take(const job_record& r, const state_source& s, const std::stop_token& stop) {
    std::unique_ptr<socket_endpoint> there;
    if (r.promises.empty()) there = core_.locked([&] { return std::move(made_); });
    return there ? std::move(there) : make(r, s, r.now(), stop);
  }
  /// Waits until all who take part are about to move state: out of their steps, with their groups and arrays made and
  /// updates rolled forward, which may take longer than the patience. In the switch who says nothing is given up soon.
  /// Whose trainer hangs is waited for as long as for groups; where the store stops before the last word, as long.
  void wait_to_move(const job_record& r, const state_source& s, const std::stop_token& stop) {
    wait_for_all(r, living(s, r.now()), "moves", stop, core_.settings.ready);
  }
  /// A group among a world's members, for what they do beside the steps; who is late in its step is waited for long.
  std::unique_ptr<socket_endpoint> make_among(const world& w, std::string_view what, const std::stop_token& stop) {
    return std::make_unique<socket_endpoint>(w.rank_of(core_.me()), addresses_of(w.members, {}), door_,
                                             core_.number_of(what, w.epoch, 0, w.members), core_.settings.ready, stop);
  }
  /// The trainer's group of the world that founds the job.
  void make_first(const job_record& r, const std::stop_token& stop) {
    wait_for_all(r, r.now().members, "here", stop);
    make_trainers(r, r.now(), stop);
  }

 private:
  /// All who take part are there first, so that what is made is made at once.
  std::unique_ptr<socket_endpoint> make(const job_record& r, const state_source& s, const world& to,
                                        const std::stop_token& stop) {
    const member_list all = devices_of_entry(s, to);
    wait_for_all(r, living(s, to), "here", stop);
    const rank_t device = std::find(all.begin(), all.end(), core_.me()) - all.begin();
    auto moving = std::make_unique<socket_endpoint>(device, addresses_of(all, s.dead), door_,
                                                    core_.number_of("moving", to.epoch, r.attempt, all),
                                                    core_.settings.wait, stop);
    if (to.has(core_.me())) make_trainers(r, to, stop);
    else core_.watcher.at("group_made");
    return moving;
  }
  void make_trainers(const job_record& r, const world& to, const std::stop_token& stop) {
    core_.calls.make_group({&to, to.rank_of(core_.me()), addresses_of(to.members, {}),
                            core_.number_of("group", to.epoch, r.attempt, to.members)},
                           stop);
    core_.watcher.at("group_made");
  }
  std::vector<std::string> addresses_of(const member_list& all, const member_list& but) {
    const std::lock_guard lock(core_.mutex);
    std::vector<std::string> addresses;
    for (const member_name& who : all) {
      addresses.emplace_back();
      if (has_member(but, who)) continue;
      const std::optional<registration> at = core_.where(who);
      if (!at) throw peer_missing("reshard: nobody knows where " + std::string(who.text()) + " is called");
      addresses.back() = at->address;
    }
    return addresses;
  }
  static member_list living(const state_source& s, const world& to) {
    member_list all = devices_of_entry(s, to);
    std::erase_if(all, [&](const member_name& who) { return has_member(s.dead, who); });
    return all;
  }
  void wait_for_all(const job_record& r, const member_list& all, std::string_view word, const std::stop_token& stop,
                    const std::optional<patience>& limit = {}) {
    for (const auto begun = member_clock::now();;) {
      if (limit && seconds_since(begun) > seconds(*limit))
        throw peer_failed(text_of("reshard: not all moved state within ", limit->count(), " ms"));
      if (stop.stop_requested()) throw peer_failed("reshard: the change is called off");
      try {
        core_.say(r, word);
        if (has_members(core_.said_by(r, word), all)) return;
      } catch (const store_unreachable&) {
      }
      std::unique_lock lock(core_.mutex);
      core_.changed.wait_for(lock, std::chrono::milliseconds(20));
      const bool over = !core_.record || core_.record->epoch != r.epoch || core_.record->attempt != r.attempt;
      if (over) throw peer_failed("reshard: the change is over");
    }
  }

  job_core& core_;
  process_door& door_;
  std::thread maker_;
  // of core_.mutex
  std::pair<index_t, index_t> making_ = {-1, -1}, entering_for_ = {-1, -1};  // epoch and attempt
  std::unique_ptr<socket_endpoint> made_;
  bool stands_ = false;
  std::string sentence_;
  std::stop_source making_stop_, entering_;
};

}  // namespace reshard::detail
