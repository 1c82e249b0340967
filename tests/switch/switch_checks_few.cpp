// SPDX-License-Identifier: Apache-2.0
// Checks of bindings by a few boxes placed by hand: lists of states that differ, types that lose bits, boxes and runs
// that touch or do not, and the first of several that is named. switch/switch_checks.cpp throws many.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <reshard/switch/detail/switch_checks.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {

alignas(64) std::byte arena[4096];
std::string names(const tensor_id& t) { return std::string(1, static_cast<char>('a' + t.family)); }
constexpr box<3> eight{{{0, 1}, {0, 2}, {0, 4}}};

std::string one_list(const binding& in, const state_list& list, const state_set& moving) {
  return refused([&] { require_one_list("device 3", in, list, moving); });
}
/// One box of a state, which holds another type perhaps.
binding of_type(const state_list& list, int state, std::optional<dtype> holds = {}) {
  binding b("rank 1", names, list);
  const dtype type = holds.value_or(list[state].type);
  const memory at(arena, 8 * width(type));
  b.add({state, {1, 0, 0}, eight}, holds ? at.as(*holds) : at);
  b.seal();
  return b;
}

/// A box of bf16 somewhere: one part, so many rows and columns.
struct place {
  bytes_t at;
  index_t rows, columns, row_stride, stride = 1;
};
binding bound(const char* who, int first, const std::vector<place>& places, int state = 0) {
  binding b(who, names);
  for (const place& p : places) {
    b.add(bound_box{{state, {first++, 0, 0}, {{{0, 1}, {0, p.rows}, {0, p.columns}}}},
                    arena + p.at,
                    {0, p.row_stride, p.stride},
                    width(adam[state].type)});
  }
  b.seal();
  return b;
}
std::string apart(const std::vector<place>& from, const std::vector<place>& into) {
  return refused(
      [&] { require_apart("device 3", bound("FROM", 0, from), bound("TO", 10, into), adam.all(), sources::release); });
}
std::string both(char one, char other) {
  return std::string("reshard: device 3, TO: param of ") + one + " and param of " + other + " lie in the same memory";
}
std::string in_source(char made, char source) {
  return std::string("reshard: device 3, TO: param of ") + made + " lies in the memory of param of " + source +
         " of FROM; a switch wants memory of its own for what it makes";
}

}  // namespace

TEST_CASE("a state that moves is bound by the name, type and level that the switch has; others are nobody's matter") {
  const state_list list = parse_state_list("param:bf16:3,grad:fp8:2,exp_avg:fp32:1");
  const std::string begins = "reshard: device 3, rank 1: state 1 is bound as ",
                    ends = ", and the switch moves grad:fp8:2; bindings and switch have one list of states";
  const auto bound_as = [](const char* text) { return of_type(parse_state_list(text), 0); };
  CHECK(one_list(of_type(list, 0), list, list.all()) == "accepted");
  CHECK(one_list(bound_as("param:bf16:3,mean:fp8:2,exp_avg:fp32:1"), list, list.all()) == begins + "mean:fp8:2" + ends);
  CHECK(one_list(bound_as("param:bf16:3,grad:fp16:2"), list, list.all()) == begins + "grad:fp16:2" + ends);
  CHECK(one_list(bound_as("param:bf16:3,grad:fp8:1"), list, list.only(1)) == begins + "grad:fp8:1" + ends);
  CHECK(one_list(bound_as("param:bf16:3,mean:fp8:2"), list, list.only(0)) == "accepted");
  const binding short_one = bound_as("param:bf16:3");
  CHECK(one_list(short_one, list, list.only(1)).find(begins + "nothing:") == 0);
  const binding none("rank 1", names, parse_state_list("mean:fp8:2,param:bf16:3"));
  CHECK(one_list(none, list, list.all()) == "accepted");  // what has no boxes
}

