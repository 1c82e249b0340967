// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts against runs of torch's fully_shard: FSDP2 and HSDP, with tensor and expert
// parallelism, into equal parts and unequal ones; where torch cut along another dimension than the first, chunk() is
// compared.
#include "golden_file.hpp"
#include "trainer_holds.hpp"

#include <map>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using namespace oracle::trainer;

const state param = {"param", 2, 3}, exp_avg = {"exp_avg", 4, 1};

// The small model of the files, in our words: one layer, with biases of q, k and v.
model model_of(const json& size) {
  model m;
  m.architecture = "Qwen2ForCausalLM";
  m.layers = 1;
  m.hidden = size.at("hidden");
  m.vocab = size.at("vocab");
  const long q = size.at("q"), kv = size.at("kv");
  // As many heads as q and kv rows have in common: which are whose is nothing to these tensors.
  m.groups = std::gcd(kv, 4L);
  m.head_dim = kv / m.groups;
  m.heads = q / m.head_dim;
  m.moe = {size.contains("experts")};
  if (m.moe[0]) {
    m.experts = size.at("experts");
    m.expert_ffn = size.at("ffn");
    m.shared_ffn = size.at("shared");
  } else {
    m.ffn = size.at("ffn");
  }
  return m;
}

const std::map<std::string, std::string> names = {
    {"embed.weight", "model.embed_tokens.weight"},
    {"norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"layer.attention_norm.weight", "model.layers.0.input_layernorm.weight"},
    {"layer.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
    {"layer.wq.weight", "model.layers.0.self_attn.q_proj.weight"},
    {"layer.wk.weight", "model.layers.0.self_attn.k_proj.weight"},
    {"layer.wv.weight", "model.layers.0.self_attn.v_proj.weight"},
    {"layer.wq.bias", "model.layers.0.self_attn.q_proj.bias"},
    {"layer.wk.bias", "model.layers.0.self_attn.k_proj.bias"},
    {"layer.wv.bias", "model.layers.0.self_attn.v_proj.bias"},
    {"layer.wo.weight", "model.layers.0.self_attn.o_proj.weight"},
    {"layer.w1.weight", "model.layers.0.mlp.gate_proj.weight"},
    {"layer.w3.weight", "model.layers.0.mlp.up_proj.weight"},
    {"layer.w2.weight", "model.layers.0.mlp.down_proj.weight"},
    {"layer.moe.router.weight", "model.layers.0.mlp.gate.weight"},
    {"layer.moe.shared_experts.w1.weight", "model.layers.0.mlp.shared_experts.gate_proj.weight"},
    {"layer.moe.shared_experts.w3.weight", "model.layers.0.mlp.shared_experts.up_proj.weight"},
    {"layer.moe.shared_experts.w2.weight", "model.layers.0.mlp.shared_experts.down_proj.weight"},
};
const std::map<std::string, std::string> matrices = {{"w1", "gate_proj"}, {"w3", "up_proj"}, {"w2", "down_proj"}};

// What a rank holds of a tensor of the file, all its boxes flat.
intervals flat_boxes(const json& boxes, const numbers& shape) {
  intervals set;
  for (const json& box : boxes) {
    numbers starts = {0};
    for (std::size_t d = 0; d + 1 < shape.size(); ++d) {
      numbers longer;
      for (long start : starts)
        for (long i = box.at(d).at(0); i < box.at(d).at(1); ++i) longer.push_back(start * shape[d] + i);
      starts = longer;
    }
    const interval last = box.at(shape.size() - 1);
    for (long start : starts) set.emplace_back(start * shape.back() + last.first, start * shape.back() + last.second);
  }
  return as_set(set);
}

// The same of the oracle's holding; the experts' grouped tensors are the single ones end to end.
intervals found(const model& m, const holding& h, const std::string& name, const numbers& shape) {
  const auto of = [&](const std::string& own) { return h.count(own) == 0 ? intervals{} : h.at(own); };
  if (names.count(name) != 0) return of(names.at(name));
  const std::string experts = "layer.moe.experts.", ours = "model.layers.0.mlp.experts.";
  REQUIRE(name.rfind(experts, 0) == 0);
  const std::vector<std::string> part = split_at(name.substr(experts.size()), '.');
  if (part.size() == 3) return of(ours + part[0] + "." + matrices.at(part[1]) + ".weight");
  intervals all;
  for (long e = 0; e < m.experts; ++e)
    for (const auto& [begin, end] : of(ours + text(e) + "." + matrices.at(part[0]) + ".weight"))
      all.emplace_back(e * shape[1] * shape[2] + begin, e * shape[1] * shape[2] + end);
  return as_set(all);
}

// What is compared by chunk() alone: the cuts of one tensor, each a dimension, parts and this rank's part.
struct by_chunk {
  long dimension, parts, part;
};
intervals cut_by(const numbers& shape, const std::vector<by_chunk>& cuts) {
  std::vector<numbers> lists;
  for (long extent : shape) lists.push_back(range(0, extent));
  for (const by_chunk& c : cuts) lists[at(c.dimension)] = chunk(lists[at(c.dimension)], c.parts, c.part);
  numbers flat = {0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    numbers longer;
    for (long start : flat)
      for (long i : lists[d]) longer.push_back(start * shape[d] + i);
    flat = longer;
  }
  intervals set;
  for (long i : flat) set.emplace_back(i, i + 1);
  return as_set(set);
}

long tp_dimension(const std::string& name) {  // -1: whole
  for (const char* columns : {"wo.weight", "w2.weight"})
    if (name.ends_with(columns)) return 1;
  for (const char* rows : {"embed", "output", "wq", "wk", "wv", "w1", "w3"})
    if (name.find(rows) != std::string::npos) return 0;
  return -1;
}

}  // namespace

TEST_CASE("FSDP2 and HSDP, with tensor parallelism") {
  const json file = golden("fsdp2.json");
  REQUIRE(file.at("cases").size() == 20);
  long by_layout = 0, by_chunks = 0, boxes = 0;
  for (const json& c : file.at("cases")) {
    const auto axis = [&](const char* key) { return c.at("mesh").value(key, 1L); };
    const long replicate = axis("replicate"), shard = axis("shard"), tp = axis("tp"), dimension = c.at("shard_dim");
    const model m = model_of(file.at("sizes").at(c.at("size").get<std::string>()));
    const std::string text = "names=hf,shard=rows,zero=3,tp=" + std::to_string(tp) +
                             ",dp=" + std::to_string(replicate * shard) + ",instances=" + std::to_string(replicate);
    const bool legal = why_illegal(m, text).empty() && dimension == 0;
    CHECK_MESSAGE(legal == (dimension == 0), text, " of ", c.at("size"), ": ", why_illegal(m, text));
    (legal ? by_layout : by_chunks) += 1;
    for (long rank = 0; rank < replicate * shard * tp; ++rank) {
      const holding h = legal ? held(m, parse(m, text), rank, param) : holding{};
      if (legal) CHECK(h == held(m, parse(m, text), rank, exp_avg));
      for (const auto& item : c.at("params").items()) {
        const auto shape = item.value().at("shape").get<numbers>();
        const intervals expected = flat_boxes(item.value().at("boxes").at(at(rank)), shape);
        std::vector<by_chunk> cuts;
        if (tp > 1 && tp_dimension(item.key()) >= 0) cuts.push_back({tp_dimension(item.key()), tp, rank % tp});
        cuts.push_back({shape.size() == 1 ? 0 : dimension, shard, rank / tp % shard});
        CHECK_MESSAGE(cut_by(shape, cuts) == expected, item.key(), " rank ", rank, " by chunks, ", text);
        if (legal) CHECK_MESSAGE(found(m, h, item.key(), shape) == expected, item.key(), " rank ", rank, ", ", text);
        ++boxes;
      }
    }
  }
  MESSAGE(by_layout, " cases as layouts, ", by_chunks, " by chunk() alone, ", boxes, " tensors of ranks");
}

TEST_CASE("FSDP2 with expert parallelism") {
  const json file = golden("fsdp2_ep.json");
  REQUIRE(file.at("cases").size() == 8);
  long boxes = 0;
  for (const json& c : file.at("cases")) {
    const auto axis = [&](const char* key) { return c.at("mesh").value(key, 1L); };
    const long efsdp = axis("efsdp"), ep = axis("ep"), tp = axis("tp");
    const std::string experts = c.at("experts");
    const model m = model_of(file.at("sizes").at(c.at("size").get<std::string>()));
    const std::string text = "names=hf,shard=rows,zero=3,tp=" + std::to_string(tp) +
                             ",dp=" + std::to_string(efsdp * ep) +
                             (experts == "etp"     ? ",ep=" + std::to_string(ep) + ",etp=" + std::to_string(tp)
                              : experts == "ep*tp" ? ",ep=" + std::to_string(ep * tp)
                                                   : ",ep=" + std::to_string(ep)) +
                             (experts == "each" || experts == "grouped1" ? "" : ",experts=grouped");
    // grouped1: one tensor whose second dimension is cut, the rows of each expert. That is how separate experts lie.
    REQUIRE_MESSAGE(why_illegal(m, text) == "", text);
    for (long rank = 0; rank < efsdp * ep * tp; ++rank) {
      const holding h = held(m, parse(m, text), rank, param);
      for (const auto& item : c.at("params").items()) {
        const auto shape = item.value().at("shape").get<numbers>();
        const intervals expected = flat_boxes(item.value().at("boxes").at(at(rank)), shape);
        CHECK_MESSAGE(found(m, h, item.key(), shape) == expected, item.key(), " rank ", rank, ", ", text);
        ++boxes;
      }
    }
  }
  MESSAGE(boxes, " tensors of ranks");
}
