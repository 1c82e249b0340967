// SPDX-License-Identifier: Apache-2.0
// The emulation's messages between processes: exchanges that work, and what is stopped.
#include <doctest/doctest.h>

#include "selftest_parts.hpp"

using namespace children;

namespace {
std::byte value(int from, int to, int round, std::size_t i) {
  return static_cast<std::byte>(31 * from + 7 * to + 3 * round + static_cast<int>(i % 251));
}
std::size_t length(int from, int to, int round) {
  return 16 * static_cast<std::size_t>(1 + (5 * from + 3 * to + round) % 40) * 37;
}

/// Everybody sends to everybody else, as often as asked, other lengths each time.
void all_to_all(int n, int rank, board& b, int rounds) {
  ncclComm_t comm = join(n, rank, b);
  {
    stream s;
    const std::size_t slot = 32 * kib;
    buffer out(slot * static_cast<std::size_t>(n)), in(slot * static_cast<std::size_t>(n));
    std::vector<std::byte> bytes(slot);
    for (int round = 0; round < rounds; ++round) {
      check(ncclGroupStart());
      for (int p = 0; p < n; ++p) {
        if (p == rank) continue;
        for (std::size_t i = 0; i < slot; ++i) bytes[i] = value(rank, p, round, i);
        emulation::poke(out.at + slot * static_cast<std::size_t>(p), bytes.data(), slot);
        check(
            ncclSend(out.at + slot * static_cast<std::size_t>(p), length(rank, p, round), ncclUint8, p, comm, s.here));
        check(ncclRecv(in.at + slot * static_cast<std::size_t>(p), length(p, rank, round), ncclUint8, p, comm, s.here));
      }
      check(ncclGroupEnd());
      check(settle(comm));
      check(cudaStreamSynchronize(s.here));
      for (int p = 0; p < n; ++p) {
        if (p == rank) continue;
        emulation::peek(bytes.data(), in.at + slot * static_cast<std::size_t>(p), slot);
        for (std::size_t i = 0; i < length(p, rank, round); ++i)
          expect(bytes[i] == value(p, rank, round, i), "the bytes came");
      }
    }
  }
  leave(comm);
}
/// Two ranks; each does one thing with the other in a group.
using in_group = std::function<void(int, ncclComm_t, cudaStream_t, buffer&)>;
std::vector<outcome> pair_of(const in_group& body, settings environment = {}) {
  return ranks(
      2,
      [&](int rank, board& b) {
        ncclComm_t comm = join(2, rank, b);
        stream s;
        buffer mine(64 * kib);
        check(ncclGroupStart());
        body(rank, comm, s.here, mine);
        check(ncclGroupEnd());
        check(settle(comm));
        check(cudaStreamSynchronize(s.here));
      },
      std::move(environment));
}
}  // namespace

TEST_CASE("everybody to everybody, 2 to 8 ranks") {
  for (int n = 2; n <= 8; ++n) {
    CAPTURE(n);
    all_ended_well(
        ranks(n, [n](int rank, board& b) { all_to_all(n, rank, b, 5); }, {{"EMULATION_SEED", std::to_string(n)}}));
  }
}
TEST_CASE("a sender may be a message ahead of who receives") {
  all_ended_well(ranks(3, [](int rank, board& b) {
    ncclComm_t comm = join(3, rank, b);
    {
      stream s;
      buffer m(64 * kib);
      const auto group = [&](std::vector<int> from, std::vector<int> to) {
        check(ncclGroupStart());
        for (const int p : from)
          check(ncclRecv(m.at + kib * static_cast<std::size_t>(p), 16, ncclUint8, p, comm, s.here));
        for (const int p : to) check(ncclSend(m.at, 16, ncclUint8, p, comm, s.here));
        check(ncclGroupEnd());
        check(settle(comm));
      };
      group(rank == 1 ? std::vector{0, 2} : std::vector<int>{},
            rank == 1 ? std::vector<int>{} : std::vector{1});  // first contact
      check(cudaStreamSynchronize(s.here));
      if (rank == 0) {  // late, so that rank 1 has not looked at what rank 2 posted first
        b.wait(0);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        check(ncclSend(m.at, 16, ncclUint8, 1, comm, s.here));
        check(settle(comm));
      } else if (rank == 1) {
        group({0, 2}, {});
        group({2}, {});
      } else {
        group({}, {1});
        b.flags[0] = 1;
        group({}, {1});
      }
      check(cudaStreamSynchronize(s.here));
    }
    leave(comm);
  }));
}
TEST_CASE("everybody to everybody through one hardware queue") {
  all_ended_well(ranks(3, [](int rank, board& b) { all_to_all(3, rank, b, 5); }, {{"EMULATION_QUEUES", "1"}}));
}

