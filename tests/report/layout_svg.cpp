// SPDX-License-Identifier: Apache-2.0
// The picture file, read back: every rectangle is where the layout says, as a fraction of its cell or of the layers'
// axis.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/report/layout_svg.hpp>

using namespace reshard;

using namespace reshard::io;

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
  const index_t ranks = h.space().degrees().stage_ranks();
  for (rank_t r = stage * ranks; r < (stage + 1) * ranks; ++r)
    h.held(f, r, role::parameter, [&](int, const family_box& b) {
      hull = hull.empty() ? b.dim[0] : interval{std::min(hull.begin, b.dim[0].begin), std::max(hull.end, b.dim[0].end)};
    });
  return hull;
}

bool is_cell(const rectangle& r) { return r.style.find("stroke") != std::string::npos; }

struct cell_row {
  index_t stage;
  int family;
};
/// A stage's own families; then all others, by the first stage that has them.
std::vector<cell_row> rows_of_cells(const computed_holding& h, index_t stage) {
  std::vector<cell_row> rows;
  for (int f = 0; f < h.space().families(); ++f) {
    index_t has = stage;
    if (members_of_stage(h, f, stage).empty())
      for (has = 0; members_of_stage(h, f, has).empty();) ++has;
    rows.push_back({has, f});
  }
  std::stable_sort(rows.begin(), rows.end(), [stage](const cell_row& a, const cell_row& b) {
    return a.stage != b.stage && (a.stage == stage || (b.stage != stage && a.stage < b.stage));
  });
  return rows;
}

/// What a box must look like in its cell.
void check_part(const rectangle& found, const rectangle& cell, const family& of, interval members, const family_box& b,
                bool dark) {
  int down = axis_of::row;
  if (of.extent[axis_of::expert] > 1) down = axis_of::expert;
  else if (of.shape_ndim == 1 || of.tensor_axis == axis_of::column) down = axis_of::column;
  else if (of.tensor_axis == axis_of::part) down = axis_of::part;
  // in tenths of a pixel, by ten thousandths of the cell; nothing is thinner than half a pixel
  const auto ten_thousandths = [](index_t at, index_t extent) { return 10000 * at / extent; };
  const auto tenths = [](double pixels) { return std::llround(10 * pixels); };
  const auto part = [](index_t size, index_t share) { return size * share / 10000; };
  const index_t left = ten_thousandths(b.dim[0].begin - members.begin, members.size()),
                right = ten_thousandths(b.dim[0].end - members.begin, members.size()),
                upper = ten_thousandths(b.dim[down].begin, of.extent[down]),
                lower = ten_thousandths(b.dim[down].end, of.extent[down]);
  const index_t width = tenths(cell.width), height = tenths(cell.height);
  CHECK(tenths(found.x) == tenths(cell.x) + part(width, left));
  CHECK(tenths(found.width) == std::max<index_t>(5, part(width, right - left)));
  CHECK(tenths(found.y) == tenths(cell.y) + part(height, upper));
  CHECK(tenths(found.height) == std::max<index_t>(5, part(height, lower - upper)));
  index_t has = 1, all = 1;  // of the other axes
  for (int a = axis_of::expert; a < family_ndim; ++a)
    if (a != down) has *= b.dim[a].size(), all *= of.extent[a];
  std::string style = dark ? "fill=\"#d9480f\"" : "fill=\"#9ecae1\"";
  if (has < all) style += " fill-opacity=\"0." + std::to_string(3 + 1000 * has / all * 6 / 1000) + "\"";
  CHECK(found.style == style);
}
}  // namespace

