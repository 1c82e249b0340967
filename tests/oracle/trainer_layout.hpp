// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 3: the text of a LAYOUT, what is legal, the ranks and their sharding groups.
// Builds on trainer_model.hpp, trainer_pipeline.hpp.
#pragma once

#include "trainer_model.hpp"
#include "trainer_pipeline.hpp"

#include <limits>
#include <map>
#include <string>
#include <vector>

namespace oracle::trainer {

struct layout {
  long tp = 1, cp = 1, pp = 1, dp = 1, ep = 1, etp = 1, edp = 1, zero = 0, world = 1;
  long bucket = -1;  // -1: none
  long instances = 1;
  long pad = 0;  // 0: not named
  bool busbw = false, rows = false, grouped = false, hf = false, expert_ranks = true;
  std::vector<std::string> order = {"tp", "cp", "ep", "dp", "pp"};
  pipeline stages;
};

struct coordinates {
  long tp = 0, cp = 0, dp = 0, pp = 0, etp = 0, ep = 0, edp = 0;
  bool operator==(const coordinates&) const = default;
};

// ---- the text

inline std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == separator) parts.emplace_back();
    else parts.back() += c;
  return parts;
}

inline std::map<std::string, std::string> keys_of(const std::string& text) {
  std::map<std::string, std::string> keys;
  if (text.empty()) return keys;
  for (const std::string& item : split_at(text, ',')) {
    const std::size_t equals = item.find('=');
    must(equals != std::string::npos, "'" + item + "' is not of the form key=value.");
    const bool is_new = keys.emplace(item.substr(0, equals), item.substr(equals + 1)).second;
    must(is_new, "The key " + item.substr(0, equals) + " is repeated.");
  }
  return keys;
}

inline long number_of(const std::string& key, const std::string& value) {
  must(!value.empty() && value.size() <= 18 && value.find_first_not_of("0123456789") == std::string::npos,
       "The value '" + value + "' of " + key + " is no number.");
  return std::stol(value);
}

inline long times(long a, long b) {
  must(b == 0 || a <= std::numeric_limits<long>::max() / b, "The world is too large to count.");
  return a * b;
}

// ---- what a model with these stages has

// The kind of the prediction layers.
inline bool prediction_is_moe(const model& m, const pipeline& p) {
  const interval own = p.layers.at(at(p.prediction));
  if (m.experts > 0 && own.first == own.second) return true;
  return m.layers > 0 && m.moe.at(at(m.layers - 1));
}

inline bool has_layer(const model& m, const pipeline& p, bool moe) {
  for (bool is_moe : m.moe)
    if (is_moe == moe) return true;
  return p.prediction >= 0 && prediction_is_moe(m, p) == moe;
}

// ---- ranks

// rank = the first axis of the order + its degree * (the second + ...)
inline coordinates coordinates_of(const layout& l, long rank) {
  coordinates c;
  long dense = rank, expert = rank;
  const auto take = [](long& rest, long degree) {
    const long coordinate = rest % degree;
    rest /= degree;
    return coordinate;
  };
  long pp_of_expert = 0;
  for (const std::string& axis : l.order) {
    if (axis == "tp") c.tp = take(dense, l.tp), c.etp = take(expert, l.etp);
    else if (axis == "cp") c.cp = take(dense, l.cp);
    else if (axis == "ep") c.ep = take(expert, l.ep);
    else if (axis == "dp") c.dp = take(dense, l.dp), c.edp = take(expert, l.edp);
    else if (axis == "pp") c.pp = take(dense, l.pp), pp_of_expert = take(expert, l.pp);
  }
  must(!l.expert_ranks || c.pp == pp_of_expert, "The two readings of the order give a rank different pp.");
  return c;
}

// The sharding group's size and this rank's index in it, of dense tensors and of experts.
struct member {
  long n = 1, index = 0;
};

inline member dense_member(const layout& l, const coordinates& c) {
  member m;  // cp and dp in the order's order, the earlier one fastest
  for (const std::string& axis : l.order) {
    if (axis == "cp") m.index += m.n * c.cp, m.n *= l.cp;
    if (axis == "dp") m.index += m.n * c.dp, m.n *= l.dp;
  }
  return m;
}

inline member expert_member(const layout& l, const coordinates& c) { return {l.edp, c.edp}; }

// instances=I: I runs of n / I members, each of which shards alone.
inline member within_instance(const layout& l, member m) {
  const long n = m.n / l.instances;
  return {n, m.index % n};
}

// ---- legality

inline void check_order(const layout& l) {
  std::map<std::string, int> named;
  for (const std::string& axis : l.order) {
    must(axis == "tp" || axis == "cp" || axis == "ep" || axis == "dp" || axis == "pp", "order names '" + axis + "'.");
    must(++named[axis] == 1, "order names " + axis + " twice.");
  }
  const auto one_if_not_named = [&](const char* axis, long degree) {
    must(named.count(axis) == 1 || degree == 1, std::string(axis) + " is not named in order and is above 1.");
  };
  one_if_not_named("tp", l.tp), one_if_not_named("cp", l.cp), one_if_not_named("ep", l.ep);
  one_if_not_named("dp", l.dp), one_if_not_named("pp", l.pp);
  if (!l.expert_ranks) return;
  one_if_not_named("tp", l.etp), one_if_not_named("dp", l.edp);
  if (l.pp > 1 && l.order.back() != "pp") must(l.edp == l.dp, "pp is not last in order, and edp is not dp.");
  // Both readings give every rank the same pp: iff pp has the same stride in both.
  long dense = 1, expert = 1;
  for (const std::string& axis : l.order) {
    if (axis == "pp") must(l.pp == 1 || dense == expert, "The two readings of order give a rank different pp.");
    dense *= axis == "tp" ? l.tp : axis == "cp" ? l.cp : axis == "dp" ? l.dp : axis == "pp" ? l.pp : 1;
    expert *= axis == "tp" ? l.etp : axis == "ep" ? l.ep : axis == "dp" ? l.edp : axis == "pp" ? l.pp : 1;
  }
}

