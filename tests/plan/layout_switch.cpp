// SPDX-License-Identifier: Apache-2.0
// A switch: what it keeps and makes of spaces, lists and holdings; where ranks sit; what is refused, each beside its
// accepted neighbour.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/static_space.hpp>

#include "../support/any_role.hpp"
#include "../support/refused.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::refused, testing::whole_on;

namespace {
constexpr transformer small{
    .name = "small", .layers = 1, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8};
constexpr model tiny = make_transformer(small);

/// Everything of `tiny` on rank 0, but fc1, whose rows two ranks hold as [gate; up] was stored: 3 rows and 5 rows.
std::vector<shard> by_hand() {
  const auto whole = [](std::string name, extents shape) {
    extents zero = shape;
    for (index_t& at : zero.at) at = 0;
    return shard{0, std::move(name), bf16, shape, zero, shape};
  };
  const std::string layer = "decoder.layers.0.";
  return {whole("embedding.word_embeddings.weight", {8, 4}),
          whole(layer + "self_attention.linear_proj.weight", {4, 4}),
          whole(layer + "self_attention.linear_qkv.layer_norm_weight", {4}),
          whole(layer + "self_attention.linear_qkv.weight", {12, 4}),
          whole(layer + "mlp.linear_fc1.layer_norm_weight", {4}),
          {0, layer + "mlp.linear_fc1.weight", bf16, {8, 4}, {0, 0}, {3, 4}},
          {1, layer + "mlp.linear_fc1.weight", bf16, {8, 4}, {3, 0}, {5, 4}},
          whole(layer + "mlp.linear_fc2.weight", {4, 4}),
          whole("decoder.final_layernorm.weight", {4}),
          whole("output_layer.weight", {8, 4})};
}

index_t elements_of(const std::vector<transfer>& list, int family) {
  index_t elements = 0;
  for (const transfer& t : list) elements += t.family == family ? t.where.volume() : 0;
  return elements;
}
}  // namespace

TEST_CASE("from a hand-written list to tp=2: fc1's gate and up halves come from whoever has their rows") {
  const std::vector<shard> shards = by_hand();
  const space target(tiny, config<tp<2>>{});
  int fc1 = 0;
  while (tiny[fc1].name != "decoder.layers.{layer}.mlp.linear_fc1.weight") ++fc1;
  // tp rank 0 needs gate rows 0, 1 (stored rows 0, 1 on rank 0) and up rows 0, 1 (stored rows 4, 5 on rank 1)
  const plan first = make_plan(layout_switch(shards, target), 0), second = make_plan(layout_switch(shards, target), 1);
  CHECK(elements_of(first.retains, fc1) == 2 * 4);
  CHECK(elements_of(first.receives, fc1) == 2 * 4);
  // tp rank 1 needs gate rows 2 (rank 0), 3 (itself) and up rows 2, 3 (itself)
  CHECK(elements_of(second.retains, fc1) == 3 * 4);
  CHECK(elements_of(second.receives, fc1) == 1 * 4);
  CHECK(second.receives.front().states == only(0));
  CHECK(total_bytes(first.sends) == total_bytes(second.receives));
  const plan back = make_plan(layout_switch(target, shards), 1);
  CHECK(elements_of(back.receives, fc1) == 2 * 4);
}

