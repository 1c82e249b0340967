// SPDX-License-Identifier: Apache-2.0
//
// Random legal layouts and switches of tiny models, steered so that every feature is met alone and among others.
// Only oracle::parse decides what is legal. The same seed gives the same cases with every compiler.
#pragma once

#include "contract.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iomanip>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace oracle {

// ---- features --------------------------------------------------------------------------------

// A feature counts when it is not at its default: a degree above 1, an etp that differs from what it would be if it
// were not named, zero=1, split=account, split=spread, a bucket, a tied model, a device list (of switches only).
// A switch has the features of both its sides.
enum class feature { tp, cp, pp, vpp, dp, ep, etp, zero, account, spread, bucket, tied, devices };
inline constexpr std::array<const char*, 13> feature_names = {
    "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero", "account", "spread", "bucket", "tied", "devices"};
using feature_set = std::set<feature>;

inline std::string name_of(feature f) { return feature_names.at(static_cast<std::size_t>(f)); }

// What a feature cannot do without: one of these sets, whichever.
//   vpp                  needs pp: the contract says so;
//   account, spread      need pp: with one stage there is nothing to split;
//   zero                 needs dp or cp: a sharding group of one shards nothing;
//   bucket               needs zero, and with it dp or cp;
//   ep, etp              need tp, cp or dp, the ranks that they divide (and an MoE model, which is no feature here);
//   tied                 needs pp: the second name exists only there;
//   devices              need ranks: tp, cp, pp or dp.
inline std::vector<feature_set> needs(feature f) {
  using enum feature;
  switch (f) {
    case vpp:
    case account:
    case spread:
    case tied: return {{pp}};
    case zero: return {{dp}, {cp}};
    case bucket: return {{zero, dp}, {zero, cp}};
    case ep:
    case etp: return {{tp}, {cp}, {dp}};
    case devices: return {{tp}, {cp}, {pp}, {dp}};
    default: return {{}};
  }
}

inline bool contains(const feature_set& outer, const feature_set& inner) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

// How many features are on besides f and what f cannot do without. 0: f is alone.
inline long others(feature f, const feature_set& on) {
  long least = length(on) - 1;
  for (const feature_set& need : needs(f))
    if (contains(on, need)) least = std::min(least, length(on) - 1 - length(need));
  return least;
}

// The features of one layout, as parsed (a device list is a matter of the switch).
inline feature_set features_of(const model& m, const layout& l) {
  feature_set on;
  const auto add = [&](bool condition, feature f) {
    if (condition) on.insert(f);
  };
  add(l.tp > 1, feature::tp);
  add(l.cp > 1, feature::cp);
  add(l.pp > 1, feature::pp);
  add(l.vpp > 1, feature::vpp);
  add(l.dp > 1, feature::dp);
  add(l.ep > 1, feature::ep);
  add(l.etp != (l.ep > 1 ? 1 : l.tp), feature::etp);
  add(l.zero != 0, feature::zero);
  add(l.split == "account", feature::account);
  add(l.split == "spread", feature::spread);
  add(l.bucket != -1, feature::bucket);
  add(m.tied, feature::tied);
  return on;
}

// ---- census ----------------------------------------------------------------------------------

class census {
 public:
  struct row {
    long cases = 0, alone = 0, with_two = 0;  // with_two: with at least two others, its own needs not counted
  };

  void add(const feature_set& on, const std::vector<std::string>& traits) {
    ++total_;
    for (feature f : on) {
      row& r = rows_[f];
      ++r.cases;
      if (others(f, on) == 0) ++r.alone;
      if (others(f, on) >= 2) ++r.with_two;
    }
    for (const std::string& trait : traits) ++traits_[trait];
  }

  long total() const { return total_; }

  row of(feature f) const {
    const auto found = rows_.find(f);
    return found == rows_.end() ? row{} : found->second;
  }

  long of(const std::string& trait) const {
    const auto found = traits_.find(trait);
    return found == traits_.end() ? 0 : found->second;
  }

  // One aligned table: the features, then whatever else the cases have of interest.
  std::string report() const {
    std::ostringstream out;
    const auto line = [&](const std::string& name, const std::string& a, const std::string& b, const std::string& c) {
      out << std::left << std::setw(34) << name << std::right << std::setw(7) << a << std::setw(7) << b << std::setw(12)
          << c << '\n';
    };
    line("feature", "cases", "alone", "with 2 more");
    for (std::size_t i = 0; i < feature_names.size(); ++i) {
      const row r = of(static_cast<feature>(i));
      line(feature_names[i], std::to_string(r.cases), std::to_string(r.alone), std::to_string(r.with_two));
    }
    for (const auto& [trait, cases] : traits_) line(trait, std::to_string(cases), "-", "-");
    line("all cases", std::to_string(total_), "-", "-");
    return out.str();
  }

