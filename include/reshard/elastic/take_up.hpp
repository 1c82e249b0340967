// SPDX-License-Identifier: Apache-2.0
// take_up(request, world, spares, policy, model, states): which world does a request ask for, or what is it answered at
// once?
// A pure function: whoever takes a request up comes to the same, and one that is taken up again, since who worked on
// it died, is done where it was done.
// Builds on: elastic/policy.hpp, elastic/request.hpp, elastic/world.hpp, elastic/detail/fewest_moved.hpp,
// job/batch.hpp.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/detail/fewest_moved.hpp>
#include <reshard/elastic/policy.hpp>
#include <reshard/elastic/request.hpp>
#include <reshard/elastic/world.hpp>
#include <reshard/job/batch.hpp>

namespace reshard {

/// What a request leads to: an answer at once, or another world, or the end of the job; one of the three.
struct taken_request {
  std::optional<request_answer> answer = {};  // done: what it asks for is so already; refused: it cannot be
  std::optional<world> to = {};               // first step and cursor are those of now: the boundary names others
  bool finishes = false;

  friend bool operator==(const taken_request&, const taken_request&) = default;
};

namespace detail {

/// Takes up one request; what it cannot do it refuses by a sentence.
class request_taker {
 public:
  request_taker(const job_request& q, const world& now, const member_list& spares, const elastic_policy& p,
                const model& m, const state_list& list)
      : asked_(&q), now_(&now), spares_(&spares), policy_(&p), model_(&m), list_(&list), to_(now) {
    ++to_.epoch;
  }

  taken_request take_up() {
    if (asked_->kind == request_kind::finish) return {.finishes = true};
    if (is_so()) return {.answer = request_answer{}};
    change();
    return {.to = std::move(to_)};
  }

 private:
  /// Whether the world of now is what is asked for, or was made for it: of the members nobody is missing, or nobody is
  /// left.
  bool is_so() const {
    const member_list& who = asked_->members;
    switch (asked_->kind) {
      case request_kind::join: return has_members(now_->members, who);
      case request_kind::leave: return nobody_of(who);
      case request_kind::replace: return !now_->has(who[0]) && now_->has(who[1]);
      case request_kind::layout: return *asked_->layout == now_->layout;
      case request_kind::batch: return asked_->batch == now_->batch;
      default: return false;
    }
  }
  bool nobody_of(const member_list& who) const {
    for (const member_name& one : who)
      if (now_->has(one)) return false;
    return true;
  }

  void change() {
    const member_list& who = asked_->members;
    switch (asked_->kind) {
      case request_kind::join:
        for (const member_name& one : who) require_spare(one);
        add_members(to_.members, who);
        return lay_out();
      case request_kind::leave:
        for (const member_name& one : who) require_member(one);
        to_.members.clear();
        for (const member_name& one : now_->members)
          if (!has_member(who, one)) to_.members.push_back(one);
        return lay_out();
      case request_kind::replace:
        require_member(who[0]), require_spare(who[1]);
        to_.members[static_cast<std::size_t>(now_->rank_of(who[0]))] = who[1];
        return;
      case request_kind::layout:
        to_.layout = *asked_->layout;
        if (const rank_t ranks = to_.layout.world(); ranks != std::ssize(to_.members))
          refuse("layout: ", layout_word(to_.layout), " has ", ranks, " ranks, and the world has ", to_.members.size(),
                 " members");
        require_legal(*model_, to_.layout);
        break;
      default: to_.batch = asked_->batch; break;
    }
    require_samples(to_.batch, to_.layout.dp);
  }

  void require_spare(const member_name& who) const {
    if (now_->has(who)) refuse(name(asked_->kind), ": ", who.text(), " is in the world already");
    if (!has_member(*spares_, who))
      refuse(name(asked_->kind), ": ", who.text(), " is not registered; spares are: ", members_text(*spares_));
  }
  void require_member(const member_name& who) const {
    if (!now_->has(who))
      refuse(name(asked_->kind), ": ", who.text(), " is not in the world, which is ", members_text(now_->members));
  }

  /// The layout of another number of members: of the legal ones that leave each data-parallel rank a sample, the one to
  /// which the fewest bytes move.
  void lay_out() {
    const rank_t n = std::ssize(to_.members);
    if (n < greatest(policy_->min, 1))
      refuse(name(asked_->kind), ": ", n, n == 1 ? " member would be" : " members would be",
             " left, and a world has at least ", greatest(policy_->min, 1));
    std::vector<degrees> layouts;
    for (const degrees& one :
         legal_layouts(*model_, now_->layout, n, policy_->axes.empty() ? default_axes(*model_) : policy_->axes))
      if (one.dp <= to_.batch) layouts.push_back(one);
    if (layouts.empty())
      refuse(name(asked_->kind), ": no layout of ", n, " ranks is legal and leaves each data-parallel rank one of ",
             to_.batch, " samples");
    const space from(*model_, now_->layout);
    std::vector<rank_t> devices;
    rank_t next = from.ranks();
    for (const member_name& one : to_.members) devices.push_back(now_->has(one) ? now_->rank_of(one) : next++);
    to_.layout = fewest_moved(from, *model_, layouts, {.to = device_map(devices), .list = *list_});
  }

  const job_request* asked_;
  const world* now_;
  const member_list* spares_;
  const elastic_policy* policy_;
  const model* model_;
  const state_list* list_;
  world to_;
};

}  // namespace detail

/// What the request leads to from the world of now; `spares` are registered, live, and are in no world. Who stays keeps
/// its place among those who stay, who joins comes behind them in the order of the request, and who replaces takes the
/// rank. Join and leave take the legal layout to which the fewest bytes move; the batch stays. Law: in the world that a
/// request asked for, the same request is done.
[[nodiscard]] inline taken_request take_up(const job_request& q, const world& now, const member_list& spares,
                                           const elastic_policy& p, const model& m, const state_list& list = adam) {
  try {
    require_request(q);
    return detail::request_taker(q, now, spares, p, m, list).take_up();
  } catch (const refusal& why) {
    return {.answer = refused_by(why)};
  }
}

}  // namespace reshard
