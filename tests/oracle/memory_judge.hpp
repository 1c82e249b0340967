// SPDX-License-Identifier: Apache-2.0
//
// The oracle, fourth part: does memory hold the elements that it shall? From plain numbers alone, one element at a
// time, with values of its own choosing; nothing here knows how the library addresses, copies, fills or compares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace oracle {

// One box of one tensor in memory. Element (part, row, column), in the tensor's own coordinates, lies at
// data + width * ((part - begin[0]) * stride[0] + (row - begin[1]) * stride[1] + (column - begin[2]) * stride[2]).
struct memory_box {
  std::byte* data = nullptr;
  std::array<long, 3> begin{}, end{};  // half-open: parts, rows, columns
  std::array<long, 3> stride{};        // elements
  long width = 1;                      // bytes of an element: 1, 2, 4 or 8
  std::array<long, 3> whole{};         // extents of the whole tensor
  std::array<long, 4> identity{};      // state, family, member, expert
};

struct verdict {
  long compared = 0;
  long wrong = 0;
  std::string first;  // a sentence about the first wrong element, empty where there is none
};

// The finaliser of splitmix64: a permutation of 64 bits in which every bit depends on all.
inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The value of an element: a hash of the identity and the flat index in the whole tensor, cut to the width. The lowest
// bit is that of the index, so that neighbours in a row differ even in one byte; no value is 0, which is what untouched
// pages hold.
inline std::uint64_t value_of(std::uint64_t hash_of_identity, long flat, long width) {
  const std::uint64_t h = mixed(hash_of_identity ^ static_cast<std::uint64_t>(flat));
  const std::uint64_t parity = static_cast<std::uint64_t>(flat) & 1u;
  std::uint64_t value = (h & ~std::uint64_t{1}) | parity;
  if (width < 8) value &= (std::uint64_t{1} << (8 * width)) - 1;
  return value == 0 ? 2 : value;
}
inline std::uint64_t hash_of(const std::array<long, 4>& identity) {
  std::uint64_t h = 0;
  for (long number : identity) h = mixed(h ^ static_cast<std::uint64_t>(number));
  return h;
}
inline std::uint64_t known_value(const std::array<long, 4>& identity, long flat, long width) {
  return value_of(hash_of(identity), flat, width);
}

// The bytes are the same on a machine of either endianness: the lowest first.
// Calls visit(address, value that shall be there, part, row, column) for every element.
template <typename Visit>
void each_element(const memory_box& b, Visit&& visit) {
  const std::uint64_t hash = hash_of(b.identity);
  const long first = b.begin[2], last = b.end[2], step = b.stride[2], width = b.width;
  for (long part = b.begin[0]; part < b.end[0]; ++part)
    for (long row = b.begin[1]; row < b.end[1]; ++row) {
      const long flat = (part * b.whole[1] + row) * b.whole[2];
      const long offset = (part - b.begin[0]) * b.stride[0] + (row - b.begin[1]) * b.stride[1];
      for (long column = first; column < last; ++column)
        visit(b.data + (offset + (column - first) * step) * width, value_of(hash, flat + column, width), part, row,
              column);
    }
}

inline void write_known(const memory_box& b) {
  each_element(b, [&](std::byte* at, std::uint64_t value, long, long, long) {
    for (long i = 0; i < b.width; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
  });
}

// Adds what it finds to the verdict.
inline void judge(const memory_box& b, verdict& found) {
  each_element(b, [&](const std::byte* at, std::uint64_t value, long part, long row, long column) {
    ++found.compared;
    std::uint64_t is = 0;
    for (long i = 0; i < b.width; ++i) is |= static_cast<std::uint64_t>(at[i]) << (8 * i);
    if (is == value) return;
    if (found.wrong++ == 0)
      found.first = "state " + std::to_string(b.identity[0]) + ", family " + std::to_string(b.identity[1]) +
                    ", member " + std::to_string(b.identity[2]) + ", expert " + std::to_string(b.identity[3]) +
                    ": element (" + std::to_string(part) + ", " + std::to_string(row) + ", " + std::to_string(column) +
                    ") is " + std::to_string(is) + ", not " + std::to_string(value);
  });
}

}  // namespace oracle
