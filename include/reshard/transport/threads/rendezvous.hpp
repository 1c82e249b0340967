// SPDX-License-Identifier: Apache-2.0
// Where the devices of one process meet, one thread each: a barrier that knows the largest of what they bring, and that
// ends in an exception with a sentence, never a hang, where one of them fails, leaves or does not come.
// Builds on: transport/meeting.hpp and the threads of C++.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/transport/meeting.hpp>

namespace reshard {

/// A barrier for the devices of one process; all get the largest value, or an exception where one fails or is late.
class rendezvous {
 public:
  rendezvous(rank_t devices, patience wait)
      : devices_(devices), wait_(wait), here_(counted(devices), false), gone_(here_), texts_(here_.size()),
        in_place_(here_.size()) {}

  rank_t devices() const { return devices_; }
  patience waits() const { return wait_; }

  /// The largest of the values that all devices call with; nobody returns before all have called. The sentence of a
  /// device that waits in vain says at the end of which stage, where one is given.
  std::int64_t all_reduce_max(rank_t device, std::int64_t value, index_t stage = -1) {
    return agree(device, {value}, stage).largest_for(device);
  }
  /// Waits for all devices, and returns what they agree on of all that they propose.
  agreement agree(rank_t device, const proposal& brought, index_t stage = -1) {
    std::unique_lock lock(mutex_);
    require_whole();
    so_far_.add(device, brought, arrived_ == 0);
    here_[static_cast<std::size_t>(device)] = true;
    if (++arrived_ == devices()) {
      arrived_ = 0;
      std::fill(here_.begin(), here_.end(), false);
      result_ = so_far_;
      ++generation_;
      changed_.notify_all();
      return result_;
    }
    const std::uint64_t mine = generation_;
    const bool in_time = changed_.wait_for(lock, wait_, [&] { return generation_ != mine || broken_; });
    if (generation_ != mine) return result_;  // the next one cannot end without this device
    if (!in_time) {
      std::string absent;
      for (std::size_t d = 0; d < here_.size(); ++d)
        if (!here_[d]) absent += detail::text_of(absent.empty() ? "" : ", ", d);
      const std::string sentence = detail::text_of(
          "reshard: device ", device, " waited ", wait_.count(), " ms in vain for these devices: ", absent,
          stage < 0 ? std::string() : detail::text_of(" at the end of stage ", stage));
      break_off(sentence);
      throw peer_missing(sentence);
    }
    throw peer_failed(why_);
  }

  /// What every device calls with, in their order.
  std::vector<std::string> gather(rank_t device, const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      texts_[static_cast<std::size_t>(device)] = text;
    }
    agree(device, {});
    const std::vector<std::string> all = texts_;  // nobody brings another before all have this
    agree(device, {});
    return all;
  }

  /// A device has so many stages in place; who waits elsewhere is woken, as on_break says.
  void confirm(rank_t device, index_t stages) {
    in_place_[static_cast<std::size_t>(device)].store(stages, std::memory_order_release);
    if (wake_) wake_();
  }
  /// Whether all have said so of so many.
  bool in_place(index_t stages) const {
    return std::all_of(in_place_.begin(), in_place_.end(), [stages](const std::atomic<index_t>& of_device) {
      return of_device.load(std::memory_order_acquire) >= stages;
    });
  }
  /// The devices that have not.
  std::vector<rank_t> behind(index_t stages) const {
    std::vector<rank_t> result;
    for (std::size_t d = 0; d < in_place_.size(); ++d)
      if (in_place_[d].load(std::memory_order_acquire) < stages) result.push_back(static_cast<rank_t>(d));
    return result;
  }

  /// How often all have met: the same for all devices between two meetings.
  std::uint64_t round() {
    const std::lock_guard lock(mutex_);
    return generation_;
  }

