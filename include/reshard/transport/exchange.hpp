// SPDX-License-Identifier: Apache-2.0
// What every message transport does, once, over a meeting and a wire: one message per peer, direction and round,
// packed into an arena and unpacked from another; one that is a run of its tensors at an end lies there instead. A
// stage is one round, or several where a message would be too long. Asynchronously there are two arenas each way:
// while round r is on the wire, r - 1 is unpacked and r + 1 packed.
// Builds on: transport/meeting.hpp, transport/wire.hpp, transport/exchange/moves.hpp,
// transport/exchange/disagreement.hpp, transport/parting.hpp, transport/transport.hpp, memory/zero_box.hpp.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/zero_box.hpp>
#include <reshard/transport/exchange/disagreement.hpp>
#include <reshard/transport/exchange/moves.hpp>
#include <reshard/transport/meeting.hpp>
#include <reshard/transport/parting.hpp>
#include <reshard/transport/transport.hpp>
#include <reshard/transport/wire.hpp>

namespace reshard {

/// One device's end of a message transport, over a meeting and a wire that outlive it.
template <Meeting M, Wire W>
class exchange {
  static constexpr bool wire_copies = CopyingWire<W>;

 public:
  /// `round_bytes`: what a message holds at most, a multiple of 512 that is the same on all devices; where a stage has
  /// more for a peer it takes several rounds. Naively a message is a piece, of any length.
  exchange(M& meeting, W& wire, exchange_as how, bytes_t round_bytes = usual_round_bytes)
      : meeting_(&meeting), wire_(&wire), how_(how), round_bytes_(round_bytes), confirmed_(meeting.confirmed()),
        said_(confirmed_) {
    if (round_bytes < least_round_bytes || round_bytes % message_granule != 0)
      refuse("rounds of ", round_bytes, " bytes a message; they must be a multiple of ", message_granule,
             " and at least ", least_round_bytes);
  }
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;

  rank_t device() const { return meeting_->device(); }
  rank_t devices() const { return meeting_->devices(); }
  transport_facts facts() const {
    return {.lag = lag(), .absent = meeting_->absent(), .checks_messages = !wire_copies};
  }
  bool reaches(memory_place place) const { return place.is != memory_place::kind::device; }
  /// It is where it says.
  void locate(binding&) const {}
  void offer(const binding& tensors) { from_ = &tensors; }
  std::int64_t all_reduce_max(std::int64_t n) { return meeting_->agree({n}).largest_for(device()); }
  agreement agree(const proposal& mine) { return meeting_->agree(mine); }
  std::vector<std::string> gather(const std::string& mine) { return meeting_->gather(mine); }
  /// Says that this device lives, and hears what there is to hear: for who works long between two agreements.
  void keep_alive() { wire_->poll(std::chrono::microseconds(0)); }
  /// Whether messages of what is prepared from now on are checked before they are unpacked.
  void check_messages(bool on) { trailer_ = on ? trailer_bytes : 0; }
  void fail(const std::string& sentence) {
    meeting_->give_up(sentence);
    wire_->stop();
    if constexpr (ClosingWire<W>)
      if (moved_ != nullptr && wire_->unfinished()) wire_->keep(std::move(std::exchange(moved_, nullptr)->arenas));
    meeting_->fail(sentence);
  }

  /// What this device and those who are left know of a switch in so many slots that broke off, `moved` where it came
  /// to its first slot. The world is over.
  parting part(index_t slots, bool moved) requires SurvivingMeeting<M> {
    const index_t before = moved ? before_ : confirmed_;
    parting all = meeting_->part(moved && said_ == before + slots);
    all.in_place = greatest(0, all.in_place - before);
    if constexpr (ClosingWire<W>) wire_->others_stopped();
    return all;
  }

  /// The device that decides what is in place everywhere.
  rank_t decides() const requires SurvivingMeeting<M> { return meeting_->hub(); }

