// SPDX-License-Identifier: Apache-2.0
// The holding of a space, element by element, against the rule in so many words: where a family is cut, which stage has
// a layer, and how ZeRO shards it; and that all questions of it have one answer.
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/space/computed_holding.hpp>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr model four_layers = make_transformer(
    {.name = "small", .layers = 4, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 10});
constexpr model tied = make_transformer({.name = "tied",
                                         .layers = 4,
                                         .hidden = 4,
                                         .heads = 2,
                                         .groups = 2,
                                         .head_dim = 2,
                                         .ffn = 4,
                                         .vocabulary = 12,
                                         .tied = true});
computed_holding four_layers_by(const char* layout, state_set wanted = all_states) {
  return computed_holding(space(four_layers, parse_degrees(layout)), wanted);
}

/// Whether rank t + tp (d + dp p) has an element, but for which rank of dp has it in an optimizer buffer.
bool rule_holds(const computed_holding& h, int f, rank_t rank, role r, const index_t (&x)[family_ndim]) {
  const family& of = h.family_at(f);
  const degrees& d = h.space().degrees();
  const index_t t = rank % d.tp, i = rank / d.tp % d.dp, stage = rank / (d.tp * d.dp);
  const index_t at = of.place == home::layers ? x[0] * d.pp / 4 : of.place == home::embedding ? 0 : d.pp - 1;
  if (at != stage) return false;
  if (of.tensor_axis != axis_of::none && x[of.tensor_axis] * d.tp / of.extent[of.tensor_axis] != t) return false;
  if (d.zero < sharding_level(r) || d.shard == shard_by::buffers) return true;
  index_t first = 0, firsts = 1;  // along the first dimension of the tensor that is the rank's after tp
  for (const int axis : {axis_of::part, of.shape_ndim == 1 ? axis_of::column : axis_of::row}) {
    const index_t extent = of.extent[axis] / (axis == of.tensor_axis ? d.tp : 1);
    first = first * extent + x[axis] % extent, firsts *= extent;
  }
  return first / ceil_divide(firsts, d.dp) == i;
}

using element = std::vector<index_t>;
using ranks_by_element = std::map<element, std::vector<rank_t>>;
void add_points(ranks_by_element& to, const family_box& b, const std::vector<rank_t>& ranks) {
  testing::each_point(b, [&](const index_t(&x)[family_ndim]) {
    std::vector<rank_t>& all = to[element(std::begin(x), std::end(x))];
    all.insert(all.end(), ranks.begin(), ranks.end());
  });
}
std::vector<rank_t> listed_ranks(const Holders auto& holders) {
  std::vector<rank_t> all;
  for (index_t i = 0; i < holders.count(); ++i) all.push_back(holders[i]);
  return all;
}

void check_family(const computed_holding& h, int f, role r) {
  ranks_by_element held, ruled, owned;
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    h.held(f, rank, r, [&](int, const family_box& b) { add_points(held, b, {rank}); });
    testing::each_point(h.family_at(f).whole(), [&](const index_t(&x)[family_ndim]) {
      if (rule_holds(h, f, rank, r, x)) ruled[element(std::begin(x), std::end(x))].push_back(rank);
    });
  }
  h.owners(f, r, h.family_at(f).whole(),
           [&](const family_box& b, const Holders auto& holders) { add_points(owned, b, listed_ranks(holders)); });
  CHECK(owned == held);  // each element in one distinct box, with all that have it, ascending
  if (!h.buffered(r)) {
    CHECK(held == ruled);
  } else {  // of the ranks that differ in dp alone one has it
    const degrees& d = h.space().degrees();
    CHECK(held.size() == ruled.size());
    for (const auto& [x, ranks] : held) {
      std::vector<index_t> by_tensor(static_cast<std::size_t>(d.tp));
      for (const rank_t rank : ranks) ++by_tensor[static_cast<std::size_t>(rank % d.tp)];
      for (const rank_t rank : ruled[x]) CHECK(by_tensor[static_cast<std::size_t>(rank % d.tp)] == 1);
      CHECK(ranks.size() * static_cast<std::size_t>(d.dp) == ruled[x].size());
      CHECK(std::includes(ruled[x].begin(), ruled[x].end(), ranks.begin(), ranks.end()));
    }
  }
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    std::vector<family_box> boxes;
    h.held(f, rank, r, [&](int of, const family_box& b) {
      CHECK(of == f);
      boxes.push_back(b);
    });
    std::size_t i = 0;
    h.shared(f, rank, r, [&](int, const family_box& b, const Holders auto& holders) {
      CHECK((i < boxes.size() && b == boxes[i++]));
      const std::vector<rank_t> all = listed_ranks(holders);
      int owners = 0;
      h.owners(f, r, b, [&](const family_box& same, const Holders auto& too) {
        CHECK((same == b && listed_ranks(too) == all));
        ++owners;
      });
      CHECK(owners == 1);
    });
    CHECK(i == boxes.size());
  }
}
}  // namespace

