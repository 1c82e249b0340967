// SPDX-License-Identifier: Apache-2.0
// Layouts as text: every key alone with its own field, its order when written, and what no text may be. (Whole texts,
// in any order of keys, are in parallelism/config.cpp.)
#include <doctest/doctest.h>

#include <string>
#include <utility>
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
constexpr key keys[] = {
    {"tp", &degrees::tp, 1},       {"cp", &degrees::cp, 1},     {"pp", &degrees::pp, 1},
    {"vpp", &degrees::vpp, 1},     {"dp", &degrees::dp, 1},     {"ep", &degrees::ep, 1},
    {"etp", &degrees::etp, 1},     {"zero", &degrees::zero, 0}, {"bucket", &degrees::bucket, 0},
    {"first", &degrees::first, 1}, {"last", &degrees::last, 1}, {"instances", &degrees::instances, 1},
    {"busbw", &degrees::busbw, 1}, {"pad", &degrees::pad, 1}};

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

TEST_CASE("keys with words, an order and a string set their own values alone, and are written back; defaults are not") {
  for (const auto& s : {std::pair("split=account_embedding", pipeline_split::account_embedding),
                        {"split=account_loss", pipeline_split::account_loss}})
    CHECK(parse_degrees(s.first) == degrees{.split = s.second});
  CHECK(parse_degrees("shard=rows") == degrees{.shard = shard_by::rows});
  CHECK(parse_degrees("experts=grouped") == degrees{.experts = experts_as::grouped});
  CHECK(parse_degrees("names=hf") == degrees{.names = names_as::hf});
  CHECK(parse_degrees("order=dp-tp") == degrees{.order = parse_rank_order("dp-tp")});
  for (const char* text :
       {"split=account_embedding", "split=account_loss", "shard=rows", "experts=grouped", "names=hf", "order=dp-tp",
        "order=pp-dp-ep-cp-tp", "order=ep", "vpp=5", "string=EtL",
        "tp=2,cp=3,pp=4,dp=5,ep=6,etp=7,zero=3,split=spread,bucket=8,first=9,last=10,string=Et*3|tt|L,order=ep-tp,"
        "instances=11,busbw=1,pad=12,shard=rows,experts=grouped,names=hf"})
    CHECK(to_text(parse_degrees(text)) == text);
  for (const char* usual : {"split=even", "shard=buffers", "experts=separate", "names=megatron", "instances=1", "vpp=1",
                            "order=tp-cp-ep-dp-pp"}) {
    CHECK(parse_degrees(usual) == degrees{});
    CHECK(to_text(parse_degrees(usual)).empty());
  }
  CHECK(said("shard=row") == "reshard: layout: shard=row is unknown; it is buffers or rows");
  CHECK(said("experts=all") == "reshard: layout: experts=all is unknown; it is separate or grouped");
  CHECK(said("names=") == "reshard: layout: names= is unknown; it is megatron or hf");
}

TEST_CASE("an order has the axes that are named, equal to another that names the same, and unlike any other") {
  const rank_order two = parse_rank_order("dp-tp");
  CHECK(two.axes == 2);
  CHECK(two.axis[0] == order_axis::dp);
  CHECK(two.axis[1] == order_axis::tp);
  for (const order_axis axis : {order_axis::tp, order_axis::cp, order_axis::ep, order_axis::dp, order_axis::pp})
    CHECK(two.has(axis) == (axis == order_axis::dp || axis == order_axis::tp));
  CHECK(two == parse_rank_order("dp-tp"));
  for (const char* other : {"tp-dp", "dp", "dp-tp-pp", "dp-pp"}) CHECK_FALSE(two == parse_rank_order(other));
  CHECK(parse_rank_order("tp-cp-ep-dp-pp") == rank_order{});
  CHECK(said("order=dp-") == "reshard: layout: order=dp- names ''; its axes are tp, cp, ep, dp and pp");
  CHECK(said("order=-dp") == "reshard: layout: order=-dp names ''; its axes are tp, cp, ep, dp and pp");
  CHECK(said("order=pp-dp-ep-cp-tp-pp") == "reshard: layout: order=pp-dp-ep-cp-tp-pp names pp twice");
}

TEST_CASE("a string says how many chunks a stage has, where vpp does not; vpp is not written beside it") {
  const auto chunks = [](const char* text) { return parse_degrees(text).vpp; };
  CHECK(chunks("pp=2,string=Et|t|t|L") == 2);
  CHECK(chunks("string=Et|t|t|L,pp=4") == 1);
  CHECK(chunks("string=Et|t|t|L") == 4);
  CHECK(chunks("pp=3,string=Et|t|t|L") == 1);  // what does not divide is no legal layout
  CHECK(chunks("pp=9,string=Et|t|t|L") == 1);  // nor fewer chunks than stages
  CHECK(chunks("pp=2,vpp=3,string=Et|t|t|L") == 3);
  CHECK(chunks("pp=2,vpp=3") == 3);
  CHECK(to_text(parse_degrees("pp=2,string=Et|t|t|L")).find("vpp") == std::string::npos);
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
