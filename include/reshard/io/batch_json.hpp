// SPDX-License-Identifier: Apache-2.0
// `reshard elastic batch` and `reshard elastic rate`: the batch of another world, and the factor of the learning rate.
// They are asked
//   {"ranks": N, "to": N', "batch": TBS, "optimum": [[B, n], ..], "limit": samples a rank}
//   {"base": TBS, "power": 1 or "1/2", "changes": [{"at": sample, "batch": B, "ramp": samples}, ..], "at": [t, ..]}
// In place of `optimum` stands `throughput`, [[B, n, samples a second], ..], and with "model": true what is fitted to
// it.
// Builds on: io/detail/strict_json.hpp, io/text_output.hpp, job/batch.hpp, job/rate.hpp, job/throughput.hpp.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/io/detail/strict_json.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/job/batch.hpp>
#include <reshard/job/rate.hpp>
#include <reshard/job/throughput.hpp>

namespace reshard::io {

namespace detail {

/// An entry of a list that is a list of so many numbers itself.
inline const nlohmann::json& row_of(const strict_json& file, const nlohmann::json& row, std::size_t numbers,
                                    const char* what) {
  if (!row.is_array() || row.size() != numbers)
    file.refuse_text("an entry of ", what, " is ", strict_json::described(row), "; it is ",
                     numbers == 2 ? "[batch, ranks]" : "[batch, ranks, samples a second]");
  return row;
}

/// optimum(B) by a list of [B, n].
class optimum_list {
 public:
  optimum_list(const strict_json& file, const nlohmann::json& root) {
    for (const nlohmann::json& row : file.list(root, "optimum", "[batch, ranks]")) {
      row_of(file, row, 2, "optimum");
      const index_t batch = file.whole(row[0], std::string_view("a batch of optimum"), 1);
      for (const auto& [other, unused] : rows_)
        if (other == batch) file.refuse_text("optimum has a batch of ", batch, " twice");
      rows_.emplace_back(batch, file.whole(row[1], std::string_view("ranks of optimum"), 1));
    }
    if (rows_.size() > most_rows)
      file.refuse_text("optimum has ", rows_.size(), " entries; at most ", most_rows, " are looked through");
  }
  rank_t operator()(index_t batch) const {
    for (const auto& [other, ranks] : rows_)
      if (other == batch) return ranks;
    refuse("batch: optimum has no entry for a batch of ", batch, " among its ", rows_.size(),
           " entries; it is asked of k TBS");
  }
  static constexpr std::size_t most_rows = 4096;