TEST_CASE("a group moves when both ends posted the mirror of it, and else the test stops") {
  one_stopped(pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer& m) {
                if (r == 0) check(ncclSend(m.at, 64, ncclUint8, 1, c, s));
                else check(ncclRecv(m.at, 80, ncclUint8, 0, c, s));
              }),
              "sends 64 bytes");
  one_stopped(pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer& m) {
                check(ncclSend(m.at, 64, ncclUint8, 1 - r, c, s));
              }),
              "and expects 0");
  one_stopped(pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer& m) {
                if (r == 0) check(ncclSend(m.at, 64, ncclUint8, 1, c, s));
                else check(ncclBroadcast(m.at, m.at, 64, ncclUint8, 0, c, s));
              }),
              "do not run the same function");
  // One end sends and receives in one group, the other in two.
  one_stopped(ranks(2,
                    [](int rank, board& b) {
                      ncclComm_t comm = join(2, rank, b);
                      stream s;
                      buffer m(64 * kib);
                      if (rank == 0) check(ncclGroupStart());
                      check(ncclSend(m.at, 64, ncclUint8, 1 - rank, comm, s.here));
                      if (rank == 1) check(settle(comm));
                      check(ncclRecv(m.at + 64, 64, ncclUint8, 1 - rank, comm, s.here));
                      if (rank == 0) check(ncclGroupEnd());
                      check(settle(comm));
                      check(cudaStreamSynchronize(s.here));
                    }),
              "sends 64 bytes and expects");
  one_stopped(ranks(2,
                    [](int rank, board& b) {
                      ncclComm_t comm = join(2, rank, b);
                      stream s;
                      buffer m(64 * kib);
                      void* handle = nullptr;
                      if (rank == 0) check(ncclCommRegister(comm, m.at, m.bytes, &handle));
                      if (rank == 0) check(ncclSend(m.at, 64, ncclUint8, 1, comm, s.here));
                      else check(ncclRecv(m.at, 64, ncclUint8, 0, comm, s.here));
                      check(settle(comm));
                      check(cudaStreamSynchronize(s.here));
                    }),
              "one end's buffer is registered, the other's is not");
}

TEST_CASE("messages that real NCCL answers with a hang or garbage stop the test") {
  one_stopped(pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer& m) {
                check(ncclSend(m.at, 64, ncclUint8, 1 - r, c, s));
                check(ncclSend(m.at + 64, 64, ncclUint8, 1 - r, c, s));
              }),
              "a second message in one group");
  one_stopped(
      pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer& m) { check(ncclSend(m.at, 0, ncclUint8, 1 - r, c, s)); }),
      "without bytes");
  one_stopped(pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer& m) {
                check(ncclSend(m.at + 8, 8, ncclUint8, 1 - r, c, s));
              }),
              "no multiple of 16");
  one_stopped(pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer& m) {
                check(ncclSend(m.at, 65 * kib, ncclUint8, 1 - r, c, s));
              }),
              "leave what was allocated");
  one_stopped(pair_of([](int r, ncclComm_t c, cudaStream_t s, buffer&) {
                alignas(16) static char host[16];
                check(ncclSend(host, 16, ncclUint8, 1 - r, c, s));
              }),
              "no device memory");
  one_stopped(pair_of(
                  [](int r, ncclComm_t c, cudaStream_t s, buffer& m) {
                    if (r == 0) check(ncclSend(m.at, 64, ncclUint8, 1, c, s));
                    else check(ncclRecv(m.at, 64, ncclUint8, 0, c, s));
                    check(ncclGroupEnd());
                    cudaEvent_t e;
                    check(cudaEventCreate(&e));
                    check(cudaEventRecord(e, s));  // it would be before the group
                  },
                  {{"EMULATION_DELAY_US", "20000"}, {"EMULATION_SEED", "3"}}),
              "is still on its way");
}

TEST_CASE("a group that an exception ends stops the test, unless it starts nothing") {
  const auto thrown = [](bool fails) {
    return ranks(2, [fails](int rank, board& b) {
      ncclComm_t comm = join(2, rank, b);
      stream s;
      buffer m(64 * kib);
      struct ends_it {
        ~ends_it() { static_cast<void>(ncclGroupEnd()); }
      };
      try {
        check(ncclGroupStart());
        const ends_it at_last;
        check(ncclSend(m.at, 64, ncclUint8, 1 - rank, comm, s.here));
        if (fails) emulation::fail("ncclRecv", 1);
        if (fails) static_cast<void>(ncclRecv(m.at + 64, 64, ncclUint8, 1 - rank, comm, s.here));
        throw 1;
      } catch (int) {
      }
      check(ncclCommAbort(comm));
    });
  };
  one_stopped(thrown(false), "ncclGroupEnd is called by an exception");
  all_ended_well(thrown(true));
}
