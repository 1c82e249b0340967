// SPDX-License-Identifier: Apache-2.0
// When each page comes or goes: by hand for the rules, and against brute force over every byte of every element.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include <reshard/memory/page_stages.hpp>
#include <reshard/memory/pages.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {

/// Bytes [begin, begin + 4 * columns) of an arena as one row of fp32 (state 1 or more), one tensor per member.
bound_box row(page_range& arena, int state, index_t member, index_t begin, index_t columns) {
  return {{state, {0, member, 0}, {{{0, 1}, {0, 1}, {0, columns}}}}, arena.data() + begin, {columns, columns, 1}, 4};
}

constexpr index_t columns_of_page = page_bytes / 4;

/// How many pages of 4 KiB the bytes of each stage are.
std::vector<std::int64_t> pages_by_stage(const page_stages& s, index_t stages) {
  std::vector<std::int64_t> pages = s.bytes_by_stage(stages);
  for (std::int64_t& bytes : pages) {
    CHECK(bytes % page_bytes == 0);
    bytes /= page_bytes;
  }
  return pages;
}

/// (block, page) of every page in some spans, in order.
using page_name = std::pair<std::size_t, std::int64_t>;
std::vector<page_name> pages_of(const std::vector<block_span>& spans) {
  std::vector<page_name> pages;
  for (const block_span& s : spans)
    for (std::int64_t p = s.pages.first; p < s.pages.last; ++p) pages.emplace_back(s.block, p);
  return pages;
}

}  // namespace

TEST_CASE("a source's page goes after its last reader, a target's comes with its first writer") {
  page_range arena(4 * page_bytes);
  const bound_box whole = row(arena, 1, 0, 0, 4 * columns_of_page);
  binding b;
  b.add(whole);
  b.own(arena);
  b.seal();
  const auto part = [&](index_t page, index_t pages) {
    return whole.narrowed({{{0, 1}, {0, 1}, {page * columns_of_page, (page + pages) * columns_of_page}}});
  };
  page_stages reads(b, binding_side::source), writes(b, binding_side::target);
  CHECK(pages_by_stage(reads, 3) == std::vector<std::int64_t>{4, 0, 0, 0});  // nobody touches them yet
  for (const auto& [page, stage] :
       {std::pair(0, 2), std::pair(0, 0), std::pair(1, 0), std::pair(1, 1), std::pair(2, 1)}) {
    reads.read(part(page, 1), stage);
    writes.written(part(page, 1), stage);
  }
  using list = std::vector<page_name>;
  const auto goes = reads.spans_by_stage(3), comes = writes.spans_by_stage(3);
  CHECK(pages_of(goes[0]) == list{{0, 3}});
  CHECK(pages_of(goes[1]).empty());
  CHECK(pages_of(goes[2]) == list{{0, 1}, {0, 2}});
  CHECK(goes[2].size() == 1);
  CHECK(pages_of(goes[3]) == list{{0, 0}});
  CHECK(pages_of(comes[0]) == list{{0, 3}});
  CHECK(pages_of(comes[1]) == list{{0, 0}, {0, 1}});
  CHECK(pages_of(comes[2]) == list{{0, 2}});
  CHECK(pages_of(comes[3]).empty());
  CHECK(pages_by_stage(reads, 3) == std::vector<std::int64_t>{1, 0, 2, 1});
  CHECK(pages_by_stage(writes, 3) == std::vector<std::int64_t>{1, 2, 1, 0});
}

