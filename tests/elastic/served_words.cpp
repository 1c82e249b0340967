// SPDX-License-Identifier: Apache-2.0
// What is said to a served store, byte by byte as its header describes it: numbers, texts, frames, questions and
// answers, what is refused of them, and what a state answers to each question.
#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/elastic/served/words.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using detail::answer;
using detail::frame_at;
using detail::frame_reader;
using detail::framed;
using detail::store_answer;
using detail::store_request;
using kind = store_request::kind;
using ms = patience;

namespace {

/// 8 bytes, least first; written by division.
std::string number(std::uint64_t n) {
  std::string bytes;
  for (int i = 0; i < 8; ++i, n /= 256) bytes += static_cast<char>(n % 256);
  return bytes;
}
std::string text(const std::string& of) { return number(of.size()) + of; }
/// A text with zeros in it.
template <std::size_t n>
std::string raw(const char (&bytes)[n]) {
  return {bytes, n - 1};
}

std::string question(std::uint64_t what, const std::string& key, const std::string& value, std::uint64_t revision,
                     std::uint64_t lease, std::uint64_t time) {
  return number(what) + text(key) + text(value) + number(revision) + number(lease) + number(time);
}

/// A state in which key a has a lease and key ab none, at revision 2.
struct two_keys {
  two_keys() {
    held = state.lease(ms(100), ms(1000));
    REQUIRE(state.swap("a", "1", no_revision, held) == 1);
    REQUIRE(state.swap("ab", "2", no_revision, no_lease) == 2);
  }
  store_answer ask(const store_request& r, ms now = ms(1000)) { return answer(state, r, now); }

  store_state state;
  lease_id held = no_lease;
};

bool says(const store_answer& a, std::uint64_t said, const std::vector<store_change>& changes = {}, bool anew = false) {
  return a.number == said && a.changes == changes && a.anew == anew && a.refused.empty();
}

}  // namespace

TEST_CASE("a number is eight bytes, least first; a text its length and its bytes") {
  std::string to = "x";
  detail::write_number(to, 0xF1E2D3C4B5A69788u);
  CHECK(to == "x\x88\x97\xA6\xB5\xC4\xD3\xE2\xF1");
  to.clear();
  detail::write_text(to, raw("a\0b"));
  detail::write_text(to, "");
  CHECK(to == raw("\3\0\0\0\0\0\0\0a\0b\0\0\0\0\0\0\0\0"));
  frame_reader back(to);
  CHECK(back.text() == raw("a\0b"));
  CHECK_FALSE(back.empty());
  CHECK(back.text().empty());
  CHECK(back.empty());
  CHECK(frame_reader("\x88\x97\xA6\xB5\xC4\xD3\xE2\xF1").number() == 0xF1E2D3C4B5A69788u);
  CHECK_REFUSED(frame_reader("1234567").number(), "a frame that ends 1 bytes too early");
  CHECK_REFUSED(frame_reader("").number(), "a frame that ends 8 bytes too early");
  CHECK_REFUSED(frame_reader(number(5) + "abc").text(), "a frame that ends 2 bytes too early");
  CHECK_REFUSED(frame_reader(std::string(8, '\xFF') + "a").text(), "ends 18446744073709551614 bytes too early");
}

TEST_CASE("a question is its kind, key, value, revision, lease and time, written and read") {
  const std::vector<std::pair<kind, std::uint64_t>> kinds = {
      {kind::read, 1},   {kind::list, 2},    {kind::swap, 3},   {kind::remove, 4}, {kind::lease, 5}, {kind::renew, 6},
      {kind::revoke, 7}, {kind::changes, 8}, {kind::counts, 9}, {kind::grant, 10}, {kind::put, 11}};
  for (const auto& [what, as] : kinds) {
    const store_request asked{
        .what = what, .key = "key", .value = "its value", .revision = 1u << 20, .lease = 77, .time = ms(604'800'000)};
    const std::string words = question(as, "key", "its value", 1u << 20, 77, 604'800'000);
    CHECK(words_of(asked) == words);
    const std::string two = words + question(1, "", "", 5, 6, 7);
    frame_reader from(two);
    const store_request back = read_request(from);
    CHECK(back.what == what);
    CHECK(back.key == "key");
    CHECK(back.value == "its value");
    CHECK(back.revision == 1u << 20);
    CHECK(back.lease == 77);
    CHECK(back.time == ms(604'800'000));
    CHECK(read_request(from).revision == 5);  // the next begins where this one ended
    CHECK(from.empty());
  }
  CHECK(words_of(store_request{}) == question(1, "", "", 0, 0, 0));
}

