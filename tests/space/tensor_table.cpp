// SPDX-License-Identifier: Apache-2.0
// Tensors by name: every tensor of a model is found under its name and no other text is; and the table that lists make.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/space/space.hpp>
#include <reshard/space/tensor_table.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr transformer mixed{.name = "mixed",
                            .layers = 12,
                            .hidden = 4,
                            .heads = 2,
                            .groups = 2,
                            .head_dim = 2,
                            .ffn = 4,
                            .vocabulary = 8,
                            .qk_norm = true,
                            .experts = 11,
                            .expert_ffn = 4};

using place = std::tuple<int, index_t, index_t>;

/// Every name of a model, written out from its patterns.
std::map<std::string, place> all_names(const model& m) {
  std::map<std::string, place> names;
  for (int f = 0; f < m.families; ++f)
    for (index_t member = 0; member < m[f].extent[axis_of::layer]; ++member)
      for (index_t expert = 0; expert < m[f].extent[axis_of::expert]; ++expert) {
        std::string name(m[f].name);
        if (const std::size_t at = name.find("{layer}"); at != name.npos)
          name.replace(at, 7, std::to_string(m.layers_of(f).layer_of(member)));
        if (const std::size_t at = name.find("{expert}"); at != name.npos) name.replace(at, 8, std::to_string(expert));
        CHECK(names.emplace(name, place(f, member, expert)).second);
        if (!m[f].tied_name.empty()) names.emplace(m[f].tied_name, place(f, 0, 0));
      }
  return names;
}

void check_found(const tensor_table& table, const std::map<std::string, place>& names, const std::string& name) {
  const auto found = table.find(name);
  CAPTURE(name);
  CHECK(found.has_value() == names.contains(name));
  if (found && names.contains(name)) CHECK(place(found->family, found->member, found->expert) == names.at(name));
}
}  // namespace

TEST_CASE("every tensor of a model is found under its name, dense and MoE layers apart, tied names included") {
  transformer tied = mixed;
  tied.tied = true;
  for (const model& m : {make_transformer(mixed, [](index_t l) { return l % 3 != 1; }),
                         make_transformer(tied, [](index_t l) { return l > 8; })}) {
    const tensor_table table(m);
    CHECK(table.families() == m.families);
    const std::map<std::string, place> names = all_names(m);
    CHECK(names.contains("output_layer.weight"));
    for (const auto& [name, where] : names) check_found(table, names, name);
  }
}

TEST_CASE("a model of one's own: a tied family that is not its first, and one layer whose tensor has no number") {
  model own;
  own.sets[0] = layer_set::all(3);
  own.sets[1] = layer_set::all(1);
  own.add({.name = "layers.{layer}.w", .extent = {3, 1, 1, 2, 2}});
  own.add({.name = "only.w", .extent = {1, 1, 1, 2, 2}, .layers = 1});
  own.add({.name = "head", .tied_name = "tail", .extent = {1, 1, 1, 2, 2}, .place = home::embedding});
  const std::map<std::string, place> names = all_names(own);
  CHECK(names.size() == 6);
  const tensor_table table(own);
  for (const auto& [name, at] : names) check_found(table, names, name);
}

TEST_CASE("one character more, less or other, and it is another tensor's name or nobody's") {
  const model m = make_transformer(mixed, [](index_t l) { return l % 3 != 1; });
  const tensor_table table(m);
  const std::map<std::string, place> names = all_names(m);
  dice random(3);
  const std::string letters = "0123459.{}-+ al";
  int known = 0, unknown = 0;
  for (const auto& [name, where] : names)
    for (int n = 0; n < 12; ++n) {
      std::string other = name;
      const auto at = static_cast<std::size_t>(random.below(static_cast<index_t>(name.size())));
      const char letter = letters[static_cast<std::size_t>(random.below(static_cast<index_t>(letters.size())))];
      if (n % 3 == 0) other.insert(at, 1, letter);
      else if (n % 3 == 1) other.erase(at, 1);
      else other[at] = letter;
      check_found(table, names, other);
      ++(names.contains(other) ? known : unknown);
    }
  std::printf("%d texts were names after all, %d were not\n", known, unknown);
  CHECK_DRAWN(known > 10);
  CHECK_DRAWN(unknown > 100);
  for (const char* name : {"", "decoder.layers.1.pre_mlp_layernorm.weight", "decoder.layers.0.mlp.linear_fc2.weight",
                           "decoder.layers.12.mlp.router.weight", "decoder.layers.0.mlp.experts.linear_fc1.weight11",
                           "decoder.layers.0.mlp.experts.linear_fc1.weight", "decoder.layers.00.mlp.router.weight",
                           "decoder.layers.0.mlp.experts.linear_fc1.weight18446744073709551616"})
    check_found(table, names, name);
}

