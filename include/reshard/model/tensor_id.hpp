// SPDX-License-Identifier: Apache-2.0
// One tensor as a noun, and the tensors that a box of a family meets.
// Builds on: model/family.hpp.
#pragma once

#include <compare>

#include <reshard/model/family.hpp>

namespace reshard {

/// One tensor: of which family, of which of the family's layers, of which expert. Ordered as a model lists them.
struct tensor_id {
  int family = 0;
  index_t member = 0;
  index_t expert = 0;

  friend constexpr auto operator<=>(const tensor_id&, const tensor_id&) = default;
  friend constexpr bool operator==(const tensor_id&, const tensor_id&) = default;
};

/// The box of a tensor's family that is this part of the tensor.
constexpr family_box family_box_of(const tensor_id& t, const box<3>& part) {
  return {{{t.member, t.member + 1}, {t.expert, t.expert + 1}, part.dim[0], part.dim[1], part.dim[2]}};
}

/// Calls sink(tensor_id, box<3>) for every tensor that a box of a family meets, in order, with the part of it that the
/// box has:
///   [m0, m1) x [e0, e1) x b  =  union over m in [m0, m1), e in [e0, e1) of {(m, e)} x b
template <typename Sink>
constexpr void each_tensor(int family, const family_box& b, Sink&& sink) {
  const box<3> part{{b.dim[axis_of::part], b.dim[axis_of::row], b.dim[axis_of::column]}};
  for (index_t member = b.dim[axis_of::layer].begin; member < b.dim[axis_of::layer].end; ++member)
    for (index_t expert = b.dim[axis_of::expert].begin; expert < b.dim[axis_of::expert].end; ++expert)
      sink(tensor_id{family, member, expert}, part);
}

}  // namespace reshard