  /// The arenas of both directions, the same in every slot. What comes in a stage of several rounds is unpacked from
  /// its own slot on, and its pages are all taken in that; what comes in another, a lag later.
  reshard::footprint footprint(const staged_plan& plan) const {
    const arena_sizes sizes = sizes_of(plan);
    reshard::footprint all = even_footprint(plan.times(), sizes.total());
    for (index_t k = 0; k < plan.times().sending(); ++k)
      all.written_in[static_cast<std::size_t>(k)] = sizes.several_rounds(k) ? k : k + lag();
    return all;
  }
  /// What the kernel holds for them, of the moves that were moved last and are still there.
  bytes_t staging_seen() const { return moved_ == nullptr ? 0 : moved_->arenas.resident_bytes(); }

  /// Called by all, before the number of stages is agreed on: to whom there will be messages, and from whom. What the
  /// wire takes for them is there on return.
  void contact([[maybe_unused]] const std::vector<rank_t>& to, [[maybe_unused]] const std::vector<rank_t>& from) {
    if constexpr (ContactingWire<W>) wire_->contact(to, from);
  }

  exchange_moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
    if constexpr (wire_copies) {
      const auto make = detail::sink<bytes_t, std::shared_ptr<std::byte>&>::of(
          [this](bytes_t bytes, std::shared_ptr<std::byte>& arena) { arena = wire_->make_arena(bytes); });
      arena_source source = wire_->arenas();
      source.make = &make;
      return prepare_exchange(plan, *from_, into, pages, how_, trailer_, round_bytes_, source);
    } else {
      return prepare_exchange(plan, *from_, into, pages, how_, trailer_, round_bytes_);
    }
  }

  /// What a device and another differ in that they will exchange, for all devices the same sentence; empty where they
  /// agree. Called by all.
  std::string disagreement(const exchange_moves& m) { return disagreement_of(*meeting_, m.digests); }
  /// Begins connections with these devices, as they do with this one, without waiting for them: a world's wire is made
  /// while its devices do something else. keep_alive() goes on with it.
  void begin_connections(const std::vector<rank_t>& peers) {
    const std::vector<rank_t> absent = meeting_->absent();
    for (const rank_t peer : peers) {
      if (peer < 0 || peer >= devices()) refuse("there is no device ", peer, " among ", devices(), " to connect with");
      if (peer == device()) refuse("device ", peer, " needs no connection with itself");
      if (std::find(absent.begin(), absent.end(), peer) != absent.end())
        refuse("device ", peer, " is gone; nobody can connect with it");
    }
    wire_->connect(peers);
  }
  /// The devices with which a connection is begun, and none is there yet.
  std::vector<rank_t> unconnected() const { return wire_->unconnected(); }
  /// Returns once there are connections with these devices; peer_missing names with whom there are none when the
  /// patience ends.
  void connect_with(const std::vector<rank_t>& peers) {
    begin_connections(peers);
    const auto missing = [&] {
      std::vector<rank_t> those = wire_->unconnected();
      std::erase_if(those, [&](rank_t d) { return std::find(peers.begin(), peers.end(), d) == peers.end(); });
      return those;
    };
    until([&] { return missing().empty(); }, [] { return index_t{0}; }, missing,
          [](const std::string& whom) {
            return detail::text_of(" ms in vain for connections with these devices: ", whom);
          });
  }
  /// Messages can go to the peers of these moves, and come from them.
  void connect(const exchange_moves& m) { connect_with(m.peers()); }

