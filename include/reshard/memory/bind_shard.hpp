// SPDX-License-Identifier: Apache-2.0
// Bindings by name: a shard of a framework's own list (tensor name, state name, offset, shape) and the memory that it
// lies in.
// Builds on: space/shard_boxes.hpp, memory/binding.hpp.
#pragma once

#include <reshard/memory/binding.hpp>
#include <reshard/space/shard_boxes.hpp>

namespace reshard {

namespace detail {

/// Refuses memory that is not the shard's: smaller than from its first element to past its last, larger than its rows
/// with what the strides leave between them, or of elements of another width. The type that it holds.
inline dtype require_memory_of_shard(const binding& out, const shard& s, const memory& at, const extents& stride) {
  index_t last = 0, pitch = 1;
  for (int i = 0; i < s.shape.ndim; ++i) {
    last = checked_add(last, checked_multiply(s.shape.at[i] - 1, stride.at[i]));
    pitch = greatest(pitch, checked_multiply(s.shape.at[i], stride.at[i]));
  }
  last = checked_add(last, 1);  // past the last element
  return require_memory(at, s.type, last, greatest(last, pitch),
                        [&] { return out.who() + ": " + s.state + " of '" + s.tensor + "'"; });
}

/// The shard is known to lie at `place`.
inline void bind_located(binding& out, const tensor_table& table, const shard& s, const shard_place& place,
                         const memory& at, const extents& stride) {
  const int state = place.state;
  if (stride.ndim != s.shape.ndim)
    refuse(out.who(), ": '", s.tensor, "' has ", s.shape.ndim, " dimensions, and strides for ", stride.ndim,
           " were given");
  for (int i = 0; i < stride.ndim; ++i)
    if (stride.at[i] < 0)
      refuse(out.who(), ": '", s.tensor, "' has a stride of ", stride.at[i], " elements; strides count forwards");
  for (int i = 0; i < s.shape.ndim; ++i)
    if (s.shape.at[i] == 0) return;  // no element, so that neither memory nor strides matter
  // strides over the family's axes; where the first stored dimension is parts x rows, a part is as far from the next as
  // its rows are
  const family& tensors = table.family_at(place.tensor.family);
  index_t step[family_ndim] = {};
  for (int i = 0; i < stride.ndim; ++i) step[family_ndim - stride.ndim + i] = stride.at[i];
  if (folds_parts(tensors, place.stored.dim[0].size())) {
    const int first = family_ndim - tensors.shape_ndim;  // the axis of the first stored dimension
    step[axis_of::part] = checked_multiply(place.stored.dim[first - axis_of::part].size(), step[first]);
  }
  const index_t strides[] = {step[axis_of::part], step[axis_of::row], step[axis_of::column]};
  const dtype holds = require_memory_of_shard(out, s, at, stride);
  shard_boxes(table, s, place, [&](const family_box& b, index_t rows) {
    each_tensor(place.tensor.family, b, [&](const tensor_id& t, const box<3>& part) {
      const index_t members = checked_multiply(t.member - b.dim[axis_of::layer].begin, step[axis_of::layer]),
                    experts = checked_multiply(t.expert - b.dim[axis_of::expert].begin, step[axis_of::expert]);
      const index_t elements = checked_add(checked_multiply(rows, stride.at[0]), checked_add(members, experts));
      out.add(bound_box{{state, t, part},
                        at.data + elements * width(holds),
                        {strides[0], strides[1], strides[2]},
                        width(holds),
                        holds,
                        s.type});
    });
  });
}

}  // namespace detail

/// Binds a shard whose element x (0 <= x < shape) lies at data + width (sum over i of x[i] stride[i]); the element type
/// is the state's, in the binding's list. What `locate` refuses of a shard is refused here too, and what has no memory.
inline void bind_shard(binding& out, const tensor_table& table, const shard& s, const memory& at,
                       const extents& stride) {
  detail::bind_located(out, table, s, locate(table, s, out.who() + ": ", out.list()), at, stride);
}

/// Binds a shard in row-major order, nothing between its elements.
inline void bind_shard(binding& out, const tensor_table& table, const shard& s, const memory& at) {
  const shard_place place = locate(table, s, out.who() + ": ", out.list());
  extents stride = s.shape;
  index_t elements = 1;
  for (int i = s.shape.ndim - 1; i >= 0; --i) {
    stride.at[i] = elements;
    elements = checked_multiply(elements, s.shape.at[i]);
  }
  detail::bind_located(out, table, s, place, at, stride);
}

}  // namespace reshard
