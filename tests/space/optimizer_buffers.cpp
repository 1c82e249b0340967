// SPDX-License-Identifier: Apache-2.0
// All optimizer buffers of a space against the contract's rule, followed parameter by parameter: reverse order, starts
// at 64 elements, buckets closed when full, shared parameters alone, ends padded to lcm(n, 128).
#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/detail/optimizer_buffers.hpp>

#include "../support/tiny.hpp"

using namespace reshard;

namespace {
constexpr transformer mixed{.name = "mixed",
                            .layers = 8,
                            .hidden = 12,
                            .heads = 4,
                            .groups = 2,
                            .head_dim = 2,
                            .ffn = 20,
                            .vocabulary = 24,
                            .experts = 4,
                            .expert_ffn = 8};

model make(bool tied, index_t experts) {
  transformer t = mixed;
  t.tied = tied;
  t.experts = experts;
  if (experts == 0) t.expert_ffn = 0;
  return make_transformer(t, [experts](index_t l) { return experts > 0 && l != 1 && l != 4; });
}

struct parameter {
  int family;
  index_t member, expert, elements;
  bool shared;
};

/// The parameters of one buffer, last first: final families, layers downwards with their families and experts
/// backwards, first families.
std::vector<parameter> in_buffer_order(const model& m, const degrees& d, interval layers, bool first, bool last,
                                       bool of_experts) {
  const index_t etp = d.etp != 0 ? d.etp : d.ep > 1 ? 1 : d.tp;
  const bool own_buffers = d.ep > 1 || etp != d.tp;
  const auto cut = [&](const family& f) {
    return f.tensor_axis == axis_of::none ? 1 : f.mesh == mesh_kind::expert ? etp : d.tp;
  };
  const auto wanted = [&](const family& f) { return (f.mesh == mesh_kind::expert && own_buffers) == of_experts; };
  std::vector<parameter> list;
  const auto pinned = [&](home place, bool shared) {
    for (int f = m.families - 1; f >= 0; --f)
      if (m[f].place == place && wanted(m[f]))
        list.push_back({f, 0, 0, m[f].extent[2] * m[f].extent[3] * m[f].extent[4] / cut(m[f]), shared});
  };
  if (last && d.pp > 1 && m.shape.tied) pinned(home::embedding, true);
  if (last) pinned(home::last_stage, false);
  for (index_t layer = layers.end - 1; layer >= layers.begin; --layer)
    for (int f = m.families - 1; f >= 0; --f) {
      if (m[f].place != home::layers || !wanted(m[f])) continue;
      for (index_t member = 0; member < m[f].extent[0]; ++member) {
        if (m.layers_of(f).layer_of(member) != layer) continue;
        const index_t experts = m[f].extent[1] / (m[f].mesh == mesh_kind::expert ? d.ep : 1);
        for (index_t e = experts - 1; e >= 0; --e)
          list.push_back({f, member, e, m[f].extent[2] * m[f].extent[3] * m[f].extent[4] / cut(m[f]), false});
      }
    }
  if (first) pinned(home::embedding, d.pp > 1 && m.shape.tied);
  if (first) pinned(home::first_stage, false);
  return list;
}

using where_it_lies = std::tuple<index_t, index_t, index_t>;  // bucket, begin, end
struct packed {
  std::map<std::tuple<int, index_t, index_t>, where_it_lies> parameters;
  std::vector<interval> buckets;
};

packed pack(const std::vector<parameter>& list, index_t group, index_t bucket) {
  const index_t padding = std::lcm(group, index_t{128});
  packed result;
  index_t open = 0, at = 0;
  const auto close = [&] {
    while (at % padding != 0) ++at;
    result.buckets.push_back({open, at});
    open = at;
  };
  for (const parameter& p : list) {
    while (at % 64 != 0) ++at;
    if (p.shared && at > open) close();
    result.parameters[{p.family, p.member, p.expert}] = {static_cast<index_t>(result.buckets.size()), at,
                                                         at + p.elements};
    at += p.elements;
    if (p.shared || (bucket > 0 && at - open >= bucket)) close();
  }
  if (at > open) close();
  return result;
}
}  // namespace

