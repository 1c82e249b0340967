// SPDX-License-Identifier: Apache-2.0
// The table of a layout's keys: each entry by hand, and what its functions read and set of the degrees.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/parallelism/detail/layout_keys.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

struct expected_key {
  layout_key key;
  const char* name;
  degree_of number;
  index_t least;
  std::vector<std::string> words;
};
const std::vector<expected_key>& expected() {
  static const std::vector<expected_key> all = {
      {layout_key::tp, "tp", &degrees::tp, 1, {}},
      {layout_key::cp, "cp", &degrees::cp, 1, {}},
      {layout_key::pp, "pp", &degrees::pp, 1, {}},
      {layout_key::vpp, "vpp", &degrees::vpp, 1, {}},
      {layout_key::dp, "dp", &degrees::dp, 1, {}},
      {layout_key::ep, "ep", &degrees::ep, 1, {}},
      {layout_key::etp, "etp", &degrees::etp, 1, {}},
      {layout_key::zero, "zero", &degrees::zero, 0, {}},
      {layout_key::split, "split", nullptr, 0, {"even", "account", "spread", "account_embedding", "account_loss"}},
      {layout_key::bucket, "bucket", &degrees::bucket, 0, {}},
      {layout_key::first, "first", &degrees::first, 1, {}},
      {layout_key::last, "last", &degrees::last, 1, {}},
      {layout_key::string, "string", nullptr, 0, {}},
      {layout_key::order, "order", nullptr, 0, {}},
      {layout_key::instances, "instances", &degrees::instances, 1, {}},
      {layout_key::busbw, "busbw", &degrees::busbw, 1, {}},
      {layout_key::pad, "pad", &degrees::pad, 1, {}},
      {layout_key::shard, "shard", nullptr, 0, {"buffers", "rows"}},
      {layout_key::experts, "experts", nullptr, 0, {"separate", "grouped"}},
      {layout_key::names, "names", nullptr, 0, {"megatron", "hf"}}};
  return all;
}

/// The value of degrees that the words of a key stand for, by their number.
degrees with_word(layout_key key, int word) {
  degrees d;
  if (key == layout_key::split) d.split = static_cast<pipeline_split>(word);
  if (key == layout_key::shard) d.shard = static_cast<shard_by>(word);
  if (key == layout_key::experts) d.experts = static_cast<experts_as>(word);
  if (key == layout_key::names) d.names = static_cast<names_as>(word);
  return d;
}
std::vector<order_axis> axes_of(const rank_order& order) { return {order.axis, order.axis + order.axes}; }

}  // namespace

TEST_CASE("each key has its name, its number with the least of it, or its words") {
  REQUIRE(std::size(layout_keys) == expected().size());
  for (const expected_key& e : expected()) {
    CAPTURE(e.name);
    const key_entry& found = entry_of(e.key);
    CHECK(found.key == e.key);
    CHECK(std::string(found.name) == e.name);
    CHECK(std::string(name(e.key)) == e.name);
    CHECK(found.number == e.number);
    CHECK(found.least == e.least);
    std::vector<std::string> words;
    for (int i = 0; found.words != nullptr && i < found.words->count; ++i) words.push_back(found.words->words[i]);
    CHECK(words == e.words);
  }
}

TEST_CASE("words are read and set by their number, and set nothing else") {
  for (const expected_key& e : expected()) {
    const word_entry* words = entry_of(e.key).words;
    for (int i = 0; words != nullptr && i < words->count; ++i) {
      CAPTURE(e.words[static_cast<std::size_t>(i)]);
      degrees d;
      CHECK(words->get(d) == 0);
      words->set(d, i);
      CHECK(d == with_word(e.key, i));
      CHECK(words->get(d) == i);
    }
  }
}

TEST_CASE("values and axes as they are written") {
  CHECK(std::string(name(pipeline_split::even)) == "even");
  CHECK(std::string(name(pipeline_split::account_loss)) == "account_loss");
  CHECK(std::string(name(shard_by::buffers)) == "buffers");
  CHECK(std::string(name(shard_by::rows)) == "rows");
  CHECK(std::string(name(names_as::megatron)) == "megatron");
  CHECK(std::string(name(names_as::hf)) == "hf");
  std::string axes;
  for (const order_axis a : {order_axis::tp, order_axis::cp, order_axis::ep, order_axis::dp, order_axis::pp})
    axes += std::string(name(a)) + ' ';
  CHECK(axes == "tp cp ep dp pp ");
}

