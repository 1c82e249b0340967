// SPDX-License-Identifier: Apache-2.0
// A job of data-parallel ranks changes its size twice. Whose sample is it, how large is the batch, what becomes of the
// learning rate? All of it is computed from one integer, which goes with the small state. No tensors are moved here.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <reshard/switching.hpp>

using namespace reshard;

namespace {

/// A set gone through in passes, each in an order of its own; what a test has instead of a loader counts elements.
struct loader {
  sample_set set{1000, 20261121};
  std::vector<int> times = std::vector<int>(1000);

  void read(interval share) {
    for (index_t p = share.begin; p < share.end; ++p) ++times[static_cast<std::size_t>(set.element(p))];
  }
};

/// Trains a few steps on `ranks` ranks; where the job is then.
serial_cursor train(loader& data, serial_cursor at, rank_t ranks, index_t batch, int steps) {
  for (int step = 0; step < steps; ++step) {
    for (rank_t rank = 0; rank < ranks; ++rank) {
      const interval share = at.share(batch, rank, ranks);  // [c + floor(r B / n), c + floor((r + 1) B / n))
      for (index_t i = 0; i < 2; ++i) data.read(micro_batch(share, i, 2));
    }
    at = at.after(batch);
  }
  return at;
}

/// Two devices train, a third joins: it asks for the cursor, and has it.
bool carry(serial_cursor at) {
  thread_group world(3);
  bool good[3] = {};
  world.run([&](auto& here) {
    small_state mine;
    if (here.device() < 2) mine.add_same("cursor", std::as_bytes(std::span(&at.used, 1)));
    const small_state after = exchange_small_state(mine, {}, here);  // what is the same on all is on all
    serial_cursor there;
    std::memcpy(&there.used, after.bytes_of({"cursor"}).data(), sizeof there.used);
    good[here.device()] = there == at;
  });
  return good[0] && good[1] && good[2];
}

}  // namespace

int main() {
  // measured: with batches of 64 samples two ranks are fastest, with 128 four, with 256 eight
  const std::vector<measured_throughput> measured = {{64, 1, 300},  {64, 2, 410},  {64, 4, 400},   {128, 2, 600},
                                                     {128, 4, 800}, {128, 8, 790}, {256, 4, 1100}, {256, 8, 1500}};
  const throughput_table optimum(measured);
  loader data;
  rate_schedule rate(64);  // linear: SGD's

  serial_cursor at = train(data, {}, 2, 64, 3);
  const index_t larger = choose_batch(2, 64, 8, optimum).batch;  // 256: the least with which eight ranks are worth it
  rate.add({at.used, larger, 1000});                             // in 1000 samples to four times the rate
  if (!carry(at)) return 1;
  at = train(data, at, 8, larger, 2);
  const index_t kept = choose_batch(8, larger, 5, optimum).batch;  // five are fewer: strong scaling, 256 stays
  at = train(data, at, 5, kept, 1);

  int twice = 0, never = 0;
  for (const int times : data.times) twice += times > 1 ? 1 : 0, never += times == 0 ? 1 : 0;
  std::printf(
      "batches of 64, %lld and %lld; %lld samples used: %d elements never, %d twice; the rate is multiplied by %s\n",
      static_cast<long long>(larger), static_cast<long long>(kept), static_cast<long long>(at.used), never, twice,
      rate.factor(at.used).text().c_str());
  return larger == 256 && kept == 256 && at.used == 960 && never == 40 && twice == 0 ? 0 : 1;
}
