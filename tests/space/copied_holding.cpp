// SPDX-License-Identifier: Apache-2.0
// Holdings of copies against sets of ranks, element by element: random layouts, and copies of every kind; that they
// stay Holdings by their laws, alone and inside others; and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/copied_holding.hpp>
#include <reshard/space/cover.hpp>

#include "../support/copied_sets.hpp"
#include "../support/drawn_layouts.hpp"
#include "../support/refused.hpp"
#include "../support/states.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::copies_are, testing::dice, testing::each_number, testing::element_sets, testing::refused;

static_assert(Holding<copied_holding<computed_holding>> && Holding<copied_holding<listed_holding>> &&
              Holding<copied_holding<any_holding>> && Holding<living_holding<copied_holding<computed_holding>>>);

namespace {

/// Of up to 32 ranks.
std::string small_layout(dice& random, bool experts) {
  std::string text = random.coin() ? "tp=2" : "tp=1";
  const char* const pipelines[] = {"", ",pp=2", ",pp=4", ",pp=2,vpp=2", ",pp=3,split=spread"};
  text += pipelines[random.below(std::size(pipelines))];
  text += ",dp=" + std::to_string(random.within(1, 4));
  if (experts && random.coin() && text.ends_with("dp=2")) text += ",ep=2";
  const char* const shards[] = {
      "", ",zero=1", ",zero=1,bucket=50", ",zero=2", ",zero=1,shard=rows", ",zero=3,shard=rows"};
  return text + shards[random.below(std::size(shards))];
}

struct features {
  int layouts = 0, experts = 0, statistics = 0, tp = 0, pp = 0, dp = 0, ep = 0, zero = 0, rows = 0, tied = 0;
  int kinds[static_cast<int>(copies_are::kinds)] = {};
  int kept = 0, both = 0, own_keepers = 0, covered = 0, uncovered = 0, nothing = 0;
};

/// The ranks that holders name; whether they are ascending and say of each rank what the order says.
bool well_named(const Holders auto& holders, rank_t ranks, std::uint64_t& named) {
  named = 0;
  index_t below = 0;
  bool right = true;
  for (rank_t r = 0; r < ranks; ++r) {
    const bool has = below < holders.count() && holders[below] == r;
    right = right && holders.count_below(r) == below && holders.contains(r) == has &&
            holders.index_of(r) == (has ? below : -1);
    if (has) named |= std::uint64_t{1} << r, ++below;
  }
  return right && below == holders.count();
}

family_box drawn_part(dice& random, const family& of) { return testing::random_part(random, of.extent); }

/// Everything that a holding answers of a family and role is what the sets say.
template <Holding H>
void check_answers(const H& h, const element_sets& shall, int f, role r, const family_box& within) {
  const family& whole = h.family_at(f);
  const auto elements = static_cast<std::size_t>(whole.whole().volume());
  const auto wanted = [&](const family_box& b, std::uint64_t named) {  // of each element of the box
    bool right = true;
    each_number(whole, b, [&](std::size_t i) { right = right && shall.at(r, f, i) == named; });
    return right;
  };
  bool once = true, named_right = true, alike = true, owned = true;
  std::vector<family_box> distinct;
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    std::vector<bool> has(elements);
    std::vector<family_box> boxes;
    h.held(f, rank, r, [&](int of, const family_box& b) {
      boxes.push_back(b);
      once = once && of == f && !b.empty();
      each_number(whole, b, [&](std::size_t i) { once = once && !has[i], has[i] = true; });
    });
    for (std::size_t i = 0; i < elements; ++i) once = once && has[i] == ((shall.at(r, f, i) >> rank & 1) != 0);
    std::size_t next = 0;
    h.shared(f, rank, r, [&](int of, const family_box& b, const Holders auto& holders) {
      alike = alike && of == f && next < boxes.size() && boxes[next++] == b;
      std::uint64_t named = 0, owners_named = 0;
      named_right = named_right && well_named(holders, h.ranks(), named) && wanted(b, named);
      int times = 0;
      h.owners(f, r, b, [&](const family_box& whose, const Holders auto& owners) {
        owned = owned && ++times == 1 && whose == b && well_named(owners, h.ranks(), owners_named);
      });
      owned = owned && times == 1 && owners_named == named;
    });
    alike = alike && next == boxes.size();
    distinct.insert(distinct.end(), boxes.begin(), boxes.end());
  }
  CHECK(once);         // held() names every element that the rank has a copy of, once, and no other
  CHECK(alike);        // shared() the same boxes
  CHECK(named_right);  // with their holders
  CHECK(owned);        // as owners() does of each of them
  const auto before = [](const family_box& a, const family_box& b) { return precedes(a, b); };
  std::sort(distinct.begin(), distinct.end(), before);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  bool disjoint = true;
  std::vector<bool> taken(elements);
  for (const family_box& b : distinct)
    each_number(whole, b, [&](std::size_t i) { disjoint = disjoint && !taken[i], taken[i] = true; });
  CHECK(disjoint);
  std::vector<bool> found(elements);
  bool right = true;
  h.owners(f, r, within, [&](const family_box& b, const Holders auto& holders) {
    std::uint64_t named = 0;
    right = right && intersects(b, within) && well_named(holders, h.ranks(), named) && named != 0 && wanted(b, named);
    right = right && std::binary_search(distinct.begin(), distinct.end(), b, before);
    each_number(whole, b, [&](std::size_t i) { right = right && !found[i], found[i] = true; });
  });
  each_number(whole, within, [&](std::size_t i) { right = right && found[i] == (shall.at(r, f, i) != 0); });
  CHECK(right);
}