  void move(exchange_moves& m, index_t slot) {
    if (slot == 0) before_ = std::exchange(confirmed_, confirmed_ + m.slots), finished_ = 0;
    moved_ = &m;
    const index_t lag = this->lag();
    if (slot < m.slots) {
      const std::size_t first = m.first_round(slot), past = m.first_round(slot + 1);
      for (std::size_t round = first; round < past; ++round) {
        start(m, round);
        if constexpr (!wire_copies)
          retain(m, slot,
                 even_part({0, m.retained_jobs(slot)}, static_cast<index_t>(round - first),
                           static_cast<index_t>(past - first)));
        finish_before(m, lag == 0 ? round + 1 : round);
        if (lag == 0) wait_sent(m, m.rounds[round]);
      }
      if (first == past) {
        if constexpr (wire_copies) retain_together(m, slot);
        else retain(m, slot, {0, m.retained_jobs(slot)});
      }
      m.retain.keep_pages(slot);
      if (m.several[static_cast<std::size_t>(slot)] != 0) take_pages(m, past);
    }
    if constexpr (wire_copies) {
      wait_copied(copies_of::outgoing, slot);
      wait_copied(copies_of::incoming, slot);
    }
    if (slot >= lag) {
      finish_before(m, m.first_round(slot - lag + 1));
      meeting_->confirm(said_ = before_ + slot - lag + 1);
    }
    if (slot == m.slots - 1 + lag)
      for (std::size_t round = m.rounds.size() - std::min(m.rounds.size(), arenas()); round < m.rounds.size(); ++round)
        wait_sent(m, m.rounds[round]);
    if (lag == 0) await(slot);
  }

  /// Returns once no message is on its way that this device has posted: what waits for its memory to be idle waits for
  /// no other device then, which might be gone.
  void settle() {
    if constexpr (wire_copies) {
      if (moved_ == nullptr) return;
      until([&] { return wire_->idle(); }, [] { return index_t{0}; }, [&] { return missing(moved_->out, moved_->in); },
            [&](const std::string& whom) { return detail::text_of(" ms in vain for these devices: ", whom); });
    }
  }
  /// Writes zeros, by the end of the next slot that is moved.
  void fill_with_zeros(const bound_box& b) {
    if constexpr (wire_copies) wire_->zero(b);
    else reshard::fill_with_zeros(b);
  }

  /// Returns once every device has all of stage k in place.
  void await(index_t k) {
    const index_t count = before_ + k + 1;
    until([&] { return meeting_->in_place(count); }, [] { return index_t{0}; }, [&] { return meeting_->behind(count); },
          [&](const std::string& whom) {
            return detail::text_of(" ms in vain for these devices: ", whom, " at the end of stage ", k);
          });
  }

 private:
  index_t lag() const { return lag_of_exchange(how_); }
  arena_sizes sizes_of(const staged_plan& plan) const {
    if constexpr (wire_copies) return arena_sizes(plan, how_, trailer_, round_bytes_, wire_->arenas().granule);
    else return arena_sizes(plan, how_, trailer_, round_bytes_);
  }
  /// How many arenas each direction has: 1 + lag.
  std::size_t arenas() const { return static_cast<std::size_t>(1 + lag()); }

  /// Begins to pack a round, and with the first of a stage to copy what that retains.
  void begin_packing(exchange_moves& m, std::size_t round) {
    const exchange_round& r = m.rounds[round];
    table_.clear();
    for (std::size_t i = r.out_begin; i < r.out_end; ++i) table_.add(m.pack, static_cast<index_t>(i));
    if (round == m.first_round(r.stage)) add_retained(m, r.stage);
    wire_->copy(copies_of::outgoing, table_);
  }
  void add_retained(exchange_moves& m, index_t stage) {
    m.retain.take_pages(stage, *m.into);
    table_.add(m.retain, stage);
  }
  /// Where a stage has no message.
  void retain_together(exchange_moves& m, index_t stage) {
    table_.clear();
    add_retained(m, stage);
    wire_->copy(copies_of::outgoing, table_);
  }
  /// Unpacks a round that has come.
  void unpack_together(exchange_moves& m, const exchange_round& r) {
    table_.clear();
    for (std::size_t i = r.in_begin; i < r.in_end; ++i) {
      m.unpack.take_pages(static_cast<index_t>(i), *m.into);
      table_.add(m.unpack, static_cast<index_t>(i));
      m.unpacked[i] = 1;
    }
    wire_->copy(copies_of::incoming, table_);
    wait_copied(copies_of::incoming, r.stage);
  }
  void wait_copied(copies_of which, index_t k) {
    until([&] { return wire_->copied(which); }, [] { return index_t{0}; }, [] { return std::vector<rank_t>{}; },
          [&](const std::string&) { return detail::text_of(" ms in vain for its own copies, in stage ", k); });
  }

