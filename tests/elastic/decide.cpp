// SPDX-License-Identifier: Apache-2.0
// Decisions: each rung taken and every reason against one, by hand; and random policies and situations against a twin
// that walks the rungs by the contract's words over replicas that it counts itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/decide.hpp>
#include <reshard/model/transformer.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

const model tiny = make_transformer(
    {.name = "tiny", .layers = 4, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 8, .vocabulary = 8});

/// Members a, b, c .. of a layout, those of `dead` being dead.
elastic_situation of(const char* layout, const std::string& dead = "", member_list spares = {}) {
  elastic_situation s;
  s.model = tiny;
  s.layout = parse_degrees(layout);
  for (rank_t r = 0; r < s.layout.world(); ++r) {
    const std::string who(1, static_cast<char>('a' + r));
    s.members.push_back({who, dead.find(who) != std::string::npos});
  }
  s.spares = std::move(spares);
  s.version = 7;
  return s;
}
elastic_policy with(std::vector<rung> rungs) {
  elastic_policy p;
  p.rungs = std::move(rungs);
  return p;
}
std::string decided(const elastic_policy& p, const elastic_situation& s) { return to_text(decide(p, s)); }

}  // namespace

TEST_CASE("nobody dead, nobody slow: no rung") {
  CHECK(decided({}, of("dp=2")) ==
        "no rung; not hot: nobody is slow: over 3 windows the slowest takes 0 times the median of its peers, and 2 is "
        "slow; not replace: nobody is dead; not shrink: nobody is dead; not snapshot: nobody is dead; not checkpoint: "
        "nobody is dead; not wait: nobody is dead");
}

TEST_CASE("hot: whoever is slow in k windows makes place for a spare, rank 0 as any other") {
  for (std::size_t sick = 0; sick < 3; ++sick) {
    elastic_situation s = of("dp=3");
    for (seen_member& m : s.members) m.steps = {1, 1, 1, 1};
    s.members[sick].steps = {1, 2, 2.5, 2};
    CHECK(decide(with({rung::hot}), s).taken == std::nullopt);
    const std::string who(s.members[sick].name.text());
    CHECK(decided(with({rung::hot}), s) ==
          "no rung; not hot: " + who +
              " is slow, up to 2 times the median of the peers, and 0 spares are registered for 1 "
              "slow member yet; waited 0 of 60 s");
    s.waited = 60;
    CHECK(decided(with({rung::hot}), s) == "no rung; not hot: ignored: " + who +
                                               " is slow, up to 2 times the median of the peers, and 0 spares are "
                                               "registered for 1 slow member; waited 60 of 60 s");
    s.spares = {"x"};
    const elastic_decision d = decide(with({rung::hot}), s);
    CHECK(d.taken == rung::hot);
    CHECK(d.world[sick] == "x");
    CHECK(d.layout == s.layout);
    CHECK(d.version == 7);
    s.members[sick].steps[3] = 1.9;  // one window below
    CHECK_FALSE(decide(with({rung::hot}), s).taken);
    s.members[sick].steps = {3, 3};  // too few windows
    CHECK_FALSE(decide(with({rung::hot}), s).taken);
    s.members[sick].steps = {3, 3, 3};
    s.members[(sick + 1) % 3].dead = true;
    CHECK(decided(with({rung::hot}), s) == "no rung; not hot: a member is dead; who is slow comes after");
  }
}

