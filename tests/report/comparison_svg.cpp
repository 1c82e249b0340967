// SPDX-License-Identifier: Apache-2.0
// The scatter, read back: where every layout stands, which stand out, and that words stay apart.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/report/comparison_svg.hpp>

#include "../io/process.hpp"
#include "../support/dice.hpp"
#include "../support/drawn.hpp"

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
/// The same picture, drawn from the comparison: of layouts best first, by pairs.
void check_whole(const drawn_picture& found, const layout_comparison& c, bool speeds) {
  const auto of_cost = [&](double cost) {
    return speeds ? io::seconds_text(cost) : io::bytes_text(static_cast<bytes_t>(cost));
  };
  struct mark {
    long x = 0, y = 0;
    double cost = 0;
    bool beaten = false;
  };
  std::vector<mark> marks;
  double most_bytes = 0, most = 0, least = 0;  // cost; the least that is not 0
  for (const compared_layout& one : c.layouts) {
    const double cost = speeds ? *one.seconds : static_cast<double>(one.moved);
    most_bytes = std::max(most_bytes, static_cast<double>(one.bytes_per_rank)), most = std::max(most, cost);
    if (cost > 0 && (least == 0 || cost < least)) least = cost;
    marks.push_back({0, 0, cost, false});
  }
  const bool log = most > 30 * least && least > 0;
  if (log) least = std::pow(10.0, std::floor(std::log10(least)));
  const auto height_of = [&](double cost) {  // above the bottom
    if (most == 0) return 0L;
    if (!log) return static_cast<long>(cost / most * 0.95 * 4600);
    return cost <= least ? 0L : static_cast<long>(std::log(cost / least) / std::log(most / least) * 0.95 * 4600);
  };
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const compared_layout& a = c.layouts[i];
    marks[i].x = 1200 + static_cast<long>(static_cast<double>(a.bytes_per_rank) / most_bytes * 0.95 * 6700);
    marks[i].y = 5800 - height_of(marks[i].cost);
    for (std::size_t j = 0; j < marks.size(); ++j) {
      const compared_layout& b = c.layouts[j];
      const bool equal = a.bytes_per_rank == b.bytes_per_rank && marks[i].cost == marks[j].cost;
      if (b.bytes_per_rank <= a.bytes_per_rank && marks[j].cost <= marks[i].cost && (!equal || j < i))
        marks[i].beaten = true;
    }
    if (!marks[i].beaten) best.push_back(i);
  }

  testing::own_picture own(8300, 6700 + 200 * static_cast<long>(best.size()));
  const std::string bold = "font-weight=\"bold\"", ten = "font-size=\"10\"", eleven = "font-size=\"11\"";
  own.text(200, 320, "start", "llama2-7b: " + std::to_string(c.layouts.size()) + " layouts of 48 devices",
           "font-size=\"16\" " + bold);
  own.text(200, 540, "start", "from tp=2");
  own.text(200, 720, "start",
           std::string(speeds && !c.layouts.empty() ? "up: seconds of the switch, simulated"
                                                    : "up: bytes that the switch moves") +
               (log ? ", logarithmic" : "") + "; across: bytes of the largest rank");
  own.text(200, 900, "start",
           "of " + std::to_string(c.legal) + " legal ones " + std::to_string(c.too_large) + " are too large and " +
               std::to_string(c.refused) + " refused");
  own.rectangle(1200, 1200, 6700, 4600, "fill=\"#f4f4f4\"");
  std::vector<double> lines;
  if (log)
    for (double at = least; at <= most * 1.0001; at *= 10) lines.push_back(at);
  else if (most == 0) lines = {0};
  else lines = {0, most / 4, most * 2 / 4, most * 3 / 4, most};
  for (const double at : lines) {
    own.rectangle(1200, 5800 - height_of(at), 6700, 5, "fill=\"#bbb\"");
    own.text(1100, 5840 - height_of(at), "end", c.layouts.empty() ? "0 B" : of_cost(at), ten);
  }
  const long columns[] = {1200, 2791, 4382, 5973, 7565};
  for (int i = 0; i < 5; ++i) {
    own.rectangle(columns[i], 1200, 5, 4600, "fill=\"#bbb\"");
    own.text(columns[i], 6000, "middle", io::bytes_text(static_cast<bytes_t>(most_bytes * i / 4)), ten);
  }
  for (const mark& m : marks)
    own.circle(m.x, m.y, 40, "fill=\"#9ecae1\" fill-opacity=\"0.8\" stroke=\"#222\" stroke-width=\"0.5\"");
  for (const std::size_t i : best) own.circle(marks[i].x, marks[i].y, 50, "fill=\"#d9480f\"");
  std::vector<std::pair<long, long>> taken;
  for (std::size_t n = 0; n < best.size(); ++n) {
    const mark& m = marks[best[n]];
    const std::pair<long, long> places[] = {
        {m.x - 170, m.y + 40}, {m.x, m.y + 180}, {m.x + 170, m.y + 40}, {m.x, m.y - 90}};
    const auto free = std::find_if(std::begin(places), std::end(places), [&](const auto& at) {
      bool is = at.first > 1295 && at.first < 7805 && at.second > 1330 && at.second < 5800;
      for (const auto& [x, y] : taken) is = is && (std::abs(at.first - x) >= 190 || std::abs(at.second - y) >= 130);
      return is;
    });
    if (free == std::end(places)) continue;
    taken.push_back(*free);
    own.text(free->first, free->second, "middle", std::to_string(n + 1), eleven + " " + bold);
  }
  own.text(200, best.empty() ? 6550 : 6300, "start",
           best.empty() ? "no layout is left" : "where none is both faster to reach and smaller:");
  for (std::size_t n = 0; n < best.size(); ++n) {
    const long y = 6550 + 200 * static_cast<long>(n);
    const std::string layout = to_text(c.layouts[best[n]].layout);
    own.text(450, y, "end", std::to_string(n + 1), eleven + " " + bold);
    own.text(600, y, "start",
             (layout.empty() ? "one rank" : layout) + ": " + io::bytes_text(c.layouts[best[n]].bytes_per_rank) +
                 " a rank, " + of_cost(marks[best[n]].cost),
             eleven);
  }
  own.check(found);
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
    check_whole(p, c, speeds);
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
  check_whole(none, of_points({}, true), true);
  none.check_words_apart();
  CHECK(none.says("no layout is left"));
  const drawn_picture free = draw(of_points({{1 << 20, 0}}, false));
  free.check_words_apart();
  CHECK(orange(free) == 1);
  check_whole(free, of_points({{1 << 20, 0}}, false), false);
  CHECK(std::abs(free.circles[0].y - (free.rectangles[0].y + free.rectangles[0].height)) < 0.11);
}

