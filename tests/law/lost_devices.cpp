// SPDX-License-Identifier: Apache-2.0
// Switches with lost and empty devices against the oracle: random ones, every device, every element. Nothing comes from
// these, every element with another source arrives once, the others are told, each once; and the sources are those that
// the formula gives where lost and empty devices are left out of the list of shards.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/algebra/region.hpp>
#include <reshard/cost/switch_bytes.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../oracle/plan_check.hpp"
#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::to_model;

namespace {

/// How many switches had what.
struct features {
  int switches = 0, refused = 0, whole = 0, all_lost = 0, several = 0, nodes = 0, lists = 0, unused = 0, replicas = 0;
  int empty = 0, empty_alone = 0, empty_receives = 0;  // devices; switches without a lost one; devices of TO
  long elements = 0, wrong = 0, lost_bytes = 0;
  void print() const {
    std::printf(
        "{\"switches\":%d,\"something_lost\":%d,\"nothing_lost\":%d,\"all_lost\":%d,\"several\":%d,\"nodes\":%d,"
        "\"lists\":%d,\"devices_of_nobody\":%d,\"twice_wanted\":%d,\"elements\":%ld,\"lost_bytes\":%ld,\"wrong\":%ld,"
        "\"empty\":%d,\"empty_alone\":%d,\"empty_receives\":%d}\n",
        switches, refused, whole, all_lost, several, nodes, lists, unused, replicas, elements, lost_bytes, wrong, empty,
        empty_alone, empty_receives);
  }
};

std::vector<rank_t> numbers(const std::vector<long>& list) { return {list.begin(), list.end()}; }

/// Devices that hold nothing of FROM.
struct without {
  std::set<long> lost, empty;
  std::set<long> all() const {
    std::set<long> both = lost;
    both.insert(empty.begin(), empty.end());
    return both;
  }
};

/// Some devices of FROM, seldom all, hold nothing: of two switches in three all that do are lost, or some are empty, or
/// all are. TO's ranks on the lost go to devices that nobody had, those on the empty stay.
without lose_some(dice& random, oracle::switch_case& c, features& seen) {
  without some;
  std::set<long>& lost = some.lost;
  const long many = random.below(12) == 0 ? c.from.world : random.within(1, std::min(c.from.world, 3L));
  while (static_cast<long>(lost.size()) < many)
    lost.insert(c.from_devices[static_cast<std::size_t>(random.below(c.from.world))]);
  long fresh = 0;
  for (const std::vector<long>* list : {&c.from_devices, &c.to_devices})
    for (const long device : *list) fresh = std::max(fresh, device + 1);
  if (random.below(4) == 0) lost.insert(fresh++), ++seen.unused;
  const long empty_of_two = seen.switches % 3;
  for (auto at = lost.begin(); at != lost.end();)
    if (random.below(2) < empty_of_two) some.empty.insert(*at), at = lost.erase(at);
    else ++at;
  seen.empty += static_cast<int>(some.empty.size()), seen.empty_alone += lost.empty() ? 1 : 0;
  for (const long device : c.to_devices) seen.empty_receives += some.empty.count(device) != 0 ? 1 : 0;
  for (long& device : c.to_devices)
    if (lost.count(device) != 0) device = fresh++;
  seen.all_lost += many == c.from.world ? 1 : 0;
  seen.several += many > 1 ? 1 : 0;
  return some;
}

/// Boxes of tensors in the oracle's terms, once per state.
void add_pieces(std::vector<oracle::piece>& pieces, const space& to, rank_t name_of, rank_t src, rank_t dst,
                state_set states, int f, const family_box& b) {
  for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
    for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert) {
      oracle::piece p{src, dst, oracle::state::param, to.tensor_on({f, member, expert}, name_of), {}, {}};
      for (int i = 2; i < family_ndim; ++i) {
        p.dims.push_back(to.family_at(f).extent[i]);
        p.box.push_back({b.dim[i].begin, b.dim[i].end});
      }
      for (const int i : states) {
        p.st = oracle::all_states[i];
        pieces.push_back(p);
      }
    }
}