// DTensor cuts a checkpoint's tensors by chunk(), which asks for no divisibility.
inline bool cut_by_chunk(const layout& l) { return l.hf && l.rows; }

inline void check_tensor_parallel(const model& m, const layout& l) {
  if (l.hf) {
    must(!m.gpt(), "names=hf is not built for GPT-2.");
    must(!m.mla() || m.q_rank > 0, "names=hf is not built without q_lora_rank.");
  }
  if (cut_by_chunk(l)) return;
  must(m.heads % l.tp == 0, "tp does not divide the heads.");
  if (l.pad == 0) must(m.vocab % l.tp == 0, "tp does not divide the vocabulary.");
  if (!m.mla()) {
    must(m.groups % l.tp == 0 || l.tp % m.groups == 0, "Neither of tp and the query groups divides the other.");
    must(m.qkv_rows() % l.tp == 0, "tp does not divide the rows of linear_qkv.");
  }
  if (has_layer(m, l.stages, false)) must(m.ffn % l.tp == 0, "tp does not divide the intermediate size.");
  if (has_layer(m, l.stages, true)) {
    must(m.expert_ffn % l.etp == 0, "etp does not divide the intermediate size of the experts.");
    must(m.shared_ffn % l.tp == 0, "tp does not divide the intermediate size of the shared experts.");
  }
  if (m.predictions > 0) must(m.hidden % l.tp == 0, "tp does not divide the hidden size, of which eh_proj has rows.");
}

inline void check_sharding(const model& m, const layout& l) {
  must(l.zero <= 3, "zero is above 3.");
  if (!l.rows) must(l.zero <= 2 && !l.hf, "shard=buffers has zero at most 2 and names=megatron.");
  if (l.grouped) must(l.rows && m.experts > 0, "experts=grouped needs shard=rows and experts.");
  must(l.instances >= 1 && l.dp * l.cp % l.instances == 0 && (!l.expert_ranks || l.edp % l.instances == 0),
       "instances does not divide the sharding groups.");
}

// ---- all of it

inline layout parse(const model& m, const std::string& text) {
  layout l;
  pipeline_keys pipe;
  bool etp_named = false;
  for (const auto& [key, value] : keys_of(text)) {
    if (key == "tp") l.tp = number_of(key, value);
    else if (key == "cp") l.cp = number_of(key, value);
    else if (key == "pp") pipe.pp = number_of(key, value);
    else if (key == "vpp") pipe.vpp = number_of(key, value);
    else if (key == "dp") l.dp = number_of(key, value);
    else if (key == "ep") l.ep = number_of(key, value);
    else if (key == "etp") l.etp = number_of(key, value), etp_named = true;
    else if (key == "zero") l.zero = number_of(key, value);
    else if (key == "split") pipe.split = value;
    else if (key == "first") pipe.first = number_of(key, value);
    else if (key == "last") pipe.last = number_of(key, value);
    else if (key == "string") pipe.string = value;
    else if (key == "order") l.order = split_at(value, '-');
    else if (key == "instances") l.instances = number_of(key, value);
    else if (key == "busbw") must(value == "1", "busbw is not 1."), l.busbw = true;
    else if (key == "pad") l.pad = number_of(key, value), must(l.pad >= 1, "pad is below 1.");
    else if (key == "shard") must(value == "rows" || value == "buffers", "shard=" + value), l.rows = value == "rows";
    else if (key == "experts") must(value == "grouped", "experts=" + value + "."), l.grouped = true;
    else if (key == "names") must(value == "hf" || value == "megatron", "names=" + value + "."), l.hf = value == "hf";
    else if (key == "bucket") l.bucket = value == "none" ? -1 : number_of(key, value);
    else throw illegal("The key '" + key + "' is unknown.");
  }
  if (!etp_named) l.etp = l.ep > 1 ? 1 : l.tp;
  must(l.tp >= 1 && l.cp >= 1 && l.dp >= 1 && l.ep >= 1 && l.etp >= 1, "A degree is below 1.");

  if (m.experts == 0) must(l.ep == 1 && !etp_named, "ep above 1 or etp is named without experts.");
  else must(m.experts % l.ep == 0 || (cut_by_chunk(l) && l.grouped), "ep does not divide the experts.");
  const long stage = times(times(l.tp, l.cp), l.dp), expert_stage = times(l.etp, l.ep);
  must(stage % expert_stage == 0, "etp*ep does not divide tp*cp*dp.");
  l.edp = stage / expert_stage;
  l.expert_ranks = m.experts > 0 || !l.rows;  // DTensor has no mesh of experts where there are none

  l.stages = pipeline_of(pipe, m.layers, m.predictions);
  l.pp = l.stages.pp;
  l.world = times(stage, l.pp);
  const bool prediction_in_last = l.stages.prediction == l.stages.chunks() - 1;
  must(m.predictions == 0 || !m.tied || l.pp == 1 || !prediction_in_last,
       "A tied model has its prediction layers in the last chunk.");
  check_tensor_parallel(m, l);
  check_sharding(m, l);
  check_order(l);
  return l;
}

// "" where the layout is legal, else why it is not.
inline std::string why_illegal(const model& m, const std::string& text) {
  try {
    parse(m, text);
    return {};
  } catch (const illegal& refusal) {
    return refusal.what();
  }
}

}  // namespace oracle::trainer
