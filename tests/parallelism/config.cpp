// SPDX-License-Identifier: Apache-2.0
// Configurations: as types, as values and as text, the same degrees in all three; and the figures that follow from
// them.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {
constexpr degrees wanted{.tp = 4,
                         .cp = 2,
                         .pp = 8,
                         .vpp = 3,
                         .dp = 5,
                         .ep = 16,
                         .etp = 2,
                         .zero = 1,
                         .split = pipeline_split::account,
                         .bucket = 40};

degrees random_degrees(dice& random) {
  const auto some = [&](index_t usual) { return random.coin() ? usual : random.within(1, 1000000007); };
  return {.tp = some(1),
          .cp = some(1),
          .pp = some(1),
          .vpp = some(1),
          .dp = some(1),
          .ep = some(1),
          .etp = some(0),
          .zero = random.below(3),
          .split = static_cast<pipeline_split>(random.below(3)),
          .bucket = some(0)};
}
}  // namespace

TEST_CASE("config<...>: axes in any order, those not named at their defaults, static and dynamic mixed") {
  const degrees none = config<>{};
  CHECK(none == degrees{});
  const degrees listed[] = {
      config<tp<4>, cp<2>, pp<8>, vpp<3>, dp<5>, ep<16>, etp<2>, zero<1>, split<pipeline_split::account>, bucket<40>>{},
      config<bucket<40>, split<pipeline_split::account>, zero<1>, etp<2>, ep<16>, dp<5>, vpp<3>, pp<8>, cp<2>, tp<4>>{},
      config<tp<>, cp<2>, pp<>, vpp<>, dp<5>, ep<>, etp<2>, zero<>, split<pipeline_split::account>, bucket<>>{
          4, 8, 3, 16, 1, 40},
      config<zero<>, dp<>, split<pipeline_split::account>, pp<>, etp<>, tp<>, bucket<>, ep<>, cp<>, vpp<>>{
          1, 5, 8, 2, 4, 40, 16, 2, 3},
      config{split<pipeline_split::account>{}, tp{4}, cp<2>{}, pp{8}, vpp{3}, dp<5>{}, ep{16}, etp<2>{}, zero{1},
             bucket{40}},
  };
  for (const degrees& d : listed) CHECK(d == wanted);
  const degrees one = config{dp{7}};
  CHECK(one == degrees{.dp = 7});
}

TEST_CASE("every other key of config<...> sets what its text does, static or dynamic") {
  const struct {
    degrees d;
    const char* text;
  } cases[] = {{config<first_layers<3>>{}, "first=3"},
               {config<last_layers<4>>{}, "last=4"},
               {config<instances<2>>{}, "instances=2"},
               {config<busbw<1>>{}, "busbw=1"},
               {config<pad_rows<128>>{}, "pad=128"},
               {config<first_layers<>, last_layers<>, instances<>, busbw<>, pad_rows<>>{3, 4, 2, 1, 128},
                "first=3,last=4,instances=2,busbw=1,pad=128"},
               {config<shard_as<shard_by::rows>, experts_are<experts_as::grouped>, names_are<names_as::hf>>{},
                "shard=rows,experts=grouped,names=hf"},
               {config<ordered<"dp-tp-pp">>{}, "order=dp-tp-pp"},
               {config<pp<2>, chunks_as<"Et*3|(tt|)*2L">>{}, "pp=2,string=Et*3|(tt|)*2L"},
               {config<pp<2>, vpp<5>, chunks_as<"Et|t|t|L">>{}, "pp=2,vpp=5,string=Et|t|t|L"},
               {config<chunks_as<"Et|t|t|L">, pp<>>{4}, "pp=4,string=Et|t|t|L"},
               {config<bucket<0>>{}, "bucket=0"},
               {config<bucket<>>{0}, "bucket=1"}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.text));
    CHECK(c.d == parse_degrees(c.text));
  }
}

TEST_CASE("a configuration knows at compile time what is static") {
  static_assert(config<>::is_static && config<tp<4>, split<pipeline_split::spread>>::is_static);
  static_assert(!config<tp<4>, pp<>>::is_static && config<tp<4>, pp<>, dp<>>::dynamic_degrees == 2);
  static_assert(std::is_same_v<decltype(config{tp{4}, pp<8>{}}), config<tp<>, pp<8>>>);
  static_assert(!std::is_default_constructible_v<config<tp<>>> && !std::is_convertible_v<int, config<tp<>>>);
  constexpr degrees d = config<tp<>, zero<1>>{3};
  static_assert(d == degrees{.tp = 3, .zero = 1});
}

TEST_CASE("characters as a template argument are all but the last; a key is named once if no two settings have it") {
  const char three[] = {'a', 'b', 'c', '\0'};
  const detail::literal<4> all(three);
  CHECK(all.view() == "abc");
  CHECK(std::string(std::begin(all.text), std::end(all.text)) == std::string("abc\0", 4));
  CHECK(detail::literal("").view().empty());
  using shared = split<pipeline_split::spread>;
  CHECK(detail::named_once<>());
  CHECK(detail::named_once<shared>());
  CHECK(detail::named_once<tp<2>, shared, dp<>>());
  CHECK_FALSE(detail::named_once<tp<2>, tp<3>>());
  CHECK_FALSE(detail::named_once<tp<2>, dp<2>, tp<>>());
  CHECK_FALSE(detail::named_once<tp<2>, dp<2>, cp<2>, dp<>>());
  CHECK_FALSE(detail::named_once<shared, tp<2>, split<pipeline_split::even>>());
}

