// SPDX-License-Identifier: Apache-2.0
// Switches of every kind of sides: spaces, lists, and one of each; for tests of what must hold for any.
#pragma once

#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>

namespace testing {

/// Rows of "wte" on 3 ranks become columns on 2 of them.
inline auto rows_to_columns() {
  using namespace reshard;
  const std::vector<shard> rows = {{0, "wte", bf16, {10, 8}, {0, 0}, {4, 8}},
                                   {1, "wte", bf16, {10, 8}, {4, 0}, {4, 8}},
                                   {2, "wte", bf16, {10, 8}, {8, 0}, {2, 8}}};
  const std::vector<shard> columns = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 4}},
                                      {2, "wte", bf16, {10, 8}, {0, 4}, {10, 4}}};
  return layout_switch(rows, columns);
}

/// Calls visit(change).
template <typename Visit>
void some_switches(Visit&& visit) {
  using namespace reshard;
  const model m = make_transformer(
      {.name = "tiny", .layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 8});
  const auto of = [&](const char* layout) { return space(m, parse_degrees(layout)); };
  visit(layout_switch(of("tp=2,pp=2,zero=1"), of("dp=4,zero=1"), {.to = device_map({3, 1, 0, 5})}));
  visit(layout_switch(of("tp=2,dp=2"), of("pp=4"), {.on = nodes_of(2), .states = parameter_states}));
  visit(layout_switch(of("dp=2"), of("dp=2")));  // nothing moves
  visit(layout_switch(of("tp=2,dp=2"), of("dp=2"),
                      {.to = device_map({1, 3}), .lost = {0, 2}, .lost_elements = when_lost::leave_out}));
  const state_list own = parse_state_list("grad:fp8:2,exp_avg:bf16:1,param:fp32:3,ema:fp32:3");
  visit(layout_switch(of("dp=4,zero=2"), of("tp=2,dp=2,zero=1"), {.list = own}));
  visit(layout_switch(of("dp=4,zero=2"), of("tp=2"), {.states = own.only(0) | own.only(3), .list = own}));
  const model moe = make_transformer({.name = "biased",
                                      .layers = 2,
                                      .hidden = 4,
                                      .heads = 2,
                                      .groups = 2,
                                      .head_dim = 2,
                                      .ffn = 4,
                                      .vocabulary = 4,
                                      .experts = 2,
                                      .expert_ffn = 2,
                                      .expert_bias = true});
  visit(layout_switch(space(moe, parse_degrees("pp=2")), space(moe, parse_degrees("ep=2,dp=2,zero=1")), {.list = sgd}));
  visit(rows_to_columns());
  std::vector<shard> whole;
  for (int f = 0; f < m.families; ++f)
    for (index_t member = 0; member < m[f].extent[axis_of::layer]; ++member) {
      const index_t rows = m[f].extent[axis_of::part] * m[f].extent[axis_of::row],
                    columns = m[f].extent[axis_of::column];
      const bool vector = m[f].vector();
      whole.push_back({0, m.tensor({f, member, 0}), bf16, vector ? extents{columns} : extents{rows, columns},
                       vector ? extents{0} : extents{0, 0}, vector ? extents{columns} : extents{rows, columns}});
    }
  visit(layout_switch(whole, of("tp=4")));
  visit(layout_switch(of("pp=2,dp=2"), whole));
}

}  // namespace testing
