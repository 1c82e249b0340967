// SPDX-License-Identifier: Apache-2.0
// The drawing of a layout in a terminal: what a bar may and may not show, which ranks stand beside it, and each block
// of a picture.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/report/layout_picture.hpp>

#include "../oracle/trainer_layout.hpp"
#include "../support/dice.hpp"

using namespace reshard;

using namespace reshard::io;
using testing::dice;

namespace {
/// The halves of a bar's columns: filled or not.
std::vector<bool> halves(const std::string& bar) {
  std::vector<bool> filled;
  for (std::size_t at = 0; at < bar.size();) {
    const auto takes = [&](const char* glyph) {
      if (bar.compare(at, std::char_traits<char>::length(glyph), glyph) != 0) return false;
      at += std::char_traits<char>::length(glyph);
      return true;
    };
    if (takes("█")) filled.insert(filled.end(), {true, true});
    else if (takes("▌")) filled.insert(filled.end(), {true, false});
    else if (takes("▐")) filled.insert(filled.end(), {false, true});
    else if (takes("·")) filled.insert(filled.end(), {false, false});
    else FAIL("another character in " << bar);
  }
  return filled;
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
/// The bar that fills [begin, end) of `extent` where both ends fall on halves of columns.
std::string exact_bar(index_t begin, index_t end, index_t extent, index_t columns) {
  std::string bar;
  for (index_t c = 0; c < columns; ++c) {
    const auto in = [&](index_t half) {
      return begin * 2 * columns <= half * extent && (half + 1) * extent <= end * 2 * columns;
    };
    bar += in(2 * c) && in(2 * c + 1) ? "█" : in(2 * c) ? "▌" : in(2 * c + 1) ? "▐" : "·";
  }
  return bar;
}
std::vector<std::string> block_after(const std::string& picture, const std::string& heading) {
  const std::vector<std::string> lines = lines_of(picture);
  auto at =
      std::find_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(heading); });
  std::vector<std::string> block;
  while (at != lines.end() && ++at != lines.end() && !at->empty()) block.push_back(*at);
  return block;
}
constexpr transformer small{.name = "small",
                            .layers = 8,
                            .hidden = 64,
                            .heads = 8,
                            .groups = 4,
                            .head_dim = 8,
                            .vocabulary = 128,
                            .experts = 4,
                            .expert_ffn = 24};
/// Ranks as they are told: a range, four at most one by one, or the first three and how many.
std::string told(const std::vector<long>& ranks) {
  if (ranks.size() == 1) return std::to_string(ranks[0]);
  if (ranks.back() - ranks.front() + 1 == static_cast<long>(ranks.size()))
    return std::to_string(ranks.front()) + "-" + std::to_string(ranks.back());
  std::string text;
  for (std::size_t i = 0; i < (ranks.size() > 4 ? 3 : ranks.size()); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(ranks[i]);
  return ranks.size() > 4 ? text + ",.. (" + std::to_string(ranks.size()) + ")" : text;
}
/// How each line of a block ends that is not left out.
void check_ends(const std::vector<std::string>& block, std::size_t heading, const std::vector<std::string>& ends) {
  REQUIRE(block.size() == heading + (ends.size() <= 16 ? ends.size() : 16));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends.size() > 16 && i >= 14 && i + 1 < ends.size()) continue;
    const std::string& line = block[heading + (ends.size() > 16 && i + 1 == ends.size() ? 15 : i)];
    CHECK_MESSAGE(line.ends_with(" " + ends[i]), line << " ends with " << ends[i]);
  }
}
std::string drawn(const std::string& layout, const model& m) {
  return layout_picture(computed_holding(space(m, parse_degrees(layout))));
}
std::string drawn(const std::string& layout, const transformer& t = small) {
  return drawn(layout, make_transformer(t));
}
}  // namespace