TEST_CASE("hot: the least ratio of the last k windows to the median of the others, of those who were timed in each") {
  elastic_policy p = with({rung::hot});
  p.windows = 2;
  elastic_situation s = of("dp=4");
  const auto slowest = [&] {
    const std::string text = decided(p, s);
    const std::string before = " the slowest takes ";
    const std::size_t at = text.find(before);
    REQUIRE(at != std::string::npos);
    return text.substr(at + before.size(), text.find(" times") - at - before.size());
  };
  // of an even number of others the median is the mean of the two in the middle
  s.members[0].steps = {9, 4.5, 4.5};
  s.members[1].steps = {1, 3, 3};
  s.members[2].steps = {1, 2, 2};
  CHECK(slowest() == "1.8");
  s.members[3].steps = {1, 4, 4};  // of three the middle one
  CHECK(slowest() == "1.5");
  s.members[0].steps = {9, 5, 4.2};  // the least of the windows
  CHECK(slowest() == "1.4");
  s.members[0].steps = {9, 4.2, 5};
  CHECK(slowest() == "1.4");
  s.members[1].steps = {3};  // in the window before it was not timed: then 5 / 3 and 6 / 3
  s.members[0].steps = {6, 5};
  s.members[3].steps = {3, 4};
  s.members[2].steps = {3, 2};
  CHECK(slowest() == "1.67");
  s.members[0].steps = {5};
  CHECK(slowest() == "1");  // d: in the window before 3 s, as c, the only other
}

TEST_CASE("hot: a factor that is reached is slow, in one window as in many; nobody is where nobody can be compared") {
  elastic_policy p = with({rung::hot});
  p.windows = 1, p.factor = 1.5;
  elastic_situation s = of("dp=2", "", {"x"});
  s.members[0].steps = {3}, s.members[1].steps = {2};
  CHECK(decided(p, s) == "hot: x and b, dp=2, from version 7");
  CHECK(decide(p, s).slow == member_list{"a"});
  s.members[0].steps = {2.9375};
  CHECK(decided(p, s) ==
        "no rung; not hot: nobody is slow: over 1 window the slowest takes 1.47 times the median of its peers, and 1.5 "
        "is slow");
  s.members[1].steps = {0};  // no time of a step
  CHECK(decided(p, s).starts_with("no rung; not hot: nobody is slow: over 1 window the slowest takes 0 times"));
  s = of("dp=1", "", {"x"});
  s.members[0].steps = {3};
  CHECK(decided(p, s).starts_with("no rung; not hot: nobody is slow: over 1 window the slowest takes 0 times"));
}

TEST_CASE("hot: several who are slow, and spares for all of them or for none") {
  elastic_policy p = with({rung::hot});
  p.windows = 1, p.wait = 12.345;
  elastic_situation s = of("dp=5", "", {"x"});
  for (seen_member& m : s.members) m.steps = {1};
  s.members[1].steps = {4}, s.members[3].steps = {5};
  s.waited = 12.34;
  CHECK(decided(p, s) ==
        "no rung; not hot: b and d are slow, up to 5 times the median of the peers, and 1 spare is registered for 2 "
        "slow members yet; waited 12.3 of 12.3 s");
  s.waited = 12.345;
  CHECK(decided(p, s) ==
        "no rung; not hot: ignored: b and d are slow, up to 5 times the median of the peers, and 1 spare is registered "
        "for 2 slow members; waited 12.3 of 12.3 s");
  CHECK(decide(p, s).slow == member_list{"b", "d"});
  s.spares = {"x", "y", "z"};
  CHECK(decided(p, s) == "hot: a, x, c, y and e, dp=5, from version 7");
}

TEST_CASE("what nobody holds who lives is counted in bytes, of every state once") {
  const index_t bytes = 14 * tiny.parameters();  // param 2, master 4, both moments 4 each
  CHECK(decide({}, of("dp=2", "a")).unheld == 0);
  CHECK(decide({}, of("dp=2", "ab")).unheld == bytes);
  CHECK(decided(with({rung::replace}), of("dp=1", "a", {"x"})) ==
        "no rung; not replace: " + std::to_string(bytes) + " bytes of version 7 have no living holder");
  elastic_situation s = of("dp=2");
  CHECK(decide({}, s).unheld == 0);
  s.members[0].empty = s.members[1].empty = true;  // all live, and hold another version
  CHECK(decide({}, s).unheld == bytes);
  s.members[1].empty = false;
  CHECK(decide({}, s).unheld == 0);
}