 private:
  long total_ = 0;
  std::map<feature, row> rows_;
  std::map<std::string, long> traits_;
};

// ---- cases -----------------------------------------------------------------------------------

struct layout_case {
  long number = 0;  // of the generator's layouts
  model m;
  std::string config;  // the model as a Hugging Face config.json
  std::string text;    // LAYOUT
  layout parsed;
  feature_set features;
  std::vector<std::string> traits;  // what else is of interest, in words

  std::string describe() const { return "layout case " + std::to_string(number) + ": '" + text + "' of " + config; }
};

struct switch_case {
  long number = 0;  // of the generator's switches
  model m;
  std::string config;
  std::string from_text, to_text;
  layout from, to;
  std::vector<long> from_devices, to_devices;      // the device of each rank, in rank order
  std::string from_devices_text, to_devices_text;  // for --from-devices and --to-devices; "" where the default does
  feature_set features;
  std::vector<std::string> traits;

  std::string describe() const {
    return "switch case " + std::to_string(number) + ": '" + from_text + "' on '" + from_devices_text + "' to '" +
           to_text + "' on '" + to_devices_text + "' of " + config;
  }
};

// The model as the config.json that the contract reads.
inline std::string config_json(const model& m) {
  std::ostringstream out;
  out << "{\"architectures\":[\""
      << (m.experts > 0 ? "Qwen3MoeForCausalLM"
          : m.qk_norm   ? "Qwen3ForCausalLM"
                        : "LlamaForCausalLM")
      << "\"],\"num_hidden_layers\":" << m.layers << ",\"hidden_size\":" << m.hidden
      << ",\"num_attention_heads\":" << m.heads << ",\"num_key_value_heads\":" << m.groups
      << ",\"head_dim\":" << m.head_dim;
  if (has_dense_layer(m)) out << ",\"intermediate_size\":" << m.ffn;
  out << ",\"vocab_size\":" << m.vocab << ",\"tie_word_embeddings\":" << (m.tied ? "true" : "false");
  if (m.experts > 0) {
    out << ",\"num_experts\":" << m.experts << ",\"moe_intermediate_size\":" << m.expert_ffn
        << ",\"mlp_only_layers\":[";
    const char* comma = "";
    for (long l = 0; l < m.layers; ++l)
      if (!is_moe(m, l)) {
        out << comma << l;
        comma = ",";
      }
    out << ']';
  }
  out << '}';
  return out.str();
}