TEST_CASE("of a logarithmic axis what costs nothing stands at the foot") {
  const layout_comparison c =
      of_points({{bytes_t{1} << 20, 0}, {bytes_t{2} << 20, 3}, {bytes_t{3} << 20, 1000}}, false);
  const drawn_picture p = draw(c);
  REQUIRE(p.says(", logarithmic"));
  const double foot = p.rectangles[0].y + p.rectangles[0].height;
  CHECK(std::abs(p.circles[0].y - foot) < 0.11);
  CHECK(p.circles[1].y < foot - 1);
  CHECK(p.circles[2].y < p.circles[1].y - 1);
}

TEST_CASE("numbers beside layouts that stand close to each other do not lie on each other") {
  const layout_comparison c = of_points({{bytes_t{1000} << 20, 1.0},
                                         {bytes_t{999} << 20, 1.001},
                                         {bytes_t{998} << 20, 1.002},
                                         {bytes_t{997} << 20, 1.003},
                                         {bytes_t{996} << 20, 1.004},
                                         {bytes_t{995} << 20, 1.005}},
                                        true);
  const drawn_picture p = draw(c);
  check_whole(p, c, true);
  p.check_words_apart();
  CHECK(orange(p) == 6);
  const auto numbers = std::count_if(p.texts.begin(), p.texts.end(), [](const testing::drawn_words& one) {
    return one.words.size() == 1 && one.words[0] >= '1' && one.words[0] <= '6';
  });
  CHECK(numbers > 6 + 1);  // all in the list, and some beside their points
}

TEST_CASE("a number whose place would be on the plot's lower edge stands elsewhere") {
  const layout_comparison c =
      of_points({{25'000'000, 18'005}, {bytes_t{1} << 30, 437'000}}, false);  // 18 pixels above it
  const drawn_picture p = draw(c);
  CHECK(orange(p) == 1);
  check_whole(p, c, false);
}

TEST_CASE("the picture is higher by as much for each that is listed below it") {
  std::vector<point> stairs;
  for (int i = 0; i < 12; ++i) stairs.push_back({bytes_t{100} * (i + 1), 50.0 - i});
  const layout_comparison c = of_points(stairs, true);
  const drawn_picture p = draw(c);
  CHECK(orange(p) == 12);
  check_whole(p, c, true);
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

TEST_CASE("where one has seconds and another has none, the bytes that they move are compared") {
  layout_comparison c = of_points({{900, 2.0}, {700, 3.0}, {500, 4.0}}, true);
  c.layouts[1].seconds.reset(), c.layouts[1].moved = 7;
  c.layouts[0].moved = 7, c.layouts[2].moved = 8;
  const std::vector<std::size_t> found = io::detail::undominated(c.layouts);
  CHECK(found == std::vector<std::size_t>{1, 2});  // the second moves as much as the first, with less memory
}

TEST_CASE("of layouts whose seconds are equal but for rounding only the smallest stands out") {
  const layout_comparison c = of_points({{900, 2.0}, {700, 2.0 + 1e-12}, {500, 2.0 - 1e-12}, {400, 3.0}}, true);
  const std::vector<std::size_t> found = io::detail::undominated(c.layouts);
  REQUIRE(found.size() == 2);
  CHECK(c.layouts[found[0]].bytes_per_rank == 500);
  CHECK(c.layouts[found[1]].bytes_per_rank == 400);
}
