// SPDX-License-Identifier: Apache-2.0
// What a device does in a switch by messages, as data: its messages by stage and round, the copies that pack and unpack
// them, and a digest of what it will exchange with each peer. Cost follows a device's own pieces and peers.
// Builds on: transport/exchange/arenas.hpp, transport/exchange/message_check.hpp, copy/copy_jobs.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <reshard/copy/copy_jobs.hpp>
#include <reshard/transport/exchange/arenas.hpp>
#include <reshard/transport/exchange/message_check.hpp>

namespace reshard {

/// Messages of a stage that are posted together: ranges of exchange_moves::out and ::in.
struct exchange_round {
  index_t stage = 0;
  std::size_t out_begin = 0, out_end = 0;
  std::size_t in_begin = 0, in_end = 0;
};

/// What a device sends a peer and receives from it in all stages, as digests; 0 where there is nothing.
struct peer_digests {
  rank_t peer = 0;
  std::uint64_t out = 0, in = 0;
};

/// What a device does in a switch. Movable, until its messages are posted.
struct exchange_moves {
  index_t slots = 1;  // in which something may be sent; where a plan has one phase, its stages
  const binding* into = nullptr;
  bytes_t trailer = 0;  // of every message
  message_arenas arenas;
  std::vector<message> out, in;
  std::vector<std::uint64_t> whose_out,
      whose_in;                // of each, where there are trailers: of which switch, from whom to whom
  std::vector<char> placed;    // of in: whether it comes where it belongs, and no unpacking follows
  std::vector<char> unpacked;  // of in
  std::vector<exchange_round> rounds;
  std::vector<std::size_t> first;     // per stage, its first round
  std::vector<char> several;          // per stage, whether its pages are taken in its own slot
  job_list pack, unpack;              // per message
  job_list retain;                    // per stage
  std::vector<peer_digests> digests;  // by peer

  std::size_t first_round(index_t stage) const { return first[static_cast<std::size_t>(stage)]; }
  index_t retained_jobs(index_t stage) const { return static_cast<index_t>(retain.end(stage) - retain.begin(stage)); }
  std::vector<rank_t> peers() const {
    std::vector<rank_t> result;
    for (const peer_digests& d : digests) result.push_back(d.peer);
    return result;
  }
  /// These pages go no sooner than the messages that may lie in them.
  void keep(page_range&& pages) { arenas.ranges.push_back(std::move(pages)); }
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
                 bytes_t trailer, bytes_t round_bytes, const arena_source& source)
      : plan_(plan), from_(from), into_(into), pages_(pages), how_(how), round_bytes_(round_bytes), source_(source) {
    made_.trailer = trailer;
  }

