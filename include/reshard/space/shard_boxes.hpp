// SPDX-License-Identifier: Apache-2.0
// Where a shard lies in its tensor's family: a rectangle of the stored tensor as boxes of (layer, expert, part, row,
// column).
// Builds on: space/tensor_table.hpp, algebra/flat.hpp.
#pragma once

#include <string_view>

#include <reshard/algebra/flat.hpp>
#include <reshard/model/state_list.hpp>
#include <reshard/space/tensor_table.hpp>

namespace reshard {

/// A shard's state, its number in the list, its tensor, and the parts, rows and columns that are stored under its name.
struct shard_place {
  int state = 0;
  tensor_id tensor;
  box<3> stored = {};
};

/// Whether `parts` parts of a family's tensors are stored as a matrix whose rows are theirs, one part after the other:
/// [parts x rows, columns]; or as a vector [parts x columns].
constexpr bool folds_parts(const family& f, index_t parts) { return parts > 1 && f.shape_ndim <= 2; }
constexpr bool folds_parts(const family& f) { return folds_parts(f, f.extent[axis_of::part]); }

/// The shard's place in the table. Refuses what no table admits: an unknown name or state, a shape that is not the
/// tensor's, a shard that reaches outside of it, an element type that is not the state's. `who` begins the sentence:
/// nothing, or an owner and ": ".
[[nodiscard]] inline shard_place locate(const tensor_table& table, const shard& s, std::string_view who = "",
                                        const state_list& states = adam) {
  const int state = states.find(s.state);
  if (state < 0)
    refuse(who, "shard of '", s.tensor, "': no state is called '", s.state, "'; states are ",
           detail::state_names(states, " and "));
  const auto found = table.find_stored(s.tensor);
  if (!found) refuse(who, "no tensor is called '", s.tensor, "'");
  const family& tensors = table.family_at(found->tensor.family);
  if (s.whole.ndim != tensors.shape_ndim)
    refuse(who, "shard of '", s.tensor, "': ", s.whole.ndim, " dimensions; the tensor has ", tensors.shape_ndim);
  if (s.offset.ndim != s.whole.ndim || s.shape.ndim != s.whole.ndim)
    refuse(who, "shard of '", s.tensor, "': an offset of ", s.offset.ndim, " and a shape of ", s.shape.ndim,
           " dimensions in a tensor of ", s.whole.ndim);
  for (int i = 0; i < s.whole.ndim; ++i)
    if (s.offset.at[i] < 0 || s.shape.at[i] < 0 || s.shape.at[i] > s.whole.at[i] ||
        s.offset.at[i] > s.whole.at[i] - s.shape.at[i])
      refuse(who, "shard of '", s.tensor, "' on rank ", s.rank, ": [", s.offset.at[i], ", ", s.offset.at[i], " + ",
             s.shape.at[i], ") reaches outside the extent ", s.whole.at[i], " of dimension ", i);
  for (int i = 0; i < s.whole.ndim; ++i) {
    const int axis = family_ndim - tensors.shape_ndim + i;
    const index_t parts = found->where.dim[0].size(),
                  inner = axis < axis_of::part ? tensors.extent[axis] : found->where.dim[axis - axis_of::part].size(),
                  extent = inner * (folds_parts(tensors, parts) && i == 0 ? parts : 1);
    if (s.whole.at[i] != extent)
      refuse(who, "shard of '", s.tensor, "': dimension ", i, " is said to have extent ", s.whole.at[i],
             "; the tensor's is ", extent);
  }
  const state_set kept = states_of(tensors.kind, states.named(s.state));  // a statistic's has the name of a parameter's
  if (kept.empty()) refuse(who, "shard of '", s.tensor, "': this tensor has no state '", s.state, "'");
  const int number = *kept.begin();
  if (const dtype type = states[number].type; s.type != type)
    refuse(who, s.state, " of '", s.tensor, "' is ", name(s.type), ", and the list of states has it as ", name(type));
  return {number, found->tensor, found->where};
}

/// Calls sink(box, rows) with the boxes that make up the shard, none of them empty: one, or up to three where parts are
/// folded into rows. `rows` is how far into the shard, along its first stored dimension, the box begins.
template <typename Sink>
void shard_boxes(const tensor_table& table, const shard& s, const shard_place& at, Sink&& sink) {
  const family& tensors = table.family_at(at.tensor.family);
  family_box held = tensors.whole();
  held.dim[axis_of::layer] = {at.tensor.member, at.tensor.member + 1};
  held.dim[axis_of::expert] = {at.tensor.expert, at.tensor.expert + 1};
  for (int i = 0; i < 3; ++i) held.dim[axis_of::part + i] = at.stored.dim[i];
  const bool folded = folds_parts(tensors, at.stored.dim[0].size());
  const int first = family_ndim - tensors.shape_ndim;  // the axis of the first stored dimension
  for (int i = folded ? 1 : 0; i < tensors.shape_ndim; ++i) {
    const index_t begin = s.offset.at[i] + (first + i < axis_of::part ? 0 : held.dim[first + i].begin);
    held.dim[first + i] = {begin, begin + s.shape.at[i]};
  }
  if (!folded) {
    if (!held.empty()) sink(held, index_t{0});
    return;
  }
  const interval parts = held.dim[axis_of::part], inner = held.dim[first];
  const index_t rows[2] = {parts.size(), inner.size()};
  invert_flat(rows, {s.offset.at[0], s.offset.at[0] + s.shape.at[0]}, [&](const box<2>& part) {
    held.dim[axis_of::part] = translate(part.dim[0], parts.begin);
    held.dim[first] = translate(part.dim[1], inner.begin);
    if (!held.empty()) sink(held, flat_hull(rows, part).begin - s.offset.at[0]);
  });
}

}  // namespace reshard
