// SPDX-License-Identifier: Apache-2.0
// Requests and answers: from words and to text, every fault of a request by its sentence; random ones come back from
// the store's text as they were, and each byte that is changed is found out.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/request.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"
#include "../support/words.hpp"

using namespace reshard;
using testing::dice;

namespace {

job_request asked(std::vector<std::string> words) { return parse_request("ask#1", words); }
/// What a request with a change is refused with.
template <typename Change>
std::string fault(job_request q, const Change& change) {
  change(q);
  return testing::refused([&] { require_request(q); });
}

constexpr bool a_list_is_read() { return parse_members("a,b") == member_list{"a", "b"}; }
static_assert(a_list_is_read());

}  // namespace

TEST_CASE("requests of words") {
  CHECK(asked({"join", "a,b"}) == job_request{.id = "ask#1", .kind = request_kind::join, .members = {"a", "b"}});
  CHECK(asked({"leave", "a"}) == job_request{.id = "ask#1", .kind = request_kind::leave, .members = {"a"}});
  CHECK(asked({"replace", "a", "b"}) ==
        job_request{.id = "ask#1", .kind = request_kind::replace, .members = {"a", "b"}});
  CHECK(asked({"layout", "tp=2,zero=1"}) ==
        job_request{.id = "ask#1", .kind = request_kind::layout, .layout = degrees{.tp = 2, .zero = 1}});
  CHECK(asked({"layout", ""}).layout == degrees{});
  CHECK(asked({"batch", "64"}) == job_request{.id = "ask#1", .kind = request_kind::batch, .batch = 64});
  CHECK(asked({"batch", "1"}).batch == 1);
  CHECK(asked({"finish"}) == job_request{.id = "ask#1"});
  for (const std::string text :
       {"join a,b", "leave a", "replace a b", "layout tp=2", "layout tp=1", "batch 64", "finish"})
    CHECK(to_text(asked(testing::words_of(text))) == text);
}

TEST_CASE("what is no request") {
  const auto said = [](std::vector<std::string> words) {
    return testing::refused([&] { static_cast<void>(asked(std::move(words))); });
  };
  CHECK(said({}) == "reshard: request: '' is no kind; kinds are join, leave, replace, layout, batch and finish");
  CHECK(said({"joins", "a"}) ==
        "reshard: request: 'joins' is no kind; kinds are join, leave, replace, layout, batch and finish");
  CHECK(said({"join"}) == "reshard: request: join is followed by 0 words; it is join MEMBERS");
  CHECK(said({"leave", "a", "b"}) == "reshard: request: leave is followed by 2 words; it is leave MEMBERS");
  CHECK(said({"replace", "a,b"}) == "reshard: request: replace is followed by 1 word; it is replace MEMBER BY");
  CHECK(said({"layout"}) == "reshard: request: layout is followed by 0 words; it is layout LAYOUT");
  CHECK(said({"finish", "now"}) == "reshard: request: finish is followed by 1 word; it is finish");
  CHECK(said({"join", "a,b,a"}) == "reshard: request: join names a twice");
  CHECK(said({"replace", "a", "a"}) == "reshard: request: replace names a twice");
  for (const std::string list : {"", "a,", ",a"})
    CHECK(said({"join", list}) == "reshard: name: a name has 1 to 63 characters, and this one has 0");
  CHECK(said({"layout", "tq=1"}).starts_with("reshard: layout: 'tq' is no key"));
  for (const std::string batch : {"", "x", "1.5", "9223372036854775808"})
    CHECK(said({"batch", batch}) == "reshard: request: a batch of '" + batch + "'; it is a whole number, at least 1");
  for (const std::string batch : {"0", "-1"})
    CHECK(said({"batch", batch}) ==
          "reshard: request: batch has a batch of " + batch + " samples; it is batch B, and B is at least 1");
  CHECK_REFUSED(parse_request({}, {"finish"}), "request: finish has no id; its asker chooses one");
}