TEST_CASE(
    "cells: for each rank of the stage and each family that it has, then of the families that it lacks for a stage "
    "that has them; where states are sharded one for each role; in it every box, as a fraction of layers and of the "
    "axis that is cut") {
  int cells = 0, parts = 0, pale = 0, elsewhere = 0;
  for (const bool tied : {false, true})
    for (const char* layout :
         {"", "tp=2,pp=2,dp=2,zero=1", "pp=2,vpp=2,dp=2,ep=2", "tp=2,dp=2,pp=4,ep=4,zero=1", "dp=3,zero=1,bucket=4000",
          "tp=4,cp=2,dp=4", "dp=7,zero=1", "vpp=3,pp=3", "dp=2,zero=1", "tp=7", "vpp=2,pp=2"}) {
      CAPTURE(layout);
      transformer t = small;
      if (std::string(layout) == "vpp=3,pp=3") t.layers = 27;
      if (std::string(layout) == "dp=2,zero=1")
        t.layers = 200, t.hidden = 8, t.head_dim = 1, t.ffn = 9, t.expert_ffn = 3;
      t.tied = tied;
      if (std::string(layout) == "tp=7") t.heads = 7, t.groups = 7, t.ffn = 14, t.vocabulary = 14, t.expert_ffn = 7;
      const index_t dense = std::string(layout) == "vpp=2,pp=2" ? 3 : 1;  // 3: of the first stage's first chunk alone
      const space s(make_transformer(t, [dense](index_t l) { return l > dense; }), parse_degrees(layout));
      const computed_holding h(s);
      const index_t stage_ranks = s.degrees().stage_ranks(), columns = std::min<index_t>(stage_ranks, 16);
      for (const rank_t rank : {rank_t{0}, s.ranks() - 1}) {
        const index_t stage = rank / stage_ranks;
        const drawing d = draw(h, rank);
        for (const rectangle& r : d.all) {
          CHECK(r.x >= 0);
          CHECK(r.y >= 0);
          CHECK(r.x + r.width <= d.width);
          CHECK(r.y + r.height <= d.height);
        }
        auto at = std::find_if(d.all.begin(), d.all.end(), is_cell);
        double below = 0;  // everything above
        for (const auto& row : rows_of_cells(h, stage)) {
          const interval members = members_of_stage(h, row.family, row.stage);
          const rank_t first = row.stage * stage_ranks + rank % stage_ranks / columns * columns;
          elsewhere += row.stage != stage ? 1 : 0;
          const label* name = d.find(io::detail::short_name(s.names_on(row.family, first)));
          REQUIRE(name != nullptr);
          REQUIRE(at != d.all.end());
          const rectangle *left = nullptr, leftmost = *at;
          for (index_t c = 0; c < columns; ++c) {
            CHECK(d.find("rank " + std::to_string(first + c)) != nullptr);
            const rectangle* upper = nullptr;
            for (const role r : {role::parameter, role::optimizer}) {
              if (r == role::optimizer && s.degrees().zero == 0) continue;
              REQUIRE(at != d.all.end());
              const rectangle& cell = *at++;
              ++cells;
              CHECK(is_cell(cell));
              if (upper != nullptr) {  // the optimizer's states, under the parameters
                CHECK(cell.x == upper->x);
                CHECK(cell.width == upper->width);
                CHECK(cell.height == upper->height);
                CHECK(cell.y > upper->y + upper->height);
              } else {
                CHECK(cell.y == leftmost.y);
                CHECK(cell.y > below);
                if (left != nullptr) CHECK(cell.x > left->x + left->width);
                left = upper = &cell;
              }
              h.held(row.family, first + c, r, [&](int, const family_box& b) {
                REQUIRE(at != d.all.end());
                check_part(*at, cell, s.family_at(row.family), members, b, r == role::optimizer);
                pale += at->style.find("opacity") != std::string::npos ? 1 : 0;
                ++at, ++parts;
              });
              if (c == columns - 1) below = cell.y + cell.height;  // of the lower one in the end
            }
          }
          CHECK(name->y > leftmost.y);
          CHECK(name->y < below);
        }
        CHECK(d.all.end() - at == (s.degrees().zero == 0 ? 2 : 3));  // the legend
      }
    }
  std::printf("%d cells with %d parts, %d of them pale; %d families of another stage\n", cells, parts, pale, elsewhere);
  CHECK(pale > 20);
  CHECK(elsewhere > 20);
}

