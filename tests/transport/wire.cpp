// SPDX-License-Identifier: Apache-2.0
// Wires by the least that models them: each kind asks for what the one before it has and for its own calls; types that
// lack one call each, or answer it otherwise, are none.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <type_traits>
#include <vector>

#include <reshard/transport/wire.hpp>

#include <reshard/transport/threads/mailbox.hpp>

using namespace reshard;

namespace {

using wire_peers = std::vector<rank_t>;

struct least_wire {
  void connect(const wire_peers&);
  wire_peers unconnected() const;
  void send(message&);
  void receive(message&);
  void poll(std::chrono::microseconds);
  void stop();
};
struct least_closing : least_wire {
  bool unfinished() const;
  void keep(message_arenas&&);
  void others_stopped();
};
struct least_contacting : least_wire {
  void contact(const wire_peers& to, const wire_peers& from);
};
struct least_copying : least_closing {
  void copy(copies_of, const copy_table&);
  bool copied(copies_of);
  void post();
  bool idle() const;
  void zero(const bound_box&);
  arena_source arenas() const;
  std::shared_ptr<std::byte> make_arena(bytes_t);
};
static_assert(Wire<least_wire> && !ClosingWire<least_wire> && !ContactingWire<least_wire> && !CopyingWire<least_wire>);
static_assert(Wire<least_closing> && ClosingWire<least_closing> && !CopyingWire<least_closing>);
static_assert(ContactingWire<least_contacting> && !ClosingWire<least_contacting>);
static_assert(Wire<least_copying> && ClosingWire<least_copying> && CopyingWire<least_copying>);
static_assert(!Wire<int> && !Wire<const least_wire>);
static_assert(Wire<mailbox_wire> && !ClosingWire<mailbox_wire> && !CopyingWire<mailbox_wire>);

// Without one of its calls it is none of its kind, nor of those that ask for more.
#define WIRE_WITHOUT(concept, base, call) \
  struct base##_without_##call : base {   \
    template <typename... Any>            \
    void call(Any&&...) const = delete;   \
  };                                      \
  static_assert(!concept<base##_without_##call>)
WIRE_WITHOUT(Wire, least_wire, connect);
WIRE_WITHOUT(Wire, least_wire, unconnected);
WIRE_WITHOUT(Wire, least_wire, send);
WIRE_WITHOUT(Wire, least_wire, receive);
WIRE_WITHOUT(Wire, least_wire, poll);
WIRE_WITHOUT(Wire, least_wire, stop);
WIRE_WITHOUT(ClosingWire, least_closing, stop);
WIRE_WITHOUT(ClosingWire, least_closing, unfinished);
WIRE_WITHOUT(ClosingWire, least_closing, keep);
WIRE_WITHOUT(ClosingWire, least_closing, others_stopped);
WIRE_WITHOUT(ContactingWire, least_contacting, contact);
WIRE_WITHOUT(ContactingWire, least_contacting, poll);
WIRE_WITHOUT(CopyingWire, least_copying, copy);
WIRE_WITHOUT(CopyingWire, least_copying, copied);
WIRE_WITHOUT(CopyingWire, least_copying, post);
WIRE_WITHOUT(CopyingWire, least_copying, idle);
WIRE_WITHOUT(CopyingWire, least_copying, zero);
WIRE_WITHOUT(CopyingWire, least_copying, arenas);
WIRE_WITHOUT(CopyingWire, least_copying, make_arena);
WIRE_WITHOUT(CopyingWire, least_copying, unfinished);
#undef WIRE_WITHOUT

// Answers that are others, and questions that change what they ask.
#define WIRE_OTHERWISE(concept, base, name, call) \
  struct name : base {                            \
    call                                          \
  };                                              \
  static_assert(!concept<name>)
WIRE_OTHERWISE(Wire, least_wire, wire_that_counts_unconnected, std::size_t unconnected() const;);
WIRE_OTHERWISE(Wire, least_wire, wire_that_connects_when_asked, wire_peers unconnected(););
WIRE_OTHERWISE(Wire, least_wire, wire_that_sends_temporaries, void send(message&&););
WIRE_OTHERWISE(Wire, least_wire, wire_that_tells_what_is_done, index_t poll(std::chrono::microseconds););
WIRE_OTHERWISE(Wire, least_wire, wire_that_may_not_stop, bool stop(););
WIRE_OTHERWISE(ClosingWire, least_closing, wire_that_finishes_when_asked, bool unfinished(););
WIRE_OTHERWISE(ClosingWire, least_closing, wire_that_borrows_arenas, void keep(message_arenas&););
WIRE_OTHERWISE(ContactingWire, least_contacting, wire_of_one_list, void contact(const wire_peers&););
WIRE_OTHERWISE(CopyingWire, least_copying, wire_that_counts_copies, index_t copied(copies_of););
WIRE_OTHERWISE(CopyingWire, least_copying, wire_that_idles_when_asked, bool idle(););
WIRE_OTHERWISE(CopyingWire, least_copying, wire_that_lends_arenas, std::byte* make_arena(bytes_t););
#undef WIRE_OTHERWISE

constexpr bool nothing_said_is_nothing_on_its_way() {
  const message m;
  return m.done && m.peer == 0 && m.stage == 0 && m.data == nullptr && m.bytes == 0;
}
constexpr bool usual_arenas_are_pages_of_the_host() {
  const arena_source s;
  return s.granule == 4096 && s.may_lie == in_tensors::both_ways && s.alignment == 1 && s.make == nullptr;
}
static_assert(nothing_said_is_nothing_on_its_way());
static_assert(usual_arenas_are_pages_of_the_host());
static_assert(copies_of::outgoing != copies_of::incoming && in_tensors::outgoing != in_tensors::never);
}  // namespace

TEST_CASE("a message of which nothing is said is done, and arenas are pages of the host that tensors may stand for") {
  CHECK(nothing_said_is_nothing_on_its_way());
  CHECK(usual_arenas_are_pages_of_the_host());
}
