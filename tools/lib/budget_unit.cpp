// SPDX-License-Identifier: Apache-2.0
// What tests/budget.toml counts in: compiling this file once. It includes nothing of reshard, so that it costs the same
// whatever becomes of that, and does what test programs do: headers of the standard library, and templates.
#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <ranges>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

template <int N>
struct box {
  std::array<long, N> begin{}, end{};
  constexpr long size() const {
    long product = 1;
    for (int d = 0; d < N; ++d) product *= end[static_cast<unsigned>(d)] - begin[static_cast<unsigned>(d)];
    return product;
  }
};

template <int N>
long work(std::mt19937& dice) {
  std::vector<box<N>> boxes(8);
  std::map<std::string, box<N>> named;
  std::unordered_map<long, std::vector<box<N>>> by_size;
  for (box<N>& b : boxes) {
    for (auto& e : b.end) e = static_cast<long>(dice() % 7);
    std::ostringstream name;
    name << N << ' ' << b.size();
    named[name.str()] = b;
    by_size[b.size()].push_back(b);
  }
  std::ranges::sort(boxes, {}, &box<N>::size);
  const std::regex digits("([0-9]+) ([0-9]+)");
  long sum = 0;
  for (const auto& [name, b] : named) sum += std::regex_match(name, digits) ? b.size() : 0;
  return sum + static_cast<long>(by_size.size());
}

template <int... N>
long all(std::integer_sequence<int, N...>, std::mt19937& dice) {
  return (work<N + 1>(dice) + ... + 0);
}

}  // namespace

long budget_unit() {
  std::mt19937 dice(1);
  return all(std::make_integer_sequence<int, 4>{}, dice);
}
