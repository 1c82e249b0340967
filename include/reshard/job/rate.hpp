// SPDX-License-Identifier: Apache-2.0
// What becomes of the learning rate when the batch changes? The job's own schedule is multiplied by a factor that goes
// from where it is to (batch / base)^p along a ramp. Everything is counted in samples, as steps change their size.
// Builds on: job/detail/fraction.hpp.
#pragma once

#include <algorithm>
#include <vector>

#include <reshard/job/detail/fraction.hpp>

namespace reshard {

/// The p of (batch / base)^p: 1 for SGD (linear scaling), 1/2 for Adam and its kin.
enum class rate_power { linear, root };

/// From sample `at` on the batch is `batch`, and the factor follows over the next `ramp` samples; 0: at once.
struct rate_change {
  index_t at = 0;
  index_t batch = 1;
  index_t ramp = 0;

  friend constexpr bool operator==(const rate_change&, const rate_change&) = default;
};

namespace detail {
/// floor(sqrt(x))
constexpr std::uint64_t root_of(wide_count x) {
  std::uint64_t root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const std::uint64_t larger = root | std::uint64_t{1} << bit;
    if (static_cast<wide_count>(larger) * larger <= x) root = larger;
  }
  return root;
}
}  // namespace detail

/// (batch / base)^p, batch, base >= 1. For p = 1/2 exact where it is a fraction; else the greatest multiple of 2^-32
/// that is not above it, with which all goes on exactly.
constexpr fraction rate_factor(index_t batch, index_t base, rate_power p) {
  if (batch < 1 || base < 1)
    refuse("rate: a batch of ", batch, " samples beside one of ", base, "; both have at least 1");
  if (p == rate_power::linear) return {batch, base};
  const index_t common = gcd(batch, base), top = batch / common, over = base / common;
  const auto root_top = static_cast<index_t>(detail::root_of(static_cast<detail::wide_count>(top)));
  const auto root_over = static_cast<index_t>(detail::root_of(static_cast<detail::wide_count>(over)));
  if (root_top * root_top == top && root_over * root_over == over) return {root_top, root_over};
  const detail::wide_count shifted =
      (static_cast<detail::wide_count>(top) << 64) / static_cast<detail::wide_count>(over);
  return fraction::of_parts(detail::root_of(shifted), std::uint64_t{1} << 32);  // floor(2^32 sqrt(top / over)) / 2^32
}

/// m(t) of a job: 1 before the first change; after a change at T0 over T samples
///   m(t) = m0 + (m1 - m0) min(1, (t - T0) / T), T = 0: m1,
/// where m1 = (batch / base)^p and m0 = m(T0) of the ramp before, so that m is continuous where ramps overlap, changes
/// by at most |m1 - m0| / T a sample, and depends on the batch alone once the last ramp is over. Warm-up is a ramp from
/// the start, where m is 1.
class rate_schedule {
 public:
  constexpr explicit rate_schedule(index_t base, rate_power p = rate_power::linear) : base_(base), power_(p) {
    if (base < 1) refuse("rate: a base batch of ", base, " samples; it has at least 1");
  }

  /// The next change; what is refused changes nothing.
  constexpr void add(const rate_change& change) {
    const index_t from = ramps_.empty() ? 0 : ramps_.back().at;
    if (change.at < from)
      refuse("rate: a change at sample ", change.at, " after one at ", from, "; they are told in order, from 0");
    if (change.ramp < 0) refuse("rate: a ramp of ", change.ramp, " samples; it has at least 0");
    fraction to = rate_factor(change.batch, base_, power_);
    ramps_.push_back({change.at, change.ramp, factor(change.at), std::move(to)});
  }

  /// m(t)
  constexpr fraction factor(index_t t) const {
    if (t < 0) refuse("rate: there is no sample ", t, "; they count from 0");
    const auto next =
        std::upper_bound(ramps_.begin(), ramps_.end(), t, [](index_t at, const ramp& r) { return at < r.at; });
    if (next == ramps_.begin()) return {1, 1};
    const ramp& r = *(next - 1);
    if (t - r.at >= r.length) return r.to;
    return fraction::between(r.from, r.to, t - r.at, r.length);
  }

  /// Where the job went back to sample t: changes after it are undone; one at t stays, where the job is again.
  constexpr void undo_to(index_t t) {
    while (!ramps_.empty() && ramps_.back().at > t) ramps_.pop_back();
  }

 private:
  struct ramp {
    index_t at = 0, length = 0;
    fraction from, to;
  };

  index_t base_;
  rate_power power_;
  std::vector<ramp> ramps_;
};

}  // namespace reshard
