// SPDX-License-Identifier: Apache-2.0
// A switch on one device up to where it moves: planned, checked, agreed on with the other devices, and cut into as many
// stages as its budget asks for. What can be refused is refused here, on all devices, before anything is touched.
// Builds on: transport/agreed_steps.hpp, switch/detail/given_alike.hpp, switch/detail/switch_checks.hpp,
// switch/options.hpp, transport/transport.hpp, switch/detail/relay_arena.hpp, memory/replay_pages.hpp,
// memory/tensor_names.hpp, plan/relay.hpp, plan/unread.hpp, schedule/stage_count.hpp, schedule/staged_plan.hpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/memory/replay_pages.hpp>
#include <reshard/memory/tensor_names.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/unread.hpp>
#include <reshard/schedule/stage_count.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/switch/detail/given_alike.hpp>
#include <reshard/switch/detail/relay_arena.hpp>
#include <reshard/switch/detail/switch_checks.hpp>
#include <reshard/switch/options.hpp>
#include <reshard/transport/agreed_steps.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard::detail {

/// A switch that prepare() makes ready. Whatever throws, the other devices are told of it.
template <Holding From, Holding To, Transport T>
class staged_switch : protected agreed_steps<T> {
 public:
  staged_switch(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors, T& transport,
                const switch_options& options)
      : agreed_steps<T>(transport), old_(old_tensors), new_(new_tensors), options_(options), change_(change) {}
  staged_switch(const staged_switch&) = delete;

  void prepare() {
    tell_failures(sink<>::of([this] {
      all_or_none(sink<>::of([this] { derive(); }));
      refuse_together(difference_over(transport_, change_, options_));
      contact();
      choose_stages();
      if (relayed()) all_or_none(sink<>::of([this] { transport_.offer(arena_->sent()); }));
      all_or_none(sink<>::of([this] { moves_.emplace(transport_.prepare(*staged_, written(), *targets_)); }));
      refuse_together(transport_.disagreement(*moves_));
      transport_.connect(*moves_);
      taken_ = targets_->taken_by_stage(times().slots());
    }));
  }

  const switch_report& report() const { return report_; }
  slot_times times() const { return {report_.stages, report_.phases, report_.lag}; }

 protected:
  using agreed_steps<T>::transport_, agreed_steps<T>::all_know_, agreed_steps<T>::me, agreed_steps<T>::max_of_all,
      agreed_steps<T>::all_or_none, agreed_steps<T>::refuse_together;

  /// Does something; the other devices are told of what it throws, unless they know.
  void tell_failures(const sink<>& something) {
    try {
      something();
    } catch (const std::exception& e) {
      give_up(e.what());
      throw;
    } catch (...) {  // from an owner's give_back, or a transport's prepare
      give_up("reshard: an exception of no standard kind");
      throw;
    }
  }

  void give_up(const std::string& sentence) {
    if (all_know_) return;
    if constexpr (KeepingMoves<moves_of<T>>)  // messages into the arena may outlive this
      if (moves_ && arena_)
        if (std::optional<page_range> pages = arena_->take_pages()) moves_->keep(std::move(*pages));
    transport_.fail(sentence);
  }

  /// Whether bytes are passed on, by whatever device.
  bool relayed() const { return report_.phases > 1; }
  /// Where memory is no question and the switch is made again and again, the arena stays from run to run.
  bool arena_stays() const { return options_.budget == no_budget && options_.after_use == sources::keep; }
  /// What the transport writes.
  const binding& written() const { return relayed() ? arena_->written() : new_; }

  binding& old_;
  binding& new_;
  switch_options options_;
  std::optional<staged_plan> staged_;
  std::optional<relay_arena> arena_;  // where bytes are passed on
  std::optional<page_stages> sources_;
  std::optional<page_stages> targets_;
  std::optional<moves_of<T>> moves_;
  std::vector<std::vector<block_span>> taken_;  // by slot
  index_t unread_kept_ = 0;                     // u of this device
  std::vector<index_t> kept_by_device_;         // u of each; none where all are S
  switch_report report_;

