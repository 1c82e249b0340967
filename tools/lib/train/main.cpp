// SPDX-License-Identifier: Apache-2.0
// tools/train: a small GPT under every layout and through switches, whose loss curve cannot tell. The trainer is
// examples/trainer; this is its command line.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <unistd.h>

#include "damage.hpp"
#include "dump.hpp"
#include "report.hpp"
#include "restart.hpp"

namespace train {

namespace {

/// One write a line: processes share the output.
void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

/// Prints how the run agrees with the undisturbed one; whether it does in everything.
bool compare(const told_by_run& run, const told_by_run& alone) {
  std::size_t losses = 0, norms = 0, switches = 0, states = 0;
  for (std::size_t i = 0; i < run.steps.size() && i < alone.steps.size(); ++i) {
    losses += same_bits(run.steps[i].of.loss, alone.steps[i].of.loss) ? 1 : 0;
    norms += same_bits(static_cast<double>(run.steps[i].of.norm), static_cast<double>(alone.steps[i].of.norm)) ? 1 : 0;
  }
  for (const change_report& c : run.changes) switches += c.before == c.after ? 1 : 0;
  for (std::size_t s = 0; s < 4; ++s) states += run.end.digest.of[s] == alone.end.digest.of[s] ? 1 : 0;
  const bool all = losses == run.steps.size() && norms == losses && switches == run.changes.size() && states == 4;
  std::printf("%s: %zu losses, %zu norms, %zu switches, %zu states\n", all ? "same bits" : "NOT the same bits", losses,
              norms, switches, states);
  if (!all) std::printf("of %zu losses and norms, %zu switches and 4 states\n", run.steps.size(), run.changes.size());
  return all;
}

listener json_lines() {
  return {[](const step_report& r) { say(json_of(r)); }, [](const change_report& r) { say(json_of(r)); },
          [](const end_report& r) { say(json_of(r)); }, nullptr};
}

/// A line that is written over on a terminal; of the others each tenth.
listener for_people(index_t steps) {
  return {[steps](const step_report& r) {
            if (::isatty(STDOUT_FILENO) == 1) std::printf("\r\033[K%s", line_of(r).c_str()), std::fflush(stdout);
            else if (r.step % 10 == 0 || r.step + 1 == steps) say(line_of(r));
          },
          [](const change_report& r) {
            if (::isatty(STDOUT_FILENO) == 1) std::fputs("\r\033[K", stdout);
            say(line_of(r));
          },
          nullptr, nullptr};
}

/// With the undisturbed run beside it: for people and pictures. The exit code.
int run_beside(const options& asked, const job& all) {
  if (asked.transport != "threads")
    refuse("--transport ", asked.transport, " goes with --json; for people the devices are threads");
  listener live = for_people(all.steps);
  live.finish = dumping(asked);
  const told_by_run run = run_on_threads(all, live);
  std::printf("%sone device that never changes ..\n", ::isatty(STDOUT_FILENO) == 1 ? "\r\033[K" : "");
  const told_by_run alone = run_on_threads(undisturbed(all), for_people(all.steps));
  if (::isatty(STDOUT_FILENO) == 1) std::fputs("\r\033[K", stdout);
  if (!asked.svg.empty()) {
    std::ofstream file(asked.svg);
    file << picture_of(run, alone, all);
    if (!file.flush()) refuse("--svg: ", asked.svg, " cannot be written");
  }
  return compare(run, alone) ? 0 : 1;
}

int train_as(const options& asked) {
  job all = job_of(asked);
  if (asked.restarted >= 0) return read_restarted(asked, all);
  if (!asked.restart.empty()) return compare_with_restart(asked, all);
  do_damage(asked.damaged, all);
  if (!asked.json) return run_beside(asked, all);
  if (!asked.svg.empty()) refuse("--svg draws two runs; it does not go with --json, which prints one");
  listener live = json_lines();
  live.finish = dumping(asked);
  if (asked.transport == "sockets") run_on_sockets(all, live);
  else if (asked.transport == "mpi") run_on_mpi(all, live);
  else run_on_threads(all, live);
  return 0;
}

}  // namespace

}  // namespace train

int main(int count, char** words) {
  try {
    const std::vector<std::string> all(words + 1, words + count);
    if (std::find(all.begin(), all.end(), "--help") != all.end()) return std::puts(train::usage) < 0 ? 1 : 0;
    return train::train_as(train::read_options(all));
  } catch (const trainer::range_left& e) {
    if (*e.what() != 0) std::fprintf(stderr, "reshard: %s\n", e.what());
    return 3;
  } catch (const reshard::refusal& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
