// SPDX-License-Identifier: Apache-2.0
// Which routing is chosen: never worse than any other that keeps what is asked for, and the smallest of equal ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::any_tensors, testing::dice;

namespace {
computed_switch of(const char* from, const char* to, const cluster& on, rank_t to_first = 0) {
  const space a(models::llama2_7b, parse_degrees(from)), b(models::llama2_7b, parse_degrees(to));
  std::vector<rank_t> devices(static_cast<std::size_t>(b.ranks()));
  std::iota(devices.begin(), devices.end(), to_first);
  return layout_switch(a, b, {.to = device_map(devices), .on = on, .states = parameter_states});
}
double seconds(const computed_switch& change, index_t chains, index_t stages) {
  relayed_streams streams = relayed_streams_of(change, chains);
  return relayed_seconds(port_table(change), streams).of_stages(stages).total();
}
}  // namespace

TEST_CASE("F and S are those with the fewest seconds of 1, 2, 4 ..") {
  const computed_switch change = of("tp=8", "tp=8,dp=6", clusters::a800, 8);
  const routing_choice found = choose_routing(change, {.when = relay_when::always});
  double best = 1e9;
  routing fastest;
  for (index_t chains = 1; chains <= 8; chains *= 2)
    for (index_t stages = 1; stages <= 4096; stages *= 2)
      if (const double s = seconds(change, chains, stages); s < best)
        best = s, fastest = {relay::always, chains, stages};
  CHECK(found.how == fastest);
  CHECK(*found.seconds == doctest::Approx(best).epsilon(1e-12));
  CHECK(found.phases == phases_of(change, found.how));
  CHECK(found.how.chains == 1);  // one holder node serves six by a chain
  CHECK(found.phases == 1 + 6 + 1);
  // with long messages fewer hops are better
  cluster slow = clusters::a800;
  slow.stage_us = 1e7;
  const routing_choice few = choose_routing(of("tp=8", "tp=8,dp=6", slow, 8), {.when = relay_when::always});
  CHECK(few.how.chains > 1);
  CHECK(few.how.stages == 1);
}

