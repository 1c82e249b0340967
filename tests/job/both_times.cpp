// SPDX-License-Identifier: Apache-2.0
// What tests/static asserts of a job while compiling, evaluated again at run time: the same functions, the same
// answers.
#include <doctest/doctest.h>

#include "../static/job_cases.hpp"

TEST_CASE("a job's questions have one answer at both times") {
#define RESHARD_CHECK(NAME) CHECK(cases::NAME());
  RESHARD_JOB_CASES(RESHARD_CHECK)
}