TEST_CASE("an order is the axes that its text names, and equal to another of them") {
  using enum order_axis;
  CHECK(axes_of(parse_rank_order("tp-cp-ep-dp-pp")) == std::vector{tp, cp, ep, dp, pp});
  CHECK(parse_rank_order("tp-cp-ep-dp-pp") == rank_order{});
  CHECK(axes_of(parse_rank_order("pp-dp-ep-cp-tp")) == std::vector{pp, dp, ep, cp, tp});
  CHECK(axes_of(parse_rank_order("dp")) == std::vector{dp});
  CHECK(axes_of(parse_rank_order("pp-ep")) == std::vector{pp, ep});
  CHECK(parse_rank_order("pp-ep") == parse_rank_order("pp-ep"));
  CHECK(parse_rank_order("pp-ep") == rank_order{{pp, ep, tp, tp, tp}, 2});
  CHECK(parse_rank_order("pp-ep") != parse_rank_order("ep-pp"));
  CHECK_REFUSED(parse_rank_order("tp-xp-dp"), "layout: order=tp-xp-dp names 'xp'; its axes are tp, cp, ep, dp and pp");
  CHECK_REFUSED(parse_rank_order(""), "layout: order= names ''");
  CHECK_REFUSED(parse_rank_order("tp-"), "layout: order=tp- names ''");
  CHECK_REFUSED(parse_rank_order("tp-cp-ep-dp-pp-"), "names ''");
  CHECK_REFUSED(parse_rank_order("tp--cp"), "names ''");
  CHECK_REFUSED(parse_rank_order("tp-dp-tp"), "layout: order=tp-dp-tp names tp twice");
  CHECK_REFUSED(parse_rank_order("tp-cp-ep-dp-pp-pp"), "names pp twice");
}

TEST_CASE("a number is at least its least") {
  for (const expected_key& e : expected()) {
    if (e.number == nullptr) continue;
    CAPTURE(e.name);
    CHECK(testing::refused([&] { require_degree(e.key, e.least); }) == "accepted");
    CHECK(testing::refused([&] { require_degree(e.key, e.least + 5); }) == "accepted");
    CHECK_REFUSED(require_degree(e.key, e.least - 1), std::string(e.name) + "=" + std::to_string(e.least - 1) +
                                                          ": this degree is at least " + std::to_string(e.least));
  }
}

TEST_CASE("a value is assigned to its own degree alone") {
  for (const expected_key& e : expected()) {
    if (e.number == nullptr) continue;
    CAPTURE(e.name);
    degrees d, wanted;
    detail::assign(d, e.key, 7);
    wanted.*e.number = 7;
    CHECK(d == wanted);
  }
  for (const index_t bucket : {0, 1, 2}) {
    degrees d;
    detail::assign(d, layout_key::bucket, bucket);
    CHECK(d == degrees{.bucket = bucket == 2 ? 2 : 1});
    detail::assign(d, layout_key::zero, bucket);
    CHECK(d.zero == bucket);
  }
  degrees d;
  detail::assign(d, layout_key::split, pipeline_split::spread);
  CHECK(d == degrees{.split = pipeline_split::spread});
  detail::assign(d = degrees{}, layout_key::shard, shard_by::rows);
  CHECK(d == degrees{.shard = shard_by::rows});
  detail::assign(d = degrees{}, layout_key::experts, experts_as::grouped);
  CHECK(d == degrees{.experts = experts_as::grouped});
  detail::assign(d = degrees{}, layout_key::names, names_as::hf);
  CHECK(d == degrees{.names = names_as::hf});
  detail::assign(d = degrees{}, layout_key::order, parse_rank_order("pp-dp"));
  CHECK(d == degrees{.order = {{order_axis::pp, order_axis::dp, order_axis::tp, order_axis::tp, order_axis::tp}, 2}});
  pipeline_string three;
  three.run[0] = {3, 2}, three.runs = 1, three.chunks = 3, three.layers = 6;
  detail::assign(d = degrees{}, layout_key::string, three);
  CHECK(d == degrees{.string = three});
}

TEST_CASE("a string says how many chunks a stage has, where vpp is not named and there are stages") {
  const auto settled = [](index_t pp, index_t chunks, bool vpp_named) {
    degrees d;
    d.pp = pp, d.vpp = 9;
    if (chunks > 0) d.string.run[0] = {chunks, 1}, d.string.runs = 1, d.string.chunks = chunks;
    detail::settle_chunks(d, vpp_named);
    return d.vpp;
  };
  CHECK(settled(2, 4, false) == 2);
  CHECK(settled(2, 5, false) == 2);
  CHECK(settled(1, 5, false) == 5);
  CHECK(settled(4, 3, false) == 1);
  CHECK(settled(3, 3, false) == 1);
  CHECK(settled(2, 4, true) == 9);
  CHECK(settled(2, 0, false) == 9);
  CHECK(settled(0, 4, false) == 9);
  CHECK(settled(-1, 4, false) == 9);
}
