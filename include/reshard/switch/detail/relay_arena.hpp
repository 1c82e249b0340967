// SPDX-License-Identifier: Apache-2.0
// What a device passes on lies in an arena of the library's pages while it does: committed by the slot that brings it,
// given back by the slot of its last reader. A device that only passes bytes on has nothing bound for them.
// Builds on: memory/page_stages.hpp, memory/pages.hpp, schedule/staged_plan.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/page_stages.hpp>
#include <reshard/memory/pages.hpp>
#include <reshard/schedule/staged_plan.hpp>

namespace reshard {

namespace detail {

/// The streams of a list of what passes, by states: what a device receives of a stream it has from then on, whole.
class streams_of {
 public:
  streams_of() = default;
  template <typename Piece>
  explicit streams_of(const std::vector<Piece>& pieces) {
    for (const Piece& p : pieces)
      if (p.stream != 0) streams_.insert(key_of(p));
  }
  template <typename Piece>
  bool has(const Piece& p) const {
    return p.stream != 0 && streams_.count(key_of(p)) != 0;
  }

 private:
  template <typename Piece>
  static std::pair<std::uint32_t, std::uint64_t> key_of(const Piece& p) {
    return {p.states.bits(), p.stream};
  }
  std::set<std::pair<std::uint32_t, std::uint64_t>> streams_;
};

}  // namespace detail

/// Where a device keeps what it passes on, in a plan of two phases or more: every such piece has an address of its own,
/// one after the other in order of slots. It makes the two bindings that a transport is given: what the device sends,
/// from the old tensors, the new ones or here; and what it writes, the new tensors and this.
class relay_arena {
 public:
  relay_arena(const staged_plan& plan, const binding& old_tensors, const binding& new_tensors, const state_list& list,
              const tensor_names& names)
      : lag_(plan.lag), passed_("what device " + std::to_string(plan.device) + " passes on", names, list),
        sent_(old_tensors.who(), names, list), written_(new_tensors.who(), names, list) {
    bytes_t bytes = 0;
    each_passed(plan, [&](const bound_box& b) { bytes = after(bytes, b); });
    if (bytes > 0) {
      pages_.emplace(bytes);
      passed_.own(*pages_);
      written_.own(*pages_);
    }
    bytes = 0;
    each_passed(plan, [&](const bound_box& b) {
      bound_box placed = b;
      placed.data = pages_->data() + bytes;
      bytes = after(bytes, b);
      for (binding* const in : {&passed_, &sent_, &written_}) in->add(placed);
    });
    for (const bound_box& b : old_tensors.boxes()) sent_.add(b);
    const detail::streams_of going(plan.sends);
    for (const staged_piece& p : plan.receives)
      if (p.why == purpose::delivered && going.has(p))
        for (const int state : p.states)
          new_tensors.meet({state, p.tensor, p.where}, [&](const bound_box& part) { sent_.add(part); });
    for (const bound_box& b : new_tensors.boxes()) written_.add(b);
    for (const memory_block& block : new_tensors.blocks()) written_.own(block);
    sent_.lies_in(old_tensors.place()), written_.lies_in(new_tensors.place());
    for (binding* const in : {&passed_, &sent_, &written_}) in->seal();
    by_reader_.emplace(passed_, binding_side::source);
    for (const staged_piece& p : plan.sends)
      for (const int state : p.states)
        passed_.meet({state, p.tensor, p.where}, [&](const bound_box& b) { by_reader_->read(b, p.slot(lag_)); });
  }
  relay_arena(const relay_arena&) = delete;
  relay_arena& operator=(const relay_arena&) = delete;

  const binding& sent() const { return sent_; }
  const binding& written() const { return written_; }
  /// Its pages by the slot of their last reader.
  const page_stages& by_reader() const { return *by_reader_; }
  /// Gives such pages back.
  void release(const std::vector<block_span>& spans) const {
    for (const block_span& span : spans) passed_.blocks()[span.block].release(span.pages);
  }
  /// What the kernel holds of it.
  bytes_t resident_bytes() const { return pages_ ? pages_->resident_bytes() : 0; }
  /// Its pages, for who must keep them where messages into them are unfinished.
  std::optional<page_range> take_pages() { return std::exchange(pages_, std::nullopt); }

 private:
  /// Offsets at which 16 bytes can be copied at a time.
  static constexpr bytes_t alignment = 16;
  static bytes_t after(bytes_t at, const bound_box& b) {
    return checked_add(at, ceil_divide(b.bytes(), alignment) * alignment);
  }
  template <typename Sink>
  static void each_passed(const staged_plan& plan, Sink&& sink) {
    for (const staged_piece& p : plan.receives) {
      if (p.why != purpose::passed_on) continue;
      const index_t columns = p.where.dim[2].size();
      for (const int state : p.states)
        sink(bound_box{{state, p.tensor, p.where},
                       nullptr,
                       {columns * p.where.dim[1].size(), columns, 1},
                       p.states.width_of(state)});
    }
  }

  index_t lag_;
  std::optional<page_range> pages_;
  binding passed_, sent_, written_;
  std::optional<page_stages> by_reader_;
};

}  // namespace reshard
