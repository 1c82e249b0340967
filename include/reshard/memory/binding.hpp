// SPDX-License-Identifier: Apache-2.0
// A binding: where one rank's boxes lie in memory. Any list of (state, tensor, box, pointer, strides) is one; boxes of
// a plan are looked up in it by binary search. It also says which of the memory may be given back by granules, and how.
// Builds on: base/sink.hpp, base/sort.hpp, algebra/flat.hpp, model/state_list.hpp, model/float_conversion.hpp,
// memory/memory_block.hpp, memory/tensor_names.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/algebra/flat.hpp>
#include <reshard/base/sink.hpp>
#include <reshard/base/sort.hpp>
#include <reshard/memory/memory_block.hpp>
#include <reshard/memory/tensor_names.hpp>
#include <reshard/model/float_conversion.hpp>
#include <reshard/model/state_list.hpp>

namespace reshard {

/// A box [part, row, column] of one tensor of one state, in global coordinates.
struct tensor_box {
  int state = 0;  // its number in a list
  tensor_id tensor = {};
  box<3> where = {};

  /// Whether both are of one tensor and state.
  constexpr bool same_tensor(const tensor_box& other) const { return state == other.state && tensor == other.tensor; }

  friend constexpr bool precedes(const tensor_box& a, const tensor_box& b) {
    if (a.state != b.state) return a.state < b.state;
    if (a.tensor != b.tensor) return a.tensor < b.tensor;
    return precedes(a.where, b.where);
  }
};

/// A box in memory: element x lies at data + element_bytes (sum over i of (x[i] - where.dim[i].begin) stride[i]).
struct bound_box : tensor_box {
  std::byte* data = nullptr;
  index_t stride[3] = {};                            // elements
  bytes_t element_bytes = 0;                         // 0: a binding that it is added to knows those of its state
  dtype holds = dtype::int8, travels = dtype::int8;  // what its elements are and what their state's are; or the same

  /// Whether its elements are of another type than its state's.
  constexpr bool converts() const { return holds != travels; }
  constexpr bytes_t bytes() const { return where.volume() * element_bytes; }
  /// From its first element to past its last, of a box that is not empty:
  /// element_bytes (1 + sum over i of (size(where.dim[i]) - 1) stride[i])
  constexpr bytes_t bytes_spanned() const {
    index_t last = 0;
    for (int i = 0; i < 3; ++i) last = checked_add(last, checked_multiply(where.dim[i].size() - 1, stride[i]));
    return checked_multiply(checked_add(last, 1), element_bytes);
  }

  /// The dimensions in order of their strides, the greatest first.
  constexpr std::array<int, 3> by_stride() const {
    int outer = 0, middle = 1, inner = 2;
    if (stride[outer] < stride[middle]) std::swap(outer, middle);
    if (stride[middle] < stride[inner]) std::swap(middle, inner);
    if (stride[outer] < stride[middle]) std::swap(outer, middle);
    return {{outer, middle, inner}};
  }

