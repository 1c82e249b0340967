// SPDX-License-Identifier: Apache-2.0
#include "layouts.hpp"

bytes_t moved();
bytes_t moved() { return moved_bytes(on_64, on_128); }
