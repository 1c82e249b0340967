// SPDX-License-Identifier: Apache-2.0
// The trainer's collectives over threads and over sockets; collectives_mpi.cpp has the same over MPI.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../examples/trainer/sockets.hpp"
#include "../../examples/trainer/threads.hpp"
#include "collectives.hpp"

using namespace trainer;

namespace {

/// What four threads find wrong.
template <typename Body>
std::string on_threads(Body&& body) {
  thread_hub hub(4);
  std::string wrong[4];
  std::vector<std::thread> devices;
  for (rank_t d = 0; d < 4; ++d)
    devices.emplace_back([&, d] {
      const std::unique_ptr<world> here = hub.at(d);
      wrong[d] = body(*here);
    });
  for (std::thread& t : devices) t.join();
  return wrong[0] + wrong[1] + wrong[2] + wrong[3];
}

/// How many of four processes find something wrong, or do not end well; they say what.
template <typename Body>
int on_processes(Body&& body) {
  std::vector<listening_socket> for_switches, for_sums;
  std::vector<std::string> addresses, addresses_of_sums;
  for (int d = 0; d < 4; ++d) {
    for_switches.emplace_back("127.0.0.1:0"), for_sums.emplace_back("127.0.0.1:0");
    addresses.push_back("127.0.0.1:" + std::to_string(for_switches.back().port()));
    addresses_of_sums.push_back("127.0.0.1:" + std::to_string(for_sums.back().port()));
  }
  for (std::size_t d = 0; d < 4; ++d) {
    if (::fork() != 0) continue;
    std::string wrong;
    try {
      listening_socket mine = std::move(for_switches[d]), mine_of_sums = std::move(for_sums[d]);
      for_switches.clear(), for_sums.clear();
      wrong = body(*socket_world(static_cast<rank_t>(d), addresses, std::move(mine), addresses_of_sums,
                                 std::move(mine_of_sums)));
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
    ::_exit(wrong.empty() ? 0 : 1);
  }
  for_switches.clear(), for_sums.clear();
  int bad = 0;
  for (int n = 0, status = 0; n < 4; ++n) bad += ::wait(&status) > 0 && status == 0 ? 0 : 1;
  return bad;
}

std::string everything(world& here) { return testing::collectives_check(here).everything(); }
std::string closed(world& here) { return testing::collectives_check(here).closed(); }

}  // namespace

TEST_CASE("over sockets: sums, posts, messages; and a job that is closed ends every wait") {
  CHECK(on_processes(everything) == 0);
  CHECK(on_processes(closed) == 0);
}

TEST_CASE("over threads: sums, posts, messages; and a job that is closed ends every wait") {
  CHECK(on_threads(everything) == "");
  CHECK(on_threads(closed) == "");
}

// Who leaves a sum gives back its memory: here it is no memory any more, so that who still reads it dies.
TEST_CASE("a job over threads that is closed amid a sum takes no memory from those who read it") {
  constexpr std::size_t count = std::size_t{1} << 17;
  int ended = 0, sums = 0;
  for (int round = 0; round < 60; ++round) {
    thread_hub hub(4);
    std::atomic<int> made = 0, left = 0;
    std::vector<std::thread> devices;
    for (rank_t d = 0; d < 4; ++d)
      devices.emplace_back([&, d] {
        const std::unique_ptr<world> here = hub.at(d);
        const std::unique_ptr<group> all = here->make({0, 1, 2, 3});
        void* const pages =
            ::mmap(nullptr, count * sizeof(double), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const std::span<double> mine(static_cast<double*>(pages), count);
        try {
          while (true) {
            mine[0] = 1;
            all->sum(mine);
            ++made;
          }
        } catch (const peer_gone&) {
          ++left;
        }
        ::munmap(pages, count * sizeof(double));
      });
    while (made < 4) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(37 * round));
    hub.at(0)->close();
    for (std::thread& t : devices) t.join();
    ended += left, sums += made;
  }
  CHECK(ended == 4 * 60);
  CHECK(sums >= 4 * 60);
}

TEST_CASE("a group that is made after its job was closed is closed") {
  thread_hub hub(2);
  const std::unique_ptr<world> here = hub.at(0);
  here->close();
  std::vector<double> values(3);
  CHECK_THROWS_AS(here->make({0, 1})->sum(values), peer_gone);
}

TEST_CASE("a group of one sums what it has, and has nobody to talk to") {
  alone one;
  std::vector<double> values = {1, 2};
  one.sum(values);
  CHECK(values == std::vector<double>{1, 2});
  CHECK(one.exchange(std::as_bytes(std::span(values))).size() == 1);
  CHECK_THROWS_AS(one.send(0, {}), peer_gone);
  CHECK_THROWS_AS(one.receive(0, {}), peer_gone);
}
