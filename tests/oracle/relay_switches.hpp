// SPDX-License-Identifier: Apache-2.0
//
// Random switches on clusters for relay: nodes of 1 to 4 devices, missing devices, uneven NICs, worlds that overlap or
// lie apart, chains from few holders to many nodes, stages, budgets, kept sources. The same seed gives the same ones.
#pragma once

#include "link_time.hpp"
#include "random_layouts.hpp"
#include "relay_figures.hpp"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace oracle::relay {

// One switch and how it is asked for.
struct asked_switch {
  model m;
  layout from, to;
  std::string config, from_text, to_text, cluster_text;
  std::vector<long> from_devices, to_devices;  // of each rank, as asked
  std::vector<long> to_seats;                  // where TO's ranks sit: another order where relabelled
  std::set<long> lost;
  link_cluster cluster;
  std::vector<state> states;
  std::string state_text, relay;  // for --state and --relay
  long stages = 0;                // 0: not given
  long budget_parts = 0;          // a budget of B / this; 0: none
  bool keep_sources = false, relabel = false;
  bool shape = false;  // a cluster without speeds, 4x2
  std::set<std::string> features;

  std::string describe() const {
    std::string text = "'" + from_text + "' on " + device_text(from_devices) + " to '" + to_text + "' on " +
                       device_text(to_devices) + ", --relay " + relay + " --state " + state_text;
    if (stages > 0) text += " --stages " + std::to_string(stages);
    if (budget_parts > 0) text += ", a budget of B / " + std::to_string(budget_parts);
    if (keep_sources) text += " --keep-sources";
    if (relabel) text += " --relabel";
    for (long device : lost) text += " (lost: " + std::to_string(device) + ")";
    return text + " on " + cluster_text + " of " + config;
  }
};

// Number of a tensor of one state among a question's; tied names are one.
using tensor_numbers = std::map<std::pair<state, std::string>, long>;

// What is held and needed where, element by element. Lost devices hold nothing.
inline question question_of(const asked_switch& s, tensor_numbers& numbers) {
  question q{s.cluster, {}, {}, {}, routing::never, s.keep_sources ? sources::kept : sources::given_up, 1};
  numbers.clear();
  for (const state st : s.states)
    for (const layout* side : {&s.from, &s.to})
      for (const tensor& t : tensors(s.m, *side))
        if (numbers.insert({{st, one_name(s.m, t.name)}, length(q.tensors)}).second)
          q.tensors.push_back({name_of(st) + " of " + one_name(s.m, t.name), product(t.shape), width_of(st)});
  const auto add = [&](std::map<long, device_sets>& side, const layout& l, const std::vector<long>& devices) {
    for (long rank = 0; rank < length(devices); ++rank) {
      const long device = devices[index(rank)];
      if (&side == &q.before && s.lost.count(device) != 0) continue;
      device_sets& sets = side[device];
      sets.resize(q.tensors.size());
      for (const state st : s.states)
        for (const auto& [name, set] : held(s.m, l, rank, st)) {
          flat_set& mine = sets[index(numbers.at({st, one_name(s.m, name)}))];
          mine.resize(set.size(), 0);
          for (std::size_t i = 0; i < set.size(); ++i) mine[i] = static_cast<char>(mine[i] | set[i]);
        }
    }
  };
  add(q.before, s.from, s.from_devices);
  add(q.after, s.to, s.to_seats);
  return q;
}

class switch_generator {
 public:
  explicit switch_generator(std::uint64_t seed) : random_(seed) {}

  asked_switch next() {
    for (;;) {
      asked_switch s;
      s.m = random_model();
      s.config = config_json(s.m);
      const bool chain = below(5) == 0;
      if (!random_layout(s.m, chain ? 2 : 12, s.from_text, s.from)) continue;
      if (!random_layout(s.m, 16, s.to_text, s.to) || (chain && s.to.world < 6)) continue;
      const long gpus = chain ? 1 + below(2) : 1 + below(4);
      random_devices(s, gpus);
      random_cluster(s, gpus);
      random_options(s);
      s.to_seats = s.to_devices;
      note_features(s);
      return s;
    }
  }
  const std::map<std::string, long>& count() const { return count_; }

