// SPDX-License-Identifier: Apache-2.0
// The arena of what is passed on: no page of it where nothing is, and the two bindings are the two that were given;
// else an address for every piece, what a transport reads and writes, and which pages go with which reader, by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/switch/detail/relay_arena.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

constexpr int param = 0, master = 1, exp_avg = 2;
const state_set two_states = adam.only(param) | adam.only(exp_avg);

std::string names(const tensor_id& t) { return std::string(1, static_cast<char>('a' + t.family)); }

staged_piece piece(int tensor, state_set states, box<3> where, purpose why, std::uint64_t stream, index_t stage = 0,
                   int phase = 0) {
  return {stage, 1, 3, states, {tensor, 0, 0}, where, phase, why, stream};
}
constexpr purpose on = purpose::passed_on, stays = purpose::delivered;

/// Where a binding has a whole box; null where not at all or not whole.
const bound_box* found(const binding& in, int state, int tensor, const box<3>& where) {
  for (const bound_box& b : in.boxes())
    if (b.state == state && b.tensor.family == tensor && b.where == where) return &b;
  return nullptr;
}

/// A device that passes on "a" of two states and "b", keeps "c", which it sends on, and "d", which it does not.
struct relaying {
  static constexpr box<3> of_a{{{0, 1}, {2, 5}, {0, 5}}}, of_b{{{0, 2}, {0, 3}, {7, 8}}},
      of_c{{{0, 1}, {0, 2}, {0, 4}}};
  static constexpr box<3> part_of_c{{{0, 1}, {1, 2}, {1, 3}}};
  static constexpr box<3> less_of_c{{{0, 1}, {1, 2}, {1, 2}}};  // what goes on of it; all of it was received
  std::vector<std::byte> old_array = std::vector<std::byte>(64), new_array = std::vector<std::byte>(256);
  page_range new_pages{page_bytes};
  binding before{"before", names}, after{"after", names};
  staged_plan plan;

  relaying() {
    plan.device = 3, plan.stages = 3, plan.phases = 2, plan.lag = 1;
    before.add({master, {4, 0, 0}, of_c}, memory(old_array.data(), 32));
    for (int t : {2, 3}) after.add({param, {t, 0, 0}, of_c}, memory(new_array.data() + 16 * t, 16));
    after.add({exp_avg, {2, 0, 0}, of_c}, memory(new_array.data() + 128, 32));
    after.own(new_pages);
    before.lies_in({memory_place::kind::pinned, 0}), after.lies_in({memory_place::kind::device, 2});
    before.seal(), after.seal();
    plan.receives = {piece(0, two_states, of_a, on, 7), piece(2, adam.only(param), part_of_c, stays, 8),
                     piece(2, adam.only(exp_avg), of_c, stays, 8),  // whose states of that stream do not go on
                     piece(1, adam.only(param), of_b, on, 9, 1), piece(3, adam.only(param), of_c, stays, 0)};
    plan.sends = {piece(0, two_states, of_a, stays, 7, 0, 1), piece(2, adam.only(param), less_of_c, stays, 8, 0, 1),
                  piece(3, adam.only(param), of_c, stays, 0), piece(1, adam.only(param), of_b, stays, 9, 1, 1)};
  }
};

}  // namespace

TEST_CASE("who passes nothing on has no arena") {
  staged_plan plan;
  plan.device = 3;
  plan.stages = 2;
  const binding before("before"), after("after");
  relay_arena arena(plan, before, after, adam, {});
  CHECK(arena.resident_bytes() == 0);
  CHECK(!arena.take_pages());
  CHECK(arena.sent().boxes().empty());
  CHECK(arena.written().boxes().empty());
  CHECK(arena.sent().who() == "before");
  CHECK(arena.written().who() == "after");
}

