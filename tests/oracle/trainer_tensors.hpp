// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 4: the tensors of a side by Megatron's names, in order: shapes, cuts, chunks.
// Builds on trainer_layout.hpp.
#pragma once

#include "trainer_layout.hpp"

#include <string>
#include <vector>

namespace oracle::trainer {

// How tp (of experts: etp) cuts a tensor.
enum class cut { whole, rows, columns, gate_and_up };

struct tensor {
  std::string name;  // on this side
  numbers shape;     // on this side, at tp=1
  cut how = cut::whole;
  numbers chunks;    // that hold it
  long layer = -1;   // decoder layer
  long expert = -1;  // expert number
  bool own_bucket = false;
  bool parameter = true;  // false: expert_bias, which is fp32, in no optimizer buffer, and has the state param only
  // Which element is which: row r of this tensor is row family_rows[r] of the family's tensor, the same columns.
  std::string family;
  numbers family_rows;

  long rows() const { return shape.at(0); }
  long columns() const { return shape.size() == 1 ? 1 : shape.at(1); }
};

inline std::string text(long n) { return std::to_string(n); }

// The rows that the word embedding and the output have on this side.
inline long vocabulary_rows(const model& m, const layout& l) {
  if (l.pad == 0) return m.vocab;
  const long multiple = l.pad * l.tp;
  return (m.vocab + multiple - 1) / multiple * multiple;
}

// Adds tensors of one model in the contract's order.
class tensor_list {
 public:
  tensor_list(const model& m, const layout& l) : m_(m), l_(l) {}

  std::vector<tensor> all() {
    const pipeline& p = l_.stages;
    const long last = p.chunks() - 1;
    embedding();
    for (long layer = 0; layer < m_.layers; ++layer) {
      chunks_ = {chunk_of_layer(layer)};
      layer_ = layer;
      prefix_ = "decoder.layers." + text(layer) + ".";
      decoder_layer(m_.moe[at(layer)]);
    }
    layer_ = -1;
    prefix_ = "";
    // With prediction layers the final norm sits in the chunk of the last decoder layer.
    chunks_ = {m_.predictions > 0 && m_.layers > 0 ? chunk_of_layer(m_.layers - 1) : last};
    norm("decoder.final_layernorm");
    if (m_.predictions > 0) chunks_ = {p.prediction};
    for (long number = 0; number < m_.predictions; ++number) prediction(number);
    prefix_ = "";
    chunks_ = {last};
    output();
    for (tensor& t : list_) {
      if (t.family.empty()) t.family = t.name;
      t.family_rows = range(0, t.rows());
    }
    return list_;
  }

 private:
  const model& m_;
  const layout& l_;
  std::vector<tensor> list_;
  std::string prefix_;
  numbers chunks_;
  long layer_ = -1;

  tensor& add(const std::string& name, numbers shape, cut how, long expert = -1) {
    tensor t;
    t.name = prefix_ + name;
    t.shape = std::move(shape);
    t.how = how;
    t.chunks = chunks_;
    t.layer = layer_;
    t.expert = expert;
    list_.push_back(t);
    return list_.back();
  }

  long chunk_of_layer(long layer) const {
    for (long k = 0; k < l_.stages.chunks(); ++k)
      if (l_.stages.layers[at(k)].first <= layer && layer < l_.stages.layers[at(k)].second) return k;
    throw std::out_of_range("no chunk has the layer");
  }

  void embedding() {
    const long h = m_.hidden, prediction = l_.stages.prediction;
    chunks_ = {0};
    if (prediction > 0) chunks_.push_back(prediction);
    tensor& word = add("embedding.word_embeddings.weight", {vocabulary_rows(m_, l_), h}, cut::rows);
    word.own_bucket = l_.pp > 1 && (m_.tied || m_.predictions > 0);
    chunks_ = {0};
    if (m_.gpt()) add("embedding.position_embeddings.weight", {m_.positions, h}, cut::whole);
  }

  void output() {
    if (m_.tied && l_.pp == 1) return;
    tensor& t = add("output_layer.weight", {vocabulary_rows(m_, l_), m_.hidden}, cut::rows);
    t.own_bucket = m_.tied;
    if (m_.tied) t.family = "embedding.word_embeddings.weight";  // both names are one tensor
  }

  void norm(const std::string& name) {
    add(name + ".weight", {m_.hidden}, cut::whole);
    if (m_.gpt()) add(name + ".bias", {m_.hidden}, cut::whole);
  }

