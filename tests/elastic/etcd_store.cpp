// SPDX-License-Identifier: Apache-2.0
// A store that is an etcd: what every store owes, of a real one, over connections that are cut, slow and said again,
// through its death and its standstill, and after it was compacted. Without etcd on this machine only texts are looked
// at.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>

#include <reshard/elastic/etcd_store.hpp>

#include "../support/cutting_proxy.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/sanitized.hpp"
#include "../support/store_laws.hpp"
#include "../support/store_process.hpp"

using namespace reshard;
using std::chrono::milliseconds;
using testing::cutting_proxy;

static_assert(Store<etcd_store>);

namespace {

bool there_is_an_etcd() {
  static const bool found = std::system("etcd --version > /dev/null 2>&1") == 0;
  if (!found) MESSAGE("skipped: no etcd on this machine");
  return found;
}

class etcd_process : public testing::struck_process {
 public:
  etcd_process() { start(); }
  ~etcd_process() { kill(); }

  const std::string& address() const { return port_.address; }
  std::string url() const { return "http://" + port_.address; }
  void start() {
    const std::string peers = "http://" + peers_.address, clients = url(), cluster = "default=" + peers;
    const std::string data = folder_.path + "/data";
    const char* words[] = {"etcd", "--data-dir", data.c_str(), "--listen-client-urls", clients.c_str(),
                           "--advertise-client-urls", clients.c_str(), "--listen-peer-urls", peers.c_str(),
                           "--initial-advertise-peer-urls", peers.c_str(), "--initial-cluster", cluster.c_str(),
                           // alone it elects itself at once, and a lease of a second lasts one
                           "--heartbeat-interval", "50", "--election-timeout", "500", nullptr};
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const int nowhere = ::open("/dev/null", O_RDWR);
      ::dup2(nowhere, 1), ::dup2(nowhere, 2);
      ::close_range(3, ~0U, 0);
      ::execvp(words[0], const_cast<char**>(words));
      ::_exit(127);
    }
  }

 private:
  testing::own_folder folder_;
  testing::own_port port_, peers_;
};

}  // namespace

TEST_CASE("texts of the gateway") {
  using namespace reshard::detail;
  for (const auto& [bytes, digits] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                      {"a", "YQ=="},
                                                                                      {"ab", "YWI="},
                                                                                      {"abc", "YWJj"},
                                                                                      {std::string(1, '\0'), "AA=="},
                                                                                      {"\xFF\xFE\xFD", "//79"}}) {
    CHECK(to_base64(bytes) == digits);
    CHECK(from_base64(digits) == bytes);
  }
  testing::dice random(1);
  for (int i = 0; i < 100; ++i) {
    std::string bytes(static_cast<std::size_t>(random.below(40)), ' ');
    for (char& c : bytes) c = static_cast<char>(random.bits());
    CHECK(from_base64(to_base64(bytes)) == bytes);
  }
  CHECK_REFUSED(from_base64("a!"), "etcd: 'a!' is no base64");
  CHECK(beyond_prefix("a/b") == "a/c");
  CHECK(beyond_prefix("a\xFF\xFF") == "b");
  CHECK(beyond_prefix("\xFF") == std::string(1, '\0'));
  CHECK(beyond_prefix("") == std::string(1, '\0'));

  const gateway_value v =
      gateway_reader(R"( {"header":{"revision":"18446744073709551609"},"list":[1 , {"a":"q\"\\"}, []],"yes":true} )")
          .value();
  CHECK(v.at("header").at("revision").number() == 18446744073709551609u);
  CHECK(v.at("header").at("none").at("revision").number() == 0);
  REQUIRE(v.at("list").items.size() == 3);
  CHECK(v.at("list").items[0].number() == 1);
  CHECK(v.at("list").items[1].at("a").text == "q\"\\");
  CHECK(v.at("yes").is_true());
  CHECK_FALSE(v.at("no").is_true());
  CHECK_REFUSED(v.at("yes").number(), "etcd: 'true' where a number was expected");
  for (const char* bad : {"{\"a\":1", "{\"a\"}", "[1,2", "\"a", "{1:2}"})
    CHECK_REFUSED(gateway_reader(bad).value(), "etcd: an answer is no JSON before '");
  for (const char* bad : {"", "[1,]", "{\"a\":}"})
    CHECK_REFUSED(gateway_reader(bad).value(), "etcd: an answer lacks a value before '");
  CHECK_REFUSED(gateway_reader(std::string(100, '[')).value(),
                "etcd: an answer is nested too deep before '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[['; the address is "
                "that of its "
                "JSON gateway?");
  CHECK_REFUSED(etcd_store("127.0.0.1:1"),
                "the address '127.0.0.1:1' of an etcd: it is written http://host:port, several with commas");
}

