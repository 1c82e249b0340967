// SPDX-License-Identifier: Apache-2.0
// What a device does in a switch by messages, as data: its messages by stage and round, the copies that pack and unpack
// them, the arenas that they lie in, and a digest of what it will exchange with each peer. Cost follows a device's own
// pieces and peers.
// Builds on: exec/packing.hpp, exec/message_check.hpp, copy/copy_jobs.hpp, memory/pages.hpp.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <reshard/copy/copy_jobs.hpp>
#include <reshard/exec/message_check.hpp>
#include <reshard/exec/packing.hpp>
#include <reshard/memory/pages.hpp>

namespace reshard {

/// How messages are exchanged, as DynaTrain's Table 3 has it: `naive`, one for every piece of every state, each waited
/// for; `buffered`, one per peer and stage, and a stage ends before the next begins; `asynchronous`, the same while the
/// next stage is packed and the last unpacked.
enum class exchange_as { naive, buffered, asynchronous };

/// The lag of an exchange: 1 where it is asynchronous.
constexpr index_t lag_of_exchange(exchange_as how) { return how == exchange_as::asynchronous ? 1 : 0; }

/// Messages of a stage that are posted together: ranges of exchange_moves::out and ::in.
struct exchange_round {
  index_t stage = 0;
  std::size_t out_begin = 0, out_end = 0;
  std::size_t in_begin = 0, in_end = 0;
};

/// Calls sink(pieces) for every message to or from one peer in one stage.
template <typename Sink>
void each_message(stage_range pieces, exchange_as how, Sink&& sink) {
  if (how != exchange_as::naive) sink(pieces);
  else
    for (const staged_piece* p = pieces.begin(); p != pieces.end(); ++p) sink(stage_range{p, p + 1});
}

/// Bytes of the arenas, whole pages: stage k uses the k mod (1 + L)-th of each direction.
struct arena_sizes {
  bytes_t out[2] = {}, in[2] = {};

  arena_sizes(const staged_plan& plan, exchange_as how, bytes_t trailer = 0) {
    std::vector<peer_pieces> groups;
    for (index_t k = 0; k < plan.stages; ++k) {
      const auto parity = static_cast<std::size_t>(k % (1 + lag_of_exchange(how)));
      out[parity] = greatest(out[parity], bytes_of(plan, plan.sends, &staged_piece::dst, k, how, trailer, groups));
      in[parity] = greatest(in[parity], bytes_of(plan, plan.receives, &staged_piece::src, k, how, trailer, groups));
    }
  }
  constexpr bytes_t total() const { return out[0] + out[1] + in[0] + in[1]; }

 private:
  static bytes_t bytes_of(const staged_plan& plan, const std::vector<staged_piece>& list, rank_t staged_piece::*peer,
                          index_t stage, exchange_as how, bytes_t trailer, std::vector<peer_pieces>& groups) {
    bytes_t bytes = 0;
    pieces_by_peer(list, stage, peer, plan.device, groups);
    for (const peer_pieces& g : groups)
      each_message(g.pieces, how, [&](stage_range pieces) { bytes += message_bytes(pieces, trailer); });
    return pages_touching(0, bytes).count() * page_bytes;
  }
};

/// The arenas themselves, all there from the first.
struct message_arenas {
  std::vector<page_range> ranges;
  std::byte *out[2] = {}, *in[2] = {};

  message_arenas() = default;
  explicit message_arenas(const arena_sizes& sizes) {
    for (std::size_t i = 0; i < 2; ++i) {
      out[i] = make(sizes.out[i]);
      in[i] = make(sizes.in[i]);
    }
  }
  bytes_t resident_bytes() const {
    bytes_t bytes = 0;
    for (const page_range& range : ranges) bytes += range.resident_bytes();
    return bytes;
  }

