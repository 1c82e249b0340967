// SPDX-License-Identifier: Apache-2.0
// The figures of a switch against its transfers: every sum counted again, peaks by following every element of every
// device.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/cost/switch_bytes.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/points.hpp"

using namespace reshard;
using testing::any_tensors, testing::dice, testing::links_in_words;

namespace {
constexpr transformer small{.name = "small",
                            .layers = 4,
                            .hidden = 4,
                            .heads = 4,
                            .groups = 2,
                            .head_dim = 1,
                            .ffn = 4,
                            .vocabulary = 4,
                            .tied = true};
constexpr model tiny = make_transformer(small);
constexpr const char* layouts[] = {
    "",          "tp=2",      "pp=2,dp=2", "tp=2,pp=2,dp=2,zero=1", "dp=4,zero=1", "tp=4,dp=2,zero=1",
    "pp=4,dp=2", "tp=2,cp=3", "dp=5"};

using element = std::array<index_t, 7>;  // state, family, coordinate
struct move {
  rank_t src, dst;
  index_t stage;
  std::vector<element> elements;
  bytes_t bytes() const {
    bytes_t sum = 0;
    for (const element& e : elements) sum += e[0] == 0 ? 2 : 4;
    return sum;
  }
};
std::vector<element> elements_of(state_set states, int f, const family_box& where) {
  std::vector<element> all;
  for (const int s : all_states)
    if (states.contains(s))
      testing::each_point(where, [&](const index_t(&x)[family_ndim]) {
        all.push_back({s, f, x[0], x[1], x[2], x[3], x[4]});
      });
  return all;
}
std::set<element> held_elements(const computed_holding& h, rank_t rank, state_set states) {
  std::set<element> all;
  for (const int s : rank >= 0 ? all_states : state_set{})
    if (states.contains(s))
      each_held(h, rank, adam[s].placed_as(), [&](int f, const family_box& b) {
        for (const element& e : elements_of(only(s), f, b)) all.insert(e);
      });
  return all;
}

/// Everything that one device lists, as moves of single stages.
struct moves_of_device {
  std::vector<move> sends, receives, retains;
};
moves_of_device moves_listed(const plan& p, const staged_plan& staged) {
  moves_of_device result;
  const auto whole = [](const std::vector<transfer>& list, std::vector<move>& out) {
    for (const transfer& t : list) out.push_back({t.src, t.dst, 0, elements_of(t.states, t.family, t.where)});
  };
  const auto cut = [](const std::vector<staged_piece>& list, std::vector<move>& out) {
    for (const staged_piece& t : list)
      out.push_back({t.src, t.dst, t.stage,
                     elements_of(t.states, t.tensor.family,
                                 {{{t.tensor.member, t.tensor.member + 1},
                                   {t.tensor.expert, t.tensor.expert + 1},
                                   t.where.dim[0],
                                   t.where.dim[1],
                                   t.where.dim[2]}})});
  };
  if (staged.stages == 1)
    whole(p.sends, result.sends), whole(p.receives, result.receives), whole(p.retains, result.retains);
  else cut(staged.sends, result.sends), cut(staged.receives, result.receives), cut(staged.retains, result.retains);
  return result;
}
bytes_t sum_of(const std::vector<move>& moves) {
  bytes_t sum = 0;
  for (const move& m : moves) sum += m.bytes();
  return sum;
}

/// `after` has what was before as well where sources are kept.
bytes_t peak_of(const std::set<element>& before, const std::set<element>& after, const moves_of_device& moves,
                index_t stages, sources after_use) {
  std::map<element, index_t> last;  // the stage of the last reader; `stages`: kept
  for (const move& m : moves.sends)
    for (const element& e : m.elements) last[e] = std::max(last.contains(e) ? last[e] : 0, m.stage);
  for (const move& m : moves.retains)
    for (const element& e : m.elements) last[e] = stages;
  if (after_use == sources::keep)
    for (const element& e : before) last[e] = stages;
  const auto width = [](const element& e) { return e[0] == 0 ? 2 : 4; };
  bytes_t peak = 0, had = 0, has = 0;
  for (const element& e : before) had += width(e);
  for (const element& e : after) has += width(e);
  for (index_t k = 0; k < stages; ++k) {
    bytes_t live = 0;
    for (const auto& [e, reader] : last) {
      CHECK(before.contains(e));
      if (reader >= k) live += width(e);
    }
    for (const move& m : moves.receives)
      if (m.stage <= k) live += m.bytes();
    peak = std::max(peak, live);
  }
  return std::max({peak, had, has});
}

void check_figures(const switch_figures& f, const std::vector<move>& told, index_t node,
                   const std::map<rank_t, device_figures>& devices) {
  bytes_t inter_node = 0;
  std::set<std::tuple<rank_t, rank_t, index_t>> messages;
  std::map<std::pair<rank_t, rank_t>, bytes_t> links;
  for (const move& m : told) {
    if (node > 0 && m.src / node != m.dst / node) inter_node += m.bytes();
    messages.insert({m.src, m.dst, m.stage});
    links[{m.src, m.dst}] += m.bytes();
  }
  CHECK(f.moved == sum_of(told));
  CHECK(f.relayed == 0);
  CHECK(f.inter_node == inter_node);
  CHECK(f.messages == static_cast<index_t>(messages.size()));
  std::vector<bytes_t> heaviest, listed;
  for (const auto& [link, bytes] : links) heaviest.push_back(bytes);
  std::sort(heaviest.begin(), heaviest.end(), std::greater<>());
  heaviest.resize(std::min<std::size_t>(heaviest.size(), 6));
  for (const link_figures& l : f.busiest) {
    CHECK(links[{l.src, l.dst}] == l.bytes);
    listed.push_back(l.bytes);
  }
  CHECK(listed == heaviest);
  bytes_t retained = 0, max_send = 0, max_receive = 0, peak = 0, floor = 0, excess = 0;
  REQUIRE(f.devices.size() == devices.size());
  for (const device_figures& d : f.devices) {
    const device_figures& wanted = devices.at(d.device);
    CHECK(d.send == wanted.send);
    CHECK(d.receive == wanted.receive);
    CHECK(d.retained == wanted.retained);
    CHECK(d.before == wanted.before);
    CHECK(d.after == wanted.after);
    CHECK(d.peak == wanted.peak);
    CHECK(d.floor() == std::max(wanted.before, wanted.after));
    retained += wanted.retained;
    max_send = std::max(max_send, wanted.send);
    max_receive = std::max(max_receive, wanted.receive);
    peak = std::max(peak, wanted.peak);
    floor = std::max({floor, wanted.before, wanted.after});
    excess = std::max(excess, wanted.peak - std::max(wanted.before, wanted.after));
  }
  CHECK(f.retained == retained);
  CHECK(f.max_send == max_send);
  CHECK(f.max_receive == max_receive);
  CHECK(f.peak == peak);
  CHECK(f.peak_floor == floor);
  CHECK(f.peak_excess == excess);
}
}  // namespace

