// SPDX-License-Identifier: Apache-2.0
// A layout as tables: the words for layers, boxes, meshes and models, and the figures of `check` and of one rank,
// counted again.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/report/layout_text.hpp>

using namespace reshard;

using namespace reshard::io;

namespace {
constexpr transformer small{.name = "small",
                            .layers = 8,
                            .hidden = 64,
                            .heads = 8,
                            .groups = 4,
                            .head_dim = 8,
                            .ffn = 96,
                            .vocabulary = 1280,
                            .experts = 4,
                            .expert_ffn = 24};
model mixed(bool tied = false) {
  transformer t = small;
  t.tied = tied;
  return make_transformer(t, [](index_t l) { return l % 2 == 1; });
}
int find(const model& m, std::string_view ending) {
  for (int f = 0; f < m.families; ++f)
    if (m[f].name.ends_with(ending)) return f;
  FAIL("no such family");
  return -1;
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = line.find_first_not_of(' '); at < line.size();) {
    const std::size_t end = std::min(line.find("  ", at), line.size());
    cells.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(' ', end);
  }
  return cells;
}
using row = std::vector<std::string>;
/// The cells of the n-th line that begins with a word.
row line_of(const std::string& text, const std::string& word, int n = 0) {
  for (const std::string& line : lines_of(text))
    if (const row cells = cells_of(line); !cells.empty() && cells[0] == word && n-- == 0) return cells;
  return {};
}
}  // namespace

TEST_CASE("the name of a layout is its text, and '' where all is at its default") {
  const model m = mixed();
  CHECK(io::detail::layout_name(space(m, parse_degrees("dp=2,tp=4"))) == "tp=4,dp=2");
  CHECK(io::detail::layout_name(space(m, parse_degrees("tp=1"))) == "''");
}

TEST_CASE("short names leave out what tells a family from no other") {
  CHECK(io::detail::short_name("decoder.layers.{layer}.self_attention.linear_qkv.weight") == "qkv");
  CHECK(io::detail::short_name("decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight") ==
        "qkv.layer_norm");
  CHECK(io::detail::short_name("decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}") == "experts.fc1");
  CHECK(io::detail::short_name("decoder.layers.{layer}.pre_mlp_layernorm.weight") == "pre_mlp_layernorm");
  CHECK(io::detail::short_name("decoder.final_layernorm.weight") == "final_layernorm");
  CHECK(io::detail::short_name("embedding.word_embeddings.weight") == "word_embeddings");
  CHECK(io::detail::short_name("output_layer.weight") == "output_layer");
  CHECK(io::detail::short_name("mtp.layers.0.mtp_model_layer.self_attention.linear_kv_up_proj.weight") == "mtp.kv_up");
  CHECK(io::detail::short_name("mtp.layers.0.enorm.weight") == "mtp.enorm");
  CHECK(io::detail::short_name("decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight") == "shared.fc1");
  CHECK(io::detail::short_name("model.layers.{layer}.self_attn.q_proj.weight") == "q_proj");
  CHECK(io::detail::short_name("model.layers.{layer}.self_attn.q_proj.weight", home::prediction) == "mtp.q_proj");
  CHECK(io::detail::short_name("model.layers.{layer}.mlp.experts.{expert}.up_proj.weight") == "experts.up_proj");
  CHECK(io::detail::short_name("model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight") == "experts.w1");
  CHECK(io::detail::short_name("model.embed_tokens.weight") == "embed_tokens");
  for (const transformer& preset : models::presets) {
    const model of = make_transformer(preset);
    for (int f = 0; f < of.families; ++f)
      for (int g = 0; g < f; ++g)
        if (of.counts(f) && of.counts(g))
          CHECK(io::detail::short_name(of[f].name) != io::detail::short_name(of[g].name));
  }
  const model m = mixed();
  for (int f = 0; f < m.families; ++f)
    for (int g = 0; g < f; ++g) CHECK(io::detail::short_name(m[f].name) != io::detail::short_name(m[g].name));
}

