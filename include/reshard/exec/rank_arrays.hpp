// SPDX-License-Identifier: Apache-2.0
// The arrays that a rank keeps in memory under a holding, in order, and the binding that they make: one array per tensor and
// state, or, where ZeRO shards a state, one per buffer: this rank's slices of its buckets, one after the other with their padding.
// Builds on: space/holding_of.hpp, exec/binding.hpp.
#pragma once

#include <reshard/exec/binding.hpp>
#include <reshard/space/holding_of.hpp>

namespace reshard {

/// One array: `box` of a tensor, or (where `sharded`) a rank's slices of the buffer of a pipeline chunk.
struct rank_array {
  tensor_box box;             // of a tensor; of a buffer only the state counts
  bool sharded = false;
  index_t chunk = 0;          // of a buffer: pipeline chunk and mesh
  mesh_kind buffer = mesh_kind::dense;
  index_t elements = 0;

  bytes_t bytes() const { return elements * box.element_bytes(); }
};

namespace detail {

template <Holding H>
bool is_sharded(const H& h, role r) {
  if constexpr (requires { h.buffers(); }) return h.sharded(r);
  else return false;
}

/// Calls sink(slice, bucket) with the rank's slice of every bucket of one buffer.
template <typename Sink>
void each_slice(const computed_holding& h, rank_t rank, index_t chunk, mesh_kind kind, Sink&& sink) {
  for (index_t b = 0; b < h.buffers().bucket_count(chunk, kind); ++b) sink(h.slice(chunk, kind, b, h.shard_index(kind, rank)), b);
}

}  // namespace detail

/// "exp_avg of decoder.layers.3.mlp.linear_fc2.weight", or "exp_avg buffer of chunk 0, experts": another one for every array of
/// a rank.
template <Holding H>
std::string array_name(const H& h, const rank_array& a) {
  std::string name(adam_states[a.box.state].name);
  if (!a.sharded) return name + " of " + tensor_name(h, a.box.family, a.box.member, a.box.expert);
  return name + " buffer of chunk " + std::to_string(a.chunk) + (a.buffer == mesh_kind::expert ? ", experts" : "");
}

/// Calls sink(rank_array) with every array of a rank, of the wanted states that the holding has, state by state.
template <Holding H, typename Sink>
void each_array(const H& h, rank_t rank, state_set wanted, Sink&& sink) {
  if (rank < 0) return;
  wanted = wanted & h.states();
  for (int state = 0; state < state_count; ++state) {
    if (!wanted.contains(state)) continue;
    const role r = adam_states[state].placed_as;
    if (detail::is_sharded(h, r)) {
      if constexpr (requires { h.buffers(); }) {
        const pipeline_placement& pipeline = h.where().pipeline();
        for (index_t k = rank / h.where().stage_ranks(); k < pipeline.chunks(); k += pipeline.parts())
          for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
            rank_array a;
            a.box.state = state;
            a.sharded = true;
            a.chunk = k;
            a.buffer = kind;
            detail::each_slice(h, rank, k, kind, [&](interval slice, index_t) { a.elements += slice.size(); });
            if (a.elements > 0) sink(static_cast<const rank_array&>(a));
          }
      }
      continue;
    }
    h.held(rank, r, [&](int f, const family_box& b) {
      for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
        for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert) {
          rank_array a;
          a.box = {state, f, member, expert, {{b.dim[2], b.dim[3], b.dim[4]}}};
          a.elements = a.box.where.volume();
          sink(static_cast<const rank_array&>(a));
        }
    });
  }
}

namespace detail {

/// Binds the parameters that one slice of a buffer holds; `at` is the slice's memory.
inline void bind_slice(binding& out, const computed_holding& h, rank_t rank, const rank_array& array, index_t bucket, interval slice, memory at) {
  const space& s = h.where();
  const bytes_t width = array.box.element_bytes();
  for (int f = 0; f < s.families(); ++f) {
    if (s.buffer_kind(f) != array.buffer) continue;
    const mesh& m = s.mesh_for(s.family_at(f).mesh);
    const index_t t = rank % m.extent[mesh_axis::tensor];
    const index_t e = s.family_at(f).mesh == mesh_kind::dense ? 0 : rank / m.extent[mesh_axis::tensor] % m.extent[mesh_axis::middle];
    const family_box shard = s.shard_box(f, array.chunk, e, t);
    for (const buffer_entry& entry : h.buffers().entries(array.chunk, array.buffer, f)) {
      if (entry.bucket != bucket) continue;
      for (index_t i = entry.outer.first_ending_after(slice.begin); i < entry.outer.count_beginning_before(slice.end); ++i) {
        const item_row parameters = entry.inner(i);
        for (index_t j = parameters.first_ending_after(slice.begin); j < parameters.count_beginning_before(slice.end); ++j) {
          const interval whole = parameters.item(j), mine = intersect(whole, slice);
          const tensor_box local{array.box.state, f, entry.member_last - i, entry.expert_last - j + shard.dim[1].begin,
                                 {{shard.dim[2], shard.dim[3], shard.dim[4]}}};
          out.add_flat(local, translate(mine, -whole.begin), {at.data + (mine.begin - slice.begin) * width, mine.size() * width});
        }
      }
    }
  }
}

}  // namespace detail

/// Binds one array of a rank to its memory; refused where that is not exactly the array's.
template <Holding H>
void bind_array(binding& out, const H& h, rank_t rank, const rank_array& array, memory at) {
  if (!array.sharded) return out.add(array.box, at);
  if constexpr (requires { h.buffers(); }) {
    const state& of = adam_states[array.box.state];
    detail::require_memory(at, of.type, array.elements, array.elements, [&] {
      return out.who() + ": " + std::string(of.name) + " of the optimizer buffer of pipeline chunk " +
             std::to_string(array.chunk) + (array.buffer == mesh_kind::expert ? ", experts," : "");
    });
    detail::each_slice(h, rank, array.chunk, array.buffer, [&](interval slice, index_t bucket) {
      const bytes_t bytes = slice.size() * width(of.type);
      detail::bind_slice(out, h, rank, array, bucket, slice, {at.data, bytes});
      at.data += bytes;
    });
  }
}

/// The binding of a rank whose arrays lie where `memory_of(rank_array)` says: what a trainer writes. Rank -1, none, has nothing.
template <Layout L, typename MemoryOf>
binding bind_rank(const L& layout, rank_t rank, std::string who, MemoryOf&& memory_of, state_set wanted = all_states) {
  const auto& h = holding_of(layout, wanted);
  binding result(std::move(who), names_of(h));
  each_array(h, rank, wanted, [&](const rank_array& a) { bind_array(result, h, rank, a, memory_of(a)); });
  result.seal();
  return result;
}

}  // namespace reshard
