// SPDX-License-Identifier: Apache-2.0
// Published models: every size, as the models' own config.json files (and the contract, for LLaMA-32B) have it.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include <reshard/model/presets.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
struct published {
  std::string_view name;
  const model* constant;
  index_t layers, hidden, heads, groups, head_dim, ffn, vocabulary, experts, expert_ffn;
};
constexpr published known[] = {
    {"llama2-7b", &models::llama2_7b, 32, 4096, 32, 32, 128, 11008, 32000, 0, 0},
    {"llama2-13b", &models::llama2_13b, 40, 5120, 40, 40, 128, 13824, 32000, 0, 0},
    {"llama2-70b", &models::llama2_70b, 80, 8192, 64, 8, 128, 28672, 32000, 0, 0},
    {"llama-32b", &models::llama_32b, 60, 6656, 64, 64, 104, 17920, 32000, 0, 0},
    {"qwen3-30b-a3b", &models::qwen3_30b_a3b, 48, 2048, 32, 4, 128, 0, 151936, 128, 768},
    {"qwen3-235b-a22b", &models::qwen3_235b_a22b, 94, 4096, 64, 4, 128, 0, 151936, 128, 1536},
};
}  // namespace

TEST_CASE("every published size, by name and as a constant") {
  CHECK(std::size(models::presets) == std::size(known) + 4);  // and three GPT-3, and DeepSeek-V3, below
  for (const published& p : known) {
    CAPTURE(std::string(p.name));
    const model named = preset(p.name);
    for (const model* m : {&named, p.constant}) {
      CHECK(m->name == p.name);
      CHECK(m->shape.layers == p.layers);
      CHECK(m->shape.hidden == p.hidden);
      CHECK(m->shape.heads == p.heads);
      CHECK(m->shape.groups == p.groups);
      CHECK(m->shape.head_dim == p.head_dim);
      CHECK(m->shape.ffn == p.ffn);
      CHECK(m->shape.vocabulary == p.vocabulary);
      CHECK(m->shape.experts == p.experts);
      CHECK(m->shape.expert_ffn == p.expert_ffn);
      CHECK_FALSE(m->shape.tied);
    }
  }
}

TEST_CASE("parameters are those of the published sizes, counted layer by layer; Qwen3 has norms of q and k") {
  for (const published& p : known) {
    CAPTURE(std::string(p.name));
    const index_t attention =
        p.hidden * p.heads * p.head_dim + (p.heads + 2 * p.groups) * p.head_dim * p.hidden + p.hidden;
    const index_t norms = p.name.starts_with("qwen3") ? 2 * p.head_dim : 0;
    const index_t dense = p.experts == 0 ? 3 * p.hidden * p.ffn + p.hidden : 0;
    const index_t moe = p.experts > 0 ? p.experts * (p.hidden + 3 * p.hidden * p.expert_ffn) + p.hidden : 0;
    CHECK(p.constant->parameters() ==
          p.layers * (attention + norms + dense + moe) + 2 * p.vocabulary * p.hidden + p.hidden);
  }
}

TEST_CASE("GPT-3: 2048 learned positions, a vocabulary of 51200, tied; every linear layer and norm has a bias") {
  const struct {
    const char* name;
    const model* constant;
    index_t layers, h, heads;
  } sizes[] = {{"gpt3-1.3b", &models::gpt3_1_3b, 24, 2048, 16},
               {"gpt3-2.7b", &models::gpt3_2_7b, 32, 2560, 32},
               {"gpt3-6.7b", &models::gpt3_6_7b, 32, 4096, 32}};
  for (const auto& [name, constant, layers, h, heads] : sizes) {
    const std::string called(name);
    CAPTURE(called);
    const model& m = *constant;
    CHECK(m.name == name);
    CHECK(preset(name).parameters() == m.parameters());
    CHECK(m.shape.heads == heads);
    CHECK(m.shape.groups == heads);
    CHECK(m.shape.layers == layers);
    CHECK(m.shape.ffn == 4 * h);
    CHECK(m.shape.tied);
    const index_t matrices = h * h + 3 * h * h + 8 * h * h, biases = h + 3 * h + 4 * h + h, norms = 4 * h;
    CHECK(m.parameters() == layers * (matrices + biases + norms) + (51200 + 2048) * h + 2 * h);
  }
}

TEST_CASE("DeepSeek-V3: 671,026,419,200 elements as published, and a prediction layer of another mixture") {
  constexpr index_t h = 7168, heads = 128, q = 1536, kv = 512, n = 128, r = 64, v = 128;
  constexpr index_t attention =
      h + h * heads * v + q * h + q + heads * (n + r) * q + (kv + r) * h + kv + heads * (n + v) * kv;
  constexpr index_t dense = h + 3 * h * 18432, experts = h + 256 * h + 256 + (256 + 1) * 3 * h * 2048;
  constexpr index_t decoder = 2 * 129280 * h + 61 * attention + 3 * dense + 58 * experts + h;
  static_assert(decoder == 671026419200);
  constexpr index_t prediction = 2 * h + 2 * h * h + attention + experts + h;
  static_assert(models::deepseek_v3.parameters() == decoder + prediction);
  CHECK(preset("deepseek-v3").parameters() == 682636487424);
  const dimensions& s = models::deepseek_v3.shape;
  CHECK(s.layers == 61);
  CHECK(s.hidden == h);
  CHECK(s.heads == heads);
  CHECK(s.groups == 0);
  CHECK(s.head_dim == n + r);
  CHECK(s.ffn == 18432);
  CHECK(s.expert_ffn == 2048);
  CHECK(s.shared_ffn == 2048);
  CHECK(s.experts == 256);
  CHECK(s.predictions == 1);
  CHECK_FALSE(s.tied);
}

TEST_CASE("another name is refused with all that are known, in order") {
  const std::string names =
      "; known are llama2-7b, llama2-13b, llama2-70b, llama-32b, qwen3-30b-a3b, qwen3-235b-a22b, "
      "gpt3-1.3b, gpt3-2.7b, gpt3-6.7b, deepseek-v3";
  for (const std::string name : {"", "llama2", "llama2-7b ", "LLAMA2-7B"})
    CHECK(testing::refused([&] { preset(name); }) == "reshard: no model is called '" + name + "'" + names);
}
