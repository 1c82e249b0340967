// SPDX-License-Identifier: Apache-2.0
// A store that a process serves: what every store owes, over connections that are cut, slow and said again, through
// deaths and standstills of the process; what a journal keeps, and what it refuses; and callers that say nonsense.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>

#include <reshard/elastic/served_store.hpp>
#include <reshard/elastic/store_server.hpp>

#include "../support/cutting_proxy.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/sanitized.hpp"
#include "../support/store_laws.hpp"
#include "../support/store_process.hpp"

using namespace reshard;
using std::chrono::milliseconds;
using testing::cutting_proxy;
using kind = detail::store_request::kind;

static_assert(Store<served_store>);

namespace {

std::string contents(const std::string& path) {
  std::string all;
  if (std::FILE* f = std::fopen(path.c_str(), "rb")) {
    for (int c; (c = std::fgetc(f)) != EOF;) all.push_back(static_cast<char>(c));
    std::fclose(f);
  }
  return all;
}
void write_file(const std::string& path, const std::string& all) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  REQUIRE(f != nullptr);
  REQUIRE(std::fwrite(all.data(), 1, all.size(), f) == all.size());
  std::fclose(f);
}

// A journal and its state, without a server.
struct kept_state {
  explicit kept_state(const std::string& path, store_memory memory = {}) : state(memory), journal(path, state) {}
  std::uint64_t ask(const detail::store_request& r) {
    const detail::store_answer a = answer(state, r, patience{});
    if (is_kept(r, a)) journal.append(words_of(r));
    return a.number;
  }
  bool operator==(const kept_state& other) const {
    if (state.leases().size() != other.state.leases().size()) return false;
    for (const auto& [lease, l] : state.leases())
      if (!other.state.leases().contains(lease) || other.state.leases().at(lease).keys != l.keys ||
          other.state.leases().at(lease).time != l.time)
        return false;
    return state.list("").all == other.state.list("").all && state.revision() == other.state.revision() &&
           state.last_lease() == other.state.last_lease();
  }

  store_state state;
  detail::store_journal journal;
};

}  // namespace

TEST_CASE("what every store owes, over a connection") {
  const testing::own_folder folder;
  const testing::store_process process(folder.path + "/journal");
  served_store store(process.address());
  const any_store s(store);
  testing::law_of_one(s);
  testing::law_of_leases(s, milliseconds(200));
  const testing::store_counts counts = testing::law_of_many({s, s, s}, s, 30);
  CHECK(counts.made == 90);
  CHECK(counts.unknown == 0);
  CHECK_REFUSED(store.lease(milliseconds(0)),
                "reshard: the store at " + process.address() + " refuses: a lease of 0 ms; it is of 1 to 604800000 ms");
  CHECK_REFUSED(store.swap("a", std::string(detail::most_asked, ' '), no_revision),
                "a store is asked 16777269 bytes at once; at most 16777216");
  CHECK_REFUSED(served_store("nowhere"), "the address 'nowhere' of a store: it is written host:port");
}

TEST_CASE("what every store owes, through a proxy that cuts, delays and repeats") {
  const testing::own_folder folder;
  const testing::store_process process(folder.path + "/journal");
  served_store(process.address()).read("a");  // it listens by then
  cutting_proxy proxy(process.address(), std::string(detail::store_greeting));
  served_store store(proxy.address());

  for (int i = 0; i < 20; ++i) CHECK_FALSE(store.read("a"));
  CHECK(proxy.called == 1);  // a connection stays for the next question
  // One by one: what a caller knows of a swap whose answer is lost.
  using plan = std::vector<cutting_proxy::act>;
  const std::string lost =
      "reshard: the store at " + proxy.address() + " did not answer whether 'a' was changed: the connection ended";
  const std::uint64_t first = store.swap("a", "1", no_revision);
  proxy.misbehave(plan{cutting_proxy::cut_before});
  CHECK(testing::unreachable([&] { store.swap("a", "2", first); }) == lost);
  proxy.misbehave(plan{cutting_proxy::pass});
  CHECK(store.read("a") == stored{"a", "1", first});
  proxy.misbehave(plan{cutting_proxy::cut_after});
  CHECK(testing::unreachable([&] { store.swap("a", "2", first); }) == lost);
  proxy.misbehave(plan{cutting_proxy::pass});
  CHECK(store.read("a")->value == "2");
  CHECK(store.swap("a", "2", first) == 0);  // said again: made once
  const std::uint64_t made = store.read("a")->revision;
  proxy.misbehave(plan{cutting_proxy::cut_after});
  CHECK(testing::unreachable([&] { store.remove("a", made); }) == lost);
  proxy.misbehave(plan{cutting_proxy::cut_after, cutting_proxy::cut_before, cutting_proxy::pass});
  CHECK_FALSE(store.read("a"));  // asked three times
  proxy.misbehave(plan{cutting_proxy::repeat});
  CHECK(store.swap("a", "3", no_revision) != 0);
  proxy.misbehave({});
  CHECK(store.changes("a", made, milliseconds(0)).changes.size() == 2);

  proxy.misbehave(plan{cutting_proxy::pass, cutting_proxy::cut_after, cutting_proxy::delay, cutting_proxy::pass,
                       cutting_proxy::repeat, cutting_proxy::pass, cutting_proxy::cut_before});
  const any_store s(store);
  const testing::store_counts counts = testing::law_of_many({s, s, s}, s, testing::sanitized ? 20 : 60);
  CHECK(counts.made >= 60);
  MESSAGE(counts.made << " made, " << counts.refused << " refused, " << counts.unknown << " unknown of which "
                      << counts.unknown_made << " made, " << counts.changes << " changes seen");
  for (int a = 0; a < cutting_proxy::acts; ++a) CHECK_MESSAGE(proxy.done[static_cast<std::size_t>(a)] > 3, a);
}