/// The boxes that nobody has a copy of, and how many elements those of whole families have.
template <Holding H>
bytes_t check_uncovered(const copied_holding<H>& h, const element_sets& all, const element_sets& shall, int f, role r,
                        const family_box& within) {
  const family& whole = h.family_at(f);
  std::vector<bool> found(static_cast<std::size_t>(whole.whole().volume()));
  bool right = true;
  h.uncovered(f, r, within, [&](const family_box& b) {
    right = right && intersects(b, within);
    each_number(whole, b, [&](std::size_t i) {
      right = right && !found[i] && all.at(r, f, i) != 0 && shall.at(r, f, i) == 0;
      found[i] = true;
    });
  });
  const auto gone = [&](std::size_t i) { return all.at(r, f, i) != 0 && shall.at(r, f, i) == 0; };
  each_number(whole, within, [&](std::size_t i) { right = right && found[i] == gone(i); });
  CHECK(right);
  bytes_t elements = 0;
  for (std::size_t i = 0; i < found.size(); ++i) elements += gone(i) ? 1 : 0;
  return elements;
}

void count_copies(features& met, const element_sets& all, const element_sets& shall, const rank_copies& copies) {
  bool kept = false, both = false;
  for (std::size_t r = 0; r < all.of.size(); ++r)
    for (std::size_t f = 0; f < all.of[r].size(); ++f)
      for (std::size_t i = 0; i < all.of[r][f].size(); ++i) {
        kept = kept || (shall.of[r][f][i] & ~all.of[r][f][i]) != 0;
        both = both || ((shall.of[r][f][i] & ~all.of[r][f][i]) != 0 && (shall.of[r][f][i] & all.of[r][f][i]) != 0);
      }
  met.kept += kept ? 1 : 0, met.both += both ? 1 : 0;
  bool own = false;
  for (std::size_t r = 0; r < copies.own.size(); ++r) own = own || copies.keeper[r] == static_cast<rank_t>(r);
  met.own_keepers += own ? 1 : 0;
}