TEST_CASE("two lists need no model: any tensors of up to five dimensions") {
  const std::vector<shard> rows = {{0, "wte", bf16, {6, 4}, {0, 0}, {3, 4}},
                                   {1, "wte", bf16, {6, 4}, {3, 0}, {3, 4}},
                                   {0, "conv", bf16, {2, 3, 2, 2}, {0, 0, 0, 0}, {2, 3, 2, 2}}};
  const std::vector<shard> columns = {{0, "wte", bf16, {6, 4}, {0, 0}, {6, 2}},
                                      {1, "wte", bf16, {6, 4}, {0, 2}, {6, 2}},
                                      {1, "conv", bf16, {2, 3, 2, 2}, {0, 0, 0, 0}, {2, 3, 2, 2}}};
  const tensor_table table{&rows, &columns};
  const listed_holding from(table, rows, 2), to(table, columns, 2);
  CHECK(covers(from, parameter_states));
  CHECK(covers(to, parameter_states));
  const plan p = make_plan(layout_switch(from, to), 1);
  REQUIRE(p.receives.size() == 2);
  CHECK(table.family_at(p.receives[0].family).name == "conv");
  CHECK(p.receives[0].where == family_box{{{0, 1}, {0, 2}, {0, 3}, {0, 2}, {0, 2}}});
  CHECK(p.receives[1].where == family_box{{{0, 1}, {0, 1}, {0, 1}, {0, 3}, {2, 4}}});
  CHECK(p.retains.size() == 1);
}

TEST_CASE("what no tensor admits is refused with its values") {
  const tensor_table table(tiny);
  const auto list = [&](const shard& s) { return listed_holding(table, {s}, 2); };
  CHECK_REFUSED(list((shard{2, "output_layer.weight", bf16, {8, 4}, {0, 0}, {8, 4}})),
                "shard of 'output_layer.weight': rank 2 of a world of 2 ranks");
  CHECK_REFUSED(list((shard{0, "wte", bf16, {8, 4}, {0, 0}, {8, 4}})), "no tensor is called 'wte'");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {9, 4}, {0, 0}, {8, 4}})),
                "shard of 'output_layer.weight': dimension 0 is said to have extent 9; the tensor's is 8");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {8, 4}, {4, 0}, {5, 4}})),
                "shard of 'output_layer.weight' on rank 0: [4, 4 + 5) reaches outside the extent 8 of dimension 0");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {8, 4}, {0, 9'223'372'036'854'775'807}, {8, 4}})),
                "reaches outside the extent 4");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", fp32, {8, 4}, {0, 0}, {8, 4}})),
                "param of 'output_layer.weight' is fp32, and the list of states has it as bf16");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {8, 4}, {0, 0}, {8, 4}, "momentum"})),
                "no state is called 'momentum'");
  CHECK_REFUSED(list((shard{0, "decoder.layers.1.mlp.linear_fc2.weight", bf16, {4, 4}, {0, 0}, {4, 4}})),
                "no tensor is called");
  const std::vector<shard> overlapping = {{0, "output_layer.weight", bf16, {8, 4}, {0, 0}, {5, 4}},
                                          {1, "output_layer.weight", bf16, {8, 4}, {4, 0}, {4, 4}}};
  CHECK_REFUSED(listed_holding(table, overlapping, 2), "overlap without being equal");
  std::vector<shard> incomplete = by_hand();
  incomplete.pop_back();
  const space target(tiny, config<tp<2>>{});
  CHECK_REFUSED(make_plan(layout_switch(incomplete, target), 0),
                "needs 16 elements of output_layer.weight, and no rank of FROM holds 16 of them");
}

TEST_CASE("two lists in one call are planned like their holdings") {
  const std::vector<shard> rows = {{0, "wte", bf16, {6, 4}, {0, 0}, {3, 4}}, {1, "wte", bf16, {6, 4}, {3, 0}, {3, 4}}};
  const std::vector<shard> columns = {{0, "wte", bf16, {6, 4}, {0, 0}, {6, 2}},
                                      {1, "wte", bf16, {6, 4}, {0, 2}, {6, 2}}};
  const plan p = make_plan(layout_switch(rows, columns), 1);
  REQUIRE(p.receives.size() == 1);
  CHECK(p.receives[0].where == family_box{{{0, 1}, {0, 1}, {0, 1}, {0, 3}, {2, 4}}});
  CHECK(total_bytes(p.receives) == total_bytes(make_plan(layout_switch(rows, columns), 0).sends));
}

