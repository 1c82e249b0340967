// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a space against the contract's sentences, rank by rank, chunk by chunk and element by element:
// where ranks sit in every order, what chunks have, where names cut a tensor, and rows of the vocabulary that are
// padding.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/space.hpp>

using namespace reshard;

namespace {
constexpr transformer sizes{.name = "m",
                            .layers = 12,
                            .hidden = 24,
                            .heads = 12,
                            .groups = 6,
                            .head_dim = 2,
                            .ffn = 24,
                            .vocabulary = 24,
                            .qkv_bias = true};
transformer with_experts(transformer t = sizes) {
  t.experts = 12, t.expert_ffn = 12;
  return t;
}

/// A rank's coordinates as the contract counts them: the order's axes but ep, or but cp; and its index among cp and dp,
/// the earlier one fastest.
struct seat {
  index_t tensor = 0, middle = 0, data = 0, pp = 0, index = 0;
  seat(const degrees& d, bool expert, rank_t rank) {
    index_t before = 1;
    for (int i = 0; i < d.order.axes; ++i) {
      const order_axis axis = d.order.axis[i];
      if (axis == (expert ? order_axis::cp : order_axis::ep)) continue;
      const index_t size = axis == order_axis::tp   ? (expert ? d.expert_tp() : d.tp)
                           : axis == order_axis::dp ? (expert ? d.expert_dp() : d.dp)
                           : axis == order_axis::pp ? d.pp
                           : expert                 ? d.ep
                                                    : d.cp;
      const index_t at = rank % size;
      rank /= size;
      (axis == order_axis::tp ? tensor : axis == order_axis::dp ? data : axis == order_axis::pp ? pp : middle) = at;
      if (axis == order_axis::dp || axis == order_axis::cp) index += before * at, before *= size;
    }
  }
};

int find(const space& s, std::string_view ending) {
  for (int f = 0; f < s.families(); ++f)
    if (s.family_at(f).name.ends_with(ending)) return f;
  FAIL("no such family");
  return -1;
}

void check_ranks(const space& s) {
  const degrees& d = s.degrees();
  const int dense = find(s, "linear_proj.weight"), expert = find(s, "experts.linear_fc2.weight{expert}");
  CHECK(s.ranks() == d.tp * d.cp * d.dp * d.pp);
  CHECK(s.stage_ranks() == d.tp * d.cp * d.dp);
  CHECK(s.sharding_group(mesh_kind::dense) == d.cp * d.dp);
  CHECK(s.sharding_group(mesh_kind::expert) == d.expert_dp());
  CHECK(s.shards(mesh_kind::dense) == d.cp * d.dp / d.instances);
  CHECK(s.shards(mesh_kind::expert) == d.expert_dp() / d.instances);
  std::vector<index_t> met(static_cast<std::size_t>(d.pp));  // ranks of each stage so far
  for (rank_t rank = 0; rank < s.ranks(); ++rank) {
    const seat of_dense(d, false, rank), of_expert(d, true, rank);
    index_t& i = met[static_cast<std::size_t>(of_dense.pp)];
    if (i == 0) CHECK(s.first_rank(of_dense.pp) == rank);
    CHECK(s.stage_of(rank) == of_dense.pp);
    CHECK(s.place_in_stage(rank) == i);
    CHECK(s.rank_at(of_dense.pp, i++) == rank);
    CHECK(s.tensor_index(dense, rank) == of_dense.tensor);
    CHECK(s.tensor_index(expert, rank) == of_expert.tensor);
    CHECK(s.expert_index(dense, rank) == 0);
    CHECK(s.expert_index(expert, rank) == of_expert.middle);
    CHECK(s.shard_index(mesh_kind::dense, rank) == of_dense.index % (d.cp * d.dp / d.instances));
    CHECK(s.shard_index(mesh_kind::expert, rank) == of_expert.data % (d.expert_dp() / d.instances));
  }
}
}  // namespace

TEST_CASE(
    "in every order of the axes a rank sits where the contract counts it, in its stage, its parts and its group") {
  const model m = make_transformer(with_experts());
  int orders = 0, stages_apart = 0;
  for (const char* sizes_of : {"tp=2,cp=2,pp=2,dp=2,ep=2", "tp=2,pp=3,dp=4,ep=2,etp=2", "cp=3,pp=2,dp=2,ep=3,etp=1",
                               "tp=2,cp=2,pp=2,dp=4,ep=2,instances=2", "tp=4,cp=2,dp=3,ep=3,etp=4", "tp=3,pp=4,dp=2"}) {
    degrees d = parse_degrees(sizes_of);
    order_axis(&axes)[5] = d.order.axis;
    std::sort(std::begin(axes), std::end(axes));
    do {
      if (!is_legal(m, d)) continue;
      CAPTURE(to_text(d));
      const space s(m, d);
      check_ranks(s);
      ++orders;
      stages_apart += s.degrees().pp > 1 && s.first_rank(1) != s.stage_ranks() ? 1 : 0;
    } while (std::next_permutation(std::begin(axes), std::end(axes)));
  }
  CHECK(orders > 200);
  CHECK(stages_apart > 20);
}

