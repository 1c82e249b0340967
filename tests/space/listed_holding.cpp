// SPDX-License-Identifier: Apache-2.0
// Foreign lists of shards: what a computed layout holds, written out as a list, is the same holding; and what is
// refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/points.hpp"
#include "../support/refused.hpp"
#include "../support/states.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice, testing::refused, testing::to_model;

namespace {
/// A rank's boxes as a framework would list them: tensor by tensor, gate and up folded into rows.
void list_shards(const computed_holding& h, rank_t rank, std::vector<shard>& shards) {
  for (const state& s : testing::each_state())
    each_shared(h, rank, s.placed_as(), [&](int f, const family_box& b, const auto&) {
      const family& which = h.family_at(f);
      for (index_t layer = b.dim[0].begin; layer < b.dim[0].end; ++layer)
        for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert)
          for (index_t part = b.dim[2].begin; part < b.dim[2].end; ++part) {
            const index_t rows = which.extent[3], columns = which.extent[4];
            shard one{.rank = rank,
                      .tensor = h.space().tensor_on({f, layer, expert}, rank),
                      .type = s.type,
                      .whole = {which.extent[2] * rows, columns},
                      .offset = {part * rows + b.dim[3].begin, b.dim[4].begin},
                      .shape = {b.dim[3].size(), b.dim[4].size()},
                      .state = std::string(s.name)};
            if (which.vector()) one.whole = {columns}, one.offset = {b.dim[4].begin}, one.shape = {b.dim[4].size()};
            shards.push_back(one);
          }
    });
}

/// Every element of a family: who holds it.
using holders_of_elements = std::vector<std::vector<rank_t>>;

template <typename H>
holders_of_elements by_held(const H& h, int f, role r) {
  holders_of_elements elements(static_cast<std::size_t>(h.family_at(f).whole().volume()));
  for (rank_t rank = 0; rank < h.ranks(); ++rank)
    h.held(f, rank, r, [&](int, const family_box& b) {
      flat_intervals(h.family_at(f).extent, b, [&](interval i) {
        for (index_t x = i.begin; x < i.end; ++x) elements[static_cast<std::size_t>(x)].push_back(rank);
      });
    });
  return elements;
}

template <typename H>
holders_of_elements by_owners(const H& h, int f, role r, const family_box& within) {
  holders_of_elements elements(static_cast<std::size_t>(h.family_at(f).whole().volume()));
  h.owners(f, r, within, [&](const family_box& b, const auto& holders) {
    CHECK(intersects(b, within));
    flat_intervals(h.family_at(f).extent, intersect(b, within), [&](interval i) {
      for (index_t x = i.begin; x < i.end; ++x)
        for (index_t n = 0; n < holders.count(); ++n) elements[static_cast<std::size_t>(x)].push_back(holders[n]);
    });
  });
  return elements;
}

const model tiny = make_transformer(
    {.name = "tiny", .layers = 2, .hidden = 4, .heads = 2, .groups = 1, .head_dim = 2, .ffn = 6, .vocabulary = 8});
const shard norm{.rank = 0, .tensor = "decoder.final_layernorm.weight", .whole = {4}, .offset = {0}, .shape = {4}};
const shard fc2{
    .rank = 0, .tensor = "decoder.layers.1.mlp.linear_fc2.weight", .whole = {4, 6}, .offset = {0, 2}, .shape = {4, 3}};

template <typename Change>
shard changed(shard s, Change&& change) {
  change(s);
  return s;
}
}  // namespace

