// SPDX-License-Identifier: Apache-2.0
// The switch: every device calls switch_state with its tensors before and after, and the state moves from one holding to the
// other in memory-bounded stages. Whatever can be refused is refused, on all devices, before the first page is touched.
// Builds on: exec/switch_checks.hpp, exec/replay_pages.hpp, exec/transport.hpp, exec/meeting.hpp.
#pragma once

#include <exception>
#include <limits>
#include <optional>

#include <reshard/exec/meeting.hpp>
#include <reshard/exec/rank_arrays.hpp>
#include <reshard/exec/replay_pages.hpp>
#include <reshard/exec/switch_checks.hpp>
#include <reshard/exec/switch_options.hpp>
#include <reshard/exec/transport.hpp>

namespace reshard {

namespace detail {

template <Holding From, Holding To, typename T>
class switching {
 public:
  switching(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors, T& transport, const switch_options& options)
      : change_(change), old_(old_tensors), new_(new_tensors), transport_(transport), options_(options) {}

  switch_report run() {
    together(0, [&] { derive(); });
    const bytes_t most = transport_.largest(options_.budget), smallest = -transport_.largest(-options_.budget);
    if (most != smallest) {  // all devices see the same two numbers
      agreed_ = true;
      refuse("the devices were given budgets from ", smallest, " to ", most, " bytes; a switch has one budget");
    }
    if (report_.stages > most_stages) refuse_budget(0);
    const bytes_t excess = together([&] {
      cut(report_.stages);
      return report_.memory.excess();
    });
    if (excess > options_.budget) refuse_budget(excess);
    together(0, [&] { transport_.prepare(*staged_, new_, *targets_); });

    std::vector<std::vector<block_span>> drained;
    if (options_.after_use == sources::release) drained = sources_->spans_by_stage(report_.stages);
    release(drained, 0);
    for (index_t k = 0; k < report_.stages; ++k) {
      transport_.move(k);
      release(drained, k + 1);
    }
    transport_.largest(0);  // nobody's lists are read any more
    return report_;
  }

  /// Whether what run() threw is known to all devices: they refused together, and may try again.
  bool refused_together() const { return agreed_; }

 private:
  static constexpr std::int64_t refused = std::numeric_limits<std::int64_t>::max();

  std::string me() const { return "device " + std::to_string(transport_.device()); }

  /// Does something that may be refused, and agrees on the largest of the numbers it returns: all devices go on, or none does.
  template <typename Do>
  std::int64_t together(Do&& something) {
    std::exception_ptr mine;
    std::int64_t value = refused;
    try {
      value = something();
    } catch (const peer_failed&) {
      throw;
    } catch (...) {
      mine = std::current_exception();
    }
    const std::int64_t agreed = transport_.largest(value);
    agreed_ = agreed == refused;
    if (mine) std::rethrow_exception(mine);
    if (agreed == refused) throw peer_failed("reshard: " + me() + ": another device refused the switch; nothing was touched");
    return agreed;
  }
  template <typename Do>
  void together(int, Do&& something) {
    together([&] { return something(), std::int64_t{0}; });
  }

  void derive() {
    if (options_.budget < 1) refuse("a budget of ", options_.budget, " bytes; it must be at least 1");
    if (change_.devices() > transport_.devices())
      refuse("the switch names ", change_.devices(), " devices, and the transport has ", transport_.devices());
    plan_ = make_plan(change_.from, change_.to, transport_.device(), change_.where);
    report_.sent = total_bytes(plan_.sends);
    report_.received = total_bytes(plan_.receives);
    report_.retained = total_bytes(plan_.retains);
    old_.seal();
    new_.seal();
    transport_.offer(old_);
    if (options_.budget != no_budget) {
      largest_ = largest_holding(change_.from, change_.to, change_.where.states);
      report_.stages = stage_count(largest_, options_.budget);
    }
    const auto name = [this](int f, index_t member, index_t expert) { return tensor_name(change_.to, f, member, expert); };
    for (const std::vector<transfer>* list : {&plan_.sends, &plan_.retains}) require_bound(me(), *list, old_, "FROM", name);
    for (const std::vector<transfer>* list : {&plan_.receives, &plan_.retains}) require_bound(me(), *list, new_, "TO", name);
    require_apart(me(), old_, new_, change_.where.states, options_.after_use);
  }

