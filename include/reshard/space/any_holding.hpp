// SPDX-License-Identifier: Apache-2.0
// One type that holds any Holding by value: what takes it is compiled once, whatever kinds of layout it meets.
// Builds on: base/sink.hpp, space/computed_holding.hpp, space/listed_holding.hpp, space/living_holding.hpp.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/space/computed_holding.hpp>
#include <reshard/space/listed_holding.hpp>
#include <reshard/space/living_holding.hpp>

namespace reshard {

/// Any Holders, to which it refers: they outlive it. Those of computed layouts are asked without a detour.
class any_holders {
 public:
  explicit any_holders(const rank_product& of) : product_(&of) {}
  template <Holders R>
    requires(!std::same_as<R, any_holders>)
  explicit any_holders(const R& of) : other_(&of), ask_(&questions_to<R>) {
    if constexpr (std::same_as<R, living_holders<any_holders>>) all_ = &of.all();
  }

  /// The product that they are; null where they are none.
  const rank_product* product() const { return product_; }
  /// Living holders with those that are lost, where they are an any_holding's; null of any others.
  const any_holders* with_lost() const { return all_; }

  index_t count() const { return product_ != nullptr ? product_->count() : ask_->count(other_); }
  rank_t operator[](index_t i) const { return product_ != nullptr ? (*product_)[i] : ask_->at(other_, i); }
  index_t index_of(rank_t rank) const {
    return product_ != nullptr ? product_->index_of(rank) : ask_->index_of(other_, rank);
  }
  index_t count_below(rank_t rank) const {
    return product_ != nullptr ? product_->count_below(rank) : ask_->count_below(other_, rank);
  }
  bool contains(rank_t rank) const { return index_of(rank) >= 0; }

 private:
  struct questions {
    index_t (*count)(const void*);
    rank_t (*at)(const void*, index_t);
    index_t (*index_of)(const void*, rank_t);
    index_t (*count_below)(const void*, rank_t);
  };
  template <typename R>
  static constexpr questions questions_to = {
      [](const void* of) { return static_cast<const R*>(of)->count(); },
      [](const void* of, index_t i) { return (*static_cast<const R*>(of))[i]; },
      [](const void* of, rank_t rank) { return static_cast<const R*>(of)->index_of(rank); },
      [](const void* of, rank_t rank) { return static_cast<const R*>(of)->count_below(rank); }};

  const rank_product* product_ = nullptr;
  const void* other_ = nullptr;
  const questions* ask_ = nullptr;
  const any_holders* all_ = nullptr;
};

static_assert(Holders<any_holders>);

namespace detail {

using any_held_sink = sink<int, const family_box&>;
using any_shared_sink = sink<int, const family_box&, const any_holders&>;
using any_owned_sink = sink<const family_box&, const any_holders&>;

/// What a Holding is asked, a call per family or rank; box by box the answers go to a sink.
struct asked_holding {
  virtual ~asked_holding() = default;
  virtual const void* as(const void* kind) const = 0;
  virtual rank_t ranks() const = 0;
  virtual state_set states() const = 0;
  virtual int families() const = 0;
  virtual const family& family_at(int f) const = 0;
  virtual void held(int f, rank_t rank, role r, const any_held_sink& sink) const = 0;
  virtual void shared(int f, rank_t rank, role r, const any_shared_sink& sink) const = 0;
  virtual void each_held_by(rank_t rank, role r, const any_held_sink& sink) const = 0;
  virtual void each_shared_by(rank_t rank, role r, const any_shared_sink& sink) const = 0;
  virtual void owners(int f, role r, const family_box& within, const any_owned_sink& sink) const = 0;
  virtual storage_order order_of(const tensor_id& t, rank_t rank, role r) const = 0;
};

/// A type's own address: &kind_of_holding<A> == &kind_of_holding<B> iff A is B.
template <typename H>
inline constexpr char kind_of_holding = 0;

/// A Holding that is asked so.
template <Holding H>
class kept_holding final : public asked_holding {
 public:
  explicit kept_holding(H holding) : h_(std::move(holding)) {}

