// SPDX-License-Identifier: Apache-2.0
// The state of one rank under one layout: arrays in Megatron's shapes and buffers, which the library binds; where each
// tensor lies in the flat arrays that the model computes with; initial values and digests.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <reshard/memory/each_element.hpp>
#include <reshard/memory/pages.hpp>
#include <reshard/memory/rank_arrays.hpp>

#include "model.hpp"

namespace trainer {

/// States by their number in reshard::adam.
inline constexpr int param = 0, master = 1, exp_avg = 2, exp_avg_sq = 3;

/// Consecutive elements of one rank's optimizer states, and where their parameters and gradients are.
struct run {
  float *master, *exp_avg, *exp_avg_sq;
  std::uint16_t* param;
  index_t at, count;  // in the flat arrays
  bool decays;        // of a matrix
  bool counted;       // in the norm: by the lowest rank that has them
};

/// Sums mod 2^64 over all elements, by state.
struct digests {
  std::uint64_t of[4] = {};
  friend bool operator==(const digests&, const digests&) = default;
};

class rank_state {
 public:
  /// Rank -1 has nothing. Reserved pages take no memory before they are written.
  rank_state(const computed_holding& layout, rank_t rank, const std::string& who, pages_are at_first)
      : layout_(layout), rank_(rank) {
    bound_ = bind_rank(layout_, rank, who, [&](const rank_array& a) {
      page_range& range = arrays_.emplace_back(a.bytes());
      if (at_first == pages_are::committed) range.commit(0, range.bytes());
      return memory{range.data(), a.bytes()};
    });
    for (page_range& range : arrays_) bound_.own(range, at_first);
    bound_.seal();
    for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {  // so that each kind's gradients are one span
      for (const bound_box& b : bound_.boxes())
        if (b.state == param && layout_.family_at(b.tensor.family).mesh == kind) add_slot(b);
      if (kind == mesh_kind::dense) dense_ = elements_;
    }
    find_runs();
  }

  binding& tensors() { return bound_; }
  const computed_holding& layout() const { return layout_; }
  rank_t rank() const { return rank_; }
  const std::vector<run>& runs() const { return runs_; }
  index_t elements() const { return elements_; }
  index_t dense_elements() const { return dense_; }

  /// Where a tensor lies; a slot that is not there of one that the rank does not have.
  slot find(const std::string& name) const {
    const auto at = slots_.find(name);
    return at == slots_.end() ? slot{} : at->second;
  }
  /// A part of a tensor, row by row, in the flat arrays and among the parameters: visit(at, values, count)
  template <typename Visit>
  void each_row(const tensor_id& t, const box<3>& part, Visit&& visit) const {
    const bound_box& local = *boxes_.at(t);
    const interval rows = local.where.dim[1], columns = local.where.dim[2];
    const index_t first = slots_.at(name_of(t)).at;
    auto* const values = reinterpret_cast<std::uint16_t*>(local.data);
    for (index_t p = part.dim[0].begin; p < part.dim[0].end; ++p)
      for (index_t r = part.dim[1].begin; r < part.dim[1].end; ++r) {
        const index_t in_part = (p - local.where.dim[0].begin) * rows.size() + r - rows.begin,
                      at = in_part * columns.size() + part.dim[2].begin - columns.begin;
        visit(first + at, values + at, part.dim[2].size());
      }
  }
  /// visit(first flat element, values, count) of all parameters
  template <typename Visit>
  void each_param(Visit&& visit) {
    for (const auto& [t, box] : boxes_)
      visit(slots_.at(name_of(t)).at, reinterpret_cast<std::uint16_t*>(box->data), box->where.volume());
  }

