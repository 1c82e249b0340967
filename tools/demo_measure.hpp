// SPDX-License-Identifier: Apache-2.0
// What a child process of the demo measures: a switch that it fills, moves and verifies, or a memcpy loop to compare it
// with.
#pragma once

#include <string>
#include <vector>

#include <reshard/model/model.hpp>

namespace demo {

using reshard::bytes_t, reshard::index_t, reshard::rank_t;

struct switch_request {
  std::string name;
  std::string model;
  std::string from;
  std::string to;
  std::string from_devices;  // empty: the lowest, in order
  std::string to_devices;
  bytes_t budget = bytes_t{64} << 20;
  std::string transport = "threads";
  index_t node_devices = 0;  // devices of a node, over which bytes are relayed; 0: they go directly
  bool warm = false;         // between processes: without a budget, all memory there
};

/// What carries the switch: threads that copy, threads that exchange messages, or processes over TCP or MPI.
inline constexpr const char* transport_names[] = {"threads", "mailboxes", "sockets", "mpi"};
/// Whether a transport's devices are processes: nothing is measured beside their switch.
inline bool between_processes(const switch_request& r) { return r.transport == "sockets" || r.transport == "mpi"; }
/// The program that measures over MPI: it lies beside this one.
std::string over_mpi_program();

/// The whole demo runs in processes of one of these kinds.
enum class measurement {
  plan,         // no memory: what would move, and how much memory each of the others takes
  staged,       // the switch under the budget, every element verified
  staged_copy,  // memcpy of as many bytes, with as many stages, pages committed and released
  warm,         // the switch in one stage between memory that is all there
  warm_copy,    // memcpy of as many bytes between memory that is all there
};
inline constexpr const char* measurement_names[] = {"plan", "staged", "staged-copy", "warm", "warm-copy"};

/// Writes "key number" lines to stdout, and "at k of n" lines as stages pass.
void measure(const switch_request& what, measurement kind);

}  // namespace demo