TEST_CASE(
    "layers of members are global; where some in between are missing, how many there are is said; pinned ones have "
    "none") {
  const model m = mixed();
  const int qkv = find(m, "linear_qkv.weight"), router = find(m, "router.weight"),
            norm = find(m, "final_layernorm.weight");
  CHECK(io::detail::layers_text(m, qkv, {2, 6}) == "[2,6)");
  CHECK(io::detail::layers_text(m, router, {1, 3}) == "[3,6) 2 of 3");
  CHECK(io::detail::layers_text(m, router, {3, 4}) == "[7,8)");
  CHECK(io::detail::layers_text(m, norm, {0, 1}) == "-");
}

TEST_CASE("the layers of stages: intervals that do not touch, three at most, else the first and how many more") {
  const model m = make_transformer(
      {.name = "m", .layers = 24, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 4});
  const auto layers = [&](const char* layout, interval stages) {
    return io::detail::stage_layers_text(space(m, parse_degrees(layout)).pipeline(), stages);
  };
  CHECK(layers("pp=2,vpp=2", {1, 2}) == "layers [6,12) [18,24)");
  CHECK(layers("pp=2,vpp=3", {0, 1}) == "layers [0,4) [8,12) [16,20)");
  CHECK(layers("pp=2,vpp=4", {0, 1}) == "layers [0,3) and 3 more");
  CHECK(layers("pp=2,vpp=6", {1, 2}) == "layers [2,4) and 5 more");
  CHECK(layers("pp=4", {1, 3}) == "layers [6,18)");  // neighbours touch
  CHECK(layers("pp=2,vpp=4", {0, 2}) == "layers [0,24)");
  CHECK(layers("pp=4,vpp=2", {1, 3}) == "layers [3,9) [15,21)");
  CHECK(layers("pp=25,split=spread", {23, 24}) == "layers [23,24)");
  CHECK(layers("pp=25,split=spread", {24, 25}) == "no layers");
  CHECK(layers("pp=25,split=spread", {23, 25}) == "layers [23,24)");
  const space even(m, parse_degrees("pp=2,vpp=2")), spread(m, parse_degrees("pp=25,split=spread"));
  CHECK(io::detail::stage_layer_count(even.pipeline(), 1) == 12);
  CHECK(io::detail::stage_layer_count(spread.pipeline(), 24) == 0);
}

TEST_CASE("a box of a tensor has parts where there are several, rows but for a vector, and columns") {
  const model m = mixed();
  CHECK(io::detail::tensor_box_text(m[find(m, "linear_qkv.weight")], {{{0, 1}, {0, 1}, {0, 1}, {2, 4}, {5, 7}}}) ==
        "[0,1)x[2,4)x[5,7)");
  CHECK(io::detail::tensor_box_text(m[find(m, "mlp.linear_fc1.weight")], {{{0, 1}, {0, 1}, {1, 2}, {2, 4}, {5, 7}}}) ==
        "[1,2)x[2,4)x[5,7)");
  CHECK(io::detail::tensor_box_text(m[find(m, "final_layernorm.weight")], {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {5, 7}}}) ==
        "[5,7)");
}

TEST_CASE("a model and its meshes in words") {
  CHECK(io::detail::model_text(mixed()) ==
        "8 layers, hidden 64, 8 heads of 8 in 4 query groups, ffn 96, 4 experts of 24, vocabulary 1,280");
  CHECK(io::detail::model_text(mixed(true)).ends_with("vocabulary 1,280 (tied)"));
  transformer least_sizes = small;
  least_sizes.experts = least_sizes.expert_ffn = least_sizes.ffn = 1;
  CHECK(io::detail::model_text(make_transformer(least_sizes, [](index_t l) { return l > 0; })) ==
        "8 layers, hidden 64, 8 heads of 8 in 4 query groups, ffn 1, 1 experts of 1, vocabulary 1,280");
  CHECK(io::detail::model_text(models::qwen3_30b_a3b).find("ffn") == std::string::npos);
  CHECK(io::detail::model_text(models::llama2_7b).find("experts") == std::string::npos);
  const space s(mixed(), parse_degrees("tp=2,cp=2,dp=3,pp=2,ep=4"));
  CHECK(io::detail::mesh_text(s, mesh_kind::dense) == "tp 2 x cp 2 x dp 3 x pp 2");
  CHECK(io::detail::mesh_text(s, mesh_kind::expert) == "etp 1 x ep 4 x edp 3 x pp 2");
}

