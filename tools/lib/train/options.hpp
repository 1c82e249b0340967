// SPDX-License-Identifier: Apache-2.0
// What tools/train is asked for.
#pragma once

#include <string>
#include <vector>

#include "../../../examples/trainer/change.hpp"

namespace train {

using namespace trainer;

/// The damage that a run does to itself, as --damage says it.
struct damage_asked {
  std::string kind;  // empty: none
  index_t step = 0;
};

struct options {
  std::string model = "dense", transport = "threads", svg, dump;
  std::string layout = "";
  std::vector<std::string> switches, texts;
  index_t steps = 120, total = 0, batch = 24, length = 32;
  std::uint64_t seed = 7;
  double dropout = 0.1;
  bool exact = true, json = false, demonstration = false;
  bytes_t budget = no_budget;
  damage_asked damaged;
  std::string restart;     // a folder: the first switch is made by way of files there, beside the switch in memory
  index_t restarted = -1;  // of its processes alone: which one this is
};

/// What may be asked for.
extern const char* const usage;

/// Reads the words of a command line; refuses what is not of its form.
options read_options(const std::vector<std::string>& words);
/// What the devices do; refuses layouts that are not legal, or that the trainer does not train under.
job job_of(const options& asked);
/// The job on one device that never changes.
job undisturbed(const job& all);

}  // namespace train
