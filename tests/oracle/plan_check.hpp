// SPDX-License-Identifier: Apache-2.0
//
// The oracle, third part: is a list of pieces the right plan? Every element of every device is looked at.
#pragma once

#include "contract.hpp"

#include <array>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace oracle {

struct piece {
  long src, dst;  // devices
  state st;
  std::string tensor;
  std::vector<long> dims;                // any factorisation whose row-major order is the tensor's
  std::vector<std::array<long, 2>> box;  // half-open per dim
};

struct totals {
  long moved_bytes = 0;     // delivered by pieces with src != dst
  long retained_bytes = 0;  // of pieces with src == dst
  long least_bytes = 0;     // needed and not there: the oracle's own count, whatever the pieces are
  long lost_bytes = 0;      // needed by somebody and held by lost devices alone, each element once
  long lost_wanted = 0;     // the same, once for every device that needs it
  long needed = 0;          // elements that were looked at: what every device needs, in every state
  long wrong = 0;           // elements brought or kept that must not be, or missing; 1 for a piece that makes no sense
};

// The two names of a tied embedding are one tensor.
inline std::string one_name(const model& m, const std::string& name) {
  return m.tied && name == "output_layer.weight" ? "embedding.word_embeddings.weight" : name;
}

// The flat indices of a box, or a sentence that says what is wrong with it.
inline std::string elements_of_box(const std::vector<long>& dims, const std::vector<std::array<long, 2>>& box,
                                   long numel, std::vector<long>& elements) {
  elements.clear();
  for (long extent : dims)
    if (extent < 1) return "has a dim below 1";
  if (product(dims) != numel) return "has dims whose product is not the tensor's number of elements";
  if (box.size() != dims.size()) return "has a box of another rank than its dims";
  for (std::size_t i = 0; i < box.size(); ++i) {
    if (box[i][0] < 0 || box[i][1] > dims[i]) return "has a box that leaves its dims";
    if (box[i][0] >= box[i][1]) return "has an empty box";
  }
  elements.push_back(0);
  for (std::size_t i = 0; i < box.size(); ++i) {  // one more dim: every prefix splits into its coordinates
    std::vector<long> longer;
    longer.reserve(elements.size() * index(box[i][1] - box[i][0]));
    for (long prefix : elements)
      for (long coordinate = box[i][0]; coordinate < box[i][1]; ++coordinate)
        longer.push_back(prefix * dims[i] + coordinate);
    elements = std::move(longer);
  }
  return {};
}

