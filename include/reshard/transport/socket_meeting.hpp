// SPDX-License-Identifier: Apache-2.0
// The meeting of processes over TCP: the lowest device that has an address is the hub, to which the others are
// connected. It adds up what they propose, counts what is in place, and tells all of them who is gone: the end of a
// connection is death, silence beyond the patience is being given up.
// Builds on: transport/meeting.hpp, transport/sockets/frames.hpp, transport/sockets/parting.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include <reshard/transport/meeting.hpp>
#include <reshard/transport/sockets/frames.hpp>
#include <reshard/transport/sockets/parting.hpp>

namespace reshard {

/// One process's end of a meeting over TCP.
class socket_meeting {
  using clock = std::chrono::steady_clock;
  enum kind : std::uint32_t { proposed = 1, agreed, text, texts, confirmed, placed, beat, given_up, bye, outcast };

 public:
  /// Address d is device d's, where `listening` listens for this one; empty where there is no such device (any more).
  /// Returns once all have come; peer_missing names who has not when the patience ends.
  socket_meeting(rank_t device, const std::vector<std::string>& addresses, listening_socket listening, patience wait)
      : device_(device), devices_(static_cast<rank_t>(addresses.size())), wait_(wait), addresses_(addresses),
        door_(std::move(listening), devices_), links_(addresses.size()), heard_(addresses.size(), clock::now()),
        in_place_(addresses.size(), 0), said_(addresses.size()), told_(addresses.size(), false) {
    if (device < 0 || device >= devices_) refuse("there is no device ", device, " among ", devices_, " addresses");
    if (address(device).empty()) refuse("device ", device, " is one of those without an address, which are gone");
    for (rank_t d = 0; d < devices_; ++d)
      if (address(d).empty()) absent_.push_back(d), in_place_[static_cast<std::size_t>(d)] = most_stages_in_place;
    while (address(hub_).empty()) ++hub_;
    if (is_hub()) receive_all();
    else call_hub();
    agree({});  // nobody begins before all have come
  }
  socket_meeting(const socket_meeting&) = delete;
  socket_meeting& operator=(const socket_meeting&) = delete;
  ~socket_meeting() {
    for (framed_link& link : links_)
      if (link.open()) link.post(bye, {}), link.flush(), link.finish();
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

  agreement agree(const proposal& mine) {
    std::array<std::int64_t, 2> numbers = {mine.number, static_cast<std::int64_t>(mine.addend)};
    std::string body(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
    say(proposed, body + mine.sentence);
    until([this] { return agreed_; });
    agreed_ = false;
    return result_;
  }
  std::vector<std::string> gather(const std::string& mine) {
    say(text, mine);
    until([this] { return gathered_; });
    gathered_ = false;
    return all_said_;
  }
  void confirm(index_t stages) { say(confirmed, {reinterpret_cast<const char*>(&stages), sizeof stages}); }
  bool in_place(index_t stages) const { return placed_ >= stages; }
  /// The hub knows them all; the others wait for its word.
  std::vector<rank_t> behind(index_t stages) const {
    if (!is_hub()) return {hub_};
    std::vector<rank_t> result;
    for (rank_t d = 0; d < devices_; ++d)
      if (in_place_[static_cast<std::size_t>(d)] < stages) result.push_back(d);
    return result;
  }
  void require_whole() const {
    if (!why_.empty()) throw peer_failed(why_);
  }
  void give_up(const std::string& sentence) {
    if (is_hub()) break_off(sentence);
    else link(hub_).post(given_up, sentence);
  }
  /// Nobody reads another process's memory.
  void fail(const std::string& sentence) { give_up(sentence); }

  /// What those who are left know after a switch broke off, this one telling whether it has everything; nothing of
  /// them where they gave this one up. The world is over.
  parting part(bool has_all) {
    break_off(detail::text_of("reshard: device ", device_, " has left a switch that broke off"));
    for (rank_t d = 0; d < devices_; ++d)  // what came before, it may be that all is in place
      while (const std::optional<socket_frame> frame = link(d).next()) take(d, *frame);
    if (outcast_) return {placed_, has_all, {}};
    socket_parting among(device_, addresses_, door_, wait_);
    return among.agree(placed_, has_all, [this](rank_t d) {
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
  static constexpr index_t most_stages_in_place = std::numeric_limits<index_t>::max();

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

  /// Says something to the hub, which may be this device.
  void say(std::uint32_t what, const std::string& body) {
    require_whole();
    if (is_hub()) take(hub_, {what, body});
    else link(hub_).post(what, body);
  }
  void tell_all(std::uint32_t what, const std::string& body) {
    for (framed_link& l : links_)
      if (l.open()) l.post(what, body);
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
    if (!why_.empty()) return;
    if (!from.open()) {
      gone_.push_back(d);
      break_off(detail::text_of("reshard: device ", d,
                                said_bye(d) ? " has left; a world serves one run" : " is gone: its connection ended"));
    } else if (now - heard_[static_cast<std::size_t>(d)] > wait_) {
      const std::string sentence =
          detail::text_of("reshard: device ", d, " was given up: it has said nothing for ", wait_.count(), " ms");
      from.post(outcast, sentence);  // for when it wakes
      gone_.push_back(d);
      break_off(sentence);
    }
  }
  bool said_bye(rank_t d) const { return std::find(byes_.begin(), byes_.end(), d) != byes_.end(); }

  /// The bytes that a frame has at least.
  static std::size_t least_bytes(std::uint32_t kind) {
    switch (kind) {
      case proposed: return 2 * sizeof(std::int64_t);
      case agreed: return 3 * sizeof(std::int64_t);
      case confirmed:
      case placed: return sizeof(index_t);
      default: return 0;
    }
  }
  void take(rank_t d, const socket_frame& frame) {
    if (frame.body.size() < least_bytes(frame.kind))
      return break_off(detail::text_of("reshard: device ", d, " speaks of another build: ", frame.body.size(),
                                       " bytes where ", least_bytes(frame.kind), " are the least"));
    if (!why_.empty() && (frame.kind == proposed || frame.kind == text)) return;  // some have heard that it is over
    switch (frame.kind) {
      case proposed: return take_proposal(d, frame.body);
      case agreed: return take_agreement(frame.body);
      case text: return take_text(d, frame.body);
      case texts: return take_texts(frame.body);
      case confirmed: return take_confirmation(d, frame.body);
      case placed: std::memcpy(&placed_, frame.body.data(), sizeof placed_); return;
      case outcast: outcast_ = true; return break_off(frame.body);
      case given_up: return break_off(frame.body);
      case bye: byes_.push_back(d); return;
      default: return;  // it lives
    }
  }
  void take_proposal(rank_t d, const std::string& body) {
    std::array<std::int64_t, 2> numbers = {};
    std::memcpy(numbers.data(), body.data(), sizeof numbers);
    so_far_.add(d, {numbers[0], static_cast<std::uint64_t>(numbers[1]), body.substr(sizeof numbers)}, arrived_ == 0);
    if (++arrived_ < devices_ - static_cast<rank_t>(absent_.size())) return;
    arrived_ = 0;
    result_ = so_far_;
    agreed_ = true;
    const std::array<std::int64_t, 3> all = {result_.largest, static_cast<std::int64_t>(result_.sum), result_.refuser};
    tell_all(agreed, std::string(reinterpret_cast<const char*>(all.data()), sizeof all) + result_.sentence);
  }
  void take_agreement(const std::string& body) {
    std::array<std::int64_t, 3> all = {};
    std::memcpy(all.data(), body.data(), sizeof all);
    result_ = {all[0], static_cast<std::uint64_t>(all[1]), all[2], body.substr(sizeof all)};
    agreed_ = true;
  }
  void take_text(rank_t d, const std::string& body) {
    said_[static_cast<std::size_t>(d)] = body;
    told_[static_cast<std::size_t>(d)] = true;
    for (rank_t other = 0; other < devices_; ++other)
      if (lives(other) && !told_[static_cast<std::size_t>(other)]) return;
    std::fill(told_.begin(), told_.end(), false);
    std::string all;
    for (const std::string& s : said_) {
      const std::uint64_t bytes = s.size();
      all.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(s);
    }
    tell_all(texts, all);
    all_said_ = said_;
    gathered_ = true;
  }
  void take_texts(const std::string& body) {
    all_said_.clear();
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= body.size();) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, body.data() + at, sizeof bytes);
      all_said_.push_back(body.substr(at + sizeof bytes, bytes));
      at += sizeof bytes + std::min<std::uint64_t>(bytes, body.size());
    }
    gathered_ = true;
  }
  void take_confirmation(rank_t d, const std::string& body) {
    std::memcpy(&in_place_[static_cast<std::size_t>(d)], body.data(), sizeof(index_t));
    const index_t least_of_all = *std::min_element(in_place_.begin(), in_place_.end());
    if (least_of_all == placed_) return;
    placed_ = least_of_all;
    tell_all(placed, {reinterpret_cast<const char*>(&placed_), sizeof placed_});
  }

  /// This world is over, and who is connected hears why.
  void break_off(const std::string& sentence) {
    if (!why_.empty()) return;
    why_ = sentence;
    if (is_hub()) tell_all(given_up, sentence);
  }

  rank_t device_, devices_, hub_ = 0;
  std::vector<rank_t> absent_;
  patience wait_;
  std::vector<std::string> addresses_;
  socket_door door_;
  std::vector<framed_link> links_;  // to the hub; or of the hub, to all others
  std::vector<clock::time_point> heard_;
  clock::time_point polled_ = clock::now(), beaten_ = clock::now();
  std::vector<index_t> in_place_;  // the hub's
  index_t placed_ = 0;
  agreement so_far_, result_;
  rank_t arrived_ = 0;
  bool agreed_ = false, gathered_ = false;
  std::vector<std::string> said_, all_said_;
  std::vector<bool> told_;
  std::vector<rank_t> byes_, gone_;
  std::string why_;
  bool outcast_ = false;  // the others gave this one up
};
static_assert(SurvivingMeeting<socket_meeting>);

}  // namespace reshard