  /// Masters by their numbers in whole tensors, moments 0, parameters of the masters.
  void initialize(std::uint64_t seed) {
    for (const bound_box& b : bound_.boxes()) {
      const family& of = layout_.family_at(b.tensor.family);
      const std::uint64_t key = mix(seed ^ fnv1a(name_of(b.tensor)));
      const auto first = [&](index_t i) {
        if (of.vector()) return 1.0f;
        const std::uint64_t h = mix(key ^ static_cast<std::uint64_t>(i));
        return static_cast<float>(static_cast<double>((h >> 40) + (h >> 16 & 0xFFFFFF)) / 16777216.0 - 1) * 0.05f;
      };
      if (b.state == param) each_element<std::uint16_t>(b, of, [&](auto& x, index_t i) { x = nearest_bf16(first(i)); });
      else each_element<float>(b, of, [&](float& x, index_t i) { x = b.state == master ? first(i) : 0; });
    }
  }

  /// Of the elements that no lower rank has: sum of mix(bits ^ mix(hash(name) + i)).
  digests digest() const {
    digests sums;
    each_counted([&](const bound_box& b, bool counted) {
      if (!counted) return;
      const family& of = layout_.family_at(b.tensor.family);
      const std::uint64_t name = fnv1a(name_of(b.tensor));
      std::uint64_t& sum = sums.of[b.state];
      const auto add = [&](const auto& x, index_t i) { sum += mix(x ^ mix(name + static_cast<std::uint64_t>(i))); };
      if (b.state == param) each_element<std::uint16_t>(b, of, add);
      else each_element<std::uint32_t>(b, of, add);
    });
    return sums;
  }

  std::string name_of(const tensor_id& t) const { return layout_.space().model().tensor(t); }

 private:
  void add_slot(const bound_box& b) {
    const bool vector = layout_.family_at(b.tensor.family).vector();
    const index_t columns = vector ? b.where.volume() : b.where.dim[2].size();
    slots_[name_of(b.tensor)] = {elements_, b.where.volume() / columns, columns};
    boxes_[b.tensor] = &b;
    elements_ += b.where.volume();
  }
  /// visit(bound box, whether no lower rank has it) of every state
  template <typename Visit>
  void each_counted(Visit&& visit) const {
    if (rank_ < 0) return;
    for (const int state : {param, master, exp_avg, exp_avg_sq})
      each_shared(layout_, rank_, state == param ? role::parameter : role::optimizer,
                  [&](int f, const family_box& b, const auto& holders) {
                    each_tensor(f, b, [&](const tensor_id& t, const box<3>& part) {
                      bound_.meet({state, t, part}, [&](const bound_box& piece) { visit(piece, holders[0] == rank_); });
                    });
                  });
  }
  void find_runs() {
    each_counted([&](const bound_box& b, bool counted) {
      if (b.state != master) return;
      const bool decays = !layout_.family_at(b.tensor.family).vector();
      each_sibling(bound_, b, {exp_avg, exp_avg_sq}, [&](const std::vector<bound_box>& all) {
        index_t row = 0;
        each_row(b.tensor, all[0].where, [&](index_t at, std::uint16_t* values, index_t count) {
          float* from[3];
          for (std::size_t k = 0; k < 3; ++k) {
            const index_t rows = all[k].where.dim[1].size();
            from[k] =
                reinterpret_cast<float*>(all[k].data) + row / rows * all[k].stride[0] + row % rows * all[k].stride[1];
          }
          ++row;
          add_run({from[0], from[1], from[2], values, at, count, decays, counted});
        });
      });
    });
  }
  /// Rows that lie one behind the other in all arrays are one run.
  void add_run(const run& r) {
    if (!runs_.empty()) {
      run& last = runs_.back();
      if (last.at + last.count == r.at && last.master + last.count == r.master &&
          last.exp_avg + last.count == r.exp_avg && last.exp_avg_sq + last.count == r.exp_avg_sq &&
          last.param + last.count == r.param && last.decays == r.decays && last.counted == r.counted) {
        last.count += r.count;
        return;
      }
    }
    runs_.push_back(r);
  }

  computed_holding layout_;
  rank_t rank_;
  std::vector<page_range> arrays_;
  binding bound_;
  std::map<std::string, slot> slots_;
  std::map<tensor_id, const bound_box*> boxes_;  // of parameters
  index_t elements_ = 0, dense_ = 0;
  std::vector<run> runs_;
};

}  // namespace trainer
