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
  for (const int times : {boxes_met[0], boxes_met[1], boxes_met[2]}) CHECK_DRAWN(times > 20);
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

namespace {

/// A tensor of a checkpoint: its stored extents, the model's tensor, and which of that one's rows (of a vector:
/// elements) row r is. Written from the contract.
struct of_checkpoint {
  std::string name, of;
  extents whole;
  std::vector<index_t> row;
};
/// Of a layer of Qwen2's kind with two groups of two heads of two, hidden size 4 and feed-forward size 5; the model's
/// own name for the same tensor comes too, as both may be listed.
std::vector<of_checkpoint> checkpoint_of_layer(int layer) {
  constexpr index_t groups = 2, heads = 4, d = 2, hidden = 4, ffn = 5, queries = heads / groups;
  const std::string hf = "model.layers." + std::to_string(layer) + ".",
                    own = "decoder.layers." + std::to_string(layer) + ".";
  const auto rows = [](index_t count, auto&& row) {
    std::vector<index_t> all;
    for (index_t r = 0; r < count; ++r) all.push_back(row(r));
    return all;
  };
  const auto q = [](index_t r) { return (r / d / queries * (queries + 2) + r / d % queries) * d + r % d; };
  const auto k = [](index_t r) { return (r / d * (queries + 2) + queries) * d + r % d; };
  const auto v = [](index_t r) { return (r / d * (queries + 2) + queries + 1) * d + r % d; };
  const auto same = [](index_t r) { return r; };
  std::vector<of_checkpoint> all;
  for (const std::string kind : {"weight", "bias"}) {
    const auto add = [&](const char* name, index_t count, auto&& row) {
      const extents whole = kind == "bias" ? extents{count} : extents{count, hidden};
      all.push_back(
          {hf + "self_attn." + name + "." + kind, own + "self_attention.linear_qkv." + kind, whole, rows(count, row)});
    };
    add("q_proj", heads * d, q), add("k_proj", groups * d, k), add("v_proj", groups * d, v);
    const index_t fused = (heads + 2 * groups) * d;
    all.push_back({own + "self_attention.linear_qkv." + kind, own + "self_attention.linear_qkv." + kind,
                   kind == "bias" ? extents{fused} : extents{fused, hidden}, rows(fused, same)});
  }
  const std::string fc1 = own + "mlp.linear_fc1.weight";
  all.push_back({hf + "mlp.gate_proj.weight", fc1, {ffn, hidden}, rows(ffn, same)});
  all.push_back({hf + "mlp.up_proj.weight", fc1, {ffn, hidden}, rows(ffn, [](index_t r) { return ffn + r; })});
  all.push_back({hf + "mlp.down_proj.weight", own + "mlp.linear_fc2.weight", {hidden, ffn}, rows(hidden, same)});
  all.push_back({hf + "self_attn.o_proj.weight",
                 own + "self_attention.linear_proj.weight",
                 {hidden, heads * d},
                 rows(hidden, same)});
  all.push_back({hf + "input_layernorm.weight",
                 own + "self_attention.linear_qkv.layer_norm_weight",
                 {hidden},
                 rows(hidden, same)});
  return all;
}

}  // namespace

