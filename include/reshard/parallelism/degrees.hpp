// SPDX-License-Identifier: Apache-2.0
// The degrees of a parallelism configuration as plain numbers: what every algorithm below reads. config<...>
// (parallelism/config.hpp) is the typed form, parse_degrees (parallelism/parse_degrees.hpp) the written one.
// Builds on: base/integer.hpp.
#pragma once

#include <reshard/base/integer.hpp>

namespace reshard {

/// How layers are dealt to pipeline chunks.
enum class pipeline_split {
  even,     // the same number each
  account,  // embedding and loss count as one layer each, so the first and the last chunk are one layer short
  spread,   // the first (layers mod pp) stages take one more
};

/// A parallelism configuration as plain numbers; by default one rank without ZeRO.
struct degrees {
  index_t tp = 1;    // tensor
  index_t cp = 1;    // context
  index_t pp = 1;    // pipeline
  index_t vpp = 1;   // chunks per pipeline rank
  index_t dp = 1;    // data
  index_t ep = 1;    // expert
  index_t etp = 0;   // expert-tensor; 0: its default, 1 where ep > 1, else tp
  index_t zero = 0;  // ZeRO level: 1 shards the optimizer states
  pipeline_split split = pipeline_split::even;
  index_t bucket = 0;  // elements after which an optimizer bucket closes; 0: one bucket per buffer

  constexpr index_t expert_tp() const { return etp != 0 ? etp : ep > 1 ? 1 : tp; }
  /// Ranks of one pipeline stage: tp cp dp.
  constexpr index_t stage_ranks() const { return checked_multiply(checked_multiply(tp, cp), dp); }
  /// tp cp pp dp
  constexpr rank_t world() const { return checked_multiply(stage_ranks(), pp); }
  /// tp cp dp / (etp ep): data-parallel replicas of an expert.
  constexpr index_t expert_dp() const { return stage_ranks() / checked_multiply(expert_tp(), ep); }
  /// Pipeline chunks in layer order: chunk k is chunk k / pp of stage k mod pp.
  constexpr index_t chunks() const { return checked_multiply(pp, vpp); }
  /// Experts have optimizer buffers of their own; else they lie in the dense ones.
  constexpr bool expert_buffers() const { return ep > 1 || expert_tp() != tp; }

  friend constexpr bool operator==(const degrees&, const degrees&) = default;
};

}  // namespace reshard