  /// Cuts the plan into stages and replays the memory.
  void cut(index_t stages) {
    staged_ = stage_plan(plan_, change_.to, change_.where.to, stages);
    sources_.emplace(old_, binding_side::source, change_.where.states);
    targets_.emplace(new_, binding_side::target, change_.where.states);
    const auto mark = [](const std::vector<staged_piece>& pieces, const binding& in, auto&& visit) {
      for (const staged_piece& p : pieces)
        for (int state = 0; state < state_count; ++state)
          if (p.states.contains(state))
            in.meet({state, p.family, p.member, p.expert, p.where}, [&](const bound_box& b) { visit(b, p.stage); });
    };
    for (const std::vector<staged_piece>* list : {&staged_->sends, &staged_->retains})
      mark(*list, old_, [&](const bound_box& b, index_t k) { sources_->read(b, k); });
    for (const std::vector<staged_piece>* list : {&staged_->receives, &staged_->retains})
      mark(*list, new_, [&](const bound_box& b, index_t k) { targets_->written(b, k); });
    std::vector<bytes_t> staging;
    for (index_t k = 0; k < stages; ++k) staging.push_back(transport_.staging_bytes(*staged_, k));
    report_.memory = replay_pages(*sources_, *targets_, stages, options_.after_use, staging);
  }

  /// Says the least budget that does.
  [[noreturn]] void refuse_budget(bytes_t excess) {
    const index_t stages = report_.stages;
    const bytes_t least_that_does = least_budget(largest_, [&](index_t s) {
      return together([&] {
        cut(s);
        return report_.memory.excess();
      });
    });
    std::string why;
    if (options_.after_use == sources::keep) why = ", the sources being kept";
    else if (sources_->outside_bytes() > 0) why = ", memory of the sources that nobody may give back included";
    agreed_ = true;
    if (stages > most_stages)
      refuse("a budget of ", options_.budget, " bytes would take ", stages, " stages, and at most ", most_stages, " are made", why,
             "; the least budget that does is ", least_that_does, " bytes");
    refuse("a budget of ", options_.budget, " bytes cannot work: in ", stages, " stages a device needs ", excess, " bytes beyond max(before, after)", why,
           "; the least budget that does is ", least_that_does, " bytes");
  }

  void release(const std::vector<std::vector<block_span>>& drained, index_t at) const {
    if (drained.empty()) return;
    for (const block_span& span : drained[static_cast<std::size_t>(at)]) old_.blocks()[span.block].release(span.pages);
  }

  const layout_switch<From, To>& change_;
  binding& old_;
  binding& new_;
  T& transport_;
  switch_options options_;
  plan plan_;
  bytes_t largest_ = 0;
  std::optional<staged_plan> staged_;
  std::optional<page_stages> sources_;
  std::optional<page_stages> targets_;
  switch_report report_;
  bool agreed_ = false;
};

}  // namespace detail

/// Called by every device of the transport, each with its own tensors; a device without a rank on a side has an empty binding
/// there. On return the new tensors hold what they shall, and the old ones' pages have gone (unless they are kept, or cannot).
template <Holding From, Holding To, Transport T>
switch_report switch_state(const layout_switch<From, To>& change, binding& old_tensors, binding& new_tensors, T& transport,
                           const switch_options& options = {}) {
  detail::switching<From, To, T> here(change, old_tensors, new_tensors, transport, options);
  try {
    return here.run();
  } catch (const std::exception& e) {
    if (!here.refused_together()) transport.fail(e.what());
    throw;
  } catch (...) {  // from an owner's give_back, or a transport's prepare
    if (!here.refused_together()) transport.fail("reshard: an exception of no standard kind");
    throw;
  }
}

/// The same between two spaces, rank r on device r. Each device makes the holdings for itself.
template <Transport T>
switch_report switch_state(const space& from, const space& to, binding& old_tensors, binding& new_tensors, T& transport,
                           const switch_options& options = {}) {
  const computed_holding have(from), want(to);
  return switch_state(layout_switch(have, want), old_tensors, new_tensors, transport, options);
}

}  // namespace reshard
