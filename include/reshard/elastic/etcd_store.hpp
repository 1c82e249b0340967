// SPDX-License-Identifier: Apache-2.0
// A store that is an etcd, 3.4 or later, over its JSON gateway, with libcurl. Its leases last whole seconds, and 2 at
// least where its elections take longer than one. All its keys are watched, so it should be the jobs' own.
// Builds on: elastic/etcd/feed.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <reshard/elastic/etcd/feed.hpp>

namespace reshard {

/// The etcd at "http://host:port", or at several with commas between them. Any number of threads may ask. What may be
/// said twice is said again until the limit; a swap or a removal is not, and throws store_unreachable.
class etcd_store {
 public:
  explicit etcd_store(const std::string& urls, patience limit = std::chrono::seconds(5), store_memory memory = {})
      : gateway_(urls, limit), memory_(memory) {}

  std::optional<stored> read(const std::string& key) {
    const detail::gateway_value kvs = range("\"key\":\"" + detail::to_base64(key) + "\"").at("kvs");
    if (kvs.items.empty()) return std::nullopt;
    return stored_in(kvs.items.front());
  }
  stored_list list(const std::string& prefix) {
    const detail::gateway_value found = range(detail::range_of(prefix));
    stored_list all{{}, revision_of(found)};
    for (const detail::gateway_value& kv : found.at("kvs").items) all.all.push_back(stored_in(kv));
    return all;
  }
  std::uint64_t swap(const std::string& key, const std::string& value, std::uint64_t expected,
                     lease_id lease = no_lease) {
    return if_still(key, expected,
                    "\"request_put\":{\"key\":\"" + detail::to_base64(key) + "\",\"value\":\"" +
                        detail::to_base64(value) + "\",\"lease\":\"" + std::to_string(lease) + "\"}");
  }
  bool remove(const std::string& key, std::uint64_t expected) {
    if (expected == no_revision) return false;
    return if_still(key, expected, "\"request_delete_range\":{\"key\":\"" + detail::to_base64(key) + "\"}") != 0;
  }

  /// Lasts the time, rounded up to seconds, or longer where the etcd says so.
  lease_id lease(patience time) {
    if (time.count() <= 0 || time > longest_store_wait)
      refuse("a lease of ", time.count(), " ms; it is of 1 to ", longest_store_wait.count(), " ms");
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
    const auto granted = gateway_.ask("/v3/lease/grant", "{\"TTL\":\"" + std::to_string(seconds) + "\"}");
    return static_cast<lease_id>(granted.value().at("ID").number());
  }
  bool renew(lease_id lease) {
    const auto told = gateway_.ask("/v3/lease/keepalive", "{\"ID\":\"" + std::to_string(lease) + "\"}");
    if (!told) return false;
    gateway_.hear(told->at("result"));  // what the watch is compared with
    return told->at("result").at("TTL").number() != 0;
  }
  void revoke(lease_id lease) { gateway_.ask("/v3/lease/revoke", "{\"ID\":\"" + std::to_string(lease) + "\"}"); }

  store_news changes(const std::string& prefix, std::uint64_t after, patience wait) {
    const auto until = clock::now() + std::min(wait, longest_store_wait);
    while (true) {
      // In turns of the limit, each of which asks how far the etcd is: a watch that was cut in silence is found out.
      const std::uint64_t known = revision_of(range("\"key\":\"AA==\",\"count_only\":true"));
      if (after > known) return anew(prefix);  // of another store, or of one that has lost something
      const auto turn = std::min(until, clock::now() + gateway_.limit());
      std::optional<store_news> news = feed(after).changes(prefix, after, known, turn);
      if (!news)
        throw store_unreachable("reshard: the etcd at " + gateway_.url() +
                                " did not tell what changed after revision " + std::to_string(after) + " within " +
                                std::to_string(gateway_.limit().count()) + " ms");
      if (news->anew) return anew(prefix);
      if (!news->changes.empty() || turn == until) return *std::move(news);
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  static std::uint64_t revision_of(const detail::gateway_value& answer) {
    return answer.at("header").at("revision").number();
  }
  static stored stored_in(const detail::gateway_value& kv) {
    return {detail::from_base64(kv.at("key").text), detail::from_base64(kv.at("value").text),
            kv.at("mod_revision").number()};
  }
  detail::gateway_value range(const std::string& what) {
    return gateway_.ask("/v3/kv/range", "{" + what + "}").value();
  }
  // The revision that it made, or 0.
  std::uint64_t if_still(const std::string& key, std::uint64_t expected, const std::string& done) {
    const auto told = gateway_.ask("/v3/kv/txn",
                                   "{\"compare\":[{\"key\":\"" + detail::to_base64(key) +
                                       "\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"" +
                                       std::to_string(expected) + "\"}],\"success\":[{" + done + "}]}",
                                   true);
    return told && told->at("succeeded").is_true() ? revision_of(*told) : 0;
  }
  store_news anew(const std::string& prefix) {
    stored_list all = list(prefix);
    store_news news{{}, all.revision, true};
    for (stored& one : all.all) news.changes.push_back({std::move(one), false});
    return news;
  }
  detail::etcd_feed& feed(std::uint64_t after) {
    const std::lock_guard lock(alone_);
    if (!feed_) feed_ = std::make_unique<detail::etcd_feed>(gateway_, after, memory_);
    return *feed_;
  }

  detail::etcd_gateway gateway_;
  store_memory memory_;
  std::mutex alone_;
  std::unique_ptr<detail::etcd_feed> feed_;
};

}  // namespace reshard