  /// Runs the jobs of one entry of a list; the wire moves between them.
  void run(const exchange_moves& m, const job_list& jobs, index_t entry, copy_path path = copy_path::streaming) {
    run_jobs(m, jobs, jobs.begin(entry), jobs.end(entry), path);
  }
  void run_jobs(const exchange_moves& m, const job_list& jobs, std::size_t first, std::size_t past,
                copy_path path = copy_path::streaming) {
    for (std::size_t i = first; i < past; ++i) {
      jobs.run(i, *m.into, path);
      wire_->poll(std::chrono::microseconds(0));
    }
  }
  /// Some of the copies of what a stage retains, while messages are on their way.
  void retain(exchange_moves& m, index_t stage, interval jobs) {
    const std::size_t first = m.retain.begin(stage);
    run_jobs(m, m.retain, first + static_cast<std::size_t>(jobs.begin), first + static_cast<std::size_t>(jobs.end));
  }

  /// Posts what comes, packs what goes, and posts that. What came into the same arena has been unpacked, and what went
  /// from it, or from the tensors meanwhile, is sent: so by the end of slot k + 2L no source of stage k is read.
  void start(exchange_moves& m, std::size_t round) {
    if (round >= arenas()) wait_sent(m, m.rounds[round - arenas()]);
    const exchange_round& r = m.rounds[round];
    for (std::size_t i = r.in_begin; i < r.in_end; ++i) {
      if (m.placed[i] != 0) m.unpack.take_pages(static_cast<index_t>(i), *m.into);
      wire_->receive(m.in[i]);
    }
    if constexpr (wire_copies) begin_packing(m, round);
    for (std::size_t i = r.out_begin; i < r.out_end; ++i) {
      if constexpr (!wire_copies) run(m, m.pack, static_cast<index_t>(i), copy_path::cached);
      if (m.trailer > 0) seal_message(m.out[i], whose(m.whose_out[i], m.out[i]));
      wire_->send(m.out[i]);
    }
    if constexpr (wire_copies) wire_->post();
  }

