// SPDX-License-Identifier: Apache-2.0
// The picture file, read back: every rectangle is where the layout says, as a fraction of its cell or of the layers'
// axis.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <reshard/io/svg.hpp>
#include <reshard/model/transformer.hpp>

using namespace reshard;

namespace {
constexpr transformer small{.name = "small",
                            .layers = 8,
                            .hidden = 64,
                            .heads = 8,
                            .groups = 4,
                            .head_dim = 8,
                            .ffn = 96,
                            .vocabulary = 128,
                            .experts = 4,
                            .expert_ffn = 24};

struct rectangle {
  double x, y, width, height;
  std::string style;
};
struct label {
  double x, y;
  std::string words;
};
double number_of(const std::string& element, const std::string& attribute) {
  const std::size_t at = element.find(" " + attribute + "=\"");
  REQUIRE(at != element.npos);
  return std::stod(element.substr(at + attribute.size() + 3));
}
struct drawing {
  std::vector<rectangle> all;
  std::vector<label> labels;
  double width = 0, height = 0;
  explicit drawing(const std::string& svg) {
    width = number_of(svg.substr(0, svg.find('\n')), "width");
    height = number_of(svg.substr(0, svg.find('\n')), "height");
    for (std::size_t at = 0; at < svg.size();) {
      const std::size_t end = svg.find('\n', at);
      const std::string line = svg.substr(at, end - at);
      at = end + 1;
      if (line.starts_with("<rect x="))
        all.push_back({number_of(line, "x"), number_of(line, "y"), number_of(line, "width"), number_of(line, "height"),
                       line.substr(line.find("fill="), line.size() - 2 - line.find("fill="))});
      if (line.starts_with("<text ")) {
        const std::size_t from = line.find('>') + 1;
        labels.push_back({number_of(line, "x"), number_of(line, "y"), line.substr(from, line.rfind("</text>") - from)});
      }
    }
  }
  const label* find(const std::string& words) const {
    const auto at = std::find_if(labels.begin(), labels.end(), [&](const label& l) { return l.words == words; });
    return at == labels.end() ? nullptr : &*at;
  }
};
drawing draw(const computed_holding& h, rank_t rank) {
  text_output out;
  write_svg(out, h, rank);
  return drawing(out.text());
}
void check_near(double found, double wanted) { CHECK(std::abs(found - wanted) < 0.3); }  // floors of floors of a tenth

/// Members of a family that a stage holds: from the lowest to the highest of any of its ranks.
interval members_of_stage(const computed_holding& h, int f, index_t stage) {
  interval hull;
  const index_t ranks = h.where().which_degrees().stage_ranks();
  for (rank_t r = stage * ranks; r < (stage + 1) * ranks; ++r)
    h.held(f, r, role::parameter, [&](int, const family_box& b) {
      hull = hull.empty() ? b.dim[0] : interval{std::min(hull.begin, b.dim[0].begin), std::max(hull.end, b.dim[0].end)};
    });
  return hull;
}

/// What a box must look like in its cell.
void check_part(const rectangle& found, const rectangle& cell, const family& of, interval members, const family_box& b,
                bool dark) {
  int down = axis_of::row;
  if (of.extent[axis_of::expert] > 1) down = axis_of::expert;
  else if (of.shape_ndim == 1 || of.tensor_axis == axis_of::column) down = axis_of::column;
  const auto part = [](double size, index_t at, index_t extent) {
    return size * static_cast<double>(at) / static_cast<double>(extent);
  };
  check_near(found.x, cell.x + part(cell.width, b.dim[0].begin - members.begin, members.size()));
  check_near(found.width, std::max(0.5, part(cell.width, b.dim[0].size(), members.size())));
  check_near(found.y, cell.y + part(cell.height, b.dim[down].begin, of.extent[down]));
  check_near(found.height, std::max(0.5, part(cell.height, b.dim[down].size(), of.extent[down])));
  double covered = 1;
  for (int a = axis_of::expert; a < family_ndim; ++a)
    if (a != down) covered *= static_cast<double>(b.dim[a].size()) / static_cast<double>(of.extent[a]);
  const std::string colour = dark ? "fill=\"#d9480f\"" : "fill=\"#9ecae1\"";
  const std::size_t pale = found.style.find(" fill-opacity=\"0.");
  CHECK(found.style.starts_with(colour));
  CHECK((pale != std::string::npos) == (covered < 1));
  if (covered < 1 && pale != std::string::npos)
    CHECK(std::abs((found.style[pale + 17] - '0') - (3 + 6 * covered)) <= 1.01);
}
}  // namespace

