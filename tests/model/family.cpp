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

TEST_CASE(
    "what tensor parallelism cuts: rows that are counted over the parts, or one axis; of every axis and dimensions") {
  struct answer {
    int ndim, axis;      // of the family
    int inner, cut;      // the axis inside a part of the first dimension, and the one that is cut
    bool over, stacked;  // whether that is counted over parts, and whether the parts are a dimension of their own
  };
  constexpr int none = axis_of::none, part = axis_of::part, row = axis_of::row, column = axis_of::column;
  for (const answer& a : {answer{1, none, column, column, false, false},
                          {1, part, column, column, true, false},
                          {1, column, column, column, true, false},
                          {2, none, row, row, false, false},
                          {2, part, row, row, true, false},
                          {2, row, row, row, true, false},
                          {2, column, row, column, false, false},
                          {3, none, row, row, false, true},
                          {3, part, row, part, false, true},
                          {3, row, row, row, false, true},
                          {3, column, row, column, false, true}}) {
    CAPTURE(a.ndim);
    CAPTURE(a.axis);
    const family f{.name = "f", .tensor_axis = a.axis, .shape_ndim = a.ndim};
    CHECK(f.inner_axis() == a.inner);
    CHECK(f.cut_axis() == a.cut);
    CHECK(f.cuts_over_parts() == a.over);
    CHECK(f.stacked() == a.stacked);
  }
}

TEST_CASE("padding beyond a side's rows is what of a box lies behind them, of the vocabulary alone") {
  family f{.name = "f", .extent = {1, 1, 1, 5, 4}, .padded = padded_as::vocabulary};
  for (index_t begin = 0; begin < 9; ++begin)
    for (index_t end = begin + 1; end <= 9; ++end) {
      const family_box b{{{0, 1}, {0, 1}, {0, 1}, {begin, end}, {1, 3}}};
      index_t first = end, rows = 0;
      for (index_t row = begin; row < end; ++row)
        if (row >= 5) first = first < row ? first : row, ++rows;
      const family_box beyond = padding_beyond(f, b);
      CHECK(beyond.volume() == 2 * rows);
      if (rows > 0) CHECK(beyond == family_box{{{0, 1}, {0, 1}, {0, 1}, {first, end}, {1, 3}}});
    }
  f.padded = padded_as::nothing;
  CHECK(padding_beyond(f, {{{0, 1}, {0, 1}, {0, 1}, {4, 9}, {1, 3}}}).empty());
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
  for (const char* two : {"1.2", "0.2", "2.0"}) CHECK(numbers_in("{layer}.{layer}", two).empty());
  CHECK(numbers_in("{layer}.{layer}", "0.0") == "0 0");
  for (const char* name : {"", "l.", "l.1", "l.1x", "l.01", "l.-1", "l.+1", "l. 1", "l.x", "m.1", "l.1.", "l{layer}"}) {
    CAPTURE(name);
    CHECK(numbers_in("l.{layer}", name).empty() == (std::string_view(name) != "l.1"));
  }
  CHECK(numbers_in("{layer}", "123456789012345678") == "123456789012345678 0");
  CHECK(numbers_in("{layer}", "1234567890123456789").empty());
  CHECK(numbers_in("{layer}9", "1234567890123456789").empty());
  CHECK(numbers_in("{layer}1234567890123456789", "1234567890123456789").empty());
  CHECK(numbers_in("{layer}1234567890123456789", "1234567890123456789123").empty());
}
