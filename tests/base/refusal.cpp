// SPDX-License-Identifier: Apache-2.0
// A refusal: a sentence made of its parts (as tests/base/text.cpp tells), thrown as an invalid argument.
#include <doctest/doctest.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <reshard/base/refusal.hpp>

using namespace reshard;

namespace {
template <typename... Parts>
std::string sentence(const Parts&... parts) {
  try {
    refuse(parts...);
  } catch (const std::exception& stopped) {
    return stopped.what();
  }
}
}  // namespace

TEST_CASE("every sentence begins with who says it, and has its parts in order, with nothing between them") {
  CHECK(sentence() == "reshard: ");
  CHECK(sentence("a", std::string("b"), std::string_view("cd").substr(1), "e") == "reshard: abde");
  CHECK(sentence("", "x", "") == "reshard: x");
}

TEST_CASE("what is thrown is a refusal, which is an invalid argument, and no other error is one") {
  CHECK_THROWS_AS(refuse("x"), refusal);
  CHECK_THROWS_AS(refuse("x"), std::invalid_argument);
  CHECK_FALSE(std::is_base_of_v<refusal, std::invalid_argument>);
  CHECK(std::string(refusal("as it is").what()) == "as it is");
}

TEST_CASE("inside another sentence a refusal speaks without who says it, and any other sentence stays as it is") {
  CHECK(detail::without_prefix(sentence("tp=", 3, " is no divisor")) == "tp=3 is no divisor");
  CHECK(detail::without_prefix("reshard: ").empty());
  CHECK(detail::without_prefix("reshard: reshard: x") == "reshard: x");
  for (const std::string_view other : {"", "reshard", "out of memory", " reshard: x", "who: reshard: x"})
    CHECK(detail::without_prefix(other) == other);
}

TEST_CASE("the sentence of an exception is what it says, and one of no standard kind has one too") {
  const auto told = [](auto thrown) { return sentence_of(std::make_exception_ptr(thrown)); };
  CHECK(told(std::runtime_error("")) == "reshard: an exception that says nothing");
  CHECK(told(refusal("reshard: tp=3 is no divisor")) == "reshard: tp=3 is no divisor");
  CHECK(told(std::runtime_error("a disk is full")) == "a disk is full");
  CHECK(told(17) == "reshard: an exception of no standard kind");
}
