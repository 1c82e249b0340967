// SPDX-License-Identifier: Apache-2.0
// Foreign layouts: a framework that knows its own shards hands over a list of (rank, tensor, offset, shape), ids and no
// pointers; with the families they belong to they are a Holding like any computed one, and can be planned from and to.
// Builds on: space/holding.hpp.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <reshard/algebra/flat.hpp>
#include <reshard/algebra/overlap.hpp>
#include <reshard/model/model.hpp>
#include <reshard/space/holding.hpp>

namespace reshard {

/// Up to five numbers, one per dimension of a tensor.
struct extents {
  int ndim = 0;
  index_t at[family_ndim] = {};

  constexpr extents() = default;
  constexpr extents(std::initializer_list<index_t> list) {
    if (list.size() > family_ndim)
      refuse("a tensor of ", list.size(), " dimensions; at most ", family_ndim, " are supported");
    for (const index_t number : list) at[ndim++] = number;
  }
  friend constexpr bool operator==(const extents&, const extents&) = default;
};

/// What one rank holds of one tensor: { x : offset <= x < offset + shape }, of a tensor of extents `whole`.
struct shard {
  rank_t rank = 0;
  std::string tensor;
  dtype type = dtype::bf16;
  extents whole;
  extents offset;
  extents shape;
  std::string state = "param";
};

/// The tensors that both sides of a plan speak of: a model's families, or one family per tensor that any list names.
class tensor_table {
 public:
  explicit tensor_table(const model& m) {
    for (int f = 0; f < m.families; ++f) add(m[f], m[f].place == home::layers ? m.layers_of(f) : layer_set::all(1));
  }
  /// All tensors of the lists, by name; each keeps its own dimensions, the last ones of a family's axes.
  tensor_table(std::initializer_list<const std::vector<shard>*> lists) {
    std::vector<const shard*> all;
    for (const std::vector<shard>* list : lists)
      for (const shard& s : *list) all.push_back(&s);
    std::sort(all.begin(), all.end(), [](const shard* a, const shard* b) { return a->tensor < b->tensor; });
    names_.reserve(all.size());  // families keep views of them
    for (const shard* s : all) {
      if (!names_.empty() && names_.back() == s->tensor) continue;
      names_.push_back(s->tensor);
      family f{.name = names_.back(), .shape_ndim = s->whole.ndim};
      for (int i = 0; i < s->whole.ndim; ++i) f.extent[family_ndim - s->whole.ndim + i] = s->whole.at[i];
      f.whole().volume();
      add(f, layer_set::all(1));
    }
  }
  tensor_table(const tensor_table&) = delete;
  tensor_table& operator=(const tensor_table&) = delete;

  int families() const { return static_cast<int>(families_.size()); }
  const family& family_at(int f) const { return families_[static_cast<std::size_t>(f)]; }

  struct tensor {
    int family;
    index_t member;
    index_t expert;
  };
  /// The tensor of a name, tied names included.
  std::optional<tensor> find(std::string_view name) const {
    if (!names_.empty()) {  // made of lists: names as they are, sorted
      const auto at = std::lower_bound(names_.begin(), names_.end(), name);
      if (at == names_.end() || *at != name) return std::nullopt;
      return tensor{static_cast<int>(at - names_.begin()), 0, 0};
    }
    for (int f = 0; f < families(); ++f) {
      const family& which = family_at(f);
      if (!name.empty() && name == which.tied_name) return tensor{f, 0, 0};
      index_t layer = 0, expert = 0;
      if (!match(which.name, name, layer, expert)) continue;
      const layer_set& layers = layers_[static_cast<std::size_t>(f)];
      if (which.place != home::layers) return tensor{f, 0, 0};
      if (expert < which.extent[axis_of::expert] && layers.contains(layer)) return tensor{f, layers.members_below(layer), expert};
    }
    return std::nullopt;
  }

 private:
  void add(const family& f, const layer_set& layers) {
    families_.push_back(f);
    layers_.push_back(layers);
  }
  static bool number(std::string_view& text, index_t& value) {
    std::size_t digits = 0;
    value = 0;
    while (digits < text.size() && digits < 18 && text[digits] >= '0' && text[digits] <= '9') value = value * 10 + (text[digits++] - '0');
    const bool plain = digits > 0 && (digits == 1 || text[0] != '0');
    text.remove_prefix(digits);
    return plain;
  }
  /// Whether `name` is `pattern` with numbers for {layer} and {expert}.
  static bool match(std::string_view pattern, std::string_view name, index_t& layer, index_t& expert) {
    while (!pattern.empty()) {
      if (pattern.starts_with("{layer}")) {
        if (!number(name, layer)) return false;
        pattern.remove_prefix(7);
      } else if (pattern.starts_with("{expert}")) {
        if (!number(name, expert)) return false;
        pattern.remove_prefix(8);
      } else {
        if (name.empty() || name.front() != pattern.front()) return false;
        pattern.remove_prefix(1);
        name.remove_prefix(1);
      }
    }
    return name.empty();
  }

