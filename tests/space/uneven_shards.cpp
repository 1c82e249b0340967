// SPDX-License-Identifier: Apache-2.0
// Tensors that tp, etp or ep does not divide: who holds each of their elements, worked out from the element's own
// number in a checkpoint's tensor. And models of one's own, whose families have parts, axes and meshes of any kind.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/detail/uneven_shards.hpp>

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
  if (!testing::few())  // few tries have not all
    for (const int seen : {uneven, empty, of_columns, folded, grouped, asked}) CHECK_DRAWN(seen > 0);
}

namespace {
/// A number in a list and how long the list is; what is left of both when a rank's part of the list is taken.
struct numbered {
  index_t at = 0, size = 1, part = 0;
  /// chunk(list, parts, i) of the contract
  void chunk(index_t parts) {
    const chunk_at mine(at, size, parts);
    part = mine.part, at -= mine.first, size = mine.size;
  }
  /// Equal parts, which divide the list.
  void divide(index_t parts) { part = at / (size / parts), at %= size / parts, size /= parts; }
};

/// A rank's coordinates as the contract counts them: the order's axes, the first fastest, without ep or without cp.
struct seat_of_rank {
  index_t tensor = 0, middle = 0, data = 0, pp = 0, fast = 0;  // fast: of cp and dp, the first in the order
  seat_of_rank(const degrees& d, bool expert, rank_t rank) {
    bool cp_seen = false, dp_seen = false;
    for (int i = 0; i < d.order.axes; ++i) {
      const auto digit = [&](index_t size) {
        const index_t mine = rank % size;
        rank /= size;
        return mine;
      };
      switch (d.order.axis[i]) {
        case order_axis::tp: tensor = digit(expert ? d.expert_tp() : d.tp); break;
        case order_axis::cp:
          if (!expert) middle = digit(d.cp), cp_seen = true, fast = dp_seen ? fast : 1;
          break;
        case order_axis::ep:
          if (expert) middle = digit(d.ep);
          break;
        case order_axis::dp:
          data = digit(expert ? d.expert_dp() : d.dp), dp_seen = true, fast = cp_seen ? fast : 2;
          break;
        case order_axis::pp: pp = digit(d.pp); break;
      }
    }
  }
};

/// Whether a stage has a member of a family: L layers dealt evenly over pp x vpp chunks or spread over pp.
bool stage_has(const model& m, const degrees& d, const family& f, index_t member, index_t stage) {
  switch (f.place) {
    case home::first_stage: return stage == 0;
    case home::last_stage: return stage == d.pp - 1;
    case home::embedding: return stage == 0 || (!f.tied_name.empty() && stage == d.pp - 1);
    default: break;
  }
  const index_t layers = m.shape.layers, chunks = d.pp * d.vpp;
  if (d.split == pipeline_split::even) return member / (layers / chunks) % d.pp == stage;
  index_t first = 0;
  for (index_t s = 0; s < stage; ++s) first += layers / d.pp + (s < layers % d.pp ? 1 : 0);
  return first <= member && member < first + layers / d.pp + (stage < layers % d.pp ? 1 : 0);
}

/// The dimensions of the tensor that an element is stored in and its numbers there: of one dimension, of two, whose
/// first is the parts and what lies in each, or of three; under names=hf q, k, v, gate and up are tensors.
struct stored_element {
  numbered part, inner, column;
  stored_element(const model& m, const family& f, const index_t (&x)[family_ndim], bool apart) {
    const bool vector = f.shape_ndim == 1;
    part = {x[2], f.extent[2]}, inner = vector ? numbered{x[4], f.extent[4]} : numbered{x[3], f.extent[3]};
    if (!vector) column = {x[4], f.extent[4]};
    if (apart && f.fused == fused_as::gate_up) part = {};
    if (!apart || f.fused != fused_as::qkv) return;
    const index_t queries = m.shape.heads / m.shape.groups, d = inner.size / (queries + 2);
    inner = inner.at < queries * d ? numbered{inner.at, queries * d} : numbered{(inner.at - queries * d) % d, d};
  }
  numbered folded() const { return {part.at * inner.size + inner.at, part.size * inner.size}; }
};

/// Which tensor part an element is in, and its number in the first dimension of what that part has.
std::pair<index_t, numbered> part_and_row(const family& f, stored_element at, bool by_chunk, index_t degree) {
  const bool three = f.shape_ndim == 3, columns = f.tensor_axis == 4 && f.shape_ndim > 1;
  if (f.tensor_axis == axis_of::none) degree = 1;
  numbered whole = at.folded();
  if (degree == 1 || columns) {
    if (degree > 1) by_chunk ? at.column.chunk(degree) : at.column.divide(degree);
    return {degree > 1 ? at.column.part : 0, three ? at.part : whole};
  }
  if (by_chunk && three) {
    numbered& cut = f.tensor_axis == 2 ? at.part : at.inner;
    cut.chunk(degree);
    return {cut.part, at.part};
  }
  if (by_chunk) whole.chunk(degree);
  else if (f.tensor_axis == 2) whole.divide(degree);
  else at.inner.divide(degree), whole = at.folded(), whole.part = at.inner.part;  // each part alike
  if (!three) return {whole.part, whole};
  if (f.tensor_axis == 2 && degree > at.part.size) return {whole.part, numbered{}};
  if (f.tensor_axis == 2) at.part.divide(degree);
  return {whole.part, at.part};
}

/// Whether a rank holds an element of a model of one's own.
bool own_holds(const model& m, const degrees& d, const family& f, const index_t (&x)[family_ndim], rank_t rank,
               bool sharded) {
  const bool by_chunk = d.names == names_as::hf;
  const bool expert = f.mesh == mesh_kind::expert && m.shape.experts > 0;
  const seat_of_rank seat(d, expert, rank);
  if (!stage_has(m, d, f, x[0], seat.pp)) return false;
  const bool dealt = expert && (f.extent[1] > 1 || m.shape.experts == 1);
  const auto [part, row] = part_and_row(f, stored_element(m, f, x, by_chunk), by_chunk, expert ? d.expert_tp() : d.tp);
  if (f.tensor_axis != axis_of::none && part != seat.tensor) return false;
  numbered of_experts{x[1], f.extent[1]};
  if (dealt) of_experts.chunk(d.ep);
  if (dealt && of_experts.part != seat.middle) return false;
  if (!sharded) return true;
  numbered cut = dealt && d.experts == experts_as::grouped ? of_experts : row;
  const index_t group = (expert ? d.expert_dp() : d.cp * d.dp) / d.instances;
  index_t index = seat.data;
  if (!expert) index = seat.fast == 1 ? seat.middle + d.cp * seat.data : seat.data + d.dp * seat.middle;
  cut.chunk(group);
  return cut.part == index % group;
}

/// A family of any kind: parts, axis, dimensions, mesh, what it fuses, where it sits.
family any_family(dice& random, const model& m, std::string_view name) {
  family f{.name = name, .extent = {1, 1, random.within(1, 3), random.within(1, 5), random.within(1, 4)}};
  f.shape_ndim = random.below(5) == 0 ? 3 : random.below(3) == 0 ? 1 : 2;
  f.tensor_axis = random.below(5) == 0 ? axis_of::none : static_cast<int>(random.within(2, 4));
  if (f.shape_ndim == 1) {
    f.extent[3] = 1, f.extent[4] = random.within(1, 6);
    if (f.tensor_axis == axis_of::row) f.tensor_axis = axis_of::column;
  }
  if (random.below(5) == 0) f.fused = fused_as::gate_up, f.extent[2] = 2;
  else if (random.below(4) == 0) {
    f.fused = fused_as::qkv, f.extent[2] = m.shape.groups;
    f.extent[f.inner_axis()] = (m.shape.heads / m.shape.groups + 2) * random.within(1, 3);
  }
  if (random.coin()) {
    f.mesh = mesh_kind::expert;
    if (m.shape.experts > 0 && random.below(3) != 0) f.extent[1] = m.shape.experts;
  }
  switch (random.below(6)) {
    case 0: f.place = home::first_stage; break;
    case 1: f.place = home::last_stage; break;
    case 2:
      f.place = home::embedding;
      if (m.shape.tied) f.tied_name = name == "a{layer}{expert}" ? "tied a" : "tied b";
      break;
    default: f.extent[0] = m.shape.layers;
  }
  return f;
}

model own_model(dice& random) {
  model m{.name = "own", .shape = {.layers = random.within(1, 4), .checkpoint = checkpoint_form::usual}};
  m.shape.groups = random.within(1, 3), m.shape.heads = m.shape.groups * random.within(1, 2);
  m.shape.tied = random.coin();
  if (random.below(3) != 0) m.shape.experts = random.within(1, 5);
  m.sets[0] = layer_set::all(m.shape.layers);
  for (const std::string_view name : {"a{layer}{expert}", "b{layer}{expert}"}) m.add(any_family(random, m, name));
  return m;
}

degrees own_degrees(dice& random, const model& m) {
  constexpr const char* orders[] = {"tp-cp-ep-dp-pp", "tp-ep-cp-dp-pp", "dp-tp-cp-ep-pp",
                                    "tp-dp-cp-ep-pp", "cp-dp-ep-tp-pp", "tp-cp-ep-pp-dp"};
  degrees d = parse_degrees(std::string("order=") + orders[random.below(std::size(orders))]);
  d.tp = random.within(1, 4), d.cp = random.within(1, 2), d.dp = random.within(1, 4), d.pp = random.within(1, 2);
  if (d.pp > 1 && random.below(4) == 0) d.vpp = 2;
  if (m.shape.layers % (d.pp * d.vpp) != 0) d.vpp = 1, d.split = pipeline_split::spread;
  d.shard = shard_by::rows, d.zero = random.below(4);
  if (random.below(4) != 0) d.names = names_as::hf;
  if (random.below(3) == 0) d.instances = 2;
  if (m.shape.experts > 0) {
    d.ep = random.within(1, 3), d.etp = random.coin() ? random.within(1, 3) : 0;
    if (random.coin()) d.experts = experts_as::grouped;
  }
  return d;
}

/// How many elements of a family a rank holds as the contract does not say it: too often, too seldom, or not at all.
long wrong_on(const model& m, const computed_holding& h, int f, rank_t rank, role r, std::vector<int>& everywhere) {
  const degrees& d = h.space().degrees();
  std::vector<family_box> boxes;
  h.held(f, rank, r, [&](int, const family_box& b) { boxes.push_back(b); });
  const std::vector<int> times = testing::occurrences(h.family_at(f).whole(), boxes);
  long wrong = 0;
  std::size_t i = 0;
  testing::each_point(h.family_at(f).whole(), [&](const index_t(&x)[family_ndim]) {
    const bool wanted = own_holds(m, d, h.family_at(f), x, rank, d.zero >= (r == role::parameter ? 3 : 1));
    everywhere[i] += times[i];
    wrong += times[i++] == (wanted ? 1 : 0) ? 0 : 1;
  });
  return wrong;
}

/// How many elements of a part have not as many owners as ranks hold them.
long owned_otherwise(const computed_holding& h, int f, role r, const family_box& within,
                     const std::vector<int>& everywhere) {
  std::vector<int> owned(everywhere.size());
  long wrong = 0;
  h.owners(f, r, within, [&](const family_box& b, const auto& holders) {
    wrong += intersects(b, within) ? 0 : 1;
    std::size_t i = 0;
    testing::each_point(h.family_at(f).whole(), [&](const index_t(&x)[family_ndim]) {
      if (b.contains(x)) owned[i] += static_cast<int>(holders.count());
      ++i;
    });
  });
  std::size_t i = 0;
  testing::each_point(h.family_at(f).whole(), [&](const index_t(&x)[family_ndim]) {
    wrong += within.contains(x) && owned[i] != everywhere[i] ? 1 : 0;
    ++i;
  });
  return wrong;
}

/// A model of one family, with as many experts as it says.
constexpr model of_one(const family& f, index_t experts = 0) {
  model m{.name = "one", .shape = {.layers = f.extent[0], .experts = experts, .checkpoint = checkpoint_form::usual}};
  m.sets[0] = layer_set::all(f.extent[0]);
  m.add(f);
  return m;
}
constexpr family six_rows{.name = "w{layer}{expert}", .extent = {2, 1, 2, 3, 4}, .tensor_axis = axis_of::row};
constexpr degrees in_two{.tp = 2, .shard = shard_by::rows, .names = names_as::hf};
static_assert(agrees(computed_holding(space(of_one(six_rows), in_two))));

long wrong_in(const model& m, const char* layout) {
  const computed_holding h(space(m, parse_degrees(layout)));
  long wrong = covers(h) && agrees(h) ? 0 : 1;
  for (int f = 0; f < h.families(); ++f)
    for (const role r : {role::parameter, role::optimizer}) {
      std::vector<int> everywhere(static_cast<std::size_t>(h.family_at(f).whole().volume()));
      for (rank_t rank = 0; rank < h.ranks(); ++rank) wrong += wrong_on(m, h, f, rank, r, everywhere);
      wrong += std::count(everywhere.begin(), everywhere.end(), 0);
    }
  return wrong;
}
}  // namespace

