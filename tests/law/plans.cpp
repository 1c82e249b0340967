// SPDX-License-Identifier: Apache-2.0
// Plans against the oracle: random switches, every device, every element. Every lacking element arrives once, from a
// device that holds it, and none that was there; both ends derive the same transfers; the same from and to lists of
// shards; stages cut them without loss; memory replays as element-by-element bookkeeping says.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/schedule/memory_replay.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../oracle/plan_check.hpp"
#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"

using namespace reshard;
using testing::dice, testing::to_model;

namespace {
constexpr int switches = 520;  // of which every feature has 30 alone and 30 with two others

/// What a test case has compared; its last line says so, for tools/figures.
struct tally {
  long switches = 0, elements = 0, wrong = 0;
  void add(const oracle::totals& sums) { elements += sums.needed, wrong += sums.wrong; }
  void print() const { std::printf("{\"switches\":%ld,\"elements\":%ld,\"wrong\":%ld}\n", switches, elements, wrong); }
};

bool before(const transfer& a, const transfer& b) { return precedes(a, b); }

std::vector<rank_t> devices_of(const std::vector<long>& list) { return {list.begin(), list.end()}; }

/// One switch with both holdings.
struct world {
  explicit world(const oracle::switch_case& c, index_t node)
      : named(c), from(to_model(c.m), parse_degrees(c.from_text)),
        to(to_model(c.m), parse_degrees(c.to_text)), placed{device_map(devices_of(c.from_devices)),
                                                            device_map(devices_of(c.to_devices)), nodes_of(node)},
        change(from, to, placed) {}
  const oracle::switch_case& named;
  space from, to;
  placement placed;
  computed_switch change;

  std::string tensor(int f, index_t member, index_t expert, rank_t dst) const {
    return to.tensor_on({f, member, expert}, change.to_rank(dst));
  }
};

/// A box of one tensor in the oracle's terms, once per state.
void add_pieces(std::vector<oracle::piece>& pieces, const world& w, rank_t src, rank_t dst, state_set states, int f,
                index_t member, index_t expert, const box<3>& b) {
  oracle::piece p{src, dst, oracle::state::param, w.tensor(f, member, expert, dst), {}, {}};
  for (int i = 0; i < 3; ++i) {
    p.dims.push_back(w.from.family_at(f).extent[2 + i]);
    p.box.push_back({b.dim[i].begin, b.dim[i].end});
  }
  for (const int i : all_states)
    if (states.contains(i)) {
      p.st = oracle::all_states[i];
      pieces.push_back(p);
    }
}
void add_pieces(std::vector<oracle::piece>& pieces, const world& w, const transfer& t) {
  for (index_t member = t.where.dim[0].begin; member < t.where.dim[0].end; ++member)
    for (index_t expert = t.where.dim[1].begin; expert < t.where.dim[1].end; ++expert)
      add_pieces(pieces, w, t.src, t.dst, t.states, t.family, member, expert,
                 {{t.where.dim[2], t.where.dim[3], t.where.dim[4]}});
}

void require_right(const world& w, const std::vector<oracle::piece>& pieces, const switch_volume& volume,
                   tally& compared) {
  const oracle::switch_case& c = w.named;
  oracle::totals sums;
  const std::vector<std::string> faults = check_plan(c.m, c.from, c.to, c.from_devices, c.to_devices, pieces, sums);
  for (const std::string& fault : faults) FAIL_CHECK(fault);
  compared.add(sums);
  CHECK(sums.moved_bytes == sums.least_bytes);
  CHECK(sums.moved_bytes == volume.moved);
  CHECK(sums.retained_bytes == volume.retained);
}

/// The plans of all devices; what all send is what all receive.
template <typename Switch>
std::vector<plan> plans_of(const Switch& change) {
  std::vector<plan> plans;
  std::vector<transfer> sent, received;
  for (rank_t d = 0; d < change.devices(); ++d) {
    plans.push_back(make_plan(change, d));
    const plan& p = plans.back();
    CHECK(std::is_sorted(p.sends.begin(), p.sends.end(), before));
    CHECK(std::is_sorted(p.receives.begin(), p.receives.end(), before));
    CHECK(std::is_sorted(p.retains.begin(), p.retains.end(), before));
    sent.insert(sent.end(), p.sends.begin(), p.sends.end());
    received.insert(received.end(), p.receives.begin(), p.receives.end());
  }
  std::sort(sent.begin(), sent.end(), before);
  std::sort(received.begin(), received.end(), before);
  CHECK(sent == received);
  return plans;
}

std::vector<oracle::piece> pieces_of(const world& w, const std::vector<plan>& plans) {
  std::vector<oracle::piece> pieces;
  for (const plan& p : plans)
    for (const std::vector<transfer>* list : {&p.receives, &p.retains})
      for (const transfer& t : *list) add_pieces(pieces, w, t);
  return pieces;
}

/// A source on another node only where no holder shares the destination's node.
void check_node_rule(const world& w, const std::vector<plan>& plans) {
  if (w.change.node_devices() == 0) return;
  const auto node = [&](rank_t device) { return device / w.change.node_devices(); };
  for (const plan& p : plans)
    for (const transfer& t : p.receives) {
      if (node(t.src) == node(t.dst)) continue;
      const role r = (t.states & parameter_states).empty() ? role::optimizer : role::parameter;
      w.change.from().owners(t.family, r, t.where, [&](const family_box&, const auto& holders) {
        for (index_t i = 0; i < holders.count(); ++i)
          CHECK(node(w.change.from_devices().device_of(holders[i])) != node(t.dst));
      });
    }
}

/// A computed holding as a framework would list it: names, offsets and shapes per rank.
std::vector<shard> listed(const space& s, const computed_holding& h) {
  std::vector<shard> shards;
  for (rank_t rank = 0; rank < s.ranks(); ++rank)
    for (const int i : all_states)
      each_held(h, rank, adam[i].placed_as(), [&](int f, const family_box& b) {
        const family& which = s.family_at(f);
        for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
          for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert)
            for (index_t part = b.dim[2].begin; part < b.dim[2].end; ++part) {
              shard one{.rank = rank,
                        .tensor = s.tensor_on({f, member, expert}, rank),
                        .type = adam[i].type,
                        .whole = {},
                        .offset = {},
                        .shape = {},
                        .state = std::string(adam[i].name)};
              const index_t rows = which.extent[3], columns = which.extent[4];
              if (which.vector()) {
                one.whole = {columns};
                one.offset = {b.dim[4].begin};
                one.shape = {b.dim[4].size()};
              } else {
                one.whole = {which.extent[2] * rows, columns};
                one.offset = {part * rows + b.dim[3].begin, b.dim[4].begin};
                one.shape = {b.dim[3].size(), b.dim[4].size()};
              }
              shards.push_back(one);
            }
      });
  return shards;
}

