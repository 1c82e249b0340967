// SPDX-License-Identifier: Apache-2.0
// One who asks a store, over a pair of sockets: questions one after the other however they come, an answer that goes as
// the other end reads it, and when there is something to do without waiting.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <sys/socket.h>

#include <reshard/elastic/served/callers.hpp>

using namespace reshard;
using detail::framed;
using kind = detail::store_request::kind;

namespace {
/// Both ends of a connection that holds little: what the store has of it, and the other one's.
struct connection {
  connection() : connection(pair()) {}
  void tell(std::string_view what) {
    REQUIRE(::send(other.number(), what.data(), what.size(), MSG_DONTWAIT) == std::ssize(what));
    caller.receive(POLLIN);
  }
  std::string hear(std::size_t most) {
    std::string some(most, '\0');
    const auto came = ::recv(other.number(), some.data(), most, MSG_DONTWAIT);
    some.resize(came < 0 ? 0 : static_cast<std::size_t>(came));
    return some;
  }

  owned_descriptor other;
  detail::store_caller caller;

 private:
  static std::pair<int, int> pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const int few = 4096;
    for (const int end : ends) REQUIRE(::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
    return {ends[0], ends[1]};
  }
  explicit connection(std::pair<int, int> ends) : other(ends.first), caller(owned_descriptor(ends.second)) {}
};

const std::string hello(detail::store_greeting);
std::string question(const char* key) { return framed(words_of(detail::store_request{.key = key})); }
detail::store_answer long_answer() {
  detail::store_answer a;
  a.changes.push_back({{"k", std::string(1 << 16, 'x'), 1}, false});
  return a;
}
}  // namespace

TEST_CASE("a greeting and a question may come byte by byte; then it is asked once") {
  connection c;
  const std::string all = hello + question("key");
  for (const char& byte : all) {
    CHECK(!c.caller.next());
    CHECK(!c.caller.has_more());
    c.tell({&byte, 1});
  }
  CHECK(c.caller.watched().events == (POLLIN | POLLRDHUP));
  const std::optional<detail::store_request> asked = c.caller.next();
  REQUIRE(asked);
  CHECK(asked->what == kind::read);
  CHECK(asked->key == "key");
  CHECK(!c.caller.next());
  CHECK(!c.caller.gone());
}

TEST_CASE("what is no greeting is answered with a sentence, and is the end as soon as that differs") {
  for (const std::string& wrong : {std::string("x"), hello.substr(0, 3) + "x", hello.substr(0, 7) + "2"}) {
    connection c;
    c.tell(wrong);
    CHECK(!c.caller.next());
    CHECK(!c.caller.gone());  // the sentence is to be sent
    c.caller.send();
    CHECK(c.caller.gone());
    const std::string told = c.hear(4096);
    CHECK(told.find("this is a store of reshard, and that was no greeting") != told.npos);
  }
}

TEST_CASE("there is more where a whole question came, and neither an answer nor news are owed") {
  connection c;
  c.tell(hello + question("a") + question("b"));
  CHECK(!c.caller.has_more());  // not greeted: next() sees to that
  REQUIRE(c.caller.next()->key == "a");
  CHECK(c.caller.has_more());
  c.caller.waits = {{.what = kind::changes}, {}};
  CHECK(!c.caller.has_more());
  CHECK(!c.caller.next());
  c.caller.waits.reset();
  CHECK(c.caller.has_more());
  c.caller.say({});
  CHECK(!c.caller.has_more());
  CHECK(!c.caller.next());
  c.caller.send();
  CHECK(c.caller.has_more());
  REQUIRE(c.caller.next()->key == "b");
  CHECK(!c.caller.has_more());
  c.tell(question("c").substr(0, 20));
  CHECK(!c.caller.has_more());
}

TEST_CASE("who does not read gets nothing more, is not asked about again, and is asked where the rest has gone") {
  connection c;
  c.tell(hello + question("a") + question("b"));
  REQUIRE(c.caller.next());
  const detail::store_answer a = long_answer();
  c.caller.say(a);
  CHECK(c.caller.watched().events == (POLLOUT | POLLRDHUP));
  c.caller.send();
  CHECK(c.caller.watched().events == (POLLOUT | POLLRDHUP));  // some of it has not gone
  CHECK(!c.caller.has_more());
  CHECK(!c.caller.next());
  std::string heard;
  for (int i = 0; i < 1000 && c.caller.watched().events != (POLLIN | POLLRDHUP); ++i) {
    heard += c.hear(1000);
    c.caller.send();
  }
  for (std::string some; !(some = c.hear(4096)).empty();) heard += some;
  CHECK(heard == framed(words_of(a)));
  CHECK(c.caller.has_more());
  CHECK(c.caller.next()->key == "b");
}

TEST_CASE("after a sentence that ends it nothing is asked, and it is gone once that has been sent") {
  connection c;
  c.tell(hello + framed("") + question("b"));
  CHECK(!c.caller.next());
  CHECK(!c.caller.has_more());
  CHECK(!c.caller.next());
  c.caller.send();
  CHECK(c.caller.gone());
  CHECK(!c.caller.has_more());
  CHECK(!c.caller.next());
  c.caller.send();  // nothing
  const std::string told = c.hear(4096);
  CHECK(told.find("a frame that ends 8 bytes too early") != told.npos);
}

TEST_CASE("whose other end is gone is gone, and what it had asked is not done") {
  for (const int happened : {POLLRDHUP, POLLHUP, POLLERR, POLLIN | POLLRDHUP}) {
    connection c;
    c.tell(hello);
    REQUIRE(::send(c.other.number(), question("a").data(), question("a").size(), MSG_DONTWAIT) > 0);
    c.caller.receive(static_cast<short>(happened));
    CHECK(c.caller.gone());
    CHECK(!c.caller.next());
    CHECK(!c.caller.has_more());
    CHECK(c.caller.watched().fd == -1);
  }
  connection c;
  c.tell(hello);
  c.caller.receive(0);  // nothing happened
  CHECK(!c.caller.gone());
  c.other.close();
  c.caller.receive(POLLIN);
  CHECK(c.caller.gone());
  connection deaf;
  deaf.other.close();
  deaf.caller.say({});
  deaf.caller.send();
  CHECK(deaf.caller.gone());
}
