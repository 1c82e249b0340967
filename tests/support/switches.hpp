// SPDX-License-Identifier: Apache-2.0
// A whole switch in one process, checked at every step: filled by a function of (state, tensor, global index), moved,
// compared, by the library's own fill and compare and by the oracle's judge in turn; and the memory that it said it
// would have committed is what the kernel says, stage by stage.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <reshard/algebra/region.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/forwarding.hpp>

#include "../oracle/random_layouts.hpp"
#include "expand.hpp"
#include "judged.hpp"
#include "refused.hpp"
#include "stages_told.hpp"
#include "states.hpp"

namespace testing {

/// The pages of an arena in which a device passes bytes on, beside what it shall hold: from which slot to the end of
/// which they are committed, by looking at every piece.
struct arena_pages {
  struct in_use {
    reshard::index_t first, last;
  };
  std::map<std::uintptr_t, in_use> pages;
  std::byte* begin = nullptr;
  reshard::bytes_t bytes = 0;

  arena_pages() = default;
  template <typename WrittenIn>
  arena_pages(const reshard::staged_plan& plan, const reshard::binding& into, const reshard::binding& kept,
              WrittenIn&& written_in) {
    using namespace reshard;
    for (const memory_block& block : into.blocks())
      if (kept.block_of(block.begin) < 0) begin = block.begin, bytes = block.granules * block.granule;
    const auto each = [&](const std::vector<staged_piece>& pieces, auto&& visit) {
      for (const staged_piece& p : pieces)
        for (const int state : p.states)
          into.meet({state, p.tensor, p.where}, [&](const bound_box& b) {
            if (bytes == 0 || b.data < begin || b.data >= begin + bytes) return;
            const auto at = reinterpret_cast<std::uintptr_t>(b.data);
            for (std::uintptr_t page = at / 4096; page <= (at + static_cast<std::uintptr_t>(b.bytes()) - 1) / 4096;
                 ++page)
              visit(page, p.slot(plan.lag));
          });
    };
    each(plan.receives, [&](std::uintptr_t page, index_t slot) {
      auto [at, fresh] = pages.insert({page, {written_in(slot), -1}});
      if (!fresh) at->second.first = std::min(at->second.first, written_in(slot));
    });
    each(plan.sends, [&](std::uintptr_t page, index_t slot) { pages[page].last = std::max(pages[page].last, slot); });
  }
  /// Committed at the end of a slot, before anything is given back then.
  reshard::bytes_t at_end_of(reshard::index_t slot, reshard::index_t lag, bool stays) const {
    reshard::bytes_t count = 0;
    for (const auto& [page, use] : pages)
      count += use.first <= slot && (stays || slot <= use.last + 2 * lag) ? 4096 : 0;
    return count;
  }
  /// By the kernel's count.
  reshard::bytes_t resident_bytes() const {
    std::vector<unsigned char> in_core(static_cast<std::size_t>(bytes / 4096));
    if (bytes == 0 || ::mincore(begin, static_cast<std::size_t>(bytes), in_core.data()) != 0) return 0;
    return 4096 * std::count_if(in_core.begin(), in_core.end(), [](unsigned char c) { return (c & 1U) != 0; });
  }
};

/// An endpoint that knows what the kernel holds for its arenas.
template <typename Endpoint>
concept TellsOfArenas = requires(const Endpoint& e) {
  { e.staging_seen() } -> std::same_as<reshard::bytes_t>;
};

/// An endpoint that looks at its device's memory after every slot, before anything is given back then.
template <typename Endpoint>
struct watched : reshard::forwarding<Endpoint> {
  using typename reshard::forwarding<Endpoint>::moves;
  using reshard::forwarding<Endpoint>::inner;
  reshard::rank_storage& before;
  reshard::rank_storage& after;
  reshard::bytes_t seen = 0;  // the most of any slot, staging included
  reshard::index_t slots = 0;
  std::vector<reshard::bytes_t> staging = {};
  bool staging_kept = true;  // the transport never held more than it said, and some where it said some
  reshard::sources after_use = reshard::sources::release;
  std::vector<reshard::bytes_t> replayed = {};  // what is committed at the end of each slot, before its sources go
  bool every_slot = true;                       // so it was, by the kernel's count
  reshard::bytes_t budget = reshard::no_budget;
  arena_pages passed = {};
  reshard::bytes_t most_passed = 0;
  reshard::index_t kept = 0;  // u

