// SPDX-License-Identifier: Apache-2.0
// A family: its box, its tensors and their elements, and the names that its pattern stands for.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include <reshard/model/family.hpp>

using namespace reshard;

TEST_CASE("a family is layers x experts tensors of parts x rows x columns") {
  constexpr family f{.name = "f", .extent = {2, 3, 5, 7, 11}};
  static_assert(f.tensors() == 2 * 3 && f.tensor_elements() == 5 * 7 * 11);
  static_assert(f.whole() == family_box{{{0, 2}, {0, 3}, {0, 5}, {0, 7}, {0, 11}}});
  CHECK(f.whole().volume() == f.tensors() * f.tensor_elements());
  CHECK(f.whole().dim[axis_of::layer].size() == 2);
  CHECK(f.whole().dim[axis_of::expert].size() == 3);
  CHECK(f.whole().dim[axis_of::part].size() == 5);
  CHECK(f.whole().dim[axis_of::row].size() == 7);
  CHECK(f.whole().dim[axis_of::column].size() == 11);
}

TEST_CASE("a family without further words is one matrix of one element in the layers, whole on the dense mesh") {
  constexpr family f{.name = "f"};
  CHECK(f.whole().volume() == 1);
  CHECK(f.place == home::layers);
  CHECK(f.mesh == mesh_kind::dense);
  CHECK(f.tensor_axis == axis_of::none);
  CHECK(f.tied_name.empty());
  CHECK_FALSE(f.vector());
}

TEST_CASE("a vector has one dimension; a matrix has two, and what is stacked three") {
  for (int ndim = 0; ndim <= family_ndim; ++ndim)
    CHECK(family{.name = "f", .shape_ndim = ndim}.vector() == (ndim == 1));
}

TEST_CASE("names: numbers take the places of {layer} and {expert}, wherever and however often they stand") {
  CHECK(tensor_name("decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}", 93, 127) ==
        "decoder.layers.93.mlp.experts.linear_fc1.weight127");
  CHECK(tensor_name("{expert}-{layer}", 1, 2) == "2-1");
  CHECK(tensor_name("{layer}{layer}{expert}", 10, 0) == "10100");
  CHECK(tensor_name("output_layer.weight", 3, 4) == "output_layer.weight");
  CHECK(tensor_name("", 3, 4).empty());
  CHECK(tensor_name("{layers}{Layer}{expert {layer", 3, 4) == "{layers}{Layer}{expert {layer");
  CHECK(tensor_name("{{layer}}", 3, 4) == "{3}");
}

namespace {
/// "3 5" where the name is the pattern's, of layer 3 and expert 5; else nothing.
std::string numbers_in(std::string_view pattern, std::string_view name) {
  index_t layer = 7, expert = 7;
  return detail::matches(pattern, name, layer, expert) ? std::to_string(layer) + " " + std::to_string(expert) : "";
}
}  // namespace

TEST_CASE("a name that a pattern makes is taken apart again, and no other") {
  for (const char* pattern :
       {"l.{layer}.x{expert}", "{expert}-{layer}", "w", "{layer}.{layer}", "{{layer}}", "x{expert}."})
    for (const index_t layer : {0, 1, 10, 999})
      for (const index_t expert : {0, 9, 120}) {
        const std::string p = pattern;
        const auto has = [&](const char* what) { return p.find(what) != p.npos; };
        CAPTURE(p);
        CHECK(numbers_in(p, tensor_name(p, layer, expert)) ==
              std::to_string(has("{layer}") ? layer : 0) + " " + std::to_string(has("{expert}") ? expert : 0));
      }
  CHECK(numbers_in("{layer}.{layer}", "1.2").empty());
  for (const char* name : {"", "l.", "l.1", "l.1x", "l.01", "l.-1", "l.+1", "l. 1", "l.x", "m.1", "l.1.", "l{layer}"}) {
    CAPTURE(name);
    CHECK(numbers_in("l.{layer}", name).empty() == (std::string_view(name) != "l.1"));
  }
  CHECK(numbers_in("{layer}", "123456789012345678") == "123456789012345678 0");
  CHECK(numbers_in("{layer}", "1234567890123456789").empty());
  CHECK(numbers_in("{layer}9", "1234567890123456789").empty());
}
