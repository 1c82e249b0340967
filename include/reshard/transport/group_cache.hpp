// SPDX-License-Identifier: Apache-2.0
// Groups that were made stay for the next time their members are asked for: a layout that changes among the same
// members takes no new connections. They are made in the background, so that a trainer goes on meanwhile; or, where
// what makes them wants the trainer's own thread, as it asks for them.
// Builds on: base/integer.hpp, base/patience.hpp, base/refusal.hpp.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/patience.hpp>
#include <reshard/base/refusal.hpp>

namespace reshard {

/// On which thread groups are made.
enum class groups_are_made {
  in_background,  // on one of the cache's own
  where_asked     // on that which waits for one: at the boundary
};

/// Groups by their members, in rank order (another order is another group):
///   get(m) = make(m, stop) the first time, the same group after that, until drop(m) or until `kept` others were asked
///   for since.
/// One thread at a time makes one, as NCCL wants it: the cache's, or, where they are made where asked, one that waits
/// in get; begin begins nothing then. Who asks for a group that is being made waits for it. What `make`
/// throws, all who wait hear, each in an exception of its own; the next get makes it anew.
/// Whether others have a group still is theirs: where one of its members dropped it, all do. Called by any thread, but
/// not by `make`.
template <typename Group, typename Members = std::vector<std::string>>
class group_cache {
 public:
  using pointer = std::shared_ptr<Group>;
  using maker = std::function<pointer(const Members&, std::stop_token)>;

