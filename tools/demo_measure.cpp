// SPDX-License-Identifier: Apache-2.0
// What a child process of the demo measures; see demo_measure.hpp.
#include "demo_measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>

#include <unistd.h>

#include <reshard/cost/direct_stages.hpp>
#include <reshard/io/arguments.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/sockets.hpp>
#include <reshard/transport/thread_group.hpp>

#include "demo_found.hpp"
#include "demo_processes.hpp"

namespace demo {

using namespace reshard;

using namespace reshard::io;

namespace {

constexpr int warm_repetitions = 9;

/// From the first begin to the last end of several threads.
class stopwatch {
 public:
  void begin() { note(begins_); }
  void end() { note(ends_); }
  double elapsed() const {
    return seconds(*std::max_element(ends_.begin(), ends_.end()) - *std::min_element(begins_.begin(), begins_.end()))
        .count();
  }

 private:
  void note(std::vector<instant>& list) {
    const instant now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    list.push_back(now);
  }
  std::mutex mutex_;
  std::vector<instant> begins_, ends_;
};

/// "VmHWM" of this process.
bytes_t most_resident() {
  bytes_t kib = 0;
  if (std::FILE* status = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, status) != nullptr)
      if (std::strncmp(line, "VmHWM:", 6) == 0) kib = std::strtoll(line + 6, nullptr, 10);
    std::fclose(status);
  }
  return kib * 1024;
}

bytes_t bytes_before(const computed_switch& change, rank_t device) {
  return held_bytes(change.from(), change.from_rank(device));
}
bytes_t bytes_after(const computed_switch& change, rank_t device) {
  return held_bytes(change.to(), change.to_rank(device));
}

/// Storage of every device for its rank on one side, of the states that move; none where it has no rank.
template <typename RankOf>
std::vector<rank_storage> storage_of(const computed_holding& h, rank_t devices, RankOf&& rank_of,
                                     const std::string& side, pages_are at_first) {
  std::vector<rank_storage> all;
  for (rank_t d = 0; d < devices; ++d) {
    if (const rank_t rank = rank_of(d); rank < 0) all.emplace_back();
    else all.emplace_back(h, rank, "rank " + std::to_string(rank) + " of " + side, at_first);
  }
  return all;
}

/// The switch, once under the budget or several times between memory that is all there; the best time, and what it did.
template <typename World>
void measure_switch(const switch_request& request, measurement kind) {
  const computed_switch change = switch_of(request);
  const bool warm = kind == measurement::warm;
  const rank_t devices = change.devices();
  auto before = storage_of(
      change.from(), devices, [&](rank_t d) { return change.from_rank(d); }, "FROM", pages_are::reserved);
  auto after = storage_of(
      change.to(), devices, [&](rank_t d) { return change.to_rank(d); }, "TO",
      warm ? pages_are::committed : pages_are::reserved);
  thread_group(devices).run(
      [&](auto& here) { fill(before[static_cast<std::size_t>(here.device())].tensors(), change.from()); });

  const switch_options options{.budget = warm ? no_budget : request.budget,
                               .after_use = warm ? sources::keep : sources::release,
                               .route = route_of(request)};
  std::vector<found_by_device> found(before.size());
  double best = 0;
  for (int i = 0; i < (warm ? warm_repetitions : 1); ++i) {
    World(devices).run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      switch_once(change, before[d].tensors(), after[d].tensors(), here, options, found[d]);
    });
    best = i == 0 ? elapsed(found) : std::min(best, elapsed(found));
  }
  const bytes_t resident = most_resident();
  thread_group(devices).run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    found[d].compared = compare(after[d].tensors(), change.to());
  });
  tell_found(found, request, best);
  tell("vmhwm_bytes", resident);
}

/// The same, once, between processes.
void measure_processes(const switch_request& request, measurement kind) {
  const bool warm = kind == measurement::warm;
  const computed_switch change = switch_of(request);
  const std::vector<found_by_device> found = on_processes<found_by_device>(
      change.devices(),
      [&](rank_t device, const std::vector<std::string>& addresses, listening_socket listening, found_by_device& mine) {
        socket_endpoint here(device, addresses, std::move(listening), std::chrono::minutes(1));
        const rank_t was = change.from_rank(device), is = change.to_rank(device);
        rank_storage before, after;
        if (was >= 0) before = rank_storage(change.from(), was, "rank " + std::to_string(was) + " of FROM");
        if (is >= 0)
          after = rank_storage(change.to(), is, "rank " + std::to_string(is) + " of TO",
                               warm ? pages_are::committed : pages_are::reserved);
        fill(before.tensors(), change.from());
        switch_once(change, before.tensors(), after.tensors(), here,
                    {.budget = warm ? no_budget : request.budget,
                     .after_use = warm ? sources::keep : sources::release,
                     .route = route_of(request)},
                    mine);
        mine.compared = compare(after.tensors(), change.to());
      });
  tell_found(found, request, elapsed(found));
}

