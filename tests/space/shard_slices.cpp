// SPDX-License-Identifier: Apache-2.0
// The slices of shards: element by element where the contract's optimizer buffers, or chunks of rows, put each; and
// for drawn boxes every slice that meets them, with the ranks that have it, gone through one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/computed_holding.hpp>
#include <reshard/space/detail/shard_slices.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

namespace {

model small(bool experts, bool tied = false, index_t predictions = 0) {
  return make_transformer({.name = "small",
                           .layers = 4,
                           .hidden = 8,
                           .heads = 8,
                           .groups = 2,
                           .head_dim = 2,
                           .ffn = 16,
                           .vocabulary = 16,
                           .tied = tied,
                           .experts = experts ? 4 : 0,
                           .expert_ffn = 8,
                           .dense_first = experts ? 1 : 0,
                           .predictions = predictions});
}

/// A space with all that its slices are made of.
struct sliced {
  sliced(const model& m, const char* layout)
      : s(m, parse_degrees(layout)), holders(s), buffers(rows() ? optimizer_buffers() : optimizer_buffers(s)),
        slices(s, holders, buffers, rows()) {}
  bool rows() const { return s.degrees().shard == shard_by::rows; }

  space s;
  detail::holder_ranks holders;
  optimizer_buffers buffers;
  detail::shard_slices slices;
};

std::vector<family_box> boxes_of(const sliced& of, int f, index_t k, const family_box& shard, index_t i) {
  std::vector<family_box> all;
  of.slices.boxes(f, k, shard, i, detail::held_sink::of([&](const family_box& b) { all.push_back(b); }));
  return all;
}

/// Calls visit(k, p, e, t, shard) for every shard of a family.
template <typename Visit>
void each_part(const space& s, int f, Visit&& visit) {
  for (index_t k = 0; k < s.pipeline().chunks(); ++k)
    for (int p = 0; p < s.pieces(f); ++p)
      for (index_t e = 0; e < s.expert_parts(f); ++e)
        for (index_t t = 0; t < s.tensor_parts(f); ++t) {
          const family_box shard = s.shard_box(f, p, s.chunk_members(f, k), e, t);
          if (!shard.empty()) visit(k, p, e, t, shard);
        }
}

/// Where the contract puts a tensor of a chunk in its buffer: by family, member and expert of a part.
struct placed {
  index_t begin = 0;
  interval bucket = {};
};
using tensor_key = std::tuple<int, index_t, index_t>;

/// The buffer of chunk k; no embedding is shared between stages.
std::map<tensor_key, placed> buffer_of(const space& s, index_t k, mesh_kind kind) {
  const computed_holding h(s, parameter_states);
  std::vector<std::pair<storage_order, tensor_key>> all;
  for (int f = 0; f < s.families(); ++f)
    for (index_t m = s.chunk_members(f, k).begin; s.shard_kind(f) == kind && m < s.chunk_members(f, k).end; ++m)
      for (index_t e = 0; e < s.expert_part(f, 0).size(); ++e)
        all.push_back(
            {h.order_of({f, m, e}, s.first_rank(s.pipeline().stage_of_chunk(k)), role::parameter), {f, m, e}});
  std::sort(all.begin(), all.end());
  const index_t padding = std::lcm(s.sharding_group(kind), index_t{128}), limit = k == 0 ? s.degrees().bucket : 0;
  std::map<tensor_key, placed> buffer;
  std::vector<tensor_key> open;
  index_t begin_of_bucket = 0, end = 0;
  const auto close = [&] {
    end = (end + padding - 1) / padding * padding;
    for (const tensor_key& key : open) buffer[key].bucket = {begin_of_bucket, end};
    open.clear(), begin_of_bucket = end;
  };
  for (std::size_t i = all.size(); i-- > 0;) {
    const tensor_key& key = all[i].second;
    end = (end + 63) / 64 * 64;
    buffer[key].begin = end, open.push_back(key);
    end += s.local_elements(std::get<0>(key));
    if (limit > 0 && end - begin_of_bucket >= limit) close();
  }
  if (!open.empty()) close();
  return buffer;
}

/// The chunk of rows, or of experts that are one tensor, that an element of a shard lies in.
index_t chunk_of(const space& s, int f, const family_box& shard, const index_t (&x)[family_ndim]) {
  const family& of = s.family_at(f);
  const index_t n = s.shards(s.shard_kind(f)), inner = shard.dim[of.inner_axis()].size();
  index_t rows = shard.dim[2].size(), at = x[2] - shard.dim[2].begin;
  if (!of.stacked()) rows *= inner, at = at * inner + x[of.inner_axis()] - shard.dim[of.inner_axis()].begin;
  const bool together = s.degrees().experts == experts_as::grouped && s.deals_experts(f);
  if (together) rows = shard.dim[1].size(), at = x[1] - shard.dim[1].begin;
  return at / ((rows + n - 1) / n);
}

template <typename Visit>
void each_coordinate(const family_box& b, Visit&& visit) {
  if (b.empty()) return;
  index_t x[family_ndim];
  for (int a = 0; a < family_ndim; ++a) x[a] = b.dim[a].begin;
  for (;;) {
    visit(x);
    int a = family_ndim - 1;
    while (a >= 0 && ++x[a] == b.dim[a].end) x[a] = b.dim[a].begin, --a;
    if (a < 0) return;
  }
}

/// Every element of a shard is in the one slice that `slice_of(x)` says, once, and slices have nothing else.
template <typename SliceOf>
void check_slices(const sliced& of, int f, index_t k, const family_box& shard, SliceOf&& slice_of) {
  index_t wrong = 0, seen = 0;
  for (index_t i = 0; i < of.s.shards(of.s.shard_kind(f)); ++i)
    for (const family_box& b : boxes_of(of, f, k, shard, i)) {
      CHECK(!b.empty());
      CHECK(shard.contains(b));
      each_coordinate(b, [&](const index_t(&x)[family_ndim]) { ++seen, wrong += slice_of(x) == i ? 0 : 1; });
    }
  CHECK(wrong == 0);
  CHECK(seen == shard.volume());
}

void check_buffers(const sliced& of) {
  const space& s = of.s;
  std::map<std::pair<index_t, mesh_kind>, std::map<tensor_key, placed>> buffers;
  for (index_t k = 0; k < s.pipeline().chunks(); ++k)
    for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) buffers[{k, kind}] = buffer_of(s, k, kind);
  for (int f = 0; f < s.families(); ++f)
    each_part(s, f, [&](index_t k, int, index_t, index_t, const family_box& shard) {
      const mesh_kind kind = s.shard_kind(f);
      const std::map<tensor_key, placed>& buffer = buffers[{k, kind}];
      check_slices(of, f, k, shard, [&](const index_t(&x)[family_ndim]) {
        const placed& at = buffer.at({f, x[0], x[1] - shard.dim[1].begin});
        index_t local = 0;
        for (int a = 2; a < family_ndim; ++a) local = local * shard.dim[a].size() + x[a] - shard.dim[a].begin;
        return (at.begin + local - at.bucket.begin) / (at.bucket.size() / s.shards(kind));
      });
    });
}

