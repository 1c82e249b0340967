// SPDX-License-Identifier: Apache-2.0
// A job's devices as threads of one process.
#pragma once

#include "collectives.hpp"

namespace trainer {

/// Where the threads of a job meet; it outlives their worlds.
class thread_hub {
 public:
  explicit thread_hub(rank_t devices);
  ~thread_hub();
  /// The end of one device, for its thread.
  std::unique_ptr<world> at(rank_t device);

 private:
  struct meetings;
  std::unique_ptr<meetings> all_;
};

}  // namespace trainer