TEST_CASE("a page that also holds a state that does not move stays, and counts as memory outside") {
  for (const binding_side side : {binding_side::source, binding_side::target}) {
    page_range arena(4 * page_bytes);
    // master: pages 0 and 1 and half of 2; exp_avg: the rest of 2, and 3
    const bound_box moves = row(arena, 1, 0, 0, 5 * columns_of_page / 2),
                    stays = row(arena, 2, 0, 5 * page_bytes / 2, 3 * columns_of_page / 2);
    binding b;
    b.add(moves);
    b.add(stays);
    b.own(arena);
    b.seal();
    page_stages all(b, side), some(b, side, only(1)), other(b, side, only(2)), neither(b, side, only(3));
    CHECK(all.outside_bytes() == 0);
    CHECK(some.outside_bytes() == page_bytes);
    CHECK(other.outside_bytes() == page_bytes);
    CHECK(neither.outside_bytes() == 0);  // no page of it is anybody's matter
    for (page_stages* s : {&all, &some, &neither}) s->read(moves, 1);
    CHECK(pages_by_stage(all, 2) == std::vector<std::int64_t>{1, 0, 3});
    CHECK(pages_by_stage(some, 2) == std::vector<std::int64_t>{0, 0, 2});
    CHECK(pages_of(some.spans_by_stage(2)[2]) == std::vector<page_name>{{0, 0}, {0, 1}});
    CHECK(pages_by_stage(neither, 2) == std::vector<std::int64_t>{0, 0, 0});
    some.written(moves, 0);
    CHECK(pages_by_stage(some, 2) == std::vector<std::int64_t>{0, 2, 0});
    std::vector<block_span> claimed;
    some.claim(moves, claimed);
    CHECK(pages_of(claimed) == std::vector<page_name>{{0, 0}, {0, 1}});
  }
}

TEST_CASE("a page shared by two boxes that do not move is counted once") {
  page_range arena(2 * page_bytes);
  binding b;
  b.add(row(arena, 1, 0, 0, columns_of_page));
  b.add(row(arena, 2, 0, page_bytes, 10));
  b.add(row(arena, 2, 1, page_bytes + 400, 10));
  b.add(row(arena, 1, 1, page_bytes + 800, 10));
  b.own(arena);
  b.seal();
  const page_stages s(b, binding_side::source, only(1));
  CHECK(s.outside_bytes() == page_bytes);
  CHECK(pages_by_stage(s, 1) == std::vector<std::int64_t>{1, 0});
}

TEST_CASE("pages of a target that are committed beforehand are there already; those of a source go all the same") {
  page_range arena(5 * page_bytes), other(page_bytes);
  const bound_box b_of_three = row(arena, 1, 0, 100, 2 * columns_of_page + 100), apart = row(other, 1, 1, 0, 3);
  binding b;
  b.add(b_of_three);
  b.add(apart);
  b.own(arena, pages_are::committed);
  b.own(other, pages_are::reserved);
  b.seal();
  page_stages target(b, binding_side::target), source(b, binding_side::source);
  CHECK(target.outside_bytes() == 3 * page_bytes);  // two pages hold nothing that is bound
  CHECK(source.outside_bytes() == 0);
  target.written(b_of_three, 0);
  target.written(apart, 0);
  source.read(b_of_three, 0);
  CHECK(pages_by_stage(target, 1) == std::vector<std::int64_t>{0, 1});
  CHECK(pages_by_stage(source, 1) == std::vector<std::int64_t>{1, 3});
  std::vector<block_span> claimed;
  target.claim(b_of_three, claimed);
  CHECK(claimed.empty());
  target.claim(apart, claimed);
  CHECK(claimed.size() == 1);
}

TEST_CASE(
    "a claim names the pages that no claim named before, in the fewest spans, and leaves the stages as they are") {
  page_range arena(8 * page_bytes);
  const bound_box whole = row(arena, 1, 0, 0, 8 * columns_of_page);
  binding b;
  b.add(whole);
  b.own(arena);
  b.seal();
  page_stages s(b, binding_side::target);
  s.written(whole, 4);
  const auto claim = [&](index_t first_byte, index_t last_byte, std::vector<block_span>& spans) {
    s.claim(whole.narrowed({{{0, 1}, {0, 1}, {first_byte / 4, last_byte / 4}}}), spans);
  };
  std::vector<block_span> spans;
  claim(page_bytes, 3 * page_bytes, spans);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].pages == page_span{1, 3});
  claim(2 * page_bytes + 8, 3 * page_bytes, spans);  // all of it is claimed
  CHECK(spans.size() == 1);
  claim(3 * page_bytes, 3 * page_bytes + 4, spans);  // next to the span of an earlier claim, which is not lengthened
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].pages == page_span{1, 3});
  CHECK(spans[1].pages == page_span{3, 4});
  claim(0, 8 * page_bytes, spans);
  REQUIRE(spans.size() == 4);
  CHECK(spans[2].pages == page_span{0, 1});
  CHECK(spans[3].pages == page_span{4, 8});
  CHECK(pages_by_stage(s, 5) == std::vector<std::int64_t>{0, 0, 0, 0, 0, 8});
}

