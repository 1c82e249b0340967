// SPDX-License-Identifier: Apache-2.0
// What tensors are called in sentences: of a model by layer and expert, of a list by themselves. Names outlive what they were
// made of.
// Builds on: space/listed_holding.hpp, space/holding.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <reshard/space/holding.hpp>
#include <reshard/space/listed_holding.hpp>

namespace reshard {

/// The name of a tensor of a holding: a model's by its layer and expert, any other family's as it is.
inline std::string tensor_name(const computed_holding& h, int family, index_t member, index_t expert) {
  return h.where().which_model().tensor(family, member, expert);
}
template <Holding H>
std::string tensor_name(const H& h, int family, index_t, index_t) {
  return std::string(h.family_at(family).name);
}

/// names(family, member, expert)
using tensor_names = std::function<std::string(int, index_t, index_t)>;

inline tensor_names names_of(const model& m) {
  return [m](int f, index_t member, index_t expert) { return m.tensor(f, member, expert); };
}
inline tensor_names names_of(const tensor_table& table) {
  return [table](int f, index_t, index_t) { return std::string(table.family_at(f).name); };
}
inline tensor_names names_of(const computed_holding& h) { return names_of(h.where().which_model()); }
inline tensor_names names_of(const listed_holding& h) { return names_of(h.table()); }
template <Holding H>
tensor_names names_of(const H& h) {
  std::vector<std::string> families;
  for (int f = 0; f < h.families(); ++f) families.emplace_back(h.family_at(f).name);
  return [families](int f, index_t, index_t) { return families[static_cast<std::size_t>(f)]; };
}

}  // namespace reshard
