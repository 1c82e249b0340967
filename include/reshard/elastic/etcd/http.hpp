// SPDX-License-Identifier: Apache-2.0
// Questions by HTTP, with libcurl: handles that are used again, each by one thread at a time, and what became of one.
// Builds on: base/patience.hpp and libcurl.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <curl/curl.h>

#include <reshard/base/patience.hpp>

namespace reshard::detail {

struct curl_easy_ends {
  void operator()(CURL* easy) const { ::curl_easy_cleanup(easy); }
};
struct curl_multi_ends {
  void operator()(CURLM* multi) const { ::curl_multi_cleanup(multi); }
};
struct curl_list_ends {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
using curl_easy = std::unique_ptr<CURL, curl_easy_ends>;
using curl_multi = std::unique_ptr<CURLM, curl_multi_ends>;

/// What came: a status of HTTP and a body; or no status, and why.
struct http_answer {
  long status = 0;
  std::string body, why;
};

class http_client {
 public:
  http_client() {
    static const CURLcode once = ::curl_global_init(CURL_GLOBAL_DEFAULT);
    static_cast<void>(once);
    // No proxy of the environment stands between a job and its store.
    headers_.reset(::curl_slist_append(nullptr, "Expect:"));
    ::curl_slist_append(headers_.get(), "Content-Type: application/json");
  }

  /// POST, within the limit. `fresh`: over a connection of its own, as what is to be said once has to go, since libcurl
  /// says a question again where a connection that it used before ended without an answer.
  http_answer post(const std::string& url, const std::string& body, patience limit, bool fresh) {
    curl_easy easy = idle();
    http_answer a;
    prepare(easy.get(), url, body, a.body);
    ::curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(limit.count() < 1 ? 1 : limit.count()));
    ::curl_easy_setopt(easy.get(), CURLOPT_FRESH_CONNECT, fresh ? 1L : 0L);
    const CURLcode code = ::curl_easy_perform(easy.get());
    if (code == CURLE_OK) ::curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &a.status);
    else a.why = ::curl_easy_strerror(code);
    const std::lock_guard lock(alone_);
    idle_.push_back(std::move(easy));
    return a;
  }
  /// Sets a handle up to POST a body, which it does not keep, and to append what comes.
  void prepare(CURL* easy, const std::string& url, const std::string& body, std::string& to) const {
    constexpr long longest_call = 1000;
    ::curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    ::curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_.get());
    ::curl_easy_setopt(easy, CURLOPT_PROXY, "");
    ::curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    ::curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    ::curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, longest_call);
    ::curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.c_str());
    ::curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
    ::curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append);
    ::curl_easy_setopt(easy, CURLOPT_WRITEDATA, &to);
  }

 private:
  static std::size_t append(char* data, std::size_t size, std::size_t count, void* to) {
    static_cast<std::string*>(to)->append(data, size * count);
    return size * count;
  }
  curl_easy idle() {
    const std::lock_guard lock(alone_);
    if (idle_.empty()) return curl_easy(::curl_easy_init());
    curl_easy easy = std::move(idle_.back());
    idle_.pop_back();
    return easy;
  }

  std::unique_ptr<curl_slist, curl_list_ends> headers_;
  std::mutex alone_;
  std::vector<curl_easy> idle_;
};

}  // namespace reshard::detail
