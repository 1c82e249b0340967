// SPDX-License-Identifier: Apache-2.0
// decide(policy, situation): the first rung of a policy whose conditions hold, the world that it makes, and why each
// rung before it does not. A pure function, so that all who see the same decide the same, and nobody has to be asked.
// Builds on: elastic/policy.hpp, elastic/detail/fewest_moved.hpp, plan/lost.hpp, space/space.hpp.
#pragma once

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/detail/fewest_moved.hpp>
#include <reshard/elastic/policy.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/space/space.hpp>

namespace reshard {

/// A rung that is not taken, and the sentence that says why.
struct rung_not_taken {
  rung which = rung::hot;
  std::string why = {};
};
/// What is decided. `taken` is none where no rung's conditions hold: then steps go on if nobody is dead.
struct elastic_decision {
  std::optional<rung> taken = {};
  member_list world = {};  // by rank; empty where none is made
  std::optional<degrees> layout = {};
  index_t version = holds_nothing;  // that the world goes on from
  bytes_t unheld = 0;               // of the version asked about, that nobody holds who lives
  member_list slow = {};            // where the rung hot was asked
  std::vector<rung_not_taken> because = {};
};

namespace detail {

inline std::string short_number(double x) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.3g", x);
  return digits;
}
inline double median_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const std::size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

/// Decides once: looks at rungs one after the other, and keeps what several of them ask.
class decider {
 public:
  decider(const elastic_policy& p, const elastic_situation& s) : policy_(&p), now_(&s), from_(s.model, s.layout) {
    if (static_cast<rank_t>(s.members.size()) != from_.ranks())
      refuse("decide: ", s.members.size(), " members, and the layout has ", from_.ranks(), " ranks");
    for (std::size_t r = 0; r < s.members.size(); ++r) {
      (s.members[r].dead ? dead_ : living_).push_back(static_cast<rank_t>(r));
      if (!s.members[r].dead && !s.members[r].empty) holders_.push_back(static_cast<rank_t>(r));
    }
    unheld_ = s.unheld ? *s.unheld : unheld(holders_);
  }

  elastic_decision decide() {
    made_.unheld = unheld_;
    for (const rung one : policy_->rungs) {
      std::string why = why_not(one);
      if (why.empty()) {
        made_.taken = one;
        return std::move(made_);
      }
      made_.because.push_back({one, std::move(why)});
    }
    return std::move(made_);
  }

 private:
  std::string why_not(rung one) {
    if (one == rung::hot) return not_hot();
    if (dead_.empty() && unheld_ == 0) return "nobody is dead";
    switch (one) {
      case rung::replace: return unheld_ > 0 ? no_holder() : not_replaced(now_->version);
      case rung::shrink: return unheld_ > 0 ? no_holder() : not_shrunk(now_->version);
      case rung::snapshot: return unheld_ == 0 ? "every element has a living holder" : not_from_snapshots();
      case rung::checkpoint: return unheld_ == 0 ? "every element has a living holder" : not_from_checkpoint();
      default: return not_waited_for();
    }
  }
  std::string no_holder() const {
    return text_of(unheld_, " bytes of version ", now_->version, " have no living holder");
  }
  std::string spares_for(std::size_t wanted, const char* what) const {
    return text_of(now_->spares.size(), now_->spares.size() == 1 ? " spare is" : " spares are", " registered for ",
                   wanted, " ", what, wanted == 1 ? " member" : " members");
  }

  /// Bytes that no rank of these holds.
  bytes_t unheld(const std::vector<rank_t>& ranks) const {
    if (ranks.size() == now_->members.size()) return 0;
    std::vector<rank_t> lost, elsewhere;
    for (rank_t r = 0; r < from_.ranks(); ++r) {
      if (std::find(ranks.begin(), ranks.end(), r) == ranks.end()) lost.push_back(r);
      elsewhere.push_back(from_.ranks() + r);
    }
    return lost_bytes(layout_switch(
        from_, from_,
        {.to = device_map(elsewhere), .list = now_->list, .lost = lost, .lost_elements = when_lost::leave_out}));
  }

