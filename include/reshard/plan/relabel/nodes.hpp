// SPDX-License-Identifier: Apache-2.0
// Relabelling by nodes: a permutation of TO's nodes, and one of GPU numbers, the same on all nodes. First the least
// max over nodes of max(I, O) / bandwidth; then many bytes retained.
//   block b to node p(b), GPU g to s(g), and TO's devices stay who they are: s(GPUs of b) = GPUs of p(b).
// Nodes with the same GPUs are a class, and classes go to classes. Where all nodes are of one class, as on whole nodes,
// the least is a bottleneck assignment; where there are several, which goes to which is searched, up to a number of
// steps that worlds of some ten different nodes do not need.
// Builds on: plan/relabel/places.hpp.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/plan/relabel/places.hpp>

namespace reshard::detail {

class node_relabeller {
 public:
  node_relabeller(const relabel_table& table, const relabel_bytes& bytes)
      : table_(&table), bytes_(&bytes), nodes_(table.nodes.size()), places_(table.gpus.size()), cost_(nodes_) {
    for (std::size_t b = 0; b < nodes_; ++b)
      for (std::size_t y = 0; y < nodes_; ++y) {
        const bytes_t in = bytes.need[b] - bytes.kept[y * nodes_ + b];
        const bytes_t out = bytes.alone[y] - bytes.only[y * nodes_ + b];
        cost_.at(b, y) = static_cast<double>(greatest(in, out)) / table.bandwidth[y];
      }
    for (std::size_t y = 0; y < nodes_; ++y) {
      const std::string gpus = gpus_of(y);
      std::size_t c = 0;
      while (c < classes_.size() && classes_[c].gpus != gpus) ++c;
      if (c == classes_.size()) classes_.push_back({gpus, {}});
      classes_[c].members.push_back(y);
    }
  }

  /// The choice that leaves everything where it is, weighed.
  node_choice unchanged() const {
    node_choice same{identity(nodes_), identity(places_)};
    place_search(*table_, *bytes_, cost_, 0, {}).weigh(same);
    return same;
  }
  node_choice best() {
    const std::size_t n = classes_.size();
    bottleneck_ = square<double>(n);
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        if (alike(a, b)) bottleneck_.at(a, b) = class_bottleneck(a, b);
    class_of_ = identity(n), taken_.assign(n, 0);
    least_ = table_->elsewhere;
    for (std::size_t c = 0; c < n; ++c) least_ = std::max(least_, bottleneck_.at(c, c));
    least_classes_ = class_of_;
    if (n > 1) assign_class(0, table_->elsewhere, false);
    class_of_ = least_classes_, steps_ = 0;
    consider();
    if (n > 1) assign_class(0, table_->elsewhere, true);
    return best_;
  }

 private:
  struct node_class {
    std::string gpus;  // a letter for every place
    std::vector<std::size_t> members;
  };
  static constexpr int most_steps = 20'000, most_considered = 64;

  static assignment identity(std::size_t n) {
    assignment same(n);
    for (std::size_t i = 0; i < n; ++i) same[i] = i;
    return same;
  }
  std::string gpus_of(std::size_t y) const {
    std::string gpus;
    for (std::size_t g = 0; g < places_; ++g) gpus += table_->devices[table_->at(y, g)] < 0 ? '-' : 'x';
    return gpus;
  }
  bool alike(std::size_t a, std::size_t b) const {
    const auto used = [](const std::string& gpus) { return std::count(gpus.begin(), gpus.end(), 'x'); };
    return classes_[a].members.size() == classes_[b].members.size() && used(classes_[a].gpus) == used(classes_[b].gpus);
  }
  double class_bottleneck(std::size_t a, std::size_t b) const {
    const std::vector<std::size_t>&blocks = classes_[a].members, &nodes = classes_[b].members;
    square<double> cost(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i)
      for (std::size_t j = 0; j < nodes.size(); ++j) cost.at(i, j) = cost_.at(blocks[i], nodes[j]);
    return least_bottleneck(cost);
  }

  /// The memberships of a GPU number in the first classes, or in those that they go to.
  std::string memberships(std::size_t g, std::size_t count, bool after) const {
    std::string in;
    for (std::size_t c = 0; c < count; ++c) in += classes_[after ? class_of_[c] : c].gpus[g];
    return in;
  }
  /// Whether some s brings the first classes' GPUs where they go: as many numbers of each membership on both sides.
  bool possible(std::size_t count) const {
    std::vector<std::string> before, after;
    for (std::size_t g = 0; g < places_; ++g)
      before.push_back(memberships(g, count, false)), after.push_back(memberships(g, count, true));
    std::sort(before.begin(), before.end()), std::sort(after.begin(), after.end());
    return before == after;
  }
  /// The next class's turn, those before it having theirs with so many seconds: to find less than is known, or to
  /// consider all that have the least.
  void assign_class(std::size_t c, double seconds, bool consider_all) {
    if (++steps_ > most_steps || considered_ >= most_considered) return;
    if (c == classes_.size()) {
      if (consider_all) consider();
      else least_ = seconds, least_classes_ = class_of_;
      return;
    }
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const std::size_t to = (c + i) % classes_.size();  // its own first
      if (taken_[to] != 0 || !alike(c, to)) continue;
      const double most = std::max(seconds, bottleneck_.at(c, to));
      if (consider_all ? fewer_seconds(least_, most) : !fewer_seconds(most, least_)) continue;
      class_of_[c] = to;
      if (!possible(c + 1)) continue;
      taken_[to] = 1;
      assign_class(c + 1, most, consider_all);
      taken_[to] = 0;
    }
  }

  /// The best with these classes, kept where it is better than what is known.
  void consider() {
    ++considered_;
    node_trades trades;
    for (std::size_t c = 0; c < classes_.size(); ++c)
      trades.nodes.push_back({classes_[c].members, classes_[class_of_[c]].members});
    std::map<std::string, node_trades::trade> places;
    for (std::size_t g = 0; g < places_; ++g) {
      places[memberships(g, classes_.size(), false)].first.push_back(g);
      places[memberships(g, classes_.size(), true)].second.push_back(g);
    }
    for (const auto& alike_before_and_after : places) trades.places.push_back(alike_before_and_after.second);
    node_choice found = place_search(*table_, *bytes_, cost_, least_, std::move(trades)).best();
    if (found.retained > best_.retained) best_ = std::move(found);  // all have the least seconds
  }

  const relabel_table* table_;
  const relabel_bytes* bytes_;
  std::size_t nodes_, places_;
  square<double> cost_;  // max(I, O) / bandwidth, of block b on node y
  std::vector<node_class> classes_;
  square<double> bottleneck_{0};
  assignment class_of_, least_classes_;
  std::vector<char> taken_;
  double least_ = 0;
  int steps_ = 0, considered_ = 0;
  node_choice best_;
};

}  // namespace reshard::detail
