// SPDX-License-Identifier: Apache-2.0
// A proxy between those who ask and a store, over TCP, that cuts connections before a question or before its answer, is
// slow, and says questions again. It knows nothing of what is said: a question is what comes from one side at once.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/transport/socket.hpp>

namespace testing {

class cutting_proxy {
 public:
  enum act { pass, delay, cut_before, cut_after, repeat, acts };

  /// `prologue`: what each connection begins with, which is no question.
  explicit cutting_proxy(std::string target, std::string prologue = "")
      : target_(std::move(target)), prologue_(std::move(prologue)), listening_("127.0.0.1:0") {
    worker_ = std::thread([this] {
      while (!ends_) turn();
    });
  }
  cutting_proxy(const cutting_proxy&) = delete;
  ~cutting_proxy() {
    ends_ = true;
    worker_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(listening_.port()); }

  /// Done to questions one after the other, in a ring. None: all pass.
  void misbehave(std::vector<act> plan) {
    at_ = 0;
    plan_ = nullptr;
    plans_.push_back(std::move(plan));
    plan_ = &plans_.back();
  }
  /// Who says these words, or has said them, hears nothing any more, and nobody is told.
  void mute(const char* words) { muted_ = words; }
  /// Who calls from now on is heard again.
  void unmute() { muted_ = nullptr; }
  std::array<std::atomic<long>, acts> done = {};
  std::atomic<long> called = 0;  // connections that were passed on

 private:
  struct line {
    reshard::owned_descriptor asks, answers;
    std::string again;  // said again once it is answered
    bool cut_at_answer = false;
    std::string said;  // last
    bool mute = false;
  };

  void turn() {
    std::vector<pollfd> watched = {{listening_.number(), POLLIN, 0}};
    for (const line& l : lines_) {
      watched.push_back({l.asks.number(), POLLIN, 0});
      watched.push_back({l.answers.number(), POLLIN, 0});
    }
    ::poll(watched.data(), watched.size(), 20);
    std::size_t i = 1;
    for (auto l = lines_.begin(); l != lines_.end(); i += 2) {
      const bool holds = (watched[i].revents == 0 || question(*l)) && (watched[i + 1].revents == 0 || answer(*l));
      l = holds ? std::next(l) : lines_.erase(l);
    }
    if (watched[0].revents != 0)
      if (reshard::owned_descriptor caller = listening_.accept(); caller.open())
        if (reshard::owned_descriptor on = reshard::call_address(target_, std::chrono::seconds(1)); on.open())
          ++called, lines_.push_back({std::move(caller), std::move(on), {}, false, {}, false});
  }
  // What has come; nothing where the end is gone.
  static std::string come(const reshard::owned_descriptor& from) {
    std::string all(std::size_t{1} << 17, '\0');
    all.resize(reshard::receive_some(from.number(), reinterpret_cast<std::byte*>(all.data()), all.size()).bytes);
    return all;
  }
  static void tell(const reshard::owned_descriptor& to, const std::string& what) {
    for (std::size_t gone = 0; gone < what.size();) {
      const auto p =
          reshard::send_some(to.number(), reinterpret_cast<const std::byte*>(what.data()) + gone, what.size() - gone);
      if (p.ended) return;
      gone += p.bytes;
    }
  }
  bool question(line& l) {
    const std::string said = come(l.asks);
    if (said.empty()) return false;
    const std::vector<act>* plan = plan_;
    act what = said == prologue_ || plan == nullptr || plan->empty() ? pass : (*plan)[at_++ % plan->size()];
    ++done[what];
    if (what == cut_before) return false;
    if (what == delay) std::this_thread::sleep_for(std::chrono::milliseconds(15));
    l.cut_at_answer = what == cut_after;
    if (what == repeat) l.again = said.starts_with(prologue_) ? said : prologue_ + said;
    l.said = said;
    tell(l.answers, said);
    return true;
  }
  bool answer(line& l) {
    const std::string said = come(l.answers);
    if (said.empty() || l.cut_at_answer) return false;
    const char* words = muted_;
    l.mute = l.mute || (words != nullptr && l.said.find(words) != l.said.npos);
    if (l.mute) return true;
    tell(l.asks, said);
    if (!l.again.empty())
      if (const auto once_more = reshard::call_address(target_, std::chrono::seconds(1)); once_more.open()) {
        tell(once_more, std::exchange(l.again, {}));
        pollfd heard{once_more.number(), POLLIN, 0};
        ::poll(&heard, 1, 1000);
      }
    return true;
  }

  std::string target_, prologue_;
  reshard::listening_socket listening_;
  std::list<line> lines_;
  std::list<std::vector<act>> plans_;
  std::atomic<const std::vector<act>*> plan_ = nullptr;
  std::atomic<std::size_t> at_ = 0;
  std::atomic<const char*> muted_ = nullptr;
  std::atomic<bool> ends_ = false;
  std::thread worker_;
};

}  // namespace testing
