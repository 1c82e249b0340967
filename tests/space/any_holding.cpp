// SPDX-License-Identifier: Apache-2.0
// One type for any Holding: whatever it is asked it answers as what it holds does, for random layouts computed, listed
// and without lost ranks, and for a holding of a user's own; and it outlives what it was made of.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/any_holding.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/meeting_ranks.hpp>
#include <reshard/space/tensor_table.hpp>

#include "../support/dice.hpp"
#include "../support/drawn_layouts.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

static_assert(Holding<any_holding> && Layout<any_holding> && Holding<living_holding<any_holding>>);
static_assert(std::is_nothrow_copy_constructible_v<any_holding> && sizeof(any_holding) == 2 * sizeof(void*));

namespace {

/// Numbers that a holding answers with, each question's behind how many they are.
using answers = std::vector<index_t>;

void add_box(answers& all, int f, const family_box& b) {
  all.push_back(f);
  for (const interval& i : b.dim) all.insert(all.end(), {i.begin, i.end});
}

void add_holders(answers& all, const Holders auto& holders, rank_t ranks) {
  all.push_back(holders.count());
  for (index_t i = 0; i < holders.count(); ++i) all.push_back(holders[i]);
  for (rank_t r = 0; r <= ranks; ++r)
    all.insert(all.end(), {holders.index_of(r), holders.count_below(r), holders.contains(r) ? 1 : 0});
}

/// Of the boxes that a rank has and of their owners, by families and by each of them.
template <Holding H>
void add_rank(answers& all, const H& h, rank_t rank, role r) {
  const auto held = [&](int f, const family_box& b) { add_box(all, f, b); };
  const auto shared = [&](int f, const family_box& b, const Holders auto& holders) {
    add_box(all, f, b), add_holders(all, holders, h.ranks());
  };
  each_held(h, rank, r, held);
  all.push_back(-1);
  each_shared(h, rank, r, shared);
  all.push_back(-2);
  for (int f = 0; f < h.families(); ++f) {
    h.held(f, rank, r, held);
    h.shared(f, rank, r, shared);
    const storage_order order = h.order_of({f, h.family_at(f).extent[axis_of::layer] - 1, 0}, rank, r);
    all.insert(all.end(), {order.section, order.layer, order.family, order.expert});
  }
}

template <Holding H>
answers answers_of(const H& h) {
  answers all{h.ranks(), h.states().bits(), h.families()};
  for (const role r : roles) {
    if ((h.states().of(r)).empty()) continue;
    for (rank_t rank = 0; rank < h.ranks(); ++rank) add_rank(all, h, rank, r);
    for (int f = 0; f < h.families(); ++f) {
      family_box within = h.family_at(f).whole();
      for (const bool lower : {false, true}) {
        if (lower) within.dim[axis_of::row].end = (within.dim[axis_of::row].end + 1) / 2;
        h.owners(f, r, within, [&](const family_box& b, const Holders auto& holders) {
          add_box(all, f, b), add_holders(all, holders, h.ranks());
        });
      }
    }
  }
  return all;
}

/// A rank that has all, and a Holding that says no more than that.
struct lone_rank {
  index_t count() const { return 1; }
  rank_t operator[](index_t) const { return 1; }
  index_t index_of(rank_t r) const { return r == 1 ? 0 : -1; }
  index_t count_below(rank_t r) const { return 1 < r ? 1 : 0; }
  bool contains(rank_t r) const { return r == 1; }
};
struct all_on_one {
  rank_t ranks() const { return 3; }
  state_set states() const { return parameter_states; }
  int families() const { return 1; }
  const family& family_at(int) const { return only; }
  void held(int f, rank_t rank, role, auto&& sink) const {
    if (rank == 1) sink(f, only.whole());
  }
  void shared(int f, rank_t rank, role, auto&& sink) const {
    if (rank == 1) sink(f, only.whole(), lone_rank{});
  }
  void owners(int, role, const family_box&, auto&& sink) const { sink(only.whole(), lone_rank{}); }
  storage_order order_of(const tensor_id& t, rank_t, role) const { return {7, t.member, t.family, 5}; }

  family only = testing::drawn_model(false)[0];
};
static_assert(Holding<all_on_one>);

}  // namespace

TEST_CASE("any_holding answers as the computed or listed layout that it holds") {
  dice random(31);
  for (int n = 0; n < (testing::few() ? 9 : testing::thrown(60)); ++n) {
    const bool experts = random.coin();
    const model m = testing::drawn_model(experts);
    const std::string layout = testing::drawn_layout(random, experts);
    CAPTURE(layout);
    const computed_holding computed(space(m, parse_degrees(layout)));
    const answers wanted = answers_of(computed);
    CHECK(wanted.size() > 100);
    CHECK(answers_of(any_holding(computed)) == wanted);
    if (n % 3 != 0) continue;
    const listed_holding listed(tensor_table(m), testing::listed(computed), computed.ranks());
    CHECK(answers_of(any_holding(listed)) == answers_of(listed));
  }
}

TEST_CASE("a holding of a user's own, too") {
  const all_on_one own;
  const any_holding any(own);
  CHECK(answers_of(any) == answers_of(own));
  CHECK(any.order_of({0, 2, 0}, 1, role::parameter) == storage_order{7, 2, 0, 5});
  CHECK(known_as<computed_holding>(any) == nullptr);
  CHECK(known_as<all_on_one>(any) != nullptr);
}