  moves prepare(const reshard::staged_plan& plan, const reshard::binding& into, reshard::page_stages& pages) {
    using namespace reshard;
    const transport_facts facts = inner.facts();
    const reshard::footprint taken = inner.footprint(plan);
    staging = taken.staging;
    CHECK(taken.most == *std::max_element(staging.begin(), staging.end()));
    const index_t lag = facts.lag, all = plan.times().slots(), span = plan.times().span();
    REQUIRE(plan.lag == lag);
    passed = arena_pages(plan, into, after.tensors(),
                         [&](index_t slot) { return taken.written_in.at(static_cast<std::size_t>(slot)); });
    const detail::streams_of coming(plan.receives);
    page_stages read(before.tensors(), binding_side::source);
    for (const std::vector<staged_piece>* list : {&plan.sends, &plan.retains})
      for (const staged_piece& p : *list)
        for (const int state : p.states)
          if (!coming.has(p))
            before.tensors().meet({state, p.tensor, p.where}, [&](const bound_box& b) { read.read(b, p.stage); });
    for (const bound_box& b : before.tensors().boxes()) {  // what is left of each box is read by nobody
      region<3> rest(b.where);
      for (const std::vector<staged_piece>* list : {&plan.sends, &plan.retains})
        for (const staged_piece& p : *list)
          if (!coming.has(p) && p.tensor == b.tensor && p.states.contains(b.state)) rest.remove(p.where);
      for (const box<3>& part : rest.boxes())
        before.tensors().meet({b.state, b.tensor, part}, [&](const bound_box& unread) { read.unread(unread); });
    }
    const std::vector<bytes_t> goes = read.bytes_by_stage(plan.stages), unread = read.unread_by_stage(plan.stages);
    std::vector<bytes_t> comes = pages.bytes_by_stage(all);
    for (const auto& [page, use] : passed.pages) comes[static_cast<std::size_t>(use.first) + 1] -= 4096;
    bytes_t floor = read.outside_bytes(), brought = pages.outside_bytes();
    for (const bytes_t bytes : goes) floor += bytes;
    for (const bytes_t bytes : comes) brought += bytes;
    const bytes_t held = floor + pages.outside_bytes();
    floor = std::max(floor, brought);
    const bool drains = after_use == sources::release && budget != no_budget;
    std::vector<bytes_t> goes_until{0}, unread_until{0};  // sums over stages -1 (nobody reads them), 0, 1 ..
    for (std::size_t i = 0; i < goes.size(); ++i) {
      goes_until.push_back(goes_until.back() + goes[i] - unread[i]);
      unread_until.push_back(unread_until.back() + unread[i]);
    }
    const auto with = [&](index_t u) {  // what nobody reads goes with stage u - 1, with every budget the greatest u
      std::vector<bytes_t> by_slot;
      bytes_t come = 0;
      for (index_t slot = 0; slot < all; ++slot) {
        come += comes[static_cast<std::size_t>(slot) + 1];
        const index_t gone =
            std::max<index_t>(-1, slot - span - 2 * lag - 1);  // the last stage whose sources have gone
        const auto past = static_cast<std::size_t>(std::min(gone, plan.stages - 1) + 2);
        by_slot.push_back(held + come - (drains ? goes_until[past] : 0) -
                          (drains && u - 1 <= gone ? unread_until[past] : 0));
      }
      return by_slot;
    };
    for (kept = plan.stages; true; --kept) {
      replayed = with(kept);
      bool fits = true;
      for (index_t slot = 0; slot < all && drains; ++slot) {
        const auto i = static_cast<std::size_t>(slot);
        fits = fits &&
               replayed[i] + passed.at_end_of(slot, lag, false) + staging.at(i) <= floor + budget - facts.fixed_bytes;
      }
      if (fits || kept == 0) break;
    }
    return inner.prepare(plan, into, pages);
  }
  void move(moves& prepared, reshard::index_t k) {
    inner.move(prepared, k);
    if constexpr (TellsOfArenas<Endpoint>)
      staging_kept = staging_kept && inner.staging_seen() <= staging.at(static_cast<std::size_t>(k)) &&
                     inner.staging_seen() % reshard::page_bytes == 0 &&
                     (inner.staging_seen() > 0) == (staging.at(static_cast<std::size_t>(k)) > 0);
    const bool stays = budget == reshard::no_budget && after_use == reshard::sources::keep;
    const reshard::bytes_t expected =
        replayed.at(static_cast<std::size_t>(k)) + passed.at_end_of(k, inner.facts().lag, stays);
    seen = std::max(seen, expected + staging.at(static_cast<std::size_t>(k)));
    // Of thousands of slots each fifth: a look is a call of the system for every array.
    if (slots++ > 64 && slots % 5 != 0) return;
    const reshard::bytes_t passing = passed.resident_bytes();
    every_slot = every_slot && before.resident_bytes() + after.resident_bytes() + passing == expected;
    most_passed = std::max(most_passed, passing);
  }
};

/// Both sides of a switch, with memory for every device.
struct switch_in_memory {
  reshard::model of;
  reshard::computed_switch change;
  std::vector<reshard::rank_storage> before, after;
  std::vector<reshard::switch_report> reports;
  reshard::bytes_t kept_budget = 0;  // that the last of run_in_stages kept
  reshard::bytes_t passed = 0;  // the most that arenas for what is passed on were seen to take, summed over devices
  filled_by by = next_in_turn();

  static std::vector<reshard::rank_t> ranks(const std::vector<long>& devices) {
    return {devices.begin(), devices.end()};
  }

