// SPDX-License-Identifier: Apache-2.0
// A model: a dozen tensor families in the order in which the framework builds its parameters, which is also the order
// (reversed) of its optimizer buffers. Families before the layers, families of the layers, families after them.
// Builds on: model/tensor_id.hpp, model/layer_set.hpp, model/state_list.hpp.
#pragma once

#include <reshard/model/layer_set.hpp>
#include <reshard/model/state_list.hpp>
#include <reshard/model/tensor_id.hpp>

namespace reshard {

/// Tensor families of one model, at most.
inline constexpr int max_families = 64;
/// Layer sets that the families of one model choose from, at most.
inline constexpr int max_layer_sets = 8;

/// Whether tensors of a kind have states of a role: statistics have one of their own, parameters the others.
constexpr bool has_states_of(tensor_kind kind, role r) {
  return (kind == tensor_kind::statistic) == (r == role::statistic);
}

/// states & statistic_states for a statistic, states - statistic_states for any other tensor: what a kind has.
constexpr state_set states_of(tensor_kind kind, const state_set& states) {
  return kind == tensor_kind::statistic ? states & statistic_states : states - statistic_states;
}

/// What a model's checkpoint calls its tensors, where it has names of Hugging Face's; else why it has none.
enum class checkpoint_form {
  none,            // nobody said: a model of one's own
  transposed,      // GPT-2: its matrices are stored transposed
  without_q_rank,  // latent attention whose queries are not compressed
  usual,           // LLaMA's names and what others add to them
  mixtral,         // the same, with experts in a block_sparse_moe
};

/// What legality of a layout is decided from, and what `check` reports.
struct dimensions {
  index_t layers = 0;
  index_t hidden = 0;
  index_t heads = 0;
  index_t groups = 0;  // query groups (key/value heads); 0 where attention has none (MLA)
  index_t head_dim = 0;
  index_t ffn = 0;  // intermediate size of the dense layers; 0 where there are none
  index_t vocabulary = 0;
  bool tied = false;    // the output layer is the embedding
  index_t experts = 0;  // 0: a dense model
  index_t expert_ffn = 0;
  index_t predictions = 0;  // prediction layers (multi-token prediction): 0 or 1
  index_t shared_ffn = 0;   // size of the shared experts together; 0 where there are none
  checkpoint_form checkpoint = checkpoint_form::none;

  constexpr index_t qkv_rows() const {
    return checked_multiply(checked_add(heads, checked_multiply(2, groups)), head_dim);
  }
};

/// A name, the dimensions, and the tensor families in the order in which the framework builds its parameters.
struct model {
  std::string_view name;
  dimensions shape;
  int families = 0;
  family family_at[max_families] = {};
  layer_set sets[max_layer_sets] = {};

  constexpr const family& operator[](int f) const { return family_at[f]; }
  constexpr const layer_set& layers_of(int f) const { return sets[family_at[f].layers]; }

  constexpr void add(const family& f) {
    if (families == max_families) refuse("a model has at most ", max_families, " tensor families");
    index_t elements = 1;  // refuse here what could overflow anywhere later: 14 bytes an element, all states
    for (const index_t extent : f.extent) elements = checked_multiply(elements, extent);
    checked_multiply(elements, 16 * max_families);
    family_at[families++] = f;
  }

  /// Whether a family counts: all do, but of prediction layers only those of the kind of the last decoder layer. (The
  /// other kind's are held instead of them, where the chunk of the prediction layers has no decoder layer.)
  constexpr bool counts(int f) const {
    return family_at[f].place != home::prediction || layers_of(f).contains(shape.layers - 1);
  }
  /// sum over the families that count of the product of their extents, statistics included, without padding()
  constexpr index_t parameters() const {
    index_t elements = 0;
    for (int f = 0; f < families; ++f)
      if (counts(f)) elements = checked_add(elements, family_at[f].whole().volume());
    return elements - padding();
  }
  /// Elements of the rows by which a layout's `pad` makes the vocabulary longer than the model's: state, and no
  /// parameters. A model without a layout has none.
  constexpr index_t padding() const {
    index_t elements = 0;
    for (int f = 0; f < families; ++f) {
      const family& of = family_at[f];
      const index_t rows = of.extent[axis_of::row];
      if (!counts(f) || of.padded != padded_as::vocabulary || rows <= shape.vocabulary) continue;
      elements += of.whole().volume() / rows * (rows - shape.vocabulary);
    }
    return elements;
  }

  /// The layer that names count a tensor to: its own; for a prediction layer the one after the last.
  constexpr index_t layer_of(const tensor_id& t) const {
    const home place = family_at[t.family].place;
    return place == home::layers       ? layers_of(t.family).layer_of(t.member)
           : place == home::prediction ? shape.layers
                                       : 0;
  }
  /// The global name of one tensor.
  std::string tensor(const tensor_id& t) const { return tensor_name(family_at[t.family].name, layer_of(t), t.expert); }
};

}  // namespace reshard