/// Live bytes of one device, element by element: last readers by a map over (state, tensor, element).
bytes_t peak_by_bookkeeping(const world& w, rank_t device, const std::vector<staged_piece>& received,
                            const std::vector<staged_piece>& sent, const plan& p, bytes_t before_bytes,
                            bytes_t after_bytes, index_t stages) {
  using element = std::tuple<int, int, index_t, index_t, index_t>;  // state, family, member, expert, flat
  std::map<element, index_t> last;
  const auto visit = [&](state_set states, int f, index_t member, index_t expert, const box<3>& b, auto&& act) {
    const family& which = w.from.family_at(f);
    const index_t extent[3] = {which.extent[2], which.extent[3], which.extent[4]};
    flat_intervals(extent, b, [&](interval run) {
      for (index_t x = run.begin; x < run.end; ++x)
        for (const int s : all_states)
          if (states.contains(s)) act(element{s, f, member, expert, x});
    });
  };
  if (const rank_t rank = w.change.from_rank(device); rank >= 0)
    for (const role r : roles)
      each_held(w.change.from(), rank, r, [&](int f, const family_box& b) {
        for (index_t m = b.dim[0].begin; m < b.dim[0].end; ++m)
          for (index_t e = b.dim[1].begin; e < b.dim[1].end; ++e)
            visit(states_of(r), f, m, e, {{b.dim[2], b.dim[3], b.dim[4]}}, [&](const element& x) { last[x] = -1; });
      });
  for (const staged_piece& s : sent)
    visit(s.states, s.tensor.family, s.tensor.member, s.tensor.expert, s.where,
          [&](const element& x) { last.at(x) = greatest(last.at(x), s.stage); });
  for (const transfer& t : p.retains)
    for (index_t m = t.where.dim[0].begin; m < t.where.dim[0].end; ++m)
      for (index_t e = t.where.dim[1].begin; e < t.where.dim[1].end; ++e)
        visit(t.states, t.family, m, e, {{t.where.dim[2], t.where.dim[3], t.where.dim[4]}},
              [&](const element& x) { last.at(x) = stages; });
  bytes_t peak = greatest(before_bytes, after_bytes);
  for (index_t k = 0; k < stages; ++k) {
    bytes_t live = 0;
    for (const auto& [x, stage] : last)
      if (stage >= k) live += width(adam[std::get<0>(x)].type);
    for (const staged_piece& r : received)
      if (r.stage <= k) live += r.bytes();
    peak = greatest(peak, live);
  }
  return peak;
}
}  // namespace

