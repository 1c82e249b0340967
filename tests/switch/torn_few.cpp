// SPDX-License-Identifier: Apache-2.0
// Torn switches of a few rows, by hand: who has which box where, what is lost and why, the list from which a switch
// goes on, and one survivor's binding. switch/torn_switch.cpp throws many.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/listed_holding.hpp>
#include <reshard/switch/torn_switch.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
using texts = std::vector<std::string>;
std::string ranks_text(const std::vector<rank_t>& all) {
  std::string text;
  for (const rank_t r : all) text += std::to_string(r);
  return text.empty() ? "-" : text;
}
/// "w 2 0:4: old 01, new -": name, row, columns, and the devices that have it.
template <typename Switch>
texts told(const Switch& change, const std::vector<torn_box>& boxes) {
  const tensor_names names = names_of(change.to());
  texts all;
  for (const torn_box& b : boxes) {
    const auto range = [](const interval& i) {
      return std::to_string(i.begin) + (i.size() == 1 ? "" : ":" + std::to_string(i.end));
    };
    all.push_back(names(b.tensor) + " " + range(b.where.dim[1]) + " " + range(b.where.dim[2]) + ": old " +
                  ranks_text(b.in_old) + ", new " + ranks_text(b.in_new));
  }
  return all;
}

/// Four rows of four columns: rows become columns.
const std::vector<shard> rows = {{0, "w", bf16, {4, 4}, {0, 0}, {2, 4}}, {1, "w", bf16, {4, 4}, {2, 0}, {2, 4}}},
                         columns = {{0, "w", bf16, {4, 4}, {0, 0}, {4, 2}}, {1, "w", bf16, {4, 4}, {0, 2}, {4, 2}}};
const layout_switch turned(rows, columns);

}  // namespace

TEST_CASE("of FROM a survivor has what it sends or retains from stage C on, of TO what came or stayed before it") {
  CHECK(told(turned, torn_boxes(turned, 2, {{0, 1, 1, 0}, {1, 1, 1, 0}})) ==
        texts{"w 0 0:2: old -, new 0", "w 0 2:4: old -, new 1", "w 1 0:2: old 0, new -", "w 1 2:4: old 0, new -",
              "w 2 0:2: old -, new 0", "w 2 2:4: old -, new 1", "w 3 0:2: old 1, new -", "w 3 2:4: old 1, new -"});
  CHECK(told(turned, torn_boxes(turned, 2, {{0, 2, 2, 0}, {1, 2, 2, 0}})) ==
        texts{"w 0 0:2: old -, new 0", "w 0 2:4: old -, new 1", "w 1 0:2: old -, new 0", "w 1 2:4: old -, new 1",
              "w 2 0:2: old -, new 0", "w 2 2:4: old -, new 1", "w 3 0:2: old -, new 0", "w 3 2:4: old -, new 1"});
  // where C is below u too: all of both is sent or retained
  CHECK(told(turned, torn_boxes(turned, 2, {{0, 1, 1, 2}, {1, 1, 1, 2}})) ==
        told(turned, torn_boxes(turned, 2, {{0, 1, 1, 0}, {1, 1, 1, 0}})));
  const torn_share none{0, 0, 0, 0};
  CHECK(none == torn_share{.unread_kept = 0});
  CHECK(told(turned, torn_boxes(turned, 2, {none})) == texts{"w 0 0:2: old 0, new -", "w 0 2:4: old 0, new -",
                                                             "w 1 0:2: old 0, new -", "w 1 2:4: old 0, new -",
                                                             "w 2:4 0:4: old -, new -"});
}