TEST_CASE("statistics are of every list, whatever it calls its parameters' type") {
  const state_list list = parse_state_list("param:fp16:3");
  CHECK(one_list(of_type(adam, 0), list, only(statistic_state)) == "accepted");
  CHECK(one_list(of_type(adam, 0), list, list.all()) ==
        "reshard: device 3, rank 1: state 0 is bound as param:bf16:3, and the switch moves param:fp16:3; bindings and "
        "switch have one list of states");
}

TEST_CASE("elements of FROM lose bits on their way from memory to their state's type, those of TO the other way") {
  const auto says = [](const binding& in, const char* side, state_set moving = adam.all(),
                       rounding rounds = rounding::refused) {
    return refused([&] { require_exact("device 3", in, side, moving, rounds); });
  };
  const binding wide = of_type(adam, 0, fp32), half = of_type(adam, 0, fp16), narrow = of_type(adam, 2, bf16),
                same = of_type(adam, 0, bf16);
  const std::string allows = ", which loses bits; rounding::to_nearest in the switch's options allows it";
  CHECK(says(wide, "FROM") == "reshard: device 3, rank 1: param of b is held as fp32 and travels as bf16" + allows);
  CHECK(says(wide, "TO") == "accepted");
  CHECK(says(narrow, "FROM") == "accepted");
  CHECK(says(narrow, "TO") ==
        "reshard: device 3, rank 1: exp_avg of b travels as fp32 and is to be held as bf16" + allows);
  CHECK(says(half, "FROM") == "reshard: device 3, rank 1: param of b is held as fp16 and travels as bf16" + allows);
  CHECK(says(half, "TO") == "reshard: device 3, rank 1: param of b travels as bf16 and is to be held as fp16" + allows);
  CHECK(says(same, "FROM") == "accepted");
  CHECK(says(wide, "FROM", adam.only(1)) == "accepted");  // it does not move
  CHECK(says(wide, "FROM", adam.only(0)) != "accepted");
  CHECK(says(wide, "FROM", adam.all(), rounding::to_nearest) == "accepted");
  CHECK(says(half, "TO", adam.all(), rounding::to_nearest) == "accepted");
}

TEST_CASE("boxes that end where another begins are apart, and one byte more is not") {
  CHECK(apart({{0, 1, 8, 8}}, {{16, 1, 8, 8}, {32, 1, 8, 8}}) == "accepted");
  CHECK(apart({{0, 1, 9, 9}}, {{16, 1, 8, 8}}) == in_source('k', 'a'));
  CHECK(apart({{30, 1, 8, 8}}, {{16, 1, 8, 8}}) == in_source('k', 'a'));
  CHECK(apart({}, {{0, 1, 8, 8}, {14, 1, 8, 8}}) == both('k', 'l'));
  CHECK(apart({{0, 1, 8, 8}, {8, 1, 8, 8}}, {{24, 1, 8, 8}}) == "accepted");  // two sources in one place
  CHECK(apart({{0, 1, 8, 8}, {8, 1, 8, 8}}, {{22, 1, 8, 8}}) == in_source('k', 'b'));
  CHECK(apart({{0, 1, 8, 8}}, {{0, 1, 8, 8}, {0, 1, 8, 8}}) == in_source('k', 'a'));  // the source is named first
  CHECK(apart({}, {{0, 1, 8, 8}, {100, 1, 8, 8}, {8, 1, 8, 8}}) == both('k', 'm'));   // in no order of memory
}

TEST_CASE("rows and columns may lie between those of another, and their runs do not cross") {
  CHECK(apart({{0, 3, 4, 8}}, {{8, 3, 4, 8}}) == "accepted");
  CHECK(apart({{0, 3, 5, 8}}, {{8, 3, 4, 8}}) == in_source('k', 'a'));
  CHECK(apart({}, {{0, 1, 8, 0, 2}, {2, 1, 8, 0, 2}}) == "accepted");
  CHECK(apart({}, {{0, 1, 8, 0, 2}, {2, 1, 8, 0, 3}}) == both('k', 'l'));  // 2, 8, 14: the last of three
  CHECK(apart({}, {{0, 2, 3, 4, 1}, {6, 2, 1, 4, 1}}) == "accepted");
  CHECK(apart({}, {{0, 2, 3, 2, 1}}) ==
        "reshard: device 3, TO: param of k has strides by which its elements lie in the same memory");
  CHECK(apart({{0, 2, 3, 2, 1}}, {{100, 1, 1, 1}}) == "accepted");  // a source may
  CHECK(apart({{0, 2, 3, 2, 1}}, {{10, 1, 1, 1}}) == "accepted");
  CHECK(apart({{0, 2, 3, 2, 1}}, {{8, 1, 1, 1}}) == in_source('k', 'a'));
}

