// SPDX-License-Identifier: Apache-2.0
// How the families of a layer are added to a model: their shapes, and their names, which are
//   decoder.layers.{layer}.X    in the decoder's layers, and
//   mtp.layers.0.mtp_model_layer.X    in the layer inside a prediction layer.
// Builds on: model/detail/transformer_sizes.hpp.
#pragma once

#include <cstddef>

#include <reshard/model/detail/transformer_sizes.hpp>

namespace reshard::detail {

/// A name as a template argument.
template <std::size_t N>
struct name_text {
  char at[N] = {};
  constexpr name_text() = default;
  constexpr name_text(const char (&text)[N]) {
    for (std::size_t i = 0; i < N; ++i) at[i] = text[i];
  }
  constexpr std::string_view view() const { return {at, N - 1}; }
};
template <std::size_t A, std::size_t B>
constexpr name_text<A + B - 1> operator+(const name_text<A>& a, const name_text<B>& b) {
  name_text<A + B - 1> sum;
  for (std::size_t i = 0; i + 1 < A; ++i) sum.at[i] = a.at[i];
  for (std::size_t i = 0; i < B; ++i) sum.at[A - 1 + i] = b.at[i];
  return sum;
}

template <name_text Name>
inline constexpr auto decoder_name = name_text("decoder.layers.{layer}.") + Name;
template <name_text Name>
inline constexpr auto prediction_name = name_text("mtp.layers.0.mtp_model_layer.") + Name;

constexpr family matrix(index_t rows, index_t columns, int tensor_axis) {
  return {.name = {}, .extent = {1, 1, 1, rows, columns}, .tensor_axis = tensor_axis};
}
constexpr family vector(index_t elements, int tensor_axis = axis_of::none) {
  return {.name = {}, .extent = {1, 1, 1, 1, elements}, .tensor_axis = tensor_axis, .shape_ndim = 1};
}
constexpr family of_experts(family f, index_t experts) {
  f.extent[axis_of::expert] = experts;
  f.mesh = mesh_kind::expert;
  return f;
}
constexpr family gate_and_up(family f) {
  f.extent[axis_of::part] = 2;
  f.fused = fused_as::gate_up;
  return f;
}
constexpr family statistic(family f) {
  f.kind = tensor_kind::statistic;
  return f;
}
/// The fused rows (a bias: columns) of q, k and v, a part for each query group: its queries, its k, its v.
constexpr family by_group(family f, index_t groups) {
  f.extent[axis_of::part] = groups;
  f.extent[f.inner_axis()] /= groups;
  f.tensor_axis = axis_of::part;
  f.fused = fused_as::qkv;
  return f;
}

/// Adds a family that is pinned to a place of the network.
constexpr void add_at(model& m, home place, std::string_view name, family f) {
  f.name = name;
  f.place = place;
  m.add(f);
}

/// The layer sets of a transformer, by number: all layers, dense ones, mixtures of experts.
enum : int { every_layer, dense_layers, moe_layers };

/// Adds the families of the layers of one set: the decoder's, or, at home::prediction, one layer of that kind.
struct layer_families {
  model& of;
  home place;
  int set;

  template <name_text Name>
  constexpr void add(family f) const {
    const bool decoder = place == home::layers;
    f.name = decoder ? decoder_name<Name>.view() : prediction_name<Name>.view();
    f.extent[axis_of::layer] = decoder ? of.sets[set].size() : 1;
    f.place = place;
    f.layers = set;
    of.add(f);
  }
};

}  // namespace reshard::detail
