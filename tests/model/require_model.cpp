// SPDX-License-Identifier: Apache-2.0
// Models of one's own: what cannot be is refused with the family and the numbers.
#include <doctest/doctest.h>

#include <string>

#include <reshard/model/presets.hpp>
#include <reshard/model/require_model.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {
constexpr model own() {
  model m{.name = "own", .shape = {.layers = 4, .heads = 4, .groups = 2}};
  m.sets[0] = layer_set::all(4);
  m.sets[1].append(1);
  m.sets[1].append(3);
  m.sets[2].append(0);
  m.add({.name = "wte", .tied_name = "head", .extent = {1, 1, 1, 8, 4}, .place = home::embedding});
  m.add({.name = "l{layer}.qkv", .extent = {4, 1, 2, 12, 4}, .tensor_axis = axis_of::part, .fused = fused_as::qkv});
  m.add({.name = "l{layer}.x{expert}", .extent = {2, 3, 2, 5, 4}, .layers = 1, .fused = fused_as::gate_up});
  m.add({.name = "norm", .extent = {1, 1, 1, 1, 4}, .place = home::last_stage, .shape_ndim = 1});
  m.add({.name = "l{layer}.x{expert}", .extent = {1, 3, 1, 5, 4}, .layers = 2});
  return m;
}
template <typename Change>
std::string said(Change&& change) {
  model m = own();
  change(m);
  const std::string whole = refused([&] { require_model(m); });
  const std::string begin = "reshard: model own: ";
  return whole.starts_with(begin) ? whole.substr(begin.size()) : whole;
}
}  // namespace

TEST_CASE("models that can be, at both times") {
  static_assert((require_model(own()), true));
  CHECK(said([](model&) {}) == "accepted");
  for (const transformer& t : models::presets)
    CHECK(refused([&] { require_model(make_transformer(t)); }) == "accepted");
}

TEST_CASE("layers: a set that was given, as many as the family has, below the model's") {
  model nameless = own();
  nameless.family_at[3].name = "";
  CHECK(refused([&] { require_model(nameless); }) == "reshard: model own: family 3 '' has no name");
  CHECK(said([](model& m) { m.sets[0] = {}; }) ==
        "family 1 'l{layer}.qkv' has 4 layers, but layer set 0 has 0; sets[0] = layer_set::all(4) would give it all");
  CHECK(said([](model& m) { m.family_at[2].extent[0] = 3; }) ==
        "family 2 'l{layer}.x{expert}' has 3 layers, but layer set 1 has 2; sets[1] = layer_set::all(3) would give it "
        "all");
  CHECK(said([](model& m) { m.shape.layers = 2; }) ==
        "family 1 'l{layer}.qkv' is in layer 3, but the model has 2 layers");
  CHECK(said([](model& m) { m.family_at[1].layers = 8; }) ==
        "family 1 'l{layer}.qkv' is of layer set 8; sets are 0 to 7");
  CHECK(said([](model& m) { m.family_at[3].layers = -1; }) == "family 3 'norm' is of layer set -1; sets are 0 to 7");
  CHECK(said([](model& m) { m.shape.layers = 3; }) ==
        "family 1 'l{layer}.qkv' is in layer 3, but the model has 3 layers");
  CHECK(said([](model& m) { m.family_at[3].extent[0] = 2; }) ==
        "family 3 'norm' is in no layers, but has 2 of them; 1 is legal");
  CHECK(said([](model& m) { m.family_at[3].place = home::prediction; }) ==
        "family 3 'norm' is of a prediction layer, but shape.predictions is 0; 1 is legal");
  CHECK(said([](model& m) { m.shape.predictions = 2; }) == "2 prediction layers; 0 or 1 is supported");
}

TEST_CASE("extents, vectors and cuts") {
  const char* axes[] = {"layers", "experts", "parts", "rows", "columns"};
  for (int axis = 0; axis < family_ndim; ++axis)
    CHECK(said([=](model& m) { m.family_at[1].extent[axis] = 0; }) ==
          std::string("family 1 'l{layer}.qkv' has 0 ") + axes[axis] + "; an extent is at least 1");
  CHECK(said([](model& m) { m.family_at[3].extent[3] = 2; }) ==
        "family 3 'norm' is a vector of 2 rows; a vector has columns, in 1 row");
  CHECK(said([](model& m) { m.family_at[3].tensor_axis = axis_of::row; }) ==
        "family 3 'norm' is a vector cut along its 1 row; a vector is cut along its columns");
  CHECK(said([](model& m) { m.family_at[3].tensor_axis = axis_of::column; }) == "accepted");
  for (const int axis : {-2, 0, 1, 5})
    CHECK(said([=](model& m) { m.family_at[1].tensor_axis = axis; }) ==
          "family 1 'l{layer}.qkv' is cut along axis " + std::to_string(axis) +
              "; parts (2), rows (3), columns (4) and none (-1) are legal");
  for (const int ndim : {0, 4})
    CHECK(said([=](model& m) { m.family_at[1].shape_ndim = ndim; }) ==
          "family 1 'l{layer}.qkv' has tensors of " + std::to_string(ndim) + " dimensions; 1 to 3 are supported");
  CHECK(said([](model& m) { m.families = 0; }) == "0 tensor families; 1 to 64 are supported");
  CHECK(said([](model& m) { m.families = 65; }) == "65 tensor families; 1 to 64 are supported");
}

