// SPDX-License-Identifier: Apache-2.0
// A tensor family: all tensors of one role in a model as one dense array
//   [member layers, experts, parts (gate / up, query groups), rows, columns],
// an extent of 1 where a family has no such axis. Every parallel dimension is an axis of it, so "strided" SwiGLU
// shards, q, k and v among their groups, expert blocks and pipeline chunks are all plain boxes.
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

/// Which pipeline chunks hold a family: those of its layers, or what its place in the network pins it to.
enum class home {
  layers,       // the chunks of its layers
  first_stage,  // the first chunk
  last_stage,   // the last chunk
  embedding,    // the first chunk; copies where prediction layers sit and, under its tied name, in the last chunk
  last_layer,   // the chunk of the last layer
  prediction,   // the chunk of the prediction layers
};

/// What a family's tensors are to an optimizer: parameters, or statistics that the model keeps in fp32 beside them
/// (the router's expert bias), which have no gradient, no optimizer state and no place in optimizer buffers.
enum class tensor_kind { parameter, statistic };

/// Which checkpoint tensors a framework that does not fuse makes of one: q, k and v; gate and up; or the tensor itself.
enum class fused_as { nothing, qkv, gate_up };

/// Whose number of rows may differ from side to side: the vocabulary, which is padded.
enum class padded_as { nothing, vocabulary };

/// Which mesh cuts a family: the dense one (tp, cp, dp, pp) or the experts' (etp, ep, edp, pp).
enum class mesh_kind { dense, expert };

/// All tensors of one role in a model as one array: its name, its extents, and which mesh and axis cut it.
struct family {
  std::string_view name;            // "decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}"
  std::string_view tied_name = {};  // the name of the copy in the last chunk (home::embedding), else empty
  index_t extent[family_ndim] = {1, 1, 1, 1, 1};
  home place = home::layers;
  int layers = 0;  // which of the model's layer sets: for home::layers, and for prediction layers of that kind
  mesh_kind mesh = mesh_kind::dense;
  // What tensor parallelism cuts: row or column, each part alike; or part, which is the stored dimension that the parts
  // and what lies in each make together, cut into consecutive pieces.
  int tensor_axis = axis_of::none;
  int shape_ndim = 2;  // dimensions of one stored tensor: 1 for a vector (parts of columns), 2 for a matrix
  tensor_kind kind = tensor_kind::parameter;
  fused_as fused = fused_as::nothing;
  padded_as padded = padded_as::nothing;

  constexpr family_box whole() const { return whole_box(extent); }

  /// Elements of one tensor: parts x rows x columns.
  constexpr index_t tensor_elements() const { return extent[2] * extent[3] * extent[4]; }
  constexpr index_t tensors() const { return extent[0] * extent[1]; }
  constexpr bool vector() const { return shape_ndim == 1; }
  /// The axis that counts inside a part what the first dimension of a stored tensor counts: rows, or columns.
  constexpr int inner_axis() const { return vector() ? axis_of::column : axis_of::row; }
  /// Whether a stored tensor is [parts, rows, columns]; else its parts and what lies in each make its first dimension.
  constexpr bool stacked() const { return shape_ndim == 3; }
  /// Whether tensor parallelism cuts the dimension that parts and what lies in each make together.
  constexpr bool cuts_over_parts() const {
    return tensor_axis != axis_of::none && !stacked() && (tensor_axis != axis_of::column || vector());
  }
  /// The axis of what tensor parallelism cuts; where that is counted over the parts, or it cuts nothing, what lies in
  /// each.
  constexpr int cut_axis() const {
    return cuts_over_parts() || tensor_axis == axis_of::none ? inner_axis() : tensor_axis;
  }
};

/// The rows of a box that are padding of the vocabulary which a side with this family does not have; empty where it has
/// them all.
constexpr family_box padding_beyond(const family& tensors, const family_box& b) {
  if (tensors.padded == padded_as::nothing || b.dim[axis_of::row].end <= tensors.extent[axis_of::row]) return {};
  family_box fresh = b;
  fresh.dim[axis_of::row].begin = greatest(b.dim[axis_of::row].begin, tensors.extent[axis_of::row]);
  return fresh;
}

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

namespace detail {

/// Takes a number off the front of a name, as it is written there: no sign, no zeros before it, 18 digits at most; -1
/// where there is none.
inline index_t take_number(std::string_view& text) {
  std::size_t digits = 0;
  index_t number = 0;
  for (; digits < text.size() && '0' <= text[digits] && text[digits] <= '9'; ++digits) {
    if (digits == 18) return -1;
    number = 10 * number + (text[digits] - '0');
  }
  if (digits == 0 || (digits > 1 && text.front() == '0')) return -1;
  text.remove_prefix(digits);
  return number;
}

/// Whether tensor_name(pattern, layer, expert) == name, with the layer and the expert; 0 where the pattern has none.
inline bool matches(std::string_view pattern, std::string_view name, index_t& layer, index_t& expert) {
  layer = expert = -1;
  while (!pattern.empty()) {
    const bool of_layer = pattern.starts_with("{layer}");
    if (of_layer || pattern.starts_with("{expert}")) {
      const index_t number = take_number(name);
      index_t& known = of_layer ? layer : expert;
      if (number < 0 || (known >= 0 && known != number)) return false;
      known = number;
      pattern.remove_prefix(of_layer ? 7 : 8);
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      name.remove_prefix(1), pattern.remove_prefix(1);
    }
  }
  layer = greatest(layer, 0), expert = greatest(expert, 0);
  return name.empty();
}

}  // namespace detail

}  // namespace reshard
