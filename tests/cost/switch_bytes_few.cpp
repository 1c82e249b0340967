// SPDX-License-Identifier: Apache-2.0
// Figures of switches of a few rows, by hand: unions, what leaves, links, sums over devices, messages, peaks, and how
// long what nobody reads stays. cost/switch_bytes.cpp throws many.
#include <doctest/doctest.h>

#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/cost/switch_bytes.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/space/listed_holding.hpp>

using namespace reshard;

namespace {

using shards = std::vector<shard>;
index_t union_of(std::vector<box<2>> boxes, int dim = 0) { return detail::union_volume(std::span(boxes), dim); }
transfer moved(rank_t src, rank_t dst, state_set states, int family, interval rows, interval columns) {
  return {src, dst, states, family, {{{0, 1}, {0, 1}, {0, 1}, rows, columns}}};
}
shard row_of(rank_t rank, const char* name, index_t begin, index_t end, index_t all) {
  return {rank, name, bf16, {all}, {begin}, {end - begin}};
}

/// Halves of eight elements that change places; device 2 keeps four of its own.
const std::vector<shard> before = {row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8), row_of(2, "k", 0, 4, 4)},
                         after = {row_of(0, "w", 4, 8, 8), row_of(1, "w", 0, 4, 8), row_of(2, "k", 0, 4, 4)};
const layout_switch swapped(before, after, {.on = nodes_of(1)});
/// Device 0 has what device 1 keeps and nobody reads, and gets eight elements from device 2.
const layout_switch unread(shards{row_of(0, "v", 0, 4, 4), row_of(1, "v", 0, 4, 4), row_of(2, "x", 0, 8, 8)},
                           shards{row_of(0, "x", 0, 8, 8), row_of(1, "v", 0, 4, 4)}, placement{});

template <typename Switch>
switch_figures all_of(const Switch& change, index_t stages, sources after_use = sources::release,
                      bytes_t budget = no_budget) {
  figure_collector whole(change, {.stages = stages}, 1, figures_of::whole_switch, after_use, budget);
  for (rank_t d = 0; d < change.devices(); ++d) whole.add(make_plan(change, d));
  return whole.figures();
}
template <typename Switch>
switch_figures view_of(const Switch& change, rank_t device, const routing& how, index_t phases = 1) {
  figure_collector view(change, how, phases, figures_of::one_device);
  view.add(make_plan(change, device, how));
  return view.figures();
}

}  // namespace

TEST_CASE("a union's coordinates count once: apart, touching, overlapping, interlocked, inside") {
  CHECK(union_of({{{{0, 2}, {0, 3}}}}) == 6);
  CHECK(union_of({{{{0, 2}, {0, 3}}}, {{{5, 6}, {0, 3}}}}) == 9);
  CHECK(union_of({{{{0, 2}, {0, 3}}}, {{{2, 4}, {0, 3}}}}) == 12);
  CHECK(union_of({{{{1, 3}, {0, 3}}}, {{{0, 2}, {1, 5}}}}) == 6 + 8 - 2);
  CHECK(union_of({{{{0, 9}, {0, 1}}}, {{{1, 2}, {5, 6}}}, {{{3, 4}, {0, 2}}}, {{{8, 12}, {0, 1}}}}) == 9 + 1 + 1 + 3);
  CHECK(union_of({{{{0, 4}, {0, 4}}}, {{{1, 2}, {1, 2}}}, {{{0, 4}, {0, 4}}}}) == 16);
  CHECK(union_of({{{{5, 6}, {0, 3}}}, {{{0, 2}, {0, 3}}}, {{{1, 7}, {0, 1}}}}) == 3 + 6 + 6 - 1 - 1);
  CHECK(union_of({{{{0, 2}, {0, 3}}}, {{{0, 2}, {3, 4}}}}, 1) == 8);
  CHECK(union_of({{{{0, 2}, {0, 3}}}, {{{1, 2}, {2, 4}}}}, 2) == 7);
}