TEST_CASE("what reaches furthest counts, not what began last") {
  CHECK(apart({{0, 1, 100, 100}, {4, 1, 2, 2}}, {{60, 1, 8, 8}}) == in_source('k', 'a'));
  CHECK(apart({}, {{0, 1, 8, 0, 10}, {4, 1, 2, 2}, {60, 1, 2, 2}}) == both('k', 'm'));
  CHECK(apart({}, {{0, 1, 8, 0, 10}, {4, 1, 2, 2}, {62, 1, 2, 2}}) == "accepted");
  CHECK(apart({{62, 1, 2, 2}}, {{0, 1, 8, 0, 10}, {4, 1, 2, 2}}) == "accepted");
  CHECK(apart({{61, 1, 2, 2}}, {{0, 1, 8, 0, 10}, {4, 1, 2, 2}}) == in_source('k', 'a'));
  // after a group of boxes that touch, another
  CHECK(apart({}, {{0, 1, 4, 0, 3}, {2, 1, 4, 0, 3}, {100, 1, 4, 4}, {106, 1, 4, 4}}) == both('m', 'n'));
}

TEST_CASE("a target of a state that stays is not made, and a source of it still must not be written over") {
  const auto says = [](const binding& from, const binding& into, state_set moving) {
    return refused([&] { require_apart("device 3", from, into, moving, sources::keep); });
  };
  const binding stays = bound("TO", 10, {{0, 1, 4, 4}}, 2), made = bound("TO", 10, {{8, 1, 4, 4}}),
                from = bound("FROM", 0, {{0, 1, 4, 4}}, 2);
  CHECK(says(from, stays, adam.only(0)) == "accepted");
  CHECK(says(from, made, adam.only(0)) ==
        "reshard: device 3, TO: param of k lies in the memory of exp_avg of a of FROM; a switch wants memory of its "
        "own for what it makes");
  CHECK(says(from, stays, adam.only(2)) ==
        "reshard: device 3, TO: exp_avg of k lies in the memory of exp_avg of a of FROM; a switch wants memory of its "
        "own for what it makes");
}

