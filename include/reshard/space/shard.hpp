// SPDX-License-Identifier: Apache-2.0
// A shard as a framework describes it: which rank holds which rectangle of which named tensor. Ids and numbers, no
// pointers.
// Builds on: model/dtype.hpp, model/family.hpp.
#pragma once

#include <initializer_list>
#include <string>

#include <reshard/base/refusal.hpp>
#include <reshard/model/dtype.hpp>
#include <reshard/model/family.hpp>

namespace reshard {

/// Up to five numbers, one per dimension of a tensor.
struct extents {
  int ndim = 0;
  index_t at[family_ndim] = {};

  constexpr extents() = default;
  constexpr extents(std::initializer_list<index_t> list) {
    if (list.size() > family_ndim)
      refuse("a tensor of ", list.size(), " dimensions; at most ", family_ndim, " are supported");
    for (const index_t number : list) at[ndim++] = number;
  }
  friend constexpr bool operator==(const extents&, const extents&) = default;
};

/// What one rank holds of one tensor: { x : offset <= x < offset + shape }, of a tensor of extents `whole`.
struct shard {
  rank_t rank = 0;
  std::string tensor;
  dtype type = dtype::bf16;
  extents whole;
  extents offset;
  extents shape;
  std::string state = "param";
};

}  // namespace reshard
