// SPDX-License-Identifier: Apache-2.0
// The emulation's rules between processes: exchanges that work, and what is stopped, never noticed, or aborted.
#include <doctest/doctest.h>

#include <cstring>

#include "children.hpp"

using namespace children;

namespace {
constexpr std::size_t kib = 1024;

void stopped(const outcome& found, const std::string& sentence) {
  INFO(found.words);
  CHECK(found.code == emulation::stopped_code);
  CHECK(found.says(sentence));
}
/// One of the ranks is stopped with the sentence; none ends well.
void one_stopped(const std::vector<outcome>& found, const std::string& sentence) {
  int said = 0;
  for (const outcome& o : found) {
    INFO(o.words);
    CHECK(o.code == emulation::stopped_code);
    said += o.says(sentence);
  }
  CHECK(said > 0);
}
void all_ended_well(const std::vector<outcome>& found) {
  for (const outcome& o : found) {
    INFO(o.words);
    CHECK(o.code == 0);
  }
}
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
TEST_CASE("everybody to everybody through one hardware queue") {
  all_ended_well(ranks(3, [](int rank, board& b) { all_to_all(3, rank, b, 5); }, {{"EMULATION_QUEUES", "1"}}));
}

TEST_CASE("collectives, blocking communicators, and memory that NCCL takes for itself") {
  all_ended_well(ranks(3, [](int rank, board& b) {
    if (rank == 0) check(ncclGetUniqueId(&b.id)), b.id_there = 1;
    while (b.id_there == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    ncclComm_t comm;
    check(ncclCommInitRank(&comm, 3, b.id, rank));
    int number = -1;
    check(ncclCommCount(comm, &number));
    expect(number == 3, "three");
    check(ncclCommUserRank(comm, &number));
    expect(number == rank, "its rank");
    check(ncclCommCuDevice(comm, &number));
    expect(number == rank, "its device");
    const std::size_t before = emulation::used_bytes();
    {
      stream s;
      buffer one(1024), all(3 * 1024);
      const float mine[2] = {1.0f + static_cast<float>(rank), 10.0f};
      emulation::poke(one.at, mine, sizeof mine);
      check(ncclAllGather(one.at, all.at, 2, ncclFloat32, comm, s.here));
      check(ncclAllReduce(one.at, one.at, 2, ncclFloat32, ncclSum, comm, s.here));
      check(cudaStreamSynchronize(s.here));
      float sums[2], gathered[6];
      emulation::peek(sums, one.at, sizeof sums);
      emulation::peek(gathered, all.at, sizeof gathered);
      expect(sums[0] == 6 && sums[1] == 30, "the sums");
      expect(gathered[0] == 1 && gathered[2] == 2 && gathered[4] == 3, "what all have");
      emulation::poke(one.at, mine, sizeof mine);
      check(ncclBroadcast(one.at, one.at, 8, ncclUint8, 1, comm, s.here));
      check(cudaStreamSynchronize(s.here));
      emulation::peek(sums, one.at, sizeof sums);
      expect(sums[0] == 2, "rank 1's");
    }
    expect(emulation::used_bytes() == before + 2 * (std::size_t{4} << 20), "two peers were met");
    check(ncclCommDestroy(comm));
    expect(emulation::used_bytes() == 0, "it gives back what it took");
  }));
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
              "registered");
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

TEST_CASE("communicators are used after success, before abort, and left whole") {
  const auto one = [](const std::function<void(board&)>& body, settings environment = {}) {
    family f;
    environment.emplace("EMULATION_PATIENCE_MS", "700");
    f.start(environment, body);
    return f.wait(0);
  };
  stopped(one([](board& b) {
            ncclComm_t c = join(2, 0, b, false);
            int n;
            check(ncclCommCount(c, &n));
          }),
          "before ncclCommGetAsyncError has told ncclSuccess");
  const outcome answered = one(
      [](board& b) {
        ncclComm_t c = join(2, 0, b, false);
        int n = 0;
        expect(ncclCommCount(c, &n) == ncclInvalidArgument, "not yet");
        check(ncclCommAbort(c));  // of an initialisation that would wait for ever
      },
      {{"EMULATION_EARLY_USE", "answer"}});
  CHECK(answered.code == 0);
  stopped(one([](board& b) {
            ncclComm_t c = join(1, 0, b);
            check(ncclCommAbort(c));
            int n;
            check(ncclCommCount(c, &n));
          }),
          "which was destroyed or aborted");
  stopped(one([](board& b) {
            ncclComm_t c = join(1, 0, b);
            leave(c);
            check(ncclCommAbort(c));
          }),
          "which was destroyed or aborted");
  stopped(one([](board& b) { join(1, 0, b); }), "(rank 0 of 1) was neither destroyed nor aborted");
  stopped(one([](board& b) {
            ncclComm_t c = join(1, 0, b);
            auto* m = new buffer(64);
            void* h;
            check(ncclCommRegister(c, m->at, 64, &h));
            check(ncclMemFree(m->at));
          }),
          "still registered with communicator 0");
  stopped(one([](board& b) {
            ncclComm_t c = join(1, 0, b);
            buffer m(64);
            void* h;
            check(ncclCommRegister(c, m.at, 64, &h));
            leave(c);
          }),
          "1 registration left");
  stopped(one([](board&) {
            ncclUniqueId id;
            ncclComm_t c;
            check(ncclGetUniqueId(&id));
            check(ncclCommInitRank(&c, 2, id, 0));
          }),
          "for a peer that does not come");
  const outcome twice = one([](board& b) {
    ncclComm_t c = join(1, 0, b), d = join(1, 0, b, false);
    static_cast<void>(d);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t e = nullptr;
    ncclUniqueId used = b.id;
    check(settle(d));
    check(ncclCommInitRankConfig(&e, 1, used, 0, &config));
    expect(settle(e) == ncclRemoteError, "an id serves once");
    check(ncclCommAbort(e));
    leave(d);
    leave(c);
  });
  CHECK(twice.code == 0);
  all_ended_well(ranks(2, [](int, board& b) {
    check(cudaSetDevice(0));
    const bool first = b.flags[0]++ == 0;
    ncclComm_t c = join(2, first ? 0 : 1, b, false);
    expect(settle(c) == ncclInvalidUsage, "two ranks on a device");
    expect(std::strstr(ncclGetLastError(c), "Duplicate GPU") != nullptr, "it says so");
    check(ncclCommAbort(c));
  }));
}

TEST_CASE("to destroy with work in flight, and alone, stops the test") {
  one_stopped(ranks(2,
                    [](int rank, board& b) {
                      ncclComm_t comm = join(2, rank, b);
                      stream s;
                      buffer m(64 * kib);
                      check(rank == 0 ? ncclSend(m.at, 64, ncclUint8, 1, comm, s.here)
                                      : ncclRecv(m.at, 64, ncclUint8, 0, comm, s.here));
                      check(settle(comm));
                      check(ncclCommDestroy(comm));
                    },
                    {{"EMULATION_DELAY_US", "30000"}}),
              "whose work is in flight");
  const auto found = ranks(2,
                           [](int rank, board& b) {
                             ncclComm_t comm = join(2, rank, b);
                             if (rank == 0) check(ncclCommDestroy(comm));
                             else std::this_thread::sleep_for(std::chrono::seconds(1)), ::_exit(0);
                           },
                           {{"EMULATION_PATIENCE_MS", "500"}});
  stopped(found[0], "for a peer that does not come");
}
