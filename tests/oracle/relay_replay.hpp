// SPDX-License-Identifier: Apache-2.0
//
// The oracle, on relay: transfers with stages and phases, replayed element by element. Written from the contract alone
// (engine, "Phases, slots, memory"); it knows neither layouts nor the library. Brute force and obvious on purpose.
#pragma once

#include "link_time.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace oracle::relay {

// A tensor of one state; of tied names there is one tensor.
struct what_moves {
  std::string name;
  long elements = 0, width = 0;
};

// A transfer: elements of questions' tensor number `what`. src == dst: retained.
struct hop {
  long src = 0, dst = 0, what = 0;
  std::vector<long> elements;
  long stage = 0, phase = 0;
  bool passed = false;  // relay: true
  long slot() const { return stage + phase; }
};

enum class routing { never, always };
enum class sources { given_up, kept };

// What a device has of every tensor, one char per element; an empty set: nothing of it.
using device_sets = std::vector<flat_set>;

struct question {
  link_cluster cluster;
  std::vector<what_moves> tensors;
  std::map<long, device_sets> before, after;  // devices with a rank of FROM that is not lost, with one of TO
  routing route = routing::never;
  sources from = sources::given_up;
  long stages = 1;

  std::set<long> taking_part() const {
    std::set<long> devices;
    for (const auto* side : {&before, &after})
      for (const auto& held : *side) devices.insert(held.first);
    return devices;
  }
  bool has(const std::map<long, device_sets>& side, long device, long what, long element) const {
    const auto found = side.find(device);
    if (found == side.end()) return false;
    const flat_set& set = found->second.at(index(what));
    return !set.empty() && set[index(element)] != 0;
  }
  bool held(long device, long what, long element) const { return has(before, device, what, element); }
  bool needs(long device, long what, long element) const { return has(after, device, what, element); }
  long node_of(long device) const { return cluster.node_of(device); }
  bool node_has(const std::map<long, device_sets>& side, long node, long what, long element) const {
    for (const auto& of : side)
      if (node_of(of.first) == node && has(side, of.first, what, element)) return true;
    return false;
  }
  // Calls visit(what, element) for every element that somebody held before.
  template <typename Visit>
  void each_element(Visit&& visit) const {
    for (long what = 0; what < length(tensors); ++what)
      for (long element = 0; element < tensors[index(what)].elements; ++element)
        for (const auto& of : before)
          if (held(of.first, what, element)) {
            visit(what, element);
            break;
          }
  }
};

// What can be wrong with a plan.
enum class wrong {
  nonsense,         // no such tensor, element, stage or phase
  takes_no_part,    // a device without a rank sends or receives
  not_there,        // sent before it was there
  other_stage,      // sent in another stage than that of its arrival
  held_already,     // received by a device that held it
  twice,            // received or retained twice
  flag,             // `relay` is not whether the receiving device's TO rank lacks the byte
  not_passed_on,    // relay: true, and the device that got it does not send it
  retained,         // retained, though not held, not needed, in a later phase or relay: true
  missing,          // needed, and neither arrived nor retained
  later_phase,      // never: a phase above 0
  enters_twice,     // always: a byte enters a node twice
  enters_unwanted,  // always: a byte enters a node that held it or does not need it
  enters_from,      // always: from a node that neither held it nor got it in an earlier phase
  between_nodes,    // always: the bytes between nodes are not those that nodes lack
  chains,           // n nodes that held a byte serve other than F n nodes, or another serves more than one
};

struct fault {
  wrong kind;
  std::string sentence;
};

// All faults are counted by kind, of each kind the first few have a sentence.
struct verdict {
  std::map<wrong, long> count;
  std::vector<fault> faults;
  void say(wrong kind, const std::string& sentence) {
    if (++count[kind] <= 3) faults.push_back({kind, sentence});
  }
  std::vector<std::string> sentences() const {
    std::vector<std::string> all;
    for (const fault& f : faults) all.push_back(f.sentence);
    return all;
  }
};

// Which hop brought an element to a device; -1: none did.
class arrivals {
 public:
  explicit arrivals(const question& q) : q_(&q) {}
  long& at(long device, long what, long element) {
    std::vector<std::vector<long>>& mine = hops_[device];
    mine.resize(q_->tensors.size());
    std::vector<long>& of = mine[index(what)];
    if (of.empty()) of.resize(index(q_->tensors[index(what)].elements), -1);
    return of[index(element)];
  }
  long find(long device, long what, long element) const {
    const auto mine = hops_.find(device);
    if (mine == hops_.end() || mine->second[index(what)].empty()) return -1;
    return mine->second[index(what)][index(element)];
  }

