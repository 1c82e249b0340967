// SPDX-License-Identifier: Apache-2.0
// Shards of a framework's own list, bound by name: a switch from them to a computed layout and back to another list.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/memory/bind_shard.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/listed_holding.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/judged.hpp"
#include "../support/refused.hpp"
#include "../support/states.hpp"

using namespace reshard;
using testing::filled_by, testing::refused;

namespace {

model tiny() {
  return make_transformer(
      {.name = "tiny", .layers = 2, .hidden = 12, .heads = 2, .groups = 2, .head_dim = 6, .ffn = 10, .vocabulary = 16});
}

/// A tensor's stored shape, as the framework has it.
extents stored(const family& f) {
  if (f.vector()) return {f.extent[4]};
  return {f.extent[2] * f.extent[3], f.extent[4]};
}

/// All tensors of the model, rows (of vectors: elements) in `ranks` uneven parts, every state.
std::vector<shard> by_rows(const model& m, rank_t ranks, const state_list& states = adam) {
  std::vector<shard> list;
  for (int f = 0; f < m.families; ++f)
    for (index_t member = 0; member < m[f].extent[0]; ++member)
      for (const state& s : testing::each_state(states)) {
        if (!has_states_of(m[f].kind, s.placed_as())) continue;
        for (rank_t rank = 0; rank < ranks; ++rank) {
          const extents whole = stored(m[f]);
          const interval rows = even_part({0, whole.at[0]}, rank, ranks);
          shard one{rank, m.tensor({f, member, 0}), s.type, whole, whole, whole, std::string(s.name)};
          for (int i = 0; i < whole.ndim; ++i) one.offset.at[i] = 0;
          one.offset.at[0] = rows.begin;
          one.shape.at[0] = rows.size();
          list.push_back(one);
        }
      }
  return list;
}

/// The same under a checkpoint's names: q, k, v, gate and up apart.
std::vector<shard> by_rows_of_checkpoint(const model& m, rank_t ranks) {
  const hf_names names(m);
  std::vector<shard> list;
  for (int f = 0; f < m.families; ++f)
    for (index_t member = 0; member < m[f].extent[0]; ++member)
      for (int piece = 0; piece < pieces(m[f]); ++piece)
        for (const state& s : testing::each_state()) {
          if (!has_states_of(m[f].kind, s.placed_as())) continue;
          const box<3> where = piece_box(m, f, piece);
          const extents whole = m[f].vector() ? extents{where.dim[2].size()}
                                              : extents{where.dim[0].size() * where.dim[1].size(), where.dim[2].size()};
          for (rank_t rank = 0; rank < ranks; ++rank) {
            const interval rows = even_part({0, whole.at[0]}, rank, ranks);
            shard one{rank, names[{{f, member, 0}, piece}], s.type, whole, whole, whole, std::string(s.name)};
            for (int i = 0; i < whole.ndim; ++i) one.offset.at[i] = 0;
            one.offset.at[0] = rows.begin;
            one.shape.at[0] = rows.size();
            list.push_back(one);
          }
        }
  return list;
}

/// Memory for one rank's shards, a row of each `pad` elements longer than it need be.
struct shard_memory {
  std::vector<std::vector<std::byte>> arrays;
  binding bound;
  shard_memory(const tensor_table& table, const std::vector<shard>& list, rank_t rank, index_t pad,
               const state_list& states = adam)
      : bound("rank " + std::to_string(rank) + " of a list", names_of(table), states) {
    for (const shard& s : list) {
      if (s.rank != rank) continue;
      extents stride = s.shape;
      stride.at[s.shape.ndim - 1] = 1;
      if (s.shape.ndim == 2) stride.at[0] = s.shape.at[1] + pad;
      const index_t elements = s.shape.ndim == 2 ? s.shape.at[0] * stride.at[0] : s.shape.at[0];
      arrays.emplace_back(static_cast<std::size_t>(elements * width(s.type)));
      bind_shard(bound, table, s, {arrays.back().data(), static_cast<bytes_t>(arrays.back().size())}, stride);
    }
    bound.seal();
  }
};

}  // namespace