  std::vector<std::string> names_;
  std::vector<family> families_;
  std::vector<layer_set> layers_;
};

/// The holders of a listed box: ranks, ascending.
struct listed_ranks {
  const std::vector<rank_t>* ranks;

  index_t count() const { return static_cast<index_t>(ranks->size()); }
  rank_t operator[](index_t i) const { return (*ranks)[static_cast<std::size_t>(i)]; }
  index_t count_below(rank_t rank) const {
    return std::lower_bound(ranks->begin(), ranks->end(), rank) - ranks->begin();
  }
  index_t index_of(rank_t rank) const {
    const index_t at = count_below(rank);
    return at < count() && (*this)[at] == rank ? at : -1;
  }
  bool contains(rank_t rank) const { return index_of(rank) >= 0; }
};

/// A list of shards as a Holding. Refuses what no tensor table admits: an unknown name, a shape that is not the tensor's, a
/// shard that reaches outside, shards of two ranks that overlap without being equal, states of one role that lie differently.
class listed_holding {
 public:
  listed_holding(const tensor_table& table, const std::vector<shard>& shards, rank_t ranks) : table_(&table), ranks_(ranks) {
    std::vector<entry> entries;
    for (const shard& s : shards) expand(s, entries);
    for (std::size_t r = 0; r < std::size(roles); ++r) collect(entries, roles[r], boxes_[r]);
  }

  rank_t ranks() const { return ranks_; }
  int families() const { return table_->families(); }
  const family& family_at(int f) const { return table_->family_at(f); }

  /// The states that the list has of a role.
  state_set states_listed() const { return listed_; }

  template <typename Sink>
  void held(rank_t rank, role r, Sink&& sink) const {
    for (int f = 0; f < families(); ++f) held(f, rank, r, sink);
  }
  template <typename Sink>
  void held(int f, rank_t rank, role r, Sink&& sink) const {
    const per_role& of = boxes_[static_cast<std::size_t>(r)];
    const std::vector<held_box>& mine = of.by_rank;
    const held_box key{rank, f, 0};
    for (auto at = std::lower_bound(mine.begin(), mine.end(), key); at != mine.end() && at->rank == rank && at->family == f; ++at) {
      const listed_box& b = of.distinct[at->box];
      if constexpr (std::invocable<Sink, int, const family_box&>) sink(f, b.where);
      else sink(f, b.where, listed_ranks{&b.ranks});
    }
  }
  template <typename Sink>
  void owners(int f, role r, const family_box& within, Sink&& sink) const {
    const per_role& of = boxes_[static_cast<std::size_t>(r)];
    const auto first = of.distinct.begin() + of.first[static_cast<std::size_t>(f)];
    const auto last = of.distinct.begin() + of.first[static_cast<std::size_t>(f) + 1];
    const index_t reach = of.longest[static_cast<std::size_t>(f)];  // no box of the family is longer along its first axis
    auto at = std::partition_point(first, last, [&](const listed_box& b) { return b.where.dim[0].begin <= within.dim[0].begin - reach; });
    for (; at != last && at->where.dim[0].begin < within.dim[0].end; ++at)
      if (intersects(at->where, within)) sink(at->where, listed_ranks{&at->ranks});
  }

  /// Lists say nothing of memory: tensors in the table's order.
  storage_order address(int f, rank_t, role, index_t member, index_t expert) const { return {0, member, f, expert}; }

 private:
  struct entry {
    int family;
    family_box where;
    int state;
    rank_t rank;
  };
  struct listed_box {
    int family;
    family_box where;
    std::vector<rank_t> ranks;
  };
  struct held_box {
    rank_t rank;
    int family;
    std::size_t box;
    friend auto operator<=>(const held_box&, const held_box&) = default;
  };
  struct per_role {
    std::vector<listed_box> distinct;    // by family, then box
    std::vector<std::ptrdiff_t> first;   // per family
    std::vector<index_t> longest;        // per family
    std::vector<held_box> by_rank;
  };

