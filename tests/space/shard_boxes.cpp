// SPDX-License-Identifier: Apache-2.0
// Where a shard lies in its tensor's family: against its rows and columns one by one; and what no table admits.
#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/space/shard_boxes.hpp>

#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {
constexpr transformer mixed{.name = "mixed",
                            .layers = 3,
                            .hidden = 4,
                            .heads = 2,
                            .groups = 2,
                            .head_dim = 2,
                            .ffn = 5,
                            .vocabulary = 8,
                            .experts = 3,
                            .expert_ffn = 3};
const model& tiny() {
  static const model m = make_transformer(mixed, [](index_t l) { return l != 1; });
  return m;
}
}  // namespace

TEST_CASE(
    "the boxes of a shard are its elements, each once, in stored order; `rows` is where in the shard a box begins") {
  const tensor_table table(tiny());
  dice random(1);
  int boxes_met[4] = {}, empty = 0;
  for (int n = 0; n < 1500; ++n) {
    int f = static_cast<int>(random.below(tiny().families));
    while (n % 2 == 0 && !folds_parts(tiny()[f])) f = (f + 1) % tiny().families;
    const family& which = tiny()[f];
    const index_t member = random.below(which.extent[0]), expert = random.below(which.extent[1]);
    shard s{.rank = 0, .tensor = tiny().tensor({f, member, expert}), .whole = {}, .offset = {}, .shape = {}};
    const index_t parts = which.extent[2], stored[2] = {parts * which.extent[3], which.extent[4]};
    s.whole = which.vector() ? extents{stored[1]} : extents{stored[0], stored[1]};
    s.offset = s.shape = s.whole;
    for (int i = 0; i < s.whole.ndim; ++i) {
      s.offset.at[i] = random.below(s.whole.at[i] + 1);
      s.shape.at[i] =
          random.within(random.below(8) == 0 ? 0 : s.whole.at[i] > s.offset.at[i], s.whole.at[i] - s.offset.at[i]);
    }
    CAPTURE(s.tensor);
    const shard_place at = locate(table, s);
    CHECK(at.state == 0);
    CHECK(at.tensor.family == f);
    CHECK(at.tensor.member == member);
    CHECK(at.tensor.expert == expert);
    const index_t first = which.vector() ? 0 : s.offset.at[0], rows = which.vector() ? 1 : s.shape.at[0];
    const int last = which.vector() ? 0 : 1;
    std::vector<std::tuple<index_t, index_t, index_t>> wanted, found;  // row of the shard, part and row of the family
    for (index_t i = 0; i < rows && s.shape.at[last] > 0; ++i)
      wanted.emplace_back(i, (first + i) / which.extent[3], (first + i) % which.extent[3]);
    int boxes = 0;
    shard_boxes(table, s, at, [&](const family_box& b, index_t row) {
      ++boxes;
      CHECK_FALSE(b.empty());
      CHECK(b.dim[0] == interval{member, member + 1});
      CHECK(b.dim[1] == interval{expert, expert + 1});
      CHECK(b.dim[4] == interval{s.offset.at[last], s.offset.at[last] + s.shape.at[last]});
      for (index_t part = b.dim[2].begin; part < b.dim[2].end; ++part)
        for (index_t r = b.dim[3].begin; r < b.dim[3].end; ++r) found.emplace_back(row++, part, r);
    });
    CHECK(found == wanted);
    REQUIRE(boxes <= 3);
    ++boxes_met[boxes];
    empty += wanted.empty() ? 1 : 0;
  }
  std::printf("shards of 0, 1, 2, 3 boxes: %d, %d, %d, %d\n", boxes_met[0], boxes_met[1], boxes_met[2], boxes_met[3]);
  CHECK(boxes_met[0] == empty);
  for (const int times : {boxes_met[0], boxes_met[1], boxes_met[2]}) CHECK(times > 20);
}

TEST_CASE(
    "three parts in one matrix: a shard that takes the end of one, the whole next one and the begin of the last") {
  // no transformer has such a tensor; a shard may still be at most three boxes
  model m;
  m.add({.name = "w", .extent = {1, 1, 4, 5, 2}, .place = home::first_stage});
  const tensor_table table(m);
  const shard s{0, "w", bf16, {20, 2}, {3, 1}, {14, 1}};
  std::vector<std::pair<family_box, index_t>> found;
  shard_boxes(table, s, locate(table, s), [&](const family_box& b, index_t row) { found.emplace_back(b, row); });
  REQUIRE(found.size() == 3);
  CHECK(found[0] == std::pair(family_box{{{0, 1}, {0, 1}, {0, 1}, {3, 5}, {1, 2}}}, index_t{0}));
  CHECK(found[1] == std::pair(family_box{{{0, 1}, {0, 1}, {1, 3}, {0, 5}, {1, 2}}}, index_t{2}));
  CHECK(found[2] == std::pair(family_box{{{0, 1}, {0, 1}, {3, 4}, {0, 2}, {1, 2}}}, index_t{12}));
  CHECK(folds_parts(m[0]));
}