  /// The part of it that lies in `within`.
  bound_box narrowed(const box<3>& within) const {
    bound_box result = *this;
    result.where = intersect(where, within);
    for (int i = 0; i < 3; ++i)
      result.data += (result.where.dim[i].begin - where.dim[i].begin) * stride[i] * element_bytes;
    return result;
  }
};

/// What becomes of elements between two places of one box.
constexpr conversion conversion_between(const bound_box& to, const bound_box& from) {
  if (!to.converts() && !from.converts()) return {};
  const dtype via = to.converts() ? to.travels : from.travels;
  return {from.converts() ? from.holds : via, via, to.converts() ? to.holds : via};
}

namespace detail {

/// Refuses memory that does not hold from `fewest` to `most` elements of a type, or of one that is converted into it;
/// array() begins the sentence. The type that it holds.
template <typename Array>
dtype require_memory(const memory& at, dtype type, index_t fewest, index_t most, Array&& array) {
  const dtype holds = at.holds.value_or(type);
  if (holds != type && !converts(holds, type))
    refuse(array(), " is ", name(type), ", and its memory is said to hold ", name(holds),
           "; bf16, fp16 and fp32 are converted into one another, nothing else is");
  const bytes_t of_one = width(holds), bytes = at.data == nullptr ? 0 : at.bytes;
  if (at.element_bytes != 0 && at.element_bytes != of_one)
    refuse(
        array(), at.holds ? " is said to hold " : " is ", name(holds), ", ", of_one,
        " bytes an element, and its memory has elements of ", at.element_bytes,
        "; bind memory of the state's type, say as() of another floating type, or leave the state out of what moves");
  if (bytes < checked_multiply(fewest, of_one))
    refuse(array(), " has ", bytes, " bytes of memory, and needs ", fewest * of_one);
  if (bytes > checked_multiply(most, of_one))
    refuse(array(), " has ", bytes, " bytes of memory, and its array takes ", most * of_one,
           "; where elements lie apart, strides say so");
  return holds;
}

}  // namespace detail

/// Where one rank's boxes lie in memory, and which of that memory may be given back by granules, and how.
class binding {
 public:
  /// `who` is what sentences call its owner: "rank 3 of FROM".
  explicit binding(std::string who = "a binding", tensor_names names = {}, const state_list& list = adam)
      : who_(std::move(who)), names_(std::move(names)), list_(list) {}

  /// What its states are called, and how wide their elements are.
  const state_list& list() const { return list_; }

  /// A box whose elements lie in row-major order, none between them.
  void add(const tensor_box& what, const memory& at) {
    const index_t columns = what.where.dim[2].size();
    add(what, at, {columns * what.where.dim[1].size(), columns, 1});
  }
  /// A box at strides of its own, in elements. Refused where the memory is not the array's: smaller than from its first
  /// element to past its last, or larger than its rows with what the strides leave between them; or of elements of
  /// another width. Where the memory says what it holds, elements are converted on their way.
  void add(const tensor_box& what, const memory& at, const index_t (&stride)[3]) {
    const dtype type = type_of(what);
    if (what.where.empty()) return;
    index_t last = 0, pitch = 0;
    for (int i = 0; i < 3; ++i) {
      if (stride[i] < 0)
        refuse(who_, ": ", name(what), " has a stride of ", stride[i], " elements; strides count forwards");
      last = checked_add(last, checked_multiply(what.where.dim[i].size() - 1, stride[i]));
      pitch = greatest(pitch, checked_multiply(what.where.dim[i].size(), stride[i]));
    }
    last = checked_add(last, 1);  // past the last element
    const dtype holds =
        detail::require_memory(at, type, last, greatest(last, pitch), [&] { return who_ + ": " + name(what); });
    boxes_.push_back({what, at.data, {stride[0], stride[1], stride[2]}, width(holds), holds, type});
    sealed_ = false;
  }

  /// A box as it is bound elsewhere; refused where its elements are of another width than the state's, or are converted
  /// into those of another state.
  void add(const bound_box& b) {
    const dtype type = type_of(b);
    bound_box known = b;
    if (b.element_bytes == 0) known.element_bytes = width(b.converts() ? b.holds : type);
    memory at{b.data, b.where.empty() ? 0 : known.bytes_spanned()};
    at.element_bytes = known.element_bytes;
    if (b.converts()) at.holds = b.holds;
    if (b.converts() && b.travels != type)
      refuse(who_, ": ", name(b), " is ", reshard::name(type), ", and was bound as of a state of ",
             reshard::name(b.travels));
    add(b, at, b.stride);
  }