TEST_CASE("every rank has of every family what the rule says, and held, shared and owners tell the same") {
  for (const char* layout :
       {"dp=2", "tp=2,pp=2,dp=2", "tp=2,dp=2,pp=2,zero=1", "dp=3,pp=4,zero=2", "tp=2,dp=3,zero=3,shard=rows"}) {
    CAPTURE(std::string(layout));
    const computed_holding h = four_layers_by(layout);
    for (const role r : {role::parameter, role::gradient, role::optimizer})
      for (int f = 0; f < h.families(); ++f) check_family(h, f, r);
    h.held(0, 0, role::statistic, [](int, const family_box&) { CHECK(false); });  // this model has none
    for (const family_box& none : {family_box{}, family_box{{{0, 1}, {0, 1}, {0, 1}, {10, 12}, {0, 4}}}})
      h.owners(0, role::parameter, none, [](const family_box&, const Holders auto&) { CHECK(false); });
  }
}

TEST_CASE("each_held and each_shared are of every family; who is told to hold no more than a lower rank does not") {
  for (const char* layout : {"tp=2,pp=2,dp=2,zero=1", "dp=3,pp=2,zero=2,shard=rows", "pp=2,dp=2", "tp=2,dp=4,zero=2"}) {
    CAPTURE(std::string(layout));
    const computed_holding h = four_layers_by(layout);
    std::vector<bytes_t> bytes;
    index_t told = 0;
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      bytes.push_back(0);
      for (const role r : {role::parameter, role::optimizer}) {
        std::vector<std::pair<int, family_box>> one_by_one, at_once, shared;
        for (int f = 0; f < h.families(); ++f)
          h.held(f, rank, r, [&](int of, const family_box& b) { one_by_one.emplace_back(of, b); });
        each_held(h, rank, r, [&](int f, const family_box& b) { at_once.emplace_back(f, b); });
        each_shared(h, rank, r, [&](int f, const family_box& b, const Holders auto& by) {
          if (by.contains(rank)) shared.emplace_back(f, b);
        });
        CHECK((at_once == one_by_one && shared == one_by_one));
        for (const auto& [unused, b] : at_once) bytes.back() += b.volume() * h.states().of(r).bytes_per_element();
      }
      if (!h.as_much_as_a_lower_rank(rank)) continue;
      ++told;
      CHECK(*std::max_element(bytes.begin(), bytes.end() - 1) >= bytes.back());
    }
    CHECK((told >= h.ranks() / 2 && !h.as_much_as_a_lower_rank(0)));
  }
}

namespace {
bytes_t bytes_on(const computed_holding& h, rank_t rank) {
  bytes_t bytes = 0;
  for (const role r : {role::parameter, role::optimizer})
    each_held(h, rank, r,
              [&](int, const family_box& b) { bytes += b.volume() * h.states().of(r).bytes_per_element(); });
  return bytes;
}
}  // namespace

