// SPDX-License-Identifier: Apache-2.0
// `reshard elastic cursor`: what every rank used in every step that stands, and where the job is then. It is asked
//   {"start": c, "set": N, "seed": s, "steps": [{"ranks": n, "batch": B, "count": k}, ..], "undo": [u, ..]}
// or, of tokens, with "tokens": {"lengths": [..]}, "length": L in place of set and seed. After entry i of `steps`, the
// last undo[i] steps are undone. An entry may have a `length` of its own.
// Builds on: io/detail/strict_json.hpp, io/text_output.hpp, job/history.hpp, job/documents.hpp, job/order.hpp.
#pragma once

#include <optional>
#include <string_view>

#include <reshard/io/detail/strict_json.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/job/documents.hpp>
#include <reshard/job/history.hpp>
#include <reshard/job/order.hpp>

namespace reshard::io {

/// Shares, elements and pieces of documents that an answer has at most.
inline constexpr index_t most_told = index_t{1} << 22;

/// A history, and the data that it goes through where they are told: a set, or documents.
struct cursor_question {
  step_history history;
  std::optional<sample_set> set = {};
  std::optional<document_list> documents = {};
};

namespace detail {

inline index_t length_asked(const strict_json& file, const nlohmann::json& root, cursor_question& asked) {
  if (!root.contains("tokens")) {
    if (root.contains("length"))
      file.refuse_text("length is there, and tokens are not; sequences have a length where tokens are counted");
    if (root.contains("set") || root.contains("seed")) {
      std::uint64_t seed = 0;
      if (root.contains("seed")) {
        if (!root["seed"].is_number_unsigned())
          file.refuse_text("seed is ", strict_json::described(root["seed"]),
                           "; it is a whole number from 0 to 18446744073709551615");
        seed = root["seed"].get<std::uint64_t>();
      }
      asked.set = sample_set{file.whole(root, "set", 1), seed};
    }
    return 1;
  }
  if (root.contains("set") || root.contains("seed"))
    file.refuse_text("set or seed are there beside tokens; the data are a set in an order, or documents");
  const nlohmann::json& tokens = root["tokens"];
  file.require_keys(tokens, {"lengths"}, "tokens");
  asked.documents.emplace();
  for (const nlohmann::json& length : file.list(tokens, "lengths", "numbers of tokens"))
    asked.documents->add(file.whole(length, std::string_view("a length"), 0));
  return file.whole(root, "length", 1);
}

inline void add_steps(const strict_json& file, const nlohmann::json& root, index_t length, cursor_question& asked) {
  const nlohmann::json none = nlohmann::json::array();
  const nlohmann::json& steps = file.list(root, "steps", "objects with ranks, batch and count");
  const nlohmann::json& undo = root.contains("undo") ? file.list(root, "undo", "numbers of steps") : none;
  if (undo.size() > steps.size())
    file.refuse_text("undo has ", undo.size(), " entries, and steps ", steps.size(),
                     "; undo[i] steps are undone after entry i of steps");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    file.require_keys(steps[i], {"ranks", "batch", "count", "length"}, "an entry of steps");
    if (steps[i].contains("length") && !asked.documents)
      file.refuse_text("an entry of steps has a length, and tokens are not there");
    asked.history.add(file.whole(steps[i], "ranks", 1), file.whole(steps[i], "batch", 1),
                      file.whole_or(steps[i], "count", 1, 0), file.whole_or(steps[i], "length", length, 1));
    if (i < undo.size())
      asked.history.undo_to(asked.history.version() -
                            file.whole(undo[i], std::string_view("an entry of undo"), 0, asked.history.version()));
  }
}

}  // namespace detail

/// Reads a question; `name` is what sentences call the text.
[[nodiscard]] inline cursor_question cursor_from_json(std::string_view text, std::string_view name) {
  const detail::strict_json file(text, name);
  const nlohmann::json& root = file.root();
  file.require_keys(root, {"start", "set", "seed", "tokens", "length", "steps", "undo"}, "a question about a cursor");
  cursor_question asked{step_history(file.whole_or(root, "start", 0, 0))};
  const index_t length = detail::length_asked(file, root, asked);
  detail::add_steps(file, root, length, asked);
  index_t shares = 0;
  for (const step_run& r : asked.history.runs()) {
    index_t more = 0;
    if (RESHARD_MULTIPLY_OVERFLOWS(r.ranks, r.count, &more) || more > most_told - shares)
      file.refuse_text("with ", r.count, " steps over ", r.ranks, " ranks there are more than ", most_told,
                       " shares, the most that are told");
    shares += more;
  }
  return asked;
}

namespace detail {

/// ,"elements":[..] or ,"documents":[[document,begin,end],..]
inline void write_samples(text_output& out, const cursor_question& asked, interval share) {
  out << (asked.documents ? ",\"documents\":[" : ",\"elements\":[");
  json_items items(out);
  if (asked.documents)
    each_document(*asked.documents, share, [&](index_t document, interval part) {
      items.next() << "[" << document << "," << part.begin << "," << part.end << "]";
    });
  else
    for (index_t p = share.begin; p < share.end; ++p) items.next() << asked.set->element(p);
  out << "]";
}

}  // namespace detail

/// Whether shares are told alone, or with the elements or documents that they are.
enum class samples_told { no, yes };

/// {"shares":[{"step","rank","begin","end"},..],"cursor":c}: shares of the steps that stand, by step and rank.
inline void write_cursor_json(text_output& out, const cursor_question& asked, samples_told samples = samples_told::no) {
  const step_history& h = asked.history;
  const index_t used = h.cursor() - h.cursor(0);
  if (samples == samples_told::yes && !asked.set && !asked.documents)
    refuse("--samples: neither a set nor tokens are given, so positions have no samples");
  if (samples == samples_told::yes && used > most_told)
    refuse("--samples: ", used, " samples or tokens were used; at most ", most_told, " are told");
  out << "{\"shares\":[";
  json_items items(out);
  for (const step_run& r : h.runs())
    for (index_t i = 0; i < r.count; ++i)
      for (rank_t rank = 0; rank < r.ranks; ++rank) {
        const interval share = h.share(r.first + i, rank);
        items.next() << "{\"step\":" << r.first + i << ",\"rank\":" << rank << ",\"begin\":" << share.begin
                     << ",\"end\":" << share.end;
        if (samples == samples_told::yes) detail::write_samples(out, asked, share);
        out << "}";
      }
  out << "],\"cursor\":" << h.cursor() << "}\n";
}

}  // namespace reshard::io
