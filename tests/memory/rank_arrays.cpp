// SPDX-License-Identifier: Apache-2.0
// The arrays of a rank: which there are, in which order and how long, by hand and against the oracle's buffers; and
// that what is bound in them is all their own.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/judged.hpp"
#include "../support/refused.hpp"
#include "../support/strict_list.hpp"

using namespace reshard;
using testing::refused;

namespace {

model tiny() {
  return make_transformer(
      {.name = "tiny", .layers = 2, .hidden = 16, .heads = 2, .groups = 2, .head_dim = 8, .ffn = 32, .vocabulary = 64});
}

template <Holding H>
std::vector<rank_array> arrays_of(const H& h, rank_t rank, state_set wanted = all_states) {
  std::vector<rank_array> list;
  each_array(h, rank, wanted, [&](const rank_array& a) { list.push_back(a); });
  return list;
}

}  // namespace

TEST_CASE("where nothing is sharded, a rank has an array per tensor and state, state by state") {
  const model m = tiny();
  const space s(m, parse_degrees("tp=2"));
  const computed_holding h(s);
  const std::vector<rank_array> all = arrays_of(h, 1);
  index_t tensors = 0;
  for (int f = 0; f < h.families(); ++f) tensors += h.family_at(f).tensors();
  REQUIRE(static_cast<index_t>(all.size()) == 4 * tensors);
  bytes_t bytes = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].box.state == static_cast<int>(i) / tensors);
    CHECK_FALSE(all[i].sharded);
    CHECK(all[i].elements == all[i].box.where.volume());
    CHECK(all[i].bytes() == all[i].elements * (all[i].box.state == 0 ? 2 : 4));
    bytes += all[i].bytes();
  }
  CHECK(bytes == held_bytes(h, 1));
  const std::vector<rank_array> some = arrays_of(h, 1, only(0) | only(2));
  REQUIRE(static_cast<index_t>(some.size()) == 2 * tensors);
  CHECK(some.front().box.state == 0);
  CHECK(some.back().box.state == 2);
}

TEST_CASE("a holding of some states has their arrays, whichever are wanted") {
  const space s(tiny(), parse_degrees("dp=2,zero=1"));
  const computed_holding weights(s, only(0));
  const std::vector<rank_array> all = arrays_of(weights, 1);
  CHECK(all.size() == arrays_of(computed_holding(s), 1, only(0)).size());
  for (const rank_array& a : all) CHECK(a.box.state == 0);
  CHECK(arrays_of(weights, 1, only(1) | only(3)).empty());
}

TEST_CASE("every array of a rank has a name of its own, by its state and its tensor or buffer") {
  const space s(make_transformer({.name = "moe",
                                  .layers = 2,
                                  .hidden = 16,
                                  .heads = 2,
                                  .groups = 2,
                                  .head_dim = 8,
                                  .ffn = 0,
                                  .vocabulary = 64,
                                  .experts = 2,
                                  .expert_ffn = 8}),
                parse_degrees("dp=2,ep=2,zero=1"));
  const computed_holding h(s);
  const std::vector<rank_array> all = arrays_of(h, 1);
  std::set<std::string> names;
  for (const rank_array& a : all) {
    const std::string name = array_name(h, a);
    names.insert(name);
    CHECK(name.ends_with(", experts") == (a.sharded && a.buffer.mesh == mesh_kind::expert));
  }
  CHECK(names.size() == all.size());
  CHECK(names.contains("param of decoder.layers.1.self_attention.linear_qkv.weight"));
  CHECK(names.contains("exp_avg buffer of chunk 0"));
  CHECK(names.contains("exp_avg_sq buffer of chunk 0, experts"));

  const std::vector<shard> list{{0, "w", bf16, {4}, {0}, {4}}};
  const listed_holding listed(list);
  CHECK(array_name(listed, arrays_of(listed, 0)[0]) == "param of w");
}