TEST_CASE(
    "in every order of the axes, who is told to hold no more than a lower rank does not; in the usual one many are") {
  int orders = 0, told = 0;
  for (const index_t ffn : {11, 22, 12})  // the first slice of a buffer has gaps that the second has not
    for (const char* sizes : {"tp=2,pp=2,dp=2,ep=2,etp=1,zero=1", "tp=2,cp=2,dp=2,ep=2,etp=2,zero=1"}) {
      const model m = make_transformer({.name = "m",
                                        .layers = 2,
                                        .hidden = 12,
                                        .heads = 2,
                                        .groups = 2,
                                        .head_dim = 3,
                                        .vocabulary = 10,
                                        .experts = 2,
                                        .expert_ffn = ffn});
      degrees d = parse_degrees(sizes);
      const rank_order usual = d.order;
      order_axis(&axes)[5] = d.order.axis;
      std::sort(std::begin(axes), std::end(axes));
      do {
        if (!is_legal(m, d)) continue;
        CAPTURE(to_text(d));
        const computed_holding h(space(m, d));
        bytes_t most = 0;
        ++orders;
        for (rank_t rank = 0; rank < h.ranks(); ++rank) {
          const bytes_t mine = bytes_on(h, rank);
          const bool no_more = h.as_much_as_a_lower_rank(rank);
          if (no_more) CHECK(mine <= most);
          if (d.order == usual) CHECK(no_more == (rank % d.tp != 0 && rank % (d.expert_tp() * d.ep) != 0));
          most = std::max(most, mine);
          told += no_more ? 1 : 0;
        }
      } while (std::next_permutation(std::begin(axes), std::end(axes)));
    }
  CHECK(orders > 200);
  CHECK(told > 50);
}

TEST_CASE("what is sharded, and by what; slices of a bucket are equal and follow each other; ranks have one by dp") {
  const computed_holding buffers = four_layers_by("tp=2,dp=2,zero=1"), rows = four_layers_by("dp=2,zero=2,shard=rows");
  for (const role r : roles) {
    CHECK(buffers.sharded(r) == (r == role::optimizer));
    CHECK(buffers.buffered(r) == (r == role::optimizer));
    CHECK(rows.sharded(r) == (r == role::optimizer || r == role::gradient));
    CHECK_FALSE(rows.buffered(r));
  }
  for (rank_t rank = 0; rank < 4; ++rank) CHECK(buffers.shard_index(mesh_kind::dense, rank) == rank / 2);
  const interval low = buffers.slice(0, mesh_kind::dense, 0, 0), high = buffers.slice(0, mesh_kind::dense, 0, 1);
  CHECK((low.begin == 0 && low.end == high.begin && low.size() == high.size()));
  index_t elements = 0;  // of the model's rank, all of which the bucket has beside its padding
  for (int f = 0; f < buffers.families(); ++f)
    buffers.held(f, 0, role::parameter, [&](int, const family_box& b) { elements += b.volume(); });
  CHECK(high.end >= elements);
}

TEST_CASE("in memory tensors come as the model lists them, layer by layer; in a buffer the other way round") {
  const computed_holding h = four_layers_by("dp=2,zero=1");
  std::vector<tensor_id> in_order{{0, 0, 0}};  // the embedding, then the families of each layer, then what is pinned
  const auto in_layers = [&](int f) { return h.family_at(f).place == home::layers; };
  for (index_t layer = 0; layer < 4; ++layer)
    for (int f = 0; f < h.families(); ++f)
      if (in_layers(f)) in_order.push_back({f, layer, 0});
  for (int f = 1; f < h.families(); ++f)
    if (!in_layers(f)) in_order.push_back({f, 0, 0});
  REQUIRE(in_order.size() == 1 + 4 * 6 + 2);
  for (std::size_t i = 1; i < in_order.size(); ++i) {
    const auto order = [&](std::size_t at, role r) { return h.order_of(in_order[at], 1, r); };
    CHECK(order(i - 1, role::parameter) < order(i, role::parameter));
    CHECK(order(i - 1, role::optimizer) > order(i, role::optimizer));
  }
}

