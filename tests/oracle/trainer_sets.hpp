// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 0: sets of numbers as sorted disjoint intervals, chunk(), what is refused.
// All parts are written from the contract alone and share no code with the library nor with the first oracle.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace oracle::trainer {

// What the contract refuses; what() is one sentence.
struct illegal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void must(bool condition, const std::string& what) {
  if (!condition) throw illegal(what);
}

inline std::size_t at(long i) { return static_cast<std::size_t>(i); }

template <class Container>
long length(const Container& c) {
  return static_cast<long>(c.size());
}

using interval = std::pair<long, long>;   // [first, second)
using intervals = std::vector<interval>;  // sorted, not empty, apart by at least 1
using numbers = std::vector<long>;

// Any intervals, in any order, as a set.
inline intervals as_set(intervals any) {
  std::sort(any.begin(), any.end());
  intervals set;
  for (const auto& [begin, end] : any) {
    if (begin >= end) continue;
    if (!set.empty() && begin <= set.back().second) set.back().second = std::max(set.back().second, end);
    else set.emplace_back(begin, end);
  }
  return set;
}

inline long count(const intervals& set) {
  long n = 0;
  for (const auto& [begin, end] : set) n += end - begin;
  return n;
}

inline intervals both(const intervals& a, const intervals& b) {  // the intersection
  intervals common;
  for (const auto& x : a)
    for (auto y = std::upper_bound(b.begin(), b.end(), x.first, [](long v, const interval&i) { return v < i.second; });
         y != b.end() && y->first < x.second; ++y)
      common.emplace_back(std::max(x.first, y->first), std::min(x.second, y->second));
  return as_set(common);
}

inline intervals either(intervals a, const intervals& b) {  // the union
  a.insert(a.end(), b.begin(), b.end());
  return as_set(std::move(a));
}

inline intervals without(const intervals& a, const intervals& b) {  // a \ b
  intervals rest;
  for (const auto& x : a) {
    long next = x.first;
    for (const auto& y : both({x}, b)) {
      rest.emplace_back(next, y.first);
      next = y.second;
    }
    rest.emplace_back(next, x.second);
  }
  return as_set(rest);
}

// chunk(X, n, i): the elements of X from min(i c, N) to min((i+1) c, N), c = ceil(N / n), as torch.chunk cuts.
inline numbers chunk(const numbers& x, long n, long i) {
  const long size = length(x), c = (size + n - 1) / n;
  return {x.begin() + std::min(i * c, size), x.begin() + std::min((i + 1) * c, size)};
}

inline numbers range(long begin, long end) {
  numbers list;
  for (long i = begin; i < end; ++i) list.push_back(i);
  return list;
}

}  // namespace oracle::trainer
