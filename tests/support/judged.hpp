// SPDX-License-Identifier: Apache-2.0
// A binding filled and compared either by the library or by the oracle's judge of memory, which is handed the binding's
// plain numbers.
#pragma once

#include <doctest/doctest.h>

#include <reshard/testing/known_values.hpp>

#include "../oracle/memory_judge.hpp"

namespace testing {

/// A bound box as the judge wants it; `h` says how large the tensors are.
template <typename H>
oracle::memory_box plain_numbers(const reshard::bound_box& b, const H& h) {
  oracle::memory_box plain;
  plain.data = b.data;
  plain.width = b.element_bytes;
  plain.identity = {b.state, b.tensor.family, b.tensor.member, b.tensor.expert};
  for (std::size_t i = 0; i < 3; ++i) {
    plain.begin[i] = b.where.dim[i].begin;
    plain.end[i] = b.where.dim[i].end;
    plain.stride[i] = b.stride[i];
    plain.whole[i] = h.family_at(b.tensor.family).extent[i + 2];
  }
  return plain;
}

template <typename H>
void write_by_judge(const reshard::binding& b, const H& h) {
  for (const reshard::bound_box& box : b.boxes()) oracle::write_known(plain_numbers(box, h));
}
template <typename H>
oracle::verdict judged(const reshard::binding& b, const H& h) {
  oracle::verdict found;
  for (const reshard::bound_box& box : b.boxes()) oracle::judge(plain_numbers(box, h), found);
  return found;
}

enum class filled_by { library, judge };

/// Every second time the one, then the other.
inline filled_by next_in_turn() {
  static int times = 0;
  return times++ % 2 == 0 ? filled_by::judge : filled_by::library;
}

template <typename H>
void fill(filled_by by, const reshard::binding& b, const H& h) {
  if (by == filled_by::judge) write_by_judge(b, h);
  else reshard::fill(b, h);
}
/// What is wrong by the values of whoever filled it; where the judge finds a fault, its sentence is printed.
template <typename H>
reshard::comparison compare(filled_by by, const reshard::binding& b, const H& h) {
  if (by == filled_by::library) return reshard::compare(b, h);
  const oracle::verdict found = judged(b, h);
  if (found.wrong > 0) MESSAGE(b.who(), ": ", found.first);
  return {found.compared, found.wrong};
}

}  // namespace testing