TEST_CASE("experts have a mesh and groups of their own iff ep > 1, etp != tp, or rows are cut; other families never") {
  const model m = make_transformer(with_experts());
  for (const auto& row : {std::pair("tp=2,dp=2", false),
                          {"tp=2,dp=2,etp=1", true},
                          {"dp=2,ep=2,etp=1", true},
                          {"tp=2,dp=2,etp=2", false},
                          {"tp=2,dp=2,etp=2,shard=rows", true},
                          {"tp=2,dp=2,ep=2,etp=2", true}}) {
    CAPTURE(row.first);
    const space s(m, parse_degrees(row.first));
    for (int f = 0; f < s.families(); ++f)
      CHECK((s.shard_kind(f) == mesh_kind::expert) == (row.second && s.family_at(f).mesh == mesh_kind::expert));
  }
}

TEST_CASE("pad=m makes the rows of the word embedding and the output the next multiple of m tp, and no others'") {
  transformer t = sizes;
  int longer = 0;
  for (t.vocabulary = 20; t.vocabulary <= 26; ++t.vocabulary)
    for (const bool tied : {false, true})
      for (const char* layout : {"tp=1,pad=1", "tp=1,pad=8", "tp=2,pad=1", "tp=3,pad=5", "tp=6,pad=2,pp=2", "tp=1"}) {
        t.tied = tied;
        const model m = make_transformer(t);
        const degrees d = parse_degrees(layout);
        CAPTURE(to_text(d));
        const space s(m, d);
        index_t rows = t.vocabulary;
        while (d.pad > 0 && rows % (d.pad * d.tp) != 0) ++rows;
        longer += rows > t.vocabulary ? 1 : 0;
        for (int f = 0; f < s.families(); ++f) {
          const bool of_words = m[f].name == "embedding.word_embeddings.weight" || m[f].name == "output_layer.weight";
          for (int axis = 0; axis < family_ndim; ++axis)
            CHECK(s.family_at(f).extent[axis] == (of_words && axis == axis_of::row ? rows : m[f].extent[axis]));
          if (!of_words) continue;
          CHECK(s.local_elements(f) == rows / d.tp * t.hidden);
          const index_t chunk = f == 0 ? 0 : s.pipeline().chunks() - 1;
          for (index_t part = 0; part < d.tp; ++part)
            CHECK(s.shard_box(f, chunk, 0, part).dim[axis_of::row] ==
                  interval{rows / d.tp * part, rows / d.tp * (part + 1)});
        }
        CHECK(s.model().shape.vocabulary == t.vocabulary);
        CHECK(s.model().padding() == (rows - t.vocabulary) * t.hidden * (tied ? 1 : 2));
      }
  CHECK(longer > 30);
}

namespace {
/// The piece of an element under a checkpoint's names: q, k or v by its row in the query group; gate or up.
int piece_by_contract(const transformer& t, const family& f, index_t part, index_t row, index_t column) {
  if (f.name.find("linear_fc1.weight") != f.name.npos) return static_cast<int>(part);
  if (f.name.find("linear_qkv.weight") == f.name.npos && f.name.find("linear_qkv.bias") == f.name.npos) return 0;
  const index_t queries = t.heads / t.groups * t.head_dim, in_group = f.vector() ? column : row;
  return in_group < queries ? 0 : in_group < queries + t.head_dim ? 1 : 2;
}
void check_pieces(const transformer& t, const space& s, bool apart) {
  for (int f = 0; f < s.families(); ++f) {
    const family& of = s.family_at(f);
    int most = 0;
    std::vector<index_t> elements(3);
    for (index_t part = 0; part < of.extent[2]; ++part)
      for (index_t row = 0; row < of.extent[3]; ++row)
        for (index_t column = 0; column < of.extent[4]; ++column) {
          const int piece = apart ? piece_by_contract(t, of, part, row, column) : 0;
          most = std::max(most, piece);
          ++elements[static_cast<std::size_t>(piece)];
          REQUIRE(piece < s.pieces(f));
          const index_t x[3] = {part, row, column};
          for (int p = 0; p < s.pieces(f); ++p) REQUIRE(s.piece_box(f, p).contains(x) == (p == piece));
          REQUIRE(s.piece_of(f, {{{0, 1}, {0, 1}, {part, part + 1}, {row, row + 1}, {column, column + 1}}}) == piece);
        }
    CHECK(s.pieces(f) == most + 1);
    for (int p = 0; p <= most; ++p)
      CHECK(s.piece_box(f, p).volume() == elements[static_cast<std::size_t>(p)]);  // and nothing else
  }
}
}  // namespace