TEST_CASE("bytes in no block are counted, before, between and behind the blocks") {
  page_range arena(8 * page_bytes);
  const bound_box whole = row(arena, 1, 0, 12, 8 * columns_of_page - 8);
  const auto with = [&](std::vector<page_span> blocks) {
    binding b;
    b.add(whole);
    for (const page_span& p : blocks)
      b.own(memory{arena.data() + p.first * page_bytes, p.count() * page_bytes}, pages_are::reserved,
            [](std::byte*, bytes_t) {});
    b.seal();
    page_stages s(b, binding_side::source);
    s.read(whole, 0);
    return std::pair(s.outside_bytes(), pages_by_stage(s, 1)[1]);
  };
  const bytes_t bytes = 8 * page_bytes - 32;
  CHECK(with({}) == std::pair<bytes_t, std::int64_t>(bytes, 0));
  CHECK(with({{0, 8}}) == std::pair<bytes_t, std::int64_t>(0, 8));
  CHECK(with({{0, 1}}) == std::pair<bytes_t, std::int64_t>(bytes - page_bytes + 12, 1));
  CHECK(with({{7, 8}}) == std::pair<bytes_t, std::int64_t>(bytes - page_bytes + 20, 1));
  CHECK(with({{2, 3}, {5, 7}}) == std::pair<bytes_t, std::int64_t>(bytes - 3 * page_bytes, 3));
  CHECK(with({{2, 3}, {3, 4}}) ==
        std::pair<bytes_t, std::int64_t>(bytes - 2 * page_bytes, 2));  // two blocks that touch
}

TEST_CASE("pages between the elements of a box are not touched by it") {
  page_range arena(48 * page_bytes);
  const tensor_box what{1, {0, 0, 0}, {{{0, 2}, {0, 3}, {0, 4}}}};
  const auto touched = [&](index_t first_byte, index_t part_bytes, index_t row_bytes, index_t column_bytes) {
    const bound_box of{what, arena.data() + first_byte, {part_bytes / 4, row_bytes / 4, column_bytes / 4}, 4};
    binding b;
    b.add(of);
    b.own(arena);
    b.seal();
    page_stages s(b, binding_side::source);
    s.read(of, 0);
    std::vector<std::int64_t> pages;
    for (const page_name& p : pages_of(s.spans_by_stage(1)[1])) pages.push_back(p.second);
    return pages;
  };
  using list = std::vector<std::int64_t>;
  CHECK(touched(0, 48, 16, 4) == list{0});
  CHECK(touched(0, 16 * page_bytes, 4 * page_bytes, 4) == list{0, 4, 8, 16, 20, 24});
  CHECK(touched(0, 4, 16 * page_bytes, 4 * page_bytes) == list{0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44});
  CHECK(touched(page_bytes - 8, 4, 0, page_bytes + 8) ==
        list{0, 2, 3, 4});  // a gap of one page exactly, and one that has a page in it
  CHECK(touched(page_bytes - 8, 4, 0, page_bytes + 4) == list{0, 1, 2, 3, 4});
}