TEST_CASE("what every store owes, of an etcd") {
  if (!there_is_an_etcd()) return;
  const etcd_process process;
  etcd_store store("http://127.0.0.1:1," + process.url() + "/", std::chrono::seconds(20));
  const any_store s(store);
  testing::law_of_one(s);
  testing::law_of_leases(s, milliseconds(1000));
  const testing::store_counts counts = testing::law_of_many({s, s, s}, s, 30);
  CHECK(counts.made == 90);
  CHECK(counts.unknown == 0);
  CHECK_REFUSED(store.lease(milliseconds(0)), "a lease of 0 ms; it is of 1 to 604800000 ms");
  CHECK_REFUSED(store.swap("", "", no_revision), "reshard: the etcd at " + process.url() + " refuses: it says '");

  // Another that is told of the same from the beginning, and of what was compacted.
  etcd_store other(process.url(), std::chrono::seconds(20));
  const store_news all = other.changes("", 0, milliseconds(0));
  CHECK_FALSE(all.anew);
  CHECK(all.changes.size() >= 90);
  testing::check_order(all.changes, 1);
  const store_news last = other.changes("", all.revision - 3, milliseconds(0));
  CHECK(last.changes.size() == 3);
  detail::http_client http;
  CHECK(http.post(process.url() + "/v3/kv/compaction", "{\"revision\":\"" + std::to_string(all.revision - 2) + "\"}",
                  milliseconds(5000), true)
            .status == 200);
  etcd_store late(process.url(), std::chrono::seconds(20));
  const store_news anew = late.changes("many/", 1, milliseconds(0));
  CHECK(anew.anew);
  CHECK(anew.changes.size() == 3);
  CHECK(anew.revision >= all.revision);
  CHECK_FALSE(late.changes("many/", all.revision - 2, milliseconds(0)).anew);
  CHECK(late.changes("", all.revision + 100, milliseconds(0)).anew);
  CHECK_FALSE(other.changes("", all.revision - 90, milliseconds(0)).anew);  // it has seen them
}

TEST_CASE("what every store owes, of an etcd through a proxy that cuts, delays and repeats") {
  if (!there_is_an_etcd()) return;
  etcd_process process;
  {
    etcd_store direct(process.url(), std::chrono::seconds(20));
    direct.read("a");  // it runs
  }
  cutting_proxy proxy(process.address());
  const std::string url = "http://" + proxy.address();
  etcd_store store(url, std::chrono::seconds(20));
  using plan = std::vector<cutting_proxy::act>;
  const std::uint64_t first = store.swap("a", "1", no_revision);
  store.read("a");  // over a connection that is kept
  proxy.misbehave(plan{cutting_proxy::cut_after, cutting_proxy::pass});
  const std::string lost =
      "reshard: the etcd at " + url + " did not answer /v3/kv/txn, so that it may have been done: ";
  CHECK(testing::unreachable([&] { store.swap("a", "2", first); }).starts_with(lost));
  proxy.misbehave({});
  CHECK(store.read("a")->value == "2");
  CHECK(store.swap("a", "2", first) == 0);
  proxy.misbehave(plan{cutting_proxy::repeat});
  CHECK(store.swap("a", "3", store.read("a")->revision) != 0);
  CHECK(store.read("a")->value == "3");

  proxy.misbehave(plan{cutting_proxy::pass, cutting_proxy::cut_after, cutting_proxy::delay, cutting_proxy::pass,
                       cutting_proxy::repeat, cutting_proxy::pass, cutting_proxy::cut_before});
  const any_store s(store);
  const testing::store_counts counts = testing::law_of_many({s, s, s}, s, testing::sanitized ? 10 : 30);
  MESSAGE(counts.made << " made, " << counts.refused << " refused, " << counts.unknown << " unknown of which "
                      << counts.unknown_made << " made, " << counts.changes << " changes seen");
  for (int a = 0; a < cutting_proxy::acts; ++a) CHECK_MESSAGE(proxy.done[static_cast<std::size_t>(a)] > 3, a);
  proxy.misbehave({});

  // The watch is cut in silence: what others are answered tells that the etcd has gone on.
  etcd_store cut(url, milliseconds(3000));
  const std::uint64_t after = store.list("").revision;
  CHECK(testing::insist([&] { return cut.changes("b", after - 2, milliseconds(0)); }).changes.empty());
  proxy.mute("/v3/watch");
  CHECK(store.swap("b", "1", no_revision) == after + 1);
  CHECK(testing::unreachable([&] { cut.changes("b", after, milliseconds(0)); }) ==
        "reshard: the etcd at " + url + " did not tell what changed after revision " + std::to_string(after) +
            " within 3000 ms");
  proxy.unmute();
  store_news news;
  for (int tries = 0; tries < 5 && news.changes.empty(); ++tries) try {
      news = cut.changes("b", after, milliseconds(0));
    } catch (const store_unreachable&) {
    }
  CHECK(news.changes == std::vector<store_change>{{{"b", "1", after + 1}, false}});
  const store_news all = cut.changes("", after - 2, milliseconds(0));
  CHECK(all.changes.size() == 3);  // each once, over two watches
  testing::check_order(all.changes, after - 1);
}

TEST_CASE("an etcd that is killed, started again, or stands still") {
  if (!there_is_an_etcd()) return;
  etcd_process process;
  etcd_store store(process.url(), std::chrono::seconds(20)), hasty(process.url(), milliseconds(300));
  const any_store s(store);
  const lease_id lease = store.lease(milliseconds(30'000));
  store.swap("leased", "", no_revision, lease);
  int deaths = 0;
  const testing::store_counts counts = testing::law_of_many({s, s}, s, 40, [&] {
    for (; deaths < 2; ++deaths) {
      std::this_thread::sleep_for(milliseconds(30));
      process.kill();
      process.start();
      CHECK(testing::insist([&] { return store.renew(lease); }));
    }
  });
  CHECK(counts.made == 80);
  MESSAGE(counts.made << " made, " << counts.unknown << " unknown of which " << counts.unknown_made << " made, "
                      << deaths << " deaths");
  CHECK(store.read("leased"));
  process.signal(SIGSTOP);
  const std::uint64_t after = 1;
  CHECK(testing::unreachable([&] {
          hasty.read("leased");
        }).starts_with("reshard: the etcd at " + process.url() + " did not answer /v3/kv/range: "));
  CHECK(testing::unreachable([&] { hasty.changes("leased", after, milliseconds(0)); }) != "answered");
  process.signal(SIGCONT);
  CHECK(store.renew(lease));
  CHECK(store.read("leased"));
}