TEST_CASE("a question of no kind, or of a time beyond a week, is refused") {
  const auto read = [](const std::string& words) {
    frame_reader from(words);
    return read_request(from);
  };
  CHECK_REFUSED(read(number(0)), "a frame asks for 0, which is nothing that a store does");
  CHECK_REFUSED(read(number(12)), "a frame asks for 12, which is nothing that a store does");
  CHECK_REFUSED(read(number(257)), "a frame asks for 257, which is nothing that a store does");
  CHECK_REFUSED(read(question(1, "", "", 0, 0, 604'800'001)),
                "a frame names a time of 604800001 ms; at most 604800000");
  CHECK_REFUSED(read(question(1, "", "", 0, 0, ~std::uint64_t{0})), "a frame names a time of 18446744073709551615 ms");
  const std::string whole = question(11, "k", "v", 1, 2, 3);
  for (std::size_t n = 0; n < whole.size(); ++n) CHECK_REFUSED(read(whole.substr(0, n)), "bytes too early");
}

TEST_CASE("an answer is its number, whether anew, why refused, and its changes, written and read") {
  const store_answer told{7, true, {{{"k", "value", 300}, false}, {{"gone", "", 301}, true}}, "no"};
  const std::string words = number(7) + number(1) + text("no") + number(2) +  //
                            text("k") + text("value") + number(300) + number(0) + text("gone") + text("") +
                            number(301) + number(1);
  CHECK(words_of(told) == words);
  const store_answer back = read_answer(frame_reader(words));
  CHECK(back.number == 7);
  CHECK(back.anew);
  CHECK(back.refused == "no");
  CHECK(back.changes == told.changes);
  CHECK(words_of(store_answer{}) == std::string(32, '\0'));
  const store_answer nothing = read_answer(frame_reader(std::string(32, '\0')));
  CHECK(says(nothing, 0));
  for (std::size_t n = 0; n < words.size(); ++n)
    CHECK_REFUSED(read_answer(frame_reader(std::string_view(words).substr(0, n))), "bytes too early");
}

TEST_CASE("a frame is four bytes of length, least first, and so many; it is there once it has come whole") {
  CHECK(framed("") == raw("\0\0\0\0"));
  CHECK(framed("abc") == raw("\3\0\0\0abc"));
  const std::string long_one = framed(std::string(0x030201, 'x'));
  CHECK(long_one.substr(0, 4) == raw("\1\2\3\0"));
  CHECK(long_one.size() == 4 + 0x030201);
  const std::string two = raw("\3\0\0\0abcd");
  for (std::size_t n = 0; n < 7; ++n) CHECK_FALSE(frame_at(two.substr(0, n), 3));
  CHECK(frame_at(std::string_view(two).substr(0, 7), 3) == "abc");
  CHECK(frame_at(two, 3) == "abc");
  CHECK(frame_at(raw("\0\0\0\0"), 0) == "");
  CHECK(frame_at(long_one, 0x030201) == std::string(0x030201, 'x'));
  CHECK_FALSE(frame_at("\xFF\xFF\xFF", 3));
  CHECK_REFUSED(frame_at(two, 2), "a frame of 3 bytes; at most 2 are read");
  CHECK_REFUSED(frame_at("\4\3\2\xF1", 1000), "a frame of 4043440900 bytes; at most 1000 are read");
  CHECK(detail::most_asked == 16777216);
  CHECK(detail::most_answered == 1073741824);
  CHECK(detail::store_greeting == "rshstor1");
}

