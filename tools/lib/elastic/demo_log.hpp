// SPDX-License-Identifier: Apache-2.0
// What the logs of a job say, line by line: the words of its workers (docs/reference/elastic.md), and those of who
// showed it: `asked` (what, who, by, text), `killed` (who), `exit` (who, code).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/base/integer.hpp>

namespace elastic {

using reshard::index_t;

/// One line; what it does not say is empty or 0.
struct log_event {
  double t = 0;  // CLOCK_MONOTONIC, seconds
  std::string id = {}, ev = {};
  index_t epoch = 0, step = 0, dp = 0, of = 0, begin = 0, end = 0, first_step = 0, cursor = 0, batch = 0, version = 0;
  index_t code = 0;
  std::uint64_t sum = 0;
  double switched = 0;  // the field `switch`
  std::vector<std::string> members = {};
  std::string layout = {}, why = {}, what = {}, who = {}, by = {}, text = {};
  std::map<std::string, std::uint64_t> digests = {};
};
using event_list = std::vector<log_event>;

/// Refused: a line that is no JSON object, or says something of another kind than that word does.
log_event parse_event(std::string_view line, const std::string& name);

enum class look_for { news, the_end };

/// The logs of a folder, *.log: those of workers, and what the demo did itself, demo.log.
class log_reader {
 public:
  explicit log_reader(std::string folder) : folder_(std::move(folder)) {}

  /// Reads what came since it last looked, as far as lines are whole. Refused at the end: a line that is not.
  void look(look_for what = look_for::news);
  const event_list& workers() const { return workers_; }
  const event_list& deeds() const { return deeds_; }

 private:
  std::string folder_;
  std::map<std::string, std::size_t> read_;  // bytes, by file
  event_list workers_, deeds_;
};

}  // namespace elastic
