// SPDX-License-Identifier: Apache-2.0
// What a switch over MPI is measured against: one call of MPI_Alltoallw that moves the same elements by derived
// datatypes, and one of MPI_Alltoallv that moves as many bytes that were packed beforehand. And against the three steps
// that packing takes who writes them by hand.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <mpi.h>

#include <reshard/memory/binding.hpp>
#include <reshard/schedule/staged_plan.hpp>

namespace testing {

using namespace reshard;

using instant = std::chrono::steady_clock::time_point;

/// From the first begin to the last end, of all processes of this machine.
inline double elapsed(instant begin, instant end) {
  const auto seconds = [](instant at) { return std::chrono::duration<double>(at.time_since_epoch()).count(); };
  double first = seconds(begin), last = seconds(end);
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return last - first;
}
/// That of something which all processes do, beginning together.
template <typename Something>
double timed(Something&& something) {
  MPI_Barrier(MPI_COMM_WORLD);
  const instant begin = std::chrono::steady_clock::now();
  something();
  return elapsed(begin, std::chrono::steady_clock::now());
}

inline double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

/// What one process sends another, or receives: a struct of boxes, at their addresses. A box of rows is a subarray.
class boxes_type {
 public:
  void add(const bound_box& b) {
    const auto bytes = static_cast<MPI_Aint>(b.element_bytes);
    const auto count = [](const interval& i) { return static_cast<int>(i.size()); };
    MPI_Datatype whole = MPI_DATATYPE_NULL;
    if (b.stride[2] == 1 && b.where.dim[0].size() == 1) {
      const int rows = count(b.where.dim[1]), columns = count(b.where.dim[2]), width = static_cast<int>(bytes);
      const int pitch = rows == 1 ? columns : static_cast<int>(b.stride[1]);
      const int sizes[] = {rows, pitch * width}, parts[] = {rows, columns * width}, starts[] = {0, 0};
      MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_BYTE, &whole);
    } else {
      MPI_Datatype row = MPI_DATATYPE_NULL, plane = MPI_DATATYPE_NULL;
      if (b.stride[2] == 1) MPI_Type_contiguous(count(b.where.dim[2]) * static_cast<int>(bytes), MPI_BYTE, &row);
      else MPI_Type_create_hvector(count(b.where.dim[2]), static_cast<int>(bytes), b.stride[2] * bytes, MPI_BYTE, &row);
      MPI_Type_create_hvector(count(b.where.dim[1]), 1, b.stride[1] * bytes, row, &plane);
      MPI_Type_create_hvector(count(b.where.dim[0]), 1, b.stride[0] * bytes, plane, &whole);
      MPI_Type_free(&row), MPI_Type_free(&plane);
    }
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
inline void move_by_alltoallw(const staged_plan& plan, const binding& from, const binding& into) {
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

/// As many bytes for every peer, itself included, one after the other in memory that is all there.
class packed_bytes {
 public:
  explicit packed_bytes(const staged_plan& plan) {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (std::vector<int>* list : {&outs_, &ins_}) list->assign(static_cast<std::size_t>(size), 0);
    const auto add = [](std::vector<int>& counts, rank_t peer, const staged_piece& p) {
      for (const int state : p.states)
        counts[static_cast<std::size_t>(peer)] += static_cast<int>(p.where.volume() * p.states.width_of(state));
    };
    for (const staged_piece& p : plan.sends) add(outs_, p.dst, p);
    for (const staged_piece& p : plan.receives) add(ins_, p.src, p);
    for (const staged_piece& p : plan.retains) add(outs_, plan.device, p), add(ins_, plan.device, p);
    out_.assign(places(outs_, outs_at_), std::byte{1});
    in_.assign(places(ins_, ins_at_), std::byte{2});
  }
  void move_by_alltoallv() {
    MPI_Alltoallv(out_.data(), outs_.data(), outs_at_.data(), MPI_BYTE, in_.data(), ins_.data(), ins_at_.data(),
                  MPI_BYTE, MPI_COMM_WORLD);
  }
  /// Packed row by row, moved, and unpacked so: what a person writes who has the plan. Retained boxes go through the
  /// same memory; what is one run at its target is not received in place.
  void move_by_hand(const staged_plan& plan, const binding& from, const binding& into) {
    std::vector<int> out_at = outs_at_, in_at = ins_at_;
    const auto walk = [](const staged_piece& p, const binding& of, auto&& row) {
      for (const int state : p.states)
        of.meet({state, p.tensor, p.where}, [&](const bound_box& b) {
          const auto bytes = static_cast<std::size_t>(b.where.dim[2].size() * b.element_bytes);
          for (index_t i = 0; i < b.where.dim[0].size(); ++i)
            for (index_t j = 0; j < b.where.dim[1].size(); ++j)
              row(static_cast<std::byte*>(b.data) + (i * b.stride[0] + j * b.stride[1]) * b.element_bytes, bytes);
        });
    };
    const auto pack = [&](rank_t peer, const staged_piece& p) {
      int& at = out_at[static_cast<std::size_t>(peer)];
      walk(p, from, [&](const std::byte* row, std::size_t bytes) {
        std::memcpy(out_.data() + at, row, bytes);
        at += static_cast<int>(bytes);
      });
    };
    const auto unpack = [&](rank_t peer, const staged_piece& p) {
      int& at = in_at[static_cast<std::size_t>(peer)];
      walk(p, into, [&](std::byte* row, std::size_t bytes) {
        std::memcpy(row, in_.data() + at, bytes);
        at += static_cast<int>(bytes);
      });
    };
    for (const staged_piece& p : plan.sends) pack(p.dst, p);
    for (const staged_piece& p : plan.retains) pack(plan.device, p);
    move_by_alltoallv();
    for (const staged_piece& p : plan.receives) unpack(p.src, p);
    for (const staged_piece& p : plan.retains) unpack(plan.device, p);
  }
  bool arrived() const {
    return std::all_of(in_.begin(), in_.end(), [](std::byte b) { return b == std::byte{1}; });
  }

 private:
  /// Where each peer's bytes begin; all of them.
  static std::size_t places(const std::vector<int>& counts, std::vector<int>& at) {
    int sum = 0;
    for (const int count : counts) at.push_back(sum), sum += count;
    return static_cast<std::size_t>(sum);
  }

  std::vector<int> outs_, outs_at_, ins_, ins_at_;
  std::vector<std::byte> out_, in_;
};

}  // namespace testing
