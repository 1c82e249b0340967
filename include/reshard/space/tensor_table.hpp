// SPDX-License-Identifier: Apache-2.0
// Tensors by name: a table of the families that two sides of a plan speak of, and where a named tensor stands in its
// family.
// Builds on: space/shard.hpp, model/hf_names.hpp.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/model/hf_names.hpp>
#include <reshard/space/shard.hpp>

namespace reshard {

/// What is stored under a name: which tensor, and the parts, rows and columns of it; all, but for the pieces q, k, v,
/// gate and up of a checkpoint.
struct stored_tensor {
  tensor_id tensor;
  box<3> where;
};

/// The tensors that both sides of a plan speak of: a model's families, or one family per tensor that any list names. A
/// value; copies share what was read once.
class tensor_table {
 public:
  explicit tensor_table(const model& m) {
    content all;
    all.of_model = true;
    if (names_all_tensors(m)) all.checkpoint.emplace(m);
    for (int f = 0; f < m.families; ++f) all.add(m[f], m[f].place == home::layers ? m.layers_of(f) : layer_set::all(1));
    keep(std::move(all));
  }
  /// All tensors of the lists, by name; each keeps its own dimensions, the last ones of a family's axes.
  tensor_table(std::initializer_list<const std::vector<shard>*> lists) {
    // with their places in the lists, so that the first of a name speaks for it
    std::vector<std::pair<const shard*, std::size_t>> all;
    for (const std::vector<shard>* list : lists)
      for (const shard& s : *list) all.emplace_back(&s, all.size());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      const int order = a.first->tensor.compare(b.first->tensor);
      return order < 0 || (order == 0 && a.second < b.second);
    });
    content table;
    table.names.reserve(all.size());  // families keep views of them
    for (const auto& [s, place] : all) {
      if (!table.names.empty() && table.names.back() == s->tensor) continue;
      table.names.push_back(s->tensor);
      if (s->whole.ndim < 0 || s->whole.ndim > family_ndim)
        refuse("'", s->tensor, "' has ", s->whole.ndim, " dimensions; 0 to ", family_ndim, " are supported");
      family f{.name = table.names.back(), .shape_ndim = s->whole.ndim};
      for (int i = 0; i < s->whole.ndim; ++i) f.extent[family_ndim - s->whole.ndim + i] = s->whole.at[i];
      f.whole().volume();
      table.add(f, layer_set::all(1));
    }
    keep(std::move(table));
  }

  int families() const { return static_cast<int>(content_->families.size()); }
  const family& family_at(int f) const { return content_->families[static_cast<std::size_t>(f)]; }

  /// The tensor of a name, tied names included.
  std::optional<tensor_id> find(std::string_view name) const {
    if (const std::vector<std::string>& names = content_->names; !content_->of_model) {  // names as they are, sorted
      const auto at = std::lower_bound(names.begin(), names.end(), name);
      if (at == names.end() || *at != name) return std::nullopt;
      return tensor_id{static_cast<int>(at - names.begin()), 0, 0};
    }
    for (int f = 0; f < families(); ++f) {
      const family& tensors = family_at(f);
      if (!name.empty() && name == tensors.tied_name) return tensor_id{f, 0, 0};
      index_t layer = 0, expert = 0;
      if (!detail::matches(tensors.name, name, layer, expert)) continue;
      const layer_set& layers = content_->layers[static_cast<std::size_t>(f)];
      if (tensors.place != home::layers) {  // of a prediction layer, that may have experts and be of the other kind
        if (tensors.extent[axis_of::layer] > 0 && tensors.extent[axis_of::expert] > expert)
          return tensor_id{f, 0, expert};
        continue;
      }
      if (expert < tensors.extent[axis_of::expert] && layers.contains(layer))
        return tensor_id{f, layers.members_below(layer), expert};
    }
    return std::nullopt;
  }

  /// find(name), or what a checkpoint of Hugging Face's has under the name, where the model has such names.
  std::optional<stored_tensor> find_stored(std::string_view name) const {
    if (const auto own = find(name)) {
      const family_box whole = family_at(own->family).whole();
      return stored_tensor{*own, {{whole.dim[axis_of::part], whole.dim[axis_of::row], whole.dim[axis_of::column]}}};
    }
    if (!content_->checkpoint) return std::nullopt;
    const auto piece = content_->checkpoint->find(name);
    if (!piece) return std::nullopt;
    return stored_tensor{piece->tensor, content_->checkpoint->box_of(*piece)};
  }

 private:
  struct content {
    bool of_model = false;
    std::optional<hf_names> checkpoint;
    std::vector<std::string> names;  // of a table of lists
    std::vector<family> families;
    std::vector<layer_set> layers;

    void add(const family& f, const layer_set& of) {
      families.push_back(f);
      layers.push_back(of);
    }
  };
  void keep(content&& all) { content_ = std::make_shared<const content>(std::move(all)); }

  std::shared_ptr<const content> content_;
};

}  // namespace reshard
