// SPDX-License-Identifier: Apache-2.0
// The emulation's communicators: made, used, left.
#include <doctest/doctest.h>

#include <cstring>

#include "selftest_parts.hpp"

using namespace children;

namespace {
outcome one(const std::function<void(board&)>& body, settings environment = {}) {
  family f;
  environment.emplace("EMULATION_PATIENCE_MS", "700");
  f.start(environment, body);
  return f.wait(0);
}
}  // namespace

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

TEST_CASE("communicators are used after success, before abort, and left whole") {
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
  stopped(one([](board& b) {
            ncclComm_t c = join(1, 0, b);
            check(ncclGroupStart());
            check(ncclCommAbort(c));
            check(ncclCommAbort(c));
          }),
          "which is being aborted");
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
}

TEST_CASE("who meets: an id serves once, for as many as said, each on a device of its own") {
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
    check(cudaFree(nullptr));
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

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
TEST_CASE("how many channels a communicator was asked for is known, also that nobody said") {
  CHECK(one([](board& b) {
          leave(join(1, 0, b));
          expect(!emulation::channels_per_net_peer(), "nobody said");
          ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
          config.nChannelsPerNetPeer = 4;
          ncclUniqueId id;
          ncclComm_t c = nullptr;
          check(ncclGetUniqueId(&id));
          check(ncclCommInitRankConfig(&c, 1, id, 0, &config));
          check(settle(c));
          expect(emulation::channels_per_net_peer() == 4, "as said");
          leave(c);
        }).code == 0);
}
#endif
