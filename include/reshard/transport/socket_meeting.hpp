// SPDX-License-Identifier: Apache-2.0
// The meeting of processes over TCP: the lowest device that has an address keeps the hub, to which the others are
// connected. Words go as frames, and beats between them: the end of a connection is death, silence beyond the patience
// is being given up.
// Builds on: transport/hub.hpp, transport/meeting.hpp, transport/sockets/frames.hpp, transport/sockets/parting.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include <reshard/transport/hub.hpp>
#include <reshard/transport/meeting.hpp>
#include <reshard/transport/sockets/frames.hpp>
#include <reshard/transport/sockets/parting.hpp>

namespace reshard {

/// One process's end of a meeting over TCP.
class socket_meeting {
  using clock = std::chrono::steady_clock;
  using kind = hub_word::kind;
  static constexpr std::uint32_t beat = 0;  // a frame that is no word

 public:
  /// Address d is device d's, where `listening` listens for this one; empty where there is no such device (any more).
  /// Returns once all have come; peer_missing names who has not when the patience ends.
  socket_meeting(rank_t device, const std::vector<std::string>& addresses, listening_socket listening, patience wait)
      : device_(device), devices_(static_cast<rank_t>(addresses.size())), absent_(without_address(addresses)),
        wait_(wait), addresses_(addresses), door_(std::move(listening), devices_), links_(addresses.size()),
        heard_(addresses.size(), clock::now()), middle_(devices_, absent_) {
    if (device < 0 || device >= devices_) refuse("there is no device ", device, " among ", devices_, " addresses");
    if (address(device).empty()) refuse("device ", device, " is one of those without an address, which are gone");
    while (address(hub_).empty()) ++hub_;
    if (is_hub()) receive_all();
    else call_hub();
    agree({});  // nobody begins before all have come
  }
  socket_meeting(const socket_meeting&) = delete;
  socket_meeting& operator=(const socket_meeting&) = delete;
  ~socket_meeting() {
    say({kind::bye});
    for (framed_link& link : links_)
      if (link.open()) link.flush(), link.finish();
    const auto end = clock::now() + std::min<clock::duration>(wait_, std::chrono::seconds(1));
    while (is_hub() && clock::now() < end) {  // a connection that is closed on unread bytes takes back what it said
      bool open = false;
      for (framed_link& link : links_) {
        while (link.next()) {
        }
        open = open || link.open();
      }
      if (!open) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  rank_t device() const { return device_; }
  rank_t devices() const { return devices_; }
  /// For messages and confirmations: who is silent is found out by the hub before that.
  patience waits() const { return 2 * wait_ + std::chrono::seconds(1); }
  const std::string& address(rank_t device) const { return addresses_[static_cast<std::size_t>(device)]; }
  rank_t hub() const { return hub_; }
  patience of_one() const { return wait_; }
  /// Devices without an address.
  std::vector<rank_t> absent() const { return absent_; }
  socket_door& door() { return door_; }

  agreement agree(const proposal& mine) { return answer(hub_word::of(mine)).agreed(); }
  std::vector<std::string> gather(const std::string& mine) { return answer({kind::text, {}, mine}).texts(); }
  void confirm(index_t stages) {
    require_whole();
    say({kind::confirmation, {stages}, {}});
  }
  bool in_place(index_t stages) const { return end_.placed() >= stages; }
  /// The hub knows them all; the others wait for its word.
  std::vector<rank_t> behind(index_t stages) const {
    return is_hub() ? middle_.behind(stages) : std::vector<rank_t>{hub_};
  }
  void require_whole() const { end_.require_whole(); }
  void give_up(const std::string& sentence) { say({kind::given_up, {-1}, sentence}); }
  /// Nobody reads another process's memory.
  void fail(const std::string& sentence) { give_up(sentence); }

  /// What those who are left know after a switch broke off, this one telling whether it has everything; nothing of
  /// them where they gave this one up. The world is over.
  parting part(bool has_all) {
    break_off(detail::text_of("reshard: device ", device_, " has left a switch that broke off"));
    for (rank_t d = 0; d < devices_; ++d)  // what came before, it may be that all is in place
      while (const std::optional<socket_frame> frame = link(d).next()) take(d, *frame);
    if (end_.outcast()) return {end_.placed(), has_all, {}};
    socket_parting among(device_, addresses_, door_, wait_);
    return among.agree(end_.placed(), has_all, [this](rank_t d) {
      if (std::find(gone_.begin(), gone_.end(), d) != gone_.end()) return true;
      framed_link& l = link(d);
      while (l.next()) {
      }
      return l.number() >= 0 && !l.open();
    });
  }

  /// Hears and says what there is to hear and say.
  void poll() {
    const auto now = clock::now();
    if (now - polled_ > wait_ / 2) std::fill(heard_.begin(), heard_.end(), now);  // it was away itself
    polled_ = now;
    for (rank_t d = 0; d < devices_; ++d) hear(d, now);
    if (now - beaten_ > wait_ / 8) {
      beaten_ = now;
      for (framed_link& link : links_)
        if (link.open()) link.post(beat, {});
    }
    for (framed_link& link : links_) link.flush();
  }
  /// What to wait for.
  void add_to(std::vector<pollfd>& all) const {
    for (const framed_link& link : links_)
      if (link.open()) all.push_back({link.number(), static_cast<short>(link.unsent() ? POLLIN | POLLOUT : POLLIN), 0});
  }

 private:
  static std::vector<rank_t> without_address(const std::vector<std::string>& addresses) {
    std::vector<rank_t> result;
    for (std::size_t d = 0; d < addresses.size(); ++d)
      if (addresses[d].empty()) result.push_back(static_cast<rank_t>(d));
    return result;
  }
  bool is_hub() const { return device_ == hub_; }
  bool lives(rank_t d) const { return !address(d).empty(); }
  framed_link& link(rank_t d) { return links_[static_cast<std::size_t>(d)]; }

  void receive_all() {
    const auto end = clock::now() + wait_;
    for (std::string absent;; absent.clear()) {
      door_.poll();
      for (rank_t d = hub_ + 1; d < devices_; ++d) {
        if (!lives(d)) continue;
        if (!link(d).open()) link(d) = framed_link(door_.fetch(d, socket_hello::purpose::meeting));
        if (!link(d).open()) absent += detail::text_of(absent.empty() ? "" : ", ", d);
      }
      if (absent.empty()) return;
      if (clock::now() > end) {
        const std::string sentence = detail::text_of("reshard: device ", hub_, " waited ", wait_.count(),
                                                     " ms in vain for these devices to come: ", absent);
        break_off(sentence);
        throw peer_missing(sentence);
      }
      keep_alive();
      pollfd door{door_.number(), POLLIN, 0};
      ::poll(&door, 1, 5);
    }
  }
  void keep_alive() {
    if (clock::now() - beaten_ < wait_ / 8) return;
    beaten_ = clock::now();
    for (framed_link& l : links_)
      if (l.open()) l.post(beat, {});
  }
  void call_hub() {
    const auto end = clock::now() + wait_;
    owned_descriptor made;
    while (true) {  // a call that is lost is made again each second
      const auto left = std::chrono::duration_cast<patience>(end - clock::now());
      made = call_address(address(hub_), std::clamp(left, patience(1), patience(1000)));
      if (made.open()) break;
      if (clock::now() > end)
        throw peer_missing(detail::text_of("reshard: device ", device_, " waited ", wait_.count(),
                                           " ms in vain for device ", hub_, ", the hub, at ", address(hub_)));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const socket_hello hello{.what = socket_hello::purpose::meeting, .from = device_, .devices = devices_};
    send_some(made.number(), reinterpret_cast<const std::byte*>(&hello), sizeof hello);
    link(hub_) = framed_link(std::move(made));
  }

  /// Says a word to the hub, which may be this device.
  void say(const hub_word& word) {
    if (is_hub()) carry(middle_.on_word(hub_, word));
    else post(link(hub_), word);
  }
  /// Brings what the hub says to whom it is for.
  void carry(const reshard::hub::replies& said) {
    for (const reshard::hub::reply& r : said)
      for (rank_t d = 0; d < devices_; ++d) {
        if (r.to != reshard::hub::everyone && r.to != d) continue;
        if (d == device_) end_.on_word(r.says);
        else if (link(d).open()) post(link(d), r.says);
      }
  }
  static void post(framed_link& to, const hub_word& word) {
    std::string body;
    word.append_to(body);
    to.post(static_cast<std::uint32_t>(word.what), body);
  }
  /// Says a word and waits for the hub's answer to all.
  const hub_end& answer(const hub_word& mine) {
    require_whole();
    const std::uint64_t before = end_.answers();
    say(mine);
    until([&] { return end_.answers() != before; });
    return end_;
  }
  template <typename What>
  void until(What&& what) {
    std::vector<pollfd> waiting;
    for (poll(); !what(); poll()) {
      require_whole();
      waiting.clear();
      add_to(waiting);
      ::poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp<std::int64_t>(wait_.count() / 16, 1, 200)));
    }
  }

  void hear(rank_t d, clock::time_point now) {
    framed_link& from = link(d);
    if (from.number() < 0) return;
    const std::uint64_t before = from.received();
    while (std::optional<socket_frame> frame = from.next()) take(d, *frame);
    if (from.received() != before) heard_[static_cast<std::size_t>(d)] = now;  // a long frame is no silence
    if (end_.broken()) return;
    if (!from.open()) {
      gone_.push_back(d);
      lose(d, detail::text_of("reshard: device ", d, " is gone: its connection ended"));
    } else if (now - heard_[static_cast<std::size_t>(d)] > wait_) {
      const std::string sentence =
          detail::text_of("reshard: device ", d, " was given up: it has said nothing for ", wait_.count(), " ms");
      gone_.push_back(d);
      lose(d, sentence);  // it hears so when it wakes
    }
  }
  void lose(rank_t d, const std::string& sentence) {
    if (is_hub()) return carry(middle_.on_gone(d, sentence));
    end_.break_off(sentence);
    post(link(d), {kind::outcast, {}, sentence});
  }

  void take(rank_t d, const socket_frame& frame) {
    const int numbers = hub_word::numbers_of(frame.kind);
    if (numbers < 0) return;  // it lives
    const std::size_t least = static_cast<std::size_t>(numbers) * sizeof(std::int64_t);
    if (frame.body.size() < least)
      return break_off(detail::text_of("reshard: device ", d, " speaks of another build: ", frame.body.size(),
                                       " bytes where ", least, " are the least"));
    hub_word word = hub_word::of(frame.kind, frame.body);
    if (!is_hub() || word.what == kind::outcast) end_.on_word(word);
    if (word.what == kind::outcast) break_off(word.text);
    else if (is_hub()) carry(middle_.on_word(d, std::move(word)));
  }

  /// This world is over, and who is connected hears why.
  void break_off(const std::string& sentence) {
    if (is_hub()) say({kind::given_up, {-1}, sentence});
    else end_.break_off(sentence);
  }

  rank_t device_, devices_, hub_ = 0;
  std::vector<rank_t> absent_;
  patience wait_;
  std::vector<std::string> addresses_;
  socket_door door_;
  std::vector<framed_link> links_;  // to the hub; or of the hub, to all others
  std::vector<clock::time_point> heard_;
  clock::time_point polled_ = clock::now(), beaten_ = clock::now();
  reshard::hub middle_;  // where this device keeps it
  hub_end end_;
  std::vector<rank_t> gone_;
};
static_assert(SurvivingMeeting<socket_meeting>);

}  // namespace reshard