/// The same shards without those of lost ranks: a list per tensor and part, of any holding.
std::vector<shard> shards_of(const space& s, const computed_holding& h, const auto& dead) {
  std::vector<shard> shards;
  for (rank_t rank = 0; rank < s.ranks(); ++rank)
    for (const int i : dead(rank) ? state_set{} : all_states)
      each_held(h, rank, adam[i].placed_as(), [&](int f, const family_box& b) {
        const family& of = s.family_at(f);
        for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
          for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert)
            for (index_t part = b.dim[2].begin; part < b.dim[2].end; ++part) {
              const index_t rows = of.extent[3], columns = of.extent[4], row = part * rows + b.dim[3].begin;
              shard one{.rank = rank,
                        .tensor = s.tensor_on({f, member, expert}, rank),
                        .type = adam[i].type,
                        .whole = {columns},
                        .offset = {b.dim[4].begin},
                        .shape = {b.dim[4].size()},
                        .state = std::string(adam[i].name)};
              if (!of.vector()) {
                one.whole = {of.extent[2] * rows, columns};
                one.offset = {row, b.dim[4].begin};
                one.shape = {b.dim[3].size(), b.dim[4].size()};
              }
              shards.push_back(one);
            }
      });
  return shards;
}

template <typename Switch>
void check_switch(const Switch& change, const oracle::switch_case& c, const without& some, const space& to,
                  features& seen) {
  std::vector<oracle::piece> pieces, left_out;
  std::vector<transfer> sent, received;
  figure_collector figures(change, 1, figures_of::whole_switch);
  bytes_t lost_of_plans = 0;
  for (rank_t device = 0; device < change.devices(); ++device) {
    const plan p = make_plan(change, device);
    figures.add(p);
    sent.insert(sent.end(), p.sends.begin(), p.sends.end());
    received.insert(received.end(), p.receives.begin(), p.receives.end());
    lost_of_plans += total_bytes(p.lost);
    for (const std::vector<transfer>* list : {&p.receives, &p.retains})
      for (const transfer& t : *list)
        add_pieces(pieces, to, change.to_rank(t.dst), t.src, t.dst, t.states, t.family, t.where);
    if (some.lost.count(device) != 0) CHECK(p == plan{device, {}, {}, {}, {}, {}});
    if (some.empty.count(device) != 0) CHECK((p.sends.empty() && p.retains.empty()));
  }
  const auto before = [](const transfer& a, const transfer& b) { return precedes(a, b); };
  std::sort(sent.begin(), sent.end(), before);
  std::sort(received.begin(), received.end(), before);
  CHECK(sent == received);
  each_lost(change, [&](const lost_box& b) {
    rank_t rank = -1;
    change.to().owners(b.family, (b.states & parameter_states).empty() ? role::optimizer : role::parameter, b.where,
                       [&](const family_box&, const Holders auto& holders) {
                         rank = holders[0];
                         CHECK(holders.count() == b.wanted);
                       });
    add_pieces(left_out, to, rank, 0, 0, b.states, b.family, b.where);
  });
  oracle::totals sums;
  for (const std::string& fault :
       check_plan(c.m, c.from, c.to, c.from_devices, c.to_devices, pieces, sums,
                  {oracle::state::param, oracle::state::master, oracle::state::exp_avg, oracle::state::exp_avg_sq},
                  some.all(), left_out))
    FAIL_CHECK(fault);
  const switch_volume volume = volume_of(change);
  CHECK(volume == switch_volume{sums.least_bytes, sums.retained_bytes, 0, sums.lost_wanted});
  CHECK(sums.moved_bytes == sums.least_bytes);
  CHECK(lost_bytes(change) == sums.lost_bytes);
  CHECK(lost_of_plans == sums.lost_wanted);
  CHECK(figures.figures().least == sums.least_bytes);
  CHECK(figures.figures().moved == sums.least_bytes);
  CHECK(figures.figures().lost == sums.lost_bytes);
  seen.elements += sums.needed, seen.wrong += sums.wrong, seen.lost_bytes += sums.lost_bytes;
  seen.replicas += sums.lost_wanted > sums.lost_bytes ? 1 : 0;
}