TEST_CASE("random switches: every figure, of the whole switch and of one device's view, is what the transfers say") {
  dice random(1);
  int staged = 0, between_nodes = 0, above = 0, many_links = 0;
  for (int n = 0; n < 60; ++n) {
    const std::string from_text = layouts[random.below(9)], to_text = layouts[random.below(9)];
    CAPTURE(from_text);
    CAPTURE(to_text);
    const space from(tiny, parse_degrees(from_text)), to(tiny, parse_degrees(to_text));
    const state_set states = n % 3 == 0 ? all_states.masked(static_cast<unsigned>(random.within(1, 15))) : all_states;
    const computed_holding before(from, states), after(to, states);
    const rank_t first = random.below(3), devices = std::max(from.ranks(), first + to.ranks()) + random.below(2);
    std::vector<rank_t> to_devices;
    for (rank_t r = 0; r < to.ranks(); ++r) to_devices.push_back(first + to.ranks() - 1 - r);
    const index_t node = random.below(4), stages = n % 2 == 0 ? 1 : random.within(2, 5);
    const sources after_use = n % 4 < 2 ? sources::release : sources::keep;
    const layout_switch asked(  // of holdings that have more than what moves
        computed_holding(from), computed_holding(to),
        {.to = device_map(to_devices), .on = nodes_of(node), .states = states, .devices = devices});
    figure_collector whole(asked, stages, figures_of::whole_switch, after_use);
    std::vector<move> all;
    std::map<rank_t, device_figures> counted;
    const rank_t told = random.below(devices);
    figure_collector view(asked, stages, figures_of::one_device, after_use);
    std::vector<move> own;
    for (rank_t device = 0; device < devices; ++device) {
      const plan p = make_plan(asked, device);
      const staged_plan staged_p = stage_plan(p, asked, stages);
      if (stages > 1 && device % 2 == 0) whole.add(p, staged_p);
      else whole.add(p);
      const moves_of_device moves = moves_listed(p, staged_p);
      all.insert(all.end(), moves.receives.begin(), moves.receives.end());
      const std::set<element> had = held_elements(before, asked.from_rank(device), states);
      std::set<element> has = held_elements(after, asked.to_rank(device), states);
      if (after_use == sources::keep) has.insert(had.begin(), had.end());
      const auto bytes_of = [](const std::set<element>& set) {
        bytes_t sum = 0;
        for (const element& e : set) sum += e[0] == 0 ? 2 : 4;
        return sum;
      };
      counted[device] = {.device = device,
                         .send = sum_of(moves.sends),
                         .receive = sum_of(moves.receives),
                         .retained = sum_of(moves.retains),
                         .before = bytes_of(had),
                         .after = bytes_of(has),
                         .peak = peak_of(had, has, moves, stages, after_use)};
      above += counted[device].peak > std::max(bytes_of(had), bytes_of(has)) ? 1 : 0;
      if (device != told) continue;
      view.add(p);
      own = moves.receives;
      own.insert(own.end(), moves.sends.begin(), moves.sends.end());
    }
    check_figures(whole.figures(), all, node, counted);
    CHECK(whole.figures().least == whole.figures().moved);
    CHECK(whole.figures().how.stages == stages);
    check_figures(view.figures(), own, node, {{told, counted[told]}});
    CHECK(view.figures().least == sum_of(own));
    if (after_use == sources::keep) CHECK(whole.figures().peak_excess == 0);
    staged += stages > 1 ? 1 : 0;
    between_nodes += whole.figures().inter_node > 0 ? 1 : 0;
    many_links += whole.figures().busiest.size() == 6 ? 1 : 0;
  }
  std::printf(
      "of 60 switches: %d in stages, %d between nodes, %d with more links than are kept; %d devices with a peak above "
      "both sides\n",
      staged, between_nodes, many_links, above);
  for (const int met : {staged, between_nodes, many_links, above}) CHECK_DRAWN(met > 5);
}

