// SPDX-License-Identifier: Apache-2.0
// A step of one rank in three parts, as an elastic job calls them apart: gradients, which may end with a peer; scalar,
// one collective of all; update, with none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <reshard/job/cursor.hpp>

#include "experts.hpp"
#include "optimizer.hpp"

namespace trainer {

/// A sum left the range in which it does not round, or is no number.
struct range_left : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The groups of a rank, made from the layout alone.
struct groups {
  std::unique_ptr<group> tensor, data, expert_data, pipeline, experts, all;
  /// By all devices that have a rank; `devices` says where ranks are.
  static groups make(world& of, const space& layout, rank_t rank, const std::vector<rank_t>& devices);
};

/// What the ranks of a world know together after a step's gradients.
struct scalars {
  double loss = 0;
  float norm = 0;
  std::vector<interval> samples;  // of the data-parallel ranks, as they used them
};

/// What --damage does to a step; nothing of it is there in a run that is meant.
struct damage {
  enum class of { nothing, swap, twice, bias_step, dropout } kind = of::nothing;
  index_t step = -1;
  bool hits(of k, index_t now) const { return kind == k && step == now; }
};

/// Sizes of a model; refuses what this trainer does not train.
sizes sizes_of(const model& m, index_t batch, index_t length);
/// Refuses a layout that this trainer does not train under.
void require_trainable(const space& layout, const sizes& z);

class rank_trainer {
 public:
  rank_trainer(const sizes& z, const settings& set, const dataset& data, rank_state& state, groups& with);

  /// Forward, backward, sums over the data-parallel groups; reads parameters, writes no state. Gathers what ZeRO
  /// parted, first.
  void gradients(serial_cursor at, index_t step, const damage& bad = {});
  /// Loss and norm, in one collective of all ranks.
  scalars scalar();
  /// Masters, moments and the rank's own part of the parameters.
  void update(index_t step, float norm, const damage& bad = {});
  /// Parameters from the parts that each rank updated, with ZeRO.
  void gather();
  /// Parameters are gathered again before the next gradients: for an elastic job, whose gather may end with a peer that
  /// is gone, and which goes on from the same state with other groups.
  void forget_gathered() { parted_ = !parts_[0].empty(); }

 private:
  struct layer_tape {
    attention<float> attend;
    normed<float> norm2;
    vector<float> xn;
    mlp<float> feed;
    mixture<float> mix;
  };
  struct tape {
    interval samples;
    expert_round round;
    std::vector<tokens> text;
    std::vector<layer_tape> layers;
    output<float> out;
  };
  struct part {
    index_t at;
    std::uint16_t* values;
    index_t count;
  };

  void find_slots();
  void find_parts();
  void read(tape& t, index_t step, const damage& bad) const;
  void forward(tape& t);
  void backward(tape& t);
  void refuse_beyond(const char* mine);
  void gather_over(group& of, const std::vector<std::vector<part>>& parts);
  bool first_stage() const { return with_.pipeline->rank() == 0; }
  bool last_stage() const { return with_.pipeline->rank() + 1 == with_.pipeline->size(); }

  context<float> c_;
  const dataset& data_;
  rank_state& state_;
  groups& with_;
  rotation<float> turned_;
  std::vector<layer_slots> layers_;
  slot words_, final_norm_, out_words_;
  index_t first_word_ = 0;
  std::vector<std::vector<part>> parts_[2];  // with ZeRO: of each rank of the sharding group, dense and of experts
  vector<float> weights_, mean_gradient_;
  vector<double> gradient_;
  double loss_ = 0;
  interval used_;
  std::uint64_t dropout_by_ = 0;
  bool parted_ = false;
};

}  // namespace trainer
