// SPDX-License-Identifier: Apache-2.0
// A model of a few families made by hand: what counts as a parameter, what is padding, which layer a tensor is of.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

#include <reshard/model/model.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr layer_set layers_from(index_t begin, index_t end) {
  layer_set set;
  for (index_t layer = begin; layer < end; ++layer) set.append(layer);
  return set;
}

constexpr index_t hidden = 6, vocabulary = 10, padded = 16, layers = 3;

/// An embedding of 16 rows for 10 words, a matrix and a statistic in each of three layers, one of experts in layers 1
/// and 2, and in a prediction layer a matrix of each kind.
constexpr model small() {
  model m;
  m.name = "small";
  m.shape = {.layers = layers, .hidden = hidden, .vocabulary = vocabulary, .experts = 4};
  m.sets[0] = layer_set::all(layers);
  m.sets[1] = layers_from(1, layers);
  m.sets[2] = layers_from(0, 1);
  m.add({.name = "embedding",
         .extent = {1, 1, 1, padded, hidden},
         .place = home::first_stage,
         .padded = padded_as::vocabulary});
  m.add({.name = "matrix", .extent = {layers, 1, 1, hidden, hidden}, .place = home::layers, .layers = 0});
  m.add({.name = "experts", .extent = {2, 4, 1, hidden, 2}, .place = home::layers, .layers = 1});
  m.add({.name = "moe", .extent = {1, 1, 1, 1, 5}, .place = home::prediction, .layers = 1});
  m.add({.name = "dense", .extent = {1, 1, 1, 1, 7}, .place = home::prediction, .layers = 2});
  return m;
}
}  // namespace

TEST_CASE("parameters are what the model has: without the rows of padding, and without what is held instead") {
  constexpr model m = small();
  constexpr index_t own = vocabulary * hidden + layers * hidden * hidden + 2 * 4 * hidden * 2 + 5;
  static_assert(m.families == 5 && m.parameters() == own && m.padding() == (padded - vocabulary) * hidden);
  static_assert(m.counts(0) && m.counts(1) && m.counts(2) && m.counts(3) && !m.counts(4));
  CHECK(small().parameters() == own);
  CHECK(small().padding() == 36);
  model dense = small();  // the last decoder layer has no experts: the other kind counts
  dense.sets[1] = layers_from(1, 2);
  dense.sets[2] = layers_from(2, 3);
  CHECK_FALSE(dense.counts(3));
  CHECK(dense.counts(4));
  CHECK(dense.parameters() == own - 5 + 7);
  model exact = small();
  exact.shape.vocabulary = padded;
  CHECK(exact.padding() == 0);
  CHECK(exact.parameters() == own + 36);
}

TEST_CASE("padding is counted of every padded family that counts, and of rows beyond the vocabulary alone") {
  model m = small();
  m.add({.name = "tall", .extent = {1, 1, 1, 3 * padded, hidden}, .place = home::last_stage});
  CHECK(m.padding() == 36);  // no rows of the vocabulary
  m.add({.name = "output",
         .extent = {1, 1, 2, vocabulary + 1, hidden},
         .place = home::last_stage,
         .padded = padded_as::vocabulary});
  CHECK(m.padding() == 36 + 12);
  CHECK(m.parameters() == small().parameters() + 3 * padded * hidden + 2 * vocabulary * hidden);
  m.add({.name = "other kind",
         .extent = {1, 1, 1, padded, hidden},
         .place = home::prediction,
         .layers = 2,
         .padded = padded_as::vocabulary});
  CHECK(m.padding() == 36 + 12);
  model without = m;
  without.families = 6;  // what stands behind the last is no part of the model
  CHECK(without.padding() == 36);
  CHECK(without.parameters() == small().parameters() + 3 * padded * hidden);
}

TEST_CASE("a tensor's layer is a whole model's; a prediction layer is the one after the last") {
  constexpr model m = small();
  static_assert(m.layer_of({0, 0, 0}) == 0 && m.layer_of({1, 2, 0}) == 2 && m.layer_of({2, 0, 3}) == 1 &&
                m.layer_of({3, 0, 0}) == layers);
  CHECK(small().layer_of({2, 1, 0}) == 2);
  CHECK(small().layer_of({3, 0, 0}) == layers);
  model pinned = small();
  for (const int set : {0, 1}) {
    pinned.family_at[0].layers = set;  // which has no part in where it is
    CHECK(pinned.layer_of({0, 0, 0}) == 0);
  }
  CHECK(&m[1] == &m.family_at[1]);
  CHECK(&m.layers_of(2) == &m.sets[1]);
}

TEST_CASE("parameters have all states but statistics', a statistic those alone") {
  constexpr state_set parameters(0, 3, 2), all = statistic_states | parameters;
  static_assert(states_of(tensor_kind::statistic, all) == statistic_states);
  static_assert(states_of(tensor_kind::parameter, all) == parameters);
  CHECK(states_of(tensor_kind::statistic, all) == statistic_states);
  CHECK(states_of(tensor_kind::parameter, all) == parameters);
  CHECK(states_of(tensor_kind::statistic, parameters).empty());
  for (const role r : roles) {
    CHECK(has_states_of(tensor_kind::statistic, r) == (r == role::statistic));
    CHECK(has_states_of(tensor_kind::parameter, r) == (r != role::statistic));
  }
}

TEST_CASE("rows of query, key and value, and what leaves 64 bits or has no place") {
  static_assert(dimensions{.heads = 8, .groups = 2, .head_dim = 16}.qkv_rows() == (8 + 2 * 2) * 16);
  CHECK(dimensions{.heads = 8, .groups = 2, .head_dim = 16}.qkv_rows() == 192);
  CHECK(dimensions{.heads = 3, .groups = 1, .head_dim = 5}.qkv_rows() == 25);
  CHECK_REFUSED((dimensions{.heads = 8, .groups = std::numeric_limits<index_t>::max() / 2, .head_dim = 16}.qkv_rows()),
                "does not fit 64 bits");
  model m = small();
  const index_t most = std::numeric_limits<index_t>::max() / (16 * max_families);
  CHECK_REFUSED((m.add({.name = "vast", .extent = {1, 1, 1, most + 1, 1}})), "does not fit 64 bits");
  CHECK(m.families == 5);
  m.add({.name = "large", .extent = {1, 1, 1, most, 1}});
  CHECK(m.families == 6);
  while (m.families < max_families) m.add({.name = "more", .extent = {1, 1, 1, 1, 1}});
  CHECK_REFUSED(m.add({.name = "one more", .extent = {1, 1, 1, 1, 1}}), "a model has at most 64 tensor families");
}
