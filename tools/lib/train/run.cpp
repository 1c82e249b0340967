// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <cstdio>
#include <mutex>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "../../../examples/trainer/sockets.hpp"
#include "../../../examples/trainer/threads.hpp"

namespace train {

namespace {

/// Keeps what is told, and tells it on.
listener kept(told_by_run& in, const listener& live) {
  listener l = live;
  l.step = [&in, &live](const step_report& r) {
    in.steps.push_back(r);
    if (live.step) live.step(r);
  };
  l.change = [&in, &live](const change_report& r) {
    in.changes.push_back(r);
    if (live.change) live.change(r);
  };
  l.end = [&in, &live](const end_report& r) {
    in.end = r;
    if (live.end) live.end(r);
  };
  return l;
}

/// How a process says what went wrong with it: what the last exit code of the tool is, and a sentence.
int said(const std::exception& e) {
  const bool left_range = dynamic_cast<const range_left*>(&e) != nullptr;
  if (left_range) std::fputs("reshard: ", stderr);
  if (dynamic_cast<const peer_gone*>(&e) == nullptr && dynamic_cast<const peer_failed*>(&e) == nullptr)
    std::fprintf(stderr, "%s\n", e.what());
  return left_range ? 3 : 1;
}

}  // namespace

told_by_run run_on_threads(const job& all, const listener& live) {
  told_by_run result;
  const listener l = kept(result, live);
  thread_hub hub(all.devices());
  std::exception_ptr first, secondary;
  std::mutex mutex;
  std::vector<std::thread> running;
  for (rank_t d = 0; d < all.devices(); ++d)
    running.emplace_back([&, d] {
      const auto keep = [&](std::exception_ptr& in) {
        const std::lock_guard lock(mutex);
        if (!in) in = std::current_exception();
      };
      try {
        const std::unique_ptr<world> here = hub.at(d);
        run_device(all, *here, l);
      } catch (const peer_gone&) {
        keep(secondary);
      } catch (const peer_failed&) {
        keep(secondary);
      } catch (...) {
        keep(first);
      }
    });
  for (std::thread& t : running) t.join();
  if (first) std::rethrow_exception(first);
  if (secondary) std::rethrow_exception(secondary);
  return result;
}

void run_on_sockets(const job& all, const listener& live) {
  const rank_t devices = all.devices();
  std::vector<listening_socket> for_switches, for_sums;
  std::vector<std::string> addresses, addresses_of_sums;
  for (rank_t d = 0; d < devices; ++d) {
    for_switches.emplace_back("127.0.0.1:0"), for_sums.emplace_back("127.0.0.1:0");
    addresses.push_back("127.0.0.1:" + std::to_string(for_switches.back().port()));
    addresses_of_sums.push_back("127.0.0.1:" + std::to_string(for_sums.back().port()));
  }
  std::fflush(stdout);
  for (rank_t d = 0; d < devices; ++d) {
    if (const pid_t child = ::fork(); child != 0) {
      if (child < 0) throw std::runtime_error("a process could not be started");
      continue;
    }
    int code = 0;
    try {
      const auto at = static_cast<std::size_t>(d);
      listening_socket mine = std::move(for_switches[at]), mine_of_sums = std::move(for_sums[at]);
      for_switches.clear(), for_sums.clear();
      const std::unique_ptr<world> here =
          socket_world(d, addresses, std::move(mine), addresses_of_sums, std::move(mine_of_sums));
      run_device(all, *here, live);
    } catch (const std::exception& e) {
      code = said(e);
    }
    std::fflush(stdout);
    ::_exit(code);
  }
  for_switches.clear(), for_sums.clear();
  int worst = 0;
  for (int status = 0; ::wait(&status) > 0;) worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  if (worst == 3) throw range_left("");
  if (worst != 0) throw std::runtime_error("a process failed");
}

}  // namespace train