 private:
  /// Cuts the plan into stages; what the worst device's memory exceeds max(before, after) by.
  bytes_t worst_excess(index_t stages) {
    bytes_t mine = 0;
    return max_of_all(mine, sink<>::of([&] { mine = cut(stages); }));
  }

  /// The least of 1, 2, 4 .. 4096 stages at which every device's memory fits the budget; without one those that the
  /// routing says.
  void choose_stages() {
    if (options_.budget == no_budget) {
      report_.stages = options_.route.stages;
      worst_excess(report_.stages);
    } else {
      fixed_ = transport_.all_reduce_max(transport_.facts().fixed_bytes);
      const stages_found found = stages_within(options_.budget, fixed_, [this](index_t s) { return worst_excess(s); });
      if (!found.kept) refuse_budget(found);
      report_.stages = found.stages;
    }
    agree_on_unread();
  }

  /// Which stages what nobody reads outlasts, on this device and on all of them: what survivors of a torn switch derive
  /// its lists from.
  void agree_on_unread() {
    const index_t most = most_stages + 1, mine = unread_.empty() ? 0 : most - unread_kept_;
    const index_t least = transport_.all_reduce_max(mine);
    if (least == 0 || options_.after_use == sources::keep) {
      unread_kept_ = report_.stages;
      if (least > 0) report_.unread_kept = report_.stages;
      return;
    }
    report_.unread_kept = most - least;
    if (*report_.unread_kept == report_.stages) return;
    for (const std::string& text : transport_.gather(std::to_string(unread_.empty() ? report_.stages : unread_kept_)))
      kept_by_device_.push_back(text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10));
  }

  void derive() {
    if (change_.devices() > transport_.devices())
      refuse("the switch names ", change_.devices(), " devices, and the transport has ", transport_.devices());
    const transport_facts facts = transport_.facts();
    for (const rank_t gone : facts.absent)
      if (change_.from_rank(gone) >= 0 || change_.to_rank(gone) >= 0)
        refuse("the switch names device ", gone, ", which the transport has no more; say that it is lost");
    if (const index_t stages = options_.route.stages; stages < 1 || stages > most_stages)
      refuse("a switch in ", stages, " stages; it is made in 1 to ", most_stages);
    plan_ = make_plan(change_, transport_.device(), options_.route);
    report_.phases = phases_of(change_, options_.route);
    report_.sent = total_bytes(plan_.sends);
    report_.received = total_bytes(plan_.receives);
    report_.retained = total_bytes(plan_.retains);
    for (const transfer& t : plan_.receives)
      if (t.why == purpose::passed_on) report_.passed_on += t.bytes();
    old_.seal();
    new_.seal();
    for (binding* const tensors : {&old_, &new_}) {
      transport_.locate(*tensors);
      if (!tensors->boxes().empty() && !transport_.reaches(tensors->place()))
        refuse(me(), ", ", tensors->who(), ": lies in ", tensors->place().text(),
               ", which this transport does not reach");
      if (report_.phases > 1 && tensors->place().is == memory_place::kind::device)
        refuse(me(), ", ", tensors->who(), ": lies in ", tensors->place().text(),
               ", and what is relayed is passed on through memory of the host; route it directly");
    }
    if (relayed())
      for (const bound_box& b : new_.boxes())
        if (b.converts())
          refuse(me(), ", ", new_.who(), ": ", new_.name(b), " is ", reshard::name(b.travels), " and is kept as ",
                 reshard::name(b.holds),
                 "; what is relayed is sent on as it is kept, so keep it as it is, or route it directly");
    transport_.offer(old_);
    transport_.check_messages(options_.checks);
    report_.lag = facts.lag;
    if (options_.budget < 1) refuse("a budget of ", options_.budget, " bytes; it must be at least 1");
    require_one_list(me(), old_, change_.list(), change_.states());
    require_one_list(me(), new_, change_.list(), change_.states());
    const tensor_names names = names_of(change_.to());
    const auto require = [&](const std::vector<transfer>& list, const binding& in, const char* side, auto&& wanted) {
      std::vector<transfer> kept;
      for (const transfer& t : list)
        if (wanted(t)) kept.push_back(t);
      require_bound(me(), kept, in, side, names);
    };
    const streams_of coming(plan_.receives);
    require(plan_.sends, old_, "FROM", [&](const transfer& t) { return !coming.has(t); });
    require(plan_.receives, new_, "TO", [](const transfer& t) { return t.why == purpose::delivered; });
    require_bound(me(), plan_.retains, old_, "FROM", names);
    for (const std::vector<transfer>* list : {&plan_.retains, &plan_.creates, &plan_.lost})
      require_bound(me(), *list, new_, "TO", names);
    find_unread(coming);
    require_exact(me(), old_, "FROM", change_.states(), options_.rounds);
    require_exact(me(), new_, "TO", change_.states(), options_.rounds);
    require_apart(me(), old_, new_, change_.states(), options_.after_use);
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
    footprint all = transport_.footprint(*staged_);
    if (!all.tells_of(at))
      refuse(me(), ": the transport's footprint is of ", all.staging.size(), " slots, ", all.written_in.size(),
             " of which send; the plan has ", at.slots(), ", ", at.sending(),
             " of which send, and what is sent in a slot is written in that or a later one");
    return all;
  }

  /// Cuts the plan into stages and replays the memory; what it exceeds max(before, after) by.
  bytes_t cut(index_t stages) {
    const slot_times at{stages, report_.phases, report_.lag};
    staged_ = stage_plan(plan_, change_, at);
    if (relayed()) arena_.emplace(*staged_, old_, new_, change_.list(), names_of(change_.to()));
    sources_.emplace(old_, binding_side::source, change_.states());
    targets_.emplace(written(), binding_side::target, change_.states());
    const footprint taken = asked_footprint(at);
    const auto mark = [](const std::vector<staged_piece>& pieces, const binding& in,
                         const sink<const bound_box&, const staged_piece&>& visit) {
      for (const staged_piece& p : pieces)
        for (const int state : p.states) in.meet({state, p.tensor, p.where}, [&](const bound_box& b) { visit(b, p); });
    };
    using each = sink<const bound_box&, const staged_piece&>;
    for (const std::vector<staged_piece>* list : {&staged_->sends, &staged_->retains})
      mark(*list, old_, each::of([&](const bound_box& b, const staged_piece& p) { sources_->read(b, p.stage); }));
    for (const tensor_box& b : unread_) old_.meet(b, [&](const bound_box& part) { sources_->unread(part); });
    mark(staged_->receives, written(), each::of([&](const bound_box& b, const staged_piece& p) {
           targets_->written(b, taken.written_in[static_cast<std::size_t>(p.slot(at.lag))]);
         }));
    for (const std::vector<staged_piece>* list : {&staged_->retains, &staged_->creates})
      mark(*list, new_, each::of([&](const bound_box& b, const staged_piece& p) { targets_->written(b, p.stage); }));
    const passed_pages passed{relayed() ? &arena_->by_reader() : nullptr, arena_stays()};
    const bytes_t budget = options_.budget == no_budget ? no_budget : options_.budget - fixed_;
    const page_replay replay =
        replay_pages(*sources_, *targets_, at, {options_.after_use, budget}, taken.staging, passed);
    report_.memory = replay.memory;
    unread_kept_ = replay.unread_kept;
    return report_.memory.excess();
  }

  /// Says the least budget that does.
  [[noreturn]] void refuse_budget(const stages_found& found) {
    std::string why;
    if (options_.after_use == sources::keep) why = ", the sources being kept";
    else if (sources_->outside_bytes() > 0) why = ", memory of the sources that nobody may give back included";
    all_know_ = true;
    refuse("a budget of ", options_.budget, " bytes cannot work: in one stage a device needs ", found.excess + fixed_,
           " bytes beyond max(before, after)", why, ", and of 1, 2, 4 .. ", most_stages,
           " stages none keeps it; the least budget that does is ", found.least_budget, " bytes");
  }

  const layout_switch<From, To>& change_;
  plan plan_;
  bytes_t fixed_ = 0;               // F, the same on all devices
  std::vector<tensor_box> unread_;  // of the sources, what this device neither sends nor retains
};

}  // namespace reshard::detail