TEST_CASE(
    "pieces that are passed on lie one after the other, each state at a multiple of 16 bytes, rows side by side") {
  const relaying all;
  const relay_arena arena(all.plan, all.before, all.after, adam, names);
  REQUIRE(arena.written().blocks().size() == 2);
  for (const binding* in : {&arena.sent(), &arena.written()}) {
    const bound_box *a = found(*in, param, 0, relaying::of_a), *wide = found(*in, exp_avg, 0, relaying::of_a),
                    *b = found(*in, param, 1, relaying::of_b);
    REQUIRE((a != nullptr && wide != nullptr && b != nullptr));
    CHECK(std::any_of(arena.written().blocks().begin(), arena.written().blocks().end(), [&](const memory_block& block) {
      return block.begin == a->data && block.granules == 1 && block.begin != all.new_pages.data();
    }));
    CHECK(wide->data == a->data + 32);  // 15 elements of 2 bytes
    CHECK(b->data == a->data + 96);     // and of 4
    CHECK((a->element_bytes == 2 && wide->element_bytes == 4 && b->element_bytes == 2));
    CHECK((a->stride[0] == 15 && a->stride[1] == 5 && a->stride[2] == 1));
    CHECK((b->stride[0] == 3 && b->stride[1] == 1 && b->stride[2] == 1));
  }
}

TEST_CASE("what is sent is read from old tensors, the arena, and what was kept of a stream that goes on") {
  const relaying all;
  const relay_arena arena(all.plan, all.before, all.after, adam, names);
  CHECK(arena.sent().boxes().size() == 5);
  const bound_box *old = found(arena.sent(), master, 4, relaying::of_c),
                  *kept = found(arena.sent(), param, 2, relaying::part_of_c);
  REQUIRE((old != nullptr && kept != nullptr));
  CHECK(old->data == all.old_array.data());
  CHECK(kept->data == all.new_array.data() + 32 + 2 * (4 + 1));
  CHECK(kept->stride[1] == 4);
  CHECK(arena.sent().who() == "before");
  CHECK(arena.sent().name(*kept) == "param of c");
  CHECK(arena.sent().blocks().empty());
  CHECK(arena.sent().place() == memory_place{memory_place::kind::pinned, 0});
}

TEST_CASE("what comes is written to new tensors and the arena, with the pages of both") {
  const relaying all;
  const relay_arena arena(all.plan, all.before, all.after, adam, names);
  CHECK(arena.written().boxes().size() == 6);
  for (const bound_box& b : all.after.boxes()) {
    const bound_box* same = found(arena.written(), b.state, b.tensor.family, b.where);
    REQUIRE(same != nullptr);
    CHECK(same->data == b.data);
  }
  CHECK(std::any_of(arena.written().blocks().begin(), arena.written().blocks().end(),
                    [&](const memory_block& block) { return block.begin == all.new_pages.data(); }));
  CHECK(arena.written().who() == "after");
  CHECK(arena.written().name(*found(arena.written(), param, 1, relaying::of_b)) == "param of b");
  CHECK(arena.written().place() == memory_place{memory_place::kind::device, 2});
}

TEST_CASE("a list of states of its own, and the sentence of what is passed on twice") {
  const state_list own = parse_state_list("param:fp32:3,grad:fp8:2");
  const state_set both = own.only(0) | own.only(1);
  const binding before("before", names, own), after("after", names, own);
  staged_plan plan;
  plan.device = 12;
  plan.receives = {piece(1, both, relaying::of_a, on, 7)};
  const relay_arena arena(plan, before, after, own, names);
  const bound_box *wide = found(arena.sent(), 0, 1, relaying::of_a),
                  *narrow = found(arena.sent(), 1, 1, relaying::of_a);
  REQUIRE((wide != nullptr && narrow != nullptr));
  CHECK((wide->element_bytes == 4 && narrow->element_bytes == 1 && narrow->data == wide->data + 64));
  CHECK((arena.sent().list() == own && arena.written().list() == own));
  CHECK(arena.written().name(*narrow) == "grad of b");
  plan.receives.push_back(plan.receives[0]);
  CHECK(testing::refused([&] { relay_arena(plan, before, after, own, names); }) ==
        "reshard: what device 12 passes on: param of b is bound twice, 15 elements of it");
  plan.receives.pop_back();
  std::vector<std::byte> array(60);
  binding again("again", names, own), too("too", names, own);
  for (binding* const one : {&again, &too})
    one->add({0, {1, 0, 0}, relaying::of_a}, memory(array.data(), 60)), one->seal();
  CHECK(testing::refused([&] { relay_arena(plan, again, too, own, names); }) ==
        "reshard: again: param of b is bound twice, 15 elements of it");
}