TEST_CASE("messages are distinct peers and stages, of a list by stage and then by peer") {
  std::vector<staged_piece> list;
  const auto add = [&](index_t stage, rank_t peer) {
    list.push_back({.stage = stage, .src = 7, .dst = peer, .states = only(1), .where = {{{0, 1}, {0, 1}, {0, 1}}}});
  };
  const auto stage = [](const staged_piece& p) { return p.stage; };
  CHECK(detail::count_messages(list, stage) == 0);
  add(0, 3), add(0, 3), add(0, 5), add(1, 5), add(1, 9), add(2, 3);
  CHECK(detail::count_messages(list, stage) == 5);
  list.back().src = 8;
  list.push_back(list.back());
  list.back().src = 9;  // of whom two send to one
  CHECK(detail::count_messages(list, stage) == 6);
}

TEST_CASE(
    "what is lost and left out is there from the first slot on, beside what has not left yet, in stages and at once") {
  const std::vector<shard> before{{0, "a", bf16, {10}, {0}, {10}},  // goes from device 0 to 2
                                  {0, "w", bf16, {16}, {0}, {4}},   // stays; the rest was device 1's, which is gone
                                  {1, "w", bf16, {16}, {4}, {12}}},
      after{{0, "w", bf16, {16}, {0}, {16}}, {1, "a", bf16, {10}, {0}, {10}}};
  const layout_switch change(before, after,
                             {.to = device_map({0, 2}), .lost = {1}, .lost_elements = when_lost::leave_out});
  for (const index_t stages : {1, 2, 5}) {
    figure_collector whole(change, {relay::never, 1, stages}, 1, figures_of::whole_switch);
    for (rank_t device = 0; device < change.devices(); ++device) whole.add(make_plan(change, device));
    const switch_figures& f = whole.figures();
    CHECK(f.lost == 2 * 12);
    CHECK(f.moved == 2 * 10);
    CHECK(f.retained == 2 * 4);
    CHECK(f.peak_floor == 2 * 16);
    CHECK(f.peak == 2 * (10 + 4 + 12));
  }
}

namespace {
/// A figure of a switch, row by row.
struct counted_rows {
  bytes_t before = 0, after = 0, retained = 0, lacks = 0, lost = 0;  // of one device

