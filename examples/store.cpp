// SPDX-License-Identifier: Apache-2.0
// A store as a job uses it: several write one value and nothing is lost, whatever becomes of their answers; a key goes
// with who wrote it; and whoever wants to know sees every change. Here a thread of this program serves the store.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <reshard/elastic/served_store.hpp>
#include <reshard/elastic/store_server.hpp>

using namespace reshard;
using namespace std::chrono_literals;

namespace {

/// Puts a name on the list, once.
void sign(const any_store& store, const std::string& name) {
  while (true) try {
      const std::optional<stored> now = store.read("list");
      const std::string list = now ? now->value : "";
      if (list.find(name) != list.npos) return;
      store.swap("list", list + name + "\n", now ? now->revision : no_revision);
    } catch (const store_unreachable&) {  // done or not: the next look at the list tells
    }
}

}  // namespace

int main() {
  char folder[] = "/tmp/reshard_store_XXXXXX";
  int ends[2];
  if (::mkdtemp(folder) == nullptr || ::pipe(ends) != 0) return 1;
  const std::string journal = std::string(folder) + "/journal";

  store_server server(listening_socket("127.0.0.1:0"), journal);
  std::jthread serves([&] { server.serve(ends[0]); });  // until the pipe says something

  served_store at("127.0.0.1:" + std::to_string(server.port()));
  const any_store store(at);  // what takes one is compiled once for all stores

  {
    std::vector<std::jthread> members;
    for (const char* name : {"node0.0", "node1.0", "node2.0"})
      members.emplace_back([&store, name] { sign(store, name); });
  }
  const stored list = *store.read("list");
  std::printf("revision %d:\n%s", static_cast<int>(list.revision), list.value.c_str());

  const lease_id alive = store.lease(300ms);  // renew(alive) now and then, from a thread that has nothing else to do
  store.swap("members/node3.0", "10.0.0.3:7001", no_revision, alive);
  int came = 0, went = 0;
  for (std::uint64_t after = list.revision; went == 0;) {
    const store_news news = store.changes("members/", after, 10s);
    for (const store_change& c : news.changes) {
      std::printf("%s %s\n", c.now.key.c_str(), c.removed ? "went" : "came");
      ++(c.removed ? went : came);
    }
    after = news.revision;
  }

  static_cast<void>(!::write(ends[1], "", 1));
  serves.join();
  ::unlink(journal.c_str());
  ::rmdir(folder);
  return list.revision == 3 && came == 1 ? 0 : 1;
}
