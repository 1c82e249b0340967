// SPDX-License-Identifier: Apache-2.0
// Bindings by brute force: where every element of a bound box, or of a flat range of a tensor, lies in memory; and what
// is refused.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/indices.hpp>

#include <reshard/memory/pages.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/testing/known_values.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/refused.hpp"
#include "../support/switches.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using ranges::views::cartesian_product, ranges::views::indices;
using testing::each_point, testing::refused;

namespace {

/// Element -> address, for all of a bound box.
using places = std::map<std::vector<index_t>, const std::byte*>;
void note(const bound_box& b, places& at) {
  each_point(b.where, [&](const index_t(&x)[3]) {
    const std::byte* address = b.data;
    for (int i = 0; i < 3; ++i) address += (x[i] - b.where.dim[i].begin) * b.stride[i] * b.element_bytes;
    CHECK(at.emplace(std::vector<index_t>{x[0], x[1], x[2]}, address).second);
  });
}

memory room(std::vector<std::byte>& bytes) { return {bytes.data(), static_cast<bytes_t>(bytes.size())}; }

}  // namespace

TEST_CASE("a flat range of a local tensor lies where it is said to") {
  testing::dice random;
  for (int round = 0; round < 300; ++round) {
    const index_t extent[] = {random.within(1, 3), random.within(1, 5), random.within(1, 6)};
    index_t corner[3];
    for (index_t& c : corner) c = random.below(4);
    tensor_box local{static_cast<int>(random.below(4)), {2, 1, 0}, translate(whole_box(extent), corner)};
    const index_t elements = local.where.volume(), begin = random.below(elements), end = random.within(begin, elements);
    std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * width(adam[local.state].type)));
    binding b("me");
    b.add_flat(local, {begin, end}, room(bytes));
    b.seal();
    CHECK(b.boxes().size() <= 5);
    places found;
    for (const bound_box& bound : b.boxes()) note(bound, found);
    index_t offset = 0;
    CHECK(static_cast<index_t>(found.size()) == end - begin);
    each_point(local.where, [&](const index_t(&x)[3]) {
      const auto at = found.find({x[0], x[1], x[2]});
      CHECK((at != found.end()) == interval{begin, end}.contains(offset));
      if (at != found.end()) CHECK(at->second == bytes.data() + (offset - begin) * width(adam[local.state].type));
      ++offset;
    });
  }
}

TEST_CASE("meet finds what boxes have in common, of the right tensor and state") {
  testing::dice random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes(4096);
    binding b("me");
    std::vector<tensor_box> bound;
    for (int i = 0; i < 12; ++i) {
      // one half of a tensor's rows, or the other
      const index_t half = random.below(2);
      const tensor_box box{static_cast<int>(random.below(2)),
                           {static_cast<int>(random.below(2)), random.below(2), random.below(2)},
                           {{{0, 2}, {4 * half, 4 * half + 4}, {0, 5}}}};
      if (std::any_of(bound.begin(), bound.end(),
                      [&](const tensor_box& o) { return o.same_tensor(box) && o.where == box.where; }))
        continue;
      bound.push_back(box);
      b.add(bound_box{box, bytes.data(), {80, 10, 2}, width(adam[box.state].type)});
    }
    b.seal();
    const index_t extent[] = {2, 8, 5};
    const tensor_box wanted{static_cast<int>(random.below(2)),
                            {static_cast<int>(random.below(2)), random.below(2), random.below(2)},
                            testing::random_part(random, extent)};
    places found, expected;
    b.meet(wanted, [&](const bound_box& part) { note(part, found); });
    for (const tensor_box& box : bound)
      if (box.same_tensor(wanted))
        note(bound_box{box, bytes.data(), {80, 10, 2}, width(adam[box.state].type)}.narrowed(wanted.where), expected);
    CHECK(found == expected);
  }
}

