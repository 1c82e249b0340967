// SPDX-License-Identifier: Apache-2.0
// Values as people read them.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <reshard/io/hf_config.hpp>
#include <reshard/io/print.hpp>
#include <reshard/report/layout_picture.hpp>
#include <reshard/report/layout_svg.hpp>

#include "../support/dice.hpp"

using namespace reshard;

using namespace reshard::io;

TEST_CASE("intervals, boxes, ranges, counts") {
  CHECK(to_text(interval{0, 4}) == "[0,4)");
  CHECK(to_text(box<2>{{{0, 4}, {2, 6}}}) == "[0,4)x[2,6)");
  CHECK(range_text({3, 4}) == "3");
  CHECK(range_text({0, 8}) == "0-7");
  CHECK(range_text({5, 5}) == "-");
  CHECK(range_text({3, 5}) == "3-4");
  CHECK(to_text(box<3>{{{0, 1}, {-2, 6}, {7, 7}}}) == "[0,1)x[-2,6)x[7,7)");
  CHECK(to_text(box<1>{{{1, 2}}}) == "[1,2)");
  CHECK(count_text(0) == "0");
  CHECK(count_text(999) == "999");
  CHECK(count_text(1000) == "1,000");
  CHECK(count_text(-1234567) == "-1,234,567");
  CHECK(count_text(-123) == "-123");
  CHECK(count_text(std::numeric_limits<index_t>::max()) == "9,223,372,036,854,775,807");
}

TEST_CASE("where a figure has one digit before the point more, its unit or its decimals are others") {
  // 1023.995, 9.995 and 99.95 PiB as doubles have them, which are whole numbers of bytes
  const bytes_t unit_ends = 1152915875107312768, two_end = 11253369568892026, one_ends = 112533695688920272;
  CHECK(bytes_text(unit_ends) == "1.00 EiB");
  CHECK(bytes_text(-unit_ends) == "-1.00 EiB");
  CHECK(bytes_text(unit_ends - 128) == "1023.99 PiB");
  CHECK(bytes_text(-(unit_ends - 128)) == "-1023.99 PiB");
  CHECK(narrow_bytes_text(two_end) == "10.0PiB");
  CHECK(narrow_bytes_text(two_end - 2) == "9.99PiB");
  CHECK(narrow_bytes_text(one_ends) == "100PiB");
  CHECK(narrow_bytes_text(one_ends - 16) == "99.9PiB");
}

TEST_CASE("bytes and seconds") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(-1023) == "-1023 B");
  CHECK(bytes_text(-1024) == "-1.00 KiB");
  const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  for (int u = 0; u < 6; ++u) {  // 7, and just below the next unit
    const bytes_t unit = bytes_t{1} << (10 * (u + 1));
    CHECK(bytes_text(7 * unit) == "7.00 " + std::string(units[u]));
    CHECK(bytes_text(-7 * unit) == "-7.00 " + std::string(units[u]));
    if (u < 5) {
      CHECK(bytes_text(1023 * unit) == "1023.00 " + std::string(units[u]));
      CHECK(bytes_text(1024 * unit - unit / 128) == "1023.99 " + std::string(units[u]));
      CHECK(bytes_text(1024 * unit - unit / 512) == "1.00 " + std::string(units[u + 1]));
      CHECK(bytes_text(-(1024 * unit - unit / 512)) == "-1.00 " + std::string(units[u + 1]));
    }
  }
  CHECK(bytes_text(1024) == "1.00 KiB");
  CHECK(bytes_text(1536) == "1.50 KiB");
  CHECK(bytes_text((bytes_t{1} << 20) - 1) == "1.00 MiB");
  CHECK(bytes_text(bytes_t{80} << 30) == "80.00 GiB");
  CHECK(bytes_text(-2048) == "-2.00 KiB");
  CHECK(bytes_text(std::numeric_limits<bytes_t>::max()) == "8.00 EiB");
  CHECK(seconds_text(2.5) == "2.500 s");
  CHECK(seconds_text(1) == "1.000 s");
  CHECK(seconds_text(0.5) == "500.00 ms");
  CHECK(seconds_text(1e-3) == "1.00 ms");
  CHECK(seconds_text(0.5e-3) == "500.0 us");
  CHECK(seconds_text(0) == "0.0 us");
  CHECK(seconds_text(0.0125) == "12.50 ms");
  CHECK(seconds_text(0.0000125) == "12.5 us");
  CHECK(seconds_text(0.99) == "990.00 ms");
  CHECK(seconds_text(0.00099) == "990.0 us");
  CHECK(seconds_text(12345.6789) == "12345.679 s");
}