TEST_CASE("what no survivor has is cut as little as need be, and counts as the dead's alone or as given away") {
  const std::vector<torn_box> boxes = torn_boxes(turned, 2, {{0, 1, 1, 0}});
  CHECK(told(turned, boxes) == texts{"w 0 0:2: old -, new 0", "w 0 2:4: old -, new -", "w 1 0:2: old 0, new -",
                                     "w 1 2:4: old 0, new -", "w 2 0:2: old -, new 0", "w 2 2:4: old -, new -",
                                     "w 3 0:4: old -, new -"});
  CHECK_FALSE(boxes[0].lost());
  CHECK(boxes[1].lost());
  CHECK_FALSE(boxes[2].lost());
  const lost_elements lost = lost_after(turned, boxes, {0});
  CHECK(lost.sole_held == 6);
  CHECK(lost.given_away == 2);
  CHECK(lost.text() ==
        "lost are 6 elements that only the dead held, and 2 that a survivor had given back before their new copies "
        "stood");
  const lost_elements with_both = lost_after(turned, boxes, {0, 1});
  CHECK((with_both.sole_held == 0 && with_both.given_away == 8));
  const lost_elements of_nothing = lost_after(turned, torn_boxes(turned, 2, {{0, 0, 0, 0}, {1, 0, 0, 0}}), {0, 1});
  CHECK((of_nothing.sole_held == 0 && of_nothing.given_away == 0));
  const lost_elements with_none = lost_after(turned, boxes, {});
  CHECK((with_none.sole_held == 8 && with_none.given_away == 0));
}

TEST_CASE(
    "stages that one survivor knows of are in place with all; what is here alone is here, and unbounded sources stay") {
  // device 0 was told of none and has all; device 1 was told of one, and its sources all stand
  CHECK(told(turned, torn_boxes(turned, 2, {{0, 0, 2, 0}, {1, 1, 1, {}}})) ==
        texts{"w 0 0:2: old 0, new 0", "w 0 2:4: old 0, new 1", "w 1 0:2: old 0, new 0", "w 1 2:4: old 0, new -",
              "w 2 0:2: old 1, new 0", "w 2 2:4: old 1, new 1", "w 3 0:2: old 1, new 0", "w 3 2:4: old 1, new -"});
}

TEST_CASE(
    "who was told of fewer stages than another has those of the other in place, and keeps the sources of later ones") {
  CHECK(told(turned, torn_boxes(turned, 2, {{0, 0, 0, 0}, {1, 1, 1, 0}})) ==
        texts{"w 0 0:2: old 0, new 0", "w 0 2:4: old 0, new 1", "w 1 0:2: old 0, new -", "w 1 2:4: old 0, new -",
              "w 2 0:2: old -, new 0", "w 2 2:4: old -, new 1", "w 3 0:2: old 1, new -", "w 3 2:4: old 1, new -"});
}

TEST_CASE("who retains what it also sends, to several, is told once") {
  const std::vector<shard> one = {{0, "v", bf16, {4}, {0}, {4}}};
  std::vector<shard> three = one;
  for (const rank_t r : {1, 2}) three.push_back({r, "v", bf16, {4}, {0}, {4}});
  const layout_switch change(one, three);
  const std::vector<torn_share> shares = {{0, 0, 0, 0}, {1, 0, 1, 0}, {2, 0, 0, 0}};
  CHECK(told(change, torn_boxes(change, 1, shares)) == texts{"v 0 0:4: old 0, new 1"});
  CHECK(told(change, torn_boxes(change, 1, {{0, 0, 1, {}}})) == texts{"v 0 0:4: old 0, new 0"});
}

TEST_CASE("what is neither sent nor retained stands where C is below u; shares of a torn ending are by device") {
  const std::vector<shard> before = {{0, "v", bf16, {4}, {0}, {4}}, {1, "v", bf16, {4}, {0}, {4}}},
                           after = {{1, "v", bf16, {4}, {0}, {4}}};
  const layout_switch change(before, after);
  const auto with = [&](index_t in_place, const std::vector<index_t>& unread) {
    return told(change, torn_boxes(change, ended::torn{"", 2, in_place, {0, 1}, unread}));
  };
  CHECK(with(0, {0, 0}) == texts{"v 0 0:2: old 1, new -", "v 0 2:4: old 1, new -"});
  CHECK(with(0, {1, 0}) == texts{"v 0 0:2: old 01, new -", "v 0 2:4: old 01, new -"});
  CHECK(with(0, {0, 1}) == with(0, {0, 0}));
  CHECK(with(1, {1, 2}) == texts{"v 0 0:2: old -, new 1", "v 0 2:4: old 1, new -"});
  CHECK(with(1, {2, 0}) == texts{"v 0 0:2: old 0, new 1", "v 0 2:4: old 01, new -"});
  CHECK(told(change, torn_boxes(change, ended::torn{"", 2, 1, {0, 1}, {}})) ==
        texts{"v 0 0:2: old 01, new 1", "v 0 2:4: old 01, new -"});
  const std::vector<index_t> only_first = {2, 0};
  CHECK(told(change, torn_boxes(change, ended::torn{"", 2, 1, {0}, only_first})) == texts{"v 0 0:4: old 0, new -"});
}

