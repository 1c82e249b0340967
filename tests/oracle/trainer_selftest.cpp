// SPDX-License-Identifier: Apache-2.0
//
// Is the oracle of trainers' layouts right? Against cases computed by hand, against the first oracle where both speak,
// and against itself on random layouts and switches. The golden files have programs of their own.
#include <doctest/doctest.h>

#include "contract.hpp"
#include "plan_check.hpp"
#include "random_keys.hpp"
#include "random_layouts.hpp"
#include "trainer_switch.hpp"

#include <map>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using namespace oracle::trainer;

const state param = {"param", 2, 3}, master = {"master", 4, 1};

model llama() {
  return read_model(json{{"architectures", {"LlamaForCausalLM"}},
                         {"num_hidden_layers", 2},
                         {"hidden_size", 4},
                         {"num_attention_heads", 2},
                         {"num_key_value_heads", 1},
                         {"intermediate_size", 6},
                         {"vocab_size", 10}});
}

json deepseek_config() {
  return json{{"architectures", {"DeepseekV3ForCausalLM"}},
              {"num_hidden_layers", 2},
              {"hidden_size", 6},
              {"num_attention_heads", 2},
              {"qk_nope_head_dim", 2},
              {"qk_rope_head_dim", 1},
              {"v_head_dim", 3},
              {"q_lora_rank", 5},
              {"kv_lora_rank", 3},
              {"intermediate_size", 8},
              {"vocab_size", 8},
              {"n_routed_experts", 4},
              {"moe_intermediate_size", 2},
              {"n_shared_experts", 2},
              {"first_k_dense_replace", 1},
              {"topk_method", "noaux_tc"}};
}

intervals of(const model& m, const std::string& layout, long rank, const state& s, const std::string& tensor) {
  const holding h = held(m, parse(m, layout), rank, s);
  return h.count(tensor) == 0 ? intervals{} : h.at(tensor);
}

tensor find(const model& m, const std::string& layout, const std::string& name) {
  for (const tensor& t : tensors(m, parse(m, layout)))
    if (t.name == name) return t;
  FAIL("no tensor ", name);
  return {};
}

}  // namespace

TEST_CASE("sets and chunk()") {
  CHECK(as_set({{5, 7}, {1, 3}, {3, 4}, {6, 6}}) == intervals{{1, 4}, {5, 7}});
  CHECK(both({{0, 4}, {6, 9}}, {{2, 7}}) == intervals{{2, 4}, {6, 7}});
  CHECK(without({{0, 10}}, {{2, 3}, {9, 12}}) == intervals{{0, 2}, {3, 9}});
  CHECK(either({{0, 2}}, {{2, 3}}) == intervals{{0, 3}});
  const numbers five = range(0, 5);
  CHECK(chunk(five, 4, 0) == numbers{0, 1});
  CHECK(chunk(five, 4, 2) == numbers{4});
  CHECK(chunk(five, 4, 3).empty());
}