  /// The flat range of a local row-major tensor, such as an optimizer buffer holds: `local` is the local tensor's box,
  /// `at` the memory of the range's elements, one after the other. At most 5 boxes.
  void add_flat(const tensor_box& local, interval range, const memory& at) {
    if (range.empty()) return;
    const index_t extent[] = {local.where.dim[0].size(), local.where.dim[1].size(), local.where.dim[2].size()};
    const index_t corner[] = {local.where.dim[0].begin, local.where.dim[1].begin, local.where.dim[2].begin};
    if (range.begin < 0 || range.end > local.where.volume())
      refuse(who_, ": [", range.begin, ", ", range.end, ") is no range of the ", local.where.volume(), " elements of ",
             name(local));
    const dtype type = type_of(local);
    const dtype holds =
        detail::require_memory(at, type, range.size(), range.size(), [&] { return who_ + ": " + name(local); });
    invert_flat(extent, range, [&](const box<3>& part) {
      bound_box bound{local, at.data, {extent[1] * extent[2], extent[2], 1}, width(holds), holds, type};
      bound.data += (flat_hull(extent, part).begin - range.begin) * width(holds);
      bound.where = translate(part, corner);
      boxes_.push_back(bound);
    });
    sealed_ = false;
  }

  /// Granules that may be given back, and how. Refused where there are none, or nobody to give them back.
  void own(memory_block block) {
    if (block.begin == nullptr || block.granules < 1 || block.granule < 1 || !block.give_back)
      refuse(who_, ": a block of ", block.granules, " granules of ", block.granule,
             " bytes; a block has one granule at least, memory, and a call that gives it back");
    if (block.come == granules_come::when_taken && !block.take)
      refuse(who_, ": a block of ", block.granules, " granules that come when they are taken, and no call takes them");
    blocks_.push_back(std::move(block));
    sealed_ = false;
  }
  /// All of a range, such as page_range, that says by block(at_first) what it is, and by place() where, if not in the
  /// host's memory. It must outlive the binding.
  template <typename Range>
    requires requires(Range& range, pages_are at_first) {
      { range.block(at_first) } -> std::same_as<memory_block>;
    }
  void own(Range& range, pages_are at_first = pages_are::reserved) {
    own(range.block(at_first));
    if constexpr (requires { lies_in(range.place()); }) lies_in(range.place());
  }
  /// Memory of the caller's, by pages: give_back(begin, bytes) is called with whole pages that nobody reads any more.
  /// Pages that reach outside the memory are left alone.
  void own(memory of, pages_are at_first, memory_block::call give_back) {
    const auto address = reinterpret_cast<std::uintptr_t>(of.data);
    const auto lead = static_cast<bytes_t>((page_bytes - address % page_bytes) % page_bytes);
    if (of.bytes < lead + page_bytes) return;
    own(memory_block{.begin = of.data + lead,
                     .granules = (of.bytes - lead) / page_bytes,
                     .at_first = at_first,
                     .give_back = std::move(give_back)});
  }
  /// An array that its owner can only drop whole: drop() is called once nobody reads any of it any more.
  void own_whole(memory of, pages_are at_first, std::function<void()> drop) {
    if (of.bytes == 0) return;
    own(memory_block{.begin = of.data,
                     .granules = 1,
                     .granule = of.bytes,
                     .at_first = at_first,
                     .give_back = [drop = std::move(drop)](std::byte*, bytes_t) { drop(); }});
  }

  /// Where all of its memory is; the host's unless it is said.
  void lies_in(memory_place place) { place_ = place; }
  memory_place place() const { return place_; }

  /// Sorts what was added; refuses two boxes that share an element, and two blocks that share a page.
  void seal() {
    if (sealed_) return;
    detail::sort_items(boxes_, [](const bound_box& a, const bound_box& b) { return precedes(a, b); });
    for (const bound_box& b : boxes_) longest_rows_ = greatest(longest_rows_, b.where.dim[1].size());
    for (std::size_t i = 0; i < boxes_.size(); ++i)
      for (std::size_t j = i + 1; j < boxes_.size() && boxes_[j].same_tensor(boxes_[i]); ++j) {
        if (boxes_[j].where.dim[0].begin >= boxes_[i].where.dim[0].end) break;
        if (intersects(boxes_[i].where, boxes_[j].where))
          refuse(who_, ": ", name(boxes_[i]), " is bound twice, ", intersect(boxes_[i].where, boxes_[j].where).volume(),
                 " elements of it");
      }
    detail::sort_items(blocks_,
                       [](const memory_block& a, const memory_block& b) { return std::less<>()(a.begin, b.begin); });
    for (std::size_t i = 1; i < blocks_.size(); ++i)
      if (std::less<>()(static_cast<const std::byte*>(blocks_[i].begin), blocks_[i - 1].end()))
        refuse(who_, ": two blocks overlap, of ", blocks_[i - 1].granules, " and ", blocks_[i].granules, " granules");
    sealed_ = true;
  }

