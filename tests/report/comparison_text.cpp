// SPDX-License-Identifier: Apache-2.0
// Layouts side by side as JSON and as a table.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include <reshard/model/presets.hpp>
#include <reshard/report/comparison_text.hpp>

using namespace reshard;
using io::comparison_text;
using nlohmann::json;

namespace {
layout_comparison two(bool speeds) {
  layout_comparison c;
  c.layouts.resize(2);
  compared_layout &first = c.layouts[0], &second = c.layouts[1];
  first.layout = parse_degrees("tp=2,dp=3");
  first.bytes_per_rank = 10, first.moved = 20, first.retained = 30, first.peak = 40;
  second.layout = parse_degrees("pp=3,tp=2,split=spread");
  if (speeds) first.seconds = 0.5, second.seconds = 0.75;
  c.legal = 7, c.too_large = 4, c.refused = 1, c.why_refused = "a reason";
  return c;
}
json written(const layout_comparison& c, index_t top) {
  io::text_output out;
  write_comparison(out, c, top);
  return json::parse(out.text());
}
}  // namespace

TEST_CASE("JSON has every field") {
  const json all = written(two(true), 9);
  CHECK(all["layouts"][0] == json{{"layout", "tp=2,dp=3"},
                                  {"bytes_per_rank", 10},
                                  {"moved_bytes", 20},
                                  {"retained_bytes", 30},
                                  {"peak_bytes", 40},
                                  {"seconds", 0.5}});
  CHECK(all["layouts"][1]["layout"] == "tp=2,pp=3,split=spread");
  CHECK(all["legal"] == 7);
  CHECK(all["too_large"] == 4);
  CHECK(all["refused"] == 1);
  CHECK(written(two(false), 9)["layouts"][1]["seconds"].is_null());
  CHECK(written(two(true), 1)["layouts"].size() == 1);
  layout_comparison none = two(true);
  none.refused = 0;
  CHECK(!written(none, 1).contains("refused"));
}

TEST_CASE("of one the singular is told, of two and of more the plural") {
  for (const index_t n : {1, 2, 3}) {
    const std::string word = std::to_string(n);
    const space from(models::llama2_7b, parse_degrees("dp=" + word));
    layout_comparison c = two(true);
    c.legal = n, c.too_large = n;
    CHECK(comparison_text(from, c, n, 1024, 9)
              .starts_with("llama2-7b from " + (n == 1 ? "''" : "dp=" + word) + " (" + word +
                           (n == 1 ? " rank" : " ranks") + ")\nto " + word + (n == 1 ? " device: " : " devices: ") +
                           word + (n == 1 ? " legal layout\n" : " legal layouts\n") + word +
                           (n == 1 ? " has" : " have") + " a rank of more than 1.00 KiB\n"));
  }
}

TEST_CASE("what does not fit into 80 columns goes on in lines that are four in") {
  const space from(models::llama2_7b,
                   parse_degrees("tp=2,cp=2,dp=3,pp=2,zero=1,instances=3,bucket=100000,order=cp-tp-dp-pp"));
  layout_comparison c = two(true);
  for (int i = 0; i < 20; ++i) c.why_refused += " word" + std::to_string(i);
  const std::string text = comparison_text(from, c, 6, 1024, 9);
  std::istringstream lines(text);
  int further = 0;
  std::string unfolded;
  for (std::string line; std::getline(lines, line) && !line.starts_with("seconds are");) {
    CHECK(line.size() <= 80);
    const std::size_t in = line.find_first_not_of(' ');
    if (in == 0) {
      unfolded += "\n" + line;
      continue;
    }
    CHECK(in == 4);
    ++further;
    unfolded += " " + line.substr(in);
  }
  CHECK(further == 4);
  CHECK(unfolded.find("\n1 refused; one reason: " + c.why_refused) != unfolded.npos);
  CHECK(unfolded.starts_with("\nllama2-7b from " + to_text(from.degrees()) + " (24 ranks)\nto 6 devices"));
}

TEST_CASE("the table: what is shown, what is left out") {
  const space from(models::llama2_7b, parse_degrees("tp=2"));
  const std::string all = comparison_text(from, two(true), 6, 1024, 9),
                    one = comparison_text(from, two(false), 6, 0, 1);
  CHECK(all ==
        "llama2-7b from tp=2 (2 ranks)\n"
        "to 6 devices: 7 legal layouts\n"
        "4 have a rank of more than 1.00 KiB\n"
        "1 refused; one reason: a reason\n"
        "seconds are simulated, not measured; best first\n\n"
        "  tp  pp  dp  split   a rank  moves  keeps  peak    seconds\n"
        "   2   1   3  even       10B    20B    30B   40B  500.00 ms\n"
        "   2   3   1  spread      0B     0B     0B    0B  750.00 ms\n\n"
        "first: tp=2,dp=3\n");
  CHECK(one ==
        "llama2-7b from tp=2 (2 ranks)\n"
        "to 6 devices: 7 legal layouts\n"
        "1 refused; one reason: a reason\n"
        "the cluster has no speeds, so fewest bytes moved first\n\n"
        "  tp  pp  dp  a rank  moves  keeps  peak  seconds\n"
        "   2   1   3     10B    20B    30B   40B        -\n"
        "  .. and 1 more; --top says how many are shown\n\n"
        "first: tp=2,dp=3\n");
  layout_comparison single = two(true);
  single.layouts = {{.layout = {}, .seconds = 0.5}};
  CHECK(comparison_text(from, single, 1, 0, 9).ends_with("\n\nfirst: tp=1\n"));
  const space experts(models::qwen3_30b_a3b, parse_degrees(""));
  layout_comparison of_experts = two(true);
  of_experts.layouts[0].layout = parse_degrees("tp=2,dp=6,ep=3,split=spread");
  CHECK(comparison_text(experts, of_experts, 6, 1, 1) ==
        "qwen3-30b-a3b from '' (1 rank)\n"
        "to 6 devices: 7 legal layouts\n"
        "4 have a rank of more than 1 B\n"
        "1 refused; one reason: a reason\n"
        "seconds are simulated, not measured; best first\n\n"
        "  tp  pp  dp  ep  split   a rank  moves  keeps  peak    seconds\n"
        "   2   1   6   3  spread     10B    20B    30B   40B  500.00 ms\n"
        "  .. and 1 more; --top says how many are shown\n\n"
        "first: tp=2,dp=6,ep=3,split=spread\n");
  layout_comparison nothing = two(true);
  nothing.layouts.clear(), nothing.refused = 0;
  CHECK(comparison_text(from, nothing, 6, 0, 9) ==
        "llama2-7b from tp=2 (2 ranks)\n"
        "to 6 devices: 7 legal layouts\n");
}