 private:
  std::byte* make(bytes_t bytes) {
    if (bytes == 0) return nullptr;
    page_range& range = ranges.emplace_back(bytes);
    range.commit(0, bytes);
    return range.data();
  }
};

/// What a device sends a peer and receives from it in all stages, as digests; 0 where there is nothing.
struct peer_digests {
  rank_t peer = 0;
  std::uint64_t out = 0, in = 0;
};

/// What a device does in a switch. Movable, until its messages are posted.
struct exchange_moves {
  index_t stages = 1;
  const binding* into = nullptr;
  bytes_t trailer = 0;  // of every message
  message_arenas arenas;
  std::vector<message> out, in;
  std::vector<std::uint64_t> whose_out,
      whose_in;                // of each, where there are trailers: of which switch, from whom to whom
  std::vector<char> unpacked;  // of in
  std::vector<exchange_round> rounds;
  std::vector<std::size_t> first;     // per stage, its first round
  job_list pack, unpack;              // per message
  job_list retain;                    // per stage
  std::vector<peer_digests> digests;  // by peer

  std::size_t first_round(index_t stage) const { return first[static_cast<std::size_t>(stage)]; }
  std::vector<rank_t> peers() const {
    std::vector<rank_t> result;
    for (const peer_digests& d : digests) result.push_back(d.peer);
    return result;
  }
  bytes_t sent_bytes() const {
    bytes_t bytes = 0;
    for (const message& m : out) bytes += m.bytes;
    return bytes;
  }
};

namespace detail {

/// Makes the moves of a device: stage after stage, one direction after the other.
class exchange_maker {
 public:
  exchange_maker(const staged_plan& plan, const binding& from, const binding& into, page_stages& pages, exchange_as how,
                 bytes_t trailer)
      : plan_(plan), from_(from), into_(into), pages_(pages), how_(how) {
    made_.trailer = trailer;
  }

  exchange_moves make() {
    made_.stages = plan_.stages;
    made_.into = &into_;
    made_.arenas = message_arenas(arena_sizes(plan_, how_, made_.trailer));
    count_messages();
    for (index_t k = 0; k < plan_.stages; ++k) {
      made_.first.push_back(made_.rounds.size());
      for (const staged_piece& p : pieces_of_stage(plan_.retains, k)) retain(p);
      const std::size_t out = made_.out.size(), in = made_.in.size();
      add_messages(k, plan_.sends, &staged_piece::dst, true);
      add_messages(k, plan_.receives, &staged_piece::src, false);
      add_rounds(k, out, in);
    }
    made_.first.push_back(made_.rounds.size());
    made_.unpacked.resize(made_.in.size());
    for (job_list* jobs : {&made_.pack, &made_.unpack, &made_.retain}) jobs->seal();
    for (const auto& [peer, both] : digests_)
      made_.digests.push_back({peer, both.out ? both.out->value() : 0, both.in ? both.in->value() : 0});
    if (made_.trailer > 0) {
      made_.whose_out = whose(made_.out, true);
      made_.whose_in = whose(made_.in, false);
    }
    return std::move(made_);
  }

 private:
  struct both_ways {
    std::optional<pair_digest> out, in;
  };

  void count_messages() {
    index_t out = 0, in = 0;
    for (index_t k = 0; k < plan_.stages; ++k) {
      each_group(k, plan_.sends, &staged_piece::dst, [&](rank_t, stage_range) { ++out; });
      each_group(k, plan_.receives, &staged_piece::src, [&](rank_t, stage_range) { ++in; });
    }
    made_.pack = job_list(out), made_.unpack = job_list(in), made_.retain = job_list(plan_.stages);
    made_.out.reserve(static_cast<std::size_t>(out)), made_.in.reserve(static_cast<std::size_t>(in));
  }
  /// Calls sink(peer, pieces) for every message of a stage in one direction.
  template <typename Sink>
  void each_group(index_t k, const std::vector<staged_piece>& list, rank_t staged_piece::*peer, Sink&& sink) {
    pieces_by_peer(list, k, peer, plan_.device, groups_);
    for (const peer_pieces& g : groups_)
      each_message(g.pieces, how_, [&](stage_range pieces) { sink(g.peer, pieces); });
  }