TEST_CASE("what is legal") {
  const model m = llama(), deep = read_model(deepseek_config());
  for (const char* text : {"", "bucket=none", "tp=2,pad=3", "tp=2,dp=2,instances=2,zero=2", "pp=2,first=1",
                           "pp=2,last=1", "pp=2,first=1,last=1", "pp=2,string=Et|tL", "pp=2,vpp=2,string=E|t*2||L",
                           "pp=1,string=EttL", "dp=2,shard=rows,zero=3,names=hf", "pp=3,split=account_loss",
                           "tp=2,cp=2,order=cp-tp-dp", "dp=3,cp=1,tp=1,pp=1,order=dp", "busbw=1", "pp=1,first=2"})
    CHECK_MESSAGE(why_illegal(m, text) == "", text);
  for (const char* text : {"zero=3",
                           "zero=4,shard=rows",
                           "names=hf",
                           "names=other",
                           "shard=flat",
                           "spec=local",
                           "kv=replicate",
                           "busbw=2",
                           "pad=0",
                           "pp=2,first=2",
                           "pp=2,first=1,last=1,split=even2",
                           "pp=2,split=account,first=1",
                           "pp=2,string=EttL",
                           "pp=2,string=Et|tL,split=even",
                           "pp=2,vpp=2,string=Et|tL",
                           "pp=2,string=et|tl",
                           "string=",
                           "pp=1,string=Et|tL",
                           "pp=2,string=Ettm|L",
                           "pp=2,string=E((t)*2|)*1L",
                           "dp=2,instances=3",
                           "dp=2,order=tp-cp",
                           "dp=2,order=dp-dp",
                           "dp=2,order=dp-xp",
                           "tp=2,cp=2,order=tp-cp",
                           "experts=grouped,shard=rows",
                           "ep=2,dp=2",
                           "order=",
                           "bucket=",
                           "tp=2,tp=2",
                           "tp=3",
                           "pp=2,first=0,last=2"})
    CHECK_MESSAGE(why_illegal(m, text) != "", text);
  CHECK(why_illegal(deep, "tp=2,ep=2,dp=2") == "");
  CHECK(why_illegal(deep, "ep=4,dp=4,shard=rows,zero=3,experts=grouped,names=hf") == "");
  CHECK(why_illegal(deep, "ep=3,dp=3") != "");
  CHECK(why_illegal(deep, "tp=4") != "");  // 2 heads
  // pp is not last and edp is not dp.
  CHECK(why_illegal(deep, "tp=2,pp=2,dp=2,etp=1,order=tp-pp-dp") != "");
  CHECK(why_illegal(deep, "tp=2,pp=2,dp=2,order=tp-pp-dp") == "");
  json bias = deepseek_config();
  bias["attention_bias"] = true;
  CHECK_THROWS_AS(read_model(bias), illegal);
  json tied = deepseek_config();
  tied["tie_word_embeddings"] = true;
  tied["num_nextn_predict_layers"] = 1;
  CHECK(why_illegal(read_model(tied), "pp=2") != "");
  CHECK(why_illegal(read_model(tied), "") == "");
  CHECK(why_illegal(read_model(tied), "pp=2,string=Ettm|L") == "");
}

TEST_CASE("orders and sharding groups") {
  const model m = llama();
  const layout l = parse(m, "tp=2,cp=2,dp=2,pp=2,order=dp-tp-cp-pp");
  CHECK(coordinates_of(l, 11) == coordinates{.tp = 1, .cp = 0, .dp = 1, .pp = 1, .etp = 0, .ep = 0, .edp = 3});
  CHECK(dense_member(l, coordinates_of(l, 5)).index == 3);  // dp 1, tp 0, cp 1
  CHECK(dense_member(parse(m, "cp=2,dp=3"), {.cp = 1, .dp = 2}).index == 5);
  const layout runs = parse(m, "dp=6,instances=2");
  CHECK(within_instance(runs, {6, 4}).n == 3);
  CHECK(within_instance(runs, {6, 4}).index == 1);
}

TEST_CASE("padded vocabularies") {
  const model m = llama();
  CHECK(of(m, "tp=2,pad=4", 1, param, "embedding.word_embeddings.weight") == intervals{{32, 64}});
  CHECK(of(m, "tp=2", 1, param, "output_layer.weight") == intervals{{20, 40}});
  switch_question q = {m, parse(m, "dp=2"), parse(m, "tp=2,pad=4"), parse_states("adam"), {0, 1}, {1, 0}};
  CHECK(needs(q).created_bytes == 2 * 6 * 4 * 14);  // both tensors, rows 10 to 15, four states
  CHECK(needs(q).dropped_bytes == 0);
  CHECK(needs(q).least_bytes == 0);
  CHECK(needs(q).nowhere == 0);
  std::swap(q.from, q.to);
  CHECK(needs(q).created_bytes == 0);
  CHECK(needs(q).dropped_bytes == 2 * 6 * 4 * 14);
}

