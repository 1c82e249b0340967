// SPDX-License-Identifier: Apache-2.0
// Tensors that tp, etp or ep does not divide: who holds each of their elements, worked out from the element's own
// number in a checkpoint's tensor.
#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/uneven_shards.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// The row of an element in its tensor of a checkpoint, how many there are, and the same of its column.
struct element_place {
  index_t row, rows, column, columns;
  bool by_column;  // which of the two tensor parallelism cuts
};
element_place place_of(const transformer& t, const family& f, const index_t (&x)[family_ndim]) {
  const std::string_view name = f.name;
  if (name.find("linear_qkv.weight") != name.npos || name.find("linear_qkv.bias") != name.npos) {
    const index_t queries = t.heads / t.groups * t.head_dim;
    const index_t in_group = f.vector() ? x[4] : x[3], column = f.vector() ? 0 : x[4];
    const index_t columns = f.vector() ? 1 : t.hidden;
    if (in_group < queries) return {x[2] * queries + in_group, t.groups * queries, column, columns, false};
    return {x[2] * t.head_dim + (in_group - queries) % t.head_dim, t.groups * t.head_dim, column, columns, false};
  }
  if (f.vector()) return {x[4], f.extent[4], 0, 1, false};  // norms, which are whole
  const bool by_column = name.find("linear_proj") != name.npos || name.find("linear_fc2") != name.npos;
  return {x[3], f.extent[3], x[4], f.extent[4], by_column};  // gate and up are parts
}

/// Part of chunk(N, parts) that number i is in, and how many numbers are in it.
struct chunk_at {
  index_t part, first, size;
  chunk_at(index_t i, index_t n, index_t parts) {
    index_t c = 1;
    while (c * parts < n) ++c;
    part = i / c, first = part * c, size = first + c < n ? c : n - first;
  }
};

/// Whether a rank holds an element, with pp = 1 and the standard order.
bool holds(const transformer& t, const degrees& d, const family& f, const index_t (&x)[family_ndim], rank_t rank,
           bool sharded) {
  const element_place at = place_of(t, f, x);
  const bool expert = f.mesh == mesh_kind::expert, cut = f.tensor_axis != axis_of::none;
  const index_t tp = expert ? d.expert_tp() : d.tp, ep = expert ? d.ep : 1;
  index_t row = at.row, rows = at.rows;
  if (cut) {
    const chunk_at mine = at.by_column ? chunk_at(at.column, at.columns, tp) : chunk_at(at.row, at.rows, tp);
    if (rank % tp != mine.part) return false;
    if (!at.by_column) row -= mine.first, rows = mine.size;
  }
  index_t in_part = x[1], experts = f.extent[1];
  if (expert) {
    const chunk_at mine(x[1], f.extent[1], ep);
    if (rank / tp % ep != mine.part) return false;
    in_part -= mine.first, experts = mine.size;
  }
  if (!sharded) return true;
  const index_t group = d.tp * d.dp / (tp * ep) / d.instances, index = rank / (tp * ep) % group;
  const bool whole_experts = expert && d.experts == experts_as::grouped;
  return (whole_experts ? chunk_at(in_part, experts, group) : chunk_at(row, rows, group)).part == index;
}

constexpr transformer odd{.name = "odd",
                          .layers = 2,
                          .hidden = 5,
                          .heads = 6,
                          .groups = 3,
                          .head_dim = 2,
                          .ffn = 7,
                          .vocabulary = 11,
                          .qkv_bias = true};

transformer any_sizes(dice& random) {
  transformer t = odd;
  t.layers = 1;
  t.hidden = random.within(3, 6), t.groups = random.within(1, 4), t.heads = t.groups * random.within(1, 2);
  t.head_dim = random.within(1, 3), t.ffn = random.within(3, 9), t.vocabulary = random.within(4, 13);
  if (random.coin()) {
    t.experts = random.within(2, 7), t.expert_ffn = random.within(2, 5), t.ffn = 0;
    if (random.coin()) t.shared_ffn = random.within(2, 5);
  }
  return t;
}

constexpr bool rows_of(index_t vocabulary, rank_t rank, interval expected) {
  transformer t = odd;
  t.vocabulary = vocabulary;
  const computed_holding h(space(make_transformer(t), {.tp = 2, .shard = shard_by::rows, .names = names_as::hf}));
  int boxes = 0;
  bool right = h.space().cut_unevenly(0);
  h.held(0, rank, role::parameter, [&](int, const family_box& b) { ++boxes, right = right && b.dim[3] == expected; });
  return right && boxes == 1;
}
static_assert(rows_of(151665, 0, {0, 75833}) && rows_of(151665, 1, {75833, 151665}));
}  // namespace

TEST_CASE("151665 rows over tp=2 are 75833 and 75832, when they are compiled and when they run") {
  CHECK(rows_of(151665, 0, {0, 75833}));
  CHECK(rows_of(151665, 1, {75833, 151665}));
  CHECK_FALSE(rows_of(151664, 0, {0, 75832}));  // which tp divides
}