TEST_CASE(
    "a half column is full where one part has most of it, empty where none has any, and a part is never invisible") {
  dice random(1);
  int hidden_but_for_the_rule = 0, empty_halves = 0;
  for (int n = 0; n < 3000; ++n) {
    const index_t columns = random.within(1, 12), extent = random.within(1, n % 2 == 0 ? 30 : 400);
    std::vector<interval> parts;
    index_t at = 0;
    for (index_t left = random.below(4); left > 0 && at < extent; --left) {
      at = random.within(at, extent - 1);
      parts.push_back({at, random.within(at + 1, std::min(extent, at + 1 + extent / 3))});
      at = parts.back().end;
    }
    const std::string bar = io::detail::bar_text(parts, extent, columns);
    CHECK(text_width(bar) == columns);
    const std::vector<bool> filled = halves(bar);
    REQUIRE(filled.size() == static_cast<std::size_t>(2 * columns));
    CAPTURE(bar);
    std::vector<bool> seen(parts.size(), false);
    for (index_t h = 0; h < 2 * columns; ++h) {
      const index_t begin = h * extent / (2 * columns), end = (h + 1) * extent / (2 * columns);
      bool full = false, any = false;
      for (std::size_t p = 0; p < parts.size(); ++p) {
        index_t inside = 0;
        for (index_t x = begin; x < end; ++x) inside += parts[p].begin <= x && x < parts[p].end ? 1 : 0;
        const bool stands_in =
            begin == end && parts[p].begin <= begin && begin < parts[p].end;  // several halves for one number
        full = full || (begin < end && 2 * inside >= end - begin) || stands_in;
        any = any || inside > 0 || stands_in;
        if (filled[static_cast<std::size_t>(h)] && (inside > 0 || stands_in)) seen[p] = true;
      }
      if (full) CHECK(filled[static_cast<std::size_t>(h)]);
      if (!any) CHECK_FALSE(filled[static_cast<std::size_t>(h)]);
      hidden_but_for_the_rule += any && !full && filled[static_cast<std::size_t>(h)] ? 1 : 0;
      empty_halves += begin == end ? 1 : 0;
    }
    for (const bool visible : seen) CHECK(visible);
  }
  std::printf("%d halves are filled by a part that is smaller; %d halves are of no number\n", hidden_but_for_the_rule,
              empty_halves);
  // halves of ten numbers: four of ten are not most, unless the part would be seen nowhere
  CHECK(io::detail::bar_text({{6, 24}}, 40, 2) == "▐·");
  CHECK(io::detail::bar_text({{6, 16}}, 40, 2) == "▐·");
  CHECK(io::detail::bar_text({{6, 15}}, 40, 2) == "█·");
  CHECK_DRAWN(hidden_but_for_the_rule > 100);
  CHECK_DRAWN(empty_halves > 100);
}

TEST_CASE(
    "holders are told as a range where they are one, all where they are four at most, else the first three and how "
    "many there are") {
  const mesh on = mesh_of(parse_degrees("tp=2,cp=3,dp=5,pp=2"), mesh_kind::dense);
  dice random(2);
  int ranges = 0, few = 0, many = 0;
  for (int n = 0; n < 400; ++n) {
    rank_product ranks{on, {}};
    for (int a = 0; a < mesh_ndim; ++a) {
      const index_t first = random.below(on.extent[a]);
      ranks.along[a] =
          random.coin() ? progression{0, on.extent[a]} : progression{first, random.within(1, on.extent[a] - first)};
    }
    std::vector<rank_t> all;
    for (rank_t r = 0; r < 60; ++r)
      if (ranks.contains(r)) all.push_back(r);
    ++(all.back() - all.front() + 1 == static_cast<rank_t>(all.size()) ? ranges : all.size() > 4 ? many : few);
    CHECK(io::detail::holders_text(ranks) == told({all.begin(), all.end()}));
  }
  std::printf("%d ranges, %d of few ranks, %d of many\n", ranges, few, many);
  for (const int met : {ranges, few, many}) CHECK_DRAWN(met > 5);
  for (const long count : {1, 2, 3, 4, 5, 6}) {
    std::vector<rank_t> every_other;
    for (long i = 0; i < count; ++i) every_other.push_back(3 + 2 * i);
    rank_product ranks;
    ranks.listed = &every_other;
    CHECK(io::detail::holders_text(ranks) == told({every_other.begin(), every_other.end()}));
  }
}

TEST_CASE("a block has all its rows where they are 16 at most, else the first 14, the last, and how many are between") {
  for (const index_t count : {1, 15, 16, 17, 40}) {
    const std::string text = io::detail::block_text("heading", count, count, [](index_t i) {
      return io::detail::bar_row{"row " + std::to_string(i), {{i, i + 1}}, "after"};
    });
    const std::vector<std::string> lines = lines_of(text);
    CHECK(lines[0].empty());
    CHECK(lines[1] == "heading");
    const index_t head = count <= 16 ? count : 14;
    for (index_t i = 0; i < head; ++i)
      CHECK(lines[static_cast<std::size_t>(2 + i)].starts_with("  row " + std::to_string(i) + " "));
    REQUIRE(lines.size() == static_cast<std::size_t>(count <= 16 ? 2 + count : 18));
    if (count <= 16) continue;
    CHECK(lines[16] == "  ... " + std::to_string(count - 15) + " more like these");
    CHECK(lines[17].starts_with("  row " + std::to_string(count - 1) + " "));
  }
}

