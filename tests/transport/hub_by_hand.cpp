// SPDX-License-Identifier: Apache-2.0
// The hub word by word: what it answers to each and to whom, which words are bytes of which, and what a device knows
// after those that it has heard. (hub.cpp tries all their orders.)
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <reshard/transport/hub.hpp>

using namespace reshard;
using kind = hub_word::kind;

namespace {

constexpr std::uint64_t most = ~std::uint64_t{0};

/// The one word that all hear; REQUIREs that there is no other.
hub_word told(const hub::replies& said) {
  REQUIRE(said.size() == 1);
  CHECK_FALSE(said.empty());
  CHECK(said[0].to == hub::everyone);
  return said[0].says;
}
/// A text as it is packed among others.
std::string packed(const std::string& text) {
  std::string all(8, 0);
  all[0] = static_cast<char>(text.size());
  return all + text;
}

}  // namespace

TEST_CASE("the last of those who propose is answered, to all: the largest, the sum and the lowest who refuses") {
  hub middle(3);
  CHECK(middle.arrived() == 0);
  CHECK(middle.on_word(1, hub_word::of(proposal{-7, 5, "no 1"})).empty());
  CHECK(middle.on_word(2, hub_word::of(proposal{-9, most, ""})).empty());
  CHECK(middle.arrived() == 2);
  CHECK(middle.awaited() == std::vector<rank_t>{0});
  CHECK(told(middle.on_word(0, hub_word::of(proposal{-8, 3, "no 0"}))) ==
        hub_word{kind::agreement, {-7, 7, 0}, "no 0"});
  CHECK(middle.arrived() == 0);
  CHECK(middle.awaited() == std::vector<rank_t>{0, 1, 2});

  CHECK(middle.on_word(2, {kind::text, {}, "c"}).empty());  // a gathering between two agreements
  CHECK(middle.on_word(0, {kind::text, {}, "a"}).empty());
  CHECK(told(middle.on_word(1, {kind::text})) == hub_word{kind::texts, {}, packed("a") + packed("") + packed("c")});

  CHECK(middle.on_word(0, hub_word::of(proposal{-30, 1, ""})).empty());  // nothing of the first is left
  CHECK(middle.on_word(1, hub_word::of(proposal{-20, 2, ""})).empty());
  CHECK(told(middle.on_word(2, hub_word::of(proposal{-40, 4, ""}))) == hub_word{kind::agreement, {-20, 7, -1}, ""});
  CHECK_FALSE(middle.broken());
}

TEST_CASE("a world of one is answered at once") {
  hub alone(1), one_left(3, {0, 2});
  CHECK(told(alone.on_word(0, hub_word::of(proposal{4, 5, ""}))) == hub_word{kind::agreement, {4, 5, -1}, ""});
  CHECK(told(alone.on_word(0, {kind::text, {}, "x"})) == hub_word{kind::texts, {}, packed("x")});
  CHECK(told(one_left.on_word(1, {kind::text, {}, "x"})).text == packed("") + packed("x") + packed(""));
  CHECK(told(one_left.on_word(1, {kind::confirmation, {3}, {}})) == hub_word{kind::placed, {3}, {}});
  CHECK(one_left.behind(4) == std::vector<rank_t>{1});
  CHECK(one_left.in_place(1) == 3);
}

TEST_CASE("what is in place everywhere is told where it changes, and in a world that is over too") {
  hub middle(2);
  CHECK(middle.in_place(0) == 0);
  CHECK(middle.on_word(0, {kind::confirmation, {0}, {}}).empty());
  CHECK(middle.on_word(1, {kind::confirmation, {5}, {}}).empty());
  CHECK(told(middle.on_word(0, {kind::confirmation, {3}, {}})) == hub_word{kind::placed, {3}, {}});
  CHECK(middle.on_word(0, {kind::confirmation, {3}, {}}).empty());
  CHECK(middle.behind(3).empty());
  CHECK(middle.behind(4) == std::vector<rank_t>{0});
  CHECK(middle.behind(6) == std::vector<rank_t>{0, 1});
  CHECK(told(middle.on_word(1, {kind::given_up, {-1}, "over"})) == hub_word{kind::given_up, {-1}, "over"});
  CHECK(middle.broken());
  CHECK(told(middle.on_word(0, {kind::confirmation, {4}, {}})) == hub_word{kind::placed, {4}, {}});
  for (const hub_word& word : {hub_word{kind::proposal}, hub_word{kind::text}, hub_word{kind::bye},
                               hub_word{kind::given_up, {-1}, "again"}, hub_word{kind::doubt, {1}, {}}})
    CHECK(middle.on_word(0, word).empty());
  CHECK(middle.arrived() == 0);
  CHECK(middle.on_gone(1, "gone").empty());
}