TEST_CASE(
    "check: least, most, mean and sum of every state are those of the ranks' boxes; stages have their ranks, layers "
    "and ends") {
  for (const char* layout : {"", "tp=2,dp=2,zero=1", "pp=4,dp=2,ep=2,split=spread", "pp=8,zero=1,dp=3,split=spread"}) {
    CAPTURE(layout);
    for (const bool tied : {false, true}) {
      const space s(mixed(tied), parse_degrees(layout));
      const computed_holding h(s);
      const std::string text = check_text(h);
      CHECK(lines_of(text)[0] == "small under " + (layout[0] != '\0' ? to_text(s.degrees()) : "''") + " is legal.");
      for (int state = 0; state <= adam.size(); ++state) {  // the last: all
        bytes_t low = -1, high = 0, sum = 0;
        for (rank_t rank = 0; rank < s.ranks(); ++rank) {
          bytes_t mine = 0;
          for (const int one : all_states)
            if (state == adam.size() || adam[one].name == adam[state].name)
              each_held(h, rank, adam[one].placed_as(),
                        [&](int, const family_box& b) { mine += b.volume() * (one == 0 ? 2 : 4); });
          low = low < 0 ? mine : std::min(low, mine), high = std::max(high, mine), sum += mine;
        }
        const std::string name(state == adam.size() ? "all" : adam[state].name);
        CHECK(line_of(text, name) ==
              row{name, bytes_text(low), bytes_text(high), bytes_text(sum / s.ranks()), bytes_text(sum)});
      }
      index_t tensors = 0;
      for (int f = 0; f < s.families(); ++f) tensors += s.family_at(f).extent[0] * s.family_at(f).extent[1];
      CHECK(text.find(" in " + std::to_string(tensors) + " tensors of " + std::to_string(s.families()) +
                      " families\n") != std::string::npos);
      CHECK(line_of(text, "world") == row{"world", std::to_string(s.ranks()) + (s.ranks() == 1 ? " rank" : " ranks")});
      const index_t pp = s.degrees().pp, stage_ranks = s.ranks() / pp;
      for (index_t stage = 0; stage < pp; ++stage) {
        const std::string ranks = stage_ranks == 1 ? std::to_string(stage)
                                                   : std::to_string(stage * stage_ranks) + "-" +
                                                         std::to_string((stage + 1) * stage_ranks - 1);
        const index_t layers = 8 / pp;
        std::string holds = (stage == 0 ? "embedding, layers [" : "layers [") + std::to_string(stage * layers) + "," +
                            std::to_string((stage + 1) * layers) + ")";
        if (stage == pp - 1) holds += !tied ? ", norm, output" : pp > 1 ? ", norm, copy of the embedding" : ", norm";
        CHECK(line_of(text, std::to_string(stage)) == row{std::to_string(stage), ranks, std::to_string(layers), holds});
      }
    }
  }
}

TEST_CASE("check counts what the model has; padding is told apart") {
  const model m = make_transformer({.name = "odd",
                                    .layers = 4,
                                    .hidden = 1024,
                                    .heads = 32,
                                    .groups = 32,
                                    .head_dim = 32,
                                    .ffn = 2048,
                                    .vocabulary = 65535});
  const space padded(m, parse_degrees("pad=64,tp=2"));
  CHECK(m.padding() == 0);
  CHECK(m.parameters() == 176'167'936);
  CHECK(padded.model().parameters() == 176'167'936);
  CHECK(padded.model().padding() == 2048);  // a row each of the word embedding and the output
  CHECK(check_text(computed_holding(padded))
            .find("parameters   176,167,936 in 27 tensors of 9 families; beside them "
                  "2,048 of padding\n") != std::string::npos);
}

TEST_CASE("check: of more than 16 stages, neighbours with as many layers share a line") {
  const model m = make_transformer(
      {.name = "m", .layers = 30, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 4});
  const space twenty(m, parse_degrees("pp=20,split=spread")), sixteen(m, parse_degrees("pp=16,split=spread"));
  const std::string text = check_text(computed_holding(twenty)), few = check_text(computed_holding(sixteen));
  CHECK(line_of(text, "0-9") == row{"0-9", "0-9", "2", "embedding, layers [0,20)"});
  CHECK(line_of(text, "10-19") == row{"10-19", "10-19", "1", "layers [20,30), norm, output"});
  CHECK(line_of(few, "15") == row{"15", "15", "1", "layers [29,30), norm, output"});
}