TEST_CASE("of many boxes of a tensor meet finds those that it should, and no other") {
  testing::dice random(3);
  for (const index_t parts : {1, 3})
    for (int i = 0; i < 60; ++i) {
      // columns of boxes, each cut into rows where it likes, some long and some short
      const index_t rows = 240, wide = 8;
      binding bound;
      std::vector<tensor_box> all;
      while (all.size() <= 40) {  // seldom there are fewer
        all.clear();
        for (index_t part = 0; part < parts; ++part)
          for (index_t column = 0; column < 6; ++column)
            for (index_t row = 0; row < rows;) {
              const index_t past = least(rows, row + 1 + random.below(random.below(3) == 0 ? 120 : 9));
              all.push_back({0, {}, {{{part, part + 1}, {row, past}, {column * wide, (column + 1) * wide}}}});
              row = past;
            }
      }
      static std::byte memory[3 * 240 * 48 * 2];
      for (const tensor_box& b : all) bound.add(b, {memory, b.where.volume() * 2});
      bound.seal();
      const auto some = [&](index_t of) {
        const index_t begin = random.below(of);
        return interval{begin, begin + 1 + random.below(of - begin)};
      };
      for (int k = 0; k < 40; ++k) {
        const box<3> wanted = {{some(parts), some(rows), some(6 * wide)}};
        index_t shall = 0, found = 0;
        for (const tensor_box& b : all) shall += intersects(b.where, wanted) ? 1 : 0;
        index_t volume = 0;
        bound.meet({0, {}, wanted}, [&](const bound_box& b) { ++found, volume += b.where.volume(); });
        CHECK(found == shall);
        CHECK(volume == wanted.volume());
      }
    }
}

TEST_CASE("a rank's storage binds exactly what the rank holds, once") {
  oracle::generator cases(testing::seed() + 5);
  for (int i = 0; i < testing::tries(150); ++i) {
    const oracle::layout_case c = cases.next_layout();
    INFO(c.describe());
    const space s(testing::to_model(c.m), parse_degrees(c.text));
    const computed_holding h(s);
    const rank_t rank = static_cast<rank_t>(i) % h.ranks();
    const rank_storage storage(h, rank, "me");
    for (const int state : all_states) {
      const role r = adam[state].placed_as();
      each_held(h, rank, r, [&](int f, const family_box& b) {
        for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
          for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert) {
            index_t missing = box<3>{{b.dim[2], b.dim[3], b.dim[4]}}.volume();
            storage.tensors().meet({state, {f, member, expert}, {{b.dim[2], b.dim[3], b.dim[4]}}},
                                   [&](const bound_box& part) { missing -= part.where.volume(); });
            CHECK(missing == 0);
          }
      });
    }
    bytes_t bound = 0;
    for (const bound_box& b : storage.tensors().boxes()) bound += b.bytes();
    CHECK(bound == held_bytes(h, rank));
    // no two elements share memory: what is written is what is read
    fill(storage.tensors(), h);
    CHECK(compare(storage.tensors(), h).wrong == 0);
    CHECK((compare(storage.tensors(), h, known_values{7}).wrong > 0) == (bound > 0));
  }
}