TEST_CASE("a checkpoint's names: every shard of q, k, v, gate, up and all others is its elements of the model's own") {
  const model m = make_transformer({.name = "qwen2",
                                    .layers = 2,
                                    .hidden = 4,
                                    .heads = 4,
                                    .groups = 2,
                                    .head_dim = 2,
                                    .ffn = 5,
                                    .vocabulary = 8,
                                    .qkv_bias = true});
  const tensor_table table(m);
  dice random(3);
  std::map<std::string, int> met;
  for (int n = 0; n < 3000; ++n) {
    const int layer = static_cast<int>(random.below(2));
    const std::vector<of_checkpoint> all = checkpoint_of_layer(layer);
    const of_checkpoint& tensor = all[static_cast<std::size_t>(random.below(static_cast<index_t>(all.size())))];
    shard s{.rank = 0, .tensor = tensor.name, .whole = tensor.whole, .offset = tensor.whole, .shape = tensor.whole};
    for (int i = 0; i < s.whole.ndim; ++i) {
      s.offset.at[i] = random.below(s.whole.at[i]);
      s.shape.at[i] = random.within(1, s.whole.at[i] - s.offset.at[i]);
    }
    CAPTURE(tensor.name);
    const shard_place at = locate(table, s);
    const family& of = m[at.tensor.family];
    CHECK(m.tensor(at.tensor) == tensor.of);
    const bool vector = s.whole.ndim == 1;
    const index_t inner = vector ? of.extent[4] : of.extent[3];
    std::vector<std::pair<index_t, index_t>> wanted, found;  // row of the shard, row of the model's tensor
    for (index_t r = 0; r < s.shape.at[0]; ++r)
      wanted.emplace_back(r, tensor.row[static_cast<std::size_t>(s.offset.at[0] + r)]);
    shard_boxes(table, s, at, [&](const family_box& b, index_t row) {
      CHECK(b.dim[0] == interval{layer, layer + 1});
      CHECK(b.dim[1] == interval{0, 1});
      if (!vector) CHECK(b.dim[4] == interval{s.offset.at[1], s.offset.at[1] + s.shape.at[1]});
      const interval along = vector ? b.dim[4] : b.dim[3];
      for (index_t part = b.dim[2].begin; part < b.dim[2].end; ++part)
        for (index_t r = along.begin; r < along.end; ++r) found.emplace_back(row++, part * inner + r);
    });
    CHECK(found == wanted);
    ++met[tensor.name];
  }
  CHECK(met.size() == 2 * checkpoint_of_layer(0).size());
  const auto said = [&](const shard& s) { return refused([&] { static_cast<void>(locate(table, s)); }); };
  CHECK(said({0, "lm_head.weight", bf16, {8, 4}, {0, 0}, {8, 4}}) == "accepted");
  CHECK(said({0, "model.norm.weight", bf16, {4}, {0}, {4}}) == "accepted");
  CHECK(said({0, "model.layers.2.input_layernorm.weight", bf16, {4}, {0}, {4}}) ==
        "reshard: no tensor is called 'model.layers.2.input_layernorm.weight'");
  CHECK(said({0, "model.layers.1.self_attn.k_proj.weight", bf16, {8, 4}, {0, 0}, {8, 4}}) ==
        "reshard: shard of 'model.layers.1.self_attn.k_proj.weight': dimension 0 is said to have extent 8; the "
        "tensor's is 4");
}

TEST_CASE("a model whose checkpoints have no such names has its own alone") {
  const tensor_table gpt(make_transformer({.name = "gpt",
                                           .layers = 1,
                                           .hidden = 4,
                                           .heads = 2,
                                           .groups = 2,
                                           .head_dim = 2,
                                           .ffn = 8,
                                           .vocabulary = 8,
                                           .learned_positions = 16}));
  CHECK_FALSE(gpt.find_stored("model.norm.weight").has_value());
  CHECK(gpt.find_stored("decoder.final_layernorm.weight").has_value());
  model own{.name = "own", .shape = {.checkpoint = checkpoint_form::usual}};
  own.add({.name = "decoder.final_layernorm.weight",
           .extent = {1, 1, 1, 1, 4},
           .place = home::last_stage,
           .shape_ndim = 1});
  CHECK(tensor_table(own).find_stored("model.norm.weight").has_value());
  own.add({.name = "odd", .extent = {1, 1, 1, 1, 4}, .place = home::last_stage, .shape_ndim = 1});
  CHECK_FALSE(tensor_table(own).find_stored("model.norm.weight").has_value());
  CHECK(tensor_table(own).find_stored("odd")->where == box<3>{{{0, 1}, {0, 1}, {0, 4}}});
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
    s.type = state == statistic_state ? bf16 : adam[state].type;  // this tensor is none
    CHECK(locate(table, s).state == (adam[state].placed_as() == role::statistic ? 0 : state));
  }
  const auto said = [&](auto&& change, std::string_view who = "") {
    shard s = fine;
    change(s);
    return refused([&] { static_cast<void>(locate(table, s, who)); });
  };
  const std::string shard_of = "reshard: shard of '" + fine.tensor + "'";
  CHECK(said([](shard&) {}) == "accepted");
  CHECK(said([](shard& s) { s.type = fp16; }) ==
        "reshard: param of '" + fine.tensor + "' is fp16, and the list of states has it as bf16");
  CHECK(said([](shard& s) { s.state = "master"; }, "here: ") ==
        "reshard: here: master of '" + fine.tensor + "' is bf16, and the list of states has it as fp32");
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
  const auto beyond = [&](int dims, index_t number) {  // numbers behind a tensor's dimensions count for nothing
    shard s = dims == 2 ? fine : shard{0, "decoder.final_layernorm.weight", bf16, {4}, {1}, {2}};
    for (extents* all : {&s.whole, &s.offset, &s.shape})
      for (int i = dims; i < family_ndim; ++i) all->at[i] = number;
    const shard_place at = locate(table, s);
    index_t elements = 0;
    shard_boxes(table, s, at, [&](const family_box& b, index_t) { elements += b.volume(); });
    return elements;
  };
  for (const index_t number : {-1, 3, 100}) {
    CHECK(beyond(1, number) == 2);
    CHECK(beyond(2, number) == 12);
  }
  model own;
  own.name = "own";
  own.add({.name = "load", .extent = {1, 1, 1, 1, 4}, .place = home::last_stage, .shape_ndim = 1});
  own.family_at[0].kind = tensor_kind::statistic;
  const tensor_table counted(own);
  const auto kept = [&](std::string_view state, dtype type) {
    return refused([&] {
      static_cast<void>(locate(counted, shard{0, "load", type, {4}, {0}, {4}, std::string(state)}, "job: "));
    });
  };
  CHECK(kept("param", adam[statistic_state].type) == "accepted");
  CHECK(kept("exp_avg", fp32) == "reshard: job: shard of 'load': this tensor has no state 'exp_avg'");
}