TEST_CASE("what holders send tells which F need not be tried: the choice is that of trying them all") {
  constexpr const char* froms[] = {"tp=4", "tp=2,dp=2,zero=1", "tp=4,dp=2", "pp=2,dp=3", "dp=2"};
  constexpr const char* tos[] = {"tp=4,dp=4", "tp=2,dp=12", "pp=2,tp=2,dp=6", "dp=20", "tp=4,dp=8,zero=1", "dp=3"};
  dice random(8);
  int tried = 0, left_out = 0, several = 0, bounded = 0;
  const int switches = testing::tries(16);
  for (int n = 0; n < switches; ++n) {
    const space from(testing::tiny(2), parse_degrees(froms[random.below(std::size(froms))])),
        to(testing::tiny(2), parse_degrees(tos[random.below(std::size(tos))]));
    cluster on{.gpus = random.within(2, 4),
               .each = {.nvlink_GBps = 0.4, .nic_GBps = random.coin() ? 0.05 : 0.0004, .copy_GBps = 0.9}};
    on.message_us = static_cast<double>(random.coin() ? random.within(1, 60) : random.within(500, 9000));
    on.stage_us = static_cast<double>(random.coin() ? random.within(200, 400) : random.within(1000, 90'000));
    const layout_switch change(from, to, {.on = on});
    const port_table ports(change);
    const routing_choice found = choose_relay(change, {.when = relay_when::always});
    double best = std::numeric_limits<double>::infinity();
    routing fastest;
    const index_t nodes = ceil_divide(change.devices(), on.gpus);
    for (index_t chains = 1; chains == 1 || chains < 2 * nodes; chains *= 2) {
      relayed_streams streams = relayed_streams_of(change, chains);
      const relayed_seconds all(ports, streams);
      const double held = detail::seconds_of_holders(change, ports, chains);
      left_out += held > best ? 1 : 0;
      const index_t fastest_stages = all.best_stages(most_stages);  // checked where it is made
      for (const index_t stages : {index_t{1}, index_t{8}, fastest_stages}) {
        const double seconds = all.of_stages(stages).total();
        CHECK(held <= seconds);
        bounded += held > 0.5 * seconds ? 1 : 0;
        if (seconds < best) best = seconds, fastest = {relay::always, chains, stages};
      }
      ++tried;
    }
    CHECK(found.how == fastest);
    CHECK(*found.seconds == best);
    several += fastest.chains > 1 ? 1 : 0;
  }
  std::printf("%d tried, %d of them need not be; %d times more than one chain; %d bounds near\n", tried, left_out,
              several, bounded);
  if (switches == 16) CHECK_DRAWN(left_out > 4);
  if (switches == 16) CHECK_DRAWN(several > 1);
  CHECK_DRAWN(bounded > switches);
}

TEST_CASE("where F chains can't win, twice as many may: where holders serve all nodes, some send less") {
  const model m = make_transformer({.name = "experts",
                                    .layers = 2,
                                    .hidden = 64,
                                    .heads = 4,
                                    .groups = 4,
                                    .head_dim = 16,
                                    .ffn = 128,
                                    .vocabulary = 1024,
                                    .experts = 8,
                                    .expert_ffn = 1});
  cluster on{.gpus = 1, .message_us = 0, .stage_us = 8000};
  for (index_t node = 0; node < 28; ++node)
    on.nodes.push_back(
        {.count = 1, .nvlink_GBps = 100, .nic_GBps = node < 8 && node % 2 == 0 ? 0.001 : 0.05, .copy_GBps = 1000});
  int risen = 0, found = 0;
  for (const char* to : {"dp=28", "dp=26"})
    for (const double stage_us : {5000.0, 8000.0}) {
      on.stage_us = stage_us;
      const layout_switch change(
          space(m, parse_degrees("dp=8,ep=8")), space(m, parse_degrees(to)),
          {.from = device_map(std::vector<rank_t>{0, 2, 4, 6, 8, 10, 12, 14}), .on = on, .states = parameter_states});
      const port_table ports(change);
      double best = std::numeric_limits<double>::infinity();
      index_t fastest = 0;
      bool left_out = false;
      for (index_t chains = 1; chains <= 32; chains *= 2) {
        relayed_streams streams = relayed_streams_of(change, chains);
        const relayed_seconds all(ports, streams);
        left_out = left_out || detail::seconds_of_holders(change, ports, chains) > best;
        if (const double seconds = all.of_stages(all.best_stages(most_stages)).total(); seconds < best) {
          best = seconds, fastest = chains;
          risen += left_out ? 1 : 0;
        }
      }
      const routing_choice choice = choose_relay(change, {.when = relay_when::always});
      CHECK(choice.how.chains == fastest);
      CHECK(*choice.seconds == best);
      ++found;
    }
  CHECK(found == 4);
  CHECK(risen > 0);  // after one that was left out
}

TEST_CASE("relay is taken where it is faster, and not where it is equal") {
  CHECK(choose_routing(of("", "dp=8", clusters::a800)).how.how == relay::always);
  CHECK(choose_routing(of("", "dp=8", clusters::a800), {.when = relay_when::never}).how == routing{});
  const routing_choice nothing = choose_routing(of("dp=2", "dp=2", clusters::a800));
  CHECK(nothing.how == routing{});
  CHECK(*nothing.seconds == *direct_seconds(of("dp=2", "dp=2", clusters::a800), 1));
  const routing_choice named = choose_routing(of("", "dp=8", clusters::a800), {.stages = 5});
  CHECK(named.how == routing{relay::always, 1, 5});
}

TEST_CASE("a budget wants the first of s0 and the powers of two above it that keep it, or is too small") {
  const computed_switch change = of("tp=4,dp=2,zero=1", "tp=2,dp=4,zero=1", clusters::a800, 8);
  const auto excess = [&](index_t stages, bytes_t& passed) {
    const index_t phases = phases_of(change, {relay::always, 1, stages});
    bytes_t most = 0;
    for (rank_t d = 0; d < change.devices(); ++d) {
      const plan p = make_plan(change, d, {relay::always, 1, stages});
      const bytes_t before = held_bytes(change.from(), change.from_rank(d), change.states()),
                    after = held_bytes(change.to(), change.to_rank(d), change.states());
      const relayed_memory memory(p, before, sources::release);
      passed = std::max(passed, memory.passed());
      most = std::max(most, memory.peak(stages, stages + phases - 1, after) - std::max(before, after));
    }
    return most;
  };
  bytes_t passed = 0;
  static_cast<void>(excess(1, passed));
  CHECK(passed > 0);
  for (const bytes_t budget : {bytes_t{50'000'000}, bytes_t{400'000'000}, bytes_t{3'000'000'000}}) {
    const routing_choice found = choose_routing(change, {.when = relay_when::always, .budget = budget});
    index_t stages = 1;
    while (excess(stages, passed) > budget) stages *= 2;
    CHECK(found.kept);
    CHECK(found.how.stages == stages);
  }
  const routing_choice small = choose_routing(change, {.when = relay_when::always, .budget = 1000});
  CHECK(!small.kept);
  bytes_t least_excess = excess(1, passed);
  for (index_t stages = 2; stages <= most_stages; stages *= 2)
    least_excess = std::min(least_excess, excess(stages, passed));
  CHECK(small.least_budget == least_excess);
  CHECK(choose_routing(change, {.when = relay_when::always, .budget = small.least_budget}).kept);
  const routing_choice two = choose_routing(change, {.when = relay_when::always, .stages = 2, .budget = 1000});
  CHECK(!two.kept);
  CHECK(two.least_budget == excess(2, passed));
}

TEST_CASE("the direct way is taken where it alone keeps the budget, also where relay is faster") {
  int faster = 0;
  for (const char* to : {"tp=2,dp=8", "tp=2,dp=4,zero=1"})
    for (const char* from : {"", "tp=2", "tp=4,dp=2,zero=1"}) {
      const computed_switch change = of(from, to, clusters::a800, 8);
      for (const index_t stages : {1, 4}) {
        const bytes_t needed =
            choose_routing(change, {.when = relay_when::always, .stages = stages, .budget = 1}).least_budget;
        REQUIRE(needed > 1);
        CHECK(choose_routing(change, {.when = relay_when::never, .stages = stages, .budget = needed - 1}).kept);
        const routing_choice found = choose_routing(change, {.stages = stages, .budget = needed - 1});
        CHECK(found.kept);
        CHECK(found.how.how == relay::never);
        faster += seconds(change, 1, stages) < *direct_seconds(change, stages) ? 1 : 0;
      }
    }
  CHECK(faster == 12);
}

TEST_CASE("without speeds relay has one chain and one stage") {
  const routing_choice found = choose_routing(of("tp=8", "tp=8,dp=6", nodes_of(8), 8), {.when = relay_when::always});
  CHECK(found.how == routing{relay::always, 1, 1});
  CHECK(!found.seconds);
  CHECK(found.phases == 8);
}

TEST_CASE("stages that buy nothing are not taken: of seconds that are equal but for rounding one stage, and no relay") {
  cluster free = clusters::a800;
  free.message_us = free.stage_us = 0;
  int rounded = 0;
  for (const char* to : {"tp=2,pp=4", "pp=8", "tp=4,pp=2", "pp=4", "tp=2,pp=2", "tp=4"}) {
    CAPTURE(std::string(to));
    // each byte has one destination, so that nothing is passed on: any number of stages takes as long
    const computed_switch change = of("tp=8", to, free);
    relayed_streams streams = relayed_streams_of(change, 1);
    const port_table on(change);
    const relayed_seconds seconds(on, streams);
    CAPTURE(seconds.phases());
    REQUIRE(seconds.phases() == 1);
    for (index_t stages = 2; stages <= most_stages; stages *= 2)
      rounded += seconds.of_stages(stages).total() < seconds.of_stages(1).total() ? 1 : 0;
    CHECK(seconds.best_stages(most_stages) == 1);
    const routing_choice found = choose_routing(change);
    CHECK(found.how == routing{});
    CHECK(same_seconds(*found.seconds, seconds.of_stages(1).total()));
  }
  std::printf("%d sums are less by rounding\n", rounded);
  CHECK(rounded > 0);
}

TEST_CASE("of two ways fewer seconds, then fewer stages; relay only where it is faster") {
  const auto way = [](double seconds, index_t stages) {
    return routing_choice{.how = {relay::always, 1, stages}, .seconds = seconds};
  };
  CHECK(better_routing(way(1, 8), way(2, 1)));
  CHECK(better_routing(way(1 + 1e-12, 4), way(1, 8)));
  CHECK_FALSE(better_routing(way(1 - 1e-12, 8), way(1, 8)));
  CHECK_FALSE(better_routing(way(1 - 1e-12, 8), way(1, 4)));
  CHECK(relay_is_better({}, 5.0));
  CHECK(relay_is_better(2.0, 1.0));
  CHECK_FALSE(relay_is_better(1.0, 1.0 - 1e-12));
  CHECK_FALSE(relay_is_better(1.0, {}));
}

namespace {
/// Both ways of a switch in every F and S, by looking at each of them.
template <typename Switch>
class every_way {
 public:
  explicit every_way(const Switch& change) : change_(&change) {
    if (change.on().has_speeds()) on_.emplace(change);
    const index_t gpus = change.node_devices();
    for (index_t chains = 1; chains == 1 || (gpus > 0 && chains < 2 * ceil_divide(change.devices(), gpus)); chains *= 2)
      chains_.push_back({chains, relayed_streams_of(change, chains)});
  }
  routing_choice choose(const routing_wishes& wishes) {
    const routing_choice direct = this->direct(wishes), relayed = this->relayed(wishes);
    if (wishes.when == relay_when::never) return direct;
    if (wishes.when == relay_when::always) return relayed;
    if (direct.kept && relayed.kept)
      return direct.seconds && !(relayed.seconds && *relayed.seconds < *direct.seconds * (1 - 1e-9)) ? direct : relayed;
    if (direct.kept || relayed.kept) return direct.kept ? direct : relayed;
    return relayed.least_budget < direct.least_budget ? relayed : direct;
  }
  routing_choice direct(const routing_wishes& wishes) {
    routing_choice way;
    const auto excess = [&](index_t stages) {
      bytes_t& found = direct_[{wishes.after_use == sources::keep, stages}];
      if (found == 0) found = 1 + direct_excess(*change_, {0, change_->devices()}, stages, wishes.after_use);
      return found - 1;
    };
    settle(way, wishes, excess);
    if (!wishes.stages && wishes.budget == 0) way.how.stages = 1;
    if (on_) way.seconds = direct_seconds(*change_, way.how.stages);
    return way;
  }
  routing_choice relayed(const routing_wishes& wishes) {
    std::vector<routing_choice> ways;
    for (auto& [chains, streams] : chains_) {
      routing_choice way;
      way.how = {relay::always, chains, 1};
      way.phases = streams.phases();
      const auto excess = [&, &streams = streams, &chains = chains](index_t stages) {
        bytes_t& found = relayed_[{chains, wishes.after_use == sources::keep, stages}];
        if (found == 0) found = 1 + relay_excess(chains, streams.phases(), stages, wishes.after_use);
        return found - 1;
      };
      settle(way, wishes, excess);
      if (on_) {
        const relayed_seconds seconds(*on_, streams);
        if (!wishes.stages && wishes.budget == 0 && wishes.otherwise == stages_unless_named::fastest) {
          double fewest = seconds.of_stages(1).total();
          for (index_t stages = 1; stages <= 4096; stages *= 2) {
            if (static_cast<double>(stages) * on_->slot_seconds() > fewest) break;  // its slots alone take longer
            fewest = std::min(fewest, seconds.of_stages(stages).total());
          }
          while (seconds.of_stages(way.how.stages).total() > fewest * (1 + 1e-9)) way.how.stages *= 2;
        }
        if (way.how.stages <= 4096) way.seconds = seconds.of_stages(way.how.stages).total();
      }
      ways.push_back(way);
    }
    return best_of(ways);
  }

 private:
  static routing_choice best_of(const std::vector<routing_choice>& ways) {
    std::vector<routing_choice> kept;
    for (const routing_choice& way : ways)
      if (way.kept) kept.push_back(way);
    if (kept.empty())
      return *std::min_element(ways.begin(), ways.end(), [](const routing_choice& a, const routing_choice& b) {
        return a.least_budget < b.least_budget;
      });
    if (!kept.front().seconds) return kept.front();
    const auto least = std::min_element(kept.begin(), kept.end(), [](const routing_choice& a, const routing_choice& b) {
      return *a.seconds < *b.seconds;
    });
    std::vector<routing_choice> fast;
    for (const routing_choice& way : kept)
      if (*way.seconds <= *least->seconds * (1 + 1e-9)) fast.push_back(way);
    return *std::min_element(fast.begin(), fast.end(), [](const routing_choice& a, const routing_choice& b) {
      return a.how.stages < b.how.stages;
    });
  }
  /// Stages that are named, or that a budget wants.
  template <typename Excess>
  static void settle(routing_choice& way, const routing_wishes& wishes, Excess&& excess) {
    if (wishes.stages) way.how.stages = *wishes.stages;
    if (wishes.budget == 0) return;
    if (wishes.stages) {
      way.excess = way.least_budget = excess(*wishes.stages);
      way.kept = way.excess <= wishes.budget;
      return;
    }
    bytes_t least_budget = excess(1);
    for (index_t stages = 1; stages <= 4096; stages *= 2) {
      least_budget = std::min(least_budget, excess(stages));
      if (excess(stages) > wishes.budget) continue;
      way.how.stages = stages, way.excess = excess(stages);
      return;
    }
    way.kept = false, way.excess = excess(1), way.least_budget = std::max<bytes_t>(1, least_budget);
  }
  bytes_t relay_excess(index_t chains, index_t phases, index_t stages, sources after_use) const {
    bytes_t most = 0;
    for (rank_t d = 0; d < change_->devices(); ++d) {
      const plan p = make_plan(*change_, d, {relay::always, chains, stages});
      const bytes_t before = held_bytes(change_->from(), change_->from_rank(d), change_->states()),
                    both = held_bytes(change_->to(), change_->to_rank(d), change_->states()) + before,
                    after = both - (after_use == sources::keep ? total_bytes(p.retains) : before);
      most = std::max(most, relayed_memory(p, before, after_use).peak(stages, stages + phases - 1, after) -
                                std::max(before, after));
    }
    return most;
  }

  const Switch* change_;
  std::optional<port_table> on_;
  std::vector<std::pair<index_t, relayed_streams>> chains_;
  std::map<std::pair<bool, index_t>, bytes_t> direct_;  // one more than it is, by whether sources are kept, and S
  std::map<std::tuple<index_t, bool, index_t>, bytes_t> relayed_;
};

/// Which of both keeps a budget, and how often what was taken.
struct choices_seen {
  int direct_alone = 0, relay_alone = 0, neither_direct = 0, neither_relay = 0, both_direct = 0, both_relay = 0;
  int chains = 0, stages = 0, crossing = 0, refused = 0;
};
template <typename Switch>
void check_choice(const Switch& change, every_way<Switch>& every, const routing_wishes& wishes, choices_seen& seen) {
  const routing_choice wanted = every.choose(wishes), found = choose_routing(change, wishes);
  CHECK(found.how == wanted.how);
  CHECK(found.kept == wanted.kept);
  CHECK(found.phases == wanted.phases);
  CHECK(found.seconds.has_value() == wanted.seconds.has_value());
  if (found.seconds) CHECK(*found.seconds == doctest::Approx(*wanted.seconds).epsilon(1e-12));
  if (wishes.budget > 0) CHECK(found.excess == wanted.excess);
  if (!wanted.kept) CHECK(found.least_budget == wanted.least_budget);
  relayed_streams told = found.streams, streams;
  if (found.how.how == relay::always) streams = relayed_streams_of(change, found.how.chains);
  CHECK(told.streams().size() == streams.streams().size());
  seen.chains += found.how.chains > 1 ? 1 : 0, seen.stages += found.how.stages > 1 ? 1 : 0;
  if (wishes.when != relay_when::faster) return;
  const bool direct = every.direct(wishes).kept, relayed = every.relayed(wishes).kept,
             took = found.how.how == relay::always;
  if (direct && relayed) ++(took ? seen.both_relay : seen.both_direct);
  else if (direct || relayed) ++(took ? seen.relay_alone : seen.direct_alone);
  else ++(took ? seen.neither_relay : seen.neither_direct);
  seen.crossing += change.on().has_speeds() && !every.direct(wishes).seconds ? 1 : 0;
}
}  // namespace

TEST_CASE("any tensors and any wishes: the choice is that of looking at both ways, every F and every S") {
  dice random(12);
  choices_seen seen;
  for (int n = 0; n < 40; ++n) {
    any_tensors given(random, n % 3 != 0);
    if (n % 5 == 4) given.world.on = nodes_of(random.within(1, 4));  // no speeds
    given.world.on.stage_us = n % 16 == 7 ? 0 : static_cast<double>(random.within(200, 3000));
    const auto change = given.change();
    const bool speeds = change.on().has_speeds();
    every_way every(change);
    const std::string sentence = testing::refused([&] { every.relayed({.stages = 1}); });
    if (sentence != "accepted") {  // it crosses rails that do not meet
      const std::string said =
          testing::refused([&] { (void)choose_routing(change, {.when = relay_when::always, .stages = 1}); });
      // the twin tries every F; where one chain meets and more do not, these may be those that need not be tried
      const std::string of_one = testing::refused([&] {
        relayed_streams streams = relayed_streams_of(change, 1);
        (void)relayed_seconds(port_table(change), streams).of_stages(1);
      });
      if (of_one == "accepted" && said != sentence) CHECK(said == "accepted");
      else CHECK(said == sentence);
      ++seen.refused;
      continue;
    }
    const sources after_use = random.coin() ? sources::keep : sources::release;
    const bytes_t most = std::max<bytes_t>(2, every.relayed({.stages = 1, .budget = 1, .after_use = after_use}).excess);
    for (int i = 0; i < 10; ++i) {
      routing_wishes wishes{.when = i > 1 && speeds ? relay_when::faster
                                    : i == 0        ? relay_when::never
                                                    : relay_when::always,
                            .after_use = after_use};
      if (random.coin()) wishes.stages = random.within(1, 5);
      const bytes_t low = wishes.stages || (i == 5 && n % 6 == 0) ? 0 : most / 8;
      if (i % 3 != 0) wishes.budget = random.within(low + 1, low == 0 ? most / 4 + 1 : most);
      if (i > 6) wishes.budget = random.within(1, 3);  // which hardly a way keeps
      if (i > 7) wishes.stages = random.within(1, 3);
      if (random.below(3) == 0) wishes.otherwise = stages_unless_named::one;
      check_choice(change, every, wishes, seen);
    }
  }
  std::printf(
      "direct alone keeps it %d times, relay alone %d; neither, direct %d, relay %d; both, direct %d, relay %d; "
      "%d with chains, %d with stages, %d that direct can't, %d that relay can't\n",
      seen.direct_alone, seen.relay_alone, seen.neither_direct, seen.neither_relay, seen.both_direct, seen.both_relay,
      seen.chains, seen.stages, seen.crossing, seen.refused);
  for (const int seen_at_all :
       {seen.direct_alone, seen.relay_alone, seen.neither_direct, seen.neither_relay, seen.both_direct, seen.both_relay,
        seen.chains, seen.stages, seen.crossing, seen.refused})
    CHECK_DRAWN(seen_at_all > 0);
}

TEST_CASE("more stages than a switch is searched in have no seconds where relay makes them, and are made") {
  const computed_switch change = of("", "dp=4", clusters::a800);
  CHECK(choose_routing(change, {.when = relay_when::always, .stages = 4096}).seconds.has_value());
  const routing_choice many = choose_routing(change, {.when = relay_when::always, .stages = 4097});
  CHECK_FALSE(many.seconds.has_value());
  CHECK(many.how == routing{relay::always, 1, 4097});
}

TEST_CASE("a chain of two nodes is one, also where nobody spreads what came inside of a node") {
  cluster on{.gpus = 2, .each = {.nvlink_GBps = 100, .nic_GBps = 10, .copy_GBps = 1000}};
  on.stage_us = 1e6;  // a slot takes longer than anything that moves
  const layout_switch change(testing::whole_on(1, "w", {6, 4}), testing::whole_on(2, "w", {6, 4}),
                             {.to = device_map(std::vector<rank_t>{2, 4}), .on = on});
  CHECK(phases_of(change, {relay::always, 1, 1}) == 3);
  CHECK(phases_of(change, {relay::always, 2, 1}) == 2);
  CHECK(choose_routing(change, {.when = relay_when::always}).how == routing{relay::always, 2, 1});
}
