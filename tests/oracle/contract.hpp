// SPDX-License-Identifier: Apache-2.0
//
// The oracle, second part: the tensors, the optimizer's buffers, and what a rank holds, one char per element.
// Brute force and obvious on purpose.
#pragma once

#include "layouts.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace oracle {

struct tensor {
  std::string name;
  std::vector<long> shape;
};

enum class state { param, master, exp_avg, exp_avg_sq };
inline constexpr state all_states[] = {state::param, state::master, state::exp_avg, state::exp_avg_sq};

inline std::string name_of(state s) {
  switch (s) {
    case state::param: return "param";
    case state::master: return "master";
    case state::exp_avg: return "exp_avg";
    case state::exp_avg_sq: return "exp_avg_sq";
  }
  throw std::out_of_range("no such state");
}

inline long width_of(state s) { return s == state::param ? 2 : 4; }

// ---- tensors ---------------------------------------------------------------------------------

// How tp (of experts: etp) cuts a tensor.
enum class cut { whole, rows, columns, gate_and_up };

// A tensor and all that the contract says about its place.
struct entry {
  tensor what;
  cut how;
  enum { embedding, layer, output } where;
  long layer_number = -1;   // of the tensors of layers
  long expert_number = -1;  // of experts' tensors
  bool shared = false;      // a tied embedding or output parameter with pp > 1
};

inline std::vector<entry> inventory(const model& m, const layout& l) {
  std::vector<entry> list;
  const bool shared = m.tied && l.pp > 1;
  const long h = m.hidden, d = m.head_dim;

  list.push_back({{"embedding.word_embeddings.weight", {m.vocab, h}}, cut::rows, entry::embedding, -1, -1, shared});
  for (long number = 0; number < m.layers; ++number) {
    const std::string prefix = "decoder.layers." + std::to_string(number) + ".";
    const auto add = [&](const std::string& name, std::vector<long> shape, cut how, long expert = -1) {
      list.push_back({{prefix + name, std::move(shape)}, how, entry::layer, number, expert, false});
    };
    add("self_attention.linear_proj.weight", {h, m.heads * d}, cut::columns);
    add("self_attention.linear_qkv.layer_norm_weight", {h}, cut::whole);
    add("self_attention.linear_qkv.weight", {qkv_rows(m), h}, cut::rows);
    if (m.qk_norm) {
      add("self_attention.q_layernorm.weight", {d}, cut::whole);
      add("self_attention.k_layernorm.weight", {d}, cut::whole);
    }
    if (!is_moe(m, number)) {
      add("mlp.linear_fc1.layer_norm_weight", {h}, cut::whole);
      add("mlp.linear_fc1.weight", {2 * m.ffn, h}, cut::gate_and_up);
      add("mlp.linear_fc2.weight", {h, m.ffn}, cut::columns);
    } else {
      add("pre_mlp_layernorm.weight", {h}, cut::whole);
      add("mlp.router.weight", {m.experts, h}, cut::whole);
      for (long e = 0; e < m.experts; ++e)
        add("mlp.experts.linear_fc1.weight" + std::to_string(e), {2 * m.expert_ffn, h}, cut::gate_and_up, e);
      for (long e = 0; e < m.experts; ++e)
        add("mlp.experts.linear_fc2.weight" + std::to_string(e), {h, m.expert_ffn}, cut::columns, e);
    }
  }
  list.push_back({{"decoder.final_layernorm.weight", {h}}, cut::whole, entry::output, -1, -1, false});
  if (!m.tied || l.pp > 1)
    list.push_back({{"output_layer.weight", {m.vocab, h}}, cut::rows, entry::output, -1, -1, shared});
  return list;
}

// Every name that exists under the layout, in the contract's order.
inline std::vector<tensor> tensors(const model& m, const layout& l) {
  std::vector<tensor> list;
  for (const entry& e : inventory(m, l)) list.push_back(e.what);
  return list;
}

