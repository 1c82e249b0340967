// SPDX-License-Identifier: Apache-2.0
// Relabelling by nodes, its second half: which node each block takes, and which GPU number each, so that many bytes are
// retained, where it is known which nodes and which numbers may trade. With s given the best p is an assignment, and so
// is s with p given: they take turns until nothing grows, from every s where there are few.
// Builds on: algebra/assignment.hpp, plan/relabel/bytes.hpp.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <reshard/algebra/assignment.hpp>
#include <reshard/base/same_seconds.hpp>
#include <reshard/plan/relabel/bytes.hpp>

namespace reshard::detail {

/// Where blocks and GPU numbers go; what it costs and keeps.
struct node_choice {
  assignment node_of;   // of each block
  assignment place_of;  // of each GPU number in use
  double seconds = 0;
  bytes_t retained = -1;
};

/// Blocks with the nodes that they are dealt to, and GPU numbers with those that they become; each ascending.
struct node_trades {
  using trade = std::pair<std::vector<std::size_t>, std::vector<std::size_t>>;
  std::vector<trade> nodes, places;
};

/// max over p, s of retained bytes, with cost(b, p(b)) <= allowed but for rounding: tried from several s, every one
/// where there are few.
class place_search {
 public:
  place_search(const relabel_table& table, const relabel_bytes& bytes, const square<double>& cost, double allowed,
               node_trades trades)
      : table_(&table), bytes_(&bytes), cost_(&cost), nodes_(table.nodes.size()), places_(table.gpus.size()),
        allowed_(allowed), trades_(std::move(trades)) {}

  node_choice best() const {
    node_choice best;
    const auto from = [&](assignment places) {
      node_choice found = take_turns(std::move(places));
      if (found.retained > best.retained) best = std::move(found);
    };
    from(any_places());
    from(likely_places());
    if (nodes_ > 1 && few_places()) each_places(any_places(), 0, from);
    return best;
  }
  void weigh(node_choice& choice) const {
    choice.seconds = table_->elsewhere, choice.retained = 0;
    for (std::size_t b = 0; b < nodes_; ++b) {
      choice.seconds = std::max(choice.seconds, cost_->at(b, choice.node_of[b]));
      for (std::size_t g = 0; g < places_; ++g)
        choice.retained += retained(b, choice.node_of[b], g, choice.place_of[g]);
    }
  }

 private:
  static constexpr std::size_t most_work = 20'000'000;  // orders of places x nodes^3

  node_choice take_turns(assignment places) const {
    node_choice choice{{}, std::move(places)};
    for (;;) {
      choose_nodes(choice), weigh(choice);
      node_choice other = choice;
      choose_places(other), weigh(other);
      if (other.retained <= choice.retained) return choice;
      choice = std::move(other);
    }
  }
  assignment any_places() const {
    assignment places(places_);
    for (const auto& [before, after] : trades_.places)
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
    for (const auto& [before, after] : trades_.places)
      for (std::size_t i = 2; i <= before.size(); ++i)
        if ((work *= i) > most_work) return false;
    return true;
  }
  /// Calls visit(s) with every s: every order inside every cell.
  template <typename Visit>
  void each_places(assignment places, std::size_t cell, const Visit& visit) const {
    if (cell == trades_.places.size()) return visit(std::move(places));
    const std::vector<std::size_t>& before = trades_.places[cell].first;
    std::vector<std::size_t> after = trades_.places[cell].second;  // ascending: the first order
    do {
      for (std::size_t i = 0; i < before.size(); ++i) places[before[i]] = after[i];
      each_places(places, cell + 1, visit);
    } while (std::next_permutation(after.begin(), after.end()));
  }
  template <typename Weight>
  assignment places_by(const Weight& weight) const {
    assignment places(places_);
    for (const auto& [before, after] : trades_.places) {
      square<index_t> kept(before.size());
      for (std::size_t i = 0; i < before.size(); ++i)
        for (std::size_t j = 0; j < after.size(); ++j) kept.at(i, j) = weight(before[i], after[j]);
      const assignment chosen = heaviest_assignment(kept, [](std::size_t, std::size_t) { return true; });
      for (std::size_t i = 0; i < before.size(); ++i) places[before[i]] = after[chosen[i]];
    }
    return places;
  }
  bool may(std::size_t block, std::size_t node) const { return !fewer_seconds(allowed_, cost_->at(block, node)); }
  bytes_t retained(std::size_t block, std::size_t node, std::size_t g, std::size_t to) const {
    const std::vector<bytes_t>& tile = bytes_->retained[node * nodes_ + block];
    return tile.empty() ? 0 : tile[to * places_ + g];
  }

  void choose_nodes(node_choice& choice) const {
    choice.node_of.assign(nodes_, 0);
    for (const auto& [blocks, nodes] : trades_.nodes) {
      square<index_t> kept(blocks.size());
      for (std::size_t i = 0; i < blocks.size(); ++i)
        for (std::size_t j = 0; j < nodes.size(); ++j)
          for (std::size_t g = 0; g < places_; ++g)
            kept.at(i, j) += retained(blocks[i], nodes[j], g, choice.place_of[g]);
      const std::vector<std::size_t>&from = blocks, &to = nodes;  // clang 14 captures no bindings
      const assignment chosen =
          heaviest_assignment(kept, [&](std::size_t i, std::size_t j) { return may(from[i], to[j]); });
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

  const relabel_table* table_;
  const relabel_bytes* bytes_;
  const square<double>* cost_;
  std::size_t nodes_, places_;
  double allowed_;
  node_trades trades_;
};

}  // namespace reshard::detail
