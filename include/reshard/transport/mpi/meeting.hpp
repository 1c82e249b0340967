// SPDX-License-Identifier: Apache-2.0
// The meeting of processes over MPI: device 0 keeps the hub, to which the others send words. Who can't go on tells all
// others itself. Words are sent and taken without waiting.
// Builds on: transport/hub.hpp, transport/meeting.hpp, transport/mpi/words.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/transport/hub.hpp>
#include <reshard/transport/meeting.hpp>
#include <reshard/transport/mpi/words.hpp>

namespace reshard {

/// One process's end of a meeting over MPI.
class mpi_meeting {
  using clock = std::chrono::steady_clock;
  using kind = hub_word::kind;
  static constexpr std::int64_t ended = 0;  // beside the words of a hub: how many messages were sent

 public:
  /// Tags on the communicator: of words, and of an exchange's messages.
  static constexpr int words_tag = 1, messages_tag = 2;

  /// A device for each process of `world`, which is duplicated: called by all of them.
  mpi_meeting(MPI_Comm world, patience wait)
      : own_(world, wait), words_(own_, words_tag), wait_(wait), gone_(count(), false), ended_(count(), -1),
        hub_(devices()) {}
  mpi_meeting(const mpi_meeting&) = delete;
  mpi_meeting& operator=(const mpi_meeting&) = delete;
  ~mpi_meeting() {
    try {
      leave();
    } catch (const std::exception&) {  // nobody is left to hear it
    }
    if (end_.broken() || words_.busy()) own_.abandon();
  }

  rank_t device() const { return own_.device(); }
  rank_t devices() const { return own_.devices(); }
  patience waits() const { return wait_; }
  std::vector<rank_t> absent() const { return {}; }
  MPI_Comm communicator() const { return own_.get(); }
  /// Whether it has ended, as far as was heard.
  bool broken() const { return end_.broken(); }
  /// Its communicator is not freed: others may have words for it.
  void abandon() { own_.abandon(); }

  agreement agree(const proposal& mine) { return answer(hub_word::of(mine)).agreed(); }
  std::vector<std::string> gather(const std::string& mine) { return answer({kind::text, {}, mine}).texts(); }
  void confirm(index_t stages) { say({kind::confirmation, {confirmed_ = stages}, {}}); }
  index_t confirmed() const { return confirmed_; }
  bool in_place(index_t stages) const { return end_.placed() >= stages; }
  /// The hub knows them all; the others wait for its word.
  std::vector<rank_t> behind(index_t stages) const { return is_hub() ? hub_.behind(stages) : std::vector<rank_t>{0}; }
  void require_whole() {
    for (rank_t d = 0; is_hub() && d < devices(); ++d)
      if (gone_[at(d)]) carry(hub_.on_word(d, {kind::bye}));
    end_.require_whole();
  }
  void give_up(const std::string& sentence) { break_off(sentence); }
  /// Nobody reads another process's memory; what is on its way is the wire's matter.
  void fail(const std::string& sentence) { break_off(sentence); }

  /// Takes the words that have come; whether there was one.
  bool poll() {
    bool any = false;
    while (hear()) any = true;
    words_.settle();
    return any;
  }

  /// This device sends no more messages; every other one hears how many there were to it.
  void tell_ended(const std::vector<index_t>& sent) {
    for (rank_t d = 0; d < devices(); ++d)
      if (d != device()) words_.send(ended_word(sent[at(d)]), {d});
  }
  /// How many a device has sent to this one, once it sends no more; -1 before.
  index_t ended_after(rank_t d) const { return ended_[at(d)]; }
  /// Whether it has left in good order.
  bool gone(rank_t d) const { return gone_[at(d)]; }

 private:
  bool is_hub() const { return device() == 0; }
  std::size_t count() const { return static_cast<std::size_t>(devices()); }
  static std::size_t at(rank_t d) { return static_cast<std::size_t>(d); }

  static void append(std::string& body, std::int64_t n) { body.append(reinterpret_cast<const char*>(&n), sizeof n); }
  static std::int64_t number(std::string_view body, std::size_t i) {
    std::int64_t n = 0;
    if (body.size() >= (i + 1) * sizeof n) std::memcpy(&n, body.data() + i * sizeof n, sizeof n);
    return n;
  }
  static std::string ended_word(index_t sent) {
    std::string body;
    append(body, ended), append(body, sent);
    return body;
  }

