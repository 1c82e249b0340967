// SPDX-License-Identifier: Apache-2.0
// Small state on its way: every device says what it has and what it asks for, all derive the same routes, and bytes go
// from who has them to who lacks them. They go through what devices agree by, to all of them, at most 1 MiB at a time.
// Builds on: job/detail/small_state_text.hpp, transport/meeting.hpp, transport/agreeing_transport.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/base/version.hpp>
#include <reshard/job/detail/small_state_text.hpp>
#include <reshard/transport/agreeing_transport.hpp>
#include <reshard/transport/meeting.hpp>

namespace reshard {

/// What small state is exchanged over: a meeting, or a transport that hands on what its meeting agrees on and gathers.
template <typename T>
concept Gathering = Meeting<T> || AgreeingTransport<T>;

/// 64 MiB: the most that all devices together may say of what they have and ask for, as each hears all of it.
inline constexpr bytes_t most_directory_bytes = bytes_t{64} << 20;

/// What becomes of blobs of ranks that no device asks for: they are told, and on no device afterwards; or all refuse.
enum class when_unasked { tell, refuse };

/// How small state is exchanged; where one device wants a refusal, all refuse.
struct small_options {
  when_unasked unasked = when_unasked::tell;
};

/// What a device has after an exchange, and which blobs nobody has any more: the same list on all devices.
struct carried_small_state {
  small_state state;
  std::vector<blob_id> unasked = {};
};

namespace detail {

/// One device's part of an exchange of small state.
template <Gathering T>
class small_state_exchange {
 public:
  small_state_exchange(const small_state& mine, const std::vector<blob_id>& wanted, T& transport,
                       const small_options& options)
      : mine_(mine), wanted_(wanted), transport_(transport), options_(options) {
    std::sort(wanted_.begin(), wanted_.end());
  }

  carried_small_state run() {
    try {
      require_all_here();
      const std::vector<std::string> texts = transport_.gather(said_by_all_or_none());
      require_heard_alike(texts);
      const std::vector<blob_route> routes = alike([&] {
        std::vector<blob_directory> of_device;
        for (std::size_t d = 0; d < texts.size(); ++d) {
          keep_alive();
          of_device.push_back(directory_reader::directory(d, texts[d]));
        }
        std::vector<blob_route> found = routes_of(of_device, sink<>::of([this] { keep_alive(); }));
        unasked_ = unasked_blobs(of_device);
        if (options_.unasked == when_unasked::refuse && !unasked_.empty())
          refuse("no device asks for small state ", unasked_.front().text(), ", ",
                 unasked_.size() == 1 ? "which" : text_of("which with ", unasked_.size() - 1, " more"),
                 " would be on no device; ask for what shall stay, or let it be told (when_unasked::tell)");
        return found;
      });
      carry_all(routes);
      return {merged(), std::move(unasked_)};
    } catch (...) {
      if (!all_know_) transport_.fail(sentence_of(std::current_exception()));
      throw;
    }
  }

 private:
  static constexpr std::int64_t refused = std::numeric_limits<std::int64_t>::max();
  /// What a device that is here adds to an agreement; who does something else, or is of another version, does not.
  static constexpr std::uint64_t here = [] {
    digest of;
    for (const char c : std::string_view("small state " RESHARD_VERSION)) of.add(c);
    return of.value() | 1;
  }();

  /// Others shall not give this device up while it works.
  void keep_alive() {
    if constexpr (Meeting<T>) transport_.poll();
    else transport_.keep_alive();
  }
  rank_t me() const { return transport_.device(); }
  rank_t living() const {
    if constexpr (Meeting<T>) return transport_.devices() - static_cast<rank_t>(transport_.absent().size());
    else return transport_.devices() - static_cast<rank_t>(transport_.facts().absent.size());
  }
  /// Does what all devices do alike, refusals included: nobody has to be told of these.
  template <typename What>
  auto alike(What&& what) {
    try {
      return what();
    } catch (const refusal&) {
      all_know_ = true;
      throw;
    }
  }

  /// All devices exchange small state now, or none does: one that begins a switch is told of a refusal.
  void require_all_here() {
    const agreement all =
        transport_.agree({refused, here, "reshard: it exchanges small state; all devices do one thing at a time"});
    if (all.sum == static_cast<std::uint64_t>(living()) * here) return;
    all_know_ = true;
    refuse("device ", me(), " exchanges small state, and another device does something else; all do it or none");
  }

  /// Agrees on a sentence: all go on, or none does.
  agreement agreed(const std::string& sentence, std::uint64_t addend = 0, std::int64_t number = 0) {
    const agreement all = transport_.agree({.number = number, .addend = addend, .sentence = sentence});
    all_know_ = all.refuser >= 0;
    if (!sentence.empty()) throw refusal(sentence);
    if (!all_know_) return all;
    throw peer_failed(text_of("reshard: device ", me(), ": device ", all.refuser,
                              " refused the small state: ", without_prefix(all.sentence)));
  }