  /// The ratio that a member reaches in each of the last windows; 0 where there are too few, or nobody to compare with.
  double slowness(std::size_t of) const {
    const std::vector<double>& own = now_->members[of].steps;
    const auto windows = static_cast<std::size_t>(policy_->windows);
    if (own.size() < windows) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t back = 1; back <= windows; ++back) {
      std::vector<double> peers;
      for (std::size_t m = 0; m < now_->members.size(); ++m)
        if (const std::vector<double>& steps = now_->members[m].steps;
            m != of && !now_->members[m].dead && steps.size() >= back)
          peers.push_back(steps[steps.size() - back]);
      if (peers.empty()) return 0;
      const double median = median_of(std::move(peers));
      least = std::min(least, median > 0 ? own[own.size() - back] / median : 0);
    }
    return least;
  }
  std::string not_hot() {
    if (!dead_.empty()) return "a member is dead; who is slow comes after";
    std::vector<rank_t> slow;
    double most = 0;
    for (std::size_t r = 0; r < now_->members.size(); ++r) {
      const double ratio = slowness(r);
      most = std::max(most, ratio);
      if (ratio >= policy_->factor) slow.push_back(static_cast<rank_t>(r));
    }
    if (slow.empty())
      return text_of("nobody is slow: over ", policy_->windows, policy_->windows == 1 ? " window" : " windows",
                     " the slowest takes ", short_number(most), " times the median of its peers, and ",
                     short_number(policy_->factor), " is slow");
    member_list& names = made_.slow;
    for (const rank_t r : slow) names.push_back(now_->members[static_cast<std::size_t>(r)].name);
    if (now_->spares.size() >= slow.size()) return put_spares(slow, now_->version);
    const bool over = now_->waited >= policy_->wait;
    return text_of(over ? "ignored: " : "", members_text(names), names.size() == 1 ? " is" : " are", " slow, up to ",
                   short_number(most), " times the median of the peers, and ", spares_for(slow.size(), "slow"),
                   over ? "; waited " : " yet; waited ", short_number(now_->waited), " of ",
                   short_number(policy_->wait), " s");
  }

  std::string put_spares(const std::vector<rank_t>& places, index_t version) {
    for (const seen_member& m : now_->members) made_.world.push_back(m.name);
    for (std::size_t i = 0; i < places.size(); ++i) made_.world[static_cast<std::size_t>(places[i])] = now_->spares[i];
    made_.layout = now_->layout;
    made_.version = version;
    return {};
  }
  std::string not_replaced(index_t version) {
    return now_->spares.size() < dead_.size() ? spares_for(dead_.size(), "dead") : put_spares(dead_, version);
  }

  /// Goes from as many as are there down to `min`, and takes the first number that has a legal layout.
  std::string not_shrunk(index_t version) {
    const rank_t there = std::ssize(living_) + std::ssize(now_->spares);
    if (there < policy_->min)
      return text_of(there, there == 1 ? " member is there" : " members are there", ", and a world has at least ",
                     policy_->min);
    const varied_axes axes = policy_->axes.empty() ? default_axes(now_->model) : policy_->axes;
    for (rank_t n = there; n >= greatest(policy_->min, 1); --n) {
      std::vector<degrees> layouts = legal_layouts(now_->model, now_->layout, n, axes);
      std::erase_if(layouts, [&](const degrees& one) { return now_->batch && one.dp > *now_->batch; });
      if (layouts.empty()) continue;
      made_.layout = best_of(layouts, n);
      made_.version = version;
      for (rank_t i = 0; i < n; ++i) made_.world.push_back(there_at(i));
      return {};
    }
    return text_of("no layout of ", there, " down to ", greatest(policy_->min, 1), " members is legal",
                   now_->batch ? text_of(" and leaves each data-parallel rank one of ", *now_->batch, " samples") : "");
  }
  /// Who is there, in rank order, then spares.
  member_name there_at(rank_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return at < living_.size() ? now_->members[static_cast<std::size_t>(living_[at])].name
                               : now_->spares[at - living_.size()];
  }
  /// The one to which the fewest bytes move, from those who hold state to those who are there.
  degrees best_of(const std::vector<degrees>& layouts, rank_t n) const {
    std::vector<rank_t> devices, sources, gone;
    for (rank_t i = 0; i < n; ++i) {
      const rank_t spare = i - std::ssize(living_);
      devices.push_back(spare < 0 ? living_[static_cast<std::size_t>(i)] : from_.ranks() + spare);
    }
    for (rank_t r = 0; r < from_.ranks(); ++r) {  // who is empty holds nothing: its rank of FROM is on a lost device
      const bool holds = std::find(holders_.begin(), holders_.end(), r) != holders_.end();
      sources.push_back(holds ? r : from_.ranks() + n + r);
      if (!holds) gone.push_back(sources.back());
    }
    return fewest_moved(from_, now_->model, layouts,
                        {.from = device_map(sources),
                         .to = device_map(devices),
                         .list = now_->list,
                         .lost = gone,
                         .lost_elements = when_lost::leave_out});
  }
  /// A world for a state that comes from elsewhere: with spares if they do, else of who is there.
  std::string no_world(index_t version) { return not_replaced(version).empty() ? std::string() : not_shrunk(version); }

