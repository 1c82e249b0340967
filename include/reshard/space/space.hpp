// SPDX-License-Identifier: Apache-2.0
// The Virtual Parameter Space of one configuration: a model, its degrees, and the arithmetic that says where a family's
// array is cut. A value; constexpr throughout. What each rank holds is read from it by space/computed_holding.hpp.
// Builds on: parallelism/legal.hpp, mesh.hpp, pipeline.hpp.
#pragma once

#include <reshard/parallelism/legal.hpp>
#include <reshard/parallelism/mesh.hpp>
#include <reshard/parallelism/pipeline.hpp>

namespace reshard {

/// space(model, config<tp<4>, pp<8>>{}): refuses what the model does not admit, at compile time and at run time.
class space {
 public:
  constexpr space(const reshard::model& m, const reshard::degrees& d)
      : model_(m), degrees_(require_legal(m, d)), dense_(mesh_of(d, mesh_kind::dense)),
        expert_(mesh_of(d, m.shape.experts > 0 ? mesh_kind::expert : mesh_kind::dense)), pipeline_(m.shape.layers, d),
        stage_ranks_(d.stage_ranks()) {}

  constexpr const reshard::model& model() const { return model_; }
  constexpr const reshard::degrees& degrees() const { return degrees_; }
  constexpr rank_t ranks() const { return stage_ranks_ * degrees_.pp; }
  constexpr index_t stage_ranks() const { return stage_ranks_; }  // ranks of one pipeline stage
  constexpr int families() const { return model_.families; }
  constexpr const family& family_at(int f) const { return model_.family_at[f]; }
  constexpr const pipeline_placement& pipeline() const { return pipeline_; }

  constexpr const mesh& mesh_for(mesh_kind kind) const { return kind == mesh_kind::dense ? dense_ : expert_; }
  constexpr const mesh& mesh_for(int f) const { return mesh_for(family_at(f).mesh); }

  /// Parts that tensor parallelism cuts the family's tensor axis into; 1 where it is whole.
  constexpr index_t tensor_parts(int f) const {
    return family_at(f).tensor_axis == axis_of::none ? 1 : mesh_for(f).extent[mesh_axis::tensor];
  }
  /// Parts that expert parallelism cuts the family's experts into; 1 for dense families.
  constexpr index_t expert_parts(int f) const {
    return family_at(f).mesh == mesh_kind::dense ? 1 : expert_.extent[mesh_axis::middle];
  }
  constexpr interval expert_part(int f, index_t e) const {
    const index_t experts = family_at(f).extent[axis_of::expert];
    return experts == 1 ? interval{0, 1} : equal_part(experts, e, expert_parts(f));
  }

  /// Members of a family that chunk k holds: its global layers pulled back; pinned families have the one member 0.
  constexpr interval chunk_members(int f, index_t k) const {
    const family& tensors = family_at(f);
    if (tensors.place == home::layers) return model_.layers_of(f).members_within(pipeline_.chunk(k));
    const bool first = k == 0, last = k == pipeline_.chunks() - 1;
    const bool held = (first && tensors.place != home::last_stage) || (last && tensors.place != home::first_stage);
    return held ? interval{0, 1} : interval{};
  }

  /// The chunks that may hold members of `range`, as an interval of chunk numbers (some of them may hold none).
  constexpr interval chunks_of_members(int f, interval range) const {
    const family& tensors = family_at(f);
    const index_t last = pipeline_.chunks() - 1;
    switch (tensors.place) {
      case home::first_stage: return {0, 1};
      case home::last_stage: return {last, last + 1};
      case home::both_ends: return {0, 1};  // the last stage's copy is a second holder of the same boxes
      case home::layers: break;
    }
    const layer_set& layers = model_.layers_of(f);
    const index_t first = pipeline_.chunk_of(layers.layer_of(range.begin)), highest = layers.layer_of(range.end - 1);
    return {first, (highest < pipeline_.point(first + 1) ? first : pipeline_.chunk_of(highest)) + 1};
  }

  /// Stages that hold what chunk k holds of a family: one, or both ends of the pipeline for tied embeddings.
  constexpr progression stages_holding(int f, index_t k) const {
    if (family_at(f).place == home::both_ends && degrees_.pp > 1) return {0, 2, degrees_.pp - 1};
    return {pipeline_.stage_of_chunk(k), 1};
  }

  /// Whether the rank calls a tied embedding by its other name: it is on the last of several stages.
  constexpr bool holds_tied_copy(int f, rank_t rank) const {
    return family_at(f).place == home::both_ends && degrees_.pp > 1 && rank / degrees_.stage_ranks() == degrees_.pp - 1;
  }

  /// The names, a pattern, by which a rank knows a family.
  constexpr std::string_view names_on(int f, rank_t rank) const {
    return holds_tied_copy(f, rank) ? family_at(f).tied_name : family_at(f).name;
  }
  /// The name by which a rank knows one tensor.
  std::string tensor_on(const tensor_id& t, rank_t rank) const {
    return holds_tied_copy(t.family, rank) ? std::string(family_at(t.family).tied_name) : model_.tensor(t);
  }

  /// The family's global box of (members of chunk k, expert part e, tensor part t).
  constexpr family_box shard_box(int f, index_t k, index_t e, index_t t) const {
    return shard_box(f, chunk_members(f, k), e, t);
  }
  constexpr family_box shard_box(int f, interval members, index_t e, index_t t) const {
    const family& tensors = family_at(f);
    family_box b{{members, expert_part(f, e), {0, tensors.extent[2]}, {0, tensors.extent[3]}, {0, tensors.extent[4]}}};
    if (const int cut = tensors.tensor_axis; cut != axis_of::none)
      b.dim[cut] = equal_part(tensors.extent[cut], t, mesh_for(tensors.mesh).extent[mesh_axis::tensor]);
    return b;
  }

  /// Elements of one local tensor: the tensor axis divided.
  constexpr index_t local_elements(int f) const { return family_at(f).tensor_elements() / tensor_parts(f); }

  /// The mesh whose optimizer buffers hold the family: experts have their own iff ep > 1 or etp != tp.
  constexpr mesh_kind buffer_kind(int f) const {
    return family_at(f).mesh == mesh_kind::expert && degrees_.expert_buffers() ? mesh_kind::expert : mesh_kind::dense;
  }
  /// Ranks among which a buffer is cut: dp cp with index cp + CP dp, or edp.
  constexpr index_t sharding_group(mesh_kind kind) const {
    const mesh& m = mesh_for(kind);
    return kind == mesh_kind::dense ? m.extent[mesh_axis::middle] * m.extent[mesh_axis::data]
                                    : m.extent[mesh_axis::data];
  }

 private:
  reshard::model model_;
  reshard::degrees degrees_;
  mesh dense_;
  mesh expert_;
  pipeline_placement pipeline_;
  index_t stage_ranks_;
};

}  // namespace reshard