/// A box with its holders.
using owned = std::pair<family_box, std::vector<rank_t>>;
bool before(const owned& a, const owned& b) {
  for (int i = 0; i < family_ndim; ++i) {
    const interval x = a.first.dim[i], y = b.first.dim[i];
    if (x != y) return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
  }
  return a.second < b.second;
}

std::vector<rank_t> holders_of(const space& s, int f, index_t k, index_t e, index_t t, index_t i) {
  std::vector<rank_t> all;
  for (rank_t r = 0; r < s.ranks(); ++r) {
    bool there = false;
    s.each_stage_holding(f, k, [&](index_t stage) { there = there || stage == s.stage_of(r); });
    if (there && (s.tensor_parts(f) == 1 || s.tensor_index(f, r) == t) && s.expert_index(f, r) == e &&
        s.shard_index(s.shard_kind(f), r) == i)
      all.push_back(r);
  }
  return all;
}
/// What owners() is to say of every box of a family; of an embedding's copies the first.
std::vector<owned> all_owned(const sliced& of, int f) {
  std::vector<owned> all;
  each_part(of.s, f, [&](index_t k, int, index_t e, index_t t, const family_box& shard) {
    if (of.s.family_at(f).place == home::embedding && k > 0) return;
    for (index_t i = 0; i < of.s.shards(of.s.shard_kind(f)); ++i) {
      const std::vector<rank_t> holders = holders_of(of.s, f, k, e, t, i);
      if (holders.empty()) continue;
      for (const family_box& b : boxes_of(of, f, k, shard, i)) all.push_back({b, holders});
    }
  });
  std::sort(all.begin(), all.end(), before);
  return all;
}

