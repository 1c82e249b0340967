// SPDX-License-Identifier: Apache-2.0
// A sink calls what it was made of, with the arguments themselves, while compiling and at run time.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/base/sink.hpp>

using reshard::detail::sink;

namespace {
/// Not a template: it knows its callers' callables by the reference alone.
constexpr void count_down(int from, const sink<int>& out) {
  for (int i = from; i > 0; --i) out(i);
}

constexpr int sum_of(int n) {
  int sum = 0;
  count_down(n, sink<int>::of([&sum](int i) { sum += i; }));
  return sum;
}
static_assert(sum_of(4) == 10);

void hand_over(std::vector<int>& what, const sink<std::vector<int>&, const std::string&>& out) { out(what, "seven"); }
}  // namespace

TEST_CASE("every call reaches the callable, in order") {
  std::vector<int> seen;
  const auto keep = sink<int>::of([&seen](int i) { seen.push_back(i); });
  count_down(3, keep);
  count_down(0, keep);
  count_down(1, keep);
  CHECK(seen == std::vector<int>{3, 2, 1, 1});
  CHECK(sum_of(100) == 5050);
}

TEST_CASE("references stay references, and a sink may take nothing") {
  std::vector<int> mine = {1};
  hand_over(mine, sink<std::vector<int>&, const std::string&>::of([](std::vector<int>& what, const std::string& word) {
              what.push_back(static_cast<int>(word.size()));
            }));
  CHECK(mine == std::vector<int>{1, 5});

  int calls = 0;
  const auto count = sink<>::of([&calls] { ++calls; });
  const sink<>& any = count;
  any();
  any();
  CHECK(calls == 2);
}

TEST_CASE("a callable without a name is kept, one with a name is referred to") {
  std::string said;
  const auto made = [&said] {
    const int at_first = static_cast<int>(said.size()) + 1;
    return sink<int>::of([&said, at_first](int i) { said += std::to_string(at_first + i); });
  }();
  made(1);
  made(2);
  CHECK(said == "23");

  struct counter {
    int calls = 0;
    void operator()(int) { ++calls; }  // changes itself
  } mine;
  const auto counted = sink<int>::of(mine);
  count_down(3, counted);
  CHECK(mine.calls == 3);
}
