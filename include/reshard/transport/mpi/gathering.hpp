// SPDX-License-Identifier: Apache-2.0
// Some of a communicator's processes gather before they make something that only all of them can: the calls of MPI for
// that have no end where one does not come.
// Builds on: transport/mpi/words.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/mpi/words.hpp>

namespace reshard {

namespace detail {

/// What is said about a gathering, to the first of its members and by it: a member is here; it is not any more; is it
/// sure; it is, and waits for what follows whatever comes; all go on; nobody does. `call`: which of the calls of the
/// member, by which alone it knows what it is told.
struct gathering_word {
  enum class kind : std::int64_t { here, gone, sure, yes, go, off };
  kind what = kind::here;
  std::int64_t call = 0, number = 0;
  std::vector<rank_t> members = {};
  rank_t from = 0;

  bool from_first() const { return what == kind::sure || what == kind::go || what == kind::off; }
  std::string body() const {
    std::vector<std::int64_t> all = {static_cast<std::int64_t>(what), call, number};
    all.insert(all.end(), members.begin(), members.end());
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(std::int64_t));
  }
  static gathering_word of(const mpi_word& came) {
    const std::size_t count = came.body.size() / sizeof(std::int64_t);
    std::vector<std::int64_t> all(std::max<std::size_t>(3, count));
    std::memcpy(all.data(), came.body.data(), count * sizeof(std::int64_t));
    return {static_cast<kind>(all[0]), all[1], all[2], {all.begin() + 3, all.end()}, came.from};
  }
};

}  // namespace detail

/// One process's end of gatherings over a communicator, which outlives it. One thread at a time uses it.
class mpi_gathering {
  using clock = std::chrono::steady_clock;
  using word = detail::gathering_word;
  using kind = word::kind;
  using ranks = std::vector<rank_t>;

 public:
  mpi_gathering(const mpi_communicator& over, int tag, patience wait) : own_(&over), words_(over, tag), wait_(wait) {}
  mpi_gathering(const mpi_gathering&) = delete;
  mpi_gathering& operator=(const mpi_gathering&) = delete;

  /// Called by all of `members`, this process among them, each with the number of what they made the last time, 0 for
  /// none. Returns once all are here; on all alike that number, where each has the same one, or else a new one.
  /// peer_missing where not all come: on the first within twice the patience, on others within twice that and a second.
  /// peer_failed where `stop` is requested before all were. Who failed once may be met anew.
  std::int64_t meet(const ranks& members, std::int64_t has, const std::stop_token& stop) {
    return own_->device() == members.front() ? lead(members, has, stop) : follow(members, has, stop);
  }
  /// Gives what was said last a moment to go; whether all is heard, as far as is known here, and MPI uses nothing more.
  bool ends() {
    const auto end = clock::now() + std::min<clock::duration>(wait_, std::chrono::seconds(1));
    for (detail::mpi_pause pause; !words_.all_sent() && clock::now() < end; pause.again()) words_.settle();
    for (int in_vain = 0; in_vain < 32; ++in_vain) failed_ = hear() || failed_;  // of one that it has not come to
    return !failed_ && heard_.empty() && !words_.busy();
  }