  /// `bytes_of`: what a group takes of its device, asked once, on the thread that made it.
  explicit group_cache(maker make, std::size_t kept = 4, std::function<bytes_t(const Group&)> bytes_of = {},
                       groups_are_made where = groups_are_made::in_background)
      : make_(std::move(make)), bytes_of_(std::move(bytes_of)), kept_(kept < 1 ? 1 : kept), where_(where) {}
  group_cache(const group_cache&) = delete;
  group_cache& operator=(const group_cache&) = delete;
  /// Ends a making that is under way, and waits for that.
  ~group_cache() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      for (auto& [members, e] : entries_) e->stop.request_stop();
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  groups_are_made where() const { return where_; }
  /// Begins to make a group that is not there, where that is done in the background; no waiting.
  void begin(const Members& m) {
    if (where_ == groups_are_made::where_asked) return;
    const std::lock_guard lock(mutex_);
    static_cast<void>(entry_of(m));
  }
  /// The group, where it is made: no waiting, no system call. Nothing elsewhere.
  pointer find(const Members& m) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(m);
    return at == entries_.end() ? pointer() : used(*at->second);
  }
  /// Waits until the group is made. Throws a refusal where its making threw one, and peer_failed with the sentence of
  /// anything else it threw, or where `stop` is requested before; a making on this thread `stop` ends for all who wait.
  pointer get(const Members& m, const std::stop_token& stop = {}) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<entry> e = entry_of(m);
    if (where_ == groups_are_made::where_asked) make_here(e, stop, lock);
    if (!e->made && !changed_.wait(lock, stop, [&] { return e->made; }))
      throw peer_failed("reshard: a group is not waited for any more");
    if (e->refused) throw refusal(e->failed);
    if (!e->failed.empty()) throw peer_failed(e->failed);
    return used(*e);
  }
  /// It broke, or nobody wants it: its making ends by the token, and it goes once nobody has it.
  void drop(const Members& m) {
    std::shared_ptr<entry> gone;  // its group goes after the lock
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(m);
    if (at == entries_.end()) return;
    gone = std::move(at->second);
    gone->stop.request_stop();
    entries_.erase(at);
  }

  /// What the groups that it has took of this device when they were made.
  bytes_t bytes() const {
    const std::lock_guard lock(mutex_);
    bytes_t all = 0;
    for (const auto& [members, e] : entries_) all += e->bytes;
    return all;
  }
  /// Groups that are made.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return made();
  }

 private:
  struct entry {
    Members members;
    std::stop_source stop;
    bool made = false;  // or failed
    pointer group;
    std::string failed;  // what its making threw said
    bool refused = false;
    bytes_t bytes = 0;
    std::uint64_t asked = 0;
  };

  std::size_t made() const {
    return static_cast<std::size_t>(
        std::count_if(entries_.begin(), entries_.end(), [](const auto& at) { return at.second->group != nullptr; }));
  }
  const pointer& used(entry& e) {
    e.asked = ++asked_;
    return e.group;
  }
  std::shared_ptr<entry> entry_of(const Members& m) {
    std::shared_ptr<entry>& e = entries_[m];
    if (e == nullptr) {
      e = std::make_shared<entry>();
      e->members = m, e->asked = ++asked_;
      if (where_ == groups_are_made::where_asked) return e;
      waiting_.push_back(e);
      if (!thread_.joinable()) thread_ = std::thread([this] { make_all(); });
      changed_.notify_all();
    }
    return e;
  }

  void make_all() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return over_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::shared_ptr<entry> e = std::move(waiting_.front());
      waiting_.pop_front();
      make(std::move(e), lock);
    }
  }
  /// On this thread, once no other one makes any; nothing where it is made, or `stop` is requested before.
  void make_here(const std::shared_ptr<entry>& e, const std::stop_token& stop, std::unique_lock<std::mutex>& lock) {
    if (!changed_.wait(lock, stop, [&] { return e->made || !makes_; }) || e->made) return;
    makes_ = true;
    {
      const std::stop_callback ends(stop, [&e] { e->stop.request_stop(); });
      make(e, lock);
    }
    makes_ = false;
    changed_.notify_all();
  }
  /// Makes one without the lock, and gives back what there is no place for any more.
  void make(std::shared_ptr<entry> e, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    entry result;
    make_one(*e, result);
    lock.lock();
    std::vector<std::shared_ptr<entry>> gone = take(e, result);
    gone.push_back(std::move(e));
    changed_.notify_all();
    lock.unlock();
    gone.clear();
    lock.lock();
  }
  void make_one(const entry& wanted, entry& result) const {
    try {
      if (wanted.stop.stop_requested()) throw peer_failed("reshard: a group was dropped before it was made");
      result.group = make_(wanted.members, wanted.stop.get_token());
      if (result.group == nullptr) throw std::logic_error("reshard: what makes groups made none");
      if (bytes_of_) result.bytes = bytes_of_(*result.group);
    } catch (const refusal& e) {
      result.group = nullptr, result.failed = e.what(), result.refused = true;
    } catch (...) {
      result.group = nullptr, result.failed = sentence_of(std::current_exception());
    }
  }
  /// What was made, for those who wait; returns what there is no place for any more.
  std::vector<std::shared_ptr<entry>> take(const std::shared_ptr<entry>& e, entry& result) {
    e->made = true, e->group = std::move(result.group), e->bytes = result.bytes;
    e->failed = std::move(result.failed), e->refused = result.refused;
    std::vector<std::shared_ptr<entry>> gone;
    const auto at = entries_.find(e->members);
    if (e->group == nullptr && at != entries_.end() && at->second == e) gone.push_back(e), entries_.erase(at);
    while (made() > kept_) {
      const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second->group == nullptr, a.second->asked) <
               std::pair(b.second->group == nullptr, b.second->asked);
      });
      gone.push_back(std::move(oldest->second));
      entries_.erase(oldest);
    }
    return gone;
  }

  maker make_;
  std::function<bytes_t(const Group&)> bytes_of_;
  std::size_t kept_;
  groups_are_made where_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool over_ = false, makes_ = false;  // the second: one who asked makes a group
  std::uint64_t asked_ = 0;
  std::map<Members, std::shared_ptr<entry>> entries_;
  std::deque<std::shared_ptr<entry>> waiting_;
  std::thread thread_;
};

}  // namespace reshard
