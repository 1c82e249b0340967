// SPDX-License-Identifier: Apache-2.0
// The devices of one process, a thread each, that exchange packed messages as processes would: one message per peer,
// direction and stage, peers in XOR order. A sender packs from its own list, a receiver unpacks by its own; a message
// is handed over when both are there, and whoever waits too long says for whom. For testing schedules;
// exec/thread_group.hpp is faster.
// Builds on: copy/copy_jobs.hpp, exec/mailbox.hpp, exec/transport.hpp, schedule/xor_order.hpp.
#pragma once

#include <memory>
#include <optional>

#include <reshard/copy/copy_jobs.hpp>
#include <reshard/exec/mailbox.hpp>
#include <reshard/exec/rendezvous.hpp>
#include <reshard/exec/transport.hpp>
#include <reshard/memory/pages.hpp>
#include <reshard/schedule/xor_order.hpp>

namespace reshard {

/// The devices of one process, a thread each, that exchange one packed message per peer, direction and stage.
class mailbox_group {
  struct exchange {
    rank_t peer;
    index_t step;
    index_t slot;  // its jobs, as a stage of the job lists
    bytes_t out_bytes = 0;
    bytes_t in_bytes = 0;
  };
  /// What a device does in a switch, and the memory of its messages.
  struct moves {
    const binding* into;
    std::vector<std::vector<exchange>> exchanges;  // per stage, in XOR order
    job_list pack, unpack;
    std::optional<page_range> out, in;

    void run(job_list& jobs, index_t slot) const {
      for (std::size_t i = jobs.begin(slot); i < jobs.end(slot); ++i) jobs.run(i, *into);
      jobs.keep_pages(slot);
    }
  };

 public:
  explicit mailbox_group(rank_t devices, patience wait = default_patience)
      : meeting_(devices, wait), boxes_(static_cast<std::size_t>(devices * (devices - 1) / 2)) {
    for (auto& box : boxes_) box = std::make_unique<mailbox>();
    meeting_.on_break([this] {
      for (auto& box : boxes_) box->wake();
    });
  }

  class endpoint {
   public:
    endpoint(mailbox_group& world, rank_t device) : world_(&world), device_(device) {}
    endpoint(const endpoint&) = delete;
    endpoint& operator=(const endpoint&) = delete;
    ~endpoint() { world_->meeting_.leave(device_); }

    rank_t device() const { return device_; }
    rank_t devices() const { return world_->devices(); }
    void offer(const binding& tensors) { from_ = &tensors; }
    std::int64_t all_reduce_max(std::int64_t value) { return world_->meeting_.all_reduce_max(device_, value); }
    void fail(const std::string& sentence) { world_->meeting_.leave_together(device_, sentence); }

    /// The longest message to a peer in a stage, and the longest from one.
    bytes_t staging_bytes(const staged_plan& plan, index_t k) const {
      return staged(lengths(plan.sends, k, &staged_piece::dst)) + staged(lengths(plan.receives, k, &staged_piece::src));
    }

    moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
      const index_t steps = xor_steps(devices());
      moves made{&into,
                 std::vector<std::vector<exchange>>(static_cast<std::size_t>(plan.stages)),
                 job_list(plan.stages * (steps + 1)),
                 job_list(plan.stages * (steps + 1)),
                 {},
                 {}};
      bytes_t longest_out = 0, longest_in = 0;
      for (index_t k = 0; k < plan.stages; ++k) {
        longest_out = greatest(longest_out, longest(lengths(plan.sends, k, &staged_piece::dst)));
        longest_in = greatest(longest_in, longest(lengths(plan.receives, k, &staged_piece::src)));
      }
      if (longest_out > 0) made.out.emplace(longest_out);
      if (longest_in > 0) made.in.emplace(longest_in);
      for (index_t k = 0; k < plan.stages; ++k) {
        for (const staged_piece& p : pieces_of_stage(plan.retains, k))
          retain(p, k * (steps + 1), made.unpack, into, pages);
        for (index_t step = 1; step <= steps; ++step) {
          const rank_t peer = xor_peer(device_, step, devices());
          if (peer < 0) continue;
          exchange e{peer, step, k * (steps + 1) + step};
          for (const staged_piece& p : pieces_of_stage(plan.sends, k))
            if (p.dst == peer)
              e.out_bytes += message_part(p, *from_, made.out->data() + e.out_bytes,
                                          [&](const bound_box& part, const bound_box& message) {
                                            made.pack.add(e.slot, message, part, nullptr);
                                          });
          for (const staged_piece& p : pieces_of_stage(plan.receives, k))
            if (p.src == peer)
              e.in_bytes += message_part(p, into, made.in->data() + e.in_bytes,
                                         [&](const bound_box& part, const bound_box& message) {
                                           made.unpack.add(e.slot, part, message, &pages);
                                         });
          if (e.out_bytes + e.in_bytes > 0) made.exchanges[static_cast<std::size_t>(k)].push_back(e);
        }
      }
      made.pack.seal();
      made.unpack.seal();
      return made;
    }