TEST_CASE("a box is walked in as few stretches as have a byte of it in each of their pages") {
  alignas(4096) static std::byte arena[16 * page_bytes];
  using list = std::vector<std::pair<std::int64_t, bytes_t>>;
  const auto stretches = [&](const box<3>& where, index_t part_bytes, index_t row_bytes, index_t column_bytes) {
    list found;
    detail::each_stretch({{1, {}, where}, arena + 40, {part_bytes / 4, row_bytes / 4, column_bytes / 4}, 4}, page_bytes,
                         detail::sink<const std::byte*, bytes_t>::of(
                             [&](const std::byte* at, bytes_t bytes) { found.emplace_back(at - arena - 40, bytes); }));
    return found;
  };
  const box<3> small{{{5, 7}, {1, 4}, {2, 6}}};  // 2 x 3 x 4 elements
  CHECK(stretches(small, 48, 16, 4) == list{{0, 96}});
  CHECK(stretches(small, 1000, 100, 4) == list{{0, 1000 + 200 + 16}});  // gaps that are shorter than a page
  CHECK(stretches(small, 4, 8, 24) == list{{0, 96}});                   // in whatever order
  CHECK(stretches(small, 4096 + 212, 100, 4) == list{{0, 4096 + 428}});
  CHECK(stretches(small, 4096 + 216, 100, 4) == list{{0, 216}, {4096 + 216, 216}});  // a page between the parts
  CHECK(stretches(small, 4, 4096 + 20, 4) == list{{0, 20}, {4116, 20}, {8232, 20}});
  CHECK(stretches(small, 20'000, 4, 5000) ==
        list{{0, 12}, {5000, 12}, {10'000, 12}, {15'000, 12}, {20'000, 12}, {25'000, 12}, {30'000, 12}, {35'000, 12}});
  CHECK(stretches({{{0, 1}, {0, 1}, {0, 1}}}, 8192, 8192, 8192) == list{{0, 4}});
  CHECK(stretches({{{0, 1}, {0, 2}, {0, 1}}}, 60'000, 8192, 20'000) == list{{0, 4}, {8192, 4}});
}

TEST_CASE("every stretch of a box outside the blocks counts, whether there are blocks elsewhere or none") {
  page_range arena(8 * page_bytes), elsewhere(page_bytes);
  for (const bool blocks : {false, true}) {
    binding b;
    b.add(bound_box{{1, {0, 0, 0}, {{{0, 1}, {0, 3}, {0, 5}}}}, arena.data(), {0, 2 * page_bytes / 4, 1}, 4});
    b.add({2, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 7}}}}, {arena.data() + 100, 28});
    if (blocks) b.own(elsewhere);
    b.seal();
    CHECK(page_stages(b, binding_side::source).outside_bytes() == 3 * 20 + 28);
    CHECK(page_stages(b, binding_side::target, only(1)).outside_bytes() == 3 * 20);
    for (const index_t stages : {1, 5}) {
      CHECK(page_stages(b, binding_side::source).spans_by_stage(stages).size() == static_cast<std::size_t>(stages) + 1);
      CHECK(pages_by_stage(page_stages(b, binding_side::source), stages) ==
            std::vector<std::int64_t>(static_cast<std::size_t>(stages) + 1));
    }
  }
}

namespace {

/// Boxes at random places and strides in an arena of which some pages are blocks: they share pages, leave pages out,
/// and reach from block to block over what is in none.
struct random_binding {
  static constexpr index_t pages = 60;
  page_range arena{pages * page_bytes};
  binding of;
  std::vector<page_span> blocks;
  std::vector<pages_are> at_first;

  explicit random_binding(testing::dice& random) {
    for (index_t first = random.below(4); first < pages;) {
      const index_t last = least(pages, first + random.within(1, 12));
      blocks.push_back({first, last});
      at_first.push_back(random.below(4) == 0 ? pages_are::committed : pages_are::reserved);
      of.own(memory{arena.data() + first * page_bytes, (last - first) * page_bytes}, at_first.back(),
             [](std::byte*, bytes_t) {});
      first = last + random.below(3);
    }
    for (index_t member = 0; member < 8; ++member) {
      tensor_box what{static_cast<int>(random.below(4)),
                      {0, member, 0},
                      {{{0, random.within(1, 3)}, {2, 2 + random.within(1, 4)}, {1, 1 + random.within(1, 300)}}}};
      index_t stride[3] = {random.below(6000), random.below(3000), random.within(1, 8)};
      if (random.below(3) == 0) std::swap(stride[0], stride[2]);
      const bytes_t element = width(adam[what.state].type);
      index_t bytes = element;
      for (int i = 0; i < 3; ++i) bytes += (what.where.dim[i].size() - 1) * stride[i] * element;
      if (bytes > arena.bytes()) continue;
      of.add(what, {arena.data() + random.below((arena.bytes() - bytes) / 4 + 1) * 4, bytes}, stride);
    }
    of.seal();
  }