namespace {
std::vector<shard> one_tensor(rank_t rank, const std::vector<std::string>& states) {
  std::vector<shard> list;
  for (const std::string& state : states)
    list.push_back({rank, "w", state == "param" ? bf16 : fp32, {6, 4}, {0, 0}, {6, 4}, state});
  return list;
}
state_set states_of_plan(const plan& p) {
  state_set all;
  for (const transfer& t : p.receives) all = all | t.states;
  return all;
}
}  // namespace

TEST_CASE("a list planned to a list has the states of TO, where FROM has them too") {
  const std::vector<std::string> every = {"param", "master", "exp_avg", "exp_avg_sq"};
  const std::vector<shard> all = one_tensor(0, every);
  for (const std::vector<std::string>& wanted : std::vector<std::vector<std::string>>{
           {"param"}, {"master"}, {"exp_avg", "exp_avg_sq"}, {"param", "exp_avg"}, every}) {
    const std::vector<shard> to = one_tensor(1, wanted);
    state_set named;
    for (const int s : all_states)
      for (const std::string& state : wanted)
        if (adam[s].name == state) named = named | only(s);
    named = states_of(tensor_kind::parameter, named);
    const plan arriving = make_plan(layout_switch(all, to), 1), leaving = make_plan(layout_switch(all, to), 0);
    CHECK(states_of_plan(arriving) == named);
    CHECK(arriving.receives == leaving.sends);
    CHECK(total_bytes(arriving.receives) == 24 * named.bytes_per_element());
  }
  const std::vector<shard> parameters = one_tensor(0, {"param"}), some = one_tensor(0, {"param", "master"}),
                           to = one_tensor(1, every);
  CHECK_REFUSED(
      layout_switch(one_tensor(0, {"master", "exp_avg", "exp_avg_sq"}), to),
      "switch: param shall move, and FROM does not have it; of the list it has master, exp_avg and exp_avg_sq");
  CHECK_REFUSED(layout_switch(parameters, to),
                "switch: master shall move, and FROM does not have it; of the list it has param");
  CHECK_REFUSED(layout_switch(some, to),
                "switch: exp_avg shall move, and FROM does not have it; of the list it has param and master");
}

TEST_CASE("lists are read by the tensors of both: what only TO has is missed, what only FROM has is left") {
  std::vector<shard> from = one_tensor(0, {"param"}), to = from;
  to.push_back({0, "b", bf16, {3}, {0}, {3}});
  CHECK_REFUSED(make_plan(layout_switch(from, to), 0),
                "plan: rank 0 needs 3 elements of b, and no rank of FROM holds 3 of them");
  const plan p = make_plan(layout_switch(to, from), 0);
  CHECK(p.sends.empty());
  CHECK(total_bytes(p.retains) == 24 * 2);
}

TEST_CASE("between a list and a space, the states are the list's, on whichever side it is") {
  std::vector<shard> shards = by_hand();  // parameters, of which rank 1 has a part
  for (shard& s : shards) s.state = "exp_avg", s.type = fp32;
  const space other(tiny, config<dp<3>, zero<1>>{});
  for (rank_t device = 0; device < 3; ++device) {
    for (const transfer& t : make_plan(layout_switch(shards, other), device).receives) CHECK(t.states == only(2));
    for (const transfer& t : make_plan(layout_switch(other, shards), device).sends) CHECK(t.states == only(2));
  }
  CHECK_FALSE(make_plan(layout_switch(shards, other), 2).receives.empty());
  CHECK_FALSE(make_plan(layout_switch(other, shards), 2).sends.empty());
}

