// SPDX-License-Identifier: Apache-2.0
// All devices or none: what one device of three brings and what it throws, whoever of the three refuses; and whom it
// tells. The others' words are given, so that no thread is needed.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/all_or_none.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using detail::all_or_none, detail::sink;

namespace {

constexpr std::int64_t refused_number = 9223372036854775807;
static_assert(detail::refused == refused_number);

/// Device 1 of three. What the others propose is said before; what it proposes and tells is kept.
struct middle_device {
  proposal lower = {}, higher = {};
  std::vector<proposal> brought = {};
  std::vector<std::string> told = {};

  rank_t device() const { return 1; }
  agreement agree(const proposal& mine) {
    brought.push_back(mine);
    agreement all;
    all.add(2, higher, true), all.add(0, lower, false), all.add(1, mine, false);
    return all;
  }
  void fail(const std::string& sentence) { told.push_back(sentence); }
};
using one_of_three = all_or_none<middle_device>;

proposal refusing(const char* sentence) { return {refused_number, 0, sentence}; }

/// What agree throws and its kind; "agreed" where it throws nothing.
template <typename Something>
std::string outcome(one_of_three& one, Something&& something) {
  try {
    static_cast<void>(one.agree(sink<proposal&>::of(something)));
  } catch (const refusal& e) {
    return std::string("refusal ") + e.what();
  } catch (const peer_failed& e) {
    return std::string("peer_failed ") + e.what();
  } catch (const std::exception& e) {
    return std::string("other ") + e.what();
  } catch (int number) {
    return "number " + std::to_string(number);
  }
  return "agreed";
}
}  // namespace

TEST_CASE("where nobody refuses all go on with what they agree on") {
  middle_device here{{-5, 3}, {4, ~std::uint64_t{0}}};
  one_of_three one{here, "the switch", "; nothing was touched"};
  const agreement all = one.agree(sink<proposal&>::of([](proposal& mine) { mine = {2, 10}; }));
  CHECK(all == agreement{4, 12, -1, ""});
  CHECK_FALSE(one.all_know);
}

TEST_CASE(
    "who refuses brings the number that says so and its sentence, and throws what it threw, whoever else refuses") {
  for (const bool others : {false, true}) {
    middle_device here{others ? refusing("reshard: too few") : proposal{}, others ? refusing("x") : proposal{}};
    one_of_three one{here, "the switch", ""};
    CHECK(outcome(one, [](proposal& mine) {
            mine = {7, 7};
            refuse("this is not mine");
          }) == "refusal reshard: this is not mine");
    CHECK(one.all_know);
    REQUIRE(here.brought.size() == 1);
    CHECK((here.brought[0].number == refused_number && here.brought[0].addend == 0));
    CHECK(here.brought[0].sentence == "reshard: this is not mine");
    CHECK(outcome(one, [](proposal&) { throw std::runtime_error("no memory"); }) == "other no memory");
    CHECK(here.brought[1].sentence == "no memory");
    CHECK(outcome(one, [](proposal&) { throw 42; }) == "number 42");
    CHECK(here.brought[2].sentence == "reshard: an exception of no standard kind");
    CHECK(here.told.empty());
  }
}

TEST_CASE("who does not refuse throws the sentence of the lowest device that does, and may try again") {
  middle_device here{refusing("reshard: too few pages"), refusing("reshard: too late")};
  one_of_three one{here, "the switch", "; nothing was touched"};
  const auto nothing = [](proposal&) {};
  CHECK(outcome(one, nothing) ==
        "peer_failed reshard: device 1: device 0 refused the switch: too few pages; nothing was touched");
  CHECK(one.all_know);
  here.lower = {};
  CHECK(outcome(one, nothing) ==
        "peer_failed reshard: device 1: device 2 refused the switch: too late; nothing was touched");
  here.higher = refusing("");  // it has no words for it
  CHECK(outcome(one, nothing).starts_with("peer_failed "));
  CHECK(one.all_know);
  here.higher = {};
  CHECK(outcome(one, nothing) == "agreed");
  CHECK_FALSE(one.all_know);
}

TEST_CASE("that another device failed is no refusal: no agreement is asked for any more") {
  middle_device here;
  one_of_three one{here, "the switch", ""};
  CHECK(outcome(one, [](proposal&) { throw peer_failed("device 0 left"); }) == "peer_failed device 0 left");
  CHECK(here.brought.empty());
  CHECK_FALSE(one.all_know);
}

TEST_CASE("of what is thrown the others are told, after what is done first, unless all know") {
  middle_device here;
  one_of_three one{here, "the switch", ""};
  std::size_t told_before = 9;
  const auto throws = [] { throw std::runtime_error("the disk is full"); };
  const auto first = sink<>::of([&] { told_before = here.told.size(); });
  one.tell(sink<>::of([] {}), first);
  CHECK((here.told.empty() && told_before == 9));
  CHECK_THROWS_WITH_AS(one.tell(sink<>::of(throws), first), "the disk is full", std::runtime_error);
  CHECK((here.told == std::vector<std::string>{"the disk is full"} && told_before == 0));
  CHECK_THROWS_AS(one.tell(sink<>::of(throws)), std::runtime_error);
  CHECK(here.told.size() == 2);
  CHECK(testing::refused([&] {
          one.tell(sink<>::of([&] { one.refuse_together("all have ", 3, " stages"); }), first);
        }) == "reshard: all have 3 stages");
  CHECK((one.all_know && here.told.size() == 2 && told_before == 0));
}
