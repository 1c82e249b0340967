// SPDX-License-Identifier: Apache-2.0
// The hub by itself: every order in which words of 3 devices can be said, heard by the hub and heard by devices, one of
// which may refuse, give up, leave, die or fall silent at any point. Each device ends with the answers that a fold by
// hand gives, or with the one sentence that broke the world; none waits for ever.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reshard/transport/hub.hpp>

using namespace reshard;
using kind = hub_word::kind;

namespace {

enum class fault { none, gives_up, leaves, dies, is_silent };

/// What a device says in each step of its life; after it, it leaves.
struct life {
  std::vector<hub_word> says;
};

/// A device as a carrier runs it, with the words that are on their way from it and to it.
struct device {
  std::size_t step = 0;
  bool waits = false, gave_up = false;
  enum class state { lives, done, failed, away } is = state::lives;
  hub_end heard;
  std::uint64_t answers = 0;  // before what it waits for
  std::vector<hub_word> out, in;
  bool lost = false;  // the hub has been told so

  friend bool operator==(const device&, const device&) = default;
};

struct moment {
  hub middle;
  std::vector<device> all;
  bool broke = false;              // the fault has occurred
  std::vector<index_t> confirmed;  // as the hub has heard
  std::string over;                // the first sentence that the hub had to hear
  bool told = false;

  friend bool operator==(const moment&, const moment&) = default;
};

/// Every state that can be reached, by trying each next event in each state.
class exploration {
 public:
  std::size_t states = 0, ends = 0, wrong = 0, whole = 0, broken = 0;
  std::string first_wrong;

  /// numbers: the devices that take part, of `of`.
  exploration(std::vector<rank_t> numbers, rank_t of, std::vector<life> lives, fault what, std::size_t who)
      : numbers_(std::move(numbers)), lives_(std::move(lives)), what_(what), who_(who), count_(of) {
    std::vector<rank_t> absent;
    for (rank_t d = 0; d < of; ++d)
      if (std::find(numbers_.begin(), numbers_.end(), d) == numbers_.end()) absent.push_back(d);
    moment begin{hub(of, absent), std::vector<device>(numbers_.size()), false, std::vector<index_t>(numbers_.size(), 0),
                 ""};
    reach(std::move(begin));
    while (!left_.empty() && wrong == 0) {
      const moment now = std::move(left_.back());
      left_.pop_back();
      const std::size_t before = tried_;
      each_event(now);
      if (tried_ == before) check_end(now);
    }
  }

 private:
  void blame(const std::string& what) {
    if (wrong++ == 0) first_wrong = what;
  }
  /// What tells states apart cheaply; those that it does not are compared whole.
  static std::string key_of(const moment& m) {
    std::string key = std::to_string(m.broke) + m.over;
    for (const device& d : m.all) {
      key += {'/',
              static_cast<char>('a' + d.step),
              d.waits ? 'w' : 'g',
              static_cast<char>('a' + static_cast<int>(d.is)),
              d.heard.broken() ? 'b' : 'w',
              static_cast<char>('a' + d.heard.placed())};
      for (const hub_word& w : d.in) key += static_cast<char>('a' + static_cast<int>(w.what));
      key.append(d.out.size(), '.');
    }
    return key;
  }
  void reach(moment m) {
    ++tried_;
    std::vector<moment>& alike = known_[key_of(m)];
    if (std::find(alike.begin(), alike.end(), m) != alike.end()) return;
    ++states;
    alike.push_back(m);
    left_.push_back(std::move(m));
  }