TEST_CASE(
    "layers along the pipeline: a row for each stage with its ranks, its part of the bar, and what stands at the "
    "ends") {
  const struct {
    const char* layout;
    bool tied;
    const char* ends;
  } cases[] = {
      {"pp=4,tp=2", false, "NO"}, {"pp=2", false, "NO"}, {"pp=4,tp=2", true, "Ne"}, {"", true, "N"}, {"", false, "NO"}};
  for (const auto& c : cases) {
    CAPTURE(c.layout);
    transformer t = small;
    t.tied = c.tied;
    t.layers = 60;  // of 30 columns, so that every cut falls on one
    const degrees d = parse_degrees(c.layout);
    const std::string picture = drawn(c.layout, t);
    const std::vector<std::string> lines = lines_of(picture);
    CHECK(lines[0] == "small under " + std::string(c.layout[0] == '\0' ? "''" : to_text(d)));
    CHECK(lines[3] ==
          std::string("Layers along the pipeline, 0 to 59 (E embedding, N norm") + (!c.tied    ? ", O output)"
                                                                                    : d.pp > 1 ? ", e its tied copy)"
                                                                                               : ")"));
    const std::vector<std::string> rows = block_after(picture, "Layers along");
    REQUIRE(rows.size() == static_cast<std::size_t>(d.pp + 1));
    for (index_t s = 0; s < d.pp; ++s) {
      const index_t begin = s * 60 / d.pp, end = (s + 1) * 60 / d.pp;
      const std::string ranks = d.tp * d.dp == 1
                                    ? std::to_string(s)
                                    : std::to_string(s * d.tp * d.dp) + "-" + std::to_string((s + 1) * d.tp * d.dp - 1);
      const std::string bar = (s == 0 ? "E" : " ") + exact_bar(begin, end, 60, 30) + (s == d.pp - 1 ? c.ends : "");
      const std::string& row = rows[static_cast<std::size_t>(s + 1)];
      CHECK(row.find("  " + ranks + "  " + bar) != std::string::npos);
      CHECK(row.ends_with(" " + std::to_string(end - begin) + "  " + to_text(interval{begin, end})));
    }
  }
  const std::vector<std::string> chunks =
      block_after(drawn("pp=2,vpp=4"), "Layers along");  // of more than two intervals the first is named
  CHECK(chunks[1].ends_with("  4  [0,1) .."));
  const std::vector<std::string> shared =
      block_after(drawn("pp=33,split=spread,dp=2"), "Layers along");  // more than 32 stages: two share a row
  CHECK(shared.size() == 1 + 17);
  CHECK(shared[1].starts_with("    0-1    0-3  E"));
  CHECK(shared[17].starts_with("     32  64-65  "));
}

TEST_CASE(
    "inside a stage: heads, experts and shards of buffers, each with its ranks by the contract's order of "
    "coordinates") {
  // dense: tp + 2 (cp + 2 dp); expert: etp + 1 (ep + 4 edp)
  const std::string picture = drawn("tp=2,cp=2,dp=2,pp=2,ep=4,zero=1");
  using rows = std::vector<std::string>;
  const auto bar = [](index_t part, index_t parts) { return exact_bar(part, part + 1, parts, 32); };
  CHECK(picture.find("\nInside a stage, drawn for stage 0; the others add 8 ranks a stage.\n") != std::string::npos);
  CHECK(block_after(picture, "tp cuts dense matrices in 2 ") ==
        rows{"  tp 0       " + bar(0, 2) + " ranks 0,2,4,6", "  tp 1       " + bar(1, 2) + " ranks 1,3,5,7"});
  CHECK(block_after(picture, "ep cuts the 4 experts of a layer in 4:") ==
        rows{"  ep 0       " + bar(0, 4) + " [0,1) 0,4", "  ep 1       " + bar(1, 4) + " [1,2) 1,5",
             "  ep 2       " + bar(2, 4) + " [2,3) 2,6", "  ep 3       " + bar(3, 4) + " [3,4) 3,7"});
  CHECK(block_after(picture, "zero=1 cuts each buffer of optimizer states of all but experts in 4 (cp x dp)") ==
        rows{"  shard 0    " + bar(0, 4) + " ranks 0-1", "  shard 1    " + bar(1, 4) + " ranks 2-3",
             "  shard 2    " + bar(2, 4) + " ranks 4-5", "  shard 3    " + bar(3, 4) + " ranks 6-7"});
  CHECK(block_after(picture, "zero=1 cuts each buffer of optimizer states of experts in 2 (edp)") ==
        rows{"  shard 0    " + bar(0, 2) + " ranks 0-3", "  shard 1    " + bar(1, 2) + " ranks 4-7"});
  CHECK(picture.find("of experts in") == picture.rfind("of experts in"));
}