TEST_CASE("a key that is read, and keys that are listed, are told as changes that removed nothing") {
  two_keys s;
  CHECK(says(s.ask({.what = kind::read, .key = "a"}), 0, {{{"a", "1", 1}, false}}));
  CHECK(says(s.ask({.what = kind::read, .key = "b"}), 0));
  CHECK(says(s.ask({.what = kind::list, .key = "a"}), 2, {{{"a", "1", 1}, false}, {{"ab", "2", 2}, false}}));
  CHECK(says(s.ask({.what = kind::list, .key = "ab"}), 2, {{{"ab", "2", 2}, false}}));
  CHECK(says(s.ask({.what = kind::list, .key = "b"}), 2));
}

TEST_CASE("a swap and a removal are answered with what was made of them, nothing where somebody was faster") {
  two_keys s;
  CHECK(says(s.ask({.what = kind::swap, .key = "a", .value = "3", .revision = 2}), 0));
  CHECK(says(s.ask({.what = kind::swap, .key = "ab", .value = "3", .revision = 2, .lease = s.held}), 3));
  CHECK(s.state.read("ab") == stored{"ab", "3", 3});
  CHECK(s.state.leases().at(s.held).keys == std::set<std::string>{"a", "ab"});
  CHECK(says(s.ask({.what = kind::swap, .key = "c", .lease = 55}), 0));
  CHECK(says(s.ask({.what = kind::remove, .key = "ab", .revision = 2}), 0));
  CHECK(says(s.ask({.what = kind::remove, .key = "ab", .revision = 3}), 1));
  CHECK_FALSE(s.state.read("ab"));
}

TEST_CASE("leases are made, renewed from now on, and revoked with their keys") {
  two_keys s;
  CHECK(says(s.ask({.what = kind::lease, .time = ms(50)}, ms(2000)), 2));
  CHECK(s.state.leases().at(2).ends == ms(2050));
  CHECK(says(s.ask({.what = kind::renew, .lease = 1}, ms(3000)), 1));
  CHECK(s.state.leases().at(1).ends == ms(3100));
  CHECK(says(s.ask({.what = kind::renew, .lease = 3}), 0));
  CHECK(says(s.ask({.what = kind::revoke, .lease = 3}), 0));
  CHECK(says(s.ask({.what = kind::revoke, .lease = 1}), 1));
  CHECK_FALSE(s.state.read("a"));
  CHECK(s.state.read("ab"));
  CHECK_REFUSED(s.ask({.what = kind::lease}), "a lease of 0 ms");
}

TEST_CASE("changes are those that there are, and what is forgotten is told anew") {
  two_keys s;
  CHECK(says(s.ask({.what = kind::changes, .key = "a", .revision = 1}), 2, {{{"ab", "2", 2}, false}}));
  CHECK(says(s.ask({.what = kind::changes, .key = "a", .revision = 2, .time = ms(5000)}), 2));
  CHECK(says(s.ask({.what = kind::changes, .key = "b", .revision = 0}), 2));
  CHECK(says(s.ask({.what = kind::changes, .key = "ab", .revision = 9}), 2, {{{"ab", "2", 2}, false}}, true));
}

TEST_CASE("what only a journal says gives a state its counts, leases and keys") {
  store_state state;
  CHECK(says(answer(state, {.what = kind::counts, .revision = 70, .lease = 4}, ms(0)), 0));
  CHECK(state.revision() == 70);
  CHECK(state.last_lease() == 4);
  CHECK(says(answer(state, {.what = kind::grant, .lease = 3, .time = ms(20)}, ms(500)), 0));
  CHECK(state.leases().at(3).ends == ms(520));
  CHECK(state.leases().at(3).time == ms(20));
  CHECK(says(answer(state, {.what = kind::put, .key = "k", .value = "v", .revision = 60, .lease = 3}, ms(0)), 0));
  CHECK(state.read("k") == stored{"k", "v", 60});
  CHECK(state.leases().at(3).keys == std::set<std::string>{"k"});
  CHECK(state.revision() == 70);
}

TEST_CASE("kept is what changed keys or leases: a swap, a removal, a lease, a revocation that was one") {
  for (std::uint64_t k = 1; k <= 11; ++k) {
    const store_request asked{.what = static_cast<kind>(k)};
    CHECK(is_kept(asked, {.number = 1, .changes = {}, .refused = {}}) == (k == 3 || k == 4 || k == 5 || k == 7));
    CHECK_FALSE(is_kept(asked, {.number = 0, .changes = {}, .refused = {}}));
  }
}