TEST_CASE("what is sent and not retained counts once for every state, by states and family") {
  const state_set one = adam.named("exp_avg"), two = adam.named("exp_avg") | adam.named("exp_avg_sq");
  plan p;
  CHECK(detail::leaving_bytes(p) == 0);
  p.sends = {moved(0, 1, one, 0, {0, 2}, {0, 4}), moved(0, 2, one, 0, {1, 3}, {0, 4}),
             moved(0, 1, two, 0, {0, 2}, {0, 4}), moved(0, 1, one, 1, {0, 1}, {0, 5})};
  CHECK(detail::leaving_bytes(p) == 4 * 12 + 8 * 8 + 4 * 5);
  p.retains = {moved(0, 0, one, 0, {2, 4}, {0, 4}), moved(0, 0, two, 1, {0, 1}, {0, 5})};
  CHECK(detail::leaving_bytes(p) == 4 * 8 + 8 * 8 + 4 * 5);
}

TEST_CASE("messages are told apart by source, destination and stage") {
  struct sent {
    rank_t src, dst;
    index_t stage;
  };
  const auto count = [](const std::vector<sent>& list) {
    return detail::count_messages(list, [](const sent& s) { return s.stage; });
  };
  CHECK(count({}) == 0);
  CHECK(count({{1, 2, 0}}) == 1);
  CHECK(count({{1, 2, 0}, {1, 2, 0}, {1, 3, 0}, {1, 3, 1}, {1, 3, 1}, {2, 3, 1}}) == 4);
}

TEST_CASE("sums and maxima over devices, and what a device has beside TO's where sources are kept") {
  const device_figures first{0, 10, 25, 3, 4, 50, 40, 70, 5, 6}, second{1, 20, 7, 8, 9, 30, 60, 65, 1, 2};
  CHECK(first.floor() == 50);
  CHECK(second.floor() == 60);
  CHECK(detail::kept_beside(first, sources::keep) == 47);
  CHECK(detail::kept_beside(first, sources::release) == 0);
  switch_figures f;
  CHECK((f.phases == 1 && f.after_use == sources::release && f.moved == 0 && f.messages == 0 && !f.unread_kept));
  detail::add_device(f, first), detail::add_device(f, second);
  CHECK((f.retained == 11 && f.moved == 19 + 5 && f.relayed == 8 && f.created == 13));
  CHECK(f.least == (40 - 3 - 4 - 5) + (60 - 8 - 9 - 1));
  CHECK((f.max_send == 20 && f.max_receive == 25 && f.peak == 70 && f.peak_floor == 60 && f.peak_excess == 20));
  CHECK((f.devices.size() == 2 && f.devices[0].device == 0 && f.devices[1].device == 1 && f.devices[1].lost == 1));
  switch_figures kept;
  kept.after_use = sources::keep;
  detail::add_device(kept, {0, 0, 0, 3, 0, 10, 27, 27, 0, 0});
  CHECK(kept.least == 27 - 7 - 3);
  f.how.stages = 5, f.phases = 3;
  CHECK(f.slots() == 7);
}