TEST_CASE("where ZeRO shards a state, a rank has an array per buffer, padding included, as long as the oracle says") {
  oracle::generator cases(testing::seed() + 41);
  int buffers = 0, padded = 0;
  for (int i = 0; i < 200; ++i) {
    const oracle::layout_case c = cases.next_layout();
    if (c.parsed.zero == 0) continue;
    INFO(c.describe());
    const space s(testing::to_model(c.m), parse_degrees(c.text));
    const computed_holding h(s);
    const rank_t rank = static_cast<rank_t>(i) % h.ranks();
    const oracle::coordinates at = oracle::coordinates_of(c.parsed, rank);
    std::vector<index_t> expected;  // elements, chunk by chunk, dense before experts
    for (long chunk = 0; chunk < c.parsed.vpp; ++chunk)
      for (const bool expert : {false, true}) {
        const oracle::optimizer_buffer buffer = expert ? oracle::expert_buffer(c.m, c.parsed, at.pp, chunk, at.ep)
                                                       : oracle::dense_buffer(c.m, c.parsed, at.pp, chunk);
        const long parts = expert ? c.parsed.edp : c.parsed.dp * c.parsed.cp;
        index_t elements = 0;
        for (const auto& [begin, end] : buffer.buckets) elements += (end - begin) / parts;
        if (elements > 0) expected.push_back(elements);
      }
    std::vector<index_t> found;
    for (const rank_array& a : arrays_of(h, rank, only(3))) {
      CHECK(a.sharded);
      CHECK(a.box.state == 3);
      CHECK(a.bytes() == 4 * a.elements);
      found.push_back(a.elements);
    }
    CHECK(found == expected);
    for (const rank_array& a : arrays_of(h, rank, only(0))) CHECK_FALSE(a.sharded);
    buffers += static_cast<int>(found.size());

    // what is bound lies in its own array, no two elements in the same place, and padding is nobody's
    std::vector<std::vector<std::byte>> memories;
    constexpr std::byte canary{0x5a};
    const binding b = bind_rank(h, rank, "me", [&](const rank_array& a) {
      memories.emplace_back(static_cast<std::size_t>(a.bytes()), canary);
      return memory{memories.back().data(), a.bytes()};
    });
    for (const int state : all_states)  // all that the rank holds is bound, under its own name
      each_held(h, rank, adam[state].placed_as(), [&](int f, const family_box& held) {
        index_t found_elements = 0;
        for (index_t member = held.dim[0].begin; member < held.dim[0].end; ++member)
          for (index_t expert = held.dim[1].begin; expert < held.dim[1].end; ++expert)
            b.meet({state, {f, member, expert}, {{held.dim[2], held.dim[3], held.dim[4]}}},
                   [&](const bound_box& part) { found_elements += part.where.volume(); });
        CHECK(found_elements == held.volume());
      });
    testing::write_by_judge(b, h);
    const oracle::verdict verdict = testing::judged(b, h);
    CHECK(verdict.wrong == 0);
    bytes_t reserved = 0, bound = 0;
    for (const auto& one : memories) reserved += static_cast<bytes_t>(one.size());
    for (const bound_box& box : b.boxes()) {
      bound += box.bytes();
      bool inside = false;
      for (const auto& one : memories) {
        bytes_t last = 0;
        for (int d = 0; d < 3; ++d) last += (box.where.dim[d].size() - 1) * box.stride[d];
        inside =
            inside || (box.data >= one.data() && box.data + (last + 1) * box.element_bytes <= one.data() + one.size());
      }
      CHECK(inside);
    }
    CHECK(bound == held_bytes(h, rank));
    padded += reserved > bound ? 1 : 0;
  }
  CHECK_DRAWN(buffers > 50);
  CHECK_DRAWN(padded > 10);
}