inline bool is_in_chunk(const model& m, const layout& l, const entry& e, long pp, long chunk) {
  switch (e.where) {
    case entry::embedding: return has_embedding(l, pp, chunk);
    case entry::output: return has_output(l, pp, chunk);
    case entry::layer: {
      const auto [first, past] = layers_of_chunk(m.layers, l, pp, chunk);
      return first <= e.layer_number && e.layer_number < past;
    }
  }
  throw std::out_of_range("no such place");
}

// The flat global indices of the elements that part `part` of `parts` has, in the order of the part's own memory.
inline std::vector<long> elements_of_part(const entry& e, long parts, long part) {
  const long rows = e.what.shape.at(0);
  const long columns = product(e.what.shape) / rows;
  std::vector<long> elements;
  const auto take = [&](long row_begin, long row_end, long column_begin, long column_end) {
    for (long row = row_begin; row < row_end; ++row)
      for (long column = column_begin; column < column_end; ++column) elements.push_back(row * columns + column);
  };
  switch (e.how) {
    case cut::whole: take(0, rows, 0, columns); break;
    case cut::rows: take(rows / parts * part, rows / parts * (part + 1), 0, columns); break;
    case cut::columns: take(0, rows, columns / parts * part, columns / parts * (part + 1)); break;
    case cut::gate_and_up: {
      const long half = rows / 2, piece = half / parts;
      take(piece * part, piece * (part + 1), 0, columns);                // gate
      take(half + piece * part, half + piece * (part + 1), 0, columns);  // up
      break;
    }
  }
  return elements;
}

inline std::vector<long> local_elements(const layout& l, const entry& e, const coordinates& c) {
  return e.expert_number >= 0 ? elements_of_part(e, l.etp, c.etp) : elements_of_part(e, l.tp, c.tp);
}

// ---- the optimizer's buffers -----------------------------------------------------------------

struct buffer_parameter {  // of local (tp-cut) elements in a rank's optimizer buffer
  std::string name;
  long begin, end;
  long bucket;
};

struct optimizer_buffer {
  std::vector<buffer_parameter> parameters;    // in the buffer's order
  std::vector<std::pair<long, long>> buckets;  // [begin, end), padding included
  std::vector<long> unpadded;                  // the buckets' lengths without the padding at their ends
};

struct packed {  // one parameter to pack
  std::string name;
  long numel;
  bool shared;
};

inline long round_up(long value, long multiple) { return (value + multiple - 1) / multiple * multiple; }

// The packing rule alone: parameters in model order, n parts per bucket, bucket -1 for none.
inline optimizer_buffer pack(const std::vector<packed>& list, long n, long bucket) {
  optimizer_buffer buffer;
  long cursor = 0;        // where the next parameter may start, before alignment
  long bucket_begin = 0;  // of the open bucket
  bool bucket_empty = true;

  const auto close_bucket = [&](long end) {  // returns where the next one begins
    const long padded_end = round_up(end, std::lcm(n, 128L));
    buffer.unpadded.push_back(end - bucket_begin);
    buffer.buckets.emplace_back(bucket_begin, padded_end);
    bucket_begin = padded_end;
    bucket_empty = true;
    return padded_end;
  };

  for (auto p = list.rbegin(); p != list.rend(); ++p) {
    long begin = round_up(cursor, 64);
    if (p->shared && !bucket_empty) begin = close_bucket(begin);
    const long end = begin + p->numel;
    buffer.parameters.push_back({p->name, begin, end, length(buffer.buckets)});
    bucket_empty = false;
    cursor = end;
    const bool full = bucket != -1 && end - bucket_begin >= bucket;
    if (full || p->shared) cursor = close_bucket(end);
  }
  if (!bucket_empty) close_bucket(cursor);
  return buffer;
}

inline bool has_expert_buffers(const layout& l) { return l.ep > 1 || l.etp != l.tp; }
inline bool in_expert_buffer(const layout& l, const entry& e) { return e.expert_number >= 0 && has_expert_buffers(l); }

// Expert e sits at ep coordinate e / (E/EP); what is no expert sits at every one.
inline bool is_at_ep(const model& m, const layout& l, const entry& e, long ep) {
  return e.expert_number < 0 || e.expert_number / (m.experts / l.ep) == ep;
}

