// SPDX-License-Identifier: Apache-2.0
// The Virtual Parameter Space of one configuration: a model, its degrees, and the arithmetic that says where a family's
// array is cut and which chunks and ranks have the pieces. A value; constexpr throughout. What each rank holds is read
// from it by space/computed_holding.hpp.
// Builds on: model/require_model.hpp, model/pieces.hpp, parallelism/legal.hpp, mesh.hpp, pipeline.hpp.
#pragma once

#include <reshard/model/pieces.hpp>
#include <reshard/model/require_model.hpp>
#include <reshard/parallelism/legal.hpp>
#include <reshard/parallelism/mesh.hpp>
#include <reshard/parallelism/pipeline.hpp>

namespace reshard {

/// How tensor parallelism cuts a family: `outer` pieces of its parts times `inner` pieces of an axis; part t is piece
/// t / inner of the parts and piece t mod inner of the axis.
struct tensor_cut {
  index_t outer = 1;
  index_t inner = 1;
  int axis = axis_of::column;
};

/// space(model, config<tp<4>, pp<8>>{}): refuses what the model does not admit, at compile time and at run time.
class space {
 public:
  constexpr space(const reshard::model& m, const reshard::degrees& d)
      : model_(m), degrees_(require_legal(m, d)), dense_(mesh_of(d, mesh_kind::dense)),
        expert_(mesh_of(d, m.shape.experts > 0 ? mesh_kind::expert : mesh_kind::dense)), pipeline_(m.shape.layers, d),
        stage_ranks_(d.stage_ranks()), stage_pitch_(dense_.pitch(mesh_axis::pipeline)),
        embedding_copies_(m.shape.predictions > 0 || m.shape.tied) {
    require_model(m);
    if (d.pad > 0)
      for (int f = 0; f < model_.families; ++f)
        if (family& rows = model_.family_at[f]; rows.padded == padded_as::vocabulary)
          rows.extent[axis_of::row] = round_up(rows.extent[axis_of::row], d.pad * d.tp);
    if (m.shape.predictions > 0) keep_predictions_of_one_kind();
    for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert})
      shards_[static_cast<int>(kind)] = sharding_group(kind) / d.instances;
    for (int f = 0; f < model_.families; ++f) {
      cuts_[f] = cut_by_tensor_parallelism(f);
      uneven_[f] = rules::cuts_by_chunk(d) && !divides(f);
    }
  }

  /// The model, with the rows of the vocabulary that this side has.
  constexpr const reshard::model& model() const { return model_; }
  constexpr const reshard::degrees& degrees() const { return degrees_; }
  constexpr rank_t ranks() const { return stage_ranks_ * degrees_.pp; }
  constexpr index_t stage_ranks() const { return stage_ranks_; }  // ranks of one pipeline stage
  constexpr int families() const { return model_.families; }
  constexpr const family& family_at(int f) const { return model_.family_at[f]; }
  constexpr const pipeline_placement& pipeline() const { return pipeline_; }

  constexpr const mesh& mesh_for(mesh_kind kind) const { return kind == mesh_kind::dense ? dense_ : expert_; }
  constexpr const mesh& mesh_for(int f) const { return mesh_for(family_at(f).mesh); }

  /// The pipeline stage of a rank, and the first rank of a stage.
  constexpr index_t stage_of(rank_t rank) const {
    return stage_pitch_ == stage_ranks_ ? rank / stage_pitch_ : rank / stage_pitch_ % degrees_.pp;
  }
  constexpr rank_t first_rank(index_t stage) const { return stage * stage_pitch_; }
  /// The i-th rank of a stage, 0 <= i < stage_ranks(), and back.
  constexpr rank_t rank_at(index_t stage, index_t i) const {
    const index_t row = i / stage_pitch_;
    return (row * degrees_.pp + stage) * stage_pitch_ + (i - row * stage_pitch_);
  }
  constexpr index_t place_in_stage(rank_t rank) const {
    return rank / (stage_pitch_ * degrees_.pp) * stage_pitch_ + rank % stage_pitch_;
  }

  /// The part of tensor parallelism and of expert parallelism that a rank has of a family.
  constexpr index_t tensor_index(int f, rank_t rank) const { return mesh_for(f).coordinate(mesh_axis::tensor, rank); }
  constexpr index_t expert_index(int f, rank_t rank) const {
    return deals_experts(f) ? expert_.coordinate(mesh_axis::middle, rank) : 0;
  }

  /// Parts that tensor parallelism cuts the family's tensor axis into; 1 where it is whole.
  constexpr index_t tensor_parts(int f) const {
    return family_at(f).tensor_axis == axis_of::none ? 1 : mesh_for(f).along(mesh_axis::tensor);
  }
  /// Whether a family has an axis of experts, which expert parallelism deals: an extent of 1 is none, but the expert of
  /// a model that has one. What lies on the experts' mesh and has none is whole on every part of expert parallelism.
  constexpr bool deals_experts(int f) const {
    return family_at(f).mesh == mesh_kind::expert &&
           (family_at(f).extent[axis_of::expert] > 1 || model_.shape.experts == 1);
  }
  /// Parts that expert parallelism cuts the family's experts into; 1 where it has no axis of them.
  constexpr index_t expert_parts(int f) const { return deals_experts(f) ? expert_.along(mesh_axis::middle) : 1; }
  /// The experts of part e; of a family that has no axis of them {0, 1}.
  constexpr interval expert_part(int f, index_t e) const {
    const index_t experts = family_at(f).extent[axis_of::expert];
    return experts == 1 ? interval{0, 1} : equal_part(experts, e, expert_parts(f));
  }

  /// The pieces of a family that are tensors of their own on this side: q, k and v, or gate and up, where names are a
  /// checkpoint's; else the family is one.
  constexpr int pieces(int f) const { return degrees_.names == names_as::megatron ? 1 : reshard::pieces(family_at(f)); }
  /// What piece p is of the family: parts, rows and columns.
  constexpr box<3> piece_box(int f, int p) const {
    if (degrees_.names == names_as::megatron)
      return {{{0, family_at(f).extent[2]}, {0, family_at(f).extent[3]}, {0, family_at(f).extent[4]}}};
    return reshard::piece_box(model_, f, p);
  }
  /// The piece that a box of the family lies in.
  constexpr int piece_of(int f, const family_box& b) const {
    const int last = pieces(f) - 1;
    for (int p = 0; p < last; ++p) {
      const box<3> piece = piece_box(f, p);
      bool inside = true;
      for (int i = 0; i < 3; ++i) inside = inside && piece.dim[i].contains(b.dim[2 + i].begin);
      if (inside) return p;
    }
    return last;
  }

  /// How tensor parallelism cuts each piece of a family that it divides.
  constexpr const tensor_cut& cut_of(int f) const { return cuts_[f]; }

  /// Whether a family's tensors, or its experts, are cut by DTensor's chunk() elsewhere than cut_of cuts them: because
  /// parallelism does not divide them, or because cut_of cuts each part of a tensor and chunk() the tensor. Then
  /// space/detail/uneven_shards.hpp says where.
  constexpr bool cut_unevenly(int f) const { return uneven_[f]; }

  /// Whether chunk k has a family that is pinned to a place of the network.
  constexpr bool pinned_to(int f, index_t k) const {
    const index_t last = pipeline_.chunks() - 1;
    switch (family_at(f).place) {
      case home::layers: return false;
      case home::first_stage: return k == 0;
      case home::last_stage: return k == last;
      case home::last_layer: return k == pipeline_.last_layer_chunk();
      case home::prediction: return k == pipeline_.prediction_chunk() && family_at(f).extent[axis_of::layer] > 0;
      case home::embedding: break;
    }
    return k == 0 || (embedding_copies_ && ((model_.shape.predictions > 0 && k == pipeline_.prediction_chunk()) ||
                                            (k == last && !family_at(f).tied_name.empty())));
  }

  /// Members of a family that chunk k holds: its global layers pulled back; pinned families have the one member 0.
  constexpr interval chunk_members(int f, index_t k) const {
    if (family_at(f).place == home::layers) return model_.layers_of(f).members_within(pipeline_.chunk(k));
    return pinned_to(f, k) ? interval{0, 1} : interval{};
  }

  /// The chunks that may hold members of `range`, as an interval of chunk numbers (some of them may hold none); of
  /// copies the first.
  constexpr interval chunks_of_members(int f, interval range) const {
    const index_t last = pipeline_.chunks() - 1;
    index_t only = 0;
    switch (family_at(f).place) {
      case home::first_stage:
      case home::embedding: return {0, 1};
      case home::last_stage: return {last, last + 1};
      case home::last_layer: only = pipeline_.last_layer_chunk(); return {only, only + 1};
      case home::prediction: only = pipeline_.prediction_chunk(); return {only, only + 1};
      case home::layers: break;
    }
    const layer_set& layers = model_.layers_of(f);
    const index_t first = pipeline_.chunk_of(layers.layer_of(range.begin)), highest = layers.layer_of(range.end - 1);
    return {first, (highest < pipeline_.point(first + 1) ? first : pipeline_.chunk_of(highest)) + 1};
  }

  /// Calls sink(stage) with the stages that have a copy of a family that chunk k has, ascending: that of the chunk; of
  /// embeddings all that have one.
  template <typename Sink>
  constexpr void each_stage_holding(int f, index_t k, Sink&& sink) const {
    if (family_at(f).place != home::embedding || !embedding_copies_ || degrees_.pp == 1)
      return sink(pipeline_.stage_of_chunk(k));
    const index_t middle = model_.shape.predictions > 0 ? pipeline_.stage_of_chunk(pipeline_.prediction_chunk()) : 0;
    sink(index_t{0});
    if (middle != 0) sink(middle);
    const bool tied = !family_at(f).tied_name.empty();  // then no layout has its prediction layers in the last stage
    if (tied) sink(degrees_.pp - 1);
  }

  /// Whether the rank calls a tied embedding by its other name: it is on the last of several stages.
  constexpr bool holds_tied_copy(int f, rank_t rank) const {
    return !family_at(f).tied_name.empty() && degrees_.pp > 1 && stage_of(rank) == degrees_.pp - 1;
  }
  /// Whether an embedding has buckets of its own: it is shared between stages.
  constexpr bool shared_between_stages(int f) const {
    return family_at(f).place == home::embedding && embedding_copies_ && degrees_.pp > 1;
  }

  /// The names, a pattern, by which a rank knows a piece of a family.
  constexpr std::string_view names_on(int f, rank_t rank) const {
    return holds_tied_copy(f, rank) ? family_at(f).tied_name : family_at(f).name;
  }
  /// The name by which a rank knows one tensor.
  std::string tensor_on(const tensor_id& t, rank_t rank) const {
    return holds_tied_copy(t.family, rank) ? std::string(family_at(t.family).tied_name) : model_.tensor(t);
  }

  /// The family's global box of (members of chunk k, expert part e, tensor part t), of a family in one piece.
  constexpr family_box shard_box(int f, index_t k, index_t e, index_t t) const {
    return shard_box(f, 0, chunk_members(f, k), e, t);
  }
  /// The global box of piece p, given members, of expert part e and tensor part t; of a family that is cut evenly.
  constexpr family_box shard_box(int f, int p, interval members, index_t e, index_t t) const {
    const family& tensors = family_at(f);
    const tensor_cut& cut = cut_of(f);
    family_box b{{members, expert_part(f, e), {0, tensors.extent[2]}, {0, tensors.extent[3]}, {0, tensors.extent[4]}}};
    if (pieces(f) > 1) {
      const box<3> piece = piece_box(f, p);
      for (int i = 0; i < 3; ++i) b.dim[2 + i] = piece.dim[i];
    }
    if (cut.inner > 1) b.dim[cut.axis] = part_of(b.dim[cut.axis], cut.outer == 1 ? t : t % cut.inner, cut.inner);
    if (cut.outer > 1) b.dim[axis_of::part] = part_of(b.dim[axis_of::part], t / cut.inner, cut.outer);
    return b;
  }

  /// Elements of one local tensor: the tensor axis divided.
  constexpr index_t local_elements(int f) const { return family_at(f).tensor_elements() / tensor_parts(f); }

  /// The mesh among whose ranks a family's sharded states are cut: experts have their own iff the model has experts and
  /// rows are cut, ep > 1 or etp != tp.
  constexpr mesh_kind shard_kind(int f) const {
    return family_at(f).mesh == mesh_kind::expert && model_.shape.experts > 0 &&
                   (degrees_.shard == shard_by::rows || degrees_.expert_buffers())
               ? mesh_kind::expert
               : mesh_kind::dense;
  }
  /// Ranks of a sharding group: dp cp, or edp.
  constexpr index_t sharding_group(mesh_kind kind) const {
    const mesh& m = mesh_for(kind);
    return kind == mesh_kind::dense ? m.along(mesh_axis::middle) * m.along(mesh_axis::data) : m.along(mesh_axis::data);
  }
  /// Parts that a group cuts a state into: its ranks over the instances, each of which shards alone.
  constexpr index_t shards(mesh_kind kind) const { return shards_[static_cast<int>(kind)]; }

  /// The shard that a rank has: its index in its sharding group mod shards(kind). The index is edp, or counts cp and
  /// dp, the one first in the order fastest.
  constexpr index_t shard_index(mesh_kind kind, rank_t rank) const {
    const mesh& m = mesh_for(kind);
    index_t index = m.coordinate(mesh_axis::data, rank);
    if (kind == mesh_kind::dense) {
      const index_t middle = m.coordinate(mesh_axis::middle, rank);
      index = m.at[mesh_axis::middle] < m.at[mesh_axis::data] ? middle + m.along(mesh_axis::middle) * index
                                                              : index + m.along(mesh_axis::data) * middle;
    }
    return degrees_.instances == 1 ? index : index % shards(kind);
  }

 private:
  /// Part i of `parts` equal ones of an interval.
  static constexpr interval part_of(interval all, index_t i, index_t parts) {
    return {all.begin + (all.end - all.begin) / parts * i, all.begin + (all.end - all.begin) / parts * (i + 1)};
  }

  /// Whether each piece of a family, and its experts, are cut into equal parts, and by cut_of where chunk() cuts them.
  constexpr bool divides(int f) const {
    const family& tensors = family_at(f);
    if (tensors.extent[axis_of::expert] % expert_parts(f) != 0) return false;
    const index_t degree = tensor_parts(f);
    for (int p = 0; degree > 1 && p < pieces(f); ++p) {
      const box<3> piece = piece_box(f, p);
      const index_t parts = piece.dim[0].size(), along = piece.dim[tensors.cut_axis() - axis_of::part].size();
      const bool by_parts = tensors.tensor_axis == axis_of::part && !tensors.stacked();
      if (by_parts && parts == tensors.extent[axis_of::part]) {
        if (parts % degree != 0 && (degree % parts != 0 || along % (degree / parts) != 0)) return false;
      } else if (along % degree != 0 || by_parts || (tensors.cuts_over_parts() && parts > 1)) {
        return false;
      }
    }
    return true;
  }

  constexpr tensor_cut cut_by_tensor_parallelism(int f) const {
    const family& tensors = family_at(f);
    const index_t degree = tensor_parts(f);
    if (degree == 1) return {};
    if (tensors.tensor_axis != axis_of::part) return {1, degree, tensors.tensor_axis};
    const index_t parts = tensors.extent[axis_of::part];
    if (degree <= parts) return {degree, 1, tensors.inner_axis()};
    return {parts, degree / parts, tensors.inner_axis()};
  }

  /// Families of prediction layers that are not of this side's kind have no member. Their kind is that of the last
  /// decoder layer; a mixture of experts where the model has experts and their chunk has no decoder layer.
  constexpr void keep_predictions_of_one_kind() {
    const bool with_experts = model_.shape.experts > 0 && pipeline_.chunk(pipeline_.prediction_chunk()).empty();
    int set_of_experts = -1;
    for (int f = 0; with_experts && f < model_.families; ++f)
      if (const family& of = model_[f]; of.mesh == mesh_kind::expert && of.place == home::prediction)
        set_of_experts = of.layers;
    for (int f = 0; f < model_.families; ++f)
      if (family& of = model_.family_at[f]; of.place == home::prediction && !is_of_kind(of, set_of_experts))
        of.extent[axis_of::layer] = 0;
  }
  /// Whether a family is of a layer with experts, their set given, or else of the last decoder layer's kind. Where no
  /// decoder layer has experts, sets do not tell which families both kinds have: those of the first set, to which
  /// make_transformer gives every layer.
  constexpr bool is_of_kind(const family& of, int set_of_experts) const {
    if (set_of_experts < 0) return model_.sets[of.layers].contains(model_.shape.layers - 1);
    const layer_set& theirs = model_.sets[set_of_experts];
    if (theirs.size() == 0) return of.layers == set_of_experts || of.layers == 0;
    return model_.sets[of.layers].contains(theirs.layer_of(theirs.size() - 1));
  }

  reshard::model model_;
  reshard::degrees degrees_;
  mesh dense_;
  mesh expert_;
  pipeline_placement pipeline_;
  index_t stage_ranks_;
  index_t stage_pitch_;         // ranks from a rank to the one in the next stage
  index_t shards_[2] = {1, 1};  // by mesh kind
  tensor_cut cuts_[max_families] = {};
  bool uneven_[max_families] = {};
  bool embedding_copies_;
};

}  // namespace reshard