namespace {
void there_and_back(filled_by by, bool checkpoint = false, const state_list& states = adam) {
  const model m = tiny();
  const tensor_table table(m);
  const std::vector<shard> three = checkpoint ? by_rows_of_checkpoint(m, 3) : by_rows(m, 3, states),
                           five = by_rows(m, 5, states);
  const listed_holding first(table, three, 3, states), last(table, five, 5, states);
  const space s(m, parse_degrees(checkpoint ? "tp=2,pp=2,zero=1" : "tp=2,dp=2,zero=2"));
  const computed_holding middle(s, states);
  std::vector<shard_memory> before, after;
  std::vector<rank_storage> between;
  for (rank_t r = 0; r < 3; ++r) testing::fill(by, before.emplace_back(table, three, r, 3, states).bound, table);
  for (rank_t r = 0; r < 5; ++r) after.emplace_back(table, five, r, 0, states);
  for (rank_t r = 0; r < 4; ++r)
    between.emplace_back(middle, r, "rank " + std::to_string(r), pages_are::reserved, states, states);
  between.emplace_back();
  binding none("no rank");

  const layout_switch there(first, middle, {.list = states});
  thread_group four(4);
  four.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    switch_state(there, d < 3 ? before[d].bound : none, between[d].tensors(), here);
  });
  for (rank_t r = 0; r < 4; ++r)
    CHECK(testing::compare(by, between[static_cast<std::size_t>(r)].tensors(), middle).wrong == 0);

  const layout_switch back(middle, last, {.list = states});
  thread_group world(5);
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    const switch_report report = switch_state(back, between[d].tensors(), after[d].bound, here);
    CHECK(report.memory.after == held_bytes(last, here.device()));  // memory outside pages counts by the byte
  });
  index_t elements = 0;
  for (const shard_memory& mine : after) {
    const comparison found = testing::compare(by, mine.bound, table);
    CHECK(found.wrong == 0);
    elements += found.elements;
  }
  CHECK(elements == states.size() * m.parameters());
}
}  // namespace

TEST_CASE("from a list to a computed layout, and on to another list, by name") {
  there_and_back(filled_by::library);
  there_and_back(filled_by::judge);
}
TEST_CASE("from a list in a checkpoint's names to a computed layout, and on to a list in the model's own") {
  there_and_back(filled_by::judge, true);
}
TEST_CASE("fp32 parameters, bf16 moments and fp8 gradients are bound and moved, of a list that has them so") {
  const state_list own = parse_state_list("exp_avg:bf16:1,param:fp32:3,grad:fp8:2");
  there_and_back(filled_by::judge, false, own);
  there_and_back(filled_by::library, false, own);
  const tensor_table table(tiny());
  std::vector<std::byte> bytes(48);
  binding b("rank 7", names_of(tiny()), own);
  const shard norm{7, "decoder.final_layernorm.weight", fp32, {12}, {0}, {12}};
  CHECK(refused([&] { bind_shard(b, table, norm, memory(bytes)); }) == "accepted");
  shard moment = norm;
  moment.state = "exp_avg";
  CHECK(refused([&] { bind_shard(b, table, moment, memory(bytes)); }) ==
        "reshard: rank 7: exp_avg of 'decoder.final_layernorm.weight' is fp32, and the list of states has it as bf16");
  moment.state = "master";
  CHECK(refused([&] { bind_shard(b, table, moment, memory(bytes)); }) ==
        "reshard: rank 7: shard of 'decoder.final_layernorm.weight': no state is called 'master'; states are exp_avg, "
        "param and grad");
  std::vector<std::uint16_t> narrow(12);  // of bf16, where the list has fp32
  CHECK(refused([&] {
          binding("rank 7", {}, own).add({1, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 12}}}}, memory(narrow));
        }).find("is fp32, 4 bytes an element, and its memory has elements of 2") != std::string::npos);
}
TEST_CASE("bindings of another list than the switch's are refused, state by state") {
  const space s(tiny(), parse_degrees(""));
  const state_list other = parse_state_list("param:bf16:3,moment:fp32:1"), wide = parse_state_list("param:fp32:3");
  const layout_switch change(s, s, {.list = sgd});
  const auto said = [&](const state_list& of_from, const state_list& of_to) {
    rank_storage from(s, 0, "the sources", pages_are::reserved, {}, of_from),
        to(s, 0, "the targets", pages_are::reserved, {}, of_to);
    std::string sentence;
    thread_group one(1);
    one.run([&](auto& here) { sentence = refused([&] { switch_state(change, from.tensors(), to.tensors(), here); }); });
    return sentence;
  };
  CHECK(said(sgd, sgd) == "accepted");
  CHECK(said(sgd, lion) == "accepted");  // more than what moves
  CHECK(said(sgd, other) ==
        "reshard: device 0, the targets: state 1 is bound as moment:fp32:1, and the switch moves "
        "master:fp32:1; bindings and switch have one list of states");
  CHECK(said(wide, sgd) ==
        "reshard: device 0, the sources: state 0 is bound as param:fp32:3, and the switch moves "
        "param:bf16:3; bindings and switch have one list of states");
}

