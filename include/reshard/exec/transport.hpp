// SPDX-License-Identifier: Apache-2.0
// What a back end is to a switch: one device's end of a transport, which agrees with the others on a number, prepares
// all that it will do before anything is touched, and moves one stage at a time. Planning, stages, refusals and memory
// are not its work.
// Builds on: schedule/staged_plan.hpp, memory/page_stages.hpp, exec/meeting.hpp.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <reshard/exec/meeting.hpp>
#include <reshard/memory/page_stages.hpp>
#include <reshard/schedule/staged_plan.hpp>

namespace reshard {

/// What prepare returns.
template <typename T>
using moves_of = decltype(std::declval<T&>().prepare(std::declval<const staged_plan&>(), std::declval<const binding&>(),
                                                     std::declval<page_stages&>()));

/// For one device's end t of a transport:
///   t.device(), t.devices()      which device of how many;
///   t.offer(binding)             what this device holds now, sealed; no waiting;
///   t.all_reduce_max(n)          the largest n of all devices; nobody returns before all have called. Throws
///                                peer_failed where a device failed, left, does not come or does something else;
///   t.staging_bytes(plan, slot)  memory that it takes in a slot beside the state;
///   t.prepare(plan, into, pages) after an `all_reduce_max` that followed `offer`: everything that can fail. `into` is
///                                what this device shall hold, `pages` its granules by the slot of their first writer,
///                                to be claimed by copies. What it returns is movable, and is what move is given;
///   t.move(moves, slot)          called for all slots in turn (schedule/slot_times.hpp), the last L of which send
///                                nothing, L being its lag; and from 0 again, after an `all_reduce_max`, for another
///                                run. On return what this device sends and retains in `slot` has been read (what it
///                                sends, by the end of slot + 2L), what it retains is in place, and so is what was sent
///                                to it in slot - L; where L = 0, on all devices;
///   t.fail(sentence)             this device cannot go on: no device waits for it, and it returns once none reads its
///                                memory.
/// And where it has them:
///   t.lag()                      L; 0 otherwise;
///   t.await(k)                   for L > 0: returns once every device has in place all that is sent in slot k;
///   t.written_in(k)              after staging_bytes for slot 0: in which slot what is sent in slot k is written
///                                first, from k on; otherwise k + L;
///   t.fixed_bytes()              F, what it holds whatever the stages; 0 otherwise;
///   t.agree(proposal)            what all devices propose (exec/meeting.hpp); otherwise all_reduce_max does, and who
///                                did not refuse hears only that another did;
///   t.gather(text)               every device's text, in their order: what small state goes over, and how long what
///                                nobody reads stays; where it is missing that goes first;
///   t.keep_alive()               this device lives, though it works long between two agreements;
///   t.disagreement(moves)        after prepare, called by all: empty where every two devices will exchange the same,
///                                else a sentence that is the same on all;
///   t.absent()                   devices that take no part, being gone; none otherwise;
///   t.check_messages(on)         before staging_bytes: whether messages are checked before they are unpacked. A
///                                transport without messages has nothing to check;
///   t.locate(binding)            after it was sealed: finds out where its memory is; otherwise it is as it says;
///   t.contact(to, from)          called by all, before the number of stages is agreed on: the devices that this one
///                                will send to and receive from; what that takes is in fixed_bytes from then on;
///   t.settle()                   called before memory comes or goes: returns once nothing is under way that a driver
///                                might wait for and another device could hold up;
///   t.fill_with_zeros(box)       in place by the end of slot 0; otherwise the host writes them;
///   t.reaches(place)             whether it moves to and from memory there; otherwise all of a host's, and no other.
template <typename T>
concept Transport = requires(T& t, const binding& tensors, const staged_plan& plan, page_stages& pages, index_t k,
                             const std::string& sentence) {
  { t.device() } -> std::same_as<rank_t>;
  { t.devices() } -> std::same_as<rank_t>;
  t.offer(tensors);
  { t.all_reduce_max(std::int64_t{}) } -> std::same_as<std::int64_t>;
  { t.staging_bytes(plan, k) } -> std::same_as<bytes_t>;
  { t.prepare(plan, tensors, pages) } -> std::movable;
  t.move(std::declval<moves_of<T>&>(), k);
  t.fail(sentence);
};

/// L: in how many slots after its own what is sent in a stage is in place.
template <Transport T>
index_t lag_of(const T& transport) {
  if constexpr (requires {
                  { transport.lag() } -> std::same_as<index_t>;
                })
    return transport.lag();
  else return 0;
}
/// The slot in which what is sent in slot k is written first.
template <Transport T>
index_t slot_that_writes(const T& transport, index_t k) {
  if constexpr (requires {
                  { transport.written_in(k) } -> std::same_as<index_t>;
                })
    return transport.written_in(k);
  else return k + lag_of(transport);
}
/// What all devices propose; without a sentence where the transport knows only numbers.
template <Transport T>
agreement agree_over(T& transport, const proposal& mine) {
  if constexpr (requires {
                  { transport.agree(mine) } -> std::same_as<agreement>;
                })
    return transport.agree(mine);
  else return {.largest = transport.all_reduce_max(mine.number)};
}
/// Where two devices will not exchange the same: a sentence, on all devices.
template <Transport T>
std::string disagreement_over(T& transport, moves_of<T>& moves) {
  if constexpr (requires {
                  { transport.disagreement(moves) } -> std::same_as<std::string>;
                })
    return transport.disagreement(moves);
  else return {};
}
/// F: what a transport holds whatever the stages.
template <Transport T>
bytes_t fixed_bytes_of(const T& transport) {
  if constexpr (requires {
                  { transport.fixed_bytes() } -> std::same_as<bytes_t>;
                })
    return transport.fixed_bytes();
  else return 0;
}
/// Whether messages are checked, where a transport has any.
template <Transport T>
void check_messages_over(T& transport, bool on) {
  if constexpr (requires { transport.check_messages(on); }) transport.check_messages(on);
}
/// Returns once every device has in place all that is sent in slot k.
template <Transport T>
void await_stage(T& transport, index_t k) {
  if constexpr (requires { transport.await(k); }) transport.await(k);
}
/// Returns once memory may come or go.
template <Transport T>
void settle_over(T& transport) {
  if constexpr (requires { transport.settle(); }) transport.settle();
}
/// Devices that take no part.
template <Transport T>
std::vector<rank_t> absent_from(const T& transport) {
  if constexpr (requires {
                  { transport.absent() } -> std::same_as<std::vector<rank_t>>;
                })
    return transport.absent();
  else return {};
}
/// Whether a transport moves to and from such memory: what t.reaches(place) says, and all of a host's where it says
/// nothing.
template <Transport T>
bool reaches(const T& transport, memory_place place) {
  if constexpr (requires {
                  { transport.reaches(place) } -> std::same_as<bool>;
                })
    return transport.reaches(place);
  else return place.is != memory_place::kind::device;
}

}  // namespace reshard
