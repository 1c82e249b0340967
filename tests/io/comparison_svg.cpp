// SPDX-License-Identifier: Apache-2.0
// The scatter, read back: where every layout stands, which stand out, and that words stay apart.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/io/comparison_svg.hpp>
#include <reshard/model/presets.hpp>

#include "../support/dice.hpp"
#include "../support/drawn.hpp"
#include "process.hpp"

using namespace reshard;
using testing::drawn_picture, testing::drawn_shape;

namespace {
struct point {
  bytes_t bytes;
  double cost;  // seconds, or bytes moved
};
layout_comparison of_points(const std::vector<point>& points, bool speeds) {
  layout_comparison c;
  for (std::size_t i = 0; i < points.size(); ++i) {
    compared_layout one;
    one.layout.dp = static_cast<index_t>(i) + 1;
    one.bytes_per_rank = points[i].bytes;
    if (speeds) one.seconds = points[i].cost;
    else one.moved = static_cast<bytes_t>(points[i].cost);
    c.layouts.push_back(one);
  }
  c.legal = static_cast<index_t>(points.size()) + 3, c.too_large = 2, c.refused = 1;
  sort_best_first(c);
  return c;
}
drawn_picture draw(const layout_comparison& c) {
  io::text_output out;
  write_comparison_svg(out, space(models::llama2_7b, parse_degrees("tp=2")), 48, c);
  return drawn_picture(out.text());
}
/// How many no other is at or below in both, counted from all pairs.
long standing_out(const std::vector<point>& points) {
  long count = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    bool beaten = false;
    for (std::size_t j = 0; j < points.size(); ++j) {
      const point &a = points[i], &b = points[j];
      const bool equal = a.bytes == b.bytes && a.cost == b.cost;
      beaten = beaten || (b.bytes <= a.bytes && b.cost <= a.cost && (!equal || j < i));
    }
    count += beaten ? 0 : 1;
  }
  return count;
}
long orange(const drawn_picture& p) {
  return std::count_if(p.circles.begin(), p.circles.end(), [](const drawn_shape& c) { return c.has("#d9480f"); });
}
}  // namespace

TEST_CASE("every layout stands where its bytes and seconds are; those that nothing beats stand out") {
  testing::dice random(3);
  int logarithmic = 0;
  for (int n = 0; n < 40; ++n) {
    const bool speeds = n % 2 == 0, wide = n % 3 == 0;
    std::vector<point> points;
    for (index_t i = random.within(1, 60); i > 0; --i) {
      const double cost = static_cast<double>(random.within(1, 100)) / (speeds ? 256.0 : 1.0);
      points.push_back({random.within(1, 20) << 20, wide && random.coin() ? cost * 4096 : cost});
    }
    const layout_comparison c = of_points(points, speeds);
    const drawn_picture p = draw(c);
    p.check_words_apart();
    CHECK(orange(p) == standing_out(points));
    REQUIRE(p.circles.size() == points.size() + static_cast<std::size_t>(orange(p)));
    double most_bytes = 0, most_cost = 0;
    const drawn_shape& plot = p.rectangles.front();
    const auto cost_of = [](const compared_layout& one) {
      return one.seconds ? *one.seconds : static_cast<double>(one.moved);
    };
    for (const compared_layout& one : c.layouts) {
      most_bytes = std::max(most_bytes, static_cast<double>(one.bytes_per_rank));
      most_cost = std::max(most_cost, cost_of(one));
    }
    const bool log = p.says(", logarithmic");
    logarithmic += log ? 1 : 0;
    for (std::size_t i = 0; i < c.layouts.size(); ++i) {
      const drawn_shape& circle = p.circles[i];
      const double share = static_cast<double>(c.layouts[i].bytes_per_rank) / most_bytes;
      CHECK(std::abs(circle.x - (plot.x + 0.95 * plot.width * share)) < 0.2);
      if (!log)
        CHECK(std::abs(circle.y - (plot.y + plot.height - 0.95 * plot.height * cost_of(c.layouts[i]) / most_cost)) <
              0.2);
      if (i > 0) CHECK(circle.y <= p.circles[i - 1].y + 0.11);  // best first, so upwards
      CHECK(circle.y <= plot.y + plot.height);
      CHECK(circle.y >= plot.y);
    }
    CHECK(p.says(speeds ? "up: seconds of the switch, simulated" : "up: bytes that the switch moves"));
    CHECK(p.says("of " + std::to_string(c.legal) + " legal ones 2 are too large and 1 refused"));
    const std::string first =
        to_text(std::min_element(c.layouts.begin(), c.layouts.end(), [&](const auto& a, const auto& b) {
                  return std::pair(cost_of(a), a.bytes_per_rank) < std::pair(cost_of(b), b.bytes_per_rank);
                })->layout);
    CHECK(p.says(first.empty() ? "one rank: " : first + ": "));
  }
  CHECK_DRAWN(logarithmic > 5);
  CHECK_DRAWN(logarithmic < 35);
}

