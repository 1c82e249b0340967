// SPDX-License-Identifier: Apache-2.0
// A store that a process serves.
#pragma once

#include <string>

namespace elastic {

/// Prints `listening HOST:PORT`, and serves until SIGTERM or SIGINT.
int run_store(const std::string& listen, const std::string& journal);

}  // namespace elastic
