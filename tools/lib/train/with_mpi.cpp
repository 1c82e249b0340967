// SPDX-License-Identifier: Apache-2.0
// A job on the processes of MPI's world. mpirun passes on what processes write in no order, so lines are kept, and
// process 0 writes them all at the end.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include <mpi.h>

#include <reshard/base/patience.hpp>

#include "../../../examples/trainer/mpi.hpp"
#include "report.hpp"

namespace train {

namespace {

/// Lines with the place that they have in time: twice the step, a switch before its step.
struct placed_lines {
  std::string text;
  void add(index_t place, const std::string& line) { text += std::to_string(place) + " " + line + "\n"; }
};

void print_in_order(const std::vector<std::string>& all) {
  std::vector<std::pair<long long, std::string>> lines;
  for (const std::string& text : all)
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t blank = text.find(' ', at), end = text.find('\n', at);
      lines.emplace_back(std::stoll(text.substr(at, blank - at)), text.substr(blank + 1, end - blank));
      at = end + 1;
    }
  std::sort(lines.begin(), lines.end());
  for (const auto& [place, line] : lines) std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

void run_on_mpi(const job& all, const listener& live) {
  MPI_Init(nullptr, nullptr);
  int code = 0;
  try {
    placed_lines mine;
    listener l{[&](const step_report& r) { mine.add(2 * r.step + 1, json_of(r)); },
               [&](const change_report& r) { mine.add(2 * r.step, json_of(r)); },
               [&](const end_report& r) { mine.add(2 * r.step + 2, json_of(r)); }, live.finish};
    const std::unique_ptr<world> here = mpi_world(MPI_COMM_WORLD);
    if (here->devices() < all.devices())
      refuse("the job has ", all.devices(), " devices, and MPI's world ", here->devices());
    run_device(all, *here, l);
    const std::vector<std::string> lines = here->gather(mine.text);
    if (here->device() == 0) print_in_order(lines);
  } catch (const peer_gone&) {
    code = 1;
  } catch (const peer_failed&) {
    code = 1;
  } catch (const range_left& e) {
    std::fprintf(stderr, "reshard: %s\n", e.what());
    code = 3;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    code = 1;
  }
  if (code == 1) std::this_thread::sleep_for(std::chrono::seconds(1));  // who knows why comes first
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
}

}  // namespace train