// The bucket length that holds for the buffers of this chunk.
inline long bucket_of_chunk(const layout& l, long pp, long chunk) { return pp == 0 && chunk == 0 ? l.bucket : -1; }

inline long dense_sharding_size(const layout& l) { return l.dp * l.cp; }
inline long expert_sharding_size(const layout& l) { return l.edp; }

// The dense buffer of a chunk: everything but the experts, and the experts too where they have no buffer of their own.
inline optimizer_buffer dense_buffer(const model& m, const layout& l, long pp, long chunk) {
  std::vector<packed> list;
  for (const entry& e : inventory(m, l))
    if (is_in_chunk(m, l, e, pp, chunk) && !in_expert_buffer(l, e))
      list.push_back({e.what.name, length(elements_of_part(e, l.tp, 0)), e.shared});
  return pack(list, dense_sharding_size(l), bucket_of_chunk(l, pp, chunk));
}

// The expert buffer of a chunk at one ep coordinate; without parameters where the experts are in the dense buffer.
inline optimizer_buffer expert_buffer(const model& m, const layout& l, long pp, long chunk, long ep) {
  std::vector<packed> list;
  for (const entry& e : inventory(m, l))
    if (is_in_chunk(m, l, e, pp, chunk) && in_expert_buffer(l, e) && is_at_ep(m, l, e, ep))
      list.push_back({e.what.name, length(elements_of_part(e, l.etp, 0)), e.shared});
  return pack(list, expert_sharding_size(l), bucket_of_chunk(l, pp, chunk));
}

// ---- what a rank holds -----------------------------------------------------------------------

using flat_set = std::vector<char>;  // one char per element of the tensor, row-major at tp=1

inline long count(const flat_set& set) {
  long n = 0;
  for (char held : set) n += held != 0 ? 1 : 0;
  return n;
}

// Tensor name -> elements held; a tensor of which nothing is held is absent.
inline std::map<std::string, flat_set> held(const model& m, const layout& l, long rank, state s) {
  const coordinates c = coordinates_of(l, rank);
  const bool sharded = l.zero == 1 && s != state::param;
  const std::vector<entry> list = inventory(m, l);

  std::map<std::string, flat_set> result;
  for (long chunk = 0; chunk < l.vpp; ++chunk) {
    // Where the shards of this rank are, per parameter: the half-open interval of its local elements.
    std::map<std::string, std::pair<long, long>> shard;
    const auto add_shards = [&](const optimizer_buffer& buffer, long n, long part) {
      for (const buffer_parameter& p : buffer.parameters) {
        const auto [bucket_begin, bucket_end] = buffer.buckets.at(index(p.bucket));
        const long width = (bucket_end - bucket_begin) / n;
        const long begin = std::max(p.begin, bucket_begin + width * part);
        const long end = std::min(p.end, bucket_begin + width * (part + 1));
        shard[p.name] = {begin - p.begin, end - p.begin};  // empty if begin >= end
      }
    };
    if (sharded) {
      add_shards(dense_buffer(m, l, c.pp, chunk), dense_sharding_size(l), c.cp + l.cp * c.dp);
      add_shards(expert_buffer(m, l, c.pp, chunk, c.ep), expert_sharding_size(l), c.edp);
    }

    for (const entry& e : list) {
      if (!is_in_chunk(m, l, e, c.pp, chunk) || !is_at_ep(m, l, e, c.ep)) continue;
      const std::vector<long> elements = local_elements(l, e, c);
      flat_set set(index(product(e.what.shape)), 0);
      for (long i = 0; i < length(elements); ++i) {
        if (sharded && (i < shard.at(e.what.name).first || i >= shard.at(e.what.name).second)) continue;
        set.at(index(elements[index(i)])) = 1;
      }
      if (count(set) > 0) result.emplace(e.what.name, std::move(set));
    }
  }
  return result;
}

// What `reshard check` prints for a rank and a state.
inline long bytes_held(const model& m, const layout& l, long rank, state s) {
  long n = 0;
  for (const auto& [name, set] : held(m, l, rank, s)) n += count(set);
  return n * width_of(s);
}

}  // namespace oracle
