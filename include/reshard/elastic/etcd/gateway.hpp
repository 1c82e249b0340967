// SPDX-License-Identifier: Apache-2.0
// One question to etcd's JSON gateway and its answer, at whichever of its addresses answers, and the newest revision
// that any answer named.
// Builds on: elastic/etcd/gateway_text.hpp, elastic/etcd/http.hpp, elastic/store.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/elastic/etcd/gateway_text.hpp>
#include <reshard/elastic/etcd/http.hpp>
#include <reshard/elastic/store.hpp>

namespace reshard::detail {

/// Where etcd answers, at addresses that are tried in turn.
class etcd_gateway {
 public:
  etcd_gateway(const std::string& urls, patience limit) : limit_(limit) {
    for (std::size_t at = 0; at <= urls.size();) {
      const std::size_t end = std::min(urls.find(',', at), urls.size());
      std::string url = urls.substr(at, end - at);
      while (url.ends_with('/')) url.pop_back();
      if (!url.starts_with("http://") && !url.starts_with("https://"))
        refuse("the address '", url, "' of an etcd: it is written http://host:port, several with commas");
      urls_.push_back(std::move(url));
      at = end + 1;
    }
  }

  patience limit() const { return limit_; }
  const std::string& url() const { return urls_[now_ % urls_.size()]; }
  /// The address did not answer: another one is next.
  void turn() { ++now_; }
  const http_client& http() const { return http_; }

  /// The newest revision that was heard of.
  std::uint64_t heard() const { return heard_; }
  void hear(const gateway_value& answer) {
    const std::uint64_t told = answer.at("header").at("revision").number();
    for (std::uint64_t was = heard_; was < told && !heard_.compare_exchange_weak(was, told);) continue;
  }

  /// What `path` answers; nothing where it says that a lease is not there. What is asked once is said once.
  std::optional<gateway_value> ask(const char* path, const std::string& body, bool once = false) {
    using clock = std::chrono::steady_clock;
    const auto until = clock::now() + limit_;
    for (bool fresh = once;; fresh = true) {
      const std::string url = this->url();
      // A connection that was cut in silence, or an address that is gone, leaves time for another.
      const auto left = std::chrono::ceil<patience>(until - clock::now());
      http_answer came = http_.post(url + path, body, once ? left : std::min(left, limit_ / 3), fresh);
      if (came.status == 200) {
        gateway_value answer = gateway_reader(came.body).value();
        hear(answer);
        return answer;
      }
      if (came.status != 0) {
        came.why = "it says '" + came.body.substr(0, 200) + "'";
        constexpr long canceled = 408, no_space = 429;
        if (came.status >= 400 && came.status < 500 && came.status != canceled && came.status != no_space)
          return told_no(came, url);
      }
      turn();
      if (once || clock::now() >= until)
        throw store_unreachable("reshard: the etcd at " + url + " did not answer " + path +
                                (once ? ", so that it may have been done: " : ": ") + came.why);
      std::this_thread::sleep_for(between_calls);
    }
  }

 private:
  // What is wrong with the question. By then nothing is done.
  static std::optional<gateway_value> told_no(const http_answer& came, const std::string& url) {
    constexpr std::string_view no_lease_there = "requested lease not found";
    if (came.body.find(no_lease_there) != came.body.npos) return std::nullopt;
    throw refusal("reshard: the etcd at " + url + " refuses: " + came.why);
  }

  static constexpr patience between_calls{20};
  patience limit_;
  std::vector<std::string> urls_;
  std::atomic<std::size_t> now_ = 0;
  std::atomic<std::uint64_t> heard_ = 0;
  http_client http_;
};

}  // namespace reshard::detail
