// SPDX-License-Identifier: Apache-2.0
//
// Random legal layouts and switches of tiny models of every architecture, over all keys of a LAYOUT, steered so that
// each key is met alone and among others. Only parse() decides what is legal; the same seed gives the same cases
// everywhere.
// Builds on random_keys_model.hpp, random_keys_census.hpp, trainer_switch.hpp.
#pragma once

#include "random_keys_census.hpp"
#include "random_keys_model.hpp"
#include "trainer_switch.hpp"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace oracle::trainer {

struct layout_case {
  long number = 0;
  nlohmann::json config;
  model m;
  std::string text, states_text;  // LAYOUT, and what --states says
  layout parsed;
  std::vector<state> states;
  feature_set features;

  std::string describe() const {
    return "layout case " + std::to_string(number) + ": '" + text + "' --states " + states_text + " of " +
           config.dump();
  }
};

struct switch_case {
  long number = 0;
  nlohmann::json config;
  std::string from_text, to_text, states_text;
  std::string from_devices_text, to_devices_text;  // for --from-devices and --to-devices; "" for the lowest in order
  switch_question question;
  feature_set features;

  std::string describe() const {
    return "switch case " + std::to_string(number) + ": '" + from_text + "' on '" + from_devices_text + "' to '" +
           to_text + "' on '" + to_devices_text + "' --states " + states_text + " of " + config.dump();
  }
};

// Which features a layout has; those of the model and of the states are not its own.
inline feature_set features_of(const model& m, const layout& l, const std::string& text) {
  feature_set on;
  const auto add = [&](const char* name, bool condition) {
    if (condition) on.insert(name);
  };
  const std::map<std::string, std::string> keys = keys_of(text);
  const auto split = keys.find("split");
  add("tp", l.tp > 1), add("cp", l.cp > 1), add("pp", l.pp > 1), add("vpp", l.stages.vpp > 1), add("dp", l.dp > 1);
  add("ep", l.ep > 1), add("etp", l.etp != (l.ep > 1 ? 1 : l.tp)), add("zero", l.zero > 0);
  if (split != keys.end() && split->second != "even") on.insert("split=" + split->second);
  add("first", keys.count("first") > 0), add("last", keys.count("last") > 0), add("string", keys.count("string") > 0);
  layout standard = l;
  standard.order = layout{}.order;
  bool other_ranks = false;
  for (long rank = 0; rank < l.world; ++rank)
    if (coordinates_of(l, rank) != coordinates_of(standard, rank)) other_ranks = true;
  add("order", other_ranks);
  add("instances", l.instances > 1), add("busbw", l.busbw), add("pad", l.pad > 0), add("bucket", l.bucket != -1);
  add("shard", l.rows), add("experts", l.grouped), add("names", l.hf);
  add("tied", m.tied), add("predictions", m.predictions > 0);
  return on;
}

// Experts in the dense buffer whose etp or edp is another than the rank's tp or index in the dense group: with such an
// order of the axes the contract leaves elements without a holder.
inline bool experts_beside_dense(const model& m, const layout& l) {
  if (m.experts == 0 || l.ep > 1 || l.etp != l.tp) return false;
  for (long rank = 0; rank < l.world; ++rank) {
    const coordinates c = coordinates_of(l, rank);
    if (c.etp != c.tp || c.edp != dense_member(l, c).index) return true;
  }
  return false;
}

class key_generator {
 public:
  static constexpr long largest_world = 16;

  explicit key_generator(std::uint64_t seed) : dice_(seed) {}

  layout_case next_layout() {
    for (;;) {
      const feature_set wanted = wish(layout_census_, false);
      for (int attempt = 0; attempt < 60; ++attempt) {
        layout_case c;
        c.config = random_config(dice_, wanted);
        c.m = read_model(c.config);
        if (!random_layout(c.m, wanted, c.text, c.parsed)) continue;
        c.states_text = random_states(wanted);
        c.states = parse_states(c.states_text);
        c.features = wanted;
        c.number = layout_census_.total();
        layout_census_.add(c.features, c.m.architecture);
        return c;
      }
    }
  }

  switch_case next_switch() {
    for (;;) {
      const feature_set wanted = wish(switch_census_, true);
      for (int attempt = 0; attempt < 60; ++attempt) {
        switch_case c;
        feature_set one, other;
        if (!deal(wanted, one, other)) break;
        c.config = random_config(dice_, wanted);
        switch_question& q = c.question;
        q.m = read_model(c.config);
        if (!random_layout(q.m, one, c.from_text, q.from) || !random_layout(q.m, other, c.to_text, q.to)) continue;
        c.states_text = random_states(wanted);
        q.states = parse_states(c.states_text);
        random_devices(c);
        if (c.from_text == c.to_text && q.from_devices == q.to_devices && dice_.below(8) != 0) continue;
        // The kind of a prediction layer may depend on the layout: nobody holds what TO needs then.
        if (needs(q).nowhere > 0) continue;
        c.features = wanted;
        c.number = switch_census_.total();
        switch_census_.add(c.features, q.m.architecture);
        return c;
      }
    }
  }