  exchange_moves make() {
    made_.slots = plan_.times().sending();
    made_.into = &into_;
    const arena_sizes sizes(plan_, how_, made_.trailer, round_bytes_, source_.granule);
    made_.arenas = message_arenas(sizes, source_);
    made_.retain = job_list(made_.slots);
    for (index_t k = 0; k < made_.slots; ++k) {
      made_.first.push_back(made_.rounds.size());
      made_.several.push_back(sizes.several_rounds(k) ? 1 : 0);
      for (const staged_piece& p : pieces_of_slot(plan_.retains, k, plan_.lag)) retain(p);
      if (how_ == exchange_as::naive) add_pairs(k);
      else add_rounds(k);
    }
    made_.first.push_back(made_.rounds.size());
    made_.pack.seal(static_cast<index_t>(made_.out.size()));
    made_.unpack.seal(static_cast<index_t>(made_.in.size()));
    made_.retain.seal();
    made_.unpacked.resize(made_.in.size());
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

  /// What lies in a message, and where.
  struct laid_box {
    bound_box what;
    bytes_t at;
  };
  struct laid_message {
    rank_t peer;
    bytes_t bytes;
    std::vector<laid_box> boxes;
  };
  /// Messages by their round; naively each by itself.
  using laid_rounds = std::vector<std::vector<laid_message>>;

  /// The messages of a stage in one direction.
  laid_rounds laid_out(index_t k, const std::vector<staged_piece>& list, rank_t staged_piece::*peer, bool sent) {
    laid_rounds rounds;
    pieces_by_peer(list, k, peer, plan_.device, groups_, plan_.lag);
    for (const peer_pieces& g : groups_) {
      std::size_t round = how_ == exchange_as::naive ? rounds.size() : 0;
      each_message(g.pieces, how_, [&](slot_range pieces) {
        laid_message next{g.peer, 0, {}};
        const auto lay = [&](const bound_box& what, bytes_t at) { next.boxes.push_back({what, at}); };
        const auto end = [&](bytes_t bytes) {
          next.bytes = bytes;
          if (rounds.size() == round) rounds.emplace_back();
          rounds[round++].push_back(std::exchange(next, {g.peer, 0, {}}));
        };
        pair_digest& of = digest_with(g.peer, sent);
        for (const staged_piece& p : pieces) of.add(p);
        if (how_ == exchange_as::naive || message_bytes(pieces, made_.trailer) <= round_bytes_)
          end(lay_out(pieces, lay, made_.trailer));
        else lay_out_in_rounds(pieces, round_bytes_, made_.trailer, lay, end);
      });
    }
    return rounds;
  }
  pair_digest& digest_with(rank_t peer, bool sent) {
    std::optional<pair_digest>& of = sent ? digests_[peer].out : digests_[peer].in;
    if (!of) of.emplace(made_.slots, made_.trailer, round_bytes_, static_cast<int>(how_));
    return *of;
  }
  /// Adds a message where it lies in its tensors, or else at a place in an arena, which it moves on.
  void add_message(index_t k, const laid_message& m, std::byte*& at, bool sent) {
    std::vector<message>& messages = sent ? made_.out : made_.in;
    const auto entry = static_cast<index_t>(messages.size());
    std::byte* run = may_be_in_place(k, sent) ? run_of(m, at, sent ? from_ : into_) : nullptr;
    if (reinterpret_cast<std::uintptr_t>(run) % static_cast<std::uintptr_t>(source_.alignment) != 0) run = nullptr;
    if (!sent) made_.placed.push_back(run != nullptr ? 1 : 0);
    digest_with(m.peer, sent).add_message(k, m.bytes);
    messages.push_back({m.peer, k, run != nullptr ? run : at, m.bytes});
    if (run == nullptr) {
      for (const laid_box& b : m.boxes) add_copies(entry, b.what, at + b.at, sent);
      at += m.bytes;
    } else if (!sent) {
      for (const laid_box& b : m.boxes)
        into_.meet(b.what, [&](const bound_box& part) { made_.unpack.add_pages(entry, part, pages_); });
    }
  }
  /// What comes, where the pages that its stage writes are taken in the stage's own slot, in which it is posted.
  bool may_be_in_place(index_t k, bool sent) const {
    if (source_.may_lie == in_tensors::never || (source_.may_lie == in_tensors::outgoing && !sent)) return false;
    return sent || lag_of_exchange(how_) == 0 || made_.several[static_cast<std::size_t>(k)] != 0;
  }
  /// Where a message lies in a device's tensors as one run, no byte of it being padding or a trailer, which is to be
  /// checked first; null where it does not. `at` is any place for the message.
  static std::byte* run_of(const laid_message& m, std::byte* at, const binding& tensors) {
    bytes_t bytes = 0, found = 0;
    for (const laid_box& b : m.boxes) bytes += b.what.bytes();
    if (bytes != m.bytes) return nullptr;
    std::byte* first = nullptr;
    std::uintptr_t distance = 0;  // between both places, the same for all parts
    bool one = true;
    const auto address = [](const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); };
    for (std::size_t i = 0; one && i < m.boxes.size(); ++i) {
      bound_box in_message = m.boxes[i].what;
      in_message.data = at + m.boxes[i].at;
      tensors.meet(in_message, [&](const bound_box& part) {
        const bound_box message_part = in_message.narrowed(part.where);
        if (found == 0) distance = address(part.data) - address(message_part.data);
        one = one && !part.converts() && shape_between(part, message_part).ndim == 0 &&
              address(part.data) - address(message_part.data) == distance;
        if (message_part.data == at) first = part.data;
        found += part.bytes();
      });
    }
    return one && found == bytes ? first : nullptr;
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
  /// All first messages of a stage at once, then all second ones; a round where there are none.
  void add_rounds(index_t k) {
    const laid_rounds outs = laid_out(k, plan_.sends, &staged_piece::dst, true),
                      ins = laid_out(k, plan_.receives, &staged_piece::src, false);
    for (std::size_t i = 0; i == 0 || i < std::max(outs.size(), ins.size()); ++i) {
      const std::size_t arena = made_.rounds.size() % static_cast<std::size_t>(1 + lag_of_exchange(how_));
      std::byte *out = made_.arenas.out[arena], *in = made_.arenas.in[arena];
      exchange_round r{k, made_.out.size(), 0, made_.in.size(), 0};
      if (i < outs.size())
        for (const laid_message& m : outs[i]) add_message(k, m, out, true);
      if (i < ins.size())
        for (const laid_message& m : ins[i]) add_message(k, m, in, false);
      r.out_end = made_.out.size(), r.in_end = made_.in.size();
      made_.rounds.push_back(r);
    }
  }
  /// A pair of messages after the other, in the order in which pairs meet.
  void add_pairs(index_t k) {
    std::size_t out = made_.out.size(), in = made_.in.size();
    std::byte *out_at = made_.arenas.out[0], *in_at = made_.arenas.in[0];
    for (const std::vector<laid_message>& one : laid_out(k, plan_.sends, &staged_piece::dst, true))
      for (const laid_message& m : one) add_message(k, m, out_at, true);
    for (const std::vector<laid_message>& one : laid_out(k, plan_.receives, &staged_piece::src, false))
      for (const laid_message& m : one) add_message(k, m, in_at, false);
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
  bytes_t round_bytes_;
  const arena_source& source_;
  exchange_moves made_;
  std::vector<peer_pieces> groups_;
  std::map<rank_t, both_ways> digests_;
};

}  // namespace detail

/// The moves of a device that holds `from` and shall hold `into`.
inline exchange_moves prepare_exchange(const staged_plan& plan, const binding& from, const binding& into,
                                       page_stages& pages, exchange_as how, bytes_t trailer = 0,
                                       bytes_t round_bytes = usual_round_bytes, const arena_source& source = {}) {
  return detail::exchange_maker(plan, from, into, pages, how, trailer, round_bytes, source).make();
}

}  // namespace reshard
