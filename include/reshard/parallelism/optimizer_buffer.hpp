// SPDX-License-Identifier: Apache-2.0
// ZeRO-1's flat buffers, exact to the padding, as a run-length list: parameters that repeat at a pitch (layers of one
// pattern, experts of one size) are one entry, so the cost does not grow with layers or experts.
// Rules (Megatron-core DistributedOptimizer): parameters in reverse of the model's order, counted in local elements;
// each begins at a multiple of 64; a bucket closes after the parameter that brings its length to `bucket`; a shared
// parameter has a bucket of its own; a bucket's end is padded to a multiple of lcm(n, 128), n the size of the sharding
// group.
// Builds on: algebra/progression.hpp.
#pragma once

#include <vector>

#include <reshard/algebra/progression.hpp>

namespace reshard {

inline constexpr index_t parameter_alignment = 64;          // elements
inline constexpr index_t bucket_alignment = 128;            // elements, times what the group's size adds
inline constexpr index_t bus_alignment = index_t{1} << 16;  // elements, where buckets are padded for bus bandwidth
inline constexpr index_t most_buckets = index_t{1} << 20;   // of one buffer: a list of them is kept

/// Equal parameters of one family: member `member_last - i`, expert `expert_last - j` begins at
/// outer.item(i).begin + j inner_pitch, i < outer.count, j < experts; descending, as the buffer is in reverse order.
struct buffer_entry {
  int family = 0;
  index_t member_last = 0;
  index_t expert_last = 0;
  item_row outer;  // one item per member, spanning its experts
  index_t experts = 1;
  index_t inner_pitch = 1;
  index_t elements = 0;  // of one parameter, local
  index_t bucket = 0;    // index into the buffer's buckets

  constexpr item_row inner(index_t i) const { return {outer.item(i).begin, experts, inner_pitch, elements}; }
};

/// Writes one buffer: calls go in buffer order, finish() last. Entries and buckets are appended to the given vectors.
class buffer_writer {
 public:
  constexpr buffer_writer(index_t group, index_t bucket_elements, std::vector<buffer_entry>& entries,
                          std::vector<interval>& buckets)
      : padding_(lcm(group, bucket_alignment)), limit_(bucket_elements), entries_(&entries), buckets_(&buckets),
        first_bucket_(static_cast<index_t>(buckets.size())) {}

  /// One parameter that a copy on another stage shares: a bucket of its own.
  constexpr void shared(int family, index_t elements) {
    if (cursor_ > open_) close(round_up(cursor_, parameter_alignment));
    place(family, 0, 0, 1, elements);
    close(cursor_);
  }

  /// `count` parameters of a family, experts expert_last downwards, of one member.
  constexpr void parameters(int family, index_t member, index_t expert_last, index_t count, index_t elements) {
    const index_t pitch = round_up(elements, parameter_alignment);
    while (count > 0) {
      const index_t begin = round_up(cursor_, parameter_alignment);
      index_t fit = count;  // parameters up to and with the one that fills the bucket
      bool fills = false;
      if (limit_ > 0) {
        const index_t missing = limit_ - (begin + elements - open_);  // after the first of them
        const index_t needed = missing <= 0 ? 1 : checked_add(ceil_divide(missing, pitch), 1);
        fills = needed <= count;
        fit = least(needed, count);
      }
      place(family, member, expert_last, fit, elements);
      if (fills) close(cursor_);
      expert_last -= fit;
      count -= fit;
    }
  }

  /// How many whole layers of a pattern (its length from an aligned start to its last element) fit without filling the
  /// bucket.
  constexpr index_t layers_without_closing(index_t pattern_elements, index_t layers) const {
    if (limit_ == 0) return layers;
    const index_t room = limit_ - 1 - (round_up(cursor_, parameter_alignment) - open_) - pattern_elements;
    if (room < 0) return 0;
    return least(layers, room / round_up(pattern_elements, parameter_alignment) + 1);
  }

  /// `layers` repetitions of a pattern that began with entries_[first]: what the last calls wrote for one layer counts
  /// for all.
  constexpr void repeat(std::size_t first, index_t pattern_begin, index_t layers) {
    const index_t pitch = round_up(cursor_ - pattern_begin, parameter_alignment);
    for (std::size_t e = first; e < entries_->size(); ++e) {
      (*entries_)[e].outer.count = layers;
      (*entries_)[e].outer.pitch = pitch;
    }
    cursor_ = checked_add(cursor_, checked_multiply(layers - 1, pitch));
  }
  constexpr index_t next_begin() const { return round_up(cursor_, parameter_alignment); }
  constexpr std::size_t written() const { return entries_->size(); }

  constexpr void finish() {
    if (cursor_ > open_) close(cursor_);
  }

 private:
  constexpr void place(int family, index_t member, index_t expert_last, index_t count, index_t elements) {
    const index_t begin = round_up(cursor_, parameter_alignment);
    const index_t pitch = round_up(elements, parameter_alignment);
    const index_t span = checked_add(checked_multiply(count - 1, pitch), elements);
    entries_->push_back({.family = family,
                         .member_last = member,
                         .expert_last = expert_last,
                         .outer = {begin, 1, span, span},
                         .experts = count,
                         .inner_pitch = pitch,
                         .elements = elements,
                         .bucket = static_cast<index_t>(buckets_->size()) - first_bucket_});
    cursor_ = checked_add(begin, span);
  }
  constexpr void close(index_t end) {
    if (static_cast<index_t>(buckets_->size()) - first_bucket_ == most_buckets)
      refuse("bucket=", limit_, " cuts an optimizer buffer into more than ", most_buckets,
             " buckets; give a larger one");
    const index_t padded = round_up(end, padding_);
    buckets_->push_back({open_, padded});
    open_ = cursor_ = padded;
  }

  index_t padding_;
  index_t limit_;
  std::vector<buffer_entry>* entries_;
  std::vector<interval>* buckets_;
  index_t first_bucket_;
  index_t open_ = 0;    // where the open bucket begins
  index_t cursor_ = 0;  // past the last element placed
};

}  // namespace reshard