TEST_CASE(
    "cells: one for each rank of the stage and each family that it has; in it every box, as a fraction of layers and "
    "of the axis that is cut") {
  int cells = 0, parts = 0, pale = 0;
  for (const bool tied : {false, true})
    for (const char* layout : {"", "tp=2,pp=2,dp=2,zero=1", "pp=2,vpp=2,dp=2,ep=2", "tp=2,dp=2,pp=4,ep=4,zero=1",
                               "dp=3,zero=1,bucket=4000", "tp=4,cp=2,dp=4"}) {
      CAPTURE(layout);
      transformer t = small;
      t.tied = tied;
      const space s(make_transformer(t, [](index_t l) { return l > 1; }), parse_degrees(layout));
      const computed_holding h(s);
      const index_t stage_ranks = s.which_degrees().stage_ranks(), columns = std::min<index_t>(stage_ranks, 16);
      for (const rank_t rank : {rank_t{0}, s.ranks() - 1}) {
        const index_t stage = rank / stage_ranks;
        const rank_t first = stage * stage_ranks + rank % stage_ranks / columns * columns;
        const drawing d = draw(h, rank);
        for (const rectangle& r : d.all) {
          CHECK(r.x >= 0);
          CHECK(r.y >= 0);
          CHECK(r.x + r.width <= d.width);
          CHECK(r.y + r.height <= d.height);
        }
        auto at = std::find_if(d.all.begin(), d.all.end(),
                               [](const rectangle& r) { return r.style.find("stroke") != std::string::npos; });
        const rectangle* above = nullptr;
        for (int f = 0; f < s.families(); ++f) {
          const interval members = members_of_stage(h, f, stage);
          if (members.empty()) continue;
          const rectangle* left = nullptr;
          for (index_t c = 0; c < columns; ++c) {
            REQUIRE(at != d.all.end());
            const rectangle& cell = *at++;
            ++cells;
            CHECK(cell.style.find("stroke") != std::string::npos);
            if (left != nullptr) {
              CHECK(cell.y == left->y);
              CHECK(cell.x >= left->x + left->width);
              check_near(cell.width, left->width);
            } else if (above != nullptr) {
              CHECK(cell.x == above->x);
              CHECK(cell.y >= above->y + above->height);
            }
            if (left == nullptr) above = &cell;
            left = &cell;
            for (const role r : roles) {
              if (r == role::optimizer && s.which_degrees().zero == 0) continue;
              h.held(f, first + c, r, [&](int, const family_box& b) {
                REQUIRE(at != d.all.end());
                check_part(*at, cell, s.family_at(f), members, b, r == role::optimizer);
                pale += at->style.find("opacity") != std::string::npos ? 1 : 0;
                ++at, ++parts;
              });
            }
          }
        }
        CHECK(d.all.end() - at == (s.which_degrees().zero == 0 ? 2 : 3));  // the legend
        for (index_t c = 0; c < columns; ++c) CHECK(d.find("rank " + std::to_string(first + c)) != nullptr);
      }
    }
  std::printf("%d cells with %d parts, %d of them pale\n", cells, parts, pale);
  CHECK(pale > 20);
}

TEST_CASE(
    "layers along the pipeline: each stage's layers on one axis, in a row and colour of its own, the ends marked") {
  for (const bool tied : {false, true})
    for (const char* layout : {"", "pp=2", "pp=4,tp=2", "pp=2,vpp=4", "pp=3,split=spread"}) {
      CAPTURE(layout);
      transformer t = small;
      t.tied = tied;
      const space s(make_transformer(t), parse_degrees(layout));
      const degrees& d = s.which_degrees();
      const computed_holding h(s);
      const drawing drawn = draw(h, 0);
      const label *begin = drawn.find("0"), *end = drawn.find("8");  // the axis under it
      REQUIRE(begin != nullptr);
      REQUIRE(end != nullptr);
      const double layer_width = (end->x - begin->x) / 8;
      std::size_t at = 0;
      double last_y = 0;
      for (index_t stage = 0; stage < d.pp; ++stage) {
        const std::string fill = "fill=\"hsl(" + std::to_string(stage * 67 % 360) + ",60%,55%)\"";
        const double y = drawn.all[at].y;
        if (stage > 0) CHECK(y >= last_y + drawn.all[at - 1].height);
        last_y = y;
        const auto next = [&]() -> const rectangle& {
          REQUIRE(at < drawn.all.size());
          CHECK(drawn.all[at].style == fill);
          CHECK(drawn.all[at].y == y);
          return drawn.all[at++];
        };
        for (index_t chunk = 0; chunk < d.vpp; ++chunk) {
          const interval layers = s.pipeline().chunk(chunk * d.pp + stage);
          const rectangle& box = next();
          check_near(box.x, begin->x + layer_width * static_cast<double>(layers.begin));
          check_near(box.width + 0.5, layer_width * static_cast<double>(layers.size()));  // a gap of half a pixel
        }
        if (stage == 0) CHECK(next().x < begin->x);
        if (stage == d.pp - 1) CHECK(next().x >= end->x);
        const index_t ranks = d.stage_ranks();
        const std::string own = ranks == 1
                                    ? std::to_string(stage)
                                    : std::to_string(stage * ranks) + "-" + std::to_string((stage + 1) * ranks - 1);
        CHECK(drawn.find("stage " + std::to_string(stage) + ", ranks " + own) != nullptr);
      }
      CHECK(drawn.find("E") != nullptr);
      CHECK((drawn.find("O") != nullptr) == !tied);
      CHECK((drawn.find("e") != nullptr) == (tied && d.pp > 1));
      CHECK((drawn.find("N") != nullptr) == (tied && d.pp == 1));
    }
}

TEST_CASE("text of others is escaped, and numbers are tenths") {
  CHECK(detail::xml_text("a<b>&\"c\"'\x01\xff") == "a&lt;b&gt;&amp;&quot;c&quot;'??");
  text_output out;
  detail::svg_canvas canvas(out, 1000, 2005);
  canvas.rectangle(15, 0, 1, 100, "fill=\"x\"");
  canvas.text(7, 10, "<", "end", " a=\"b\"");
  canvas.finish();
  CHECK(out.text() ==
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"200\" viewBox=\"0 0 100 200\" "
        "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<rect x=\"1.5\" y=\"0.0\" width=\"0.1\" height=\"10.0\" "
        "fill=\"x\"/>\n"
        "<text x=\"0.7\" y=\"1.0\" text-anchor=\"end\" a=\"b\">&lt;</text>\n</svg>\n");
}
