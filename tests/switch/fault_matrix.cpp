// SPDX-License-Identifier: Apache-2.0
// Real processes over sockets that are killed or stopped, each rank in the first, a middle and the last stage, in the
// midst of packing, exchanging and unpacking, keeping sources and not: who lives says so in time and ends; what is left
// lies in memory, element by element; and the survivors go on with it. Some of the cells, others every day;
// RESHARD_CELLS=1000 takes all, RESHARD_KILLS=300 kills so many times at random.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/time.h>

#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/torn_switch.hpp>
#include <reshard/transport/forwarding.hpp>

#include "../support/dice.hpp"
#include "../support/faults.hpp"
#include "../support/held_elements.hpp"
#include "../support/processes.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice, testing::left_behind, testing::processes, testing::element_map, testing::never_zero,
    testing::striker, testing::struck_endpoint, testing::now, testing::words_of;

namespace {

constexpr patience two_seconds = std::chrono::seconds(2);

/// A world in which every rank sends and receives in every stage, and where its survivors go.
struct world {
  const char *from, *to, *then;
  rank_t devices;
  index_t layers;
  bytes_t budget;  // where sources are released
  index_t stages;  // then; where they are kept there are five
  bytes_t round_bytes = usual_round_bytes;

  computed_switch change() const { return testing::tiny_switch(layers, from, to); }
  oracle::model of_oracle() const {
    return {
        .layers = layers, .hidden = 64, .heads = 4, .groups = 4, .head_dim = 16, .ffn = 128, .vocab = 256, .moe = {}};
  }
};
using holds_of_ranks = std::vector<element_map::elements_of_tensors>;
/// What the oracle says that ranks hold, of FROM and of TO; found once for all worlds that have the two in common.
const std::pair<holds_of_ranks, holds_of_ranks>& holds_of(const world& w) {
  static std::map<std::string, std::pair<holds_of_ranks, holds_of_ranks>> known;
  auto& found = known[std::to_string(w.layers) + w.from + " " + w.to];
  if (found.first.empty())
    found = {element_map::told_by_oracle(w.of_oracle(), w.from), element_map::told_by_oracle(w.of_oracle(), w.to)};
  return found;
}
constexpr world worlds[] = {
    {"tp=2,pp=2,zero=1", "dp=4,zero=1", "dp=3,zero=1", 4, 2, 256_KiB, 16},
    {"tp=2,dp=3,zero=1", "pp=2,dp=3,zero=1", "dp=5,zero=1", 6, 2, 256_KiB, 16},
    {"tp=2,pp=2,zero=1", "dp=4,zero=1", "dp=3,zero=1", 4, 2, 256_KiB, 8, least_round_bytes},
    // replicas on both sides: nothing that two held is lost with one
    {"tp=2,dp=2", "pp=2,dp=2", "dp=3", 4, 2, no_budget, 5},
    // about 1/16, 1/4 and the whole of a device's state: what nobody reads goes early, late, never
    {"tp=2,dp=2", "pp=2,dp=2", "dp=3", 4, 2, 96_KiB, 64},
    {"tp=2,dp=2", "pp=2,dp=2", "dp=3", 4, 2, 384_KiB, 16},
    {"tp=2,dp=2", "pp=2,dp=2", "dp=3", 4, 2, 1536_KiB, 1}};

struct cell {
  std::size_t in;  // of worlds
  rank_t victim;
  int third, when;
  bool keep;
  int number;

