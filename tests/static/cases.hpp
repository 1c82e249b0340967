// SPDX-License-Identifier: Apache-2.0
// Laws and known answers as functions that are true: tests/static asserts them while compiling,
// tests/space/both_times.cpp calls them, so that one algorithm is seen to give one answer at both times. Every function
// fits the compilers' default limits of constant evaluation.
#pragma once

#include <cstddef>
#include <vector>

#include <reshard/algebra/region.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/space/cover.hpp>

namespace cases {

using namespace reshard;

// ---- algebra

/// What is cut off a box, and what it shares with the other, make it up again.
constexpr bool subtraction_and_intersection_make_up_the_box() {
  const interval some[] = {{0, 3}, {1, 2}, {-1, 1}, {2, 4}, {1, 1}};
  for (const interval r : some)
    for (const interval c : some)
      for (const interval s : some) {
        const box<2> a{{r, c}}, b{{s, {0, 2}}};
        std::vector<box<2>> parts;
        subtract(a, b, [&](const box<2>& part) { parts.push_back(part); });
        index_t elements = a.empty() ? 0 : intersect(a, b).volume();
        for (std::size_t i = 0; i < parts.size(); ++i) {
          elements += parts[i].volume();
          if (!a.contains(parts[i]) || intersects(parts[i], b)) return false;
          for (std::size_t j = 0; j < i; ++j)
            if (intersects(parts[i], parts[j])) return false;
        }
        if (elements != a.volume() || parts.size() > 4) return false;
      }
  return true;
}

constexpr bool regions_are_sets() {
  const region<2> a(box<2>{{{0, 3}, {0, 3}}}), b(box<2>{{{1, 4}, {1, 2}}}), c(box<2>{{{2, 5}, {0, 5}}});
  return same_set(unite(a, b), unite(b, a)) && same_set(unite(unite(a, b), c), unite(a, unite(b, c))) &&
         same_set(unite(a, a), a) &&
         same_set(difference(a, unite(b, c)), intersect(difference(a, b), difference(a, c))) &&
         unite(a, b).volume() == 10 && difference(a, b).volume() == 7 && intersect(a, b).volume() == 2 &&
         a.covers({{{0, 3}, {1, 2}}}) && !a.covers({{{0, 4}, {1, 2}}}) && !same_set(a, b);
}

/// Every flat interval of a 2 x 3 x 2 array: at most 5 boxes, which follow each other.
constexpr bool flat_intervals_invert() {
  const index_t extent[] = {2, 3, 2};
  for (index_t begin = 0; begin <= 12; ++begin)
    for (index_t end = begin; end <= 12; ++end) {
      index_t reached = begin;
      int boxes = 0;
      bool follow = true;
      invert_flat(extent, {begin, end}, [&](const box<3>& b) {
        ++boxes;
        flat_intervals(extent, b, [&](interval i) {
          follow = follow && i.begin == reached;
          reached = i.end;
        });
      });
      if (!follow || boxes > 5 || reached != end) return false;
    }
  return true;
}

/// owners([x, x + 1)) says exactly the parts whose intervals have x, for every x.
template <Distribution D>
constexpr bool inverts(const D& d) {
  for (index_t x = 0; x < d.extent(); ++x) {
    index_t found = 0, wanted = 0;
    bool right = true;
    d.owners({x, x + 1}, [&](index_t part, interval own) {
      ++found;
      bool listed = false;
      d.intervals(part, [&](interval i) { listed = listed || (i == own && i.contains(x)); });
      right = right && listed;
    });
    for (index_t p = 0; p < d.parts(); ++p) d.intervals(p, [&](interval i) { wanted += i.contains(x) ? 1 : 0; });
    if (!right || found != wanted || wanted < 1) return false;
  }
  return true;
}

constexpr bool distributions_invert() {
  for (index_t extent = 0; extent <= 7; ++extent)
    for (index_t parts = 1; parts <= 5; ++parts)
      if (!inverts(block(extent, parts)) || !inverts(replicated(extent, parts))) return false;
  return inverts(explicit_cuts<4>({0, 2, 2, 5})) && inverts(explicit_cuts<4>({0, 0, 3}));
}

constexpr bool progressions_count() {
  const progression some[] = {{0, 5, 1}, {3, 1, 1}, {0, 2, 7}, {1, 3, 2}};
  for (const progression& p : some) {
    index_t below = 0;
    for (index_t x = 0; x < 10; ++x) {
      if (p.count_below(x) != below) return false;
      if (p.index_of(x) >= 0 && (p[p.index_of(x)] != x || p.index_of(x) != below)) return false;
      below += p.index_of(x) >= 0 ? 1 : 0;
    }
    if (below != p.count) return false;
  }
  return true;
}

// ---- model

constexpr bool presets_have_their_published_sizes() {
  return models::llama2_7b.parameters() == 6738415616 && models::llama2_13b.parameters() == 13015864320 &&
         models::llama2_70b.parameters() == 68976648192 && models::llama_32b.parameters() == 32528943616 &&
         models::qwen3_30b_a3b.parameters() == 30532122624 && models::qwen3_235b_a22b.parameters() == 235093634560;
}

constexpr bool layer_sets_invert() {
  layer_set odd;
  for (index_t l = 1; l < 140; l += 2) odd.append(l);
  for (index_t i = 0; i < odd.size(); ++i)
    if (odd.layer_of(i) != 2 * i + 1 || odd.members_below(2 * i + 1) != i || !odd.contains(2 * i + 1) ||
        odd.contains(2 * i))
      return false;
  return odd.size() == 70 && odd.members_within({10, 20}) == interval{5, 10} &&
         layer_set::all(2000).layer_of(1999) == 1999;
}

constexpr bool states_take_fourteen_bytes() {
  return states_of(tensor_kind::parameter, all_states).bytes_per_element() == 14 &&
         states_of(tensor_kind::statistic, all_states).bytes_per_element() == 4 &&
         optimizer_states.bytes_per_element() == 12 && states_of(role::parameter) == only(0) &&
         parameter_states == adam.named("param");
}

constexpr bool lists_of_states_are_read() {
  const state_list own = parse_state_list("param:fp32:3,exp_avg:bf16:1,grad:fp8:2");
  return own.size() == 3 && own[1].type == bf16 && own[2].placed_as() == role::gradient && own.find("grad") == 2 &&
         own.all().bytes_per_element() == 4 + 2 + 1 + 4 && own.all().of(role::gradient) == own.only(2) &&
         parse_state_list("adam") == adam && parse_state_list("lion+grad") == with_gradients(lion) &&
         sgd.all().sharded_at(1) && !own.only(2).sharded_at(1) && own.only(2).sharded_at(2) && own != adam;
}

// ---- parallelism

constexpr bool configurations_are_their_degrees() {
  const degrees wanted{.tp = 4, .pp = 8, .dp = 2, .zero = 1, .split = pipeline_split::account};
  const degrees one = config<tp<4>, pp<8>, dp<2>, zero<1>, split<pipeline_split::account>>{};
  const degrees two = config<split<pipeline_split::account>, zero<>, dp<2>, pp<8>, tp<>>{1, 4};
  const degrees three = config{dp{2}, tp{4}, zero<1>{}, pp{8}, split<pipeline_split::account>{}};
  const degrees experts = config<tp<4>, dp<4>, ep<8>>{};
  return one == wanted && two == wanted && three == wanted && one.world() == 64 && one.expert_tp() == 4 &&
         experts.expert_tp() == 1 && experts.expert_dp() == 2;
}

constexpr bool ranks_are_mixed_radix() {
  const mesh m{{2, 3, 2, 2}};
  for (rank_t rank = 0; rank < m.ranks(); ++rank) {
    index_t c[mesh_ndim] = {};
    m.coordinates(rank, c);
    if (m.rank_of(c) != rank) return false;
  }
  const rank_product holders{m, {{1}, {0, 2, 2}, {0, 2}, {1}}};
  index_t below = 0;
  for (rank_t rank = 0; rank < m.ranks(); ++rank) {
    if (holders.count_below(rank) != below) return false;
    const bool in = holders.contains(rank);
    if (in && (holders.index_of(rank) != below || holders[below] != rank)) return false;
    below += in ? 1 : 0;
  }
  return below == holders.count() && below == 4;
}

constexpr bool pipelines_invert() {
  return inverts(pipeline_placement(12, config<pp<3>, vpp<2>>{})) &&
         inverts(pipeline_placement(10, config<pp<12>, split<pipeline_split::account>>{})) &&
         inverts(pipeline_placement(10, config<pp<2>, vpp<3>, split<pipeline_split::account>>{})) &&
         inverts(pipeline_placement(3, config<pp<5>, split<pipeline_split::spread>>{})) &&
         pipeline_placement(94, config<pp<8>, split<pipeline_split::account>>{}).chunk(7) == interval{83, 94};
}

/// Megatron's answer for parameters of 70, 200, 60 and a shared one of 96 elements, two parts, buckets of 250.
constexpr bool buffers_are_packed_as_megatron_does() {
  std::vector<buffer_entry> entries;
  std::vector<interval> buckets;
  buffer_writer out(2, 250, entries, buckets);
  out.parameters(3, 0, 0, 1, 70);
  out.parameters(2, 0, 0, 1, 200);
  out.parameters(1, 0, 0, 1, 60);
  out.shared(0, 96);
  out.finish();
  const interval at[] = {{0, 70}, {128, 328}, {384, 444}, {512, 608}}, wanted[] = {{0, 384}, {384, 512}, {512, 640}};
  const index_t bucket[] = {0, 0, 1, 2};
  if (entries.size() != 4 || buckets.size() != 3) return false;
  for (std::size_t i = 0; i < 4; ++i)
    if (entries[i].outer.item(0) != at[i] || entries[i].bucket != bucket[i]) return false;
  for (std::size_t i = 0; i < 3; ++i)
    if (buckets[i] != wanted[i]) return false;
  return true;
}

// ---- space

inline constexpr space llama_before(models::llama2_70b, config<tp<4>, pp<8>, dp<2>, zero<1>>{});
inline constexpr space llama_after(models::llama2_70b, config<tp<8>, pp<16>, zero<1>>{});
inline constexpr space qwen(models::qwen3_235b_a22b,
                            config<tp<4>, pp<8>, dp<4>, ep<16>, split<pipeline_split::account>>{});

constexpr bool spaces_cut_where_they_say() {
  const int qkv = 3, fc2 = 9;
  return llama_before.ranks() == 64 && llama_after.ranks() == 128 &&
         llama_before.shard_box(qkv, 3, 0, 1) == family_box{{{30, 40}, {0, 1}, {2, 4}, {0, 1280}, {0, 8192}}} &&
         qwen.shard_box(fc2, 7, 15, 0) == family_box{{{83, 94}, {120, 128}, {0, 1}, {0, 4096}, {0, 1536}}};
}

constexpr bool llama_before_is_covered() { return covers(llama_before); }
constexpr bool llama_after_is_covered() { return covers(llama_after); }
constexpr bool parameters_of_qwen_are_covered() { return covers(qwen, parameter_states); }

/// Rank 0: a quarter of ten layers' matrices, their norms and a quarter of the embedding, two bytes each.
constexpr bool ranks_hold_their_bytes() {
  return held_bytes(computed_holding(llama_before, parameter_states), 0, parameter_states) == 4409589760 &&
         max_bytes_per_rank(llama_before) <= 80'000'000'000;
}

/// Of a list of one's own: moments of two bytes in the shards of eight ranks, parameters of four, gradients whole.
constexpr bool ranks_hold_bytes_of_any_list() {
  const state_list own{{"param", fp32, 3}, {"exp_avg", bf16, 1}, {"grad", bf16, 2}};
  const space s(make_transformer({.name = "small",
                                  .layers = 2,
                                  .hidden = 64,
                                  .heads = 8,
                                  .groups = 8,
                                  .head_dim = 8,
                                  .ffn = 64,
                                  .vocabulary = 256}),
                config<dp<8>, zero<1>>{});
  const index_t n = s.model().parameters();
  index_t moments = 0;
  for (rank_t rank = 0; rank < 8; ++rank) moments += held_bytes(s, rank, own.only(1));
  return moments == 2 * n && held_bytes(s, 3, own.only(0)) == 4 * n && held_bytes(s, 3, own.only(2)) == 2 * n &&
         held_bytes(s, 3, own) == 6 * n + held_bytes(s, 3, own.only(1)) && covers(s, own);
}

/// What rank 20 holds, asked for by each of its boxes: the same box comes back, with rank 20 among its holders.
constexpr bool owners_invert_held() {
  const computed_holding h(llama_before);
  bool right = true;
  for (const role r : roles)
    each_shared(h, rank_t{20}, r, [&](int f, const family_box& held, const rank_product& holders) {
      int found = 0;
      h.owners(f, r, held, [&](const family_box& b, const rank_product& owners) {
        ++found;
        right = right && b == held && owners.contains(20) && owners.count() == holders.count();
      });
      right = right && found == 1;
    });
  return right;
}

/// 151665 rows and 27 of a gate over tp=2, as torch's chunk() cuts them: 75833 and 75832, 14 and 13.
constexpr bool tensors_of_a_checkpoint_are_cut_by_chunk() {
  const computed_holding h(space(make_transformer({.name = "odd",
                                                   .layers = 2,
                                                   .hidden = 8,
                                                   .heads = 5,
                                                   .groups = 1,
                                                   .head_dim = 4,
                                                   .ffn = 27,
                                                   .vocabulary = 151665}),
                                 config<tp<2>, dp<3>, zero<3>, shard_as<shard_by::rows>, names_are<names_as::hf>>{}));
  index_t vocabulary[2] = {}, gates[2] = {};
  for (rank_t rank = 0; rank < 6; ++rank)
    each_held(h, rank, role::optimizer, [&](int f, const family_box& b) {
      if (h.family_at(f).name == "embedding.word_embeddings.weight") vocabulary[rank % 2] += b.dim[3].size();
      if (h.family_at(f).name.ends_with("mlp.linear_fc1.weight") && b.dim[2].begin == 0)
        gates[rank % 2] += b.dim[3].size();
    });
  return vocabulary[0] == 75833 && vocabulary[1] == 75832 && gates[0] == 14 && gates[1] == 13 && covers(h);
}

}  // namespace cases

