// SPDX-License-Identifier: Apache-2.0
// Per granule of a binding (its pages, for short), the one stage that matters: the first that writes it, or the last
// that reads it. From that alone follow the pages committed at any time, their peak, and which go when.
// Builds on: memory/binding.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/memory/binding.hpp>

namespace reshard {

/// Granules of a block.
struct block_span {
  std::size_t block = 0;
  page_span pages;
};

namespace detail {

/// Calls sink(begin, bytes) with stretches of memory in which every `gap` bytes hold a byte of the box, and which hold
/// all of them.
inline void each_stretch(const bound_box& b, bytes_t gap, const sink<const std::byte*, bytes_t>& give) {
  struct loop {
    index_t count;
    bytes_t stride;
  } loops[3];
  int loop_count = 0;
  for (const int i : b.by_stride()) loops[loop_count++] = {b.where.dim[i].size(), b.stride[i] * b.element_bytes};
  bytes_t hull = b.element_bytes;
  int outer = 3;
  for (; outer > 0; --outer) {
    const loop& l = loops[outer - 1];
    if (l.count > 1 && l.stride - hull >= gap) break;
    hull += (l.count - 1) * l.stride;
  }
  index_t x[3] = {};
  while (true) {
    const std::byte* at = b.data;
    for (int i = 0; i < outer; ++i) at += x[i] * loops[i].stride;
    give(at, hull);
    int i = outer - 1;
    for (; i >= 0; --i) {
      if (++x[i] < loops[i].count) break;
      x[i] = 0;
    }
    if (i < 0) return;
  }
}

}  // namespace detail

/// Whether a switch reads the memory of a binding or writes it.
enum class binding_side { source, target };

/// The stage that matters for each page of a binding: the first that writes it, or the last that reads it.
class page_stages {
 public:
  /// No stage yet. The binding is sealed, and outlives this. Pages that hold other states than those that move stay,
  /// and pages of a target that are committed beforehand are there already: both count as memory outside. All states
  /// of the binding's list move where none are named.
  page_stages(const binding& of, binding_side which, const std::optional<state_set>& states = {}) : of_(&of) {
    const state_set& moving = states ? *states : of.list().all();
    for (const memory_block& block : of.blocks()) {
      first_.push_back(mark_.size());
      mark_.resize(mark_.size() + static_cast<std::size_t>(block.granules), unbound);
      if (block.granules > 1) gap_ = least(gap_, block.granule);
    }
    first_.push_back(mark_.size());
    for (const bound_box& b : of.boxes())
      if (moving.contains(b.state))
        outside_ +=
            each_run_of_pages(b, marks_sink::of([](marks pages) { std::fill(pages.begin(), pages.end(), untouched); }));
    const auto stay = marks_sink::of([this](marks pages) {
      const bytes_t granule = of_->blocks()[block_of(pages)].granule;
      for (mark& page : pages)
        if (page != unbound) page = unbound, outside_ += granule;
    });
    for (const bound_box& b : of.boxes())
      if (!moving.contains(b.state)) each_run_of_pages(b, stay);
    for (std::size_t block = 0; which == binding_side::target && block < of.blocks().size(); ++block)
      if (of.blocks()[block].at_first == pages_are::committed)
        stay(marks(mark_).subspan(first_[block], first_[block + 1] - first_[block]));
    all_stay_ = std::all_of(mark_.begin(), mark_.end(), [](mark page) { return page == unbound; });
  }

  /// A box is written in a stage: its pages keep the first.
  void written(const bound_box& b, index_t stage) {
    if (all_stay_) return;
    each_run_of_pages(b, marks_sink::of([m = mark_of(stage)](marks pages) {
                        for (mark& page : pages)
                          if (page == untouched || m < page) page = m;
                      }));
  }
  /// A box is read in a stage: its pages keep the last.
  void read(const bound_box& b, index_t stage) {
    each_run_of_pages(b, marks_sink::of([m = mark_of(stage)](marks pages) {
                        for (mark& page : pages)
                          if (page != unbound && page < m) page = m;
                      }));
  }
  /// A box holds what nobody reads, and its pages go no sooner than that, once all reads were told.
  void unread(const bound_box& b) {
    each_run_of_pages(b, marks_sink::of([](marks pages) {
                        for (mark& page : pages)
                          if (page != unbound) page |= beside;
                      }));
  }

  /// Bytes of the pages by their stage; [0] is of those that no piece touches, [k + 1] of those of stage k.
  std::vector<bytes_t> bytes_by_stage(index_t stages) const {
    return bytes_where(stages, [](mark) { return true; });
  }
  /// Bytes by stage, of the pages that hold what nobody reads.
  std::vector<bytes_t> unread_by_stage(index_t stages) const {
    return bytes_where(stages, [](mark page) { return (page & beside) != 0; });
  }
  /// Bytes bound outside every block: they stay where they are.
  bytes_t outside_bytes() const { return outside_; }