  /// What this device has and asks for, as text; refused by all where one of them asks for what can't be.
  std::string said_by_all_or_none() {
    std::string text, wrong;
    try {
      require_askable();
      text = directory_writer::text(mine_, wanted_);
    } catch (const refusal& e) {
      wrong = e.what();
    }
    const agreement all = agreed(wrong, text.size(), options_.unasked == when_unasked::refuse ? 1 : 0);
    if (all.largest > 0) options_.unasked = when_unasked::refuse;  // another device wants it
    return alike([&] {
      if (all.sum > static_cast<std::uint64_t>(most_directory_bytes))
        refuse("all devices say ", all.sum, " bytes of their small state; at most ", most_directory_bytes,
               " are legal");
      return text;
    });
  }
  /// All devices heard the same, or all refuse.
  void require_heard_alike(const std::vector<std::string>& texts) {
    digest of;
    for (const std::string& text : texts) {
      keep_alive();
      of.add(static_cast<std::int64_t>(text.size()));
      of.add(static_cast<std::int64_t>(hash_of(std::as_bytes(std::span(text)))));
    }
    const agreement all = agreed({}, of.value());
    if (all.sum == static_cast<std::uint64_t>(living()) * of.value()) return;
    all_know_ = true;
    refuse("what devices say of their small state does not come to all of them alike, as device ", me(), " sees it");
  }
  void require_askable() const {
    bytes_t asked = 0;
    for (const blob_id& id : wanted_) {
      require_legal(id);
      if (id.same()) refuse("small state ", id.name, " is asked for without a key; what is the same needs no asking");
      asked += id.bytes();
    }
    if (asked > most_small_bytes)
      refuse("small state is asked for by ", asked, " bytes of names and keys; at most ", most_small_bytes,
             " are legal");
  }

  /// Keeps what this device has and shall have; carries the other blobs, in rounds of most_small_bytes.
  void carry_all(const std::vector<blob_route>& routes) {
    std::vector<blob_route> moving;
    for (const blob_route& r : routes) {
      if (!r.dst.empty()) moving.push_back(r);
      if (mine_.has(r.what.id) && shall_have(r.what.id)) kept_.push_back({r.what.id, mine_.bytes_of(r.what.id)});
    }
    std::string wrong;
    for (std::size_t first = 0, past = 0; first < moving.size(); first = past) {
      bytes_t bytes = moving[past++].what.bytes;
      while (past < moving.size() && bytes + moving[past].what.bytes <= most_small_bytes)
        bytes += moving[past++].what.bytes;
      carry(std::span(moving).subspan(first, past - first), wrong);
    }
    agreed(wrong);  // nobody returns before all have everything
  }
  /// Both lists are ascending, as routes are: each blob comes behind those that are there.
  small_state merged() {
    small_state all;
    auto kept = kept_.begin(), came = came_.begin();
    while (kept != kept_.end() || came != came_.end()) {
      const bool next = came == came_.end() || (kept != kept_.end() && kept->id < came->id);
      all.add(std::move(next ? *kept++ : *came++));
    }
    return all;
  }
  bool shall_have(const blob_id& id) const {
    return id.same() || std::binary_search(wanted_.begin(), wanted_.end(), id);
  }

  /// One round: every source says the bytes of its blobs one after another.
  void carry(std::span<const blob_route> round, std::string& wrong) {
    std::string said;
    for (const blob_route& r : round)
      if (r.src == me()) {
        const std::vector<std::byte>& bytes = mine_.bytes_of(r.what.id);
        said.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    const std::vector<std::string> texts = transport_.gather(said);
    std::vector<std::size_t> read(texts.size(), 0);
    for (const blob_route& r : round) {
      const auto src = static_cast<std::size_t>(r.src), bytes = static_cast<std::size_t>(r.what.bytes);
      const std::size_t at = std::min(std::exchange(read[src], read[src] + bytes), texts[src].size());
      if (!std::binary_search(r.dst.begin(), r.dst.end(), me())) continue;
      const auto part = std::as_bytes(std::span(std::string_view(texts[src]).substr(at, bytes)));
      blob came{r.what.id, {part.begin(), part.end()}};
      if (part.size() == bytes && hash_of(came.bytes) == r.what.hash) came_.push_back(std::move(came));
      else
        wrong = text_of("reshard: device ", me(), " refuses small state ", r.what.id.text(), " as it came from device ",
                        r.src, ": its bytes are not those that were to come");
    }
  }

  const small_state& mine_;
  std::vector<blob_id> wanted_;  // ascending
  T& transport_;
  small_options options_;
  std::vector<blob_id> unasked_;
  std::vector<blob> kept_, came_;  // of what this device shall have
  bool all_know_ = false;
};

}  // namespace detail

/// Called by every device of a transport (or a meeting), before or after a switch, each with its own blobs and the keys
/// that it asks for. What device d has then:
///   result(d) = { b : b is the same on all devices, and some device has it } u { b : d asks for b }.
/// Refused by all devices together, before a byte moves: what small_state_routes refuses, in one sentence. Nobody
/// returns before all have everything.
template <typename T>
[[nodiscard]] small_state exchange_small_state(const small_state& mine, const std::vector<blob_id>& wanted,
                                               T& transport) {
  static_assert(Gathering<T>, "reshard: small state goes over a meeting, or a transport with agree and gather");
  if constexpr (Gathering<T>) return detail::small_state_exchange<T>(mine, wanted, transport, {}).run().state;
  else return mine;
}

/// exchange_small_state with an account: which blobs of ranks nobody asked for, and so nobody has any more, as where
/// four loaders' cursors go to two. With when_unasked::refuse on any device there may be none: all refuse, before a
/// byte moves.
template <typename T>
[[nodiscard]] carried_small_state carry_small_state(const small_state& mine, const std::vector<blob_id>& wanted,
                                                    T& transport, const small_options& options = {}) {
  static_assert(Gathering<T>, "reshard: small state goes over a meeting, or a transport with agree and gather");
  if constexpr (Gathering<T>) return detail::small_state_exchange<T>(mine, wanted, transport, options).run();
  else return {mine};
}

}  // namespace reshard
