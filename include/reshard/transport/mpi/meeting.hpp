// SPDX-License-Identifier: Apache-2.0
// The meeting of processes over MPI: device 0 is the hub, to which the others send words. It adds up what they propose
// and counts what is in place. Who can't go on tells all others itself. Words are sent and taken without waiting.
// Builds on: transport/meeting.hpp, transport/mpi/communicator.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/transport/meeting.hpp>
#include <reshard/transport/mpi/communicator.hpp>

namespace reshard {

/// One process's end of a meeting over MPI.
class mpi_meeting {
  using clock = std::chrono::steady_clock;
  enum kind : std::int64_t { proposed = 1, agreed, text, texts, confirmed, placed, given_up, ended, bye };

 public:
  /// Tags on the communicator: of words, and of an exchange's messages.
  static constexpr int words_tag = 1, messages_tag = 2;

  /// A device for each process of `world`, which is duplicated: called by all of them.
  mpi_meeting(MPI_Comm world, patience wait)
      : own_(world, wait), wait_(wait), here_(count(), false), told_(count(), false), gone_(count(), false),
        in_place_(count(), 0), ended_(count(), -1), said_(count()) {}
  mpi_meeting(const mpi_meeting&) = delete;
  mpi_meeting& operator=(const mpi_meeting&) = delete;
  ~mpi_meeting() {
    try {
      leave();
    } catch (const std::exception&) {  // nobody is left to hear it
    }
    if (!why_.empty() || heard_ != nullptr || !words_.empty()) own_.abandon();
    if (heard_ != nullptr) detail::keep_for_mpi(std::move(heard_));
    if (!words_.empty()) detail::keep_for_mpi(std::move(words_));
  }

  rank_t device() const { return own_.device(); }
  rank_t devices() const { return own_.devices(); }
  patience waits() const { return wait_; }
  std::vector<rank_t> absent() const { return {}; }
  MPI_Comm communicator() const { return own_.get(); }

  agreement agree(const proposal& mine) {
    require_whole();
    if (is_hub()) take_proposal(0, mine);
    else say(0, word(proposed, {mine.number, static_cast<std::int64_t>(mine.addend)}, mine.sentence));
    until([this] { return is_hub() ? answer_proposals() : agreed_; }, here_);
    agreed_ = false;
    return result_;
  }
  std::vector<std::string> gather(const std::string& mine) {
    require_whole();
    if (is_hub()) take_text(0, mine);
    else say(0, word(text, {}, mine));
    until([this] { return is_hub() ? answer_texts() : gathered_; }, told_);
    gathered_ = false;
    return all_said_;
  }
  void confirm(index_t stages) {
    if (is_hub()) take_confirmation(0, stages);
    else say(0, word(confirmed, {stages}));
  }
  bool in_place(index_t stages) const { return placed_ >= stages; }
  /// The hub knows them all; the others wait for its word.
  std::vector<rank_t> behind(index_t stages) const {
    if (!is_hub()) return {0};
    std::vector<rank_t> result;
    for (rank_t d = 0; d < devices(); ++d)
      if (in_place_[at(d)] < stages) result.push_back(d);
    return result;
  }
  void require_whole() {
    if (why_.empty() && is_hub())
      for (rank_t d = 0; d < devices(); ++d)
        if (gone_[at(d)]) break_off(detail::text_of("reshard: device ", d, " has left; a world serves one run"), d);
    if (!why_.empty()) throw peer_failed(why_);
  }
  void give_up(const std::string& sentence) { break_off(sentence); }
  /// Nobody reads another process's memory; what is on its way is the wire's matter.
  void fail(const std::string& sentence) { break_off(sentence); }

  /// Takes the words that have come; whether there was one.
  bool poll() {
    bool any = false;
    while (hear()) any = true;
    words_.remove_if([](spoken& s) {
      int done = 0;
      detail::require_mpi(
          MPI_Testall(static_cast<int>(s.requests.size()), s.requests.data(), &done, MPI_STATUSES_IGNORE),
          "send a word");
      return done != 0;
    });
    return any;
  }

  /// This device sends no more messages; every other one hears how many there were to it.
  void tell_ended(const std::vector<index_t>& sent) {
    for (rank_t d = 0; d < devices(); ++d)
      if (d != device()) say(d, word(ended, {sent[at(d)]}));
  }
  /// How many a device has sent to this one, once it sends no more; -1 before.
  index_t ended_after(rank_t d) const { return ended_[at(d)]; }
  /// Whether it has left in good order.
  bool gone(rank_t d) const { return gone_[at(d)]; }

