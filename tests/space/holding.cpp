// SPDX-License-Identifier: Apache-2.0
// The concepts of holdings by the least that models them: a user's own layout, planned from and to, counted by hand;
// and types that lack one member each, which are none.
#include <doctest/doctest.h>

#include <reshard/model/transformer.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/buffer_slices.hpp>
#include <reshard/space/cover.hpp>

using namespace reshard;

namespace {
constexpr model tiny = make_transformer(
    {.name = "tiny", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8});

/// One rank.
struct lone_rank {
  rank_t rank;
  constexpr index_t count() const { return 1; }
  constexpr rank_t operator[](index_t) const { return rank; }
  constexpr index_t index_of(rank_t r) const { return r == rank ? 0 : -1; }
  constexpr index_t count_below(rank_t r) const { return rank < r ? 1 : 0; }
  constexpr bool contains(rank_t r) const { return r == rank; }
};
static_assert(Holders<lone_rank>);

/// Family f lies whole on rank f mod n.
struct dealt_families {
  rank_t n;
  constexpr rank_t ranks() const { return n; }
  constexpr state_set states() const { return parameter_states; }
  constexpr int families() const { return tiny.families; }
  constexpr const family& family_at(int f) const { return tiny[f]; }
  template <typename Sink>
  constexpr void held(int f, rank_t rank, role, Sink&& sink) const {
    if (f % n == rank) sink(f, tiny[f].whole());
  }
  template <typename Sink>
  constexpr void shared(int f, rank_t rank, role, Sink&& sink) const {
    if (f % n == rank) sink(f, tiny[f].whole(), lone_rank{rank});
  }
  template <typename Sink>
  constexpr void owners(int f, role, const family_box& within, Sink&& sink) const {
    if (!within.empty()) sink(tiny[f].whole(), lone_rank{f % n});
  }
  constexpr storage_order order_of(const tensor_id& t, rank_t, role) const { return {0, t.member, t.family, t.expert}; }
};
static_assert(Holding<dealt_families> && Layout<dealt_families> && !BufferedHolding<dealt_families>);
static_assert(covers(dealt_families{3}) && agrees(dealt_families{3}));

// Without one of its members, each is none.
#define WITHOUT(member)                      \
  struct without_##member : dealt_families { \
    template <typename... Any>               \
    void member(Any&&...) const = delete;    \
  };                                         \
  static_assert(!Holding<without_##member>)
WITHOUT(ranks);
WITHOUT(states);
WITHOUT(families);
WITHOUT(family_at);
WITHOUT(held);
WITHOUT(shared);
WITHOUT(owners);
WITHOUT(order_of);
#define HOLDERS_WITHOUT(member)              \
  struct rank_without_##member : lone_rank { \
    template <typename... Any>               \
    void member(Any&&...) const = delete;    \
  };                                         \
  static_assert(!Holders<rank_without_##member>)
HOLDERS_WITHOUT(count);
HOLDERS_WITHOUT(index_of);
HOLDERS_WITHOUT(count_below);
HOLDERS_WITHOUT(contains);
static_assert(!Holders<int> && !Holding<int> && !Holding<model>);

// Holders that name another rank, or count wrongly, are found out.
struct wrong_rank : lone_rank {
  constexpr rank_t operator[](index_t) const { return rank + 1; }
};
struct wrong_count_below : lone_rank {
  constexpr index_t count_below(rank_t) const { return 1; }
};
template <typename R>
struct misdealt_families : dealt_families {
  template <typename Sink>
  constexpr void shared(int f, rank_t rank, role, Sink&& sink) const {
    if (f % n == rank) sink(f, tiny[f].whole(), R{{rank}});
  }
};
struct right_rank : lone_rank {};
static_assert(agrees(misdealt_families<right_rank>{{3}}));
static_assert(!agrees(misdealt_families<wrong_rank>{{3}}) && !agrees(misdealt_families<wrong_count_below>{{3}}));

// As many boxes, but not the same ones.
struct miscut_families : dealt_families {
  template <typename Sink>
  constexpr void held(int f, rank_t rank, role, Sink&& sink) const {
    family_box b = tiny[f].whole();
    b.dim[axis_of::column].begin += 1;
    if (f % n == rank) sink(f, b);
  }
};
static_assert(!agrees(miscut_families{{3}}));

/// Bytes of the parameters that change their rank.
bytes_t dealt_anew(rank_t from, rank_t to) {
  bytes_t bytes = 0;
  for (int f = 0; f < tiny.families; ++f) bytes += f % from == f % to ? 0 : 2 * tiny[f].whole().volume();
  return bytes;
}
}  // namespace

