// SPDX-License-Identifier: Apache-2.0
// What a worker holds at the end: digests by tensor, and files.
#pragma once

#include <string>

#include "worker_trainer.hpp"

namespace elastic {

/// {"STATE TENSOR": sum over the elements that it holds of mix(x + mix(i)) mod 2^64, ..}
std::string digests_json(const arrays_told& of);

/// RANK.json and RANK.bin in a folder: what is held, as `regions` prints it, and the elements of those boxes one after
/// the other, each row-major, little-endian, without padding.
void dump(const std::string& folder, const std::string& id, const arrays_told& of, index_t version);

}  // namespace elastic