 private:
  std::int64_t lead(const ranks& members, std::int64_t has, const std::stop_token& stop) {
    std::map<rank_t, word> here;  // what each said last of the call that it is in
    const auto hears = [&] {
      for (const word& w : heard_) {
        if (w.members != members) continue;
        const auto known = here.find(w.from);
        if (w.what == kind::gone) here.erase(w.from);
        else if (w.what == kind::here || (known != here.end() && known->second.call == w.call)) here[w.from] = w;
      }
      std::erase_if(heard_, [&](const word& w) { return w.members == members; });
      return here.size() + 1 == members.size();
    };
    // One may go before it is asked, and what follows has no end without it.
    std::map<rank_t, std::int64_t> asked;
    const auto are_sure = [&] {
      bool all = true;
      for (const auto& [who, w] : here) {
        if (w.what == kind::yes) continue;
        all = false;
        if (std::exchange(asked[who], w.call) != w.call) tell(who, {kind::sure, w.call, 0, {}});
      }
      return all;
    };
    const auto answer = [&](kind what, std::int64_t number) {
      for (const auto& [who, w] : here) tell(who, {what, w.call, number, {}});
    };
    leads_ = members;
    try {
      if (wait(wait_, stop, hears) && wait(wait_, {}, [&] { return !hears() || are_sure(); }) &&
          here.size() + 1 == members.size()) {
        bool same = has > 0;
        for (const auto& [who, w] : here) same = same && w.number == has;
        const std::int64_t number = same ? has : ++numbers_;
        leads_.clear();
        answer(kind::go, number);
        return number;
      }
    } catch (const std::exception&) {
      failed_ = true;
      if (!std::exchange(leads_, {}).empty()) answer(kind::off, 0);  // else all or some go on
      throw;
    }
    leads_.clear();
    answer(kind::off, 0);
    ranks absent;
    const bool all_here = here.size() + 1 == members.size();
    for (const rank_t p : members)
      if (p != own_->device() && (!here.contains(p) || (all_here && here[p].what != kind::yes))) absent.push_back(p);
    in_vain(members, absent, stop);
  }
  std::int64_t follow(const ranks& members, std::int64_t has, const std::stop_token& stop) {
    const rank_t first = members.front();
    const std::int64_t mine = ++calls_;
    std::erase_if(heard_, [&](const word& w) { return w.from_first() && w.call < mine; });  // they came too late
    const auto told = [&] {
      return std::find_if(heard_.begin(), heard_.end(),
                          [&](const word& w) { return w.from == first && w.call == mine && w.from_first(); });
    };
    const auto is_told = [&] { return told() != heard_.end(); };
    const auto taken = [&] {
      const word last = *told();
      heard_.erase(told());
      return last;
    };
    tell(first, {kind::here, mine, has, members});
    if (!wait(2 * wait_ + std::chrono::seconds(1), stop, is_told)) {
      tell(first, {kind::gone, mine, has, members});
      in_vain(members, {first}, stop);
    }
    word last = taken();
    if (last.what == kind::sure) {
      tell(first, {kind::yes, mine, has, members});
      wait({}, {}, is_told);  // the first says what follows, whoever comes or not; one that dies takes the job along
      last = taken();
    }
    if (last.what == kind::go) return last.number;
    failed_ = true;
    throw peer_missing(detail::text_of("reshard: process ", first, " gave up making a group"));
  }
  [[noreturn]] void in_vain(const ranks& members, const ranks& absent, const std::stop_token& stop) {
    failed_ = true;
    if (stop.stop_requested())
      throw peer_failed(detail::text_of("reshard: process ", own_->device(), " makes a group of ", members.size(),
                                        " no more: nobody wants it"));
    std::string who;
    for (const rank_t p : absent) who += detail::text_of(who.empty() ? "" : ", ", p);
    throw peer_missing(detail::text_of("reshard: process ", own_->device(), " waited in vain for these processes to ",
                                       "make a group of ", members.size(), ": ", who));
  }

  /// Until it is so; whether it came to be before the limit, where there is one, and before somebody stopped it.
  template <typename What>
  bool wait(std::optional<patience> limit, const std::stop_token& stop, What&& what) {
    const auto end = clock::now() + limit.value_or(patience(0));
    for (detail::mpi_pause pause;; pause.again()) {
      for (int in_vain = 0; in_vain < 32;) in_vain = hear() ? 0 : in_vain + 1;  // a look may miss what is there
      if (what()) return true;
      if (stop.stop_requested() || (limit && clock::now() >= end)) return false;
    }
  }
  bool hear() {
    words_.settle();
    const std::optional<mpi_word> came = words_.hear();
    if (!came) return false;
    const word said = word::of(*came);
    const bool awaited = !leads_.empty() && leads_ == said.members;
    if (said.what == kind::here || said.from_first() || awaited) heard_.push_back(said);
    else  // who went before anybody led was never here, and who is sure comes too late
      std::erase_if(heard_,
                    [&](const word& w) { return w.from == said.from && w.call == said.call && !w.from_first(); });
    return true;
  }
  void tell(rank_t whom, const word& what) { words_.send(what.body(), {whom}); }

  const mpi_communicator* own_;
  mpi_words words_;
  patience wait_;
  std::int64_t calls_ = 0, numbers_ = 0;  // as one that follows; of what was made where it led
  bool failed_ = false;                   // words about a gathering that came to nothing may be on their way for ever
  ranks leads_;                           // the gathering that it leads, while nobody was told what follows
  std::vector<word> heard_;               // of gatherings that it has not come to, too
};

}  // namespace reshard
