// SPDX-License-Identifier: Apache-2.0
#include "sockets.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <reshard/job/exchange_small_state.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/sockets.hpp>

namespace trainer {

namespace {

/// A connection to every other device. Who calls says its number first.
class socket_mesh {
 public:
  socket_mesh(rank_t device, const std::vector<std::string>& addresses, const listening_socket& mine, patience wait)
      : peers_(addresses.size()) {
    const auto me = static_cast<std::size_t>(device);
    for (std::size_t d = 0; d < me; ++d) {
      while (!peers_[d].open()) peers_[d] = call_address(addresses[d], wait);
      send(d, std::as_bytes(std::span(&device, 1)));
    }
    for (std::size_t left = peers_.size() - me - 1; left > 0;) {
      pollfd calls{mine.number(), POLLIN, 0};
      if (::poll(&calls, 1, static_cast<int>(wait.count())) != 1) throw peer_gone("a device did not call");
      owned_descriptor caller = mine.accept();
      if (!caller.open()) continue;
      rank_t who = 0;
      carry({}, -1, std::as_writable_bytes(std::span(&who, 1)), caller.number());
      peers_.at(static_cast<std::size_t>(who)) = std::move(caller);
      --left;
    }
  }
  void send(std::size_t to, bytes what) { carry(what, peers_[to].number(), {}, -1); }
  void receive(std::size_t from, std::span<std::byte> into) { carry({}, -1, into, peers_[from].number()); }
  /// Both at once, so that nobody waits for somebody who waits.
  void trade(std::size_t to, bytes what, std::size_t from, std::span<std::byte> into) {
    carry(what, peers_[to].number(), into, peers_[from].number());
  }
  void close() {
    for (const owned_descriptor& p : peers_)
      if (p.open()) ::shutdown(p.number(), SHUT_RDWR);
  }

 private:
  static void carry(bytes out, int to, std::span<std::byte> in, int from) {
    while (!out.empty() || !in.empty()) {
      pollfd ready[2] = {{out.empty() ? -1 : to, POLLOUT, 0}, {in.empty() ? -1 : from, POLLIN, 0}};
      if (::poll(ready, 2, -1) < 0 && errno != EINTR) throw peer_gone("a device is gone");
      if (!out.empty() && ready[0].revents != 0)
        out = out.subspan(moved(::send(to, out.data(), out.size(), MSG_NOSIGNAL)));
      if (!in.empty() && ready[1].revents != 0) in = in.subspan(moved(::recv(from, in.data(), in.size(), 0)));
    }
  }
  static std::size_t moved(ssize_t count) {
    if (count > 0) return static_cast<std::size_t>(count);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    throw peer_gone("a device is gone, or the job was closed");
  }
  std::vector<owned_descriptor> peers_;
};

class socket_ranks final : public group {
 public:
  socket_ranks(socket_mesh& mesh, std::vector<rank_t> members, int rank)
      : mesh_(mesh), members_(std::move(members)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  void sum(std::span<double> values) override {
    reduce(values, [](double& to, double x) { to += x; });
  }
  void max(std::span<float> values) override {
    reduce(values, [](float& to, float x) { to = std::max(to, x); });
  }
  std::vector<bytes> exchange(bytes mine) override {
    kept_.assign(members_.size(), {});
    kept_[static_cast<std::size_t>(rank_)].assign(mine.begin(), mine.end());
    each_peer([&](int to, int from) {
      std::size_t size = mine.size(), theirs = 0;
      std::vector<std::byte>& post = kept_[static_cast<std::size_t>(from)];
      mesh_.trade(device(to), std::as_bytes(std::span(&size, 1)), device(from),
                  std::as_writable_bytes(std::span(&theirs, 1)));
      post.resize(theirs);
      mesh_.trade(device(to), mine, device(from), post);
    });
    return {kept_.begin(), kept_.end()};
  }
  void send(int to, bytes mine) override { mesh_.send(device(to), mine); }
  void receive(int from, std::span<std::byte> into) override { mesh_.receive(device(from), into); }

 private:
  std::size_t device(int rank) const { return static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)]); }
  /// In round i: to who comes i after this one, from who comes i before it.
  template <typename Visit>
  void each_peer(Visit&& visit) const {
    for (int i = 1; i < size(); ++i) {
      visit((rank_ + i) % size(), (rank_ + size() - i) % size());
    }
  }
  /// Each reduces one part of all, and has the others' parts from them.
  template <typename T, typename Into>
  void reduce(std::span<T> mine, Into&& into) {
    const auto part = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank), begin = mine.size() * r / members_.size();
      return mine.subspan(begin, mine.size() * (r + 1) / members_.size() - begin);
    };
    std::vector<T> theirs(part(rank_).size()), sum(part(rank_).begin(), part(rank_).end());
    each_peer([&](int to, int from) {
      mesh_.trade(device(to), std::as_bytes(part(to)), device(from), std::as_writable_bytes(std::span(theirs)));
      for (std::size_t i = 0; i < sum.size(); ++i) into(sum[i], theirs[i]);
    });
    std::copy(sum.begin(), sum.end(), part(rank_).begin());
    each_peer([&](int to, int from) {
      mesh_.trade(device(to), std::as_bytes(part(rank_)), device(from), std::as_writable_bytes(part(from)));
    });
  }

  socket_mesh& mesh_;
  std::vector<rank_t> members_;
  int rank_;
  std::vector<std::vector<std::byte>> kept_;
};

