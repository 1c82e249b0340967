// SPDX-License-Identifier: Apache-2.0
// Who holds what after a switch that broke off, element by element: what processes/Partial states of the contract says,
// counted one by one, and the memory where they lie.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/tensor_names.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/switch/ending.hpp>
#include <reshard/testing/known_values.hpp>

#include "../oracle/contract.hpp"
#include "faults.hpp"

namespace testing {

/// Elements of every state and tensor, one char each; and the wrong ones among those that were read from memory.
class element_map {
 public:
  explicit element_map(const reshard::computed_holding& tensors) : tensors_(&tensors), names_(names_of(tensors)) {}

  long elements = 0, wrong = 0;

  using elements_of_tensors = std::map<std::pair<int, std::string>, std::vector<char>>;

  /// What the oracle says that each rank holds.
  static std::vector<elements_of_tensors> told_by_oracle(const oracle::model& m, const std::string& layout) {
    const oracle::layout l = oracle::parse(m, layout);
    std::vector<elements_of_tensors> ranks(static_cast<std::size_t>(l.world));
    for (long rank = 0; rank < l.world; ++rank)
      for (int s = 0; s < 4; ++s)
        for (auto& [name, held] : oracle::held(m, l, rank, oracle::all_states[s]))
          ranks[static_cast<std::size_t>(rank)][{s, name}] = std::move(held);
    return ranks;
  }
  void add(const elements_of_tensors& holds) {
    for (const auto& [tensor, held] : holds) {
      std::vector<char>& set = sets_[tensor];
      set.resize(held.size(), 0);
      for (std::size_t i = 0; i < held.size(); ++i) set[i] = held[i] != 0 ? 1 : set[i];
    }
  }
  /// What a survivor has after a torn switch: of TO what it receives or retains in a stage < C; of FROM, without a
  /// budget, all that it held; with one what it sends or retains in a stage >= C, and where C < u what it does neither
  /// with. Where its arrays are given, they are read.
  void add_survivor(const reshard::computed_switch& change, reshard::rank_t device, const reshard::ended::torn& end,
                    const reshard::binding* old_tensors, const reshard::binding* new_tensors) {
    const reshard::staged_plan p = stage_plan(make_plan(change, device), change, end.stages);
    const auto add = [&](const std::vector<reshard::staged_piece>& list, bool of_old) {
      for (const reshard::staged_piece& piece : list) {
        if ((piece.stage >= end.in_place) != of_old) continue;
        mark(piece.states, piece.tensor, piece.where);
        if (old_tensors != nullptr) read(of_old ? *old_tensors : *new_tensors, piece);
      }
    };
    add(p.receives, false), add(p.retains, false);
    if (end.unread_kept) add(p.sends, true), add(p.retains, true);
    if (end.unread_kept && end.in_place >= (*end.unread_kept)[static_cast<std::size_t>(device)]) return;
    element_map touched(*tensors_);
    if (end.unread_kept)
      for (const std::vector<reshard::staged_piece>* list : {&p.sends, &p.retains})
        for (const reshard::staged_piece& piece : *list) touched.mark(piece.states, piece.tensor, piece.where);
    add_untouched(change, device, touched, old_tensors);
  }
  /// Of what moves of FROM's, each element that is not in `touched`.
  void add_untouched(const reshard::computed_switch& change, reshard::rank_t device, const element_map& touched,
                     const reshard::binding* old_tensors) {
    const reshard::rank_t rank = change.from_rank(device);
    for (const reshard::role r : reshard::roles) {
      const reshard::state_set states = change.states().of(r);
      if (rank < 0 || states.empty()) continue;
      each_held(change.from(), rank, r, [&](int f, const reshard::family_box& held) {
        each_tensor(f, held, [&](const reshard::tensor_id& tensor, const reshard::box<3>& b) {
          const std::vector<char>* const set = touched.find({*states.begin(), tensor, b});
          const reshard::family& of = tensors_->family_at(f);
          const auto is_touched = [&](reshard::index_t part, reshard::index_t row, reshard::index_t column) {
            const reshard::index_t at = (part * of.extent[3] + row) * of.extent[4] + column;
            return set != nullptr && (*set)[static_cast<std::size_t>(at)] != 0;
          };
          for (reshard::index_t part = b.dim[0].begin; part < b.dim[0].end; ++part)
            for (reshard::index_t row = b.dim[1].begin; row < b.dim[1].end; ++row)
              for (reshard::index_t begin = b.dim[2].begin, end = begin; begin < b.dim[2].end; begin = ++end) {
                for (end = begin; end < b.dim[2].end && !is_touched(part, row, end);) ++end;  // a run of them
                if (begin == end) continue;
                const reshard::box<3> run{{{part, part + 1}, {row, row + 1}, {begin, end}}};
                mark(states, tensor, run);
                if (old_tensors != nullptr) read(*old_tensors, {0, 0, 0, states, tensor, run});
              }
        });
      });
    }
  }
  /// What a plan says that nobody has.
  void add_lost(const reshard::plan& p) {
    for (const reshard::transfer& t : p.lost)
      each_tensor(t.family, t.where,
                  [&](const reshard::tensor_id& tensor, const reshard::box<3>& part) { mark(t.states, tensor, part); });
  }

