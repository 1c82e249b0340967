// SPDX-License-Identifier: Apache-2.0
// The devices of one process, a thread each: every box is copied once, straight from where its source keeps it to where
// its destination does. A device that is done with a stage takes copies over from those that are not.
// Builds on: copy/copy_jobs.hpp, transport/threads/rendezvous.hpp, transport/transport.hpp, memory/zero_box.hpp.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include <reshard/copy/copy_jobs.hpp>
#include <reshard/memory/zero_box.hpp>
#include <reshard/transport/threads/rendezvous.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard {

/// The devices of one process, a thread each, that copy every box once, from its source's memory to its destination's.
class thread_group {
  /// What a device has to do; others take from it once it is open for their stage.
  struct lane {
    const binding* into = nullptr;
    job_list jobs;
    std::atomic<index_t> opened = 0;                   // slots
    std::unique_ptr<std::atomic<std::size_t>[]> next;  // per slot: the first job that nobody has taken
  };
  using lanes = std::vector<lane>;

 public:
  explicit thread_group(rank_t devices, patience wait = default_patience)
      : meeting_(devices, wait), offers_(static_cast<std::size_t>(devices)) {}

  class endpoint {
   public:
    endpoint(thread_group& world, rank_t device) : world_(&world), device_(device) {}
    endpoint(const endpoint&) = delete;
    endpoint& operator=(const endpoint&) = delete;
    ~endpoint() { world_->meeting_.leave(device_); }

    rank_t device() const { return device_; }
    rank_t devices() const { return world_->devices(); }
    transport_facts facts() const { return {}; }
    void offer(const binding& tensors) { world_->offers_[static_cast<std::size_t>(device_)] = &tensors; }
    std::int64_t all_reduce_max(std::int64_t value) { return world_->meeting_.all_reduce_max(device_, value); }
    agreement agree(const proposal& mine) { return world_->meeting_.agree(device_, mine); }
    std::vector<std::string> gather(const std::string& mine) { return world_->meeting_.gather(device_, mine); }
    void fail(const std::string& sentence) { world_->meeting_.leave_together(device_, sentence); }

    bool reaches(memory_place place) const { return place.is != memory_place::kind::device; }
    reshard::footprint footprint(const staged_plan& plan) const { return even_footprint(plan.times(), 0); }
    void fill_with_zeros(const bound_box& b) const { reshard::fill_with_zeros(b); }
    void keep_alive() const {}          // nobody is given up between two agreements
    void locate(binding&) const {}      // memory is where it says
    void check_messages(bool) const {}  // there are none
    void contact(const std::vector<rank_t>&, const std::vector<rank_t>&) const {}
    std::string disagreement(const std::shared_ptr<lanes>&) const { return {}; }
    void connect(const std::shared_ptr<lanes>&) const {}
    void settle() const {}        // nothing is under way between two calls
    void await(index_t) const {}  // move returns when all have it

    std::shared_ptr<lanes> prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
      std::shared_ptr<lanes> all = world_->lanes_of_round();
      lane& mine = lane_of(*all, device_);
      const index_t slots = plan.times().slots();
      mine.jobs = job_list(slots);
      mine.into = &into;
      mine.next = std::make_unique<std::atomic<std::size_t>[]>(static_cast<std::size_t>(slots));
      for (index_t k = 0; k < slots; ++k)
        for (const std::vector<staged_piece>* list : {&plan.receives, &plan.retains})
          for (const staged_piece& p : pieces_of_slot(*list, k)) add(mine.jobs, p, into, pages);
      mine.jobs.seal();
      for (index_t k = 0; k < slots; ++k) mine.next[static_cast<std::size_t>(k)] = mine.jobs.begin(k);
      return all;
    }

    void move(const std::shared_ptr<lanes>& all, index_t k) {
      lane& mine = lane_of(*all, device_);
      mine.opened.store(k + 1, std::memory_order_release);
      for (rank_t other = 0; other < devices(); ++other) {
        lane& at = lane_of(*all, (device_ + other) % devices());
        if (at.opened.load(std::memory_order_acquire) <= k) continue;
        std::atomic<std::size_t>& next = at.next[static_cast<std::size_t>(k)];
        for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < at.jobs.end(k);) {
          world_->meeting_.require_unbroken();
          at.jobs.run(i, *at.into);
        }
      }
      world_->meeting_.all_reduce_max(device_, 0, k);
      mine.jobs.keep_pages(k);  // nobody takes from this stage until all begin another run
      mine.next[static_cast<std::size_t>(k)] = mine.jobs.begin(k);
    }

   private:
    static lane& lane_of(lanes& all, rank_t device) { return all[static_cast<std::size_t>(device)]; }

    void add(job_list& jobs, const staged_piece& p, const binding& into, page_stages& pages) {
      const binding& from = *world_->offers_[static_cast<std::size_t>(p.src)];
      for (const int state : p.states) {
        index_t missing = p.where.volume();
        into.meet({state, p.tensor, p.where}, [&](const bound_box& target) {
          from.meet(target, [&](const bound_box& source) {
            jobs.add(p.slot(), target.narrowed(source.where), source, &pages);
            missing -= source.where.volume();
          });
        });
        if (missing != 0)
          refuse("device ", device_, ": device ", p.src, " lacks ", missing, " of ", p.where.volume(),
                 " elements that it shall send of ", into.name({state, p.tensor, p.where}));
      }
    }

    thread_group* world_;
    rank_t device_;
  };

  rank_t devices() const { return meeting_.devices(); }
  /// The end of one device, for the thread that is this device. Its destruction is that the device leaves.
  endpoint at(rank_t device) { return endpoint(*this, device); }

  /// A device that never came to be.
  void leave(rank_t device, const std::string& sentence) { meeting_.leave(device, sentence); }

  /// Calls body(endpoint) for every device, each on a thread of its own.
  template <typename Body>
  void run(Body&& body) {
    run_devices(*this, static_cast<Body&&>(body));
  }

 private:
  /// One set of lanes for all devices that prepare between two meetings.
  std::shared_ptr<lanes> lanes_of_round() {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<lanes> latest = latest_.lock();
    if (latest == nullptr || round_ != meeting_.round()) {
      latest = std::make_shared<lanes>(offers_.size());
      latest_ = latest;
      round_ = meeting_.round();
    }
    return latest;
  }

  rendezvous meeting_;
  std::vector<const binding*> offers_;  // per device
  std::mutex mutex_;
  std::weak_ptr<lanes> latest_;
  std::uint64_t round_ = 0;
};
static_assert(Transport<thread_group::endpoint>);

}  // namespace reshard