TEST_CASE(
    "one rank: where it sits, what each table of states sums to, and no more boxes of a family than are asked for") {
  const space s(mixed(), parse_degrees("tp=2,pp=2,dp=4,ep=2,zero=1,bucket=3000"));
  const computed_holding h(s);
  for (const rank_t rank : {0, 7, 15}) {
    CAPTURE(rank);
    const std::string text = rank_text(h, rank, all_states, 2);
    CHECK(lines_of(text)[0] ==
          "Rank " + std::to_string(rank) + " of 16, small under tp=2,pp=2,dp=4,ep=2,zero=1,bucket=3000");
    CHECK(lines_of(text)[1] == "  at tp " + std::to_string(rank % 2) + ", cp 0, dp " + std::to_string(rank / 2 % 4) +
                                   ", pp " + std::to_string(rank / 8) + ", etp 0, ep " + std::to_string(rank % 2) +
                                   ", edp " + std::to_string(rank / 2 % 4));
    for (const role r : {role::parameter, role::optimizer}) {
      bytes_t sum = 0;
      index_t most = 0;
      for (int f = 0; f < s.families(); ++f) {
        index_t boxes = 0;
        h.held(f, rank, r,
               [&](int, const family_box& b) { sum += b.volume() * (r == role::parameter ? 2 : 12), ++boxes; });
        most = std::max(most, boxes);
      }
      const std::string heading =
          (r == role::parameter ? "param: " : "master + exp_avg + exp_avg_sq: ") + bytes_text(sum);
      CHECK(text.find("\n" + heading + "\n") != std::string::npos);
      CHECK((rank_text(h, rank, states_of(r), 2).find(" more") != std::string::npos) == (most > 2));
    }
    CHECK(rank_text(h, rank, only(2)).find("exp_avg: ") != std::string::npos);
    CHECK(rank_text(h, rank, only(2)).find("param") == std::string::npos);
  }
  const space whole(mixed(), parse_degrees("tp=2"));  // roles that lie alike share a table
  const std::string text = rank_text(computed_holding(whole), 1, all_states);
  CHECK(text.find("\nparam + master + exp_avg + exp_avg_sq: ") != std::string::npos);
  CHECK(line_of(text, "qkv") == row{"qkv", "[0,8)", "-", "[2,4)x[0,32)x[0,64)", narrow_bytes_text(8 * 64 * 64 * 14)});
  CHECK(line_of(text, "experts.fc2") ==
        row{"experts.fc2", "[1,8) 4 of 7", "[0,4)", "[0,64)x[12,24)", narrow_bytes_text(4 * 4 * 64 * 12 * 14)});
}

TEST_CASE("one rank: boxes beyond those shown are counted, and their bytes are not lost") {
  const space s(mixed(), parse_degrees("pp=2,vpp=4"));  // four boxes of every family of layers
  const computed_holding h(s);
  const int qkv = find(s.model(), "linear_qkv.weight");
  const bytes_t box = s.family_at(qkv).tensor_elements() * 14;
  const auto rows_of = [&](index_t shown) {
    const std::vector<std::string> lines = lines_of(rank_text(h, 0, all_states, shown));
    const auto at =
        std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("  qkv "); });
    return std::vector<std::string>(at, lines.end());
  };
  CHECK(cells_of(rows_of(4)[3]) == row{"[6,7)", "-", "[0,4)x[0,32)x[0,64)", narrow_bytes_text(box)});
  CHECK(cells_of(rows_of(3)[2]) == row{"[4,5)", "-", "[0,4)x[0,32)x[0,64)", narrow_bytes_text(box)});
  CHECK(cells_of(rows_of(3)[3]) == row{"and 1 more", narrow_bytes_text(box)});
  CHECK(cells_of(rows_of(1)[1]) == row{"and 3 more", narrow_bytes_text(3 * box)});
  const std::string norms = rank_text(h, 0, only(0), 2);  // 64 elements of 2 bytes each: no byte is rounded off
  INFO(norms);
  CHECK(norms.find("and 2 more") != norms.npos);
  CHECK(norms.find(" 256B\n", norms.find("and 2 more", norms.find("norm"))) != norms.npos);
}