std::unique_ptr<group> ranks_of(socket_mesh& mesh, const std::vector<rank_t>& members, rank_t device) {
  const auto me = std::find(members.begin(), members.end(), device);
  return std::make_unique<socket_ranks>(mesh, members, static_cast<int>(me - members.begin()));
}

class socket_device final : public world {
 public:
  socket_device(rank_t device, const std::vector<std::string>& for_switches, listening_socket mine,
                const std::vector<std::string>& for_sums, const listening_socket& mine_of_sums)
      : end_(device, for_switches, std::move(mine)), mesh_(device, for_sums, mine_of_sums, default_patience) {}
  rank_t device() const override { return end_.device(); }
  rank_t devices() const override { return end_.devices(); }
  std::unique_ptr<group> make(const std::vector<rank_t>& members) override {
    return ranks_of(mesh_, members, device());
  }
  void close() override { mesh_.close(); }
  switch_report move(const computed_switch& change, binding& before, binding& after,
                     const switch_options& options) override {
    return switch_state(change, before, after, end_, options);
  }
  small_state carry(const small_state& mine) override { return exchange_small_state(mine, {}, end_); }
  std::vector<std::string> gather(const std::string& mine) override { return end_.gather(mine); }

 private:
  socket_endpoint end_;
  socket_mesh mesh_;
};

/// Of a job that moves its state itself.
class socket_sums_alone final : public world {
 public:
  socket_sums_alone(rank_t device, const std::vector<std::string>& addresses, const listening_socket& mine,
                    patience wait)
      : mesh_(device, addresses, mine, wait), device_(device), devices_(static_cast<rank_t>(addresses.size())) {}
  rank_t device() const override { return device_; }
  rank_t devices() const override { return devices_; }
  std::unique_ptr<group> make(const std::vector<rank_t>& members) override { return ranks_of(mesh_, members, device_); }
  void close() override { mesh_.close(); }
  switch_report move(const computed_switch&, binding&, binding&, const switch_options&) override { refused(); }
  small_state carry(const small_state&) override { refused(); }
  std::vector<std::string> gather(const std::string&) override { refused(); }

 private:
  [[noreturn]] static void refused() { throw std::logic_error("this world sums; its job moves its state"); }
  socket_mesh mesh_;
  rank_t device_, devices_;
};

}  // namespace

std::unique_ptr<world> socket_world(rank_t device, const std::vector<std::string>& for_switches, listening_socket mine,
                                    const std::vector<std::string>& for_sums, listening_socket mine_of_sums) {
  return std::make_unique<socket_device>(device, for_switches, std::move(mine), for_sums, mine_of_sums);
}

std::unique_ptr<world> socket_sums(rank_t device, const std::vector<std::string>& addresses,
                                   const listening_socket& mine, patience wait) {
  return std::make_unique<socket_sums_alone>(device, addresses, mine, wait);
}

}  // namespace trainer
