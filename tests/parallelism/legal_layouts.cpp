// SPDX-License-Identifier: Apache-2.0
// All legal layouts on so many devices, against four loops that ask is_legal of everything.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/legal_layouts.hpp>

#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::refused;

namespace {
const model moe = make_transformer({.name = "moe",
                                    .layers = 6,
                                    .hidden = 16,
                                    .heads = 12,
                                    .groups = 6,
                                    .head_dim = 4,
                                    .vocabulary = 24,
                                    .experts = 6,
                                    .expert_ffn = 8});

std::set<std::string> texts(const std::vector<degrees>& layouts) {
  std::set<std::string> all;
  for (const degrees& d : layouts) all.insert(to_text(d));
  CHECK(all.size() == layouts.size());  // each once
  return all;
}

/// A text of ours, read and written again.
std::string written(const std::string& text) { return to_text(parse_degrees(text)); }

/// Of all numbers whose product is at most the devices, those that make a legal layout; `more` is what does not vary.
std::set<std::string> brute(const model& m, index_t devices, const std::string& more, bool experts) {
  std::set<std::string> all;
  for (index_t tp = 1; tp <= devices; ++tp)
    for (index_t pp = 1; tp * pp <= devices; ++pp)
      for (index_t dp = 1; tp * pp * dp <= devices; ++dp)
        for (index_t ep = 1; ep <= (experts ? m.shape.experts : 1); ++ep) {
          const auto number = [](const char* key, index_t n) { return std::string(key) + std::to_string(n); };
          std::string text = number("tp=", tp) + number(",pp=", pp) + number(",dp=", dp) + more;
          if (m.shape.layers % pp != 0) text += ",split=spread";
          if (experts) text += number(",ep=", ep) + (ep > 1 || tp == 1 ? "" : ",etp=1");
          const degrees d = parse_degrees(text);
          if (d.world() == devices && is_legal(m, d)) all.insert(to_text(d));
        }
  return all;
}

constexpr std::size_t at_compile_time =
    legal_layouts(models::llama2_7b, {}, 4, {layout_key::tp, layout_key::dp}).size();
}  // namespace

TEST_CASE("every legal layout once, and no other") {
  const model& dense = models::llama2_7b;
  for (const index_t devices : {1, 2, 6, 8, 12, 33, 36, 48}) {
    if (testing::few() && (devices == 33 || devices == 48)) continue;  // seconds of brute force
    CAPTURE(devices);
    CHECK(texts(legal_layouts(moe, parse_degrees("zero=1"), devices, default_axes(moe))) ==
          brute(moe, devices, ",zero=1", true));
    CHECK(texts(legal_layouts(dense, parse_degrees("zero=1,tp=2"), devices, default_axes(dense))) ==
          brute(dense, devices, ",zero=1", false));
    CHECK(texts(legal_layouts(moe, parse_degrees("cp=2,bucket=7"), devices, default_axes(moe))) ==
          brute(moe, devices, ",cp=2,bucket=7", true));
  }
  CHECK(at_compile_time == 3);
  CHECK(legal_layouts(moe, {}, 36, default_axes(moe)).size() > 20);
}

TEST_CASE("layouts come by tp, then pp, dp and ep, whatever order the axes are named in") {
  const auto key = [](const degrees& d) { return std::vector<index_t>{d.tp, d.pp, d.dp, d.ep}; };
  for (const char* axes : {"tp,pp,dp,ep", "ep,dp,pp,tp", "dp,tp", "pp,ep"}) {
    const std::vector<degrees> found = legal_layouts(moe, parse_degrees("zero=1"), 12, parse_axes(axes));
    for (std::size_t i = 1; i < found.size(); ++i) CHECK(key(found[i - 1]) < key(found[i]));
    CHECK(texts(found).size() == found.size());
  }
  CHECK(legal_layouts(moe, {}, 12, parse_axes("ep,dp,pp,tp")) == legal_layouts(moe, {}, 12, default_axes(moe)));
}

TEST_CASE("the divisors of a number, ascending") {
  for (index_t n = 1; n <= 400; ++n) {
    std::vector<index_t> wanted;
    for (index_t d = 1; d <= n; ++d)
      if (n % d == 0) wanted.push_back(d);
    CHECK(reshard::detail::divisors_of(n) == wanted);
  }
}

TEST_CASE("experts that are one tensor go to any number of ranks that divides the stage") {
  const auto over_ep = [](const char* from, rank_t devices) {
    std::vector<index_t> all;
    for (const degrees& d : legal_layouts(moe, parse_degrees(from), devices, parse_axes("ep"))) all.push_back(d.ep);
    return all;
  };
  CHECK(over_ep("dp=8,zero=3,shard=rows,names=hf,experts=grouped", 8) == std::vector<index_t>{1, 2, 4, 8});
  CHECK(over_ep("dp=8,zero=3,shard=rows,names=hf", 8) == std::vector<index_t>{1, 2});
  CHECK(over_ep("dp=8,zero=3,shard=rows,experts=grouped", 8) == std::vector<index_t>{1, 2});
  CHECK(over_ep("dp=12", 12) == std::vector<index_t>{1, 2, 3, 6});
}

