// SPDX-License-Identifier: Apache-2.0
// Stages: how a switch is cut in time so that memory stays bounded. Stage k of S takes the k-th of S equal parts of
// every stream, in the order in which the destination keeps it, cut at elements. Without relay a stream is all that one
// source sends one destination for one state (source = destination included); with relay the plan says what it is, and
// every hop of a byte has its stage. Both ends derive the same cut from their own plans.
// Builds on: plan/layout_switch.hpp, plan/plan.hpp, algebra/flat.hpp, base/sort.hpp.
#pragma once

#include <tuple>
#include <vector>

#include <reshard/algebra/flat.hpp>
#include <reshard/base/each_run.hpp>
#include <reshard/base/sort.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard {

/// A box [parts, rows, columns] of one tensor that goes from src to dst in one stage and phase, for every state of the
/// set.
struct staged_piece {
  index_t stage = 0;
  rank_t src = 0;
  rank_t dst = 0;
  state_set states;
  tensor_id tensor = {};
  box<3> where = {};
  int phase = 0;
  purpose why = purpose::delivered;
  std::uint64_t stream = 0;

  /// When it goes, over a transport of such a lag: stage + phase (1 + lag).
  constexpr index_t slot(index_t lag = 0) const { return stage + phase * (1 + lag); }
  constexpr bytes_t bytes() const { return where.volume() * states.bytes_per_element(); }
  friend constexpr bool operator==(const staged_piece&, const staged_piece&) = default;
};

namespace detail {

/// Cuts one stream, whose pieces are in the destination's order, into `stages` equal parts of its elements.
template <typename Sink>
constexpr void cut_stream(const staged_piece* first, const staged_piece* last, index_t stages, Sink&& sink) {
  index_t elements = 0;
  for (const staged_piece* p = first; p != last; ++p) elements += p->where.volume();
  const interval stream{0, elements};
  index_t begin = 0, stage = 0;  // of the piece, in the stream
  for (const staged_piece* p = first; p != last; ++p) {
    const interval span{begin, begin + p->where.volume()};
    begin = span.end;
    while (even_part(stream, stage, stages).end <= span.begin) ++stage;
    for (index_t k = stage; k < stages; ++k) {
      const interval part = intersect(even_part(stream, k, stages), span);
      if (part.empty() && even_part(stream, k, stages).begin >= span.end) break;
      if (part.empty()) continue;
      staged_piece cut = *p;
      cut.stage = k;
      if (part == span) {
        sink(cut);
        break;
      }
      const index_t extent[3] = {p->where.dim[0].size(), p->where.dim[1].size(), p->where.dim[2].size()};
      const index_t corner[3] = {p->where.dim[0].begin, p->where.dim[1].begin, p->where.dim[2].begin};
      invert_flat(extent, translate(part, -span.begin), [&](const box<3>& b) {
        cut.where = translate(b, corner);
        sink(cut);
      });
    }
  }
}

}  // namespace detail

/// The rank of TO whose order of addresses cuts a transfer into stages: its destination's; of what is passed on, the
/// lowest rank that holds it, so that it is the same on every hop.
template <Holding From, Holding To>
constexpr rank_t ordering_rank(const transfer& t, role r, const layout_switch<From, To>& change) {
  if (t.stream == 0) return change.to_rank(t.dst);
  rank_t lowest = -1;
  change.to().owners(t.family, r, t.where,
                     [&](const family_box&, const Holders auto& holders) { lowest = holders[0]; });
  return lowest;
}

/// The transfers of one end's list, per tensor and stage, each stream in the order in which the destination keeps it.
/// Result: by (src, dst, phase, states, stream), then stage, then the destination's order; sender and receiver of a
/// stream get the same pieces.
template <Holding From, Holding To>
[[nodiscard]] constexpr std::vector<staged_piece> stage_transfers(const std::vector<transfer>& transfers,
                                                                  const layout_switch<From, To>& change,
                                                                  index_t stages) {
  struct ordered {
    staged_piece piece;
    storage_order at;
  };
  std::vector<ordered> pieces;
  for (const transfer& t : transfers) {
    const role r = t.states.role_of(*t.states.begin());
    const rank_t rank = ordering_rank(t, r, change);
    each_tensor(t.family, t.where, [&](const tensor_id& tensor, const box<3>& part) {
      pieces.push_back(
          {{0, t.src, t.dst, t.states, tensor, part, t.phase, t.why, t.stream}, change.to().order_of(tensor, rank, r)});
    });
  }
  const auto stream_of = [](const ordered& one) {
    const staged_piece& p = one.piece;
    return std::tuple(p.src, p.dst, p.phase, p.states.bits(), p.stream);
  };
  detail::sort_items(pieces, [&](const ordered& a, const ordered& b) {
    if (const auto of_a = stream_of(a), of_b = stream_of(b); of_a != of_b) return of_a < of_b;
    return a.at != b.at ? a.at < b.at : precedes(a.piece.where, b.piece.where);
  });
  std::vector<staged_piece> result, stream;
  result.reserve(pieces.size());
  const auto same_stream = [&](std::size_t i, std::size_t j) { return stream_of(pieces[i]) == stream_of(pieces[j]); };
  detail::each_run(pieces.size(), same_stream, [&](std::size_t first, std::size_t past) {
    stream.clear();
    for (std::size_t i = first; i < past; ++i) stream.push_back(pieces[i].piece);
    detail::cut_stream(stream.data(), stream.data() + stream.size(), stages,
                       [&](const staged_piece& p) { result.push_back(p); });
  });
  return result;
}

}  // namespace reshard
