// SPDX-License-Identifier: Apache-2.0
// Who holds what, against the oracle: random legal layouts, every rank, every state, every element; owners() as the
// inverse of held(); addresses in the contract's order; optimizer buffers to the padding.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <reshard/parallelism/parse_degrees.hpp>

#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/points.hpp"

using namespace reshard;
using testing::dice, testing::held_elements, testing::random_part, testing::to_model;

namespace {
constexpr oracle::state oracle_state(int i) { return oracle::all_states[i]; }  // the same order as adam

struct by_precedence {
  bool operator()(const family_box& a, const family_box& b) const { return precedes(a, b); }
};
/// The distinct boxes of a family and role, each with the ranks that hold it, ascending.
using box_holders = std::map<family_box, std::vector<rank_t>, by_precedence>;

template <typename Holders>
std::vector<rank_t> listed(const Holders& holders) {
  std::vector<rank_t> ranks;
  for (index_t i = 0; i < holders.count(); ++i) ranks.push_back(holders[i]);
  return ranks;
}

std::vector<box_holders> gather(const computed_holding& h, role r) {
  std::vector<box_holders> families(static_cast<std::size_t>(h.families()));
  for (rank_t rank = 0; rank < h.ranks(); ++rank)
    each_shared(h, rank, r, [&](int f, const family_box& b, const auto&) {
      CHECK_FALSE(b.empty());
      families[static_cast<std::size_t>(f)][b].push_back(rank);
    });
  return families;
}

/// Elements compared, and of these the ones that differ.
struct tally {
  long elements = 0, wrong = 0;
};

/// Both sides name every tensor of which a rank holds something, one char per element.
void count(const std::map<std::string, oracle::flat_set>& ours, const std::map<std::string, oracle::flat_set>& theirs,
           tally& compared) {
  for (const auto& [name, wanted] : theirs) compared.elements += static_cast<long>(wanted.size());
  if (ours == theirs) return;
  const auto lacking = [&](const auto& one, const auto& other) {
    for (const auto& [name, set] : one) {
      const auto same = other.find(name);
      for (std::size_t x = 0; x < set.size(); ++x)
        compared.wrong +=
            set[x] != 0 && (same == other.end() || x >= same->second.size() || same->second[x] == 0) ? 1 : 0;
    }
  };
  lacking(ours, theirs);
  lacking(theirs, ours);
}

void check_held_equals_oracle(const oracle::layout_case& c, const computed_holding& h, tally& compared) {
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    const std::map<std::string, oracle::flat_set> ours[] = {held_elements(h, rank, role::parameter),
                                                            held_elements(h, rank, role::optimizer)};
    for (const int i : all_states) {
      if (adam[i].placed_as() == role::statistic) continue;  // these models have none
      CAPTURE(rank);
      CAPTURE(i);
      const std::map<std::string, oracle::flat_set> wanted = oracle::held(c.m, c.parsed, rank, oracle_state(i));
      const std::map<std::string, oracle::flat_set>& had = ours[adam[i].placed_as() == role::parameter ? 0 : 1];
      CHECK(had == wanted);
      count(had, wanted, compared);
    }
  }
}

/// Sorted by address, a rank's tensors come in the contract's order; in optimizer buffers in reverse of it.
void check_addresses(const oracle::layout_case& c, const computed_holding& h, role r) {
  std::map<std::string, index_t> place;
  for (const oracle::entry& e : inventory(c.m, c.parsed))
    place.emplace(e.what.name, static_cast<index_t>(place.size()));
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    std::vector<std::pair<storage_order, index_t>> tensors;
    each_shared(h, rank, r, [&](int f, const family_box& b, const auto&) {
      for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
        for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert)
          tensors.emplace_back(h.order_of({f, member, expert}, rank, r),
                               place.at(h.space().tensor_on({f, member, expert}, rank)));
    });
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (h.sharded(r)) std::reverse(tensors.begin(), tensors.end());
    const auto out_of_place = std::adjacent_find(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return a.second > b.second || (a.first == b.first) != (a.second == b.second);
    });
    CHECK(out_of_place == tensors.end());
  }
}

void check_holders_are_told(const computed_holding& h, role r, const std::vector<box_holders>& families) {
  for (rank_t rank = 0; rank < h.ranks(); ++rank)
    each_shared(h, rank, r, [&](int f, const family_box& b, const auto& holders) {
      const std::vector<rank_t>& wanted = families[static_cast<std::size_t>(f)].at(b);
      CHECK(listed(holders) == wanted);
      CHECK(holders.index_of(rank) == std::lower_bound(wanted.begin(), wanted.end(), rank) - wanted.begin());
    });
}

/// Distinct boxes are disjoint and their volumes add up to the family: every element is in exactly one.
void check_exact_cover(const family& which, const box_holders& boxes) {
  std::vector<char> times(static_cast<std::size_t>(which.whole().volume()), 0);
  bool once = true;
  for (const auto& [b, ranks] : boxes)
    flat_intervals(which.extent, b, [&](interval i) {
      for (index_t x = i.begin; x < i.end; ++x) once &= times[static_cast<std::size_t>(x)]++ == 0;
    });
  CHECK(once);
  CHECK(std::count(times.begin(), times.end(), 1) == which.whole().volume());
}