// 0,1,2,8,12,13 -> "0-2,8,12-13"
inline std::string device_text(const std::vector<long>& devices) {
  std::string text;
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t last = i;
    while (last + 1 < devices.size() && devices[last + 1] == devices[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(devices[i]);
    if (last > i) text += '-' + std::to_string(devices[last]);
    i = last + 1;
  }
  return text;
}

inline long elements_of(const model& m) {
  long n = 0;
  for (const tensor& t : tensors(m, layout{})) n += product(t.shape);
  return n;
}

// ---- the generator ---------------------------------------------------------------------------

class generator {
 public:
  static constexpr long largest_world = 32;
  static constexpr long largest_model = 60000;  // elements

  explicit generator(std::uint64_t seed) : random_(seed) {}

  layout_case next_layout() {
    for (;;) {
      const feature_set wanted = wish(layout_census_, false);
      for (int attempt = 0; attempt < 200; ++attempt) {
        layout_case c;
        c.m = random_model(wanted);
        if (elements_of(c.m) > largest_model || !random_layout(c.m, wanted, c.text, c.parsed)) continue;
        c.config = config_json(c.m);
        c.features = features_of(c.m, c.parsed);
        if (c.features != wanted) continue;
        c.traits = traits_of(c.m);
        for (const std::string& trait : traits_of(c.m, {c.parsed})) c.traits.push_back(trait);
        c.number = layout_census_.total();
        layout_census_.add(c.features, c.traits);
        return c;
      }
    }
  }

  switch_case next_switch() {
    for (;;) {
      const feature_set wanted = wish(switch_census_, true);
      for (int attempt = 0; attempt < 200; ++attempt) {
        switch_case c;
        c.m = random_model(wanted);
        if (elements_of(c.m) > largest_model) continue;
        feature_set one, other;
        if (!random_sides(wanted, one, other)) continue;
        if (!random_layout(c.m, one, c.from_text, c.from) || !random_layout(c.m, other, c.to_text, c.to)) continue;
        c.config = config_json(c.m);
        c.features = features_of(c.m, c.from);
        c.features.merge(features_of(c.m, c.to));
        c.traits = traits_of(c.m);
        for (const std::string& trait : traits_of(c.m, {c.from, c.to})) c.traits.push_back(trait);

        c.from_devices = lowest(c.from.world);
        c.to_devices = lowest(c.to.world);
        if (wanted.count(feature::devices) != 0) c.traits.push_back("devices: " + random_devices(c));
        const bool from_default = c.from_devices == lowest(c.from.world),
                   to_default = c.to_devices == lowest(c.to.world);
        if (!from_default || !to_default) c.features.insert(feature::devices);
        // A list that is the default may be left out.
        if (!from_default || (!to_default && below(2) == 0)) c.from_devices_text = device_text(c.from_devices);
        if (!to_default || (!from_default && below(2) == 0)) c.to_devices_text = device_text(c.to_devices);
        if (c.features != wanted) continue;
        // A switch that moves nothing is worth few cases.
        const bool same = c.from == c.to && c.from_devices == c.to_devices;
        if (same && below(8) != 0) continue;
        if (same) c.traits.push_back("FROM and TO are the same");

        c.traits.push_back(c.from.world < c.to.world   ? "world: grows"
                           : c.from.world > c.to.world ? "world: shrinks"
                                                       : "world: stays");
        if (c.from.zero != c.to.zero) c.traits.push_back("FROM and TO differ in zero");
        c.number = switch_census_.total();
        switch_census_.add(c.features, c.traits);
        return c;
      }
    }
  }

  // Of what was generated so far.
  const census& layout_census() const { return layout_census_; }
  const census& switch_census() const { return switch_census_; }

 private:
  std::mt19937_64 random_;
  census layout_census_, switch_census_;

  // std::uniform_int_distribution and std::shuffle differ between standard libraries; these do not.
  long below(long n) { return static_cast<long>(random_() % static_cast<std::uint64_t>(n)); }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[index(below(length(list)))];
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (long i = length(list) - 1; i > 0; --i) std::swap(list[index(i)], list[index(below(i + 1))]);
  }

  // Stable; std::stable_sort warns of a deprecated function with some compilers and this library.
  template <class T, class Before>
  static void sort_in_place(std::vector<T>& list, Before before) {
    for (std::size_t i = 1; i < list.size(); ++i)
      for (std::size_t j = i; j > 0 && before(list[j], list[j - 1]); --j) std::swap(list[j], list[j - 1]);
  }

  // ---- which features the next case shall have

  static std::vector<feature> known(bool devices) {
    std::vector<feature> list;
    for (std::size_t i = 0; i < feature_names.size(); ++i) list.push_back(static_cast<feature>(i));
    if (!devices) list.pop_back();
    return list;
  }

  // Adds what each feature needs, until nothing is missing; chooses only within `within`.
  bool complete(feature_set& on, const feature_set& within) {
    for (bool changed = true; changed;) {
      changed = false;
      for (feature f : feature_set(on)) {
        std::vector<feature_set> possible;
        bool satisfied = false;
        for (const feature_set& need : needs(f)) {
          if (contains(on, need)) satisfied = true;
          if (contains(within, need)) possible.push_back(need);
        }
        if (satisfied) continue;
        if (possible.empty()) return false;
        on.merge(feature_set(one_of(possible)));
        changed = true;
      }
    }
    return true;
  }

  static bool conflict(const feature_set& side)  // within one layout
  {
    return side.count(feature::spread) != 0 && (side.count(feature::account) != 0 || side.count(feature::vpp) != 0);
  }

  // Of 16 cases in a row, one per feature has it alone, and the rest have many features, the rarest first.
  feature_set wish(const census& so_far, bool devices) {
    std::vector<feature> list = known(devices);
    const feature_set everything(list.begin(), list.end());
    shuffle(list);  // ties fall differently each time
    feature_set on;
    if (so_far.total() % 16 < length(list)) {
      sort_in_place(list, [&](feature a, feature b) { return so_far.of(a).alone < so_far.of(b).alone; });
      on.insert(list.front());
      complete(on, everything);
      return on;
    }
    sort_in_place(list, [&](feature a, feature b) { return so_far.of(a).with_two < so_far.of(b).with_two; });
    on = {list[0], list[1], list[2]};
    for (long more = below(6); more > 0; --more) on.insert(one_of(list));
    if (!devices && conflict(on)) {  // one of them must go
      if (below(2) == 0) on.erase(feature::spread);
      else on.erase(feature::account), on.erase(feature::vpp);
    }
    // A tied model without pp has no second name; that is worth a case too.
    const bool tied_without_pp = on.count(feature::tied) != 0 && below(3) == 0;
    if (tied_without_pp)
      for (feature f : {feature::tied, feature::pp, feature::vpp, feature::account, feature::spread}) on.erase(f);
    complete(on, everything);
    if (tied_without_pp) on.insert(feature::tied);
    return on;
  }

  // Deals the features to the two sides: together they have them all, each has what its own features need.
  bool random_sides(const feature_set& wanted, feature_set& one, feature_set& other) {
    feature_set dealt = wanted;
    dealt.erase(feature::tied);     // of the model
    dealt.erase(feature::devices);  // of the switch
    one.clear();
    other.clear();
    for (feature f : dealt) {
      const long toss = below(10);
      if (toss < 7) one.insert(f);
      if (toss >= 7 || below(2) == 0) other.insert(f);
    }
    if (below(2) == 0) one.swap(other);
    return complete(one, dealt) && complete(other, dealt) && !conflict(one) && !conflict(other);
  }

  // ---- models and layouts

  model random_model(const feature_set& wanted) {
    model m;
    m.layers = one_of<long>({1, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7, 8, 8, 10, 12});
    m.hidden = one_of<long>({16, 16, 20, 24, 28, 32});
    m.heads = one_of<long>({2, 4, 4, 6, 8, 8});
    do m.groups = 1 + below(m.heads);
    while (m.heads % m.groups != 0);
    m.head_dim = 4 + below(5);
    m.vocab = one_of<long>({16, 24, 32, 40, 48, 60, 72});
    m.tied = wanted.count(feature::tied) != 0;
    const long ffn = one_of<long>({8, 12, 16, 20, 24, 32});

    const bool needs_experts = wanted.count(feature::ep) != 0 || wanted.count(feature::etp) != 0;
    const long family = needs_experts ? 2 : below(3);
    m.qk_norm = family > 0;
    if (family < 2) {
      m.ffn = ffn;
      return m;
    }
    m.experts = one_of<long>({4, 4, 6, 8});
    m.expert_ffn = one_of<long>({4, 8, 12, 16});
    m.moe.assign(index(m.layers), true);
    if (below(2) == 0)  // dense layers among the MoE ones
      for (long l = 0; l < m.layers; ++l) m.moe[index(l)] = below(2) == 0;
    if (!has_moe_layer(m)) m.moe[index(below(m.layers))] = true;
    if (has_dense_layer(m)) m.ffn = ffn;
    return m;
  }

  // A legal layout whose features are exactly `wanted` (but tied and devices, which are not its own), or false.
  bool random_layout(const model& m, const feature_set& wanted, std::string& text, layout& l) {
    std::vector<std::string> items;
    const auto item = [&](feature f, const std::string& key, const std::string& standard,
                          const std::vector<std::string>& values) {
      if (wanted.count(f) != 0) items.push_back(key + "=" + one_of(values));
      else if (!standard.empty() && below(8) == 0) items.push_back(key + "=" + standard);  // the default, named
    };
    item(feature::tp, "tp", "1", {"2", "2", "2", "3", "4", "4", "8"});
    item(feature::cp, "cp", "1", {"2", "2", "3", "4"});
    item(feature::pp, "pp", "1", {"2", "2", "2", "3", "4", "4", "5", "8"});
    item(feature::vpp, "vpp", "1", {"2", "2", "2", "3", "4"});
    item(feature::dp, "dp", "1", {"2", "2", "3", "4", "5"});
    item(feature::ep, "ep", "1", {"2", "2", "3", "4", "8"});
    item(feature::etp, "etp", "", {"1", "2", "2", "3", "4"});
    item(feature::zero, "zero", "0", {"1"});
    item(feature::bucket, "bucket", "", {"64", "100", "150", "200", "300", "400", "500", "1000"});
    if (wanted.count(feature::account) != 0) items.push_back("split=account");
    else item(feature::spread, "split", "even", {"spread"});
    shuffle(items);

    text.clear();
    for (const std::string& i : items) text += (text.empty() ? "" : ",") + i;
    try {
      l = parse(m, text);
    } catch (const illegal&) {
      return false;
    }
    feature_set own = wanted, found = features_of(m, l);
    for (feature f : {feature::tied, feature::devices}) {
      own.erase(f);
      found.erase(f);
    }
    if (l.world > largest_world || own != found) return false;
    // A bucket length that the first buffer does not reach is worth few cases.
    return l.bucket == -1 || dense_buffer(m, l, 0, 0).buckets.size() > 1 || below(8) == 0;
  }

  // ---- devices

  static std::vector<long> lowest(long world) {
    std::vector<long> list(index(world));
    std::iota(list.begin(), list.end(), 0L);
    return list;
  }

  std::vector<long> unused(long how_many, const std::vector<long>& taken) {
    std::vector<long> free;
    for (long device = 0; device < 3 * largest_world; ++device)
      if (std::find(taken.begin(), taken.end(), device) == taken.end()) free.push_back(device);
    if (below(2) == 0) shuffle(free);  // far apart
    free.resize(index(how_many));
    return free;
  }

  // Gives the switch device lists and says of which kind they are.
  std::string random_devices(switch_case& c) {
    const long from = c.from.world, to = c.to.world;
    const auto some_devices = [&](long n) {
      std::vector<long> list = below(2) == 0 ? lowest(n) : unused(n, {});
      if (below(3) == 0) shuffle(list);
      return list;
    };
    for (;;) {
      c.from_devices = some_devices(from);
      switch (below(5)) {
        case 0:
        case 1: {
          if (to == from) break;
          c.to_devices = c.from_devices;
          if (to < from) {  // a run of devices in the middle leaves
            const long gone = from - to, at = to < 2 ? below(to + 1) : 1 + below(to - 1);
            c.to_devices.erase(c.to_devices.begin() + at, c.to_devices.begin() + at + gone);
            return "shrink from the middle";
          }
          for (long device : unused(to - from, c.from_devices)) c.to_devices.push_back(device);  // new ones join
          if (below(2) == 0) shuffle(c.to_devices);
          return "growth";
        }
        case 2: {  // some stay, some leave, some join
          const long most = std::min(from, to) - 1;
          if (most < 1) break;
          const long common = 1 + below(most);
          c.to_devices = c.from_devices;
          shuffle(c.to_devices);
          c.to_devices.resize(index(common));
          for (long device : unused(to - common, c.from_devices)) c.to_devices.push_back(device);
          if (below(2) == 0) shuffle(c.to_devices);
          else std::sort(c.to_devices.begin(), c.to_devices.end());
          return "overlapping";
        }
        case 3: c.to_devices = unused(to, c.from_devices); return "disjoint";
        case 4: {  // the lowest on both sides, in another order
          c.from_devices = lowest(from);
          if (below(2) == 0) shuffle(c.from_devices);
          c.to_devices = lowest(to);
          shuffle(c.to_devices);
          return "shuffled";
        }
      }
    }
  }

  // ---- what else is of interest

  static std::vector<std::string> traits_of(const model& m) {
    std::vector<std::string> list;
    list.push_back(m.experts > 0 ? "model: Qwen3-MoE" : m.qk_norm ? "model: Qwen3" : "model: LLaMA");
    if (m.experts > 0 && has_dense_layer(m)) list.push_back("model: dense layers among MoE ones");
    return list;
  }

  static std::vector<std::string> traits_of(const model& m, const std::vector<layout>& sides) {
    std::set<std::string> found;
    for (const layout& l : sides) {
      if (l.world >= 16) found.insert("world: 16 or more");
      if (m.groups < l.tp) found.insert("tp exceeds the query groups");
      if (m.tied && l.pp == 1) found.insert("tied without pp");
      for (long pp = 0; pp < l.pp; ++pp)
        for (long chunk = 0; chunk < l.vpp; ++chunk) {
          const auto [first, past] = layers_of_chunk(m.layers, l, pp, chunk);
          if (first == past) found.insert("a chunk without layers");
        }
      if (l.zero == 1 && l.bucket != -1 && dense_buffer(m, l, 0, 0).buckets.size() > 1) found.insert("several buckets");
      if (l.zero == 1 && has_moe_layer(m))
        found.insert(has_expert_buffers(l) ? "zero, expert buffers" : "zero, experts in the dense buffer");
    }
    return {found.begin(), found.end()};
  }
};

}  // namespace oracle