 private:
  const question* q_;
  std::map<long, std::vector<std::vector<long>>> hops_;
};

inline std::string text_of(const question& q, const hop& h, long element) {
  return "element " + std::to_string(element) + " of " + q.tensors.at(index(h.what)).name + ", device " +
         std::to_string(h.src) + " to " + std::to_string(h.dst) + " in stage " + std::to_string(h.stage) + ", phase " +
         std::to_string(h.phase) + ",";
}

// Whether a hop can be looked at.
inline bool makes_sense(const question& q, const std::set<long>& part, const hop& h, verdict& v) {
  if (h.what < 0 || h.what >= length(q.tensors)) return v.say(wrong::nonsense, "A transfer has no tensor."), false;
  const long elements = q.tensors[index(h.what)].elements;
  for (long element : h.elements)
    if (element < 0 || element >= elements)
      return v.say(wrong::nonsense, text_of(q, h, element) + " does not exist."), false;
  if (h.elements.empty()) return v.say(wrong::nonsense, text_of(q, h, -1) + " an empty transfer."), false;
  if (h.stage < 0 || h.stage >= q.stages || h.phase < 0)
    return v.say(wrong::nonsense, text_of(q, h, h.elements[0]) + " is in no stage or phase."), false;
  for (long device : {h.src, h.dst})
    if (part.count(device) == 0)
      return v.say(wrong::takes_no_part,
                   text_of(q, h, h.elements[0]) + " passes " + std::to_string(device) + ", which takes no part."),
             false;
  return true;
}

// First look: what a hop says by itself, and that nothing arrives twice.
inline void look_at_arrival(const question& q, const hop& h, long number, arrivals& came, verdict& v) {
  for (long element : h.elements) {
    const std::string text = text_of(q, h, element);
    const bool kept = h.src == h.dst;
    if (kept && (!q.held(h.src, h.what, element) || !q.needs(h.src, h.what, element) || h.passed || h.phase != 0))
      v.say(wrong::retained, text + " is retained, which it can't be.");
    if (!kept && q.held(h.dst, h.what, element)) v.say(wrong::held_already, text + " was there before.");
    if (!kept && h.passed == q.needs(h.dst, h.what, element))
      v.say(wrong::flag, text + (h.passed ? " is needed there, and passed on only." : " is not needed there."));
    long& by = came.at(h.dst, h.what, element);
    if (by >= 0) v.say(wrong::twice, text + " came before.");
    else by = number;
    if (q.route == routing::never && h.phase > 0) v.say(wrong::later_phase, text + " is relayed, and may not be.");
  }
}

// Second look: was it there, and in that stage?
inline void look_at_source(const question& q, const hop& h, const std::vector<hop>& hops, const arrivals& came,
                           verdict& v) {
  if (h.src == h.dst) return;
  for (long element : h.elements) {
    if (q.held(h.src, h.what, element)) continue;
    const long by = came.find(h.src, h.what, element);
    if (by < 0) {
      v.say(wrong::not_there, text_of(q, h, element) + " never was at its source.");
    } else if (hops[index(by)].stage != h.stage) {
      v.say(wrong::other_stage,
            text_of(q, h, element) + " came in stage " + std::to_string(hops[index(by)].stage) + ".");
    } else if (hops[index(by)].phase >= h.phase) {
      v.say(wrong::not_there,
            text_of(q, h, element) + " comes in phase " + std::to_string(hops[index(by)].phase) + ".");
    }
  }
}

// Third look: what had to come, came; what came to be passed on, was.
inline void look_at_ends(const question& q, const std::vector<hop>& hops, const arrivals& came, verdict& v) {
  std::set<std::pair<long, std::pair<long, long>>> sent;  // device, tensor, element
  for (const hop& h : hops)
    if (h.src != h.dst)
      for (long element : h.elements) sent.insert({h.src, {h.what, element}});
  for (const hop& h : hops)
    if (h.src != h.dst && h.passed)
      for (long element : h.elements)
        if (sent.count({h.dst, {h.what, element}}) == 0)
          v.say(wrong::not_passed_on, text_of(q, h, element) + " ends where nobody needs it.");
  q.each_element([&](long what, long element) {
    for (const auto& of : q.after)
      if (q.needs(of.first, what, element) && came.find(of.first, what, element) < 0)
        v.say(wrong::missing, "Device " + std::to_string(of.first) + " gets element " + std::to_string(element) +
                                  " of " + q.tensors[index(what)].name + " from nobody.");
  });
}

