// SPDX-License-Identifier: Apache-2.0
// The rule of schedules once more, by brute force and from the contract's words: at every event who is admitted and who
// holds how much. It keeps of each job what it has left and how long it still stops; whoever asks when something is
// free looks at every end in turn.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace oracle {

struct cluster_job {
  double submit = 0;
  int requested = 1, min = 1, max = 1;
  double samples = 1;
  std::vector<double> speed;  // by devices
};

/// What each job holds from a moment on.
struct cluster_moment {
  double at = 0;
  std::vector<int> devices;
};

/// How often something happened that a test wants to have met.
struct rule_counts {
  long by_mean = 0, not_by_mean = 0, overtook = 0, would_delay = 0, changed_while_stopped = 0, together = 0;
};

class job_rule {
 public:
  job_rule(std::vector<cluster_job> jobs, int devices, const std::string& policy, double pause, double overhead)
      : jobs_(std::move(jobs)), devices_(devices), elastic_(policy[0] == 'e'),
        overtaking_(policy.find("backfill") != std::string::npos), pause_(elastic_ ? pause : 0),
        slower_(elastic_ ? 1 - overhead : 1), left_(jobs_.size()), stops_(jobs_.size(), 0), held_(jobs_.size(), 0),
        phase_(jobs_.size(), unborn) {
    for (std::size_t j = 0; j < jobs_.size(); ++j) left_[j] = jobs_[j].samples;
  }

  std::vector<cluster_moment> history() {
    std::vector<cluster_moment> told;
    while (go_to_next_event()) {
      if (elastic_) admit();
      else start();
      told.push_back({now_, held_});
    }
    return told;
  }
  const rule_counts& counts() const { return counts_; }

 private:
  enum phase { unborn, waiting, running, done };
  using shares = std::vector<int>;
  static constexpr double same = 1e-6;

  double speed(std::size_t j, int n) const { return jobs_[j].speed[static_cast<std::size_t>(n)] * slower_; }
  /// When a running job would end with n devices from now on.
  double end_with(std::size_t j, int n) const {
    const double stop = phase_[j] == running && held_[j] != n ? stops_[j] + pause_ : stops_[j];
    return now_ + stop + left_[j] / speed(j, n);
  }