features check_random_switches(int count) {
  oracle::generator generator(testing::seed() + 40);
  dice random(41);
  features seen;
  constexpr index_t nodes[] = {0, 0, 0, 1, 2, 3, 4};
  for (; seen.switches < count; ++seen.switches) {
    oracle::switch_case c = generator.next_switch();
    const without some = lose_some(random, c, seen);
    const std::set<long> lost = some.all();
    const std::string description = c.describe();
    CAPTURE(description);
    const space from(to_model(c.m), parse_degrees(c.from_text)), to(to_model(c.m), parse_degrees(c.to_text));
    const device_map from_devices(numbers(c.from_devices)), to_devices(numbers(c.to_devices));
    const index_t node = nodes[random.below(7)];
    const placement placed{.from = from_devices,
                           .to = to_devices,
                           .on = nodes_of(node),
                           .devices = *lost.rbegin() + 1,
                           .lost = {some.lost.begin(), some.lost.end()},
                           .lost_elements = when_lost::leave_out,
                           .empty = {some.empty.begin(), some.empty.end()}};
    const layout_switch change(from, to, placed);
    check_switch(change, c, some, to, seen);
    seen.nodes += node != 0 ? 1 : 0;

    placement refusing = placed;
    refusing.lost_elements = when_lost::refuse;
    const bool something = lost_bytes(change) > 0;
    ++(something ? seen.refused : seen.whole);
    CHECK((testing::refused([&] { require_nothing_lost(layout_switch(from, to, refusing)); }) != "accepted") ==
          something);
    if (seen.switches % 2 == 0) continue;
    ++seen.lists;
    const tensor_table table(from.model());
    const listed_holding all(table, shards_of(from, change.from(), [](rank_t) { return false; }), from.ranks());
    const layout_switch of_lists(all, to, placed);
    check_switch(of_lists, c, some, to, seen);
    if (something) continue;
    // holding nothing is the same as being lost, or empty
    const listed_holding living(
        table, shards_of(from, change.from(), [&](rank_t r) { return lost.count(from_devices.device_of(r)) != 0; }),
        from.ranks());
    const layout_switch of_nothing(living, to, {from_devices, to_devices, nodes_of(node), all_states, placed.devices});
    for (rank_t device = 0; device < change.devices(); ++device)
      CHECK(make_plan(of_nothing, device) == make_plan(of_lists, device));
  }
  return seen;
}
}  // namespace

namespace {

/// By family, what a holding has on a rank.
std::vector<std::vector<family_box>> boxes_on(const computed_holding& h, rank_t rank, role r) {
  std::vector<std::vector<family_box>> boxes(static_cast<std::size_t>(h.families()));
  each_held(h, rank, r, [&](int f, const family_box& b) { boxes[static_cast<std::size_t>(f)].push_back(b); });
  return boxes;
}

/// What a large switch with lost devices brings one device, against a look at what each of all ranks has; rank r of
/// FROM is on device r.
struct looked_up {
  index_t transfers = 0, lost = 0, wrong = 0;  // lost: elements

  looked_up(const computed_switch& change, const std::vector<rank_t>& gone, rank_t device, role r) : gone_(gone) {
    const plan p = make_plan(change, device);
    const std::vector<std::vector<family_box>> mine = boxes_on(change.to(), change.to_rank(device), r);
    std::vector<region<family_ndim>> wanted(mine.size()), left(mine.size());
    for (std::size_t f = 0; f < mine.size(); ++f)
      for (const family_box& b : mine[f]) wanted[f].add(b);
    left = wanted;
    std::map<rank_t, std::vector<std::vector<family_box>>> of_source;
    const auto take = [&](const transfer& t) {  // of what is wanted, once
      region<family_ndim>& of = left[static_cast<std::size_t>(t.family)];
      const index_t before = of.volume();
      of.remove(t.where);
      wrong += before - of.volume() == t.where.volume() && t.dst == device ? 0 : 1;
    };
    for (const std::vector<transfer>* list : {&p.receives, &p.retains})
      for (const transfer& t : *list) {
        ++transfers;
        take(t);
        wrong += is_gone(t.src) ? 1 : 0;
        if (of_source.count(t.src) == 0) of_source[t.src] = boxes_on(change.from(), t.src, r);
        const std::vector<family_box>& has = of_source[t.src][static_cast<std::size_t>(t.family)];
        wrong += std::any_of(has.begin(), has.end(), [&](const family_box& b) { return b.contains(t.where); }) ? 0 : 1;
      }
    std::vector<region<family_ndim>> told(mine.size());
    for (const transfer& t : p.lost) take(t), told[static_cast<std::size_t>(t.family)].add(t.where);
    for (const region<family_ndim>& rest : left) wrong += rest.empty() ? 0 : 1;
    const std::vector<region<family_ndim>> with_nobody = without_holders(change, wanted, r);
    for (std::size_t f = 0; f < mine.size(); ++f) {
      wrong += same_set(told[f], with_nobody[f]) ? 0 : 1;
      lost += with_nobody[f].volume();
    }
    check_senders(change, p, device);
  }