TEST_CASE(
    "six links are kept, those with the most bytes, of equal ones the first; bytes between nodes and rails are "
    "summed") {
  cluster on = nodes_of(4);
  switch_figures f;
  const auto add = [&](rank_t src, rank_t dst, bytes_t bytes, index_t node = 4) {
    detail::add_link(f, {src, dst, bytes}, on, node);
  };
  const auto kept = [&] {
    std::vector<std::tuple<rank_t, rank_t, bytes_t>> all;
    for (const link_figures& one : f.busiest) all.emplace_back(one.src, one.dst, one.bytes);
    return all;
  };
  using links = std::vector<std::tuple<rank_t, rank_t, bytes_t>>;
  add(0, 1, 5), add(0, 4, 3), add(1, 4, 8), add(4, 7, 5), add(5, 9, 1), add(8, 0, 2);
  CHECK(kept() == links{{1, 4, 8}, {0, 1, 5}, {4, 7, 5}, {0, 4, 3}, {8, 0, 2}, {5, 9, 1}});
  CHECK(f.inter_node == 3 + 8 + 1 + 2);
  CHECK(f.cross_rail == 8);
  add(2, 3, 1);
  CHECK(kept().back() == std::tuple<rank_t, rank_t, bytes_t>(5, 9, 1));
  add(3, 2, 2);
  CHECK(kept() == links{{1, 4, 8}, {0, 1, 5}, {4, 7, 5}, {0, 4, 3}, {8, 0, 2}, {3, 2, 2}});
  add(0, 9, 20, 0);  // no nodes are told
  CHECK(f.inter_node == 14);
  CHECK(f.cross_rail == 28);
  CHECK(f.busiest.size() == 6);
  CHECK(f.busiest[0].bytes == 20);
}

TEST_CASE("halves that change places: in one stage each device holds both, in more a part of one beside") {
  for (const auto& one : {std::pair<index_t, bytes_t>{1, 8}, {2, 4}, {3, 4}, {4, 2}, {8, 2}}) {
    const index_t stages = one.first;
    const bytes_t excess = one.second;
    CAPTURE(stages);
    const switch_figures f = all_of(swapped, stages);
    CHECK((f.moved == 16 && f.least == 16 && f.retained == 8 && f.relayed == 0 && f.lost == 0 && f.created == 0));
    CHECK((f.max_send == 8 && f.max_receive == 8 && f.peak_floor == 8));
    CHECK((f.peak == 8 + excess && f.peak_excess == excess));
    CHECK(f.messages == 2 * (stages == 8 ? 4 : stages));
    CHECK((f.inter_node == 16 && f.busiest.size() == 2 && f.how.stages == stages && f.slots() == stages));
    REQUIRE(f.devices.size() == 3);
    const device_figures &zero = f.devices[0], &two = f.devices[2];
    CHECK((zero.device == 0 && zero.send == 8 && zero.receive == 8 && zero.before == 8 && zero.after == 8));
    CHECK((two.peak == 8 && two.retained == 8 && two.send == 0 && two.after == 8));
    CHECK(!f.unread_kept);
    figure_collector cut(swapped, stages, figures_of::whole_switch);
    for (rank_t d = 0; d < 3; ++d) {
      const plan p = make_plan(swapped, d);
      cut.add(p, stage_plan(p, swapped, stages));
    }
    CHECK((cut.figures().peak == f.peak && cut.figures().messages == f.messages));
  }
  const switch_figures kept = all_of(swapped, 2, sources::keep);
  CHECK((kept.peak == 16 && kept.peak_floor == 16 && kept.peak_excess == 0 && kept.devices[0].after == 16));
  CHECK((kept.least == 16 && kept.devices[2].after == 8));
  CHECK(all_of(swapped, 1, sources::keep).peak == 16);
}

TEST_CASE("one device's view counts what leaves it too") {
  for (const index_t stages : {1, 2}) {
    const switch_figures f = view_of(swapped, 0, {.stages = stages});
    CHECK((f.moved == 16 && f.least == 16 && f.messages == 2 * stages && f.inter_node == 16 && f.relayed == 0));
    REQUIRE(f.busiest.size() == 2);
    CHECK((f.busiest[0].src == 1 && f.busiest[1].src == 0 && f.busiest[1].bytes == 8));
  }
  CHECK(view_of(swapped, 2, {}).moved == 0);
}

