// SPDX-License-Identifier: Apache-2.0
// The version after a death, by brute force: worlds of up to five ranks step by step (gradients, one scalar over all,
// update), every situation that they come to, and every set of dead. The target is one that all survivors can reach and
// none is beyond; and standings are refused exactly where no world comes to them.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/standing.hpp>

#include "../support/tries.hpp"

using namespace reshard;

namespace {

/// Where a rank is in a step: what it has said to a collective counts for others, what it has ended for itself.
enum at : int { begun, gave_gradients, gradients_whole, gave_scalar, scalar_known, update_made, places };
/// The most ranks of a world. What up to three survivors can tell they tell of worlds of four already.
int most_ranks() { return testing::few() ? 4 : 5; }
/// Over whom gradients are summed: all members, or some of them alone, whom no other rank holds up.
enum class gradients_over { all, themselves };

using situation = std::vector<int>;  // of each rank: places x version + place

constexpr int version_at(int rank) { return rank / places; }
constexpr int place_at(int rank) { return rank % places; }
constexpr int stage_at(int rank) {
  return place_at(rank) >= scalar_known ? 2 : place_at(rank) >= gradients_whole ? 1 : 0;
}

bool all_gave(const situation& s, int version, int place) {
  for (const int other : s)
    if (other < places * version + place) return false;
  return true;
}
bool may_go_on(const situation& s, int rank, gradients_over over) {
  if (place_at(rank) == gave_gradients)
    return over == gradients_over::themselves || all_gave(s, version_at(rank), gave_gradients);
  return place_at(rank) != gave_scalar || all_gave(s, version_at(rank), gave_scalar);
}
/// Every situation of so many ranks, the least version being 0.
std::set<situation> reachable(int ranks, gradients_over over) {
  std::set<situation> found{situation(static_cast<std::size_t>(ranks), begun)};
  std::vector<situation> pending(found.begin(), found.end());
  while (!pending.empty()) {
    const situation s = pending.back();
    pending.pop_back();
    for (std::size_t r = 0; r < s.size(); ++r) {
      if (!may_go_on(s, s[r], over)) continue;
      situation after = s;
      ++after[r];
      int least = after[0];
      for (const int one : after) least = std::min(least, one);
      for (int& one : after) one -= places * version_at(least);
      if (found.insert(after).second) pending.push_back(after);
    }
  }
  return found;
}

member_name name_of(std::size_t rank) { return {"m" + std::to_string(rank)}; }

std::vector<standing> standings_of(const situation& s, unsigned living) {
  std::vector<standing> told;
  for (std::size_t r = 0; r < s.size(); ++r)
    if ((living >> r & 1u) != 0)
      told.push_back({name_of(r), 7 + version_at(s[r]), static_cast<update_stage>(stage_at(s[r]))});
  return told;
}

/// The versions that a survivor's state can have: as it is, and with the update where it may be made, which wants whole
/// gradients and the scalar on some survivor. What is updated is never what it was before.
std::set<int> versions_of(int rank, bool scalar_told) {
  const int version = version_at(rank);
  if (place_at(rank) == update_made) return {version + 1};
  if (place_at(rank) >= gradients_whole && scalar_told) return {version, version + 1};
  return {version};
}
bool knows_scalar(int rank, int of_version) {
  return version_at(rank) > of_version || (version_at(rank) == of_version && place_at(rank) >= scalar_known);
}

}  // namespace

TEST_CASE(
    "up to five ranks, every situation and every set of dead: all survivors reach the target, none is beyond it") {
  long situations = 0, judged = 0, ahead = 0, updates = 0, behind_dead = 0;
  for (const gradients_over over : {gradients_over::all, gradients_over::themselves})
    for (int ranks = 1; ranks <= most_ranks(); ++ranks)
      for (const situation& s : reachable(ranks, over)) {
        ++situations;
        for (unsigned living = 1; living < 1u << ranks; ++living) {
          ++judged;
          const target_version to = target(standings_of(s, living));
          bool good = to.refused.empty() && to.empty.empty();
          const int version = static_cast<int>(to.version) - 7;
          member_list expected;
          bool scalar_told = false, dead_ahead = false;
          for (std::size_t r = 0; r < s.size(); ++r) {
            if ((living >> r & 1u) != 0) scalar_told = scalar_told || knows_scalar(s[r], version - 1);
            else
              dead_ahead = dead_ahead || version_at(s[r]) > version ||
                           (version_at(s[r]) == version && place_at(s[r]) == update_made);
          }
          for (std::size_t r = 0; r < s.size(); ++r) {
            if ((living >> r & 1u) == 0) continue;
            good = good && version_at(s[r]) <= version;
            // of version - 1 it can follow where some survivor tells the scalar of that step
            good = good && versions_of(s[r], scalar_told && version_at(s[r]) == version - 1).count(version) > 0;
            if (version_at(s[r]) == version - 1 && stage_at(s[r]) == 1) expected.push_back(name_of(r));
          }
          good = good && to.updates == expected;
          if (!good) {
            CAPTURE(to_text(to));
            CHECK(good);
            return;
          }
          ahead += version > version_at(*std::min_element(s.begin(), s.end())) ? 1 : 0;
          updates += expected.empty() ? 0 : 1;
          behind_dead += dead_ahead ? 1 : 0;
        }
      }
  MESSAGE(situations << " situations, " << judged << " sets of survivors; " << ahead << " go on, in " << updates
                     << " some make the update, in " << behind_dead << " a dead rank was further alone");
  CHECK(situations > 1000);
  CHECK(ahead > 1000);
  CHECK(updates > 1000);
  CHECK(behind_dead > 100);
}