// One sentence per fault (at most 20), empty when the plan is right: every element that a device needs under TO arrives
// exactly once (src != dst), or is retained (src == dst) iff the same device held it already under FROM in the same
// state; the source holds every element; nothing arrives that was there already or that is not needed.
// from_devices[r] is the device of FROM's rank r, to_devices[r] of TO's. `states`: those that the plan is about.
// `lost` devices hold nothing under FROM; what they alone held is in no piece, and is in `left_out` exactly once.
inline std::vector<std::string> check_plan(const model& m, const layout& from, const layout& to,
                                           const std::vector<long>& from_devices, const std::vector<long>& to_devices,
                                           const std::vector<piece>& pieces, totals& sums,
                                           const std::vector<state>& states = {state::param, state::master,
                                                                               state::exp_avg, state::exp_avg_sq},
                                           const std::set<long>& lost = {}, const std::vector<piece>& left_out = {}) {
  std::vector<std::string> faults;
  const auto fault = [&](const std::string& sentence) {
    if (faults.size() < 20) faults.push_back(sentence);
  };
  sums = {};

  if (length(from_devices) != from.world || length(to_devices) != to.world)
    fault("A device list is not as long as its world.");
  if (std::set<long>(from_devices.begin(), from_devices.end()).size() != from_devices.size() ||
      std::set<long>(to_devices.begin(), to_devices.end()).size() != to_devices.size())
    fault("A device list names a device twice.");
  if (!faults.empty()) return faults;

  std::map<std::string, long> numel;  // of the tensors that exist under TO
  for (const tensor& t : tensors(m, to)) numel[t.name] = product(t.shape);

  for (const piece& p : pieces)
    if (std::find(states.begin(), states.end(), p.st) == states.end()) {
      fault("A piece has the state " + name_of(p.st) + ", which was not asked for.");
      break;
    }

  for (const state s : states) {
    using holdings = std::map<std::string, flat_set>;
    std::map<long, holdings> before;       // device -> what it holds under FROM, by one_name
    std::map<long, holdings> needed;       // device -> what it needs under TO, by TO's name
    std::map<long, holdings> got;          // what of that was delivered or retained so far
    std::map<std::string, flat_set> dead;  // what lost devices held and nobody else does, by one_name
    for (long rank = 0; rank < from.world; ++rank)
      for (auto& [name, set] : held(m, from, rank, s)) {
        if (lost.count(from_devices[index(rank)]) == 0) {
          before[from_devices[index(rank)]][one_name(m, name)] = set;
          continue;
        }
        flat_set& all = dead[one_name(m, name)];
        all.resize(set.size(), 0);
        for (long element = 0; element < length(set); ++element)
          if (set[index(element)] != 0) all[index(element)] = 1;
      }
    for (const auto& [device, of_device] : before)
      for (const auto& [name, set] : of_device)
        if (const auto at = dead.find(name); at != dead.end())
          for (long element = 0; element < length(set); ++element)
            if (set[index(element)] != 0) at->second[index(element)] = 0;
    std::map<std::string, flat_set> told;  // of left_out
    for (const piece& p : left_out) {
      std::vector<long> elements;
      if (p.st != s) continue;
      if (numel.count(p.tensor) == 0 || !elements_of_box(p.dims, p.box, numel.at(p.tensor), elements).empty()) {
        fault("What is left out of " + p.tensor + " makes no sense.");
        continue;
      }
      flat_set& all = told[one_name(m, p.tensor)];
      all.resize(index(numel.at(p.tensor)), 0);
      for (long element : elements)
        if (all[index(element)]++ != 0) ++sums.wrong, fault("An element of " + p.tensor + " is left out twice.");
    }
    std::map<std::string, flat_set> counted;  // of lost_bytes
    for (long rank = 0; rank < to.world; ++rank) needed[to_devices[index(rank)]] = held(m, to, rank, s);
    for (const auto& [device, tensors_needed] : needed)
      for (const auto& [name, set] : tensors_needed) got[device][name] = flat_set(set.size(), 0);

    const auto was_there = [&](long device, const std::string& name) -> const flat_set* {
      const auto d = before.find(device);
      if (d == before.end()) return nullptr;
      const auto t = d->second.find(one_name(m, name));
      return t == d->second.end() ? nullptr : &t->second;
    };

    for (long number = 0; number < length(pieces); ++number) {
      const piece& p = pieces[index(number)];
      if (p.st != s) continue;
      const auto bad = [&](const std::string& what) {
        std::ostringstream sentence;
        sentence << "Piece " << number << " (" << name_of(p.st) << ' ' << p.tensor << ", device " << p.src << " to "
                 << p.dst << ") " << what << '.';
        fault(sentence.str());
      };
      if (numel.count(p.tensor) == 0) {
        bad("names a tensor that does not exist under TO");
        ++sums.wrong;
        continue;
      }
      std::vector<long> elements;
      if (const std::string wrong = elements_of_box(p.dims, p.box, numel.at(p.tensor), elements); !wrong.empty()) {
        bad(wrong);
        ++sums.wrong;
        continue;
      }
      (p.src == p.dst ? sums.retained_bytes : sums.moved_bytes) += length(elements) * width_of(s);

      const flat_set* const at_source = was_there(p.src, p.tensor);
      const flat_set* const at_destination = was_there(p.dst, p.tensor);
      const auto d = needed.find(p.dst);
      const flat_set* need = nullptr;
      if (d != needed.end() && d->second.count(p.tensor) != 0) need = &d->second.at(p.tensor);

      struct kind {
        const char* what;
        long elements = 0, first = 0;
      };
      kind not_at_source{"that the source does not hold"}, not_needed{"that the destination does not need"};
      kind there_already{"that the destination held already"}, twice{"that some piece brought before"};
      const auto note = [](kind& k, long element) {
        if (k.elements++ == 0) k.first = element;
      };
      for (long element : elements) {
        if (at_source == nullptr || (*at_source)[index(element)] == 0) note(not_at_source, element);
        if (p.src != p.dst && at_destination != nullptr && (*at_destination)[index(element)] != 0)
          note(there_already, element);
        if (need == nullptr || (*need)[index(element)] == 0) {
          note(not_needed, element);
          continue;
        }
        char& here = got.at(p.dst).at(p.tensor)[index(element)];
        if (here != 0) note(twice, element);
        here = 1;
      }
      for (const kind& k : {not_at_source, not_needed, there_already, twice})
        if (sums.wrong += k.elements; k.elements > 0)
          bad("has " + std::to_string(k.elements) + " elements " + k.what + ", the first is " +
              std::to_string(k.first));
    }

    for (const auto& [device, tensors_needed] : needed)
      for (const auto& [name, need] : tensors_needed) {
        const flat_set* const there = was_there(device, name);
        long missing = 0, first = 0;
        for (long element = 0; element < length(need); ++element) {
          if (need[index(element)] == 0) continue;
          ++sums.needed;
          const auto gone = dead.find(one_name(m, name));
          const bool is_lost = gone != dead.end() && gone->second[index(element)] != 0;
          const auto said = told.find(one_name(m, name));
          const bool is_told = said != told.end() && said->second[index(element)] != 0;
          if (is_told != is_lost)
            ++sums.wrong, fault("Element " + std::to_string(element) + " of " + name_of(s) + " " + name + " is " +
                                (is_lost ? "lost, and nobody says so." : "said to be lost, and is not."));
          if (is_lost) {
            flat_set& all = counted[one_name(m, name)];
            all.resize(need.size(), 0);
            if (all[index(element)]++ == 0) sums.lost_bytes += width_of(s);
            sums.lost_wanted += width_of(s);
            continue;
          }
          if (there == nullptr || (*there)[index(element)] == 0) sums.least_bytes += width_of(s);
          if (got.at(device).at(name)[index(element)] == 0 && missing++ == 0) first = element;
        }
        if (sums.wrong += missing; missing > 0)
          fault("Device " + std::to_string(device) + " gets " + std::to_string(missing) + " elements of " + name_of(s) +
                " " + name + " from no piece, the first is " + std::to_string(first) + ".");
      }
  }
  return faults;
}

}  // namespace oracle
