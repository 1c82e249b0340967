// SPDX-License-Identifier: Apache-2.0
// A store that another process serves, by its address. Each question goes over a connection that nobody else uses
// meanwhile, so that a swap does not wait behind who waits for changes. What may be said twice is said again where the
// answer was lost, until the limit; a swap or a removal is not: it throws store_unreachable, and who asked reads.
// Builds on: elastic/served/words.hpp, transport/socket.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include <reshard/elastic/served/words.hpp>
#include <reshard/transport/socket.hpp>

namespace reshard {

/// The store at "host:port". It need not run yet: who asks waits for it, up to the limit. Any number of threads ask.
class served_store {
 public:
  explicit served_store(std::string address, patience limit = std::chrono::seconds(5))
      : address_(std::move(address)), limit_(limit) {
    const std::size_t colon = address_.rfind(':');
    if (colon == address_.npos || colon == 0 || colon + 1 == address_.size())
      refuse("the address '", address_, "' of a store: it is written host:port");
  }

  std::optional<stored> read(const std::string& key) {
    detail::store_answer a = ask({.what = kind::read, .key = key});
    if (a.changes.empty()) return std::nullopt;
    return std::move(a.changes.front().now);
  }
  stored_list list(const std::string& prefix) {
    detail::store_answer a = ask({.what = kind::list, .key = prefix});
    stored_list all{{}, a.number};
    for (store_change& c : a.changes) all.all.push_back(std::move(c.now));
    return all;
  }
  std::uint64_t swap(const std::string& key, const std::string& value, std::uint64_t expected,
                     lease_id lease = no_lease) {
    return ask({.what = kind::swap, .key = key, .value = value, .revision = expected, .lease = lease}).number;
  }
  bool remove(const std::string& key, std::uint64_t expected) {
    return ask({.what = kind::remove, .key = key, .revision = expected}).number != 0;
  }
  lease_id lease(patience time) {
    return static_cast<lease_id>(ask({.what = kind::lease, .time = time}).number);  // one that nobody heard of ends
  }
  bool renew(lease_id lease) { return ask({.what = kind::renew, .lease = lease}).number != 0; }
  void revoke(lease_id lease) { ask({.what = kind::revoke, .lease = lease}); }

  /// Asked in turns of the limit, so that a connection that was cut in silence is found out.
  store_news changes(const std::string& prefix, std::uint64_t after, patience wait) {
    const auto until = clock::now() + std::min(wait, longest_store_wait);
    while (true) {
      const patience left = std::max(std::chrono::ceil<patience>(until - clock::now()), patience{0});
      const patience turn = std::min(left, limit_);
      detail::store_answer a = ask({.what = kind::changes, .key = prefix, .revision = after, .time = turn});
      if (a.anew || !a.changes.empty() || turn == left) return {std::move(a.changes), a.number, a.anew};
      after = a.number;
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  using kind = detail::store_request::kind;

  detail::store_answer ask(const detail::store_request& asked) {
    const std::string question = detail::framed(words_of(asked));
    if (question.size() > detail::most_asked)
      refuse("a store is asked ", question.size(), " bytes at once; at most ", detail::most_asked);
    const bool once = asked.what == kind::swap || asked.what == kind::remove;
    const patience waits = asked.what == kind::changes ? asked.time : patience{0};
    const auto until = clock::now() + limit_ + waits;
    std::string why = "nobody listens there";
    while (true) {
      owned_descriptor link = connection(until, why);
      if (link.open()) {
        bool said = false;
        // A connection that was cut in silence leaves time for another.
        const auto turn = once ? until : std::min(until, clock::now() + limit_ / 3 + waits);
        std::optional<detail::store_answer> a = answer_over(link, question, turn, said, why);
        if (a && !a->refused.empty())
          throw refusal("reshard: the store at " + address_ +
                        " refuses: " + std::string(detail::without_prefix(a->refused)));
        if (a) {
          const std::lock_guard lock(alone_);
          idle_.push_back(std::move(link));
          return std::move(*a);
        }
        if (said && once)
          throw store_unreachable("reshard: the store at " + address_ + " did not answer whether '" + asked.key +
                                  "' was changed: " + why);
      }
      {
        const std::lock_guard lock(alone_);
        idle_.clear();  // what befell one may have befallen all
      }
      if (clock::now() >= until)
        throw store_unreachable("reshard: the store at " + address_ + " did not answer within " +
                                std::to_string(limit_.count()) + " ms: " + why);
      std::this_thread::sleep_for(between_calls);
    }
  }

  // One that nobody uses and that still holds, or a new one.
  owned_descriptor connection(clock::time_point until, std::string& why) {
    {
      const std::lock_guard lock(alone_);
      while (!idle_.empty()) {
        owned_descriptor link = std::move(idle_.back());
        idle_.pop_back();
        pollfd ended{link.number(), POLLIN | POLLRDHUP, 0};
        if (::poll(&ended, 1, 0) == 0) return link;
      }
    }
    try {
      owned_descriptor link = call_address(address_, left_until(until));
      const std::string_view hello = detail::store_greeting;
      if (link.open()) send_some(link.number(), reinterpret_cast<const std::byte*>(hello.data()), hello.size());
      return link;
    } catch (const refusal& no) {  // names are asked of others, who may be away too
      why = detail::without_prefix(no.what());
      return owned_descriptor();
    }
  }

  // Nothing where it ended or the time was over; whether the question may have been heard by then.
  std::optional<detail::store_answer> answer_over(const owned_descriptor& link, const std::string& question,
                                                  clock::time_point until, bool& said, std::string& why) const {
    std::string in;
    std::array<char, 16384> some;
    std::size_t gone = 0;
    while (true) {
      const bool sends = gone < question.size();
      const socket_progress p =
          sends ? send_some(link.number(), reinterpret_cast<const std::byte*>(question.data()) + gone,
                            question.size() - gone)
                : receive_some(link.number(), reinterpret_cast<std::byte*>(some.data()), some.size());
      if (sends) gone += p.bytes;
      else in.append(some.data(), p.bytes);
      said = gone == question.size();  // a part of one is none
      if (const auto frame = detail::frame_at(in, detail::most_answered))
        return read_answer(detail::frame_reader(*frame));
      if (p.ended) {
        why = "the connection ended";
        return std::nullopt;
      }
      if (p.bytes > 0) continue;
      if (clock::now() >= until) {  // looked at once more, if this process was stopped meanwhile
        why = "it is silent";
        return std::nullopt;
      }
      pollfd ready{link.number(), static_cast<short>(sends ? POLLOUT : POLLIN), 0};
      ::poll(&ready, 1, static_cast<int>(left_until(until).count()));
    }
  }

  static patience left_until(clock::time_point until) {
    constexpr patience longest_look{1000};
    return std::clamp(std::chrono::ceil<patience>(until - clock::now()), patience{0}, longest_look);
  }

  static constexpr patience between_calls{20};
  std::string address_;
  patience limit_;
  std::mutex alone_;
  std::vector<owned_descriptor> idle_;
};

}  // namespace reshard