TEST_CASE("standings are refused exactly where no survivors of any world tell them") {
  using told = std::multiset<std::pair<int, int>>;  // version, stage
  std::set<told> can_be;                            // least version 0
  for (int ranks = 1; ranks <= most_ranks(); ++ranks)
    for (const situation& s : reachable(ranks, gradients_over::themselves))
      for (unsigned living = 1; living < 1u << ranks; ++living) {
        told one;
        int least = 99;
        for (std::size_t r = 0; r < s.size(); ++r)
          if ((living >> r & 1u) != 0) least = std::min(least, version_at(s[r]));
        for (std::size_t r = 0; r < s.size(); ++r)
          if ((living >> r & 1u) != 0) one.insert({version_at(s[r]) - least, stage_at(s[r])});
        if (one.size() <= 3) can_be.insert(one);
      }
  int accepted = 0, refused = 0;
  for (int members = 1; members <= 3; ++members)
    for (int code = 0, codes = members == 1 ? 9 : members == 2 ? 81 : 729; code < codes; ++code) {
      std::vector<standing> standings;
      int rest = code, least = 3;
      told one;
      for (int m = 0; m < members; ++m, rest /= 9) least = std::min(least, rest % 9 / 3);
      rest = code;
      for (int m = 0; m < members; ++m, rest /= 9) {
        standings.push_back({name_of(static_cast<std::size_t>(m)), rest % 9 / 3, static_cast<update_stage>(rest % 3)});
        one.insert({rest % 9 / 3 - least, rest % 3});
      }
      const target_version to = target(standings);
      CAPTURE(to_text(to));
      CHECK(to.refused.empty() == (can_be.count(one) > 0));
      ++(to.refused.empty() ? accepted : refused);
    }
  MESSAGE(can_be.size() << " standings of at most three can be; " << accepted << " accepted, " << refused
                        << " refused");
  CHECK(accepted > 100);
  CHECK(refused > 100);
}

TEST_CASE("what a target says") {
  const auto s = [](const char* who, index_t version, int stage) {
    return standing{who, version, static_cast<update_stage>(stage)};
  };
  CHECK(to_text(target({s("a", 7, 0), s("b", 7, 1)})) == "version 7");
  CHECK(to_text(target({s("a", 7, 2), s("b", 7, 1)})) == "version 8; b makes the update");
  CHECK(to_text(target({s("c", 7, 1), s("a", 8, 0), s("b", 7, 1), s("d", -1, 0)})) ==
        "version 8; c and b make the update; d is empty");
  CHECK(to_text(target({s("d", -1, 0), s("e", -1, 0), s("a", 0, 1)})) == "version 0; d and e are empty");
  CHECK(target({s("a", 7, 2), s("b", 7, 0)}).refused ==
        "a is at version 7, stage 2, and b is at version 7, stage 0; the scalar on one member proves the gradients on "
        "all");
  CHECK(target({s("a", 8, 0), s("b", 7, 0)}).refused ==
        "a is at version 8, stage 0, and b is at version 7, stage 0; the scalar on one member proves the gradients on "
        "all");
  CHECK(target({s("a", 9, 0), s("b", 7, 2)}).refused ==
        "a is at version 9, stage 0, and b is at version 7, stage 2; versions of one world are at most one apart");
  CHECK(
      target({s("a", 7, 1), s("b", 8, 2)}).refused ==
      "b is at version 8, stage 2, and a is at version 7, stage 1; the scalar of a step is known to nobody before all "
      "have begun it");
  CHECK(to_text(target({s("a", 7, 1), s("a", 7, 1)})) == "no version: a is there twice; a member has one standing");
  // of those who are equally far on the first is named; and what is refused says nothing else
  CHECK(target({s("d", -1, 0), s("a", 9, 0), s("c", 9, 0), s("b", 7, 1), s("e", 7, 1)}) ==
        target_version{.refused = "a is at version 9, stage 0, and b is at version 7, stage 1; versions of one world "
                                  "are at most one apart"});
  CHECK(detail::standing_text(s("d", holds_nothing, 0)) == "d holds nothing");
  CHECK(target({}).refused == "nobody tells a standing");
  CHECK(target({s("a", -1, 0)}).refused == "nobody holds any state");
  CHECK(target({s("a", -1, 2)}).refused == "a holds nothing and is at stage 2; what has no version is at stage 0");
}

TEST_CASE("without a scalar: the highest version that is whole, the others are empty") {
  const std::vector<standing> told{{"a", 8}, {"b", 7}, {"c", 7}, {"d", 5}};
  const auto at_least = [](std::size_t n) { return [n](const member_list& at) { return at.size() >= n; }; };
  CHECK(to_text(target_as_told(told, at_least(1))) == "version 8; b, c and d are empty");
  CHECK(to_text(target_as_told(told, at_least(2))) == "version 7; a and d are empty");
  CHECK(target_as_told(told, at_least(3)).refused == "no version is held whole by those who tell a standing");
  CHECK(target_as_told({{"a", holds_nothing}}, at_least(0)).refused ==
        "no version is held whole by those who tell a standing");
}
