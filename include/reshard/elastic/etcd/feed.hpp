// SPDX-License-Identifier: Apache-2.0
// All that changes in an etcd, as it changes: one watch over all keys, in a thread. Each revision of an etcd changes
// some key, so a watch of all has come as far as an answer's revision, or is behind, and one that stays behind was cut
// in silence and is begun anew.
// Builds on: elastic/etcd/gateway.hpp, elastic/detail/store_state.hpp (how much is remembered).
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <reshard/elastic/detail/store_state.hpp>
#include <reshard/elastic/etcd/gateway.hpp>

namespace reshard::detail {

/// The changes of an etcd after a revision, up to how far the watch has come.
class etcd_feed {
  using clock = std::chrono::steady_clock;

 public:
  etcd_feed(etcd_gateway& gateway, std::uint64_t after, store_memory memory)
      : gateway_(&gateway), memory_(memory), begins_(after), at_(after), multi_(::curl_multi_init()) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  etcd_feed(const etcd_feed&) = delete;
  ~etcd_feed() {
    thread_.request_stop();
    ::curl_multi_wakeup(multi_.get());
    thread_.join();
  }

  /// What changed under a prefix after a revision; `anew` where that is forgotten, here or by the etcd. Waits for the
  /// first change until then, and for the watch to come to `known`, which is how far the etcd was; nothing where it
  /// does not within the limit.
  std::optional<store_news> changes(const std::string& prefix, std::uint64_t after, std::uint64_t known,
                                    clock::time_point until) {
    std::unique_lock lock(alone_);
    begin_at(after);
    const clock::time_point late = clock::now() + gateway_->limit();
    while (true) {
      store_news news{{}, std::max(after, at_), after < forgotten_};
      for (const store_change& c : history_)
        if (c.now.revision > after && c.now.key.starts_with(prefix)) news.changes.push_back(c);
      const bool behind = news.revision < known;
      if (news.anew || !news.changes.empty() || (!behind && clock::now() >= until)) return news;
      if (behind && clock::now() >= late) return std::nullopt;
      changed_.wait_until(lock, behind ? late : until);
    }
  }

 private:
  // Who asks from an earlier revision has the watch begin there.
  void begin_at(std::uint64_t after) {
    if (after >= begins_ || after < forgotten_) return;
    restart_at(after);
    ::curl_multi_wakeup(multi_.get());
  }
  void restart_at(std::uint64_t revision) {
    begins_ = at_ = revision;
    history_.clear();
    remembered_ = 0;
    ++begun_;
  }

  void run(const std::stop_token& stop) {
    constexpr patience between_calls{50};
    while (!stop.stop_requested()) {
      if (!watch(stop)) std::this_thread::sleep_for(between_calls);
    }
  }
  // One watch, until it ends, is cut, or has to begin elsewhere. It begins at the last revision that was seen, which is
  // left out then: an etcd of before 3.5.18 forgets removals of the very revision that it was compacted at. Whether
  // another one may begin at once.
  bool watch(const std::stop_token& stop) {
    const auto [begun, from] = place();
    const std::string url = gateway_->url() + "/v3/watch";
    const std::string body = "{\"create_request\":{" + range_of("") + ",\"start_revision\":\"" +
                             std::to_string(std::max(from, std::uint64_t{1})) + "\"}}";
    std::string came;
    const curl_easy easy(::curl_easy_init());
    gateway_->http().prepare(easy.get(), url, body, came);
    ::curl_multi_add_handle(multi_.get(), easy.get());
    clock::time_point progressed = clock::now();
    for (int running = 1; running != 0 && !stop.stop_requested();) {
      constexpr int longest_look = 200;
      ::curl_multi_perform(multi_.get(), &running);
      const std::uint64_t before = place().second;
      if (!take(came, begun)) break;
      const std::uint64_t now = place().second;
      if (now != before || gateway_->heard() <= now) progressed = clock::now();
      if (clock::now() - progressed > longest_silence) break;
      if (running != 0) ::curl_multi_poll(multi_.get(), nullptr, 0, longest_look, nullptr);
      else gateway_->turn();
    }
    ::curl_multi_remove_handle(multi_.get(), easy.get());
    return place().first != begun;
  }
  // How often it was begun, and how far it has come.
  std::pair<std::uint64_t, std::uint64_t> place() {
    const std::lock_guard lock(alone_);
    return {begun_, at_};
  }

  // Takes the lines that have come whole; whether the watch goes on.
  bool take(std::string& came, std::uint64_t begun) {
    std::size_t at = 0;
    const std::lock_guard lock(alone_);
    bool goes_on = begun == begun_;
    for (std::size_t end; goes_on && (end = came.find('\n', at)) != came.npos; at = end + 1) try {
        goes_on = take_line(gateway_reader(std::string_view(came).substr(at, end - at)).value().at("result"));
      } catch (const refusal&) {  // no line of a gateway: it is asked again
        goes_on = false;
      }
    came.erase(0, at);
    changed_.notify_all();
    return goes_on;
  }
  bool take_line(const gateway_value& told) {
    gateway_->hear(told);
    if (const std::uint64_t compacted = told.at("compact_revision").number(); compacted > at_) {
      forgotten_ = compacted;
      restart_at(compacted);
      return false;
    }
    const std::uint64_t before = at_;
    for (const gateway_value& event : told.at("events").items) {
      const gateway_value& kv = event.at("kv");
      const std::uint64_t revision = kv.at("mod_revision").number();
      if (revision <= before) continue;
      at_ = std::max(at_, revision);
      remember({{from_base64(kv.at("key").text), from_base64(kv.at("value").text), revision},
                event.at("type").text == "DELETE"});
    }
    return !told.at("canceled").is_true();
  }
  static std::size_t bytes_of(const store_change& c) { return sizeof c + c.now.key.size() + c.now.value.size(); }
  void remember(store_change change) {
    remembered_ += bytes_of(change);
    history_.push_back(std::move(change));
    while (history_.size() > memory_.changes || remembered_ > memory_.bytes) {
      forgotten_ = begins_ = history_.front().now.revision;
      remembered_ -= bytes_of(history_.front());
      history_.pop_front();
    }
  }

  static constexpr patience longest_silence{1000};
  etcd_gateway* gateway_;
  store_memory memory_;
  std::mutex alone_;
  std::condition_variable changed_;
  std::deque<store_change> history_;  // of the revisions after begins_, up to at_
  std::size_t remembered_ = 0;
  std::uint64_t begins_, at_, forgotten_ = 0, begun_ = 0;
  curl_multi multi_;
  std::jthread thread_;
};

}  // namespace reshard::detail