TEST_CASE("in any order of axes the ranks beside a row are those whose coordinates the contract says") {
  dice random(3);
  std::map<std::string, int> seen;
  const transformer experts{.name = "m",
                            .layers = 6,
                            .hidden = 48,
                            .heads = 12,
                            .groups = 12,
                            .head_dim = 4,
                            .vocabulary = 48,
                            .experts = 6,
                            .expert_ffn = 24};
  for (int n = 0; n < 600; ++n) {
    oracle::trainer::layout l;
    l.tp = random.within(1, 4), l.cp = random.within(1, 3), l.dp = random.within(1, 4), l.pp = random.within(1, 3);
    const index_t eps[] = {1, 2, 3, 6};
    l.ep = eps[random.below(4)], l.etp = random.within(1, 3), l.zero = random.below(2);
    for (std::size_t i = 4; i > 0; --i)
      std::swap(l.order[i], l.order[static_cast<std::size_t>(random.within(0, static_cast<index_t>(i)))]);
    const long stage = l.tp * l.cp * l.dp;
    if (stage % (l.ep * l.etp) != 0) continue;
    l.edp = stage / (l.ep * l.etp), l.world = stage * l.pp;
    l.instances = l.zero > 0 && stage / l.tp % 2 == 0 && l.edp % 2 == 0 && random.coin() ? 2 : 1;
    std::string text, order;
    for (const auto& [key, value] : {std::pair("tp", l.tp),
                                     {"cp", l.cp},
                                     {"dp", l.dp},
                                     {"pp", l.pp},
                                     {"ep", l.ep},
                                     {"etp", l.etp},
                                     {"zero", l.zero},
                                     {"instances", l.instances}})
      text += std::string(key) + "=" + std::to_string(value) + ",";
    for (const std::string& axis : l.order) order += (order.empty() ? "" : "-") + axis;
    text += "order=" + order;
    try {
      oracle::trainer::check_order(l);
    } catch (const oracle::trainer::illegal&) {
      continue;  // its two readings differ
    }
    CAPTURE(text);
    const std::string picture = drawn(text, experts);
    std::map<std::string, std::vector<std::vector<long>>> ranks;
    const auto put = [&ranks](const char* axis, long count, long at, long rank) {
      ranks[axis].resize(static_cast<std::size_t>(count));
      ranks[axis][static_cast<std::size_t>(at)].push_back(rank);
    };
    long second = -1;  // the first rank of stage 1
    for (long rank = 0; rank < l.world; ++rank) {
      const oracle::trainer::coordinates c = coordinates_of(l, rank);
      if (c.pp == 1 && second < 0) second = rank;
      if (c.pp != 0) continue;
      put("tp", l.tp, c.tp, rank), put("ep", l.ep, c.ep, rank);
      const auto dense = within_instance(l, dense_member(l, c)), expert = within_instance(l, expert_member(l, c));
      put("dense", dense.n, dense.index, rank), put("expert", expert.n, expert.index, rank);
    }
    const auto ends = [&](const char* axis, bool ranged) {
      std::vector<std::string> all;
      for (const std::vector<long>& some : ranks[axis])
        all.push_back((ranged ? to_text(interval{static_cast<index_t>(all.size()) * 6 / l.ep,
                                                 static_cast<index_t>(all.size() + 1) * 6 / l.ep})
                              : std::string("ranks")) +
                      " " + told(some));
      return all;
    };
    const bool own = l.ep > 1 || l.etp != l.tp;  // experts have buffers of their own
    const std::string dense = "zero=1 cuts each buffer of optimizer states of ";
    if (l.tp > 1) check_ends(block_after(picture, "tp cuts dense matrices in "), 0, ends("tp", false));
    if (l.ep * l.etp > 1)
      check_ends(block_after(picture, "ep cuts the 6 experts"), l.etp > 1 ? 1 : 0, ends("ep", true));
    const bool cuts = l.zero > 0 && ranks["dense"].size() > 1,
               cuts_experts = l.zero > 0 && own && ranks["expert"].size() > 1;
    const auto folded = [&](const std::string& heading) {  // lines under a heading that belong to it
      const std::vector<std::string> block = block_after(picture, heading);
      std::size_t more = 0;
      while (more < block.size() && block[more].starts_with("    ")) ++more;
      return std::pair(block, more);
    };
    if (cuts) {
      const auto [block, heading] = folded(dense + (own ? "all but experts" : "all tensors"));
      check_ends(block, heading, ends("dense", false));
    }
    if (cuts_experts) {
      const auto [block, heading] = folded(dense + "experts");
      check_ends(block, heading, ends("expert", false));
    }
    CHECK((picture.find("zero=1 cuts") != picture.npos) == (cuts || cuts_experts));
    if (stage > 1 && l.pp > 1)
      CHECK(picture.find("\nInside a stage, drawn for stage 0; " +
                         (second == stage ? "the others add " + std::to_string(stage) + " ranks a stage.\n"
                                          : "a stage further adds " + std::to_string(second) + " to each rank.\n")) !=
            picture.npos);
    ++seen["legal"], seen["tp"] += l.tp > 1, seen["ep"] += l.ep > 1, seen["etp"] += l.etp > 1, seen["dense"] += cuts;
    seen["experts"] += cuts_experts, seen["instances"] += l.instances > 1,
        seen["pp before others"] += second > 0 && second != stage;
    seen["another order"] += order != "tp-cp-ep-dp-pp";
  }
  for (const auto& [what, times] : seen) std::printf("%s: %d\n", what.c_str(), times);
  for (const auto& [what, times] : seen) CHECK_DRAWN(times > 5);
}