TEST_CASE("more runs than are compared are refused before they are gathered") {
  std::byte* const far = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // nothing is read there
  const auto says = [far](index_t first, index_t second) {
    binding into("TO", names);
    into.add(bound_box{{0, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, first}}}}, far, {0, 0, 2}, 2});
    into.add(bound_box{{0, {1, 0, 0}, {{{0, 1}, {0, 1}, {0, second}}}}, far + 1, {0, 0, 2}, 2});
    into.seal();
    return refused([&] { require_apart("device 3", binding("FROM"), into, adam.all(), sources::keep); });
  };
  const std::string many = " crosses other arrays in memory; more than 4194304 runs are not compared";
  CHECK(most_runs == 4194304);
  CHECK(says(4194305, 3) == "reshard: device 3, TO: param of a" + many);
  CHECK(says(4194304, 1) == "reshard: device 3, TO: param of b" + many);
  CHECK(says(4194303, 2) == "reshard: device 3, TO: param of b" + many);
  CHECK(says(index_t{1} << 40, 3) == "reshard: device 3, TO: param of a" + many);
  CHECK(says(300, 3) == both('a', 'b'));
  // alone, side by side, or sources among themselves, nobody counts them
  const auto columns = [far](const char* who, int first, const std::vector<std::pair<bytes_t, index_t>>& places) {
    binding b(who, names);
    for (const auto& [at, count] : places)
      b.add(bound_box{{0, {first++, 0, 0}, {{{0, 1}, {0, 1}, {0, count}}}}, far + at, {0, 0, 2}, 2});
    b.seal();
    return b;
  };
  const auto of = [](const binding& from, const binding& into) {
    return refused([&] { require_apart("device 3", from, into, adam.all(), sources::keep); });
  };
  constexpr index_t lots = most_runs + 1;
  const binding none("FROM"), crossing = columns("FROM", 0, {{0, lots}, {2, lots}}),
                              inside = columns("TO", 2, {{2, 1}});
  CHECK(of(none, columns("TO", 0, {{0, lots}})) == "accepted");
  CHECK(of(none, columns("TO", 0, {{0, lots}, {4 * lots, lots}})) == "accepted");
  CHECK(of(crossing, columns("TO", 2, {{8 * lots, 1}})) == "accepted");
  CHECK(of(columns("FROM", 0, {{0, lots}}), inside) == "reshard: device 3, FROM: param of a" + many);
  CHECK(of(crossing, inside) == "reshard: device 3, FROM: param of a" + many);
  // rows are runs where their elements lie side by side
  constexpr index_t wide = 3 * most_runs / 4;
  const auto rows_of = [far](index_t row, index_t column, bytes_t apart) {
    binding into("TO", names);
    for (const int f : {0, 1})
      into.add(bound_box{{0, {f, 0, 0}, {{{0, 1}, {0, 2}, {0, wide}}}}, far + f * apart, {5 * wide, row, column}, 2});
    into.seal();
    return refused([&] { require_apart("device 3", binding("FROM"), into, adam.all(), sources::keep); });
  };
  CHECK(rows_of(2 * wide, 1, 2 * wide) == "accepted");
  CHECK(rows_of(1, 2, 2) == "reshard: device 3, TO: param of a" + many);
}

TEST_CASE("dimensions nest where each steps over all that those of smaller strides reach") {
  const auto nests = [](const index_t(&size)[3], const index_t(&stride)[3]) {
    return detail::nested(bound_box{{0, {}, {{{3, 3 + size[0]}, {5, 5 + size[1]}, {7, 7 + size[2]}}}},
                                    arena,
                                    {stride[0], stride[1], stride[2]},
                                    2});
  };
  CHECK(nests({2, 3, 4}, {12, 4, 1}));
  CHECK(nests({2, 3, 4}, {20, 5, 1}));
  CHECK_FALSE(nests({2, 3, 4}, {11, 4, 1}));
  CHECK_FALSE(nests({2, 3, 4}, {12, 3, 1}));
  CHECK(nests({2, 3, 4}, {1, 2, 6}));
  CHECK_FALSE(nests({2, 3, 4}, {1, 2, 5}));
  CHECK_FALSE(nests({2, 3, 4}, {1, 1, 6}));
  CHECK(nests({1, 1, 4}, {0, 0, 1}));
  CHECK(nests({1, 3, 1}, {0, 1, 0}));
  CHECK(nests({1, 3, 4}, {0, 4, 1}));
  CHECK(nests({1, 3, 4}, {2, 4, 1}));
  CHECK(nests({1, 1, 1}, {0, 0, 0}));
  CHECK_FALSE(nests({2, 1, 1}, {0, 0, 0}));
}

