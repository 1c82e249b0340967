// SPDX-License-Identifier: Apache-2.0
// The hub of a meeting as a state machine: on_word(from, word) gives the words to send, and to whom. It knows no
// thread, clock or connection: who carries the words has those, and says who is gone. hub_end: what a device has heard.
// Builds on: transport/meeting.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/text.hpp>
#include <reshard/transport/meeting.hpp>

namespace reshard {

/// A word of a device to the hub, or of the hub to devices: what kind of word, its numbers and its text.
struct hub_word {
  enum class kind : std::uint32_t {
    proposal = 1,  // of a device: number, addend; why it refuses
    agreement,     // of the hub: largest, sum, refuser; why that refuses
    text,          // of a device: what all shall have
    texts,         // of the hub: those of all, packed
    confirmation,  // of a device: stages that it has in place
    placed,        // of the hub: stages that all have in place
    given_up,      // of both: who has left and waits for nobody, or -1; why it is over
    outcast,       // to one, the hub's device too: why it was given up
    bye,           // of a device: it leaves
    doubt          // of a device: with whom its connection ended; who carries words finds out who is gone
  };
  kind what = kind::bye;
  std::array<std::int64_t, 3> numbers = {};
  std::string text = {};

  friend bool operator==(const hub_word&, const hub_word&) = default;

  /// How many numbers words of a kind have; -1 where there is no such kind.
  static constexpr int numbers_of(std::uint64_t of) {
    constexpr int of_kind[] = {-1, 2, 3, 0, 0, 1, 1, 1, 0, 0, 1};
    return of < std::size(of_kind) ? of_kind[of] : -1;
  }
  /// Numbers and text as bytes; after them `all` is longer.
  void append_to(std::string& all) const {
    const auto count = static_cast<std::size_t>(numbers_of(static_cast<std::uint64_t>(what)));
    all.append(reinterpret_cast<const char*>(numbers.data()), count * sizeof numbers[0]).append(text);
  }
  /// The word of a kind that there is, of bytes that suffice for its numbers.
  static hub_word of(std::uint32_t what, std::string_view bytes) {
    hub_word w{static_cast<kind>(what)};
    const std::size_t in_numbers = static_cast<std::size_t>(numbers_of(what)) * sizeof w.numbers[0];
    std::memcpy(w.numbers.data(), bytes.data(), in_numbers);
    w.text = bytes.substr(in_numbers);
    return w;
  }
  static hub_word of(const proposal& p) {
    return {kind::proposal, {p.number, static_cast<std::int64_t>(p.addend)}, p.sentence};
  }
};

/// What adds up what devices propose, gathers what they say and counts what they have in place; the first sentence that
/// breaks the world is told to all, and nothing is answered any more but what is in place.
class hub {
  using kind = hub_word::kind;

 public:
  static constexpr rank_t everyone = -1;
  /// A word, and to which device it goes, or to everyone.
  struct reply {
    rank_t to = everyone;
    hub_word says;
  };
  /// What is said at once, in order; none of it takes memory of its own where texts are short.
  class replies {
   public:
    const reply* begin() const { return said_.data(); }
    const reply* end() const { return begin() + size_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const reply& operator[](std::size_t i) const { return said_[i]; }
    void add(rank_t to, hub_word says) { said_[size_++] = {to, std::move(says)}; }

   private:
    std::array<reply, 2> said_;
    std::size_t size_ = 0;
  };

  /// A hub of so many devices, without those that are absent.
  explicit hub(rank_t devices, const std::vector<rank_t>& absent = {})
      : seats_(static_cast<std::size_t>(devices)), living_(devices - static_cast<rank_t>(absent.size())) {
    for (const rank_t d : absent) at(d) = {.absent = true, .in_place = std::numeric_limits<index_t>::max()};
  }

  friend bool operator==(const hub&, const hub&) = default;

  /// Stages that a device has said it has in place.
  index_t in_place(rank_t d) const { return seats_[static_cast<std::size_t>(d)].in_place; }
  /// Takes the next word of a device; returns what is said then.
  replies on_word(rank_t from, hub_word word) {
    switch (word.what) {
      case kind::proposal:
      case kind::text: return broken_ ? replies() : come(from, std::move(word));
      case kind::confirmation: return confirm(from, word.numbers[0]);
      case kind::given_up: return break_off({kind::given_up, {word.numbers[0]}, std::move(word.text)});
      case kind::bye:
        return break_off(
            {kind::given_up, {from}, detail::text_of("reshard: device ", from, " has left; a world serves one run")});
      default: return {};  // the hub's own
    }
  }
  /// A device is gone, or taken to be, as the sentence says; where it lives nonetheless, it hears that it was given up.
  replies on_gone(rank_t d, const std::string& sentence) {
    if (broken_) return {};
    replies all;
    all.add(d, {kind::outcast, {}, sentence});
    all.add(everyone, {kind::given_up, {-1}, sentence});
    broken_ = true;
    return all;
  }

  bool broken() const { return broken_; }
  /// How many have come to the agreement, or gathering, that is under way.
  rank_t arrived() const { return arrived_; }
  /// The devices that have not, ascending.
  std::vector<rank_t> awaited() const {
    return those([](const seat& s) { return !s.absent && !s.came; });
  }
  /// The devices that have not so many stages in place, ascending.
  std::vector<rank_t> behind(index_t stages) const {
    return those([stages](const seat& s) { return s.in_place < stages; });
  }