TEST_CASE("the table of lists: one family a name, by name; dimensions are the last ones of a family's axes") {
  const std::vector<shard> from = {{0, "c", bf16, {2, 3}, {0, 0}, {2, 3}}, {1, "a", bf16, {7}, {0}, {7}}},
                           to = {{0, "b", bf16, {2, 3, 4, 5, 6}, {0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}},
                                 {0, "scalar", bf16, {}, {}, {}},
                                 {3, "a", bf16, {7}, {0}, {2}}};
  const tensor_table table{&from, &to};
  REQUIRE(table.families() == 4);
  const struct {
    const char* name;
    int ndim;
    index_t extent[family_ndim];
  } wanted[] = {
      {"a", 1, {1, 1, 1, 1, 7}}, {"b", 5, {2, 3, 4, 5, 6}}, {"c", 2, {1, 1, 1, 2, 3}}, {"scalar", 0, {1, 1, 1, 1, 1}}};
  for (int f = 0; f < 4; ++f) {
    CHECK(table.family_at(f).name == wanted[f].name);
    CHECK(table.family_at(f).shape_ndim == wanted[f].ndim);
    for (int i = 0; i < family_ndim; ++i) CHECK(table.family_at(f).extent[i] == wanted[f].extent[i]);
    const auto found = table.find(wanted[f].name);
    REQUIRE(found.has_value());
    CHECK(place(found->family, found->member, found->expert) == place(f, 0, 0));
  }
  for (const char* name : {"", "A", "aa", "bb", "d", "scala"}) CHECK_FALSE(table.find(name).has_value());
  const std::vector<shard> pattern = {{0, "w{layer}", bf16, {2}, {0}, {2}}};  // names of lists are no patterns
  const tensor_table literal{&pattern};
  CHECK(literal.find("w{layer}").has_value());
  CHECK_FALSE(literal.find("w1").has_value());
}

TEST_CASE("of shards that say different extents the first one in the lists speaks, on either side") {
  std::vector<shard> first, second;
  for (index_t n = 0; n < 40; ++n) (n < 20 ? first : second).push_back({0, "w", bf16, {100 + n}, {0}, {1}});
  const tensor_table table{&first, &second}, turned{&second, &first};
  CHECK(table.family_at(0).extent[4] == 100);
  CHECK(turned.family_at(0).extent[4] == 120);
}

TEST_CASE("a table refuses too many dimensions and too many elements; five and many are fine") {
  shard s{0, "w", bf16, {2, 2, 2, 2, 2}, {}, {}};
  const auto table_of = [](const shard& one) {
    const std::vector<shard> list = {one};
    const tensor_table table{&list};
  };
  CHECK(testing::refused([&] { table_of(s); }) == "accepted");
  for (const int ndim : {6, -1, 1'000'000}) {
    s.whole.ndim = ndim;
    CHECK(testing::refused([&] { table_of(s); }) ==
          "reshard: 'w' has " + std::to_string(ndim) + " dimensions; 0 to 5 are supported");
  }
  s.whole = {index_t{1} << 31, index_t{1} << 31};
  CHECK(testing::refused([&] { table_of(s); }) == "accepted");
  s.whole = {index_t{1} << 32, index_t{1} << 31};
  CHECK(testing::refused([&] { table_of(s); }) == "reshard: 4294967296 x 2147483648 does not fit 64 bits");
}

TEST_CASE(
    "tensors of a prediction layer: each expert under its own name, none beyond the last, none of a kind not held") {
  const model both = testing::tiny_predicting();
  const space alone(both, parse_degrees(testing::prediction_alone)), after(both, parse_degrees("dp=2"));
  const std::string layer = "mtp.layers.0.mtp_model_layer.mlp.";
  for (const space* s : {&alone, &after}) {
    const model& m = s->model();
    const tensor_table table(m);
    int found = 0;
    for (int f = 0; f < m.families; ++f)
      if (m[f].place == home::prediction && m[f].extent[axis_of::layer] > 0)
        for (index_t expert = 0; expert < m[f].extent[axis_of::expert]; ++expert, ++found) {
          const std::string name = m.tensor({f, 0, expert});
          CAPTURE(name);
          CHECK(table.find(name) == tensor_id{f, 0, expert});
        }
    CHECK(found >= 10);
    CHECK(table.find(layer + "experts.linear_fc1.weight7").has_value() == (s == &alone));
    CHECK(!table.find(layer + "experts.linear_fc1.weight8"));
    CHECK(table.find(layer + "linear_fc1.weight").has_value() == (s == &after));
  }
}