TEST_CASE("a degree below its least is refused the same as a value and as text") {
  CHECK(refused([] { config<tp<>>{0}; }) == "reshard: tp=0: this degree is at least 1");
  CHECK(refused([] { dp{-2}; }) == "reshard: dp=-2: this degree is at least 1");
  CHECK(refused([] { zero{-1}; }) == "reshard: zero=-1: this degree is at least 0");
  CHECK(refused([] { parse_degrees("pp=0"); }) == "reshard: pp=0: this degree is at least 1");
  CHECK(refused([] { zero{0}, parse_degrees("zero=0"); }) == "accepted");
}

TEST_CASE("the figures of a layout: world, expert mesh, chunks, buffers") {
  const struct {
    degrees d;
    rank_t world;
    index_t etp, edp, chunks;
    bool expert_buffers;
  } cases[] = {
      {{}, 1, 1, 1, 1, false},
      {{.tp = 4, .pp = 8, .ep = 4}, 32, 1, 1, 8, true},   // etp is 1 where ep > 1
      {{.tp = 4, .dp = 2}, 8, 4, 2, 1, false},            // else tp
      {{.tp = 4, .dp = 2, .etp = 4}, 8, 4, 2, 1, false},  // named, and the same
      {{.tp = 4, .dp = 2, .etp = 2}, 8, 2, 4, 1, true},   // named, and another
      {{.tp = 2, .cp = 3, .pp = 2, .vpp = 5, .dp = 4, .ep = 6}, 48, 1, 4, 10, true},
      {{.tp = 4, .cp = 2, .pp = 2, .dp = 4, .ep = 8, .etp = 2}, 64, 2, 2, 2, true},
  };
  for (const auto& c : cases) {
    CAPTURE(to_text(c.d));
    CHECK(c.d.world() == c.world);
    CHECK(c.d.stage_ranks() * c.d.pp == c.world);
    CHECK(c.d.expert_tp() == c.etp);
    CHECK(c.d.expert_dp() == c.edp);
    CHECK(c.d.chunks() == c.chunks);
    CHECK(c.d.expert_buffers() == c.expert_buffers);
  }
  const degrees huge{.tp = index_t{1} << 33, .pp = 2, .dp = index_t{1} << 29};
  CHECK(refused([&] { huge.world(); }) == "reshard: 4611686018427387904 x 2 does not fit 64 bits");
}

TEST_CASE("text: keys in any order give the same degrees") {
  std::vector<std::string> items = {"tp=4",  "cp=2",  "pp=8",   "vpp=3",         "dp=5",
                                    "ep=16", "etp=2", "zero=1", "split=account", "bucket=40"};
  dice random;
  for (int n = 0; n < 200; ++n) {
    for (std::size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ",") + item;
    CHECK(parse_degrees(text) == wanted);
  }
  CHECK(parse_degrees("") == degrees{});
  CHECK(parse_degrees("split=spread").split == pipeline_split::spread);
  CHECK(parse_degrees("split=even,tp=00012") == degrees{.tp = 12});
  // either closes after every parameter; none is another thing
  CHECK(parse_degrees("bucket=0") == degrees{.bucket = 1});
}

TEST_CASE("text: parse_degrees(to_text(d)) == d, and defaults are not written") {
  dice random(1);
  for (int n = 0; n < 500; ++n) {
    const degrees d = random_degrees(random);
    CHECK(parse_degrees(to_text(d)) == d);
  }
  CHECK(to_text(degrees{}).empty());
  CHECK(to_text(wanted) == "tp=4,cp=2,pp=8,vpp=3,dp=5,ep=16,etp=2,zero=1,split=account,bucket=40");
}

#define KEYS                                                                                                        \
  "keys are tp, cp, pp, vpp, dp, ep, etp, zero, split, bucket, first, last, string, order, instances, busbw, pad, " \
  "shard, experts and names"
TEST_CASE("text: what is no layout is refused with the part that is at fault") {
  const struct {
    const char* text;
    const char* sentence;
  } cases[] = {
      {"tp", "layout: 'tp' is not of the form key=value"},
      {"tp=2,,pp=2", "layout: '' is not of the form key=value"},
      {"tp=2,", "layout: nothing follows the last comma, after 'tp=2'"},
      {",", "layout: nothing follows the last comma, after ''"},
      {"tp=2,tpp=2", "layout: 'tpp' is no key; " KEYS},
      {"TP=2", "layout: 'TP' is no key; " KEYS},
      {" tp=2", "layout: ' tp' is no key; " KEYS},
      {"tp=2,pp=2,tp=2", "layout: tp is given twice"},
      {"split=even,split=even", "layout: split is given twice"},
      {"tp=", "layout: 'tp=' needs a number"},
      {"tp=-1", "layout: '-1' is not a number, in tp=-1"},
      {"tp=+1", "layout: '+1' is not a number, in tp=+1"},
      {"dp=2x", "layout: '2x' is not a number, in dp=2x"},
      {"dp=2=3", "layout: '2=3' is not a number, in dp=2=3"},
      {"dp=9223372036854775808", "layout: dp=9223372036854775808 does not fit 64 bits"},
      {"split=odd", "layout: split=odd is unknown; it is even, account, spread, account_embedding or account_loss"},
      {"etp=0", "etp=0: this degree is at least 1"},
      {"bucket=-5", "layout: '-5' is not a number, in bucket=-5"},
  };
  for (const auto& c : cases) CHECK(refused([&] { parse_degrees(c.text); }) == std::string("reshard: ") + c.sentence);
  CHECK(parse_degrees("dp=9223372036854775807").dp == 9223372036854775807);
}
