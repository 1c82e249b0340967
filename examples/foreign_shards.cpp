// SPDX-License-Identifier: Apache-2.0
// A framework that already knows its shards, as PyTorch's DTensor does, hands them over as a list: rank, name, extents
// of the whole tensor, offset and shape. The list is planned against a layout that reshard computes, then against
// another list.
#include <cstdio>
#include <string>
#include <vector>

#include <reshard/io/plan_text.hpp>
#include <reshard/reshard.hpp>

using namespace reshard;

namespace {
/// Shard(0) over `ranks` ranks as torch.chunk cuts: ceil(rows / ranks) rows each, the last one fewer, or none.
void shard_rows(std::vector<shard>& list, const std::string& name, const extents& whole, rank_t ranks) {
  const index_t chunk = ceil_divide(whole.at[0], ranks);
  for (rank_t rank = 0; rank * chunk < whole.at[0]; ++rank) {
    extents offset = whole, shape = whole;
    for (index_t& at : offset.at) at = 0;
    offset.at[0] = rank * chunk;
    shape.at[0] = least(chunk, whole.at[0] - rank * chunk);
    list.push_back({rank, name, bf16, whole, offset, shape});
  }
}

/// What fully sharded data parallelism keeps of a model: every tensor cut along its first dimension, by its stored
/// name.
std::vector<shard> fully_sharded(const model& m, rank_t ranks) {
  std::vector<shard> list;
  for (int f = 0; f < m.families; ++f)
    for (index_t member = 0; member < m[f].extent[axis_of::layer]; ++member) {
      const index_t rows = m[f].extent[axis_of::part] * m[f].extent[axis_of::row],
                    columns = m[f].extent[axis_of::column];
      shard_rows(list, m.tensor({f, member, 0}), m[f].vector() ? extents{columns} : extents{rows, columns}, ranks);
    }
  return list;
}
}  // namespace

int main() {
  // A list against a computed layout: from full sharding over 4 ranks to tensor parallelism over 2 and a pipeline of 2.
  const model m = make_transformer({.name = "small",
                                    .layers = 2,
                                    .hidden = 64,
                                    .heads = 4,
                                    .groups = 2,
                                    .head_dim = 16,
                                    .ffn = 96,
                                    .vocabulary = 250});
  const layout_switch change(fully_sharded(m, 4), space(m, config<tp<2>, pp<2>>{}));
  bool good = true;
  for (rank_t rank = 0; rank < 4; ++rank) {
    const plan p = make_plan(change, rank);
    if (rank == 1) std::puts(to_text(p, change).c_str());
    good = good && total_bytes(p.receives) + total_bytes(p.retains) == held_bytes(change.to(), rank);
  }

  // A list against a list needs no model: rows of "wte" on 3 ranks become columns on 2 of them.
  std::vector<shard> rows;
  shard_rows(rows, "wte", {10, 8}, 3);
  const std::vector<shard> columns = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 4}},
                                      {2, "wte", bf16, {10, 8}, {0, 4}, {10, 4}}};
  const layout_switch turned(rows, columns);
  const plan p = make_plan(turned, 2);
  std::puts(to_text(p, turned).c_str());
  good = good && covers(rows) && covers(columns) && total_bytes(p.receives) == 8 * 4 * 2 &&
         total_bytes(p.retains) == 2 * 4 * 2;
  return good ? 0 : 1;
}
