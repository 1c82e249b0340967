// SPDX-License-Identifier: Apache-2.0
// A job of 4 on this machine, shown: one joins, one leaves, one is replaced and one is killed.
#pragma once

#include <string>

namespace elastic {

struct demo_words {
  bool json = false;
  std::string keep, read;  // folders
  double grace = 0.3, patience = 3;
};

/// Starts, asks and kills processes of this program, waits for all, and prints what each change cost and whether all
/// was right; or reads what an earlier run kept. 0 if all was right, 1 if something was not, 128 + a signal that it was
/// told to end by.
int run_demo(const demo_words& w);

}  // namespace elastic
