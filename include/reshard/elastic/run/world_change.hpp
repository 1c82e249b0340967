// SPDX-License-Identifier: Apache-2.0
// How one member goes over to another world, on the trainer's thread: the update that is still to be made, the switch
// of state among old and new members, and small state with it. What it held it holds until all have entered; under a
// budget a planned switch gives it back piece by piece, and what lies between two worlds then is as good a source.
// Builds on: elastic/run/snapshots.hpp, elastic/run/torn_state.hpp, job/exchange_small_state.hpp,
// switch/attempt_switch.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <reshard/elastic/run/snapshots.hpp>
#include <reshard/elastic/run/torn_state.hpp>
#include <reshard/job/exchange_small_state.hpp>
#include <reshard/switch/attempt_switch.hpp>

namespace reshard::detail {

class world_change {
 public:
  /// How a member came into another world: the seconds of moving state, and why it did not, else empty; and whether
  /// nobody did, as one refused.
  struct result {
    double seconds = 0;
    std::string sentence = {};
    bool refused = false;
  };

  world_change(job_core& core, world_groups& groups, snapshots& copies)
      : core_(core), groups_(groups), copies_(copies) {}

  /// Into the record's world, from where the record says that state lies.
  result enter(const job_record& r) {
    try {
      return r.epoch == 1 ? found(r) : move(r);
    } catch (const peer_failed& why) {
      return {0, why.what()};
    } catch (const peer_missing& why) {
      return {0, why.what()};
    }
  }
  /// The first world's arrays are made and set before its group: should a member be gone by then, the others hold
  /// version 0.
  void begin(const world& first) {
    const rank_t rank = first.rank_of(core_.me());
    bind(first, rank);
    core_.calls.initialize(first, rank);
    has_small_ = true;
    core_.locked([&] { core_.holds = first.epoch, core_.version = first.first_step; });
  }
  /// All have entered: what was moved into is the state.
  void settle(const world& to) {
    copies_.drop();  // what sends them reads the arrays that go
    core_.calls.entered(to, to.rank_of(core_.me()));
    old_ = std::exchange(next_, std::nullopt);
    between_.reset();
    core_.locked([&] { core_.torn.reset(); });
    copies_.settle(to, *old_);
  }
  bool has_arrays() const { return old_ || between_ || next_; }
  /// It holds nothing any more.
  void drop() {
    copies_.drop();
    core_.calls.entered(world{}, -1);
    old_.reset(), between_.reset(), next_.reset();
    has_small_ = false;
    core_.locked([&] { core_.torn.reset(), core_.holds = 0; });
  }

 private:
  result found(const job_record& r) {
    const std::stop_token stop = groups_.stop_of(r);
    begin(r.now());
    groups_.make_first(r, stop);
    return {};
  }

  result move(const job_record& r) {
    const state_source s = source_of(r);
    if (s.from == nullptr) return {0, "reshard: the record tells no world that holds the state"};
    const std::stop_token stop = groups_.stop_of(r);
    std::pair<binding, small_state> copies;
    if (r.from_copies) copies = copies_.held(r.now().first_step);  // before the group: ending what sends takes time
    // The job was founded, and its group never stood; before others are made, which the trainer takes for those.
    if (next_ && next_epoch_ == s.from->epoch) settle(*s.from);
    const std::unique_ptr<socket_endpoint> over = groups_.take(r, s, stop);
    if (!r.from_copies &&
        has_member(s.target.updates, core_.me())) {  // gradients are whole, and others know the scalar
      core_.calls.update(scalar_of_bits(s.scalar));
      core_.locked([&] {
        ++core_.version, core_.stage = update_stage::nothing;
        core_.scalar = scalar_of_bits(s.scalar);  // others may need it yet
      });
    }
    const std::stop_callback ends(stop, [&over] { over->stop("reshard: a member of the change is gone"); });
    return switch_over(r, s, std::move(copies), *over, stop);
  }