  /// Calls visit(block, page, offset in the arena) for every byte of every element, block -1 where it lies in none.
  template <typename Visit>
  void each_byte(const bound_box& b, Visit&& visit) const {
    testing::each_point(b.where, [&](const index_t(&x)[3]) {
      const std::byte* at = b.data;
      for (int i = 0; i < 3; ++i) at += (x[i] - b.where.dim[i].begin) * b.stride[i] * b.element_bytes;
      for (index_t byte = 0; byte < b.element_bytes; ++byte) {
        const std::int64_t offset = at + byte - arena.data(), page = offset / page_bytes;
        std::ptrdiff_t block = -1;
        for (std::size_t i = 0; i < blocks.size(); ++i)
          if (blocks[i].first <= page && page < blocks[i].last) block = static_cast<std::ptrdiff_t>(i);
        visit(block, block < 0 ? page : page - blocks[static_cast<std::size_t>(block)].first, offset);
      }
    });
  }
  std::set<page_name> touched(const bound_box& b) const {
    std::set<page_name> result;
    each_byte(b, [&](std::ptrdiff_t block, std::int64_t page, std::int64_t) {
      if (block >= 0) result.emplace(static_cast<std::size_t>(block), page);
    });
    return result;
  }
};

}  // namespace

TEST_CASE("without a word all states of the binding's list move; adam's where they are named") {
  const model m = make_transformer(
      {.name = "tiny", .layers = 1, .hidden = 16, .heads = 2, .groups = 2, .head_dim = 8, .ffn = 32, .vocabulary = 64});
  const state_list longer = with_gradients(adam);
  const computed_holding h(space(m, config<dp<1>>{}), longer);
  rank_storage all(h, 0, "all", pages_are::reserved, {}, longer),
      some(h, 0, "some", pages_are::reserved, all_states, longer);
  CHECK(all.tensors().boxes().size() * 4 == some.tensors().boxes().size() * 5);
  const auto moving = [&](const page_stages& s) { return s.bytes_by_stage(0)[0]; };
  const bytes_t adams = moving(page_stages(some.tensors(), binding_side::source));
  CHECK(moving(page_stages(all.tensors(), binding_side::source)) > adams);
  CHECK(moving(page_stages(all.tensors(), binding_side::source, all_states)) == adams);
}

TEST_CASE("random bindings against brute force: every page has the stage that matters, or stays") {
  testing::dice random(11);
  index_t touched = 0, left_alone = 0, shared = 0;
  for (int round = 0; round < 150; ++round) {
    const random_binding r(random);
    const binding_side side = random.coin() ? binding_side::source : binding_side::target;
    const state_set moving = all_states.masked(static_cast<unsigned>(random.within(1, 15)));
    constexpr index_t stages = 6;
    page_stages s(r.of, side, moving);

    std::map<page_name, index_t>
        expected;  // page -> stage, -1 where no piece touches it; those that stay are not there
    for (const bound_box& b : r.of.boxes())
      if (moving.contains(b.state))
        for (const page_name& p : r.touched(b)) expected[p] = -1;
    bytes_t stay = 0;
    for (const bound_box& b : r.of.boxes())
      if (!moving.contains(b.state))
        for (const page_name& p : r.touched(b)) stay += static_cast<bytes_t>(expected.erase(p));
    shared += stay;
    if (side == binding_side::target)
      for (std::size_t i = 0; i < r.blocks.size(); ++i)
        for (std::int64_t p = 0; p < r.blocks[i].count(); ++p)
          if (r.at_first[i] == pages_are::committed) stay += static_cast<bytes_t>(expected.erase({i, p}));

    bytes_t in_no_block = 0, reach = 0;  // of elements; from the first to the last
    for (const bound_box& b : r.of.boxes()) {
      if (!moving.contains(b.state)) continue;
      std::set<std::int64_t> mine;
      r.each_byte(b, [&](std::ptrdiff_t block, std::int64_t, std::int64_t offset) {
        if (block < 0) mine.insert(offset);
      });
      in_no_block += static_cast<bytes_t>(mine.size());
      for (int i = 0; i < 3; ++i) reach += (b.where.dim[i].size() - 1) * b.stride[i] * b.element_bytes;
      reach += b.element_bytes;
    }
    CHECK(s.outside_bytes() >= stay * page_bytes + in_no_block);
    CHECK(s.outside_bytes() <= stay * page_bytes + std::max(reach, in_no_block));

    // parts of boxes of any state are read or written in any stage, in any order
    for (int i = 0; i < 40 && !r.of.boxes().empty(); ++i) {
      const bound_box& whole =
          r.of.boxes()[static_cast<std::size_t>(random.below(static_cast<index_t>(r.of.boxes().size())))];
      const index_t extent[] = {whole.where.dim[0].size(), whole.where.dim[1].size(), whole.where.dim[2].size()};
      const index_t corner[] = {whole.where.dim[0].begin, whole.where.dim[1].begin, whole.where.dim[2].begin};
      const bound_box part = whole.narrowed(translate(testing::random_part(random, extent), corner));
      const index_t stage = random.below(stages);
      if (side == binding_side::source) s.read(part, stage);
      else s.written(part, stage);
      for (const page_name& p : r.touched(part)) {
        const auto at = expected.find(p);
        if (at == expected.end()) {
          ++left_alone;
          continue;
        }
        ++touched;
        at->second = at->second < 0                 ? stage
                     : side == binding_side::source ? std::max(at->second, stage)
                                                    : std::min(at->second, stage);
      }
    }

    std::vector<std::set<page_name>> by_stage(stages + 1);
    for (const auto& [page, stage] : expected) by_stage[static_cast<std::size_t>(stage + 1)].insert(page);
    const auto spans = s.spans_by_stage(stages);
    const std::vector<std::int64_t> counts = pages_by_stage(s, stages);
    for (std::size_t k = 0; k <= stages; ++k) {
      const std::vector<page_name> found = pages_of(spans[k]);
      CHECK(counts[k] == static_cast<std::int64_t>(found.size()));
      CHECK(std::set<page_name>(found.begin(), found.end()) == by_stage[k]);
      CHECK(found.size() == by_stage[k].size());
      for (std::size_t i = 1; i < spans[k].size(); ++i)
        CHECK_FALSE(
            (spans[k][i].block == spans[k][i - 1].block && spans[k][i].pages.first <= spans[k][i - 1].pages.last));
    }
  }
  CHECK_DRAWN(touched > 1000);
  CHECK_DRAWN(left_alone > 100);
  CHECK_DRAWN(shared > 100);
}