TEST_CASE("the legend of the pipeline names embeddings where there are several, and each end that there is") {
  for (const bool positions : {false, true})
    for (const bool tied : {false, true})
      for (const char* layout : {"", "pp=2"}) {
        transformer t = small;
        if (positions) t.learned_positions = 16;
        t.tied = tied;
        CHECK(drawn(layout, t).find(std::string("(E embedding") + (positions ? "s" : "") + ", N norm" +
                                    (!tied               ? ", O output)"
                                     : layout[0] != '\0' ? ", e its tied copy)"
                                                         : ")")) != std::string::npos);
      }
}

TEST_CASE("of stages with experts and without, stage 0 is the one whose buffers are drawn") {
  transformer t = small;
  t.ffn = 24;
  const auto in_layers = [&t](interval experts) {
    return drawn("pp=2,dp=4,ep=2,zero=1", make_transformer(t, [&](index_t l) { return experts.contains(l); }));
  };
  const char* heading = "zero=1 cuts each buffer of optimizer states of experts in 2 (edp)";
  CHECK(in_layers({0, 4}).find(heading) != std::string::npos);
  CHECK(in_layers({4, 8}).find(heading) == std::string::npos);
}

TEST_CASE("what does not cut anything is not drawn") {
  const auto has = [](const std::string& picture, const char* words) {
    return picture.find(words) != std::string::npos;
  };
  const std::string one = drawn(""), data = drawn("dp=4"), tensor = drawn("tp=4,zero=1"),
                    sharded = drawn("dp=4,zero=1");
  CHECK_FALSE(has(one, "Inside a stage"));
  CHECK(has(one, "\n1 rank, 1 stage of 1; "));
  CHECK(has(data, "Inside a stage, drawn for stage 0.\n"));
  for (const char* words : {"tp cuts", "ep cuts", "zero=1"}) CHECK_FALSE(has(data, words));
  CHECK(has(tensor, "tp cuts dense matrices in 4 "));
  CHECK(has(tensor, "\nep cuts the 4 experts of a layer in 1,\n    etp each expert in 4: experts and their ranks\n"));
  CHECK_FALSE(has(tensor, "zero=1 cuts"));  // a group of one
  CHECK(has(sharded, "zero=1 cuts each buffer of optimizer states of all tensors in 4 (cp x dp)"));
  CHECK_FALSE(has(sharded, "of experts in"));
}

