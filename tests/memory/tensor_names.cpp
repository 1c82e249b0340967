// SPDX-License-Identifier: Apache-2.0
// What tensors are called: of a model by layer and expert, of a list and of a holding of one's own by themselves; and
// that names outlive what they were made of.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include <reshard/memory/tensor_names.hpp>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/listed_holding.hpp>

using namespace reshard;

namespace {

/// Three layers, the first of them dense, with four experts in the others.
model of_two_kinds() {
  return make_transformer({.name = "kinds",
                           .layers = 3,
                           .hidden = 4,
                           .heads = 2,
                           .groups = 2,
                           .head_dim = 2,
                           .ffn = 4,
                           .vocabulary = 8,
                           .experts = 4,
                           .expert_ffn = 4,
                           .dense_first = 1});
}
int family_called(const model& m, std::string_view pattern) {
  for (int f = 0; f < m.families; ++f)
    if (m[f].name == pattern) return f;
  return -1;
}
listed_holding two_listed() {
  const std::vector<shard> list{{0, "w", bf16, {4}, {0}, {4}}, {0, "b.{layer}", bf16, {2, 2}, {0, 0}, {2, 2}}};
  return listed_holding(list);
}

struct no_holders {
  index_t count() const { return 0; }
  rank_t operator[](index_t) const { return 0; }
  index_t index_of(rank_t) const { return -1; }
  index_t count_below(rank_t) const { return 0; }
  bool contains(rank_t) const { return false; }
};
/// A holding of one's own, that owns the names of its two families and holds nothing.
struct named_holding {
  std::shared_ptr<std::string> words =
      std::make_shared<std::string>("first {layer} and more, too long to lie inside;2");
  family both[2] = {{.name = std::string_view(*words).substr(0, 47)}, {.name = std::string_view(*words).substr(47)}};

  rank_t ranks() const { return 1; }
  state_set states() const { return parameter_states; }
  int families() const { return 2; }
  const family& family_at(int f) const { return both[f]; }
  void held(int, rank_t, role, auto&&) const {}
  void shared(int, rank_t, role, auto&&) const {}
  void owners(int, role, const family_box&, auto&&) const {}
  storage_order order_of(const tensor_id&, rank_t, role) const { return {}; }
};
static_assert(Holding<named_holding> && Holders<no_holders>);

/// Both ways to ask for a name say the same; the second outlives `of`.
template <typename Made>
std::string named_by(Made&& make, const tensor_id& t) {
  tensor_names later;
  std::string now;
  {
    const auto of = make();
    now = tensor_name(of, t);
    later = names_of(of);
  }
  CHECK(later(t) == now);
  return now;
}
}  // namespace

TEST_CASE("a tensor of a model is called by its layer and its expert, whatever holds it") {
  const model m = of_two_kinds();
  const int fc1 = family_called(m, "decoder.layers.{layer}.mlp.linear_fc1.weight"),
            expert = family_called(m, "decoder.layers.{layer}.mlp.experts.linear_fc2.weight{expert}"),
            norm = family_called(m, "decoder.final_layernorm.weight");
  REQUIRE((fc1 >= 0 && expert >= 0 && norm >= 0));
  const auto computed = [] { return computed_holding(space(of_two_kinds(), parse_degrees("dp=2"))); };
  const auto any = [&] { return any_holding(computed()); };
  for (const tensor_names& names : {names_of(of_two_kinds()), names_of(computed()), names_of(any())}) {
    CHECK(names({fc1, 0, 0}) == "decoder.layers.0.mlp.linear_fc1.weight");
    CHECK(names({expert, 1, 3}) == "decoder.layers.2.mlp.experts.linear_fc2.weight3");  // member 1 is layer 2
    CHECK(names({norm, 0, 0}) == "decoder.final_layernorm.weight");
  }
  CHECK(named_by(computed, {expert, 0, 2}) == "decoder.layers.1.mlp.experts.linear_fc2.weight2");
  CHECK(named_by(any, {expert, 0, 2}) == "decoder.layers.1.mlp.experts.linear_fc2.weight2");
}

TEST_CASE("a tensor of a list is called as the list calls it, even where that looks like a pattern") {
  const auto any = [] { return any_holding(two_listed()); };
  for (const index_t member : {0, 7}) {
    CHECK(named_by(two_listed, {0, member, 1}) == "b.{layer}");
    CHECK(named_by(two_listed, {1, member, 1}) == "w");
    CHECK(named_by(any, {1, member, 1}) == "w");
  }
  tensor_names of_table;
  {
    const listed_holding h = two_listed();
    of_table = names_of(h.table());
  }
  CHECK((of_table({0, 0, 0}) == "b.{layer}" && of_table({1, 0, 0}) == "w"));
}

TEST_CASE("a tensor of a holding of one's own is called as its family is") {
  const auto own = [] { return named_holding(); };
  const auto any = [] { return any_holding(named_holding()); };
  CHECK(named_by(own, {0, 3, 0}) == "first {layer} and more, too long to lie inside;");
  CHECK(named_by(own, {1, 0, 4}) == "2");
  CHECK(named_by(any, {1, 0, 4}) == "2");
}

namespace {
/// A holding of one's own that is asked of the families that it has, and of no other.
struct strict_holding : listed_holding {
  using listed_holding::listed_holding;
  const family& family_at(int f) const {
    REQUIRE(f >= 0);
    REQUIRE(f < families());
    return listed_holding::family_at(f);
  }
};
}  // namespace

TEST_CASE("the names of a holding of one's own are those of its families, and no other is asked for") {
  const strict_holding own(shard_list({{0, "a", bf16, {4}, {0}, {4}}, {0, "b", bf16, {3}, {0}, {3}}}));
  const tensor_names names = names_of(own);
  CHECK(names({0, 0, 0}) == "a");
  CHECK(names({1, 0, 0}) == "b");
}
