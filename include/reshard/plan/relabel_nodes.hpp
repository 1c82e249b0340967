// SPDX-License-Identifier: Apache-2.0
// Relabelling by nodes: a permutation of TO's nodes, and one of GPU numbers, the same on all nodes. First the least
// max over nodes of max(I, O) / bandwidth, exact; then many bytes retained.
//   block b to node p(b), GPU g to s(g), and TO's devices stay who they are: s(GPUs of b) = GPUs of p(b).
// Nodes with the same GPUs are a class. Between two classes the bottleneck is one of an assignment; which class takes
// which is searched where there are several. With s given the best p is an assignment, and so is s with p given: they
// take turns, from every s where there are few.
// Builds on: plan/relabel_bytes.hpp.
#pragma once

#include <string>

#include <reshard/plan/relabel_bytes.hpp>

namespace reshard::detail {

/// Where blocks and GPU numbers go; what it costs and keeps.
struct node_choice {
  assignment node_of;   // of each block
  assignment place_of;  // of each GPU number in use
  double seconds = 0;
  bytes_t retained = -1;
};

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

  /// As it was.
  node_choice unchanged() const {
    node_choice same{identity(nodes_), identity(places_)};
    weigh(same);
    return same;
  }
  node_choice best() {
    const std::size_t n = classes_.size();
    bottleneck_ = square<double>(n);
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        if (alike(a, b)) bottleneck_.at(a, b) = class_bottleneck(a, b);
    best_ = {};
    class_of_ = identity(n);
    consider();
    taken_.assign(n, 0);
    assign_class(0, table_->elsewhere);
    return best_;
  }

 private:
  struct node_class {
    std::string gpus;  // a letter for every place
    std::vector<std::size_t> members;
  };
  static constexpr int most_steps = 100000, most_considered = 64;
  static constexpr std::size_t most_work = 20'000'000;  // places' permutations x nodes^3

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
  /// The next class's turn, those before it having theirs with so many seconds.
  void assign_class(std::size_t c, double seconds) {
    if (++steps_ > most_steps || considered_ >= most_considered) return;
    if (c == classes_.size()) {
      if (class_of_ != identity(c)) consider();
      return;
    }
    for (std::size_t to = 0; to < classes_.size(); ++to) {
      if (taken_[to] != 0 || !alike(c, to)) continue;
      const double most = std::max(seconds, bottleneck_.at(c, to));
      if (most > best_.seconds) continue;
      class_of_[c] = to;
      if (!possible(c + 1)) continue;
      taken_[to] = 1;
      assign_class(c + 1, most);
      taken_[to] = 0;
    }
  }

