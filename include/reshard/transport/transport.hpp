// SPDX-License-Identifier: Apache-2.0
// What a back end is to a switch: one device's end of a transport, which agrees with the others on a number, prepares
// all that it will do before anything is touched, and moves one stage at a time. Planning, stages, refusals and memory
// are not its work. What it has nothing to do for it says in one line: every call is required.
// Builds on: schedule/staged_plan.hpp, memory/page_stages.hpp, memory/pages.hpp, transport/agreeing_transport.hpp.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/page_stages.hpp>
#include <reshard/memory/pages.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/transport/agreeing_transport.hpp>

namespace reshard {

/// What prepare returns.
template <typename T>
using moves_of = decltype(std::declval<T&>().prepare(std::declval<const staged_plan&>(), std::declval<const binding&>(),
                                                     std::declval<page_stages&>()));

/// For one device's end t of a transport, what it has to do with memory:
///   t.reaches(place)         const: whether it moves to and from memory there;
///   t.locate(binding)        after it was sealed: finds out where its memory is, unless that is as it says;
///   t.offer(binding)         what this device holds now, sealed; no waiting;
///   t.settle()               before memory comes or goes: returns once nothing is under way that a driver might wait
///                            for and another device could hold up;
///   t.fill_with_zeros(box)   zeros are in place by the end of slot 0.
template <typename T>
concept ReachingTransport = requires(T& t, const T& asked, binding& located, const binding& tensors,
                                     const bound_box& box, memory_place place) {
  { asked.reaches(place) } -> std::same_as<bool>;
  { t.locate(located) } -> std::same_as<void>;
  { t.offer(tensors) } -> std::same_as<void>;
  { t.settle() } -> std::same_as<void>;
  { t.fill_with_zeros(box) } -> std::same_as<void>;
};

/// For one device's end t of a transport, how it moves; in the order in which it is called:
///   t.check_messages(on)     whether messages are checked before they are unpacked, of what is prepared from then on;
///   t.contact(to, from)      called by all, before the number of stages is agreed on: the devices that this one will
///                            send to and receive from; what that takes is in fixed_bytes from then on;
///   t.footprint(plan)        const: what it takes for that plan, as footprint;
///   t.prepare(plan, into, pages)  after an agreement that followed `offer`: everything that can fail. `into` is what
///                            this device shall hold, `pages` its granules by the slot of their first writer, to be
///                            claimed by copies. What it returns is movable, and is what move is given;
///   t.disagreement(moves)    called by all: empty where every two devices will exchange the same, else a sentence that
///                            is the same on all. It compares and does nothing else;
///   t.connect(moves)         called by all once there is no disagreement: who will exchange something can then;
///   t.move(moves, slot)      called for all slots in turn (schedule/slot_times.hpp), the last L of which send nothing,
///                            L being its lag; and from 0 again, after an agreement, for another run. On return what
///                            this device sends and retains in `slot` has been read (what it sends, by the end of
///                            slot + 2L), what it retains is in place, and so is what was sent to it in slot - L;
///                            where L = 0, on all devices;
///   t.await(k)               returns once every device has in place all that is sent in slot k.
template <typename T>
concept MovingTransport = requires(T& t, const T& asked, const binding& tensors, const staged_plan& plan,
                                   page_stages& pages, const std::vector<rank_t>& peers, index_t k, bool on) {
  { t.check_messages(on) } -> std::same_as<void>;
  { t.contact(peers, peers) } -> std::same_as<void>;
  { asked.footprint(plan) } -> std::same_as<footprint>;
  { t.prepare(plan, tensors, pages) } -> std::movable;
  { t.disagreement(std::declval<moves_of<T>&>()) } -> std::same_as<std::string>;
  { t.connect(std::declval<moves_of<T>&>()) } -> std::same_as<void>;
  { t.move(std::declval<moves_of<T>&>(), k) } -> std::same_as<void>;
  { t.await(k) } -> std::same_as<void>;
};

/// One device's end of a transport: it agrees with the others, reaches memory, and moves.
template <typename T>
concept Transport = AgreeingTransport<T> && ReachingTransport<T> && MovingTransport<T>;

/// Moves that messages may read or write after a switch was given up: m.keep(pages) gives them memory that is not to go
/// before they do.
template <typename M>
concept KeepingMoves = requires(M& m, page_range&& pages) {
  { m.keep(std::move(pages)) } -> std::same_as<void>;
};

}  // namespace reshard