TEST_CASE("what nobody reads stays as long as the budget lets it: till the sources of stage u - 1 go") {
  const auto stays = [](index_t stages, bytes_t budget, sources after_use = sources::release) {
    return all_of(unread, stages, after_use, budget).unread_kept;
  };
  // beside it 16 bytes come, which is the most; in each of four stages 4
  CHECK(stays(1, 7) == 0);
  CHECK(stays(1, 8) == 1);
  CHECK(stays(4, 3) == 2);
  CHECK(stays(4, 4) == 3);
  CHECK(stays(4, 7) == 3);
  CHECK(stays(4, 8) == 4);
  CHECK(stays(4, no_budget) == 4);
  CHECK(stays(4, 1, sources::keep) == 4);
  CHECK(stays(1, no_budget) == 1);
  CHECK(all_of(unread, 4).peak == 16);
  CHECK(all_of(unread, 4, sources::keep).peak == 24);
  CHECK(all_of(unread, 1, sources::keep).peak == 24);
}

TEST_CASE("with relay what is passed on counts as such, where it arrives, and in a view also where it leaves") {
  const layout_switch change(shards{{0, "w", bf16, {4, 4}, {0, 0}, {4, 4}}, {1, "x", bf16, {4}, {0}, {4}}},
                             shards{{0, "x", bf16, {4}, {0}, {4}},
                                    {1, "w", bf16, {4, 4}, {0, 0}, {4, 4}},
                                    {2, "w", bf16, {4, 4}, {0, 0}, {4, 4}}},
                             placement{.from = device_map({0, 2}), .to = device_map({2, 3, 4}), .on = nodes_of(2)});
  const routing how{relay::always, 1, 2};
  figure_collector whole(change, how, 3, figures_of::whole_switch);
  for (rank_t d = 0; d < 5; ++d) whole.add(make_plan(change, d, how));
  const switch_figures& f = whole.figures();
  CHECK((f.moved == 64 && f.relayed == 16 && f.least == 64 && f.retained == 8));
  CHECK((f.slots() == 4 && f.devices[2].passed == 16 && f.devices[2].receive == 16 && f.devices[2].send == 32));
  CHECK(f.messages == 2 * 5);
  CHECK(f.inter_node == 16 + 16 + 16 + 16);
  const switch_figures first = view_of(change, 0, how, 3), second = view_of(change, 2, how, 3);
  CHECK((first.relayed == 16 && first.moved == 16 && first.least == 16 && first.messages == 2 * 2));
  CHECK((second.relayed == 16 && second.moved == 32 && second.least == 32 && second.messages == 2 * 3));
}

TEST_CASE(
    "what is lost counts once for the switch, and where it is wanted in a view; it is there from the first slot") {
  const layout_switch change(shards{row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8)},
                             shards{row_of(0, "w", 0, 8, 8), row_of(1, "w", 0, 8, 8)},
                             placement{.to = device_map({0, 2}), .lost = {1}, .lost_elements = when_lost::leave_out});
  for (const index_t stages : {1, 2}) {
    const switch_figures f = all_of(change, stages);
    CHECK((f.lost == 8 && f.moved == 8 && f.retained == 8 && f.least == 8));
    CHECK((f.devices[0].lost == 8 && f.devices[2].lost == 8 && f.devices[0].peak == 16 && f.devices[2].peak == 16));
    CHECK((f.peak_floor == 16 && f.devices[1].before == 0));
    const switch_figures view = view_of(change, 2, {.stages = stages});
    CHECK((view.lost == 8 && view.moved == 8));
  }
}

TEST_CASE("what is lost is there beside what has not left yet") {
  const layout_switch change(shards{row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8), row_of(0, "g", 0, 3, 3)},
                             shards{row_of(0, "w", 0, 4, 8), row_of(0, "w", 4, 8, 8), row_of(1, "g", 0, 3, 3)},
                             placement{.to = device_map({0, 2}), .lost = {1}, .lost_elements = when_lost::leave_out});
  for (const index_t stages : {1, 3}) {
    const device_figures zero = all_of(change, stages).devices[0];
    CHECK((zero.before == 14 && zero.after == 16 && zero.retained == 8 && zero.lost == 8 && zero.peak == 22));
  }
}