// Bytes that a node's TO ranks hold and none of its FROM ranks did, of those that anybody held: the contract's I.
inline std::map<long, long> lacked_by_nodes(const question& q) {
  std::map<long, long> bytes;
  q.each_element([&](long what, long element) {
    std::set<long> lack;
    for (const auto& of : q.after)
      if (q.needs(of.first, what, element)) lack.insert(q.node_of(of.first));
    for (const auto& of : q.before)
      if (q.held(of.first, what, element)) lack.erase(q.node_of(of.first));
    for (long node : lack) bytes[node] += q.tensors[index(what)].width;
  });
  return bytes;
}

// Relay: a byte enters a node at most once, only where it is needed and was not, from a node that had it.
inline void look_at_nodes(const question& q, const std::vector<hop>& hops, verdict& v) {
  std::map<std::pair<long, std::pair<long, long>>, const hop*> entered;
  long between = 0, lacked = 0;
  for (const hop& h : hops) {
    const long node = q.node_of(h.dst);
    if (q.node_of(h.src) == node) continue;
    for (long element : h.elements) {
      between += q.tensors[index(h.what)].width;
      if (!entered.insert({{node, {h.what, element}}, &h}).second)
        v.say(wrong::enters_twice, text_of(q, h, element) + " enters that node again.");
      if (q.node_has(q.before, node, h.what, element) || !q.node_has(q.after, node, h.what, element))
        v.say(wrong::enters_unwanted, text_of(q, h, element) + " enters a node that held it or does not need it.");
    }
  }
  for (const hop& h : hops) {
    const long node = q.node_of(h.src);
    if (q.node_of(h.dst) == node) continue;
    for (long element : h.elements) {
      if (q.node_has(q.before, node, h.what, element)) continue;
      const auto by = entered.find({node, {h.what, element}});
      if (by == entered.end() || by->second->phase >= h.phase)
        v.say(wrong::enters_from, text_of(q, h, element) + " leaves a node that it has not entered yet.");
    }
  }
  for (const auto& of : lacked_by_nodes(q)) lacked += of.second;
  if (between != lacked)
    v.say(wrong::between_nodes,
          std::to_string(between) + " bytes pass between nodes, which lack " + std::to_string(lacked) + ".");
}

// Of every byte: n nodes that held it serve the first F n of those that lack it; every other node gets it from one that
// got it, which serves one.
inline void look_at_chains(const question& q, const std::vector<hop>& hops, long chains, verdict& v) {
  struct served {
    const hop* one = nullptr;
    std::map<long, long> by_holder, by_other;  // nodes that a node serves
    long firsts() const {
      long n = 0;
      for (const auto& of : by_holder) n += of.second;
      return n;
    }
    long others() const {
      long n = 0;
      for (const auto& of : by_other) n += of.second;
      return n;
    }
  };
  std::map<std::pair<long, long>, served> bytes;
  for (const hop& h : hops)
    if (q.node_of(h.src) != q.node_of(h.dst))
      for (long element : h.elements) {
        served& of = bytes[{h.what, element}];
        of.one = &h;
        const bool held = q.node_has(q.before, q.node_of(h.src), h.what, element);
        ++(held ? of.by_holder : of.by_other)[q.node_of(h.src)];
      }
  for (const auto& [which, of] : bytes) {
    std::set<long> holders;
    for (const auto& device : q.before)
      if (q.held(device.first, which.first, which.second)) holders.insert(q.node_of(device.first));
    const long firsts = std::min(chains * length(holders), of.firsts() + of.others());
    bool right = of.firsts() == firsts;
    for (const auto& node : of.by_other) right = right && node.second <= 1;
    if (!right)
      v.say(wrong::chains, text_of(q, *of.one, which.second) + " is on its way to " +
                               std::to_string(of.firsts() + of.others()) + " nodes, of which " +
                               std::to_string(of.firsts()) + " get it from " + std::to_string(length(holders)) +
                               " that held it, for F = " + std::to_string(chains) + ".");
  }
}

// Everything that is wrong with a list of transfers; hops that make no sense are told and left out.
inline verdict judge(const question& q, const std::vector<hop>& all) {
  verdict v;
  std::vector<hop> hops;
  const std::set<long> part = q.taking_part();
  for (const hop& h : all)
    if (makes_sense(q, part, h, v)) hops.push_back(h);
  arrivals came(q);
  for (long i = 0; i < length(hops); ++i) look_at_arrival(q, hops[index(i)], i, came, v);
  for (const hop& h : hops) look_at_source(q, h, hops, came, v);
  look_at_ends(q, hops, came, v);
  if (q.route == routing::always) look_at_nodes(q, hops, v);
  return v;
}

}  // namespace oracle::relay