family_box drawn_box(dice& random, const family& of) {
  family_box within = of.whole();
  const bool whole_parts = random.coin();  // from the experts' axis on
  for (int a = 0; a < (whole_parts ? 1 : family_ndim); ++a) {
    if (random.below(3) == 0) continue;
    const index_t x = random.below(of.extent[a]), y = random.below(of.extent[a]);
    within.dim[a] = {std::min(x, y), std::max(x, y) + 1};
  }
  return within;
}

void check_owners(const sliced& of, dice& random, int boxes, int& seen) {
  for (int f = 0; f < of.s.families(); ++f) {
    if (of.s.cut_unevenly(f)) continue;
    const std::vector<owned> all = all_owned(of, f);
    for (int n = 0; n < boxes; ++n) {
      const family_box within = n == 0 ? of.s.family_at(f).whole() : drawn_box(random, of.s.family_at(f));
      std::vector<owned> expected, found;
      for (const owned& one : all)
        if (intersects(one.first, within)) expected.push_back(one);
      of.slices.owners(f, within, detail::shared_sink::of([&](const family_box& b, const rank_product& holders) {
                         std::vector<rank_t> ranks;
                         for (index_t i = 0; i < holders.count(); ++i) ranks.push_back(holders[i]);
                         found.push_back({b, ranks});
                       }));
      std::sort(found.begin(), found.end(), before);
      CAPTURE(of.s.family_at(f).name);
      CHECK(found == expected);
      seen += static_cast<int>(found.size());
    }
  }
}

constexpr const char* dense_layouts[] = {"zero=1,dp=3",
                                         "zero=1,dp=2,bucket=700",
                                         "zero=1,tp=2,dp=2",
                                         "zero=1,tp=4,dp=2,cp=2,bucket=300",
                                         "zero=1,pp=2,dp=3,tp=2",
                                         "zero=1,pp=2,vpp=2,dp=2,bucket=1000",
                                         "zero=1,pp=3,split=account,dp=2",
                                         "zero=1,order=dp-tp-cp-pp,tp=2,dp=3,cp=2"};
constexpr const char* expert_layouts[] = {"zero=1,dp=2",
                                          "zero=1,tp=2,dp=2",
                                          "zero=1,dp=4,ep=2",
                                          "zero=1,dp=4,ep=2,bucket=400",
                                          "zero=1,tp=2,dp=4,ep=2,etp=2",
                                          "zero=1,tp=4,dp=4,ep=2,etp=2",
                                          "zero=1,pp=2,dp=4,ep=2"};
constexpr const char* row_layouts[] = {
    "zero=1,shard=rows,dp=3",          "zero=1,shard=rows,tp=2,dp=3",          "zero=1,shard=rows,tp=4,dp=2,cp=2",
    "zero=1,shard=rows,names=hf,dp=3", "zero=1,shard=rows,names=hf,tp=2,dp=2", "zero=1,shard=rows,dp=6,instances=2"};
