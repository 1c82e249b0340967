// SPDX-License-Identifier: Apache-2.0
//
// Which keys random layouts have: their names, what each cannot do without, which exclude each other, and the count.
// Builds on trainer_sets.hpp.
#pragma once

#include "trainer_sets.hpp"

#include <cstdint>
#include <iomanip>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace oracle::trainer {

using feature_set = std::set<std::string>;

// A key counts where it is not at its default; `split` once for each of its values. The last three are of the model and
// the states. A switch has the features of both its sides.
inline std::vector<std::string> feature_names() {
  return {"tp",
          "cp",
          "pp",
          "vpp",
          "dp",
          "ep",
          "etp",
          "zero",
          "split=account",
          "split=account_embedding",
          "split=account_loss",
          "split=spread",
          "first",
          "last",
          "string",
          "order",
          "instances",
          "busbw",
          "pad",
          "shard",
          "experts",
          "names",
          "bucket",
          "tied",
          "predictions",
          "states"};
}

// std::uniform_int_distribution and std::shuffle differ between standard libraries; these do not.
class key_dice {
 public:
  explicit key_dice(std::uint64_t seed) : random_(seed) {}
  long below(long n) { return static_cast<long>(random_() % static_cast<std::uint64_t>(n)); }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[at(below(length(list)))];
  }
  long one_of(std::initializer_list<long> list) { return one_of(numbers(list)); }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (long i = length(list) - 1; i > 0; --i) std::swap(list[at(i)], list[at(below(i + 1))]);
  }

 private:
  std::mt19937_64 random_;
};

// What a feature cannot do without: one of these sets, whichever.
inline std::vector<feature_set> needs_of(const std::string& f) {
  const std::vector<feature_set> pipeline = {{"pp"}}, sharding = {{"zero", "dp"}, {"zero", "cp"}};
  if (f == "vpp" || f.rfind("split=", 0) == 0 || f == "first" || f == "last" || f == "string" || f == "tied")
    return pipeline;
  if (f == "zero") return {{"dp"}, {"cp"}};
  if (f == "bucket" || f == "instances" || f == "busbw") return sharding;
  if (f == "shard") return {{"zero", "dp"}, {"zero", "cp"}, {"names"}};
  if (f == "experts") return {{"shard", "zero", "dp"}, {"shard", "zero", "cp"}};
  if (f == "names") return {{"shard"}, {"shard", "zero", "dp"}};
  if (f == "ep" || f == "etp") return {{"tp"}, {"cp"}, {"dp"}};
  if (f == "order") return {{"tp", "dp"}, {"tp", "cp"}, {"cp", "dp"}, {"pp", "dp"}, {"tp", "pp"}};
  return {{}};
}

inline bool has_all(const feature_set& outer, const feature_set& inner) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

// Adds what each feature needs until nothing is missing; chooses only within `within`.
inline bool complete(key_dice& dice, feature_set& on, const feature_set& within) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::string& f : feature_set(on)) {
      std::vector<feature_set> possible;
      bool satisfied = false;
      for (const feature_set& need : needs_of(f)) {
        if (has_all(on, need)) satisfied = true;
        if (has_all(within, need)) possible.push_back(need);
      }
      if (satisfied) continue;
      if (possible.empty()) return false;
      on.merge(feature_set(dice.one_of(possible)));
      changed = true;
    }
  }
  return true;
}

// Within one layout, or of a switch's model.
inline bool conflict(const feature_set& on) {
  long ways = on.count("first") + on.count("last") > 0 ? 1 : 0;  // to split the layers
  for (const std::string& f : on) ways += f.rfind("split=", 0) == 0 || f == "string" ? 1 : 0;
  if (ways > 1) return true;
  if (on.count("split=spread") > 0 && on.count("vpp") > 0) return true;
  // What shard=rows has no buffers for.
  if (on.count("shard") > 0 && on.count("bucket") + on.count("busbw") > 0) return true;
  // With a tied model the prediction layers are not in the last chunk, and only a string says so.
  return on.count("tied") > 0 && on.count("predictions") > 0 && on.count("string") == 0;
}

class key_census {
 public:
  struct row {
    long cases = 0, alone = 0, with_two = 0;  // beside what the feature needs: nothing; at least two others
  };

  void add(const feature_set& on, const std::string& architecture) {
    ++total_;
    ++architectures_[architecture];
    for (const std::string& f : on) {
      long others = length(on) - 1;
      for (const feature_set& need : needs_of(f))
        if (has_all(on, need)) others = std::min(others, length(on) - 1 - length(need));
      row& r = rows_[f];
      ++r.cases;
      r.alone += others == 0 ? 1 : 0;
      r.with_two += others >= 2 ? 1 : 0;
    }
  }

  long total() const { return total_; }
  row of(const std::string& f) const { return rows_.count(f) > 0 ? rows_.at(f) : row{}; }
  long cases_of(const std::string& architecture) const {
    return architectures_.count(architecture) > 0 ? architectures_.at(architecture) : 0;
  }

  std::string report() const {
    std::ostringstream out;
    out << std::left << std::setw(26) << "key"
        << "  cases  alone  with 2 more\n";
    for (const std::string& f : feature_names()) {
      const row r = of(f);
      out << std::left << std::setw(26) << f << std::right << std::setw(7) << r.cases << std::setw(7) << r.alone
          << std::setw(13) << r.with_two << '\n';
    }
    for (const auto& [architecture, cases] : architectures_)
      out << std::left << std::setw(26) << architecture << std::right << std::setw(7) << cases << '\n';
    out << std::left << std::setw(26) << "all cases" << std::right << std::setw(7) << total_ << '\n';
    return out.str();
  }

 private:
  long total_ = 0;
  std::map<std::string, row> rows_;
  std::map<std::string, long> architectures_;
};

}  // namespace oracle::trainer
