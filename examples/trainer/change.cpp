// SPDX-License-Identifier: Apache-2.0
#include "change.hpp"

#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <set>

#include <sys/resource.h>
#include <unistd.h>

#include <reshard/job/small_state.hpp>
#include <reshard/plan/volume.hpp>

namespace trainer {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Sums mod 2^64 over the ranks, 16 bits at a time.
digests summed(group& all, const digests& mine) {
  std::vector<double> parts;
  for (const std::uint64_t sum : mine.of)
    for (int shift = 0; shift < 64; shift += 16) parts.push_back(static_cast<double>(sum >> shift & 0xFFFF));
  all.sum(parts);
  digests result;
  for (std::size_t i = 0; i < parts.size(); ++i)
    result.of[i / 4] += static_cast<std::uint64_t>(parts[i]) << (16 * (i % 4));
  return result;
}

/// What all devices have of a list of numbers each.
template <typename T>
std::vector<T> gathered(world& here, const T& mine) {
  std::vector<T> all;
  for (const std::string& text : here.gather({reinterpret_cast<const char*>(&mine), sizeof mine})) {
    T of{};
    std::memcpy(&of, text.data(), sizeof of);
    all.push_back(of);
  }
  return all;
}

/// The integers that a job keeps beside its tensors; who comes gets them from who is there.
struct small {
  std::int64_t step = 0, cursor = 0, seed = 0;

  small carried(world& here, bool known) const {
    small_state mine;
    if (known) {
      mine.add_same("step", std::as_bytes(std::span(&step, 1)));
      mine.add_same("cursor", std::as_bytes(std::span(&cursor, 1)));
      mine.add_same("seed", std::as_bytes(std::span(&seed, 1)));
    }
    const small_state all = here.carry(mine);
    small result;
    std::memcpy(&result.step, all.bytes_of({"step"}).data(), sizeof result.step);
    std::memcpy(&result.cursor, all.bytes_of({"cursor"}).data(), sizeof result.cursor);
    std::memcpy(&result.seed, all.bytes_of({"seed"}).data(), sizeof result.seed);
    return result;
  }
};

/// What the threads of all devices computed, and the most memory that their processes had.
void use_resources(world& here, end_report& end) {
  struct of_device {
    pid_t process;
    double cpu_seconds;
    bytes_t peak_bytes;
  };
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  rusage most{};
  ::getrusage(RUSAGE_SELF, &most);
  std::set<pid_t> met;
  for (const of_device& d : gathered<of_device>(
           here, {::getpid(), static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec),
                  most.ru_maxrss * 1024})) {
    end.cpu_seconds += d.cpu_seconds;
    if (met.insert(d.process).second) end.peak_bytes += d.peak_bytes;
  }
}

rank_t rank_on(const phase& at, rank_t device) {
  for (std::size_t r = 0; r < at.devices.size(); ++r)
    if (at.devices[r] == device) return static_cast<rank_t>(r);
  return -1;
}

/// What a device has under one layout; nothing where it has no rank.
struct seat {
  rank_t rank = -1;
  std::unique_ptr<rank_state> state;
  groups with;
  std::unique_ptr<rank_trainer> trainer;

  seat(const job& all, world& here, const phase& of, pages_are pages)
      : rank(rank_on(of, here.device())),
        state(std::make_unique<rank_state>(computed_holding(of.layout), rank, of.text, pages)) {
    if (rank < 0) return;
    with = groups::make(here, of.layout, rank, of.devices);
    trainer = std::make_unique<rank_trainer>(all.z, all.set, all.data, *state, with);
  }
};

/// A switch: the state moves from the arrays of one layout to those of the next (here.move), and what is measured
/// around it. Nothing else of the trainer knows.
change_report switched(const job& all, world& here, const phase& from, const phase& to, small& known,
                       std::unique_ptr<seat>& at) {
  change_report told{.step = to.step, .from = from.text, .to = to.text};
  if (at->rank >= 0) {
    at->trainer->gather();
    told.before = summed(*at->with.all, at->state->digest());
  }
  const computed_switch change(
      from.layout, to.layout,
      {.from = device_map(from.devices), .to = device_map(to.devices), .devices = here.devices()});
  const double came = now();
  here.barrier();
  auto next = std::make_unique<seat>(all, here, to, pages_are::reserved);
  const switch_report moved = here.move(change, at->state->tensors(), next->state->tensors(), {.budget = all.budget});
  const bool had_rank = at->rank >= 0;
  known = known.carried(here, had_rank);
  at = std::move(next);
  const double done = now();
  struct of_device {
    double came, done;
    bytes_t moved, excess;
    digests before;
    bool knows;
  };
  double last = came, first = came, end = done;
  for (const of_device& d : gathered<of_device>(
           here, {came, done, moved.received - moved.passed_on, moved.memory.excess(), told.before, had_rank})) {
    last = std::max(last, d.came), first = std::min(first, d.came), end = std::max(end, d.done);
    told.moved += d.moved, told.excess = std::max(told.excess, d.excess);
    if (d.knows) told.before = d.before;
  }
  told.seconds = end - last, told.wait_seconds = last - first;
  if (at->rank == 0) told.least = moved_bytes(change);
  if (at->rank >= 0) {
    if (all.after_switch) all.after_switch(to.step, *at->state, at->with);
    told.after = summed(*at->with.all, at->state->digest());
  }
  return told;
}

/// What all ranks know together; where a sum left its range, all know that too, and rank 0 says it.
scalars scalars_of(seat& at) {
  try {
    return at.trainer->scalar();
  } catch (const range_left&) {
    if (at.rank == 0) throw;
    throw peer_gone("rank 0 says which sum left its range");
  }
}

void train(const job& all, world& here, const listener& told) {
  auto current = all.phases.begin();
  auto at = std::make_unique<seat>(all, here, *current, pages_are::committed);
  if (at->rank >= 0) at->state->initialize(all.set.seed);
  small known{0, 0, static_cast<std::int64_t>(all.set.seed)};
  for (index_t step = 0; step < all.steps; ++step) {
    if (current + 1 != all.phases.end() && current[1].step == step) {
      const change_report change = switched(all, here, current[0], current[1], known, at);
      ++current;
      if (at->rank == 0 && told.change) told.change(change);
    }
    if (at->rank < 0) continue;  // this device waits for the next switch
    const double begin = now();
    const serial_cursor cursor{known.cursor};
    at->trainer->gradients(cursor, known.step, all.bad);
    const scalars of = scalars_of(*at);
    at->trainer->update(known.step, of.norm, all.bad);
    ++known.step, known.cursor = cursor.after(all.z.batch).used;
    if (at->rank == 0 && told.step)
      told.step({step, of, current->text, static_cast<rank_t>(current->devices.size()), rate_at(step, all.set.total),
                 now() - begin});
  }
  end_report end{known.step, known.cursor, static_cast<std::uint64_t>(known.seed)};
  if (at->rank >= 0) {
    at->trainer->gather();
    end.digest = summed(*at->with.all, at->state->digest());
    if (told.finish) told.finish(*at->state, at->with);
  }
  use_resources(here, end);
  if (at->rank == 0 && told.end) told.end(end);
}

}  // namespace

rank_t job::devices() const {
  rank_t most = 0;
  for (const phase& p : phases)
    for (const rank_t d : p.devices) most = std::max(most, d + 1);
  return most;
}

void run_device(const job& all, world& here, const listener& told) {
  try {
    train(all, here, told);
    here.barrier();  // nobody leaves before all are done
  } catch (...) {
    here.close();
    throw;
  }
}

}  // namespace trainer