TEST_CASE("an optimizer buffer lies in memory as the oracle packs it") {
  oracle::generator cases(testing::seed() + 6);
  int sharded = 0;
  for (int i = 0; i < testing::tries(400); ++i) {
    const oracle::layout_case c = cases.next_layout();
    if (c.parsed.zero == 0) continue;
    INFO(c.describe());
    const space s(testing::to_model(c.m), parse_degrees(c.text));
    const computed_holding h(s);
    const rank_t rank = static_cast<rank_t>(i) % h.ranks();
    const oracle::coordinates at = oracle::coordinates_of(c.parsed, rank);

    // element of a tensor -> (array, offset): what the oracle says
    using element = std::pair<std::string, index_t>;
    using place = std::pair<index_t, index_t>;
    std::map<element, place> expected, found;
    index_t arrays = 0;
    for (long chunk = 0; chunk < c.parsed.vpp; ++chunk)
      for (const bool expert : {false, true}) {
        const oracle::optimizer_buffer buffer = expert ? oracle::expert_buffer(c.m, c.parsed, at.pp, chunk, at.ep)
                                                       : oracle::dense_buffer(c.m, c.parsed, at.pp, chunk);
        if (buffer.buckets.empty()) continue;
        const long parts = expert ? c.parsed.edp : c.parsed.dp * c.parsed.cp,
                   part = expert ? at.edp : at.cp + c.parsed.cp * at.dp;
        for (const oracle::entry& e : oracle::inventory(c.m, c.parsed)) {
          if (!oracle::is_in_chunk(c.m, c.parsed, e, at.pp, chunk) || !oracle::is_at_ep(c.m, c.parsed, e, at.ep))
            continue;
          const std::vector<long> elements = oracle::local_elements(c.parsed, e, at);
          for (const oracle::buffer_parameter& p : buffer.parameters) {
            if (p.name != e.what.name) continue;
            for (long x = p.begin; x < p.end; ++x) {
              const auto [begin, end] = buffer.buckets[static_cast<std::size_t>(p.bucket)];
              const long width = (end - begin) / parts, in_slice = x - begin - width * part;
              if (in_slice < 0 || in_slice >= width) continue;
              long before = 0;
              for (long b = 0; b < p.bucket; ++b)
                before += (buffer.buckets[static_cast<std::size_t>(b)].second -
                           buffer.buckets[static_cast<std::size_t>(b)].first) /
                          parts;
              expected[{p.name, elements[static_cast<std::size_t>(x - p.begin)]}] = {arrays, before + in_slice};
            }
          }
        }
        ++arrays;
      }
    // and what the binding does
    std::vector<std::vector<std::byte>> memories;
    const binding b = bind_rank(
        h, rank, "me",
        [&](const rank_array& a) {
          CHECK(a.sharded);
          memories.emplace_back(static_cast<std::size_t>(a.bytes()));
          return room(memories.back());
        },
        only(1));
    CHECK(static_cast<index_t>(memories.size()) == arrays);
    for (const bound_box& box : b.boxes()) {
      places at_box;
      note(box, at_box);
      const index_t(&extent)[5] = s.family_at(box.tensor.family).extent;
      for (const auto& [x, where] : at_box) {
        index_t array = 0;
        const std::byte* const address = where;
        const auto inside = [&](const std::vector<std::byte>& m) {
          return address >= m.data() && address < m.data() + m.size();
        };
        while (!inside(memories[static_cast<std::size_t>(array)])) ++array;
        const element of{s.tensor_on(box.tensor, rank), (x[0] * extent[3] + x[1]) * extent[4] + x[2]};
        found[of] = {array, (address - memories[static_cast<std::size_t>(array)].data()) / 4};
      }
    }
    CHECK(found == expected);
    ++sharded;
  }
  CHECK_DRAWN(sharded > testing::tries(400) / 8);
}

TEST_CASE("blocks of pages are found by address") {
  page_range one(3 * page_bytes), other(page_bytes);
  std::vector<std::byte> bytes(5 * page_bytes);
  std::vector<std::pair<std::byte*, bytes_t>> given;
  binding b("me");
  b.own(one);
  b.own(other);
  b.own(room(bytes), pages_are::committed, [&](std::byte* at, bytes_t n) { given.emplace_back(at, n); });
  b.own(memory{bytes.data(), 100}, pages_are::committed, [](std::byte*, bytes_t) {});  // no whole page: nothing
  b.seal();
  REQUIRE(b.blocks().size() == 3);
  for (page_range* range : {&one, &other}) {
    const std::ptrdiff_t at = b.block_of(range->data());
    REQUIRE(at >= 0);
    CHECK(b.blocks()[static_cast<std::size_t>(at)].begin == range->data());
    CHECK(b.blocks()[static_cast<std::size_t>(at)].end() == range->data() + range->bytes());
    CHECK(b.block_of(range->data() + range->bytes() - 1) == at);
    CHECK(b.block_of(range->data() - 1) != at);
    CHECK(b.block_of(range->data() + range->bytes()) != at);
  }
  const std::ptrdiff_t mine = b.block_of(bytes.data() + page_bytes);
  REQUIRE(mine >= 0);
  const memory_block& block = b.blocks()[static_cast<std::size_t>(mine)];
  CHECK(block.granules >= 4);
  CHECK(block.granule == page_bytes);
  CHECK(reinterpret_cast<std::uintptr_t>(block.begin) % page_bytes == 0);
  CHECK(block.end() <= bytes.data() + bytes.size());
  block.release({1, 3});
  CHECK(given == std::vector<std::pair<std::byte*, bytes_t>>{{block.begin + page_bytes, 2 * page_bytes}});
}

