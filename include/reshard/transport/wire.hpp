// SPDX-License-Identifier: Apache-2.0
// What moves messages: post them, poll, see which are done, stop. Of the two things that a message transport has the
// one without planning, packing or memory of its own.
// Builds on: base/patience.hpp, copy/copy_table.hpp.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <reshard/base/patience.hpp>
#include <reshard/copy/copy_table.hpp>

namespace reshard {

struct message_arenas;

/// Bytes for one peer, or from one; both ends know how many. It stays where it is from its post until it is done.
struct message {
  rank_t peer = 0;
  index_t stage = 0;
  std::byte* data = nullptr;
  bytes_t bytes = 0;
  bool done = true;  // sent: its bytes are not read any more; received: they are all there
};

/// For one device's end w of a wire, which meets the k-th message sent to a peer with the k-th that the peer receives:
///   w.connect(peers)                     before the first message: begins a connection with each of these, with whom
///                                        there will be any; called by both ends; no waiting;
///   w.unconnected()                      const: with which of them there is none yet; poll goes on with those;
///   w.send(message), w.receive(message)  begins; no waiting. Marks it as not done;
///   w.poll(at_most)                      makes progress, and marks what is done by then. Where nothing can be done it
///                                        waits for something, or for word from others, so long at most;
///   w.stop()                             on return no message is read or written any more, done or not.
template <typename W>
concept Wire = requires(W& w, const W& asked, message& m, std::chrono::microseconds at_most,
                        const std::vector<rank_t>& peers) {
  { w.connect(peers) } -> std::same_as<void>;
  { asked.unconnected() } -> std::same_as<std::vector<rank_t>>;
  { w.send(m) } -> std::same_as<void>;
  { w.receive(m) } -> std::same_as<void>;
  { w.poll(at_most) } -> std::same_as<void>;
  { w.stop() } -> std::same_as<void>;
};

/// A wire that can't take back all that is on its way:
///   w.unfinished()                       const, after stop: whether messages are read or written nonetheless;
///   w.keep(arenas)                       owns the memory that they lie in from then on;
///   w.others_stopped()                   every device that lives has stopped, so that what is kept may go.
template <typename W>
concept ClosingWire = Wire<W> && requires(W& w, const W& asked, message_arenas&& arenas) {
  { asked.unfinished() } -> std::same_as<bool>;
  { w.keep(std::move(arenas)) } -> std::same_as<void>;
  { w.others_stopped() } -> std::same_as<void>;
};

/// A wire that takes memory for each peer: w.contact(to, from) is first contact with who will be sent to and received
/// from, called by all; what they take is there on return.
template <typename W>
concept ContactingWire = Wire<W> && requires(W& w, const std::vector<rank_t>& peers) {
  { w.contact(peers, peers) } -> std::same_as<void>;
};

/// Copies of an exchange that are made one after the other: of what goes and of what is retained, or of what has come.
enum class copies_of { outgoing, incoming };

/// Whether messages may lie in tensors instead of in an arena, where they are one run there: those that come and go, or
/// only those that go, or none.
enum class in_tensors { both_ways, outgoing, never };

/// What the arenas of a switch are made of: whole granules for all of them, by make(bytes, arenas), or pages of the
/// host where there is no make. What lies in a tensor instead of an arena begins at a multiple of `alignment`.
struct arena_source {
  bytes_t granule = page_bytes;
  in_tensors may_lie = in_tensors::both_ways;
  bytes_t alignment = 1;
  const detail::sink<bytes_t, std::shared_ptr<std::byte>&>* make = nullptr;
};

/// A closing wire between memories that the host can't read: it makes the copies too, and sends together what was begun
/// together.
///   w.copy(which, table)  begins these copies, after those of the same kind that were begun before; what is sent from
///                         then on is read after the outgoing ones;
///   w.copied(which)       whether all copies of a kind that were begun are made; no waiting;
///   w.post()              what was begun to be sent and received since the last post goes on its way;
///   w.idle()              const: whether nothing is on its way;
///   w.zero(box)           begins to write zeros, as one of the outgoing copies;
///   w.arenas()            const: what arenas are like;
///   w.make_arena(bytes)   makes one, which goes before the wire does.
template <typename W>
concept CopyingWire = ClosingWire<W> && requires(W& w, const W& asked, const copy_table& table, const bound_box& box) {
  { w.copy(copies_of::outgoing, table) } -> std::same_as<void>;
  { w.copied(copies_of::incoming) } -> std::same_as<bool>;
  { w.post() } -> std::same_as<void>;
  { asked.idle() } -> std::same_as<bool>;
  { w.zero(box) } -> std::same_as<void>;
  { asked.arenas() } -> std::same_as<arena_source>;
  { w.make_arena(bytes_t{}) } -> std::same_as<std::shared_ptr<std::byte>>;
};

}  // namespace reshard
