// SPDX-License-Identifier: Apache-2.0
// What devices that broke off make of one another's words, and the sentences of endings.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/switch/ending.hpp>
#include <reshard/transport/parting.hpp>

using namespace reshard;

TEST_CASE("what one knows to be in place everywhere all know; all have all only if each has") {
  parting all;
  all.add(1, 3, true);
  CHECK(all.all_have_all);
  all.add(2, 5, true);
  CHECK(all.in_place == 5);
  CHECK(all.all_have_all);
  all.add(4, 4, false);
  all.add(5, 4, true);
  CHECK(all.in_place == 5);
  CHECK_FALSE(all.all_have_all);
  CHECK(all.survivors == std::vector<rank_t>{1, 2, 4, 5});
}

TEST_CASE("in doubt is who has everything without the one who decides") {
  parting all;
  all.add(1, 3, true);
  all.add(2, 3, true);
  CHECK(all.in_doubt(0));
  CHECK_FALSE(all.in_doubt(1));
  all.add(3, 3, false);
  CHECK_FALSE(all.in_doubt(0));
  CHECK(parting{0, true, {}}.in_doubt(0));  // given up, with everything
}

TEST_CASE("every ending but a finished switch has a sentence") {
  CHECK(sentence_of(ended::finished{}).empty());
  CHECK(sentence_of(ended::refused{"a"}) == "a");
  CHECK(sentence_of(ended::failed{"b", {}}) == "b");
  CHECK(sentence_of(ended::torn{"c", 4, 1, {0}}) == "c");
  CHECK(sentence_of(ended::unknown{"d", 4, {0}}) == "d");
}
