// SPDX-License-Identifier: Apache-2.0
// The cases of the room job, evaluated by the compiler.
#include "job_cases.hpp"

#define RESHARD_ASSERT(NAME) static_assert(cases::NAME());
RESHARD_JOB_CASES(RESHARD_ASSERT)