TEST_CASE("an array that its owner can only drop whole is one granule") {
  std::vector<float> floats(300);
  int dropped = 0;
  binding b("me");
  b.own_whole(memory(floats), pages_are::committed, [&] { ++dropped; });
  b.own_whole({}, pages_are::committed, [&] { ++dropped; });
  b.seal();
  REQUIRE(b.blocks().size() == 1);
  const memory_block& block = b.blocks()[0];
  CHECK(block.granules == 1);
  CHECK(block.granule == 1200);
  CHECK(block.at_first == pages_are::committed);
  block.release({0, 1});
  CHECK(dropped == 1);
}

TEST_CASE("a block without granules, memory or calls is refused") {
  std::vector<std::byte> bytes(8192);
  const memory_block right{.begin = bytes.data(), .granules = 2, .give_back = [](std::byte*, bytes_t) {}};
  const auto with = [&](auto&& change) {
    memory_block block = right;
    change(block);
    return refused([&] { binding("me").own(block); });
  };
  CHECK(with([](memory_block&) {}) == "accepted");
  const auto said = [](int granules, int granule) {
    return "reshard: me: a block of " + std::to_string(granules) + " granules of " + std::to_string(granule) +
           " bytes; a block has one granule at least, memory, and a call that gives it back";
  };
  CHECK(with([](memory_block& b) { b.granules = 0; }) == said(0, 4096));
  CHECK(with([](memory_block& b) { b.granule = 0; }) == said(2, 0));
  CHECK(with([](memory_block& b) { b.granule = -8; }) == said(2, -8));
  CHECK(with([](memory_block& b) { b.begin = nullptr; }) == said(2, 4096));
  CHECK(with([](memory_block& b) { b.give_back = {}; }) == said(2, 4096));
  CHECK(with([](memory_block& b) { b.come = granules_come::when_taken; }) ==
        "reshard: me: a block of 2 granules that come when they are taken, and no call takes them");
  CHECK(with([](memory_block& b) {
          b.come = granules_come::when_taken;
          b.take = b.give_back;
        }) == "accepted");
}

TEST_CASE("a binding says where its memory is") {
  binding b("me");
  CHECK(b.place() == memory_place{});
  b.lies_in({memory_place::kind::device, 1});
  CHECK(b.place() == memory_place{memory_place::kind::device, 1});
}

TEST_CASE("a range of bytes meets a block where they have a byte in common") {
  page_range all(7 * page_bytes);
  std::byte* const at = all.data();
  binding b("me");
  for (const bytes_t page : {1, 4})  // pages 1, 2 and 4, 5
    b.own(memory{at + page * page_bytes, 2 * page_bytes}, pages_are::committed, [](std::byte*, bytes_t) {});
  b.seal();
  REQUIRE(b.blocks().size() == 2);
  for (bytes_t begin = 0; begin <= 7 * page_bytes; begin += page_bytes / 2)
    for (bytes_t end = begin + page_bytes / 2; end <= 7 * page_bytes; end += page_bytes / 2) {
      bool common = false;
      for (bytes_t half = begin; half < end; half += page_bytes / 2) {
        const bytes_t page = half / page_bytes;
        common = common || page == 1 || page == 2 || page == 4 || page == 5;
      }
      CAPTURE(begin);
      CAPTURE(end);
      CHECK(b.meets_block(at + begin, at + end) == common);
    }
  for (const bytes_t first : {page_bytes, 4 * page_bytes}) {  // to the byte
    CHECK(!b.meets_block(at + first - 1, at + first));
    CHECK(b.meets_block(at + first - 1, at + first + 1));
    CHECK(b.meets_block(at + first + 2 * page_bytes - 1, at + first + 2 * page_bytes));
    CHECK(!b.meets_block(at + first + 2 * page_bytes, at + first + 2 * page_bytes + 1));
  }
  CHECK(!binding("nobody").meets_block(at, at + 1));
}