/// memcpy of what the switch moves and keeps, a thread per device: in as many stages, pages committed before they are
/// written and released after they are read, or (warm) at once between memory that is all there.
void measure_copy(const switch_request& request, measurement kind) {
  const computed_switch change = switch_of(request);
  const bool warm = kind == measurement::warm_copy;
  const rank_t devices = change.devices();
  std::vector<page_range> source, target;
  std::vector<rank_t> first_with_source;
  for (rank_t d = 0; d < devices; ++d) {
    source.emplace_back(std::max<bytes_t>(bytes_before(change, d), 1));
    target.emplace_back(std::max<bytes_t>(bytes_after(change, d), 1));
    if (bytes_before(change, d) > 0) first_with_source.push_back(d);
  }
  thread_group(devices).run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    if (const bytes_t bytes = bytes_before(change, here.device()); bytes > 0)
      std::memset(source[d].data(), 1, static_cast<std::size_t>(bytes));
    if (warm) target[d].commit(0, target[d].bytes());
  });
  const index_t stages = warm ? 1 : direct_stages(change, {0, devices}, request.budget).stages;
  double best = 0;
  for (int i = 0; i < (warm ? warm_repetitions : 1); ++i) {
    stopwatch watch;
    thread_group(devices).run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      const rank_t reads =
          bytes_before(change, here.device()) > 0 ? here.device() : first_with_source[d % first_with_source.size()];
      page_range &into = target[d], &from = source[static_cast<std::size_t>(reads)];
      const bytes_t own = bytes_before(change, here.device());
      const interval all{0, bytes_after(change, here.device())}, readable{0, bytes_before(change, reads)};
      here.all_reduce_max(0);
      watch.begin();
      for (index_t k = 0; k < stages; ++k) {
        const interval part = even_part(all, k, stages), read = even_part(readable, k, stages);
        bytes_t at = read.begin;
        for (bytes_t to = part.begin; to < part.end;) {
          if (at == read.end) at = read.begin;  // more is written than there is to read
          const bytes_t step = std::min({warm ? part.end : job_bytes, part.end - to, read.end - at});
          if (!warm) into.commit(to, to + step);
          std::memcpy(into.data() + to, from.data() + at, static_cast<std::size_t>(step));
          to += step;
          at += step;
        }
        here.all_reduce_max(0);
        if (!warm && own > 0) {
          const interval drained = even_part({0, source[d].bytes() / page_bytes}, k, stages);
          source[d].release(page_span{drained.begin, drained.end});
        }
      }
      here.all_reduce_max(0);
      watch.end();
    });
    best = i == 0 ? watch.elapsed() : std::min(best, watch.elapsed());
  }
  tell_seconds(best);
}

/// The same over MPI: a program of its own, which becomes this process and starts itself under mpirun.
void measure_over_mpi(const switch_request& r) {
  const rank_t devices = switch_of(r).devices();
  std::vector<std::string> words = {over_mpi_program(),       std::to_string(devices), r.model,     r.from, r.to,
                                    std::to_string(r.budget), r.from_devices,          r.to_devices};
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  refuse("--transport mpi: ", words[0], " cannot be started; it is built where MPI is found");
}

void measure_plan(const switch_request& request) {
  const computed_switch change = switch_of(request);
  const switch_volume volume = volume_of(change);
  bytes_t before = 0, after = 0, staged = 0;
  for (rank_t d = 0; d < change.devices(); ++d) {
    before += bytes_before(change, d);
    after += bytes_after(change, d);
    staged +=
        std::max(bytes_before(change, d), bytes_after(change, d)) + std::min(request.budget, bytes_after(change, d));
  }
  tell("ranks", change.devices());
  tell("least_bytes", volume.moved);
  tell("staged_memory_bytes", staged);
  tell("warm_memory_bytes", before + after);
}

}  // namespace

std::string over_mpi_program() {
  char path[4096] = {};
  const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string self(path, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return self.substr(0, self.rfind('/') + 1) + "demo-mpi";
}

void measure(const switch_request& what, measurement kind) {
  switch (kind) {
    case measurement::plan: return measure_plan(what);
    case measurement::staged:
      if (what.transport == "mpi") return measure_over_mpi(what);
      if (between_processes(what)) return measure_processes(what, kind);
      [[fallthrough]];
    case measurement::warm:
      if (between_processes(what)) return measure_processes(what, kind);
      if (what.transport == "mailboxes") return measure_switch<mailbox_group>(what, kind);
      return measure_switch<thread_group>(what, kind);
    case measurement::staged_copy:
    case measurement::warm_copy: return measure_copy(what, kind);
  }
}

}  // namespace demo
