// SPDX-License-Identifier: Apache-2.0
// Makes a switch ready on one device: planned, checked, agreed on with the other devices, and cut into as many stages
// as its budget asks for. What can be refused is refused here, on all devices, before anything is touched.
// Builds on: switch/detail/ready_switch.hpp, switch/detail/given_alike.hpp, switch/detail/switch_checks.hpp,
// memory/replay_pages.hpp, memory/tensor_names.hpp, plan/relay.hpp, plan/unread.hpp, schedule/stage_count.hpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/replay_pages.hpp>
#include <reshard/memory/tensor_names.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/unread.hpp>
#include <reshard/schedule/stage_count.hpp>
#include <reshard/switch/detail/given_alike.hpp>
#include <reshard/switch/detail/ready_switch.hpp>
#include <reshard/switch/detail/switch_checks.hpp>

namespace reshard::detail {

/// Makes a switch of this device ready, as all do or none does; what no run needs is left behind with this.
template <Holding From, Holding To, Transport T>
class ready_maker {
 public:
  ready_maker(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors,
              all_or_none<T>& devices, const switch_options& options)
      : change_(change), devices_(devices), transport_(devices.transport),
        made_(new ready_switch<T>{old_tensors, new_tensors, options}), its_(*made_) {}

  /// Called once. Whatever throws, the other devices are told.
  std::unique_ptr<ready_switch<T>> make() {
    devices_.tell(sink<>::of([this] {
      together(sink<>::of([this] { derive(); }));
      refuse_together(difference_over(transport_, change_, its_.options));
      contact();
      choose_stages();
      if (its_.relayed()) together(sink<>::of([this] { transport_.offer(its_.arena->sent()); }));
      together(sink<>::of(
          [this] { its_.moves.emplace(transport_.prepare(*its_.staged, its_.written(), *its_.new_pages)); }));
      refuse_together(transport_.disagreement(*its_.moves));
      transport_.connect(*its_.moves);
      its_.taken = its_.new_pages->taken_by_stage(its_.times().slots());
    }));
    return std::move(made_);
  }

 private:
  std::string me() const { return text_of("device ", transport_.device()); }
  /// Does something that may be refused: all go on, or none does.
  void together(const sink<>& something) {
    devices_.agree(sink<proposal&>::of([&](proposal&) { something(); }));
  }
  /// Refuses what every device was told to refuse; nothing where there is no sentence.
  void refuse_together(const std::string& sentence) {
    if (!sentence.empty()) devices_.refuse_together(sentence);
  }

  /// Cuts the plan into stages; what the worst device's memory exceeds max(before, after) by.
  bytes_t worst_excess(index_t stages) {
    return devices_.agree(sink<proposal&>::of([&](proposal& mine) { mine.number = cut(stages); })).largest;
  }

  /// The least of 1, 2, 4 .. 4096 stages at which every device's memory fits the budget; without one those that the
  /// routing says.
  void choose_stages() {
    if (its_.options.budget == no_budget) {
      its_.report.stages = its_.options.route.stages;
      worst_excess(its_.report.stages);
    } else {
      fixed_ = transport_.all_reduce_max(transport_.facts().fixed_bytes);
      const stages_found found =
          stages_within(its_.options.budget, fixed_, [this](index_t s) { return worst_excess(s); });
      if (!found.kept) refuse_budget(found);
      its_.report.stages = found.stages;
    }
    agree_on_unread();
  }

  /// Which stages what nobody reads outlasts, on this device and on all of them: what survivors of a torn switch derive
  /// its lists from.
  void agree_on_unread() {
    const index_t most = most_stages + 1, mine = unread_.empty() ? 0 : most - its_.unread_kept;
    const index_t least = transport_.all_reduce_max(mine);
    if (least == 0 || its_.options.after_use == sources::keep) {
      its_.unread_kept = its_.report.stages;
      if (least > 0) its_.report.unread_kept = its_.report.stages;
      return;
    }
    its_.report.unread_kept = most - least;
    if (*its_.report.unread_kept == its_.report.stages) return;
    for (const std::string& text :
         transport_.gather(std::to_string(unread_.empty() ? its_.report.stages : its_.unread_kept)))
      its_.kept_by_device.push_back(text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10));
  }

