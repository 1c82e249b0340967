// SPDX-License-Identifier: Apache-2.0
// How the pieces of a stage lie in a message. Every piece of a state starts at the first offset that is (its first
// column x width) mod 16, so that both ends can copy 16 bytes at a time where arrays are aligned, and a message is a
// multiple of 512 bytes long. Both ends derive the same from their own lists, and compare a digest of it.
// Builds on: memory/binding.hpp, schedule/staged_plan.hpp, base/version.hpp,
// base/digest.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/base/version.hpp>
#include <reshard/memory/binding.hpp>
#include <reshard/schedule/staged_plan.hpp>

namespace reshard {

/// Bytes that pieces and messages are laid out by.
inline constexpr bytes_t piece_alignment = 16, message_granule = 512;

/// What one device sends another in all stages, or receives, as a digest: both ends have the same, or do not agree.
class pair_digest {
 public:
  /// `way` says how messages are exchanged: ends of two ways wait for each other.
  explicit constexpr pair_digest(index_t stages, bytes_t trailer = 0, bytes_t round_bytes = 0, int way = 0) {
    for (const char c : std::string_view(RESHARD_VERSION)) of_.add(c);
    of_.add(stages), of_.add(trailer), of_.add(round_bytes), of_.add(way);
  }
  constexpr void add(const staged_piece& p) {
    of_.add(p.stage), of_.add(p.phase);
    of_.add(static_cast<std::int64_t>(p.states.bits()));
    for (const index_t number : {index_t{p.tensor.family}, p.tensor.member, p.tensor.expert}) of_.add(number);
    for (const interval& i : p.where.dim) of_.add(i.begin), of_.add(i.end);
  }
  constexpr void add_message(index_t stage, bytes_t bytes) { of_.add(stage), of_.add(bytes); }
  constexpr std::uint64_t value() const { return of_.value(); }

 private:
  digest of_;
};

/// The pieces of one stage that go to one peer, or come from it.
struct peer_pieces {
  rank_t peer = 0;
  slot_range pieces = {};
};

/// One entry per peer, of the pieces of a slot as stage_plan orders them (`peer` is &staged_piece::dst or ::src), in
/// the order in which pairs meet: by peer XOR device.
inline void pieces_by_peer(const std::vector<staged_piece>& pieces, index_t slot, rank_t staged_piece::*peer,
                           rank_t device, std::vector<peer_pieces>& result, index_t lag = 0) {
  result.clear();
  const slot_range all = pieces_of_slot(pieces, slot, lag);
  for (const staged_piece *first = all.begin(), *past = first; first != all.end(); first = past) {
    while (past != all.end() && past->*peer == first->*peer) ++past;
    result.push_back({first->*peer, {first, past}});
  }
  std::sort(result.begin(), result.end(),
            [device](const peer_pieces& a, const peer_pieces& b) { return (a.peer ^ device) < (b.peer ^ device); });
}

/// The first offset from `at` on at which such a box may lie: it is (its first column x width) mod 16.
constexpr bytes_t place_from(bytes_t at, const box<3>& where, bytes_t width) {
  const bytes_t lead = where.dim[2].begin * width % piece_alignment;
  return at + (lead - at % piece_alignment + piece_alignment) % piece_alignment;
}
/// A box of a piece with its strides in a message, and no data yet.
inline bound_box packed_box(const staged_piece& p, int state, const box<3>& where) {
  const index_t columns = where.dim[2].size();
  return {{state, p.tensor, where}, nullptr, {columns * where.dim[1].size(), columns, 1}, p.states.width_of(state)};
}

/// Calls sink(bound_box, offset) for every state of every piece in a message; the bytes of the message, of which the
/// last may be a trailer.
template <typename Sink>
bytes_t lay_out(slot_range pieces, Sink&& sink, bytes_t trailer = 0) {
  bytes_t at = 0;
  for (const staged_piece& p : pieces)
    for (const int state : p.states) {
      const bytes_t width = p.states.width_of(state);
      at = place_from(at, p.where, width);
      sink(packed_box(p, state, p.where), at);
      at += p.where.volume() * width;
    }
  return ceil_divide(at + trailer, message_granule) * message_granule;
}
/// The bytes of that message.
inline bytes_t message_bytes(slot_range pieces, bytes_t trailer = 0) {
  return lay_out(
      pieces, [](const bound_box&, bytes_t) {}, trailer);
}

/// A box cut along its outermost dimensions, in order, into parts of at most so many bytes, and of an element at least;
/// into multiples of message_granule where some of its slices are one, so that messages of them need no padding.
template <typename Sink>
void each_part(const box<3>& where, bytes_t width, bytes_t most, Sink&& sink) {
  int cut = 0;  // the outermost dimension that there is
  while (cut < 2 && where.dim[cut].size() == 1) ++cut;
  const interval slices = where.dim[cut];
  const bytes_t slice_bytes = where.volume() / slices.size() * width;
  const index_t even = message_granule / std::gcd(slice_bytes, message_granule), fit = greatest(1, most / slice_bytes);
  const index_t step = fit < even ? fit : fit / even * even;
  for (index_t first = slices.begin; first < slices.end; first += step) {
    box<3> part = where;
    part.dim[cut] = {first, least(first + step, slices.end)};
    if (slice_bytes > most && cut < 2) each_part(part, width, most, sink);
    else sink(part);
  }
}

/// A part of a box that is cut has at most this fraction of the bytes of a message.
inline constexpr bytes_t parts_of_a_message = 8;

/// Messages of at most `most` bytes instead of one: calls sink(bound_box, offset) for what lies in a message, then
/// end(bytes) for the message; of pieces for which message_bytes(pieces, trailer) > most. Boxes are cut into parts of
/// at most most / parts_of_a_message bytes, which lie in a message as pieces do.
template <typename Sink, typename End>
void lay_out_in_rounds(slot_range pieces, bytes_t most, bytes_t trailer, Sink&& sink, End&& end) {
  bytes_t at = 0;
  const auto close = [&] {
    end(ceil_divide(at + trailer, message_granule) * message_granule);
    at = 0;
  };
  for (const staged_piece& p : pieces)
    for (const int state : p.states) {
      const bytes_t width = p.states.width_of(state);
      each_part(p.where, width, most / parts_of_a_message, [&](const box<3>& part) {
        const bytes_t bytes = part.volume() * width;
        if (place_from(at, part, width) + bytes + trailer > most) close();
        at = place_from(at, part, width);
        sink(packed_box(p, state, part), at);
        at += bytes;
      });
    }
  close();
}

}  // namespace reshard
