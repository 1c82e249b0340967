// SPDX-License-Identifier: Apache-2.0
// The families of a layer by hand: what each shape is made of, how it is named in the decoder and in a prediction
// layer, and what a model has after they are added.
#include <doctest/doctest.h>

#include <iterator>
#include <string_view>
#include <vector>

#include <reshard/model/detail/layer_families.hpp>

using namespace reshard;

namespace {

std::vector<index_t> extents_of(const family& f) { return {std::begin(f.extent), std::end(f.extent)}; }
using extent_list = std::vector<index_t>;

/// Six layers, of which two and four are of their own sets.
model six_layers() {
  model m;
  m.sets[detail::every_layer] = layer_set::all(6);
  for (const index_t layer : {0, 3}) m.sets[detail::dense_layers].append(layer);
  for (const index_t layer : {1, 2, 4, 5}) m.sets[detail::moe_layers].append(layer);
  return m;
}

}  // namespace

TEST_CASE("names as values: a text without its end, and one behind the other") {
  const char one[] = {'a', 'b', '\0'}, other[] = {'c', '\0'};
  const detail::name_text<3> ab(one);
  const detail::name_text<2> c(other);
  CHECK(ab.view() == "ab");
  CHECK(c.view() == "c");
  CHECK((ab + c).view() == "abc");
  CHECK((c + ab).view() == "cab");
  CHECK((ab + c + ab).view() == "abcab");
  CHECK((ab + detail::name_text("")).view() == "ab");
  CHECK(detail::name_text<4>().view() == std::string_view("\0\0\0", 3));
  CHECK(sizeof(ab + c) == sizeof("abc"));
  CHECK((ab + c).at[3] == '\0');
  CHECK(detail::decoder_name<"x.y">.view() == "decoder.layers.{layer}.x.y");
  CHECK(detail::prediction_name<"x.y">.view() == "mtp.layers.0.mtp_model_layer.x.y");
}

TEST_CASE("a matrix and a vector") {
  const family m = detail::matrix(3, 5, axis_of::row), v = detail::vector(7), cut = detail::vector(7, axis_of::column);
  CHECK(extents_of(m) == extent_list{1, 1, 1, 3, 5});
  CHECK(m.tensor_axis == axis_of::row);
  CHECK(m.shape_ndim == 2);
  CHECK(extents_of(v) == extent_list{1, 1, 1, 1, 7});
  CHECK(v.tensor_axis == axis_of::none);
  CHECK(v.shape_ndim == 1);
  CHECK(cut.tensor_axis == axis_of::column);
  for (const family& f : {m, v, cut}) {
    CHECK(f.name.empty());
    CHECK(f.mesh == mesh_kind::dense);
    CHECK(f.kind == tensor_kind::parameter);
    CHECK(f.fused == fused_as::nothing);
  }
}

TEST_CASE("what makes one of experts, of a gate, a statistic, or of query groups") {
  const family m = detail::matrix(12, 5, axis_of::row);
  const family experts = detail::of_experts(m, 4), gate = detail::gate_and_up(m), statistic = detail::statistic(m);
  CHECK(extents_of(experts) == extent_list{1, 4, 1, 12, 5});
  CHECK(experts.mesh == mesh_kind::expert);
  CHECK(experts.tensor_axis == axis_of::row);
  CHECK(extents_of(gate) == extent_list{1, 1, 2, 12, 5});
  CHECK(gate.fused == fused_as::gate_up);
  CHECK(gate.mesh == mesh_kind::dense);
  CHECK(extents_of(statistic) == extents_of(m));
  CHECK(statistic.kind == tensor_kind::statistic);
  const family groups = detail::by_group(m, 3), bias = detail::by_group(detail::vector(12, axis_of::column), 4);
  CHECK(extents_of(groups) == extent_list{1, 1, 3, 4, 5});
  CHECK(groups.tensor_axis == axis_of::part);
  CHECK(groups.fused == fused_as::qkv);
  CHECK(extents_of(bias) == extent_list{1, 1, 4, 1, 3});
  CHECK(bias.tensor_axis == axis_of::part);
  CHECK(bias.fused == fused_as::qkv);
}

TEST_CASE("a family that is pinned to a place has its name and that place") {
  model m;
  detail::add_at(m, home::embedding, "embedding.weight", detail::matrix(6, 2, axis_of::row));
  detail::add_at(m, home::last_stage, "norm.weight", detail::vector(2));
  REQUIRE(m.families == 2);
  CHECK(m[0].name == "embedding.weight");
  CHECK(m[0].place == home::embedding);
  CHECK(extents_of(m[0]) == extent_list{1, 1, 1, 6, 2});
  CHECK(m[1].name == "norm.weight");
  CHECK(m[1].place == home::last_stage);
}

TEST_CASE("families of layers have the members of their set; those of a prediction layer one, and its name") {
  model m = six_layers();
  const detail::layer_families all{m, home::layers, detail::every_layer}, dense{m, home::layers, detail::dense_layers},
      experts{m, home::layers, detail::moe_layers}, prediction{m, home::prediction, detail::moe_layers};
  all.add<"norm.weight">(detail::vector(2));
  dense.add<"fc.weight">(detail::matrix(4, 2, axis_of::row));
  experts.add<"experts.weight{expert}">(detail::of_experts(detail::matrix(4, 2, axis_of::row), 8));
  prediction.add<"experts.weight{expert}">(detail::of_experts(detail::matrix(4, 2, axis_of::row), 8));
  REQUIRE(m.families == 4);
  const struct {
    const char* name;
    home place;
    int set;
    extent_list extents;
  } wanted[] = {{"decoder.layers.{layer}.norm.weight", home::layers, 0, {6, 1, 1, 1, 2}},
                {"decoder.layers.{layer}.fc.weight", home::layers, 1, {2, 1, 1, 4, 2}},
                {"decoder.layers.{layer}.experts.weight{expert}", home::layers, 2, {4, 8, 1, 4, 2}},
                {"mtp.layers.0.mtp_model_layer.experts.weight{expert}", home::prediction, 2, {1, 8, 1, 4, 2}}};
  for (int f = 0; f < 4; ++f) {
    CAPTURE(f);
    CHECK(m[f].name == wanted[f].name);
    CHECK(m[f].place == wanted[f].place);
    CHECK(m[f].layers == wanted[f].set);
    CHECK(extents_of(m[f]) == wanted[f].extents);
  }
}