  counted_rows(const any_tensors& given, rank_t device) {
    for (const any_tensors::row& row : given.rows) {
      const bool had = row.had.contains(device), needs = row.needs.contains(device);
      before += had ? row.bytes : 0;
      after += needs ? row.bytes : 0;
      retained += had && needs ? row.bytes : 0;
      lost += needs && row.had.empty() ? row.bytes : 0;
      lacks += needs && !had && !row.had.empty() ? row.bytes : 0;
    }
  }
};

/// Sums and maxima over devices, links between them and their messages, of transfers where they arrive.
void check_sums(const switch_figures& f, const any_tensors& given, const std::vector<plan>& plans) {
  const links_in_words words(given.world.on);
  bytes_t moved = 0, retained = 0, between = 0, across = 0, most_in = 0, most_out = 0, lost = 0;
  std::map<std::pair<rank_t, rank_t>, bytes_t> links;
  for (const plan& p : plans) {
    const counted_rows rows(given, p.device);
    moved += rows.lacks, retained += rows.retained;
    most_in = std::max(most_in, total_bytes(p.receives)), most_out = std::max(most_out, total_bytes(p.sends));
    for (const transfer& t : p.receives) {
      links[{t.src, t.dst}] += t.bytes();
      if (words.node_of(t.src) != words.node_of(t.dst)) between += t.bytes();
      if (words.across(t.src, t.dst)) across += t.bytes();
    }
  }
  for (const any_tensors::row& row : given.rows) lost += row.had.empty() && !row.needs.empty() ? row.bytes : 0;
  CHECK(f.moved == moved);
  CHECK(f.least == moved);
  CHECK(f.relayed == 0);
  CHECK(f.created == 0);
  CHECK(f.retained == retained);
  CHECK(f.lost == lost);
  CHECK(f.max_receive == most_in);
  CHECK(f.max_send == most_out);
  CHECK(f.inter_node == (given.world.on.node_count() > 1 ? between : 0));
  CHECK(f.cross_rail == across);
  if (f.how.stages == 1) CHECK(f.messages == std::ssize(links));
  CHECK(f.busiest.size() == std::min<std::size_t>(6, links.size()));
}
}  // namespace

TEST_CASE("any tensors, lost ones among them: every device's figures and their sums, row by row") {
  dice random(2);
  int lost = 0, across = 0;
  for (int n = 0; n < 80; ++n) {
    const any_tensors given(random, false);
    const auto change = given.change();
    const index_t stages = random.coin() ? 1 : random.within(2, 5);
    const sources after_use = random.coin() ? sources::keep : sources::release;
    figure_collector whole(change, stages, figures_of::whole_switch, after_use);
    std::vector<plan> plans;
    for (rank_t d = 0; d < change.devices(); ++d) {
      plans.push_back(make_plan(change, d));
      whole.add(plans.back());
      const counted_rows rows(given, d);
      const device_figures& told = whole.figures().devices.back();
      CHECK(told.device == d);
      CHECK(told.before == rows.before);
      CHECK(told.after == rows.after + (after_use == sources::keep ? rows.before - rows.retained : 0));
      CHECK(told.retained == rows.retained);
      CHECK(told.receive == rows.lacks);
      CHECK(told.lost == rows.lost);
      CHECK(told.created == 0);
      CHECK(told.passed == 0);
      if (stages == 1) {
        const bytes_t sent_alone = detail::leaving_bytes(plans.back());
        const bytes_t in_slot = rows.retained + rows.lacks + rows.lost +
                                (after_use == sources::keep ? rows.before - rows.retained : sent_alone);
        CHECK(told.peak == std::max({rows.before, told.after, in_slot}));
      }
      figure_collector view(change, stages, figures_of::one_device, after_use);
      view.add(plans.back());
      CHECK(view.figures().lost == rows.lost);
      CHECK(view.figures().moved == rows.lacks + total_bytes(plans.back().sends));
      CHECK(view.figures().least == rows.lacks + total_bytes(plans.back().sends));
      CHECK(view.figures().relayed == 0);
      CHECK(view.figures().peak == told.peak);
    }
    check_sums(whole.figures(), given, plans);
    lost += whole.figures().lost > 0 ? 1 : 0, across += whole.figures().cross_rail > 0 ? 1 : 0;
  }
  std::printf("%d with lost rows, %d across rails\n", lost, across);
  CHECK_DRAWN(lost > 5);
  CHECK_DRAWN(across > 5);
}

namespace {
box<3> any_box(dice& random) {
  box<3> b;
  for (interval& i : b.dim) i.begin = random.below(4), i.end = i.begin + random.within(1, 3);
  return b;
}
index_t coordinates_in(const std::vector<box<3>>& boxes) {
  std::set<std::array<index_t, 3>> in;
  for (const box<3>& b : boxes) testing::each_point(b, [&](const index_t(&x)[3]) { in.insert({x[0], x[1], x[2]}); });
  return std::ssize(in);
}
}  // namespace