TEST_CASE("shard=rows") {
  const model m = llama();
  const std::string fc1 = "decoder.layers.0.mlp.linear_fc1.weight", rows = "tp=2,dp=4,zero=3,shard=rows";
  // tp rank 1 has gate rows 3 4 5 and up rows 9 10 11: 3 4 | 5 9 | 10 11 | nothing
  CHECK(of(m, rows, 1, param, fc1) == intervals{{12, 20}});
  CHECK(of(m, rows, 3, param, fc1) == intervals{{20, 24}, {36, 40}});
  CHECK(of(m, rows, 5, master, fc1) == intervals{{40, 48}});
  CHECK(of(m, rows, 7, param, fc1).empty());
  CHECK(of(m, "tp=2,dp=4,zero=2,shard=rows", 7, param, fc1) == intervals{{12, 24}, {36, 48}});
  CHECK(of(m, rows, 3, param, "decoder.layers.1.self_attention.linear_proj.weight") == intervals{{6, 8}});
  CHECK(of(m, rows + ",instances=2", 6, param, "decoder.final_layernorm.weight") == intervals{{2, 4}});
  // Experts after etp, over edp; grouped: whole ones.
  const model deep = read_model(deepseek_config());
  const std::string expert = "decoder.layers.1.mlp.experts.linear_fc1.weight", apart = "dp=4,ep=2,zero=3,shard=rows";
  CHECK(of(deep, apart, 2, param, expert + "1") == intervals{{12, 24}});  // [4,6], edp 1 of 2
  CHECK(of(deep, apart, 2, param, expert + "2").empty());
  CHECK(of(deep, apart + ",experts=grouped", 2, param, expert + "0").empty());
  CHECK(of(deep, apart + ",experts=grouped", 2, param, expert + "1") == intervals{{0, 24}});
  CHECK(of(deep, apart + ",experts=grouped", 1, param, expert + "2") == intervals{{0, 24}});
}

TEST_CASE("ZeRO's buffers with prediction layers: the embedding has a bucket of its own") {
  json config = deepseek_config();
  config["num_nextn_predict_layers"] = 1;
  const model m = read_model(config);
  // 8 x 6 elements in a bucket of 128 for two: all of them in the first half. On every stage that has it.
  const std::string word = "embedding.word_embeddings.weight";
  CHECK(of(m, "pp=2,dp=2,zero=1", 0, master, word) == intervals{{0, 48}});
  CHECK(of(m, "pp=2,dp=2,zero=1", 1, master, word).empty());
  CHECK(of(m, "pp=2,dp=2,zero=1", 2, master, word) == intervals{{0, 48}});
  CHECK(of(m, "pp=2,dp=2,zero=1", 3, master, word).empty());
}

TEST_CASE("prediction layers: names and places") {
  json config = deepseek_config();
  config["num_nextn_predict_layers"] = 1;
  const model m = read_model(config);
  const std::string text = "pp=4,string=Et|t|m|L";
  CHECK(find(m, text, "embedding.word_embeddings.weight").chunks == numbers{0, 2});
  CHECK(find(m, text, "decoder.final_layernorm.weight").chunks == numbers{1});
  CHECK(find(m, text, "mtp.layers.0.eh_proj.weight").shape == numbers{6, 12});
  CHECK(find(m, text, "mtp.layers.0.mtp_model_layer.mlp.experts.linear_fc2.weight3").chunks == numbers{2});
  CHECK(find(m, text, "output_layer.weight").chunks == numbers{3});
  CHECK(find(m, "", "embedding.word_embeddings.weight").chunks == numbers{0});
  std::vector<std::string> names;
  for (const tensor& t : tensors(m, parse(m, "shard=rows,names=hf"))) names.push_back(t.name);
  CHECK(std::count(names.begin(), names.end(), "model.layers.2.shared_head.norm.weight") == 1);
  CHECK(std::count(names.begin(), names.end(), "model.layers.2.eh_proj.weight") == 1);
  CHECK(std::count(names.begin(), names.end(), "model.layers.2.self_attn.kv_a_proj_with_mqa.weight") == 1);
  CHECK(std::count(names.begin(), names.end(), "model.layers.1.mlp.shared_experts.up_proj.weight") == 1);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
}

