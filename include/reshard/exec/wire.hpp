// SPDX-License-Identifier: Apache-2.0
// What moves messages: post them, poll, see which are done, stop. Of the two things that a message transport has the
// one without planning, packing or memory of its own.
// Builds on: exec/patience.hpp, base/integer.hpp.
#pragma once

#include <cstddef>

#include <reshard/base/integer.hpp>
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

}  // namespace reshard