TEST_CASE("a union's volume is the number of its coordinates, however boxes lie") {
  dice random(3);
  int overlapping = 0, apart = 0;
  for (int n = 0; n < 300; ++n) {
    std::vector<box<3>> boxes;
    index_t volumes = 0;
    for (index_t i = random.within(1, 7); i > 0; --i)
      boxes.push_back(any_box(random)), volumes += boxes.back().volume();
    const index_t wanted = coordinates_in(boxes);
    std::vector<box<3>> copy = boxes;
    CHECK(detail::union_volume(std::span(copy)) == wanted);
    CHECK(detail::union_volume(std::span(boxes), 1) == wanted);
    ++(wanted < volumes ? overlapping : apart);
  }
  CHECK_DRAWN(overlapping > 50);
  CHECK_DRAWN(apart > 50);
}

TEST_CASE("what leaves is what is sent and not retained, each coordinate once in every state of its family") {
  dice random(4);
  for (int n = 0; n < 100; ++n) {
    plan p;
    std::map<std::pair<std::uint32_t, int>, std::vector<box<3>>> sent, both;
    bytes_t retained = 0, wanted = 0;
    const auto add = [&](std::vector<transfer>& list, const box<3>& b) {
      const state_set states = random.coin() ? adam.named("master") : adam.named("exp_avg") | adam.named("exp_avg_sq");
      const int family = static_cast<int>(random.below(2));
      list.push_back({.src = 0, .dst = 1, .states = states, .family = family, .where = {}});
      list.back().where = {{{0, 1}, {0, 1}, b.dim[0], b.dim[1], b.dim[2]}};
      both[{states.bits(), family}].push_back(b);
      return states.bytes_per_element();
    };
    for (index_t i = random.below(6); i > 0; --i) add(p.sends, any_box(random));
    for (index_t row = 0; row < 3; ++row)  // disjoint
      if (random.coin()) {
        const box<3> b{{{row, row + 1}, {0, random.within(1, 4)}, {0, random.within(1, 4)}}};
        retained += b.volume() * add(p.retains, b);
      }
    for (const auto& [key, boxes] : both)
      wanted += coordinates_in(boxes) * (key.first == adam.named("master").bits() ? 4 : 8);
    CHECK(detail::leaving_bytes(p) == wanted - retained);
  }
}

TEST_CASE("of links the six with the most bytes, of equal ones those that were added first") {
  dice random(5);
  cluster on = nodes_of(4);
  int full = 0;
  for (int n = 0; n < 60; ++n) {
    switch_figures f;
    std::vector<std::tuple<bytes_t, index_t, rank_t, rank_t>> all;  // less bytes, when it came
    bytes_t between = 0, across = 0;
    for (index_t i = 0, links = random.below(12); i < links; ++i) {
      const link_figures one{random.below(12), random.below(12), random.within(1, 5)};
      detail::add_link(f, one, on, n % 3 == 0 ? 0 : 4);
      all.emplace_back(-one.bytes, i, one.src, one.dst);
      const bool other_node = one.src / 4 != one.dst / 4;
      between += n % 3 != 0 && other_node ? one.bytes : 0;
      across += other_node && one.src % 4 != one.dst % 4 ? one.bytes : 0;
    }
    std::sort(all.begin(), all.end());
    CHECK(f.inter_node == between);
    CHECK(f.cross_rail == across);
    REQUIRE(f.busiest.size() == std::min<std::size_t>(all.size(), 6));
    for (std::size_t i = 0; i < f.busiest.size(); ++i)
      CHECK(std::tuple(-f.busiest[i].bytes, f.busiest[i].src, f.busiest[i].dst) ==
            std::tuple(std::get<0>(all[i]), std::get<2>(all[i]), std::get<3>(all[i])));
    full += all.size() > 6 ? 1 : 0;
  }
  CHECK_DRAWN(full > 10);
}

TEST_CASE("what is created is there beside what has not left yet, in one stage") {
  const space from(tiny, parse_degrees("tp=2")), to(tiny, parse_degrees("tp=2,pad=5"));
  const layout_switch change(from, to, {.to = device_map(std::vector<rank_t>{1, 0})});  // what is cut changes places
  for (const sources after_use : {sources::release, sources::keep}) {
    figure_collector whole(change, 1, figures_of::whole_switch, after_use);
    for (rank_t d = 0; d < 2; ++d) {
      whole.add(make_plan(change, d));
      const device_figures& told = whole.figures().devices.back();
      const bytes_t before = held_bytes(change.from(), d, change.states()),
                    after = held_bytes(change.to(), 1 - d, change.states());
      CHECK(told.before == before);
      CHECK(told.peak == before + after - told.retained);
      CHECK(told.receive + told.created == after - told.retained);
    }
    CHECK(whole.figures().created > 0);
    CHECK(whole.figures().moved == whole.figures().least);
  }
}