TEST_CASE("a box is from its first byte to its last; its runs are rows, or elements where these lie apart") {
  using told = std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>>;
  const bound_box rows{{0, {}, {{{1, 3}, {2, 4}, {0, 3}}}}, arena + 8, {20, 5, 1}, 2},
      apart_too{{0, {}, {{{1, 3}, {2, 4}, {0, 3}}}}, arena + 8, {1, 20, 3}, 4};
  const auto runs = [](const bound_box& b, bool target) {
    told all;
    detail::each_run(b, target, [&](const detail::stretch& run) {
      CHECK((run.of == &b && run.target == target));
      all.emplace_back(run.begin - arena, run.end - arena);
    });
    return all;
  };
  CHECK(runs(rows, true) == told{{8, 14}, {18, 24}, {48, 54}, {58, 64}});
  CHECK(runs(apart_too, false) == told{{8, 12},
                                       {20, 24},
                                       {32, 36},
                                       {88, 92},
                                       {100, 104},
                                       {112, 116},
                                       {12, 16},
                                       {24, 28},
                                       {36, 40},
                                       {92, 96},
                                       {104, 108},
                                       {116, 120}});
  const detail::stretch all = detail::hull(rows, true), other = detail::hull(apart_too, false);
  CHECK((all.begin == arena + 8 && all.end == arena + 64 && all.of == &rows && all.target));
  CHECK((other.begin == arena + 8 && other.end == arena + 120 && other.of == &apart_too && !other.target));
  CHECK((!(all < other) && !(other < all)));
  CHECK(detail::stretch{arena, arena + 9, nullptr, true} < all);
}

TEST_CASE("a target in pages that a source gives back is refused, one beside or around them is not") {
  alignas(page_bytes) static std::byte pages[8 * page_bytes];
  const auto says = [](const std::vector<place>& targets, const std::vector<place>& own, sources after_use) {
    binding from("FROM", names), into("TO", names);
    from.own(memory{pages + 2 * page_bytes, 2 * page_bytes}, pages_are::committed, [](std::byte*, bytes_t) {});
    for (const auto* list : {&own, &targets})
      for (std::size_t i = 0; i < list->size(); ++i) {
        const place& p = (*list)[i];
        (list == &own ? from : into)
            .add(bound_box{{0, {static_cast<int>(i), 0, 0}, {{{0, 1}, {0, p.rows}, {0, p.columns}}}},
                           pages + p.at,
                           {0, p.row_stride, p.stride},
                           2});
      }
    from.seal(), into.seal();
    return refused([&] { require_apart("device 3", from, into, adam.all(), after_use); });
  };
  constexpr bytes_t page = page_bytes;
  const auto gives = [](char which) {
    return std::string("reshard: device 3, TO: param of ") + which + " lies in pages that FROM gives back";
  };
  CHECK(says({{0, 1, page, page}, {4 * page, 1, 8, 8}}, {}, sources::release) == "accepted");
  CHECK(says({{2 * page - 2, 1, 2, 2}}, {}, sources::release) == gives('a'));
  CHECK(says({{0, 1, 8, 8}, {4 * page - 2, 1, 1, 1}}, {}, sources::release) == gives('b'));
  CHECK(says({{page, 1, 2 * page, 2 * page}}, {}, sources::release) == gives('a'));
  CHECK(says({{page, 1, 2 * page, 2 * page}}, {}, sources::keep) == "accepted");
  CHECK(says({{0, 1, 8, 8}}, {{2 * page, 1, 8, 8}}, sources::release) == "accepted");  // its own arrays may lie there
  CHECK(says({{page, 2, 8, 2 * page}}, {}, sources::release) == "accepted");           // a row before them, a row after
  CHECK(says({{page, 3, 8, page}}, {}, sources::release) == gives('a'));               // a row in them
}

TEST_CASE("an element that a plan needs is bound on the side that is told, or how many are not is") {
  const transfer needed{0, 1, adam.only(2), 1, {{{0, 1}, {0, 1}, {0, 1}, {0, 2}, {0, 4}}}};
  const auto says = [&](index_t columns) {
    binding b("rank 1", names);
    b.add({2, {1, 0, 0}, {{{0, 1}, {0, 2}, {0, columns}}}}, {arena, 8 * columns});
    b.seal();
    return refused([&] { require_bound("device 3", {needed}, b, "FROM", names); });
  };
  CHECK(says(4) == "accepted");
  CHECK(says(6) == "accepted");
  CHECK(says(3) ==
        "reshard: device 3, rank 1: 2 of 8 elements that the plan needs of exp_avg of b are not bound, on the side of "
        "FROM");
}