TEST_CASE("a store that is killed and started again has all that it answered") {
  const testing::own_folder folder;
  testing::store_process process(folder.path + "/journal");
  served_store store(process.address());
  const any_store s(store);
  const lease_id kept = store.lease(milliseconds(10'000)), left = store.lease(milliseconds(300));
  store.swap("lease/kept", "", no_revision, kept);
  store.swap("lease/left", "", no_revision, left);
  int deaths = 0;
  const testing::store_counts counts = testing::law_of_many({s, s, s}, s, 100, [&] {
    for (; deaths < 5; ++deaths) {
      std::this_thread::sleep_for(milliseconds(15));
      process.kill();
      std::this_thread::sleep_for(milliseconds(5));
      process.start();
      CHECK(testing::insist([&] { return store.renew(kept); }));  // a whole time anew, since nobody could
    }
  });
  CHECK(counts.made == 300);
  MESSAGE(counts.made << " made, " << counts.unknown << " unknown of which " << counts.unknown_made << " made, "
                      << deaths << " deaths");
  CHECK(store.read("lease/kept"));
  for (int i = 0; i < 400 && store.read("lease/left"); ++i) std::this_thread::sleep_for(milliseconds(25));
  CHECK_FALSE(store.read("lease/left"));
  CHECK_FALSE(store.renew(left));
  CHECK(store.lease(milliseconds(1)) > left);
}

TEST_CASE("a store that stands still is unreachable, does nothing late, and takes no lease for it") {
  const testing::own_folder folder;
  testing::store_process process(folder.path + "/journal");
  served_store store(process.address(), milliseconds(200)), patient(process.address());
  const std::uint64_t first = patient.swap("a", "1", no_revision);
  const lease_id lease = patient.lease(milliseconds(2000));
  process.signal(SIGSTOP);
  CHECK(testing::unreachable([&] { store.read("a"); }) ==
        "reshard: the store at " + process.address() + " did not answer within 200 ms: it is silent");
  CHECK(testing::unreachable([&] { store.swap("a", "2", first); }) ==
        "reshard: the store at " + process.address() + " did not answer whether 'a' was changed: it is silent");
  CHECK(testing::unreachable([&] { store.changes("a", first, milliseconds(100)); }).ends_with("it is silent"));
  std::this_thread::sleep_for(milliseconds(1700));
  process.signal(SIGCONT);
  std::this_thread::sleep_for(milliseconds(100));  // it looks for what is over meanwhile
  CHECK(patient.renew(lease));
  CHECK(patient.read("a") == stored{"a", "1", first});  // nobody waits for that swap any more
  CHECK(patient.swap("a", "3", first) == first + 1);
  process.kill();
  CHECK(testing::unreachable([&] { store.read("a"); }).ends_with(": nobody listens there"));
  process.start();
  CHECK(patient.read("a")->value == "3");
}

TEST_CASE("a change is waited for as long as the limit is; a question is asked again, after a third of it") {
  const testing::own_folder folder;
  testing::store_process process(folder.path + "/journal");
  served_store store(process.address(), milliseconds(3000));
  const std::uint64_t first = store.swap("a", "1", no_revision);
  process.signal(SIGSTOP);
  std::thread goes_on([&] {
    std::this_thread::sleep_for(milliseconds(1300));
    process.signal(SIGCONT);
  });
  std::uint64_t second = 0;
  const std::string said = testing::unreachable([&] { second = store.swap("a", "2", first); });
  goes_on.join();
  CHECK(said == "answered");
  CHECK(second == first + 1);
}

TEST_CASE("nonsense ends its connection with a sentence, and nobody waits for who is slow") {
  const testing::own_folder folder;
  const testing::store_process process(folder.path + "/journal");
  served_store store(process.address());
  const std::uint64_t first = store.swap("known", std::string(1 << 20, 'x'), no_revision);

  const auto say = [&](const std::string& what, bool hear) {
    owned_descriptor link = call_address(process.address(), milliseconds(1000));
    REQUIRE(link.open());
    send_some(link.number(), reinterpret_cast<const std::byte*>(what.data()), what.size());
    std::string all(4096, '\0');
    pollfd ready{link.number(), POLLIN, 0};
    if (hear) ::poll(&ready, 1, 5000);
    all.resize(receive_some(link.number(), reinterpret_cast<std::byte*>(all.data()), all.size()).bytes);
    return std::pair(std::move(link), all);
  };
  const std::string hello(detail::store_greeting);
  using detail::framed;
  const auto refused_with = [&](const std::string& what, const char* sentence) {
    const std::string told = say(what, true).second;
    CHECK_MESSAGE(told.find(sentence) != told.npos, sentence);
  };
  refused_with("GET / HTTP/1.1\r\n\r\n", "this is a store of reshard, and that was no greeting");
  refused_with(hello + "\xFF\xFF\xFF\xFF", "a frame of 4294967295 bytes; at most 16777216 are read");
  refused_with(hello + framed(""), "a frame that ends 8 bytes too early");
  refused_with(hello + framed(std::string(8, '\0')), "a frame asks for 0, which is nothing that a store does");
  refused_with(hello + framed(words_of(detail::store_request{}) + "x"), "a frame that is longer than what it says");
  for (const kind k : {kind::counts, kind::grant, kind::put})
    refused_with(hello + framed(words_of(detail::store_request{.what = k})),
                 "a frame asks for what only a journal says");
  std::string forever = words_of(detail::store_request{.what = kind::changes});
  forever.back() = '\x7F';
  refused_with(hello + framed(forever), "a frame names a time of 9151314442816847872 ms; at most 604800000");

  // Half a question; one that reads nothing of a long answer; one that waits: others are answered meanwhile.
  const auto half = say(hello + framed(words_of(detail::store_request{})).substr(0, 9), false).first;
  const auto deaf = say(hello + framed(words_of(detail::store_request{.what = kind::list})), false).first;
  const auto waits =
      say(hello + framed(words_of(detail::store_request{
                      .what = kind::changes, .key = "z", .revision = first, .time = milliseconds(60'000)})),
          false);
  CHECK(store.read("known")->revision == first);
  CHECK(store.lease(milliseconds(60'000)) != no_lease);  // it looks after that now and then
  const double used = process.used();
  std::this_thread::sleep_for(milliseconds(300));
  CHECK(process.used() - used < 0.02);  // it waits for them, and does not look again and again

  // Two questions at once are answered one after the other.
  const auto twice = framed(words_of(detail::store_request{.key = "none"}));
  auto [both, told] = say(hello + twice + twice, true);
  for (int i = 0; i < 50 && told.size() < 72; ++i) {
    std::array<std::byte, 72> some;
    pollfd ready{both.number(), POLLIN, 0};
    ::poll(&ready, 1, 100);
    told.append(reinterpret_cast<char*>(some.data()), receive_some(both.number(), some.data(), some.size()).bytes);
  }
  CHECK(told.size() == 72);  // 2 x 4 of length, and 4 numbers
  pollfd more{both.number(), POLLIN, 0};
  CHECK(::poll(&more, 1, 50) == 0);  // and once each

  testing::dice random(1);
  long flipped = 0, cut = 0, noise = 0;
  for (int i = 0; i < 200; ++i) {
    std::string what = hello + framed(words_of(detail::store_request{
                                   .what = static_cast<kind>(random.within(1, 8)), .key = "k", .value = "v"}));
    if (i % 3 == 0)
      what[static_cast<std::size_t>(random.below(60))] ^= static_cast<char>(1 << random.below(7)), ++flipped;
    if (i % 3 == 1) what.resize(static_cast<std::size_t>(random.below(60))), ++cut;
    if (i % 3 == 2)
      for (std::size_t at = hello.size(); at < what.size(); ++at) what[at] = static_cast<char>(random.bits());
    noise += i % 3 == 2;
    say(what, false);
  }
  CHECK(store.read("known")->revision == first);
  CHECK(flipped + cut + noise == 200);
}

TEST_CASE("words are read as they were written, and refused where they end early") {
  testing::dice random(2);
  const auto text = [&] {
    std::string all(static_cast<std::size_t>(random.below(20)), ' ');
    for (char& c : all) c = static_cast<char>(random.bits());
    return all;
  };
  for (int i = 0; i < 50; ++i) {
    const detail::store_request r{.what = static_cast<kind>(random.within(1, 11)),
                                  .key = text(),
                                  .value = text(),
                                  .revision = random.bits(),
                                  .lease = static_cast<lease_id>(random.bits()),
                                  .time = milliseconds(random.below(longest_store_wait.count() + 1))};
    const std::string words = words_of(r);
    detail::frame_reader from(words);
    const detail::store_request back = read_request(from);
    CHECK(from.empty());
    CHECK(words_of(back) == words);
    CHECK(back.key == r.key);
    CHECK(back.revision == r.revision);
    CHECK(back.time == r.time);
    detail::store_answer a{random.bits(), random.coin(), {}, text()};
    for (auto n = random.below(4); n > 0; --n) a.changes.push_back({{text(), text(), random.bits()}, random.coin()});
    const std::string said = words_of(a);
    const detail::store_answer heard = read_answer(detail::frame_reader(said));
    CHECK(heard.changes == a.changes);
    CHECK(words_of(heard) == said);
    for (std::size_t n = 0; n < words.size(); ++n) {
      detail::frame_reader torn(std::string_view(words).substr(0, n));
      CHECK_REFUSED(read_request(torn), "bytes too early");
    }
    for (std::size_t n = 0; n < said.size(); ++n)
      CHECK_REFUSED(read_answer(detail::frame_reader(std::string_view(said).substr(0, n))), "bytes too early");
    std::string noise = said;
    for (int flips = 0; flips < 3; ++flips)
      noise[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(noise.size())))] ^= 64;
    testing::refused([&] { read_answer(detail::frame_reader(noise)); });  // or not: but no more than that
  }
}

TEST_CASE("a journal has all but what was torn, and refuses what is damaged, foreign or another's") {
  const testing::own_folder folder;
  const std::string path = folder.path + "/journal";
  std::vector<std::size_t> ends;  // of each record
  {
    kept_state kept(path);
    CHECK_REFUSED(kept_state(path),
                  "the journal " + path + " is another store's, which runs; one process serves a journal");
    ends.push_back(kept.journal.bytes());
    const auto ask = [&](const detail::store_request& r) {
      const std::uint64_t n = kept.ask(r);
      CHECK(n != 0);
      ends.push_back(kept.journal.bytes());
      return n;
    };
    const auto lease = static_cast<lease_id>(ask({.what = kind::lease, .time = milliseconds(70)}));
    const std::uint64_t a = ask({.what = kind::swap, .key = "a", .value = "1", .lease = lease});
    ask({.what = kind::swap, .key = "b", .value = "2"});
    ask({.what = kind::remove, .key = "a", .revision = a});
    ask({.what = kind::swap, .key = "a", .value = "3", .lease = lease});
    CHECK(kept.ask({.what = kind::swap, .key = "a", .value = "3"}) == 0);
    CHECK(kept.ask({.what = kind::renew, .lease = lease}) == 1);
    CHECK(kept.journal.bytes() == ends.back());  // what changes nothing is not kept
    ask({.what = kind::revoke, .lease = lease});
  }
  const std::string whole = contents(path);
  CHECK(whole.size() == ends.back());
  long torn = 0;
  for (std::size_t n = ends[3]; n <= whole.size(); ++n) {
    write_file(path, whole.substr(0, n));
    std::size_t good = 0;
    while (good + 1 < ends.size() && ends[good + 1] <= n) ++good;
    torn += n != ends[good];
    auto kept = std::make_unique<kept_state>(path);
    const std::uint64_t revisions[] = {0, 0, 1, 2, 3, 4, 5};
    CHECK(kept->state.revision() == revisions[good]);
    CHECK(kept->state.leases().size() == (good >= 1 && good < 6));
    CHECK(kept->journal.bytes() == ends[good]);
    CHECK(kept->ask({.what = kind::swap, .key = "c"}) == revisions[good] + 1);  // and it goes on from there
    kept.reset();
    CHECK(kept_state(path).state.read("c"));
  }
  CHECK(torn > 100);
  for (std::size_t n = 1; n < 16; ++n) {  // torn as it began
    write_file(path, whole.substr(0, n));
    CHECK(kept_state(path).state.revision() == 0);
  }
  std::string zeros = whole;
  zeros.resize(whole.size() + 100);
  write_file(path, zeros);  // the length was on the disk before the bytes
  CHECK(kept_state(path).state.revision() == 5);
  std::string damaged = whole;
  damaged[ends[2] - 1] ^= 1;
  write_file(path, damaged);
  CHECK_REFUSED(kept_state(path), "the journal " + path + " is damaged at byte " + std::to_string(ends[1]) + " of " +
                                      std::to_string(whole.size()) + ", before its end; what was answered is lost");
  CHECK(contents(path) == damaged);
  // whichever of a record's first 16 bytes it is, also its length; of the last one it is torn, as far as one sees
  std::vector<std::size_t> begins = {16};
  begins.insert(begins.end(), ends.begin(), ends.end() - 1);
  for (const std::size_t begin : begins)
    for (std::size_t byte = 0; byte < 16; ++byte) {
      damaged = whole;
      damaged[begin + byte] ^= static_cast<char>(byte == 0 ? 255 : 1);
      write_file(path, damaged);
      if (begin == begins.back()) CHECK(kept_state(path).state.revision() == 4);
      else
        CHECK_REFUSED(kept_state(path), "the journal " + path + " is damaged at byte " + std::to_string(begin) +
                                            " of " + std::to_string(whole.size()));
    }
  damaged = whole;
  damaged.back() ^= 1;
  write_file(path, damaged);
  CHECK(kept_state(path).state.revision() == 4);
  write_file(path, whole);
  {
    kept_state kept(path);
    CHECK(kept.ask({.what = kind::swap, .key = "copy", .value = whole.substr(16)}) == 6);
  }
  write_file(path, contents(path).substr(0, contents(path).size() - 1));  // torn, and whole records are within it
  CHECK(kept_state(path).state.revision() == 5);
  for (const char* foreign : {"what somebody else wrote", "a note", "reshard store 1\n"}) {
    write_file(path, foreign);
    CHECK_REFUSED(kept_state(path), "the file " + path + " is no journal of a store; another name, or away with it");
    CHECK(contents(path) == foreign);
  }
}

TEST_CASE("a journal that has grown is written anew, and says the same") {
  const testing::own_folder folder;
  const std::string path = folder.path + "/journal";
  kept_state kept(path);
  const auto lease = static_cast<lease_id>(kept.ask({.what = kind::lease, .time = milliseconds(70)}));
  kept.ask({.what = kind::lease, .time = milliseconds(80)});
  kept.ask({.what = kind::swap, .key = "leased", .value = "1", .lease = lease});
  std::uint64_t now = 0;
  int rewritten = 0, writes = 0;
  for (; writes < 300; ++writes) {
    now = kept.ask({.what = kind::swap, .key = "a", .value = std::string(10'000, 'v'), .revision = now});
    if (!kept.journal.grown()) continue;
    ++rewritten;
    kept.journal.rewrite(kept.state);
    CHECK(kept.journal.bytes() < 11'000);
    CHECK_REFUSED(kept_state(path), "is another store's");
  }
  CHECK(rewritten == 2);
  struct stat told = {};
  CHECK(::stat((path + ".new").c_str(), &told) != 0);
  const std::string copy = folder.path + "/copy";
  write_file(copy, contents(path));
  write_file(copy + ".new", "of a store that died as it wrote anew");
  kept_state again(copy);
  CHECK(again == kept);
  CHECK(again.state.changes("", 1).anew);  // what came before is forgotten
  CHECK_FALSE(again.state.changes("", now).anew);
  CHECK(again.ask({.what = kind::lease, .time = milliseconds(1)}) == 3);
  again.journal.rewrite(again.state);
  CHECK(again.ask({.what = kind::swap, .key = "a", .value = "w", .revision = now}) == now + 1);
}