namespace {
/// Two layers, the second of four experts, tied; a dense model of as many.
transformer two_layers(bool experts) {
  transformer t{
      .name = "m", .layers = 2, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 16};
  if (experts) t.tied = true, t.experts = 4, t.expert_ffn = 4;
  return t;
}
}  // namespace

TEST_CASE("check: the whole text, of a dense model and of one with experts") {
  // A stage has 16 x 8 elements at its end, and in its layer 64 + 8 + 128 + 8 of attention and a norm before the MLP;
  // stage 0 has 128 + 64 of an MLP; stage 1 a router of 32, two of four experts of 64 + 32, and the last norm.
  // Halves of what tp cuts: 64 + 32 + 8 + 64 + 8 + 64 + 32 = 272; 64 + 32 + 8 + 64 + 8 + 32 + 2 x 96 + 8 = 408.
  const space moe(make_transformer(two_layers(true), [](index_t l) { return l > 0; }), parse_degrees("tp=2,pp=2,ep=2"));
  CHECK(check_text(computed_holding(moe)) ==
        "m under tp=2,pp=2,ep=2 is legal.\n"
        "\n"
        "  model        2 layers, hidden 8, 4 heads of 2 in 2 query groups, ffn 8,\n"
        "               4 experts of 4, vocabulary 16 (tied)\n"
        "  parameters   1,160 in 21 tensors of 12 families\n"
        "  world        4 ranks\n"
        "  dense mesh   tp 2 x cp 1 x dp 1 x pp 2\n"
        "  expert mesh  etp 1 x ep 2 x edp 1 x pp 2\n"
        "\n"
        "  state       least on a rank  most on a rank      mean  all ranks\n"
        "  param                 544 B           816 B     680 B   2.66 KiB\n"
        "  master             1.06 KiB        1.59 KiB  1.33 KiB   5.31 KiB\n"
        "  exp_avg            1.06 KiB        1.59 KiB  1.33 KiB   5.31 KiB\n"
        "  exp_avg_sq         1.06 KiB        1.59 KiB  1.33 KiB   5.31 KiB\n"
        "  all                3.72 KiB        5.58 KiB  4.65 KiB  18.59 KiB\n"
        "\n"
        "  stage  ranks  layers each  holds\n"
        "      0    0-1            1  embedding, layers [0,1)\n"
        "      1    2-3            1  layers [1,2), norm, copy of the embedding\n");
  // 2 x 128 at the ends, 2 x (64 + 8 + 128 + 8 + 128 + 64) in the layers, 8 of the last norm
  const space dense(make_transformer(two_layers(false)), parse_degrees("dp=2"));
  CHECK(check_text(computed_holding(dense)) ==
        "m under dp=2 is legal.\n"
        "\n"
        "  model        2 layers, hidden 8, 4 heads of 2 in 2 query groups, ffn 8,\n"
        "               vocabulary 16\n"
        "  parameters   1,064 in 15 tensors of 9 families\n"
        "  world        2 ranks\n"
        "  dense mesh   tp 1 x cp 1 x dp 2 x pp 1\n"
        "\n"
        "  state       least on a rank  most on a rank       mean  all ranks\n"
        "  param              2.08 KiB        2.08 KiB   2.08 KiB   4.16 KiB\n"
        "  master             4.16 KiB        4.16 KiB   4.16 KiB   8.31 KiB\n"
        "  exp_avg            4.16 KiB        4.16 KiB   4.16 KiB   8.31 KiB\n"
        "  exp_avg_sq         4.16 KiB        4.16 KiB   4.16 KiB   8.31 KiB\n"
        "  all               14.55 KiB       14.55 KiB  14.55 KiB  29.09 KiB\n"
        "\n"
        "  stage  ranks  layers each  holds\n"
        "      0    0-1            2  embedding, layers [0,2), norm, output\n");
}

