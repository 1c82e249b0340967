// SPDX-License-Identifier: Apache-2.0
//
// The oracle, on relay: what the summary says of transfers with stages and phases, and the live bytes of every device,
// slot by slot and element by element. Written from the contract alone; brute force and obvious on purpose.
#pragma once

#include "relay_replay.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace oracle::relay {

struct device_figures {
  long send = 0, receive = 0, retained = 0, before = 0, after = 0, peak = 0;
  long passed = 0;         // bytes with relay: true that it gets
  std::vector<long> live;  // bytes, by slot
  long excess() const { return peak - std::max(before, after); }
};

struct figures {
  long moved = 0, relayed = 0, retained = 0, least = 0, inter_node = 0, cross_rail = 0, messages = 0;
  long phases = 1, slots = 1;
  long max_send = 0, max_receive = 0, peak = 0, peak_floor = 0, peak_excess = 0;
  long most_passed = 0;  // the contract's W
  std::map<long, device_figures> devices;
};

// The slot of the last reader of every element that a device sends; -1: nobody reads it.
class readers {
 public:
  readers(const question& q, const std::vector<hop>& hops) : last_(q) {
    for (const hop& h : hops)
      if (h.src != h.dst)
        for (long element : h.elements) {
          long& slot = last_.at(h.src, h.what, element);
          slot = std::max(slot, h.slot());
        }
  }
  long slot(long device, long what, long element) const { return last_.find(device, what, element); }

 private:
  arrivals last_;
};

inline std::set<std::pair<long, long>> held_somewhere(const question& q) {
  std::set<std::pair<long, long>> elements;
  q.each_element([&](long what, long element) { elements.insert({what, element}); });
  return elements;
}

// Adds bytes to the slots first .. last of a device.
inline void add_live(device_figures& d, long first, long last, long bytes) {
  for (long slot = first; slot <= last; ++slot) d.live.at(index(slot)) += bytes;
}

// What a device held before, and what it holds after. What nobody held is zeros, there from the first slot.
inline void add_held(const question& q, const readers& read, long slots, figures& f) {
  const bool kept = q.from == sources::kept;
  const std::set<std::pair<long, long>> somewhere = held_somewhere(q);
  for (long device : q.taking_part()) {
    device_figures& d = f.devices[device];
    for (long what = 0; what < length(q.tensors); ++what)
      for (long element = 0; element < q.tensors[index(what)].elements; ++element) {
        const bool held = q.held(device, what, element), needs = q.needs(device, what, element);
        const long width = q.tensors[index(what)].width;
        if (held) d.before += width;
        if (needs || (kept && held)) d.after += width;
        if (needs && somewhere.count({what, element}) == 0) add_live(d, 0, slots - 1, width);
        if (!held) continue;
        const bool stays = needs || kept;
        add_live(d, 0, stays ? slots - 1 : read.slot(device, what, element), width);
      }
  }
}

// What arrives: kept from its slot on, or until its last reader.
inline void add_moves(const question& q, const std::vector<hop>& hops, const readers& read, figures& f) {
  std::set<std::tuple<long, long, long, long>> messages;
  for (const hop& h : hops) {
    const long width = q.tensors[index(h.what)].width, bytes = length(h.elements) * width;
    if (h.src == h.dst) {
      f.retained += bytes;
      f.devices[h.src].retained += bytes;
      continue;
    }
    messages.insert({h.src, h.dst, h.stage, h.phase});
    (h.passed ? f.relayed : f.moved) += bytes;
    if (q.node_of(h.src) != q.node_of(h.dst)) f.inter_node += bytes;
    if (q.cluster.crosses_rails(h.src, h.dst)) f.cross_rail += bytes;
    f.devices[h.src].send += bytes;
    device_figures& d = f.devices[h.dst];
    d.receive += bytes;
    if (h.passed) d.passed += bytes;
    for (long element : h.elements)
      add_live(d, h.slot(), h.passed ? read.slot(h.dst, h.what, element) : f.slots - 1, width);
  }
  f.messages = length(messages);
}

// What the summary and the table of devices say of hops that `judge` finds nothing wrong with.
inline figures figures_of(const question& q, const std::vector<hop>& hops) {
  figures f;
  for (const hop& h : hops) f.phases = std::max(f.phases, h.phase + 1);
  f.slots = q.stages + f.phases - 1;
  for (long device : q.taking_part()) f.devices[device].live.assign(index(f.slots), 0);
  const readers read(q, hops);
  add_held(q, read, f.slots, f);
  add_moves(q, hops, read, f);
  q.each_element([&](long what, long element) {
    for (const auto& of : q.after)
      if (q.needs(of.first, what, element) && !q.held(of.first, what, element)) f.least += q.tensors[index(what)].width;
  });
  for (auto& of : f.devices) {
    device_figures& d = of.second;
    d.peak = std::max(d.before, *std::max_element(d.live.begin(), d.live.end()));
    f.max_send = std::max(f.max_send, d.send);
    f.max_receive = std::max(f.max_receive, d.receive);
    f.peak = std::max(f.peak, d.peak);
    f.peak_floor = std::max({f.peak_floor, d.before, d.after});
    f.peak_excess = std::max(f.peak_excess, d.excess());
    f.most_passed = std::max(f.most_passed, d.passed);
  }
  return f;
}

}  // namespace oracle::relay
