// SPDX-License-Identifier: Apache-2.0
// Requests to a job and their answers, as values and as text. A request has an id that its asker chose: said again, it
// is the same request, and it is answered once.
// Builds on: elastic/detail/stored_words.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/elastic/detail/stored_words.hpp>

namespace reshard {

/// What can be asked of a job.
enum class request_kind {
  join,     // members come
  leave,    // members go
  replace,  // one comes to the place of another
  layout,   // the same members, another layout
  batch,    // another batch
  finish,   // the job ends
};
/// Kinds by their numbers, as they are written.
inline constexpr std::string_view request_names[] = {"join", "leave", "replace", "layout", "batch", "finish"};
/// What follows each, as it is written.
inline constexpr std::string_view request_forms[] = {"join MEMBERS",  "leave MEMBERS", "replace MEMBER BY",
                                                     "layout LAYOUT", "batch B",       "finish"};
/// "replace"
constexpr std::string_view name(request_kind k) { return request_names[static_cast<std::size_t>(k)]; }

/// A request. What its kind does not speak of is empty, or 0.
struct job_request {
  member_name id = {};
  request_kind kind = request_kind::finish;
  member_list members = {};            // join, leave: who; replace: who goes, and who comes instead
  std::optional<degrees> layout = {};  // layout
  index_t batch = 0;                   // batch: samples

  friend constexpr bool operator==(const job_request&, const job_request&) = default;
};

/// Refuses what is no request: without an id, with another number of members than its kind has, a member twice, a
/// layout or a batch where none belongs or none where one does.
constexpr void require_request(const job_request& q) {
  const std::string_view form = request_forms[static_cast<std::size_t>(q.kind)];
  if (q.id.empty()) refuse("request: ", name(q.kind), " has no id; its asker chooses one");
  const std::size_t members = q.members.size();
  const bool named = q.kind == request_kind::join || q.kind == request_kind::leave;
  if (named ? members < 1 : members != (q.kind == request_kind::replace ? 2u : 0u))
    refuse("request: ", name(q.kind), " names ", members, " members; it is ", form);
  if (has_member(q.members, {})) refuse("request: ", name(q.kind), " names a member that has no name");
  for (std::size_t i = 0; i < members; ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (q.members[i] == q.members[j]) refuse("request: ", name(q.kind), " names ", q.members[i].text(), " twice");
  if (q.layout.has_value() != (q.kind == request_kind::layout))
    refuse("request: ", name(q.kind), q.layout ? " has a layout" : " has no layout", "; it is ", form);
  if (q.kind == request_kind::batch ? q.batch < 1 : q.batch != 0)
    refuse("request: ", name(q.kind), " has a batch of ", q.batch, " samples; it is ", form,
           q.kind == request_kind::batch ? ", and B is at least 1" : "");
}

/// The request of these words, {"replace", "a", "b"} say; MEMBERS are a,b,c, and LAYOUT is as parse_degrees reads it.
[[nodiscard]] inline job_request parse_request(const member_name& id, const std::vector<std::string>& words) {
  int kind = 0;
  while (kind < static_cast<int>(std::size(request_names)) &&
         (words.empty() || words[0] != request_names[static_cast<std::size_t>(kind)]))
    ++kind;
  if (kind == static_cast<int>(std::size(request_names)))
    refuse("request: '", words.empty() ? "" : detail::shown_word(words[0]),
           "' is no kind; kinds are join, leave, replace, layout, batch and finish");
  job_request q{.id = id, .kind = static_cast<request_kind>(kind)};
  const std::size_t wanted = q.kind == request_kind::replace ? 2 : q.kind == request_kind::finish ? 0 : 1;
  if (words.size() != wanted + 1)
    refuse("request: ", name(q.kind), " is followed by ", words.size() - 1, words.size() == 2 ? " word" : " words",
           "; it is ", request_forms[static_cast<std::size_t>(kind)]);
  switch (q.kind) {
    case request_kind::join:
    case request_kind::leave: q.members = parse_members(words[1]); break;
    case request_kind::replace: q.members = {words[1], words[2]}; break;
    case request_kind::layout: q.layout = parse_degrees(words[1]); break;
    case request_kind::batch:
      if (const std::optional<index_t> n = detail::whole_number(words[1])) q.batch = *n;
      else refuse("request: a batch of '", detail::shown_word(words[1]), "'; it is a whole number, at least 1");
      break;
    case request_kind::finish: break;
  }
  require_request(q);
  return q;
}

/// "replace a b", whose words parse_request reads: what is asked for, without the id.
inline std::string to_text(const job_request& q) {
  std::string text(name(q.kind));
  if (q.kind == request_kind::replace)
    for (const member_name& one : q.members) text += " " + std::string(one.text());
  else if (!q.members.empty()) text += " " + joined_members(q.members);
  if (q.layout) text += " " + detail::stored_layout(*q.layout);
  if (q.kind == request_kind::batch) text += " " + std::to_string(q.batch);
  return text;
}

/// The first word of a stored request: its form, and the version of that.
inline constexpr std::string_view request_form = "reshard-request-2";

/// reshard-request-2 DIGEST ID KIND .. : the text of a request. Refused is what is none, as require_request refuses it.
[[nodiscard]] inline std::string stored_text(const job_request& q) {
  require_request(q);
  detail::words_to_store to;
  to.name_or_none(q.id), to.word(to_text(q));
  return to.text(request_form);
}
/// request_of(stored_text(q)) == q. Refused: a text of another form or version, one in which a byte is not what it was,
/// and a text that says what is no request.
[[nodiscard]] inline job_request request_of(std::string_view text) {
  detail::stored_words from(text, request_form, "request");
  const member_name id = from.name_or_none("the id");
  return parse_request(id, from.rest());
}

/// What became of a request.
enum class answer_kind {
  done,    // it is so now
  failed,  // it was begun, and came to nothing
  refused  // it was not begun
};
/// Answers by their numbers, as they are written.
inline constexpr std::string_view answer_names[] = {"done", "failed", "refused"};

/// The one answer to a request; `sentence` says why not, and is empty where it is done.
struct request_answer {
  answer_kind kind = answer_kind::done;
  std::string sentence = {};

  friend bool operator==(const request_answer&, const request_answer&) = default;
};

/// "done", "failed: SENTENCE" or "refused: SENTENCE"
inline std::string to_text(const request_answer& a) {
  std::string text(answer_names[static_cast<std::size_t>(a.kind)]);
  return a.kind == answer_kind::done ? text : text + ": " + a.sentence;
}
/// parse_answer(to_text(a)) == a
[[nodiscard]] inline request_answer parse_answer(std::string_view text) {
  if (text == "done") return {};
  for (const answer_kind kind : {answer_kind::failed, answer_kind::refused}) {
    const std::string_view word = answer_names[static_cast<std::size_t>(kind)];
    if (text.starts_with(word) && text.substr(word.size()).starts_with(": "))
      return {kind, std::string(text.substr(word.size() + 2))};
  }
  refuse("answer: '", detail::shown_word(text), "' is none; it is done, failed: SENTENCE or refused: SENTENCE");
}
/// "refused: SENTENCE" of what refused it, without "reshard: ".
[[nodiscard]] inline request_answer refused_by(const refusal& why) {
  return {answer_kind::refused, std::string(detail::without_prefix(why.what()))};
}

}  // namespace reshard