TEST_CASE(
    "a tied embedding is the first of the first stage and the last of the last one, in a buffer the other way round") {
  REQUIRE(tied[0].place == home::embedding);
  const computed_holding h(space(tied, parse_degrees("pp=2,zero=1")));
  int others = 0;
  for (int f = 1; f < h.families(); ++f)
    for (const index_t member : {0, 3}) {
      if (member >= h.family_at(f).extent[axis_of::layer]) continue;
      const auto order = [&](int of, index_t layer, rank_t rank, role r) {
        return h.order_of({of, layer, 0}, rank, r);
      };
      CHECK(order(0, 0, 0, role::parameter) < order(f, member, 0, role::parameter));
      CHECK(order(0, 0, 1, role::parameter) > order(f, member, 1, role::parameter));
      CHECK(order(0, 0, 0, role::optimizer) > order(f, member, 0, role::optimizer));
      CHECK(order(0, 0, 1, role::optimizer) < order(f, member, 1, role::optimizer));
      ++others;
    }
  CHECK(others == 6 * 2 + 1);
}

TEST_CASE("what comes before the layers does so wherever the model lists it") {
  model own;
  own.sets[0] = layer_set::all(2);
  own.add({.name = "layers.{layer}.w", .extent = {2, 1, 1, 2, 2}});
  own.add({.name = "end", .extent = {1, 1, 1, 2, 2}, .place = home::last_stage});
  own.add({.name = "words", .extent = {1, 1, 1, 2, 2}, .place = home::embedding});
  own.add({.name = "places", .extent = {1, 1, 1, 2, 2}, .place = home::first_stage});
  own.shape = four_layers.shape;
  own.shape.layers = 2;
  const computed_holding h(space(own, parse_degrees("tp=1")));
  const tensor_id in_order[] = {{2, 0, 0}, {3, 0, 0}, {0, 0, 0}, {0, 1, 0}, {1, 0, 0}};
  for (std::size_t i = 1; i < std::size(in_order); ++i)
    CHECK(h.order_of(in_order[i - 1], 0, role::parameter) < h.order_of(in_order[i], 0, role::parameter));
}

TEST_CASE("rows need no buffers: buckets that are too many to be listed are no matter to them") {
  transformer deep{.name = "deep", .hidden = 2, .heads = 1, .groups = 1, .head_dim = 2, .ffn = 2, .vocabulary = 2};
  deep.layers = 200'000;  // of 6 tensors each, which tests/space/space.cpp has refused where buffers are sharded
  const space rows(make_transformer(deep), parse_degrees("dp=2,zero=1,bucket=1,shard=rows"));
  CHECK(computed_holding(rows).sharded(role::optimizer));
}

namespace {
/// Four heads and two experts, and on the experts' mesh a vector for each expert, one for all of them, and
/// a matrix for all of them that tensor parallelism cuts.
model of_one_own() {
  model own = make_transformer({.name = "own",
                                .layers = 2,
                                .hidden = 8,
                                .heads = 4,
                                .groups = 4,
                                .head_dim = 2,
                                .vocabulary = 16,
                                .experts = 2,
                                .expert_ffn = 4});
  own.add({.name = "gain{layer}.{expert}", .extent = {2, 2, 1, 1, 8}, .mesh = mesh_kind::expert, .shape_ndim = 1});
  own.add({.name = "scale{layer}", .extent = {2, 1, 1, 1, 8}, .mesh = mesh_kind::expert, .shape_ndim = 1});
  own.add({.name = "mix{layer}",
           .extent = {2, 1, 1, 4, 2},
           .mesh = mesh_kind::expert,
           .tensor_axis = axis_of::row,
           .shape_ndim = 2});
  return own;
}
}  // namespace