namespace {
/// What a switch between two lists is refused with; as holdings, each with a table of its own.
std::string refusal_of(const std::vector<shard>& from, const std::vector<shard>& to, const placement& placed) {
  return testing::refused([&] { layout_switch(listed_holding(from), listed_holding(to), placed); });
}
placement placed(rank_t from, rank_t to, index_t node = 0, state_set states = parameter_states) {
  return {device_map(from), device_map(to), nodes_of(node), states};
}
}  // namespace
TEST_CASE("each side has as many devices as ranks") {
  const std::vector<shard> two = whole_on(2, "w", {4}), three = whole_on(3, "w", {4});
  CHECK(refusal_of(two, three, placed(2, 3)) == "accepted");
  CHECK(refusal_of(two, three, placed(3, 3)) == "reshard: switch: FROM has 2 ranks, but 3 devices are listed for it");
  CHECK(refusal_of(two, three, placed(1, 3)) == "reshard: switch: FROM has 2 ranks, but 1 devices are listed for it");
  CHECK(refusal_of(two, three, placed(2, 2)) == "reshard: switch: TO has 3 ranks, but 2 devices are listed for it");
  CHECK(refusal_of(two, three, placed(2, 4)) == "reshard: switch: TO has 3 ranks, but 4 devices are listed for it");
}

TEST_CASE("a node has no negative number of devices; none means that all share one") {
  const std::vector<shard> list = whole_on(2, "w", {4});
  for (const index_t node : {0, 1, 8}) CHECK(refusal_of(list, list, placed(2, 2, node)) == "accepted");
  CHECK(refusal_of(list, list, placed(2, 2, -1)) == "reshard: cluster: a node of -1 devices");
}

TEST_CASE("a world has no negative number of devices; none means as many as ranks of both sides need") {
  const std::vector<shard> list = whole_on(2, "w", {4});
  const auto devices_where = [&](rank_t at_least) {
    return layout_switch(list, list, {.devices = at_least}).devices();
  };
  CHECK(devices_where(0) == 2);
  CHECK(devices_where(1) == 2);
  CHECK(devices_where(7) == 7);
  CHECK(refused([&] { static_cast<void>(devices_where(-1)); }) ==
        "reshard: switch: a world of at least -1 devices; 0 is as many as ranks of both sides need");
}

TEST_CASE("both sides hold one model: as many families, their names, their extents along every axis") {
  const std::vector<shard> w = whole_on(1, "w", {2, 3, 4, 5, 6}), v = whole_on(1, "v", {2, 3, 4, 5, 6});
  std::vector<shard> both = w;
  both.insert(both.end(), v.begin(), v.end());
  CHECK(refusal_of(w, w, placed(1, 1)) == "accepted");
  CHECK(refusal_of(w, both, placed(1, 1)) ==
        "reshard: switch: FROM has 1 tensor families and TO 2; both sides hold one model");
  CHECK(refusal_of(both, w, placed(1, 1)) ==
        "reshard: switch: FROM has 2 tensor families and TO 1; both sides hold one model");
  CHECK(refusal_of(w, v, placed(1, 1)) == "reshard: switch: family 0 is w on one side and v on the other");
  for (int axis = 0; axis < family_ndim; ++axis) {
    extents other = {2, 3, 4, 5, 6};
    other.at[axis] = 7;
    CHECK(refusal_of(w, whole_on(1, "w", other), placed(1, 1)) ==
          "reshard: switch: w has extent " + std::to_string(axis + 2) + " along axis " + std::to_string(axis) +
              " on one side and 7 on the other");
  }
  const std::vector<shard> last_differs = whole_on(1, "z", {2});  // every family is looked at, not the first alone
  std::vector<shard> other = v;
  other.insert(other.end(), last_differs.begin(), last_differs.end());
  CHECK(refusal_of(both, other, placed(1, 1)) == "reshard: switch: family 1 is w on one side and z on the other");
}