 private:
  /// A word on its way, to one or to all.
  struct spoken {
    std::string body;
    std::vector<MPI_Request> requests;
  };
  struct heard {
    rank_t from = 0;
    std::string body;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool is_hub() const { return device() == 0; }
  std::size_t count() const { return static_cast<std::size_t>(devices()); }
  static std::size_t at(rank_t d) { return static_cast<std::size_t>(d); }

  static std::string word(kind what, std::initializer_list<std::int64_t> numbers, std::string_view rest = {}) {
    std::string body;
    const auto add = [&](std::int64_t n) { body.append(reinterpret_cast<const char*>(&n), sizeof n); };
    add(what);
    for (const std::int64_t n : numbers) add(n);
    return body.append(rest);
  }
  static std::int64_t number(std::string_view body, std::size_t i) {
    std::int64_t n = 0;
    if (body.size() >= (i + 1) * sizeof n) std::memcpy(&n, body.data() + i * sizeof n, sizeof n);
    return n;
  }
  /// What follows so many numbers.
  static std::string rest(std::string_view body, std::size_t numbers) {
    return std::string(body.substr(std::min(body.size(), numbers * sizeof(std::int64_t))));
  }

  void post(spoken& s, rank_t to) {
    if (s.body.size() > at(std::numeric_limits<int>::max()))
      refuse("device ", device(), " has ", s.body.size(), " bytes to say at once; MPI takes 2147483647");
    detail::require_mpi(MPI_Isend(s.body.data(), static_cast<int>(s.body.size()), MPI_BYTE, static_cast<int>(to),
                                  words_tag, communicator(), &s.requests.emplace_back(MPI_REQUEST_NULL)),
                        "send a word");
  }
  void say(rank_t to, std::string body) { post(words_.emplace_back(spoken{std::move(body), {}}), to); }
  void tell_all(std::string body) {
    spoken& s = words_.emplace_back(spoken{std::move(body), {}});
    s.requests.reserve(count());
    for (rank_t d = 0; d < devices(); ++d)
      if (d != device() && !gone_[at(d)]) post(s, d);
  }

  /// Waits for what the hub says, or, as the hub, for all others; who does not come ends the world.
  template <typename What>
  void until(What&& what, const std::vector<bool>& came) {
    const patience limit = is_hub() ? wait_ : 2 * wait_ + std::chrono::seconds(1);
    const auto begin = clock::now();
    detail::mpi_pause pause;
    for (poll();; poll(), pause.again()) {
      if (is_hub()) {  // who gave up meanwhile is heard before all are answered
        if (std::find(came.begin(), came.end(), false) == came.end()) poll_well();
        require_whole();
      }
      if (what()) return;
      require_whole();
      if (clock::now() - begin < limit) continue;
      std::string whom = "device 0, the hub";
      if (is_hub()) {
        whom = "these devices: ";
        std::string absent;
        for (rank_t d = 0; d < devices(); ++d)
          if (!came[at(d)]) absent += detail::text_of(absent.empty() ? "" : ", ", d);
        whom += absent;
      }
      const std::string sentence =
          detail::text_of("reshard: device ", device(), " waited ", limit.count(), " ms in vain for ", whom);
      break_off(sentence);
      throw peer_missing(sentence);
    }
  }

  /// Takes all words that have come. An MPI may find a word that lies ready only at a later look, as MPICH over UCX
  /// does: that none is found once says little.
  void poll_well() {
    for (int in_vain = 0; in_vain < 32;) in_vain = poll() ? 0 : in_vain + 1;
  }