  /// Ways to look at it that a sample shall spread over.
  std::vector<std::string> traits() const {
    const auto is = [](auto... n) { return ((std::to_string(n) + " ") + ...); };
    return {"a " + is(in, victim),         "b " + is(third, when),         "c " + is(keep, number),
            "d " + is(when, keep, number), "e " + is(third, keep, number), "f " + is(victim == 0, when, third)};
  }
};
std::vector<cell> all_cells() {
  std::vector<cell> result;
  for (std::size_t in = 0; in < std::size(worlds); ++in)
    for (rank_t victim = 0; victim < worlds[in].devices; ++victim)
      for (int third = 0; third < 3; ++third)
        for (int when = 0; when < 3; ++when)
          for (const bool keep : {true, false})
            for (const int number : {SIGKILL, SIGSTOP})
              if (keep || third == 0 || worlds[in].stages > 1)  // one stage is the first of all
                result.push_back({in, victim, third, when, keep, number});
  return result;
}
/// So many cells, each time the one whose traits were seen least.
std::vector<cell> sample(std::size_t count) {
  std::vector<cell> rest = all_cells(), chosen;
  dice random(81);
  for (std::size_t i = rest.size(); i > 1; --i)
    std::swap(rest[i - 1], rest[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  std::map<std::string, int> seen;
  const auto uses = [&](const cell& c) {
    int sum = 0;
    for (const std::string& trait : c.traits()) sum += seen[trait] * seen[trait];
    return sum;
  };
  while (chosen.size() < count && !rest.empty()) {
    const auto next = count >= rest.size() + chosen.size()
                          ? rest.begin()
                          : std::min_element(rest.begin(), rest.end(),
                                             [&](const cell& a, const cell& b) { return uses(a) < uses(b); });
    for (const std::string& trait : next->traits()) ++seen[trait];
    chosen.push_back(*next);
    rest.erase(next);
  }
  return chosen;
}

/// One fault, from the start of its processes to the judgement of what they left behind.
class faulted {
 public:
  /// `asleep`: how long who stops sleeps at least.
  faulted(const cell& c, std::uint64_t bits, double asleep = 0)
      : cell_(c), asleep_(asleep), all_(worlds[c.in].devices) {
    for (rank_t d = 0; d < world_.devices; ++d) {
      later_.emplace_back("127.0.0.1:0");
      addresses_.push_back("127.0.0.1:" + std::to_string(later_.back()->port()));
    }
    strikes_.third = c.third, strikes_.when = static_cast<testing::moment>(c.when), strikes_.at = bits / 2;
    checks_ =
        c.when == static_cast<int>(testing::moment::unpack) || bits % 2 == 0;  // or there may be nothing to unpack
    all_.start_all([&](long d, listening_socket l, left_behind& left) { process(d, std::move(l), left); });
    later_.clear();
  }

  /// How many messages of the stage were on their way; -1 where what was to be seen was not.
  void judge() {
    CAPTURE(world_.from);
    CAPTURE(cell_.victim);
    CAPTURE(cell_.third);
    CAPTURE(cell_.when);
    CAPTURE(cell_.keep);
    CAPTURE(cell_.number);
    const double longest = testing::under_sanitizer() ? 120 : 60;  // a hang, on a busy machine too
    REQUIRE(all_.ended_within(longest, cell_.number == SIGSTOP ? cell_.victim : -1));
    const left_behind& struck = all_.of(cell_.victim);
    CHECK(struck.reached == 1);
    CHECK(struck.stages == (cell_.keep ? 5 : world_.stages));
    CHECK((struck.several > 0) == (world_.round_bytes == least_round_bytes));
    std::string survivors, first;
    for (rank_t d = 0; d < world_.devices; ++d)
      if (d != cell_.victim) survivors += (survivors.empty() ? "" : ",") + std::to_string(d);
    for (rank_t d = 0; d < world_.devices; ++d)
      if (d != cell_.victim) judge_survivor(d, survivors, first);
    if (cell_.number != SIGSTOP) return;
    while (now() < struck.seconds + asleep_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    all_.send_signal(cell_.victim, SIGCONT);  // it wakes, and finds out
    REQUIRE(all_.ended_within(30));
    const std::string said = struck.sentence;
    CAPTURE(said);
    CHECK((said.starts_with(cell_.keep ? "failed|" : "torn ") ||
           (said.starts_with("unknown|") && others_may_have_all())));
    CHECK(struck.wrong == 0);
    CHECK(said.find("device " + std::to_string(cell_.victim) + " was given up") != said.npos);
  }
  const cell& what() const { return cell_; }
  bool several_rounds() { return all_.of(cell_.victim).several > 0; }
  long on_their_way() { return all_.of(cell_.victim).untouched; }
  double slowest() const { return slowest_; }
  bool away() const { return away_; }
  const std::string& ending() const { return ending_; }
  long lost() const { return lost_; }
  long elements() const { return elements_; }

 private:
  /// Whether others may have had everything: it was struck in the last stage, or late in another with all sent.
  bool others_may_have_all() {
    const left_behind& struck = all_.of(cell_.victim);
    return cell_.third == 2 || struck.stages == 1 || struck.unsent == 0;
  }
  void judge_survivor(rank_t d, const std::string& survivors, std::string& first) {
    const left_behind& left = all_.of(d);
    CAPTURE(d);
    const std::string said = left.sentence, words = said.substr(0, said.find('|'));
    CAPTURE(said);
    if (first.empty()) first = words;
    CHECK(words == first);
    // all have everything, and the hub is gone, which alone knew whether it has
    const bool in_doubt = words.starts_with("unknown ");
    CHECK((words.starts_with(cell_.keep ? "failed " : "torn ") ||
           (in_doubt && cell_.victim == 0 && others_may_have_all() && cell_.when > 0)));
    CHECK(words.ends_with(" " + survivors));
    CHECK(said.find("device " + std::to_string(cell_.victim) +
                    (cell_.number == SIGKILL ? " is gone" : " was given up")) != said.npos);
    const double seconds = left.seconds - all_.of(cell_.victim).seconds;
    double away = 0;  // of a machine that stood still
    for (rank_t other = 0; other < world_.devices; ++other)
      if (other != cell_.victim) away = std::max(away, all_.of(other).away);
    CAPTURE(away);
    CHECK(seconds - away < (cell_.number == SIGKILL ? 2 : 4));
    away_ = away > 0;
    CHECK(left.wrong == 0);
    CHECK(left.reached == 2);  // it went on
    CHECK(left.elements > 0);
    if (!cell_.keep && world_.budget == no_budget) CHECK(left.kernel_agrees == 0);
    slowest_ = std::max(slowest_, seconds), lost_ += left.kernel_agrees, elements_ += left.elements;
    ending_ = words.substr(0, words.find(' '));
  }

  /// What process d does.
  void process(rank_t d, listening_socket listening, left_behind& left) {
    listening_socket later = std::move(*later_[static_cast<std::size_t>(d)]);
    later_.clear();
    const computed_switch change = world_.change();
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    fill(before.tensors(), change.from(), never_zero{});
    std::optional<switch_ending> ending;
    {
      strikes_.left = &left;
      if (d == cell_.victim) strikes_.number = cell_.number;
      struck_endpoint here(d, all_.addresses, std::move(listening), two_seconds, strikes_, world_.round_bytes);
      ending = attempt_switch(change, before.tensors(), after.tensors(), here,
                              {.budget = cell_.keep ? no_budget : world_.budget,
                               .after_use = cell_.keep ? sources::keep : sources::release,
                               .checks = checks_,
                               .route = {.stages = 5}});
      if (d != cell_.victim) left.seconds = now();
    }
    left.say(words_of(*ending) + "|" + sentence_of(*ending));
    if (cell_.keep) left.wrong += static_cast<long>(compare(before.tensors(), change.from(), never_zero{}).wrong);
    if (std::holds_alternative<ended::unknown>(*ending))
      left.wrong += static_cast<long>(compare(after.tensors(), change.to(), never_zero{}).wrong);
    if (d == cell_.victim) return;
    element_map held(change.to());
    if (const ended::torn* t = std::get_if<ended::torn>(&*ending)) {
      for (const rank_t s : t->survivors)
        held.add_survivor(change, s, *t, s == d ? &before.tensors() : nullptr, &after.tensors());
      left.wrong += held.wrong;
      const std::vector<torn_box> boxes = torn_boxes(change, *t);
      const torn_layout layout = layout_after(change, boxes, t->survivors);
      binding rest = binding_after(boxes, d, before.tensors(), after.tensors());
      const comparison listed = compare(rest, change.to(), never_zero{});
      left.wrong += listed.wrong + (listed.elements > 0 ? 0 : 1);
      const layout_switch next(layout.shards, then(), layout.placed(device_map(t->survivors)));
      go_on(next, t->survivors, rest, held, d, std::move(later), left);
      return;
    }
    const bool is_new = std::holds_alternative<ended::unknown>(*ending);
    const std::vector<rank_t> survivors =
        is_new ? std::get<ended::unknown>(*ending).survivors : std::get<ended::failed>(*ending).survivors;
    const auto& holds = is_new ? holds_.second : holds_.first;
    for (const rank_t s : survivors) held.add(holds[static_cast<std::size_t>(s)]);
    std::vector<rank_t> lost;
    for (rank_t other = 0; other < world_.devices; ++other)
      if (std::find(survivors.begin(), survivors.end(), other) == survivors.end()) lost.push_back(other);
    const layout_switch next(
        is_new ? change.to() : change.from(), then(),
        {.to = device_map(survivors), .devices = world_.devices, .lost = lost, .lost_elements = when_lost::leave_out});
    go_on(next, survivors, is_new ? after.tensors() : before.tensors(), held, d, std::move(later), left);
  }
  space then() const { return space(testing::tiny(world_.layers), parse_degrees(world_.then)); }

  /// The survivors' new world, with addresses of its own: they go on to fresh tensors.
  template <typename Next>
  void go_on(const Next& next, const std::vector<rank_t>& survivors, binding& source, const element_map& held, rank_t d,
             listening_socket listening, left_behind& left) {
    std::vector<std::string> addresses = addresses_;
    for (rank_t a = 0; a < world_.devices; ++a)
      if (std::find(survivors.begin(), survivors.end(), a) == survivors.end())
        addresses[static_cast<std::size_t>(a)].clear();
    socket_endpoint again(d, addresses, std::move(listening), two_seconds * 5);
    rank_storage fresh(next.to(), next.to_rank(d), "fresh");
    switch_state(next, source, fresh.tensors(), again, {.budget = 4_MiB, .after_use = sources::keep});
    element_map lost(next.to());
    lost.add_lost(make_plan(next, d));
    const auto [wrong, missing] = held.judge(fresh.tensors(), lost);
    left.wrong += wrong, left.kernel_agrees = missing;
    left.elements = held.elements + static_cast<long>(compare(fresh.tensors(), next.to(), never_zero{}).elements);
    left.reached = 2;
  }

  const cell cell_;
  const double asleep_;
  const world& world_ = worlds[cell_.in];
  const std::pair<holds_of_ranks, holds_of_ranks>& holds_ = holds_of(world_);
  processes all_;
  striker strikes_;
  bool checks_ = false;
  std::vector<std::optional<listening_socket>> later_;  // of the survivors' world
  std::vector<std::string> addresses_;
  double slowest_ = 0;
  bool away_ = false;
  std::string ending_;
  long lost_ = 0, elements_ = 0;
};

}  // namespace

TEST_CASE(
    "who is killed or stopped in a stage, packing, exchanging or unpacking: told in time, and all that is left lies "
    "there") {
  const std::vector<cell> cells =
      sample(static_cast<std::size_t>(testing::asked_for("RESHARD_CELLS", testing::thrown(24))));
  dice random(82);
  std::map<std::string, int> times;
  double slowest_kill = 0, slowest_stop = 0;
  long lost = 0, elements = 0, on_their_way = 0, exchanges = 0, away = 0;
  const auto finish = [&](faulted& f) {
    f.judge();
    const cell& c = f.what();
    constexpr const char *stages[] = {"first", "middle", "last"}, *moments[] = {"pack", "exchange", "unpack"};
    for (const std::string& of :
         {std::to_string(worlds[c.in].devices) + " processes, rank " + std::to_string(c.victim),
          std::string(stages[c.third]) + " stage, " + moments[c.when],
          std::string(c.keep ? "keep, " : "release, ") + (c.number == SIGKILL ? "kill" : "stop"), f.ending(),
          std::string(f.several_rounds() ? "several rounds" : "one round")})
      ++times[of];
    double& slowest = c.number == SIGKILL ? slowest_kill : slowest_stop;
    slowest = std::max(slowest, f.slowest());
    lost += f.lost(), elements += f.elements();
    away += f.away() ? 1 : 0;
    if (c.when == 1) ++exchanges, on_their_way += f.on_their_way() > 0 ? 1 : 0;
  };
  // one waits for others, as it does stage by stage where sources drain, and sleeps for longer than anybody waits
  faulted asleep({0, 1 + random.below(3), 1, static_cast<int>(testing::moment::wait), false, SIGSTOP}, random.bits(),
                 6);
  std::vector<std::unique_ptr<faulted>> stopped;  // they wait most of their time: several at once
  for (const cell& c : cells) {
    if (c.number == SIGKILL) {
      faulted one(c, random.bits());
      finish(one);
    } else {
      stopped.push_back(std::make_unique<faulted>(c, random.bits()));
    }
    if (stopped.size() < 4) continue;
    for (const auto& one : stopped) finish(*one);
    stopped.clear();
  }
  for (const auto& one : stopped) finish(*one);
  asleep.judge();
  for (const auto& [of, count] : times) std::printf("%4d  %s\n", count, of.c_str());
  std::printf(
      "{\"cells\":%zu,\"of\":%zu,\"slowest_kill\":%.3f,\"slowest_stop\":%.3f,\"elements\":%ld,\"lost\":%ld,"
      "\"exchanges\":%ld,\"with_messages_on_their_way\":%ld,\"machine_stood_still\":%ld}\n",
      cells.size(), all_cells().size(), slowest_kill, slowest_stop, elements, lost, exchanges, on_their_way, away);
}

namespace {

/// An end whose process is killed some microseconds after it came to a place: an agreement before anything moves, the
/// begin of a slot, or, of the closing rounds, the last slot, the wait for the last stages, the last agreement, or what
/// follows it.
struct doomed : forwarding<socket_endpoint> {
  enum class place { slot, last_slot, last_wait, last_agreement, past_it, preparing };
  bool me;
  place where;
  std::uint64_t bits;  // which slot, or which agreement
  long wait_us;
  left_behind& left;
  bool moved_any = false, moved_all = false;
  std::uint64_t agreements = 0;

  static inline left_behind* told = nullptr;
  static void die(int) {
    told->seconds = now();
    ::kill(::getpid(), SIGKILL);
  }
  void reach(place here) {
    if (!me || here != where) return;
    told = &left;
    std::signal(SIGALRM, die);
    const itimerval once{{}, {0, static_cast<suseconds_t>(wait_us + 1)}};
    ::setitimer(ITIMER_REAL, &once, nullptr);
  }
  /// One of the agreements that come before the first slot; there are 10 at least.
  void agrees() {
    if (!moved_any && agreements++ == bits % 10) reach(place::preparing);
  }
  agreement agree(const proposal& mine) {
    agrees();
    return inner.agree(mine);
  }
  void move(moves& m, index_t k) {
    moved_any = true;
    if (static_cast<std::uint64_t>(k) == bits % static_cast<std::uint64_t>(m.slots + 1)) reach(place::slot);
    if (k == m.slots) reach(place::last_slot);
    inner.move(m, k);
    moved_all = k == m.slots;
  }
  void await(index_t k) {
    if (moved_all) reach(place::last_wait);
    inner.await(k);
  }
  std::int64_t all_reduce_max(std::int64_t n) {
    agrees();
    if (moved_all) reach(place::last_agreement);
    const std::int64_t most = inner.all_reduce_max(n);
    if (moved_all) reach(place::past_it);
    return most;
  }
};

/// What a survivor finds in memory after a switch that ended so: how many elements are not as it says.
index_t wrong_after(const computed_switch& change, const routing& route, const switch_ending& ending, rank_t d,
                    const binding& old_tensors, const binding& new_tensors) {
  if (const ended::torn* t = std::get_if<ended::torn>(&ending))
    return compare(binding_after(torn_boxes(change, *t, route), d, old_tensors, new_tensors), change.to(), never_zero{})
        .wrong;
  const bool has_new = ending.index() == 0 || ending.index() == 4;
  return has_new ? compare(new_tensors, change.to(), never_zero{}).wrong
                 : compare(old_tensors, change.from(), never_zero{}).wrong;
}

}  // namespace

TEST_CASE(
    "killed at a random time, a third of them in the closing rounds: never finished beside torn, failed or refused") {
  const world& in = worlds[0];
  // the same as two nodes of two, where devices pass on what they received
  const layout_switch direct = in.change(), relayed(in.change().from(), in.change().to(), {.on = nodes_of(2)});
  dice random(71);
  long kinds[5] = {}, died = 0, died_closing = 0, finished_runs = 0, torn_relays = 0;
  const long kills = testing::asked_for("RESHARD_KILLS", testing::thrown(24));
  // How a switch ends hangs on the moment of the kill as well: it goes on until every way was met.
  const auto met_all = [&](long tried) {
    return died > tried / 2 && died_closing > 0 && torn_relays > 0 && kinds[1] > 0 && kinds[2] > 0 && kinds[3] > 0;
  };
  long n = 0;
  for (; n < kills || (!met_all(n) && n < 6 * std::max(kills, 24L)); ++n) {
    const long turn = n % 6, round = n / 6;  // in two rounds each turn keeps its sources once, in four it relays twice
    const auto victim = static_cast<rank_t>((n + n / 4) % in.devices);
    const bool closing = turn % 3 == 0, keep = (round + turn / 2) % 2 == 0, passes_on = (round / 2 + turn) % 2 == 0;
    const auto place =
        turn == 1 ? doomed::place::preparing : static_cast<doomed::place>(closing ? random.within(1, 4) : 0);
    const std::uint64_t bits = random.bits();
    const long wait_us = n % 12 == 1 ? 0 : random.below(closing ? 150 : 600);
    const computed_switch& change = passes_on ? relayed : direct;
    const routing route{passes_on ? relay::always : relay::never, 1, 5};
    REQUIRE(phases_of(change, route) > (passes_on ? 1 : 0));
    CAPTURE(passes_on);
    CAPTURE(n);
    CAPTURE(keep);
    CAPTURE(static_cast<int>(place));
    CAPTURE(wait_us);
    processes all(in.devices);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
      fill(before.tensors(), change.from(), never_zero{});
      socket_endpoint here(d, all.addresses, std::move(listening), two_seconds);
      doomed through{{here}, d == victim, place, bits, wait_us, left};
      const switch_ending ending = attempt_switch(change, before.tensors(), after.tensors(), through,
                                                  {.budget = keep ? no_budget : in.budget,
                                                   .after_use = keep ? sources::keep : sources::release,
                                                   .route = route});
      if (d != victim) left.seconds = now();
      left.say(words_of(ending));
      left.reached = 1 + static_cast<long>(ending.index());
      if (d != victim)
        left.wrong = static_cast<long>(wrong_after(change, route, ending, d, before.tensors(), after.tensors()));
    });
    REQUIRE(all.ended_within(30));
    const bool struck = all.of(victim).seconds > 0;
    died += struck ? 1 : 0, died_closing += struck && closing ? 1 : 0;
    std::string ends;
    for (rank_t d = 0; d < in.devices; ++d)
      ends += std::to_string(d) + ": " + all.of(d).sentence + " after " +
              std::to_string(all.of(d).seconds - all.of(victim).seconds) + " s; ";
    CAPTURE(victim);
    CAPTURE(ends);
    bool finished_somewhere = false, broken_somewhere = false;
    for (rank_t d = 0; d < in.devices; ++d) {
      if (d == victim && all.of(d).reached == 0) continue;
      CAPTURE(d);
      const std::string words = all.of(d).sentence;
      CAPTURE(words);
      REQUIRE(all.of(d).reached > 0);
      const long kind = all.of(d).reached - 1;
      ++kinds[kind];
      torn_relays += passes_on && kind == 3 ? 1 : 0;
      finished_somewhere = finished_somewhere || kind == 0;
      broken_somewhere = broken_somewhere || (kind >= 1 && kind <= 3);
      CHECK(all.of(d).wrong == 0);
      if (struck && d != victim) CHECK(all.of(d).seconds - all.of(victim).seconds - all.late() < 2);
    }
    CHECK_FALSE((finished_somewhere && broken_somewhere));
    finished_runs += finished_somewhere ? 1 : 0;
  }
  std::printf(
      "{\"kills\":%ld,\"died\":%ld,\"closing\":%ld,\"runs_finished\":%ld,\"ranks\":{\"finished\":%ld,\"refused\":%ld,"
      "\"failed\":%ld,\"torn\":%ld,\"unknown\":%ld},"
      "\"torn_with_relay\":%ld}\n",
      n, died, died_closing, finished_runs, kinds[0], kinds[1], kinds[2], kinds[3], kinds[4], torn_relays);
  CHECK(died > n / 2);
  CHECK(died_closing > 0);
  for (const int kind : {1, 2, 3}) CHECK(kinds[kind] > 0);
  CHECK(torn_relays > 0);
}