TEST_CASE("expert_bias is fp32, whole, and param alone") {
  const model m = read_model(deepseek_config());
  const std::string bias = "decoder.layers.1.mlp.router.expert_bias", text = "dp=4,ep=2,zero=3,shard=rows";
  for (long rank = 0; rank < 4; ++rank) CHECK(of(m, text, rank, param, bias) == intervals{{0, 4}});
  CHECK(of(m, text, 0, master, bias).empty());
  CHECK(of(m, "dp=2,zero=1", 0, master, bias).empty());
  const long elements = bytes_held(m, parse(m, ""), 0, master) / 4;
  CHECK(bytes_held(m, parse(m, ""), 0, param) == 2 * elements + 4 * 4);
}

TEST_CASE("Hugging Face's names: which row is which") {
  model m = llama();
  m.heads = 4, m.groups = 2, m.head_dim = 1;  // q0 q1 k0 v0 q2 q3 k1 v1
  const std::string hf = "shard=rows,names=hf", own = "model.layers.0.self_attn.";
  CHECK(find(m, hf, own + "q_proj.weight").family_rows == numbers{0, 1, 4, 5});
  CHECK(find(m, hf, own + "k_proj.weight").family_rows == numbers{2, 6});
  CHECK(find(m, hf, own + "v_proj.weight").family_rows == numbers{3, 7});
  CHECK(find(m, hf, "model.layers.0.mlp.up_proj.weight").family_rows == range(6, 12));
  CHECK(element_of(find(m, hf, own + "v_proj.weight"), 5) ==
        std::pair<std::string, long>("decoder.layers.0.self_attention.linear_qkv.weight", 29));
  CHECK(of(m, hf + ",tp=2", 1, param, own + "q_proj.weight") == intervals{{8, 16}});
  m.tied = true;
  CHECK(find(m, hf + ",pp=2", "lm_head.weight").family == "embedding.word_embeddings.weight");
}

TEST_CASE("states") {
  const std::vector<state> adam = parse_states("adam+grad");
  REQUIRE(adam.size() == 5);
  CHECK(adam[4].name == "grad");
  CHECK(adam[4].level == 2);
  CHECK(parse_states("sgd").size() == 2);
  CHECK(parse_states("param:fp8:3,m:fp16:1")[0].width == 1);
  for (const char* bad : {"", "adamw", "param:bf16:1", "m:fp32:1", "param:bf16:3,param:bf16:3", "param:bf17:3",
                          "param:bf16:3,m:fp32:4", "param:bf16:3,", "param:bf16"})
    CHECK_THROWS_AS_MESSAGE(parse_states(bad), illegal, bad);
  const model m = llama();
  const layout two = parse(m, "dp=2,zero=2"), one = parse(m, "dp=2,zero=1");
  CHECK(bytes_held(m, two, 0, adam[4]) == bytes_held(m, two, 0, master));
  CHECK(bytes_held(m, one, 0, adam[4]) == 2 * bytes_held(m, one, 0, param));
}