TEST_CASE("random bindings against brute force: a claim names what a box touches for the first time") {
  testing::dice random(12);
  for (int round = 0; round < 60; ++round) {
    const random_binding r(random);
    page_stages s(r.of, binding_side::target);
    std::set<page_name> claimed;
    for (std::size_t i = 0; i < r.blocks.size(); ++i)  // what is there beforehand need not come
      for (std::int64_t p = 0; p < r.blocks[i].count(); ++p)
        if (r.at_first[i] == pages_are::committed) claimed.emplace(i, p);
    std::vector<block_span> spans;
    for (int i = 0; i < 20 && !r.of.boxes().empty(); ++i) {
      const bound_box& whole =
          r.of.boxes()[static_cast<std::size_t>(random.below(static_cast<index_t>(r.of.boxes().size())))];
      const index_t extent[] = {whole.where.dim[0].size(), whole.where.dim[1].size(), whole.where.dim[2].size()};
      const index_t corner[] = {whole.where.dim[0].begin, whole.where.dim[1].begin, whole.where.dim[2].begin};
      const bound_box part = whole.narrowed(translate(testing::random_part(random, extent), corner));
      std::set<page_name> fresh;
      for (const page_name& p : r.touched(part))
        if (claimed.insert(p).second) fresh.insert(p);
      const std::size_t before = spans.size();
      s.claim(part, spans);
      const std::vector<page_name> found = pages_of({spans.begin() + static_cast<std::ptrdiff_t>(before), spans.end()});
      CHECK(std::set<page_name>(found.begin(), found.end()) == fresh);
      CHECK(found.size() == fresh.size());
    }
    if (r.of.boxes().empty()) continue;
    const std::vector<page_name> listed = pages_of(s.spans_by_stage(1)[0]);  // none has a stage, claimed or not
    CHECK(static_cast<std::int64_t>(listed.size()) == pages_by_stage(s, 1)[0]);
  }
}

