// SPDX-License-Identifier: Apache-2.0
// Bindings by name: a shard of a framework's own list (tensor name, state name, offset, shape) and the memory that it lies in.
// Builds on: space/shard_list.hpp, exec/binding.hpp.
#pragma once

#include <reshard/exec/binding.hpp>
#include <reshard/space/shard_list.hpp>

namespace reshard {

/// Names for the sentences of a binding over a table's tensors; the table must outlive it. Tensors of a model are named by layer.
inline tensor_names names_of(const model& m) {
  return [&m](int f, index_t member, index_t expert) { return m.tensor(f, member, expert); };
}
inline tensor_names names_of(const tensor_table& table) {
  return [&table](int f, index_t, index_t) { return std::string(table.family_at(f).name); };
}

/// Binds a shard whose element x (0 <= x < shape) lies at data + width (sum over i of x[i] stride[i]); the element type is the
/// state's. What listed_holding refuses of a shard it refuses too; here it is what has no memory.
inline void bind_shard(binding& out, const tensor_table& table, const shard& s, memory at, const extents& stride) {
  int state = 0;
  while (state < state_count && adam_states[state].name != s.state) ++state;
  const auto found = table.find(s.tensor);
  if (state == state_count || !found)
    refuse(out.who(), ": there is no state '", s.state, "' of a tensor '", s.tensor, "'");
  const family& which = table.family_at(found->family);
  if (s.type != adam_states[state].type)
    refuse(out.who(), ": ", s.state, " of '", s.tensor, "' is ", name(s.type), ", and this library keeps it as ", name(adam_states[state].type));
  if (s.offset.ndim != which.shape_ndim || s.shape.ndim != which.shape_ndim || stride.ndim != which.shape_ndim)
    refuse(out.who(), ": '", s.tensor, "' has ", which.shape_ndim, " dimensions, its shard an offset of ", s.offset.ndim, ", a shape of ",
           s.shape.ndim, " and strides of ", stride.ndim);
  // the box and strides over the family's axes; the first stored dimension of a matrix of several parts is parts x rows
  family_box where = which.whole();
  where.dim[axis_of::layer] = {found->member, found->member + 1};
  where.dim[axis_of::expert] = {found->expert, found->expert + 1};
  index_t step[family_ndim] = {};
  const auto own = [&](int dim) { return interval{s.offset.at[dim], s.offset.at[dim] + s.shape.at[dim]}; };
  for (int dim = 0; dim < which.shape_ndim; ++dim) {
    const int axis = family_ndim - which.shape_ndim + dim;
    where.dim[axis] = own(dim);
    step[axis] = stride.at[dim];
  }
  const bytes_t width = reshard::width(s.type);
  const auto add = [&](const family_box& b, index_t elements_before) {
    const index_t strides[] = {step[axis_of::part], step[axis_of::row], step[axis_of::column]};
    for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
      for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert) {
        const bytes_t skipped =
            width * (elements_before + (member - where.dim[0].begin) * step[axis_of::layer] + (expert - where.dim[1].begin) * step[axis_of::expert]);
        out.add({state, found->family, member, expert, {{b.dim[2], b.dim[3], b.dim[4]}}},
                {at.data == nullptr ? nullptr : at.data + least(skipped, at.bytes), at.bytes - least(skipped, at.bytes)}, strides);
      }
  };
  if (which.extent[axis_of::part] == 1 || which.shape_ndim != 2) return add(where, 0);
  const index_t rows[2] = {which.extent[axis_of::part], which.extent[axis_of::row]};
  step[axis_of::part] = rows[1] * step[axis_of::row];
  invert_flat(rows, own(0), [&](const box<2>& part) {
    family_box b = where;
    b.dim[axis_of::part] = part.dim[0];
    b.dim[axis_of::row] = part.dim[1];
    add(b, (flat_hull(rows, part).begin - s.offset.at[0]) * step[axis_of::row]);
  });
}

/// The same for a shard in row-major order, none between its elements.
inline void bind_shard(binding& out, const tensor_table& table, const shard& s, memory at) {
  extents stride = s.shape;
  index_t elements = 1;
  for (int i = s.shape.ndim - 1; i >= 0; --i) {
    stride.at[i] = elements;
    elements = checked_multiply(elements, s.shape.at[i]);
  }
  bind_shard(out, table, s, at, stride);
}

}  // namespace reshard
