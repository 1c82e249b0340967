// SPDX-License-Identifier: Apache-2.0
// What is said to a store that a process serves, and what it answers, as bytes: the same over a connection and in the
// journal. Numbers are 8 bytes, least first; a text is its length and its bytes; a frame is 4 bytes of length and so
// many.
// Builds on: elastic/detail/store_state.hpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/elastic/detail/store_state.hpp>

namespace reshard::detail {

/// The first bytes of a connection, which tell a store from anything else that might be called.
inline constexpr std::string_view store_greeting = "rshstor1";
/// The longest question, and the longest answer.
inline constexpr std::size_t most_asked = std::size_t{16} << 20, most_answered = std::size_t{1} << 30;

struct store_request {
  enum class kind : std::uint8_t { read = 1, list, swap, remove, lease, renew, revoke, changes, counts, grant, put };
  kind what = kind::read;
  std::string key = {}, value = {};
  std::uint64_t revision = 0;
  lease_id lease = no_lease;
  patience time{};
};

struct store_answer {
  std::uint64_t number = 0;  // a revision, a lease, or whether
  bool anew = false;
  std::vector<store_change> changes;
  std::string refused;  // a sentence; then the connection ends
};

inline void write_number(std::string& to, std::uint64_t number) {
  for (int i = 0; i < 64; i += 8) to.push_back(static_cast<char>(number >> i & 255));
}
inline void write_text(std::string& to, std::string_view text) {
  write_number(to, text.size());
  to += text;
}

/// What is left to read of a frame.
class frame_reader {
 public:
  explicit frame_reader(std::string_view rest) : rest_(rest) {}
  std::uint64_t number() {
    const std::string_view bytes = take(8);
    std::uint64_t all = 0;
    for (std::size_t i = 8; i-- > 0;) all = all << 8 | static_cast<unsigned char>(bytes[i]);
    return all;
  }
  std::string text() { return std::string(take(number())); }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) refuse("a frame that ends ", bytes - rest_.size(), " bytes too early");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::string_view rest_;
};

inline std::string words_of(const store_request& r) {
  std::string to;
  write_number(to, static_cast<std::uint64_t>(r.what));
  write_text(to, r.key);
  write_text(to, r.value);
  write_number(to, r.revision);
  write_number(to, static_cast<std::uint64_t>(r.lease));
  write_number(to, static_cast<std::uint64_t>(r.time.count()));
  return to;
}
inline store_request read_request(frame_reader& from) {
  store_request r;
  const std::uint64_t what = from.number();
  if (what < 1 || what > static_cast<std::uint64_t>(store_request::kind::put))
    refuse("a frame asks for ", what, ", which is nothing that a store does");
  r.what = static_cast<store_request::kind>(what);
  r.key = from.text();
  r.value = from.text();
  r.revision = from.number();
  r.lease = static_cast<lease_id>(from.number());
  const std::uint64_t time = from.number();
  if (time > static_cast<std::uint64_t>(longest_store_wait.count()))
    refuse("a frame names a time of ", time, " ms; at most ", longest_store_wait.count());
  r.time = patience(static_cast<patience::rep>(time));
  return r;
}

inline std::string words_of(const store_answer& a) {
  std::string to;
  write_number(to, a.number);
  write_number(to, a.anew);
  write_text(to, a.refused);
  write_number(to, a.changes.size());
  for (const store_change& c : a.changes) {
    write_text(to, c.now.key);
    write_text(to, c.now.value);
    write_number(to, c.now.revision);
    write_number(to, c.removed);
  }
  return to;
}
inline store_answer read_answer(frame_reader from) {
  store_answer a;
  a.number = from.number();
  a.anew = from.number() != 0;
  a.refused = from.text();
  for (std::uint64_t left = from.number(); left > 0; --left) {
    store_change c;
    c.now.key = from.text();
    c.now.value = from.text();
    c.now.revision = from.number();
    c.removed = from.number() != 0;
    a.changes.push_back(std::move(c));
  }
  return a;
}

inline std::string framed(std::string_view body) {
  std::string frame;
  for (int i = 0; i < 32; i += 8) frame.push_back(static_cast<char>(body.size() >> i & 255));
  return frame.append(body);
}
/// The frame that begins there, once it has come whole; refused where it is longer than the longest.
inline std::optional<std::string_view> frame_at(std::string_view in, std::size_t most) {
  if (in.size() < 4) return std::nullopt;
  std::size_t bytes = 0;
  for (std::size_t i = 4; i-- > 0;) bytes = bytes << 8 | static_cast<unsigned char>(in[i]);
  if (bytes > most) refuse("a frame of ", bytes, " bytes; at most ", most, " are read");
  if (in.size() - 4 < bytes) return std::nullopt;
  return in.substr(4, bytes);
}

/// What a state answers to a question, and what it is afterwards. Changes are those that there are, without waiting.
inline store_answer answer(store_state& state, const store_request& r, patience now) {
  using kind = store_request::kind;
  store_answer a;
  switch (r.what) {
    case kind::read:
      if (std::optional<stored> found = state.read(r.key)) a.changes.push_back({std::move(*found), false});
      break;
    case kind::list: {
      stored_list all = state.list(r.key);
      a.number = all.revision;
      for (stored& one : all.all) a.changes.push_back({std::move(one), false});
      break;
    }
    case kind::swap: a.number = state.swap(r.key, r.value, r.revision, r.lease); break;
    case kind::remove: a.number = state.remove(r.key, r.revision); break;
    case kind::lease: a.number = static_cast<std::uint64_t>(state.lease(r.time, now)); break;
    case kind::renew: a.number = state.renew(r.lease, now); break;
    case kind::revoke: a.number = state.revoke(r.lease); break;
    case kind::changes: {
      store_news news = state.changes(r.key, r.revision);
      a = {news.revision, news.anew, std::move(news.changes), {}};
      break;
    }
    case kind::counts: state.restore(r.revision, r.lease); break;
    case kind::grant: state.grant(r.lease, r.time, now); break;
    case kind::put: state.put({r.key, r.value, r.revision}, r.lease); break;
  }
  return a;
}
/// Whether the journal has to keep a question that was answered so.
inline bool is_kept(const store_request& r, const store_answer& a) {
  using kind = store_request::kind;
  return a.number != 0 &&
         (r.what == kind::swap || r.what == kind::remove || r.what == kind::lease || r.what == kind::revoke);
}

}  // namespace reshard::detail