  std::string not_from_snapshots() {
    std::vector<index_t> versions;
    for (const kept_snapshot& k : now_->snapshots)
      if (k.version <= now_->version) versions.push_back(k.version);
    std::sort(versions.rbegin(), versions.rend());
    for (const index_t version : versions) {
      std::vector<rank_t> ranks = version == now_->version && !now_->unheld ? holders_ : std::vector<rank_t>();
      for (const kept_snapshot& k : now_->snapshots)
        if (k.version == version && lives(k.at))
          if (const rank_t r = rank_of(k.of); r >= 0 && std::find(ranks.begin(), ranks.end(), r) == ranks.end())
            ranks.push_back(r);
      if (!ranks.empty() && unheld(ranks) == 0) return no_world(version);
    }
    return now_->snapshots.empty() ? "there are no snapshots" : "no version of the snapshots is whole with whom lives";
  }
  std::string not_from_checkpoint() {
    if (!now_->checkpoint) return "the trainer named none";
    if (*now_->checkpoint > now_->version)
      return text_of("it is of version ", *now_->checkpoint, ", and the job is at ", now_->version);
    return no_world(*now_->checkpoint);
  }
  std::string not_waited_for() const {
    if (unheld_ > 0) return no_holder();
    if (now_->spares.size() >= dead_.size()) return "somebody fits: " + spares_for(dead_.size(), "dead");
    if (now_->waited < policy_->wait) return {};
    return text_of("waited ", short_number(now_->waited), " of ", short_number(policy_->wait), " s");
  }

  rank_t rank_of(const member_name& who) const {
    for (std::size_t r = 0; r < now_->members.size(); ++r)
      if (now_->members[r].name == who) return static_cast<rank_t>(r);
    return -1;
  }
  bool lives(const member_name& who) const {
    const rank_t r = rank_of(who);
    return r >= 0 ? !now_->members[static_cast<std::size_t>(r)].dead : has_member(now_->spares, who);
  }

  const elastic_policy* policy_;
  const elastic_situation* now_;
  space from_;
  std::vector<rank_t> dead_, living_, holders_;
  bytes_t unheld_ = 0;
  elastic_decision made_;
};

}  // namespace detail

/// The first rung in the policy's order whose conditions hold. Any member may be the sick one. Refused: as many members
/// as the layout has no ranks for, and a layout that the model does not admit.
[[nodiscard]] inline elastic_decision decide(const elastic_policy& p, const elastic_situation& s) {
  return detail::decider(p, s).decide();
}

/// "shrink: a and b, dp=2, from version 7; not replace: 0 spares are registered for 1 dead member"
inline std::string to_text(const elastic_decision& d) {
  std::string text = d.taken ? std::string(name(*d.taken)) : "no rung";
  if (d.layout)
    text += detail::text_of(": ", members_text(d.world), ", ", layout_word(*d.layout), ", from version ", d.version);
  for (const rung_not_taken& one : d.because) text += detail::text_of("; not ", name(one.which), ": ", one.why);
  return text;
}

}  // namespace reshard