TEST_CASE("what shall move is there on both sides; without a word it is what TO has") {
  const std::vector<shard> some = whole_on(1, "w", {4}, {"param", "master", "exp_avg"}),
                           all = whole_on(1, "w", {4}, {"param", "master", "exp_avg", "exp_avg_sq"});
  const state_set two = only(1) | only(2);
  CHECK(refusal_of(all, all, placed(1, 1, 0, all_states)) == "accepted");
  CHECK(refusal_of(some, some, placed(1, 1, 0, parameter_states | two)) == "accepted");
  CHECK(refusal_of(some, all, placed(1, 1, 0, only(2))) == "accepted");
  CHECK(refusal_of(some, all, placed(1, 1, 0, all_states)) ==
        "reshard: switch: exp_avg_sq shall move, and FROM does not have it; of the list it has param, master and "
        "exp_avg");
  CHECK(
      refusal_of(all, some, placed(1, 1, 0, optimizer_states)) ==
      "reshard: switch: exp_avg_sq shall move, and TO does not have it; of the list it has param, master and exp_avg");
  CHECK(layout_switch(some, some).states() == (only(0) | two));
  CHECK(layout_switch(all, some).states() == (only(0) | two));
  CHECK(layout_switch(all, some, {.states = only(1)}).states() == only(1));
}

TEST_CASE("a state that a side has with another width or level is refused with both") {
  const space s(tiny, config<dp<2>, zero<1>>{});
  const state_list own = parse_state_list("param:fp32:3,master:fp32:1,exp_avg:fp32:2");
  const computed_holding of_own(s, own), of_adam(s);
  CHECK_REFUSED(layout_switch(of_adam, of_own, {.list = own}),
                "switch: param shall move with 4 bytes and level 3, and FROM has it with 2 bytes and level 3; both "
                "sides have the states of one list");
  CHECK_REFUSED(layout_switch(of_adam, of_own, {.states = only(2)}),
                "switch: exp_avg shall move with 4 bytes and level 1, and TO has it with 4 bytes and level 2;");
  CHECK(layout_switch(of_adam, of_own, {.states = only(1)}).states() == only(1));  // alike in both
  CHECK_REFUSED(layout_switch(computed_holding(s, own.only(2)), of_own, {.states = own.only(1), .list = own}),
                "switch: master shall move, and FROM does not have it; of the list it has exp_avg");
  CHECK_REFUSED(layout_switch(computed_holding(s, state_set{}), of_own, {.states = own.only(1), .list = own}),
                "switch: master shall move, and FROM does not have it; of the list it has none");
}

TEST_CASE("the list of states is the placement's: all of it moves, and what is none of it is refused") {
  const space s(tiny, config<dp<2>, zero<1>>{});
  const state_list own = parse_state_list("param:fp32:3,exp_avg:bf16:1,grad:fp32:2");
  const layout_switch all(s, s, {.list = own});
  CHECK(layout_switch(s, s).list() == adam);
  CHECK(all.list() == own);
  CHECK(all.states() == own.all());
  CHECK(all.from().states() == own.all());
  CHECK(layout_switch(s, s, {.states = own.only(2), .list = own}).states() == own.only(2));
  const computed_holding moments(s, own.only(1));
  CHECK(layout_switch(moments, s, {.list = own}).states() == own.only(1));
  const std::vector<shard> listed = whole_on(1, "w", {4}, {"param", "grad"}, own);
  CHECK(layout_switch(listed, listed, {.list = own}).states() == (own.only(0) | own.only(2)));
  const std::vector<shard> gradients = whole_on(1, "w", {4}, {"grad"}, own);
  CHECK(refusal_of(gradients, gradients, {}) ==
        "reshard: shard of 'w': no state is called 'grad'; states are param, master, exp_avg and exp_avg_sq");
  const auto refusal_of_states = [&](const placement& placed) {
    return refused([&] { static_cast<void>(layout_switch(s, s, placed)); });
  };
  CHECK(refusal_of_states({.states = own.only(2)}) ==
        "reshard: switch: state 2 shall move, of 4 bytes and level 2, and is none of the switch's list; name the list "
        "in the placement");
  CHECK(refusal_of_states({.states = only(0), .list = own})
            .starts_with("reshard: switch: state 0 shall move, of 2 bytes and level 3, and is none"));
  CHECK(refusal_of_states({.states = only(3), .list = sgd}).starts_with("reshard: switch: state 3 shall move"));
  CHECK(refusal_of_states({.states = only(1), .list = sgd}) == "accepted");
  CHECK(refused([&] {
          static_cast<void>(layout_switch(moments, s));
        }).starts_with("reshard: switch: state 1 shall move, of 2 bytes and level 1, and is none"));
}