  void each_event(const moment& now) {
    for (std::size_t i = 0; i < now.all.size(); ++i) {
      const device& d = now.all[i];
      if (d.is == device::state::lives && !d.waits) act(now, i);
      if (!d.out.empty()) hub_hears(now, i);
      if (!d.in.empty() && d.is == device::state::lives) device_hears(now, i);
      if (d.is == device::state::away && d.out.empty() && !d.lost && what_ == fault::dies) hub_loses(now, i);
    }
    if (!now.broke && what_ != fault::none && now.all[who_].is == device::state::lives) break_it(now);
  }
  void act(moment m, std::size_t i) {
    device& d = m.all[i];
    const life& mine = lives_[i];
    if (d.step == mine.says.size()) {
      d.out.push_back({kind::bye});
      d.is = device::state::done;
    } else if (d.heard.broken()) {
      d.is = device::state::failed;
    } else {
      d.out.push_back(mine.says[d.step]);
      d.waits = mine.says[d.step].what != kind::confirmation;
      d.answers = d.heard.answers();
      if (!d.waits) ++d.step;
    }
    reach(std::move(m));
  }
  void hub_hears(moment m, std::size_t i) {
    const hub_word word = m.all[i].out.front();
    m.all[i].out.erase(m.all[i].out.begin());
    if (m.over.empty() && word.what == kind::given_up) m.over = word.text;
    if (m.over.empty() && word.what == kind::bye)
      m.over = "reshard: device " + std::to_string(numbers_[i]) + " has left; a world serves one run";
    if (word.what == kind::confirmation) m.confirmed[i] = word.numbers[0];
    carry(m, m.middle.on_word(numbers_[i], word));
    reach(std::move(m));
  }
  void hub_loses(moment m, std::size_t i) {
    m.all[i].lost = true;
    if (m.over.empty()) m.over = "gone";
    carry(m, m.middle.on_gone(numbers_[i], "gone"));
    reach(std::move(m));
  }
  void carry(moment& m, const hub::replies& said) {
    for (const hub::reply& r : said) {
      if (r.says.what == kind::given_up && std::exchange(m.told, true)) blame("an end is told twice");
      for (std::size_t i = 0; i < numbers_.size(); ++i)
        if ((r.to == hub::everyone || r.to == numbers_[i]) && m.all[i].is == device::state::lives)
          m.all[i].in.push_back(r.says);
    }
    if (m.middle.broken() != !m.over.empty()) blame("the hub is broken without a reason, or goes on without one");
  }
  void device_hears(moment m, std::size_t i) {
    device& d = m.all[i];
    d.heard.on_word(d.in.front());
    d.in.erase(d.in.begin());
    for (std::size_t other = 0; other < m.all.size(); ++other)
      if (d.heard.placed() > said_by(m.all[other], other)) blame("stages are called in place that are not");
    if (d.gave_up) {
      if (d.heard.broken()) d.is = device::state::failed;
    } else if (d.waits && d.heard.answers() != d.answers) {
      check_answer(m, i);
      d.waits = false;
      ++d.step;
    } else if (d.heard.answers() != d.answers) {
      blame("an answer that nobody waits for");
    } else if (d.waits && d.heard.broken()) {
      d.waits = false;
    }
    if (!d.waits) d.answers = d.heard.answers();
    reach(std::move(m));
  }
  /// The most stages that a device has confirmed by its step.
  index_t said_by(const device& d, std::size_t i) const {
    index_t most = 0;
    for (std::size_t step = 0; step < d.step; ++step)
      if (lives_[i].says[step].what == kind::confirmation) most = lives_[i].says[step].numbers[0];
    return most;
  }
  void check_answer(const moment& m, std::size_t i) {
    const device& d = m.all[i];
    for (const device& other : m.all)
      if (other.step < d.step ||
          (other.step == d.step && !other.waits && other.is == device::state::lives && !other.heard.broken()))
        blame("an answer before all have come");
    if (lives_[i].says[d.step].what == kind::text) {
      std::vector<std::string> texts(static_cast<std::size_t>(count_));
      for (std::size_t other = 0; other < m.all.size(); ++other)
        texts[static_cast<std::size_t>(numbers_[other])] = lives_[other].says[d.step].text;
      if (d.heard.texts() != texts) blame("other texts than were said");
      return;
    }
    agreement by_hand{lives_[0].says[d.step].numbers[0]};
    for (std::size_t other = m.all.size(); other-- > 0;) {
      const hub_word& p = lives_[other].says[d.step];
      by_hand.largest = std::max(by_hand.largest, p.numbers[0]);
      by_hand.sum += static_cast<std::uint64_t>(p.numbers[1]);
      if (!p.text.empty()) by_hand.refuser = numbers_[other], by_hand.sentence = p.text;
    }
    if (!(d.heard.agreed() == by_hand)) blame("another agreement than a fold by hand");
  }
  void break_it(const moment& now) {
    moment m = now;
    m.broke = true;
    device& d = m.all[who_];
    switch (what_) {
      case fault::none: return;
      case fault::gives_up:
        if (d.heard.broken()) return;  // it knows already
        d.out.push_back({kind::given_up, {-1}, "enough"});
        d.waits = d.gave_up = true;  // until it hears why, which need not be its own sentence
        return reach(std::move(m));
      case fault::leaves:
        d.out.push_back({kind::bye});
        d.is = device::state::away;
        return reach(std::move(m));
      case fault::dies:
        d.is = device::state::away;
        for (;; m.all[who_].out.pop_back()) {  // so many of its words still come
          reach(m);
          if (m.all[who_].out.empty()) return;
        }
      case fault::is_silent:
        if (m.over.empty()) m.over = "gone";
        carry(m, m.middle.on_gone(numbers_[who_], "gone"));
        return reach(std::move(m));
    }
  }
  void check_end(const moment& m) {
    ++ends;
    bool some_failed = false;
    index_t least = std::numeric_limits<index_t>::max();
    for (const index_t stages : m.confirmed) least = std::min(least, stages);
    for (std::size_t i = 0; i < m.all.size(); ++i) {
      const device& d = m.all[i];
      if (d.is == device::state::lives) blame("a device waits for ever");
      if (d.is != device::state::failed) continue;
      some_failed = true;
      if (d.heard.why() != m.over) blame("another sentence than the first: " + d.heard.why());
      if (d.heard.outcast() != (what_ == fault::is_silent && i == who_ && m.over == "gone"))
        blame("the wrong one was given up");
    }
    (some_failed ? broken : whole) += 1;
    if (what_ == fault::none && some_failed) blame("a world without fault breaks");
    for (const rank_t d : m.middle.behind(least + 1))
      if (m.confirmed[static_cast<std::size_t>(std::find(numbers_.begin(), numbers_.end(), d) - numbers_.begin())] >
          least)
        blame("one is behind that is not");
    if (m.middle.behind(least).size() != 0) blame("nobody is behind the least");
  }