TEST_CASE("what is said of a torn switch counts: state that lies between two layouts, whoever lives") {
  const elastic_policy p = with({rung::replace, rung::shrink, rung::snapshot, rung::checkpoint, rung::wait});
  elastic_situation s = of("dp=2", "", {"x", "y"});
  s.unheld = 1;
  CHECK(decided(p, s) ==
        "no rung; not replace: 1 bytes of version 7 have no living holder; not shrink: 1 bytes of version 7 have no "
        "living holder; not snapshot: there are no snapshots; not checkpoint: the trainer named none; not wait: 1 "
        "bytes of version 7 have no living holder");
  s.unheld = 5;
  CHECK(decide(p, s).unheld == 5);
  // of the version asked about itself only copies count then
  s.snapshots = {{"a", "a", 7}};
  CHECK(decided(p, s).find("snapshot: a and b, dp=2, from version 7") == 0);
  s.snapshots = {{"a", "a", 8}, {"a", "a", 6}};
  CHECK(decided(p, s).find("snapshot: a and b, dp=2, from version 6") == 0);
  s.snapshots.clear();
  s.checkpoint = 0;
  CHECK(decided(p, s).find("checkpoint: a and b, dp=2, from version 0") == 0);
  s = of("dp=2", "ab", {"x", "y"});
  s.unheld = 0;
  CHECK(decided(p, s) == "replace: x and y, dp=2, from version 7");
}

TEST_CASE("replace: spares take the places of the dead") {
  CHECK(decided(with({rung::replace}), of("dp=3", "b", {"x", "y"})) == "replace: a, x and c, dp=3, from version 7");
  CHECK(decided(with({rung::replace}), of("dp=3", "ac", {"x", "y"})) == "replace: x, b and y, dp=3, from version 7");
  CHECK(decided(with({rung::replace}), of("dp=3", "ac", {"x"})) ==
        "no rung; not replace: 1 spare is registered for 2 dead members");
  CHECK(decided(with({rung::replace}), of("tp=2", "b", {"x"})).find(" bytes of version 7 have no living holder") !=
        std::string::npos);
  // whose state is not of the target holds nothing
  elastic_situation s = of("dp=2", "b", {"x"});
  s.members[0].empty = true;
  CHECK_FALSE(decide(with({rung::replace}), s).taken);
}

TEST_CASE("shrink: the most of who is there that have a legal layout, at least min; of those the fewest bytes") {
  elastic_policy p = with({rung::shrink});
  p.axes = {layout_key::dp};
  CHECK(decided(p, of("dp=4", "c")) == "shrink: a, b and d, dp=3, from version 7");
  CHECK(decided(p, of("dp=4", "bc", {"x"})) == "shrink: a, d and x, dp=3, from version 7");
  p.min = 4;
  CHECK(decided(p, of("dp=4", "c")) == "no rung; not shrink: 3 members are there, and a world has at least 4");
  CHECK(decided(p, of("dp=1", "a")).find("have no living holder") != std::string::npos);
  p.min = 1;
  p.axes = {layout_key::tp};  // heads do not divide by 3
  CHECK(decided(p, of("tp=4", "c")).find(" bytes of version 7 have no living holder") != std::string::npos);
  CHECK(decided(p, of("dp=4", "c")) == "no rung; not shrink: no layout of 3 down to 1 members is legal");
  p.axes = {layout_key::tp, layout_key::dp};
  CHECK(decided(p, of("tp=2,dp=2", "d")) == "shrink: a, b and c, dp=3, from version 7");
  p.min = 3;
  p.axes = {layout_key::tp};
  CHECK(decided(p, of("tp=2,dp=2", "d", {})) == "no rung; not shrink: no layout of 3 down to 3 members is legal");
  // each data-parallel rank has a sample
  p.min = 1;
  p.axes = {layout_key::tp, layout_key::dp};
  elastic_situation few = of("tp=2,dp=2", "d");
  few.batch = 2;
  CHECK(decided(p, few) == "shrink: a and b, tp=2, from version 7");
  p.min = 3;
  CHECK(decided(p, few) ==
        "no rung; not shrink: no layout of 3 down to 3 members is legal and leaves each data-parallel rank one of 2 "
        "samples");
  // of the layouts of two, the one that leaves most where it is
  p = with({rung::shrink});
  CHECK(decided(p, of("tp=2,dp=2", "cd")) == "shrink: a and b, tp=2, from version 7");
}