TEST_CASE("states that are named are those, also where a longer list begins with them") {
  const space s(tiny, config<dp<2>, zero<2>>{});
  const state_list longer = with_gradients(adam);
  const computed_holding every(s, longer);
  CHECK(layout_switch(s, s, {.list = longer}).states() == longer.all());
  CHECK(layout_switch(s, s, {.states = adam.all(), .list = longer}).states() == adam.all());
  CHECK(layout_switch(s, s, {.states = longer.all(), .list = longer}).states() == longer.all());
  CHECK(layout_switch(s, s, {.states = all_states, .list = longer}).to().states() == all_states);
  CHECK(layout_switch(every, every, {.states = all_states, .list = longer}).states() == all_states);
  CHECK(layout_switch(every, s, {.states = all_states, .list = longer}).to().states() == all_states);
  CHECK(layout_switch(s, every, {.states = all_states, .list = longer}).from().states() == all_states);
  CHECK(layout_switch(s, every, {.list = longer}).states() == longer.all());
}

TEST_CASE("a space beside a holding or a list of some states is asked for those only") {
  const space s(tiny, config<dp<2>, zero<1>>{});
  const layout_switch change(computed_holding(s, parameter_states), s), back(s, computed_holding(s, only(2)));
  CHECK(change.to().states() == parameter_states);
  CHECK(change.states() == parameter_states);
  CHECK(back.from().states() == only(2));
  CHECK(back.states() == only(2));
  CHECK(layout_switch(s, s, {.states = only(3)}).to().states() == only(3));
}

TEST_CASE("a list may be named, constant or not, or temporary, a vector or a shard_list") {
  std::vector<shard> named = by_hand();
  const std::vector<shard> constant = named;
  const space target(tiny, config<tp<2>>{});
  const plan p = make_plan(layout_switch(constant, target), 1), back = make_plan(layout_switch(target, constant), 1);
  CHECK(total_bytes(p.receives) > 0);
  CHECK(make_plan(layout_switch(named, target), 1) == p);
  CHECK(make_plan(layout_switch(by_hand(), target), 1) == p);
  CHECK(make_plan(layout_switch(shard_list(named), target), 1) == p);
  CHECK(make_plan(layout_switch(named, computed_holding(target, parameter_states)), 1) == p);
  CHECK(make_plan(layout_switch(target, named), 1) == back);
  CHECK(make_plan(layout_switch(target, by_hand()), 1) == back);
  CHECK(make_plan(layout_switch(target, shard_list(named, 3)), 1) == back);
  const listed_holding held(tensor_table(tiny), named, 2);
  CHECK(make_plan(layout_switch(held, target), 1) == p);
  CHECK(make_plan(layout_switch(held, named), 1).retains.size() > 0);
}

TEST_CASE(
    "a list beside holdings of any kind is read by the tensors of what they are, and not beside one without names") {
  const std::vector<shard> list = by_hand();
  const space target(tiny, config<tp<2>>{});
  const computed_holding of_space(target, parameter_states);
  const listed_holding of_list(tensor_table(tiny), list, 2);
  for (rank_t device = 0; device < 2; ++device) {
    CHECK(make_plan(layout_switch(list, any_holding(of_space)), device) ==
          make_plan(layout_switch(list, target), device));
    CHECK(make_plan(layout_switch(any_holding(of_space), list), device) ==
          make_plan(layout_switch(target, list), device));
    CHECK(make_plan(layout_switch(any_holding(of_list), list), device) ==
          make_plan(layout_switch(of_list, list), device));
  }
  const std::vector<shard> three = whole_on(3, "w", {4});
  const any_holding unknown{testing::any_role(shard_list(three))};
  const std::string sentence =
      "reshard: switch: a list of shards is beside a holding of 3 ranks that names no tensors; give it as a "
      "listed_holding, made with a table";
  CHECK(refused([&] { static_cast<void>(layout_switch(three, unknown)); }) == sentence);
  CHECK(refused([&] { static_cast<void>(layout_switch(unknown, three)); }) == sentence);
}