TEST_CASE(
    "pages go with the slot of their last reader, counted with the transport's lag, and come back to the kernel") {
  const box<3> two_pages{{{0, 1}, {0, 2}, {0, 2048}}}, first_row{{{0, 1}, {0, 1}, {0, 2048}}},
      second_row{{{0, 1}, {1, 2}, {0, 2048}}};
  staged_plan plan;
  plan.device = 3, plan.stages = 3, plan.phases = 2, plan.lag = 1;
  plan.receives = {piece(0, adam.only(param), two_pages, on, 7), piece(1, two_states, first_row, on, 8, 1)};
  plan.sends = {
      piece(0, adam.only(param), first_row, stays, 7, 2, 1), piece(0, adam.only(param), first_row, on, 7, 1, 1),
      piece(0, adam.only(param), second_row, stays, 7, 1, 2), piece(1, two_states, first_row, stays, 8, 0, 1)};
  const binding before("before"), after("after");
  relay_arena arena(plan, before, after, adam, names);
  REQUIRE(arena.written().blocks().size() == 1);
  const memory_block block = arena.written().blocks()[0];
  CHECK(block.granules == 5);  // two of the first, one and two of the second
  // stage + phase (1 + lag): 4, and 3 before it; 5; 2
  const std::vector<bytes_t> bytes = arena.by_reader().bytes_by_stage(6);
  CHECK(bytes == std::vector<bytes_t>{0, 0, 0, 3 * page_bytes, 0, page_bytes, page_bytes});
  CHECK(arena.resident_bytes() == 0);
  std::memset(block.begin, 1, static_cast<std::size_t>(5 * page_bytes));
  CHECK(arena.resident_bytes() == 5 * page_bytes);
  const auto spans = arena.by_reader().spans_by_stage(6);
  arena.release(spans[5]);
  CHECK(arena.resident_bytes() == 4 * page_bytes);
  arena.release(spans[3]);
  CHECK(arena.resident_bytes() == page_bytes);
  CHECK(block.begin[page_bytes] == std::byte{1});  // the second row stands
  const std::optional<page_range> taken = arena.take_pages();
  REQUIRE(taken.has_value());
  CHECK(taken->data() == block.begin);
  CHECK(taken->resident_bytes() == page_bytes);
  CHECK(arena.resident_bytes() == 0);
  CHECK(!arena.take_pages());
}

TEST_CASE("streams are told apart by number and states, and what is of none is of no stream") {
  const std::vector<staged_piece> pieces = {
      piece(0, two_states, relaying::of_a, on, 7), piece(1, adam.only(param), relaying::of_b, stays, 0),
      piece(1, adam.only(param), relaying::of_b, stays, 9), piece(1, adam.only(master), relaying::of_b, stays, 1)};
  const detail::streams_of streams(pieces);
  const auto has = [&](state_set states, std::uint64_t stream) {
    return streams.has(piece(2, states, relaying::of_c, stays, stream));
  };
  CHECK(has(two_states, 7));
  CHECK(has(adam.only(param), 9));
  CHECK(has(adam.only(master), 1));
  CHECK_FALSE(has(adam.only(master), 0));
  CHECK_FALSE(has(adam.only(param), 7));
  CHECK_FALSE(has(two_states, 9));
  CHECK_FALSE(has(adam.only(param), 0));
  CHECK_FALSE(has(two_states, 8));
  CHECK_FALSE(detail::streams_of().has(pieces[0]));
}