  /// Finishes the rounds before one, in order.
  void finish_before(exchange_moves& m, std::size_t round) {
    while (finished_ < round) finish(m, m.rounds[finished_++]);
  }
  /// Commits what the rounds before one write that are not finished yet.
  void take_pages(exchange_moves& m, std::size_t round) {
    for (std::size_t r = finished_; r < round; ++r)
      for (std::size_t i = m.rounds[r].in_begin; i < m.rounds[r].in_end; ++i)
        m.unpack.take_pages(static_cast<index_t>(i), *m.into);
  }
  /// Unpacks what comes, as it comes.
  void finish(exchange_moves& m, const exchange_round& r) {
    std::size_t left = r.in_end - r.in_begin;
    for (std::size_t i = r.in_begin; i < r.in_end; ++i) m.unpacked[i] = 0;
    const auto unpack = [&] {
      for (std::size_t i = r.in_begin; i < r.in_end; ++i) {
        if (!m.in[i].done || m.unpacked[i] != 0) continue;
        m.unpacked[i] = 1;
        --left;
        require_right(m, i);
        run(m, m.unpack, static_cast<index_t>(i));
        m.unpack.keep_pages(static_cast<index_t>(i));
      }
      return left == 0;
    };
    if constexpr (wire_copies) {
      wait_done(m.in, r.in_begin, r.in_end, r.stage);
      unpack_together(m, r);
    } else {
      until_done(m.in, r.in_begin, r.in_end, r.stage, unpack);
    }
  }
  /// A message's own number: a digest of what its two ends know, and in which run and stage it is sent.
  std::uint64_t whose(std::uint64_t in_its_switch, const message& m) const {
    digest of;
    of.add(static_cast<std::int64_t>(in_its_switch)), of.add(before_), of.add(m.stage);
    return of.value();
  }
  void require_right(const exchange_moves& m, std::size_t i) const {
    if (m.trailer == 0) return;
    const message& came = m.in[i];
    const message_is found = check_message(came, whose(m.whose_in[i], came));
    if (found == message_is::right) return;
    refuse("device ", device(), " refuses what came from device ", came.peer, " in stage ", came.stage, ": ",
           found == message_is::changed ? "its bytes are not those that were packed"
                                        : "it is another message, or the same one twice");
  }
  void wait_sent(exchange_moves& m, const exchange_round& r) { wait_done(m.out, r.out_begin, r.out_end, r.stage); }
  void wait_done(const std::vector<message>& list, std::size_t first, std::size_t past, index_t stage) {
    until_done(list, first, past, stage, [&] {
      return std::all_of(list.begin() + static_cast<std::ptrdiff_t>(first),
                         list.begin() + static_cast<std::ptrdiff_t>(past), [](const message& o) { return o.done; });
    });
  }
  /// The peers of messages that are not done.
  template <typename... Lists>
  static std::vector<rank_t> missing(const Lists&... lists) {
    std::vector<rank_t> peers;
    const auto add = [&](const std::vector<message>& list) {
      for (const message& m : list)
        if (!m.done && std::find(peers.begin(), peers.end(), m.peer) == peers.end()) peers.push_back(m.peer);
    };
    (add(lists), ...);
    return peers;
  }

  template <typename What>
  void until_done(const std::vector<message>& list, std::size_t first, std::size_t past, index_t stage, What&& what) {
    const auto missing = [&] {
      std::vector<rank_t> peers;
      for (std::size_t i = first; i < past; ++i)
        if (!list[i].done) peers.push_back(list[i].peer);
      return peers;
    };
    const auto done = [&] {
      index_t count = 0;
      for (std::size_t i = first; i < past; ++i) count += list[i].done ? 1 : 0;
      return count;
    };
    until(what, done, missing, [&](const std::string& whom) {
      return detail::text_of(" ms in vain for ", whom.find(',') == whom.npos ? "device " : "these devices: ", whom,
                             ", in stage ", stage);
    });
  }

  /// Polls until what(); gives up where for a whole patience progress() did not change.
  template <typename What, typename Progress, typename Missing, typename Sentence>
  void until(What&& what, Progress&& progress, Missing&& missing, Sentence&& sentence) {
    vain_wait waited(meeting_->waits());
    index_t last = progress();
    while (!what()) {
      meeting_->require_whole();
      wire_->poll(std::chrono::milliseconds(2));
      if (const index_t reached = progress(); reached != last) last = reached, waited.progressed();
      if (!waited.over()) continue;
      std::string whom;
      for (const rank_t peer : missing()) whom += detail::text_of(whom.empty() ? "" : ", ", peer);
      const std::string why =
          detail::text_of("reshard: device ", device(), " waited ", meeting_->waits().count(), sentence(whom));
      meeting_->give_up(why);
      throw peer_missing(why);
    }
  }

  M* meeting_;
  W* wire_;
  exchange_as how_;
  bytes_t round_bytes_;
  const binding* from_ = nullptr;
  exchange_moves* moved_ = nullptr;
  index_t before_ = 0, confirmed_;  // slots of earlier runs, whoever made them over this meeting; with this one's
  index_t said_;                    // confirmed to others, so counted
  std::size_t finished_ = 0;        // rounds of this run
  bytes_t trailer_ = 0;
  copy_table table_;  // of a wire that copies
};

}  // namespace reshard