/// Every answer of copies of a layout, and of other holdings over them.
template <Holding H>
void check_copies(const H& of, const rank_copies& copies, dice& random, features& met) {
  const copied_holding<H> h(of, copies);
  CHECK(h.ranks() == of.ranks());
  CHECK(h.families() == of.families());
  CHECK(h.states() == of.states());
  const element_sets all = testing::sets_of(of), shall = testing::with_copies(all, copies);
  const rank_t lost = random.below(of.ranks());
  element_sets living_shall = shall;
  for (auto& families : living_shall.of)
    for (auto& elements : families)
      for (std::uint64_t& holders : elements) holders &= ~(std::uint64_t{1} << lost);
  const any_holding any(h);
  const living_holding living(h, {{lost, lost + 1}});
  bytes_t missing = 0, had = 0;
  for (const role r : roles) {
    if (of.states().of(r).empty()) continue;
    bytes_t width_of_role = 0;
    for (const state& s : testing::each_state())
      if (s.placed_as() == r) width_of_role += width(s.type);
    for (int f = 0; f < of.families(); ++f) {
      const family_box within = drawn_part(random, of.family_at(f));
      check_answers(h, shall, f, r, within);
      check_answers(any, shall, f, r, within);
      check_answers(living, living_shall, f, r, within);
      missing += width_of_role * check_uncovered(h, all, shall, f, r, within);
      for (std::size_t i = 0; i < static_cast<std::size_t>(of.family_at(f).whole().volume()); ++i)
        had += shall.at(r, f, i) != 0 ? 1 : 0;
    }
  }
  CHECK(uncovered_bytes(h) == missing);
  CHECK(covers(h) == (missing == 0));
  CHECK(agrees(h));
  ++(missing == 0 ? met.covered : had == 0 ? met.nothing : met.uncovered);
  count_copies(met, all, shall, copies);
}

}  // namespace

TEST_CASE("who has a copy of each element is who the sets say, in every answer") {
  dice random(71);
  features met;
  for (int n = 0; n < (testing::few() ? 15 : testing::thrown(60)); ++n) {
    const bool experts = random.coin(), tied = random.below(4) == 0;
    const model m = testing::copied_model(experts, tied);
    const std::string text = small_layout(random, experts);
    const auto kind = static_cast<copies_are>(n % static_cast<int>(copies_are::kinds));
    CAPTURE(text);
    CAPTURE(n);
    const degrees d = parse_degrees(text);
    if (!is_legal(m, d)) continue;
    const computed_holding of(space(m, d));
    const rank_copies copies = testing::drawn_copies(random, of.ranks(), kind);
    check_copies(of, copies, random, met);
    if (n % 4 == 0) check_copies(listed_holding(tensor_table(m), testing::listed(of), of.ranks()), copies, random, met);
    ++met.layouts, ++met.kinds[static_cast<int>(kind)];
    met.experts += experts ? 1 : 0, met.tied += tied && d.pp > 1 ? 1 : 0;
    met.tp += d.tp > 1 ? 1 : 0, met.pp += d.pp > 1 ? 1 : 0, met.dp += d.dp > 1 ? 1 : 0, met.ep += d.ep > 1 ? 1 : 0;
    met.zero += d.zero > 0 ? 1 : 0, met.rows += d.zero > 0 && d.shard == shard_by::rows ? 1 : 0;
  }
  MESSAGE(met.layouts, " layouts: tp ", met.tp, ", pp ", met.pp, ", dp ", met.dp, ", ep ", met.ep, ", zero ", met.zero,
          ", by rows ", met.rows, ", experts ", met.experts, ", tied ", met.tied, "; copies of all ", met.kinds[0],
          ", shifted ", met.kinds[1], ", none ", met.kinds[2], ", of some ", met.kinds[3], ", left by deaths ",
          met.kinds[4], "; kept ", met.kept, ", kept beside own ", met.both, ", by oneself ", met.own_keepers,
          "; all covered ", met.covered, ", some ", met.uncovered, ", nothing ", met.nothing);
  if (testing::few()) return;
  for (const int times : {met.tp, met.pp, met.dp, met.zero, met.rows, met.experts, met.kept, met.both, met.own_keepers,
                          met.covered, met.uncovered, met.nothing})
    CHECK_DRAWN(times > 5);
  for (const int times : met.kinds) CHECK_DRAWN(times > 5);
  CHECK_DRAWN(met.ep > 0);
  CHECK_DRAWN(met.tied > 2);
}

namespace {
/// One tensor of three rows, a rank each; where it comes in memory is the rank's number.
struct a_row_each {
  std::vector<std::vector<rank_t>> holders = {{0}, {1}, {2}};
  family only{.name = "w", .extent = {1, 1, 1, 3, 2}};

