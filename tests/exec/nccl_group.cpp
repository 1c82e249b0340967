// SPDX-License-Identifier: Apache-2.0
// A group of NCCL while memory of the host runs out, on the emulation: all of it goes, or none. The emulation stops who
// ends a group by an exception, and who receives less than it expects.
#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <reshard/exec/device_memory.hpp>
#include <reshard/exec/nccl_wire.hpp>
#include <reshard/exec/socket_meeting.hpp>

#include "../support/emulated_copies.hpp"
#include "../support/processes.hpp"

using namespace reshard;
using testing::left_behind, testing::processes;

namespace {

/// Of this thread, outside of the emulation: the n-th allocation from now on fails; 0: none.
thread_local long fails_at = 0;

long calls_of(const std::string& function) {
  for (const emulation::call_count& c : emulation::counts())
    if (c.function == function) return c.calls;
  return 0;
}

}  // namespace

// Not inlined: g++ would take free for that of another allocator.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (fails_at > 0 && !emulation::is_inside() && --fails_at == 0) throw std::bad_alloc();
  if (void* const at = std::malloc(bytes > 0 ? bytes : 1)) return at;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }

TEST_CASE("memory that runs out while a group is made: all of it goes, or none") {
  ::setenv("EMULATION_PEER_KIB", "64", 0);
  constexpr bytes_t length = 4096;
  constexpr rank_t devices = 4;
  processes all(devices);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    {
      socket_meeting meeting(d, all.addresses, std::move(listening), std::chrono::seconds(5));
      nccl_wire<socket_meeting> wire(meeting, static_cast<int>(d), {});
      const std::shared_ptr<std::byte> arena = wire.make_arena(device_granule_bytes);
      std::vector<message> messages;
      for (rank_t peer = 0; peer < devices; ++peer)
        if ((peer == 0) != (d == 0)) {
          const bytes_t at = 2 * length * peer;
          messages.push_back({peer, 0, arena.get() + at, length});
          messages.push_back({peer, 0, arena.get() + at + length, length});
          const std::vector<unsigned char> mine(static_cast<std::size_t>(length),
                                                static_cast<unsigned char>(10 + 10 * d + peer));
          emulation::poke(arena.get() + at, mine.data(), mine.size());
        }
      for (std::size_t i = 0; i < messages.size(); i += 2) wire.send(messages[i]), wire.receive(messages[i + 1]);
      const long groups = calls_of("ncclGroupStart");
      for (long nth = 1; d == 0 && calls_of("ncclGroupStart") == groups; ++nth) {
        fails_at = nth;
        try {
          wire.post();
        } catch (const std::bad_alloc&) {
          ++left.several;
        }
        fails_at = 0;
      }
      if (d != 0) wire.post();
      const auto there = [&] {
        bool done = true;
        for (const message& m : messages) done = done && m.done;
        return done;
      };
      while (!there()) wire.poll(std::chrono::milliseconds(2));
      for (std::size_t i = 1; i < messages.size(); i += 2) {
        unsigned char found = 0;
        emulation::peek(&found, messages[i].data + length - 1, 1);
        left.wrong += found == 10 + 10 * messages[i].peer + d ? 0 : 1;
      }
      meeting.gather("all have what came");
    }
    emulation::finish();
    left.reached = 1;
  });
  REQUIRE(all.ended_within(60));
  CHECK(all.of(0).several > 1);
  for (long d = 0; d < devices; ++d) {
    CAPTURE(d);
    CHECK(std::string(all.of(d).sentence) == "");
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).wrong == 0);
  }
}
