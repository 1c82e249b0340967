// SPDX-License-Identifier: Apache-2.0
// The cases of the rooms from algebra to space, evaluated by the compiler.
#include "cases.hpp"

#define RESHARD_ASSERT(NAME) static_assert(cases::NAME());
RESHARD_CASES(RESHARD_ASSERT)
