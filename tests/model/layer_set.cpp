// SPDX-License-Identifier: Apache-2.0
// Layer sets against a list of their members, and what they refuse.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <reshard/model/layer_set.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {
void check_members(const layer_set& set, const std::vector<index_t>& members, index_t past) {
  REQUIRE(set.size() == static_cast<index_t>(members.size()));
  index_t below = 0;
  for (index_t layer = 0; layer <= past; ++layer) {
    const bool in = std::binary_search(members.begin(), members.end(), layer);
    CHECK(set.members_below(layer) == below);
    CHECK(set.contains(layer) == in);
    below += in ? 1 : 0;
  }
  for (index_t begin = 0; begin <= past; begin += 1 + past / 9)
    for (index_t end = begin; end <= past; end += 1 + past / 7) {
      const auto first = std::lower_bound(members.begin(), members.end(), begin),
                 last = std::lower_bound(members.begin(), members.end(), end);
      const interval within = set.members_within({begin, end});
      CHECK(within.size() == last - first);
      if (!within.empty()) CHECK(within.begin == first - members.begin());
    }
  for (index_t i = 0; i < set.size(); ++i) {
    CHECK(set.layer_of(i) == members[static_cast<std::size_t>(i)]);
    CHECK(set.members_below(set.layer_of(i)) == i);
  }
}

std::vector<index_t> first_layers(index_t layers) {
  std::vector<index_t> all;
  for (index_t l = 0; l < layers; ++l) all.push_back(l);
  return all;
}
}  // namespace

TEST_CASE("any subset: members below a layer, the layer of a member, and membership") {
  dice random;
  for (const index_t layers : {1, 63, 64, 65, 130, 1023, 1024}) {
    for (const index_t one_in : {1, 2, 7, 200}) {
      CAPTURE(layers);
      CAPTURE(one_in);
      layer_set set;
      std::vector<index_t> members;
      for (index_t l = 0; l < layers; ++l) {
        if (random.below(one_in) != 0) continue;
        set.append(l);
        members.push_back(l);
      }
      check_members(set, members, layers + 70);
    }
  }
}

TEST_CASE("all layers, of a model of any depth, and none") {
  check_members(layer_set::all(0), {}, 70);
  check_members(layer_set::all(80), first_layers(80), 200);
  check_members(layer_set::all(3000), first_layers(3000), 3100);
  check_members(layer_set::none(), {}, 1100);
}

TEST_CASE("a mask has a capacity") {
  for (const index_t layer : {-1, 1024, 5000})
    CHECK(refused([=] { layer_set().append(layer); }) ==
          "reshard: layer " + std::to_string(layer) +
              " of a model whose layers differ: at most 1024 layers are supported there");
  CHECK(refused([] { layer_set().append(1023); }) == "accepted");
}