void check_owners(const computed_holding& h, int f, role r, const box_holders& boxes, const family_box& within) {
  CAPTURE(testing::text(within));
  box_holders wanted, found;
  for (const auto& [b, ranks] : boxes)
    if (intersects(b, within)) wanted[b] = ranks;
  h.owners(f, r, within,
           [&](const family_box& b, const auto& holders) { CHECK(found.emplace(b, listed(holders)).second); });
  CHECK(found == wanted);
}

void check_buffers(const oracle::layout_case& c, const computed_holding& h) {
  const space& s = h.space();
  for (index_t k = 0; k < s.pipeline().chunks(); ++k)
    for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
      const index_t stage = k % c.parsed.pp, chunk = k / c.parsed.pp;
      const rank_t first_rank = stage * s.degrees().stage_ranks();
      const oracle::optimizer_buffer wanted = kind == mesh_kind::dense ? dense_buffer(c.m, c.parsed, stage, chunk)
                                                                       : expert_buffer(c.m, c.parsed, stage, chunk, 0);
      const index_t buckets = h.buffers().bucket_count(k, kind);
      REQUIRE(buckets == static_cast<index_t>(wanted.buckets.size()));
      for (index_t b = 0; b < buckets; ++b) {
        const auto [begin, end] = wanted.buckets[static_cast<std::size_t>(b)];
        CHECK(h.buffers().bucket(k, kind, b) == interval{begin, end});
      }
      CHECK(h.buffers().elements(k, kind) == (buckets == 0 ? 0 : wanted.buckets.back().second));

      using place = std::pair<index_t, std::pair<index_t, index_t>>;  // bucket, [begin, end)
      std::map<std::string, place> index_map, ours;
      for (const oracle::buffer_parameter& p : wanted.parameters) index_map[p.name] = {p.bucket, {p.begin, p.end}};
      for (int f = 0; f < s.families(); ++f)
        for (const buffer_entry& e : h.buffers().entries(k, kind, f))
          for (index_t i = 0; i < e.outer.count; ++i)
            for (index_t j = 0; j < e.experts; ++j) {
              const interval at = e.inner(i).item(j);
              ours[s.tensor_on({f, e.member_last - i, e.expert_last - j}, first_rank)] = {e.bucket, {at.begin, at.end}};
            }
      CHECK(ours == index_map);
    }
}

/// Checks so many random layouts, and says what was among them.
oracle::census check_layouts(std::uint64_t seed, long layouts) {
  oracle::generator generator(seed);
  dice random(1);
  index_t boxes = 0, questions = 0;
  tally compared;
  for (long n = 0; n < layouts; ++n) {
    const oracle::layout_case c = generator.next_layout();
    const std::string description = c.describe();
    CAPTURE(description);
    const space s(to_model(c.m), parse_degrees(c.text));
    CHECK(s.ranks() == c.parsed.world);
    const computed_holding h(s);
    check_held_equals_oracle(c, h, compared);
    if (c.parsed.zero == 1) check_buffers(c, h);
    for (const role r : roles) {
      if (!has_role(h, r)) continue;
      const std::vector<box_holders> families = gather(h, r);
      check_holders_are_told(h, r, families);
      check_addresses(c, h, r);
      for (int f = 0; f < h.families(); ++f) {
        const box_holders& held = families[static_cast<std::size_t>(f)];
        const family& which = h.family_at(f);
        CAPTURE(std::string(which.name));
        boxes += static_cast<index_t>(held.size());
        check_exact_cover(which, held);
        check_owners(h, f, r, held, which.whole());
        for (int m = 0; m < 6; ++m, ++questions) check_owners(h, f, r, held, random_part(random, which.extent));
        family_box element = random_part(random, which.extent);
        for (interval& i : element.dim) i.end = i.begin + 1;
        check_owners(h, f, r, held, element);
        element.dim[random.below(family_ndim)] = {0, 0};
        h.owners(f, r, element, [](const family_box&, const auto&) { FAIL("an owner of nothing"); });
      }
    }
  }
  std::printf("%s%lld boxes, %lld random questions to owners\n", generator.layout_census().report().c_str(),
              static_cast<long long>(boxes), static_cast<long long>(questions));
  // for tools/figures
  std::printf("{\"layouts\":%ld,\"elements\":%ld,\"wrong\":%ld}\n", layouts, compared.elements, compared.wrong);
  return generator.layout_census();
}
}  // namespace

TEST_CASE(
    "a hundred random layouts: held is the oracle's, element for element; owners is its inverse; buffers are the "
    "contract's") {
  CHECK(check_layouts(testing::seed(), 100).total() == 100);
}

TEST_CASE("the same for many, each feature alone and among others" * doctest::test_suite("many")) {
  const long layouts = 800;
  const oracle::census census = check_layouts(testing::seed() + 1, layouts);
  for (int i = 0; i < static_cast<int>(oracle::feature::devices); ++i) {  // devices belong to switches
    CAPTURE(std::string(oracle::feature_names.at(static_cast<std::size_t>(i))));
    const oracle::census::row row = census.of(static_cast<oracle::feature>(i));
    CHECK_DRAWN(row.alone >= layouts / 25);
    CHECK_DRAWN(row.with_two >= layouts / 15);
  }
}