TEST_CASE("hubs that heard the same are alike, and one word makes another") {
  hub a(2), b(2);
  CHECK(a == b);
  a.on_word(0, {kind::text, {}, "x"});
  CHECK_FALSE(a == b);
  b.on_word(0, {kind::text, {}, "x"});
  CHECK(a == b);
}

TEST_CASE("a device knows what the hub has said last, and counts what is over") {
  hub_end end;
  CHECK(end.answers() == 0);
  CHECK(end.texts().empty());
  CHECK(end.placed() == 0);
  CHECK(end.agreed() == agreement{});
  CHECK(end.left() == -1);
  end.on_word({kind::agreement, {-3, -1, 2}, "no"});
  CHECK(end.agreed() == agreement{-3, most, 2, "no"});
  CHECK(end.answers() == 1);
  end.on_word({kind::placed, {6}, {}});
  CHECK(end.placed() == 6);
  for (const kind said_to_the_hub : {kind::proposal, kind::text, kind::confirmation, kind::bye, kind::doubt})
    end.on_word({said_to_the_hub, {1}, "x"});
  CHECK(end.answers() == 1);
  end.on_word({kind::texts, {}, packed("ab") + packed("") + packed("c")});
  CHECK(end.texts() == std::vector<std::string>{"ab", "", "c"});
  CHECK(end.placed() == 6);
  end.on_word({kind::texts, {}, packed("of later")});
  CHECK(end.texts() == std::vector<std::string>{"of later"});
  CHECK(end.answers() == 3);
  CHECK_FALSE(end.broken());
  CHECK(end.why().empty());
  CHECK(end == end);
  CHECK_FALSE(end == hub_end());
}

TEST_CASE("of texts that are cut off as much is known as came") {
  const auto texts = [](const std::string& bytes) {
    hub_end end;
    end.on_word({kind::texts, {}, bytes});
    return end.texts();
  };
  CHECK(texts("").empty());
  CHECK(texts(packed("ab") + std::string(7, 0)) == std::vector<std::string>{"ab"});
  CHECK(texts(packed("ab") + std::string(8, 0)) == std::vector<std::string>{"ab", ""});
  CHECK(texts(packed("x") + packed("abcd").substr(0, 10)) == std::vector<std::string>{"x", "ab"});
}

TEST_CASE("who is told of ends knows the first sentence, and the last of those who are said to have left") {
  hub_end end;
  end.break_off("of itself");
  CHECK(end.left() == -1);
  CHECK(end.broken());
  CHECK(end.why() == "of itself");
  end.on_word({kind::given_up, {0}, "0 left"});
  CHECK(end.left() == 0);
  end.on_word({kind::given_up, {2}, "2 left"});
  CHECK(end.left() == 2);
  end.on_word({kind::given_up, {-1}, "nobody left"});
  CHECK(end.left() == 2);
  CHECK(end.why() == "of itself");
  CHECK_FALSE(end.outcast());
  hub_end given_up;
  given_up.on_word({kind::outcast, {1}, "too late"});
  CHECK(given_up.outcast());
  CHECK(given_up.left() == -1);
  CHECK(given_up.why() == "too late");
  given_up.on_word({kind::given_up, {-1}, "device 1 was too late"});
  CHECK(given_up.outcast());
}

TEST_CASE("each kind of word has its numbers, and as bytes these and then its text") {
  const int numbers[] = {-1, 2, 3, 0, 0, 1, 1, 1, 0, 0, 1, -1};
  for (std::uint64_t what = 0; what < 12; ++what) CHECK(hub_word::numbers_of(what) == numbers[what]);
  std::string bytes = "before";
  hub_word{kind::proposal, {258, -1, 9}, "ab"}.append_to(bytes);
  CHECK(bytes == "before" + std::string("\2\1\0\0\0\0\0\0", 8) + std::string(8, '\xff') + "ab");
  const hub_word back = hub_word::of(static_cast<std::uint32_t>(kind::proposal), bytes.substr(6));
  CHECK(back == hub_word{kind::proposal, {258, -1, 0}, "ab"});
  CHECK(hub_word::of(proposal{3, most, "no"}) == hub_word{kind::proposal, {3, -1}, "no"});
  CHECK(hub_word().what == kind::bye);
}