TEST_CASE("every buffer of every chunk has its parameters where the rule puts them, in its buckets, and nothing else") {
  int several_buckets = 0, expert_buffers = 0, of_one_expert = 0, without = 0;
  for (const bool tied : {false, true})
    for (const index_t experts : {0, 1, 4})
      for (const char* text :
           {"", "dp=3", "tp=2,dp=2", "tp=2,cp=2,dp=3", "pp=2,dp=2", "pp=4,vpp=2,dp=2", "pp=3,split=spread,dp=2",
            "pp=2,split=spread,tp=4", "dp=4,ep=2", "dp=4,ep=4,pp=2,tp=2", "tp=2,dp=2,etp=1", "tp=4,dp=2,etp=2,pp=4",
            "pp=5,split=account,dp=2", "pp=10,split=spread"})
        for (const char* bucket : {"", ",bucket=300", ",bucket=1", ",bucket=2000", ",bucket=640", ",bucket=1200"}) {
          const std::string layout = text[0] == '\0' ? bucket[0] == '\0' ? "" : bucket + 1 : text + std::string(bucket);
          degrees d = parse_degrees(layout);
          d.zero = 1;
          const model m = make(tied, experts);
          if (experts == 0 ? d.ep > 1 || d.etp > 0 : d.ep > experts) continue;
          CAPTURE(layout);
          CAPTURE(tied);
          CAPTURE(experts);
          const space s(m, d);
          const optimizer_buffers buffers(s);
          const index_t chunks = d.pp * d.vpp;
          for (index_t k = 0; k < chunks; ++k)
            for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
              const bool of_experts = kind == mesh_kind::expert;
              const index_t etp = d.etp != 0 ? d.etp
                                  : d.ep > 1 ? 1
                                             : d.tp,
                            group = of_experts ? d.tp * d.cp * d.dp / (etp * d.ep) : d.dp * d.cp;
              const packed wanted =
                  pack(in_buffer_order(m, d, s.pipeline().chunk(k), k == 0, k == chunks - 1, of_experts), group,
                       k == 0 ? d.bucket : 0);
              CHECK(buffers.bucket_count(k, kind) == static_cast<index_t>(wanted.buckets.size()));
              if (buffers.bucket_count(k, kind) != static_cast<index_t>(wanted.buckets.size())) continue;
              for (std::size_t b = 0; b < wanted.buckets.size(); ++b)
                CHECK(buffers.bucket(k, kind, static_cast<index_t>(b)) == wanted.buckets[b]);
              CHECK(buffers.elements(k, kind) == (wanted.buckets.empty() ? 0 : wanted.buckets.back().end));
              packed found;
              for (int f = 0; f < m.families; ++f) {
                index_t reached = -1;
                for (const buffer_entry& e : buffers.entries(k, kind, f)) {
                  CHECK(e.family == f);
                  CHECK(e.outer.begin > reached);  // in buffer order
                  reached = e.outer.begin;
                  for (index_t i = 0; i < e.outer.count; ++i)
                    for (index_t j = 0; j < e.experts; ++j) {
                      const interval at = e.inner(i).item(j);
                      CHECK(found.parameters
                                .emplace(std::tuple(f, e.member_last - i, e.expert_last - j),
                                         where_it_lies(e.bucket, at.begin, at.end))
                                .second);
                    }
                }
              }
              CHECK(found.parameters == wanted.parameters);
              several_buckets += wanted.buckets.size() > 2 ? 1 : 0;
              expert_buffers += of_experts && !wanted.buckets.empty() ? 1 : 0;
              of_one_expert += experts == 1 && of_experts && !wanted.buckets.empty() ? 1 : 0;
              without += wanted.buckets.empty() ? 1 : 0;
            }
        }
  std::printf("buffers: %d of more than two buckets, %d of experts, %d with nothing in them\n", several_buckets,
              expert_buffers, without);
  for (const int met : {several_buckets, expert_buffers, of_one_expert, without}) CHECK(met > 20);
}

TEST_CASE("a hundred layers that are alike are one entry each family, not a hundred") {
  transformer deep = mixed;
  deep.layers = 100;
  deep.experts = deep.expert_ffn = 0;
  const space s(make_transformer(deep), config<dp<2>, zero<1>>{});
  const optimizer_buffers buffers(s);
  for (int f = 0; f < s.families(); ++f) {
    const auto entries = buffers.entries(0, mesh_kind::dense, f);
    CHECK(entries.end() - entries.begin() == 1);
    CHECK(entries.first->outer.count == s.family_at(f).extent[0]);
  }
}