  /// Of new tensors every element that is here is right, and every other one zero and in `lost`; how many are wrong in
  /// that, and how many were lost.
  std::pair<long, long> judge(const reshard::binding& fresh, const element_map& lost) const {
    std::pair<long, long> result;
    for (const reshard::bound_box& b : fresh.boxes()) {
      const std::vector<char>*mine = find(b), *gone = lost.find(b);
      const auto known = never_zero{}(b);
      visit(b, [&](const auto& element, reshard::index_t index) {
        using type = std::remove_cvref_t<decltype(element)>;
        const auto i = static_cast<std::size_t>(index);
        const bool held = mine != nullptr && (*mine)[i] != 0, told = gone != nullptr && (*gone)[i] != 0;
        result.first += element == (held ? known.template value<type>(index) : type{0}) && told != held ? 0 : 1;
        result.second += held ? 0 : 1;
      });
    }
    return result;
  }

 private:
  const std::vector<char>* find(const reshard::tensor_box& b) const {
    const auto at = sets_.find({b.state, names_(b.tensor)});
    return at == sets_.end() ? nullptr : &at->second;
  }
  template <typename Visit>
  void visit(const reshard::bound_box& b, Visit&& each) const {
    const reshard::index_t(&extent)[5] = tensors_->family_at(b.tensor.family).extent;
    reshard::detail::each_element_of_width(b.element_bytes, b, {extent[2], extent[3], extent[4]}, each);
  }
  void mark(reshard::state_set states, const reshard::tensor_id& t, const reshard::box<3>& b) {
    const reshard::family& of = tensors_->family_at(t.family);
    const std::string name = names_(t);
    for (const int s : states) {
      std::vector<char>& set = sets_[{s, name}];
      set.resize(static_cast<std::size_t>(of.tensor_elements()), 0);
      for (reshard::index_t part = b.dim[0].begin; part < b.dim[0].end; ++part)
        for (reshard::index_t row = b.dim[1].begin; row < b.dim[1].end; ++row)
          for (reshard::index_t column = b.dim[2].begin; column < b.dim[2].end; ++column)
            set[static_cast<std::size_t>((part * of.extent[3] + row) * of.extent[4] + column)] = 1;
    }
  }
  void read(const reshard::binding& in, const reshard::staged_piece& piece) {
    for (const int s : piece.states) {
      reshard::index_t seen = 0;
      in.meet({s, piece.tensor, piece.where}, [&](const reshard::bound_box& part) {
        const auto known = never_zero{}(part);
        visit(part, [&](const auto& element, reshard::index_t index) {
          wrong += element == known.template value<std::remove_cvref_t<decltype(element)>>(index) ? 0 : 1;
          ++seen;
        });
      });
      elements += static_cast<long>(seen);
      wrong += seen == piece.where.volume() ? 0 : 1;
    }
  }

  const reshard::computed_holding* tensors_;
  reshard::tensor_names names_;
  elements_of_tensors sets_;
};

}  // namespace testing