TEST_CASE("of a family of one's own, parts that tp does not cut where chunk() does are the tensor's rows") {
  CHECK(agrees(computed_holding(space(of_one(six_rows), in_two))));
  CHECK(wrong_in(of_one(six_rows), "tp=2,shard=rows,names=hf") == 0);  // 3 each, and no 2 x 1 that leave 2 behind
  family even = six_rows;
  even.extent[3] = 4;  // 8 rows: 4 each are one part, where Megatron has 2 of each part
  CHECK(wrong_in(of_one(even), "tp=2,shard=rows,names=hf") == 0);
  CHECK(wrong_in(of_one(even), "tp=2,shard=rows") == 0);
  family vector = six_rows;
  vector.extent[3] = 1, vector.extent[4] = 3, vector.shape_ndim = 1, vector.tensor_axis = axis_of::column;
  CHECK(wrong_in(of_one(vector), "tp=2,shard=rows,names=hf") == 0);
  family gate = six_rows;
  gate.extent[3] = 4, gate.fused = fused_as::gate_up, gate.tensor_axis = axis_of::part;
  CHECK(wrong_in(of_one(gate), "tp=2,shard=rows,names=hf") == 0);  // rows of gate and of up, each in 2
  family columns = six_rows;
  columns.tensor_axis = axis_of::column;
  CHECK(wrong_in(of_one(columns), "tp=2,shard=rows,names=hf") == 0);
  CHECK(wrong_in(of_one(columns), "tp=3,shard=rows,names=hf") == 0);
}

