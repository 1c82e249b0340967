// SPDX-License-Identifier: Apache-2.0
// What the demo measures over MPI, started by demo_measure.cpp: DEVICES MODEL FROM TO BUDGET FROM_DEVICES TO_DEVICES.
// It starts itself under mpirun; each process is a device. Beside the switch under the budget it measures the switch
// without one between memory that is all there, and, in turn with it, one MPI_Alltoallw that moves the same elements.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <reshard/exec/mpi.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/plan/make_plan.hpp>

#include "../tests/support/under_mpirun.hpp"
#include "demo_found.hpp"

namespace {

using namespace demo;

/// From the first begin to the last end, of all processes of this machine.
double elapsed(instant begin, instant end) {
  double first = seconds(begin.time_since_epoch()).count(), last = seconds(end.time_since_epoch()).count();
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return last - first;
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

/// What one process sends another, or receives: a struct of strided boxes, at their addresses.
class boxes_type {
 public:
  void add(const bound_box& b) {
    const auto bytes = static_cast<MPI_Aint>(b.element_bytes);
    const auto count = [](const interval& i) { return static_cast<int>(i.size()); };
    MPI_Datatype row = MPI_DATATYPE_NULL, plane = MPI_DATATYPE_NULL, whole = MPI_DATATYPE_NULL;
    if (b.stride[2] == 1) MPI_Type_contiguous(count(b.where.dim[2]) * static_cast<int>(bytes), MPI_BYTE, &row);
    else MPI_Type_create_hvector(count(b.where.dim[2]), static_cast<int>(bytes), b.stride[2] * bytes, MPI_BYTE, &row);
    MPI_Type_create_hvector(count(b.where.dim[1]), 1, b.stride[1] * bytes, row, &plane);
    MPI_Type_create_hvector(count(b.where.dim[0]), 1, b.stride[0] * bytes, plane, &whole);
    MPI_Type_free(&row), MPI_Type_free(&plane);
    types_.push_back(whole);
    MPI_Get_address(b.data, &at_.emplace_back());
  }
  bool empty() const { return types_.empty(); }
  MPI_Datatype commit() {
    const std::vector<int> ones(types_.size(), 1);
    MPI_Datatype all = MPI_DATATYPE_NULL;
    MPI_Type_create_struct(static_cast<int>(types_.size()), ones.data(), at_.data(), types_.data(), &all);
    MPI_Type_commit(&all);
    for (MPI_Datatype& t : types_) MPI_Type_free(&t);
    types_.clear();
    return all;
  }

 private:
  std::vector<MPI_Datatype> types_;
  std::vector<MPI_Aint> at_;
};

/// The same elements by one call: types made, the call, types freed.
void move_by_alltoallw(const staged_plan& plan, const binding& from, const binding& into) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto count = static_cast<std::size_t>(size);
  std::vector<boxes_type> out(count), in(count);
  const auto add = [](std::vector<boxes_type>& types, rank_t peer, const staged_piece& p, const binding& of) {
    for (const int state : p.states)
      of.meet({state, p.tensor, p.where}, [&](const bound_box& b) { types[static_cast<std::size_t>(peer)].add(b); });
  };
  for (const staged_piece& p : plan.sends) add(out, p.dst, p, from);
  for (const staged_piece& p : plan.receives) add(in, p.src, p, into);
  for (const staged_piece& p : plan.retains) add(out, plan.device, p, from), add(in, plan.device, p, into);
  std::vector<int> outs(count, 0), ins(count, 0), zeros(count, 0);
  std::vector<MPI_Datatype> out_types(count, MPI_BYTE), in_types(count, MPI_BYTE);
  for (std::size_t d = 0; d < count; ++d) {
    if (!out[d].empty()) outs[d] = 1, out_types[d] = out[d].commit();
    if (!in[d].empty()) ins[d] = 1, in_types[d] = in[d].commit();
  }
  MPI_Alltoallw(MPI_BOTTOM, outs.data(), zeros.data(), out_types.data(), MPI_BOTTOM, ins.data(), zeros.data(),
                in_types.data(), MPI_COMM_WORLD);
  for (std::size_t d = 0; d < count; ++d) {
    if (outs[d] != 0) MPI_Type_free(&out_types[d]);
    if (ins[d] != 0) MPI_Type_free(&in_types[d]);
  }
}

/// This device's state on one side, or nothing.
template <typename Rank>
rank_storage storage(const computed_holding& h, Rank rank, const std::string& side, pages_are at_first) {
  if (rank < 0) return rank_storage();
  return rank_storage(h, rank, "rank " + std::to_string(rank) + " of " + side, at_first);
}

/// All devices' finds, on device 0.
std::vector<found_by_device> gathered(const found_by_device& mine, rank_t devices) {
  std::vector<found_by_device> all(static_cast<std::size_t>(devices));
  constexpr int bytes = sizeof(found_by_device);
  MPI_Gather(&mine, bytes, MPI_BYTE, static_cast<void*>(all.data()), bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
  return all;
}

/// The switch without a budget and MPI_Alltoallw in turn, medians; the elements that either left wrong.
bytes_t compare_with_alltoallw(const computed_switch& change, mpi_endpoint& here, double& uncut, double& alltoallw) {
  const rank_t d = here.device();
  rank_storage before = storage(change.from(), change.from_rank(d), "FROM", pages_are::committed),
               after = storage(change.to(), change.to_rank(d), "TO", pages_are::committed);
  fill(before.tensors(), change.from());
  const staged_plan plan = stage_plan(make_plan(change, d), change, 1);
  before.tensors().seal(), after.tensors().seal();
  std::vector<double> ours, theirs;
  bytes_t wrong = 0;
  constexpr int repetitions = 5;
  for (int i = 0; i < repetitions; ++i) {
    for (const bool mine : {true, false}) {
      if (i == 0) fill(after.tensors(), change.to(), known_values{99});
      MPI_Barrier(MPI_COMM_WORLD);
      const instant begin = std::chrono::steady_clock::now();
      if (mine) switch_state(change, before.tensors(), after.tensors(), here, {.after_use = sources::keep});
      else move_by_alltoallw(plan, before.tensors(), after.tensors());
      const instant end = std::chrono::steady_clock::now();
      (mine ? ours : theirs).push_back(elapsed(begin, end));
      if (i == 0) wrong += compare(after.tensors(), change.to()).wrong;
    }
  }
  uncut = median(ours), alltoallw = median(theirs);
  return wrong;
}

void measure_device(const switch_request& request) {
  const computed_switch change = switch_of(request);
  mpi_endpoint here(MPI_COMM_WORLD, {.wait = std::chrono::minutes(1)});
  found_by_device mine;
  {
    rank_storage before = storage(change.from(), change.from_rank(here.device()), "FROM", pages_are::reserved),
                 after = storage(change.to(), change.to_rank(here.device()), "TO", pages_are::reserved);
    fill(before.tensors(), change.from());
    switch_once(change, before.tensors(), after.tensors(), here, {.budget = request.budget}, mine);
    mine.compared = compare(after.tensors(), change.to());
  }
  double uncut = 0, alltoallw = 0;
  mine.compared.wrong += compare_with_alltoallw(change, here, uncut, alltoallw);
  const std::vector<found_by_device> found = gathered(mine, here.devices());
  if (here.device() != 0) return;
  tell_found(found, request, demo::elapsed(found));
  std::printf("uncut_seconds %.9f\nalltoallw_seconds %.9f\n", uncut, alltoallw);
}

}  // namespace

int main(int count, char** words) {
  if (count != 8) {
    std::fprintf(stderr, "demo-mpi DEVICES MODEL FROM TO BUDGET FROM_DEVICES TO_DEVICES; tools/demo starts it\n");
    return 2;
  }
  testing::start_under_mpirun(std::atoi(words[1]));
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    measure_device({{}, words[2], words[3], words[4], words[6], words[7], parse_bytes("--budget", words[5]), "mpi"});
  } catch (const std::exception& e) {
    // of what all hear only the lowest device speaks; mpirun would add words to an exit code
    if (rank == 0) std::fprintf(stderr, "%s\n", e.what()), std::printf("failed 1\n");
  }
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