TEST_CASE("a rank's memory is asked for once per array, in order, and named in refusals") {
  const model m = tiny();
  const space s(m, parse_degrees("pp=2"));
  const computed_holding h(s);
  const std::vector<rank_array> list = arrays_of(h, 1);
  std::vector<std::byte> bytes(1 << 20);
  std::size_t asked = 0;
  bytes_t at = 0;
  const binding b = bind_rank(h, 1, "rank 1", [&](const rank_array& a) {
    CHECK(a.box.same_tensor(list.at(asked).box));
    CHECK(a.box.where == list.at(asked).box.where);
    ++asked;
    const memory here{bytes.data() + at, a.bytes()};
    at += a.bytes();
    return here;
  });
  CHECK(asked == list.size());
  CHECK(b.who() == "rank 1");
  CHECK(b.name(list[0].box) == "param of " + m.tensor(list[0].box.tensor));
  CHECK(refused([&] {
          bind_rank(h, 1, "rank 1", [&](const rank_array& a) { return memory{bytes.data(), a.bytes() - 1}; });
        }) == "reshard: rank 1: param of " + m.tensor(list[0].box.tensor) + " has " +
                  std::to_string(list[0].bytes() - 1) + " bytes of memory, and needs " +
                  std::to_string(list[0].bytes()));
}

TEST_CASE("an optimizer buffer that its memory is too small for is named by its chunk, and by its experts") {
  const model m = tiny();
  const space s(m, parse_degrees("dp=2,zero=1"));
  const computed_holding h(s);
  const rank_array buffer = arrays_of(h, 1, only(2)).at(0);
  std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.bytes()));
  const auto says = [&](const rank_array& of, memory at) {
    binding b("rank 1");
    return refused([&] { bind_array(b, h, 1, of, at); });
  };
  const std::string whose = "reshard: rank 1: exp_avg of the optimizer buffer of pipeline chunk 0",
                    needs = " bytes of memory, and needs " + std::to_string(buffer.bytes());
  CHECK(says(buffer, {bytes.data(), buffer.bytes()}) == "accepted");
  CHECK(says(buffer, {bytes.data(), buffer.bytes() - 1}) ==
        whose + " has " + std::to_string(buffer.bytes() - 1) + needs);
  CHECK(says(buffer, {nullptr, buffer.bytes()}) == whose + " has 0" + needs);
  bytes.resize(bytes.size() + 4);
  CHECK(says(buffer, bytes) == whose + " has " + std::to_string(buffer.bytes() + 4) +
                                   " bytes of memory, and its array takes " + std::to_string(buffer.bytes()) +
                                   "; where elements lie apart, strides say so");
  bytes.resize(bytes.size() - 4);
  std::vector<float> floats(bytes.size() / 4);
  std::vector<double> doubles(bytes.size() / 8);
  CHECK(says(buffer, floats) == "accepted");
  CHECK(says(buffer, doubles) ==
        whose +
            " is fp32, 4 bytes an element, and its memory has elements of 8; bind memory of the state's type, "
            "say as() of another floating type, or leave the state out of what moves");
  rank_array experts = buffer;
  experts.buffer.mesh = mesh_kind::expert;
  CHECK(says(experts, {bytes.data(), 5}) == whose + ", experts, has 5" + needs);
}

TEST_CASE("an array of an optimizer buffer is no array of a list of shards") {
  const std::vector<shard> list{{0, "wte", bf16, {6, 8}, {0, 0}, {6, 8}, "param"}};
  const listed_holding h(list);
  std::vector<std::byte> values(96);
  rank_array array = arrays_of(h, 0).at(0);
  binding b("rank 3");
  CHECK(refused([&] { bind_array(b, h, 0, array, values); }) == "accepted");
  array.sharded = true;
  CHECK(refused([&] { bind_array(b, h, 0, array, values); }) ==
        "reshard: rank 3: an array of an optimizer buffer, and this layout has no buffers");
}