TEST_CASE("the first oracle says the same where both speak") {
  oracle::generator cases(7);
  for (int i = 0; i < 150; ++i) {
    const oracle::layout_case c = cases.next_layout();
    const model m = read_model(json::parse(c.config));
    REQUIRE_MESSAGE(why_illegal(m, c.text) == "", c.describe());
    const layout l = parse(m, c.text);
    REQUIRE(l.world == c.parsed.world);
    const std::vector<state> states = parse_states("adam");
    const std::vector<tensor> list = tensors(m, l);
    const std::map<std::string, tensor> named = by_name(list);
    for (long rank = 0; rank < l.world; ++rank)
      for (std::size_t s = 0; s < states.size(); ++s) {
        std::map<std::string, oracle::flat_set> chars;
        for (const auto& [name, set] : held(m, l, list, rank, states[s])) {
          chars[name].assign(at(named.at(name).rows() * named.at(name).columns()), 0);
          for (const auto& [begin, end] : set)
            for (long e = begin; e < end; ++e) chars[name][at(e)] = 1;
        }
        CHECK_MESSAGE(chars == oracle::held(c.m, c.parsed, rank, oracle::all_states[s]), c.describe(), " rank ", rank);
      }
  }
}

TEST_CASE("random layouts: every element is held as often as the axes that do not cut it say") {
  key_generator cases(3);
  for (int i = 0; i < 300; ++i) {
    const layout_case c = cases.next_layout();
    const layout& l = c.parsed;
    const std::map<std::string, tensor> named = by_name(tensors(c.m, l));
    for (const state& s : c.states) {
      std::map<std::string, std::vector<long>> holders;
      for (const auto& [name, t] : named)
        if (has_state(t, s)) holders[name].assign(at(t.rows() * t.columns()), 0);
      for (long rank = 0; rank < l.world; ++rank)
        for (const auto& [name, set] : held(c.m, l, rank, s))
          for (const auto& [begin, end] : set)
            for (long e = begin; e < end; ++e) ++holders.at(name).at(at(e));
      for (const auto& entry : named) {
        const tensor& t = entry.second;
        if (!has_state(t, s)) continue;
        std::set<long> stages;
        for (long k : t.chunks) stages.insert(l.stages.stage_of(k));
        const long group = t.expert >= 0 ? l.edp : l.dp * l.cp;
        long expected = l.zero >= s.level && t.parameter ? l.instances : group;
        if (t.how == cut::whole) expected *= l.tp;
        CHECK_MESSAGE(holders.at(t.name) == std::vector<long>(holders.at(t.name).size(), expected * length(stages)),
                      t.name, " in ", s.name, ", ", c.describe());
      }
    }
  }
  MESSAGE(cases.layout_census().report());
}

TEST_CASE("random layouts: tensors of a side are the families, each element once") {
  key_generator cases(4);
  for (int i = 0; i < 100; ++i) {
    const layout_case c = cases.next_layout();
    std::map<std::string, long> sizes, covered;
    std::map<std::string, intervals> sets;
    layout plain = c.parsed;
    plain.hf = false;
    for (const tensor& t : tensors(c.m, plain)) sizes[t.name] = t.rows() * t.columns();
    for (const tensor& t : tensors(c.m, c.parsed)) {
      const intervals all = in_family(t, {{0, t.rows() * t.columns()}});
      CHECK(count(all) == t.rows() * t.columns());
      if (t.name != "output_layer.weight" && t.name != "lm_head.weight") covered[t.family] += count(all);
      sets[t.family] = either(sets[t.family], all);
    }
    for (const auto& set : sets) {
      const std::string& family = set.first;
      const intervals whole = {{0, sizes.at(family)}};
      CHECK_MESSAGE(set.second == whole, family, ", ", c.describe());
      if (family != "output_layer.weight") CHECK(covered.at(family) == sizes.at(family));
    }
  }
}