  switch_in_memory(const reshard::model& m, const std::string& from_text, const std::string& to_text,
                   const reshard::device_map& from_devices, const reshard::device_map& to_devices,
                   reshard::pages_are targets = reshard::pages_are::reserved, const reshard::cluster& on = {})
      : of(m), change(reshard::space(m, reshard::parse_degrees(from_text)),
                      reshard::space(m, reshard::parse_degrees(to_text)), {from_devices, to_devices, on}) {
    for (reshard::rank_t d = 0; d < change.devices(); ++d) {
      const reshard::rank_t f = change.from_rank(d), t = change.to_rank(d);
      if (f < 0) before.emplace_back();
      else before.emplace_back(change.from(), f, "rank " + std::to_string(f) + " of FROM");
      if (t < 0) after.emplace_back();
      else after.emplace_back(change.to(), t, "rank " + std::to_string(t) + " of TO", targets);
      testing::fill(by, before.back().tensors(), change.from());
    }
    reports.resize(before.size());
  }
  switch_in_memory(const reshard::model& m, const std::string& from_text, const std::string& to_text)
      : switch_in_memory(m, from_text, to_text, reshard::device_map(reshard::parse_degrees(from_text).world()),
                         reshard::device_map(reshard::parse_degrees(to_text).world())) {}
  explicit switch_in_memory(const oracle::switch_case& c, const reshard::cluster& on = {})
      : switch_in_memory(to_model(c.m), c.from_text, c.to_text, reshard::device_map(ranks(c.from_devices)),
                         reshard::device_map(ranks(c.to_devices)), reshard::pages_are::reserved, on) {}
  switch_in_memory(const switch_in_memory&) = delete;

  std::size_t devices() const { return before.size(); }

  /// What a device holds of FROM, or of TO, compared by whoever filled it.
  reshard::comparison found_before(std::size_t d) const {
    return testing::compare(by, before[d].tensors(), change.from());
  }
  reshard::comparison found_after(std::size_t d) const { return testing::compare(by, after[d].tensors(), change.to()); }

  /// No page has gone and none has come: what a refusal must leave behind.
  bool untouched() const {
    bool as_filled = true;
    for (std::size_t d = 0; d < devices(); ++d)
      as_filled = as_filled && after[d].resident_bytes() == 0 && found_before(d).wrong == 0;
    return as_filled;
  }

  /// Moves under a small budget, or the least one that does where the small one is refused; the stages it took.
  template <typename World, typename... How>
  reshard::index_t run_in_stages(reshard::bytes_t budget, How... how) {
    return run_in_stages_by<World>({.budget = budget}, how...);
  }
  template <typename World, typename... How>
  reshard::index_t run_in_stages_by(reshard::switch_options options, How... how) {
    const reshard::patience soon = std::chrono::seconds(60);
    World world(change.devices(), soon, how...);
    const std::string sentence = refused([&] { run(world, options); });
    if (sentence != "accepted") {
      CHECK(untouched());
      const std::string announced = "the least budget that does is ";
      const std::size_t at = sentence.find(announced);
      INFO(sentence);
      REQUIRE(at != sentence.npos);
      World another(change.devices(), soon, how...);
      options.budget = std::stoll(sentence.substr(at + announced.size()));
      run(another, options);
    }
    kept_budget = options.budget;
    return reports[0].stages;
  }

  /// Moves over a world of at least so many devices, and checks what every switch must satisfy.
  template <typename World>
  void run(World& world, const reshard::switch_options& options = {}) {
    using namespace reshard;
    bool kernel_agrees = true;
    std::mutex mutex;
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      rank_storage none("no rank"), nothing("no rank");
      rank_storage &old_state = d < devices() ? before[d] : none, &new_state = d < devices() ? after[d] : nothing;
      const bytes_t held = old_state.resident_bytes();
      watched<std::remove_reference_t<decltype(here)>> looking{{here}, old_state, new_state};
      looking.after_use = options.after_use, looking.budget = options.budget;
      stages_told told;
      const switch_report report =
          switch_state(change, old_state.tensors(), new_state.tensors(), looking, told.watch(options));
      const bool kept = options.after_use == sources::keep;
      const bytes_t most = std::max({report.memory.before, report.memory.after, looking.seen});
      const std::lock_guard lock(mutex);
      if (d < devices()) reports[d] = report;
      passed += looking.most_passed;
      if (held != report.memory.before || new_state.resident_bytes() != report.memory.after ||
          old_state.resident_bytes() != (kept ? held : 0) ||
          looking.slots != slot_times{report.stages, report.phases, report.lag}.slots() || !looking.staging_kept ||
          !looking.every_slot || most != report.memory.peak || !told.right(report))
        kernel_agrees = false;
    });
    CHECK(kernel_agrees);
    for (std::size_t d = 0; d < devices(); ++d) {
      const comparison found = found_after(d);
      CHECK(found.wrong == 0);
      const rank_t rank = change.to_rank(static_cast<rank_t>(d));
      bytes_t elements = 0;
      if (rank >= 0)
        for (const state& s : testing::each_state())
          each_held(change.to(), rank, s.placed_as(), [&](int, const family_box& b) { elements += b.volume(); });
      CHECK(found.elements == elements);
      if (options.budget != no_budget) CHECK(reports[d].memory.excess() <= options.budget);
    }
  }
};

}  // namespace testing