TEST_CASE("who has not come and who is behind are named, round after round, and who is absent never is") {
  hub middle(4, {1});
  CHECK(middle.awaited() == std::vector<rank_t>{0, 2, 3});
  hub_end end;
  for (int round = 0; round < 2; ++round) {
    const std::string last = round == 0 ? "three" : "";
    CHECK(middle.on_word(3, {kind::text, {}, last}).empty());
    CHECK(middle.arrived() == 1);
    CHECK(middle.awaited() == std::vector<rank_t>{0, 2});
    CHECK(middle.on_word(0, {kind::text, {}, std::string("a\0b", 3)}).empty());
    const hub::replies said = middle.on_word(2, {kind::text});
    REQUIRE(said.size() == 1);
    CHECK(said[0].to == hub::everyone);
    end.on_word(said[0].says);
    CHECK(end.answers() == static_cast<std::uint64_t>(round + 1));
    CHECK(end.texts() == std::vector<std::string>{std::string("a\0b", 3), "", "", last});
    CHECK(middle.arrived() == 0);
  }
  CHECK(middle.behind(0).empty());
  CHECK(middle.behind(1) == std::vector<rank_t>{0, 2, 3});
  CHECK(middle.on_word(2, {kind::confirmation, {2}, {}}).empty());
  CHECK(middle.behind(1) == std::vector<rank_t>{0, 3});
  CHECK(middle.on_word(0, {kind::confirmation, {1}, {}}).empty());
  const hub::replies said = middle.on_word(3, {kind::confirmation, {1}, {}});
  REQUIRE(said.size() == 1);
  CHECK(said[0].says == hub_word{kind::placed, {1}, {}});
  CHECK(middle.on_word(3, {kind::confirmation, {2}, {}}).empty());  // all still have one
  CHECK(middle.in_place(0) == 1);
  CHECK(middle.in_place(3) == 2);
}

TEST_CASE("devices that do not do the same are told so instead of waiting for ever") {
  for (const bool text_first : {false, true}) {
    hub middle(2);
    CHECK(middle.on_word(0, {text_first ? kind::text : kind::proposal}).empty());
    const hub::replies said = middle.on_word(1, {text_first ? kind::proposal : kind::text});
    REQUIRE(said.size() == 1);
    CHECK(said[0].says.what == kind::given_up);
    CHECK(said[0].says.numbers[0] == -1);  // nobody has left
    CHECK(said[0].says.text == (text_first ? "reshard: device 1 agrees on numbers where others gather texts"
                                           : "reshard: device 1 gathers texts where others agree on numbers"));
  }
}

TEST_CASE("who hears of several ends keeps the first, and knows whether it was given up") {
  hub_end end;
  end.require_whole();
  end.break_off("the first");
  end.on_word({kind::given_up, {0}, "the second"});
  CHECK_FALSE(end.outcast());
  end.on_word({kind::outcast, {}, "the third"});
  CHECK(end.broken());
  CHECK(end.outcast());
  CHECK_THROWS_WITH_AS(end.require_whole(), "the first", peer_failed);
}

TEST_CASE("a word is the same as bytes, and names the device that has left") {
  const hub::replies said = hub(3).on_word(2, {kind::bye});
  REQUIRE(said.size() == 1);
  CHECK(said[0].says == hub_word{kind::given_up, {2}, "reshard: device 2 has left; a world serves one run"});
  for (std::uint32_t what = 1; what <= 10; ++what) {
    const int numbers = hub_word::numbers_of(what);
    REQUIRE(numbers >= 0);
    hub_word word{static_cast<kind>(what), {}, "some text"};
    for (int i = 0; i < numbers; ++i) word.numbers[static_cast<std::size_t>(i)] = -100 + i;
    std::string bytes;
    word.append_to(bytes);
    CHECK(bytes.size() == static_cast<std::size_t>(numbers) * 8 + 9);
    CHECK(hub_word::of(what, bytes) == word);
  }
  CHECK(hub_word::numbers_of(1) == 2);
  CHECK(hub_word::numbers_of(2) == 3);
  for (const std::uint64_t no_kind : {std::uint64_t{0}, std::uint64_t{11}, ~std::uint64_t{0}})
    CHECK(hub_word::numbers_of(no_kind) == -1);
}

TEST_CASE("a device that is given up hears so before all hear why, once; and who gives up says who has left") {
  hub middle(3);
  const hub::replies said = middle.on_gone(1, "silent");
  REQUIRE(said.size() == 2);
  CHECK(said[0].to == 1);
  CHECK(said[0].says == hub_word{kind::outcast, {}, "silent"});
  CHECK(said[1].to == hub::everyone);
  CHECK(said[1].says == hub_word{kind::given_up, {-1}, "silent"});
  CHECK(middle.broken());
  CHECK(middle.on_gone(2, "silent too").empty());
  CHECK(middle.on_word(2, {kind::bye}).empty());
  CHECK(middle.on_word(0, hub_word::of(proposal{})).empty());
  CHECK(middle.arrived() == 0);

  hub other(2);
  for (const kind hubs_own : {kind::agreement, kind::texts, kind::placed, kind::outcast})
    CHECK(other.on_word(0, {hubs_own}).empty());
  CHECK_FALSE(other.broken());
  const hub::replies passed = other.on_word(0, {kind::given_up, {1}, "why"});
  REQUIRE(passed.size() == 1);
  CHECK(passed[0].says == hub_word{kind::given_up, {1}, "why"});
}
