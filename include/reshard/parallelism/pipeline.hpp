// SPDX-License-Identifier: Apache-2.0
// Pipeline placement: layers are cut into pp x vpp chunks in order, chunk k is the (k / pp)-th chunk of stage k mod pp
// (interleaved virtual pipelines). A distribution of the layer axis: cut points and their inverse, both closed
// formulas. Source: Megatron-core get_num_layers_to_build and get_transformer_layer_offset.
// Builds on: parallelism/degrees.hpp, algebra/distribution.hpp.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/parallelism/degrees.hpp>

namespace reshard {

/// L layers over P stages of V chunks, C = P V chunks in all. Chunk k holds layers [point(k), point(k + 1)):
///   even     point(k) = k (L / C)
///   account  point(k) = k ((L + 2) / C) - 1, clamped to 0 at k = 0 and to L at k = C
///   spread   point(k) = k (L / C) + min(k, L mod C), V = 1
class pipeline_placement {
 public:
  constexpr pipeline_placement() = default;
  constexpr pipeline_placement(index_t layers, const degrees& d)
      : layers_(layers), stages_(d.pp), chunks_(d.chunks()), split_(d.split),
        per_chunk_((split_ == pipeline_split::account ? layers + 2 : layers) / chunks_),
        longer_(split_ == pipeline_split::spread ? layers % chunks_ : 0) {}

  constexpr index_t extent() const { return layers_; }
  constexpr index_t parts() const { return stages_; }
  constexpr index_t chunks() const { return chunks_; }
  constexpr index_t stage_of_chunk(index_t k) const { return k < stages_ ? k : k % stages_; }

  constexpr index_t point(index_t k) const {
    if (split_ != pipeline_split::account) return k * per_chunk_ + least(k, longer_);
    return k <= 0 ? 0 : k >= chunks_ ? layers_ : k * per_chunk_ - 1;
  }
  constexpr interval chunk(index_t k) const { return {point(k), point(k + 1)}; }

  /// The chunk k that holds a layer: point(k) <= layer < point(k + 1).
  constexpr index_t chunk_of(index_t layer) const {
    if (split_ == pipeline_split::account) return (layer + 1) / per_chunk_;
    const index_t in_longer = longer_ * (per_chunk_ + 1);
    if (layer < in_longer) return layer / (per_chunk_ + 1);
    return longer_ + (layer - in_longer) / per_chunk_;
  }

  template <typename Sink>
  constexpr void intervals(index_t stage, Sink&& sink) const {
    for (index_t k = stage; k < chunks_; k += stages_)
      if (const interval layers = chunk(k); !layers.empty()) sink(layers);
  }
  template <typename Sink>
  constexpr void owners(interval range, Sink&& sink) const {
    range = intersect(range, {0, layers_});
    if (range.empty()) return;
    const index_t last = chunk_of(range.end - 1);
    for (index_t k = chunk_of(range.begin); k <= last; ++k)
      if (const interval layers = chunk(k); !layers.empty()) sink(stage_of_chunk(k), layers);
  }

 private:
  index_t layers_ = 0;
  index_t stages_ = 1;
  index_t chunks_ = 1;
  pipeline_split split_ = pipeline_split::even;
  index_t per_chunk_ = 0;
  index_t longer_ = 0;
};

}  // namespace reshard