TEST_CASE("refusals of a binding say whose, which tensor and how much") {
  std::vector<std::byte> bytes(30);
  const tensor_box box{1, {3, 0, 0}, {{{0, 1}, {0, 2}, {0, 4}}}};
  binding b("rank 3", [](const tensor_id& t) { return "tensor" + std::to_string(t.family); });
  CHECK(refused([&] { b.add(box, room(bytes)); }) ==
        "reshard: rank 3: master of tensor3 has 30 bytes of memory, and needs 32");
  CHECK(refused([&] {
          b.add(box, {nullptr, 32});
        }) == "reshard: rank 3: master of tensor3 has 0 bytes of memory, and needs 32");
  CHECK(refused([&] {
          b.add_flat(box, {1, 9}, {bytes.data(), 64});
        }) == "reshard: rank 3: [1, 9) is no range of the 8 elements of master of tensor3");
  CHECK(refused([&] {
          b.add_flat(box, {-2, 4}, {bytes.data(), 24});
        }) == "reshard: rank 3: [-2, 4) is no range of the 8 elements of master of tensor3");
  CHECK(refused([&] {
          b.add_flat(box, {0, 8}, room(bytes));
        }) == "reshard: rank 3: master of tensor3 has 30 bytes of memory, and needs 32");
  CHECK(refused([&] {
          b.add(box, room(bytes), {8, -4, 1});
        }) == "reshard: rank 3: master of tensor3 has a stride of -4 elements; strides count forwards");
  CHECK(refused([&] {
          b.add({5, {0, 0, 0}, box.where}, room(bytes));
        }) == "reshard: rank 3: there is no state 5; states are 0 to 3, and 16 of statistics");
  b.add_flat(box, {0, 6}, {bytes.data(), 24});
  b.add_flat(box, {5, 8}, {bytes.data(), 12});
  CHECK(refused([&] { b.seal(); }) == "reshard: rank 3: master of tensor3 is bound twice, 1 elements of it");
}

TEST_CASE("a buffer that is too small is refused before it is bound") {
  const space s(make_transformer({.name = "tiny",
                                  .layers = 2,
                                  .hidden = 16,
                                  .heads = 2,
                                  .groups = 2,
                                  .head_dim = 8,
                                  .ffn = 16,
                                  .vocabulary = 64}),
                parse_degrees("dp=2,zero=1"));
  const computed_holding h(s);
  std::vector<std::byte> bytes(1 << 20);
  CHECK(refused([&] {
          bind_rank(
              h, 1, "rank 1",
              [&](const rank_array& a) {
                return memory{bytes.data(), a.sharded ? a.bytes() - 4 : a.bytes()};
              },
              only(2));
        }).starts_with("reshard: rank 1: exp_avg of the optimizer buffer of pipeline chunk 0 has "));
}

TEST_CASE("boxes are ordered by state, family, tensor and expert, then by the box") {
  const box<3> low_and_high[] = {{{{0, 1}, {0, 2}, {0, 2}}}, {{{0, 1}, {2, 3}, {0, 2}}}};
  std::vector<tensor_box> ordered;
  for (const auto& [state, family, member, expert, where] :
       cartesian_product(indices(2), indices(2), indices(index_t{2}), indices(index_t{2}), low_and_high))
    ordered.push_back({state, {family, member, expert}, where});
  for (std::size_t i = 0; i < ordered.size(); ++i)
    for (std::size_t j = 0; j < ordered.size(); ++j) {
      CHECK(precedes(ordered[i], ordered[j]) == (i < j));
      CHECK(ordered[i].same_tensor(ordered[j]) == (i / 2 == j / 2));
    }
}