TEST_CASE("a tensor that stacks its parts is cut along them by FSDP2, and by tp along one axis") {
  family stacked{.name = "w{layer}{expert}", .extent = {2, 1, 3, 5, 4}, .tensor_axis = axis_of::row, .shape_ndim = 3};
  CHECK(wrong_in(of_one(stacked), "dp=2,zero=3,shard=rows") == 0);
  for (const int axis : {axis_of::part, axis_of::row, axis_of::column}) {
    stacked.tensor_axis = axis;
    CHECK(wrong_in(of_one(stacked), "tp=2,dp=2,zero=3,shard=rows,names=hf") == 0);
  }
}

TEST_CASE("experts that are one tensor are dealt whole, each with the rows that etp leaves the rank") {
  family f{
      .name = "w{layer}{expert}", .extent = {2, 4, 2, 4, 4}, .mesh = mesh_kind::expert, .tensor_axis = axis_of::part};
  CHECK(wrong_in(of_one(f, 4), "tp=3,etp=3,dp=2,zero=3,shard=rows,names=hf,experts=grouped") == 0);
  f.extent[2] = 3;  // 12 rows in 3s and 3s: parts that begin and end inside a part
  CHECK(wrong_in(of_one(f, 4), "tp=5,etp=5,dp=3,zero=3,shard=rows,names=hf,experts=grouped") == 0);
}