TEST_CASE(
    "extents may differ along the rows of a padded vocabulary and the layers of predictions, both of both sides") {
  for (int axis = 0; axis < family_ndim; ++axis)
    for (const padded_as a : {padded_as::nothing, padded_as::vocabulary})
      for (const padded_as b : {padded_as::nothing, padded_as::vocabulary})
        for (const home of_a : {home::layers, home::prediction})
          for (const home of_b : {home::embedding, home::prediction}) {
            family first, second;
            first.padded = a, second.padded = b, first.place = of_a, second.place = of_b;
            const bool padded = a == padded_as::vocabulary && b == padded_as::vocabulary,
                       predicting = of_a == home::prediction && of_b == home::prediction;
            CHECK(detail::may_differ(first, second, axis) == ((axis == 3 && padded) || (axis == 0 && predicting)));
          }
}

TEST_CASE("a switch keeps its sides, named or temporary, and a copy of it is as good") {
  const auto make = [] {
    const space two(tiny, config<tp<2>>{});
    return layout_switch(two, space(tiny, config<pp<1>, dp<4>>{}), {.states = parameter_states});
  };
  const auto change = make();  // what it was made of is gone
  const computed_switch copy = change;
  const space two(tiny, config<tp<2>>{}), four(tiny, config<pp<1>, dp<4>>{});
  for (rank_t device = 0; device < 4; ++device) {
    const plan p = make_plan(layout_switch(two, four, {.states = parameter_states}), device);
    CHECK(make_plan(change, device) == p);
    CHECK(make_plan(copy, device) == p);
  }
  const auto lists = [] { return layout_switch(whole_on(1, "w", {4, 6}), whole_on(2, "w", {4, 6})); }();
  CHECK(lists.from().family_at(0).name == "w");
  CHECK(total_bytes(make_plan(lists, 1).receives) == 48);
}

TEST_CASE("devices: as many as the maps reach, or as the cluster has; a rank and its device name each other") {
  const space two(tiny, config<tp<2>>{}), four(tiny, config<dp<4>>{});
  CHECK(layout_switch(two, four).devices() == 4);
  CHECK(layout_switch(four, two).devices() == 4);
  CHECK(layout_switch(two, two).devices() == 2);
  CHECK(layout_switch(two, two, {.devices = 16}).devices() == 16);
  CHECK(layout_switch(two, four, {.devices = 3}).devices() == 4);
  CHECK(layout_switch(two, four).from_devices().identity());  // nobody is lost: the map is the given one
  const layout_switch placed(two, four, {.from = device_map({7, 1}), .on = nodes_of(4)});
  CHECK(placed.devices() == 8);
  CHECK(placed.node_devices() == 4);
  for (rank_t d = 0; d < 8; ++d) {
    CHECK(placed.from_rank(d) == (d == 7 ? 0 : d == 1 ? 1 : -1));
    CHECK(placed.to_rank(d) == (d < 4 ? d : -1));
  }
  CHECK(placed.from_devices().device_of(0) == 7);
  CHECK(placed.to_devices().device_of(3) == 3);
}

TEST_CASE("a device that is lost takes FROM's rank along, where it has one") {
  const space four(tiny, config<dp<4>>{}), two(tiny, config<dp<2>>{});
  const layout_switch change(
      four, two, {.from = device_map({4, 1, 2, 3}), .to = device_map({0, 6}), .devices = 9, .lost = {8, 4, 7, 3}});
  CHECK(change.lost_devices() == std::vector<interval>{{3, 5}, {7, 9}});
  CHECK(change.lost_ranks() == std::vector<interval>{{0, 1}, {3, 4}});  // none of devices 7 and 8
  CHECK(change.from_rank(3) == -1);
  CHECK(change.from_rank(2) == 2);
}