TEST_CASE("a whole picture, of eight ranks on two stages, and of one rank") {
  transformer t{.name = "m",
                .layers = 2,
                .hidden = 8,
                .heads = 4,
                .groups = 2,
                .head_dim = 2,
                .ffn = 8,
                .vocabulary = 16,
                .tied = true,
                .experts = 4,
                .expert_ffn = 4};
  const auto full = [](int columns) {
    std::string bar;
    for (int i = 0; i < columns; ++i) bar += "█";
    return bar;
  };
  const auto none = [](int columns) {
    std::string bar;
    for (int i = 0; i < columns; ++i) bar += "·";
    return bar;
  };
  const std::string first = full(16) + none(16), second = none(16) + full(16);
  // 16 x 8 of the embedding; a layer has 64 + 8 + 128 of attention, 8 + 32 before its 4 experts of 64 + 32; a norm of 8
  CHECK(drawn("tp=2,pp=2,dp=2,ep=4,zero=1", t) ==
        "m under tp=2,pp=2,dp=2,ep=4,zero=1\n"
        "8 ranks, 2 stages of 4; 1,384 parameters\n"
        "\n"
        "Layers along the pipeline, 0 to 1 (E embedding, N norm, e its tied copy)\n"
        "  stage  ranks                                     layers\n"
        "      0    0-3  E" +
            full(15) + none(15) +
            "         1  [0,1)\n"
            "      1    4-7   " +
            none(15) + full(15) +
            "Ne       1  [1,2)\n"
            "\n"
            "Inside a stage, drawn for stage 0; the others add 4 ranks a stage.\n"
            "\n"
            "tp cuts dense matrices in 2 (qkv, fc1, vocabulary: rows; proj, fc2: columns)\n"
            "  tp 0       " +
            first +
            " ranks 0,2\n"
            "  tp 1       " +
            second +
            " ranks 1,3\n"
            "\n"
            "ep cuts the 4 experts of a layer in 4: experts and their ranks\n"
            "  ep 0       " +
            full(8) + none(24) +
            " [0,1) 0\n"
            "  ep 1       " +
            none(8) + full(8) + none(16) +
            " [1,2) 1\n"
            "  ep 2       " +
            none(16) + full(8) + none(8) +
            " [2,3) 2\n"
            "  ep 3       " +
            none(24) + full(8) +
            " [3,4) 3\n"
            "\n"
            "zero=1 cuts each buffer of optimizer states of all but experts in 2 (cp x dp)\n"
            "  shard 0    " +
            first +
            " ranks 0-1\n"
            "  shard 1    " +
            second + " ranks 2-3\n");
  CHECK(drawn("ep=2,dp=2", t).find("ep cuts the 4 experts of a layer in 2: experts and their ranks\n") !=
        std::string::npos);
  CHECK(drawn("tp=2", t).find("in 1,\n    etp each expert in 2: experts and") != std::string::npos);
  t.experts = 1, t.expert_ffn = 4;
  CHECK(drawn("tp=2", t).find("ep cuts the 1 experts of a layer in 1,\n    etp each expert in 2") != std::string::npos);
  t.experts = t.expert_ffn = 0;
  CHECK(drawn("tp=2", t).find("ep cuts") == std::string::npos);
  CHECK(drawn("tp=2,dp=2,zero=1", t).find("of experts in") == std::string::npos);
  // the layers have an MLP of 8 + 128 + 64 instead
  CHECK(drawn("", t) ==
        "m under ''\n"
        "1 rank, 1 stage of 1; 936 parameters\n"
        "\n"
        "Layers along the pipeline, 0 to 1 (E embedding, N norm)\n"
        "  stage  ranks                                    layers\n"
        "      0      0  E" +
            full(30) + "N       2  [0,2)\n");
  CHECK(drawn("dp=2", t) ==
        "m under dp=2\n"
        "2 ranks, 1 stage of 2; 936 parameters\n"
        "\n"
        "Layers along the pipeline, 0 to 1 (E embedding, N norm)\n"
        "  stage  ranks                                    layers\n"
        "      0    0-1  E" +
            full(30) +
            "N       2  [0,2)\n"
            "\n"
            "Inside a stage, drawn for stage 0.\n");
}