TEST_CASE("tensors of four and five dimensions, by hand") {
  const std::vector<shard> list = {{0, "five", bf16, {2, 3, 4, 5, 6}, {1, 1, 1, 2, 3}, {1, 2, 2, 3, 2}},
                                   {0, "four", bf16, {3, 4, 5, 6}, {2, 0, 1, 1}, {1, 4, 2, 3}}};
  const tensor_table table{&list};
  const auto box_of = [&](const shard& s) {
    std::vector<family_box> boxes;
    shard_boxes(table, s, locate(table, s), [&](const family_box& b, index_t rows) {
      CHECK(rows == 0);
      boxes.push_back(b);
    });
    REQUIRE(boxes.size() == 1);
    return boxes[0];
  };
  CHECK(box_of(list[0]) == family_box{{{1, 2}, {1, 3}, {1, 3}, {2, 5}, {3, 5}}});
  CHECK(box_of(list[1]) == family_box{{{0, 1}, {2, 3}, {0, 4}, {1, 3}, {1, 4}}});
  const index_t wanted[] = {2, 3, 4, 5, 6};
  for (int i = 0; i < 5; ++i) {
    shard other = list[0];
    other.whole.at[i] = 9;
    CHECK(refused([&] { static_cast<void>(locate(table, other)); }) ==
          "reshard: shard of 'five': dimension " + std::to_string(i) + " is said to have extent 9; the tensor's is " +
              std::to_string(wanted[i]));
  }
}

TEST_CASE("of one query group k and v are rows of one part, behind those of q") {
  transformer one = {
      .name = "one", .layers = 2, .hidden = 4, .heads = 2, .groups = 1, .head_dim = 2, .ffn = 6, .vocabulary = 8};
  const tensor_table table(make_transformer(one));
  const auto box_of = [&](const shard& s) {
    family_box found;
    shard_boxes(table, s, locate(table, s), [&](const family_box& b, index_t) { found = b; });
    return found;
  };
  const std::string of = "model.layers.1.self_attn.";
  CHECK(box_of({0, of + "q_proj.weight", bf16, {4, 4}, {1, 0}, {3, 4}}) ==
        family_box{{{1, 2}, {0, 1}, {0, 1}, {1, 4}, {0, 4}}});
  CHECK(box_of({0, of + "k_proj.weight", bf16, {2, 4}, {1, 1}, {1, 2}}) ==
        family_box{{{1, 2}, {0, 1}, {0, 1}, {5, 6}, {1, 3}}});
  CHECK(box_of({0, of + "v_proj.weight", bf16, {2, 4}, {0, 0}, {2, 4}}) ==
        family_box{{{1, 2}, {0, 1}, {0, 1}, {6, 8}, {0, 4}}});
}