 private:
  std::vector<std::pair<index_t, rank_t>> rows_;
};

inline std::vector<measured_throughput> measured_rows(const strict_json& file, const nlohmann::json& root) {
  std::vector<measured_throughput> rows;
  for (const nlohmann::json& row : file.list(root, "throughput", "[batch, ranks, samples a second]")) {
    row_of(file, row, 3, "throughput");
    if (!row[2].is_number())
      file.refuse_text("a throughput is ", strict_json::described(row[2]), "; it is a number of samples a second");
    rows.push_back({file.whole(row[0], std::string_view("a batch of throughput"), 1),
                    file.whole(row[1], std::string_view("ranks of throughput"), 1), row[2].get<double>()});
  }
  if (rows.size() > optimum_list::most_rows)
    file.refuse_text("throughput has ", rows.size(), " entries; at most ", optimum_list::most_rows,
                     " are looked through");
  return rows;
}

}  // namespace detail

/// The answer to a question about a batch; `name` is what sentences call the text.
[[nodiscard]] inline batch_choice batch_from_json(std::string_view text, std::string_view name) {
  const detail::strict_json file(text, name);
  const nlohmann::json& root = file.root();
  file.require_keys(root, {"ranks", "to", "batch", "optimum", "throughput", "model", "limit"},
                    "a question about a batch");
  const rank_t ranks = file.whole(root, "ranks", 1), to = file.whole(root, "to", 1);
  const index_t batch = file.whole(root, "batch", 1);
  const bool unlimited = !root.contains("limit") || root["limit"].is_null();
  const index_t limit = unlimited ? any_samples : file.whole(root, "limit", 1);
  if (root.contains("model") && !root["model"].is_boolean())
    file.refuse_text("model is ", detail::strict_json::described(root["model"]), "; it is true or false");
  const bool fitted = root.contains("model") && root["model"].get<bool>();
  if (root.contains("optimum") == root.contains("throughput") || (fitted && !root.contains("throughput")))
    file.refuse_text(
        "either optimum or throughput says with how many ranks batches are fastest, and a model is fitted to "
        "throughput");
  if (root.contains("optimum")) return choose_batch(ranks, batch, to, detail::optimum_list(file, root), limit);
  const std::vector<measured_throughput> rows = detail::measured_rows(file, root);
  const throughput_table table(rows);
  if (!fitted) return choose_batch(ranks, batch, to, table, limit);
  return choose_batch(ranks, batch, to, fit_step_model(rows, std::min(std::max(ranks, to), most_modelled_ranks)),
                      limit);
}

/// {"batch":B,"k":k,"tried":[1,2,..]}; k is null where none would do and the batch is in proportion.
inline void write_batch_json(text_output& out, const batch_choice& chosen) {
  out << "{\"batch\":" << chosen.batch << ",\"k\":";
  if (chosen.k > 0) out << chosen.k;
  else out << "null";
  out << ",\"tried\":[";
  json_items items(out);
  for (const index_t k : chosen.tried) items.next() << k;
  out << "]}\n";
}

/// A schedule of the rate's factor, and the samples at which it is asked.
struct rate_question {
  rate_schedule schedule;
  std::vector<index_t> at = {};
};

namespace detail {
inline rate_power power_of(const strict_json& file, const nlohmann::json& root) {
  if (!root.contains("power")) return rate_power::linear;
  const nlohmann::json& power = root["power"];
  if (power == 1 || power == "1") return rate_power::linear;
  if (power == 0.5 || power == "1/2") return rate_power::root;
  file.refuse_text("power is ", strict_json::described(power), "; it is 1, or 1/2 (0.5)");
}
}  // namespace detail

/// Reads a question about rates; without "at" it is asked at the beginning and the end of every ramp.
[[nodiscard]] inline rate_question rate_from_json(std::string_view text, std::string_view name) {
  constexpr std::size_t most_changes = 1024, most_asked = 4096;
  const detail::strict_json file(text, name);
  const nlohmann::json& root = file.root();
  file.require_keys(root, {"base", "power", "changes", "at"}, "a question about a rate");
  rate_question asked{rate_schedule(file.whole(root, "base", 1), detail::power_of(file, root))};
  const nlohmann::json& changes = file.list(root, "changes", "objects with at, batch and ramp");
  if (changes.size() > most_changes)
    file.refuse_text("changes has ", changes.size(), " entries; at most ", most_changes, " are looked at");
  for (const nlohmann::json& change : changes) {
    file.require_keys(change, {"at", "batch", "ramp"}, "an entry of changes");
    const rate_change read{file.whole(change, "at", 0), file.whole(change, "batch", 1),
                           file.whole_or(change, "ramp", 0, 0)};
    asked.schedule.add(read);
    if (root.contains("at")) continue;
    asked.at.push_back(read.at);
    if (read.ramp > detail::most_whole - read.at)
      file.refuse_text("a ramp of ", read.ramp, " samples from ", read.at, " ends behind sample ", detail::most_whole,
                       "; say in at which samples are asked of");
    if (read.ramp > 0) asked.at.push_back(read.at + read.ramp);
  }
  if (!root.contains("at")) return asked;
  if (root["at"].size() > most_asked)
    file.refuse_text("at has ", root["at"].size(), " entries; at most ", most_asked, " are told");
  for (const nlohmann::json& t : file.list(root, "at", "samples"))
    asked.at.push_back(file.whole(t, std::string_view("a sample of at"), 0));
  return asked;
}

/// {"factors":[{"at":t,"factor":"n/d"},..]}, in lowest terms.
inline void write_rate_json(text_output& out, const rate_question& asked) {
  std::vector<fraction> factors;  // all of them before the first is written: one may be refused
  for (const index_t t : asked.at) factors.push_back(asked.schedule.factor(t));
  out << "{\"factors\":[";
  json_items items(out);
  for (std::size_t i = 0; i < factors.size(); ++i)
    items.next() << "{\"at\":" << asked.at[i] << ",\"factor\":\"" << factors[i].text() << "\"}";
  out << "]}\n";
}

}  // namespace reshard::io
