// SPDX-License-Identifier: Apache-2.0
#include "mpi.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include <reshard/job/exchange_small_state.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/mpi.hpp>

namespace trainer {

namespace {

/// Waits that end once a device of the world has closed it: MPI's own never do.
class mpi_waits {
 public:
  explicit mpi_waits(MPI_Comm of) { MPI_Comm_dup(of, &closing_); }
  ~mpi_waits() { MPI_Comm_free(&closing_); }
  void wait(MPI_Request request) {
    for (int done = 0, said = 0;; std::this_thread::yield()) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      MPI_Iprobe(MPI_ANY_SOURCE, 0, closing_, &said, MPI_STATUS_IGNORE);
      if (said != 0 || closed_) throw peer_gone("a device is gone, or the job was closed");
    }
  }
  void close() {
    if (closed_.exchange(true)) return;
    int size = 0, me = 0;
    MPI_Comm_size(closing_, &size), MPI_Comm_rank(closing_, &me);
    for (int d = 0; d < size; ++d) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (d != me) MPI_Isend(nullptr, 0, MPI_BYTE, d, 0, closing_, &request), MPI_Request_free(&request);
    }
  }

 private:
  MPI_Comm closing_ = MPI_COMM_NULL;
  std::atomic<bool> closed_ = false;
};

class mpi_ranks final : public group {
 public:
  mpi_ranks(mpi_waits& waits, MPI_Comm of) : waits_(waits), of_(of) {
    MPI_Comm_rank(of_, &rank_), MPI_Comm_size(of_, &size_);
  }
  ~mpi_ranks() override {
    // MPI may still use what waits that did not end have under way
    static std::vector<std::vector<std::byte>> left;
    static std::vector<std::vector<int>> left_sizes;
    if (waiting_) {
      left.push_back(std::move(kept_)), left.push_back(std::move(mine_));
      left_sizes.push_back(std::move(sizes_)), left_sizes.push_back(std::move(begins_));
    } else MPI_Comm_free(&of_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void sum(std::span<double> values) override { reduce(values, MPI_DOUBLE, MPI_SUM); }
  void max(std::span<float> values) override { reduce(values, MPI_FLOAT, MPI_MAX); }
  std::vector<bytes> exchange(bytes mine) override {
    sizes_.resize(static_cast<std::size_t>(size_)), begins_.resize(sizes_.size());
    mine_.assign(mine.begin(), mine.end());
    const int size = static_cast<int>(mine.size());
    sizes_[static_cast<std::size_t>(rank_)] = size;
    finish(
        [&](MPI_Request* r) { MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sizes_.data(), 1, MPI_INT, of_, r); });
    std::exclusive_scan(sizes_.begin(), sizes_.end(), begins_.begin(), 0);
    kept_.resize(static_cast<std::size_t>(begins_.back() + sizes_.back()) + 1);
    finish([&](MPI_Request* r) {
      MPI_Iallgatherv(mine_.data(), size, MPI_BYTE, kept_.data(), sizes_.data(), begins_.data(), MPI_BYTE, of_, r);
    });
    std::vector<bytes> all;
    for (std::size_t r = 0; r < sizes_.size(); ++r)
      all.emplace_back(kept_.data() + begins_[r], static_cast<std::size_t>(sizes_[r]));
    return all;
  }
  void send(int to, bytes mine) override {
    mine_.assign(mine.begin(), mine.end());
    finish([&](MPI_Request* r) { MPI_Isend(mine_.data(), static_cast<int>(mine_.size()), MPI_BYTE, to, 0, of_, r); });
  }
  void receive(int from, std::span<std::byte> into) override {
    mine_.resize(into.size());
    finish([&](MPI_Request* r) { MPI_Irecv(mine_.data(), static_cast<int>(mine_.size()), MPI_BYTE, from, 0, of_, r); });
    std::copy(mine_.begin(), mine_.end(), into.begin());
  }

 private:
  template <typename T>
  void reduce(std::span<T> values, MPI_Datatype type, MPI_Op how) {
    const auto all = std::as_writable_bytes(values);
    mine_.assign(all.begin(), all.end());
    finish([&](MPI_Request* r) {
      MPI_Iallreduce(MPI_IN_PLACE, mine_.data(), static_cast<int>(values.size()), type, how, of_, r);
    });
    std::copy(mine_.begin(), mine_.end(), all.begin());
  }
  template <typename Begin>
  void finish(Begin&& begin) {
    MPI_Request request = MPI_REQUEST_NULL;
    begin(&request);
    waiting_ = true;
    waits_.wait(request);
    waiting_ = false;
  }

  mpi_waits& waits_;
  MPI_Comm of_;
  int rank_ = 0, size_ = 0;
  bool waiting_ = false;
  std::vector<int> sizes_, begins_;
  std::vector<std::byte> mine_, kept_;  // of what is under way
};

class mpi_device final : public world {
 public:
  explicit mpi_device(MPI_Comm all) : end_(all), waits_(all), all_(all) {}
  rank_t device() const override { return end_.device(); }
  rank_t devices() const override { return end_.devices(); }
  std::unique_ptr<group> make(const std::vector<rank_t>& members) override {
    const std::vector<int> ranks(members.begin(), members.end());
    MPI_Group every = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_group(all_, &every);
    MPI_Group_incl(every, static_cast<int>(ranks.size()), ranks.data(), &some);
    MPI_Comm_create_group(all_, some, 0, &made);
    MPI_Group_free(&some), MPI_Group_free(&every);
    return std::make_unique<mpi_ranks>(waits_, made);
  }
  void close() override {
    waits_.close();
    end_.fail("reshard: the job was closed");
  }
  switch_report move(const computed_switch& change, binding& before, binding& after,
                     const switch_options& options) override {
    return switch_state(change, before, after, end_, options);
  }
  small_state carry(const small_state& mine) override { return exchange_small_state(mine, {}, end_); }
  std::vector<std::string> gather(const std::string& mine) override { return end_.gather(mine); }

 private:
  mpi_endpoint end_;
  mpi_waits waits_;
  MPI_Comm all_;
};

}  // namespace

std::unique_ptr<world> mpi_world(MPI_Comm all) { return std::make_unique<mpi_device>(all); }

}  // namespace trainer