TEST_CASE("under a checkpoint's names q, k, v, gate and up are pieces, element by element; under Megatron's none is") {
  for (const index_t groups : {1, 2, 6, 12}) {
    transformer t = sizes;
    t.layers = 1, t.hidden = 6, t.ffn = 5, t.groups = groups;
    for (const transformer& of : {t, with_experts(t)}) {
      const model m = make_transformer(of);
      check_pieces(of, space(m, parse_degrees("shard=rows,names=hf")), true);
      check_pieces(of, space(m, parse_degrees("")), false);
    }
  }
}

namespace {
/// Whether a chunk has a family: its layers'; or where the contract places it.
bool chunk_has(const space& s, int f, index_t k) {
  const model& m = s.model();
  const family& of = m[f];
  const index_t last = s.pipeline().chunks() - 1, of_prediction = s.pipeline().prediction_chunk();
  const bool predicts = m.shape.predictions > 0;
  if (of.name.starts_with("decoder.layers.")) {
    for (index_t i = 0; i < of.extent[0]; ++i)
      if (s.pipeline().chunk(k).contains(m.layers_of(f).layer_of(i))) return true;
    return false;
  }
  if (of.name == "embedding.word_embeddings.weight")
    return k == 0 || (predicts && k == of_prediction) || (m.shape.tied && k == last);
  if (of.name == "embedding.position_embeddings.weight") return k == 0;
  if (of.name.starts_with("mtp.")) return k == of_prediction;
  if (of.name.starts_with("decoder.final_layernorm.") && predicts)
    return s.pipeline().chunk(k).contains(m.shape.layers - 1);
  return k == last;  // the final norm, the output
}

void check_members(const space& s, int f) {
  const family& of = s.family_at(f);
  const bool layered = of.name.starts_with("decoder.layers.");
  for (index_t k = 0; k < s.pipeline().chunks(); ++k) {
    const bool has = chunk_has(s, f, k);
    CHECK(s.chunk_members(f, k).empty() != has);
    CHECK(s.pinned_to(f, k) == (has && !layered));
    if (!has) continue;
    for (index_t i = 0; i < of.extent[0]; ++i)
      CHECK(s.chunk_members(f, k).contains(i) ==
            (!layered || s.pipeline().chunk(k).contains(s.model().layers_of(f).layer_of(i))));
    std::vector<index_t> stages, wanted;
    s.each_stage_holding(f, k, [&](index_t stage) { stages.push_back(stage); });
    for (index_t stage = 0; stage < s.degrees().pp; ++stage)
      for (index_t other = stage; other < s.pipeline().chunks(); other += s.degrees().pp)
        if (layered ? other == k : chunk_has(s, f, other)) {
          wanted.push_back(stage);
          break;
        }
    CHECK(stages == wanted);
  }
  for (index_t begin = 0; begin < of.extent[0]; ++begin)
    for (index_t end = begin + 1; end <= of.extent[0]; ++end) {
      index_t first = s.pipeline().chunks(), past = 0;
      for (index_t k = s.pipeline().chunks(); k-- > 0;)
        if (intersects(s.chunk_members(f, k), {begin, end})) first = k, past = std::max(past, k + 1);
      if (!layered) past = first + 1;  // of copies the first
      CHECK(s.chunks_of_members(f, {begin, end}) == interval{first, past});
    }
}

void check_names(const space& s, int f) {
  const family& of = s.family_at(f);
  const bool word = of.name == "embedding.word_embeddings.weight", tied = s.model().shape.tied && s.degrees().pp > 1;
  CHECK(s.shared_between_stages(f) ==
        (word && s.degrees().pp > 1 && (s.model().shape.tied || s.model().shape.predictions > 0)));
  for (rank_t rank = 0; rank < s.ranks(); ++rank) {
    const bool copy = word && tied && rank >= s.ranks() - s.stage_ranks();
    CHECK(s.holds_tied_copy(f, rank) == copy);
    CHECK(s.names_on(f, rank) == (copy ? "output_layer.weight" : of.name));
    if (of.extent[0] > 0)
      CHECK(s.tensor_on({f, of.extent[0] - 1, 0}, rank) ==
            (copy ? "output_layer.weight" : s.model().tensor({f, of.extent[0] - 1, 0})));
  }
}
}  // namespace