    /// The most that the kernel held for messages in the stage that was moved last; at most its staging_bytes.
    bytes_t staging_seen() const { return staging_seen_; }

    void move(moves& prepared, index_t k) {
      staging_seen_ = 0;
      std::optional<page_range>&out = prepared.out, &in = prepared.in;
      prepared.run(prepared.unpack, k * (xor_steps(devices()) + 1));  // what is retained
      for (const exchange& e : prepared.exchanges[static_cast<std::size_t>(k)]) {
        prepared.run(prepared.pack, e.slot);
        const memory sent{e.out_bytes > 0 ? out->data() : nullptr, e.out_bytes};
        const memory room{e.in_bytes > 0 ? in->data() : nullptr, e.in_bytes};
        meet(e, k, sent, room);
        prepared.run(prepared.unpack, e.slot);
        staging_seen_ = greatest(staging_seen_, (out ? out->resident_bytes() : 0) + (in ? in->resident_bytes() : 0));
        if (out) out->release(0, out->bytes());
        if (in) in->release(0, in->bytes());
      }
      world_->meeting_.all_reduce_max(device_, 0, k);
    }

   private:
    /// Hands a message over to the peer and takes one, in a stage.
    void meet(const exchange& e, index_t k, memory out, memory in) {
      const auto mine = device_ < e.peer ? mailbox::side::lower : mailbox::side::higher;
      bytes_t offered = 0;
      if (!world_->between(device_, e.peer).exchange(mine, out, in, world_->meeting_, offered)) {
        world_->meeting_.require_unbroken();
        throw peer_missing(detail::text_of("reshard: device ", device_, " waited ", world_->meeting_.waits().count(),
                                           " ms in vain for device ", e.peer, ", in stage ", k, ", step ", e.step,
                                           " of ", xor_steps(devices())));
      }
      if (offered != e.in_bytes)
        refuse("device ", device_, " expects ", e.in_bytes, " bytes from device ", e.peer, " in stage ", k,
               ", which sends ", offered);
    }

    /// Bytes per peer in one stage.
    std::vector<bytes_t> lengths(const std::vector<staged_piece>& pieces, index_t k, rank_t staged_piece::*peer) const {
      std::vector<bytes_t> bytes(static_cast<std::size_t>(devices()), 0);
      for (const staged_piece& p : pieces_of_stage(pieces, k)) bytes[static_cast<std::size_t>(p.*peer)] += p.bytes();
      return bytes;
    }
    static bytes_t longest(const std::vector<bytes_t>& bytes) { return *std::max_element(bytes.begin(), bytes.end()); }
    static bytes_t staged(const std::vector<bytes_t>& bytes) {
      return pages_touching(0, longest(bytes)).count() * page_bytes;
    }

    /// Calls sink(bound box, its place in the message) for a piece, state after state, each in row-major order; its
    /// bytes.
    template <typename Sink>
    bytes_t message_part(const staged_piece& p, const binding& tensors, std::byte* at, Sink&& sink) const {
      bytes_t bytes = 0;
      for (int state = 0; state < state_count; ++state) {
        if (!p.states.contains(state)) continue;
        const tensor_box what{state, p.tensor, p.where};
        const index_t columns = p.where.dim[2].size();
        const bound_box message{what, at + bytes, {columns * p.where.dim[1].size(), columns, 1}};
        tensors.meet(what, [&](const bound_box& part) { sink(part, message.narrowed(part.where)); });
        bytes += what.bytes();
      }
      return bytes;
    }

    void retain(const staged_piece& p, index_t slot, job_list& unpack, const binding& into, page_stages& pages) {
      for (int state = 0; state < state_count; ++state)
        if (p.states.contains(state))
          into.meet({state, p.tensor, p.where}, [&](const bound_box& target) {
            from_->meet(target, [&](const bound_box& source) {
              unpack.add(slot, target.narrowed(source.where), source, &pages);
            });
          });
    }

    mailbox_group* world_;
    rank_t device_;
    const binding* from_ = nullptr;
    bytes_t staging_seen_ = 0;
  };

  rank_t devices() const { return meeting_.devices(); }
  /// The end of one device, for the thread that is this device. Its destruction is that the device leaves.
  endpoint at(rank_t device) { return endpoint(*this, device); }

  /// A device that never came to be.
  void leave(rank_t device, const std::string& sentence) { meeting_.leave(device, sentence); }

  /// Calls body(endpoint) for every device, each on a thread of its own.
  template <typename Body>
  void run(Body&& body) {
    run_devices(*this, static_cast<Body&&>(body));
  }

 private:
  mailbox& between(rank_t a, rank_t b) {
    const rank_t low = a < b ? a : b, high = a < b ? b : a;
    return *boxes_[static_cast<std::size_t>(high * (high - 1) / 2 + low)];
  }

  rendezvous meeting_;
  std::vector<std::unique_ptr<mailbox>> boxes_;
};

}  // namespace reshard