TEST_CASE("with relay who passes bytes on has them in neither: not in old arrays, and in new ones only what it needs") {
  const std::vector<shard> before = {{0, "w", bf16, {4, 4}, {0, 0}, {4, 4}}, {1, "x", bf16, {4}, {0}, {4}}},
                           after = {{0, "x", bf16, {4}, {0}, {4}},
                                    {1, "w", bf16, {4, 4}, {0, 0}, {4, 4}},
                                    {2, "w", bf16, {4, 4}, {0, 0}, {4, 4}}};
  const routing route{relay::always, 1, 1};
  const layout_switch change(before, after,
                             {.from = device_map({0, 2}), .to = device_map({2, 3, 4}), .on = nodes_of(2)});
  std::vector<rank_t> passing;  // device 2 passes two rows on, and 3 sends what it has on
  for (const rank_t d : {0, 2, 3, 4})
    for (const transfer& t : make_plan(change, d, route).receives)
      if (t.why == purpose::passed_on) passing.push_back(d);
  REQUIRE(passing == std::vector<rank_t>{2});
  const std::vector<index_t> none(5, 0);
  const auto at = [&](index_t in_place, const std::vector<rank_t>& survivors) {
    return told(change, torn_boxes(change, ended::torn{"", 1, in_place, survivors, none}, route));
  };
  CHECK(at(0, {0, 2, 3, 4}) == texts{"w 0:2 0:4: old 0, new -", "w 2:4 0:4: old 0, new -", "x 0 0:4: old 2, new -"});
  CHECK(at(1, {0, 2, 3, 4}) == texts{"w 0:2 0:4: old -, new 34", "w 2:4 0:4: old -, new 34", "x 0 0:4: old -, new 2"});
  CHECK(at(0, {2, 3, 4}) == texts{"w 0:4 0:4: old -, new -", "x 0 0:4: old 2, new -"});
  const std::vector<torn_share> shares = {{2, 1, 1, 0}, {4, 1, 1, 0}};
  CHECK(told(change, torn_boxes(change, 1, shares, route)) ==
        texts{"w 0:2 0:4: old -, new 4", "w 2:4 0:4: old -, new 4", "x 0 0:4: old -, new 2"});
}

TEST_CASE("elements count in every state that they are lost in, and boxes are those of TO") {
  const auto moments = [](rank_t rank, index_t begin, index_t end, bool parameters) {
    std::vector<shard> all;
    for (const char* const state : {"param", "exp_avg", "exp_avg_sq"})
      if (parameters || state[0] == 'e')
        all.push_back({rank, "w", state[0] == 'e' ? fp32 : bf16, {6}, {begin}, {end - begin}, state});
    return all;
  };
  std::vector<shard> before = moments(0, 0, 3, true), after = moments(0, 0, 6, true);
  for (const shard& one : moments(1, 3, 6, true)) before.push_back(one);
  const layout_switch change(before, after);
  const std::vector<torn_box> boxes = torn_boxes(change, 1, {{0, 0, 0, 0}});
  const lost_elements lost = lost_after(change, boxes, {0});
  CHECK((lost.sole_held == 9 && lost.given_away == 0));
  const torn_layout left = layout_after(change, boxes, {0});
  CHECK(left.shards.ranks() == 2);
  bytes_t elements = 0, of_last = 0;
  for (const shard& one : left.shards.shards()) {
    CHECK(one.type == (one.state == "param" ? bf16 : fp32));
    elements += one.shape.at[0], of_last += one.rank == 1 ? one.shape.at[0] : 0;
  }
  CHECK((elements == 18 && of_last == 9));
}