TEST_CASE("of ranks that live it keeps what they are left of: all may go that it was made of") {
  dice random(32);
  for (int n = 0; n < (testing::few() ? 5 : testing::thrown(20)); ++n) {
    const model m = testing::drawn_model(false);
    const std::string layout = testing::drawn_layout(random, false);
    CAPTURE(layout);
    auto computed = std::make_unique<computed_holding>(space(m, parse_degrees(layout)));
    const std::vector<interval> lost{{0, 1}}, more{{computed->ranks() - 1, computed->ranks()}};
    std::optional<any_holding> once, twice, of_a_name, moved;
    answers wanted, wanted_twice;
    {
      living_holding living(*computed, lost);
      const living_holding fewer(living, more);
      wanted = answers_of(living), wanted_twice = answers_of(fewer);
      once.emplace(std::as_const(living)), twice.emplace(fewer), of_a_name.emplace(living);
      moved.emplace(std::move(living));
    }
    *computed = computed_holding(space(m, parse_degrees("tp=1")));
    computed.reset();
    CHECK(answers_of(*once) == wanted);
    CHECK(answers_of(*of_a_name) == wanted);
    CHECK(answers_of(*moved) == wanted);
    CHECK(answers_of(*twice) == wanted_twice);
  }
}

TEST_CASE("a copy shares what is kept; whatever it is made of is copied or moved in") {
  const model m = testing::drawn_model(true);
  computed_holding computed(space(m, parse_degrees("tp=2,dp=2,zero=1")));
  const answers wanted = answers_of(computed);
  const any_holding one(computed), other = one, again{any_holding(other)};
  const computed_holding* const kept = known_as<computed_holding>(one);
  REQUIRE(kept != nullptr);
  CHECK(kept != &computed);
  CHECK(known_as<computed_holding>(other) == kept);
  CHECK(known_as<computed_holding>(again) == kept);
  const any_holding moved(std::move(computed));
  CHECK(answers_of(moved) == wanted);
}

TEST_CASE("what a holding is known as: itself, or what an any_holding holds") {
  const model m = testing::drawn_model(false);
  const computed_holding computed(space(m, parse_degrees("tp=2")));
  const listed_holding listed(tensor_table(m), testing::listed(computed), 2);
  CHECK(known_as<computed_holding>(computed) == &computed);
  CHECK(known_as<listed_holding>(computed) == nullptr);
  CHECK(known_as<listed_holding>(listed) == &listed);
  const any_holding any_computed(computed), any_listed(listed), any_living(living_holding(computed, {}));
  CHECK(known_as<computed_holding>(any_computed)->space().degrees() == computed.space().degrees());
  CHECK(known_as<listed_holding>(any_computed) == nullptr);
  CHECK(known_as<listed_holding>(any_listed)->table().families() == listed.families());
  CHECK(known_as<computed_holding>(any_listed) == nullptr);
  CHECK(known_as<computed_holding>(any_living) == nullptr);
  CHECK(known_as<any_holding>(any_living) == &any_living);
}

TEST_CASE("what is known of computed layouts is known in any_holding: bytes and who can meet whom") {
  dice random(33);
  int bounded = 0;
  for (int n = 0; n < testing::thrown(40); ++n) {
    const bool experts = random.coin();
    const model m = testing::drawn_model(experts);
    const computed_holding a(space(m, parse_degrees(testing::drawn_layout(random, experts))));
    const computed_holding b(space(m, parse_degrees(testing::drawn_layout(random, experts))));
    const any_holding any_a(a), any_b(b);
    CHECK(max_bytes_per_rank(any_a) == max_bytes_per_rank(a));
    CHECK(held_bytes(any_a, 0) == held_bytes(a, 0));
    CHECK(covers(any_a));
    CHECK(agrees(any_a));
    for (rank_t rank = 0; rank < a.ranks(); ++rank) {
      const detail::meeting_ranks wanted = detail::meeting_ranks_of(a, rank, b);
      bounded += wanted.with != interval{0, b.ranks()} ? 1 : 0;
      CHECK(detail::meeting_ranks_of(any_a, rank, any_b) == wanted);
      CHECK(detail::meeting_ranks_of(a, rank, any_b) == wanted);
    }
  }
  CHECK_DRAWN(bounded > 20);
}

TEST_CASE(
    "its holders are a product where the layout is computed; of ranks that live, the lost are known beside them") {
  const model m = testing::drawn_model(false);
  const computed_holding computed(space(m, parse_degrees("dp=4")));
  const listed_holding listed(tensor_table(m), testing::listed(computed), 4);
  int boxes = 0;
  const auto ask = [&](const any_holding& h, auto&& check) {
    h.shared(0, 2, role::parameter,
             [&](int, const family_box&, const any_holders& holders) { ++boxes, check(holders); });
  };
  ask(computed, [](const any_holders& holders) {
    CHECK((holders.count() == 4 && holders.product() != nullptr && holders.with_lost() == nullptr));
  });
  ask(listed, [](const any_holders& holders) {
    CHECK((holders.count() == 4 && holders.product() == nullptr && holders.with_lost() == nullptr));
  });
  ask(living_holding(computed, {{1, 2}}), [](const any_holders& holders) {
    CHECK((holders.count() == 3 && holders[1] == 2 && holders.product() == nullptr));
    REQUIRE(holders.with_lost() != nullptr);
    CHECK((holders.with_lost()->count() == 4 && (*holders.with_lost())[1] == 1));
    CHECK(holders.with_lost()->product() != nullptr);
  });
  CHECK(boxes == 3);
}
