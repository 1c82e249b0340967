// SPDX-License-Identifier: Apache-2.0
// The arrays that a rank keeps in memory under a holding, in order, and the binding that they make: one array per
// tensor and state, or, where a state lies in optimizer buffers, one per buffer of what the rank keeps of it.
// Builds on: space/any_holding.hpp, space/buffer_slices.hpp, space/holding_of.hpp, memory/binding.hpp.
#pragma once

#include <optional>

#include <reshard/memory/binding.hpp>
#include <reshard/space/any_holding.hpp>
#include <reshard/space/buffer_slices.hpp>
#include <reshard/space/holding_of.hpp>

namespace reshard {

namespace detail {
/// What lays a holding's states in buffers: itself, or the computed layout that it holds; null where nothing does.
template <Holding H>
const auto* buffers_behind(const H& h) {
  if constexpr (BufferedHolding<H>) return &h;
  else return known_as<computed_holding>(h);
}
}  // namespace detail

/// One array: `box` of a tensor, or, where `sharded`, a rank's slices of an optimizer buffer; of `box` only the state
/// counts then. Elements of element_bytes each.
struct rank_array {
  tensor_box box = {};
  bool sharded = false;
  buffer_slices buffer = {};
  index_t elements = 0;
  bytes_t element_bytes = 0;

  bytes_t bytes() const { return elements * element_bytes; }
};

/// "exp_avg of decoder.layers.3.mlp.linear_fc2.weight", or "exp_avg buffer of chunk 0, experts": another one for every
/// array of a rank.
template <Holding H>
std::string array_name(const H& h, const rank_array& a, const state_list& list = adam) {
  const std::string_view name = list[a.box.state].name;
  if (!a.sharded) return detail::text_of(name, " of ", tensor_name(h, a.box.tensor));
  return detail::text_of(name, " buffer of chunk ", a.buffer.chunk,
                         a.buffer.mesh == mesh_kind::expert ? ", experts" : "");
}

/// Calls sink(rank_array) with every array of a rank, of the wanted states that the holding has, state by state.
template <Holding H, typename Sink>
void each_array(const H& h, rank_t rank, const std::optional<state_set>& wanted, Sink&& sink) {
  if (rank < 0) return;
  const state_set asked = states_asked_of(h, wanted);
  for (const int state : asked) {
    const role r = asked.role_of(state);
    const bytes_t width = asked.width_of(state);
    if (const auto* const in_buffers = detail::buffers_behind(h); in_buffers != nullptr && in_buffers->buffered(r)) {
      each_buffer(*in_buffers, rank, [&](const buffer_slices& b) {
        sink(rank_array{{state, {}, {}}, true, b, b.elements, width});
      });
      continue;
    }
    each_held(h, rank, r, [&](int f, const family_box& b) {
      each_tensor(f, b, [&](const tensor_id& t, const reshard::box<3>& part) {
        sink(rank_array{{state, t, part}, false, {}, part.volume(), width});
      });
    });
  }
}

/// Binds one array of a rank to its memory; refused where that is not exactly the array's.
template <Holding H>
void bind_array(binding& out, const H& h, rank_t rank, const rank_array& array, memory at) {
  if (!array.sharded) return out.add(array.box, at);
  if (const auto* const in_buffers = detail::buffers_behind(h)) {
    const state kept = out.list()[array.box.state];
    const dtype holds = detail::require_memory(at, kept.type, array.elements, array.elements, [&] {
      return detail::text_of(out.who(), ": ", kept.name, " of the optimizer buffer of pipeline chunk ",
                             array.buffer.chunk, array.buffer.mesh == mesh_kind::expert ? ", experts," : "");
    });
    const bytes_t bytes = width(holds);
    each_slice_part(*in_buffers, rank, array.buffer, [&](const slice_part& p) {
      const memory part(at.data + p.begin * bytes, p.range.size() * bytes);
      out.add_flat({array.box.state, p.tensor, p.local}, p.range, part.as(holds));
    });
  } else {
    refuse(out.who(), ": an array of an optimizer buffer, and this layout has no buffers");
  }
}

/// The binding of a rank whose arrays lie where `memory_of(rank_array)` says: what a trainer writes. Rank -1, none, has
/// nothing. The list names the states; all of it are wanted, of those that the layout has, where no others are.
template <Layout L, typename MemoryOf>
binding bind_rank(const L& layout, rank_t rank, std::string who, MemoryOf&& memory_of,
                  const std::optional<state_set>& wanted = {}, const state_list& list = adam) {
  const auto& h = holding_of(layout, wanted, list);
  binding result(std::move(who), names_of(h), list);
  each_array(h, rank, wanted, [&](const rank_array& a) { bind_array(result, h, rank, a, memory_of(a)); });
  result.seal();
  return result;
}

}  // namespace reshard