  /// Sends a word, to one or to all others that are there.
  void send(const hub_word& word, rank_t to) {
    std::string body;
    append(body, static_cast<std::int64_t>(word.what));
    word.append_to(body);
    std::vector<rank_t> all;
    for (rank_t d = 0; d < devices(); ++d)
      if (d == to || (to == hub::everyone && d != device() && !gone_[at(d)])) all.push_back(d);
    words_.send(std::move(body), all);
  }
  /// Says a word to the hub, which may be this device.
  void say(const hub_word& word) {
    if (is_hub()) carry(hub_.on_word(0, word));
    else send(word, 0);
  }
  /// Brings what the hub says to all.
  void carry(const hub::replies& said) {
    for (const hub::reply& r : said) {
      send(r.says, hub::everyone);
      end_.on_word(r.says);
    }
  }
  /// Says a word and waits for the answer to all; the hub's own device speaks last, once it has heard all others.
  const hub_end& answer(const hub_word& mine) {
    require_whole();
    const std::uint64_t before = end_.answers();
    if (!is_hub()) say(mine);
    until([&] { return is_hub() ? all_others_came() : end_.answers() != before; });
    if (is_hub()) say(mine), end_.require_whole();
    return end_;
  }
  bool all_others_came() const { return hub_.arrived() + 1 == devices(); }

  /// Waits for what the hub says, or, as the hub, for all others; who does not come ends the world.
  template <typename What>
  void until(What&& what) {
    const patience limit = is_hub() ? wait_ : 2 * wait_ + std::chrono::seconds(1);
    const auto begin = clock::now();
    detail::mpi_pause pause;
    for (poll();; poll(), pause.again()) {
      if (is_hub() && all_others_came()) poll_well();  // who gave up meanwhile is heard before all are answered
      if (what()) return;
      require_whole();
      if (clock::now() - begin < limit) continue;
      std::string whom = "device 0, the hub";
      if (is_hub()) {
        whom = "these devices: ";
        std::string absent;
        for (const rank_t d : hub_.awaited())
          if (d != 0) absent += detail::text_of(absent.empty() ? "" : ", ", d);
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

  /// Takes the next word that has come whole; whether there was one.
  bool hear() {
    const std::optional<mpi_word> word = words_.hear();
    if (word) take(word->from, word->body);
    return word.has_value();
  }
  void take(rank_t d, std::string_view body) {
    const std::int64_t what = number(body, 0);
    if (what == ended) return static_cast<void>(ended_[at(d)] = number(body, 1));
    const int numbers = hub_word::numbers_of(static_cast<std::uint64_t>(what));
    body.remove_prefix(std::min(body.size(), sizeof what));
    if (numbers < 0 || body.size() < static_cast<std::size_t>(numbers) * sizeof what)
      return break_off(detail::text_of("reshard: device ", d, " speaks of another build of the library"));
    hub_word word = hub_word::of(static_cast<std::uint32_t>(what), body);
    if (word.what == kind::bye) gone_[at(d)] = true;  // which matters once something is asked of it
    else if (word.what == kind::given_up) take_end(word);
    else if (is_hub()) carry(hub_.on_word(d, std::move(word)));
    else end_.on_word(word);
  }
  /// Who said so has told all others.
  void take_end(const hub_word& word) {
    if (const rank_t left = word.numbers[0]; left >= 0 && left < devices()) gone_[at(left)] = true;
    hub_.on_word(device(), word);
    end_.on_word(word);
  }

  /// This world is over, and the others hear why from who knew it first.
  void break_off(const std::string& sentence) {
    if (end_.broken()) return;
    const hub_word word{kind::given_up, {-1}, sentence};
    send(word, hub::everyone);
    take_end(word);
  }

  /// Says goodbye, the hub to those who are still there; and gives words a moment to go.
  void leave() {
    if (!detail::mpi_runs()) return;
    const auto end = clock::now() + std::min<clock::duration>(wait_, std::chrono::seconds(1));
    detail::mpi_pause pause;
    const auto all_gone = [this] { return std::find(gone_.begin() + 1, gone_.end(), false) == gone_.end(); };
    if (!end_.broken() && is_hub()) {
      for (poll(); !all_gone() && !end_.broken() && clock::now() < end; poll()) pause.again();
      if (!all_gone()) say({kind::bye});
    } else if (!end_.broken()) {
      say({kind::bye});
    }
    for (poll(); !words_.all_sent() && clock::now() < end; poll()) pause.again();
  }

  mpi_communicator own_;
  mpi_words words_;
  patience wait_;
  std::vector<bool> gone_;  // by device
  std::vector<index_t> ended_;
  hub hub_;  // where this is device 0
  hub_end end_;
  index_t confirmed_ = 0;
};
static_assert(EndingMeeting<mpi_meeting>);

}  // namespace reshard
