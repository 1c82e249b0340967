// SPDX-License-Identifier: Apache-2.0
// What tensors are called in sentences: of a model by layer and expert, of a list by themselves. Names outlive what
// they were made of.
// Builds on: space/any_holding.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <reshard/space/any_holding.hpp>

namespace reshard {

/// The name of a tensor of a holding: a model's by its layer and expert, any other family's as it is.
template <Holding H>
std::string tensor_name(const H& h, const tensor_id& t) {
  if (const computed_holding* c = known_as<computed_holding>(h)) return c->space().model().tensor(t);
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
template <Holding H>
tensor_names names_of(const H& h) {
  if (const computed_holding* c = known_as<computed_holding>(h)) return names_of(c->space().model());
  if (const listed_holding* l = known_as<listed_holding>(h)) return names_of(l->table());
  std::vector<std::string> families;
  for (int f = 0; f < h.families(); ++f) families.emplace_back(h.family_at(f).name);
  return [families](const tensor_id& t) { return families[static_cast<std::size_t>(t.family)]; };
}

}  // namespace reshard