TEST_CASE("the neighbours of what is refused are models") {
  const auto fine = [](auto&& change) { CHECK(said(change) == "accepted"); };
  fine([](model& m) { m.family_at[3].layers = 7; });  // of no layers, whichever set
  fine([](model& m) { m.shape.layers = 5; });
  for (const index_t heads : {1, 2, 7})  // in one group, of a row for each query, its k and its v
    fine([=](model& m) {
      m.shape.heads = heads, m.shape.groups = 1;
      m.family_at[1].extent[2] = 1, m.family_at[1].extent[3] = heads + 2;
    });
  fine([](model& m) { m.shape.predictions = 1, m.family_at[3].place = home::prediction; });
  for (const int axis : {-1, 2, 3, 4}) fine([=](model& m) { m.family_at[2].tensor_axis = axis; });
  for (const int ndim : {2, 3}) fine([=](model& m) { m.family_at[2].shape_ndim = ndim; });
  fine([](model& m) { m.family_at[3].tensor_axis = axis_of::part; });
  fine([](model& m) { m.family_at[2].extent[4] = 1; });
  fine([](model& m) { m.family_at[3].place = home::first_stage; });
  fine([](model& m) { m.family_at[0].tied_name = ""; });
  fine([](model& m) { m.families = 1; });
  fine([](model& m) {  // as many as there can be, each with its name
    static constexpr char letters[max_families + 1] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+";
    while (m.families < max_families)
      m.add({.name = std::string_view(letters + m.families, 1), .place = home::last_stage});
  });
  fine([](model& m) { m.family_at[3].mesh = mesh_kind::expert; });  // 1, of any number
  CHECK(said([](model& m) { m.shape.groups = 0; }) ==
        "family 1 'l{layer}.qkv' is q, k and v of 2 groups, but shape.groups is 0");
  CHECK(said([](model& m) { m.shape.heads = 0; }) ==
        "family 1 'l{layer}.qkv' is q, k and v of 0 heads, which do not divide into 2 groups");
  CHECK(said([](model& m) { m.family_at[2].extent[2] = 1; }) ==
        "family 2 'l{layer}.x{expert}' is gate and up in 1 parts; 2 are legal");
  CHECK(said([](model& m) { m.shape.predictions = -1; }) == "-1 prediction layers; 0 or 1 is supported");
  CHECK(said([](model& m) { m.family_at[3].extent[3] = -1; }) ==
        "family 3 'norm' has -1 rows; an extent is at least 1");
  CHECK(said([](model& m) { m.families = -1; }) == "-1 tensor families; 1 to 64 are supported");
}

TEST_CASE("pieces fit their parts") {
  CHECK(said([](model& m) { m.family_at[2].extent[2] = 3; }) ==
        "family 2 'l{layer}.x{expert}' is gate and up in 3 parts; 2 are legal");
  CHECK(said([](model& m) { m.shape.groups = 4; }) ==
        "family 1 'l{layer}.qkv' is q, k and v of 2 groups, but shape.groups is 4");
  CHECK(said([](model& m) { m.shape.heads = 5; }) ==
        "family 1 'l{layer}.qkv' is q, k and v of 5 heads, which do not divide into 2 groups");
  CHECK(said([](model& m) { m.family_at[1].extent[3] = 13; }) ==
        "family 1 'l{layer}.qkv' has 13 rows in a group, which do not divide by its 4 heads of q, k and v");
}