TEST_CASE("one rank: the whole text, of a dense model and of one with experts, whose states do not lie alike") {
  const space moe(make_transformer(two_layers(true), [](index_t l) { return l > 0; }), parse_degrees("tp=2,pp=2,ep=2"));
  CHECK(rank_text(computed_holding(moe), 3, only(0)) ==
        "Rank 3 of 4, m under tp=2,pp=2,ep=2\n"
        "  at tp 1, cp 0, dp 0, pp 1, etp 0, ep 1, edp 0\n"
        "\n"
        "param: 816 B\n"
        "  family             layers  experts  box of a tensor    bytes\n"
        "  output_layer       -       -        [8,16)x[0,8)        128B\n"
        "  proj               [1,2)   -        [0,8)x[4,8)          64B\n"
        "  qkv.layer_norm     [1,2)   -        [0,8)                16B\n"
        "  qkv                [1,2)   -        [1,2)x[0,8)x[0,8)   128B\n"
        "  pre_mlp_layernorm  [1,2)   -        [0,8)                16B\n"
        "  router             [1,2)   -        [0,4)x[0,8)          64B\n"
        "  experts.fc1        [1,2)   [2,4)    [0,2)x[0,4)x[0,8)   256B\n"
        "  experts.fc2        [1,2)   [2,4)    [0,8)x[0,4)         128B\n"
        "  final_layernorm    -       -        [0,8)                16B\n");
  const space dense(make_transformer(two_layers(false)), parse_degrees("dp=2,pp=3,split=spread"));
  CHECK(rank_text(computed_holding(dense), 1, all_states) ==
        "Rank 1 of 6, m under pp=3,dp=2,split=spread\n"
        "  at tp 0, cp 0, dp 1, pp 0\n"
        "\n"
        "param + master + exp_avg + exp_avg_sq: 7.22 KiB\n"  // 14 bytes for each of 128 + 400
        "  family           layers  box of a tensor      bytes\n"
        "  word_embeddings  -       [0,16)x[0,8)       1.75KiB\n"
        "  proj             [0,1)   [0,8)x[0,8)           896B\n"
        "  qkv.layer_norm   [0,1)   [0,8)                 112B\n"
        "  qkv              [0,1)   [0,2)x[0,8)x[0,8)  1.75KiB\n"
        "  fc1.layer_norm   [0,1)   [0,8)                 112B\n"
        "  fc1              [0,1)   [0,2)x[0,8)x[0,8)  1.75KiB\n"
        "  fc2              [0,1)   [0,8)x[0,8)           896B\n");
  // what the router keeps beside its parameters is no state of an optimizer
  const computed_holding biased(space(models::deepseek_v3, parse_degrees("pp=61,dp=8,ep=8")));
  const auto rows_of = [&](const state_set& states) {
    std::vector<std::string> families;
    for (const std::string& line : lines_of(rank_text(biased, 61 * 8 - 1, states)))
      if (line.starts_with("  router")) families.push_back(line.substr(2, line.find(' ', 2) - 2));
    return families;
  };
  CHECK(rows_of(only(0) | statistic_states) == std::vector<std::string>{"router", "router.expert_bias"});
  CHECK(rows_of(only(2)) == std::vector<std::string>{"router"});
  // a rank without a box has no table
  transformer one_layer = two_layers(false);
  one_layer.layers = 1;
  const space empty(make_transformer(one_layer), parse_degrees("pp=3,split=spread"));
  CHECK(rank_text(computed_holding(empty), 1, only(0) | only(2)) ==
        "Rank 1 of 3, m under pp=3,split=spread\n"
        "  at tp 0, cp 0, dp 0, pp 1\n"
        "\n"
        "param + exp_avg: 0 B\n");
  // where states are sharded, those of both roles have tables of their own, and what is not asked for has none
  const space sharded(make_transformer(two_layers(false)), parse_degrees("dp=2,zero=1"));
  const std::string parameters = rank_text(computed_holding(sharded), 0, only(0)),
                    moments = rank_text(computed_holding(sharded), 0, only(2) | only(3)),
                    both = rank_text(computed_holding(sharded), 0, only(0) | only(2) | only(3));
  const std::size_t head = parameters.find("\n\n") + 1;
  CHECK(parameters.find("\nparam: 2.08 KiB\n") == head);
  CHECK(moments.find("\nexp_avg + exp_avg_sq: ") == head);
  CHECK(both == parameters + moments.substr(head));
  // of another list: what is not sharded lies with the parameters, the rest apart
  const state_list list = parse_state_list("grad:bf16:2,param:bf16:3,exp_avg:bf16:1");
  const auto tables = [&](const char* layout) {
    const computed_holding h(space(make_transformer(two_layers(false)), parse_degrees(layout)), list);
    std::vector<std::string> headings;
    for (const std::string& line : lines_of(rank_text(h, 0, list, 4, list)))
      if (line.find(": ") != std::string::npos) headings.push_back(line.substr(0, line.find(':')));
    return headings;
  };
  CHECK(tables("dp=2") == std::vector<std::string>{"grad + param + exp_avg"});
  CHECK(tables("dp=2,zero=1") == std::vector<std::string>{"grad + param", "exp_avg"});
  CHECK(tables("dp=2,zero=2") == std::vector<std::string>{"param", "grad + exp_avg"});
  CHECK(tables("dp=2,zero=3,shard=rows") == std::vector<std::string>{"grad + param + exp_avg"});
  const std::string checked = check_text(computed_holding(sharded, list), list);
  CHECK(line_of(checked, "grad")[1] == line_of(checked, "param")[1]);
  CHECK(line_of(checked, "exp_avg")[1] != line_of(checked, "param")[1]);
}