TEST_CASE(
    "every chunk has the layers that are dealt to it, embeddings, norms and outputs where the contract puts them") {
  int spaces = 0;
  for (const bool tied : {false, true})
    for (const index_t predictions : {0, 1})
      for (const bool mixed : {false, true})
        for (const char* layout :
             {"dp=2", "pp=3", "pp=2,vpp=3,dp=2", "pp=4,split=account", "pp=5,split=spread", "pp=4,first=1,last=5",
              "pp=3,string=Et*6|t*6m|L", "pp=3,string=Et*6|t*6|mL", "pp=3,string=Et*6||t*6mL", "pp=3,string=E|t*12|mL",
              "pp=2,string=Et*5|t*7|m|L", "pp=3,string=Et*12||L", "pp=2,string=Et*3||t*9|L"}) {
          transformer t = mixed ? with_experts() : sizes;
          t.tied = tied, t.predictions = predictions, t.dense_first = mixed ? 5 : 0;
          if (!mixed && predictions == 0) t.learned_positions = 9, t.groups = t.heads;
          const model m = make_transformer(t);
          const degrees d = parse_degrees(layout);
          if (!is_legal(m, d)) continue;
          CAPTURE(to_text(d));
          CAPTURE(tied);
          CAPTURE(predictions);
          ++spaces;
          const space s(m, d);
          for (int f = 0; f < s.families(); ++f) {
            CAPTURE(s.family_at(f).name);
            if (s.family_at(f).extent[axis_of::layer] == 0) {  // of the other kind than the prediction layer's
              for (index_t k = 0; k < s.pipeline().chunks(); ++k) CHECK(s.chunk_members(f, k).empty());
              continue;
            }
            check_members(s, f);
            check_names(s, f);
          }
        }
  MESSAGE(spaces, " spaces");
  CHECK(spaces > 40);
}

namespace {
/// The tensor part of an element as the contract cuts it: rows or columns of each part in equal runs, or runs of all
/// rows of all parts.
index_t part_by_contract(const family& of, index_t degree, const index_t (&x)[3]) {
  const std::string_view name = of.name;
  if (of.tensor_axis == axis_of::none) return 0;
  if (name.find("linear_proj.weight") != name.npos || name.find("linear_fc2.weight") != name.npos)
    return x[2] * degree / of.extent[4];
  const index_t rows = of.vector() ? of.extent[4] : of.extent[3], row = of.vector() ? x[2] : x[1];
  if (name.find("linear_fc1.weight") != name.npos) return row * degree / rows;  // gate and up alike
  return (x[0] * rows + row) * degree / (of.extent[2] * rows);
}
}  // namespace

TEST_CASE(
    "tp cuts rows of qkv, fc1 and the vocabulary, columns of proj and fc2, and ep the experts, each in equal parts") {
  for (const char* layout : {"tp=1", "tp=2", "tp=3", "tp=6", "tp=12", "tp=2,dp=6,ep=3,etp=4", "tp=3,dp=4,ep=12"}) {
    const degrees d = parse_degrees(layout);
    CAPTURE(to_text(d));
    transformer t = with_experts();
    t.layers = 1, t.dense_first = 0;
    const space s(make_transformer(t), d);
    for (int f = 0; f < s.families(); ++f) {
      const family& of = s.family_at(f);
      const bool expert = of.name.find(".experts.") != of.name.npos;
      const index_t degree = expert ? d.expert_tp() : d.tp, parts = s.tensor_parts(f);
      CHECK(parts == (of.tensor_axis == axis_of::none ? 1 : degree));
      CHECK(s.expert_parts(f) == (expert ? d.ep : 1));
      CHECK_FALSE(s.cut_unevenly(f));
      for (index_t at = 0; at < of.tensor_elements(); ++at) {
        const index_t x[3] = {at / of.extent[4] / of.extent[3], at / of.extent[4] % of.extent[3], at % of.extent[4]};
        const index_t mine = part_by_contract(of, degree, x), expert_at = at % of.extent[1];
        index_t holders = 0;
        for (index_t e = 0; e < s.expert_parts(f); ++e)
          for (index_t part = 0; part < parts; ++part) {
            const bool in = s.shard_box(f, 0, e, part).contains({0, expert_at, x[0], x[1], x[2]});
            const bool wanted = part == mine && e == (expert ? expert_at * d.ep / of.extent[1] : 0);
            if (in != wanted) FAIL(of.name, " part ", part, " of experts ", e, ": element ", at);
            holders += in ? 1 : 0;
          }
        if (holders != 1) FAIL(of.name, ": element ", at);
      }
    }
  }
}
