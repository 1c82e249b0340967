// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 6: the states, the optimizer's buffers, and what a rank holds.
// Builds on trainer_names.hpp.
#pragma once

#include "trainer_names.hpp"

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace oracle::trainer {

// ---- states

struct state {
  std::string name;
  long width = 4;  // bytes
  long level = 1;  // the least zero at which it is sharded
};

inline std::vector<state> parse_states(std::string list) {
  const std::string grad = "+grad", param = "param:bf16:3", master = "master:fp32:1", m = "exp_avg:fp32:1";
  const std::map<std::string, std::string> presets = {{"adam", param + "," + master + "," + m + ",exp_avg_sq:fp32:1"},
                                                      {"lion", param + "," + master + "," + m},
                                                      {"momentum", param + "," + master + ",momentum_buffer:fp32:1"},
                                                      {"sgd", param + "," + master}};
  for (const auto& [name, meaning] : presets) {
    if (list == name) list = meaning;
    if (list == name + grad) list = meaning + ",grad:fp32:2";
  }
  const std::map<std::string, long> widths = {{"bf16", 2}, {"fp16", 2}, {"fp32", 4}, {"fp8", 1}};
  std::vector<state> states;
  std::set<std::string> names;
  for (const std::string& item : split_at(list, ',')) {
    const std::vector<std::string> part = split_at(item, ':');
    must(part.size() == 3 && !part[0].empty(), "'" + item + "' is not of the form name:dtype:level.");
    must(widths.count(part[1]) == 1, "The dtype " + part[1] + " is unknown.");
    must(part[2] == "1" || part[2] == "2" || part[2] == "3", "The level " + part[2] + " is none of 1, 2, 3.");
    must(names.insert(part[0]).second, "The state " + part[0] + " is listed twice.");
    must(part[0] != "param" || part[2] == "3", "param has not level 3.");
    states.push_back({part[0], widths.at(part[1]), std::stol(part[2])});
  }
  must(states.size() <= 16, "There are more than 16 states.");
  must(names.count("param") == 1, "No state is called param.");
  return states;
}

inline bool has_state(const tensor& t, const state& s) { return t.parameter || s.name == "param"; }
inline long width_of(const tensor& t, const state& s) { return t.parameter ? s.width : 4; }

// ---- what tp, ep and pp leave a rank of a tensor: rows in the order of its own memory, and columns

struct local_part {
  numbers rows;
  interval columns;
  long width() const { return columns.second - columns.first; }
  long size() const { return length(rows) * width(); }
};

inline local_part local(const tensor& t, long parts, long part) {
  const long rows = t.rows(), columns = t.columns();
  switch (t.how) {
    case cut::whole: return {range(0, rows), {0, columns}};
    case cut::rows: return {chunk(range(0, rows), parts, part), {0, columns}};
    case cut::columns: {
      const numbers mine = chunk(range(0, columns), parts, part);
      if (mine.empty()) return {{}, {0, columns}};
      return {range(0, rows), {mine.front(), mine.back() + 1}};
    }
    case cut::gate_and_up: {
      const long half = rows / 2, piece = half / parts;
      numbers list = range(piece * part, piece * (part + 1));
      for (long up : range(half + piece * part, half + piece * (part + 1))) list.push_back(up);
      return {list, {0, columns}};
    }
  }
  throw std::out_of_range("no such cut");
}

inline local_part local(const layout& l, const tensor& t, const coordinates& c) {
  return t.expert >= 0 ? local(t, l.etp, c.etp) : local(t, l.tp, c.tp);
}

// The experts of an ep coordinate: chunk(E, EP, c), which where EP divides E are those with e / (E/EP) == c.
inline numbers experts_at(const model& m, const layout& l, long c) { return chunk(range(0, m.experts), l.ep, c); }

// What is no expert sits at every ep coordinate.
inline bool is_at(const model& m, const layout& l, const tensor& t, const coordinates& c, long chunk) {
  return l.stages.stage_of(chunk) == c.pp && std::find(t.chunks.begin(), t.chunks.end(), chunk) != t.chunks.end() &&
         (t.expert < 0 || t.expert / ((m.experts + l.ep - 1) / l.ep) == c.ep);
}

// The flat global indices of elements [begin, end) of the part's own memory.
inline intervals flat(const tensor& t, const local_part& part, long begin, long end) {
  intervals list;
  for (long row = 0; row < length(part.rows); ++row) {
    const long from = std::max(begin, row * part.width()), to = std::min(end, (row + 1) * part.width());
    if (from >= to) continue;
    const long start = part.rows[at(row)] * t.columns() + part.columns.first - row * part.width();
    list.emplace_back(start + from, start + to);
  }
  return as_set(list);
}

// ---- ZeRO's flat buffers

struct packed {  // one parameter to pack
  std::string name;
  long numel = 0;
  bool own_bucket = false;
};

struct place {  // of local elements in a rank's buffer
  std::string name;
  long begin = 0, end = 0, bucket = 0;
};

struct buffer {
  std::vector<place> places;  // in the buffer's order
  std::vector<interval> buckets;
  numbers unpadded;  // the buckets' lengths without the padding at their ends
};

inline long round_up(long value, long multiple) { return (value + multiple - 1) / multiple * multiple; }

// Parameters in the model's order; n parts a bucket; bucket -1: one.
inline buffer pack(const std::vector<packed>& list, long n, long bucket, bool busbw) {
  const long multiple = busbw ? std::lcm(std::lcm(n, 128L), 65536L) : std::lcm(n, 128L);
  buffer b;
  long begin = 0;  // of the open bucket
  long next = 0;   // where the next parameter would begin
  bool open = false;
  const auto close = [&](long end) {
    b.unpadded.push_back(end - begin);
    b.buckets.emplace_back(begin, round_up(end, multiple));
    begin = next = b.buckets.back().second;
    open = false;
  };
  for (auto p = list.rbegin(); p != list.rend(); ++p) {
    next = round_up(next, 64);
    if (p->own_bucket && open) close(next);
    b.places.push_back({p->name, next, next + p->numel, length(b.buckets)});
    next += p->numel;
    open = true;
    if (p->own_bucket || (bucket >= 0 && next - begin >= bucket)) close(next);
  }
  if (open) close(next);
  return b;
}

inline bool in_expert_buffer(const layout& l, const tensor& t) { return t.expert >= 0 && (l.ep > 1 || l.etp != l.tp); }

// Of each parameter of one chunk, the half-open interval of its local elements that the rank's shard has.
inline std::map<std::string, interval> shards(const model& m, const layout& l, const std::vector<tensor>& list,
                                              const coordinates& c, long chunk) {
  std::map<std::string, interval> result;
  for (bool expert : {false, true}) {
    std::vector<packed> parameters;
    for (const tensor& t : list)
      if (t.parameter && is_at(m, l, t, c, chunk) && in_expert_buffer(l, t) == expert)
        parameters.push_back({t.name, local(l, t, c).size(), t.own_bucket});
    const member own = within_instance(l, expert ? expert_member(l, c) : dense_member(l, c));
    const buffer b = pack(parameters, own.n, chunk == 0 ? l.bucket : -1, l.busbw);
    for (const place& p : b.places) {
      const auto [begin, end] = b.buckets[at(p.bucket)];
      const long width = (end - begin) / own.n;
      result[p.name] = {std::max(begin + width * own.index, p.begin) - p.begin,
                        std::min(begin + width * (own.index + 1), p.end) - p.begin};
    }
  }
  return result;
}

// ---- shard=rows

// What of its part a member keeps: chunk() of the first dimension; of grouped experts, whole experts.
inline local_part rows_of_member(const model& m, const layout& l, const tensor& t, const coordinates& c,
                                 local_part part) {
  const member own = within_instance(l, t.expert >= 0 ? expert_member(l, c) : dense_member(l, c));
  if (t.expert >= 0 && l.grouped) {
    const numbers mine = chunk(experts_at(m, l, c.ep), own.n, own.index);
    if (std::find(mine.begin(), mine.end(), t.expert) == mine.end()) part.rows.clear();
    return part;
  }
  part.rows = chunk(part.rows, own.n, own.index);
  return part;
}

// ---- what a rank holds

using holding = std::map<std::string, intervals>;  // tensor's name on this side -> flat global indices; no empty ones

// `list` is tensors(m, l), which every rank and state asks for.
inline holding held(const model& m, const layout& l, const std::vector<tensor>& list, long rank, const state& s) {
  const coordinates c = coordinates_of(l, rank);
  const bool sharded = l.zero >= s.level;
  holding result;
  for (long chunk = 0; chunk < l.stages.chunks(); ++chunk) {
    std::map<std::string, interval> shard;
    if (sharded && !l.rows && l.stages.stage_of(chunk) == c.pp) shard = shards(m, l, list, c, chunk);
    for (const tensor& t : list) {
      if (!is_at(m, l, t, c, chunk) || !has_state(t, s)) continue;
      local_part part = local(l, t, c);
      interval elements = {0, part.size()};
      if (sharded && t.parameter && l.rows) {
        part = rows_of_member(m, l, t, c, part);
        elements = {0, part.size()};
      } else if (sharded && t.parameter) {
        elements = shard.at(t.name);
      }
      const intervals set = flat(t, part, elements.first, elements.second);
      if (!set.empty()) result[t.name] = either(result[t.name], set);
    }
  }
  return result;
}

inline holding held(const model& m, const layout& l, long rank, const state& s) {
  return held(m, l, tensors(m, l), rank, s);
}

// What `reshard check` prints for a rank and a state.
inline long bytes_held(const model& m, const layout& l, long rank, const state& s) {
  const holding h = held(m, l, rank, s);
  long bytes = 0;
  for (const tensor& t : tensors(m, l))
    if (const auto found = h.find(t.name); found != h.end()) bytes += count(found->second) * width_of(t, s);
  return bytes;
}

}  // namespace oracle::trainer
