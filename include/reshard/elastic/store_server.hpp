// SPDX-License-Identifier: Apache-2.0
// A store that a process serves: one thread that asks a store_state what comes over connections, and answers once the
// journal is on the disk. What it answered it has after every death and start; leases go on then, each with its whole
// time. For trusted networks: who can call it may ask anything.
// Builds on: elastic/served/journal.hpp, elastic/served/callers.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include <reshard/elastic/served/callers.hpp>
#include <reshard/elastic/served/journal.hpp>

namespace reshard {

/// Serves a journal at a listening socket. No caller waits for another: all that have asked are answered in one round,
/// with one sync of the journal for all.
class store_server {
 public:
  store_server(listening_socket listening, std::string journal, store_memory memory = {})
      : listening_(std::move(listening)), state_(memory), journal_(std::move(journal), state_) {
    state_.postpone(now());
  }

  /// Until that descriptor can be read. Throws where the journal cannot be written: what is not kept is not answered.
  void serve(int until) {
    while (true) {
      std::vector<pollfd> watched = {{until, POLLIN, 0}, {full_ ? -1 : listening_.number(), POLLIN, 0}};
      for (const detail::store_caller& c : callers_) watched.push_back(c.watched());
      const patience limit = time_to_wait();
      ::poll(watched.data(), watched.size(), static_cast<int>(limit.count()));
      be_patient_for_own_absence(limit);
      if (watched[0].revents != 0) return;
      auto happened = watched.begin() + 2;
      for (detail::store_caller& c : callers_) c.receive((happened++)->revents);
      if (watched[1].revents != 0 || full_) let_in();
      round();
      std::erase_if(callers_, [](const detail::store_caller& c) { return c.gone(); });
    }
  }

  const store_state& state() const { return state_; }
  int port() const { return listening_.port(); }

 private:
  static patience now() {
    using namespace std::chrono;
    return ceil<patience>(steady_clock::now().time_since_epoch());
  }

  patience time_to_wait() const {
    constexpr patience longest{60'000}, look{250}, until_one_is_gone{100};
    patience wake = now() + (full_ ? until_one_is_gone : longest);
    if (const std::optional<patience> end = state_.next_end()) wake = std::min({wake, *end, now() + look});
    for (const detail::store_caller& c : callers_) {
      if (c.has_more()) return patience{0};
      if (c.waits) wake = std::min(wake, c.waits->until);
    }
    return std::max(wake - now(), patience{0});
  }
  // Who was stopped, or on a machine that stood still, has heard no renewal: leases last so much longer.
  void be_patient_for_own_absence(patience limit) {
    constexpr patience late{250};
    const patience looked = now(), passed = looked - looked_;
    if (looked_.count() > 0 && passed > limit + late) state_.postpone(passed);
    looked_ = looked;
  }
  void let_in() {
    full_ = false;
    for (std::size_t most = 64; most > 0; --most) {
      owned_descriptor caller = listening_.accept();
      if (!caller.open()) {
        full_ = errno == EMFILE || errno == ENFILE;  // those who are there go on being answered
        return;
      }
      callers_.emplace_back(std::move(caller));
    }
  }

  // Questions first, then leases that are over: a renewal that has come in time is heard, however long this took.
  void round() {
    std::string kept;
    for (detail::store_caller& c : callers_)
      if (std::optional<detail::store_request> asked = c.next()) take(c, std::move(*asked), kept);
    while (const std::optional<lease_id> over = state_.over(looked_))
      ask({.what = detail::store_request::kind::revoke, .lease = *over}, kept);
    if (!kept.empty()) journal_.append(kept);
    if (journal_.grown()) journal_.rewrite(state_);
    for (detail::store_caller& c : callers_) {
      if (c.waits) tell_news(c);
      c.send();
    }
  }
  void take(detail::store_caller& c, detail::store_request asked, std::string& kept) {
    if (asked.what == detail::store_request::kind::changes) {
      const patience until = looked_ + asked.time;
      c.waits = {std::move(asked), until};
      return;
    }
    try {
      c.say(ask(asked, kept));
    } catch (const refusal& no) {
      c.end(no.what());
    }
  }
  detail::store_answer ask(const detail::store_request& asked, std::string& kept) {
    detail::store_answer a = answer(state_, asked, looked_);
    if (is_kept(asked, a)) kept += words_of(asked);
    return a;
  }
  void tell_news(detail::store_caller& c) {
    const detail::store_answer a = answer(state_, c.waits->what, looked_);
    if (!a.anew && a.changes.empty() && looked_ < c.waits->until) return;
    c.waits.reset();
    c.say(a);
  }

  listening_socket listening_;
  store_state state_;
  detail::store_journal journal_;
  std::list<detail::store_caller> callers_;
  bool full_ = false;
  patience looked_{};
};

}  // namespace reshard
