// SPDX-License-Identifier: Apache-2.0
// A layout as plain values: the degrees of its axes and everything else that its keys say; what every algorithm below
// reads. config<...> (parallelism/config.hpp) is the typed form, parse_degrees (parallelism/parse_degrees.hpp) the
// written one.
// Builds on: base/integer.hpp, parallelism/pipeline_string.hpp.
#pragma once

#include <reshard/base/integer.hpp>
#include <reshard/parallelism/pipeline_string.hpp>

namespace reshard {

/// How layers are dealt to pipeline chunks.
enum class pipeline_split {
  even,               // the same number each
  account,            // embedding and loss count as one layer each: the first and the last chunk are one layer short
  spread,             // the first (layers mod pp) stages take one more
  account_embedding,  // only the embedding counts
  account_loss,       // only the loss counts
};

/// How a sharded state is cut: flat optimizer buffers (Megatron's ZeRO), or the rows of each tensor (FSDP2).
enum class shard_by { buffers, rows };
/// What rows are cut of where experts are sharded: of each expert's matrices, or all experts of a layer as one tensor.
enum class experts_as { separate, grouped };
/// What a side calls its tensors, and so which it keeps apart: Megatron-core's, or a Hugging Face checkpoint's.
enum class names_as { megatron, hf };

/// The axes that order ranks.
enum class order_axis { tp, cp, ep, dp, pp };
/// The axes from fastest to slowest. Those not named have a degree of 1.
struct rank_order {
  order_axis axis[5] = {order_axis::tp, order_axis::cp, order_axis::ep, order_axis::dp, order_axis::pp};
  int axes = 5;

  constexpr bool has(order_axis a) const {
    for (int i = 0; i < axes; ++i)
      if (axis[i] == a) return true;
    return false;
  }
  friend constexpr bool operator==(const rank_order&, const rank_order&) = default;
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
  index_t zero = 0;  // ZeRO level: 1 shards optimizer states, 2 gradients, 3 parameters
  pipeline_split split = pipeline_split::even;
  index_t bucket = 0;     // elements after which an optimizer bucket closes; 0: one bucket per buffer
  index_t first = 0;      // layers of the first stage; 0: as the others
  index_t last = 0;       // layers of the last stage; 0: as the others
  index_t instances = 1;  // runs of the sharding group, each of which shards alone
  index_t busbw = 0;      // 1: buckets are padded for bus bandwidth too
  index_t pad = 0;        // rows of the vocabulary are made a multiple of pad x tp; 0: they are what they are
  shard_by shard = shard_by::buffers;
  experts_as experts = experts_as::separate;
  names_as names = names_as::megatron;
  rank_order order = {};
  pipeline_string string = {};  // chunks as a layout string deals them, where one is given

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
