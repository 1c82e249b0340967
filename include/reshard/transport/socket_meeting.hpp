// SPDX-License-Identifier: Apache-2.0
// The meeting of processes over TCP: the lowest device that has an address keeps the hub, to which the others are
// connected. Words go as frames, and beats between them: the end of a connection is death, silence beyond the patience
// is being given up.
// Builds on: transport/hub.hpp, transport/meeting.hpp, transport/process_door.hpp, transport/sockets/frames.hpp,
// transport/sockets/parting.hpp, transport/transport_stop.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include <reshard/transport/hub.hpp>
#include <reshard/transport/meeting.hpp>
#include <reshard/transport/process_door.hpp>
#include <reshard/transport/sockets/frames.hpp>
#include <reshard/transport/sockets/parting.hpp>
#include <reshard/transport/transport_stop.hpp>

namespace reshard {

/// One process's end of a meeting over TCP.
class socket_meeting {
  using clock = std::chrono::steady_clock;
  using kind = hub_word::kind;
  static constexpr std::uint32_t beat = 0;  // a frame that is no word

 public:
  /// Address d is device d's, where `door` is for this one; empty where there is no such device (any more). `world` is
  /// a number that all give alike and no other world has: a digest of what makes it this one, attempts included.
  /// Returns once all have come; peer_missing names who has not when the patience ends. However it ends, the world is
  /// closed at the door then. From the moment that `stop` is requested, by any thread, what waits here, the making too,
  /// throws peer_failed with its sentence, which the others hear.
  socket_meeting(rank_t device, const std::vector<std::string>& addresses, std::shared_ptr<process_door> door,
                 std::uint64_t world, patience wait, transport_stop stop = {})
      : device_(device), devices_(static_cast<rank_t>(addresses.size())), absent_(without_address(addresses)),
        wait_(wait), addresses_(addresses), stop_(std::move(stop)), door_{std::move(door), world},
        links_(addresses.size()), heard_(addresses.size(), clock::now()), middle_(devices_, absent_) {
    if (device < 0 || device >= devices_) refuse("there is no device ", device, " among ", devices_, " addresses");
    if (address(device).empty()) refuse("device ", device, " is one of those without an address, which are gone");
    while (address(hub_).empty()) ++hub_;
    if (is_hub()) receive_all();
    else call_hub();
    agree({});  // nobody begins before all have come
  }
  /// Makes it at a door that outlives it.
  socket_meeting(rank_t device, const std::vector<std::string>& addresses, process_door& door, std::uint64_t world,
                 patience wait, transport_stop stop = {})
      : socket_meeting(device, addresses, std::shared_ptr<process_door>(std::shared_ptr<void>(), &door), world, wait,
                       std::move(stop)) {}
  /// Makes it at a door of its own, so that its number need not tell it from others.
  socket_meeting(rank_t device, const std::vector<std::string>& addresses, listening_socket listening, patience wait)
      : socket_meeting(device, addresses, std::make_shared<process_door>(std::move(listening)), 0, wait) {}
  socket_meeting(const socket_meeting&) = delete;
  socket_meeting& operator=(const socket_meeting&) = delete;
  ~socket_meeting() {
    say({kind::bye});
    const auto end = clock::now() + std::min<clock::duration>(wait_, std::chrono::seconds(1));
    // A connection that is closed on unread bytes takes back what is under way. Who was stopped owes nobody an answer.
    while (is_hub() && !stop_.requested() && clock::now() < end) {
      bool under_way = false;
      for (rank_t d = 0; d < devices_; ++d) {
        hear_frames(d, clock::now(), [](const socket_frame&) {});
        link(d).flush();
        under_way =
            under_way || (link(d).open() && !is_known_gone(d) && !is_silent(d, clock::now()) && !link(d).all_arrived());
      }
      if (!under_way) return;
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
  /// The number of a wire that is made over this meeting: on all the same, as all make them in one order.
  index_t next_wire() { return wires_++; }
  /// What a connection of this world begins with, and the one of a device that has called so, or nothing (yet).
  socket_hello hello(call_for what, index_t turn = 0) const {
    return {.what = what, .world = door_.world, .from = device_, .devices = devices_, .turn = turn};
  }
  owned_descriptor fetch(rank_t d, call_for what, index_t turn = 0) {
    return door_.of->fetch(what, door_.world, d, devices_, turn);
  }
  /// What polls as readable where somebody calls.
  int door_number() const { return door_.of->number(); }

  agreement agree(const proposal& mine) { return answer(hub_word::of(mine)).agreed(); }
  std::vector<std::string> gather(const std::string& mine) { return answer({kind::text, {}, mine}).texts(); }
  void confirm(index_t stages) {
    require_whole();
    say({kind::confirmation, {confirmed_ = stages}, {}});
  }
  index_t confirmed() const { return confirmed_; }
  bool in_place(index_t stages) const { return end_.placed() >= stages; }
  /// The hub knows them all; the others wait for its word.
  std::vector<rank_t> behind(index_t stages) const {
    return is_hub() ? middle_.behind(stages) : std::vector<rank_t>{hub_};
  }
  void require_whole() const { end_.require_whole(); }
  void give_up(const std::string& sentence) { say({kind::given_up, {-1}, sentence}); }
  /// Nobody reads another process's memory.
  void fail(const std::string& sentence) { give_up(sentence); }

  /// Ends what waits here, or will: it throws peer_failed with the sentence, and the others hear that this device has
  /// left. Called by any thread.
  void stop(const std::string& sentence) { stop_.request(sentence); }

  /// What those who are left know after a switch broke off, this one telling whether it has everything; nothing of
  /// them where they gave this one up, or it is stopped. The world is over.
  parting part(bool has_all) {
    hear_stop();
    break_off(detail::text_of("reshard: device ", device_, " has left a switch that broke off"));
    for (rank_t d = 0; d < devices_; ++d)  // what came before, it may be that all is in place
      while (const std::optional<socket_frame> frame = link(d).next()) take(d, *frame);
    if (end_.outcast() || stop_.requested()) return {end_.placed(), has_all, {}};
    socket_parting among(device_, addresses_, *door_.of, door_.world, wait_, stop_);
    return among.agree(end_.placed(), has_all, [this](rank_t d) {
      if (is_known_gone(d)) return true;
      framed_link& l = link(d);
      while (l.next()) {
      }
      return l.number() >= 0 && !l.open();
    });
  }

  /// This device's connection with another ended in the midst of something. The hub, which hears of every death, is
  /// told: if both live on, it ends the world after a moment.
  void doubt(rank_t d) {
    if (end_.broken()) return;
    if (is_hub()) doubts_.push_back({device_, d, clock::now()});
    else post(link(hub_), {kind::doubt, {d}, {}});
  }
  /// Hears and says what there is to hear and say.
  void poll() {
    hear_stop();
    const auto now = clock::now();
    if (now - polled_ > wait_ / 2) std::fill(heard_.begin(), heard_.end(), now);  // it was away itself
    polled_ = now;
    for (rank_t d = 0; d < devices_; ++d) hear(d, now);
    believe_doubts(now);
    if (now - beaten_ > wait_ / 8) {
      beaten_ = now;
      door_.of->poll();  // for who calls other worlds
      for (framed_link& link : links_)
        if (link.open()) link.post(beat, {});
    }
    for (framed_link& link : links_) link.flush();
  }
  /// What to wait for.
  void add_to(std::vector<pollfd>& all) const {
    if (!end_.broken()) all.push_back({stop_.number(), POLLIN, 0});
    for (const framed_link& link : links_)
      if (link.open()) all.push_back({link.number(), static_cast<short>(link.unsent() ? POLLIN | POLLOUT : POLLIN), 0});
  }

 private:
  /// A world at a door, from its beginning to its end.
  struct door_of_world {
    door_of_world(std::shared_ptr<process_door> at, std::uint64_t number) : of(std::move(at)), world(number) {
      of->open(world);
    }
    door_of_world(const door_of_world&) = delete;
    ~door_of_world() { of->close(world); }
    std::shared_ptr<process_door> of;
    std::uint64_t world;
  };

  static std::vector<rank_t> without_address(const std::vector<std::string>& addresses) {
    std::vector<rank_t> result;
    for (std::size_t d = 0; d < addresses.size(); ++d)
      if (addresses[d].empty()) result.push_back(static_cast<rank_t>(d));
    return result;
  }
  bool is_hub() const { return device_ == hub_; }
  bool is_known_gone(rank_t d) const {
    return d == end_.left() || std::find(gone_.begin(), gone_.end(), d) != gone_.end();
  }
  /// For the patience: it may be that it lives, and that nothing reaches it.
  bool is_silent(rank_t d, clock::time_point now) const { return now - heard_[static_cast<std::size_t>(d)] > wait_; }
  bool lives(rank_t d) const { return !address(d).empty(); }
  framed_link& link(rank_t d) { return links_[static_cast<std::size_t>(d)]; }

  void receive_all() {
    const auto end = clock::now() + wait_;
    for (std::string absent;; absent.clear()) {
      for (rank_t d = hub_ + 1; d < devices_; ++d) {
        if (!lives(d)) continue;
        if (link(d).number() < 0) {
          link(d) = framed_link(fetch(d, call_for::meeting));
          heard_[static_cast<std::size_t>(d)] = clock::now();
        }
        if (!link(d).open()) absent += detail::text_of(absent.empty() ? "" : ", ", d);
      }
      if (absent.empty()) return;
      if (clock::now() > end) {
        const std::string sentence = detail::text_of("reshard: device ", hub_, " waited ", wait_.count(),
                                                     " ms in vain for these devices to come: ", absent);
        break_off(sentence);
        throw peer_missing(sentence);
      }
      poll();
      require_whole();
      std::vector<pollfd> waiting = {{door_.of->number(), POLLIN, 0}};
      add_to(waiting);
      ::poll(waiting.data(), waiting.size(), 2);  // another thread may let in who calls
    }
  }
  void call_hub() {
    const auto end = clock::now() + wait_;
    owned_descriptor made;
    while (true) {  // a call that is lost is made again each second
      const auto left = std::chrono::duration_cast<patience>(end - clock::now());
      made = call_door(address(hub_), hello(call_for::meeting), std::clamp(left, patience(1), patience(1000)),
                       stop_.number());
      stop_.require_none();
      if (made.open()) break;
      if (clock::now() > end)
        throw peer_missing(detail::text_of("reshard: device ", device_, " waited ", wait_.count(),
                                           " ms in vain for device ", hub_, ", the hub, at ", address(hub_)));
      stop_.sleeps(patience(5));
    }
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
    hear_stop();
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

  /// Who is stopped leaves.
  void hear_stop() {
    if (end_.broken() || !stop_.requested()) return;
    const std::string sentence = stop_.sentence();
    say({kind::given_up, {device_}, sentence});
    end_.break_off(sentence);
  }
  template <typename Take>
  void hear_frames(rank_t d, clock::time_point now, Take&& take) {
    const std::uint64_t before = link(d).received();
    while (const std::optional<socket_frame> frame = link(d).next()) take(*frame);
    if (link(d).received() != before) heard_[static_cast<std::size_t>(d)] = now;  // a long frame is no silence
  }
  void hear(rank_t d, clock::time_point now) {
    framed_link& from = link(d);
    if (from.number() < 0) return;
    hear_frames(d, now, [&](const socket_frame& frame) { take(d, frame); });
    if (end_.broken()) return;
    if (!from.open()) {
      gone_.push_back(d);
      lose(d, detail::text_of("reshard: device ", d, " is gone: its connection ended"));
    } else if (is_silent(d, now)) {
      const std::string sentence =
          detail::text_of("reshard: device ", d, " was given up: it has said nothing for ", wait_.count(), " ms");
      gone_.push_back(d);
      lose(d, sentence);  // it hears so when it wakes
    }
  }
  /// Ends the world for a connection that ended a moment ago: by now one of its ends, or who that waited for, would be
  /// heard to be gone.
  void believe_doubts(clock::time_point now) {
    const auto moment = std::clamp<clock::duration>(wait_ / 16, patience(20), patience(250));
    for (const doubted& c : doubts_)
      if (!end_.broken() && now - c.since > moment)
        break_off(detail::text_of("reshard: the connection between devices ", c.by, " and ", c.with,
                                  " ended, and both are there"));
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
    else if (word.what == kind::doubt) doubts_.push_back({d, word.numbers[0], clock::now()});
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
  transport_stop stop_;
  door_of_world door_;
  std::vector<framed_link> links_;  // to the hub; or of the hub, to all others
  std::vector<clock::time_point> heard_;
  clock::time_point polled_ = clock::now(), beaten_ = clock::now();
  reshard::hub middle_;  // where this device keeps it
  hub_end end_;
  index_t confirmed_ = 0, wires_ = 0;
  std::vector<rank_t> gone_;
  struct doubted {
    rank_t by, with;
    clock::time_point since;
  };
  std::vector<doubted> doubts_;
};
static_assert(SurvivingMeeting<socket_meeting>);

}  // namespace reshard