#define RESHARD_ALGEBRA_CASES(CASE)                  \
  CASE(subtraction_and_intersection_make_up_the_box) \
  CASE(regions_are_sets)                             \
  CASE(flat_intervals_invert)                        \
  CASE(distributions_invert)                         \
  CASE(progressions_count)
#define RESHARD_MODEL_CASES(CASE)          \
  CASE(presets_have_their_published_sizes) \
  CASE(layer_sets_invert)                  \
  CASE(states_take_fourteen_bytes)         \
  CASE(lists_of_states_are_read)
#define RESHARD_PARALLELISM_CASES(CASE)  \
  CASE(configurations_are_their_degrees) \
  CASE(ranks_are_mixed_radix)            \
  CASE(pipelines_invert)                 \
  CASE(buffers_are_packed_as_megatron_does)
#define RESHARD_SPACE_CASES(CASE)      \
  CASE(spaces_cut_where_they_say)      \
  CASE(llama_before_is_covered)        \
  CASE(llama_after_is_covered)         \
  CASE(parameters_of_qwen_are_covered) \
  CASE(ranks_hold_their_bytes)         \
  CASE(ranks_hold_bytes_of_any_list)   \
  CASE(owners_invert_held)             \
  CASE(tensors_of_a_checkpoint_are_cut_by_chunk)
#define RESHARD_CASES(CASE) \
  RESHARD_ALGEBRA_CASES(CASE) RESHARD_MODEL_CASES(CASE) RESHARD_PARALLELISM_CASES(CASE) RESHARD_SPACE_CASES(CASE)
