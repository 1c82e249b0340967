// SPDX-License-Identifier: Apache-2.0
// Where the devices of one process meet, one thread each: a barrier that knows the largest of what they bring, and that
// ends in an exception with a sentence, never a hang, where one of them fails, leaves or does not come.
// Builds on: exec/patience.hpp, base/integer.hpp and the threads of C++.
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
#include <reshard/exec/patience.hpp>

namespace reshard {

/// A barrier for the devices of one process; all get the largest value, or an exception where one fails or is late.
class rendezvous {
 public:
  rendezvous(rank_t devices, patience wait)
      : devices_(devices), wait_(wait), here_(counted(devices), false), gone_(here_) {}

  rank_t devices() const { return devices_; }
  patience waits() const { return wait_; }

  /// The largest of the values that all devices call with; nobody returns before all have called. The sentence of a
  /// device that waits in vain says at the end of which stage, where one is given.
  std::int64_t all_reduce_max(rank_t device, std::int64_t value, index_t stage = -1) {
    std::unique_lock lock(mutex_);
    require_whole();
    largest_ = arrived_ == 0 ? value : std::max(largest_, value);
    here_[static_cast<std::size_t>(device)] = true;
    if (++arrived_ == devices()) {
      arrived_ = 0;
      std::fill(here_.begin(), here_.end(), false);
      result_ = largest_;
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
  /// Called when the world breaks, and must not call back: wakes those who wait elsewhere.
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
  std::int64_t largest_ = 0;
  std::int64_t result_ = 0;
  std::vector<bool> here_;
  std::vector<bool> gone_;
  std::atomic<bool> broken_ = false;
  std::string why_;
  std::function<void()> wake_;
};

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
