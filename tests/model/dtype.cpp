// SPDX-License-Identifier: Apache-2.0
// Element types: names, and widths that the names say.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include <reshard/model/dtype.hpp>

using namespace reshard;

namespace {
constexpr dtype all[] = {dtype::bf16, dtype::fp16, dtype::fp32,  dtype::fp64,
                         dtype::fp8,  dtype::int8, dtype::int32, dtype::int64};
}

TEST_CASE("the number in a type's name is that of its bits") {
  std::set<std::string> names;
  for (const dtype type : all) {
    const std::string called(name(type));
    CAPTURE(called);
    REQUIRE(called.size() >= 3);
    CHECK(names.insert(called).second);
    CHECK(std::to_string(8 * width(type)) == called.substr(called.find_first_of("0123456789")));
  }
  CHECK(names == std::set<std::string>{"bf16", "fp16", "fp32", "fp64", "fp8", "int8", "int32", "int64"});
}

TEST_CASE("each type has its own name, and three have a short form") {
  CHECK(name(dtype::bf16) == "bf16");
  CHECK(name(dtype::fp16) == "fp16");
  CHECK(name(dtype::fp32) == "fp32");
  CHECK(name(dtype::fp64) == "fp64");
  CHECK(name(dtype::fp8) == "fp8");
  CHECK(name(dtype::int8) == "int8");
  CHECK(name(dtype::int32) == "int32");
  CHECK(name(dtype::int64) == "int64");
  static_assert(bf16 == dtype::bf16 && fp16 == dtype::fp16 && fp32 == dtype::fp32);
}

TEST_CASE("a number that is no type's has no width and no name") {
  for (const int number : {-1, 8, 1000}) {
    CHECK(width(static_cast<dtype>(number)) == 0);
    CHECK(name(static_cast<dtype>(number)).empty());
  }
}