  bool go_to_next_event() {
    const double never = std::numeric_limits<double>::infinity();
    std::vector<double> ends(jobs_.size(), never);
    double first = never;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (phase_[j] == running) ends[j] = end_with(j, held_[j]);
      first = std::min(first, phase_[j] == unborn ? jobs_[j].submit : ends[j]);
    }
    if (first == never) return false;
    double then = first;
    int events = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (phase_[j] == unborn && jobs_[j].submit <= first + same) then = std::max(then, jobs_[j].submit);
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (phase_[j] == running) {
        const double gone = then - now_, stopped = std::min(stops_[j], gone);
        stops_[j] -= stopped;
        left_[j] -= speed(j, held_[j]) * (gone - stopped);
      }
      if (ends[j] <= first + same) phase_[j] = done, held_[j] = 0, ++events;
      if (phase_[j] == unborn && jobs_[j].submit <= first + same) phase_[j] = waiting, ++events;
    }
    now_ = then;
    if (events > 1) ++counts_.together;
    return true;
  }

  /// Those that wait, as they were submitted; of those of one moment as they are listed.
  std::vector<std::size_t> queue() const {
    std::vector<std::size_t> order;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (phase_[j] != waiting) continue;
      std::size_t at = order.size();
      while (at > 0 && jobs_[order[at - 1]].submit > jobs_[j].submit) --at;
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), j);
    }
    return order;
  }
  bool earlier(std::size_t a, std::size_t b) const {
    return jobs_[a].submit != jobs_[b].submit ? jobs_[a].submit < jobs_[b].submit : a < b;
  }
  int free_of(const shares& held) const {
    int free = devices_;
    for (const int n : held) free -= n;
    return free;
  }
  /// The first moment at which so many are free, if those hold what they do until they end.
  double when_free(const shares& held, int wanted) const {
    double best = std::numeric_limits<double>::infinity();
    std::vector<double> moments{now_};
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (held[j] > 0) moments.push_back(end_with(j, held[j]));
    for (const double at : moments)
      if (at < best && free_at(held, at) >= wanted) best = at;
    return best;
  }
  int free_at(const shares& held, double at) const {
    int free = devices_;
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (held[j] > 0 && end_with(j, held[j]) > at + same) free -= held[j];
    return free;
  }

  void start() {
    std::size_t first = jobs_.size();
    for (const std::size_t j : queue()) {
      const bool free = jobs_[j].requested <= free_of(held_);
      shares with = held_;
      with[j] = jobs_[j].requested;
      bool may = free;
      if (first < jobs_.size()) {
        may = may && overtaking_ &&
              when_free(with, jobs_[first].requested) <= when_free(held_, jobs_[first].requested) + same;
        if (overtaking_ && free && !may) ++counts_.would_delay;
        if (may) ++counts_.overtook;
      } else if (!may) {
        first = j;
      }
      if (may) held_ = with, phase_[j] = running;
    }
  }

  /// min to each, then one at a time to the greatest gain.
  shares shared(const std::vector<bool>& among, int devices) const {
    shares given(jobs_.size(), 0);
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (among[j]) given[j] = jobs_[j].min, devices -= jobs_[j].min;
    for (; devices > 0; --devices) {
      std::size_t best = jobs_.size();
      double most = 0;
      for (std::size_t j = 0; j < jobs_.size(); ++j) {
        if (!among[j] || given[j] == jobs_[j].max) continue;
        const auto w = static_cast<std::size_t>(given[j]);
        const double gain = left_[j] / jobs_[j].speed[w] - left_[j] / jobs_[j].speed[w + 1];
        if (gain <= 0 || jobs_[j].speed[w + 1] <= jobs_[j].speed[w]) continue;
        const bool equal = best < jobs_.size() && std::fabs(gain - most) <= 1e-9 * most;
        if (best == jobs_.size() || (equal ? earlier(j, best) : gain > most)) best = j, most = gain;
      }
      if (best == jobs_.size()) break;
      ++given[best];
    }
    return given;
  }
  double sum_of_ends(const shares& held) const {
    double sum = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (held[j] > 0) sum += end_with(j, held[j]) - now_;
    return sum;
  }

  /// The same with a newcomer: beside it they hold less, and what they hold without it once it has ended.
  double sum_of_ends_beside(const shares& beside, const shares& without, std::size_t newcomer) const {
    const double lasts = left_[newcomer] / speed(newcomer, beside[newcomer]);
    double sum = lasts;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (without[j] == 0) continue;
      const double whole = end_with(j, beside[j]) - now_;
      if (whole <= lasts + same || beside[j] == without[j]) {
        sum += whole;
        continue;
      }
      const double stop = phase_[j] == running && held_[j] != beside[j] ? stops_[j] + pause_ : stops_[j];
      const double trains = std::max(0.0, lasts - stop), stops_on = std::max(0.0, stop - lasts);
      const double rest = left_[j] - trains * speed(j, beside[j]);
      sum += lasts + stops_on + pause_ + rest / speed(j, without[j]);
    }
    return sum;
  }

  void admit() {
    std::vector<bool> admitted(jobs_.size(), false);
    int free = free_of(held_), minima = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (phase_[j] == running) admitted[j] = true, minima += jobs_[j].min;
    std::size_t first = jobs_.size();
    for (const std::size_t j : queue()) {
      if (first < jobs_.size() && !overtaking_) break;
      std::vector<bool> more = admitted;
      more[j] = true;
      const shares without = shared(admitted, devices_);
      bool may = jobs_[j].min <= free, by_mean = false;
      if (!may && minima + jobs_[j].min <= devices_) {
        const double begins = when_free(without, jobs_[j].min);
        std::vector<bool> alone(jobs_.size(), false);
        alone[j] = true;
        const int then = shared(alone, free_at(without, begins))[j];
        const double waits = sum_of_ends(without) + begins - now_ + left_[j] / speed(j, then);
        may = by_mean = sum_of_ends_beside(shared(more, devices_), without, j) <= waits * (1 + 1e-9);
        if (!may) ++counts_.not_by_mean;
      }
      if (may && first < jobs_.size() &&
          when_free(shared(more, devices_), jobs_[first].min) > when_free(without, jobs_[first].min) + same)
        may = false, ++counts_.would_delay;
      if (!may) {
        if (first == jobs_.size()) first = j;
        continue;
      }
      if (first < jobs_.size()) ++counts_.overtook;
      if (by_mean) ++counts_.by_mean;
      admitted = more;
      minima += jobs_[j].min;
      free = by_mean ? 0 : free - jobs_[j].min;
    }
    const shares given = shared(admitted, devices_);
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!admitted[j]) continue;
      if (phase_[j] == running && given[j] != held_[j]) {
        if (stops_[j] > 0) ++counts_.changed_while_stopped;
        stops_[j] += pause_;
      }
      phase_[j] = running;
    }
    held_ = given;
  }

  std::vector<cluster_job> jobs_;
  int devices_;
  bool elastic_, overtaking_;
  double pause_, slower_;
  double now_ = 0;
  std::vector<double> left_, stops_;
  shares held_;
  std::vector<phase> phase_;
  rule_counts counts_;
};

}  // namespace oracle