  /// The best with these classes, kept where it is better than what is known.
  void consider() {
    ++considered_;
    double most = table_->elsewhere;
    for (std::size_t c = 0; c < classes_.size(); ++c) most = std::max(most, bottleneck_.at(c, class_of_[c]));
    allowed_ = most;
    cells_of_places();
    const auto from = [&](assignment places) {
      node_choice choice{{}, std::move(places)};
      for (bytes_t had = -1;; had = choice.retained) {
        choose_nodes(choice), weigh(choice);
        if (choice.retained <= had) break;
        node_choice other = choice;
        choose_places(other), weigh(other);
        if (other.retained <= choice.retained) break;
        choice = std::move(other);
      }
      if (best_.retained < 0 || choice.seconds < best_.seconds ||
          (choice.seconds == best_.seconds && choice.retained > best_.retained))
        best_ = std::move(choice);
    };
    from(any_places());
    from(likely_places());
    if (nodes_ > 1 && few_places()) each_places(any_places(), 0, from);
  }
  /// Groups of GPU numbers that s may permute: those of the same memberships, and where they go.
  void cells_of_places() {
    std::map<std::string, std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> cells;
    for (std::size_t g = 0; g < places_; ++g) {
      cells[memberships(g, classes_.size(), false)].first.push_back(g);
      cells[memberships(g, classes_.size(), true)].second.push_back(g);
    }
    cells_.clear();
    for (auto& [membership, cell] : cells) cells_.push_back(std::move(cell));
  }
  assignment any_places() const {
    assignment places(places_);
    for (const auto& [before, after] : cells_)
      for (std::size_t i = 0; i < before.size(); ++i) places[before[i]] = after[i];
    return places;
  }
  /// s by what all pairs of block and node that are allowed would retain.
  assignment likely_places() const {
    std::vector<bytes_t> sum(places_ * places_, 0);
    for (std::size_t b = 0; b < nodes_; ++b)
      for (std::size_t y = 0; y < nodes_; ++y)
        if (const std::vector<bytes_t>& tile = bytes_->retained[y * nodes_ + b]; !tile.empty() && may(b, y))
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += tile[i] / static_cast<bytes_t>(nodes_);
    return places_by([&](std::size_t g, std::size_t to) { return sum[to * places_ + g]; });
  }
  bool few_places() const {
    std::size_t work = nodes_ * nodes_ * nodes_;
    for (const auto& [before, after] : cells_)
      for (std::size_t i = 2; i <= before.size(); ++i)
        if ((work *= i) > most_work) return false;
    return true;
  }
  /// Calls visit(s) with every s: every order inside every cell.
  template <typename Visit>
  void each_places(assignment places, std::size_t cell, const Visit& visit) const {
    if (cell == cells_.size()) return visit(std::move(places));
    const std::vector<std::size_t>& before = cells_[cell].first;
    std::vector<std::size_t> after = cells_[cell].second;  // ascending: the first order
    do {
      for (std::size_t i = 0; i < before.size(); ++i) places[before[i]] = after[i];
      each_places(places, cell + 1, visit);
    } while (std::next_permutation(after.begin(), after.end()));
  }
  template <typename Weight>
  assignment places_by(const Weight& weight) const {
    assignment places(places_);
    for (const auto& [before, after] : cells_) {
      square<index_t> kept(before.size());
      for (std::size_t i = 0; i < before.size(); ++i)
        for (std::size_t j = 0; j < after.size(); ++j) kept.at(i, j) = weight(before[i], after[j]);
      const assignment chosen = heaviest_assignment(kept, [](std::size_t, std::size_t) { return true; });
      for (std::size_t i = 0; i < before.size(); ++i) places[before[i]] = after[chosen[i]];
    }
    return places;
  }
  bool may(std::size_t block, std::size_t node) const { return cost_.at(block, node) <= allowed_; }
  bytes_t retained(std::size_t block, std::size_t node, std::size_t g, std::size_t to) const {
    const std::vector<bytes_t>& tile = bytes_->retained[node * nodes_ + block];
    return tile.empty() ? 0 : tile[to * places_ + g];
  }

  void choose_nodes(node_choice& choice) const {
    choice.node_of.assign(nodes_, 0);
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const std::vector<std::size_t>&blocks = classes_[c].members, &nodes = classes_[class_of_[c]].members;
      square<index_t> kept(blocks.size());
      for (std::size_t i = 0; i < blocks.size(); ++i)
        for (std::size_t j = 0; j < nodes.size(); ++j)
          for (std::size_t g = 0; g < places_; ++g)
            kept.at(i, j) += retained(blocks[i], nodes[j], g, choice.place_of[g]);
      const assignment chosen =
          heaviest_assignment(kept, [&](std::size_t i, std::size_t j) { return may(blocks[i], nodes[j]); });
      for (std::size_t i = 0; i < blocks.size(); ++i) choice.node_of[blocks[i]] = nodes[chosen[i]];
    }
  }
  void choose_places(node_choice& choice) const {
    choice.place_of = places_by([&](std::size_t g, std::size_t to) {
      bytes_t sum = 0;
      for (std::size_t b = 0; b < nodes_; ++b) sum += retained(b, choice.node_of[b], g, to);
      return sum;
    });
  }
  void weigh(node_choice& choice) const {
    choice.seconds = table_->elsewhere, choice.retained = 0;
    for (std::size_t b = 0; b < nodes_; ++b) {
      choice.seconds = std::max(choice.seconds, cost_.at(b, choice.node_of[b]));
      for (std::size_t g = 0; g < places_; ++g)
        choice.retained += retained(b, choice.node_of[b], g, choice.place_of[g]);
    }
  }

  const relabel_table* table_;
  const relabel_bytes* bytes_;
  std::size_t nodes_, places_;
  square<double> cost_;  // max(I, O) / bandwidth, of block b on node y
  std::vector<node_class> classes_;
  square<double> bottleneck_{0};
  assignment class_of_;
  std::vector<char> taken_;
  std::vector<std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> cells_;
  double allowed_ = 0;
  int steps_ = 0, considered_ = 0;
  node_choice best_;
};

}  // namespace reshard::detail