TEST_CASE("values that are no request") {
  const job_request join = asked({"join", "a"}), layout = asked({"layout", "dp=2"}), end = asked({"finish"});
  CHECK(fault(join, [](job_request& q) { q.members.clear(); }) ==
        "reshard: request: join names 0 members; it is join MEMBERS");
  CHECK(fault(end, [](job_request& q) { q.members = {"a"}; }) ==
        "reshard: request: finish names 1 members; it is finish");
  CHECK(fault(join, [](job_request& q) { q.kind = request_kind::replace; }) ==
        "reshard: request: replace names 1 members; it is replace MEMBER BY");
  CHECK(fault(layout, [](job_request& q) { q.layout.reset(); }) ==
        "reshard: request: layout has no layout; it is layout LAYOUT");
  CHECK(fault(join, [](job_request& q) { q.layout = degrees{}; }) ==
        "reshard: request: join has a layout; it is join MEMBERS");
  CHECK(fault(join, [](job_request& q) { q.batch = 4; }) ==
        "reshard: request: join has a batch of 4 samples; it is join MEMBERS");
  CHECK(fault(join, [](job_request& q) {
          q.members = {"a", {}};
        }) == "reshard: request: join names a member that has no name");
  CHECK_REFUSED(stored_text(job_request{}), "request: finish has no id; its asker chooses one");
}

TEST_CASE("requests as the store keeps them") {
  dice random(1);
  std::map<std::string, int> seen;
  const int rounds = testing::tries(1000);
  for (int i = 0; i < rounds; ++i) {
    job_request q{.id = "r" + std::to_string(random.bits()), .kind = static_cast<request_kind>(random.below(6))};
    const index_t members = q.kind == request_kind::replace                                 ? 2
                            : q.kind == request_kind::join || q.kind == request_kind::leave ? random.within(1, 5)
                                                                                            : 0;
    for (index_t m = 0; m < members; ++m) q.members.push_back("-m" + std::to_string(m) + "#" + std::to_string(i));
    if (q.kind == request_kind::layout)
      q.layout = degrees{.tp = random.within(1, 3), .dp = random.within(1, 3), .zero = random.below(3)};
    if (q.kind == request_kind::batch) q.batch = random.within(1, 1 << 20);
    ++seen[std::string(name(q.kind))];
    const std::string text = stored_text(q);
    CAPTURE(text);
    CHECK(request_of(text) == q);
    CHECK(parse_request(q.id, testing::words_of(to_text(q))) == q);
  }
  std::string counted;
  for (const auto& [what, times] : seen) counted += " " + what + " " + std::to_string(times);
  MESSAGE(rounds << " requests:" << counted);
  CHECK_DRAWN(seen.size() == 6);
}

TEST_CASE("a stored request that is damaged") {
  CHECK(stored_text(asked({"replace", "a", "b"})).substr(34) == " ask#1 replace a b");
  for (const auto& words : std::vector<std::vector<std::string>>{{"join", "a,b"}, {"layout", "dp=2"}, {"finish"}}) {
    const std::string text = stored_text(asked(words));
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (const int mask : {1, 2, 16, 32, 128, 255}) {
        std::string damaged = text;
        damaged[at] = static_cast<char>(damaged[at] ^ mask);
        CHECK_REFUSED(request_of(damaged), "request: the text ");
      }
      CHECK_REFUSED(request_of(text.substr(0, at)), "request: the text ");
    }
  }
  CHECK_REFUSED(request_of("reshard-record-3 x"),
                "request: the text begins with 'reshard-record-3', and a stored one with reshard-request-2");
}

TEST_CASE("answers") {
  for (const request_answer& a : {request_answer{}, request_answer{answer_kind::failed, "c died: twice"},
                                  request_answer{answer_kind::refused, ""}})
    CHECK(parse_answer(to_text(a)) == a);
  CHECK(to_text(request_answer{}) == "done");
  CHECK(to_text({answer_kind::failed, "c died"}) == "failed: c died");
  CHECK(to_text(refused_by(refusal("reshard: x is no member"))) == "refused: x is no member");
  for (const std::string text : {"", "don", "done ", "failed", "failed:", "failed:x", "refuse: x"})
    CHECK_REFUSED(parse_answer(text),
                  "answer: '" + text + "' is none; it is done, failed: SENTENCE or refused: SENTENCE");
  // of a word that is no answer 40 characters are shown, and of these what is visible ASCII
  const auto shown = [](const std::string& word) {
    return "answer: '" + word + "' is none; it is done, failed: SENTENCE or refused: SENTENCE";
  };
  for (int c = -128; c < 128; ++c) {
    const char is = static_cast<char>(c);
    CHECK_REFUSED(parse_answer(std::string("a") + is), shown(std::string("a") + (32 <= c && c <= 126 ? is : '?')));
  }
  CHECK_REFUSED(parse_answer(std::string(40, 'x')), shown(std::string(40, 'x')));
  CHECK_REFUSED(parse_answer(std::string(41, 'x')), shown(std::string(40, 'x') + ".."));
}
