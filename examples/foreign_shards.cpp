// SPDX-License-Identifier: Apache-2.0
// A framework that already knows its shards, as PyTorch's DTensor does, hands them over as a list: rank, name, extents of the whole
// tensor, offset and shape. The list is planned against a layout that reshard computes, then against another list.
#include <cstdio>
#include <string>
#include <vector>

#include <reshard/io/print.hpp>
#include <reshard/reshard.hpp>

using namespace reshard;

namespace {
/// Shard(0) over `ranks` ranks as torch.chunk cuts: ceil(rows / ranks) rows each, the last one fewer, or none.
void shard_rows(std::vector<shard>& list, const std::string& name, const extents& whole, rank_t ranks) {
  const index_t chunk = ceil_divide(whole.at[0], ranks);
  for (rank_t rank = 0; rank < ranks; ++rank) {
    const index_t first = least(rank * chunk, whole.at[0]), past = least(first + chunk, whole.at[0]);
    extents offset = whole, shape = whole;
    for (index_t& at : offset.at) at = 0;
    offset.at[0] = first;
    shape.at[0] = past - first;
    if (past > first) list.push_back({rank, name, bf16, whole, offset, shape});
  }
}

/// What fully sharded data parallelism keeps of a model: every tensor cut along its first dimension, by its stored name.
std::vector<shard> fully_sharded(const model& m, rank_t ranks) {
  std::vector<shard> list;
  for (int f = 0; f < m.families; ++f)
    for (index_t member = 0; member < m[f].extent[axis_of::layer]; ++member) {
      const index_t rows = m[f].extent[axis_of::part] * m[f].extent[axis_of::row], columns = m[f].extent[axis_of::column];
      shard_rows(list, m.tensor(f, member, 0), m[f].vector() ? extents{columns} : extents{rows, columns}, ranks);
    }
  return list;
}

template <typename Names>
void print(const plan& p, const Names& names) {
  std::printf("rank %lld sends %lld bytes, receives %lld, keeps %lld\n", static_cast<long long>(p.device), static_cast<long long>(total_bytes(p.sends)),
              static_cast<long long>(total_bytes(p.receives)), static_cast<long long>(total_bytes(p.retains)));
  const auto each = [&](const char* what, const std::vector<transfer>& list, std::size_t most) {
    for (std::size_t i = 0; i < list.size() && i < most; ++i)
      std::printf("  %s %lld -> %lld  %s %s\n", what, static_cast<long long>(list[i].src), static_cast<long long>(list[i].dst),
                  std::string(names.family_at(list[i].family).name).c_str(), to_text(list[i].where).c_str());
  };
  each("send", p.sends, 3);
  each("receive", p.receives, 3);
}
}  // namespace

int main() {
  // A list against a computed layout: from full sharding over 4 ranks to tensor parallelism over 2 and a pipeline of 2.
  const model m = make_transformer({.name = "small", .layers = 2, .hidden = 64, .heads = 4, .groups = 2, .head_dim = 16, .ffn = 96, .vocabulary = 250});
  const std::vector<shard> shards = fully_sharded(m, 4);
  const space target(m, config<tp<2>, pp<2>>{});
  const computed_holding wanted(target, parameter_states);
  bool good = true;
  bytes_t sent = 0, received = 0;
  for (rank_t rank = 0; rank < 4; ++rank) {
    const plan p = make_plan(shard_list{shards}, target, rank);
    if (rank == 1) print(p, target);
    sent += total_bytes(p.sends);
    received += total_bytes(p.receives);
    good = good && total_bytes(p.receives) + total_bytes(p.retains) == held_bytes(wanted, rank, parameter_states);
  }
  good = good && sent == received;

  // A list against a list needs no model: rows of "wte" on 3 ranks become columns on 2 of them.
  std::vector<shard> rows;
  shard_rows(rows, "wte", {10, 8}, 3);
  const std::vector<shard> columns = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 4}}, {2, "wte", bf16, {10, 8}, {0, 4}, {10, 4}}};
  const tensor_table table{&rows, &columns};
  const listed_holding from(table, rows, 3), to(table, columns, 3);
  const plan p = make_plan(from, to, 2, placement{device_map(3), device_map(3), 0, parameter_states});
  print(p, table);
  good = good && covers(from, parameter_states) && total_bytes(p.receives) == 8 * 4 * 2 && total_bytes(p.retains) == 2 * 4 * 2;
  return good ? 0 : 1;
}
