// SPDX-License-Identifier: Apache-2.0
// The state machine of a job once more, read from the rows in which the contract writes it; nothing of it is the
// library's. And which phases have a way to an end, by walking.
#pragma once

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace oracle {

/// from | event | to | epoch
inline const char* const job_machine_rows = R"(
founding | found | idle | + 1
idle | ask | proposed |
proposed | ready | armed |
proposed | late | idle |
armed | acked | entering | + 1
armed | passed | armed |
armed | late | idle |
entering | entered | idle |
idle, proposed, armed, entering, waiting | broke | recovering |
recovering | accounted | entering | + 1
recovering | no_plan | waiting |
waiting | come | recovering |
recovering | nobody | lost |
idle | finish | done |
)";

class job_machine {
 public:
  using answer = std::pair<std::string, int>;  // the phase that follows, and by how much the epoch rises

  job_machine() {
    std::istringstream rows(job_machine_rows);
    for (std::string row; std::getline(rows, row);) {
      if (row.empty()) continue;
      std::vector<std::string> cells(4);
      std::size_t cell = 0;
      for (const char c : row) {
        if (c == '|') ++cell;
        else if (c != ' ') cells[cell] += c;
      }
      std::istringstream froms(cells[0]);
      for (std::string from; std::getline(froms, from, ',');) {
        rows_[{from, cells[1]}] = {cells[2], cells[3] == "+1" ? 1 : 0};
        phases_.insert(from), phases_.insert(cells[2]), events_.insert(cells[1]);
      }
    }
  }
  const std::set<std::string>& phases() const { return phases_; }
  const std::set<std::string>& events() const { return events_; }
  std::size_t rows() const { return rows_.size(); }
  /// What follows; the phase itself where the pair is ignored.
  answer after(const std::string& phase, const std::string& event) const {
    const auto found = rows_.find({phase, event});
    return found == rows_.end() ? answer{phase, 0} : found->second;
  }
  bool has(const std::string& phase, const std::string& event) const { return rows_.count({phase, event}) > 0; }
  std::set<std::string> reached_from(const std::string& phase) const {
    std::set<std::string> reached{phase};
    for (std::size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const auto& [pair, to] : rows_)
        if (reached.count(pair.first) > 0) reached.insert(to.first);
    }
    return reached;
  }

 private:
  std::map<std::pair<std::string, std::string>, answer> rows_;
  std::set<std::string> phases_, events_;
};

}  // namespace oracle