  /// A device ends its part, in good order or because of what `sentence` says; whoever waits for it then does not wait
  /// on.
  void leave(rank_t device, const std::string& sentence = {}) {
    const std::lock_guard lock(mutex_);
    if (gone_[static_cast<std::size_t>(device)]) return;
    gone_[static_cast<std::size_t>(device)] = true;
    break_off(sentence.empty() ? detail::text_of("reshard: device ", device, " has left; a world serves one run")
                               : sentence);
  }
  /// A device does not wait on: the others hear why, and what it does until it leaves is its own matter.
  void give_up(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    break_off(sentence);
  }
  /// After a failure: returns once every device has failed or left, so that nobody still reads this one's memory.
  void leave_together(rank_t device, const std::string& sentence) {
    leave(device, sentence);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, wait_, [&] { return std::find(gone_.begin(), gone_.end(), false) == gone_.end(); });
  }

  bool broken() const { return broken_; }
  /// Throws peer_failed once a device has failed or left.
  void require_unbroken() {
    if (!broken_) return;
    const std::lock_guard lock(mutex_);
    require_whole();
  }
  /// Called when the world breaks, or a device confirms, and must not call back: wakes those who wait elsewhere.
  void on_break(std::function<void()> wake) { wake_ = std::move(wake); }

 private:
  static std::size_t counted(rank_t devices) {
    constexpr rank_t most = 1 << 12;  // each is a thread
    if (devices < 1 || devices > most)
      refuse("a world of ", devices, " devices in one process; 1 to ", most, " are legal");
    return static_cast<std::size_t>(devices);
  }
  void require_whole() const {
    if (broken_) throw peer_failed(why_);
  }
  void break_off(const std::string& sentence) {
    if (!broken_) why_ = sentence;
    broken_ = true;
    changed_.notify_all();
    if (wake_) wake_();
  }

  const rank_t devices_;
  const patience wait_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t generation_ = 0;
  rank_t arrived_ = 0;
  agreement so_far_, result_;
  std::vector<bool> here_;
  std::vector<bool> gone_;
  std::vector<std::string> texts_;
  std::vector<std::atomic<index_t>> in_place_;
  std::atomic<bool> broken_ = false;
  std::string why_;
  std::function<void()> wake_;
};

/// One device's end of a rendezvous, as a meeting. Its destruction is that the device leaves.
class meeting_of_threads {
 public:
  meeting_of_threads(rendezvous& all, rank_t device) : all_(&all), device_(device) {}
  meeting_of_threads(const meeting_of_threads&) = delete;
  meeting_of_threads& operator=(const meeting_of_threads&) = delete;
  ~meeting_of_threads() { all_->leave(device_); }

  rank_t device() const { return device_; }
  rank_t devices() const { return all_->devices(); }
  patience waits() const { return all_->waits(); }
  std::vector<rank_t> absent() const { return {}; }
  agreement agree(const proposal& mine) { return all_->agree(device_, mine); }
  std::vector<std::string> gather(const std::string& text) { return all_->gather(device_, text); }
  void confirm(index_t stages) { all_->confirm(device_, stages); }
  bool in_place(index_t stages) const { return all_->in_place(stages); }
  std::vector<rank_t> behind(index_t stages) const { return all_->behind(stages); }
  void poll() {}  // words are heard where they are looked for
  void require_whole() { all_->require_unbroken(); }
  void give_up(const std::string& sentence) { all_->give_up(sentence); }
  void fail(const std::string& sentence) { all_->leave_together(device_, sentence); }

 private:
  rendezvous* all_;
  rank_t device_;
};
static_assert(Meeting<meeting_of_threads>);

/// Runs body(endpoint) on a thread per device of an in-process world and waits for all of them. Throws what the first
/// device that failed by itself threw.
template <typename World, typename Body>
void run_devices(World& world, Body&& body) {
  std::mutex mutex;
  std::exception_ptr first, secondary;
  const auto of_device = [&](rank_t d) {
    auto here = world.at(d);
    const auto failed = [&](std::exception_ptr& kept, const char* sentence) {
      {
        const std::lock_guard lock(mutex);
        if (!kept) kept = std::current_exception();
      }
      here.fail(sentence);
    };
    try {
      body(here);
    } catch (const peer_failed& e) {
      failed(secondary, e.what());
    } catch (const std::exception& e) {
      failed(first, e.what());
    } catch (...) {
      failed(first, "reshard: an exception of no standard kind");
    }
  };
  std::vector<std::thread> running;
  try {
    for (rank_t d = 0; d < world.devices(); ++d) running.emplace_back(of_device, d);
  } catch (const std::exception& e) {  // no more threads: those that run are told
    for (rank_t d = static_cast<rank_t>(running.size()); d < world.devices(); ++d) world.leave(d, e.what());
    for (std::thread& t : running) t.join();
    throw;
  }
  for (std::thread& t : running) t.join();
  if (first) std::rethrow_exception(first);
  if (secondary) std::rethrow_exception(secondary);
}

}  // namespace reshard
