// SPDX-License-Identifier: Apache-2.0
// --dump: the whole state in one file, state.safetensors, whatever layout it was in.
#pragma once

#include "options.hpp"

namespace train {

/// What all ranks do at the end, where a dump is asked for; rank 0 writes the file.
std::function<void(rank_state&, groups&)> dumping(const options& asked);

}  // namespace train