  const key_census& layout_census() const { return layout_census_; }
  const key_census& switch_census() const { return switch_census_; }

 private:
  key_dice dice_;
  key_census layout_census_, switch_census_;

  // Of 40 cases in a row, one a feature has it alone; the rest have many, the rarest first.
  feature_set wish(const key_census& so_far, bool of_switch) {
    for (;;) {
      std::vector<std::string> list = feature_names();
      dice_.shuffle(list);  // ties fall differently each time
      const bool alone = so_far.total() % 40 < length(list);
      const auto rare = [&](const std::string& f) { return alone ? so_far.of(f).alone : so_far.of(f).with_two; };
      for (std::size_t i = 1; i < list.size(); ++i)
        for (std::size_t j = i; j > 0 && rare(list[j]) < rare(list[j - 1]); --j) std::swap(list[j], list[j - 1]);
      feature_set on = {list[0]};
      if (!alone) {
        // Two of the rarer ones, not the rarest: these may exclude each other for ever.
        for (int more = 0; more < 2; ++more) on.insert(list[at(std::min(dice_.below(25), dice_.below(25)) + 1)]);
        for (long more = dice_.below(6); more > 0; --more) on.insert(list[at(dice_.below(length(list)))]);
      }
      // Kinds that a switch is between.
      if (of_switch && !alone && dice_.below(3) == 0) on.insert({"names", "tp"});
      if (of_switch && !alone && dice_.below(3) == 0) on.insert("pad");
      const feature_set all(list.begin(), list.end());
      if (complete(dice_, on, all) && !conflict(on)) return on;
    }
  }

