// SPDX-License-Identifier: Apache-2.0
#include "store.hpp"

#include <csignal>
#include <cstdio>

#include <sys/signalfd.h>

#include <reshard/elastic/served_store.hpp>
#include <reshard/elastic/store_server.hpp>

#ifdef RESHARD_HAS_ETCD
#include <reshard/elastic/etcd_store.hpp>
#endif

#include "store_of.hpp"

namespace elastic {

using namespace reshard;

namespace {

template <typename S>
struct owned_store : named_store {
  explicit owned_store(const std::string& address) : store(address) {}
  any_store any() override { return any_store(store); }
  S store;
};

}  // namespace

std::unique_ptr<named_store> store_of(const std::string& url) {
  if (url.starts_with("http://") || url.starts_with("https://"))
#ifdef RESHARD_HAS_ETCD
    return std::make_unique<owned_store<etcd_store>>(url);
#else
    refuse("--store ", url, ": this build has no etcd; it wants libcurl");
#endif
  return std::make_unique<owned_store<served_store>>(url);
}

int run_store(const std::string& listen, const std::string& journal) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM), sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const owned_descriptor ended(::signalfd(-1, &ends, SFD_CLOEXEC));
  store_server server(listening_socket(listen), journal);
  std::printf("listening %s:%d\n", listen.substr(0, listen.rfind(':')).c_str(), server.port());
  std::fflush(stdout);
  server.serve(ended.number());
  return 0;
}

}  // namespace elastic
