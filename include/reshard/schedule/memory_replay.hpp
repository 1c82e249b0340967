// SPDX-License-Identifier: Apache-2.0
// Memory replay: live bytes of one device over the slots of a switch; without relay a slot is a stage. What arrives in
// a slot is live from its start; what the target does not keep, also what came only to be passed on, goes at the end of
// the slot of its last reader, and before the first slot where nobody reads it; retained bytes count once. With sources
// kept nothing of FROM's goes, and after the switch a device holds all that it holds on either side.
// Builds on: schedule/budget.hpp, schedule/detail/stage_transfers.hpp, algebra/region.hpp.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include <reshard/algebra/region.hpp>
#include <reshard/base/each_run.hpp>
#include <reshard/schedule/budget.hpp>
#include <reshard/schedule/detail/stage_transfers.hpp>

namespace reshard {

namespace detail {

/// For pieces that one device sends, in bytes per slot: how much of what it holds is read for the last time there.
/// An element read in several slots counts in the last one only. Pieces for one destination are disjoint, so a piece
/// is compared with those of the tensor that go elsewhere, and not sooner.
constexpr std::vector<bytes_t> last_read_bytes(std::vector<staged_piece> sent, index_t slots) {
  std::vector<bytes_t> bytes(static_cast<std::size_t>(slots), 0);
  const auto place = [](const staged_piece& p) { return std::tuple(p.states.bits(), p.tensor, -p.slot()); };
  std::sort(sent.begin(), sent.end(),  // latest first; of one slot any may count what they share
            [&](const staged_piece& a, const staged_piece& b) { return place(a) < place(b); });
  const auto same_tensor = [](const staged_piece& a, const staged_piece& b) {
    return a.states == b.states && a.tensor == b.tensor;
  };
  std::vector<box<3>> rest, left;
  each_run(
      sent.size(), [&](std::size_t i, std::size_t j) { return same_tensor(sent[i], sent[j]); },
      [&](std::size_t first, std::size_t past) {
        for (std::size_t at = first; at < past; ++at) {
          const staged_piece& p = sent[at];
          rest.assign(1, p.where);
          for (std::size_t i = first; i < at && !rest.empty(); ++i) {
            if (sent[i].dst == p.dst || !intersects(sent[i].where, p.where)) continue;
            left.clear();
            for (const box<3>& part : rest)
              subtract(part, sent[i].where, [&left](const box<3>& b) { left.push_back(b); });
            rest.swap(left);
          }
          for (const box<3>& part : rest)
            bytes[static_cast<std::size_t>(p.slot())] += part.volume() * p.states.bytes_per_element();
        }
      });
  return bytes;
}

/// What is both sent and retained stays; of what is sent the rest.
constexpr std::vector<staged_piece> not_retained(const std::vector<staged_piece>& sent,
                                                 const std::vector<transfer>& retained) {
  std::vector<staged_piece> leaving;
  for (const staged_piece& p : sent) {
    region<3> rest(p.where);
    for (const transfer& t : retained) {
      if (t.family != p.tensor.family || (t.states & p.states).empty()) continue;
      if (!t.where.dim[0].contains(p.tensor.member) || !t.where.dim[1].contains(p.tensor.expert)) continue;
      rest.remove({{t.where.dim[2], t.where.dim[3], t.where.dim[4]}});
    }
    for (const box<3>& part : rest.boxes()) {
      leaving.push_back(p);
      leaving.back().where = part;
    }
  }
  return leaving;
}

/// What passes through a device: a stage of a stream, the slot in which it is sent on for the last time.
struct passing {
  std::uint64_t stream;
  std::uint32_t states;
  index_t stage, last;

