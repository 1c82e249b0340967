// SPDX-License-Identifier: Apache-2.0
// All optimizer buffers of a configuration: per pipeline chunk a dense one and, where experts have their own, an expert
// one. Built once from the space; its size is that of the run-length lists, not of the parameters.
// Builds on: space/space.hpp, parallelism/optimizer_buffer.hpp.
#pragma once

#include <vector>

#include <reshard/parallelism/optimizer_buffer.hpp>
#include <reshard/space/space.hpp>

namespace reshard {

/// The buckets and the entries of every optimizer buffer of a space, by pipeline chunk and mesh kind.
class optimizer_buffers {
 public:
  constexpr optimizer_buffers() = default;
  constexpr explicit optimizer_buffers(const space& s) : families_(s.families()) {
    const index_t chunks = s.pipeline().chunks();
    std::vector<buffer_entry> written;
    for (index_t k = 0; k < chunks; ++k)
      for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
        first_bucket_.push_back(static_cast<index_t>(buckets_.size()));
        written.clear();
        write(s, k, kind, written);
        sort_by_family(written);
      }
    first_bucket_.push_back(static_cast<index_t>(buckets_.size()));
  }

  struct entry_range {
    const buffer_entry* first;
    const buffer_entry* last;
    constexpr const buffer_entry* begin() const { return first; }
    constexpr const buffer_entry* end() const { return last; }
  };

  /// The entries of a family in the buffer of chunk k, in buffer order.
  constexpr entry_range entries(index_t k, mesh_kind kind, int f) const {
    const std::size_t at = first_of_family(k, kind) + static_cast<std::size_t>(f);
    return {entries_.data() + first_[at], entries_.data() + first_[at + 1]};
  }

  /// A bucket's interval of the buffer, padding included.
  constexpr interval bucket(index_t k, mesh_kind kind, index_t b) const {
    return buckets_[static_cast<std::size_t>(first_bucket_[buffer(k, kind)] + b)];
  }
  constexpr index_t bucket_count(index_t k, mesh_kind kind) const {
    return first_bucket_[buffer(k, kind) + 1] - first_bucket_[buffer(k, kind)];
  }

  /// Elements of a buffer, padding included.
  constexpr index_t elements(index_t k, mesh_kind kind) const {
    const index_t count = bucket_count(k, kind);
    return count == 0 ? 0 : bucket(k, kind, count - 1).end;
  }

 private:
  static constexpr std::size_t buffer(index_t k, mesh_kind kind) {
    return static_cast<std::size_t>(2 * k + (kind == mesh_kind::expert ? 1 : 0));
  }
  constexpr std::size_t first_of_family(index_t k, mesh_kind kind) const {
    return buffer(k, kind) * static_cast<std::size_t>(families_ + 1);
  }

  /// Optimizer buffers have parameters alone.
  static constexpr bool in_buffer(const space& s, int f, mesh_kind kind) {
    return s.family_at(f).kind == tensor_kind::parameter && s.shard_kind(f) == kind;
  }

  /// Where a pinned family comes among the parameters of a chunk.
  enum class position { before_layers, after_layers, behind_all };
  static constexpr position position_of(const space& s, int f, index_t k) {
    const family& tensors = s.family_at(f);
    if (tensors.place == home::first_stage) return position::before_layers;
    if (tensors.place != home::embedding) return position::after_layers;
    const bool tied_copy = s.shared_between_stages(f) && !tensors.tied_name.empty() && k == s.pipeline().chunks() - 1;
    return tied_copy ? position::behind_all : position::before_layers;
  }

  /// Families of layers in a buffer of `kind`, in reverse order, for one layer: calls sink(family, member).
  template <typename Sink>
  static constexpr void reversed_layer(const space& s, mesh_kind kind, index_t layer, Sink&& sink) {
    for (int f = s.families() - 1; f >= 0; --f) {
      if (s.family_at(f).place != home::layers || !in_buffer(s, f, kind)) continue;
      const layer_set& layers = s.model().layers_of(f);
      if (layers.contains(layer)) sink(f, layers.members_below(layer));
    }
  }

  /// The layers below `past`, down to `first`, that have the families of layer past - 1.
  static constexpr index_t alike_below(const space& s, index_t first, index_t past) {
    for (const layer_set& layers : s.model().sets)
      for (index_t members = layers.members_within({first, past}).size(); members != 0 && members != past - first;
           members = layers.members_within({first, past}).size())
        ++first;
    return past - first;
  }

  constexpr void write(const space& s, index_t k, mesh_kind kind, std::vector<buffer_entry>& written) {
    if (kind == mesh_kind::expert && !(s.degrees().expert_buffers() && s.model().shape.experts > 0)) return;
    const index_t shards = s.shards(kind), bandwidth = s.degrees().busbw != 0 ? bus_alignment : 1;
    buffer_writer out(lcm(shards, bandwidth), k == 0 ? s.degrees().bucket : 0, written, buckets_);
    const auto pinned = [&](position where) {
      for (int f = s.families() - 1; f >= 0; --f) {
        if (!in_buffer(s, f, kind) || !s.pinned_to(f, k) || position_of(s, f, k) != where) continue;
        const index_t experts = s.expert_part(f, 0).size();
        if (s.shared_between_stages(f)) out.shared(f, s.local_elements(f));
        else out.parameters(f, 0, experts - 1, experts, s.local_elements(f));
      }
    };
    pinned(position::behind_all);
    pinned(position::after_layers);
    const interval layers = s.pipeline().chunk(k);
    for (index_t past = layers.end; past > layers.begin;) {
      index_t alike = alike_below(s, layers.begin, past);
      while (alike > 0) {
        index_t length = 0;
        reversed_layer(s, kind, past - 1, [&](int f, index_t) {
          const index_t experts = s.expert_part(f, 0).size();
          length = round_up(length, parameter_alignment) +
                   (experts - 1) * round_up(s.local_elements(f), parameter_alignment) + s.local_elements(f);
        });
        if (length == 0) {  // no such family in these layers
          past -= alike;
          break;
        }
        const index_t whole = out.layers_without_closing(length, alike);
        const std::size_t pattern = out.written();
        const index_t begin = out.next_begin();
        reversed_layer(s, kind, past - 1, [&](int f, index_t member) {
          const index_t experts = s.expert_part(f, 0).size();
          out.parameters(f, member, experts - 1, experts, s.local_elements(f));
        });
        if (whole > 1) out.repeat(pattern, begin, whole);
        past -= greatest(whole, 1);
        alike -= greatest(whole, 1);
      }
    }
    pinned(position::before_layers);
    out.finish();
  }

  /// Appends a buffer's entries, stably by family, and where each family's begin.
  constexpr void sort_by_family(const std::vector<buffer_entry>& written) {
    for (int f = 0; f < families_; ++f) {
      first_.push_back(static_cast<index_t>(entries_.size()));
      for (std::size_t e = 0; e < written.size(); ++e)
        if (written[e].family == f) entries_.push_back(written[e]);
    }
    first_.push_back(static_cast<index_t>(entries_.size()));
  }

  int families_ = 0;
  std::vector<buffer_entry> entries_;
  std::vector<interval> buckets_;
  std::vector<index_t> first_;         // per buffer and family: its first entry
  std::vector<index_t> first_bucket_;  // per buffer
};

}  // namespace reshard