TEST_CASE("what is no shard of ours is refused with its name") {
  const model m = tiny();
  const tensor_table table(m);
  std::vector<std::byte> bytes(24);
  const memory at{bytes.data(), 24};
  binding b("rank 7", names_of(m));
  const shard norm{7, "decoder.final_layernorm.weight", bf16, {12}, {0}, {12}};
  const auto changed = [&](auto&& change) {
    shard s = norm;
    change(s);
    return refused([&] { bind_shard(b, table, s, at); });
  };
  CHECK(changed([](shard&) {}) == "accepted");
  CHECK(changed([](shard& s) { s.tensor = "bias"; }) == "reshard: rank 7: no tensor is called 'bias'");
  CHECK(changed([](shard& s) { s.state = "momentum"; }) ==
        "reshard: rank 7: shard of 'decoder.final_layernorm.weight': no state is called 'momentum'; states are param, "
        "master, exp_avg and exp_avg_sq");
  CHECK(changed([](shard& s) { s.type = fp32; }) ==
        "reshard: rank 7: param of 'decoder.final_layernorm.weight' is fp32, and the list of states has it as bf16");
  CHECK(changed([](shard& s) {
          s.offset = {0, 0};
        }) ==
        "reshard: rank 7: shard of 'decoder.final_layernorm.weight': an offset of 2 and a shape of 1 dimensions in a "
        "tensor of 1");
  CHECK(changed([](shard& s) { s.offset = {1}; }) ==
        "reshard: rank 7: shard of 'decoder.final_layernorm.weight' on rank 7: [1, 1 + 12) reaches outside the extent "
        "12 of dimension 0");
  CHECK(changed([](shard& s) { s.whole = {13}; }) ==
        "reshard: rank 7: shard of 'decoder.final_layernorm.weight': dimension 0 is said to have extent 13; the "
        "tensor's is 12");
  std::vector<float> floats(12);
  std::vector<std::byte> longer(26);
  CHECK(refused([&] { bind_shard(b, table, norm, floats); }) ==
        "reshard: rank 7: param of 'decoder.final_layernorm.weight' is bf16, 2 bytes an element, and its memory has "
        "elements of 4; "
        "bind memory of the state's type, say as() of another floating type, or leave the state out of what moves");
  CHECK(refused([&] { bind_shard(b, table, norm, longer); }) ==
        "reshard: rank 7: param of 'decoder.final_layernorm.weight' has 26 bytes of memory, and its array takes 24; "
        "where elements lie "
        "apart, strides say so");
  CHECK(refused([&] { bind_shard(b, table, norm, at, {-1}); }) ==
        "reshard: rank 7: 'decoder.final_layernorm.weight' has a stride of -1 elements; strides count forwards");
  const shard one_row{0, "decoder.layers.1.mlp.linear_fc1.weight", bf16, {20, 12}, {5, 0}, {1, 12}};
  CHECK(refused([&] { bind_shard(b, table, one_row, memory(longer.data(), 22)); }) ==
        "reshard: rank 7: param of 'decoder.layers.1.mlp.linear_fc1.weight' has 22 bytes of memory, and needs 24");
  CHECK(refused([&] { bind_shard(b, table, one_row, memory(longer.data(), 24), {0, 1}); }) == "accepted");
  const shard one_element{0, "decoder.layers.1.mlp.linear_fc1.weight", bf16, {20, 12}, {5, 3}, {1, 1}};
  CHECK(refused([&] {
          bind_shard(b, table, one_element, memory(longer.data(), 4), {0, 0});
        }) ==
        "reshard: rank 7: param of 'decoder.layers.1.mlp.linear_fc1.weight' has 4 bytes of memory, and its array takes "
        "2; where elements lie apart, strides say so");
  CHECK(changed([](shard& s) { s.whole.ndim = s.offset.ndim = s.shape.ndim = 6; }) ==
        "reshard: rank 7: shard of 'decoder.final_layernorm.weight': 6 dimensions; the tensor has 1");
  CHECK(refused([&] {
          bind_shard(b, table, norm, at, {12, 1});
        }) == "reshard: rank 7: 'decoder.final_layernorm.weight' has 1 dimensions, and strides for 2 were given");
  CHECK(
      changed([](shard& s) {
        s.tensor = "decoder.layers.1.mlp.linear_fc1.weight", s.whole = {20, 12}, s.offset = {5, 0}, s.shape = {12, 12};
      }) == "reshard: rank 7: param of 'decoder.layers.1.mlp.linear_fc1.weight' has 24 bytes of memory, and needs 288");
}

