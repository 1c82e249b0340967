// SPDX-License-Identifier: Apache-2.0
// How a switch moves on one device, slot by slot: pages are taken before they are written, and given back once every
// device has read them.
// Builds on: switch/detail/staged_switch.hpp, switch/detail/stage_watch.hpp.
#pragma once

#include <exception>
#include <vector>

#include <reshard/switch/detail/stage_watch.hpp>
#include <reshard/switch/detail/staged_switch.hpp>

namespace reshard::detail {

/// A switch that can be run once it was prepared: once, or as often as one likes where its sources are kept.
template <Holding From, Holding To, Transport T>
class switch_steps : public staged_switch<From, To, T> {
  using ready = staged_switch<From, To, T>;

 public:
  using ready::ready, ready::times;

  /// Moves all stages; gives the sources' pages back as they drain unless they are kept.
  void run() {
    std::exception_ptr at_last;  // of on_stage, when everything is in place here: it ends nothing any more
    tell_failures(sink<>::of([this, &at_last] {
      std::vector<std::vector<block_span>> drained, passed;
      if (options_.after_use == sources::release) drained = sources_->spans_by_stage(report_.stages, unread_kept_);
      if (relayed() && !arena_stays()) passed = arena_->by_reader().spans_by_stage(times().slots());
      touched_ = true;                 // another may have gone on where this one is told of no agreement
      all_or_none(sink<>::of([] {}));  // every device's sources are ready; none exchanges small state
      if (drains()) release(drained, 0);
      for (const memory_block& block : written().blocks()) block.open_again();
      const index_t lag = report_.lag, in_place = times().span() + lag, late = in_place + lag;
      stage_watch watch(*staged_, options_);
      for (index_t slot = 0; slot < times().slots(); ++slot) {
        take(slot);
        if (slot == 0) create();
        moved_ = true;
        transport_.move(*moves_, slot);
        if (slot >= in_place) tell(watch, slot - in_place, at_last);
        if (drains() && slot >= late) leave(drained, slot - late);
        if (slot >= 2 * lag && !passed.empty()) give_arena_back(passed, slot - 2 * lag);
      }
      for (index_t k = drains() ? greatest(0, report_.stages - lag) : 0; k < report_.stages; ++k) leave(drained, k);
      if (!drains()) release(drained, 0);
      for (index_t slot = greatest(0, times().slots() - 2 * lag); slot < times().slots() && !passed.empty(); ++slot)
        give_arena_back(passed, slot);
      transport_.all_reduce_max(0);  // nobody's lists are read any more
    }));
    if (at_last) std::rethrow_exception(at_last);
  }

  /// Whether all refused together, run() was begun, and it came to move: for who has to say how it ended.
  bool all_refused() const { return all_know_; }
  bool touched() const { return touched_; }
  bool moved() const { return moved_; }
  /// Gives back what is left of the sources, where it turns out that every device has everything.
  void leave_rest() {
    if (options_.after_use == sources::keep) return;
    const std::vector<std::vector<block_span>> drained = sources_->spans_by_stage(report_.stages, unread_kept_);
    if (!drains()) release(drained, 0);
    for (; left_ < report_.stages; ++left_) release(drained, left_ + 1);
  }
  /// u of each device of the transport (switch/torn_switch.hpp).
  std::vector<index_t> unread_kept() const {
    if (!kept_by_device_.empty()) return kept_by_device_;
    return std::vector<index_t>(static_cast<std::size_t>(transport_.devices()), report_.stages);
  }

 private:
  using ready::transport_, ready::all_know_, ready::all_or_none, ready::tell_failures, ready::relayed,
      ready::arena_stays, ready::written, ready::old_, ready::new_, ready::options_, ready::staged_, ready::arena_,
      ready::sources_, ready::moves_, ready::taken_, ready::report_, ready::unread_kept_, ready::kept_by_device_;

  /// Tells who watches of a stage; what that throws of the last one is kept.
  void tell(stage_watch& watch, index_t k, std::exception_ptr& at_last) const {
    try {
      watch.in_place(k);
    } catch (...) {
      if (k + 1 < report_.stages) throw;
      at_last = std::current_exception();
    }
  }
  /// Writes the zeros of what nobody sends.
  void create() const {
    for (const staged_piece& p : staged_->creates)
      for (const int state : p.states)
        new_.meet({state, p.tensor, p.where}, [this](const bound_box& b) { transport_.fill_with_zeros(b); });
  }

  /// Takes what a slot writes first and can't be touched into being; once, however often the switch is run.
  void take(index_t slot) {
    std::vector<block_span>& spans = taken_[static_cast<std::size_t>(slot)];
    if (!spans.empty()) transport_.settle();
    for (const block_span& span : spans) written().blocks()[span.block].commit(span.pages);
    spans.clear();
  }
  /// Whether sources go as they drain; without a budget none goes before the last stage is in place everywhere.
  bool drains() const { return options_.budget != no_budget; }
  /// Once every device has all of stage k in place, its sources go; without a budget, once it has all.
  void leave(const std::vector<std::vector<block_span>>& drained, index_t k) {
    transport_.await((drains() ? k : report_.stages - 1) + times().span());
    release(drained, k + 1);
    left_ = k + 1;
  }
  void release(const std::vector<std::vector<block_span>>& drained, index_t at) const {
    if (drained.empty() || drained[static_cast<std::size_t>(at)].empty()) return;
    transport_.settle();
    for (const block_span& span : drained[static_cast<std::size_t>(at)]) old_.blocks()[span.block].release(span.pages);
  }

  void give_arena_back(const std::vector<std::vector<block_span>>& passed, index_t slot) {
    const std::vector<block_span>& spans = passed[static_cast<std::size_t>(slot) + 1];
    if (spans.empty()) return;
    transport_.settle();
    arena_->release(spans);
  }

  bool touched_ = false, moved_ = false;
  index_t left_ = 0;  // stages whose sources have gone
};

/// What stands for the steps over what is no transport, so that one error says so.
struct no_steps {
  template <typename... Parts>
  explicit no_steps(const Parts&...) {}
  void prepare() {}
  void run() {}
  const switch_report& report() const { return none; }

  switch_report none;
};

template <Holding From, Holding To, typename T>
struct steps_over {
  using type = no_steps;
};
template <Holding From, Holding To, Transport T>
struct steps_over<From, To, T> {
  using type = switch_steps<From, To, T>;
};

}  // namespace reshard::detail