  // Deals a switch's features to its sides: together they have them all, and each has what its own need.
  bool deal(const feature_set& wanted, feature_set& one, feature_set& other) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      one.clear(), other.clear();
      for (const std::string& f : wanted) {
        const bool models = f == "tied" || f == "predictions" || f == "states";
        const long toss = dice_.below(3);
        if (models || toss != 0) one.insert(f);
        if (models || toss != 1) other.insert(f);
      }
      // Hugging Face's rows on one side, Megatron's buffers on the other.
      if (one.count("names") != other.count("names"))
        for (feature_set* side : {&one, &other})
          if (side->count("names") + side->count("experts") == 0) side->erase("shard");
      if (complete(dice_, one, wanted) && complete(dice_, other, wanted) && !conflict(one) && !conflict(other))
        return true;
    }
    return false;
  }

  // A legal layout with exactly these features.
  bool random_layout(const model& m, feature_set wanted, std::string& text, layout& l) {
    wanted.erase("states");
    if (m.tied && m.predictions > 0 && wanted.count("pp") > 0 && wanted.count("string") == 0) return false;
    for (int attempt = 0; attempt < 60; ++attempt) {
      text = random_text(m, wanted);
      if (!why_illegal(m, text).empty()) continue;
      l = parse(m, text);
      // A tied model has its second name with pp alone; a side without pp has none.
      if (l.world > largest_world || features_of(m, l, text) != wanted || experts_beside_dense(m, l)) continue;
      return true;
    }
    return false;
  }

  std::string random_text(const model& m, const feature_set& wanted) {
    std::vector<std::string> items;
    std::map<std::string, long> value;
    const auto item = [&](const std::string& key, const numbers& values, long standard) {
      const bool on = wanted.count(key) > 0;
      value[key] = on ? dice_.one_of(values) : standard;
      if (on || (standard >= 0 && dice_.below(10) == 0)) items.push_back(key + "=" + std::to_string(value[key]));
    };
    // A checkpoint's tensors need not divide by tp.
    item("tp", wanted.count("names") > 0 ? numbers{2, 3, 3, 4, 5, 5, 7} : numbers{2, 2, 2, 3, 4, 4, 8}, 1);
    item("cp", {2, 2, 3}, 1);
    item("pp", {2, 2, 2, 3, 4}, 1);
    item("dp", {2, 2, 3, 4, 4, 5, 8}, 1);
    item("ep", {2, 2, 3, 4}, 1);
    item("etp", {1, 2, 2, 4}, -1);
    item("zero", wanted.count("shard") > 0 ? numbers{1, 2, 3, 3} : numbers{1, 1, 2}, 0);
    item("instances", {2, 2, 3, 4}, 1);
    item("pad", {1, 3, 8, 16, 128}, -1);
    item("bucket", {64, 100, 200, 300, 500, 1000, 2000}, -1);
    if (wanted.count("string") == 0) item("vpp", {2, 2, 3}, 1);
    if (wanted.count("busbw") > 0) items.push_back("busbw=1");
    if (wanted.count("shard") > 0) items.push_back("shard=rows");
    else if (dice_.below(20) == 0) items.push_back("shard=buffers");
    if (wanted.count("experts") > 0) items.push_back("experts=grouped");
    if (wanted.count("names") > 0) items.push_back("names=hf");
    else if (dice_.below(20) == 0) items.push_back("names=megatron");
    if (wanted.count("order") > 0) items.push_back("order=" + random_order());
    for (const std::string& f : wanted)
      if (f.rfind("split=", 0) == 0) items.push_back(f);
    if (wanted.count("bucket") == 0 && dice_.below(20) == 0) items.push_back("bucket=none");
    item("first", range(1, 5), -1);
    item("last", range(1, 5), -1);
    if (wanted.count("string") > 0) {
      const long vpp = wanted.count("vpp") > 0 ? dice_.one_of({2, 2, 3}) : 1;
      items.push_back("string=" + random_string(m, value["pp"], vpp));
      if (dice_.below(3) == 0) items.push_back("vpp=" + std::to_string(vpp));
    }
    dice_.shuffle(items);
    std::string text;
    for (const std::string& i : items) text += (text.empty() ? "" : ",") + i;
    return text;
  }

  std::string random_order() {
    std::vector<std::string> axes = layout{}.order;
    dice_.shuffle(axes);
    if (dice_.below(4) == 0) axes.pop_back();  // an axis of degree 1, or it is refused
    std::string text;
    for (const std::string& axis : axes) text += (text.empty() ? "" : "-") + axis;
    return text;
  }

  // E, every t, the m and L sit in chunks that never go back; then what repeats is shortened, mostly.
  std::string random_string(const model& m, long pp, long vpp) {
    const long chunks = pp * vpp;
    numbers places;
    for (long t = 0; t < m.layers; ++t) places.push_back(dice_.below(chunks));
    std::sort(places.begin(), places.end());
    if (m.predictions > 0)  // the m is in a stage's last chunk, and not before the last t
      while (!places.empty() && places.back() > chunks - (m.tied ? 2 : 1)) places.back() = chunks - (m.tied ? 2 : 1);
    std::sort(places.begin(), places.end());
    const auto between = [&](long low, long high) { return low + dice_.below(std::max(1L, high - low + 1)); };
    std::vector<std::string> text(at(chunks));
    const long begin = places.empty() ? 0 : places.front(), end = places.empty() ? 0 : places.back();
    text[at(dice_.below(4) == 0 ? between(0, begin) : 0)] += "E";
    for (long place : places) text[at(place)] += "t";
    long last = end;
    for (long p = 0; p < m.predictions; ++p) {
      last = between(std::max(end, chunks - pp), chunks - (m.tied ? 2 : 1));
      text[at(std::min(last, chunks - 1))] += "m";
    }
    text[at(dice_.below(4) == 0 ? between(std::min(last, chunks - 1), chunks - 1) : chunks - 1)] += "L";
    return shortened(text);
  }

  std::string shortened(const std::vector<std::string>& chunks) {
    std::string text;
    for (std::size_t k = 0; k < chunks.size();) {
      const bool last = k + 1 == chunks.size();
      std::string one;
      const long run = std::count(chunks[k].begin(), chunks[k].end(), 't');
      if (run > 1 && dice_.below(2) == 0) one = (chunks[k][0] == 'E' ? "Et*" : "t*") + std::to_string(run);
      else one = (!chunks[k].empty() && chunks[k][0] == 'E' ? "E" : "") + std::string(at(run), 't');
      for (char c : chunks[k])
        if (c == 'm' || c == 'L') one += c;
      std::size_t past = k + 1;
      while (!last && past + 1 < chunks.size() && chunks[past] == chunks[k]) ++past;
      if (!last && past > k + 1 && dice_.below(2) == 0) {
        text += "(" + one + "|)*" + std::to_string(past - k);
        k = past;
      } else {
        text += one + (last ? "" : "|");
        ++k;
      }
    }
    return text;
  }

  std::string random_states(const feature_set& wanted) {
    if (wanted.count("states") == 0) return "adam";
    return dice_.one_of<std::string>({"lion", "momentum", "sgd", "adam+grad", "lion+grad", "sgd+grad",
                                      "param:fp32:3,exp_avg:bf16:1", "param:fp8:3,half:fp16:2,master:fp32:1,all:bf16:3",
                                      "grad:fp32:2,param:bf16:3"});
  }

  static numbers lowest(long world) { return range(0, world); }

  numbers some(long how_many, long of) {
    numbers list = range(0, of);
    dice_.shuffle(list);
    list.resize(at(how_many));
    if (dice_.below(2) == 0) std::sort(list.begin(), list.end());
    return list;
  }

  static std::string text_of(const numbers& devices) {
    if (devices == lowest(length(devices))) return "";
    std::string text;
    for (std::size_t i = 0; i < devices.size();) {
      std::size_t last = i;
      while (last + 1 < devices.size() && devices[last + 1] == devices[last] + 1) ++last;
      text += (text.empty() ? "" : ",") + std::to_string(devices[i]);
      if (last > i) text += "-" + std::to_string(devices[last]);
      i = last + 1;
    }
    return text;
  }

  void random_devices(switch_case& c) {
    switch_question& q = c.question;
    const long most = q.from.world + q.to.world;
    q.from_devices = dice_.below(4) == 0 ? some(q.from.world, most) : lowest(q.from.world);
    q.to_devices = dice_.below(2) == 0 ? some(q.to.world, most) : lowest(q.to.world);
    c.from_devices_text = text_of(q.from_devices);
    c.to_devices_text = text_of(q.to_devices);
  }
};

}  // namespace oracle::trainer