TEST_CASE("rows that only FROM pads are nobody's, and rows that TO pads stand once they are in place") {
  const model m = make_transformer(
      {.name = "m", .layers = 1, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 10});
  const auto side = [&](const char* layout) { return space(m, parse_degrees(layout)); };
  const auto count = [](const auto& change, index_t in_place) {
    index_t all = 0, lost = 0;
    for (const torn_box& b : torn_boxes(change, 1, {{0, in_place, in_place, {}}, {1, in_place, in_place, {}}})) {
      const family_box whole = change.to().family_at(b.tensor.family).whole();
      CHECK(whole.contains(family_box_of(b.tensor, b.where)));
      all += b.where.volume(), lost += b.lost() ? b.where.volume() : 0;
    }
    return std::pair(all, lost);
  };
  const computed_switch fewer(side("tp=2,pad=8"), side("tp=2")), more(side("tp=2"), side("tp=2,pad=8"));
  const auto [of_fewer, lost_of_fewer] = count(fewer, 0);
  CHECK(lost_of_fewer == 0);
  CHECK(count(fewer, 1) == std::pair(of_fewer, index_t{0}));
  // 10 rows become 16, of the embedding and of the output, of 8 columns, each once for every role
  const auto [of_more, lost_of_more] = count(more, 0);
  CHECK(of_more - of_fewer == lost_of_more);
  CHECK(lost_of_more == 2 * 2 * 6 * 8);
  CHECK(count(more, 1) == std::pair(of_more, index_t{0}));
}

TEST_CASE("a switch goes on from a list: survivors in their order, and a lost rank for what nobody has") {
  const std::vector<torn_box> boxes = torn_boxes(turned, 2, {{0, 1, 1, 0}});
  const torn_layout left = layout_after(turned, boxes, {0});
  CHECK(left.devices == std::vector<rank_t>{0, 1});
  CHECK(left.lost == std::vector<rank_t>{1});
  CHECK(left.shards.ranks() == 2);
  CHECK(left.list == adam);
  using row = std::tuple<rank_t, std::string, extents, extents, extents, std::string>;
  std::vector<row> listed;
  for (const shard& s : left.shards.shards()) {
    CHECK(s.type == bf16);
    listed.emplace_back(s.rank, s.tensor, s.whole, s.offset, s.shape, s.state);
  }
  const extents whole{4, 4}, half{1, 2};
  CHECK(listed == std::vector<row>{{0, "w", whole, {0, 0}, half, "param"},
                                   {1, "w", whole, {0, 2}, half, "param"},
                                   {0, "w", whole, {1, 0}, half, "param"},
                                   {0, "w", whole, {1, 2}, half, "param"},
                                   {0, "w", whole, {2, 0}, half, "param"},
                                   {1, "w", whole, {2, 2}, half, "param"},
                                   {1, "w", whole, {3, 0}, {1, 4}, "param"}});
  const placement placed = left.placed(device_map(std::vector<rank_t>{5}));
  CHECK((placed.from.device_of(0) == 0 && placed.from.device_of(1) == 1 && placed.to.device_of(0) == 5));
  CHECK(placed.lost == left.lost);
  CHECK((placed.lost_elements == when_lost::leave_out && placed.list == adam));
  CHECK(testing::refused([&] {
          static_cast<void>(layout_after(turned, boxes, {0, 1}));
        }) == "reshard: torn switch: all devices survive, and nobody holds all of w");
  const torn_layout both = layout_after(turned, torn_boxes(turned, 2, {{0, 0, 2, {}}, {1, 0, 2, {}}}), {1, 0});
  CHECK((both.lost.empty() && both.devices == std::vector<rank_t>{1, 0} && both.shards.ranks() == 2));
  CHECK(both.shards.shards()[0].rank == 1);  // device 0, which held and has it, is the second here, and is listed once
  CHECK(both.shards.shards()[1].rank == 0);  // device 1, in whose new arrays it is
}