TEST_CASE("parts are folded into rows in a matrix that has several, and nowhere else") {
  for (int f = 0; f < tiny().families; ++f)
    CHECK(folds_parts(tiny()[f]) == (tiny()[f].name.find("linear_fc1.weight") != std::string_view::npos ||
                                     tiny()[f].name.find("linear_qkv.weight") != std::string_view::npos));
  family stacked{.name = "stacked", .extent = {1, 1, 3, 4, 5}, .shape_ndim = 3};
  CHECK_FALSE(folds_parts(stacked));  // its parts are a dimension of their own
}

TEST_CASE(
    "a shard's place: its state by name, and every refusal beside an accepted neighbour, with who it is about in "
    "front") {
  const tensor_table table(tiny());
  const shard fine{0, "decoder.layers.2.mlp.experts.linear_fc1.weight1", bf16, {6, 4}, {2, 1}, {4, 3}};
  for (const int state : all_states) {
    shard s = fine;
    s.state = adam[state].name;
    CHECK(locate(table, s).state == (adam[state].placed_as() == role::statistic ? 0 : state));
  }
  const auto said = [&](auto&& change, std::string_view who = "") {
    shard s = fine;
    change(s);
    return refused([&] { static_cast<void>(locate(table, s, who)); });
  };
  const std::string shard_of = "reshard: shard of '" + fine.tensor + "'";
  CHECK(said([](shard&) {}) == "accepted");
  CHECK(said([](shard& s) { s.state = "params"; }) ==
        shard_of + ": no state is called 'params'; states are param, master, exp_avg and exp_avg_sq");
  CHECK(said([](shard& s) { s.tensor = "x"; }) == "reshard: no tensor is called 'x'");
  CHECK(said([](shard& s) { s.tensor = "x"; }, "rank 3: ") == "reshard: rank 3: no tensor is called 'x'");
  CHECK(said([](shard& s) { s.whole = {24}; }) == shard_of + ": 1 dimensions; the tensor has 2");
  CHECK(said(
            [](shard& s) {
              s.whole = {2, 3, 4};
            },
            "here: ") == "reshard: here: " + shard_of.substr(9) + ": 3 dimensions; the tensor has 2");
  CHECK(said([](shard& s) { s.offset = {2}; }) ==
        shard_of + ": an offset of 1 and a shape of 2 dimensions in a tensor of 2");
  CHECK(said([](shard& s) {
          s.shape = {4, 3, 1};
        }) == shard_of + ": an offset of 2 and a shape of 3 dimensions in a tensor of 2");
  CHECK(said([](shard& s) { s.offset.at[0] = -1; }) ==
        shard_of + " on rank 0: [-1, -1 + 4) reaches outside the extent 6 of dimension 0");
  CHECK(said([](shard& s) { s.shape.at[1] = -1; }) ==
        shard_of + " on rank 0: [1, 1 + -1) reaches outside the extent 4 of dimension 1");
  CHECK(said([](shard& s) { s.offset.at[1] = 2; }) ==
        shard_of + " on rank 0: [2, 2 + 3) reaches outside the extent 4 of dimension 1");
  CHECK(said([](shard& s) { s.shape.at[0] = 7, s.offset.at[0] = 0; }) ==
        shard_of + " on rank 0: [0, 0 + 7) reaches outside the extent 6 of dimension 0");
  CHECK(said([](shard& s) { s.shape.at[0] = 0, s.offset.at[0] = 6; }) == "accepted");  // nothing, at the end
  CHECK(said([](shard& s) { s.shape.at[0] = 0, s.offset.at[0] = 7; }) ==
        shard_of + " on rank 0: [7, 7 + 0) reaches outside the extent 6 of dimension 0");
  const index_t most = 9'223'372'036'854'775'807;
  CHECK(said([](shard& s) { s.offset.at[0] = most; }).find("reaches outside the extent 6 of dimension 0") !=
        std::string::npos);
  CHECK(said([](shard& s) { s.whole.at[0] = 3, s.offset.at[0] = 0, s.shape.at[0] = 3; }) ==
        shard_of + ": dimension 0 is said to have extent 3; the tensor's is 6");  // rows of both parts
  CHECK(said([](shard& s) { s.whole.at[1] = 5; }) ==
        shard_of + ": dimension 1 is said to have extent 5; the tensor's is 4");
}
