// SPDX-License-Identifier: Apache-2.0
// How one member goes over to another world: groups made while steps go on, or at once after a death; the update that
// is still to be made; the switch of state among old and new members; and small state with it.
// Builds on: elastic/run/job_core.hpp, elastic/run/job_driver.hpp, elastic/entry.hpp, job/exchange_small_state.hpp,
// switch/attempt_switch.hpp, transport/sockets.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <reshard/elastic/entry.hpp>
#include <reshard/elastic/run/job_core.hpp>
#include <reshard/elastic/run/job_driver.hpp>
#include <reshard/job/exchange_small_state.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/transport/sockets.hpp>

namespace reshard::detail {

/// What a member has of a change whose groups stand.
struct made_groups {
  std::unique_ptr<socket_endpoint> moving;  // among all devices of the switch
};

class world_change : public group_maker {
 public:
  /// How a member came into another world: the seconds of moving state, and why it did not, else empty.
  struct result {
    double seconds = 0;
    std::string sentence = {};
  };

  world_change(job_core& core, process_door& door) : core_(core), door_(door) {}
  world_change(const world_change&) = delete;
  ~world_change() override { world_change::end(); }

  void begin(const job_record& r) override {
    {
      const std::lock_guard lock(core_.mutex);
      if (making_ == std::pair(r.epoch, r.attempt)) return;
    }
    end();
    {
      const std::lock_guard lock(core_.mutex);
      making_ = {r.epoch, r.attempt};
      making_stop_ = std::stop_source();
    }
    // What is made keeps the token: it is asked to stop only while it is being made.
    maker_ = std::thread([this, r, stop = making_stop_.get_token()] {
      made_groups made;
      std::string sentence;
      try {
        made = make(r, {.from = &r.now()}, r.proposed[0], stop);
      } catch (const std::exception& why) {
        sentence = text_of("its groups could not be made: ", without_prefix(why.what()));
      }
      const std::lock_guard lock(core_.mutex);
      made_ = std::move(made);
      stands_ = made_.moving != nullptr;
      made_sentence_ = sentence;
      core_.changed.notify_all();
    });
  }
  void end() override {
    {
      const std::lock_guard lock(core_.mutex);
      if (!stands_) making_stop_.request_stop();
      making_stop_ = std::stop_source();  // what stands keeps the token of the other
    }
    if (maker_.joinable()) maker_.join();
    const std::lock_guard lock(core_.mutex);
    making_ = {-1, -1};
    stands_ = false;
    made_ = {};
    made_sentence_.clear();
  }
  /// What the trainer's thread waits for is over.
  void interrupt(const job_record& over) override {
    const std::lock_guard lock(core_.mutex);
    if (entering_for_ < std::pair(over.epoch, over.attempt)) entering_.request_stop();
  }
  std::pair<bool, std::string> made(index_t epoch, index_t attempt) override {
    const std::lock_guard lock(core_.mutex);
    if (making_ != std::pair(epoch, attempt)) return {false, ""};
    return {stands_, made_sentence_};
  }

  /// On the trainer's thread: into the record's world, from where the record says that state lies.
  result enter(const job_record& r) {
    try {
      if (r.epoch == 1 && r.worlds.size() == 1) return found(r);
      return move(r);
    } catch (const peer_failed& why) {
      return {0, why.what()};
    } catch (const peer_missing& why) {
      return {0, why.what()};
    }
  }
  /// All have entered: what was moved into is the state.
  void settle(const world& to) {
    const rank_t rank = to.rank_of(core_.me());
    core_.calls.entered(to, rank);
    old_ = std::move(next_);
    next_.reset();
  }
  /// It holds nothing any more.
  void drop() {
    core_.calls.entered(world{}, -1);
    old_.reset(), next_.reset();
  }

 private:
  /// The first world's arrays are made and set before its group: should a member be gone by then, the others hold
  /// version 0.
  result found(const job_record& r) {
    const world& first = r.now();
    const std::stop_token stop = fresh_stop(r);
    const rank_t rank = first.rank_of(core_.me());
    next_ = core_.calls.tensors(first, rank);
    next_epoch_ = first.epoch;
    core_.calls.initialize(first, rank);
    {
      const std::lock_guard lock(core_.mutex);
      core_.holds = first.epoch;
      core_.version = first.first_step;
    }
    wait_for_all(r, first.members, stop);
    core_.calls.make_group(group_of(first, first.members, 0), stop);
    core_.watcher.at("group_made");
    return {};
  }

  result move(const job_record& r) {
    const state_source s = source_of(r);
    if (s.from == nullptr) return {0, "reshard: the record tells no world that holds the state"};
    made_groups groups;
    const std::stop_token stop = fresh_stop(r);
    if (r.promises.empty()) {
      const std::lock_guard lock(core_.mutex);
      groups = std::move(made_);
    }
    if (groups.moving == nullptr) groups = make(r, s, r.now(), stop);
    if (has_member(s.target.updates, core_.me())) {  // gradients are whole, and others know the scalar
      core_.calls.update(scalar_of_bits(s.scalar));
      const std::lock_guard lock(core_.mutex);
      ++core_.version;
      core_.stage = update_stage::nothing;
    }
    take_up(*s.from);
    const std::stop_callback ends(stop, [&groups] { groups.moving->stop("reshard: a member of the change is gone"); });
    return switch_over(r, s, *groups.moving);
  }