TEST_CASE("up to 32 stages have a row each; a stage's intervals are named where they are two, else the first") {
  transformer t = small;
  t.layers = 32;
  CHECK(block_after(drawn("pp=32", t), "Layers along").size() == 1 + 32);
  CHECK(block_after(drawn("pp=2,vpp=2", t), "Layers along")[1].ends_with("  16  [0,8) [16,24)"));
  CHECK(block_after(drawn("pp=2,vpp=4", t), "Layers along")[1].ends_with("  16  [0,4) .."));
  CHECK(block_after(drawn("pp=1,vpp=1", t), "Layers along")[1].ends_with("  32  [0,32)"));
  t.layers = 12;
  CHECK(block_after(drawn("pp=2,vpp=3", t), "Layers along")[1].ends_with("  6  [0,2) .."));
}

TEST_CASE("a long name of a model is shortened to 60 characters, its head and its tail") {
  const std::string letters(63, 'a'), longer = std::string(40, 'a') + "bcde" + std::string(20, 'f');
  transformer t = small;
  t.name = letters;
  CHECK(lines_of(drawn("", t))[0] == letters + " under ''");
  t.name = "a-b";
  const std::string layout = "tp=2,cp=2,pp=2,dp=4,ep=4,etp=1,zero=1,split=spread,bucket=40000000";
  CHECK(drawn(layout, t).starts_with("a-b under " + layout + "\n"));
  t.name = "longer-name";
  CHECK(drawn(layout, t).starts_with("longer-name under\n    " + layout + "\n"));
  t.name = longer;
  CHECK(lines_of(drawn("", t))[0] == std::string(40, 'a') + "..." + std::string(20, 'f') + " under ''");
}

TEST_CASE("rows of FSDP2 are told by what is sharded and among whom, and prediction layers by their letter") {
  const std::string rows = drawn("tp=2,dp=4,ep=4,zero=3,shard=rows,instances=2");
  CHECK(rows.find("\nzero=3 cuts the rows that a rank has of each tensor,\n"
                  "    of all states of all but experts, in 2 (cp x dp / instances)\n") != rows.npos);
  CHECK(block_after(rows, "    of all states of all but experts, in 2 (cp x dp / instances)") ==
        std::vector<std::string>{"  shard 0    " + exact_bar(0, 1, 2, 32) + " ranks 0,1,4,5",
                                 "  shard 1    " + exact_bar(1, 2, 2, 32) + " ranks 2,3,6,7"});
  const std::string grouped = drawn("dp=8,ep=4,zero=1,shard=rows,experts=grouped");
  CHECK(grouped.find("\nzero=1 cuts what a rank has of a layer's experts, whole experts,\n"
                     "    of optimizer states of experts, in 2 (edp)\n") != grouped.npos);
  CHECK(grouped.find("\nzero=1 cuts the rows that a rank has of each tensor,\n"
                     "    of optimizer states of all but experts, in 8 (cp x dp)\n") != grouped.npos);
  const std::string separate = drawn("dp=8,ep=4,zero=1,shard=rows,experts=separate");
  CHECK(separate.find("\nzero=1 cuts the rows that a rank has of each tensor,\n"
                      "    of optimizer states of experts, in 2 (edp)\n") != separate.npos);
  transformer sixty_four = small;
  sixty_four.vocabulary = 64;
  const std::string uneven = drawn("tp=3,dp=2,ep=3,zero=1,shard=rows,experts=grouped,names=hf", sixty_four);
  CHECK(block_after(uneven, "    drawn for rows of embed_tokens: its numbers and their ranks") ==
        std::vector<std::string>{"  tp 0       " + exact_bar(0, 22, 64, 32) + " [0,22) 0,3",
                                 "  tp 1       " + exact_bar(22, 44, 64, 32) + " [22,44) 1,4",
                                 "  tp 2       " + exact_bar(44, 64, 64, 32) + " [44,64) 2,5"});
  CHECK(block_after(uneven, "ep cuts the 4 experts of a layer in 3: experts and their ranks") ==
        std::vector<std::string>{"  ep 0       " + exact_bar(0, 2, 4, 32) + " [0,2) 0,3",
                                 "  ep 1       " + exact_bar(2, 4, 4, 32) + " [2,4) 1,4",
                                 "  ep 2       " + exact_bar(0, 0, 4, 32) + " none 2,5"});
  transformer few = sixty_four;  // which divides by 64; 16 columns do not
  few.heads = 8, few.groups = 2, few.head_dim = 2;
  const std::string columns = drawn("tp=64,shard=rows,names=hf", few);
  CHECK(columns.find("drawn for columns of o_proj: its numbers and their ranks\n") != columns.npos);
  CHECK(columns.find("  tp 13      " + exact_bar(13, 14, 16, 32) + " [13,14) 13\n") != columns.npos);
  CHECK(columns.find("  tp 63      " + exact_bar(0, 0, 16, 32) + " none 63\n") != columns.npos);
  transformer predicting = small;
  predicting.predictions = 1;
  const std::string three = drawn("pp=3,string=Et*8|m|L", predicting);
  CHECK(three.find("(E embedding, N norm, P prediction layer,\n    O output, e copy of E)\n") != three.npos);
  // on one stage the prediction layer has the embedding itself
  CHECK(drawn("", predicting).find("(E embedding, N norm, P prediction layer,\n    O output)\n") != std::string::npos);
  predicting.tied = true;
  CHECK(drawn("", predicting).find("(E embedding, N norm, P prediction layer)\n") != std::string::npos);
  predicting.tied = false;
  const std::vector<std::string> lines = lines_of(three);
  const auto ends_of = [&](const std::string& stage) {
    for (const std::string& line : lines)
      if (line.starts_with("      " + stage + " ")) return line;
    return std::string();
  };
  CHECK(ends_of("0").find("E" + exact_bar(0, 8, 8, 30) + "N ") != std::string::npos);
  CHECK(ends_of("1").find(" " + exact_bar(0, 0, 8, 30) + "Pe ") != std::string::npos);
  CHECK(ends_of("2").find(" " + exact_bar(0, 0, 8, 30) + "O ") != std::string::npos);
  CHECK(drawn("tp=2,pp=2,dp=2,order=tp-pp-dp").find("drawn for stage 0; a stage further adds 2 to each rank.\n") !=
        std::string::npos);
}