TEST_CASE("what has no axis of experts is whole on every part of expert parallelism, under both names") {
  const family f{
      .name = "w{layer}{expert}", .extent = {2, 1, 1, 4, 4}, .mesh = mesh_kind::expert, .tensor_axis = axis_of::row};
  for (const char* layout :
       {"dp=4,ep=2,zero=0", "dp=4,ep=2,zero=3,shard=rows", "tp=2,dp=4,ep=2,etp=2,zero=3,shard=rows,names=hf",
        "tp=3,dp=2,ep=2,etp=3,zero=3,shard=rows,names=hf,experts=grouped"})
    CHECK(wrong_in(of_one(f, 4), layout) == 0);
  CHECK(wrong_in(of_one(f, 1), "dp=4,ep=2,zero=3,shard=rows,names=hf,experts=grouped") == 0);  // here it is the expert
  CHECK(wrong_in(of_one(f), "tp=2,cp=2,dp=2,zero=3,shard=rows") == 0);  // no experts, no mesh of theirs
  CHECK(wrong_in(of_one(f), "tp=3,cp=2,dp=1,zero=3,shard=rows,instances=2,names=hf") == 0);
  const computed_holding buffers(space(of_one(f, 4), parse_degrees("tp=2,dp=4,ep=2,etp=2,zero=1")));
  CHECK(covers(buffers));
  CHECK(agrees(buffers));
}