  void derive() {
    if (change_.devices() > transport_.devices())
      refuse("the switch names ", change_.devices(), " devices, and the transport has ", transport_.devices());
    const transport_facts facts = transport_.facts();
    for (const rank_t gone : facts.absent)
      if (change_.from_rank(gone) >= 0 || change_.to_rank(gone) >= 0)
        refuse("the switch names device ", gone, ", which the transport has no more; say that it is lost");
    if (change_.empty(transport_.device()) && !its_.old_tensors.boxes().empty())
      refuse(me(), " is called empty, and binds ", its_.old_tensors.boxes().size(),
             " boxes of FROM; one that holds nothing of it binds none");
    if (const index_t stages = its_.options.route.stages; stages < 1 || stages > most_stages)
      refuse("a switch in ", stages, " stages; it is made in 1 to ", most_stages);
    plan_ = make_plan(change_, transport_.device(), its_.options.route);
    its_.report.phases = phases_of(change_, its_.options.route);
    its_.report.sent = total_bytes(plan_.sends);
    its_.report.received = total_bytes(plan_.receives);
    its_.report.retained = total_bytes(plan_.retains);
    for (const transfer& t : plan_.receives)
      if (t.why == purpose::passed_on) its_.report.passed_on += t.bytes();
    its_.old_tensors.seal();
    its_.new_tensors.seal();
    for (binding* const tensors : {&its_.old_tensors, &its_.new_tensors}) {
      transport_.locate(*tensors);
      if (!tensors->boxes().empty() && !transport_.reaches(tensors->place()))
        refuse(me(), ", ", tensors->who(), ": lies in ", tensors->place().text(),
               ", which this transport does not reach");
      if (its_.report.phases > 1 && tensors->place().is == memory_place::kind::device)
        refuse(me(), ", ", tensors->who(), ": lies in ", tensors->place().text(),
               ", and what is relayed is passed on through memory of the host; route it directly");
    }
    if (its_.relayed())
      for (const bound_box& b : its_.new_tensors.boxes())
        if (b.converts())
          refuse(me(), ", ", its_.new_tensors.who(), ": ", its_.new_tensors.name(b), " is ", reshard::name(b.travels),
                 " and is kept as ", reshard::name(b.holds),
                 "; what is relayed is sent on as it is kept, so keep it as it is, or route it directly");
    transport_.offer(its_.old_tensors);
    transport_.check_messages(its_.options.checks);
    its_.report.lag = facts.lag;
    if (its_.options.budget < 1) refuse("a budget of ", its_.options.budget, " bytes; it must be at least 1");
    require_one_list(me(), its_.old_tensors, change_.list(), change_.states());
    require_one_list(me(), its_.new_tensors, change_.list(), change_.states());
    const tensor_names names = names_of(change_.to());
    const auto require = [&](const std::vector<transfer>& list, const binding& in, const char* side, auto&& wanted) {
      std::vector<transfer> kept;
      for (const transfer& t : list)
        if (wanted(t)) kept.push_back(t);
      require_bound(me(), kept, in, side, names);
    };
    const streams_of coming(plan_.receives);
    require(plan_.sends, its_.old_tensors, "FROM", [&](const transfer& t) { return !coming.has(t); });
    require(plan_.receives, its_.new_tensors, "TO", [](const transfer& t) { return t.why == purpose::delivered; });
    require_bound(me(), plan_.retains, its_.old_tensors, "FROM", names);
    for (const std::vector<transfer>* list : {&plan_.retains, &plan_.creates, &plan_.lost})
      require_bound(me(), *list, its_.new_tensors, "TO", names);
    find_unread(coming);
    require_exact(me(), its_.old_tensors, "FROM", change_.states(), its_.options.rounds);
    require_exact(me(), its_.new_tensors, "TO", change_.states(), its_.options.rounds);
    require_apart(me(), its_.old_tensors, its_.new_tensors, change_.states(), its_.options.after_use);
  }

  /// What of FROM's this device neither sends nor retains; what it passes on it has not of FROM.
  void find_unread(const streams_of& coming) {
    std::vector<transfer> own;
    for (const transfer& t : plan_.sends)
      if (!coming.has(t)) own.push_back(t);
    each_held_but(change_, transport_.device(), {&own, &plan_.retains},
                  [this](state_set states, const tensor_id& tensor, const box<3>& where) {
                    for (const int s : states) unread_.push_back({s, tensor, where});
                  });
  }