  result switch_over(const job_record& r, const state_source& s, std::pair<binding, small_state> copies,
                     socket_endpoint& over, const std::stop_token& stop) {
    const world& to = r.now();
    const rank_t rank = to.rank_of(core_.me());
    const bool torn = s.into != nullptr && !r.from_copies;
    if (core_.torn && next_ && next_epoch_ == core_.holds + 1) between_ = std::exchange(next_, std::nullopt);
    std::optional<torn_state> lies;
    if (torn) lies.emplace(core_.settings.model, core_.settings.list, s);
    const any_switch change =
        lies ? lies->onward(core_.settings.model, to, devices_of_entry(s, to)) : whole_switch(r, s);
    const bool source = change.from_rank(over.device()) >= 0;
    if (source && !lies && !old_) return {0, "reshard: the record says that this member holds state, and it does not"};
    binding nothing = no_arrays(), none = no_arrays(), parts = no_arrays();
    if (lies) parts = lies->held_by(over.device(), old_ ? *old_ : nothing, between_ ? *between_ : nothing);
    binding& held = r.from_copies ? copies.first : lies ? parts : source ? *old_ : nothing;
    give_up();
    if (rank >= 0) bind(to, rank);
    groups_.wait_to_move(r, s, stop);
    switch_options options;
    // After a death the sources stay, whatever that takes: of what lies between worlds nothing more is given away.
    const bool gives = core_.settings.budget != no_budget && r.promises.empty();
    if (gives) options.budget = core_.settings.budget;
    options.after_use = gives ? sources::release : sources::keep;
    options.on_stage = [this](const stage_report& at) { core_.watcher.at(text_of("stage:", at.stage)); };
    const auto small = [&]() -> std::string {
      if (!core_.calls.small) return {};
      return carry_small(!source || !has_small_ ? small_state()
                         : r.from_copies        ? std::move(copies.second)
                                                : core_.calls.small(),
                         rank >= 0, r.promises.empty(), over);
    };
    if (gives)  // before a source goes: who has the arrays afterwards may be all who are left
      if (std::string why = small(); !why.empty()) return {0, std::move(why), true};
    const auto begun = member_clock::now();
    const switch_ending end = attempt_switch(change, held, next_ ? *next_ : none, over, options);
    const double took = seconds_since(begun);
    if (gives) keep_torn(end, *s.from, to, over.device());
    if (const auto* no = std::get_if<ended::refused>(&end)) return {took, no->sentence, no->everywhere};
    if (!std::holds_alternative<ended::finished>(end)) return {took, sentence_of(end)};
    std::string why = gives ? std::string() : small();
    const bool all_refused = !why.empty();
    return {took, std::move(why), all_refused};
  }
  binding no_arrays() const { return binding(std::string(core_.me().text()), {}, core_.settings.list); }
  /// How far a switch came that gives its sources back, until all are known to have ended it: of one that ended here
  /// all is in place.
  void keep_torn(const switch_ending& end, const world& from, const world& to, rank_t device) {
    torn_share mine{.device = device};
    index_t stages = 0;
    const auto so_far = [&](index_t of, index_t in_place, index_t here, const auto& unread) {
      stages = of, mine.in_place = in_place, mine.here = here;
      mine.unread_kept = unread ? (*unread)[static_cast<std::size_t>(device)] : of;
    };
    if (const auto* done = std::get_if<ended::finished>(&end)) stages = mine.in_place = mine.here = done->report.stages;
    if (const auto* all = std::get_if<ended::unknown>(&end))
      so_far(all->stages, all->in_place, all->stages, all->unread_kept);
    if (const auto* half = std::get_if<ended::torn>(&end))
      so_far(half->stages, half->in_place, half->in_place, half->unread_kept);
    if (stages == 0) return;  // nothing was touched
    core_.locked([&] {
      core_.torn = {stages, mine};
      core_.holds = from.epoch, core_.version = to.first_step;
    });
  }
  /// From what lies in one world's arrays, or in copies of them.
  any_switch whole_switch(const job_record& r, const state_source& s) const {
    const world& to = r.now();
    const member_list all = devices_of_entry(s, to);
    computed_holding from(space(core_.settings.model, s.from->layout), core_.settings.list.all());
    const computed_holding then(space(core_.settings.model, to.layout), core_.settings.list.all());
    placement on{.to = device_map(devices_in(all, to.members)),
                 .devices = std::ssize(all),
                 .list = core_.settings.list,
                 .lost = devices_in(all, s.dead)};
    if (r.from_copies) return any_switch(copied_holding(std::move(from), copies_told(r, s, to.first_step)), then, on);
    on.empty = devices_in(all, s.empty);
    return any_switch(std::move(from), then, on);
  }
  /// All have it afterwards; else why not, on all alike, and nobody has other small state than before. In a planned
  /// change what is of one rank alone is refused: nobody asks for it. After a death there is no world to stay in: who
  /// has such keeps it, and what is refused then is thrown.
  std::string carry_small(const small_state& held, bool target, bool planned, socket_endpoint& over) {
    std::vector<blob_id> own;
    for (const blob& one : held.blobs())
      if (!planned && !one.id.same()) own.push_back(one.id);
    small_state here;
    try {
      here = carry_small_state(held, own, over, {.unasked = when_unasked::refuse}).state;
    } catch (const refusal& why) {
      if (!planned) throw;
      return why.what();
    }
    if (!target) return {};
    core_.calls.take_small(here);
    has_small_ = true;
    return {};
  }
  /// The arrays of an attempt that came to nothing.
  void give_up() {
    if (!next_) return;
    next_.reset();
    if (core_.calls.given_up) core_.calls.given_up(next_epoch_);
  }
  void bind(const world& to, rank_t rank) {
    next_ = core_.calls.tensors(to, rank);
    next_epoch_ = to.epoch;
  }

  job_core& core_;
  world_groups& groups_;
  snapshots& copies_;
  std::optional<binding> old_, next_;
  std::optional<binding> between_;  // arrays of the world that a torn switch went to
  index_t next_epoch_ = 0;
  bool has_small_ = false;  // small state of the version that it holds
};

}  // namespace reshard::detail