TEST_CASE("axes that are not named stay as they are") {
  const degrees from = parse_degrees("tp=2,pp=3,dp=2,ep=2,etp=2,split=account,vpp=1");
  CHECK(texts(legal_layouts(moe, from, 24, parse_axes("dp"))) == std::set{written("tp=2,pp=3,dp=4,ep=2,etp=2")});
  CHECK(texts(legal_layouts(moe, from, 12, parse_axes("ep"))) ==
        std::set{written("tp=2,pp=3,dp=2,etp=1"), written("tp=2,pp=3,dp=2,ep=2")});
  CHECK(texts(legal_layouts(moe, from, 24, parse_axes("ep"))).empty());  // 12 are fixed
  CHECK(texts(legal_layouts(moe, from, 16, parse_axes("pp,tp"))).empty() == false);
  CHECK(legal_layouts(moe, from, 7, parse_axes("tp,pp")).empty());
  // a dense model has no experts to vary, and no etp
  CHECK(texts(legal_layouts(models::llama2_7b, {}, 2, parse_axes("ep,tp"))) == std::set<std::string>{"tp=2"});
  CHECK(default_axes(moe) == parse_axes("tp,pp,dp,ep"));
  CHECK(default_axes(models::llama2_7b) == parse_axes("tp,pp,dp"));
}

TEST_CASE("layers are dealt evenly, else spread; by first, last or a string where those are given") {
  const auto over_pp = [](const char* from, rank_t devices) {
    return texts(legal_layouts(moe, parse_degrees(from), devices, parse_axes("pp")));
  };
  CHECK(over_pp("pp=3", 4) == std::set<std::string>{"pp=4,split=spread"});
  CHECK(over_pp("pp=2,split=spread", 3) == std::set<std::string>{"pp=3"});
  CHECK(over_pp("pp=2,vpp=3", 3).empty());  // 9 chunks do not divide, and spread has one chunk a stage
  CHECK(over_pp("pp=3,vpp=2", 2).empty());
  CHECK(over_pp("pp=2,vpp=3", 2) == std::set<std::string>{"pp=2,vpp=3"});
  CHECK(over_pp("pp=2,first=2", 5) == std::set<std::string>{"pp=5,first=2"});
  CHECK(over_pp("pp=2,first=2", 4).empty());
  CHECK(over_pp("pp=2,string=Et|tt|tt|tL", 4) == std::set{written("pp=4,string=Et|tt|tt|tL")});
  CHECK(over_pp("pp=2,string=Et|tt|tt|tL", 3).empty());
  const model seven = make_transformer(
      {.name = "m", .layers = 7, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 8});
  for (const char* end : {"first=1", "last=1"})
    CHECK(texts(legal_layouts(seven, parse_degrees(end), 3, parse_axes("pp"))) ==
          std::set<std::string>{std::string("pp=3,") + end});
}

TEST_CASE("one expert is one: ep varies, and etp is 1; what has no ranks has no layouts") {
  const model one = make_transformer({.name = "one",
                                      .layers = 2,
                                      .hidden = 8,
                                      .heads = 4,
                                      .groups = 4,
                                      .head_dim = 2,
                                      .vocabulary = 8,
                                      .experts = 1,
                                      .expert_ffn = 4});
  CHECK(default_axes(one) == parse_axes("tp,pp,dp,ep"));
  CHECK(texts(legal_layouts(one, {}, 4, default_axes(one))) == brute(one, 4, "", true));
  CHECK(texts(legal_layouts(one, {}, 2, parse_axes("tp,ep"))) == std::set<std::string>{"tp=2,etp=1"});
  CHECK(legal_layouts(one, {.cp = 0}, 4, parse_axes("tp")).empty());
  CHECK(legal_layouts(one, {.cp = -1}, 4, parse_axes("tp")).empty());
}

TEST_CASE("numbers that have a layout, below and above one that has none") {
  const auto near = [](const char* from, rank_t devices, const char* axes) {
    const nearest_devices found = devices_with_layouts(moe, parse_degrees(from), devices, parse_axes(axes));
    return std::pair(found.below, found.above);
  };
  CHECK(near("dp=2", 14, "tp,ep") == std::pair<rank_t, rank_t>{12, 24});  // tp 6 and 12
  CHECK(near("dp=2", 1, "tp") == std::pair<rank_t, rank_t>{0, 2});
  CHECK(near("", 1000, "tp,ep") == std::pair<rank_t, rank_t>{12, 0});
  CHECK(near("", 5000, "tp") == std::pair<rank_t, rank_t>{0, 0});
  // up to 4095 below and above, and no further: with dp=4096 there are layouts at 4096, 8192 ..
  const auto far = [&](rank_t devices) { return near("dp=4096", devices, "tp"); };
  CHECK(far(1) == std::pair<rank_t, rank_t>{0, 4096});
  CHECK(far(8191) == std::pair<rank_t, rank_t>{4096, 8192});
  CHECK(far(8192) == std::pair<rank_t, rank_t>{0, 0});  // 4096 away
  CHECK(far(4096) == std::pair<rank_t, rank_t>{0, 0});  // 8192 is, too
  CHECK(near("dp=2", 3, "tp") == std::pair<rank_t, rank_t>{2, 4});
  CHECK(near("", 2, "tp,ep") == std::pair<rank_t, rank_t>{1, 3});
}

TEST_CASE("what is refused") {
  CHECK(refused([] { (void)parse_axes("tp,cp"); }) == "reshard: axes: 'cp' is none that varies; tp, pp, dp and ep do");
  CHECK(refused([] { (void)parse_axes(""); }) == "reshard: axes: '' is none that varies; tp, pp, dp and ep do");
  CHECK(refused([] { (void)parse_axes("dp,"); }) == "reshard: axes: '' is none that varies; tp, pp, dp and ep do");
  CHECK(refused([] { (void)parse_axes("dp,tp,dp"); }) == "reshard: axes: dp is named twice");
  CHECK(refused([] { (void)legal_layouts(moe, {}, 0, {}); }) == "reshard: layouts: 0 devices; there is at least 1");
}