 private:
  struct seat {
    bool absent = false, came = false;
    index_t in_place = 0;
    std::string text = {};
    friend bool operator==(const seat&, const seat&) = default;
  };

  seat& at(rank_t d) { return seats_[static_cast<std::size_t>(d)]; }
  template <typename Which>
  std::vector<rank_t> those(Which&& which) const {
    std::vector<rank_t> result;
    for (std::size_t d = 0; d < seats_.size(); ++d)
      if (which(seats_[d])) result.push_back(static_cast<rank_t>(d));
    return result;
  }
  static replies to_all(hub_word word) {
    replies all;
    all.add(everyone, std::move(word));
    return all;
  }

  replies come(rank_t d, hub_word&& word) {
    const bool first = arrived_ == 0;
    if (first) round_ = word.what;
    if (word.what != round_)
      return break_off({kind::given_up,
                        {-1},
                        detail::text_of("reshard: device ", d,
                                        round_ == kind::text ? " agrees on numbers where others gather texts"
                                                             : " gathers texts where others agree on numbers")});
    if (word.what == kind::proposal)
      so_far_.add(d, {word.numbers[0], static_cast<std::uint64_t>(word.numbers[1]), std::move(word.text)}, first);
    else at(d).text = std::move(word.text);
    at(d).came = true;
    if (++arrived_ < living_) return {};
    arrived_ = 0;
    hub_word all{kind::texts};
    for (seat& s : seats_) {
      s.came = false;
      if (round_ != kind::text) continue;
      const std::uint64_t bytes = s.text.size();
      all.text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(s.text);
    }
    if (round_ == kind::proposal)
      all = {kind::agreement,
             {so_far_.largest, static_cast<std::int64_t>(so_far_.sum), so_far_.refuser},
             std::move(so_far_.sentence)};
    return to_all(std::move(all));
  }
  replies confirm(rank_t d, index_t stages) {
    at(d).in_place = stages;
    const auto last = std::min_element(seats_.begin(), seats_.end(),
                                       [](const seat& a, const seat& b) { return a.in_place < b.in_place; });
    if (last->in_place == placed_) return {};
    placed_ = last->in_place;
    return to_all({kind::placed, {placed_}, {}});
  }
  replies break_off(hub_word why) { return std::exchange(broken_, true) ? replies() : to_all(std::move(why)); }

  std::vector<seat> seats_;
  rank_t living_, arrived_ = 0;
  kind round_ = kind::proposal;
  agreement so_far_;
  index_t placed_ = 0;
  bool broken_ = false;
};

/// What one device has heard from the hub.
class hub_end {
 public:
  friend bool operator==(const hub_end&, const hub_end&) = default;

  void on_word(const hub_word& word) {
    using kind = hub_word::kind;
    switch (word.what) {
      case kind::agreement:
        agreed_ = {word.numbers[0], static_cast<std::uint64_t>(word.numbers[1]), word.numbers[2], word.text};
        ++answers_;
        return;
      case kind::texts: ++answers_, unpack(word.text); return;
      case kind::placed: placed_ = word.numbers[0]; return;
      case kind::given_up:
      case kind::outcast:
        outcast_ = outcast_ || word.what == kind::outcast;
        if (word.what == kind::given_up && word.numbers[0] >= 0) left_ = word.numbers[0];
        if (!std::exchange(broken_, true)) why_ = word.text;
        return;
      default: return;  // said to the hub
    }
  }
  /// This device knows by itself that the world is over.
  void break_off(const std::string& sentence) { on_word({hub_word::kind::given_up, {-1}, sentence}); }

  /// How many agreements and gatherings are over; the last ones' results.
  std::uint64_t answers() const { return answers_; }
  const agreement& agreed() const { return agreed_; }
  const std::vector<std::string>& texts() const { return texts_; }
  /// Stages that all have in place.
  index_t placed() const { return placed_; }
  bool broken() const { return broken_; }
  /// Whether the others gave this device up.
  bool outcast() const { return outcast_; }
  /// The device that left, so that the world is over, as far as one is told of; or -1.
  rank_t left() const { return left_; }
  const std::string& why() const { return why_; }
  /// Throws peer_failed, with the sentence, once the world is over.
  void require_whole() const {
    if (broken_) throw peer_failed(why_);
  }

 private:
  void unpack(std::string_view all) {
    texts_.clear();
    for (std::uint64_t bytes = 0; all.size() >= sizeof bytes;) {
      std::memcpy(&bytes, all.data(), sizeof bytes);
      all.remove_prefix(sizeof bytes);
      texts_.emplace_back(all.substr(0, bytes));
      all.remove_prefix(std::min<std::size_t>(all.size(), bytes));
    }
  }

  std::uint64_t answers_ = 0;
  agreement agreed_;
  std::vector<std::string> texts_;
  index_t placed_ = 0;
  bool broken_ = false, outcast_ = false;
  rank_t left_ = -1;
  std::string why_;
};

}  // namespace reshard