TEST_CASE("check: up to 16 stages have a line each, more share them, also those without layers") {
  const auto text_for = [](index_t layers, const char* layout) {
    const transformer t{
        .name = "m", .layers = layers, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 4};
    const space s(make_transformer(t), parse_degrees(layout));
    const std::string text = check_text(computed_holding(s));
    return text.substr(text.find("  stage"));
  };
  const std::vector<std::string> sixteen = lines_of(text_for(17, "pp=16,split=spread"));
  REQUIRE(sixteen.size() == 17);
  CHECK(sixteen[1] == "      0      0            2  embedding, layers [0,2)");
  CHECK(sixteen[2] == "      1      1            1  layers [2,3)");
  CHECK(sixteen[16] == "     15     15            1  layers [16,17), norm, output");
  CHECK(text_for(17, "pp=17,dp=2,split=spread") ==
        "  stage  ranks  layers each  holds\n"
        "   0-16   0-33            1  embedding, layers [0,17), norm, output\n");
  CHECK(text_for(38, "pp=20,split=account") ==
        "  stage  ranks  layers each  holds\n"
        "      0      0            1  embedding, layers [0,1)\n"
        "   1-18   1-18            2  layers [1,37)\n"
        "     19     19            1  layers [37,38), norm, output\n");
  CHECK(text_for(18, "pp=20,split=spread") ==
        "  stage  ranks  layers each  holds\n"
        "   0-17   0-17            1  embedding, layers [0,18)\n"
        "  18-19  18-19            0  no layers, norm, output\n");
}

