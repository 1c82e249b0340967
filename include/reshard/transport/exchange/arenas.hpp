// SPDX-License-Identifier: Apache-2.0
// How messages are exchanged, and how much memory that takes: what a message holds at most, and the arenas of each
// direction in which messages are packed and unpacked, all there from the first.
// Builds on: transport/exchange/packing.hpp, transport/wire.hpp, memory/pages.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <reshard/memory/pages.hpp>
#include <reshard/transport/exchange/packing.hpp>
#include <reshard/transport/wire.hpp>

namespace reshard {

/// How messages are exchanged, as DynaTrain's Table 3 has it: `naive`, one for every piece of every state, each waited
/// for; `buffered`, one per peer and round, and a round ends before the next begins; `asynchronous`, the same while the
/// next round is packed and the last unpacked. A stage is one round, or several where it has more than a message holds.
enum class exchange_as { naive, buffered, asynchronous };

/// The lag of an exchange: 1 where it is asynchronous.
constexpr index_t lag_of_exchange(exchange_as how) { return how == exchange_as::asynchronous ? 1 : 0; }

/// Calls sink(pieces) for every message to or from one peer in one stage. The pieces last as long as the call.
template <typename Sink>
void each_message(slot_range pieces, exchange_as how, Sink&& sink) {
  if (how != exchange_as::naive) return sink(pieces);
  for (const staged_piece& p : pieces)
    for (const int state : p.states) {
      staged_piece alone = p;
      alone.states = p.states.masked(std::uint32_t{1} << state);
      sink(slot_range{&alone, &alone + 1});
    }
}

/// What a message of a stage holds at most; where a stage has more for a peer it takes several rounds, with a message
/// for each. So the arenas of large stages stay in the caches, and are touched into being once.
inline constexpr bytes_t usual_round_bytes = bytes_t{512} << 10;
/// The least that may be asked for, as a multiple of message_granule.
inline constexpr bytes_t least_round_bytes = 4096;

/// Bytes of the arenas, whole pages each, or whole granules together where they are no pages: the n-th round uses the n
/// mod (1 + L)-th of each direction. Stages of one round each are rounds themselves; where a stage takes several, each
/// arena holds any.
class arena_sizes {
 public:
  bytes_t out[2] = {}, in[2] = {};

  arena_sizes(const staged_plan& plan, exchange_as how, bytes_t trailer = 0, bytes_t round_bytes = usual_round_bytes,
              bytes_t granule = page_bytes)
      : granule_(granule), lag_(lag_of_exchange(how)), several_(static_cast<std::size_t>(plan.times().sending()), 0) {
    std::vector<peer_pieces> groups;
    const bytes_t of_one = granule == page_bytes ? page_bytes : message_granule;
    for (index_t k = 0; k < plan.times().sending(); ++k) {
      const auto parity = static_cast<std::size_t>(k % (1 + lag_));
      const auto bytes_of = [&](const std::vector<staged_piece>& list, rank_t staged_piece::*peer) {
        bytes_t bytes = 0;
        pieces_by_peer(list, k, peer, plan.device, groups, plan.lag);
        for (const peer_pieces& g : groups)
          each_message(g.pieces, how, [&](slot_range pieces) {
            const bytes_t whole = message_bytes(pieces, trailer);
            if (how != exchange_as::naive && whole > round_bytes) several_[static_cast<std::size_t>(k)] = 1;
            bytes += how == exchange_as::naive ? whole : least(whole, round_bytes);
          });
        return ceil_divide(bytes, of_one) * of_one;
      };
      out[parity] = greatest(out[parity], bytes_of(plan.sends, &staged_piece::dst));
      in[parity] = greatest(in[parity], bytes_of(plan.receives, &staged_piece::src));
    }
    if (lag_ > 0 && std::find(several_.begin(), several_.end(), 1) != several_.end())
      for (bytes_t* const both : {out, in}) both[0] = both[1] = greatest(both[0], both[1]);
  }
  bytes_t total() const { return whole(out[0] + out[1] + in[0] + in[1]); }
  /// Whether a device has a message in that stage that takes several rounds.
  bool several_rounds(index_t stage) const { return several_[static_cast<std::size_t>(stage)] != 0; }

 private:
  bytes_t whole(bytes_t bytes) const { return ceil_divide(bytes, granule_) * granule_; }

  bytes_t granule_;
  index_t lag_;
  std::vector<char> several_;  // by stage
};

/// The arenas themselves, all there from the first.
struct message_arenas {
  std::vector<page_range> ranges;
  std::shared_ptr<std::byte> whole;  // all of them, where they are not of the host's pages
  bytes_t whole_bytes = 0;
  std::byte *out[2] = {}, *in[2] = {};

  message_arenas() = default;
  explicit message_arenas(const arena_sizes& sizes, const arena_source& source = {}) {
    if (source.make != nullptr && sizes.total() > 0) (*source.make)(whole_bytes = sizes.total(), whole);
    std::byte* at = whole.get();
    for (std::size_t i = 0; i < 2; ++i) {
      out[i] = make(sizes.out[i], at);
      in[i] = make(sizes.in[i], at);
    }
  }
  bytes_t resident_bytes() const {
    bytes_t bytes = whole_bytes;
    for (const page_range& range : ranges) bytes += range.resident_bytes();
    return bytes;
  }

 private:
  /// From `at` on, which it moves, where they are parts of a whole.
  std::byte* make(bytes_t bytes, std::byte*& at) {
    if (bytes == 0) return nullptr;
    if (whole != nullptr) return std::exchange(at, at + bytes);
    page_range& range = ranges.emplace_back(bytes);
    range.commit(0, bytes);
    return range.data();
  }
};

}  // namespace reshard