TEST_CASE("shrink: the least number of members, and of samples, that a world may have") {
  elastic_policy p = with({rung::shrink});
  p.axes = {layout_key::dp};
  p.min = 2;
  CHECK(decided(p, of("dp=2", "b")) == "no rung; not shrink: 1 member is there, and a world has at least 2");
  CHECK(decided(p, of("dp=3", "b")) == "shrink: a and c, dp=2, from version 7");
  p.axes = {layout_key::tp};  // below 1 nobody is asked for
  for (const rank_t min : {1, 0, -3}) {
    p.min = min;
    CHECK(decided(p, of("dp=4", "c")) == "no rung; not shrink: no layout of 3 down to 1 members is legal");
  }
  p.axes = {layout_key::tp, layout_key::dp};
  elastic_situation s = of("tp=2,dp=2", "d");
  s.batch = 3;
  CHECK(decided(p, s) == "shrink: a, b and c, dp=3, from version 7");
}

TEST_CASE("shrink: to who lives and holds nothing all moves, and what is lost does not move at all") {
  elastic_policy p = with({rung::shrink});
  p.axes = {layout_key::tp, layout_key::dp};
  // b has all that a layout of a and b wants of it; a, if it is empty, gets all or a half
  elastic_situation s = of("dp=4", "cd");
  CHECK(decided(p, s) == "shrink: a and b, dp=2, from version 7");
  s.members[0].empty = true;
  CHECK(decided(p, s) == "shrink: a and b, tp=2, from version 7");
  // a and b have the first stage, and who had the second is dead: nothing moves, by whichever layout
  p = with({rung::checkpoint});
  s = of("pp=2,dp=2", "cd");
  s.checkpoint = 5;
  CHECK(decided(p, s) == "checkpoint: a and b, dp=2, from version 5");
}

TEST_CASE("snapshots: a copy counts once, and of a member of the world") {
  const elastic_policy p = with({rung::snapshot});
  elastic_situation s = of("tp=2", "b", {"x"});
  const std::string none = "no rung; not snapshot: no version of the snapshots is whole with whom lives";
  for (const std::vector<kept_snapshot>& kept : {std::vector<kept_snapshot>{{"a", "a", 5}, {"a", "x", 5}},
                                                 {{"a", "a", 5}, {"stranger", "a", 5}},
                                                 {{"stranger", "a", 5}, {"b", "a", 5}},
                                                 {{"a", "a", 5}, {"b", "stranger", 5}},
                                                 {{"a", "a", 5}, {"b", "b", 5}}}) {
    s.snapshots = kept;
    CHECK(decided(p, s) == none);
  }
  s.snapshots = {{"a", "x", 5}, {"b", "x", 5}};
  CHECK(decided(p, s) == "snapshot: a and x, tp=2, from version 5");
}

TEST_CASE("states that the job has not are missed by nobody, and do not count as moved") {
  const elastic_policy p = with({rung::shrink});
  elastic_situation s = of("dp=4,zero=1", "cd");
  CHECK(decided(p, s).find(" bytes of version 7 have no living holder") != std::string::npos);
  s.list = {{"param", dtype::bf16, 3}};
  CHECK(decided(p, s) == "shrink: a and b, dp=2,zero=1, from version 7");
  s = of("dp=2,zero=1", "b");
  const bytes_t of_adam = decide(p, s).unheld;  // half of 12 bytes of each parameter
  s.list = {{"param", dtype::bf16, 3}, {"ema", dtype::fp32, 1}};
  CHECK(decide(p, s).unheld * 3 == of_adam);
}

