// SPDX-License-Identifier: Apache-2.0
// Tensors of a box of a family: each element of the box is in the part of one tensor, counted one by one; and tensors
// in the order in which a model lists them.
#include <doctest/doctest.h>

#include <set>
#include <tuple>
#include <vector>

#include <reshard/model/tensor_id.hpp>

using namespace reshard;

namespace {

/// A tensor that a box meets, with its part.
struct met_tensor {
  tensor_id tensor;
  box<3> part;
  friend constexpr bool operator==(const met_tensor&, const met_tensor&) = default;
};
constexpr std::vector<met_tensor> tensors_met(int family, const family_box& b) {
  std::vector<met_tensor> all;
  each_tensor(family, b, [&](const tensor_id& t, const box<3>& part) { all.push_back({t, part}); });
  return all;
}

constexpr family_box two_by_three{{{4, 6}, {1, 4}, {0, 2}, {10, 20}, {7, 8}}};
constexpr box<3> its_part{{{0, 2}, {10, 20}, {7, 8}}};

constexpr bool six_tensors_in_order() {
  const std::vector<met_tensor> all = tensors_met(9, two_by_three);
  return all == std::vector<met_tensor>{{{9, 4, 1}, its_part}, {{9, 4, 2}, its_part}, {{9, 4, 3}, its_part},
                                        {{9, 5, 1}, its_part}, {{9, 5, 2}, its_part}, {{9, 5, 3}, its_part}};
}
constexpr bool a_part_is_in_the_box_of_its_tensor() {
  return family_box_of({3, 5, 2}, its_part) == family_box{{{5, 6}, {2, 3}, {0, 2}, {10, 20}, {7, 8}}} &&
         family_box_of({3, 0, 0}, {{{0, 1}, {0, 0}, {0, 1}}}).empty();
}
/// By family, then by layer, then by expert.
constexpr bool ordered_as_a_model_lists_them() {
  const tensor_id in_order[] = {{0, 0, 0}, {0, 0, 1}, {0, 0, 7}, {0, 1, 0}, {0, 6, 3}, {1, 0, 0}, {1, 0, 2}, {2, 0, 0}};
  for (const tensor_id& a : in_order)
    for (const tensor_id& b : in_order)
      if ((a < b) != (&a < &b) || (a == b) != (&a == &b) || (a > b) != (&a > &b)) return false;
  return true;
}
static_assert(a_part_is_in_the_box_of_its_tensor());
static_assert(ordered_as_a_model_lists_them());
static_assert(tensor_id{} == tensor_id{0, 0, 0});
static_assert(six_tensors_in_order());
}  // namespace

TEST_CASE("a box of two layers and three experts meets six tensors, in their order, in one part of each") {
  CHECK(six_tensors_in_order());
}

TEST_CASE("a part of a tensor is a box of its family, of one layer and one expert") {
  CHECK(a_part_is_in_the_box_of_its_tensor());
}

TEST_CASE("tensors are ordered by family, layer and expert") { CHECK(ordered_as_a_model_lists_them()); }

TEST_CASE(
    "a box is the disjoint union of the parts of the tensors that it meets, and one without elements meets none") {
  using element = std::tuple<index_t, index_t, index_t, index_t, index_t>;
  const auto elements_of = [](const family_box& b, std::multiset<element>& to) {
    for (index_t l = b.dim[0].begin; l < b.dim[0].end; ++l)
      for (index_t e = b.dim[1].begin; e < b.dim[1].end; ++e)
        for (index_t p = b.dim[2].begin; p < b.dim[2].end; ++p)
          for (index_t r = b.dim[3].begin; r < b.dim[3].end; ++r)
            for (index_t c = b.dim[4].begin; c < b.dim[4].end; ++c) to.emplace(l, e, p, r, c);
  };
  for (const family_box& b : {two_by_three, family_box{{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 3}}},
                              family_box{{{3, 6}, {2, 4}, {1, 3}, {5, 6}, {0, 2}}}}) {
    std::multiset<element> whole, parts;
    elements_of(b, whole);
    for (const met_tensor& met : tensors_met(2, b)) {
      CHECK(met.tensor.family == 2);
      elements_of(family_box_of(met.tensor, met.part), parts);
    }
    CHECK(parts == whole);
  }
  CHECK(tensors_met(0, {{{2, 2}, {0, 4}, {0, 1}, {0, 1}, {0, 1}}}).empty());
  CHECK(tensors_met(0, {{{0, 4}, {3, 3}, {0, 1}, {0, 1}, {0, 1}}}).empty());
}
