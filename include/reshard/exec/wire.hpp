// SPDX-License-Identifier: Apache-2.0
// What moves messages: post them, poll, see which are done, stop. Of the two things that a message transport has the
// one without planning, packing or memory of its own.
// Builds on: exec/patience.hpp, copy/copy_table.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>

#include <reshard/copy/copy_table.hpp>
#include <reshard/exec/patience.hpp>

namespace reshard {

/// Bytes for one peer, or from one; both ends know how many. It stays where it is from its post until it is done.
struct message {
  rank_t peer = 0;
  index_t stage = 0;
  std::byte* data = nullptr;
  bytes_t bytes = 0;
  bool done = true;  // sent: its bytes are not read any more; received: they are all there
};

/// For one device's end w of a wire, which meets the k-th message sent to a peer with the k-th that the peer receives:
///   w.send(message), w.receive(message)  begins; no waiting. Marks it as not done;
///   w.poll(at_most)                      makes progress, and marks what is done by then. Where nothing can be done it
///                                        waits for something, or for word from others, so long at most;
///   w.stop()                             on return no message is read or written any more, done or not.
/// And where it has them:
///   w.connect(peers)                     before the first message: with whom there will be any; called by both ends;
///   w.unfinished()                       after stop: whether messages are read or written nonetheless;
///   w.keep(memory)                       owns the memory that they lie in from then on.
template <typename W>
concept Wire = requires(W& w, message& m, std::chrono::microseconds at_most) {
  w.send(m);
  w.receive(m);
  w.poll(at_most);
  w.stop();
};

/// Copies of an exchange that are made one after the other: of what goes and of what is retained, or of what has come.
enum class copies_of { outgoing, incoming };

/// Whether messages may lie in tensors instead of in an arena, where they are one run there: those that come and go, or
/// only those that go, or none.
enum class in_tensors { both_ways, outgoing, never };

/// Of what the arenas of a switch are made: whole granules for all of them, by make(bytes, arenas), or pages of the
/// host where there is no make. What lies in a tensor instead of an arena begins at a multiple of `alignment`.
struct arena_source {
  bytes_t granule = page_bytes;
  in_tensors may_lie = in_tensors::both_ways;
  bytes_t alignment = 1;
  const detail::sink<bytes_t, std::shared_ptr<std::byte>&>* make = nullptr;
};

/// A wire between memories that the host can't read: it makes the copies too, and sends together what was begun
/// together.
///   w.copy(which, table)  begins these copies, after those of the same kind that were begun before; what is sent from
///                         then on is read after the outgoing ones;
///   w.copied(which)       whether all copies of a kind that were begun are made; no waiting;
///   w.post()              what was begun to be sent and received since the last post goes on its way;
///   w.idle()              whether nothing is on its way;
///   w.zero(box)           begins to write zeros, as one of the outgoing copies;
///   w.arenas()            what arenas are like; w.make_arena(bytes) makes one, which goes before the wire does.
/// And stop() and keep(arenas) as of a wire that is unfinished after it.
template <typename W>
concept CopyingWire = Wire<W> && requires(W& w, const copy_table& table, const bound_box& box) {
  w.copy(copies_of::outgoing, table);
  { w.copied(copies_of::incoming) } -> std::same_as<bool>;
  w.post();
  { w.idle() } -> std::same_as<bool>;
  w.zero(box);
  { w.arenas() } -> std::same_as<arena_source>;
  { w.make_arena(bytes_t{}) } -> std::same_as<std::shared_ptr<std::byte>>;
};

}  // namespace reshard