  /// Takes the next word that has come whole; whether there was one. One is fetched at a time, so each sender's come in
  /// its order.
  bool hear() {
    if (heard_ == nullptr) {
      int here = 0;
      MPI_Message which = MPI_MESSAGE_NULL;
      MPI_Status status;
      detail::require_mpi(MPI_Improbe(MPI_ANY_SOURCE, words_tag, communicator(), &here, &which, &status),
                          "hear a word");
      if (here == 0) return false;
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      heard_ = std::make_unique<heard>();
      heard_->from = status.MPI_SOURCE;
      heard_->body.resize(static_cast<std::size_t>(bytes));
      detail::require_mpi(MPI_Imrecv(heard_->body.data(), bytes, MPI_BYTE, &which, &heard_->request), "hear a word");
    }
    int done = 0;
    detail::require_mpi(MPI_Test(&heard_->request, &done, MPI_STATUS_IGNORE), "hear a word");
    if (done == 0) return false;
    const std::unique_ptr<heard> whole = std::move(heard_);
    take(whole->from, whole->body);
    return true;
  }
  void take(rank_t d, const std::string& body) {
    switch (number(body, 0)) {
      case proposed:
        return take_proposal(d, {number(body, 1), static_cast<std::uint64_t>(number(body, 2)), rest(body, 3)});
      case agreed:
        result_ = {number(body, 1), static_cast<std::uint64_t>(number(body, 2)), number(body, 3), rest(body, 4)};
        agreed_ = true;
        return;
      case text: return take_text(d, rest(body, 1));
      case texts: return take_texts(rest(body, 1));
      case confirmed: return take_confirmation(d, number(body, 1));
      case placed: placed_ = number(body, 1); return;
      case given_up:
        if (const rank_t left = number(body, 1); left >= 0 && left < devices()) gone_[at(left)] = true;
        if (why_.empty()) why_ = rest(body, 2);
        return;
      case ended: ended_[at(d)] = number(body, 1); return;
      case bye: gone_[at(d)] = true; return;
      default: return break_off(detail::text_of("reshard: device ", d, " speaks of another build of the library"));
    }
  }
  void take_proposal(rank_t d, const proposal& p) {
    so_far_.add(d, p, std::find(here_.begin(), here_.end(), true) == here_.end());
    here_[at(d)] = true;
  }
  void take_text(rank_t d, const std::string& words) {
    said_[at(d)] = words;
    told_[at(d)] = true;
  }
  /// Answers all, once all have come; whether they have.
  bool answer_proposals() {
    if (std::find(here_.begin(), here_.end(), false) != here_.end()) return false;
    std::fill(here_.begin(), here_.end(), false);
    result_ = so_far_;
    tell_all(
        word(agreed, {result_.largest, static_cast<std::int64_t>(result_.sum), result_.refuser}, result_.sentence));
    return true;
  }
  bool answer_texts() {
    if (std::find(told_.begin(), told_.end(), false) != told_.end()) return false;
    std::fill(told_.begin(), told_.end(), false);
    std::string all;
    for (const std::string& s : said_) {
      const auto bytes = static_cast<std::int64_t>(s.size());
      all.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(s);
    }
    tell_all(word(texts, {}, all));
    all_said_ = said_;
    return true;
  }
  void take_texts(std::string_view body) {
    all_said_.clear();
    while (body.size() >= sizeof(std::int64_t)) {
      const auto bytes = static_cast<std::size_t>(number(body, 0));
      body.remove_prefix(sizeof(std::int64_t));
      all_said_.emplace_back(body.substr(0, bytes));
      body.remove_prefix(std::min(body.size(), bytes));
    }
    gathered_ = true;
  }
  void take_confirmation(rank_t d, index_t stages) {
    in_place_[at(d)] = stages;
    const index_t least_of_all = *std::min_element(in_place_.begin(), in_place_.end());
    if (least_of_all == placed_) return;
    placed_ = least_of_all;
    tell_all(word(placed, {placed_}));
  }

  /// This world is over, and the others hear why from who knew it first; `left` where a device just left.
  void break_off(const std::string& sentence, rank_t left = -1) {
    if (!why_.empty()) return;
    why_ = sentence;
    tell_all(word(given_up, {left}, sentence));
  }

  /// Says goodbye, the hub to those who are still there; and gives words a moment to go.
  void leave() {
    if (!detail::mpi_runs()) return;
    const auto end = clock::now() + std::min<clock::duration>(wait_, std::chrono::seconds(1));
    detail::mpi_pause pause;
    const auto all_gone = [this] { return std::find(gone_.begin() + 1, gone_.end(), false) == gone_.end(); };
    if (why_.empty() && is_hub()) {
      for (poll(); !all_gone() && why_.empty() && clock::now() < end; poll()) pause.again();
      if (!all_gone()) break_off("reshard: device 0 has left; a world serves one run", 0);
    } else if (why_.empty()) {
      say(0, word(bye, {}));
    }
    for (poll(); !words_.empty() && clock::now() < end; poll()) pause.again();
  }

  mpi_communicator own_;
  patience wait_;
  std::list<spoken> words_;
  std::unique_ptr<heard> heard_;
  std::vector<bool> here_, told_, gone_;  // by device
  std::vector<index_t> in_place_, ended_;
  index_t placed_ = 0;
  agreement so_far_, result_;
  bool agreed_ = false, gathered_ = false;
  std::vector<std::string> said_, all_said_;
  std::string why_;
};
static_assert(EndingMeeting<mpi_meeting>);

}  // namespace reshard