namespace {
/// The ranks that a box is said to be shared by, or owned by, have it, and nobody else.
void check_sharers(const model& m, const char* layout) {
  CAPTURE(std::string(layout));
  const computed_holding h(space(m, parse_degrees(layout)));
  for (const role r : {role::parameter, role::optimizer}) {
    std::vector<std::vector<std::pair<int, family_box>>> by_rank;
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      by_rank.emplace_back();
      each_held(h, rank, r, [&](int f, const family_box& b) { by_rank.back().emplace_back(f, b); });
    }
    const auto who_has = [&](int f, const family_box& b) {
      std::vector<rank_t> all;
      for (rank_t q = 0; q < h.ranks(); ++q) {
        const auto& has = by_rank[static_cast<std::size_t>(q)];
        if (std::find(has.begin(), has.end(), std::pair(f, b)) != has.end()) all.push_back(q);
      }
      return all;
    };
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      std::vector<std::pair<int, family_box>> shared;
      each_shared(h, rank, r, [&](int f, const family_box& b, const Holders auto& holders) {
        shared.emplace_back(f, b);
        CHECK(listed_ranks(holders) == who_has(f, b));
      });
      CHECK(shared == by_rank[static_cast<std::size_t>(rank)]);
    }
    for (int f = 0; f < h.families(); ++f) {
      index_t elements = 0;
      h.owners(f, r, h.family_at(f).whole(), [&](const family_box& b, const Holders auto& holders) {
        elements += b.volume();
        CHECK(holders.count() > 0);
        CHECK(listed_ranks(holders) == who_has(f, b));
      });
      CHECK(elements == h.family_at(f).whole().volume());
    }
  }
}
}  // namespace

TEST_CASE("who shares a box has it, and nobody else: experts that tp does not cut, copies, and uneven cuts too") {
  for (const char* layout : {"tp=2,dp=2,ep=2,etp=2", "tp=4,dp=2,ep=2,etp=2", "tp=2,pp=2,dp=2,ep=2,etp=1",
                             "tp=4,ep=2,etp=2,zero=1", "tp=2,dp=2,etp=2,zero=1,shard=rows"})
    check_sharers(of_one_own(), layout);
  for (const char* layout : {"pp=2,dp=2", "tp=2,pp=4", "pp=2,dp=2,zero=1"}) check_sharers(tied, layout);
  for (const char* layout : {"tp=3,dp=2,shard=rows,names=hf", "tp=3,dp=2,zero=1,shard=rows,names=hf",
                             "tp=3,cp=2,dp=3,zero=1,shard=rows,names=hf,instances=2,order=cp-tp-dp-ep-pp"})
    check_sharers(four_layers, layout);
}

TEST_CASE("who is told to hold no more than a lower rank: of tp=4 and ep=2 who is the first of neither") {
  const computed_holding h(space(of_one_own(), parse_degrees("tp=4,dp=2,ep=2,etp=1,zero=1")));
  std::vector<rank_t> told;
  for (rank_t rank = 0; rank < h.ranks(); ++rank)
    if (h.as_much_as_a_lower_rank(rank)) told.push_back(rank);
  CHECK(told == std::vector<rank_t>{1, 3, 5, 7});
}

TEST_CASE("a holding that was made without states that are sharded refuses to speak of them") {
  const computed_holding h = four_layers_by("dp=2,zero=1", parameter_states);
  CHECK(h.states() == parameter_states);
  CHECK_FALSE(h.sharded(role::parameter));
  CHECK(testing::refused([&] { h.buffered(role::optimizer); }) ==
        "reshard: this holding was made without states that zero=1 shards, and is asked for them; name them where it "
        "is made");
  CHECK(testing::refused([&] { h.held(0, 0, role::parameter, [](int, const family_box&) {}); }) == "accepted");
}