TEST_CASE("models of one's own: every element is with the ranks that the contract says, and with some") {
  dice random(1);
  int tried = 0, uneven = 0, over_parts = 0, vectors = 0, stacked = 0, no_axis = 0, copies = 0, folded_experts = 0,
      ordered = 0, instances = 0, by_parts = 0, first_alone = 0;
  for (int n = 0; n < 100000 && tried < testing::tries(600); ++n) {
    const model m = own_model(random);
    const degrees d = own_degrees(random, m);
    if (!is_legal(m, d) || d.world() > 24) continue;
    ++tried;
    CAPTURE(to_text(d));
    const computed_holding h(space(m, d));
    CHECK(covers(h));
    CHECK(agrees(h));
    bytes_t most = 0;
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      most = std::max(most, held_bytes(h, rank));
      first_alone += h.as_much_as_a_lower_rank(rank) ? 0 : 1;
    }
    first_alone -= static_cast<int>(d.pp);
    CHECK(max_bytes_per_rank(h) == most);
    for (int f = 0; f < h.families(); ++f) {
      const family& x = h.family_at(f);
      const bool apart = h.space().cut_unevenly(f), several = x.extent[2] > 1 && h.space().tensor_parts(f) > 1;
      const std::string what = testing::text(x.whole()) + " of " + std::to_string(x.shape_ndim) + " dimensions, axis " +
                               std::to_string(x.tensor_axis);
      CAPTURE(what);
      for (const role r : {role::parameter, role::optimizer}) {
        std::vector<int> everywhere(static_cast<std::size_t>(x.whole().volume()));
        long wrong = 0;
        for (rank_t rank = 0; rank < h.ranks(); ++rank) wrong += wrong_on(m, h, f, rank, r, everywhere);
        CHECK(wrong == 0);
        CHECK(std::count(everywhere.begin(), everywhere.end(), 0) == 0);
        CHECK(owned_otherwise(h, f, r, testing::random_part(random, x.extent), everywhere) == 0);
      }
      uneven += apart ? 1 : 0, over_parts += apart && several && x.cuts_over_parts() ? 1 : 0;
      by_parts += !apart && several && x.tensor_axis == axis_of::part && d.names == names_as::hf ? 1 : 0;
      vectors += apart && x.vector() ? 1 : 0, stacked += x.stacked() && apart ? 1 : 0;
      no_axis += x.mesh == mesh_kind::expert && !h.space().deals_experts(f) && d.ep > 1 ? 1 : 0;
      copies += h.space().shared_between_stages(f) ? 1 : 0;
      folded_experts += apart && several && x.extent[1] > 1 && d.experts == experts_as::grouped && d.zero > 0 ? 1 : 0;
      ordered += d.order.axis[0] != order_axis::tp ? 1 : 0, instances += d.instances > 1 && d.zero > 0 ? 1 : 0;
    }
  }
  CHECK(first_alone == 0);
  MESSAGE(tried, " layouts; ", uneven, " families cut by chunk(), ", over_parts, " over parts, ", vectors, " vectors, ",
          stacked, " stacked, ", by_parts, " by whole parts, ", no_axis, " without an axis of experts, ", copies,
          " tied, ", folded_experts, " of experts together with parts, ", ordered, " ordered, ", instances,
          " of instances");
  if (testing::few()) return;
  for (const int seen :
       {uneven, over_parts, vectors, stacked, by_parts, no_axis, copies, folded_experts, ordered, instances})
    CHECK_DRAWN(seen > 0);
}

