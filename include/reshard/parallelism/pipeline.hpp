// SPDX-License-Identifier: Apache-2.0
// Pipeline placement: layers are cut into pp x vpp chunks in order, chunk k is the (k / pp)-th chunk of stage k mod pp
// (interleaved virtual pipelines). A distribution of the layer axis: cut points and their inverse, both closed
// formulas; of a layout string, a walk over its runs.
// Source: Megatron-core get_num_layers_to_build, get_transformer_layer_offset and PipelineParallelLayerLayout.
// Builds on: parallelism/degrees.hpp, algebra/distribution.hpp.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/parallelism/degrees.hpp>

namespace reshard {

/// L layers over P stages of V chunks, C = P V chunks in all. Chunk k holds layers [point(k), point(k + 1)):
///   even               point(k) = k (L / C)
///   account            point(k) = k ((L + 2) / C) - 1, clamped to 0 at k = 0 and to L at k = C
///   account_embedding  the same of L + 1;  account_loss  point(k) = k ((L + 1) / C), clamped to L at k = C
///   spread             point(k) = k (L / C) + min(k, L mod C), V = 1
///   first F, last Z    chunks of F / V, M / V and Z / V layers in every round of P chunks, M those of a stage between
///   string             the sum of the layers of the runs before k
class pipeline_placement {
 public:
  constexpr pipeline_placement() = default;
  constexpr pipeline_placement(index_t layers, const degrees& d)
      : layers_(layers), stages_(d.pp), chunks_(d.chunks()), prediction_chunk_(chunks_ - 1) {
    if (d.string.given()) {
      dealt_ = dealt::by_string;
      string_ = d.string;
      if (d.string.predictions > 0) prediction_chunk_ = d.string.prediction_chunk;
    } else if (d.first > 0 || d.last > 0) {
      dealt_ = dealt::in_rounds;
      const index_t between = stages_ - (d.first > 0) - (d.last > 0), rest = layers - d.first - d.last;
      per_chunk_ = between > 0 ? rest / between / d.vpp : 0;
      first_ = d.first > 0 ? d.first / d.vpp : stages_ > 1 || d.last == 0 ? per_chunk_ : d.last / d.vpp;
      last_ = d.last > 0 ? d.last / d.vpp : per_chunk_;
    } else {
      const bool embedding = d.split == pipeline_split::account || d.split == pipeline_split::account_embedding;
      const bool loss = d.split == pipeline_split::account || d.split == pipeline_split::account_loss;
      short_first_ = embedding ? 1 : 0;
      per_chunk_ = (layers + short_first_ + (loss ? 1 : 0)) / chunks_;
      longer_ = d.split == pipeline_split::spread ? layers % chunks_ : 0;
    }
  }

  constexpr index_t extent() const { return layers_; }
  constexpr index_t parts() const { return stages_; }
  constexpr index_t chunks() const { return chunks_; }
  constexpr index_t stage_of_chunk(index_t k) const { return k < stages_ ? k : k % stages_; }

  /// The chunk of the prediction layers: the last, or the one of a layout string's m.
  constexpr index_t prediction_chunk() const { return prediction_chunk_; }
  /// The chunk of the last decoder layer; of a model without layers, the last.
  constexpr index_t last_layer_chunk() const { return layers_ > 0 ? chunk_of(layers_ - 1) : chunks_ - 1; }

  constexpr index_t point(index_t k) const {
    if (dealt_ != dealt::evenly) return uneven_point(k);
    return k <= 0 ? 0 : k >= chunks_ ? layers_ : k * per_chunk_ + (k < longer_ ? k : longer_) - short_first_;
  }
  constexpr interval chunk(index_t k) const {
    if (dealt_ != dealt::evenly) return {uneven_point(k), uneven_point(k + 1)};
    const index_t end = (k + 1) * per_chunk_ + least(k + 1, longer_) - short_first_;
    return {k == 0 ? 0 : end - per_chunk_ - (k < longer_ ? 1 : 0), k + 1 == chunks_ ? layers_ : end};
  }

  /// The chunk k that holds a layer: point(k) <= layer < point(k + 1).
  constexpr index_t chunk_of(index_t layer) const {
    if (dealt_ != dealt::evenly) return uneven_chunk_of(layer);
    if (longer_ == 0) return (layer + short_first_) / per_chunk_;
    const index_t in_longer = longer_ * (per_chunk_ + 1);
    return layer < in_longer ? layer / (per_chunk_ + 1) : longer_ + (layer - in_longer) / per_chunk_;
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
  enum class dealt { evenly, in_rounds, by_string };  // evenly: but for what is counted, or left over

  /// Layers of a round of P chunks.
  constexpr index_t in_round() const { return stages_ == 1 ? first_ : first_ + (stages_ - 2) * per_chunk_ + last_; }

  constexpr index_t uneven_point(index_t k) const {
    switch (dealt_) {
      case dealt::evenly: break;
      case dealt::in_rounds: {
        const index_t round = k / stages_, stage = k - round * stages_;
        return round * in_round() + (stage == 0 ? 0 : first_ + (stage - 1) * per_chunk_);
      }
      case dealt::by_string: break;
    }
    index_t layers = 0;
    for (int r = 0; r < string_.runs && k > 0; ++r) {
      layers += least(k, string_.run[r].chunks) * string_.run[r].layers;
      k -= string_.run[r].chunks;
    }
    return layers;
  }
  constexpr index_t uneven_chunk_of(index_t layer) const {
    switch (dealt_) {
      case dealt::evenly: break;
      case dealt::in_rounds: {
        const index_t round = layer / in_round(), rest = layer - round * in_round();
        if (rest < first_) return round * stages_;
        if (rest >= in_round() - last_ && stages_ > 1) return round * stages_ + stages_ - 1;
        return round * stages_ + 1 + (rest - first_) / per_chunk_;
      }
      case dealt::by_string: break;
    }
    index_t k = 0;
    for (int r = 0; r < string_.runs; ++r) {
      const index_t layers = string_.run[r].chunks * string_.run[r].layers;
      if (layer < layers) return k + layer / string_.run[r].layers;
      layer -= layers;
      k += string_.run[r].chunks;
    }
    return k - 1;
  }

  index_t layers_ = 0;
  index_t stages_ = 1;
  index_t chunks_ = 1;
  index_t prediction_chunk_ = 0;
  dealt dealt_ = dealt::evenly;
  index_t per_chunk_ = 0;
  index_t longer_ = 0;
  index_t short_first_ = 0;  // layers that the first chunk lacks
  index_t first_ = 0;        // layers of a chunk of the first stage, where stages differ
  index_t last_ = 0;
  pipeline_string string_;
};

}  // namespace reshard