TEST_CASE("where tp does not divide the heads, or there are none, a matrix tells what is held") {
  using rows = std::vector<std::string>;
  const auto bar = [](index_t begin, index_t end, index_t extent) { return exact_bar(begin, end, extent, 32); };
  transformer t = small;  // 6 heads over 4: every tensor divides, and no rank has whole heads
  t.heads = 6, t.groups = 1, t.experts = 0, t.ffn = 8;
  const std::string halves_of_heads = drawn("tp=4,shard=rows,names=hf", t);
  CHECK(block_after(halves_of_heads, "tp cuts dense matrices in 4 by chunk(),") ==
        rows{"    drawn for rows of embed_tokens: its numbers and their ranks",
             "  tp 0       " + bar(0, 32, 128) + " [0,32) 0", "  tp 1       " + bar(32, 64, 128) + " [32,64) 1",
             "  tp 2       " + bar(64, 96, 128) + " [64,96) 2", "  tp 3       " + bar(96, 128, 128) + " [96,128) 3"});
  CHECK(block_after(drawn("dp=2,zero=3,shard=rows,names=hf", t), "zero=3 cuts the rows")[0] ==
        "    of all states of all tensors, in 2 (cp x dp)");
  model own{.name = "own", .shape = {.layers = 1}};
  own.sets[0] = layer_set::all(1);
  own.add({.name = "norm", .extent = {1, 1, 1, 1, 8}, .shape_ndim = 1});
  CHECK(drawn("tp=2", own).find("tp cuts") == std::string::npos);  // nothing is cut
  own.add({.name = "w", .extent = {1, 1, 2, 8, 4}, .tensor_axis = axis_of::row});
  const std::string each_part = drawn("tp=2", own);  // of the 16 rows both have one half of each part
  CHECK(block_after(each_part, "tp cuts dense matrices in 2, drawn for rows of w:").size() == 2);
  CHECK(each_part.find("  tp 0       ████████········████████········ [0,4) .. 0\n") != std::string::npos);
  CHECK(each_part.find("  tp 1       ········████████········████████ [4,8) .. 1\n") != std::string::npos);
  own.family_at[1].tensor_axis = axis_of::part;
  CHECK(drawn("tp=2", own).find(bar(8, 16, 16) + " [8,16) 1\n") != std::string::npos);
  own.family_at[1].extent[2] = 4;  // two whole parts each: one stretch of rows
  CHECK(drawn("tp=2", own).find(bar(16, 32, 32) + " [16,32) 1\n") != std::string::npos);
  own.family_at[1].shape_ndim = 3;
  CHECK(drawn("tp=2", own).find("drawn for parts of w: its numbers and their ranks\n") != std::string::npos);
  own.family_at[1].tensor_axis = axis_of::column;
  CHECK(drawn("tp=2", own).find("drawn for columns of w: its numbers and their ranks\n") != std::string::npos);
}