TEST_CASE("by_stride is a permutation of the dimensions along which strides do not grow") {
  const auto strides = indices(index_t{4});
  for (const auto [a, b, c] : cartesian_product(strides, strides, strides)) {
    const bound_box box{{0, {}, {}}, nullptr, {a, b, c}, 2};
    std::array<int, 3> order = box.by_stride();
    CHECK(box.stride[order[0]] >= box.stride[order[1]]);
    CHECK(box.stride[order[1]] >= box.stride[order[2]]);
    std::sort(order.begin(), order.end());
    CHECK(order == std::array<int, 3>{{0, 1, 2}});
  }
}

TEST_CASE("an empty box is not bound") {
  std::vector<std::byte> bytes(64);
  binding b("me");
  b.add({0, {0, 0, 0}, {{{0, 1}, {3, 3}, {0, 4}}}}, room(bytes));
  b.add_flat({0, {}, {{{0, 1}, {0, 2}, {0, 4}}}}, {5, 5}, room(bytes));
  b.seal();
  CHECK(b.boxes().empty());
}

TEST_CASE("an element that is bound twice is refused, wherever the two boxes stand in their order") {
  std::vector<std::byte> bytes(4096);
  const auto bound = [&](const std::vector<box<3>>& boxes) {
    return refused([&] {
      binding b("me");
      for (const box<3>& where : boxes) b.add(bound_box{{0, {1, 2, 3}, where}, bytes.data(), {80, 10, 1}, 2});
      b.seal();
    });
  };
  const box<3> first{{{0, 2}, {0, 4}, {0, 4}}}, second{{{1, 3}, {3, 6}, {1, 4}}}, apart{{{2, 3}, {0, 2}, {0, 4}}},
      last{{{3, 4}, {0, 2}, {0, 4}}};
  const std::string twice = "reshard: me: param of family 1, member 2, expert 3 is bound twice, 3 elements of it";
  CHECK(bound({first, second}) == twice);
  CHECK(bound({second, first}) == twice);
  CHECK(bound({last, second, apart, first}) == twice);
  CHECK(bound({first, apart, last}) == "accepted");
  // a box that ends where another begins has nothing in common with it, and does not end the search for those that
  // follow
  CHECK(bound({{{{0, 1}, {0, 1}, {0, 1}}}, {{{0, 1}, {1, 2}, {0, 1}}}, {{{0, 1}, {0, 2}, {1, 2}}}}) == "accepted");
  CHECK(bound({{{{0, 9}, {0, 1}, {0, 1}}}, {{{0, 9}, {1, 2}, {0, 1}}}, {{{8, 9}, {0, 1}, {0, 2}}}}) ==
        "reshard: me: param of family 1, member 2, expert 3 is bound twice, 1 elements of it");
}

TEST_CASE("two blocks that share a page are refused, two side by side are not") {
  page_range pages(4 * page_bytes);
  const auto own = [&](bytes_t first, bytes_t second, bytes_t of_first = 2) {
    return refused([&] {
      binding b("me");
      for (const bytes_t at : {second, first})
        b.own({pages.data() + at, (at == first ? of_first : 2) * page_bytes}, pages_are::committed,
              [](std::byte*, bytes_t) {});
      b.seal();
    });
  };
  CHECK(own(0, 2 * page_bytes, 3) == "reshard: me: two blocks overlap, of 3 and 2 granules");
  CHECK(own(0, page_bytes) == "reshard: me: two blocks overlap, of 2 and 2 granules");
  CHECK(own(0, 2 * page_bytes) == "accepted");
}