TEST_CASE("text of others stays on one line and short") {
  CHECK(one_line("plain") == "plain");
  CHECK(one_line("a\nb\x7f\x1b[1m") == "a\\x0ab\\x7f\\x1b[1m");
  CHECK(one_line(std::string(1000, 'x'), 30) == std::string(20, 'x') + "..." + std::string(10, 'x'));
}

TEST_CASE("text of others is whole up to three characters more than the limit, for which the dots would stand") {
  CHECK(one_line("abcdefghi", 6) == "abcdefghi");
  CHECK(one_line("abcdefghij", 6) == "abcd...ij");
  CHECK(one_line(std::string(83, 'x')) == std::string(83, 'x'));
  CHECK(one_line(std::string(84, 'x')) == std::string(54, 'x') + "..." + std::string(26, 'x'));
  std::string all, written;
  for (int c = 0; c < 256; ++c) {
    all += static_cast<char>(c);
    const char* hex = "0123456789abcdef";
    if (c < 32 || c == 127) written += std::string("\\x") + hex[c / 16] + hex[c % 16];
    else written += static_cast<char>(c);
  }
  CHECK(one_line(all, 256) == written);
}

TEST_CASE("bytes in three digits and seven columns, rounded to the nearest, up to the largest number") {
  const std::pair<bytes_t, const char*> cases[] = {{0, "0B"},
                                                   {1, "1B"},
                                                   {1023, "1023B"},
                                                   {1024, "1.00KiB"},
                                                   {1536, "1.50KiB"},
                                                   {10'234, "9.99KiB"},
                                                   {10'235, "10.0KiB"},
                                                   {102'348, "99.9KiB"},
                                                   {102'349, "100KiB"},
                                                   {1'048'063, "1023KiB"},
                                                   {1'048'064, "1.00MiB"},
                                                   {bytes_t{64} << 20, "64.0MiB"},
                                                   {bytes_t{3} << 29, "1.50GiB"},
                                                   {bytes_t{100} << 40, "100TiB"},
                                                   {bytes_t{5} << 50, "5.00PiB"},
                                                   {9'223'372'036'854'775'807, "8.00EiB"}};
  for (const auto& c : cases) {
    CHECK(narrow_bytes_text(c.first) == c.second);
    CHECK(text_width(c.second) <= 7);
  }
}

TEST_CASE("a line is folded at 80 columns: after the last comma that fits, else between words") {
  const std::string a79(79, 'a'), a80 = a79 + "a", a81 = a80 + "a";
  for (const std::string& whole : {std::string(), a79, a80, a79 + ",", a81, a80 + "," + a80})
    CHECK(folded(whole, 4) == whole);
  CHECK(folded(a79 + ", b", 4) == a79 + ",\n    b");         // the comma is the last of 80
  CHECK(folded(a80 + " b", 2) == a80 + "\n  b");             // the blank is the first beyond them
  CHECK(folded(a81 + " b", 2) == a81 + " b");                // no blank before it
  CHECK(folded(a79 + "," + a79, 2) == a79 + ",\n  " + a79);  // a comma in a longer word
  CHECK(folded(a80 + ",b", 2) == a80 + ",b");
  CHECK(folded("x " + a80, 2) == "x\n  " + a80);
  CHECK(folded("a, b c " + a79, 3) == "a,\n   b c\n   " + a79);  // a comma before a later blank
  CHECK(folded(a80 + " " + a79, 1) == a80 + "\n " + a79);        // what hangs has as many columns less
  CHECK(folded(a79 + " " + std::string(76, 'b') + " c", 4) == a79 + "\n    " + std::string(76, 'b') + "\n    c");
  CHECK(folded(a79 + " " + std::string(74, 'b') + " c", 4) == a79 + "\n    " + std::string(74, 'b') + " c");
  CHECK(folded(a79 + " " + std::string(75, 'b') + " c", 4) == a79 + "\n    " + std::string(75, 'b') + "\n    c");
}

TEST_CASE("tables align, by characters and not by bytes") {
  table t({{"name", table::side::left}, {"count"}});
  CHECK(t.empty());
  CHECK(t.text(0) == "name  count\n");
  t.row({"a", "10"});
  t.row({"größer", "7"});
  t.row({"b"});
  CHECK(t.text() == "  name    count\n  a          10\n  größer      7\n  b\n");
  CHECK_FALSE(t.empty());
  t.row({"", "1234567"});
  CHECK(t.text(1) == " name      count\n a            10\n größer        7\n b\n         1234567\n");
}

namespace {
/// A table by the rule in so many words: a column is as wide as its widest cell, two blanks lie between columns, and no
/// line ends in a blank.
std::string aligned(const std::vector<table::column>& columns, const std::vector<std::vector<std::string>>& rows,
                    std::size_t indent) {
  std::string result;
  for (int line = -1; line < static_cast<int>(rows.size()); ++line) {
    std::string written(indent, ' ');
    for (std::size_t c = 0; c < columns.size(); ++c) {
      std::size_t widest = columns[c].heading.size();
      for (const auto& cells : rows)
        if (c < cells.size()) widest = std::max(widest, cells[c].size());
      std::string cell = columns[c].heading;
      if (line >= 0) {
        const std::vector<std::string>& cells = rows[static_cast<std::size_t>(line)];
        cell = c < cells.size() ? cells[c] : "";
      }
      while (cell.size() < widest) cell.insert(columns[c].aligned == table::side::right ? 0 : cell.size(), " ");
      written += (c == 0 ? "" : "  ") + cell;
    }
    while (!written.empty() && written.back() == ' ') written.pop_back();
    result += written + "\n";
  }
  return result;
}
}  // namespace

TEST_CASE("any table is its cells, each column as wide as its widest") {
  testing::dice random(11);
  int empty_cells = 0, short_rows = 0;
  for (int n = 0; n < 200; ++n) {
    const auto text = [&] { return std::string(static_cast<std::size_t>(random.below(6)), 'x'); };
    std::vector<table::column> columns;
    for (index_t c = random.within(1, 4); c > 0; --c)
      columns.push_back({text(), random.coin() ? table::side::left : table::side::right});
    table t(columns);
    std::vector<std::vector<std::string>> rows;
    for (index_t r = random.below(4); r > 0; --r) {
      std::vector<std::string> cells;
      for (index_t c = random.within(0, static_cast<index_t>(columns.size())); c > 0; --c) cells.push_back(text());
      for (const std::string& cell : cells) empty_cells += cell.empty() ? 1 : 0;
      short_rows += cells.size() < columns.size() ? 1 : 0;
      t.row(cells);
      rows.push_back(cells);
    }
    const auto indent = static_cast<std::size_t>(random.below(4));
    CHECK(t.text(indent) == aligned(columns, rows, indent));
    CHECK(t.empty() == rows.empty());
  }
  for (const int seen : {empty_cells, short_rows}) CHECK_DRAWN(seen > 20);
}

TEST_CASE("the width of a text is its code points, of one to four bytes") {
  CHECK(text_width("") == 0);
  CHECK(text_width("a\x7f") == 2);
  CHECK(text_width("\xc2\x80\xdf\xbf") == 2);
  CHECK(text_width("\xe0\xa0\x80\xef\xbf\xbd") == 2);
  CHECK(text_width("\xf0\x90\x80\x80") == 1);
}

TEST_CASE("bars fill where the part is, and never hide one") {
  CHECK(io::detail::bar_text({{0, 2}}, 4, 4) == "██··");
  CHECK(io::detail::bar_text({{1, 2}}, 8, 4) == "▐···");
  CHECK(io::detail::bar_text({{0, 1}, {3, 4}}, 4, 4) == "█··█");
  CHECK(io::detail::bar_text({{500, 501}}, 1000, 4) == "··▌·");
  CHECK(io::detail::bar_text({{1, 2}}, 2, 4) == "··██");
}

TEST_CASE("pictures of large worlds stay 80 columns wide and fit a screen or two") {
  for (const char* layout : {"tp=4,pp=94,dp=44,ep=8,zero=1", "tp=1,pp=2,vpp=47,dp=8192,zero=1",
                             "tp=4,pp=8,dp=4,ep=16,zero=1,split=account"}) {
    CAPTURE(layout);
    const space where(load_model("qwen3-235b-a22b"), parse_degrees(layout));
    const std::string picture = layout_picture(computed_holding(where));
    CHECK(std::count(picture.begin(), picture.end(), '\n') < 120);
    for (std::size_t at = 0; at < picture.size();) {
      const std::size_t end = picture.find('\n', at);
      CHECK(text_width(std::string_view(picture).substr(at, end - at)) <= 80);
      at = end + 1;
    }
  }
}

TEST_CASE("the svg is one well-formed picture, whatever the model is called") {
  const std::string name = "<&\"evil\xff\n.json";
  const model m = parse_config(
      R"({"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 8,
    "num_experts": 8, "moe_intermediate_size": 24, "intermediate_size": 24, "decoder_sparse_step": 2,
    "vocab_size": 128, "tie_word_embeddings": true})",
      name);
  for (const char* layout : {"", "tp=2,dp=4,pp=3,ep=8,zero=1", "pp=3,vpp=2,tp=8,zero=1"}) {
    CAPTURE(layout);
    const space where(m, parse_degrees(layout));
    text_output out;
    write_svg(out, computed_holding(where), where.ranks() - 1);
    const std::string& svg = out.text();
    CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(svg.find("&lt;&amp;&quot;evil?\\x0a.json under ") != svg.npos);
    CHECK(std::all_of(svg.begin(), svg.end(), [](char c) { return (c >= ' ' && c <= '~') || c == '\n'; }));
    CHECK(svg.find("\"-") == svg.npos);  // no negative size or place
  }
}

TEST_CASE("states are named in their order") {
  CHECK(to_text(all_states) == "param + master + exp_avg + exp_avg_sq");
  CHECK(to_text(only(3) | only(1)) == "master + exp_avg_sq");
  CHECK(to_text(only(2)) == "exp_avg");
  CHECK(to_text(state_set{}) == "no state");
  CHECK(to_text(parameter_states) == "param");  // of parameters and of statistics, which have the one name
  CHECK(to_text(statistic_states) == "param");
  CHECK(to_text(statistic_states | only(1)) == "master + param");
  CHECK(to_text(statistic_states | only(0) | only(1)) == "param + master");
  const state_list own = parse_state_list("grad:fp8:2,exp_avg:bf16:1,param:fp32:3,ema:fp16:3");
  CHECK(to_text(own.all(), own) == "grad + exp_avg + param + ema");
  CHECK(to_text(own.only(3) | statistic_states, own) == "ema + param");
  CHECK(to_text(own) == "grad:fp8:2,exp_avg:bf16:1,param:fp32:3,ema:fp16:3");
  CHECK(to_text(adam) == "param:bf16:3,master:fp32:1,exp_avg:fp32:1,exp_avg_sq:fp32:1");
}