TEST_CASE("granules of any size: each has the stage of its bytes, and comes and goes whole") {
  testing::dice random(13);
  index_t merged = 0;  // granules that two stages touch
  for (int round = 0; round < 60; ++round) {
    const bytes_t granule =
        std::array<bytes_t, 5>{64, 512, 1200, 8192, 3 * page_bytes}[static_cast<std::size_t>(random.below(5))];
    const index_t granules = random.within(1, 5), columns = granules * granule / 4;
    std::vector<std::byte> bytes(static_cast<std::size_t>(granules * granule));
    for (const binding_side side : {binding_side::source, binding_side::target}) {
      binding b;
      const bound_box whole{{1, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, columns}}}}, bytes.data(), {columns, columns, 1}, 4};
      b.add(whole);
      b.own(memory_block{.begin = bytes.data(),
                         .granules = granules,
                         .granule = granule,
                         .come = granules_come::when_taken,
                         .take = [](std::byte*, bytes_t) {},
                         .give_back = [](std::byte*, bytes_t) {}});
      b.seal();
      constexpr index_t stages = 3;
      page_stages s(b, side);
      std::vector<index_t> expected(static_cast<std::size_t>(granules), -1);
      for (int i = 0; i < 6; ++i) {
        const index_t first = random.below(columns), last = random.within(first + 1, columns);
        const index_t stage = random.below(stages);
        const bound_box part = whole.narrowed({{{0, 1}, {0, 1}, {first, last}}});
        if (side == binding_side::source) s.read(part, stage);
        else s.written(part, stage);
        for (index_t g = 0; g < granules; ++g) {
          if (first * 4 >= (g + 1) * granule || last * 4 <= g * granule) continue;
          index_t& of = expected[static_cast<std::size_t>(g)];
          merged += of >= 0 && of != stage ? 1 : 0;
          of = of < 0 ? stage : side == binding_side::source ? std::max(of, stage) : std::min(of, stage);
        }
      }
      std::vector<bytes_t> by_stage(stages + 1, 0);
      std::vector<std::vector<page_name>> names(stages + 1);
      for (index_t g = 0; g < granules; ++g) {
        const auto k = static_cast<std::size_t>(expected[static_cast<std::size_t>(g)] + 1);
        by_stage[k] += granule;
        names[k].emplace_back(0, g);
      }
      CHECK(s.bytes_by_stage(stages) == by_stage);
      CHECK(s.outside_bytes() == 0);
      const auto spans = s.spans_by_stage(stages), taken = s.taken_by_stage(stages);
      REQUIRE(taken.size() == stages);
      for (std::size_t k = 0; k <= stages; ++k) {
        CHECK(pages_of(spans[k]) == names[k]);
        if (k > 0) CHECK(pages_of(taken[k - 1]) == names[k]);
      }
      std::vector<block_span> claimed;
      s.claim(whole, claimed);
      CHECK(claimed.empty());  // they are taken by stage, not beside a copy
    }
  }
  CHECK_DRAWN(merged > 20);
}

TEST_CASE("strides that pass over granules touch only those that hold an element") {
  constexpr bytes_t granule = 64;
  std::vector<std::byte> bytes(20 * granule);
  binding b;
  const bound_box sparse{
      {1, {0, 0, 0}, {{{0, 1}, {0, 5}, {0, 2}}}}, bytes.data(), {320, 64, 1}, 4};  // every 4th granule
  b.add(sparse);
  b.own(
      memory_block{.begin = bytes.data(), .granules = 20, .granule = granule, .give_back = [](std::byte*, bytes_t) {}});
  b.seal();
  page_stages s(b, binding_side::target);
  CHECK(s.bytes_by_stage(1) == std::vector<bytes_t>{5 * granule, 0});
  s.written(sparse.narrowed({{{0, 1}, {1, 3}, {0, 2}}}), 0);
  CHECK(pages_of(s.spans_by_stage(1)[1]) == std::vector<page_name>{{0, 4}, {0, 8}});
  CHECK(s.taken_by_stage(1)[0].empty());
}

TEST_CASE("a stage that no page can remember is refused") {
  page_range arena(page_bytes);
  binding b;
  const bound_box one = row(arena, 1, 0, 0, 4);
  b.add(one);
  b.own(arena);
  b.seal();
  page_stages s(b, binding_side::source);
  CHECK_REFUSED(s.read(one, index_t{1} << 31), "a switch in more than 2147483648 stages");
  page_stages most(b, binding_side::source);
  most.read(one, (index_t{1} << 30) - 3);
  CHECK_REFUSED(most.read(one, (index_t{1} << 30) - 2), "a switch in more than 1073741822 stages");
  CHECK_REFUSED(s.written(one, -1), "a switch in more than -1 stages");
  CHECK(pages_by_stage(s, 1) == std::vector<std::int64_t>{1, 0});
}