constexpr const char* expert_row_layouts[] = {
    "zero=1,shard=rows,dp=4,ep=2", "zero=1,shard=rows,dp=4,ep=2,experts=grouped",
    "zero=1,shard=rows,tp=2,dp=6,ep=2,etp=2", "zero=1,shard=rows,dp=3,experts=grouped",
    "zero=1,shard=rows,names=hf,tp=2,dp=4,ep=2,etp=2"};

}  // namespace

TEST_CASE("every element is in the slice that the contract's buffers put it in") {
  for (const char* layout : dense_layouts) {
    CAPTURE(layout);
    check_buffers(sliced(small(false), layout));
  }
  for (const char* layout : expert_layouts) {
    CAPTURE(layout);
    check_buffers(sliced(small(true), layout));
  }
}

TEST_CASE("every element is in the slice of its row, or of its expert where they are one tensor") {
  const auto check = [](const sliced& of) {
    for (int f = 0; f < of.s.families(); ++f)
      if (!of.s.cut_unevenly(f))
        each_part(of.s, f, [&](index_t k, int, index_t, index_t, const family_box& shard) {
          check_slices(of, f, k, shard, [&](const index_t(&x)[family_ndim]) { return chunk_of(of.s, f, shard, x); });
        });
  };
  for (const char* layout : row_layouts) check(sliced(small(false), layout));
  for (const char* layout : expert_row_layouts) check(sliced(small(true), layout));
}

TEST_CASE("a drawn box has the slices that meet it, each with the ranks that have it") {
  dice random(70);
  int seen = 0;
  const auto check = [&](const model& m, const char* layout) {
    CAPTURE(layout);
    check_owners(sliced(m, layout), random, 6, seen);
  };
  for (const char* layout : dense_layouts) check(small(false), layout);
  for (const char* layout : row_layouts) check(small(false), layout);
  for (const char* layout : expert_layouts) check(small(true), layout);
  for (const char* layout : expert_row_layouts) check(small(true), layout);
  for (const char* layout : {"zero=1,pp=2,dp=2,tp=2", "zero=1,pp=2,dp=3,shard=rows"}) check(small(false, true), layout);
  for (const char* layout : {"zero=1,dp=6,instances=2", "zero=1,order=tp-dp-ep-cp-pp,cp=2,dp=3,instances=3"})
    check(small(false), layout);
  for (const char* layout : {"zero=1,dp=4,ep=4", "zero=1,tp=8,dp=2", "zero=1,order=ep-dp-tp-cp-pp,tp=2,dp=2"})
    check(small(true), layout);
  CHECK_DRAWN(seen > 5000);
}

TEST_CASE("a drawn box has the slices that meet it where holders are a list") {
  dice random(72);
  int seen = 0;
  const auto check = [&](const model& m, const char* layout) {
    CAPTURE(layout);
    check_owners(sliced(m, layout), random, 8, seen);
  };
  // instances across tensor parallelism; experts in the dense buffers, whose readings of the ranks differ
  for (const char* layout : {"zero=1,order=dp-tp-cp-ep-pp,tp=2,cp=2,dp=3,instances=3",
                             "zero=1,order=dp-tp-cp-ep-pp,tp=2,cp=2,dp=3,instances=3,shard=rows"})
    check(small(false), layout);
  for (const char* layout : {"zero=1,order=cp-tp-dp-ep-pp,cp=2,tp=2,dp=2", "zero=1,order=cp-tp-dp-ep-pp,cp=2,tp=4"})
    check(small(true), layout);
  // an embedding on three stages
  for (const char* layout : {"zero=1,pp=4,string=Ett|tt|m|L,dp=2,tp=2", "zero=1,pp=3,string=Ett|ttm|L,dp=2,tp=2"})
    check(small(false, true, 1), layout);
  CHECK_DRAWN(seen > 500);
}
