// SPDX-License-Identifier: Apache-2.0
// Where the devices of one process meet, one thread each: a barrier that knows the largest of what they bring, and that
// ends in an exception with a sentence, never a hang, where one of them fails, leaves or does not come.
// Builds on: transport/hub.hpp, transport/meeting.hpp and the threads of C++.
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
#include <reshard/transport/hub.hpp>
#include <reshard/transport/meeting.hpp>

namespace reshard {

/// A barrier for the devices of one process; all get the largest value, or an exception where one fails or is late.
class rendezvous {
 public:
  rendezvous(rank_t devices, patience wait)
      : devices_(devices), wait_(wait), gone_(counted(devices), false), hub_(devices) {}

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
    answer(lock, device, hub_word::of(brought), stage);
    return heard_.agreed();
  }
  /// What every device calls with, in their order.
  std::vector<std::string> gather(rank_t device, const std::string& text) {
    std::unique_lock lock(mutex_);
    answer(lock, device, {hub_word::kind::text, {}, text});
    return heard_.texts();
  }

  /// A device has so many stages in place; who waits elsewhere is woken, as on_break says.
  void confirm(rank_t device, index_t stages) {
    const std::lock_guard lock(mutex_);
    carry(hub_.on_word(device, {hub_word::kind::confirmation, {stages}, {}}));
    if (wake_) wake_();
  }
  index_t confirmed(rank_t device) const {
    const std::lock_guard lock(mutex_);
    return hub_.in_place(device);
  }
  /// Whether all have said so of so many.
  bool in_place(index_t stages) const { return placed_.load(std::memory_order_acquire) >= stages; }
  /// The devices that have not.
  std::vector<rank_t> behind(index_t stages) const {
    const std::lock_guard lock(mutex_);
    return hub_.behind(stages);
  }

  /// How often all have met: the same for all devices between two meetings.
  std::uint64_t round() {
    const std::lock_guard lock(mutex_);
    return heard_.answers();
  }

  /// A device ends its part, in good order or because of what `sentence` says; whoever waits for it then does not wait
  /// on.
  void leave(rank_t device, const std::string& sentence = {}) {
    const std::lock_guard lock(mutex_);
    if (gone_[static_cast<std::size_t>(device)]) return;
    gone_[static_cast<std::size_t>(device)] = true;
    if (sentence.empty()) end(device, {hub_word::kind::bye});
    else end(device, {hub_word::kind::given_up, {-1}, sentence});
  }
  /// A device does not wait on: the others hear why, and what it does until it leaves is its own matter.
  void give_up(rank_t device, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    end(device, {hub_word::kind::given_up, {-1}, sentence});
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
    heard_.require_whole();
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
  /// Until the hub has answered a device's word; the next answer cannot come without this device.
  void answer(std::unique_lock<std::mutex>& lock, rank_t device, hub_word mine, index_t stage = -1) {
    heard_.require_whole();
    const std::uint64_t before = heard_.answers();
    carry(hub_.on_word(device, std::move(mine)));
    const auto heard = [&] { return heard_.answers() != before || broken_; };
    if (!changed_.wait_for(lock, wait_, heard)) {
      std::string absent;
      for (const rank_t d : hub_.awaited()) absent += detail::text_of(absent.empty() ? "" : ", ", d);
      const std::string sentence = detail::text_of(
          "reshard: device ", device, " waited ", wait_.count(), " ms in vain for these devices: ", absent,
          stage < 0 ? std::string() : detail::text_of(" at the end of stage ", stage));
      end(device, {hub_word::kind::given_up, {-1}, sentence});
      throw peer_missing(sentence);
    }
    if (heard_.answers() == before) throw peer_failed(heard_.why());
  }
  /// A word that ends the world, and all who wait anywhere are woken.
  void end(rank_t device, hub_word word) {
    carry(hub_.on_word(device, std::move(word)));
    changed_.notify_all();
    if (wake_) wake_();
  }
  /// One memory hears for all devices what the hub says, which is to everyone.
  void carry(const hub::replies& said) {
    for (const hub::reply& r : said) {
      heard_.on_word(r.says);
      if (r.says.what == hub_word::kind::placed) placed_.store(heard_.placed(), std::memory_order_release);
      else broken_ = heard_.broken(), changed_.notify_all();
    }
  }

  const rank_t devices_;
  const patience wait_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> gone_;
  hub hub_;
  hub_end heard_;
  std::atomic<index_t> placed_ = 0;
  std::atomic<bool> broken_ = false;
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
  index_t confirmed() const { return all_->confirmed(device_); }
  bool in_place(index_t stages) const { return all_->in_place(stages); }
  std::vector<rank_t> behind(index_t stages) const { return all_->behind(stages); }
  void poll() {}  // words are heard where they are looked for
  void require_whole() { all_->require_unbroken(); }
  void give_up(const std::string& sentence) { all_->give_up(device_, sentence); }
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
    const auto failed = [&](std::exception_ptr& kept) {
      {
        const std::lock_guard lock(mutex);
        if (!kept) kept = std::current_exception();
      }
      here.fail(sentence_of(std::current_exception()));
    };
    try {
      body(here);
    } catch (const peer_failed&) {
      failed(secondary);
    } catch (...) {
      failed(first);
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
