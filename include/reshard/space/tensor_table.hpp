// SPDX-License-Identifier: Apache-2.0
// Tensors by name: a table of the families that two sides of a plan speak of, and where a named tensor stands in its family.
// Builds on: space/shard.hpp, model/model.hpp.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/model/model.hpp>
#include <reshard/space/shard.hpp>

namespace reshard {

/// The tensors that both sides of a plan speak of: a model's families, or one family per tensor that any list names.
class tensor_table {
 public:
  explicit tensor_table(const model& m) {
    for (int f = 0; f < m.families; ++f) add(m[f], m[f].place == home::layers ? m.layers_of(f) : layer_set::all(1));
  }
  /// All tensors of the lists, by name; each keeps its own dimensions, the last ones of a family's axes.
  tensor_table(std::initializer_list<const std::vector<shard>*> lists) {
    std::vector<std::pair<const shard*, std::size_t>> all;  // with their places in the lists, so that the first of a name speaks for it
    for (const std::vector<shard>* list : lists)
      for (const shard& s : *list) all.emplace_back(&s, all.size());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      const int order = a.first->tensor.compare(b.first->tensor);
      return order < 0 || (order == 0 && a.second < b.second);
    });
    names_.reserve(all.size());  // families keep views of them
    for (const auto& [s, place] : all) {
      if (!names_.empty() && names_.back() == s->tensor) continue;
      names_.push_back(s->tensor);
      if (s->whole.ndim < 0 || s->whole.ndim > family_ndim)
        refuse("'", s->tensor, "' has ", s->whole.ndim, " dimensions; 0 to ", family_ndim, " are supported");
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

}  // namespace reshard
