// SPDX-License-Identifier: Apache-2.0
// What goes wrong, emulated: peers that die or stop unnoticed, aborts, peers that write after an abort, failures of
// every function.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>

#include "selftest_parts.hpp"

using namespace children;

namespace {
void rest(long milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// A message in a ring, to the next and from the one before, so that all have met.
void ring(int n, int rank, ncclComm_t comm, cudaStream_t s, buffer& m) {
  check(ncclGroupStart());
  for (int p = 0; p < n; ++p) {
    if (p == rank) continue;
    check(ncclSend(m.at, 16, ncclUint8, p, comm, s));
    check(ncclRecv(m.at + kib * static_cast<std::size_t>(p + 1), 16, ncclUint8, p, comm, s));
  }
  check(ncclGroupEnd());
  check(settle(comm));
  check(cudaStreamSynchronize(s));
}
/// Three ranks; the last says that it is there and then is sent the signal. The others' group with it never ends.
void one_lost(int number) {
  family all;
  for (int r = 0; r < 3; ++r)
    all.start({{"EMULATION_PATIENCE_MS", "3000"}}, [r](board& b) {
      check(cudaSetDevice(r));
      ncclComm_t comm = join(3, r, b);
      {
        stream s;
        buffer m(64 * kib);
        ring(3, r, comm, s.here, m);
        if (r == 2) {
          b.flags[0] = 1;
          rest(1000'000);
        }
        b.wait(1);
        check(ncclGroupStart());
        check(ncclSend(m.at, 64, ncclUint8, 2, comm, s.here));
        check(ncclRecv(m.at + kib, 64, ncclUint8, 1 - r, comm, s.here));
        check(ncclSend(m.at + 2 * kib, 64, ncclUint8, 1 - r, comm, s.here));
        check(ncclGroupEnd());
        check(settle(comm));
        for (int i = 0; i < 50; ++i) {
          rest(10);
          ncclResult_t state = ncclSuccess;
          expect(cudaStreamQuery(s.here) == cudaErrorNotReady, "the kernel spins");
          check(ncclCommGetAsyncError(comm, &state));
          expect(state == ncclSuccess, "nobody notices");
        }
        check(ncclGroupStart());
        check(ncclCommAbort(comm));
        check(ncclGroupEnd());
        expect(cudaStreamQuery(s.here) == cudaSuccess, "an abort ends it");
      }
    });
  all.shared->wait(0);
  all.signal(2, number);
  all.shared->flags[1] = 1;
  for (std::size_t r = 0; r < 2; ++r) {
    const outcome o = all.wait(r);
    INFO(o.words);
    CHECK(o.code == 0);
  }
}
/// Two communicators between two ranks, a kernel of each stuck at rank 0.
outcome two_stuck(const std::function<void(ncclComm_t, ncclComm_t)>& abort) {
  family all;
  for (int r = 0; r < 2; ++r)
    all.start({{"EMULATION_PATIENCE_MS", "1000"}}, [r, &abort](board& b) {
      check(cudaSetDevice(r));
      ncclComm_t one = join(2, r, b);
      b.flags[0]++;
      b.wait(0, 2);
      if (r == 0) b.id_there = 0, b.flags[1] = 1;
      b.wait(1);
      ncclComm_t two = join(2, r, b);
      {
        stream s, t;
        buffer m(64 * kib);
        ring(2, r, one, s.here, m);
        ring(2, r, two, t.here, m);
        if (r == 1) b.flags[2] = 1, rest(1000'000);
        check(ncclSend(m.at, 64, ncclUint8, 1, one, s.here));
        check(settle(one));
        check(ncclSend(m.at, 64, ncclUint8, 1, two, t.here));
        check(settle(two));
        abort(one, two);
      }
    });
  return all.wait(0);
}
}  // namespace

TEST_CASE("a rank that was killed is never noticed, and an abort ends the kernels of the others") { one_lost(SIGKILL); }
TEST_CASE("a rank that was stopped is never noticed, and an abort ends the kernels of the others") {
  one_lost(SIGSTOP);
}

TEST_CASE("communicators aborted one by one wait for each other's kernels; in a group they do not") {
  const outcome apart = two_stuck([](ncclComm_t one, ncclComm_t two) {
    check(ncclCommAbort(one));
    check(ncclCommAbort(two));
  });
  INFO(apart.words);
  CHECK(apart.code == emulation::stopped_code);
  CHECK(apart.says("ncclCommAbort of communicator 0"));
  CHECK(apart.says("is at a group of communicator 1"));
  const outcome together = two_stuck([](ncclComm_t one, ncclComm_t two) {
    check(ncclGroupStart());
    check(ncclCommAbort(one));
    check(ncclCommAbort(two));
    check(ncclGroupEnd());
  });
  INFO(together.words);
  CHECK(together.code == 0);
}

TEST_CASE("a peer that has not aborted still writes into memory of one that has") {
  for (const outcome& o : ranks(3,
                                [](int r, board&b) {
                                  ncclComm_t comm = join(3, r, b);
                                  stream s;
                                  buffer m(64 * kib);
                                  ring(3, r, comm, s.here, m);
                                  if (r == 0) {
                                    std::vector<std::byte> zeros(64 * kib), found(64 * kib);
                                    check(cudaLaunchHostFunc(
                                        s.here, [](void* flags) { static_cast<board*>(flags)->flags[0] = 1; }, &b));
                                    check(ncclGroupStart());
                                    check(ncclRecv(m.at, 16 * kib, ncclUint8, 1, comm, s.here));
                                    check(ncclRecv(m.at + 32 * kib, 16, ncclUint8, 2, comm, s.here));
                                    check(ncclGroupEnd());
                                    check(settle(comm));
                                    b.wait(0);
                                    rest(500);  // its kernel has posted by now
                                    check(ncclCommAbort(comm));
                                    emulation::poke(m.at, zeros.data(), zeros.size());
                                    b.flags[1] = 1;
                                    b.wait(2);
                                    emulation::peek(found.data(), m.at, found.size());
                                    expect(found[16 * kib - 1] == std::byte{9}, "written after the abort");
                                  } else if (r == 1) {
                                    b.wait(1);
                                    const std::vector<std::byte> nines(64 * kib, std::byte{9});
                                    emulation::poke(m.at, nines.data(), nines.size());
                                    check(ncclSend(m.at, 16 * kib, ncclUint8, 0, comm, s.here));
                                    check(settle(comm));
                                    check(cudaStreamSynchronize(s.here));
                                    b.flags[2] = 1;
                                    check(ncclCommAbort(comm));
                                  } else {
                                    b.wait(2);
                                    check(ncclCommAbort(comm));
                                  }
                                },
                                {{"EMULATION_DELAY_US", "50"}})) {
    INFO(o.words);
    CHECK(o.code == 0);
  }
}

TEST_CASE("a group that fails is fatal for its communicators; invalid arguments are not") {
  for (const outcome& o :
       ranks(1,
             [](int, board& b) {
               ncclComm_t comm = join(1, 0, b);
               {
                 stream s;
                 buffer m(kib);
                 expect(ncclGroupEnd() == ncclInvalidUsage, "no group was begun");
                 expect(ncclSend(m.at, 16, ncclUint8, 1, comm, s.here) == ncclInvalidArgument, "no such peer");
                 expect(ncclSend(m.at, 16, ncclUint8, 0, comm, s.here) == ncclInvalidUsage, "to itself alone");
                 ncclResult_t state = ncclSuccess;
                 check(ncclCommGetAsyncError(comm, &state));
                 expect(state == ncclInvalidUsage, "and that stays");
                 check(ncclCommAbort(comm));
                 b.id_there = 0;
                 comm = join(1, 0, b);
                 check(ncclGroupStart());
                 check(ncclSend(m.at, 16, ncclUint8, 0, comm, s.here));
                 check(ncclRecv(m.at + 16, 16, ncclUint8, 0, comm, s.here));
                 emulation::fail("ncclGroupEnd", 1);
                 expect(ncclGroupEnd() == ncclSystemError, "as asked");
                 check(ncclCommGetAsyncError(comm, &state));
                 expect(state == ncclSystemError && cudaStreamQuery(s.here) == cudaSuccess, "nothing was issued");
                 check(ncclCommAbort(comm));
                 comm = join(1, 0, b);
                 emulation::fail("ncclCommGetAsyncError.state", 1, ncclRemoteError);
                 check(ncclCommGetAsyncError(comm, &state));
                 expect(state == ncclRemoteError, "a state that is told");
                 check(ncclCommAbort(comm));
                 comm = join(1, 0, b);
                 check(ncclCommRevoke(comm, 0));
                 check(settle(comm));
                 check(ncclGroupStart());
                 expect(ncclSend(m.at, 16, ncclUint8, 0, comm, s.here) == ncclInvalidUsage, "revoked");
                 expect(ncclRecv(m.at + 16, 16, ncclUint8, 0, comm, s.here) == ncclInvalidUsage, "revoked");
                 expect(ncclGroupEnd() == ncclInvalidUsage, "so is the group");
               }
               check(ncclCommAbort(comm));
             },
             {{"EMULATION_SYNC", "always"}})) {
    INFO(o.words);
    CHECK(o.code == 0);
  }
}

namespace {
/// Uses of everything that an exchange needs, each answer checked.
void exchange_checked(int rank, board& b) {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  check(cudaSetDevice(rank));
  ncclComm_t comm = join(2, rank, b);
  {
    stream s, t;
    buffer m(64 * kib);
    void *there = nullptr, *here = nullptr, *handle = nullptr;
    check(cudaMalloc(&there, kib));
    check(cudaHostAlloc(&here, kib, 0));
    check(ncclCommRegister(comm, m.at, m.bytes, &handle));
    cudaEvent_t packed;
    check(cudaEventCreateWithFlags(&packed, cudaEventDisableTiming));
    for (int i = 0; i < 2; ++i) {
      check(cudaMemcpyAsync(there, here, kib, cudaMemcpyHostToDevice, t.here));
      check(emulation::launch(t.here, "pack", [] {}));
      check(cudaEventRecord(packed, t.here));
      check(cudaStreamWaitEvent(s.here, packed, 0));
      ring(2, rank, comm, s.here, m);
      check(cudaEventSynchronize(packed));
      check(cudaMemsetAsync(there, 0, kib, t.here));
      check(cudaStreamSynchronize(t.here));
    }
    check(cudaEventDestroy(packed));
    check(ncclCommDeregister(comm, handle));
    check(cudaFreeHost(here));
    check(cudaFree(there));
  }
  leave(comm);
}
outcome with_failure(const std::string& function, long nth, const settings& environment = {}) {
  family all;
  for (int r = 0; r < 2; ++r)
    all.start(r == 0 ? environment : settings{}, [&, r](board& b) {
      if (r == 0 && nth > 0) emulation::fail(function, nth);
      exchange_checked(r, b);
    });
  return all.wait(0);
}
}  // namespace

TEST_CASE("every function that an exchange calls can fail, at its first and its second use") {
  const std::string file = "emulation_counts_" + std::to_string(::getpid());
  const outcome well = with_failure("", 0, {{"EMULATION_COUNTS", file}});
  INFO(well.words);
  REQUIRE(well.code == 0);
  std::map<std::string, long> calls;
  {
    std::ifstream counts(file);
    std::string function;
    for (long pid = 0, n = 0; counts >> pid >> function >> n;) calls[function] = n;
  }
  ::unlink(file.c_str());
  CHECK(calls.size() > 25);
  for (const auto& called : calls)
    for (long nth = 1; nth <= std::min(called.second, 2L); ++nth) {
      const std::string& function = called.first;
      CAPTURE(function);
      CAPTURE(nth);
      const outcome o = with_failure(function, nth);
      INFO(o.words);
      CHECK(o.code == 3);
    }
}