TEST_CASE("no layout at all, and one whose switch costs nothing") {
  const drawn_picture none = draw(of_points({}, true));
  none.check_words_apart();
  CHECK(none.says("no layout is left"));
  const drawn_picture free = draw(of_points({{1 << 20, 0}}, false));
  free.check_words_apart();
  CHECK(orange(free) == 1);
  CHECK(std::abs(free.circles[0].y - (free.rectangles[0].y + free.rectangles[0].height)) < 0.11);
}

TEST_CASE("numbers beside layouts that stand close to each other do not lie on each other") {
  const drawn_picture p = draw(of_points({{bytes_t{1000} << 20, 1.0},
                                          {bytes_t{999} << 20, 1.001},
                                          {bytes_t{998} << 20, 1.002},
                                          {bytes_t{997} << 20, 1.003},
                                          {bytes_t{996} << 20, 1.004},
                                          {bytes_t{995} << 20, 1.005}},
                                         true));
  p.check_words_apart();
  CHECK(orange(p) == 6);
  const auto numbers = std::count_if(p.texts.begin(), p.texts.end(), [](const testing::drawn_words& one) {
    return one.words.size() == 1 && one.words[0] >= '1' && one.words[0] <= '6';
  });
  CHECK(numbers > 6 + 1);  // all in the list, and some beside their points
}

TEST_CASE("compare --svg writes it, whatever --top says") {
  const std::string file = (testing::here().folder / "scatter.svg").string();
  const testing::answer got = testing::ask({"compare", "qwen3-30b-a3b", "tp=4,pp=8,ep=4,zero=1", "--devices", "32",
                                            "--cluster", "a800", "--top", "1", "--svg", file});
  REQUIRE(got.code == 0);
  const drawn_picture picture(testing::content_of(file));
  picture.check_words_apart();
  CHECK(picture.says("qwen3-30b-a3b: 91 layouts of 32 devices"));
  CHECK(picture.circles.size() == 91 + static_cast<std::size_t>(orange(picture)));
  CHECK(testing::ask({"compare", "llama2-7b", "tp=2", "--devices", "4", "--svg", "/no/such/x.svg"}).err ==
        "reshard: /no/such/x.svg cannot be written: No such file or directory\n");
}

TEST_CASE("of layouts whose seconds are equal but for rounding only the smallest stands out") {
  const layout_comparison c = of_points({{900, 2.0}, {700, 2.0 + 1e-12}, {500, 2.0 - 1e-12}, {400, 3.0}}, true);
  const std::vector<std::size_t> found = io::detail::undominated(c.layouts);
  REQUIRE(found.size() == 2);
  CHECK(c.layouts[found[0]].bytes_per_rank == 500);
  CHECK(c.layouts[found[1]].bytes_per_rank == 400);
}
