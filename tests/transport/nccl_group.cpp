// SPDX-License-Identifier: Apache-2.0
// A group of NCCL while memory of the host runs out, on the emulation: all of it goes, or none, and what NCCL has of it
// stays posted. The emulation stops who ends a group by an exception, and who receives less than it expects.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/cuda/device_memory.hpp>
#include <reshard/transport/nccl/wire.hpp>
#include <reshard/transport/socket_meeting.hpp>

#include "../support/emulated_copies.hpp"
#include "../support/processes.hpp"

using namespace reshard;
using testing::left_behind, testing::processes;

namespace {

/// In this thread, outside of the emulation, the n-th allocation from now on fails; 0: none. Once NCCL has the group,
/// which is when as many have ended as are given here, none does.
thread_local long fails_at = 0, groups_ended = 0;

long calls_of(const std::string& function) {
  for (const emulation::call_count& c : emulation::counts())
    if (c.function == function) return c.calls;
  return 0;
}

/// A meeting that memory runs out in, once, when it is heard after a next call of this function.
class short_meeting : public socket_meeting {
 public:
  using socket_meeting::socket_meeting;
  void runs_out_after(const std::string& function) { function_ = function, calls_ = calls_of(function); }
  void poll() {
    if (!function_.empty() && calls_of(function_) > calls_) {
      function_.clear();
      throw std::bad_alloc();
    }
    socket_meeting::poll();
  }

 private:
  std::string function_;
  long calls_ = 0;
};

}  // namespace

// Not inlined: g++ would take free for that of another allocator.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (fails_at > 0 && !emulation::is_inside() && --fails_at == 0 && calls_of("ncclGroupEnd") == groups_ended)
    throw std::bad_alloc();
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
        groups_ended = calls_of("ncclGroupEnd"), fails_at = nth;
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

TEST_CASE("a group that NCCL has when memory runs out is posted until its world stops, and goes only once") {
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    {
      short_meeting meeting(d, all.addresses, std::move(listening), std::chrono::milliseconds(300));
      nccl_wire<short_meeting> wire(meeting, static_cast<int>(d), {});
      const std::shared_ptr<std::byte> arena = wire.make_arena(device_granule_bytes);
      message out{1 - d, 0, arena.get(), 4096}, in{1 - d, 0, arena.get() + 4096, 4096};
      if (d == 0) {  // and 1 never posts: so it is on its way as long as the world lasts
        wire.send(out), wire.receive(in);
        meeting.runs_out_after("ncclGroupEnd");
        try {
          wire.post();
        } catch (const std::bad_alloc&) {
          ++left.several;
        }
        const long groups = calls_of("ncclGroupStart");
        wire.post();
        for (int i = 0; i < 50; ++i) wire.poll(std::chrono::microseconds(100));
        left.wrong =
            (wire.idle() ? 1 : 0) + (out.done || in.done ? 2 : 0) + (calls_of("ncclGroupStart") == groups ? 0 : 4);
      }
      meeting.gather("all have seen it");
    }
    emulation::finish();
    left.reached = 1;
  });
  REQUIRE(all.ended_within(60));
  CHECK(all.of(0).several == 1);
  for (long d = 0; d < 2; ++d) {
    CAPTURE(d);
    CHECK(std::string(all.of(d).sentence) == "");
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).wrong == 0);
  }
}

TEST_CASE("what waits in NCCL ends for all once another thread stops one's meeting") {
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    const auto now = [] { return std::chrono::steady_clock::now(); };
    auto begin = now();
    {
      socket_meeting meeting(d, all.addresses, std::move(listening), std::chrono::seconds(60));
      nccl_wire<socket_meeting> wire(meeting, static_cast<int>(d), {});
      std::thread another([&] {
        if (d != 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        meeting.stop("reshard: nobody wants this world any more");
      });
      begin = now();
      try {
        if (d == 0) wire.contact({1}, {1});  // which 1 never has with it
        while (true) wire.poll(std::chrono::milliseconds(2)), meeting.require_whole();
      } catch (const peer_failed& e) {
        left.say(e.what());
      }
      left.seconds = std::chrono::duration<double>(now() - begin).count();
      another.join();
      wire.stop();
    }
    emulation::finish();
    left.reached = 1;
  });
  REQUIRE(all.ended_within(60));
  for (long d = 0; d < 2; ++d) {
    CAPTURE(d);
    CHECK(std::string(all.of(d).sentence) == "reshard: nobody wants this world any more");
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).seconds - all.late() < 10);
  }
}

TEST_CASE("first contact that NCCL has not begun is made the next time, and once") {
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    {
      socket_meeting meeting(d, all.addresses, std::move(listening), std::chrono::seconds(5));
      nccl_wire<socket_meeting> wire(meeting, static_cast<int>(d), {});
      const std::vector<rank_t> other = {1 - d};
      emulation::fail("ncclGroupStart", 1);
      for (int i = 0; i < 3; ++i) try {
          wire.contact(other, other);
        } catch (const std::runtime_error&) {
          left.several += 1 + 10 * i;
        }
      const emulation::moved moved = emulation::so_far();
      left.wrong = wire.idle() && moved.groups == 1 && moved.sends == 1 && moved.receives == 1 ? 0 : 1;
    }
    emulation::finish();
    left.reached = 1;
  });
  REQUIRE(all.ended_within(60));
  for (long d = 0; d < 2; ++d) {
    CAPTURE(d);
    CHECK(std::string(all.of(d).sentence) == "");
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).several == 1);
    CHECK(all.of(d).wrong == 0);
  }
}

TEST_CASE("first contact that was not waited for ends all the same, and its messages are there until then") {
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    {
      short_meeting meeting(d, all.addresses, std::move(listening), std::chrono::seconds(5));
      nccl_wire<short_meeting> wire(meeting, static_cast<int>(d), {});
      const std::shared_ptr<std::byte> arena = wire.make_arena(device_granule_bytes);
      static std::atomic<bool> go = false;
      testing::before_copies = [](const table_copy*) {
        while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      copy_table table;
      table.add(arena.get(), arena.get() + 64, {.run_bytes = 64});
      if (d == 1) wire.copy(copies_of::outgoing, table);     // which its messages come after
      if (d == 0) meeting.runs_out_after("cudaEventQuery");  // whether the group is done
      std::thread later;
      if (d == 1)
        later = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          go = true;
        });
      try {
        wire.contact({1 - d}, {1 - d});
      } catch (const std::bad_alloc&) {
        ++left.several;
      }
      if (d == 0) left.wrong = wire.idle() ? 1 : 0;
      while (!wire.idle()) wire.poll(std::chrono::milliseconds(2));
      if (d == 1) later.join();
    }
    emulation::finish();
    left.reached = 1;
  });
  REQUIRE(all.ended_within(60));
  CHECK(all.of(0).several == 1);
  for (long d = 0; d < 2; ++d) {
    CAPTURE(d);
    CHECK(std::string(all.of(d).sentence) == "");
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).wrong == 0);
  }
}