TEST_CASE("a computed layout written out as a list is the same holding, element for element, in both directions") {
  oracle::generator generator(testing::seed());
  dice random(1);
  for (int n = 0; n < testing::tries(120); ++n) {
    const oracle::layout_case c = generator.next_layout();
    const std::string description = c.describe();
    CAPTURE(description);
    const space s(to_model(c.m), parse_degrees(c.text));
    const computed_holding h(s);
    std::vector<shard> shards;
    for (rank_t rank = 0; rank < s.ranks(); ++rank) list_shards(h, rank, shards);
    for (std::size_t i = shards.size(); i > 1; --i)  // in no order
      std::swap(shards[i - 1], shards[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
    const tensor_table table(s.model());
    const listed_holding listed(table, shards, s.ranks());
    CHECK(listed.ranks() == s.ranks());
    CHECK(listed.states() == states_of(tensor_kind::parameter, all_states));
    for (const role r : {role::parameter, role::optimizer})  // those of the states that are listed
      for (int f = 0; f < s.families(); ++f) {
        const family_box within = testing::random_part(random, s.family_at(f).extent);
        CHECK(by_held(listed, f, r) == by_held(h, f, r));
        CHECK(by_owners(listed, f, r, within) == by_owners(h, f, r, within));
      }
  }
}

TEST_CASE("a table of the lists' own tensors: any number of dimensions, one family each") {
  const std::vector<shard> from = {{0, "b", bf16, {6, 2, 2}, {0, 0, 0}, {3, 2, 2}},
                                   {1, "b", bf16, {6, 2, 2}, {3, 0, 0}, {3, 2, 2}}},
                           to = {{0, "b", bf16, {6, 2, 2}, {0, 0, 0}, {6, 2, 2}}, {0, "a", bf16, {7}, {0}, {7}}};
  const tensor_table table{&from, &to};
  CHECK(table.families() == 2);
  CHECK(table.family_at(0).name == "a");
  const listed_holding h(table, from, 2);
  int met = 0;
  h.owners(1, role::parameter, {{{0, 1}, {0, 1}, {2, 4}, {0, 2}, {1, 2}}},
           [&](const family_box& b, const listed_ranks& ranks) {
             CHECK(b.dim[2] == interval{3 * met, 3 * met + 3});
             CHECK(ranks.count() == 1);
             CHECK(ranks.index_of(met) == 0);
             ++met;
           });
  CHECK(met == 2);
}

TEST_CASE("names are those of the model's tensors, and nothing else") {
  const tensor_table table(tiny);
  for (const char* name : {"decoder.layers.0.mlp.linear_fc1.weight",
                           "decoder.layers.1.self_attention.linear_qkv.weight", "output_layer.weight"})
    CHECK(table.find(name).has_value());
  CHECK(table.find("decoder.layers.1.mlp.linear_fc2.weight")->member == 1);
  for (const char* name : {"", "decoder.layers.2.mlp.linear_fc1.weight", "decoder.layers.01.mlp.linear_fc1.weight",
                           "decoder.layers..mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc1.weight0",
                           "decoder.layers.{layer}.mlp.linear_fc1.weight",
                           "decoder.layers.99999999999999999999.mlp.linear_fc1.weight", "output_layer"}) {
    CAPTURE(std::string(name));
    CHECK_FALSE(table.find(name).has_value());
  }
}

TEST_CASE("what a list of shards is refused for") {
  const struct {
    std::vector<shard> shards;
    const char* sentence;
  } cases[] = {
      {{changed(norm, [](shard& s) { s.rank = 2; })},
       "shard of 'decoder.final_layernorm.weight': rank 2 of a world of 2 ranks"},
      {{changed(norm, [](shard& s) { s.rank = -1; })},
       "shard of 'decoder.final_layernorm.weight': rank -1 of a world of 2 ranks"},
      {{changed(norm, [](shard& s) { s.state = "momentum"; })},
       "shard of 'decoder.final_layernorm.weight': no state is called 'momentum'; states are param, master, exp_avg "
       "and exp_avg_sq"},
      {{norm, changed(norm, [](shard& s) { s.state = "exp_avg", s.rank = 1; })},
       "exp_avg of 'decoder.final_layernorm.weight' is bf16, and the list of states has it as fp32"},
      {{changed(norm, [](shard& s) { s.tensor = "wte"; })}, "no tensor is called 'wte'"},
      {{changed(norm, [](shard& s) { s.tensor = ""; })}, "no tensor is called ''"},
      {{changed(norm,
                [](shard& s) {
                  s.offset = {0, 0};
                })},
       "shard of 'decoder.final_layernorm.weight': an offset of 2 and a shape of 1 dimensions in a tensor of 1"},
      {{changed(norm, [](shard& s) { s.whole = {5}, s.shape = {5}; })},
       "shard of 'decoder.final_layernorm.weight': dimension 0 is said to have extent 5; the tensor's is 4"},
      {{changed(norm, [](shard& s) { s.offset = {1}; })},
       "shard of 'decoder.final_layernorm.weight' on rank 0: [1, 1 + 4) reaches outside the extent 4 of dimension 0"},
      {{changed(norm, [](shard& s) { s.offset = {-1}; })},
       "shard of 'decoder.final_layernorm.weight' on rank 0: [-1, -1 + 4) reaches outside the extent 4 of dimension 0"},
      {{changed(fc2, [](shard& s) { s.whole = {24}, s.offset = {0}, s.shape = {24}; })},
       "shard of 'decoder.layers.1.mlp.linear_fc2.weight': 1 dimensions; the tensor has 2"},
      {{fc2, changed(fc2,
                     [](shard& s) {
                       s.rank = 1, s.offset = {0, 4}, s.shape = {4, 2};
                     })},
       "shards of 'decoder.layers.{layer}.mlp.linear_fc2.weight' on ranks 0 and 1 overlap without being equal; cut "
       "them so that any two are equal or "
       "disjoint"},
      {{changed(norm, [](shard& s) { s.state = "master", s.type = fp32; }),
        changed(norm, [](shard& s) { s.state = "exp_avg", s.type = fp32, s.rank = 1; })},
       "rank 0 lists some states of a box of 'decoder.final_layernorm.weight' and not others; states of one level, "
       "such "
       "as those of the optimizer, lie alike"},
  };
  const tensor_table table(tiny);
  for (const auto& c : cases)
    CHECK(refused([&] { listed_holding(table, c.shards, 2); }) == std::string("reshard: ") + c.sentence);
  const std::vector<shard> good = {norm, changed(norm, [](shard& s) { s.rank = 1; }), fc2, changed(fc2, [](shard& s) {
                                     s.rank = 1, s.offset = {0, 5}, s.shape = {4, 1};
                                   })};
  CHECK(refused([&] { listed_holding(table, good, 2); }) == "accepted");
  CHECK(refused([] { extents{1, 2, 3, 4, 5, 6}; }) == "reshard: a tensor of 6 dimensions; at most 5 are supported");
}

TEST_CASE("lists say nothing of memory: tensors come by layer, then in the table's order, then by expert") {
  const tensor_table table(tiny);
  const listed_holding h(table, {norm}, 1);
  CHECK(h.order_of({2, 5, 3}, 0, role::parameter) == storage_order{0, 5, 2, 3});
  CHECK(h.order_of({1, 0, 9}, 0, role::parameter) < h.order_of({2, 0, 0}, 0, role::parameter));
  CHECK(h.order_of({2, 0, 9}, 0, role::parameter) < h.order_of({1, 1, 0}, 0, role::parameter));
}

TEST_CASE("a shard that is listed again and again is held once") {
  const tensor_table table(tiny);
  std::vector<shard> list;
  for (int times = 0; times < 20; ++times)
    for (const char* state : {"exp_avg", "master", "exp_avg_sq"})
      for (const rank_t rank : {1, 0})
        list.push_back(changed(norm, [&](shard& s) { s.state = state, s.type = fp32, s.rank = rank; }));
  const listed_holding h(table, list, 2);
  for (rank_t rank = 0; rank < 2; ++rank) {
    int boxes = 0;
    each_held(h, rank, role::optimizer, [&](int, const family_box& b) { boxes += b.volume() == 4 ? 1 : 100; });
    CHECK(boxes == 1);
    each_shared(h, rank, role::optimizer,
                [&](int, const family_box&, const listed_ranks& ranks) { CHECK(ranks.count() == 2); });
  }
}