  const void* as(const void* kind) const override { return kind == &kind_of_holding<H> ? &h_ : nullptr; }
  rank_t ranks() const override { return h_.ranks(); }
  state_set states() const override { return h_.states(); }
  int families() const override { return h_.families(); }
  const family& family_at(int f) const override { return h_.family_at(f); }
  void held(int f, rank_t rank, role r, const any_held_sink& sink) const override { h_.held(f, rank, r, sink); }
  void shared(int f, rank_t rank, role r, const any_shared_sink& sink) const override {
    h_.shared(f, rank, r, over(sink));
  }
  void each_held_by(rank_t rank, role r, const any_held_sink& sink) const override { each_held(h_, rank, r, sink); }
  void each_shared_by(rank_t rank, role r, const any_shared_sink& sink) const override {
    each_shared(h_, rank, r, over(sink));
  }
  void owners(int f, role r, const family_box& within, const any_owned_sink& sink) const override {
    h_.owners(f, r, within, [&](const family_box& b, const Holders auto& holders) { sink(b, any_holders(holders)); });
  }
  storage_order order_of(const tensor_id& t, rank_t rank, role r) const override { return h_.order_of(t, rank, r); }

 private:
  static auto over(const any_shared_sink& sink) {
    return [&sink](int f, const family_box& b, const Holders auto& holders) { sink(f, b, any_holders(holders)); };
  }

  H h_;
};

template <typename H>
std::shared_ptr<const asked_holding> keep(H&& h) {
  return std::make_shared<kept_holding<std::remove_cvref_t<H>>>(std::forward<H>(h));
}
template <Holding H>
std::shared_ptr<const asked_holding> keep(const living_holding<H>& h);
template <Holding H>
std::shared_ptr<const asked_holding> keep(living_holding<H>& h) {
  return keep(std::as_const(h));
}
template <Holding H>
std::shared_ptr<const asked_holding> keep(living_holding<H>&& h) {
  return keep(std::as_const(h));
}

}  // namespace detail

/// Any Holding, kept by value: a copy of it shares what it keeps, and outlives what it was made of. Of living ranks it
/// keeps the holding that they are left of, too; what a user's own Holding refers to outlives it.
///   held, shared, owners of any_holding(h) call their sinks as those of h do, with any_holders for its Holders.
class any_holding {
 public:
  template <typename H>
    requires(!std::same_as<std::remove_cvref_t<H>, any_holding> && Holding<std::remove_cvref_t<H>>)
  any_holding(H&& h) : it_(detail::keep(std::forward<H>(h))) {}  // NOLINT(google-explicit-constructor)

  rank_t ranks() const { return it_->ranks(); }
  state_set states() const { return it_->states(); }
  int families() const { return it_->families(); }
  const family& family_at(int f) const { return it_->family_at(f); }
  storage_order order_of(const tensor_id& t, rank_t rank, role r) const { return it_->order_of(t, rank, r); }

  template <typename Sink>
  void held(int f, rank_t rank, role r, Sink&& sink) const {
    it_->held(f, rank, r, detail::any_held_sink::of(sink));
  }
  template <typename Sink>
  void shared(int f, rank_t rank, role r, Sink&& sink) const {
    it_->shared(f, rank, r, detail::any_shared_sink::of(sink));
  }
  template <typename Sink>
  void owners(int f, role r, const family_box& within, Sink&& sink) const {
    it_->owners(f, r, within, detail::any_owned_sink::of(sink));
  }
  /// held() of every family; a computed layout finds out once where the rank sits.
  template <typename Sink>
  friend void each_held(const any_holding& h, rank_t rank, role r, Sink&& sink) {
    h.it_->each_held_by(rank, r, detail::any_held_sink::of(sink));
  }
  template <typename Sink>
  friend void each_shared(const any_holding& h, rank_t rank, role r, Sink&& sink) {
    h.it_->each_shared_by(rank, r, detail::any_shared_sink::of(sink));
  }

  /// The H that it holds; null where that is of another type.
  template <Holding H>
  const H* as() const {
    return static_cast<const H*>(it_->as(&detail::kind_of_holding<H>));
  }

 private:
  std::shared_ptr<const detail::asked_holding> it_;
};

static_assert(Holding<any_holding>);

namespace detail {
/// What lives of a holding, beside that.
struct kept_living {
  explicit kept_living(any_holding of, const std::vector<interval>& lost)
      : whole(std::move(of)), living(living_holding(whole, lost)) {}

  any_holding whole;
  kept_holding<living_holding<any_holding>> living;
};

template <Holding H>
std::shared_ptr<const asked_holding> keep(const living_holding<H>& h) {
  const auto both = std::make_shared<const kept_living>(h.all(), h.lost_ranks());
  return {both, &both->living};
}
}  // namespace detail

/// The K that a holding is, or that an any_holding holds; null where it is of another type.
/// Kept in a pointer that is not const: in one that is, g++ 14 sees the null, and warns of calls that are never made.
template <Holding K, Holding H>
constexpr const K* known_as(const H& h) {
  if constexpr (std::same_as<H, K>) return &h;
  else if constexpr (std::same_as<H, any_holding>) return h.template as<K>();
  else return nullptr;
}

}  // namespace reshard