TEST_CASE("memory is the array's: as large, and of elements as wide") {
  const tensor_box weights{0, {3, 0, 0}, {{{0, 1}, {0, 2}, {0, 4}}}}, moments{2, {3, 0, 0}, weights.where};
  const auto says = [](const tensor_box& what, memory at) { return refused([&] { binding("rank 3").add(what, at); }); };
  std::vector<float> floats(8);
  std::vector<std::uint16_t> halves(8), more(9);
  std::vector<char> raw(16);
  CHECK(says(moments, floats) == "accepted");
  CHECK(says(weights, halves) == "accepted");
  CHECK(says(weights, raw) == "accepted");
  CHECK(says(weights, std::span<std::byte>(reinterpret_cast<std::byte*>(raw.data()), 16)) == "accepted");
  CHECK(says(weights, floats) ==
        "reshard: rank 3: param of family 3, member 0, expert 0 is bf16, 2 bytes an element, and its memory has "
        "elements of 4; "
        "bind memory of the state's type, say as() of another floating type, or leave the state out of what moves");
  std::vector<std::uint16_t> many_halves(16);  // as many bytes as the moments need, of another type
  CHECK(says(moments, many_halves) ==
        "reshard: rank 3: exp_avg of family 3, member 0, expert 0 is fp32, 4 bytes an element, and its memory has "
        "elements of 2; bind memory of the state's type, say as() of another floating type, or leave the state out of "
        "what moves");
  CHECK(says(weights, more) ==
        "reshard: rank 3: param of family 3, member 0, expert 0 has 18 bytes of memory, and its array takes 16; where "
        "elements "
        "lie apart, strides say so");
  CHECK(says(moments, raw) ==
        "reshard: rank 3: exp_avg of family 3, member 0, expert 0 has 16 bytes of memory, and needs 32");

  // rows of 6, of which 4 are the array's: the last row may end where its elements do, or with its padding
  const auto padded = [&](bytes_t elements) {
    std::vector<std::uint16_t> rows(static_cast<std::size_t>(elements));
    return refused([&] { binding("rank 3").add(weights, rows, {12, 6, 1}); });
  };
  CHECK(padded(9).ends_with("has 18 bytes of memory, and needs 20"));
  CHECK(padded(10) == "accepted");
  CHECK(padded(12) == "accepted");
  CHECK(
      padded(13).ends_with("has 26 bytes of memory, and its array takes 24; where elements lie apart, strides say so"));
}

TEST_CASE("between two places elements are converted where one of them holds another type than its state's") {
  const auto of = [](dtype holds, dtype travels) {
    bound_box b;
    b.holds = holds, b.travels = travels;
    return b;
  };
  const auto is = [](const conversion& c, dtype from, dtype via, dtype to) {
    return c.from == from && c.via == via && c.to == to;
  };
  const bound_box plain, as_it_is = of(fp32, fp32), wide = of(fp32, bf16), narrow = of(dtype::fp16, bf16);
  const conversion none = conversion_between(plain, as_it_is);
  CHECK(none.from == none.to);
  CHECK(none.from == conversion{}.from);
  CHECK(none.via == conversion{}.via);
  CHECK(is(conversion_between(wide, plain), bf16, bf16, fp32));
  CHECK(is(conversion_between(plain, wide), fp32, bf16, bf16));
  CHECK(is(conversion_between(wide, narrow), dtype::fp16, bf16, fp32));
  CHECK(is(conversion_between(narrow, wide), fp32, bf16, dtype::fp16));
}

TEST_CASE("memory that is said to hold another floating type is bound so, and of no other type") {
  const tensor_box weights{0, {3, 0, 0}, {{{0, 1}, {0, 2}, {0, 4}}}};
  std::vector<float> floats(8);
  std::vector<std::byte> raw(64);
  const auto says = [&](const memory& at) { return refused([&] { binding("rank 3").add(weights, at); }); };
  binding b("rank 3");
  b.add(weights, memory(floats).as(fp32));
  REQUIRE(b.boxes().size() == 1);
  CHECK(b.boxes()[0].holds == fp32);
  CHECK(b.boxes()[0].travels == bf16);
  CHECK(b.boxes()[0].element_bytes == 4);
  binding flat("rank 3");
  flat.add_flat(weights, {1, 4}, memory(raw.data(), 12).as(fp32));
  REQUIRE(flat.boxes().size() == 1);
  CHECK(flat.boxes()[0].holds == fp32);
  CHECK(flat.boxes()[0].travels == bf16);
  CHECK(flat.boxes()[0].element_bytes == 4);
  const std::string of = "reshard: rank 3: param of family 3, member 0, expert 0 ";
  CHECK(says(memory(raw.data(), 8).as(dtype::fp8)) ==
        of + "is bf16, and its memory is said to hold fp8; bf16, fp16 and fp32 are converted into one another, nothing "
             "else is");
  CHECK(says(memory(floats).as(dtype::fp16)) ==
        of + "is said to hold fp16, 2 bytes an element, and its memory has elements of 4; bind memory of the state's "
             "type, say as() of another floating type, or leave the state out of what moves");
  CHECK(says(memory(floats).as(bf16)).starts_with(of + "is said to hold bf16, 2 bytes an element"));
}

