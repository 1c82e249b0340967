// SPDX-License-Identifier: Apache-2.0
// How one member goes over to another world, on the trainer's thread: the update that is still to be made, the switch
// of state among old and new members, and small state with it. What it held it holds until all have entered.
// Builds on: elastic/run/snapshots.hpp, elastic/entry.hpp, job/exchange_small_state.hpp, switch/attempt_switch.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <reshard/elastic/run/snapshots.hpp>
#include <reshard/job/exchange_small_state.hpp>
#include <reshard/switch/attempt_switch.hpp>

namespace reshard::detail {

class world_change {
 public:
  /// How a member came into another world: the seconds of moving state, and why it did not, else empty.
  struct result {
    double seconds = 0;
    std::string sentence = {};
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
  /// All have entered: what was moved into is the state.
  void settle(const world& to) {
    copies_.drop();  // what sends them reads the arrays that go
    core_.calls.entered(to, to.rank_of(core_.me()));
    old_ = std::exchange(next_, std::nullopt);
    copies_.settle(to, *old_);
  }
  /// It holds nothing any more.
  void drop() {
    copies_.drop();
    core_.calls.entered(world{}, -1);
    old_.reset(), next_.reset();
  }

 private:
  /// The first world's arrays are made and set before its group: should a member be gone by then, the others hold
  /// version 0.
  result found(const job_record& r) {
    const world& first = r.now();
    const rank_t rank = first.rank_of(core_.me());
    const std::stop_token stop = groups_.stop_of(r);
    bind(first, rank);
    core_.calls.initialize(first, rank);
    core_.locked([&] { core_.holds = first.epoch, core_.version = first.first_step; });
    groups_.make_first(r, stop);
    return {};
  }

  result move(const job_record& r) {
    const state_source s = source_of(r);
    if (s.from == nullptr) return {0, "reshard: the record tells no world that holds the state"};
    const std::stop_token stop = groups_.stop_of(r);
    std::pair<binding, small_state> copies;
    if (r.from_copies) copies = copies_.held(r.now().first_step);  // before the group: ending what sends takes time
    const std::unique_ptr<socket_endpoint> over = groups_.take(r, s, stop);
    if (!r.from_copies &&
        has_member(s.target.updates, core_.me())) {  // gradients are whole, and others know the scalar
      core_.calls.update(scalar_of_bits(s.scalar));
      core_.locked([&] { ++core_.version, core_.stage = update_stage::nothing; });
    }
    if (next_ && next_epoch_ == s.from->epoch) settle(*s.from);  // the job was founded, and its group never stood
    const std::stop_callback ends(stop, [&over] { over->stop("reshard: a member of the change is gone"); });
    return switch_over(r, s, std::move(copies), *over);
  }

  result switch_over(const job_record& r, const state_source& s, std::pair<binding, small_state> copies,
                     socket_endpoint& over) {
    const world& to = r.now();
    const rank_t rank = to.rank_of(core_.me());
    const any_switch change = switch_between(r, s);
    const bool source = change.from_rank(over.device()) >= 0;
    if (source && !old_) return {0, "reshard: the record says that this member holds state, and it does not"};
    binding nothing(std::string(core_.me().text()), {}, core_.settings.list), none = nothing;
    binding& held = r.from_copies ? copies.first : source ? *old_ : nothing;
    next_.reset();
    if (rank >= 0) bind(to, rank);
    switch_options options;
    options.after_use = sources::keep;
    options.on_stage = [this](const stage_report& at) { core_.watcher.at(text_of("stage:", at.stage)); };
    const auto begun = member_clock::now();
    const switch_ending end = attempt_switch(change, held, next_ ? *next_ : none, over, options);
    const double took = seconds_since(begun);
    if (!std::holds_alternative<ended::finished>(end)) return {took, sentence_of(end)};
    if (core_.calls.small)
      carry_small(!source         ? small_state()
                  : r.from_copies ? std::move(copies.second)
                                  : core_.calls.small(),
                  rank >= 0, over);
    return {took, {}};
  }
  any_switch switch_between(const job_record& r, const state_source& s) const {
    const world& to = r.now();
    const member_list all = devices_of_entry(*s.from, to);
    const auto device_of = [&](const member_name& who) -> rank_t {
      return std::find(all.begin(), all.end(), who) - all.begin();
    };
    std::vector<rank_t> targets, lost;
    for (const member_name& who : to.members) targets.push_back(device_of(who));
    for (const member_name& who : s.dead) lost.push_back(device_of(who));
    computed_holding from(space(core_.settings.model, s.from->layout), core_.settings.list.all());
    const computed_holding then(space(core_.settings.model, to.layout), core_.settings.list.all());
    placement on{.to = device_map(targets), .devices = std::ssize(all), .list = core_.settings.list, .lost = lost};
    if (r.from_copies) return any_switch(copied_holding(std::move(from), copies_told(r, s, to.first_step)), then, on);
    for (const member_name& who : s.empty) on.empty.push_back(device_of(who));
    return any_switch(std::move(from), then, on);
  }
  /// All have it afterwards. What is of one rank alone nobody asks for, so it is refused before it is gone.
  void carry_small(const small_state& held, bool target, socket_endpoint& over) {
    const small_state here = carry_small_state(held, {}, over, {.unasked = when_unasked::refuse}).state;
    if (target) core_.calls.take_small(here);
  }
  void bind(const world& to, rank_t rank) {
    next_ = core_.calls.tensors(to, rank);
    next_epoch_ = to.epoch;
  }

  job_core& core_;
  world_groups& groups_;
  snapshots& copies_;
  std::optional<binding> old_, next_;
  index_t next_epoch_ = 0;
};

}  // namespace reshard::detail
