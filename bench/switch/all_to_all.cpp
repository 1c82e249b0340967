// SPDX-License-Identifier: Apache-2.0
// A matrix that processes of MPI deal otherwise, as COSTA measures it: fp32 [8192, 16384], 512 MiB, as lists of shards,
// without a budget, between memory that is all there. In turn with the switch: one MPI_Alltoallw by subarray types, and
// one MPI_Alltoallv of as many bytes packed beforehand; and packing, that call and unpacking, written by hand, which is
// what the last one leaves out. From the first start to the last end, medians of 15. It starts itself under mpirun:
// bench_switch_all_to_all CASE [ROWS COLUMNS]; without a case it names them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/mpi.hpp>

#include "../../tools/lib/all_to_all.hpp"
#include "../../tools/lib/under_mpirun.hpp"

namespace {

using namespace reshard;

constexpr int repetitions = 15;

struct matrix {
  index_t rows = 8192, columns = 16384;

  shard part(rank_t rank, interval r, interval c) const {
    return {rank, "matrix", fp32, {rows, columns}, {r.begin, c.begin}, {r.size(), c.size()}};
  }
};

shard_list rows_on(const matrix& m, rank_t ranks) {
  std::vector<shard> list;
  for (rank_t r = 0; r < ranks; ++r) list.push_back(m.part(r, even_part({0, m.rows}, r, ranks), {0, m.columns}));
  return {std::move(list), ranks};
}
shard_list columns_on(const matrix& m, rank_t ranks) {
  std::vector<shard> list;
  for (rank_t r = 0; r < ranks; ++r) list.push_back(m.part(r, {0, m.rows}, even_part({0, m.columns}, r, ranks)));
  return {std::move(list), ranks};
}
/// Block (i, j) on rank (i mod 2) x 2 + j mod 2, each an array of its own.
shard_list blocks_dealt(const matrix& m) {
  constexpr index_t high = 128, wide = 256;
  std::vector<shard> list;
  for (index_t i = 0; i * high < m.rows; ++i)
    for (index_t j = 0; j * wide < m.columns; ++j)
      list.push_back(m.part(i % 2 * 2 + j % 2, {i * high, least(m.rows, (i + 1) * high)},
                            {j * wide, least(m.columns, (j + 1) * wide)}));
  return {std::move(list), 4};
}

struct matrix_case {
  const char* name;
  int processes;
  shard_list (*from)(const matrix&);
  shard_list (*to)(const matrix&);
};
const matrix_case cases[] = {
    {"rows_to_columns", 4, [](const matrix& m) { return rows_on(m, 4); },
     [](const matrix& m) { return columns_on(m, 4); }},
    {"blocks_to_rows", 4, blocks_dealt, [](const matrix& m) { return rows_on(m, 4); }},
    {"rows_on_4_to_8", 8, [](const matrix& m) { return rows_on(m, 4); }, [](const matrix& m) { return rows_on(m, 8); }},
};

void measure(const matrix_case& c, const matrix& m) {
  const state_list list = parse_state_list("param:fp32:3");
  const layout_switch change(c.from(m), c.to(m), {.list = list});
  mpi_endpoint here(MPI_COMM_WORLD, {.wait = std::chrono::minutes(1)});
  const auto storage = [&](const auto& holding, rank_t rank, const char* who) {
    return rank < 0 ? rank_storage() : rank_storage(holding, rank, who, pages_are::committed, {}, list);
  };
  rank_storage before = storage(change.from(), change.from_rank(here.device()), "before"),
               after = storage(change.to(), change.to_rank(here.device()), "after");
  fill(before.tensors(), change.from());
  const staged_plan plan = stage_plan(make_plan(change, here.device()), change, 1);
  testing::packed_bytes packed(plan);
  index_t wrong = 0;
  std::vector<double> ours, alltoallw, by_hand, alltoallv;
  for (int i = 0; i < repetitions; ++i) {
    fill(after.tensors(), change.to(), known_values{99});
    ours.push_back(testing::timed(
        [&] { switch_state(change, before.tensors(), after.tensors(), here, {.after_use = sources::keep}); }));
    wrong += compare(after.tensors(), change.to()).wrong;
    if (i == 0) fill(after.tensors(), change.to(), known_values{99});
    alltoallw.push_back(testing::timed([&] { testing::move_by_alltoallw(plan, before.tensors(), after.tensors()); }));
    if (i == 0) wrong += compare(after.tensors(), change.to()).wrong;
    if (i == 0) fill(after.tensors(), change.to(), known_values{99});
    by_hand.push_back(testing::timed([&] { packed.move_by_hand(plan, before.tensors(), after.tensors()); }));
    if (i == 0) wrong += compare(after.tensors(), change.to()).wrong;
    alltoallv.push_back(testing::timed([&] { packed.move_by_alltoallv(); }));
  }
  wrong = here.all_reduce_max(wrong);
  if (here.device() != 0) return;
  const double own = testing::median(ours), w = testing::median(alltoallw), v = testing::median(alltoallv),
               hand = testing::median(by_hand);
  std::printf(
      "{\"case\": \"%s\", \"processes\": %d, \"bytes\": %lld, \"ms\": %.1f, \"alltoallw_ms\": %.1f, "
      "\"by_hand_ms\": %.1f, \"alltoallv_ms\": %.1f, \"over_alltoallw\": %.3f, \"over_by_hand\": %.3f, "
      "\"over_alltoallv\": %.3f, \"by_hand_over_alltoallv\": %.3f, \"wrong\": %lld}\n",
      c.name, c.processes, static_cast<long long>(m.rows * m.columns * 4), own * 1e3, w * 1e3, hand * 1e3, v * 1e3,
      own / w, own / hand, own / v, hand / v, static_cast<long long>(wrong));
  if (wrong > 0) throw std::runtime_error("elements are wrong");
}

}  // namespace

int main(int count, char** words) {
  const matrix_case* chosen = nullptr;
  for (const matrix_case& c : cases)
    if (count > 1 && std::strcmp(words[1], c.name) == 0) chosen = &c;
  if (chosen == nullptr) {
    for (const matrix_case& c : cases) std::printf("%s\n", c.name);
    return count > 1 ? 2 : 0;
  }
  matrix m;
  if (count > 3) m = {std::atoll(words[2]), std::atoll(words[3])};
  testing::start_under_mpirun(chosen->processes);
  MPI_Init(nullptr, nullptr);
  int failed = 0;
  try {
    measure(*chosen, m);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    failed = 1;
  }
  std::fflush(stdout);
  MPI_Finalize();
  return failed;
}