TEST_CASE("a tensor of five dimensions is bound element by element where its strides say") {
  const shard whole{0, "w", bf16, {5, 3, 2, 2, 4}, {3, 1, 0, 1, 2}, {2, 2, 2, 1, 2}};
  const std::vector<shard> list{whole};
  const tensor_table table{&list};
  std::vector<std::byte> bytes(2 * (60 + 20 + 9 + 1 + 1));
  const index_t stride[] = {60, 20, 9, 4, 1};
  binding b("rank 0", names_of(table));
  bind_shard(b, table, whole, bytes, {60, 20, 9, 4, 1});
  b.seal();
  int met = 0;
  for (index_t i = 0; i < 2; ++i)
    for (index_t j = 0; j < 2; ++j)
      for (index_t k = 0; k < 2; ++k)
        for (index_t m = 0; m < 2; ++m)
          b.meet({0, {0, 3 + i, 1 + j}, {{{k, k + 1}, {1, 2}, {2 + m, 3 + m}}}}, [&](const bound_box& one) {
            CHECK(one.data == bytes.data() + 2 * (i * stride[0] + j * stride[1] + k * stride[2] + m * stride[4]));
            ++met;
          });
  CHECK(met == 16);
  CHECK(refused([&] {
          bind_shard(b, table, whole, bytes, {-60, 20, 9, 4, 1});
        }) == "reshard: rank 0: 'w' has a stride of -60 elements; strides count forwards");
}

TEST_CASE(
    "of a tensor that is stored part after part, a shard with rows of several parts is bound where each row lies") {
  const model m = tiny();
  const tensor_table table(m);
  const std::string name = "decoder.layers.1.mlp.linear_fc1.weight";  // [gate; up], of 10 rows each
  const index_t pitch = 15;
  for (const interval rows : {interval{0, 20}, interval{3, 20}, interval{0, 13}, interval{7, 12}}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(2 * (rows.size() * pitch)));
    binding b("rank 0", names_of(m));
    bind_shard(b, table, {0, name, bf16, {20, 12}, {rows.begin, 0}, {rows.size(), 12}}, bytes, {pitch, 1});
    b.seal();
    index_t met = 0;
    for (const bound_box& box : b.boxes())
      for (index_t part = box.where.dim[0].begin; part < box.where.dim[0].end; ++part)
        for (index_t row = box.where.dim[1].begin; row < box.where.dim[1].end; ++row) {
          const std::byte* at = box.data + 2 * ((part - box.where.dim[0].begin) * box.stride[0] +
                                                (row - box.where.dim[1].begin) * box.stride[1]);
          CHECK(at == bytes.data() + 2 * pitch * (part * 10 + row - rows.begin));
          CHECK(rows.contains(part * 10 + row));
          CHECK(box.where.dim[2] == interval{0, 12});
          ++met;
        }
    CHECK(met == rows.size());
  }
}

TEST_CASE("a shard without elements is bound to no memory, whatever its strides") {
  const model m = tiny();
  const tensor_table table(m);
  binding b("rank 0", names_of(m));
  const shard none{0, "decoder.layers.1.mlp.linear_fc1.weight", bf16, {20, 12}, {5, 0}, {4, 0}};
  CHECK(refused([&] { bind_shard(b, table, none, memory()); }) == "accepted");
  for (const index_t stride : {index_t{100}, index_t{1} << 61}) {
    CHECK(refused([&] { bind_shard(b, table, none, memory(), {stride, 1}); }) == "accepted");
    const shard narrow{0, none.tensor, bf16, {20, 12}, {5, 3}, {4, 0}};
    CHECK(refused([&] { bind_shard(b, table, narrow, memory(), {stride, stride}); }) == "accepted");
  }
  b.seal();
  CHECK(b.boxes().empty());
}