TEST_CASE("snapshots: the newest version that whom lives and copies hold whole; a checkpoint of an earlier one") {
  const elastic_policy p = with({rung::snapshot, rung::checkpoint});
  elastic_situation s = of("tp=2", "b", {"x"});
  CHECK(decided(p, s) == "no rung; not snapshot: there are no snapshots; not checkpoint: the trainer named none");
  s.checkpoint = 8;
  s.snapshots = {{"a", "b", 5}, {"b", "b", 5}, {"b", "a", 4}};
  CHECK(decided(p, s) ==
        "no rung; not snapshot: no version of the snapshots is whole with whom lives; not checkpoint: it is of version "
        "8, "
        "and the job is at 7");
  s.checkpoint = 7;
  CHECK(decided(p, s).starts_with("checkpoint: a and x, tp=2, from version 7"));
  s.snapshots.push_back({"a", "x", 4});
  CHECK(decided(p, s) == "snapshot: a and x, tp=2, from version 4");
  s.snapshots.push_back({"b", "a", 6});
  s.snapshots.push_back({"a", "a", 6});
  s.snapshots.push_back({"b", "a", 9});
  CHECK(decided(p, s) == "snapshot: a and x, tp=2, from version 6");
  s.snapshots.push_back({"b", "x", 7});  // a holds its part itself
  CHECK(decided(p, s) == "snapshot: a and x, tp=2, from version 7");
  s.spares.clear();
  CHECK(decided(p, s).starts_with("snapshot: a, "));
  const elastic_situation whole = of("dp=2", "b");
  CHECK(decided(p, whole) ==
        "no rung; not snapshot: every element has a living holder; not checkpoint: every element has a living holder");
}

TEST_CASE("wait: while state is whole and nobody fits, and then the next rung") {
  const elastic_policy p = with({rung::wait, rung::shrink});
  elastic_situation s = of("dp=3", "b");
  CHECK(decided(p, s) == "wait");
  s.waited = 60;
  CHECK(decided(p, s).starts_with("shrink: "));
  CHECK(decided(p, s).ends_with("; not wait: waited 60 of 60 s"));
  s.waited = 0;
  s.spares = {"x"};
  CHECK(decide(p, s).because[0].why == "somebody fits: 1 spare is registered for 1 dead member");
  CHECK(decide(p, of("tp=2", "b")).because[0].why.find("have no living holder") != std::string::npos);
}

TEST_CASE("a situation that does not fit its layout") {
  elastic_situation s = of("dp=3");
  s.members.pop_back();
  CHECK_REFUSED(decide({}, s), "decide: 2 members, and the layout has 3 ranks");
}

namespace {

/// The first rung by the contract's words. Layouts are tp x dp without ZeRO: rank r holds part r mod tp of everything,
/// so state is whole where each part has a holder.
std::string rung_by_words(const elastic_policy& p, const elastic_situation& s) {
  std::set<index_t> parts;
  std::size_t dead = 0, living = 0, slow = 0;
  const auto part_of = [&](std::size_t r) { return static_cast<index_t>(r) % s.layout.tp; };
  for (std::size_t r = 0; r < s.members.size(); ++r) {
    ++(s.members[r].dead ? dead : living);
    if (!s.members[r].dead && !s.members[r].empty) parts.insert(part_of(r));
    bool all = true;
    for (std::size_t w = 0; w < 3 && all; ++w) {
      std::vector<double> others;
      for (std::size_t o = 0; o < s.members.size(); ++o)
        if (o != r) others.push_back(s.members[o].steps[w]);
      std::sort(others.begin(), others.end());
      const std::size_t n = others.size();
      all = n > 0 &&
            s.members[r].steps[w] >= p.factor * (n % 2 == 1 ? others[n / 2] : (others[n / 2 - 1] + others[n / 2]) / 2);
    }
    slow += all ? 1 : 0;
  }
  const bool whole = static_cast<index_t>(parts.size()) == s.layout.tp;
  const bool shrinks = static_cast<index_t>(living + s.spares.size()) >= p.min && living + s.spares.size() > 0;
  const bool fits = s.spares.size() >= dead;
  bool covered = false;
  for (index_t v = 0; v <= s.version; ++v) {
    std::set<index_t> at = v == s.version ? parts : std::set<index_t>();
    for (const kept_snapshot& k : s.snapshots) {
      const auto is = [&](const member_name& who) { return [&who](const seen_member& m) { return m.name == who; }; };
      const auto holder = std::find_if(s.members.begin(), s.members.end(), is(k.at));
      if (k.version != v || holder->dead) continue;
      at.insert(part_of(
          static_cast<std::size_t>(std::find_if(s.members.begin(), s.members.end(), is(k.of)) - s.members.begin())));
    }
    covered = covered || static_cast<index_t>(at.size()) == s.layout.tp;
  }
  for (const rung one : p.rungs) {
    if (one == rung::hot && dead == 0 && slow > 0 && s.spares.size() >= slow) return "hot";
    if (one == rung::replace && dead > 0 && whole && fits) return "replace";
    if (one == rung::shrink && dead > 0 && whole && shrinks) return "shrink";
    if (one == rung::snapshot && !whole && covered && (fits || shrinks)) return "snapshot";
    if (one == rung::checkpoint && !whole && s.checkpoint && *s.checkpoint <= s.version && (fits || shrinks))
      return "checkpoint";
    if (one == rung::wait && dead > 0 && whole && !fits && s.waited < p.wait) return "wait";
  }
  return "none";
}

}  // namespace