  void add_messages(index_t k, const std::vector<staged_piece>& list, rank_t staged_piece::*peer, bool sent) {
    const auto parity = static_cast<std::size_t>(k % (1 + lag_of_exchange(how_)));
    std::byte* at = (sent ? made_.arenas.out : made_.arenas.in)[parity];
    each_group(k, list, peer, [&](rank_t other, stage_range pieces) {
      std::vector<message>& messages = sent ? made_.out : made_.in;
      const auto entry = static_cast<index_t>(messages.size());
      std::optional<pair_digest>& of = sent ? digests_[other].out : digests_[other].in;
      if (!of) of.emplace(plan_.stages, made_.trailer);
      for (const staged_piece& p : pieces) of->add(p);
      const bytes_t bytes = lay_out(
          pieces, [&](const bound_box& what, bytes_t offset) { add_copies(entry, what, at + offset, sent); },
          made_.trailer);
      of->add_message(k, bytes);
      messages.push_back({other, k, at, bytes});
      at += bytes;
    });
  }
  void add_copies(index_t entry, bound_box in_message, std::byte* at, bool sent) {
    in_message.data = at;
    (sent ? from_ : into_).meet(in_message, [&](const bound_box& part) {
      const bound_box message_part = in_message.narrowed(part.where);
      if (sent) made_.pack.add(entry, message_part, part, nullptr);
      else made_.unpack.add(entry, part, message_part, &pages_);
    });
  }
  void retain(const staged_piece& p) {
    for (const int state : p.states)
      into_.meet({state, p.tensor, p.where}, [&](const bound_box& target) {
        from_.meet(target, [&](const bound_box& source) {
          made_.retain.add(p.stage, target.narrowed(source.where), source, &pages_);
        });
      });
  }
  /// Per message, a digest of what both its ends know: what they exchange in all, from whom to whom, and how many
  /// messages of this pair came before it. (Both list a pair's messages in one order.)
  std::vector<std::uint64_t> whose(const std::vector<message>& messages, bool sent) {
    std::map<rank_t, index_t> before;
    std::vector<std::uint64_t> result;
    for (const message& m : messages) {
      const both_ways& both = digests_[m.peer];
      digest of;
      of.add(static_cast<std::int64_t>((sent ? both.out : both.in)->value()));
      of.add(sent ? plan_.device : m.peer), of.add(sent ? m.peer : plan_.device);
      of.add(before[m.peer]++);
      result.push_back(of.value());
    }
    return result;
  }
  /// All messages of a stage at once; or, naively, a pair of them after the other, in the order in which pairs meet.
  void add_rounds(index_t k, std::size_t out, std::size_t in) {
    if (how_ != exchange_as::naive) {
      made_.rounds.push_back({k, out, made_.out.size(), in, made_.in.size()});
      return;
    }
    const auto key = [&](const std::vector<message>& list, std::size_t i) {
      return i < list.size() ? list[i].peer ^ plan_.device : std::numeric_limits<rank_t>::max();
    };
    while (out < made_.out.size() || in < made_.in.size()) {
      const rank_t sends = key(made_.out, out), receives = key(made_.in, in), next = least(sends, receives);
      const std::size_t outs = sends == next ? 1 : 0, ins = receives == next ? 1 : 0;
      made_.rounds.push_back({k, out, out + outs, in, in + ins});
      out += outs, in += ins;
    }
  }

  const staged_plan& plan_;
  const binding& from_;
  const binding& into_;
  page_stages& pages_;
  exchange_as how_;
  exchange_moves made_;
  std::vector<peer_pieces> groups_;
  std::map<rank_t, both_ways> digests_;
};

}  // namespace detail

/// The moves of a device that holds `from` and shall hold `into`.
inline exchange_moves prepare_exchange(const staged_plan& plan, const binding& from, const binding& into,
                                       page_stages& pages, exchange_as how, bytes_t trailer = 0) {
  return detail::exchange_maker(plan, from, into, pages, how, trailer).make();
}

}  // namespace reshard