TEST_CASE("pages that hold what nobody reads are told apart, and go with a later stage where they are kept so long") {
  page_range arena(5 * page_bytes);  // nothing is bound on the last page
  const bound_box whole = row(arena, 1, 0, 0, 4 * columns_of_page);
  binding b;
  b.add(whole);
  b.own(arena);
  b.seal();
  const auto part = [&](index_t page, index_t pages = 1) {
    return whole.narrowed({{{0, 1}, {0, 1}, {page * columns_of_page + 5, (page + pages) * columns_of_page - 5}}});
  };
  page_stages s(b, binding_side::source);
  s.read(part(0), 2), s.read(part(1), 0), s.read(part(3), 0);  // nobody reads page 2
  CHECK(s.unread_by_stage(3) == std::vector<bytes_t>{0, 0, 0, 0});
  s.unread(part(0, 3));
  CHECK(s.unread_by_stage(3) == std::vector<bytes_t>{page_bytes, page_bytes, 0, page_bytes});
  CHECK(pages_by_stage(s, 3) == std::vector<std::int64_t>{1, 2, 0, 1});  // stages are what they were
  using list = std::vector<page_name>;
  const auto kept = [&](index_t least) {
    std::vector<list> pages;
    for (const std::vector<block_span>& spans : s.spans_by_stage(3, least)) pages.push_back(pages_of(spans));
    return pages;
  };
  CHECK(kept(0) == std::vector<list>{{{0, 2}}, {{0, 1}, {0, 3}}, {}, {{0, 0}}});
  CHECK(kept(1) == std::vector<list>{{}, {{0, 1}, {0, 2}, {0, 3}}, {}, {{0, 0}}});
  CHECK(kept(2) == std::vector<list>{{}, {{0, 3}}, {{0, 1}, {0, 2}}, {{0, 0}}});
  CHECK(kept(3) == std::vector<list>{{}, {{0, 3}}, {}, {{0, 0}, {0, 1}, {0, 2}}});
  CHECK(s.spans_by_stage(3, 3)[3].size() == 1);  // one span of three pages
}

TEST_CASE("of two granules the one that a box passes over is not touched by it") {
  constexpr bytes_t granule = 64;
  std::vector<std::byte> bytes(4 * granule);
  const bound_box apart{{1, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 2}}}}, bytes.data(), {80, 80, 40}, 4};  // bytes 0 and 160
  binding b;
  b.add(apart);
  b.own(
      memory_block{.begin = bytes.data(), .granules = 2, .granule = granule, .give_back = [](std::byte*, bytes_t) {}});
  b.seal();
  page_stages s(b, binding_side::source);
  CHECK(s.bytes_by_stage(1) == std::vector<bytes_t>{granule, 0});
  CHECK(s.outside_bytes() == 4);
  s.read(apart, 0);
  CHECK(pages_of(s.spans_by_stage(1)[1]) == std::vector<page_name>{{0, 0}});
}

TEST_CASE("a byte that reaches out of a block is outside, and elements may lie before those of the dimension outside") {
  const auto owned = [](binding& b, std::byte* begin) {
    b.own(memory_block{.begin = begin, .granules = 3, .granule = 64, .give_back = [](std::byte*, bytes_t) {}});
  };
  std::vector<std::byte> bytes(400);
  const state_list of_bytes = parse_state_list("param:fp8:3");
  binding over("over", {}, of_bytes);
  over.add({0, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 193}}}}, {bytes.data(), 193});
  owned(over, bytes.data());
  over.seal();
  CHECK(page_stages(over, binding_side::source).outside_bytes() == 1);
  CHECK(page_stages(over, binding_side::source).bytes_by_stage(1) == std::vector<bytes_t>{192, 0});

  // bytes 0, 116, 232; 120, 236, 352: from the second block back into the first
  const bound_box back{{1, {0, 0, 0}, {{{0, 1}, {0, 2}, {0, 3}}}}, bytes.data(), {0, 30, 29}, 4};
  binding b;
  b.add(back);
  owned(b, bytes.data()), owned(b, bytes.data() + 192);
  b.seal();
  page_stages s(b, binding_side::source);
  CHECK(s.outside_bytes() == 0);
  s.read(back, 0);
  CHECK(pages_of(s.spans_by_stage(1)[1]) == std::vector<page_name>{{0, 0}, {0, 1}, {1, 0}, {1, 2}});
}