namespace {
/// Checks `count` random switches, and the memory of every `replayed`-th.
tally check_random_switches(oracle::generator& generator, int count, int replayed) {
  dice random(7);
  tally compared;
  constexpr index_t nodes[] = {0, 0, 1, 2, 3, 4, 8};
  for (int n = 0; n < count; ++n, ++compared.switches) {
    const oracle::switch_case c = generator.next_switch();
    const std::string description = c.describe();
    CAPTURE(description);
    const world w(c, nodes[random.below(7)]);
    const std::vector<plan> plans = plans_of(w.change);
    const switch_volume volume = volume_of(w.change);
    require_right(w, pieces_of(w, plans), volume, compared);
    check_node_rule(w, plans);

    const index_t stages = random.within(1, 9);
    CAPTURE(stages);
    std::vector<oracle::piece> staged_pieces;
    std::vector<staged_piece> sent, received;
    for (const plan& p : plans) {
      const auto in = stage_transfers(p.receives, w.change, stages), out = stage_transfers(p.sends, w.change, stages);
      const auto kept = stage_transfers(p.retains, w.change, stages);
      for (const auto* list : {&in, &kept})
        for (const staged_piece& s : *list)
          add_pieces(staged_pieces, w, s.src, s.dst, s.states, s.tensor.family, s.tensor.member, s.tensor.expert,
                     s.where);
      received.insert(received.end(), in.begin(), in.end());
      sent.insert(sent.end(), out.begin(), out.end());
      if (n % replayed != 0) continue;
      const rank_t was = w.change.from_rank(p.device), is = w.change.to_rank(p.device);
      const bytes_t had = held_bytes(w.change.from(), was), has = held_bytes(w.change.to(), is);
      const memory_replay replay = replay_memory(had, has, in, out, p.retains, stages);
      CHECK(replay.peak == peak_by_bookkeeping(w, p.device, in, out, p, had, has, stages));
    }
    require_right(w, staged_pieces, volume, compared);
    // what passes between two devices comes in the same order at both ends
    const auto by_pair = [](const std::vector<staged_piece>& pieces) {
      std::map<std::pair<rank_t, rank_t>, std::vector<staged_piece>> pairs;
      for (const staged_piece& s : pieces) pairs[{s.src, s.dst}].push_back(s);
      return pairs;
    };
    CHECK(by_pair(sent) == by_pair(received));
  }
  return compared;
}
}  // namespace

TEST_CASE("forty random switches, for the mutants") {
  oracle::generator generator(testing::seed() + 1);
  check_random_switches(generator, 40, 4);
}

TEST_CASE("random switches: plans are right, both ends agree, stages and memory too" * doctest::test_suite("many")) {
  oracle::generator generator(testing::seed() + 1);
  const tally compared = check_random_switches(generator, testing::thrown(switches), 8);
  std::printf("%s", generator.switch_census().report().c_str());
  compared.print();
  for (int i = 0; i <= static_cast<int>(oracle::feature::devices); ++i) {
    CAPTURE(std::string(oracle::feature_names.at(static_cast<std::size_t>(i))));
    const oracle::census::row row = generator.switch_census().of(static_cast<oracle::feature>(i));
    CHECK_DRAWN(row.alone >= 30);
    CHECK_DRAWN(row.with_two >= 30);
  }
}

namespace {
/// Checks `count` random switches from a list, to a list and between two.
void check_lists(oracle::generator& generator, int count) {
  tally compared;
  for (; compared.switches < count; ++compared.switches) {
    const oracle::switch_case c = generator.next_switch();
    const std::string description = c.describe();
    CAPTURE(description);
    const world w(c, 0);
    const tensor_table table(w.from.model());
    const std::vector<shard> list_before = listed(w.from, w.change.from()), list_after = listed(w.to, w.change.to());
    const listed_holding from(table, list_before, w.from.ranks()), to(table, list_after, w.to.ranks());
    CHECK(covers(from));
    const switch_volume volume = volume_of(w.change);
    require_right(w, pieces_of(w, plans_of(layout_switch(from, w.to, w.placed))), volume, compared);
    require_right(w, pieces_of(w, plans_of(layout_switch(w.from, to, w.placed))), volume, compared);
    require_right(w, pieces_of(w, plans_of(layout_switch(from, to, w.placed))), volume, compared);
  }
  compared.print();
}
}  // namespace

TEST_CASE("twenty random switches between computed layouts and lists of shards, for the mutants") {
  oracle::generator generator(testing::seed() + 2);
  check_lists(generator, 20);
}

TEST_CASE("random switches between computed layouts and lists of shards" * doctest::test_suite("many")) {
  oracle::generator generator(testing::seed() + 2);
  check_lists(generator, testing::thrown(120));
}
