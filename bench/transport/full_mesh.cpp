// SPDX-License-Identifier: Apache-2.0
// A group of processes that is made by a group cache, with a connection between every two of them. `ms` is from the
// moment that the first begins until the last has all its connections; `ratio` is that over a mesh of plain sockets,
// which agrees on nothing, in the same run; `hit_ns` is what asking for the group again takes. Argument: processes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reshard/transport/group_cache.hpp>
#include <reshard/transport/sockets.hpp>

namespace {
using namespace reshard;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr int rounds = 20;
constexpr std::size_t most = 16;

/// What the processes share: when each began and ended a round, by kind.
struct board {
  pthread_barrier_t barrier;
  double begun[2][rounds][most], ended[2][rounds][most];
  double hit[most];

  explicit board(unsigned count) : begun{}, ended{}, hit{} {
    pthread_barrierattr_t shared;
    ::pthread_barrierattr_init(&shared);
    ::pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    ::pthread_barrier_init(&barrier, &shared, count);
  }
  void meet() { ::pthread_barrier_wait(&barrier); }
  /// The least time of a round, from the first that begins to the last that ends.
  double least_of(int kind, std::size_t count) const {
    double result = 1e9;
    for (int r = 0; r < rounds; ++r)
      result = std::min(result, *std::max_element(ended[kind][r], ended[kind][r] + count) -
                                    *std::min_element(begun[kind][r], begun[kind][r] + count));
    return result;
  }
};

/// Connections with all others, of which the lower calls and says its number.
std::vector<owned_descriptor> plain_mesh(std::size_t me, const std::vector<std::string>& addresses,
                                         const listening_socket& mine) {
  std::vector<owned_descriptor> links;
  for (std::size_t d = me + 1; d < addresses.size(); ++d) {
    links.push_back(call_address(addresses[d], std::chrono::seconds(5)));
    send_some(links.back().number(), reinterpret_cast<const std::byte*>(&me), sizeof me);
  }
  for (std::size_t met = 0; met < me; ++met) {
    owned_descriptor caller;
    for (pollfd calls{mine.number(), POLLIN, 0}; !caller.open(); caller = mine.accept()) ::poll(&calls, 1, 1000);
    std::size_t who = 0;
    for (pollfd says{caller.number(), POLLIN, 0};
         receive_some(caller.number(), reinterpret_cast<std::byte*>(&who), sizeof who).bytes == 0;)
      ::poll(&says, 1, 1000);
    links.push_back(std::move(caller));
  }
  return links;
}

/// One process: a mesh of the cache and a plain one by turns, then hits.
void take_part(std::size_t me, const std::vector<std::string>& doors, const std::vector<std::string>& plain,
               std::vector<listening_socket>& at_doors, std::vector<listening_socket>& at_plain, board& all) {
  process_door door(std::move(at_doors[me]));
  const listening_socket mine = std::move(at_plain[me]);
  at_doors.clear(), at_plain.clear();
  std::vector<rank_t> others;
  for (std::size_t d = 0; d < doors.size(); ++d)
    if (d != me) others.push_back(static_cast<rank_t>(d));
  group_cache<socket_endpoint, std::uint64_t> groups([&](std::uint64_t world, const std::stop_token& stop) {
    auto made = std::make_shared<socket_endpoint>(static_cast<rank_t>(me), doors, door, world, std::chrono::seconds(10),
                                                  transport_stop(stop));
    made->connect_with(others);
    return made;
  });
  static_cast<void>(groups.get(1));  // its thread is there from here on
  for (int r = 0; r < rounds; ++r) {
    all.meet();
    all.begun[0][r][me] = now();
    const auto made = groups.get(static_cast<std::uint64_t>(r) + 2);
    all.ended[0][r][me] = now();
    all.meet();
    all.begun[1][r][me] = now();
    const auto links = plain_mesh(me, plain, mine);
    all.ended[1][r][me] = now();
    all.meet();
  }
  constexpr int hits = 100'000;
  const double begin = now();
  for (int i = 0; i < hits; ++i) benchmark::DoNotOptimize(groups.find(rounds + 1).get());
  all.hit[me] = (now() - begin) / hits;
  all.meet();
}

void full_mesh(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* const at = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return state.SkipWithError("no memory to share");
    board& all = *new (at) board(static_cast<unsigned>(count));
    std::vector<listening_socket> at_doors, at_plain;
    std::vector<std::string> doors, plain;
    for (std::size_t d = 0; d < count; ++d) {
      for (auto [list, names] : {std::pair{&at_doors, &doors}, std::pair{&at_plain, &plain}}) {
        list->emplace_back("127.0.0.1:0");
        names->push_back("127.0.0.1:" + std::to_string(list->back().port()));
      }
    }
    std::vector<pid_t> processes;
    for (std::size_t d = 0; d < count; ++d) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::alarm(60);  // who is waited for in vain ends all
        take_part(d, doors, plain, at_doors, at_plain, all);
        ::_exit(0);
      }
      processes.push_back(pid);
    }
    bool well = true;
    for (const pid_t pid : processes) {
      int status = 0;
      well = ::waitpid(pid, &status, 0) == pid && status == 0 && well;
    }
    if (!well) return state.SkipWithError("a process failed");
    state.counters["ms"] = 1e3 * all.least_of(0, count);
    state.counters["ratio"] = all.least_of(0, count) / all.least_of(1, count);
    state.counters["hit_ns"] = 1e9 * *std::min_element(all.hit, all.hit + count);
    ::munmap(at, sizeof(board));
  }
}
BENCHMARK(full_mesh)->Arg(2)->Arg(8)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
