// SPDX-License-Identifier: Apache-2.0
// What ranks of a trainer do together, whatever carries it: a group sums, takes the largest, shows what each posted,
// and hands on between stages; a world makes groups and moves state. Threads, sockets and MPI have one each.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <reshard/job/small_state.hpp>
#include <reshard/memory/binding.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/options.hpp>

namespace trainer {

using namespace reshard;

/// Who waits for a rank that is gone, or whose world was closed, waits no longer.
struct peer_gone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using bytes = std::span<const std::byte>;

/// Ranks that do something together, each with a number of its own; called by all of them in the same order.
class group {
 public:
  virtual ~group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// An all-reduce: values = sum over ranks of their values; the order of doubles that add without rounding does not
  /// matter. max alike.
  virtual void sum(std::span<double> values) = 0;
  virtual void max(std::span<float> values) = 0;
  /// An all-gather of posts as long as each likes: what each posted, by rank; there until the next call of this group.
  virtual std::vector<bytes> exchange(bytes mine) = 0;
  virtual void send(int to, bytes mine) = 0;
  virtual void receive(int from, std::span<std::byte> into) = 0;
};

/// One device's end of all the devices of a job. close() ends every wait of every device with peer_gone.
class world {
 public:
  virtual ~world() = default;
  virtual rank_t device() const = 0;
  virtual rank_t devices() const = 0;
  /// The group of these devices, this one among them; made by all of them, in the same order of groups.
  virtual std::unique_ptr<group> make(const std::vector<rank_t>& members) = 0;
  virtual void close() = 0;
  /// Called by all devices: a switch, small state with it, and what each has to say, by device.
  virtual switch_report move(const computed_switch&, binding& before, binding& after, const switch_options&) = 0;
  virtual small_state carry(const small_state& mine) = 0;
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  void barrier() { gather({}); }
};

/// A group of one rank.
class alone final : public group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void sum(std::span<double>) override {}
  void max(std::span<float>) override {}
  std::vector<bytes> exchange(bytes mine) override { return {mine}; }
  void send(int, bytes) override { throw peer_gone("a group of one has nobody to send to"); }
  void receive(int, std::span<std::byte>) override { throw peer_gone("a group of one has nobody to receive from"); }
};

}  // namespace trainer