TEST_CASE("parts of a tensor are listed one by one, each at its rows, and vectors by their columns") {
  const model m = make_transformer(
      {.name = "m", .layers = 1, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 10});
  const computed_switch change(space(m, parse_degrees("")), space(m, parse_degrees("tp=2")),
                               {.to = device_map({1, 2}), .states = parameter_states});
  const std::vector<torn_box> boxes = torn_boxes(change, 1, {{1, 1, 1, 0}, {2, 1, 1, 0}});
  const torn_layout left = layout_after(change, boxes, {1, 2});
  CHECK(left.lost == std::vector<rank_t>{0});
  CHECK(left.devices == std::vector<rank_t>{1, 2, 0});
  const layout_switch next(left.shards, space(m, parse_degrees("")), left.placed(device_map(std::vector<rank_t>{1})));
  index_t vectors = 0, parts = 0;
  for (const shard& s : left.shards.shards()) {
    CHECK(s.rank < 2);
    vectors += s.whole.ndim == 1 ? 1 : 0, parts += s.offset.at[0] >= s.shape.at[0] ? 1 : 0;
  }
  CHECK(vectors > 2);
  CHECK(parts > 2);
  const plan mine = make_plan(next, 1);
  bytes_t bytes = 0;
  for (const auto* list : {&mine.receives, &mine.retains})
    for (const transfer& t : *list) bytes += t.bytes();
  bytes_t wanted = 0;
  for (int f = 0; f < change.to().families(); ++f) wanted += 2 * change.to().family_at(f).whole().volume();
  CHECK(mine.lost.empty());
  CHECK(bytes == wanted);
}

TEST_CASE("a survivor's binding lies over its new arrays where it has both, else over its old ones") {
  std::byte before[16] = {}, after[16] = {};
  binding old_tensors("old", {}, lion), new_tensors("new", {}, lion);
  old_tensors.add({0, {}, {{{0, 1}, {0, 2}, {0, 4}}}}, {before, 16});
  new_tensors.add({0, {}, {{{0, 1}, {0, 4}, {0, 2}}}}, {after, 16});
  old_tensors.seal(), new_tensors.seal();
  const std::vector<torn_box> boxes = torn_boxes(turned, 2, {{0, 1, 1, {}}, {1, 1, 1, {}}});
  const binding held = binding_after(boxes, 0, old_tensors, new_tensors);
  CHECK(held.who() == "what device 0 holds of a torn switch");
  CHECK(held.list() == lion);
  std::vector<std::tuple<index_t, index_t, std::byte*>> at;
  for (const bound_box& b : held.boxes()) at.emplace_back(b.where.dim[1].begin, b.where.dim[2].begin, b.data);
  CHECK(at == std::vector<std::tuple<index_t, index_t, std::byte*>>{
                  {0, 0, after}, {0, 2, before + 4}, {1, 0, before + 8}, {2, 0, after + 8}});
  CHECK(binding_after(boxes, 2, old_tensors, new_tensors).boxes().empty());
  CHECK(binding_after({}, 0, binding("old"), new_tensors).list() == lion);
  CHECK(binding_after({}, 0, old_tensors, binding("new")).list() == lion);
  // boxes of several states are in order of these
  binding moments("moments", {}, adam);
  for (const int state : {2, 3}) moments.add({state, {}, {{{0, 1}, {0, 2}, {0, 1}}}}, {before + 8 * (state - 2), 8});
  moments.seal();
  const state_set two = adam.only(2) | adam.only(3);
  const std::vector<torn_box> rows_of_both = {{two, {}, {{{0, 1}, {0, 1}, {0, 1}}}, {0}, {}},
                                              {two, {}, {{{0, 1}, {1, 2}, {0, 1}}}, {}, {0}}};
  std::vector<std::pair<int, std::byte*>> states;
  const binding sorted = binding_after(rows_of_both, 0, moments, moments);
  for (const bound_box& b : sorted.boxes()) states.emplace_back(b.state, b.data);
  CHECK(states ==
        std::vector<std::pair<int, std::byte*>>{{2, before}, {2, before + 4}, {3, before + 8}, {3, before + 12}});
}