TEST_CASE("random policies and situations: the rung that the contract's words take") {
  dice random(32);
  std::map<std::string, int> taken;
  for (int i = 0; i < testing::tries(600); ++i) {
    const index_t tp = index_t{1} << random.below(2), dp = random.within(1, 3);
    elastic_situation s = of(("tp=" + std::to_string(tp) + ",dp=" + std::to_string(dp)).c_str());
    elastic_policy p;
    for (std::size_t a = p.rungs.size(); a > 1; --a)
      std::swap(p.rungs[a - 1], p.rungs[static_cast<std::size_t>(random.below(static_cast<index_t>(a)))]);
    p.rungs.resize(static_cast<std::size_t>(random.within(1, 6)));
    p.min = random.within(1, 3);
    const bool quiet = random.below(4) == 0;
    for (seen_member& m : s.members) {
      m.dead = !quiet && random.below(3) == 0;
      m.empty = !quiet && random.below(8) == 0;
      const double own = random.below(4) == 0 ? 3 : 1;
      m.steps = {own, own, own};
    }
    for (index_t n = random.below(3); n > 0; --n) s.spares.push_back("s" + std::to_string(n));
    s.waited = static_cast<double>(random.below(2)) * 60;
    for (index_t n = random.below(6); n > 0; --n) {
      const auto any = [&] { return s.members[static_cast<std::size_t>(random.below(std::ssize(s.members)))].name; };
      s.snapshots.push_back({any(), any(), random.within(6, 8)});
    }
    if (random.coin()) s.checkpoint = random.within(6, 8);
    const elastic_decision d = decide(p, s);
    const std::string said = d.taken ? std::string(name(*d.taken)) : "none";
    CAPTURE(to_text(d));
    CHECK(said == rung_by_words(p, s));
    ++taken[said];
    const std::size_t at =
        d.taken ? static_cast<std::size_t>(std::find(p.rungs.begin(), p.rungs.end(), *d.taken) - p.rungs.begin())
                : p.rungs.size();
    REQUIRE(d.because.size() == at);
    for (std::size_t r = 0; r < at; ++r) CHECK((d.because[r].which == p.rungs[r] && !d.because[r].why.empty()));
    CHECK(d.layout.has_value() == (d.taken && *d.taken != rung::wait));
    if (!d.layout) continue;
    CHECK(d.layout->world() == std::ssize(d.world));
    for (const member_name& who : d.world) {
      bool there = has_member(s.spares, who);
      for (const seen_member& m : s.members) there = there || (m.name == who && !m.dead);
      CHECK(there);
    }
  }
  std::string counts;
  for (const auto& [which, count] : taken) counts += " " + which + " " + std::to_string(count);
  MESSAGE("taken:" << counts);
  CHECK_DRAWN(taken.size() == 7);
}