TEST_CASE("agrees() finds at run time what it finds in a static_assert") {
  CHECK(agrees(dealt_families{3}));
  CHECK(agrees(misdealt_families<right_rank>{{3}}));
  CHECK_FALSE(agrees(misdealt_families<wrong_rank>{{3}}));
  CHECK_FALSE(agrees(misdealt_families<wrong_count_below>{{3}}));
  CHECK_FALSE(agrees(miscut_families{{3}}));
}

TEST_CASE("a layout of a user's own is planned from and to") {
  for (const rank_t from : {1, 2, 3, 5})
    for (const rank_t to : {1, 2, 4, 20}) {
      CAPTURE(from);
      CAPTURE(to);
      const layout_switch change(dealt_families{from}, dealt_families{to});
      CHECK(change.states() == parameter_states);
      CHECK(moved_bytes(change) == dealt_anew(from, to));
      bytes_t sent = 0, received = 0;
      for (rank_t device = 0; device < change.devices(); ++device) {
        const plan p = make_plan(change, device);
        sent += total_bytes(p.sends);
        received += total_bytes(p.receives);
        for (const transfer& t : p.sends) {
          CHECK(t.family % from == device);
          CHECK(t.family % to == t.dst);
        }
        for (const transfer& t : p.retains) CHECK(t.family % from == t.family % to);
      }
      CHECK(sent == dealt_anew(from, to));
      CHECK(received == dealt_anew(from, to));
    }
}

TEST_CASE("between a layout of a user's own and a space, states are those that both have") {
  const layout_switch change(dealt_families{3}, space(tiny, config<tp<2>>{}));
  CHECK(change.states() == parameter_states);
  bytes_t arrives = 0;
  for (rank_t device = 0; device < change.devices(); ++device) {
    const plan p = make_plan(change, device);
    arrives += total_bytes(p.receives) + total_bytes(p.retains);
  }
  CHECK(arrives == held_bytes(change.to(), 0) + held_bytes(change.to(), 1));
}

TEST_CASE("each_held and each_shared go through all families, with the same boxes") {
  const computed_holding h(space(tiny, config<tp<2>, dp<2>, zero<1>>{}));
  for (const role r : roles)
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      std::vector<std::pair<int, family_box>> held, shared;
      each_held(h, rank, r, [&](int f, const family_box& b) { held.emplace_back(f, b); });
      each_shared(h, rank, r, [&](int f, const family_box& b, const Holders auto& holders) {
        CHECK(holders.contains(rank));
        shared.emplace_back(f, b);
      });
      CHECK(held == shared);
      if (has_role(h, r)) CHECK(held.size() >= static_cast<std::size_t>(h.families()) / 2);
      else CHECK(held.empty());  // no statistics here
    }
}

TEST_CASE("of a holding of a user's own too, which says of all its families whether one has a role") {
  const dealt_families h{3};
  for (rank_t rank = 0; rank < 3; ++rank) {
    std::vector<int> held, shared, wanted;
    each_held(h, rank, role::parameter, [&](int f, const family_box&) { held.push_back(f); });
    each_shared(h, rank, role::parameter, [&](int f, const family_box&, const lone_rank& holders) {
      CHECK(holders.rank == rank);
      shared.push_back(f);
    });
    for (int f = 0; f < tiny.families; ++f)
      if (f % 3 == rank) wanted.push_back(f);
    CHECK(held == wanted);
    CHECK(shared == wanted);
  }
  const listed_holding two(shard_list({{0, "a", bf16, {2}, {0}, {2}}, {0, "b", bf16, {3}, {0}, {3}}}));
  CHECK(has_role(two, role::parameter));
  CHECK_FALSE(has_role(two, role::statistic));
}

TEST_CASE("a reversed order compares the other way round in each of its numbers") {
  const storage_order order{1, 2, 3, 4};
  CHECK(order.reversed() == storage_order{-1, -2, -3, -4});
  CHECK(storage_order{1, 2, 3, 5}.reversed() < order.reversed());
  CHECK(storage_order{1, 2, 4, 0}.reversed() < order.reversed());
  CHECK(storage_order{1, 3, 0, 0}.reversed() < order.reversed());
  CHECK(storage_order{2, 0, 0, 0}.reversed() < order.reversed());
}