TEST_CASE(
    "layers along the pipeline: each stage's layers on one axis, in a row and colour of its own, the ends marked") {
  for (const bool tied : {false, true})
    for (const char* layout : {"", "pp=2", "pp=4,tp=2", "pp=2,vpp=4", "pp=3,split=spread"}) {
      CAPTURE(layout);
      transformer t = small;
      t.tied = tied;
      const space s(make_transformer(t), parse_degrees(layout));
      const degrees& d = s.degrees();
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

namespace {
std::vector<std::string> lines_of(const computed_holding& h, rank_t rank) {
  text_output out;
  write_svg(out, h, rank);
  std::vector<std::string> lines;
  std::istringstream stream(out.text());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
/// Elements as they are written, their numbers in tenths of a pixel.
std::string tenths(index_t number) { return std::to_string(number / 10) + "." + std::to_string(number % 10); }
std::string words(index_t x, index_t y, const std::string& anchor, const std::string& text,
                  const std::string& size = "") {
  return "<text x=\"" + tenths(x) + "\" y=\"" + tenths(y) + "\" text-anchor=\"" + anchor + "\"" +
         (size.empty() ? "" : " font-size=\"" + size + "\"") + ">" + text + "</text>";
}
std::string rect(index_t x, index_t y, index_t width, index_t height, const std::string& style) {
  return "<rect x=\"" + tenths(x) + "\" y=\"" + tenths(y) + "\" width=\"" + tenths(width) + "\" height=\"" +
         tenths(height) + "\" " + style + "/>";
}
const std::string outline = "fill=\"#f4f4f4\" stroke=\"#bbb\" stroke-width=\"0.5\"", light = "fill=\"#9ecae1\"",
                  dark = "fill=\"#d9480f\"", hue[] = {"fill=\"hsl(0,60%,55%)\"", "fill=\"hsl(67,60%,55%)\""};
std::string first_line(index_t height) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1030\" height=\"" + std::to_string(height) +
         "\" viewBox=\"0 0 1030 " + std::to_string(height) +
         "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">";
}
const std::string across_a_cell =
    "Across a cell: layers of the stage. Down: experts, or else the axis that tensor parallelism cuts.";
}  // namespace

TEST_CASE("a whole picture, element by element: two layers on two stages, their tensors cut in two") {
  const transformer two{
      .name = "m", .layers = 2, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 16};
  const space s(make_transformer(two), parse_degrees("tp=2,pp=2"));
  std::vector<std::string> wanted{
      first_line(736),  // nine families, eight of them those of stage 1
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
      "<text x=\"20.0\" y=\"32.0\" text-anchor=\"start\" font-size=\"16\" font-weight=\"bold\">m under "
      "tp=2,pp=2</text>",
      // 2 x 16 x 8 at the ends; a layer has 64 + 8 + 128 + 8 + 128 + 64; 8 of the last norm
      words(200, 540, "start", "4 ranks, 2 pipeline stages of 2; 1,064 parameters"),
      words(2100, 740, "start", "layers along the pipeline"), words(2000, 940, "end", "stage 0, ranks 0-1"),
      rect(2350, 810, 3445, 180, hue[0]),  // a layer is 345 pixels wide
      rect(2100, 810, 195, 180, hue[0]), words(2200, 940, "middle", "E"),
      words(2000, 1140, "end", "stage 1, ranks 2-3"), rect(5800, 1010, 3445, 180, hue[1]),
      rect(9280, 1010, 195, 180, hue[1]), words(9380, 1140, "middle", "O"), words(2350, 1350, "middle", "0", "10"),
      words(5800, 1350, "middle", "1", "10"), words(9250, 1350, "middle", "2", "10"),
      words(2100, 1570, "start", "E: embedding, O: final norm and output layer", "11"),
      words(2100, 2020, "start", "what ranks 2-3 of stage 1 hold of each tensor family"),
      words(2550, 2400, "middle", "rank 2", "9"), words(3450, 2400, "middle", "rank 3", "9")};
  const struct {
    const char* name;
    bool cut;
  } families[] = {
      {"proj", true}, {"qkv.layer_norm", false},  {"qkv", true},          {"fc1.layer_norm", false}, {"fc1", true},
      {"fc2", true},  {"final_layernorm", false}, {"output_layer", true}, {"word_embeddings", true}};
  index_t y = 2500;
  for (const auto& f : families) {
    if (f.name == std::string("word_embeddings")) {
      wanted.insert(wanted.end(),
                    {words(2100, y + 220, "start", "what ranks 0-1 of stage 0 hold of families that stage 1 lacks"),
                     words(2550, y + 600, "middle", "rank 0", "9"), words(3450, y + 600, "middle", "rank 1", "9")});
      y += 700;
    }
    wanted.push_back(words(2000, y + 200, "end", f.name, "11"));
    wanted.push_back(rect(2100, y, 840, 280, outline));
    wanted.push_back(rect(2100, y, 840, f.cut ? 140 : 280, light));
    wanted.push_back(rect(3000, y, 840, 280, outline));
    wanted.push_back(rect(3000, f.cut ? y + 140 : y, 840, f.cut ? 140 : 280, light));
    y += 340;
  }
  wanted.insert(wanted.end(),
                {rect(2100, y + 300, 240, 140, outline), words(2420, y + 420, "start", "the stage's layers"),
                 rect(4000, y + 300, 240, 140, light), words(4320, y + 420, "start", "all states held"),
                 words(2100, y + 680, "start", across_a_cell, "11"),
                 words(2100, y + 860, "start", "Pale: only a part of the remaining axes.", "11"), "</svg>"});
  CHECK(lines_of(computed_holding(s), 3) == wanted);
}

TEST_CASE("a tied model's second end, and optimizer states in a colour of their own, have their words") {
  transformer two{
      .name = "m", .layers = 2, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 16};
  const std::string untied = "E: embedding, O: final norm and output layer",
                    copied = "E: embedding, e: final norm and the embedding's tied copy",
                    norm = "E: embedding, N: final norm";
  for (const bool tied : {false, true})
    for (const char* layout : {"dp=2,zero=1", "dp=2,pp=2,zero=1"}) {
      CAPTURE(layout);
      two.tied = tied;
      const space s(make_transformer(two), parse_degrees(layout));
      const index_t pp = s.degrees().pp;
      const std::vector<std::string> lines = lines_of(computed_holding(s), 0);
      const auto has = [&](const std::string& line) {
        return std::find(lines.begin(), lines.end(), line) != lines.end();
      };
      CHECK(has(words(2100, 1370 + 200 * (pp - 1), "start", !tied ? untied : pp > 1 ? copied : norm, "11")));
      // of two stages the second has families of its own, under a heading of 70 pixels; a row of stages has 20
      const index_t legend = 2300 + 900 * (pp - 1) + 340 * s.families() + 300, cells = 2300 + 200 * (pp - 1);
      CHECK(has(rect(2100, cells, 840, 130, outline)));  // parameters
      CHECK(has(rect(2100, cells, 840, 130, light)));
      CHECK(has(rect(2100, cells + 150, 840, 130, outline)));  // the optimizer's states
      CHECK(has(rect(2100, legend, 240, 140, outline)));
      CHECK(has(rect(4000, legend, 240, 140, light)));
      CHECK(has(words(4320, legend + 120, "start", "parameters held")));
      CHECK(has(rect(5800, legend, 240, 140, dark)));
      CHECK(has(words(6120, legend + 120, "start", "optimizer states held")));
      CHECK(lines[0] == first_line((legend + 800) / 10));
    }
}

TEST_CASE(
    "rows of stages: 20 pixels each up to 24 of them, 12 and smaller words above; above 48 stages several share one") {
  const struct {
    index_t pp, together;
    bool small;
  } cases[] = {{1, 1, false}, {3, 1, false}, {24, 1, false}, {25, 1, true},
               {48, 1, true}, {49, 2, true}, {96, 2, true},  {97, 3, true}};
  const transformer many{
      .name = "m", .layers = 192, .hidden = 2, .heads = 1, .groups = 1, .head_dim = 2, .ffn = 2, .vocabulary = 2};
  for (const auto& c : cases) {
    CAPTURE(c.pp);
    const space s(make_transformer(many), parse_degrees("dp=2,split=spread,pp=" + std::to_string(c.pp)));
    const std::vector<std::string> lines = lines_of(computed_holding(s), 0);
    const index_t high = c.small ? 120 : 200, rows = (c.pp + c.together - 1) / c.together;
    std::vector<std::string> wanted;
    const auto across = [](index_t layer) { return 2350 + 6900 * layer / 192; };
    for (index_t row = 0; row < rows; ++row) {
      const index_t first = row * c.together, past = std::min(c.pp, first + c.together), y = 800 + row * high;
      const index_t base = y + (c.small ? 100 : 140);
      wanted.push_back(words(2000, base, "end",
                             (past - first > 1 ? "stages " : "stage ") + range_text({first, past}) + ", ranks " +
                                 range_text({2 * first, 2 * past}),
                             c.small ? "9" : ""));
      for (index_t stage = first; stage < past; ++stage) {
        const std::string fill = "fill=\"hsl(" + std::to_string(67 * stage % 360) + ",60%,55%)\"";
        const interval layers = s.pipeline().chunk(stage);
        wanted.push_back(
            rect(across(layers.begin), y + 10, across(layers.end) - across(layers.begin) - 5, high - 20, fill));
        if (stage == 0)
          wanted.insert(wanted.end(), {rect(2100, y + 10, 195, high - 20, fill), words(2200, base, "middle", "E")});
        if (stage == c.pp - 1)
          wanted.insert(wanted.end(), {rect(9280, y + 10, 195, high - 20, fill), words(9380, base, "middle", "O")});
      }
    }
    for (index_t layer = 0; layer <= 192; layer += 20)
      wanted.push_back(words(across(layer), 950 + rows * high, "middle", std::to_string(layer), "10"));
    REQUIRE(lines.size() > 5 + wanted.size());
    CHECK(std::vector<std::string>(lines.begin() + 5, lines.begin() + 5 + static_cast<std::ptrdiff_t>(wanted.size())) ==
          wanted);
  }
}

TEST_CASE("a layer that would be narrower is drawn half a pixel wide") {
  const transformer many{
      .name = "m", .layers = 1500, .hidden = 2, .heads = 1, .groups = 1, .head_dim = 2, .ffn = 2, .vocabulary = 2};
  const space s(make_transformer(many), parse_degrees("pp=1500"));  // a layer is less than half a pixel
  const std::vector<std::string> lines = lines_of(computed_holding(s), 0);
  const auto has = [&](const std::string& line) { return std::find(lines.begin(), lines.end(), line) != lines.end(); };
  CHECK(has(rect(2350, 810, 5, 100, hue[0])));
  CHECK(has(rect(2354, 810, 5, 100, hue[1])));
}

TEST_CASE("numbers under the layers: each up to 19, then about ten of them, in steps of five and of ten") {
  const std::pair<index_t, index_t> steps[] = {{1, 1},   {8, 1},    {19, 1},   {20, 2},   {21, 5},  {50, 5},
                                               {60, 10}, {100, 10}, {101, 10}, {115, 20}, {240, 30}};
  for (const auto& given : steps) {
    const index_t layers = given.first, step = given.second;
    CAPTURE(layers);
    const transformer t{
        .name = "m", .layers = layers, .hidden = 2, .heads = 1, .groups = 1, .head_dim = 2, .ffn = 2, .vocabulary = 2};
    const space s(make_transformer(t), degrees{});
    std::vector<std::string> found, wanted;
    for (const std::string& line : lines_of(computed_holding(s), 0))
      if (line.find(" y=\"115.0\"") != line.npos) found.push_back(line);
    for (index_t at = 0; at <= layers; at += step)
      wanted.push_back(words(2350 + 6900 * at / layers, 1150, "middle", std::to_string(at), "10"));
    CHECK(found == wanted);
  }
}

TEST_CASE(
    "cells are 90 pixels wide up to eight ranks, and share 740 pixels above; of more than 16 ranks those around the "
    "one asked for") {
  const transformer t{
      .name = "m", .layers = 2, .hidden = 2, .heads = 1, .groups = 1, .head_dim = 2, .ffn = 2, .vocabulary = 2};
  const struct {
    index_t ranks, rank, first, columns, wide;
  } cases[] = {{1, 0, 0, 1, 900},    {8, 5, 0, 8, 900},    {9, 5, 0, 9, 822},    {10, 5, 0, 10, 740},
               {16, 15, 0, 16, 462}, {40, 15, 0, 16, 462}, {40, 16, 16, 16, 462}};
  for (const auto& c : cases) {
    CAPTURE(c.ranks);
    const space s(make_transformer(t), parse_degrees("dp=" + std::to_string(c.ranks)));
    const std::vector<std::string> lines = lines_of(computed_holding(s), c.rank);
    std::vector<std::string> found, wanted, cells;
    for (const std::string& line : lines) {
      if (line.find(" y=\"220.0\"") != line.npos) found.push_back(line);
      if (line.find(" y=\"230.0\"") != line.npos && line.find("stroke") != line.npos) cells.push_back(line);
    }
    for (index_t i = 0; i < c.columns; ++i)
      wanted.push_back(
          words(2100 + i * c.wide + c.wide / 2, 2200, "middle", "rank " + std::to_string(c.first + i), "9"));
    CHECK(found == wanted);
    wanted.clear();
    for (index_t i = 0; i < c.columns; ++i) wanted.push_back(rect(2100 + i * c.wide, 2300, c.wide - 60, 280, outline));
    CHECK(cells == wanted);
  }
}

TEST_CASE("where a box lies in its cell, in ten thousandths, and how much of the other axes it has") {
  transformer t = small;
  t.experts = 2;
  const model m = make_transformer(t);
  const auto part = [&](std::string_view ending, interval members, const family_box& b) {
    for (int f = 0; f < m.families; ++f)
      if (m[f].name.ends_with(ending)) return io::detail::part_of_cell(m[f], members, b);
    FAIL("no such family");
    return io::detail::cell_part{};
  };
  // 2 experts of [2,24,64], 8 layers of which 4 to 8 are on the stage
  io::detail::cell_part p = part("linear_fc1.weight{expert}", {4, 8}, {{{5, 7}, {1, 2}, {0, 1}, {0, 24}, {0, 64}}});
  CHECK(p.across == interval{2500, 7500});
  CHECK(p.down == interval{5000, 10000});
  CHECK(p.covered == 500);
  p = part("linear_fc1.weight{expert}", {4, 8}, {{{4, 8}, {0, 2}, {0, 2}, {0, 24}, {0, 64}}});
  CHECK(p.across == interval{0, 10000});
  CHECK(p.down == interval{0, 10000});
  CHECK(p.covered == 1000);
  p = part("linear_qkv.weight", {0, 3},
           {{{1, 2}, {0, 1}, {1, 2}, {0, 32}, {0, 16}}});  // groups are cut by tp: 4 x 32 x 64
  CHECK(p.across == interval{3333, 6666});
  CHECK(p.down == interval{2500, 5000});
  CHECK(p.covered == 250);
  p = part("linear_proj.weight", {0, 8}, {{{0, 8}, {0, 1}, {0, 1}, {0, 32}, {0, 16}}});  // columns are: 64 x 64
  CHECK(p.down == interval{0, 2500});
  CHECK(p.covered == 500);
  p = part("final_layernorm.weight", {0, 1}, {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {16, 32}}});
  CHECK(p.down == interval{2500, 5000});
  CHECK(p.covered == 1000);
}

TEST_CASE("the hues of stages go round the wheel in steps of 67 degrees") {
  const int degrees_of[] = {0, 67, 134, 201, 268, 335, 42, 109};
  for (index_t stage = 0; stage < 8; ++stage)
    CHECK(io::detail::stage_fill(stage) == "fill=\"hsl(" + std::to_string(degrees_of[stage]) + ",60%,55%)\"");
}

TEST_CASE("a title of more than 100 characters is set smaller, and of a long one 150 and three dots are left") {
  std::set<std::size_t> lengths;
  for (const index_t stages : {15, 30})  // the first with a layer, each other with one more
    for (std::size_t letters = 1; letters <= 40; ++letters) {
      const std::string name(letters, 'n');
      transformer t{.name = name, .hidden = 2, .heads = 1, .groups = 1, .head_dim = 2, .ffn = 2, .vocabulary = 2};
      t.layers = stages * (stages + 1) / 2;
      std::string layout = "pp=" + std::to_string(stages) + ",string=Et";
      for (index_t stage = 2; stage <= stages; ++stage) layout += "|t*" + std::to_string(stage);
      const space s(make_transformer(t), parse_degrees(layout + "L"));
      const std::vector<std::string> lines = lines_of(computed_holding(s), 0);
      const auto title = std::find_if(lines.begin(), lines.end(),
                                      [](const std::string& line) { return line.find(" y=\"32.0\"") != line.npos; });
      REQUIRE(title != lines.end());
      const std::size_t from = title->find('>') + 1, length = title->find("</text>") - from;
      const char* size = length > 100 ? "font-size=\"11\"" : "font-size=\"16\"";
      CHECK(title->find(size + std::string(" font-weight=\"bold\">" + name + " under pp=")) != title->npos);
      lengths.insert(length);
    }
  for (const std::size_t length : {100u, 101u}) CHECK(lengths.count(length) == 1);
  CHECK(*lengths.rbegin() == 153);
}

TEST_CASE("text of others is escaped, and numbers are tenths") {
  std::string printable;
  for (char c = ' '; c <= '~'; ++c)
    if (c != '<' && c != '>' && c != '&' && c != '"') printable += c;
  CHECK(io::detail::xml_text(printable) == printable);
  CHECK(io::detail::xml_text("\x1f\x7f") == "??");
  CHECK(io::detail::xml_text("a<b>&\"c\"'\x01\xff") == "a&lt;b&gt;&amp;&quot;c&quot;'??");
  for (int c = -128; c < 128; ++c)
    if (const char is = static_cast<char>(c); std::string("&<>\"").find(is) == std::string::npos)
      CHECK(io::detail::xml_text(std::string(1, is)) == std::string(1, 32 <= c && c <= 126 ? is : '?'));
  text_output out;
  io::detail::svg_canvas canvas(out, 1000, 2005);
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

TEST_CASE("pieces have their names, states that lie alike one cell, and the prediction layer a letter in its stage") {
  transformer predicting = small;
  predicting.predictions = 1, predicting.expert_bias = true;
  const model m = make_transformer(predicting);
  const drawing hf =
      draw(computed_holding(space(m, parse_degrees("pp=2,dp=2,zero=3,shard=rows,names=hf,order=tp-pp-dp"))), 1);
  CHECK(hf.find("q_proj, k_proj, v_proj") != nullptr);
  CHECK(hf.find("experts.gate_proj, up_proj") != nullptr);
  CHECK(hf.find("all states held") != nullptr);
  CHECK(hf.find("optimizer states held") == nullptr);
  CHECK(hf.find("what these ranks of stage 1 hold of each tensor family") != nullptr);  // 1 and 3
  REQUIRE(hf.find("P") != nullptr);
  REQUIRE(hf.find("stage 1, ranks 1,3") != nullptr);
  check_near(hf.find("P")->y, hf.find("stage 1, ranks 1,3")->y);
  CHECK(hf.find("P")->x + 10 < hf.width);
  check_near(hf.find("P")->x, 960);  // behind the last layer
  // statistics have no optimizer states: of two halves of their cells the lower one is empty
  const computed_holding halves(space(m, parse_degrees("zero=1,dp=2")));
  const std::vector<std::string> lines = lines_of(halves, 0);
  const auto count = [&](const std::string& style) {
    return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.starts_with("<rect") && line.find("height=\"13.0\"") != line.npos && line.find(style) != line.npos;
    });
  };
  index_t statistics = 0, boxes = 0, of_optimizer = 0;
  for (int f = 0; f < m.families; ++f) statistics += m[f].kind == tensor_kind::statistic ? 1 : 0;
  for (const rank_t rank : {0, 1})
    for (const role r : {role::parameter, role::optimizer, role::statistic})
      each_held(halves, rank, r, [&](int, const family_box&) { ++(r == role::optimizer ? of_optimizer : boxes); });
  CHECK(statistics > 0);
  CHECK(count(outline) == 2 * 2 * m.families);
  const auto drawn = [&](std::string_view colour) {
    return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.starts_with("<rect") && line.find(colour) != line.npos;
    });
  };
  CHECK(drawn(light) == boxes + 1);  // and one in the legend
  CHECK(drawn(dark) == of_optimizer + 1);
  for (const auto& [layout, words] :
       {std::pair("", ", P: prediction layer"),
        {"pp=2,string=Et*4|t*4mL", ", P: prediction layer, with a copy of the embedding"}})
    CHECK(draw(computed_holding(space(m, parse_degrees(layout))), 0)
              .find("E: embedding, O: final norm and output layer" + std::string(words)) != nullptr);
  const drawing buffers = draw(computed_holding(space(m, parse_degrees("pp=3,dp=2,zero=1,string=Et*8|m|L"))), 0);
  CHECK(buffers.find("optimizer states held") != nullptr);
  REQUIRE(buffers.find("N") != nullptr);  // the norm is with the last decoder layer
  check_near(buffers.find("N")->y, buffers.find("stage 0, ranks 0-1")->y);
  CHECK(
      buffers.find("E: embedding, O: output layer, N: final norm, P: prediction layer, with a copy of the embedding") !=
      nullptr);
}