  /// The shard's box in its family's axes: the first stored dimension of a matrix is parts x rows, so it may become three.
  void expand(const shard& s, std::vector<entry>& entries) {
    if (s.rank < 0 || s.rank >= ranks_) refuse("shard of '", s.tensor, "': rank ", s.rank, " of a world of ", ranks_, " ranks");
    int state_index = 0;
    while (state_index < state_count && adam_states[state_index].name != s.state) ++state_index;
    if (state_index == state_count)
      refuse("shard of '", s.tensor, "': no state is called '", s.state, "'; states are param, master, exp_avg and exp_avg_sq");
    listed_ = listed_ | only(state_index);
    const auto found = table_->find(s.tensor);
    if (!found) refuse("no tensor is called '", s.tensor, "'");
    const family& which = table_->family_at(found->family);
    if (s.offset.ndim != s.whole.ndim || s.shape.ndim != s.whole.ndim)
      refuse("shard of '", s.tensor, "': an offset of ", s.offset.ndim, " and a shape of ", s.shape.ndim,
             " dimensions in a tensor of ", s.whole.ndim);
    for (int i = 0; i < s.whole.ndim; ++i)
      if (s.offset.at[i] < 0 || s.shape.at[i] < 0 || s.shape.at[i] > s.whole.at[i] || s.offset.at[i] > s.whole.at[i] - s.shape.at[i])
        refuse("shard of '", s.tensor, "' on rank ", s.rank, ": [", s.offset.at[i], ", ", s.offset.at[i], " + ", s.shape.at[i],
               ") reaches outside the extent ", s.whole.at[i], " of dimension ", i);
    family_box b = which.whole();
    b.dim[axis_of::layer] = {found->member, found->member + 1};
    b.dim[axis_of::expert] = {found->expert, found->expert + 1};
    const auto emit = [&](const family_box& where) {
      if (!where.empty()) entries.push_back({found->family, where, state_index, s.rank});
    };
    const auto require_extent = [&](int dim, index_t expected) {
      if (s.whole.at[dim] != expected)
        refuse("shard of '", s.tensor, "': dimension ", dim, " is said to have extent ", s.whole.at[dim], "; the tensor's is ", expected);
    };
    const auto own = [&](int dim) { return interval{s.offset.at[dim], s.offset.at[dim] + s.shape.at[dim]}; };
    const bool folded = which.extent[axis_of::part] > 1 && which.shape_ndim == 2;  // [parts x rows, columns]
    const int stored = which.shape_ndim;
    if (s.whole.ndim != stored) refuse("shard of '", s.tensor, "': ", s.whole.ndim, " dimensions; the tensor has ", stored);
    if (!folded) {
      for (int i = 0; i < stored; ++i) {
        const int axis = family_ndim - stored + i;
        require_extent(i, which.extent[axis]);
        b.dim[axis] = own(i);
      }
      return emit(b);
    }
    const index_t rows[2] = {which.extent[axis_of::part], which.extent[axis_of::row]};
    require_extent(0, rows[0] * rows[1]);
    require_extent(1, which.extent[axis_of::column]);
    b.dim[axis_of::column] = own(1);
    invert_flat(rows, own(0), [&](const box<2>& part) {
      b.dim[axis_of::part] = part.dim[0];
      b.dim[axis_of::row] = part.dim[1];
      emit(b);
    });
  }

  void collect(std::vector<entry>& entries, role r, per_role& out) {
    const state_set wanted = states_of(r) & listed_;
    const auto before = [](const entry& a, const entry& b) {
      if (a.family != b.family) return a.family < b.family;
      if (a.where != b.where) return precedes(a.where, b.where);
      if (a.rank != b.rank) return a.rank < b.rank;
      return a.state < b.state;
    };
    std::sort(entries.begin(), entries.end(), before);
    out.longest.assign(static_cast<std::size_t>(families()), 0);
    for (std::size_t i = 0; i < entries.size();) {
      const entry& head = entries[i];
      listed_box b{head.family, head.where, {}};
      for (; i < entries.size() && entries[i].family == head.family && entries[i].where == head.where;) {
        const rank_t rank = entries[i].rank;
        state_set states;
        for (; i < entries.size() && entries[i].family == head.family && entries[i].where == head.where && entries[i].rank == rank; ++i)
          states = states | only(entries[i].state);
        states = states & wanted;
        if (states.empty()) continue;
        if (states != wanted)
          refuse("rank ", rank, " lists some states of a box of '", family_at(head.family).name,
                 "' and not others; states of one role (all but param) lie alike");
        b.ranks.push_back(rank);
      }
      if (b.ranks.empty()) continue;
      for (const rank_t rank : b.ranks) out.by_rank.push_back({rank, b.family, out.distinct.size()});
      index_t& longest = out.longest[static_cast<std::size_t>(b.family)];
      longest = greatest(longest, b.where.dim[0].size());
      out.distinct.push_back(static_cast<listed_box&&>(b));
    }
    std::sort(out.by_rank.begin(), out.by_rank.end());
    for (int f = 0; f <= families(); ++f)
      out.first.push_back(std::partition_point(out.distinct.begin(), out.distinct.end(), [f](const listed_box& b) { return b.family < f; }) -
                          out.distinct.begin());
    require_disjoint(out);
  }

  /// Any two distinct boxes of a family are disjoint.
  void require_disjoint(const per_role& of) const {
    for (int f = 0; f < families(); ++f) {
      std::vector<family_box> boxes;
      const auto first = static_cast<std::size_t>(of.first[static_cast<std::size_t>(f)]);
      const auto past = static_cast<std::size_t>(of.first[static_cast<std::size_t>(f) + 1]);
      for (std::size_t i = first; i < past; ++i) boxes.push_back(of.distinct[i].where);
      const box_pair found = find_overlap(boxes);
      if (found.first == found.second) continue;
      refuse("shards of '", family_at(f).name, "' on ranks ", of.distinct[first + found.first].ranks[0], " and ",
             of.distinct[first + found.second].ranks[0], " overlap without being equal; cut them so that any two are equal or disjoint");
    }
  }

  const tensor_table* table_;
  rank_t ranks_;
  state_set listed_;
  per_role boxes_[std::size(roles)];
};

static_assert(Holding<listed_holding>);

}  // namespace reshard