  // "x.layer_norm_weight"
  void fused_norm(const std::string& name, long size) {
    add(name + ".layer_norm_weight", {size}, cut::whole);
    if (m_.gpt()) add(name + ".layer_norm_bias", {size}, cut::whole);
  }

  void decoder_layer(bool moe) {
    if (m_.mla()) latent_attention();
    else attention();
    if (moe) experts();
    else dense();
  }

  void attention() {
    const long h = m_.hidden, d = m_.head_dim;
    add("self_attention.linear_proj.weight", {h, m_.heads * d}, cut::columns);
    if (m_.gpt()) add("self_attention.linear_proj.bias", {h}, cut::whole);
    fused_norm("self_attention.linear_qkv", h);
    add("self_attention.linear_qkv.weight", {m_.qkv_rows(), h}, cut::rows);
    if (m_.qkv_bias()) add("self_attention.linear_qkv.bias", {m_.qkv_rows()}, cut::rows);
    if (m_.qk_norm()) {
      add("self_attention.q_layernorm.weight", {d}, cut::whole);
      add("self_attention.k_layernorm.weight", {d}, cut::whole);
    }
  }

  void latent_attention() {
    const long h = m_.hidden, H = m_.heads, n = m_.nope, r = m_.rope, v = m_.v_head, a = m_.q_rank, b = m_.kv_rank;
    add("input_layernorm.weight", {h}, cut::whole);
    add("self_attention.linear_proj.weight", {h, H * v}, cut::columns);
    if (a > 0) {
      add("self_attention.linear_q_down_proj.weight", {a, h}, cut::whole);
      add("self_attention.linear_q_up_proj.layer_norm_weight", {a}, cut::whole);
      add("self_attention.linear_q_up_proj.weight", {H * (n + r), a}, cut::rows);
    } else {
      add("self_attention.linear_q_proj.layer_norm_weight", {h}, cut::whole);
      add("self_attention.linear_q_proj.weight", {H * (n + r), h}, cut::rows);
    }
    add("self_attention.linear_kv_down_proj.weight", {b + r, h}, cut::whole);
    add("self_attention.linear_kv_up_proj.layer_norm_weight", {b}, cut::whole);
    add("self_attention.linear_kv_up_proj.weight", {H * (n + v), b}, cut::rows);
  }

  void dense() {
    const long h = m_.hidden, f = m_.ffn;
    fused_norm("mlp.linear_fc1", h);
    if (m_.gpt()) {
      add("mlp.linear_fc1.weight", {f, h}, cut::rows);
      add("mlp.linear_fc1.bias", {f}, cut::rows);
    } else {
      add("mlp.linear_fc1.weight", {2 * f, h}, cut::gate_and_up);
    }
    add("mlp.linear_fc2.weight", {h, f}, cut::columns);
    if (m_.gpt()) add("mlp.linear_fc2.bias", {h}, cut::whole);
  }

  void experts() {
    const long h = m_.hidden, f = m_.expert_ffn, s = m_.shared_ffn;
    add("pre_mlp_layernorm.weight", {h}, cut::whole);
    add("mlp.router.weight", {m_.experts, h}, cut::whole);
    if (m_.expert_bias) add("mlp.router.expert_bias", {m_.experts}, cut::whole).parameter = false;
    for (long e = 0; e < m_.experts; ++e)
      add("mlp.experts.linear_fc1.weight" + text(e), {2 * f, h}, cut::gate_and_up, e);
    for (long e = 0; e < m_.experts; ++e) add("mlp.experts.linear_fc2.weight" + text(e), {h, f}, cut::columns, e);
    if (s > 0) {
      add("mlp.shared_experts.linear_fc1.weight", {2 * s, h}, cut::gate_and_up);
      add("mlp.shared_experts.linear_fc2.weight", {h, s}, cut::columns);
    }
  }

  void prediction(long number) {
    const long h = m_.hidden;
    const std::string own = "mtp.layers." + text(number) + ".";
    prefix_ = own;
    add("enorm.weight", {h}, cut::whole);
    add("hnorm.weight", {h}, cut::whole);
    add("eh_proj.weight", {h, 2 * h}, cut::rows);
    prefix_ = own + "mtp_model_layer.";
    decoder_layer(prediction_is_moe(m_, l_.stages));
    prefix_ = own;
    add("final_layernorm.weight", {h}, cut::whole);
  }
};

inline std::vector<tensor> megatron_tensors(const model& m, const layout& l) { return tensor_list(m, l).all(); }

}  // namespace oracle::trainer