  friend constexpr auto operator<=>(const passing&, const passing&) = default;
  friend constexpr bool operator==(const passing&, const passing&) = default;
};
/// All streams that a device receives, by stream, states and stage; `last` is -1 for what is not sent on.
constexpr std::vector<passing> passing_streams(const std::vector<staged_piece>& received,
                                               const std::vector<staged_piece>& sent) {
  std::vector<passing> all;
  for (const staged_piece& p : received)
    if (p.stream != 0) all.push_back({p.stream, p.states.bits(), p.stage, -1});
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const staged_piece& p : sent) {
    const auto at = std::lower_bound(all.begin(), all.end(), passing{p.stream, p.states.bits(), p.stage, -1});
    if (at != all.end() && at->stream == p.stream && at->states == p.states.bits() && at->stage == p.stage)
      at->last = greatest(at->last, p.slot());
  }
  return all;
}
/// The one of a piece, or null.
constexpr const passing* passing_of(const std::vector<passing>& all, const staged_piece& p) {
  const auto at = std::lower_bound(all.begin(), all.end(), passing{p.stream, p.states.bits(), p.stage, -1});
  const bool found = at != all.end() && at->stream == p.stream && at->states == p.states.bits() && at->stage == p.stage;
  return found ? &*at : nullptr;
}

}  // namespace detail

/// What a device holds in each slot, arrivals of the slot included, of one that holds `before` bytes first and whose
/// staged plan these are. What it sends leaves with its last reader; the rest of what it does not retain has no reader
/// and goes first. `created` bytes are there from the first slot on. With sources kept nothing of FROM's leaves.
[[nodiscard]] constexpr std::vector<bytes_t> live_bytes(bytes_t before, const std::vector<staged_piece>& received,
                                                        const std::vector<staged_piece>& sent,
                                                        const std::vector<transfer>& retained, index_t slots,
                                                        bytes_t created = 0, sources after_use = sources::release) {
  timeline all(before + created, slots);
  const std::vector<detail::passing> passing = detail::passing_streams(received, sent);
  if (after_use == sources::release) {
    std::vector<staged_piece> own;  // that was there before
    for (const staged_piece& p : sent)
      if (detail::passing_of(passing, p) == nullptr) own.push_back(p);
    all.goes = detail::last_read_bytes(detail::not_retained(own, retained), slots);
    all.held = total_bytes(retained) + created;
    for (const bytes_t bytes : all.goes) all.held += bytes;
  }
  for (const staged_piece& p : received) {
    all.comes[static_cast<std::size_t>(p.slot())] += p.bytes();
    if (p.why == purpose::passed_on)
      if (const index_t last = detail::passing_of(passing, p)->last; last >= 0)
        all.goes[static_cast<std::size_t>(last)] += p.bytes();
  }
  return all.live();
}

/// u = the greatest of 0 .. S with which a device keeps a limit. What nobody reads goes together with the sources of
/// stage u - 1, at the end of slot u - 1 + late; at u = 0, also where no u keeps the limit, before the first slot.
/// Given is what the device holds in each slot where it went first, and where it never goes.
[[nodiscard]] constexpr index_t unread_kept(const std::vector<bytes_t>& gone, const std::vector<bytes_t>& there,
                                            bytes_t limit, index_t stages, index_t late) {
  for (const bytes_t bytes : gone)
    if (bytes > limit) return 0;
  const auto fits = static_cast<index_t>(
      std::find_if(there.begin(), there.end(), [limit](bytes_t bytes) { return bytes > limit; }) - there.begin());
  return fits == static_cast<index_t>(there.size()) ? stages : greatest(0, fits - late);
}

/// The replay of a device that holds `before` bytes, then `after` bytes; the rest is live_bytes'. With sources kept the
/// result's `after` is before + after - retained.
[[nodiscard]] constexpr memory_replay replay_memory(bytes_t before, bytes_t after,
                                                    const std::vector<staged_piece>& received,
                                                    const std::vector<staged_piece>& sent,
                                                    const std::vector<transfer>& retained, index_t slots,
                                                    bytes_t created = 0, sources after_use = sources::release) {
  if (after_use == sources::keep) after += before - total_bytes(retained);
  const std::vector<bytes_t> live = live_bytes(before, received, sent, retained, slots, created, after_use);
  return {before, after, peak_of(live, greatest(before, after))};
}

}  // namespace reshard