  /// The pages by stage, each list in the fewest spans; [0] are those that no piece touches. Those that hold what
  /// nobody reads are in [u] at least, u = `unread_kept`.
  std::vector<std::vector<block_span>> spans_by_stage(index_t stages, index_t unread_kept = 0) const {
    std::vector<std::vector<block_span>> spans(static_cast<std::size_t>(stages) + 1);
    const auto place = [unread_kept](mark page) {
      const mark own = page & ~(claimed | beside), soonest = static_cast<mark>(unread_kept) + untouched;
      return own == unbound || (page & beside) == 0 ? own : std::max(own, soonest);
    };
    for (std::size_t block = 0; block + 1 < first_.size(); ++block)
      for (std::size_t p = first_[block], past = p; p < first_[block + 1]; p = past) {
        const mark m = place(mark_[p]);
        while (past < first_[block + 1] && place(mark_[past]) == m) ++past;
        if (m != unbound) spans[m - untouched].push_back({block, span_of(block, p, past)});
      }
    return spans;
  }
  /// The spans that must be taken: [k] before stage k writes them.
  std::vector<std::vector<block_span>> taken_by_stage(index_t stages) const {
    std::vector<std::vector<block_span>> spans = spans_by_stage(stages);
    spans.erase(spans.begin());
    for (std::vector<block_span>& list : spans)
      std::erase_if(list, [this](const block_span& s) { return !must_be_taken(s.block); });
    return spans;
  }

  /// Appends the pages of a box that no claim had before, in spans: what to commit ahead of the copy that writes it.
  /// Pages that must be taken are not among them. A box that is written ahead of what claimed before has all its pages.
  void claim(const bound_box& b, std::vector<block_span>& spans, bool ahead = false) {
    if (all_stay_) return;
    const std::size_t before = spans.size();
    each_run_of_pages(
        b, marks_sink::of([&](marks pages) {
          const std::size_t block = block_of(pages);
          if (must_be_taken(block)) return;
          const auto begin = static_cast<std::size_t>(pages.data() - mark_.data());
          for (std::size_t i = 0; i < pages.size(); ++i) {
            if (pages[i] == unbound || (!ahead && (pages[i] & claimed) != 0)) continue;
            pages[i] |= claimed;
            const page_span one = span_of(block, begin + i, begin + i + 1);
            if (spans.size() > before && spans.back().block == block && spans.back().pages.last == one.first)
              ++spans.back().pages.last;
            else spans.push_back({block, one});
          }
        }));
  }

 private:
  using mark = std::uint32_t;
  using marks = std::span<mark>;
  using marks_sink = detail::sink<marks>;
  static constexpr mark unbound = 0, untouched = 1;  // then stage k as k + 2
  static constexpr mark claimed = mark{1} << 31, beside = mark{1} << 30;
  static mark mark_of(index_t stage) {
    if (stage < 0 || stage >= beside - 2) refuse("a switch in more than ", stage, " stages");
    return static_cast<mark>(stage) + 2;
  }
  template <typename Wanted>
  std::vector<bytes_t> bytes_where(index_t stages, Wanted&& wanted) const {
    std::vector<bytes_t> bytes(static_cast<std::size_t>(stages) + 1, 0);
    for (std::size_t block = 0; block + 1 < first_.size(); ++block)
      for (std::size_t p = first_[block]; p < first_[block + 1]; ++p)
        if (const mark m = mark_[p] & ~(claimed | beside); m != unbound && wanted(mark_[p]))
          bytes[m - untouched] += of_->blocks()[block].granule;
    return bytes;
  }
  /// The block whose marks these are.
  std::size_t block_of(marks pages) const {
    const auto begin = static_cast<std::size_t>(pages.data() - mark_.data());
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), begin) - first_.begin()) - 1;
  }
  bool must_be_taken(std::size_t block) const { return of_->blocks()[block].come == granules_come::when_taken; }
  page_span span_of(std::size_t block, std::size_t first, std::size_t last) const {
    return {static_cast<std::int64_t>(first - first_[block]), static_cast<std::int64_t>(last - first_[block])};
  }

  /// Calls visit(marks) with the marks of all pages of blocks that hold a byte of the box, a stretch of them at a time;
  /// returns the bytes that lie in no block.
  bytes_t each_run_of_pages(const bound_box& b, const marks_sink& visit) {
    bytes_t outside = 0;
    const std::vector<memory_block>& blocks = of_->blocks();
    std::ptrdiff_t block = of_->block_of(b.data);
    const auto visit_stretch = detail::sink<const std::byte*, bytes_t>::of([&](const std::byte* at, bytes_t bytes) {
      if (blocks.empty()) {
        outside += bytes;
        return;
      }
      while (bytes > 0) {
        if (block < 0 || at < blocks[static_cast<std::size_t>(block)].begin ||
            at >= blocks[static_cast<std::size_t>(block)].end())
          block = of_->block_of(at);
        bytes_t here = bytes;
        if (block < 0) {  // up to the next block
          const auto next = std::upper_bound(blocks.begin(), blocks.end(), at,
                                             [](const std::byte* a, const memory_block& p) { return a < p.begin; });
          if (next != blocks.end()) here = least(bytes, next->begin - at);
          outside += here;
        } else {
          const memory_block& in = blocks[static_cast<std::size_t>(block)];
          here = least(bytes, in.end() - at);
          const page_span span = pages_touching(at - in.begin, at - in.begin + here, in.granule);
          visit(marks(mark_).subspan(first_[static_cast<std::size_t>(block)] + static_cast<std::size_t>(span.first),
                                     static_cast<std::size_t>(span.count())));
        }
        at += here;
        bytes -= here;
      }
    });
    detail::each_stretch(b, gap_, visit_stretch);
    return outside;
  }

  const binding* of_;
  std::vector<std::size_t> first_;  // per block: the index of its first page
  std::vector<mark> mark_;
  bytes_t gap_ = page_bytes;  // no granule but a block's only one is smaller
  bytes_t outside_ = 0;
  bool all_stay_ = false;  // no page comes with a stage
};

}  // namespace reshard
