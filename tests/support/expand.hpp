// SPDX-License-Identifier: Apache-2.0
// The library's answers in the oracle's terms: tensors by name, one char per element.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>

#include <reshard/model/transformer.hpp>
#include <reshard/space/computed_holding.hpp>

#include "../oracle/contract.hpp"

namespace testing {

inline reshard::model to_model(const oracle::model& m) {
  const reshard::transformer t{.name = "of the oracle",
                               .layers = m.layers,
                               .hidden = m.hidden,
                               .heads = m.heads,
                               .groups = m.groups,
                               .head_dim = m.head_dim,
                               .ffn = m.ffn,
                               .vocabulary = m.vocab,
                               .tied = m.tied,
                               .qk_norm = m.qk_norm,
                               .experts = m.experts,
                               .expert_ffn = m.expert_ffn};
  return make_transformer(t, [&m](reshard::index_t layer) { return oracle::is_moe(m, layer); });
}

/// Calls sink(tensor name, flat interval of the tensor) for everything in a box that a rank holds.
template <typename Sink>
void each_interval(const reshard::space& s, reshard::rank_t rank, int f, const reshard::family_box& b, Sink&& sink) {
  const reshard::family& which = s.family_at(f);
  const reshard::index_t tensor[] = {which.extent[2], which.extent[3], which.extent[4]};
  for (reshard::index_t layer = b.dim[0].begin; layer < b.dim[0].end; ++layer)
    for (reshard::index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert) {
      const std::string name = s.tensor_on({f, layer, expert}, rank);
      reshard::flat_intervals(tensor, reshard::box<3>{{b.dim[2], b.dim[3], b.dim[4]}},
                              [&](reshard::interval i) { sink(name, i); });
    }
}

/// What oracle::held says, from the library: tensor name -> elements held; no element may be held twice.
inline std::map<std::string, oracle::flat_set> held_elements(const reshard::computed_holding& h, reshard::rank_t rank,
                                                             reshard::role r) {
  std::map<std::string, oracle::flat_set> result;
  int twice = 0;
  each_shared(h, rank, r, [&](int f, const reshard::family_box& b, const auto&) {
    each_interval(h.space(), rank, f, b, [&](const std::string& name, reshard::interval i) {
      oracle::flat_set& set = result[name];
      set.resize(static_cast<std::size_t>(h.family_at(f).tensor_elements()), 0);
      for (reshard::index_t x = i.begin; x < i.end; ++x) twice += set[static_cast<std::size_t>(x)]++ != 0 ? 1 : 0;
    });
  });
  CHECK(twice == 0);
  return result;
}

}  // namespace testing
