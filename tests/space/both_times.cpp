// SPDX-License-Identifier: Apache-2.0
// What tests/static asserts while compiling, evaluated again at run time: the same functions, the same answers.
#include <doctest/doctest.h>

#include "../static/cases.hpp"

TEST_CASE("one algorithm, both times") {
#define RESHARD_CHECK(NAME) CHECK(cases::NAME());
  RESHARD_CASES(RESHARD_CHECK)
}