  const std::string& who() const { return who_; }
  const std::vector<bound_box>& boxes() const { return boxes_; }
  const std::vector<memory_block>& blocks() const { return blocks_; }

  /// "exp_avg of decoder.layers.3.mlp.linear_fc2.weight"
  std::string name(const tensor_box& what) const {
    const tensor_id& t = what.tensor;
    return detail::text_of(
        list_[what.state].name, " of ",
        names_ ? names_(t) : detail::text_of("family ", t.family, ", member ", t.member, ", expert ", t.expert));
  }

  /// Calls sink(bound_box) with the part of every bound box that lies in `wanted`, in order of the boxes. Sealed
  /// before.
  template <typename Sink>
  void meet(const tensor_box& wanted, Sink&& sink) const {
    each_part(wanted, detail::sink<const bound_box&>::of(sink));
  }

  /// The block that holds an address, or -1. Sealed before.
  std::ptrdiff_t block_of(const std::byte* address) const {
    const auto after =
        std::upper_bound(blocks_.begin(), blocks_.end(), address, [](const std::byte* a, const memory_block& b) {
          return std::less<>()(a, static_cast<const std::byte*>(b.begin));
        });
    if (after == blocks_.begin() || !std::less<>()(address, (after - 1)->end())) return -1;
    return after - blocks_.begin() - 1;
  }
  /// Whether a byte of [begin, end) lies in a block. Sealed before.
  bool meets_block(const std::byte* begin, const std::byte* end) const {
    const auto at = std::partition_point(blocks_.begin(), blocks_.end(),
                                         [&](const memory_block& b) { return !std::less<>()(begin, b.end()); });
    return at != blocks_.end() && std::less<>()(static_cast<const std::byte*>(at->begin), end);
  }

 private:
  /// The type of a box's state; refused where there is none of the number.
  dtype type_of(const tensor_box& what) const {
    if ((what.state < 0 || what.state >= list_.size()) && what.state != statistic_state)
      refuse(who_, ": there is no state ", what.state, "; states are 0 to ", list_.size() - 1, ", and ",
             statistic_state, " of statistics");
    return list_[what.state].type;
  }

  void each_part(const tensor_box& wanted, const detail::sink<const bound_box&>& sink) const {
    tensor_box first = wanted;
    for (interval& i : first.where.dim) i = {-1, -1};  // precedes every box
    auto at = std::lower_bound(boxes_.begin(), boxes_.end(), first,
                               [](const tensor_box& a, const tensor_box& b) { return precedes(a, b); });
    auto past = boxes_.end();
    if (past - at > few_boxes && at[few_boxes].same_tensor(wanted)) {  // many: not all are looked at
      past = std::partition_point(at, past, [&](const bound_box& b) { return b.same_tensor(wanted); });
      if (at->where.dim[0].begin == past[-1].where.dim[0].begin) {  // so they are in the order of their rows
        const interval rows = wanted.where.dim[1];
        at = std::partition_point(
            at, past, [&](const bound_box& b) { return b.where.dim[1].begin <= rows.begin - longest_rows_; });
        past = std::partition_point(at, past, [&](const bound_box& b) { return b.where.dim[1].begin < rows.end; });
      }
    }
    for (; at != past && at->same_tensor(wanted); ++at)
      if (intersects(at->where, wanted.where)) sink(at->narrowed(wanted.where));
  }

  static constexpr std::ptrdiff_t few_boxes = 16;

  std::string who_;
  tensor_names names_;
  state_list list_;
  std::vector<bound_box> boxes_;
  index_t longest_rows_ = 0;  // of any box, once sealed
  std::vector<memory_block> blocks_;
  memory_place place_;
  bool sealed_ = true;
};

}  // namespace reshard
