// SPDX-License-Identifier: Apache-2.0
// The life of a communicator: its background, whether it is ready, how it is reclaimed, what is left.
#include "communicator.hpp"

#include <cstdlib>
#include <thread>

#include "nccl_leaks.hpp"

namespace emulation {
namespace {

struct all_communicators {
  std::mutex lock;
  std::vector<ncclComm*> list;
};
all_communicators& all() {
  static all_communicators* these = new all_communicators;
  return *these;
}
void work_for(ncclComm* comm, std::uint64_t name) {
  dice random(name);
  make_current(comm->device);
  std::unique_lock hold(comm->lock);
  while (true) {
    comm->changed.wait(hold, [&] { return comm->ends || !comm->jobs.empty(); });
    if (comm->jobs.empty()) return;
    const std::function<void()> job = std::move(comm->jobs.front());
    comm->jobs.pop_front();
    hold.unlock();
    for (std::uint64_t i = random.below(3); i > 0; --i) take_time(random);  // ncclInProgress for a while
    job();
    hold.lock();
    comm->working = !comm->jobs.empty();
    comm->changed.notify_all();
  }
}

}  // namespace

std::string text(const ncclComm* comm) {
  return "communicator " + std::to_string(comm->number) + " (rank " + std::to_string(comm->rank) + " of " +
         std::to_string(comm->ranks) + ")";
}
ncclComm* alive(ncclComm* comm, const char* caller) {
  const std::lock_guard hold(all().lock);
  for (ncclComm* c : all().list)
    if (c == comm) {
      if (!c->alive) stop(std::string(caller) + " uses " + text(c) + ", which was destroyed or aborted");
      return c;
    }
  stop(std::string(caller) + " uses " + address_text(comm) + ", which is no communicator");
}
ncclResult_t ready(ncclComm* comm, const char* caller) {
  alive(comm, caller);
  if (comm->aborted) stop(std::string(caller) + " uses " + text(comm) + ", which is being aborted");
  const auto state = static_cast<ncclResult_t>(comm->state.load());
  if (state != ncclInProgress) return state;
  static const bool answers = setting_is("EMULATION_EARLY_USE", "answer");
  if (!answers)
    stop(std::string(caller) + " uses " + text(comm) + " before ncclCommGetAsyncError has told ncclSuccess");
  return ncclInvalidArgument;
}
ncclComm* make_communicator(int ranks, int rank, bool blocking) {
  auto* comm = new ncclComm;
  comm->ranks = ranks, comm->rank = rank, comm->blocking = blocking, comm->device = current_device();
  comm->posted.resize(static_cast<std::size_t>(ranks));
  comm->met.resize(static_cast<std::size_t>(ranks));
  const std::uint64_t name = next_name();
  {
    const std::lock_guard hold(all().lock);
    comm->number = all().list.size();
    all().list.push_back(comm);
  }
  std::thread(work_for, comm, name).detach();
  return comm;
}
void in_background(ncclComm* comm, std::function<void()> job) {
  const std::lock_guard hold(comm->lock);
  comm->jobs.push_back(std::move(job));
  comm->working = true;
  comm->changed.notify_all();
}
void await_background(ncclComm* comm, const char* caller, bool for_ever_is_a_fault) {
  std::unique_lock hold(comm->lock);
  const auto idle = [&] { return !comm->working; };
  if (!for_ever_is_a_fault) return comm->changed.wait(hold, idle);
  if (!comm->changed.wait_for(hold, patience(), idle))
    stop(std::string(caller) + " of " + text(comm) + " has waited " +
         std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(patience()).count()) +
         " ms for a peer that does not come, and would for ever");
}
void fails_with(ncclComm* comm, ncclResult_t result, const std::string& why) {
  {
    const std::lock_guard hold(comm->lock);
    comm->error = why;
  }
  comm->state = result;
}

void reclaim(ncclComm* comm, const char* caller) {
  await_background(comm, caller, true);
  const auto until = clock::now() + patience();
  while (comm->in_flight > 0) {
    if (clock::now() > until)
      stop(std::string(caller) + " of " + text(comm) + ": its kernels wait behind other work of the device");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (comm->aborted && !only_pinned_waits())
    drain(std::string(caller) + " of " + text(comm) + ", which frees device memory and so");
  else may_drain(draining::freeing, caller);
  uncount_own(comm->device, comm->own_bytes);
  comm->registrations.clear();
  {
    const std::lock_guard hold(comm->lock);
    comm->ends = true;
    comm->changed.notify_all();
  }
  comm->alive = false;
  comm->shared.reset();
}
bool is_registered(const ncclComm* comm, const std::byte* at, std::size_t bytes) {
  for (const auto& [key, r] : comm->registrations)
    if (at >= r.begin && bytes <= r.bytes && at - r.begin <= static_cast<std::ptrdiff_t>(r.bytes - bytes)) return true;
  return false;
}
std::vector<std::string> nccl_leaks() {
  const std::lock_guard hold(all().lock);
  std::vector<std::string> left;
  for (const ncclComm* c : all().list) {
    if (!c->alive) continue;
    left.push_back(text(c) + " was neither destroyed nor aborted");
    for (const auto& [key, r] : c->registrations)
      left.push_back("a registration of " + std::to_string(r.bytes) + " bytes with " + text(c) + " was not taken back");
  }
  return left;
}

/// ncclMemFree of what a communicator still knows.
void check_not_registered(const void* at, std::size_t bytes) {
  const std::lock_guard hold(all().lock);
  const auto* begin = static_cast<const std::byte*>(at);
  for (const ncclComm* c : all().list)
    if (c->alive)
      for (const auto& [key, r] : c->registrations)
        if (begin < r.begin + r.bytes && r.begin < begin + bytes)
          stop("ncclMemFree of memory that is still registered with " + text(c));
}

}  // namespace emulation