TEST_CASE("the first family of a model may be one of its layers") {
  model own;
  own.shape.layers = 3;
  own.sets[0] = layer_set::all(3);
  own.add({.name = "layers.{layer}.a", .extent = {3, 1, 1, 4, 16}});
  own.add({.name = "layers.{layer}.b", .extent = {3, 1, 1, 4, 16}});
  const optimizer_buffers buffers(space(own, config<dp<2>, zero<1>>{}));
  CHECK(buffers.elements(0, mesh_kind::dense) == 6 * 64);
  for (int f = 0; f < 2; ++f) {
    REQUIRE(buffers.entries(0, mesh_kind::dense, f).begin() != buffers.entries(0, mesh_kind::dense, f).end());
    const buffer_entry& entry = *buffers.entries(0, mesh_kind::dense, f).begin();
    CHECK(entry.inner(0).item(0) == interval{(1 - f) * 64, (2 - f) * 64});
    CHECK(entry.outer.count == 3);
  }
}

TEST_CASE("what comes before the layers lies behind them in the buffer, wherever the model lists it") {
  model own;
  own.sets[0] = layer_set::all(2);
  own.shape = make(false, 0).shape;
  own.shape.layers = 2;
  own.add({.name = "words", .extent = {1, 1, 1, 4, 2}, .place = home::embedding});
  own.add({.name = "layers.{layer}.w", .extent = {2, 1, 1, 2, 2}});
  own.add({.name = "places", .extent = {1, 1, 1, 3, 2}, .place = home::first_stage});
  own.add({.name = "end", .extent = {1, 1, 1, 2, 2}, .place = home::last_stage});
  const optimizer_buffers buffers(space(own, parse_degrees("dp=2,zero=1")));
  const auto begin = [&](int f) { return buffers.entries(0, mesh_kind::dense, f).begin()->outer.begin; };
  CHECK(begin(3) == 0);
  CHECK(begin(1) == 64);  // and of the first layer 128
  CHECK(begin(2) == 192);
  CHECK(begin(0) == 256);
}

TEST_CASE(
    "where experts have no buffer of their own, none is written, though more instances than dp leave them no slice") {
  const space s(make(false, 0), parse_degrees("cp=4,dp=2,instances=4,zero=1"));
  CHECK(s.shards(mesh_kind::dense) == 2);
  CHECK(s.shards(mesh_kind::expert) == 0);
  const optimizer_buffers buffers(s);
  CHECK(buffers.bucket_count(0, mesh_kind::dense) == 1);
  CHECK(buffers.bucket_count(0, mesh_kind::expert) == 0);
  CHECK(buffers.elements(0, mesh_kind::expert) == 0);
}

TEST_CASE("buckets that are padded for the bus end at multiples of 65536 elements, too") {
  const auto end = [](const char* layout) {
    return optimizer_buffers(space(make(false, 0), parse_degrees(layout))).bucket(0, mesh_kind::dense, 0).end;
  };
  CHECK(end("dp=2,zero=1,busbw=1") == 65536);
  CHECK(end("dp=3,zero=1,busbw=1") == 3 * 65536);
  CHECK(end("dp=2,zero=1") < 65536);
}

TEST_CASE("experts of a prediction layer lie in the buffer as those of other layers do") {
  const space s(testing::tiny_predicting(), parse_degrees(std::string(testing::prediction_alone) + ",zero=1"));
  const optimizer_buffers buffers(s);
  const index_t k = s.pipeline().prediction_chunk();
  int met = 0;
  for (int f = 0; f < s.families(); ++f)
    for (const buffer_entry& entry : buffers.entries(k, mesh_kind::expert, f)) {
      CHECK(s.family_at(f).place == home::prediction);
      CHECK(entry.experts == 4);
      CHECK(entry.expert_last == 3);
      ++met;
    }
  CHECK(met == 2);
}

TEST_CASE("layers without experts leave no room in the buffer of those with some") {
  const model m = make_transformer({.name = "m",
                                    .layers = 4,
                                    .hidden = 4,
                                    .heads = 2,
                                    .groups = 2,
                                    .head_dim = 2,
                                    .ffn = 4,
                                    .vocabulary = 8,
                                    .experts = 2,
                                    .expert_ffn = 3},
                                   [](index_t l) { return l == 0 || l == 3; });
  const optimizer_buffers buffers(space(m, parse_degrees("dp=2,ep=2,zero=1")));
  std::map<index_t, index_t> begins;  // by elements: fc2 has 3 x 4, fc1 twice as many
  for (int f = 0; f < m.families; ++f)
    for (const buffer_entry& entry : buffers.entries(0, mesh_kind::expert, f)) {
      const index_t begin = entry.outer.begin;
      begins[begin] = entry.elements;
      CHECK(entry.outer.count == 1);
    }
  CHECK(begins == std::map<index_t, index_t>{{0, 12}, {64, 24}, {128, 12}, {192, 24}});
}
