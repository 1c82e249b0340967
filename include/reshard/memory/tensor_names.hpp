// SPDX-License-Identifier: Apache-2.0
// What tensors are called in sentences: of a model by layer and expert, of a list by themselves. Names outlive what
// they were made of.
// Builds on: space/listed_holding.hpp, space/computed_holding.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <reshard/space/computed_holding.hpp>
#include <reshard/space/listed_holding.hpp>

namespace reshard {

/// The name of a tensor of a holding: a model's by its layer and expert, any other family's as it is.
inline std::string tensor_name(const computed_holding& h, const tensor_id& t) { return h.space().model().tensor(t); }
template <Holding H>
std::string tensor_name(const H& h, const tensor_id& t) {
  return std::string(h.family_at(t.family).name);
}

/// names(tensor)
using tensor_names = std::function<std::string(const tensor_id&)>;

/// The names of the tensors of a model, a table or a holding; what it returns outlives these.
inline tensor_names names_of(const model& m) {
  return [m](const tensor_id& t) { return m.tensor(t); };
}
inline tensor_names names_of(const tensor_table& table) {
  return [table](const tensor_id& t) { return std::string(table.family_at(t.family).name); };
}
inline tensor_names names_of(const computed_holding& h) { return names_of(h.space().model()); }
inline tensor_names names_of(const listed_holding& h) { return names_of(h.table()); }
template <Holding H>
tensor_names names_of(const H& h) {
  std::vector<std::string> families;
  for (int f = 0; f < h.families(); ++f) families.emplace_back(h.family_at(f).name);
  return [families](const tensor_id& t) { return families[static_cast<std::size_t>(t.family)]; };
}

}  // namespace reshard
