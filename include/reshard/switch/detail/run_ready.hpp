// SPDX-License-Identifier: Apache-2.0
// How a switch moves on one device, slot by slot: pages are taken before they are written, and given back once every
// device has read them. Who watches is told of every stage, whatever the transport.
// Builds on: switch/detail/ready_switch.hpp, base/sort.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include <reshard/base/sort.hpp>
#include <reshard/switch/detail/ready_switch.hpp>

namespace reshard::detail {

/// Tells options.on_stage, where there is one, of the stages of one run, from its making on.
class stage_watch {
  using clock = std::chrono::steady_clock;

 public:
  stage_watch(const staged_plan& plan, const switch_options& options) : plan_(&plan), options_(&options) {}

  /// What this device receives in stage k is in place.
  void in_place(index_t k) {
    if (!options_->on_stage) return;
    stage_report told{.stage = k, .stages = plan_->stages};
    std::vector<rank_t> peers;
    for (index_t phase = 0; phase < plan_->phases; ++phase)
      for (const staged_piece& p : pieces_of_slot(plan_->receives, plan_->times().slot_of(k, phase), plan_->lag)) {
        if (p.stage != k) continue;
        told.bytes += p.bytes();
        peers.push_back(p.src);
      }
    sort_items(peers, [](rank_t a, rank_t b) { return a < b; });
    told.peers = static_cast<rank_t>(std::unique(peers.begin(), peers.end()) - peers.begin());
    const auto now = clock::now();
    told.seconds = std::chrono::duration<double>(now - since_).count();
    since_ = now;
    options_->on_stage(told);
  }

 private:
  const staged_plan* plan_;
  const switch_options* options_;
  clock::time_point since_ = clock::now();
};

/// Runs of a switch that is ready, once or as often as its sources are kept.
template <Transport T>
class ready_run {
 public:
  ready_run(ready_switch<T>& ready, all_or_none<T>& devices)
      : its_(ready), devices_(devices), transport_(devices.transport) {}

  /// Moves all stages; gives the sources' pages back as they drain unless they are kept.
  void run() {
    std::exception_ptr at_last;  // of on_stage, when everything is in place here: it ends nothing any more
    const auto move_all = sink<>::of([this, &at_last] {
      std::vector<std::vector<block_span>> drained, passed;
      if (its_.options.after_use == sources::release)
        drained = its_.old_pages->spans_by_stage(its_.report.stages, its_.unread_kept);
      if (its_.relayed() && !its_.arena_stays()) passed = its_.arena->by_reader().spans_by_stage(its_.times().slots());
      // Before all have agreed: of a later run others may write here from then on.
      for (const memory_block& block : its_.written().blocks()) block.open_again();
      its_.touched = true;  // another may have gone on where this one is told of no agreement
      devices_.agree(sink<proposal&>::of([](proposal&) {}));  // all sources are ready; none exchanges small state
      its_.left = 0;
      if (drains()) leave(drained, 0);
      const index_t lag = its_.report.lag, in_place = its_.times().span() + lag, late = in_place + lag;
      const index_t stages = its_.report.stages, slots = its_.times().slots();
      stage_watch watch(*its_.staged, its_.options);
      for (index_t slot = 0; slot < slots; ++slot) {
        take(slot);
        if (slot == 0) create();
        its_.moved = true;
        transport_.move(*its_.moves, slot);
        if (slot >= in_place) tell(watch, slot - in_place, at_last);
        if (drains() && slot >= late) leave(drained, slot - late + 1);
        if (slot >= 2 * lag && !passed.empty()) give_arena_back(passed, slot - 2 * lag);
      }
      while (its_.left <= stages) leave(drained, its_.left);
      for (index_t slot = greatest(0, slots - 2 * lag); slot < slots && !passed.empty(); ++slot)
        give_arena_back(passed, slot);
      transport_.all_reduce_max(0);  // nobody's lists are read any more
    });
    devices_.tell(move_all, sink<>::of([this] { keep_arena(); }));
    if (at_last) std::rethrow_exception(at_last);
  }
  /// Gives back what is left of the sources, where it turns out that every device has everything.
  void leave_rest() {
    if (its_.options.after_use == sources::keep) return;
    const std::vector<std::vector<block_span>> drained =
        its_.old_pages->spans_by_stage(its_.report.stages, its_.unread_kept);
    for (; its_.left <= its_.report.stages; ++its_.left) release(drained, its_.left);
  }

 private:
  /// Messages into the arena may outlive the switch.
  void keep_arena() {
    if constexpr (KeepingMoves<moves_of<T>>)
      if (its_.arena)
        if (std::optional<page_range> pages = its_.arena->take_pages()) its_.moves->keep(std::move(*pages));
  }
  /// Tells who watches of a stage; what that throws of the last one is kept.
  void tell(stage_watch& watch, index_t k, std::exception_ptr& at_last) const {
    try {
      watch.in_place(k);
    } catch (...) {
      if (k + 1 < its_.report.stages) throw;
      at_last = std::current_exception();
    }
  }
  /// Writes the zeros of what nobody sends.
  void create() const {
    for (const staged_piece& p : its_.staged->creates)
      for (const int state : p.states)
        its_.new_tensors.meet({state, p.tensor, p.where},
                              [this](const bound_box& b) { transport_.fill_with_zeros(b); });
  }

  /// Takes what a slot writes first and can't be touched into being; once, however often the switch is run.
  void take(index_t slot) {
    std::vector<block_span>& spans = its_.taken[static_cast<std::size_t>(slot)];
    if (!spans.empty()) transport_.settle();
    for (const block_span& span : spans) its_.written().blocks()[span.block].commit(span.pages);
    spans.clear();
  }
  /// Whether sources go as they drain; without a budget none goes before the last stage is in place everywhere.
  bool drains() const { return its_.options.budget != no_budget; }
  /// A stage's sources, list k + 1, go once every device has all of it in place, and list 0, which no stage reads, at
  /// once; without a budget all go once every device has everything.
  void leave(const std::vector<std::vector<block_span>>& drained, index_t list) {
    const index_t last = drains() ? list - 1 : its_.report.stages - 1;
    if (last >= 0) transport_.await(last + its_.times().span());
    release(drained, list);
    its_.left = list + 1;
  }
  void release(const std::vector<std::vector<block_span>>& drained, index_t at) const {
    if (drained.empty() || drained[static_cast<std::size_t>(at)].empty()) return;
    transport_.settle();
    for (const block_span& span : drained[static_cast<std::size_t>(at)])
      its_.old_tensors.blocks()[span.block].release(span.pages);
  }

  void give_arena_back(const std::vector<std::vector<block_span>>& passed, index_t slot) {
    const std::vector<block_span>& spans = passed[static_cast<std::size_t>(slot) + 1];
    if (spans.empty()) return;
    transport_.settle();
    its_.arena->release(spans);
  }

  ready_switch<T>& its_;
  all_or_none<T>& devices_;
  T& transport_;
};

}  // namespace reshard::detail
