// SPDX-License-Identifier: Apache-2.0
#include "threads.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include <reshard/job/exchange_small_state.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/thread_group.hpp>

namespace trainer {

namespace {

/// A barrier that can be closed, and what each of its threads posted.
struct meeting {
  explicit meeting(std::size_t size) : doubles(size), floats(size), posts(size), kept(size) {}

  /// Between two waits all may read what the others posted: the first one begins that, the last one ends it.
  enum class reading { none, begins, goes_on, ends };
  /// Returns once all have come, or throws once it is closed; but what others may still be reading lies with this
  /// thread, so it throws once nobody reads.
  void wait(reading what = reading::none) {
    std::unique_lock lock(mutex);
    if ((what == reading::goes_on || what == reading::ends) && --readers == 0) changed.notify_all();
    if (!closed) {
      const auto mine = generation;
      if (++arrived == posts.size()) {
        readers = what == reading::begins || what == reading::goes_on ? posts.size() : 0;
        arrived = 0, ++generation;
        changed.notify_all();
        return;
      }
      changed.wait(lock, [&] { return generation != mine || closed; });
      if (generation != mine) return;
      --arrived;
    }
    changed.wait(lock, [&] { return readers == 0; });
    throw peer_gone("a rank of this group is gone");
  }
  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t arrived = 0, generation = 0, readers = 0;
  bool closed = false;
  std::vector<std::span<double>> doubles;
  std::vector<std::span<float>> floats;
  std::vector<bytes> posts;
  std::vector<std::vector<std::byte>> kept;  // what is posted, for as long as anybody has this group
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;
};

class thread_ranks final : public group {
 public:
  thread_ranks(std::shared_ptr<meeting> of, int rank) : of_(std::move(of)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(of_->posts.size()); }
  void sum(std::span<double> values) override {
    reduce(of_->doubles, values, [](double& to, double x) { to += x; });
  }
  void max(std::span<float> values) override {
    reduce(of_->floats, values, [](float& to, float x) { to = std::max(to, x); });
  }
  std::vector<bytes> exchange(bytes mine) override {
    of_->wait();  // nobody reads the last posts any more
    std::vector<std::byte>& kept = of_->kept[static_cast<std::size_t>(rank_)];
    kept.assign(mine.begin(), mine.end());
    of_->posts[static_cast<std::size_t>(rank_)] = kept;
    of_->wait();
    return of_->posts;
  }
  void send(int to, bytes mine) override {
    const std::lock_guard lock(of_->mutex);
    of_->mail[{rank_, to}].emplace_back(mine.begin(), mine.end());
    of_->changed.notify_all();
  }
  void receive(int from, std::span<std::byte> into) override {
    std::unique_lock lock(of_->mutex);
    auto& box = of_->mail[{from, rank_}];
    of_->changed.wait(lock, [&] { return !box.empty() || of_->closed; });
    if (box.empty()) throw peer_gone("a rank of this pipeline is gone");
    if (box.front().size() != into.size()) throw std::logic_error("a message of another size than is received");
    std::copy(box.front().begin(), box.front().end(), into.begin());
    box.pop_front();
  }

 private:
  /// Each reduces one part of all, and reads the others' parts.
  template <typename T, typename Into>
  void reduce(std::vector<std::span<T>>& all, std::span<T> mine, Into&& into) {
    const auto ranks = all.size(), me = static_cast<std::size_t>(rank_);
    const auto begin = [&](std::size_t r) { return mine.size() * r / ranks; };
    all[me] = mine;
    of_->wait(meeting::reading::begins);
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t i = begin(me); r != me && i < begin(me + 1); ++i) into(mine[i], all[r][i]);
    of_->wait(meeting::reading::goes_on);
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != me)
        std::copy(all[r].begin() + static_cast<std::ptrdiff_t>(begin(r)),
                  all[r].begin() + static_cast<std::ptrdiff_t>(begin(r + 1)),
                  mine.begin() + static_cast<std::ptrdiff_t>(begin(r)));
    of_->wait(meeting::reading::ends);
  }

  std::shared_ptr<meeting> of_;
  int rank_;
};

}  // namespace

struct thread_hub::meetings {
  explicit meetings(rank_t devices) : transport(devices) {}

  std::shared_ptr<meeting> of(const std::vector<rank_t>& members) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<meeting>& found = by_members[members];
    if (found == nullptr) found = std::make_shared<meeting>(members.size());
    if (closed) found->close();
    return found;
  }
  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    for (auto& [members, m] : by_members) m->close();
  }

  thread_group transport;  // of switches
  std::mutex mutex;
  bool closed = false;
  std::map<std::vector<rank_t>, std::shared_ptr<meeting>> by_members;
};

namespace {

template <typename Meetings>
class thread_world final : public world {
 public:
  thread_world(Meetings& all, rank_t device) : all_(all), end_(all.transport, device) {}
  rank_t device() const override { return end_.device(); }
  rank_t devices() const override { return end_.devices(); }
  std::unique_ptr<group> make(const std::vector<rank_t>& members) override {
    const auto me = std::find(members.begin(), members.end(), device());
    return std::make_unique<thread_ranks>(all_.of(members), static_cast<int>(me - members.begin()));
  }
  void close() override {
    all_.close();
    all_.transport.leave(device(), "reshard: the job was closed");
  }
  switch_report move(const computed_switch& change, binding& before, binding& after,
                     const switch_options& options) override {
    return switch_state(change, before, after, end_, options);
  }
  small_state carry(const small_state& mine) override { return exchange_small_state(mine, {}, end_); }
  std::vector<std::string> gather(const std::string& mine) override { return end_.gather(mine); }

 private:
  Meetings& all_;
  thread_group::endpoint end_;
};

}  // namespace

thread_hub::thread_hub(rank_t devices) : all_(std::make_unique<meetings>(devices)) {}
thread_hub::~thread_hub() = default;
std::unique_ptr<world> thread_hub::at(rank_t device) { return std::make_unique<thread_world<meetings>>(*all_, device); }

}  // namespace trainer