namespace {
/// Whether chunk() gives the parts of every piece of a family equally many elements, and those that cut_of gives them.
bool cut_where_chunk_cuts(const model& m, const space& s, int f) {
  const family& of = s.family_at(f);
  const index_t degree = s.tensor_parts(f), parts = degree * s.expert_parts(f);
  std::vector<index_t> elements(static_cast<std::size_t>(s.pieces(f) * parts));
  bool same = true;
  testing::each_point(of.whole(), [&](const index_t(&x)[family_ndim]) {
    numbered of_experts{x[1], of.extent[1]};
    if (s.deals_experts(f)) of_experts.chunk(s.degrees().ep);
    const index_t part = part_and_row(of, stored_element(m, of, x, true), true, degree).first;
    const family_box alone{{{x[0], x[0] + 1}, {x[1], x[1] + 1}, {x[2], x[2] + 1}, {x[3], x[3] + 1}, {x[4], x[4] + 1}}};
    const int piece = s.piece_of(f, alone);
    for (index_t e = 0; e < s.expert_parts(f); ++e)
      for (index_t t = 0; t < degree; ++t)
        same =
            same && s.shard_box(f, piece, {0, of.extent[0]}, e, t).contains(x) == (t == part && e == of_experts.part);
    ++elements[static_cast<std::size_t>(piece * parts + of_experts.part * degree + part)];
  });
  for (std::size_t i = 0; i < elements.size(); ++i)
    same = same && elements[i] == elements[i - i % static_cast<std::size_t>(parts)];
  return same;
}
}  // namespace

TEST_CASE("a family is cut unevenly iff equal parts are not where chunk() cuts, and never where chunk() does not") {
  dice random(2);
  int uneven = 0, even = 0, megatron = 0, by_parts = 0;
  for (int n = 0; n < 100000 && uneven + even < 2 * testing::tries(2000); ++n) {
    const model m = own_model(random);
    const degrees d = own_degrees(random, m);
    if (!is_legal(m, d)) continue;
    const space s(m, d);
    CAPTURE(to_text(d));
    for (int f = 0; f < s.families(); ++f) {
      const family& of = s.family_at(f);
      const std::string what = testing::text(of.whole()) + " of " + std::to_string(of.shape_ndim) +
                               " dimensions, axis " + std::to_string(of.tensor_axis);
      CAPTURE(what);
      if (d.names == names_as::megatron) {
        CHECK_FALSE(s.cut_unevenly(f));
        ++megatron;
        continue;
      }
      CHECK(s.cut_unevenly(f) != cut_where_chunk_cuts(m, s, f));
      ++(s.cut_unevenly(f) ? uneven : even);
      by_parts += s.cut_unevenly(f) || s.cut_of(f).outer == 1 ? 0 : 1;
    }
  }
  for (const int seen : {uneven, even, megatron, by_parts}) CHECK_DRAWN(seen > testing::tries(2000) / 100);
}
