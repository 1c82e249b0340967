// SPDX-License-Identifier: Apache-2.0
// A model and states of one's own: four layers of one fused matrix under names of its own, checked, cut four ways, and
// moved, with bf16 moments and gradients.
#include <cstdio>
#include <string>

#include <reshard/reshard.hpp>

using namespace reshard;

namespace {
constexpr model own_model() {
  model own{.name = "own",
            .shape = {.layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 3, .vocabulary = 16}};
  own.sets[0] = layer_set::all(4);
  own.add({.name = "wte", .extent = {1, 1, 1, 16, 8}, .place = home::embedding, .tensor_axis = axis_of::row});
  own.add({.name = "l{layer}.qkv", .extent = {4, 1, 2, 12, 8}, .tensor_axis = axis_of::part, .fused = fused_as::qkv});
  own.add({.name = "norm", .extent = {1, 1, 1, 1, 8}, .place = home::last_stage, .shape_ndim = 1});
  return own;
}
constexpr model own = own_model();
static_assert((require_model(own), true));
static_assert(covers(computed_holding(space(own, config<tp<4>, pp<2>>{}))));

constexpr state_list bf16_moments{{"param", fp32, 3}, {"exp_avg", bf16, 1}, {"exp_avg_sq", bf16, 1}, {"grad", fp32, 2}};
static_assert(max_bytes_per_rank(space(models::llama2_7b, config<dp<8>, zero<2>>{}), bf16_moments) == 33'692'078'080);
}  // namespace

int main() {
  require_model(own);  // at run time names are compared with each other too
  const layout_switch change(space(own, config{tp{4}, pp{2}}), space(own, config{tp{2}, pp{4}}));
  const std::string name = own.tensor({1, 3, 0});
  std::printf("%s: %lld of a group's %lld rows are q's\n", name.c_str(),
              static_cast<long long>(piece_box(own, 1, 0).dim[1].size()),
              static_cast<long long>(own[1].extent[axis_of::row]));
  std::printf("%lld bytes move\n", static_cast<long long>(moved_bytes(change)));
  const layout_switch other(change.from().space(), change.to().space(), {.list = bf16_moments});
  std::printf("%lld of another list of states\n", static_cast<long long>(moved_bytes(other)));
}