 private:
  std::mt19937_64 random_;
  std::map<std::string, long> count_;

  long below(long n) { return static_cast<long>(random_() % static_cast<std::uint64_t>(n)); }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[index(below(length(list)))];
  }
  void shuffle(std::vector<long>& list) {
    for (long i = length(list) - 1; i > 0; --i) std::swap(list[index(i)], list[index(below(i + 1))]);
  }

  model random_model() {
    model m;
    m.layers = one_of<long>({1, 2, 2, 3, 4});
    m.hidden = one_of<long>({8, 12, 16});
    m.heads = one_of<long>({2, 4, 4});
    m.groups = below(2) == 0 ? m.heads : 2;
    m.head_dim = one_of<long>({2, 3, 4});
    m.vocab = one_of<long>({12, 16, 24});
    m.tied = below(4) == 0;
    m.qk_norm = below(2) == 0;
    if (m.qk_norm && below(2) == 0) {
      m.experts = 4;
      m.expert_ffn = one_of<long>({4, 8});
      m.moe.assign(index(m.layers), true);
      if (m.layers > 1 && below(2) == 0) m.moe[index(below(m.layers))] = false;
    }
    if (has_dense_layer(m)) m.ffn = one_of<long>({8, 12});
    return m;
  }

  bool random_layout(const model& m, long largest_world, std::string& text, layout& l) {
    for (int attempt = 0; attempt < 40; ++attempt) {
      text.clear();
      const auto item = [&](const char* key, const std::vector<long>& values) {
        if (const long value = one_of(values); value != 1)
          text += (text.empty() ? "" : ",") + std::string(key) + "=" + std::to_string(value);
      };
      item("tp", {1, 1, 2, 2, 4});
      item("pp", {1, 1, 2, 3, 4});
      item("dp", {1, 1, 2, 3, 4, 6, 8});
      item("cp", {1, 1, 1, 1, 2});
      if (m.experts > 0) item("ep", {1, 2, 4});
      if (below(2) == 0) text += std::string(text.empty() ? "" : ",") + "zero=1";
      if (below(3) == 0) text += std::string(text.empty() ? "" : ",") + "split=spread";
      if (below(6) == 0) text += std::string(text.empty() ? "" : ",") + "bucket=200";
      try {
        l = parse(m, text);
      } catch (const illegal&) {
        continue;
      }
      if (l.world <= largest_world) return true;
    }
    return false;
  }

  // Both worlds out of a universe that may have devices of nobody.
  void random_devices(asked_switch& s, long gpus) {
    const auto some = [&](std::vector<long> of, long n) {
      if (below(3) == 0) shuffle(of);  // anywhere, in any order
      if (below(3) == 0) std::rotate(of.begin(), of.begin() + below(length(of)), of.end());
      of.resize(index(n));
      if (below(2) == 0) std::sort(of.begin(), of.end());
      return of;
    };
    const bool apart = below(3) == 0;
    const long least = apart ? s.from.world + s.to.world : std::max(s.from.world, s.to.world);
    std::vector<long> universe;
    const long spare = below(2) == 0 ? 0 : 1 + below(2 * gpus);
    for (long d = 0; d < least + spare; ++d) universe.push_back(d);
    if (below(3) == 0)  // whole nodes between them are nobody's
      for (long& d : universe)
        if (d >= 2 * gpus) d += gpus;
    s.from_devices = some(universe, s.from.world);
    if (apart)
      universe.erase(std::remove_if(universe.begin(), universe.end(),
                                    [&](long d) {
                                      return std::find(s.from_devices.begin(), s.from_devices.end(), d) !=
                                             s.from_devices.end();
                                    }),
                     universe.end());
    s.to_devices = some(universe, s.to.world);
    if (below(4) == 0) {
      s.lost.insert(one_of(s.from_devices));
      for (long d : s.to_devices)
        if (s.lost.count(d) != 0) s.lost.clear();
    }
  }

  void random_cluster(asked_switch& s, long gpus) {
    long highest = 0;
    for (const auto* list : {&s.from_devices, &s.to_devices})
      for (long d : *list) highest = std::max(highest, d);
    const double scale = one_of<double>({1e-3, 1e-2, 1}), nic = one_of<double>({0.1, 0.2, 0.5});
    s.cluster = {gpus, {}, one_of<double>({0, 3, 10}), one_of<double>({0, 7, 50})};
    s.shape = below(7) == 0;
    const bool uneven = !s.shape && below(2) == 0;
    std::ostringstream nodes;
    for (long y = 0; y <= highest / gpus + below(2); ++y) {
      link_node n{gpus, scale, nic * scale, 8 * scale, below(3) == 0 ? 2 * nic * scale : -1};
      if (uneven && below(2) == 0) n.nics = 1 + below(gpus);
      if (uneven && below(2) == 0) n.nic *= 0.5;
      s.cluster.nodes.push_back(n);
      nodes << (y > 0 ? "," : "") << std::setprecision(17) << "{\"nics\":" << n.nics << ",\"nic_GBps\":" << n.nic
            << ",\"spine_GBps\":";
      if (n.spine < 0) nodes << "null}";
      else nodes << n.spine << '}';
    }
    std::ostringstream text;
    text << std::setprecision(17) << "{\"gpus\":" << gpus << ",\"nvlink_GBps\":" << scale
         << ",\"nic_GBps\":" << nic * scale << ",\"copy_GBps\":" << 8 * scale
         << ",\"message_us\":" << s.cluster.message_us << ",\"stage_us\":" << s.cluster.stage_us << ",\"nodes\":["
         << nodes.str() << "]}";
    s.cluster_text = s.shape ? std::to_string(s.cluster.nodes.size()) + "x" + std::to_string(gpus) : text.str();
  }

  void random_options(asked_switch& s) {
    s.relay = one_of<std::string>({"never", "always", "always", "always", "auto"});
    s.keep_sources = below(6) == 0;
    if (s.shape && s.relay == "auto") s.relay = "always";
    switch (below(4)) {
      case 0: s.stages = one_of<long>({2, 3, 4, 5, 7, 16, 64}); break;
      case 1: s.budget_parts = one_of<long>({1, 2, 3, 5, 8, 13, 30, 100, 5000, 20000}); break;
      default: break;
    }
    s.relabel = s.budget_parts == 0 && below(5) == 0;
    const std::vector<state> all(std::begin(all_states), std::end(all_states));
    s.states = below(3) == 0 ? std::vector{state::param} : all;
    s.state_text = s.states.size() == 1 ? "param" : "all";
  }

  void note_features(asked_switch& s) {
    std::set<long> part(s.from_devices.begin(), s.from_devices.end()), nodes, both;
    for (long d : s.to_devices)
      if (!part.insert(d).second) both.insert(d);
    for (long d : part) nodes.insert(s.cluster.node_of(d));
    const auto add = [&](bool has, const std::string& feature) {
      if (has) s.features.insert(feature), ++count_[feature];
    };
    add(true, "nodes of " + std::to_string(s.cluster.gpus));
    add(length(part) < length(nodes) * s.cluster.gpus, "missing devices");
    bool uneven = false;
    for (long y : nodes)
      for (long z : nodes) {
        const link_node &a = s.cluster.nodes[index(y)], &b = s.cluster.nodes[index(z)];
        uneven = uneven || a.nics != b.nics || a.nic != b.nic || a.nics != s.cluster.gpus;
      }
    add(uneven, "uneven NICs");
    add(both.empty(), "disjoint worlds");
    add(!both.empty() && both.size() < part.size(), "overlapping worlds");
    add(nodes.size() > 1, "several nodes");
    add(s.budget_parts > 0, "budgets");
    add(s.stages > 1, "stages named");
    add(s.keep_sources, "kept sources");
    add(s.relabel, "relabelled");
    add(s.shape, "shapes");
    add(!s.lost.empty(), "lost devices");
    add(s.m.tied && (s.from.pp > 1 || s.to.pp > 1), "tied names");
    add(true, "relay " + s.relay);
  }
};

}  // namespace oracle::relay