TEST_CASE("parts may be empty, and rows that are counted over groups are three boxes at most") {
  transformer t = odd;  // 12 rows of q in 3 groups of 4, 6 of k
  const computed_holding h(space(make_transformer(t), parse_degrees("tp=8,shard=rows,names=hf")));
  int qkv = 0;
  while (h.family_at(qkv).name.find("linear_qkv.weight") == std::string_view::npos) ++qkv;
  std::vector<index_t> elements;
  for (rank_t rank = 0; rank < 8; ++rank) {
    elements.push_back(0);
    h.held(qkv, rank, role::parameter, [&](int, const family_box& b) { elements.back() += b.volume(); });
  }
  // q: 2 rows each, 6 ranks; k and v: one each, 6 ranks; of 2 layers and 5 columns
  CHECK(elements == std::vector<index_t>{40, 40, 40, 40, 40, 40, 0, 0});
  t.heads = t.groups = 5, t.head_dim = 3;  // 15 rows, a group has 3: two parts of 8 and 7
  const computed_holding two(space(make_transformer(t), parse_degrees("tp=2,shard=rows,names=hf")));
  std::vector<family_box> boxes;
  two.held(qkv, 1, role::parameter, [&](int, const family_box& b) { boxes.push_back(b); });
  REQUIRE(boxes.size() == 6);  // rows [8, 15) of q, of k and of v: one of group 2, then groups 3 and 4
  CHECK(boxes[0].dim[2] == interval{2, 3});
  CHECK(boxes[0].dim[3] == interval{2, 3});
  CHECK(boxes[1].dim[2] == interval{3, 5});
  CHECK(boxes[1].dim[3] == interval{0, 3});
}

TEST_CASE("every element is with the ranks that its row, its column and its expert say, whole and sharded") {
  dice random;
  int uneven = 0, empty = 0, of_columns = 0, folded = 0, grouped = 0, asked = 0;
  for (int n = 0; n < testing::tries(120); ++n) {
    const transformer t = any_sizes(random);
    const model m = make_transformer(t);
    degrees d{.tp = random.within(1, 5), .dp = random.within(1, 4), .zero = random.below(4)};
    d.shard = shard_by::rows, d.names = names_as::hf;
    if (random.coin() && d.dp % 2 == 0) d.instances = 2;
    if (t.experts > 0) {
      d.ep = random.within(1, 3), d.etp = random.coin() ? random.within(1, 3) : 0;
      if (random.coin()) d.experts = experts_as::grouped;
    }
    if (!is_legal(m, d)) continue;
    const computed_holding h(space(m, d));
    CHECK(covers(h));
    CHECK(agrees(h));
    for (int f = 0; f < h.families(); ++f) {
      if (!h.space().cut_unevenly(f)) continue;
      const family& tensors = h.family_at(f);
      ++uneven;
      of_columns += tensors.tensor_axis == axis_of::column ? 1 : 0;
      folded += tensors.extent[2] > 2 && d.tp > 1 ? 1 : 0;
      grouped += tensors.mesh == mesh_kind::expert && d.experts == experts_as::grouped ? 1 : 0;
      for (const role r : {role::parameter, role::optimizer}) {
        const bool sharded = d.zero >= (r == role::parameter ? 3 : 1);
        for (rank_t rank = 0; rank < h.ranks(); ++rank) {
          std::vector<family_box> boxes;
          h.held(f, rank, r, [&](int, const family_box& b) { boxes.push_back(b); });
          empty += boxes.empty() ? 1 : 0;
          long wrong = 0;
          testing::each_point(tensors.whole(), [&](const index_t(&x)[family_ndim]) {
            int times = 0;
            for (const family_box& b : boxes) times += b.contains(x) ? 1 : 0;
            wrong += times == (holds(t, d, tensors, x, rank, sharded) ? 1 : 0) ? 0 : 1;
          });
          CHECK(wrong == 0);
        }
        const family_box within = testing::random_part(random, tensors.extent);
        std::vector<int> found(static_cast<std::size_t>(within.volume()));
        h.owners(f, r, within, [&](const family_box& b, const auto& holders) {
          CHECK(intersects(b, within));
          std::size_t i = 0;
          testing::each_point(within, [&](const index_t(&x)[family_ndim]) {
            if (b.contains(x)) found[i] += static_cast<int>(holders.count());
            ++i;
          });
          ++asked;
        });
        std::size_t i = 0;
        testing::each_point(within, [&](const index_t(&x)[family_ndim]) {
          int wanted = 0;
          for (rank_t rank = 0; rank < h.ranks(); ++rank) wanted += holds(t, d, tensors, x, rank, sharded) ? 1 : 0;
          CHECK(found[i++] == wanted);
        });
      }
    }
  }
  MESSAGE(uneven, " families, ", of_columns, " by columns, ", folded, " by rows over groups, ", grouped,
          " of experts together; ", empty, " times a rank held nothing; ", asked, " owners");
  for (const int seen : {uneven, empty, of_columns, folded, grouped, asked}) CHECK_DRAWN(seen > 0);
}
