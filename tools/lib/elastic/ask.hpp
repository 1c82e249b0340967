// SPDX-License-Identifier: Apache-2.0
// What somebody outside asks of a job: a request, and how it is.
#pragma once

#include <string>
#include <vector>

namespace elastic {

struct ask_words {
  std::string store, job, id;
  std::vector<std::string> words;
};

/// Says the request, unless it is said already, and prints its answer when it is there; 0 if it is done, else 1.
int run_ask(const ask_words& w);
/// Prints the record as JSON; 1 where there is none.
int run_status(const ask_words& w);

}  // namespace elastic