TEST_CASE("a title is folded before a layout that does not fit behind it, and a long name has 60 characters") {
  const char* layout = "tp=2,cp=2,pp=2,dp=4,ep=4,etp=1,zero=1,split=spread,bucket=40000000";
  transformer t = small;
  t.name = "longer-name";
  const space s(make_transformer(t), parse_degrees(layout));
  const computed_holding h(s);
  CHECK(check_text(h).starts_with(std::string("longer-name under\n    ") + layout + " is legal.\n\n"));
  CHECK(rank_text(h, 3, all_states)
            .starts_with(std::string("Rank 3 of 32,\n    longer-name under\n    ") + layout + "\n"));
  t.name = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbcccccccccccccccccccc";  // 40, 10, 20
  CHECK(io::detail::title_text(space(make_transformer(t), {})) ==
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...cccccccccccccccccccc under ''");
}

namespace {
constexpr transformer deep{.name = "deep",
                           .layers = 6,
                           .hidden = 64,
                           .heads = 8,
                           .ffn = 96,
                           .vocabulary = 128,
                           .experts = 4,
                           .expert_ffn = 24,
                           .dense_first = 1,
                           .shared_ffn = 24,
                           .expert_bias = true,
                           .predictions = 1,
                           .latent = {.q_rank = 16, .kv_rank = 8, .nope = 8, .rope = 4, .value = 8}};
std::string checked(const transformer& t, const std::string& layout) {
  return check_text(computed_holding(space(make_transformer(t), parse_degrees(layout))));
}
}  // namespace

TEST_CASE("check: prediction layers, the norm and copies of the embedding are told of the stages that have them") {
  const std::string text = checked(deep, "pp=4,string=Ettt|ttt|m|L");
  CHECK(text.find("  model        6 layers, hidden 64, 8 heads, ffn 96, 4 experts of 24,\n"
                  "               shared experts of 24, 1 prediction layer, vocabulary 128\n") != text.npos);
  CHECK(text.find("      0      0            3  embedding, layers [0,3)\n"
                  "      1      1            3  layers [3,6), norm\n"
                  "      2      2            0  no layers\n"
                  "                             prediction layer\n"
                  "                             copy of the embedding\n"
                  "      3      3            0  no layers, output\n") != text.npos);
  // one stage has all, and no copy
  CHECK(checked(deep, "").find("layers [0,6)\n                             norm, prediction layer, output\n") !=
        text.npos);
  transformer gpt = small;
  gpt.experts = 0, gpt.tied = true, gpt.learned_positions = 32, gpt.groups = 8;
  CHECK(checked(gpt, "pp=2,pad=300").find("vocabulary 1,280, padded to 1,500 (tied)") != text.npos);
  CHECK(checked(gpt, "pp=2").find("vocabulary 1,280 (tied)") != text.npos);
  CHECK(checked(gpt, "pp=2").find("embedding, positions, layers [0,4)\n") != text.npos);
  // a stage of a copy alone: beside ranks that are no run it has a line of its own, and one
  transformer tied = deep;
  tied.tied = true;
  CHECK(checked(tied, "pp=4,dp=2,order=pp-dp,string=Ettt|ttt|m|L")
            .ends_with("no layers\n                             copy of the embedding\n"));
}

TEST_CASE("the ranks of a stage: a range, or in orders whose stages are no runs the first ones and how many") {
  const model m = mixed();
  const auto ranks = [&](const std::string& layout, interval stages) {
    return io::detail::ranks_text(space(m, parse_degrees(layout)), stages);
  };
  CHECK(ranks("tp=2,pp=4,dp=2", {1, 3}) == "4-11");
  CHECK(ranks("tp=2,pp=4,dp=2,order=tp-pp-dp", {0, 1}) == "0,1,8,9");
  CHECK(ranks("tp=2,pp=4,dp=2,order=tp-pp-dp", {3, 4}) == "6,7,14,15");
  CHECK(ranks("tp=2,pp=4,dp=4,order=tp-pp-dp", {3, 4}) == "6,7,14,.. (8)");
  CHECK(ranks("tp=2,pp=4,dp=2,order=tp-pp-dp", {1, 3}) == "2,3,4,.. (8)");
  CHECK(ranks("pp=4,dp=2,order=pp-dp", {2, 3}) == "2,6");
  CHECK(ranks("pp=4,dp=3,order=pp-dp", {2, 3}) == "2,6,10");
  CHECK(ranks("pp=4,dp=4,order=pp-dp", {2, 3}) == "2,6,10,14");
  CHECK(ranks("pp=4,dp=5,order=pp-dp", {2, 3}) == "2,6,10,.. (5)");
  CHECK(ranks("tp=2,pp=4,dp=2,order=tp-pp-dp", {0, 4}) == "0-15");
}

TEST_CASE("one rank: with names=hf pieces are tensors of their own; rows that are all sharded share a table") {
  const computed_holding h(space(make_transformer(small), parse_degrees("tp=2,dp=2,ep=2,zero=3,shard=rows,names=hf")));
  const std::string text = rank_text(h, 3, all_states);
  CHECK(text.find("param + master + exp_avg + exp_avg_sq: ") != text.npos);
  CHECK(line_of(text, "q_proj") == row{"q_proj", "[0,8)", "-", "[3,4)x[0,16)x[0,64)", "112KiB"});
  CHECK(line_of(text, "k_proj") == row{"k_proj", "[0,8)", "-", "[3,4)x[0,8)x[0,64)", "56.0KiB"});
  // edp = 2: half of the rows of two experts, 14 bytes an element
  CHECK(line_of(text, "experts.gate_proj") == row{"experts.gate_proj", "[0,8)", "[2,4)", "[12,24)x[0,64)", "168KiB"});
  CHECK(line_of(text, "qkv").empty());
}
