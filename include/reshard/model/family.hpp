// SPDX-License-Identifier: Apache-2.0
// A tensor family: all tensors of one role in a model as one dense array
//   [member layers, experts, parts (gate / up), rows, columns],
// an extent of 1 where a family has no such axis. Every parallel dimension is an axis of it, so "strided" SwiGLU
// shards, expert blocks and pipeline chunks are all plain boxes.
// Builds on: algebra/box.hpp.
#pragma once

#include <string>
#include <string_view>

#include <reshard/algebra/box.hpp>

namespace reshard {

/// Axes of a family's array: layer, expert, part, row, column.
inline constexpr int family_ndim = 5;
/// A box of a family's array, in global coordinates.
using family_box = box<family_ndim>;

/// The axes of a family's array, by name.
namespace axis_of {
/// The index of each axis in extent; layer counts the member layers of the family.
inline constexpr int layer = 0, expert = 1, part = 2, row = 3, column = 4;
/// No axis: the tensor_axis of a family that tensor parallelism does not cut.
inline constexpr int none = -1;
}  // namespace axis_of

/// Which pipeline stages hold a family: those of its layers, or one that its place in the network pins it to.
enum class home { layers, first_stage, last_stage, both_ends };

/// Which mesh cuts a family: the dense one (tp, cp, dp, pp) or the experts' (etp, ep, edp, pp).
enum class mesh_kind { dense, expert };

/// All tensors of one role in a model as one array: its name, its extents, and which mesh and axis cut it.
struct family {
  std::string_view name;            // "decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}"
  std::string_view tied_name = {};  // the name of the copy on the last stage (home::both_ends), else empty
  index_t extent[family_ndim] = {1, 1, 1, 1, 1};
  home place = home::layers;
  int layers = 0;  // which of the model's layer sets, for home::layers
  mesh_kind mesh = mesh_kind::dense;
  int tensor_axis = axis_of::none;  // the axis that tensor parallelism cuts
  int shape_ndim = 2;               // dimensions of one stored tensor: 1 for a vector (columns only), 2 for a matrix

  constexpr family_box whole() const { return whole_box(extent); }

  /// Elements of one tensor: parts x rows x columns.
  constexpr index_t tensor_elements() const { return extent[2] * extent[3] * extent[4]; }
  constexpr index_t tensors() const { return extent[0] * extent[1]; }
  constexpr bool vector() const { return shape_ndim == 1; }
};

/// `pattern` with {layer} and {expert} replaced by numbers.
inline std::string tensor_name(std::string_view pattern, index_t layer, index_t expert) {
  std::string result;
  while (!pattern.empty()) {
    if (pattern.starts_with("{layer}")) {
      result += std::to_string(layer);
      pattern.remove_prefix(7);
    } else if (pattern.starts_with("{expert}")) {
      result += std::to_string(expert);
      pattern.remove_prefix(8);
    } else {
      result += pattern.front();
      pattern.remove_prefix(1);
    }
  }
  return result;
}

}  // namespace reshard
