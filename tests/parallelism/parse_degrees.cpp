// SPDX-License-Identifier: Apache-2.0
// Layouts as text: every key alone with its own field, its order when written, and what no text may be. (Whole texts,
// in any order of keys, are in parallelism/config.cpp.)
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {
struct key {
  const char* name;
  index_t degrees::*field;
  index_t least;
};
constexpr key keys[] = {{"tp", &degrees::tp, 1},   {"cp", &degrees::cp, 1},     {"pp", &degrees::pp, 1},
                        {"vpp", &degrees::vpp, 1}, {"dp", &degrees::dp, 1},     {"ep", &degrees::ep, 1},
                        {"etp", &degrees::etp, 1}, {"zero", &degrees::zero, 0}, {"bucket", &degrees::bucket, 0}};

std::string said(const std::string& text) {
  return refused([&] { parse_degrees(text); });
}
}  // namespace

TEST_CASE("each key sets its own degree and no other, and is written back under its name") {
  for (const key& k : keys)
    for (const index_t value : {index_t{2}, index_t{17}, index_t{9'223'372'036'854'775'807}}) {
      degrees wanted;
      wanted.*k.field = value;
      const std::string text = std::string(k.name) + "=" + std::to_string(value);
      CHECK(parse_degrees(text) == wanted);
      CHECK(to_text(wanted) == text);
    }
  const struct {
    const char* text;
    pipeline_split split;
  } splits[] = {{"split=even", pipeline_split::even},
                {"split=account", pipeline_split::account},
                {"split=spread", pipeline_split::spread}};
  for (const auto& s : splits) {
    CHECK(parse_degrees(s.text) == degrees{.split = s.split});
    CHECK(to_text(degrees{.split = s.split}) == (s.split == pipeline_split::even ? "" : s.text));
  }
}

TEST_CASE("bucket=none is no bucket, which is the default, and is not written back; no other key is none") {
  CHECK(parse_degrees("bucket=none") == degrees{});
  CHECK(parse_degrees("zero=1,bucket=none,dp=2") == degrees{.dp = 2, .zero = 1});
  CHECK(to_text(parse_degrees("bucket=none")).empty());
  CHECK(said("bucket=none,bucket=5") == "reshard: layout: bucket is given twice");
  CHECK(said("bucket=None") == "reshard: layout: 'None' is not a number, in bucket=None");
  for (const key& k : keys)
    if (k.field != &degrees::bucket) CHECK(said(std::string(k.name) + "=none").ends_with("=none"));
}

TEST_CASE("as a word, the layout of one rank is tp=1, which is read as it") {
  CHECK(to_text(degrees{}).empty());
  CHECK(layout_word({}) == "tp=1");
  CHECK(parse_degrees(layout_word({})) == degrees{});
  CHECK(layout_word({.dp = 3}) == "dp=3");
}

TEST_CASE("every pair of keys, in either order; written in one order") {
  for (std::size_t a = 0; a < std::size(keys); ++a)
    for (std::size_t b = 0; b < std::size(keys); ++b) {
      const std::string first = keys[a].name + std::string("=3"), second = keys[b].name + std::string("=5");
      if (a == b) {
        CHECK(said(first + "," + second) == std::string("reshard: layout: ") + keys[a].name + " is given twice");
        continue;
      }
      degrees wanted;
      wanted.*keys[a].field = 3;
      wanted.*keys[b].field = 5;
      CHECK(parse_degrees(first + "," + second) == wanted);
      CHECK(to_text(wanted) == (a < b ? first + "," + second : second + "," + first));
    }
}

TEST_CASE("a value is digits only, and at least its least; leading zeros do no harm") {
  for (const key& k : keys) {
    const std::string name = k.name;
    CHECK(said(name + "=0") == (k.least == 1 ? "reshard: " + name + "=0: this degree is at least 1" : "accepted"));
    CHECK(said(name + "=1") == "accepted");
    CHECK(said(name + "=") == "reshard: layout: '" + name + "=' needs a number");
    for (const char* bad : {"-1", "+1", " 1", "1 ", "1.0", "0x1", "1e3", "one", "/", ":"})
      CHECK(said(name + "=" + bad) ==
            "reshard: layout: '" + std::string(bad) + "' is not a number, in " + name + "=" + bad);
    for (const char* large : {"9223372036854775808", "18446744073709551617", "100000000000000000000"})
      CHECK(said(name + "=" + large) == "reshard: layout: " + name + "=" + large + " does not fit 64 bits");
    CHECK(parse_degrees(name + "=0007").*k.field == 7);
  }
}

TEST_CASE("texts that are no list of key=value") {
  CHECK(said("") == "accepted");
  CHECK(said(",") == "reshard: layout: nothing follows the last comma, after ''");
  CHECK(said(",tp=2") == "reshard: layout: '' is not of the form key=value");
  CHECK(said("tp=2,") == "reshard: layout: nothing follows the last comma, after 'tp=2'");
  CHECK(said("tp") == "reshard: layout: 'tp' is not of the form key=value");
  CHECK(said("=2") ==
        "reshard: layout: '' is no key; keys are tp, cp, pp, vpp, dp, ep, etp, zero, split, bucket, "
        "first, last, string, order, instances, busbw, pad, shard, experts and names");
  CHECK(said("order=tp-dp-pp") == "accepted");
  CHECK(said("order=tp-xp-pp") == "reshard: layout: order=tp-xp-pp names 'xp'; its axes are tp, cp, ep, dp and pp");
  CHECK(said("order=") == "reshard: layout: order= names ''; its axes are tp, cp, ep, dp and pp");
  CHECK(said("order=tp-dp-tp-xp") == "reshard: layout: order=tp-dp-tp-xp names tp twice");
  CHECK(said("split=") ==
        "reshard: layout: split= is unknown; it is even, account, spread, "
        "account_embedding or account_loss");
  CHECK(said("split=Even") ==
        "reshard: layout: split=Even is unknown; it is even, account, spread, "
        "account_embedding or account_loss");
}