 private:
  /// Of what is wanted the rest that no living rank of FROM has: all of them are asked.
  std::vector<region<family_ndim>> without_holders(const computed_switch& change,
                                                   std::vector<region<family_ndim>> wanted, role r) const {
    std::vector<std::vector<family_box>> there(wanted.size());
    for (rank_t rank = 0; rank < change.from().ranks(); ++rank) {
      if (is_gone(rank)) continue;
      each_held(change.from(), rank, r, [&](int f, const family_box& b) {
        const auto at = static_cast<std::size_t>(f);
        for (const family_box& w : wanted[at].boxes())
          if (intersects(w, b)) return there[at].push_back(b);
      });
    }
    for (std::size_t f = 0; f < wanted.size(); ++f) {
      std::sort(there[f].begin(), there[f].end(), [](const auto& a, const auto& b) { return precedes(a, b); });
      there[f].erase(std::unique(there[f].begin(), there[f].end()), there[f].end());
      for (const family_box& b : there[f]) wanted[f].remove(b);
    }
    return wanted;
  }
  /// Sources send it what it expects of them.
  void check_senders(const computed_switch& change, const plan& p, rank_t device) {
    std::set<rank_t> asked;
    for (const transfer& t : p.receives)
      if (asked.size() < 8 && asked.insert(t.src).second) {
        std::vector<transfer> sent = make_plan(change, t.src).sends, received = p.receives;
        std::erase_if(sent, [&](const transfer& other) { return other.dst != device; });
        std::erase_if(received, [&](const transfer& other) { return other.src != t.src; });
        wrong += sent == received ? 0 : 1;
      }
  }
  bool is_gone(rank_t device) const { return std::find(gone_.begin(), gone_.end(), device) != gone_.end(); }

  const std::vector<rank_t>& gone_;
};

}  // namespace

TEST_CASE("eight of 16,384 ranks are lost: one rank's plan against a look at what each of all has") {
  const std::vector<rank_t> node = {8, 9, 10, 11, 12, 13, 14, 15},
                            scattered = {1, 202, 403, 604, 805, 1006, 1207, 1408},
                            holders = {2, 6, 10, 14, 18, 22, 26, 30};
  index_t transfers = 0, losing = 0;
  for (const bool sharded : {false, true}) {
    const std::string zero = sharded ? ",zero=1" : "";
    const space from(models::qwen3_235b_a22b, parse_degrees("tp=4,pp=8,dp=512,ep=16,split=account" + zero)),
        to(models::qwen3_235b_a22b, parse_degrees("tp=8,pp=16,dp=64,ep=8,split=account" + zero));
    std::vector<rank_t> seats;
    for (rank_t rank = 0; rank < to.ranks(); ++rank) seats.push_back(2048 + rank);
    for (const std::vector<rank_t>* lost : {&node, &scattered, &holders}) {
      const computed_switch change(from, to,
                                   {.to = device_map(seats),
                                    .states = sharded ? optimizer_states : parameter_states,
                                    .lost = *lost,
                                    .lost_elements = when_lost::leave_out});
      CHECK(change.devices() == 16384);
      std::vector<rank_t> devices = {2048, 2125};
      for (rank_t d = 2048; sharded && devices.size() < 5 && d < 4096; ++d)
        if (!make_plan(change, d).lost.empty()) devices.push_back(d);
      for (const rank_t device : devices) {
        CAPTURE(sharded);
        CAPTURE(device);
        const looked_up found(change, *lost, device, sharded ? role::optimizer : role::parameter);
        CHECK(found.wrong == 0);
        CHECK(found.transfers > 0);
        transfers += found.transfers, losing += found.lost > 0 ? 1 : 0;
      }
      CHECK((lost_bytes(change) > 0) == sharded);
      CHECK(devices.size() == (sharded ? 5 : 2));
    }
  }
  CHECK(losing == 3 * 3);
  std::printf("{\"transfers\":%lld,\"plans_that_lose\":%lld}\n", static_cast<long long>(transfers),
              static_cast<long long>(losing));
}

TEST_CASE("thirty random switches with lost and empty devices, for the mutants") { check_random_switches(30); }

TEST_CASE("random switches with lost and empty devices: the others send, what nobody has is told" *
          doctest::test_suite("many")) {
  const features seen = check_random_switches(testing::thrown(240));
  seen.print();
  CHECK(seen.wrong == 0);
  for (const int count : {seen.refused, seen.whole, seen.several, seen.nodes, seen.lists, seen.unused})
    CHECK_DRAWN(count >= 30);
  for (const int count : {seen.empty, seen.empty_alone, seen.empty_receives}) CHECK_DRAWN(count >= 30);
  for (const int count : {seen.all_lost, seen.replicas}) CHECK_DRAWN(count >= 10);
}