TEST_CASE("a list of shards has its arrays too, under its own names") {
  const shard left{0, "wte", bf16, {6, 8}, {0, 0}, {6, 4}, "param"},
      right{1, "wte", bf16, {6, 8}, {0, 4}, {6, 4}, "param"};
  const std::vector<shard> list{left, right};
  const tensor_table table{&list};
  const listed_holding h(table, list, 2);
  const std::vector<rank_array> arrays = arrays_of(h, 1);
  REQUIRE(arrays.size() == 1);
  CHECK(arrays[0].bytes() == 48);
  CHECK(arrays[0].box.where.dim[2] == interval{4, 8});
  CHECK(names_of(h)(arrays[0].box.tensor) == "wte");
}

TEST_CASE("storage reserves whole pages per array, commits them when told, and moves with its binding") {
  const model m = tiny();
  const space s(m, parse_degrees("dp=2,zero=1"));
  const computed_holding h(s);
  bytes_t reserved = 0, boxes = 0;
  for (const rank_array& a : arrays_of(h, 1))
    reserved += (a.bytes() + page_bytes - 1) / page_bytes * page_bytes, ++boxes;
  std::vector<rank_storage> moved;  // grows, and so moves them
  moved.emplace_back(h, 1, "rank 1");
  moved.emplace_back(h, 1, "rank 1", pages_are::committed);
  moved.emplace_back(h, 1, "rank 1", pages_are::reserved, only(1));
  moved.emplace_back("nobody");
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(moved[i].reserved_bytes() == reserved);
    CHECK(static_cast<bytes_t>(moved[i].tensors().blocks().size()) == boxes);
    CHECK(moved[i].resident_bytes() == (i == 0 ? 0 : reserved));
    for (const memory_block& block : moved[i].tensors().blocks()) {
      CHECK(block.at_first == (i == 0 ? pages_are::reserved : pages_are::committed));
      const bytes_t resident = moved[i].resident_bytes();  // the calls work on the ranges, wherever these went
      block.release({0, 1});
      CHECK(moved[i].resident_bytes() == resident - (i == 0 ? 0 : page_bytes));
      block.take(block.begin, page_bytes);
      CHECK(moved[i].resident_bytes() == resident + (i == 0 ? page_bytes : 0));
      if (i == 0) block.release({0, 1});
      if (i == 0) block.take(block.begin, page_bytes);
    }
    for (const bound_box& b : moved[i].tensors().boxes()) CHECK(moved[i].tensors().block_of(b.data) >= 0);
    testing::write_by_judge(moved[i].tensors(), h);
    CHECK(testing::judged(moved[i].tensors(), h).wrong == 0);
    CHECK(moved[i].resident_bytes() > 0);
  }
  CHECK(moved[2].reserved_bytes() < reserved);
  for (const bound_box& b : moved[2].tensors().boxes()) CHECK(b.state == 1);
  CHECK(moved[3].reserved_bytes() == 0);
  CHECK(moved[3].resident_bytes() == 0);
  CHECK(moved[3].tensors().boxes().empty());
  CHECK(moved[3].tensors().who() == "nobody");
}

TEST_CASE("a device without a rank has no array, and its holding is not asked") {
  const computed_holding in_buffers(space(tiny(), parse_degrees("dp=2,zero=1")));
  const testing::strict_list listed(shard_list({{0, "w", bf16, {4}, {0}, {4}}}));
  int arrays = 0;
  const auto count = [&](const rank_array&) { ++arrays; };
  each_array(in_buffers, -1, {}, count);
  each_array(listed, -1, {}, count);
  CHECK(arrays == 0);
  each_array(listed, 0, {}, count);
  CHECK(arrays == 1);
  const auto nowhere = [](const rank_array&) { return memory(); };
  const binding none = bind_rank(in_buffers, -1, "nobody", nowhere);
  CHECK(none.boxes().empty());
  CHECK(none.who() == "nobody");
}