namespace {

// The plan by brute force: each interval of what a device needs, from itself, else from the lowest device that held it.
std::vector<piece> plain_plan(const switch_question& q) {
  std::vector<piece> pieces;
  const std::map<std::string, tensor> to = by_name(tensors(q.m, q.to));
  for (const state& s : q.states) {
    const devices_of_state d = devices_of(q, s);
    for (const auto& [device, tensors_needed] : d.needed)
      for (const auto& [name, set] : tensors_needed) {
        const tensor& t = to.at(name);
        intervals left = without(set, only_here(q.m, t, q.from));
        std::vector<long> sources = {device};
        for (const auto& [source, held_there] : d.before)
          if (source != device) sources.push_back(source);
        for (long source : sources) {
          const intervals& there = held_before(d, source, t.family);
          intervals brings;  // element by element: in_family has no inverse here
          for (const auto& [begin, end] : left)
            for (long e = begin; e < end; ++e) {
              const long own = element_of(t, e).second;
              if (!both({{own, own + 1}}, there).empty()) brings.emplace_back(e, e + 1);
            }
          brings = as_set(brings);
          for (const auto& [begin, end] : brings)
            pieces.push_back({source, device, s.name, name, {t.rows() * t.columns()}, {{begin, end}}});
          left = without(left, brings);
        }
      }
  }
  return pieces;
}

}  // namespace

TEST_CASE("random switches: a plan made by brute force is right, and no other is") {
  key_generator cases(5);
  for (int i = 0; i < 60; ++i) {
    const switch_case c = cases.next_switch();
    const switch_question& q = c.question;
    const std::vector<piece> plan = plain_plan(q);
    switch_totals sums;
    const std::vector<std::string> faults = check_plan(q, plan, sums);
    CHECK_MESSAGE(faults.empty(), c.describe(), ": ", faults.empty() ? "" : faults.front());
    CHECK(sums.wrong == 0);
    CHECK(sums.nowhere == 0);
    CHECK(sums.moved_bytes == sums.least_bytes);
    if (plan.empty() || i % 4 != 0) continue;

    std::vector<piece> twin = plan;
    const std::size_t k = at(i % length(plan));
    const long size = plan[k].box[0][1] - plan[k].box[0][0];
    const auto wrong = [&](long elements) {
      CHECK_MESSAGE(!check_plan(q, twin, sums).empty(), c.describe());
      CHECK(sums.wrong == elements);
      twin = plan;
    };
    twin.erase(twin.begin() + static_cast<std::ptrdiff_t>(k)), wrong(size);
    twin.push_back(plan[k]), wrong(size);
    twin[k].dims[0] += 1, wrong(1 + size);
    twin[k].box[0][1] = twin[k].box[0][0], wrong(1 + size);
    twin[k].state = "none", wrong(1 + size);
    twin[k].tensor = "none", wrong(1 + size);
    twin[k].src = 1000;
    CHECK(!check_plan(q, twin, sums).empty());
    twin = plan;
    twin[k].dst = 1000;
    CHECK(!check_plan(q, twin, sums).empty());
  }
  MESSAGE(cases.switch_census().report());
}

TEST_CASE("the first oracle takes the same plans") {
  oracle::generator cases(8);
  for (int i = 0; i < 40; ++i) {
    const oracle::switch_case c = cases.next_switch();
    const model m = read_model(json::parse(c.config));
    const switch_question q = {
        m, parse(m, c.from_text), parse(m, c.to_text), parse_states("adam"), c.from_devices, c.to_devices};
    const std::vector<piece> plan = plain_plan(q);
    std::vector<oracle::piece> pieces;
    for (const piece& p : plan)
      for (const oracle::state s : oracle::all_states)
        if (oracle::name_of(s) == p.state) pieces.push_back({p.src, p.dst, s, p.tensor, p.dims, p.box});
    switch_totals ours;
    oracle::totals theirs;
    CHECK(check_plan(q, plan, ours).empty());
    const std::vector<std::string> faults =
        oracle::check_plan(c.m, c.from, c.to, c.from_devices, c.to_devices, pieces, theirs);
    CHECK_MESSAGE(faults.empty(), c.describe(), ": ", faults.empty() ? "" : faults.front());
    CHECK(ours.moved_bytes == theirs.moved_bytes);
    CHECK(ours.retained_bytes == theirs.retained_bytes);
    CHECK(ours.least_bytes == theirs.least_bytes);
    CHECK(ours.needed == theirs.needed);
    CHECK(ours.created_bytes + ours.dropped_bytes + ours.nowhere == 0);
  }
}