  /// First contact with all devices that this one will send to or receive from.
  void contact() {
    const auto all = [](const std::vector<transfer>& list, rank_t transfer::*peer) {
      std::vector<rank_t> result;
      for (const transfer& t : list) result.push_back(t.*peer);
      sort_items(result, std::less<rank_t>());
      result.erase(std::unique(result.begin(), result.end()), result.end());
      return result;
    };
    transport_.contact(all(plan_.sends, &transfer::dst), all(plan_.receives, &transfer::src));
  }

  /// What the transport takes for the plan as it is cut.
  footprint asked_footprint(const slot_times& at) const {
    footprint all = transport_.footprint(*its_.staged);
    if (!all.tells_of(at))
      refuse(me(), ": the transport's footprint is of ", all.staging.size(), " slots, ", all.written_in.size(),
             " of which send; the plan has ", at.slots(), ", ", at.sending(),
             " of which send, and what is sent in a slot is written in that or a later one");
    return all;
  }

  /// Cuts the plan into stages and replays the memory; what it exceeds max(before, after) by.
  bytes_t cut(index_t stages) {
    const slot_times at{stages, its_.report.phases, its_.report.lag};
    its_.staged = stage_plan(plan_, change_, at);
    if (its_.relayed())
      its_.arena.emplace(*its_.staged, its_.old_tensors, its_.new_tensors, change_.list(), names_of(change_.to()));
    its_.old_pages.emplace(its_.old_tensors, binding_side::source, change_.states());
    its_.new_pages.emplace(its_.written(), binding_side::target, change_.states());
    const footprint taken = asked_footprint(at);
    const auto mark = [](const std::vector<staged_piece>& pieces, const binding& in,
                         const sink<const bound_box&, const staged_piece&>& visit) {
      for (const staged_piece& p : pieces)
        for (const int state : p.states) in.meet({state, p.tensor, p.where}, [&](const bound_box& b) { visit(b, p); });
    };
    using each = sink<const bound_box&, const staged_piece&>;
    for (const std::vector<staged_piece>* list : {&its_.staged->sends, &its_.staged->retains})
      mark(*list, its_.old_tensors,
           each::of([&](const bound_box& b, const staged_piece& p) { its_.old_pages->read(b, p.stage); }));
    for (const tensor_box& b : unread_)
      its_.old_tensors.meet(b, [&](const bound_box& part) { its_.old_pages->unread(part); });
    mark(its_.staged->receives, its_.written(), each::of([&](const bound_box& b, const staged_piece& p) {
           its_.new_pages->written(b, taken.written_in[static_cast<std::size_t>(p.slot(at.lag))]);
         }));
    for (const std::vector<staged_piece>* list : {&its_.staged->retains, &its_.staged->creates})
      mark(*list, its_.new_tensors,
           each::of([&](const bound_box& b, const staged_piece& p) { its_.new_pages->written(b, p.stage); }));
    const passed_pages passed{its_.relayed() ? &its_.arena->by_reader() : nullptr, its_.arena_stays()};
    const bytes_t budget = its_.options.budget == no_budget ? no_budget : its_.options.budget - fixed_;
    const page_replay replay =
        replay_pages(*its_.old_pages, *its_.new_pages, at, {its_.options.after_use, budget}, taken.staging, passed);
    its_.report.memory = replay.memory;
    its_.unread_kept = replay.unread_kept;
    return its_.report.memory.excess();
  }

  /// Says the least budget that does.
  [[noreturn]] void refuse_budget(const stages_found& found) {
    std::string why;
    if (its_.options.after_use == sources::keep) why = ", the sources being kept";
    else if (its_.old_pages->outside_bytes() > 0) why = ", memory of the sources that nobody may give back included";
    devices_.refuse_together("a budget of ", its_.options.budget, " bytes cannot work: in one stage a device needs ",
                             found.excess + fixed_, " bytes beyond max(before, after)", why, ", and of 1, 2, 4 .. ",
                             most_stages, " stages none keeps it; the least budget that does is ", found.least_budget,
                             " bytes");
  }

  const layout_switch<From, To>& change_;
  all_or_none<T>& devices_;
  T& transport_;
  std::unique_ptr<ready_switch<T>> made_;
  ready_switch<T>& its_;
  plan plan_;
  bytes_t fixed_ = 0;               // F, the same on all devices
  std::vector<tensor_box> unread_;  // of the sources, what this device neither sends nor retains
};

}  // namespace reshard::detail
