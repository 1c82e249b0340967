// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 7: which element is which, what a switch needs, and whether pieces are the
// right plan.
// Builds on trainer_holds.hpp.
#pragma once

#include "trainer_holds.hpp"

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace oracle::trainer {

// ---- elements: an element of a tensor of any side is an index of a family

using elements = std::map<std::string, intervals>;  // family -> flat indices of the family's tensor

inline std::pair<std::string, long> element_of(const tensor& t, long flat_index) {
  const long columns = t.columns();
  return {t.family, t.family_rows.at(at(flat_index / columns)) * columns + flat_index % columns};
}

// A set of a tensor's flat indices as indices of its family.
inline intervals in_family(const tensor& t, const intervals& set) {
  const long columns = t.columns();
  intervals list;
  for (const auto& [begin, end] : set)
    for (long row = begin / columns; row * columns < end; ++row) {
      const long move = (t.family_rows.at(at(row)) - row) * columns;
      list.emplace_back(std::max(begin, row * columns) + move, std::min(end, (row + 1) * columns) + move);
    }
  return as_set(list);
}

inline std::map<std::string, tensor> by_name(const std::vector<tensor>& list) {
  std::map<std::string, tensor> named;
  for (const tensor& t : list) named[t.name] = t;
  return named;
}

inline elements in_families(const std::map<std::string, tensor>& named, const holding& h) {
  elements all;
  for (const auto& [name, set] : h) {
    const tensor& t = named.at(name);
    all[t.family] = either(all[t.family], in_family(t, set));
  }
  return all;
}

inline elements elements_held(const model& m, const layout& l, long rank, const state& s) {
  return in_families(by_name(tensors(m, l)), held(m, l, rank, s));
}

// Of a tensor of one side, the elements that are padding which the other side lacks.
inline intervals only_here(const model& m, const tensor& t, const layout& other) {
  const bool padded = t.family == "embedding.word_embeddings.weight" || t.family == "output_layer.weight";
  const long there = vocabulary_rows(m, other);
  if (!padded || there >= t.rows()) return {};
  return {{there * t.columns(), t.rows() * t.columns()}};
}

// ---- a switch

struct switch_question {
  model m;
  layout from, to;
  std::vector<state> states;
  numbers from_devices, to_devices;  // the device of each rank
};

struct switch_totals {
  long moved_bytes = 0;     // delivered by pieces with src != dst
  long retained_bytes = 0;  // of pieces with src == dst
  long least_bytes = 0;     // needed, not there, and not created: the oracle's own count, whatever the pieces are
  long created_bytes = 0;   // rows that only TO has, on all holders
  long dropped_bytes = 0;   // rows that only FROM has, on all holders
  long needed = 0;          // elements that devices need, in every state, created ones among them
  long nowhere = 0;         // of these, what no device holds and nobody creates: such a switch is none
  long wrong = 0;           // elements brought or kept that must not be, or missing; 1 for a piece that makes no sense
};

// What the devices hold before, and need after, in one state.
struct devices_of_state {
  std::map<std::string, tensor> from, to;  // the sides' tensors, by name
  std::map<long, elements> before;
  std::map<long, holding> needed;  // by TO's names
  std::map<long, holding> had;     // by FROM's names
  elements anywhere;               // that some device held before
};

inline devices_of_state devices_of(const switch_question& q, const state& s) {
  const std::vector<tensor> from = tensors(q.m, q.from), to = tensors(q.m, q.to);
  devices_of_state d;
  d.from = by_name(from);
  d.to = by_name(to);
  for (long rank = 0; rank < q.from.world; ++rank) {
    const long device = q.from_devices.at(at(rank));
    d.had[device] = held(q.m, q.from, from, rank, s);
    d.before[device] = in_families(d.from, d.had[device]);
    for (const auto& [family, set] : d.before[device]) d.anywhere[family] = either(d.anywhere[family], set);
  }
  for (long rank = 0; rank < q.to.world; ++rank) d.needed[q.to_devices.at(at(rank))] = held(q.m, q.to, to, rank, s);
  return d;
}

inline const intervals& held_before(const devices_of_state& d, long device, const std::string& family) {
  static const intervals nothing;
  const auto here = d.before.find(device);
  if (here == d.before.end() || here->second.count(family) == 0) return nothing;
  return here->second.at(family);
}

// The counts that need no plan.
inline void add_needs(const switch_question& q, const state& s, const devices_of_state& d, switch_totals& sums) {
  for (const auto& [device, tensors_needed] : d.needed)
    for (const auto& [name, set] : tensors_needed) {
      const tensor& t = d.to.at(name);
      const intervals created = both(set, only_here(q.m, t, q.from));
      const intervals other = in_family(t, without(set, created));
      sums.needed += count(set);
      sums.created_bytes += count(created) * width_of(t, s);
      sums.least_bytes += count(without(other, held_before(d, device, t.family))) * width_of(t, s);
      sums.nowhere += count(without(other, d.anywhere.count(t.family) == 0 ? intervals{} : d.anywhere.at(t.family)));
    }
  for (const auto& [device, tensors_had] : d.had)
    for (const auto& [name, set] : tensors_had)
      sums.dropped_bytes += count(both(set, only_here(q.m, d.from.at(name), q.to))) * width_of(d.from.at(name), s);
}

inline switch_totals needs(const switch_question& q) {
  switch_totals sums;
  for (const state& s : q.states) add_needs(q, s, devices_of(q, s), sums);
  return sums;
}

// ---- a plan

struct piece {
  long src = 0, dst = 0;  // devices
  std::string state, tensor;
  numbers dims;                          // any factorisation whose row-major order is the tensor's
  std::vector<std::array<long, 2>> box;  // half-open per dim
};

// The flat indices of a box of a tensor of so many elements, or a sentence that says what is wrong with it.
inline std::string flat_of_box(const numbers& dims, const std::vector<std::array<long, 2>>& box, long numel,
                               intervals& set) {
  set.clear();
  long product = 1;
  for (long extent : dims) {
    if (extent < 1 || extent > numel / product) return "has dims that are not the tensor's number of elements";
    product *= extent;
  }
  if (product != numel) return "has dims that are not the tensor's number of elements";
  if (box.size() != dims.size()) return "has a box of another rank than its dims";
  for (std::size_t i = 0; i < box.size(); ++i) {
    if (box[i][0] < 0 || box[i][1] > dims[i]) return "has a box that leaves its dims";
    if (box[i][0] >= box[i][1]) return "has an empty box";
  }
  set = {{0, 1}};
  for (std::size_t i = 0; i < box.size(); ++i) {  // one more dim: every prefix becomes a run of it
    intervals longer;
    for (const auto& [begin, end] : set)
      for (long prefix = begin; prefix < end; ++prefix)
        longer.emplace_back(prefix * dims[i] + box[i][0], prefix * dims[i] + box[i][1]);
    set = as_set(longer);
  }
  return {};
}

// One sentence per fault (at most 20), empty when the pieces are the plan: every element that a device needs under TO
// and that is not created arrives exactly once (src != dst), or is retained (src == dst) iff the device held it under
// FROM in the same state; the source held every element; nothing else arrives; the names are TO's.
inline std::vector<std::string> check_plan(const switch_question& q, const std::vector<piece>& pieces,
                                           switch_totals& sums) {
  std::vector<std::string> faults;
  sums = {};
  const std::map<std::string, tensor> to = by_name(tensors(q.m, q.to));
  const auto fault = [&](long how_many, const std::string& sentence) {
    sums.wrong += how_many;
    if (how_many > 0 && faults.size() < 20) faults.push_back(sentence);
  };
  for (const piece& p : pieces)
    if (std::none_of(q.states.begin(), q.states.end(), [&](const state& s) { return s.name == p.state; }))
      fault(1, "A piece has the state " + p.state + ", which was not asked for.");

  for (const state& s : q.states) {
    const devices_of_state d = devices_of(q, s);
    add_needs(q, s, d, sums);
    std::map<long, holding> got;
    for (const piece& p : pieces) {
      if (p.state != s.name) continue;
      const std::string who =
          p.state + " " + p.tensor + ", device " + std::to_string(p.src) + " to " + std::to_string(p.dst) + ", ";
      if (to.count(p.tensor) == 0) {
        fault(1, who + "is no tensor of TO.");
        continue;
      }
      const tensor& t = to.at(p.tensor);
      intervals set;
      if (const std::string bad = flat_of_box(p.dims, p.box, t.rows() * t.columns(), set); !bad.empty()) {
        fault(1, who + bad + ".");
        continue;
      }
      (p.src == p.dst ? sums.retained_bytes : sums.moved_bytes) += count(set) * width_of(t, s);
      const intervals what = in_family(t, set);
      const auto destination = d.needed.find(p.dst);
      intervals need;
      if (destination != d.needed.end() && destination->second.count(p.tensor) != 0)
        need = without(destination->second.at(p.tensor), only_here(q.m, t, q.from));
      intervals& arrived = got[p.dst][p.tensor];
      const auto say = [&](const intervals& which, const std::string& kind) {
        if (!which.empty())
          fault(count(which), who + "has " + std::to_string(count(which)) + " elements " + kind + ", the first is " +
                                  std::to_string(which.front().first) + ".");
      };
      say(without(what, held_before(d, p.src, t.family)), "that the source did not hold");
      if (p.src != p.dst) say(both(what, held_before(d, p.dst, t.family)), "that the destination held already");
      say(without(set, need), "that the destination does not need");
      say(both(set, arrived), "that another piece brought");
      arrived = either(arrived, set);
    }
    for (const auto& [device, tensors_needed] : d.needed)
      for (const auto& [name, set] : tensors_needed) {
        const intervals created = only_here(q.m, to.at(name), q.from);
        const intervals missing = without(without(set, created), got[device][name]);
        if (!missing.empty())
          fault(count(missing), "Device " + std::to_string(device) + " gets " + std::to_string(count(missing)) +
                                    " elements of " + s.name + " " + name + " from no piece, the first is " +
                                    std::to_string(missing.front().first) + ".");
      }
  }
  return faults;
}

}  // namespace oracle::trainer