  /// Where somebody has entered the world that this one was about to, its arrays are in place here, too.
  void take_up(const world& from) {
    if (!next_ || next_epoch_ != from.epoch) return;
    core_.calls.entered(from, from.rank_of(core_.me()));
    old_ = std::move(next_);
    next_.reset();
    const std::lock_guard lock(core_.mutex);
    core_.holds = from.epoch;
    core_.version = from.first_step;
  }

  result switch_over(const job_record& r, const state_source& s, socket_endpoint& over) {
    const world &from = *s.from, &to = r.now();
    const member_list all = devices_of_entry(from, to);
    std::vector<rank_t> targets, lost, empty;
    for (rank_t device = 0; device < static_cast<rank_t>(from.members.size()); ++device) {
      const member_name& who = from.members[static_cast<std::size_t>(device)];
      if (has_member(s.dead, who)) lost.push_back(device);
      else if (has_member(s.empty, who)) empty.push_back(device);
    }
    for (const member_name& who : to.members) targets.push_back(std::find(all.begin(), all.end(), who) - all.begin());
    const computed_switch change(space(core_.settings.model, from.layout), space(core_.settings.model, to.layout),
                                 {.to = device_map(targets),
                                  .devices = static_cast<rank_t>(all.size()),
                                  .list = core_.settings.list,
                                  .lost = lost,
                                  .empty = empty});
    const rank_t rank = to.rank_of(core_.me());
    binding nothing(std::string(core_.me().text()), {}, core_.settings.list), none = nothing;
    next_.reset();
    if (rank >= 0) next_ = core_.calls.tensors(to, rank);
    next_epoch_ = to.epoch;
    const bool source = change.from_rank(over.device()) >= 0;
    if (source && !old_) return {0, "reshard: the record says that this member holds state, and it does not"};
    const auto begun = member_clock::now();
    switch_options options;
    options.after_use = sources::keep;
    options.on_stage = [this](const stage_report& at) { core_.watcher.at(text_of("stage:", at.stage)); };
    const switch_ending end = attempt_switch(change, source ? *old_ : nothing, next_ ? *next_ : none, over, options);
    const double seconds = seconds_since(begun);
    const auto* finished = std::get_if<ended::finished>(&end);
    if (finished == nullptr) return {seconds, sentence_of(end)};
    if (core_.calls.small) {
      small_state mine;
      if (source) mine = core_.calls.small();
      const small_state here = exchange_small_state(mine, {}, over);
      if (rank >= 0 && core_.calls.take_small) core_.calls.take_small(here);
    }
    return {seconds, {}};
  }
  /// The groups of a change: all who take part are there first, then the switch's is made, then the trainer's.
  made_groups make(const job_record& r, const state_source& s, const world& to, const std::stop_token& stop) {
    const member_list all = devices_of_entry(*s.from, to);
    member_list there;
    for (const member_name& who : all)
      if (!has_member(s.dead, who)) there.push_back(who);
    wait_for_all(r, there, stop);
    const std::vector<std::string> addresses = addresses_of(all, s.dead);
    const rank_t device = std::find(all.begin(), all.end(), core_.me()) - all.begin();
    made_groups made;
    made.moving = std::make_unique<socket_endpoint>(
        device, addresses, door_, core_.number_of("moving", to.epoch, r.attempt, all), core_.settings.wait, stop);
    if (to.has(core_.me())) core_.calls.make_group(group_of(to, to.members, r.attempt), stop);
    core_.watcher.at("group_made");
    return made;
  }
  group_request group_of(const world& to, const member_list& members, index_t attempt) {
    return {&to, to.rank_of(core_.me()), addresses_of(members, {}),
            core_.number_of("group", to.epoch, attempt, members)};
  }
  std::vector<std::string> addresses_of(const member_list& all, const member_list& but) {
    const std::lock_guard lock(core_.mutex);
    std::vector<std::string> addresses;
    for (const member_name& who : all) {
      addresses.emplace_back();
      if (has_member(but, who)) continue;
      if (const std::optional<registration> at = core_.where(who)) places_[who] = at->address;
      if (!places_.contains(who)) throw peer_missing("reshard: " + std::string(who.text()) + " is not registered");
      addresses.back() = places_[who];
    }
    return addresses;
  }
  /// Says that this member is there, and waits until all are: what is made then is made at once.
  void wait_for_all(const job_record& r, const member_list& all, const std::stop_token& stop) {
    for (;;) {
      if (stop.stop_requested()) throw peer_failed("reshard: the change is called off");
      try {
        core_.say(r, "here");
        if (has_members(core_.said_by(r, "here"), all)) return;
      } catch (const store_unreachable&) {
      }
      std::unique_lock lock(core_.mutex);
      core_.changed.wait_for(lock, std::chrono::milliseconds(20));
      const bool over = !core_.record || core_.record->epoch != r.epoch || core_.record->attempt != r.attempt;
      if (over) throw peer_failed("reshard: the change is over");
    }
  }
  std::stop_token fresh_stop(const job_record& r) {
    const std::lock_guard lock(core_.mutex);
    entering_for_ = {r.epoch, r.attempt};
    entering_ = std::stop_source();
    return entering_.get_token();
  }

  job_core& core_;
  process_door& door_;
  std::thread maker_;
  std::pair<index_t, index_t> making_ = {-1, -1};  // epoch and attempt; of core_.mutex, as what follows
  made_groups made_;
  bool stands_ = false;
  std::string made_sentence_;
  std::stop_source making_stop_, entering_;
  std::pair<index_t, index_t> entering_for_ = {-1, -1};
  std::map<member_name, std::string> places_;
  // the trainer's thread alone
  std::optional<binding> old_, next_;
  index_t next_epoch_ = 0;
};

}  // namespace reshard::detail