  std::vector<rank_t> numbers_;
  std::vector<life> lives_;
  fault what_;
  std::size_t who_;
  rank_t count_;
  std::vector<moment> left_;
  std::unordered_map<std::string, std::vector<moment>> known_;
  std::size_t tried_ = 0;
};

/// Three lives that agree, gather, confirm and agree, of which those in `refusing` refuse once.
std::vector<life> three_lives(unsigned refusing) {
  std::vector<life> all;
  for (int d = 0; d < 3; ++d) {
    const auto word = [&](const proposal& p) { return hub_word::of(p); };
    const std::string no = (refusing >> d & 1) != 0 ? "no " + std::to_string(d) : "";
    const std::uint64_t addend = ~std::uint64_t{0} - static_cast<std::uint64_t>(d);
    all.push_back({{word({7 - d % 2 * 3 + d, addend, no}),
                    {kind::text, {}, std::string(static_cast<std::size_t>(d) * 9, static_cast<char>('a' + d))},
                    {kind::confirmation, {2 + d % 2}, {}},
                    word({-5 + d % 2, 1, {}})}});
  }
  return all;
}

}  // namespace

TEST_CASE("every order of words of 3 devices ends, with the answers of a fold by hand or with one sentence on all") {
  std::size_t states = 0, ends = 0, whole = 0, broken = 0;
  for (const fault what : {fault::none, fault::gives_up, fault::leaves, fault::dies, fault::is_silent})
    for (std::size_t who = 0; who < (what == fault::none ? 1 : 3); ++who)
      for (unsigned refusing = 0; refusing < (what == fault::none ? 8 : 1); ++refusing) {
        const bool one_absent = (who + refusing) % 2 == 1;
        CAPTURE(static_cast<int>(what));
        CAPTURE(who);
        CAPTURE(refusing);
        CAPTURE(one_absent);
        const exploration tried(one_absent ? std::vector<rank_t>{0, 2, 3} : std::vector<rank_t>{0, 1, 2},
                                one_absent ? 4 : 3, three_lives(refusing), what, who);
        CHECK(tried.wrong == 0);
        CHECK(tried.first_wrong == "");
        CHECK(tried.ends > 0);
        CHECK((tried.broken > 0) == (what != fault::none));
        CHECK(tried.whole > 0);  // a fault may come when nobody minds it any more
        states += tried.states, ends += tried.ends, whole += tried.whole, broken += tried.broken;
      }
  MESSAGE(states, " states reached, ", ends, " ends: ", whole, " in good order, ", broken, " by a sentence");
}
