// SPDX-License-Identifier: Apache-2.0
// What a model must be before anything is asked of it: families whose layers are those of a set that was given, names
// that tell all tensors apart, and extents and cuts that fit together. Every fault is a sentence.
// Builds on: model/model.hpp.
#pragma once

#include <type_traits>

#include <reshard/model/model.hpp>

namespace reshard {

namespace detail {

/// The start of every sentence here.
template <typename... Parts>
[[noreturn]] constexpr void refuse_family(const model& m, int f, Parts... parts) {
  refuse("model ", m.name, ": family ", f, " '", m[f].name, "' ", parts...);
}

constexpr std::string_view axis_name(int axis) {
  constexpr std::string_view names[family_ndim] = {"layers", "experts", "parts", "rows", "columns"};
  return names[axis];
}

constexpr void require_layers(const model& m, int f) {
  const family& x = m[f];
  const index_t members = x.extent[axis_of::layer];
  if (x.layers < 0 || x.layers >= max_layer_sets)
    refuse_family(m, f, "is of layer set ", x.layers, "; sets are 0 to ", max_layer_sets - 1);
  if (x.place != home::layers) {
    if (members != 1) refuse_family(m, f, "is in no layers, but has ", members, " of them; 1 is legal");
    if (x.place == home::prediction && m.shape.predictions != 1)
      refuse_family(m, f, "is of a prediction layer, but shape.predictions is ", m.shape.predictions, "; 1 is legal");
    return;
  }
  const layer_set& set = m.layers_of(f);
  if (set.size() != members)
    refuse_family(m, f, "has ", members, " layers, but layer set ", x.layers, " has ", set.size(), "; sets[", x.layers,
                  "] = layer_set::all(", members, ") would give it all");
  if (const index_t last = set.layer_of(members - 1); last >= m.shape.layers)
    refuse_family(m, f, "is in layer ", last, ", but the model has ", m.shape.layers, " layers");
}

constexpr void require_shape(const model& m, int f) {
  const family& x = m[f];
  for (int axis = 0; axis < family_ndim; ++axis)
    if (x.extent[axis] < 1)
      refuse_family(m, f, "has ", x.extent[axis], " ", axis_name(axis), "; an extent is at least 1");
  if (x.shape_ndim < 1 || x.shape_ndim > 3)
    refuse_family(m, f, "has tensors of ", x.shape_ndim, " dimensions; 1 to 3 are supported");
  if (x.vector() && x.extent[axis_of::row] != 1)
    refuse_family(m, f, "is a vector of ", x.extent[axis_of::row], " rows; a vector has columns, in 1 row");
  if (x.tensor_axis != axis_of::none && (x.tensor_axis < axis_of::part || x.tensor_axis > axis_of::column))
    refuse_family(m, f, "is cut along axis ", x.tensor_axis,
                  "; parts (2), rows (3), columns (4) and none (-1) are legal");
  if (x.vector() && x.tensor_axis == axis_of::row)
    refuse_family(m, f, "is a vector cut along its 1 row; a vector is cut along its columns");
  if (!x.tied_name.empty() && x.place != home::embedding)
    refuse_family(m, f, "is tied to '", x.tied_name, "', but only families of home::embedding have a copy");
}

constexpr void require_pieces(const model& m, int f) {
  const family& x = m[f];
  const index_t parts = x.extent[axis_of::part];
  if (x.fused == fused_as::gate_up && parts != 2)
    refuse_family(m, f, "is gate and up in ", parts, " parts; 2 are legal");
  if (x.fused != fused_as::qkv) return;
  const index_t groups = m.shape.groups, heads = m.shape.heads;
  if (groups < 1 || parts != groups)
    refuse_family(m, f, "is q, k and v of ", parts, " groups, but shape.groups is ", groups);
  if (heads < 1 || heads % groups != 0)
    refuse_family(m, f, "is q, k and v of ", heads, " heads, which do not divide into ", groups, " groups");
  const index_t inner = x.extent[x.inner_axis()], heads_of_group = heads / groups + 2;
  if (inner % heads_of_group != 0)
    refuse_family(m, f, "has ", inner, " rows in a group, which do not divide by its ", heads_of_group,
                  " heads of q, k and v");
}

/// What legality asks of the dimensions is true of the families.
constexpr void require_dimensions(const model& m, int f) {
  const family& x = m[f];
  if (const index_t experts = x.extent[axis_of::expert];
      x.mesh == mesh_kind::expert && experts != 1 && experts != m.shape.experts)
    refuse_family(m, f, "has ", experts, " experts, but shape.experts is ", m.shape.experts);
  if (x.padded != padded_as::vocabulary) return;
  if (const index_t rows = x.extent[axis_of::row]; rows != m.shape.vocabulary)
    refuse_family(m, f, "has a padded vocabulary of ", rows, " rows, but shape.vocabulary is ", m.shape.vocabulary);
  if (x.tensor_axis != axis_of::row)
    refuse_family(m, f, "has a padded vocabulary, but is cut along axis ", x.tensor_axis, "; rows (3) are legal");
}

constexpr void require_numbers_in_name(const model& m, int f) {
  const family& x = m[f];
  if (x.name.empty()) refuse_family(m, f, "has no name");
  if (x.extent[axis_of::layer] > 1 && x.name.find("{layer}") == x.name.npos)
    refuse_family(m, f, "has ", x.extent[axis_of::layer], " layers, so its name needs {layer}");
  if (x.extent[axis_of::expert] > 1 && x.name.find("{expert}") == x.name.npos)
    refuse_family(m, f, "has ", x.extent[axis_of::expert], " experts, so its name needs {expert}");
}

/// Two families of the decoder's layers may have one name where no layer has both.
constexpr bool in_one_place(const model& m, int f, int g) {
  if (m[f].place != home::layers || m[g].place != home::layers) return true;
  const layer_set &a = m.layers_of(f), &b = m.layers_of(g);
  for (index_t i = 0; i < a.size(); ++i)
    if (b.contains(a.layer_of(i))) return true;
  return m[f].name.find("{layer}") == std::string_view::npos;
}
constexpr void require_distinct_names(const model& m) {
  for (int f = 0; f < m.families; ++f)
    for (int g = 0; g < m.families; ++g) {
      const bool same = f < g && m[f].name == m[g].name && in_one_place(m, f, g);
      if (same) refuse_family(m, g, "has the name of family ", f, "; names tell tensors apart");
      if (!m[f].tied_name.empty() && m[f].tied_name == m[g].name)
        refuse_family(m, g, "has the name of the copy of family ", f, " '", m[f].name, "'");
    }
}

}  // namespace detail

/// Refuses a model of one's own that cannot be: a layer set that was not given, layers beyond the last, extents below
/// 1, vectors with rows, pieces that do not fit their parts, names that repeat or lack a number. In a constant
/// expression names are not compared with each other, which would be dear.
constexpr void require_model(const model& m) {
  if (m.families < 1 || m.families > max_families)
    refuse("model ", m.name, ": ", m.families, " tensor families; 1 to ", max_families, " are supported");
  if (m.shape.predictions < 0 || m.shape.predictions > 1)
    refuse("model ", m.name, ": ", m.shape.predictions, " prediction layers; 0 or 1 is supported");
  for (int f = 0; f < m.families; ++f) {
    detail::require_shape(m, f);
    detail::require_layers(m, f);
    detail::require_pieces(m, f);
    detail::require_dimensions(m, f);
    detail::require_numbers_in_name(m, f);
  }
  if (!std::is_constant_evaluated()) detail::require_distinct_names(m);
}

}  // namespace reshard