TEST_CASE("a box that is bound elsewhere keeps what it holds, or is refused by its elements or its state's type") {
  std::vector<std::byte> raw(64);
  const box<3> eight{{{0, 1}, {0, 2}, {0, 4}}};
  const auto box_of = [&](int state, bytes_t element_bytes) {
    return bound_box{{state, {3, 0, 0}, eight}, raw.data(), {8, 4, 1}, element_bytes};
  };
  const auto converting = [&](int state, bytes_t element_bytes, dtype holds, dtype travels) {
    bound_box b = box_of(state, element_bytes);
    b.holds = holds, b.travels = travels;
    return b;
  };
  const auto added = [](const bound_box& one) {
    binding b("rank 3");
    b.add(one);
    return b.boxes().at(0);
  };
  CHECK(added(box_of(0, 0)).element_bytes == 2);  // as its state's
  CHECK(added(box_of(1, 0)).element_bytes == 4);
  CHECK(added(box_of(0, 2)).element_bytes == 2);
  for (const bytes_t given : {0, 4}) {
    const bound_box wide = added(converting(0, given, fp32, bf16));
    CHECK(wide.element_bytes == 4);
    CHECK(wide.holds == fp32);
    CHECK(wide.travels == bf16);
  }
  const auto says = [&](const bound_box& one) { return refused([&] { binding("rank 3").add(one); }); };
  const std::string of = "reshard: rank 3: param of family 3, member 0, expert 0 ";
  CHECK(says(box_of(0, 4)).starts_with(of + "is bf16, 2 bytes an element, and its memory has elements of 4;"));
  CHECK(says(box_of(0, 1)).starts_with(of + "is bf16, 2 bytes an element, and its memory has elements of 1;"));
  CHECK(says(converting(0, 2, fp32, bf16)).starts_with(of + "is said to hold fp32, 4 bytes an element"));
  CHECK(says(converting(0, 2, bf16, fp32)) == of + "is bf16, and was bound as of a state of fp32");
  CHECK(says(converting(0, 4, fp32, dtype::fp16)) == of + "is bf16, and was bound as of a state of fp16");
  bound_box none = box_of(0, 2);
  none.where.dim[0] = {0, 5}, none.where.dim[1] = {7, 7};
  none.stride[0] = index_t{1} << 62;
  binding empty("rank 3");
  CHECK(refused([&] { empty.add(none); }) == "accepted");
  CHECK(empty.boxes().empty());
}

namespace {
/// A range of granules of a byte in a device's memory.
struct device_range {
  std::vector<std::byte> bytes = std::vector<std::byte>(3);
  memory_block block(pages_are at_first) {
    return {
        .begin = bytes.data(), .granules = 3, .granule = 1, .at_first = at_first, .give_back = [](std::byte*, bytes_t) {
        }};
  }
  static memory_place place() { return {memory_place::kind::device, 5}; }
};
}  // namespace

TEST_CASE("a range that is owned says where it is; a granule may be a single byte") {
  device_range range;
  binding b("me");
  b.own(range, pages_are::committed);
  CHECK(b.place() == memory_place{memory_place::kind::device, 5});
  REQUIRE(b.blocks().size() == 1);
  CHECK(b.blocks()[0].granule == 1);
  CHECK(b.blocks()[0].at_first == pages_are::committed);
  binding of_host("me");
  page_range pages(page_bytes);
  of_host.own(pages);
  CHECK(of_host.place() == memory_place{});
}
