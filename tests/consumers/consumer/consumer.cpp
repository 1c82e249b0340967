// SPDX-License-Identifier: Apache-2.0
// What somebody else might write: one header in two units, and a global named as the library names its parameters.
#include <cstdio>

int rank = 0;

#include <reshard/base/version.hpp>

#include "layouts.hpp"

bytes_t moved();

int main() {
  std::printf("reshard %s: rank %d holds %lld bytes, %lld move\n", RESHARD_VERSION, rank,
              static_cast<long long>(max_bytes_per_rank(on_128)), static_cast<long long>(moved()));
}