TEST_CASE("experts and a padded vocabulary are as many as the dimensions say") {
  const auto experts_of = [](index_t experts) {
    return said([=](model& m) {
      m.family_at[2].mesh = mesh_kind::expert;
      m.shape.experts = experts;
    });
  };
  CHECK(experts_of(3) == "accepted");
  CHECK(experts_of(0) == "family 2 'l{layer}.x{expert}' has 3 experts, but shape.experts is 0");
  CHECK(experts_of(6) == "family 2 'l{layer}.x{expert}' has 3 experts, but shape.experts is 6");
  const auto padded = [](index_t vocabulary, int axis) {
    return said([=](model& m) {
      m.family_at[0].padded = padded_as::vocabulary;
      m.family_at[0].tensor_axis = axis;
      m.shape.vocabulary = vocabulary;
    });
  };
  CHECK(padded(8, axis_of::row) == "accepted");
  CHECK(padded(9, axis_of::row) == "family 0 'wte' has a padded vocabulary of 8 rows, but shape.vocabulary is 9");
  CHECK(padded(8, axis_of::column) ==
        "family 0 'wte' has a padded vocabulary, but is cut along axis 4; rows (3) are legal");
}

TEST_CASE("names: there, with the numbers that tell tensors apart, and none twice") {
  CHECK(said([](model& m) { m.family_at[3].name = ""; }) == "family 3 '' has no name");
  CHECK(said([](model& m) { m.family_at[1].name = "qkv"; }) ==
        "family 1 'qkv' has 4 layers, so its name needs {layer}");
  CHECK(said([](model& m) { m.family_at[2].name = "l{layer}.x"; }) ==
        "family 2 'l{layer}.x' has 3 experts, so its name needs {expert}");
  CHECK(said([](model& m) { m.family_at[2].name = "x{expert}"; }) ==
        "family 2 'x{expert}' has 2 layers, so its name needs {layer}");
  CHECK(said([](model& m) {
          m.family_at[2].name = "l{layer}.x";
          m.family_at[2].extent[1] = 2;
        }) == "family 2 'l{layer}.x' has 2 experts, so its name needs {expert}");
  CHECK(said([](model& m) {
          m.family_at[2].name = "l{layer}.x";
          m.family_at[2].extent[1] = 1;
        }) == "accepted");
  CHECK(said([](model& m) { m.family_at[3].name = "wte"; }) ==
        "family 3 'wte' has the name of family 0; names tell tensors apart");
  CHECK(said([](model& m) { m.family_at[3].name = "head"; }) ==
        "family 3 'head' has the name of the copy of family 0 'wte'");
  CHECK(said([](model& m) {
          m.sets[2] = {};
          m.sets[2].append(3);
        }) == "family 4 'l{layer}.x{expert}' has the name of family 2; names tell tensors apart");
  CHECK(said([](model& m) {
          m.sets[2] = {};
          m.sets[2].append(1);
        }) == "family 4 'l{layer}.x{expert}' has the name of family 2; names tell tensors apart");
  CHECK(said([](model& m) {
          m.sets[2] = {};
          m.sets[2].append(2);
        }) == "accepted");
  CHECK(said([](model& m) {
          m.family_at[3].place = home::embedding;
          m.family_at[3].tied_name = "wte";
        }) == "family 0 'wte' has the name of the copy of family 3 'norm'");
  CHECK(said([](model& m) { m.family_at[3].tied_name = "x"; }) ==
        "family 3 'norm' is tied to 'x', but only families of home::embedding have a copy");
}

TEST_CASE("what stands behind the last family is no part of the model, nor are its names") {
  CHECK(said([](model& m) {
          m.add({.name = "norm", .place = home::last_stage});
          --m.families;
        }) == "accepted");
  CHECK(said([](model& m) {
          m.add({.name = "copied", .tied_name = "norm", .place = home::embedding});
          --m.families;
        }) == "accepted");
}

TEST_CASE("what is pinned has one tensor whatever layer set it names, and shares no name with another") {
  const auto pinned_as = [](model& m, int f, const char* name, int set) {
    m.family_at[f].name = name, m.family_at[f].layers = set, m.family_at[f].place = home::last_stage;
  };
  CHECK(said([&](model& m) {
          m.add({.name = "norm"});
          pinned_as(m, 3, "l{layer}.norm", 1);
          pinned_as(m, 5, "l{layer}.norm", 2);
        }) == "family 5 'l{layer}.norm' has the name of family 3; names tell tensors apart");
  CHECK(said([&](model& m) {
          m.family_at[4].name = "l{layer}.y{expert}";
          pinned_as(m, 3, "l{layer}.x{expert}", 2);
        }) == "family 3 'l{layer}.x{expert}' has the name of family 2; names tell tensors apart");
  static_assert(
      [] {
        model m = own();
        m.family_at[3].name = "wte";
        require_model(m);
        return true;
      }(),
      "in a constant expression names are not compared");
}