  family_box row(index_t i) const {
    family_box b = only.whole();
    b.dim[axis_of::row] = {i, i + 1};
    return b;
  }
  rank_t ranks() const { return 3; }
  state_set states() const { return parameter_states; }
  int families() const { return 1; }
  const family& family_at(int) const { return only; }
  void held(int f, rank_t rank, role r, auto&& sink) const {
    if (r == role::parameter) sink(f, row(rank));
  }
  void shared(int f, rank_t rank, role r, auto&& sink) const {
    if (r == role::parameter) sink(f, row(rank), listed_ranks{&holders[static_cast<std::size_t>(rank)]});
  }
  void owners(int, role r, const family_box& within, auto&& sink) const {
    for (rank_t i = 0; i < 3 && r == role::parameter; ++i)
      if (intersects(row(i), within)) sink(row(i), listed_ranks{&holders[static_cast<std::size_t>(i)]});
  }
  storage_order order_of(const tensor_id&, rank_t rank, role) const { return {rank, 0, 0, 0}; }
};
}  // namespace

TEST_CASE("what copies there are, by hand; a keeper's come as on the rank that they are of") {
  const auto section = [](const rank_copies& copies, rank_t rank) {
    return copied_holding(a_row_each(), copies).order_of({}, rank, role::parameter).section;
  };
  const rank_copies ring = rank_copies::shifted(3, 1), back = rank_copies::shifted(3, -1),
                    nobody = rank_copies::none(3);
  CHECK(ring.keeper == std::vector<rank_t>{1, 2, 0});
  CHECK(back.keeper == std::vector<rank_t>{2, 0, 1});
  CHECK(rank_copies::shifted(3, 7).keeper == ring.keeper);
  CHECK(rank_copies::shifted(3, -7).keeper == back.keeper);
  CHECK(nobody.keeper == std::vector<rank_t>{-1, -1, -1});
  for (const rank_copies& c : {ring, back, nobody}) CHECK(c.own == std::vector<bool>(3, false));
  for (const rank_t r : {0, 1, 2}) {
    CHECK(section(ring, r) == (r + 2) % 3);
    CHECK(section(back, r) == (r + 1) % 3);
    CHECK(section(nobody, r) == r);
  }
  rank_copies all = ring;
  all.own = {true, true, true};
  CHECK(section(all, 1) == 1);
  CHECK(uncovered_bytes(copied_holding(a_row_each(), nobody)) == 3 * 2 * 2);
  CHECK(uncovered_bytes(copied_holding(a_row_each(), {{true, false, false}, {-1, -1, -1}})) == 2 * 2 * 2);
  CHECK(uncovered_bytes(copied_holding(a_row_each(), {{true, false, false}, {-1, 0, -1}})) == 1 * 2 * 2);
  CHECK(uncovered_bytes(copied_holding(a_row_each(), ring)) == 0);
  CHECK(copied_holding(a_row_each(), ring).all().order_of({}, 2, role::parameter).section == 2);
}

TEST_CASE("states that a layout was made without are not asked for: of no copies, all parameters are uncovered") {
  const model m = testing::copied_model(false, false);
  const computed_holding of(space(m, parse_degrees("dp=2,zero=1")), parameter_states);
  CHECK(uncovered_bytes(copied_holding(of, rank_copies::none(2))) == 2 * m.parameters());
  CHECK(uncovered_bytes(copied_holding(of, {{true, false}, {-1, -1}})) == 0);
}

TEST_CASE("copies are of the layout's ranks, and keepers are ranks of it") {
  const auto said = [](std::vector<bool> own, std::vector<rank_t> keeper) {
    return refused([&] { static_cast<void>(copied_holding(a_row_each(), {std::move(own), std::move(keeper)})); });
  };
  CHECK(said({true, false, true}, {-1, 2, 0}) == "accepted");
  CHECK(said({true, false}, {-1, 2, 0}) ==
        "reshard: copies: 2 of a rank's own and 3 keepers, and the layout has 3 ranks");
  CHECK(said({true, false, true}, {-1, 2, 0, 1}) ==
        "reshard: copies: 3 of a rank's own and 4 keepers, and the layout has 3 ranks");
  CHECK(said({}, {}) == "reshard: copies: 0 of a rank's own and 0 keepers, and the layout has 3 ranks");
  CHECK(said({true, true, true}, {-1, 3, 0}) == "reshard: copies: rank 3 keeps those of rank 1, and ranks are 0 to 2");
  CHECK(said({true, true, true}, {0, 0, -2}) == "reshard: copies: rank -2 keeps those of rank 2, and ranks are 0 to 2");
}
